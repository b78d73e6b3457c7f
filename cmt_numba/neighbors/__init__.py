"""Nearest neighbours among dense rows by vector quantisation, and votes of neighbours under several similarities."""

from ._landmark_classifier import LandmarkClassifier
from ._landmark_index import Found, LandmarkIndex

__all__ = ["Found", "LandmarkClassifier", "LandmarkIndex"]

"""Approximate nearest-neighbor search and classification of dense rows by vector quantisation."""

from ._landmark_classifier import LandmarkClassifier
from ._landmark_index import Found, LandmarkIndex

__all__ = ["LandmarkClassifier", "LandmarkIndex"]

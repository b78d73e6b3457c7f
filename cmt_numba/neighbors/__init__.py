"""Approximate nearest neighbors of dense rows by vector quantisation, and classification by their votes."""

from ._landmark_classifier import LandmarkClassifier
from ._landmark_index import Found, LandmarkIndex

__all__ = ["Found", "LandmarkClassifier", "LandmarkIndex"]

"""Sequences of symbols: edit distances that are learned, and exact search by the triangle inequality."""

from ._edit_distance import EditDistance
from ._vp_tree import VPTree

__all__ = ["EditDistance", "VPTree"]

"""Sequences of symbols: edit distances that are learned, exact search by the triangle inequality, and a memory."""

from ._edit_distance import EditDistance
from ._sequence_memory import SequenceMemory
from ._vp_tree import VPTree

__all__ = ["EditDistance", "SequenceMemory", "VPTree"]

"""Sequences of symbols: trainable edit distances, vantage-point trees, and a memory of sequences."""

from ._edit_distance import EditDistance
from ._encoders import encode_text
from ._sequence_memory import SequenceMemory
from ._vp_tree import VPTree

__all__ = ["EditDistance", "SequenceMemory", "VPTree", "encode_text"]

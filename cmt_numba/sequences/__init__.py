"""Sequences of symbols: trainable edit distances, vantage-point trees, and a memory of sequences."""

from ._edit_distance import EditDistance
from ._encoders import NOTE_SYMBOLS, encode_frames, encode_notes, encode_text
from ._sequence_memory import SequenceMemory
from ._vp_tree import VPTree

__all__ = ["NOTE_SYMBOLS", "EditDistance", "SequenceMemory", "VPTree", "encode_frames", "encode_notes", "encode_text"]

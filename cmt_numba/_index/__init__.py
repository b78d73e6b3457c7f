"""A dense index: the nearest stored vectors of queries, for vectors that may change at any time."""

from .codes import code_rotated, copy_values, dot_codes, encode_bytes, encode_signs, largest_of, rotate, score_codes
from .dense_index import Allowed, DenseIndex
from .lists import new_queries, vector_of
from .state import width_of

__all__ = [
    "Allowed",
    "DenseIndex",
    "code_rotated",
    "copy_values",
    "dot_codes",
    "encode_bytes",
    "encode_signs",
    "largest_of",
    "new_queries",
    "rotate",
    "score_codes",
    "vector_of",
    "width_of",
]

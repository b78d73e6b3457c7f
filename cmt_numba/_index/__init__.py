"""A dense index: the nearest stored vectors of queries, for vectors that may change at any time."""

from .codes import code_rotated, copy_values, dot_codes, encode_bytes, encode_signs, largest_of, rotate, score_codes
from .dense_index import METRICS, Allowed, DenseIndex
from .lists import new_queries, vector_of
from .state import COSINE, EUCLIDEAN, width_of

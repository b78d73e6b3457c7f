"""A dense index: the nearest stored vectors of queries, for vectors that may change at any time."""

from .dense_index import Allowed, DenseIndex

__all__ = ["Allowed", "DenseIndex"]

"""Memories of other shards, for whose rewards a store learns as well."""

from hashlib import blake2b
from typing import Any, NamedTuple, Self

import numpy as np

from ._checks import Key


class MemoriesOfOthers(NamedTuple):
    """Memories of other shards."""

    others: np.ndarray  # int64: their ids, below -1 and ascending
    vectors: Any  # their vectors

    @classmethod
    def of(cls, keys: list[Key], vectors: Any) -> Self:
        """Return memories with distinct keys."""
        ids, first = np.unique(other_ids(keys), return_index=True)
        return cls(ids, vectors[first])


def other_ids(keys: list[Key]) -> np.ndarray:
    """Return the ids of memories of other shards. They are derived from the keys."""
    digests = [blake2b(repr(key).encode(), digest_size=8).digest() for key in keys]
    numbers = np.array([int.from_bytes(digest, "little") >> 2 for digest in digests], np.int64)
    return -2 - numbers

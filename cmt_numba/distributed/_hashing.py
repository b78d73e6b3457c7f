"""Which shard a key belongs to: consistent hashing (Karger et al., 1997)."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np

from ..store._checks import Key

_POINTS = 512
"""Points of each shard on the ring. The shares of shards differ by about ``1 / sqrt(512)``, 4 %."""

_IN_A_DIGEST = 8


class Ring:
    """A ring of hashes, on which each shard has points. A key belongs to the shard whose point follows its hash.

    When a shard joins, only keys that it takes over change their shard.

    Parameters
    ----------
    names : sequence of str
        The names of the shards, which decide where their points are.
    """

    def __init__(self, names: Sequence[str]) -> None:
        points = [_points(name) for name in names]
        owners = np.repeat(np.arange(len(names)), _POINTS)
        order = np.argsort(np.concatenate(points), kind="stable")
        self._points, self._owners = np.concatenate(points)[order], owners[order]

    def owners(self, keys: Sequence[Key]) -> np.ndarray:
        """Return the positions of the shards to which keys belong: int64, shape (n,)."""
        return self.owners_of(hashes(keys))

    def owners_of(self, hashed: np.ndarray) -> np.ndarray:
        """Return the positions of the shards to which keys with these hashes belong: int64, shape (n,)."""
        following = np.searchsorted(self._points, hashed)
        return np.asarray(self._owners[following % self._points.size])


def hashes(keys: Sequence[Key]) -> np.ndarray:
    """Return hashes of keys, the same in every process and version: uint64, shape (n,)."""
    if keys and isinstance(keys[0], int):
        return _mixed(np.array(keys, np.int64).view(np.uint64))
    digests = b"".join(blake2b(key.encode(), digest_size=8).digest() for key in keys)  # type: ignore[union-attr]
    return np.frombuffer(digests, "<u8").astype(np.uint64)


def _points(name: str) -> np.ndarray:
    digests = [blake2b(f"{name} {i}".encode()).digest() for i in range(_POINTS // _IN_A_DIGEST)]
    return np.frombuffer(b"".join(digests), "<u8").astype(np.uint64)


def _mixed(numbers: np.ndarray) -> np.ndarray:
    """Return the outputs of SplitMix64 (Steele, Lea and Flood, 2014) for these states."""
    z = numbers + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: np.ndarray = z ^ (z >> np.uint64(31))
    return mixed

"""The topology of a store, which determines the shard that owns each key, even while memories move."""

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple, Self

import numpy as np

from ..store import Key
from ._schema import Schema

_POINTS = 512  # number of points per shard on the ring. The shares of shards differ by about ``1 / sqrt(512)``, or 4 %.
_IN_A_DIGEST = 8  # number of points from a digest of 64 bytes


class Ring:
    """A hash ring for consistent hashing (Karger et al., 1997).

    A shard has points on the ring, which depend on its name. The shard with the first point after a key's hash owns the
    key. When a shard is added, only the keys that it takes over change owners.
    """

    def __init__(self, names: Sequence[str]) -> None:
        points = [_points(name) for name in names]
        owners = np.repeat(np.arange(len(names)), _POINTS)
        order = np.argsort(np.concatenate(points), kind="stable")
        self._points, self._owners = np.concatenate(points)[order], owners[order]

    def owners(self, keys: Sequence[Key]) -> np.ndarray:
        """Return the position in ``names`` of the shard that owns each key: int64, shape (n,)."""
        return self.owners_of(hash_keys(keys))

    def owners_of(self, hashed: np.ndarray) -> np.ndarray:
        """Return the owner of each key from its hash; see :meth:`owners`."""
        following = np.searchsorted(self._points, hashed)
        return np.asarray(self._owners[following % self._points.size])


def hash_keys(keys: Sequence[Key]) -> np.ndarray:
    """Return the hash of each key: uint64, shape (n,). Hashes are the same in every process and library version."""
    if keys and isinstance(keys[0], int):
        return _mixed(np.array(keys, np.int64).view(np.uint64))
    digests = b"".join(blake2b(key.encode(), digest_size=8).digest() for key in keys)  # type: ignore[union-attr]
    return np.frombuffer(digests, "<u8").astype(np.uint64)


def _points(name: str) -> np.ndarray:
    digests = [blake2b(f"{name} {i}".encode()).digest() for i in range(_POINTS // _IN_A_DIGEST)]
    return np.frombuffer(b"".join(digests), "<u8").astype(np.uint64)


def _mixed(numbers: np.ndarray) -> np.ndarray:
    """Return SplitMix64 hashes of numbers (Steele, Lea and Flood, 2014)."""
    z = numbers + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


class Topology(NamedTuple):
    """The shards of a store and the schema of its memories.

    Every call contains a topology version, and a shard with another version rejects the call. Only the first shard of a
    topology decides on the next topology, so versions are unique.

    - ``version``: the version number, which increases by 1 with each topology.
    - ``before``, ``after``: the names of the shards before and after the last move of memories. They differ during a
      move.
    - ``schema``: the schema of all memories.
    - ``move``: the number of the last move: the version in which it began. Later versions may change only the schema.
    """

    version: int
    before: tuple[str, ...]
    after: tuple[str, ...]
    schema: Schema = Schema()
    move: int = 0

    @property
    def is_moving(self) -> bool:
        """Whether a move of memories is in progress."""
        return self.before != self.after

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all shards that may contain memories."""
        return self.before + tuple(name for name in self.after if name not in self.before)

    def next(self, after: Sequence[str]) -> Self:
        """Return the topology that moves memories to the shards ``after`` or, if they are moving, ends the move."""
        return type(self)(self.version + 1, self.after, tuple(after), self.schema, self.version + 1)

    def reversed(self) -> Self:
        """Return the next topology, which undoes the current move."""
        return self.next(self.before)

    def with_schema(self, schema: Schema) -> Self:
        """Return the next topology, with the same shards and another schema."""
        return self._replace(version=self.version + 1, schema=schema)

    def divided(self, keys: Sequence[Key]) -> dict[str, np.ndarray]:
        """Return a dictionary from shard names to the positions of their keys."""
        owners = _ring(self.after).owners(keys)
        order = np.argsort(owners, kind="stable")
        present, firsts = np.unique(owners[order], return_index=True)
        parts = np.split(order, firsts[1:])
        return {self.after[owner]: part for owner, part in zip(present.tolist(), parts, strict=True)}

    def leaving(self, keys: Sequence[Key]) -> dict[str, np.ndarray]:
        """Return a dictionary from shard names to the positions of keys that leave the shard in the current move."""
        if not self.is_moving or not keys:
            return {}
        old, new = _ring(self.before), _ring(self.after)
        hashed = hash_keys(keys)
        former = np.array(self.before)[old.owners_of(hashed)]
        moving = np.flatnonzero(former != np.array(self.after)[new.owners_of(hashed)])
        return {str(name): moving[former[moving] == name] for name in np.unique(former[moving])}

    def to_json(self) -> str:
        """Return the topology as JSON."""
        return json.dumps(self._asdict())

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the topology in a JSON text."""
        found = json.loads(text)
        version, schema = int(found["version"]), Schema(*found.get("schema", ()))
        return cls(version, tuple(found["before"]), tuple(found["after"]), schema, int(found.get("move", version)))


class MoveProgress(NamedTuple):
    """The batches of memories that a shard has given and received in the current move."""

    given: Mapping[str, int]  # given[name]: the number of the last batch that this shard has given to shard ``name``
    received: Mapping[str, tuple[int, int]]  # received[name]: the number and size of the last batch from shard ``name``


def shards_behind(progress: Mapping[str, MoveProgress]) -> list[str]:
    """Return the shards that answered before receiving a batch that its giver had already deleted.

    The memories of the batch may be missing from all answers.
    """
    found = {
        to
        for name, own in progress.items()
        for to, number in own.given.items()
        if to in progress and progress[to].received.get(name, (0, 0))[0] < number
    }
    return sorted(found)


def count_duplicates(progress: Mapping[str, MoveProgress]) -> int:
    """Return the number of memories that two shards count: received by one, but not yet deleted by the other."""
    return sum(
        size
        for name, own in progress.items()
        for giver, (number, size) in own.received.items()
        if giver in progress and progress[giver].given.get(name, 0) < number
    )


def pick(values: Sequence[Key], positions: np.ndarray) -> list[Key]:
    """Return the values at the given positions."""
    return [values[position] for position in positions.tolist()]


@lru_cache(maxsize=8)
def _ring(names: tuple[str, ...]) -> Ring:
    return Ring(names)

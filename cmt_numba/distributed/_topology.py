"""The topology of a store: its shards, and the owners of keys, also while memories move."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple, Self

import numpy as np

from ..store import Key
from ._schema import Schema

_POINTS = 512
"""Points of each shard on the ring. The shares of shards differ by about ``1 / sqrt(512)``, 4 %."""

_IN_A_DIGEST = 8


class Ring:
    """A ring of hashes on which each shard has points (consistent hashing; Karger et al., 1997).

    A key belongs to the shard whose point follows its hash. When a shard joins, only the keys that it takes over change
    their owner. The points of a shard depend on its name.
    """

    def __init__(self, names: Sequence[str]) -> None:
        points = [_points(name) for name in names]
        owners = np.repeat(np.arange(len(names)), _POINTS)
        order = np.argsort(np.concatenate(points), kind="stable")
        self._points, self._owners = np.concatenate(points)[order], owners[order]

    def owners(self, keys: Sequence[Key]) -> np.ndarray:
        """Return the positions of the shards to which keys belong: int64, shape (n,)."""
        return self.owners_of(hash_keys(keys))

    def owners_of(self, hashed: np.ndarray) -> np.ndarray:
        """Return the positions of the shards to which keys with these hashes belong: int64, shape (n,)."""
        following = np.searchsorted(self._points, hashed)
        return np.asarray(self._owners[following % self._points.size])


def hash_keys(keys: Sequence[Key]) -> np.ndarray:
    """Return hashes of keys, which are the same in every process and version: uint64, shape (n,)."""
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


class Topology(NamedTuple):
    """The shards of a store, and the schema on which they have agreed.

    Calls carry the version of the topology, and a shard with another version refuses them. Only the first shard of a
    topology decides which one follows, so versions are unique.

    Attributes
    ----------
    version : int
        Increases with each topology.
    before, after : tuple of str
        The shards before and after the last move of memories. They differ while memories move.
    schema : Schema
        Properties of all memories.
    move : int
        The version in which the move began. A later version may change the schema alone.
    """

    version: int
    before: tuple[str, ...]
    after: tuple[str, ...]
    schema: Schema = Schema()
    move: int = 0

    @property
    def is_moving(self) -> bool:
        """Whether memories move between shards."""
        return self.before != self.after

    @property
    def names(self) -> tuple[str, ...]:
        """All shards that may hold memories."""
        return self.before + tuple(name for name in self.after if name not in self.before)

    def next(self, after: Sequence[str]) -> Self:
        """Return the topology in which memories move to other shards or, for the same shards, the move has ended."""
        return type(self)(self.version + 1, self.after, tuple(after), self.schema, self.version + 1)

    def reversed(self) -> Self:
        """Return the topology that undoes the move."""
        return self.next(self.before)

    def with_schema(self, schema: Schema) -> Self:
        """Return the topology of the same shards with another schema."""
        return self._replace(version=self.version + 1, schema=schema)

    def divided(self, keys: Sequence[Key]) -> dict[str, np.ndarray]:
        """Return the positions of keys by owner."""
        return {self.after[owner]: part for owner, part in _positions_by_owner(_ring(self.after).owners(keys)).items()}

    def leaving(self, keys: Sequence[Key]) -> dict[str, np.ndarray]:
        """Return the positions of moving keys by the shard that they leave."""
        if not self.is_moving or not keys:
            return {}
        old, new = _ring(self.before), _ring(self.after)
        hashed = hash_keys(keys)
        former = np.array(self.before)[old.owners_of(hashed)]
        moving = np.flatnonzero(former != np.array(self.after)[new.owners_of(hashed)])
        return {str(name): moving[former[moving] == name] for name in np.unique(former[moving])}

    def to_json(self) -> str:
        """Return the topology as text."""
        return json.dumps(self._asdict())

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return a topology from its JSON text."""
        found = json.loads(text)
        version, schema = int(found["version"]), Schema(*found.get("schema", ()))
        return cls(version, tuple(found["before"]), tuple(found["after"]), schema, int(found.get("move", version)))


class MoveProgress(NamedTuple):
    """The batches of memories that a shard has given to others and received, by shard."""

    given: Mapping[str, int]  # the last batch that this shard has begun to delete after the other received it
    received: Mapping[str, tuple[int, int]]  # number and size of the last batch received

    def last_from(self, name: str) -> int:
        """Return the number of the last batch received from a shard."""
        return self.received.get(name, (0, 0))[0]


def shards_behind(progress: Mapping[str, MoveProgress]) -> list[str]:
    """Return the shards whose answers are older than those of shards that sent them memories.

    Memories in such batches may be missing from all answers.
    """
    pairs = {(to, name): number for name, own in progress.items() for to, number in own.given.items()}
    found = {to for (to, name), number in pairs.items() if to in progress and progress[to].last_from(name) < number}
    return sorted(found)


def count_duplicates(progress: Mapping[str, MoveProgress]) -> int:
    """Return the number of memories counted twice: received by a shard, but not yet deleted by another."""
    return sum(
        size
        for name, own in progress.items()
        for giver, (number, size) in own.received.items()
        if giver in progress and progress[giver].given.get(name, 0) < number
    )


def pick(values: Sequence[Key], positions: np.ndarray) -> list[Key]:
    """Return the values at some positions."""
    return [values[position] for position in positions.tolist()]


def _positions_by_owner(owners: np.ndarray) -> dict[int, np.ndarray]:
    order = np.argsort(owners, kind="stable")
    present, firsts = np.unique(owners[order], return_index=True)
    return {int(owner): part for owner, part in zip(present, np.split(order, firsts[1:]), strict=True)}


@lru_cache(maxsize=8)
def _ring(names: tuple[str, ...]) -> Ring:
    return Ring(names)

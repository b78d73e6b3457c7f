"""Which shards there are, and to which of them keys belong, also while memories move between shards."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, Self

import numpy as np

from ..store._checks import Key
from ._arguments import by_owner
from ._hashing import Ring, hashes
from ._schema import Schema


class Topology(NamedTuple):
    """The shards of a store, and what they have agreed on.

    Calls carry its version, and a shard of another version refuses them. The first shard alone decides which topology
    follows: so no two have the same version.

    Attributes
    ----------
    version : int
        A later topology has a larger one.
    before : tuple of str
        The shards to which keys belonged before memories began to move; those of ``after`` if none move.
    after : tuple of str
        The shards to which keys belong.
    schema : Schema
        What all memories have in common.
    move : int
        The version since which the shards are these. Memories move between shards that know the same one.
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
        """Return the topology in which memories move to other shards, or, for the same shards, the move has ended."""
        return type(self)(self.version + 1, self.after, tuple(after), self.schema, self.version + 1)

    def reversed(self) -> Self:
        """Return the topology in which the memories that have moved go back."""
        return self.next(self.before)

    def with_schema(self, schema: Schema) -> Self:
        """Return the topology of the same shards with another schema."""
        return self._replace(version=self.version + 1, schema=schema)

    def divided(self, keys: Sequence[Key]) -> dict[str, np.ndarray]:
        """Return for each shard the positions of the keys that belong to it."""
        return {self.after[owner]: part for owner, part in by_owner(_ring(self.after).owners(keys)).items()}

    def leaving(self, keys: Sequence[Key]) -> dict[str, np.ndarray]:
        """Return the positions of the keys that move, by the shards that they leave."""
        if not self.is_moving or not keys:
            return {}
        old, new = _ring(self.before), _ring(self.after)
        hashed = hashes(keys)
        former = np.array(self.before)[old.owners_of(hashed)]
        moving = np.flatnonzero(former != np.array(self.after)[new.owners_of(hashed)])
        return {str(name): moving[former[moving] == name] for name in np.unique(former[moving])}

    def to_json(self) -> str:
        """Return the topology as text."""
        return json.dumps(self._asdict())

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the topology that :meth:`to_json` has written."""
        found = json.loads(text)
        version, schema = int(found["version"]), Schema(*found.get("schema", ()))
        return cls(version, tuple(found["before"]), tuple(found["after"]), schema, int(found.get("move", version)))


class Moved(NamedTuple):
    """Which batches of memories a shard has given to others and received from them.

    Attributes
    ----------
    given : dict of str to int
        For each other shard, the last batch that this shard has begun to delete, because the other one has it.
    received : dict of str to (int, int)
        For each other shard, the last batch that this shard holds, and its size.
    """

    given: Mapping[str, int]
    received: Mapping[str, tuple[int, int]]

    def last_from(self, name: str) -> int:
        """Return the last batch that was received from a shard."""
        return self.received.get(name, (0, 0))[0]


def late(moved: Mapping[str, Moved]) -> list[str]:
    """Return the shards whose answers are older than those of shards that gave them memories.

    Such memories may be in none of the answers.
    """
    pairs = {(to, name): number for name, own in moved.items() for to, number in own.given.items()}
    found = {to for (to, name), number in pairs.items() if to in moved and moved[to].last_from(name) < number}
    return sorted(found)


def n_twice(moved: Mapping[str, Moved]) -> int:
    """Return how many memories two shards hold, because the one has received them and the other not yet deleted."""
    return sum(
        size
        for name, own in moved.items()
        for giver, (number, size) in own.received.items()
        if giver in moved and moved[giver].given.get(name, 0) < number
    )


@lru_cache(maxsize=8)
def _ring(names: tuple[str, ...]) -> Ring:
    return Ring(names)

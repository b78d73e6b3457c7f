"""How a shard gives memories to others, in batches, so that none is lost or doubled whenever a process dies.

Once a shard has a topology in which memories move, the memories that leave it change no more: whoever wants to change
one asks for its move first. So a batch is made of what is stored, and can be sent again. The shard writes down the
number and the keys of a batch before it sends it, and deletes the batch and this note in one transaction when the other
shard has it. The other shard writes the number of the batch in the transaction in which it adds the memories, and
ignores a batch that it has.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..store import MemoryStore
from ..store._checks import Key
from ._arguments import picked
from ._schema import Schema
from ._topology import Moved, Topology

_TOPOLOGY, _GIVEN, _RECEIVED, _BATCH = "topology", "batches given", "batches received", "batch under way"
_AT_ONCE = 2048  # memories in a batch

Send = Callable[[Topology, str, str, int, list[Key], Any, list[Any]], None]
"""Gives a batch to a shard: topology, the shard, who gives, number, keys, vectors, payloads."""

Publish = Callable[..., None]
"""Tells the replicas of the shard of a call of a method, whose name and arguments are given."""


def write_facts(store: MemoryStore, facts: dict[str, Any]) -> None:
    """Write facts about a store, which are on disk when this returns, also without any change of its memories."""
    with store._keeper.writing:
        store._keeper.change(lambda kept, commit: kept.records.set_facts(facts))
        store._keeper.sync()


class Batch(NamedTuple):
    """A batch that is under way."""

    number: int
    to: str
    keys: list[Key]


class Moves:
    """The moves of a shard.

    Parameters
    ----------
    name : str
        The name of the shard.
    store : MemoryStore
        Its store, in which the topology and the state of the moves are kept as facts.
    send : function
        What gives a batch to another shard, and returns when that one holds it.
    publish : function
        What tells replicas of a change.
    """

    def __init__(self, name: str, store: MemoryStore, send: Send, publish: Publish) -> None:
        self._name, self._store, self._send, self._publish = name, store, send, publish
        facts = store._records().facts()
        self.topology = Topology.from_json(facts[_TOPOLOGY]) if _TOPOLOGY in facts else Topology(0, (), ())
        self._given: dict[str, int] = json.loads(facts.get(_GIVEN, "{}"))
        self._received: dict[str, list[int]] = json.loads(facts.get(_RECEIVED, "{}"))
        under_way = json.loads(facts.get(_BATCH, "null"))
        self._under_way = None if under_way is None else Batch(*under_way)
        self._giving = threading.Lock()  # one batch at a time
        self._last = -1  # id of the last memory that was looked at

    @property
    def moved(self) -> Moved:
        """Which batches were given and received."""
        received = {name: (number, size) for name, (number, size) in self._received.items()}
        return Moved(dict(self._given), received)

    def adopt(self, topology: Topology, after: int | None = None) -> None:
        """Go over to a later topology; with ``after``, only from the topology of that version."""
        with self._giving, self._store._keeper.writing:
            if topology.version <= self.topology.version or after not in (None, self.topology.version):
                return
            facts = {_TOPOLOGY: topology.to_json()}
            if topology.move != self.topology.move:
                facts |= {_GIVEN: "{}", _RECEIVED: "{}", _BATCH: "null"}
            self._write(facts)
            if topology.move != self.topology.move:
                self._given, self._received, self._under_way, self._last = {}, {}, None, -1
            self.topology = topology
            self._publish("adopt", topology)

    def _write(self, facts: dict[str, Any]) -> None:
        write_facts(self._store, facts)

    # Giving

    def give(self, move: int, keys: list[Key] | None) -> bool | None:
        """Give memories to the shards to which they belong.

        Parameters
        ----------
        move : int
            The move that the caller knows.
        keys : list of keys or None
            Which memories; None for the next ones.

        Returns
        -------
        bool or None
            Whether there are none left, or, with ``keys``, none of these. None if the shard takes part in another move.
        """
        with self._giving:
            if self.topology.move != move:
                return None
            self._complete()
            if keys is not None:
                self._give(keys)
                return True
            found = self._store._records().after(self._last)
            looked_at, keys = [memory_id for memory_id, _, _ in found], [key for _, key, _ in found]
            leaving = self._leaving(keys)
            if leaving.size > _AT_ONCE:
                leaving = leaving[:_AT_ONCE]
                del looked_at[leaving[-1] + 1 :]
            self._give(picked(keys, leaving))
            self._last = looked_at[-1] if looked_at else self._last
            return not found

    def _leaving(self, keys: list[Key]) -> np.ndarray:
        """Return the positions of the keys that do not belong to this shard, rising."""
        parts = [part for to, part in self.topology.divided(keys).items() if to != self._name] if keys else []
        return np.sort(np.concatenate([np.empty(0, np.int64), *parts]))

    def _give(self, keys: list[Key]) -> None:
        """Give those of the memories with some keys that are here to the other shards to which they belong."""
        keys = self._stored(keys)
        for to, part in self.topology.divided(keys).items() if keys else ():
            if to != self._name:
                for first in range(0, part.size, _AT_ONCE):
                    own = picked(keys, part[first : first + _AT_ONCE])
                    self._under_way = Batch(self._given.get(to, 0) + 1, to, own)
                    self._write({_BATCH: json.dumps(self._under_way)})
                    self._complete()

    def _complete(self) -> None:
        """Give the batch that is under way, if there is one."""
        batch = self._under_way
        if batch is None:
            return
        with self._store._keeper.writing:
            keys = self._stored(batch.keys)
            items = self._store.get(keys) if keys else None
        if items is not None:
            self._send(self.topology, batch.to, self._name, batch.number, items.keys, items.vectors, items.payloads)
        self.forget(batch)
        self._under_way = None

    def _stored(self, keys: list[Key]) -> list[Key]:
        """Return the keys that are stored. A bounded store may have evicted others since a batch was made."""
        return picked(keys, np.flatnonzero(self._store._records().find(keys) >= 0)) if keys else []

    def forget(self, batch: Batch) -> None:
        """Delete a batch that another shard has."""
        keeper = self._store._keeper
        with keeper.writing:
            self._given[batch.to] = batch.number  # before anything is deleted, for queries that go on meanwhile
            facts, keys = {_GIVEN: json.dumps(self._given), _BATCH: "null"}, self._stored(batch.keys)
            if keys:
                with keeper.noting(facts):
                    self._store.delete(keys)
            else:
                self._write(facts)
            self._publish("forget", batch)

    # Receiving

    def receive(self, move: int, giver: str, number: int, keys: list[Key], X: Any, payloads: list[Any]) -> bool:
        """Add a batch of memories, unless it is here; return whether the shard takes part in this move.

        Memories of a batch may be here already, if the move that brought them was taken back.
        """
        keeper = self._store._keeper
        with keeper.writing:
            if self.topology.move != move:
                return False
            if number > self._received.get(giver, [0])[0]:
                received = self._received | {giver: [number, len(keys)]}
                self.topology.schema.check(Schema.of(keys, X))
                with keeper.noting({_RECEIVED: json.dumps(received)}):
                    self._store.upsert(keys, X, payloads)
                self._received = received
                self._publish("receive", move, giver, number, keys, X, payloads)
            return True

"""Moves of memories between shards, in batches. No memory is lost or duplicated if a process dies.

Memories that are about to leave a shard do not change: clients move a memory before they change it. A batch can
therefore be sent again unchanged. The giver records the number and keys of a batch before sending it. After the
receiver has stored the batch, the giver deletes the memories and the record in one transaction. The receiver records
the number in the transaction that adds the memories, and ignores batches that it has already received.
"""

import json
import threading
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from ..store import Items, Key, MemoryStore
from ._store_access import alone, change_and_note, facts_of, have_vectors, ids_of, keys_after, write_facts
from ._topology import MoveProgress, Schema, Topology, pick

_TOPOLOGY, _GIVEN, _RECEIVED, _BATCH = "topology", "batches given", "batches received", "batch under way"
_AT_ONCE = 2048  # maximum number of memories in a batch

Send = Callable[[Topology, str, str, int, Items], None]
"""A function that sends a batch to another shard.

The arguments are the topology, the receiver, the giver, the batch number and the memories.
"""

Publish = Callable[..., None]
"""A function that repeats a method call in the shard's replicas. Its arguments are the method's name and arguments."""


class MoveBatch(NamedTuple):
    """A batch that is being sent."""

    number: int
    to: str
    keys: list[Key]


class Moves:
    """The topology of a shard, and the memories that it gives and receives.

    The topology and the progress of moves are stored as facts. ``send`` must wait until the receiver has stored the
    batch.
    """

    def __init__(self, name: str, store: MemoryStore, send: Send, publish: Publish) -> None:
        self._name, self._store, self._send, self._publish = name, store, send, publish
        facts = facts_of(store)
        self.topology = Topology.from_json(facts[_TOPOLOGY]) if _TOPOLOGY in facts else Topology(0, (), ())
        self._given: dict[str, int] = json.loads(facts.get(_GIVEN, "{}"))
        self._received: dict[str, list[int]] = json.loads(facts.get(_RECEIVED, "{}"))
        under_way = json.loads(facts.get(_BATCH, "null"))
        self._under_way = None if under_way is None else MoveBatch(*under_way)
        self._giving = threading.Lock()  # held while a batch is given
        self._last = -1  # id of the last memory checked by ``give``

    @property
    def progress(self) -> MoveProgress:
        """The numbers of the batches given and received."""
        received = {name: (number, size) for name, (number, size) in self._received.items()}
        return MoveProgress(dict(self._given), received)

    def adopt(self, topology: Topology, after: int | None = None) -> None:
        """Adopt a later topology if the current version is ``after``, if given."""

        def adopt() -> None:
            if topology.version <= self.topology.version or after not in (None, self.topology.version):
                return
            facts = {_TOPOLOGY: topology.to_json()}
            if topology.move != self.topology.move:
                facts |= {_GIVEN: "{}", _RECEIVED: "{}", _BATCH: "null"}
            write_facts(self._store, facts)
            if topology.move != self.topology.move:
                self._given, self._received, self._under_way, self._last = {}, {}, None, -1
            self.topology = topology
            self._publish("adopt", topology)

        with self._giving:
            alone(self._store, adopt)

    # Giving

    def give(self, move: int, keys: list[Key] | None) -> bool | None:
        """Give the memories with ``keys``, or the next batch, to the shards that own them; return whether all were.

        Return None if this shard has a topology with another move.
        """
        with self._giving:
            if self.topology.move != move:
                return None
            self._complete()
            if keys is not None:
                self._give(keys)
                return True
            following, ids = keys_after(self._store, self._last)
            parts = self.topology.divided(following) if following else {}
            leaving = np.sort(np.concatenate([parts[to] for to in parts if to != self._name] or [np.empty(0, int)]))
            if leaving.size > _AT_ONCE:
                leaving = leaving[:_AT_ONCE]
                del ids[leaving[-1] + 1 :]
            self._give(pick(following, leaving))
            self._last = ids[-1] if ids else self._last
            return not following

    def _give(self, keys: list[Key]) -> None:
        """Give the stored memories with these keys to the shards that own them."""
        keys = self._stored(keys)
        for to, part in self.topology.divided(keys).items() if keys else ():
            if to != self._name:
                mask = have_vectors(self._store, pick(keys, part))  # all memories of a batch have vectors, or none has
                for same in (part[mask], part[~mask]):
                    for first in range(0, same.size, _AT_ONCE):
                        own = pick(keys, same[first : first + _AT_ONCE])
                        self._under_way = MoveBatch(self._given.get(to, 0) + 1, to, own)
                        write_facts(self._store, {_BATCH: json.dumps(self._under_way)})
                        self._complete()

    def _complete(self) -> None:
        """Send the unfinished batch, if any, and delete its memories."""
        batch = self._under_way
        if batch is None:
            return

        def find() -> Items | None:
            keys = self._stored(batch.keys)
            return self._store.get(keys) if keys else None

        items = alone(self._store, find)
        if items is not None:
            self._send(self.topology, batch.to, self._name, batch.number, items)
        self.forget(batch)
        self._under_way = None

    def _stored(self, keys: list[Key]) -> list[Key]:
        """Return the keys that are still stored. A bounded store may have evicted some since the batch was recorded."""
        return pick(keys, np.flatnonzero(ids_of(self._store, keys) >= 0)) if keys else []

    def forget(self, batch: MoveBatch) -> None:
        """Delete the memories of a batch that the receiver has stored."""

        def forget() -> None:
            self._given[batch.to] = batch.number  # set it before the deletion: concurrent queries read it
            facts, keys = {_GIVEN: json.dumps(self._given), _BATCH: "null"}, self._stored(batch.keys)
            if keys:
                change_and_note(self._store, partial(self._store.delete, keys), facts)
            else:
                write_facts(self._store, facts)
            self._publish("forget", batch)

        alone(self._store, forget)

    # Receiving

    def receive(self, move: int, giver: str, number: int, items: Items) -> bool:
        """Add a batch of memories. Return False if this shard's topology has another move.

        A repeated call has no effect. If a move is undone, memories of a batch may already be stored.
        """

        def receive() -> bool:
            if self.topology.move != move:
                return False
            if number > self._received.get(giver, [0])[0]:
                received = self._received | {giver: [number, len(items.keys)]}
                self.topology.schema.check(Schema.of(items.keys, items.vectors))
                texts = items.texts if any(items.texts) else None
                add = partial(
                    self._store.upsert, items.keys, items.vectors, items.payloads, texts, expires=items.expires
                )
                change_and_note(self._store, add, {_RECEIVED: json.dumps(received)})
                self._received = received
                self._publish("receive", move, giver, number, items)
            return True

        return alone(self._store, receive)

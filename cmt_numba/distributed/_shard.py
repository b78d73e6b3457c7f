"""One shard of a store: what runs in the process of an actor."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

from ..journal import AlreadyOpenError
from ..persistence import FileFormatError
from ..store import MemoryStore
from ..store._checks import Key
from ..store._requests import Requests
from ._cluster import actor_of, running
from ._errors import ClusterError, MoveError
from ._followers import Followers
from ._moves import Moves
from ._reading import Plan, Position, Read, Reading, Refused, make_change
from ._schema import Schema
from ._topology import Topology

_SECONDS_TO_OPEN = 5.0  # while the process before still holds the lock of the folder


class Opened(NamedTuple):
    """A shard that is open."""

    store: MemoryStore
    requests: Requests
    moves: Moves
    followers: Followers


class Made(NamedTuple):
    """What a shard answers when it has made a change."""

    position: Position


class Shard(Reading):
    """The store of a shard, and the requests that it has met. An actor of this class answers several calls at a time.

    The store is opened by the first call, so that what is wrong with a folder is raised where the caller sees it.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._opening = threading.Lock()
        self._opened: Opened | None = None

    def _open(self) -> Opened:
        with self._opening:
            if self._opened is None:
                store = self._open_store()
                followers = Followers(self._plan, store)
                moves = Moves(self._plan.name, store, self._send, followers.publish)
                self._opened = Opened(store, Requests(store), moves, followers)
            return self._opened

    def _open_store(self) -> MemoryStore:
        path, deadline = self._plan.path, time.monotonic() + _SECONDS_TO_OPEN
        if self._plan.file is not None:
            return MemoryStore.load(self._plan.file, **self._plan.options)
        if path is not None and not self._plan.is_new and not Path(path).is_dir():
            raise FileFormatError(path, "is missing; restore it from a copy")
        while True:
            try:
                return MemoryStore(path, **self._plan.options)
            except AlreadyOpenError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def _stored(self) -> tuple[MemoryStore, Moves]:
        opened = self._open()
        return opened.store, opened.moves

    # Calls of clients

    def change(self, version: int, request: str, name: str, *arguments: Any) -> Made | Refused:
        """Make a change of the store and of its replicas, once for each name of a request."""
        store, requests, moves, followers = self._open()
        with store._keeper.writing:
            if requests.is_known(request):
                followers.publish("nothing")  # they may not have heard of it, if this process is a new one
            elif moves.topology.version != version:
                return Refused(moves.topology)
            else:
                if name in ("add", "upsert"):
                    arguments = self._admitted(moves.topology.schema, *arguments)
                requests.make(request, lambda: make_change(store, name, arguments))
                followers.publish("change", name, *arguments)
            return Made(followers.position)

    def _admitted(self, schema: Schema, keys: list[Key], X: Any, payloads: Any) -> tuple[Any, ...]:
        """Return new memories in the form that was agreed on, whatever the client knows of that."""
        if not schema.is_complete:
            raise RuntimeError(f"the shards have not agreed yet on {schema}; memories cannot be added")
        schema.check(Schema.of(keys, X))
        return keys, schema.to_form(X), payloads

    def read(self, version: int, at_least: Position, name: str, *arguments: Any) -> Read | Refused:
        """Return the answer to a question; see :class:`Reading`. ``at_least`` is for replicas."""
        return self._answer(version, name, arguments)

    def follow(self, actor: str) -> tuple[Position, bytes]:
        """Return the position and the store, and tell a replica of all changes from then on."""
        return self._open().followers.follow(actor)

    # Moves of memories

    def topology(self) -> Topology:
        """Return the topology that this shard knows."""
        return self._open().moves.topology

    def adopt(self, topology: Topology) -> Topology:
        """Go over to a topology, unless the shard knows a later one; return that which it knows then."""
        moves = self._open().moves
        moves.adopt(topology)
        return moves.topology

    def decide(self, after: int, topology: Topology) -> Topology:
        """Decide which topology follows the one of a version; return that which the shard knows then.

        Clients ask the first shard of a topology.
        """
        moves = self._open().moves
        moves.adopt(topology, after)
        return moves.topology

    def give(self, move: int, keys: list[Key] | None) -> bool | Refused:
        """Give memories to the shards to which they belong; see :meth:`Moves.give`."""
        moves = self._open().moves
        is_done = moves.give(move, keys)
        return Refused(moves.topology) if is_done is None else is_done

    def receive(self, move: int, giver: str, number: int, keys: list[Key], X: Any, payloads: list[Any]) -> bool:
        """Take a batch of memories over; see :meth:`Moves.receive`."""
        return self._open().moves.receive(move, giver, number, keys, X, payloads)

    def _send(
        self, topology: Topology, to: str, giver: str, number: int, keys: list[Key], X: Any, payloads: list[Any]
    ) -> None:
        """Give a batch to another shard, and wait until that one has it."""
        module, other = running(), actor_of(self._plan.cluster, to)
        try:
            while not module.get(other.receive.remote(topology.move, giver, number, keys, X, payloads)):
                known = module.get(other.adopt.remote(topology))
                if known.move != topology.move:
                    raise ClusterError(f"{to} knows a later topology than {giver}: {known}")
        except module.exceptions.RayTaskError as error:
            raise MoveError(giver, to, str(error.cause)) from error

    def options(self) -> tuple[dict[str, Any], list[tuple[str, ...]]]:
        """Return options by which a shard like this one is made, and the fields of payloads that have an index."""
        store = self._open().store
        tree = store._keeper.kept.tree._forest.options
        names = {"max_memories": "max_items", "scorer_learning_rate": "learning_rate"}
        kept = ("max_memories", "eviction", "n_trees", "n_links", "scorer_learning_rate")
        options = {names.get(name, name): tree[name] for name in kept if tree.get(name) is not None}
        fields = [tuple(path[3:-1].split('"."')) for path in store._records().fields()]  # of $."name"."name"
        return options | {"metric": store.metric}, fields

    # Files

    def save(self, path: str) -> None:
        """Write the store to a file."""
        self._open().store.save(path)

    def close(self) -> None:
        """Close the store."""
        with self._opening:
            if self._opened is not None:
                self._opened[0].close()

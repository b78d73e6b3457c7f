"""The actor of a store's shard."""

import os
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from ..journal import AlreadyOpenError
from ..persistence import FileFormatError
from ..store import Items, Key, MemoryStore
from ._calls import OtherTopology, Position, Reply, ShardPlan, answer, make_change
from ._cluster import actor_of, running
from ._errors import ClusterError, MoveError
from ._moves import Moves
from ._replica import Followers
from ._store_access import alone, change_and_note, delete_facts, facts_of, indexed_fields, options_of, silence_filters
from ._topology import Schema, Topology

_SECONDS_TO_OPEN = 10.0  # time to wait for a previous process to release the lock of the folder
_REQUEST = "request "  # name prefix of the facts that record requests


T = TypeVar("T")


class OpenShard(NamedTuple):
    """The store of an open shard, with its requests, moves and replicas."""

    store: MemoryStore
    requests: "Requests"
    moves: Moves
    followers: Followers


class Shard:
    """The Ray actor that owns a shard's store. It runs several calls concurrently.

    The first call opens the store, so its caller receives the error if the folder is damaged.
    """

    def __init__(self, plan: ShardPlan) -> None:
        self._plan = plan
        self._opening = threading.Lock()
        self._opened: OpenShard | None = None

    def _open(self) -> OpenShard:
        with self._opening:
            if self._opened is None:
                store = self._open_store()
                silence_filters(store)
                followers = Followers(self._plan, store)
                moves = Moves(self._plan.name, store, self._send, followers.publish)
                self._opened = OpenShard(store, Requests(store), moves, followers)
            return self._opened

    def _open_store(self) -> MemoryStore:
        path, options = self._plan.path, self._plan.options
        if self._plan.file is not None:
            return MemoryStore.load(self._plan.file, **options)
        if path is None:
            return MemoryStore(**options)
        return open_folder(path, self._plan.is_new, lambda: MemoryStore(path, **options))

    # Calls from clients

    def change(self, version: int, request: str, name: str, *arguments: Any) -> Position | OtherTopology:
        """Make a change in the store and its replicas, and return the shard's position. Repeated, it has no effect."""
        opened = self._open()
        return alone(opened.store, partial(self._change, opened, version, request, name, arguments))

    @staticmethod
    def _change(
        opened: OpenShard, version: int, request: str, name: str, arguments: tuple[Any, ...]
    ) -> Position | OtherTopology:
        store, requests, moves, followers = opened
        if requests.is_known(request):
            followers.publish("nothing")  # replicas that missed the change before a restart copy the shard again
        elif moves.topology.version != version:
            return OtherTopology(moves.topology)
        else:
            if name in ("add", "upsert"):
                arguments = _admit(moves.topology.schema, *arguments)
            requests.make(request, lambda: make_change(store, name, arguments))
            followers.publish("change", name, *arguments)
        return followers.position

    def read(self, version: int, at_least: Position, name: str, *arguments: Any) -> Reply | OtherTopology:
        """Answer a read-only call. Only replicas use the position ``at_least``."""
        store, _, moves, _ = self._open()
        return answer(store, moves, version, name, arguments)

    def follow(self, actor: str) -> tuple[Position, bytes]:
        """Return the shard's position and its pickled store. Later changes are also sent to the replica ``actor``."""
        return self._open().followers.follow(actor)

    def process(self) -> int:
        return os.getpid()

    # Topologies and moves of memories

    def topology(self) -> Topology:
        return self._open().moves.topology

    def adopt(self, topology: Topology) -> Topology:
        """Adopt a topology if it is later than the shard's own. Return the shard's topology."""
        return self.decide(None, topology)

    def decide(self, after: int | None, topology: Topology) -> Topology:
        """Adopt a later topology if the shard's own has the version ``after``, if given. Return the shard's topology.

        Clients call this method on the first shard, which accepts only one of several competing proposals.
        """
        moves = self._open().moves
        moves.adopt(topology, after)
        return moves.topology

    def give(self, move: int, keys: list[Key] | None) -> bool | OtherTopology:
        """Give memories to the shards that own their keys; see :meth:`Moves.give`."""
        moves = self._open().moves
        is_done = moves.give(move, keys)
        return OtherTopology(moves.topology) if is_done is None else is_done

    def receive(self, move: int, giver: str, number: int, items: Items) -> bool:
        """Add a batch of memories; see :meth:`Moves.receive`."""
        return self._open().moves.receive(move, giver, number, items)

    def _send(self, topology: Topology, to: str, giver: str, number: int, items: Items) -> None:
        """Send a batch to another shard and wait until it is stored there."""
        module, other = running(), actor_of(self._plan.cluster, to)
        try:
            while not module.get(other.receive.remote(topology.move, giver, number, items)):
                known = module.get(other.adopt.remote(topology))
                if known.move != topology.move:
                    raise ClusterError(f"{to} has a later topology than {giver}: {known}")
        except module.exceptions.RayTaskError as error:
            raise MoveError(giver, to, str(error.cause)) from error

    def options(self) -> tuple[dict[str, Any], list[tuple[str, ...]]]:
        """Return the options for a new shard like this one, and the indexed payload fields."""
        store = self._open().store
        return options_of(store), indexed_fields(store)

    # Files

    def save(self, path: str) -> None:
        self._open().store.save(path)

    def close(self) -> None:
        with self._opening:
            if self._opened is not None:
                self._opened.store.close()


class Requests:
    """A record of a store's latest change requests.

    A request is recorded in the transaction of its change. If the shard was killed before it could answer, the client
    can therefore safely repeat the request. At least ``least_kept`` and at most ``2 * least_kept`` requests are kept.
    """

    def __init__(self, store: MemoryStore, least_kept: int = 4096) -> None:
        self._store, self._least_kept = store, least_kept
        numbers = {name: number for name, number in facts_of(store).items() if name.startswith(_REQUEST)}
        self._known = dict.fromkeys(sorted(numbers, key=lambda name: numbers[name]))  # ordered from old to new
        self._last: int = max(numbers.values(), default=0)

    def is_known(self, request: str) -> bool:
        """Return whether a request is on record."""
        return _REQUEST + request in self._known

    def make(self, request: str, change: Callable[[], Any]) -> None:
        """Make a change and record its request, while no other thread changes the store."""
        if len(self._known) >= 2 * self._least_kept:
            old = list(self._known)[: -self._least_kept]
            delete_facts(self._store, old)
            for name in old:
                del self._known[name]
        change_and_note(self._store, change, {_REQUEST + request: self._last + 1})
        self._last += 1
        self._known[_REQUEST + request] = None


def open_folder(path: str, is_new: bool, open_it: Callable[[], T]) -> T:
    """Return ``open_it()``. While a previous process still holds the lock of the folder, retry for some seconds."""
    if not is_new and not Path(path).is_dir():
        raise FileFormatError(path, "is missing; restore it from a copy")
    deadline = time.monotonic() + _SECONDS_TO_OPEN
    while True:
        try:
            return open_it()
        except AlreadyOpenError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _admit(schema: Schema, keys: list[Key], X: Any, *others: Any) -> tuple[Any, ...]:
    """Check new memories, and make their vectors sparse or dense, as the schema requires."""
    own = Schema.of(keys, X)
    schema.check(own)
    if not schema.admits(own):
        raise RuntimeError(f"the shards must agree on a schema before memories are added, got {schema}")
    return keys, schema.to_form(X), *others

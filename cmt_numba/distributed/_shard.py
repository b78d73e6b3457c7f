"""One shard of a store: what runs in the process of an actor."""

from __future__ import annotations

import os
import threading
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..journal import AlreadyOpenError
from ..persistence import FileFormatError
from ..store import Effort, Items, MemoryStore, Results
from ..store._checks import Key
from ..store._requests import Requests
from ._cluster import actor_of, running
from ._errors import ClusterError
from ._moves import Moves
from ._topology import Moved, Topology

_SECONDS_TO_OPEN = 10.0  # while the process before still holds the lock of the folder
_READS = ("facts", "are_stored", "query", "get", "keys_after", "recall", "sync", "process")
_CHANGES = ("add", "upsert", "delete", "feedback", "create_index", "compact")


class Plan(NamedTuple):
    """How to open the store of a shard.

    Attributes
    ----------
    name : str
        The name of the shard.
    cluster : str
        What distinguishes the actors of this store from those of others.
    path : str or None
        Its folder; None for a store in memory.
    is_new : bool
        Whether the folder may be created.
    file : str or None
        A file that holds what a store in memory begins with.
    options : dict
        Parameters of :class:`~cmt_numba.MemoryStore`.
    """

    name: str
    cluster: str
    path: str | None
    is_new: bool
    file: str | None
    options: dict[str, Any]


class Facts(NamedTuple):
    """What a client must know of a shard to check arguments.

    Attributes
    ----------
    n_features : int or None
        The width of its vectors; None before the first.
    kind : type or None
        The type of its keys, str or int; None without any.
    metric : str
        Its metric.
    n_memories : int
        How many memories it holds.
    """

    n_features: int | None
    kind: type | None
    metric: str
    n_memories: int


class Read(NamedTuple):
    """What a shard answers."""

    value: Any
    moved: Moved  # received, before the answer was found; given, afterwards


class Refused(NamedTuple):
    """What a shard answers if the client and the shard know different topologies."""

    topology: Topology  # that the shard knows


class Opened(NamedTuple):
    """A shard that is open."""

    store: MemoryStore
    requests: Requests
    moves: Moves


class Shard:
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
                self._opened = Opened(store, Requests(store), Moves(self._plan.name, store, self._send))
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

    def _store(self) -> MemoryStore:
        return self._open()[0]

    # Calls of clients

    def change(self, version: int, request: str, name: str, *arguments: Any) -> Refused | None:
        """Make a change of the store, once for each name of a request."""
        if name not in _CHANGES:
            raise ValueError(f"{name!r} is not a change")
        store, requests, moves = self._open()
        with store._keeper.writing:
            if not requests.is_known(request):
                if moves.topology.version != version:
                    return Refused(moves.topology)
                requests.make(request, lambda: getattr(store, name)(*arguments))
        return None

    def read(self, version: int, name: str, *arguments: Any) -> Read | Refused:
        """Return the answer of one of the methods below."""
        if name not in _READS:
            raise ValueError(f"{name!r} is not a question")
        store, _, moves = self._open()
        with store._keeper.writing if name == "facts" else nullcontext():
            received = moves.moved.received
            if moves.topology.version == version:
                value = getattr(self, name)(*arguments)
                if moves.topology.version == version:  # otherwise memories may have been given away meanwhile
                    return Read(value, Moved(moves.moved.given, received))
        return Refused(moves.topology)

    # Moves of memories

    def topology(self) -> Topology:
        """Return the topology that this shard knows."""
        return self._open().moves.topology

    def adopt(self, topology: Topology) -> Topology:
        """Go over to a topology, unless the shard knows a later one; return that which it knows then."""
        moves = self._open().moves
        moves.adopt(topology)
        return moves.topology

    def give(self, version: int, keys: list[Key] | None) -> bool | Refused:
        """Give memories to the shards to which they belong; see :meth:`Moves.give`."""
        moves = self._open().moves
        is_done = moves.give(version, keys)
        return Refused(moves.topology) if is_done is None else is_done

    def receive(self, version: int, giver: str, number: int, keys: list[Key], X: Any, payloads: list[Any]) -> bool:
        """Take a batch of memories over; see :meth:`Moves.receive`."""
        return self._open().moves.receive(version, giver, number, keys, X, payloads)

    def _send(
        self, topology: Topology, to: str, giver: str, number: int, keys: list[Key], X: Any, payloads: list[Any]
    ) -> None:
        """Give a batch to another shard, and wait until that one has it."""
        module, other = running(), actor_of(self._plan.cluster, to)
        while not module.get(other.receive.remote(topology.version, giver, number, keys, X, payloads)):
            known = module.get(other.adopt.remote(topology))
            if known.version != topology.version:
                raise ClusterError(f"{to} knows a later topology than {giver}: {known}")

    def options(self) -> tuple[dict[str, Any], list[tuple[str, ...]]]:
        """Return options by which a shard like this one is made, and the fields of payloads that have an index."""
        store = self._store()
        tree = store._keeper.kept.tree._named_options()
        names = {"max_memories": "max_items", "scorer_learning_rate": "learning_rate"}
        kept = ("max_memories", "eviction", "n_trees", "n_links", "scorer_learning_rate")
        options = {names.get(name, name): tree[name] for name in kept if tree.get(name) is not None}
        fields = [tuple(path[3:-1].split('"."')) for path in store._records().fields()]  # of $."name"."name"
        return options | {"metric": store.metric}, fields

    # Reading

    def facts(self) -> Facts:
        """Return what a client must know."""
        store = self._store()
        return Facts(store.n_features, store._records().kind(), store.metric, len(store))

    def are_stored(self, keys: list[Key]) -> np.ndarray:
        """Return which keys are stored: bool, shape (n,)."""
        return np.asarray(self._store()._records().find(keys) >= 0)

    def query(self, X: Any, k: int, where: Any, target_recall: float | None, n_probes: int | None) -> Results:
        """Return the nearest memories for each row; at most as many as there are."""
        store = self._store()
        return store.query(X, min(k, max(1, len(store))), where, target_recall, n_probes=n_probes)

    def get(self, keys: list[Key]) -> Items:
        """Return the vectors and payloads of memories."""
        return self._store().get(keys)

    def keys_after(self, last: int) -> tuple[list[Key], int]:
        """Return the next keys after the memory with an id, and the last one's id; no keys at the end."""
        found = self._store()._records().after(last)
        return [key for _, key, _ in found], found[-1][0] if found else last

    def recall(self) -> tuple[Effort, ...]:
        """Return the recall that was measured."""
        return self._store().recall

    # Files

    def sync(self) -> None:
        """Write all changes to disk and wait for it."""
        self._store().sync()

    def save(self, path: str) -> None:
        """Write the store to a file."""
        self._store().save(path)

    def close(self) -> None:
        """Close the store."""
        with self._opening:
            if self._opened is not None:
                self._opened[0].close()

    def process(self) -> int:
        """Return the number of the process."""
        return os.getpid()

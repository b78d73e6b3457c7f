"""What shards and their replicas answer to clients."""

from __future__ import annotations

import os
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np

from .._validation import MOST_WANTED
from ..store import Effort, Items, MemoryStore, Results
from ..store._checks import Key
from ._learned import Learned, exchange, learned
from ._moves import Moves
from ._schema import Schema
from ._topology import Moved, Topology

_METHODS = ("facts", "are_stored", "query", "get", "keys_after", "recall", "learned", "sync", "process")

_CHANGES = ("add", "upsert", "delete", "feedback", "create_index", "compact")

Position = tuple[int, int]
"""How many changes a shard or a replica has made: how often the shard was opened, and its changes since then."""


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
    n_replicas : int
        The number of replicas of the shard.
    """

    name: str
    cluster: str
    path: str | None
    is_new: bool
    file: str | None
    options: dict[str, Any]
    n_replicas: int = 0


class Facts(NamedTuple):
    """What a shard holds.

    Attributes
    ----------
    schema : Schema
        What its memories have in common. The width and form of vectors stay when the last memory is deleted.
    n_memories : int
        How many memories it holds.
    """

    schema: Schema
    n_memories: int


class Read(NamedTuple):
    """What a shard answers."""

    value: Any
    moved: Moved  # received, before the answer was found; given, afterwards


class Refused(NamedTuple):
    """What a shard answers if the client and the shard know different topologies."""

    topology: Topology  # that the shard knows


class Behind(NamedTuple):
    """What a replica answers that is not up to date."""


def make_change(store: MemoryStore, name: str, arguments: tuple[Any, ...]) -> None:
    """Make a change of the store of a shard or of a replica."""
    if name == "exchange":
        exchange(store, *arguments)
    elif name in _CHANGES:
        getattr(store, name)(*arguments)
    else:
        raise ValueError(f"{name!r} is not a change")


class Reading:
    """What can be asked of a store."""

    def _stored(self) -> tuple[MemoryStore, Moves]:
        raise NotImplementedError

    def _answer(self, version: int, name: str, arguments: tuple[Any, ...]) -> Read | Refused:
        """Return the answer of one of the methods below."""
        if name not in _METHODS:
            raise ValueError(f"{name!r} is not a question")
        store, moves = self._stored()
        with store._keeper.writing if name == "facts" else nullcontext():
            received = moves.moved.received
            if moves.topology.version == version:
                try:
                    value = getattr(self, name)(*arguments)
                except Exception:
                    if moves.topology.version == version:  # otherwise the store may have been closed meanwhile
                        raise
                else:
                    if moves.topology.version == version:  # otherwise memories may have been given away meanwhile
                        return Read(value, Moved(moves.moved.given, received))
        return Refused(moves.topology)

    def facts(self) -> Facts:
        """Return what the store holds."""
        store = self._stored()[0]
        state, kind = store._keeper.kept.tree._forest.state, store._records().kind()
        is_sparse, key_type = (
            None if state is None else state.parameters.sparse,
            None if kind is None else kind.__name__,
        )
        return Facts(Schema(store.metric, store.n_features, is_sparse, key_type), len(store))

    def are_stored(self, keys: list[Key]) -> np.ndarray:
        """Return which keys are stored: bool, shape (n,)."""
        return np.asarray(self._stored()[0]._records().find(keys) >= 0)

    def query(self, X: Any, k: int, where: Any, target_recall: float | None, n_probes: int | None) -> Results:
        """Return the nearest memories for each row.

        No fewer than the client wants: memories that come meanwhile must not take the places of those that are here.
        """
        store = self._stored()[0]
        return store.query(X, min(k, max(MOST_WANTED, len(store))), where, target_recall, n_probes=n_probes)

    def get(self, keys: list[Key]) -> Items:
        """Return the vectors and payloads of memories."""
        return self._stored()[0].get(keys)

    def keys_after(self, last: int) -> tuple[list[Key], int]:
        """Return the next keys after the memory with an id, and the last one's id; no keys at the end."""
        found = self._stored()[0]._records().after(last)
        return [key for _, key, _ in found], found[-1][0] if found else last

    def recall(self) -> tuple[Effort, ...]:
        """Return the recall that was measured."""
        return self._stored()[0].recall

    def learned(self) -> Learned | None:
        """Return what was learned from rewards; None without memories."""
        return learned(self._stored()[0])

    def sync(self) -> None:
        """Write all changes to disk and wait for it."""
        self._stored()[0].sync()

    def process(self) -> int:
        """Return the number of the process."""
        return os.getpid()

"""Read-only calls and changes that clients send to shards and replicas, and their answers."""

from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

from .._validation import MOST_WANTED
from ..store import Key, MemoryStore
from . import _store_access as access
from ._moves import Moves
from ._topology import MoveProgress, Schema, Topology

Position = tuple[int, int]
"""The state of a shard or replica: how often the shard has been opened, and how many changes have followed."""


class ShardPlan(NamedTuple):
    """The arguments with which an actor opens a shard's store."""

    name: str
    cluster: str  # a prefix of actor names that is unique to this store
    path: str | None  # the shard's folder, or None for a store in memory
    is_new: bool  # True if the folder may be created
    file: str | None  # a file with the initial contents of a store in memory
    options: dict[str, Any]  # options of the MemoryStore
    n_replicas: int = 0

    @property
    def replicas(self) -> list[str]:
        """The names of the replicas' actors."""
        return replicas_of(self.name, self.n_replicas)


def replicas_of(shard: str, n_replicas: int) -> list[str]:
    """Return the names of the actors of a shard's replicas."""
    return [f"{shard} {number}" for number in range(1, n_replicas + 1)]


class ShardFacts(NamedTuple):
    """The schema and size of a shard."""

    schema: Schema  # an empty shard keeps the width and sparsity of its earlier vectors
    n_memories: int


class Reply(NamedTuple):
    """The answer to a read-only call."""

    value: Any
    progress: MoveProgress  # batches received before the call, and batches given after it


class OtherTopology(NamedTuple):
    """The answer of a shard that rejects a call because its topology differs from the client's."""

    topology: Topology


class StaleReplica(NamedTuple):
    """The answer of a replica that has not yet applied all required changes."""


# Read-only calls


def _limited(k: int, store: MemoryStore) -> int:
    """Return the largest valid ``k`` for a shard. The client limits ``k`` only to the size of the whole store."""
    return min(k, max(MOST_WANTED, len(store)))


def _next_keys(store: MemoryStore, last: int | None, _where: None) -> tuple[list[Key], int]:
    keys, ids = access.keys_after(store, -1 if last is None else last)
    return keys, ids[-1] if ids else -1


_QUESTIONS: dict[str, Callable[..., Any]] = {
    "facts": lambda store: ShardFacts(access.schema_of(store), len(store)),
    "check_updatable": access.check_updatable,
    "are_stored": lambda store, keys: access.ids_of(store, keys) >= 0,
    "query": lambda store, X, words, k, *options: access.query(store, X, words, _limited(k, store), *options),
    "statistics": access.statistics_of,
    "near_words": access.near_words,
    "explain": lambda store, X, k: store.explain(X, _limited(k, store)),
    "learned": MemoryStore.learned,
    "get": lambda store, keys: store.get(keys),
    "rewarded": access.rewarded,
    "keys_after": _next_keys,
    "page_after": access.page_after,
    "listed": access.listed,
    "keys_where": access.keys_where,
    "recall": MemoryStore.recall,
    "max_items": attrgetter("max_items"),
    "check_invariants": MemoryStore.check_invariants,
    "sync": MemoryStore.sync,
}


def answer(
    store: MemoryStore, moves: Moves, version: int, name: str, arguments: tuple[Any, ...]
) -> Reply | OtherTopology:
    """Answer a read-only call from a client whose topology has the given version."""
    find = partial(_answer, store, moves, version, name, arguments)
    return access.alone(store, find) if name == "facts" else find()


def _answer(
    store: MemoryStore, moves: Moves, version: int, name: str, arguments: tuple[Any, ...]
) -> Reply | OtherTopology:
    received = moves.progress.received
    if moves.topology.version == version:
        try:
            value = _QUESTIONS[name](store, *arguments)
        except Exception:
            if moves.topology.version == version:  # with another topology, the store may be closed
                raise
        else:
            if moves.topology.version == version:  # with another topology, memories may have moved
                return Reply(value, MoveProgress(moves.progress.given, received))
    return OtherTopology(moves.topology)


# Changes

_CHANGES: dict[str, Callable[..., Any]] = {
    "add": lambda store, *new: store.add(*new[:4], expires=new[4]),
    "upsert": lambda store, *new: store.upsert(*new[:4], expires=new[4]),
    "delete": MemoryStore.delete,
    "update_payload": MemoryStore.update_payload,
    "feedback": access.learn_from_all,
    "create_index": MemoryStore.create_index,
}


def make_change(store: MemoryStore, name: str, arguments: tuple[Any, ...]) -> None:
    """Apply a change to the store of a shard or a replica."""
    _CHANGES[name](store, *arguments)

"""What shards need of a :class:`~cmt_numba.MemoryStore` that its users do not: its lock, its facts and its weights.

Facts are values by names in the database of a store. Those of a shard say which topology it knows, how far moves are,
and which requests it has met.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from ..store import Key, MemoryStore
from ._schema import Schema


def writing(store: MemoryStore) -> AbstractContextManager[Any]:
    """Return the lock that a change of a store holds; a thread may take it several times."""
    return store._contents.writing


def facts_of(store: MemoryStore) -> dict[str, Any]:
    """Return the facts of a store."""
    return store._contents.records.facts()


def write_facts(store: MemoryStore, facts: dict[str, Any]) -> None:
    """Write facts, which are on disk when this returns, also without any change of the memories."""
    with writing(store):
        store._contents.change(lambda commit: store._contents.records.set_facts(facts))
        store._contents.sync()


def delete_facts(store: MemoryStore, names: list[str]) -> None:
    """Delete facts."""
    store._contents.change(lambda commit: store._contents.records.delete_facts(names))


def noting(store: MemoryStore, facts: dict[str, Any]) -> AbstractContextManager[None]:
    """Write facts in the transaction of the change that is made in this context."""
    return store._contents.noting(facts)


def ids_of(store: MemoryStore, keys: list[Key]) -> np.ndarray:
    """Return the ids of memories by their keys: int64, -1 where there is none."""
    return store._contents.records.find(keys)


def keys_after(store: MemoryStore, last: int) -> tuple[list[Key], list[int]]:
    """Return the next keys and ids after an id."""
    found = store._contents.records.after(last)
    return [key for _, key, _ in found], [memory_id for memory_id, _, _ in found]


def schema_of(store: MemoryStore) -> Schema:
    """Return what the memories of a store have in common."""
    state, kind = store._contents.tree._forest.state, store._contents.records.kind()
    is_sparse = None if state is None else bool(state.parameters.sparse)
    return Schema(store.metric, store.n_features, is_sparse, None if kind is None else kind.__name__)


def options_of(store: MemoryStore) -> dict[str, Any]:
    """Return the options with which a store like this one is created."""
    tree = store._contents.tree._forest.options
    names = {"max_memories": "max_items", "scorer_learning_rate": "learning_rate"}
    kept = ("max_memories", "eviction", "n_trees", "n_links", "scorer_learning_rate")
    return {names.get(name, name): tree[name] for name in kept if tree.get(name) is not None} | {"metric": store.metric}


def indexed_fields(store: MemoryStore) -> list[tuple[str, ...]]:
    """Return the fields of payloads that have an index."""
    return [tuple(path[3:-1].split('"."')) for path in store._contents.records.fields()]  # of $."name"."name"


def weights_of(store: MemoryStore) -> np.ndarray | None:
    """Return the weights of the scorer and the sums of their squared gradients; None before the first memory."""
    state = store._contents.tree._forest.state
    if state is None:
        return None
    shape = 2, state.parameters.n_features
    return np.stack(state.scorer) if state.scorer.theta.size > 0 else np.zeros(shape, np.float32)


def set_weights(store: MemoryStore, weights: np.ndarray, squares: np.ndarray, facts: dict[str, Any]) -> None:
    """Replace the weights of the scorer, and write facts in the same transaction."""
    with writing(store), noting(store, facts):
        store._contents.change(lambda commit: store._contents.tree._set_scorer(weights, squares))

"""Access to the lock and facts of a shard's :class:`~cmt_numba.MemoryStore`.

Facts are named values in the database of a store. A shard stores its topology, the progress of moves and its requests
as facts.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from .._kernels import NONE
from ..store import Items, Key, MemoryStore, NearWords, Results, WordStatistics, check_listing
from ._results import ListedItems, Place
from ._topology import Schema

T = TypeVar("T")


def alone(store: MemoryStore, work: Callable[[], T]) -> T:
    """Call ``work`` while no other thread changes the store, and return its result."""
    return store._contents.alone(work)


def silence_filters(store: MemoryStore) -> None:
    """Disable warnings about fields that no payload has. Payloads in other shards may have them."""
    store._filters.warns = False


def facts_of(store: MemoryStore) -> dict[str, Any]:
    return store._contents.records.facts()


def write_facts(store: MemoryStore, facts: dict[str, Any]) -> None:
    """Write facts and sync them to disk."""
    store._contents.change(lambda: store._contents.records.set_facts(facts))
    store._contents.sync()


def delete_facts(store: MemoryStore, names: list[str]) -> None:
    store._contents.change(lambda: store._contents.records.delete_facts(names))


def change_and_note(store: MemoryStore, change: Callable[[], Any], facts: dict[str, Any]) -> None:
    """Change a store and write facts in one transaction."""

    def both() -> None:
        change()
        store._contents.records.set_facts(facts)

    store._contents.change(both)


def ids_of(store: MemoryStore, keys: list[Key]) -> np.ndarray:
    """Return the memory id of each key, or -1 if the key is not stored: int64, shape (n,)."""
    return store._contents.records.find(keys)


def keys_after(store: MemoryStore, last: int) -> tuple[list[Key], list[int]]:
    """Return the keys and ids of the next memories whose ids are above ``last``."""
    found = store._contents.records.after(last)
    return [key for _, key, _ in found], [memory_id for memory_id, _, _ in found]


def page_after(
    store: MemoryStore, after: tuple[int, int] | None, where: Any, size: int
) -> tuple[Items, tuple[int, int]]:
    """Return the next page of the memories that a filter selects, and where the page after it begins."""
    last, stop = after or (-1, store._contents.state.next_id)
    last, items = store._page(last, stop, where, size)
    return items, (last, stop)


def listed(store: MemoryStore, where: Any, order_by: Any, most: int | None) -> ListedItems:
    """Return the first memories that a filter selects, and their places in the order."""
    contents, order = store._contents, check_listing(None, where, order_by, most, 0).order

    def read() -> ListedItems:
        items = store.get(where=where, order_by=order_by, limit=most)
        ids = ids_of(store, items.keys).tolist()
        if order == "id":
            return ListedItems(items, [(0, 0)] * len(ids), ids)
        values = items.keys if order == "key" else map(contents.records.values(order, ids).get, ids)
        return ListedItems(items, [_place(value) for value in values], ids)

    return contents.shared(read)


def _place(value: Any) -> Place | None:
    """Return the place of a value in the order of SQLite: numbers, then texts by their bytes."""
    if value is None:
        return None
    return (1, value.encode("utf-8", "surrogatepass")) if isinstance(value, str) else (0, value)


def keys_where(store: MemoryStore, where: Any) -> list[Key]:
    """Return the keys of the memories that a filter selects."""
    contents = store._contents
    among = store._filters.find(where, contents)
    return [] if among is None else contents.records.keys(among.ids)


def check_updatable(store: MemoryStore, keys: list[Key]) -> None:
    """Raise KeyError if a key is not stored, and TypeError if its payload has no fields."""
    contents = store._contents
    contents.shared(lambda: contents.find_updatable(keys))


def have_vectors(store: MemoryStore, keys: list[Key]) -> np.ndarray:
    """Return whether each stored key has a vector: bool, shape (n,)."""
    return store._contents.state.have_vectors(ids_of(store, keys))


def statistics_of(store: MemoryStore, words: list[int]) -> WordStatistics:
    """Return the statistics of the texts of a store for some words."""
    contents = store._contents
    return contents.lock.read(lambda: contents.state.texts.statistics.of(words))


def near_words(store: MemoryStore, words: list[str]) -> NearWords:
    """Return the words of the texts of a store that are near to each word that no text has."""
    contents = store._contents
    return contents.shared(lambda: contents.near_words(words))


def query(store: MemoryStore, X: Any, words: list[Counter[int]] | None, k: int, *options: Any) -> Results:
    """Answer queries. ``options`` are the last ones of :meth:`MemoryStore._query`."""
    return store._query(X, words, k, *options)


def schema_of(store: MemoryStore) -> Schema:
    """Return the schema of the memories of a store."""
    form, kind = store._contents.state.form, store._contents.records.kind()
    is_sparse = None if form is None else form == "sparse"
    return Schema(store.metric, store.n_features, is_sparse, None if kind is None else kind.__name__)


def options_of(store: MemoryStore) -> dict[str, Any]:
    """Return options that create a store with the same settings."""
    options = store._contents.state.options._asdict()
    return {name: options[name] for name in ("metric", "max_items", "eviction", "measure_gain")}


def indexed_fields(store: MemoryStore) -> list[tuple[str, ...]]:
    """Return the indexed payload fields."""
    return [tuple(path[3:-1].split('"."')) for path in store._contents.records.fields()]  # paths are $."name"."name"


def rewarded(store: MemoryStore, keys: list[Key], by_words: bool) -> tuple[list[Key], Any]:
    """Return the keys of those memories that can learn from rewards, and their texts or vectors.

    The vectors are None if no memory can learn.
    """
    contents = store._contents

    def read() -> tuple[list[Key], Any]:
        found = contents.find_rewarded(keys, by_words)
        there = np.flatnonzero(found != NONE)
        ids, own = found[there], [keys[i] for i in there]
        if not by_words:
            return own, contents.state.vectors(ids) if own else None
        texts = contents.records.texts(ids.tolist())
        return own, [texts[memory_id] for memory_id in ids.tolist()]

    return contents.lock.read(read)


def learn_from_all(
    store: MemoryStore,
    X: Any,
    words: list[Counter[int]] | None,
    keys: Any,
    rewards: Any,
    known: tuple[list[Key], Any],
    statistics: WordStatistics | None,
) -> None:
    """Learn from rewards of memories in all shards, whose keys and vectors or texts are ``known``."""
    store._contents.learn(X, words, keys, rewards, store._target_recall, known, statistics)

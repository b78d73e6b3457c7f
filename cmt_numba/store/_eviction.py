"""Eviction policies, which choose the memories that a full store removes."""

from typing import Any

import numpy as np

from .._forest import require

_RETURNED = "returned"  # the name of the saved array


class EvictionOrder:
    """Evicts the memories with the lowest ids, which are the oldest.

    Ids ascend, so a search that continues from the last evicted id takes amortised constant time.
    """

    minds_queries = False  # whether the policy depends on the results of queries

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._lowest = 0  # lower bound on the stored ids

    def choose(self, state: Any, n: int) -> np.ndarray:
        """Return ``n`` of the ids of a state, which has at least ``n``."""
        found, first, n_tried = np.empty(0, np.int64), self._lowest, n
        while found.size < n:
            tried = np.arange(first, first + n_tried)
            found = np.concatenate([found, tried[state.contains(tried)]])
            first, n_tried = first + n_tried, 2 * n_tried
        self._lowest = int(found[0])  # still stored: the caller removes it later
        return found[:n]

    def returned(self, ids: np.ndarray) -> None:
        """Record new memories, replaced ones, or results of queries, of which the last is to be evicted last."""

    def removed(self, ids: np.ndarray) -> None:
        """Record the removal of memories."""

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays to save."""
        return {}

    def restore(self, arrays: dict[str, np.ndarray], ids: np.ndarray) -> None:
        """Restore the policy of a store with the given ids. Raise InvariantError if the arrays do not fit."""


class RandomOrder(EvictionOrder):
    """Evicts random memories. The choice depends on the seed and on the ids in the store."""

    def choose(self, state: Any, n: int) -> np.ndarray:
        """Return ``n`` ids drawn without replacement."""
        return np.random.default_rng([self._seed, state.next_id]).choice(np.sort(state.ids), n, replace=False)


class LeastRecentFirst(EvictionOrder):
    """Evicts the memories that queries have not returned for the longest time."""

    minds_queries = True

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._order: dict[int, None] = {}  # all ids; those to evict come first

    def choose(self, state: Any, n: int) -> np.ndarray:
        """Return the first ``n`` ids of the order."""
        return np.array([memory_id for memory_id, _ in zip(self._order, range(n), strict=False)], np.int64)

    def returned(self, ids: np.ndarray) -> None:
        """Move ids to the end of the order."""
        for memory_id in ids.tolist():
            self._order.pop(memory_id, None)
            self._order[memory_id] = None

    def removed(self, ids: np.ndarray) -> None:
        """Drop ids."""
        for memory_id in ids.tolist():
            self._order.pop(memory_id, None)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the ids in order."""
        return {_RETURNED: np.fromiter(self._order, np.int64, len(self._order))}

    def restore(self, arrays: dict[str, np.ndarray], ids: np.ndarray) -> None:
        """Restore the order."""
        order = arrays.get(_RETURNED, np.empty(0, np.int64))
        require(np.array_equal(np.sort(order), np.sort(ids)), "the order of eviction must list every memory once")
        self._order = dict.fromkeys(order.tolist())


POLICIES: dict[str, type[EvictionOrder]] = {
    "least_recently_returned": LeastRecentFirst,
    "oldest": EvictionOrder,
    "random": RandomOrder,
}

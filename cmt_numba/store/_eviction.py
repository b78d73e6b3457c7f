"""Eviction policies, which choose the memories that a full store removes."""

import heapq
from typing import Any

import numpy as np

from .._kernels import require

# How much a memory's usefulness rises. The ratios were chosen on streams of clicks and of popular texts.
_BY_A_RETURN = 1_000
_BY_A_REWARD = 10_000
_OF_A_NEW_MEMORY = 10_000

_RETURNS_UNTIL_HALVED = 8  # usefulness is halved after this many returns for each memory that a full store has

_SMALLEST = 64  # the queue is rebuilt when it has so many entries more than twice the number of memories


class EvictionOrder:
    """Evicts the memories with the lowest ids, which are the oldest.

    Ids ascend, so a search that continues from the last evicted id takes amortised constant time.
    """

    minds_queries = False  # whether the policy depends on the results of queries

    def __init__(self, seed: int, most: int) -> None:
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

    def rewarded(self, ids: np.ndarray, rewards: np.ndarray) -> None:
        """Record rewards from 0 to 1, or NaN. Ignore ids that are not stored."""

    def removed(self, ids: np.ndarray) -> None:
        """Record the removal of memories."""

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays to save."""
        return {}

    def restore(self, arrays: dict[str, np.ndarray], ids: np.ndarray, next_id: int) -> None:
        """Restore the policy of a store with the given ids. Raise InvariantError if the arrays do not fit."""
        self._lowest = int(ids.min(initial=next_id))


class RandomOrder(EvictionOrder):
    """Evicts random memories. The choice depends on the seed and on all earlier changes."""

    def __init__(self, seed: int, most: int) -> None:
        super().__init__(seed, most)
        self._ids: list[int] = []  # all ids, in any order, and removed ones
        self._gone: set[int] = set()  # removed ids
        self._highest = -1  # the highest id so far

    def choose(self, state: Any, n: int) -> np.ndarray:
        """Return ``n`` ids drawn without replacement, in time that does not depend on the number of memories."""
        ids = self._ids
        if len(ids) > 2 * len(state) + _SMALLEST:
            self._ids = ids = [memory_id for memory_id in ids if memory_id not in self._gone]
            self._gone.clear()
        random, n_left = np.random.default_rng([self._seed, state.next_id]), len(ids)
        chosen: list[int] = []
        while len(chosen) < n:
            at, n_left = int(random.integers(n_left)), n_left - 1
            memory_id, ids[at] = ids[at], ids[n_left]
            if memory_id in self._gone:
                ids[n_left] = ids[-1]
                self._gone.discard(memory_id)
                ids.pop()
            else:
                ids[n_left] = memory_id
                chosen.append(memory_id)
        return np.array(chosen, np.int64)

    def returned(self, ids: np.ndarray) -> None:
        """Add the ids of new memories."""
        new = ids[ids > self._highest]
        self._ids += new.tolist()
        self._highest = int(new.max(initial=self._highest))

    def removed(self, ids: np.ndarray) -> None:
        """Note removed ids."""
        self._gone.update(ids.tolist())

    def arrays(self) -> dict[str, np.ndarray]:
        """Return all ids in order, with removed ones."""
        return {"drawn": np.array(self._ids, np.int64)}

    def restore(self, arrays: dict[str, np.ndarray], ids: np.ndarray, next_id: int) -> None:
        """Restore the order."""
        drawn = arrays.get("drawn", np.empty(0, np.int64))
        require(np.unique(drawn).size == drawn.size and np.isin(ids, drawn).all(), "each memory must be listed once")
        self._ids, self._gone, self._highest = drawn.tolist(), set(np.setdiff1d(drawn, ids).tolist()), next_id - 1


class LeastUsefulFirst(EvictionOrder):
    """Evicts the memories that were least useful to queries, and the oldest among equally useful ones.

    A memory is useful if queries return it, and more so if it earns rewards. A reward of 0 takes a return back. What is
    new counts more: up to twice as much as at the beginning of a period, at the end of which all usefulness is halved.
    Integers make the order exact on every processor.
    """

    minds_queries = True

    def __init__(self, seed: int, most: int) -> None:
        super().__init__(seed, most)
        self._usefulness: dict[int, int] = {}  # by id
        # A heap of usefulness and id, also of removed ids. Each memory has an entry that is at most its usefulness.
        self._queue: list[tuple[int, int]] = []
        self._period = _RETURNS_UNTIL_HALVED * most
        self._n_returned = 0  # in this period

    def choose(self, state: Any, n: int) -> np.ndarray:
        """Return the ``n`` least useful ids."""
        chosen: dict[int, tuple[int, int]] = {}
        while len(chosen) < n:
            noted, memory_id = entry = heapq.heappop(self._queue)
            usefulness = self._usefulness.get(memory_id, -1)
            if noted == usefulness:
                chosen[memory_id] = entry
            elif noted < usefulness:
                heapq.heappush(self._queue, (usefulness, memory_id))
        for entry in chosen.values():  # they are stored until the caller removes them
            heapq.heappush(self._queue, entry)
        return np.fromiter(chosen, np.int64, n)

    def returned(self, ids: np.ndarray) -> None:
        """Raise the usefulness of ids, and start with that of new ones."""
        for memory_id in ids.tolist():
            if memory_id not in self._usefulness:
                self._raise(memory_id, _OF_A_NEW_MEMORY)
                continue
            self._raise(memory_id, _BY_A_RETURN)
            self._n_returned += 1
            if self._n_returned == self._period:
                self._n_returned = 0
                self._start_queue({other: usefulness // 2 for other, usefulness in self._usefulness.items()})

    def rewarded(self, ids: np.ndarray, rewards: np.ndarray) -> None:
        """Raise usefulness by rewards."""
        is_known = ~np.isnan(rewards)
        changes = np.rint(rewards[is_known] * (_BY_A_REWARD + _BY_A_RETURN)).astype(np.int64) - _BY_A_RETURN
        for memory_id, change in zip(ids[is_known].tolist(), changes.tolist(), strict=True):
            if memory_id in self._usefulness:
                self._raise(memory_id, change)

    def _raise(self, memory_id: int, by: int) -> None:
        by += by * self._n_returned // self._period
        before = self._usefulness.get(memory_id)
        usefulness = self._usefulness[memory_id] = max((before or 0) + by, 0)
        if before is None or usefulness < before:
            heapq.heappush(self._queue, (usefulness, memory_id))
            if len(self._queue) > 2 * len(self._usefulness) + _SMALLEST:
                self._start_queue(self._usefulness)

    def _start_queue(self, usefulness: dict[int, int]) -> None:
        self._usefulness = usefulness
        self._queue = [(value, memory_id) for memory_id, value in usefulness.items()]
        heapq.heapify(self._queue)

    def removed(self, ids: np.ndarray) -> None:
        """Drop ids."""
        for memory_id in ids.tolist():
            self._usefulness.pop(memory_id, None)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the ids, the usefulness of each, and the number of returns in this period."""
        n = len(self._usefulness)
        values = np.fromiter(self._usefulness.values(), np.int64, n)
        ids = np.fromiter(self._usefulness, np.int64, n)
        return {"useful_ids": ids, "usefulness": values, "n_returned": np.array([self._n_returned])}

    def restore(self, arrays: dict[str, np.ndarray], ids: np.ndarray, next_id: int) -> None:
        """Restore the usefulness of all memories."""
        known, values, count = (
            arrays.get(name, np.empty(0, np.int64)) for name in ("useful_ids", "usefulness", "n_returned")
        )
        require(np.array_equal(np.sort(known), np.sort(ids)), "each memory must have one usefulness")
        require(values.shape == known.shape and (values >= 0).all(), "usefulness must be one number of at least 0 each")
        require(count.shape == (1,) and 0 <= count[0] < self._period, "the number of returns must be within the period")
        self._n_returned = int(count[0])
        self._start_queue(dict(zip(known.tolist(), values.tolist(), strict=True)))


class LeastRecentFirst(EvictionOrder):
    """Evicts the memories that queries have not returned for the longest time."""

    minds_queries = True

    def __init__(self, seed: int, most: int) -> None:
        super().__init__(seed, most)
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
        return {"returned": np.fromiter(self._order, np.int64, len(self._order))}

    def restore(self, arrays: dict[str, np.ndarray], ids: np.ndarray, next_id: int) -> None:
        """Restore the order."""
        order = arrays.get("returned", np.empty(0, np.int64))
        require(np.array_equal(np.sort(order), np.sort(ids)), "the order of eviction must list every memory once")
        self._order = dict.fromkeys(order.tolist())


POLICIES: dict[str, type[EvictionOrder]] = {
    "least_useful": LeastUsefulFirst,
    "least_recently_returned": LeastRecentFirst,
    "oldest": EvictionOrder,
    "random": RandomOrder,
}

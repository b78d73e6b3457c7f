"""Eviction policies: which memories a bounded forest removes to make room.

A forest notifies its policy of inserts, removals and query results. Kernels do not depend on the policy, except that
the kernel for removals updates the order in which memories were returned.
"""

from __future__ import annotations

import numpy as np

from .columns import resized
from .invariants.lru_list import check_order, check_recency
from .key_store import find_slots
from .lru_list import LENGTH, NOT_LISTED, Recency, list_first, new_recency, put_last, take_out
from .rng import draw_word
from .state import N_MEMORIES, NEXT_ID, NONE, State

_ORDER = "eviction.order"  # in files


class Eviction:
    """Evicts the memories that were inserted first. Forests without a bound have this policy, too.

    Ids ascend, so a pointer that only moves up finds the oldest memory in amortised constant time.
    """

    minds_queries = False  # whether the policy depends on query results
    recency = new_recency(np.empty(0, np.int64), 0)  # updated by the kernel that removes memories

    def __init__(self) -> None:
        self._lowest: int | None = None  # no memory has a lower id

    @property
    def nbytes(self) -> int:
        """Bytes of the policy's arrays."""
        return 0

    def choose(self, state: State, n: int) -> np.ndarray:
        """Return the ids of ``n`` stored memories to evict: int64."""
        keys = state.keys
        if self._lowest is None:
            self._lowest = int(keys.ids[: keys.totals[N_MEMORIES]].min())
        found, first, n_asked = np.empty(0, np.int64), self._lowest, n
        while found.size < n:
            asked = np.arange(first, min(first + n_asked, int(keys.totals[NEXT_ID])))
            slots = np.empty(asked.size, np.int64)
            find_slots(keys, asked, slots)
            found = np.concatenate([found, asked[slots != NONE]])
            first, n_asked = first + n_asked, 2 * n_asked
        self._lowest = int(found[0])  # it is still stored
        return found[:n]

    def inserted(self, state: State, first: int) -> None:
        """Note new memories, in slots ``first`` and above."""

    def returned(self, state: State, ids: np.ndarray) -> None:
        """Note the memories that queries have returned: int64 (n, k), the best first, NONE for none."""

    def taken_back(self, first: int) -> None:
        """Forget the memories in slots ``first`` and above, whose insert failed."""

    def moved(self, old: State, new: State) -> Eviction:
        """Return a policy for ``new``, which has the memories of ``old`` in other slots. This one is unchanged."""
        return self

    def check(self, state: State) -> None:
        """Raise InvariantError if the policy does not fit the forest."""

    def contents(self, state: State) -> dict[str, np.ndarray]:
        """Return the arrays for a file."""
        return {}

    def restore(self, arrays: dict[str, np.ndarray], state: State) -> None:
        """Continue from the arrays of a file. Raises InvariantError if they are invalid."""


class RandomEviction(Eviction):
    """Evicts memories drawn uniformly from the forest's random stream for queries."""

    def choose(self, state: State, n: int) -> np.ndarray:
        """Return ids drawn without replacement (Floyd's algorithm)."""
        n_memories, stream = int(state.keys.totals[N_MEMORIES]), state.streams.size - 1
        drawn: dict[int, None] = {}  # a set that keeps their order
        for most in range(n_memories - n, n_memories):
            slot = (int(draw_word(state.streams, stream)) >> 32) * (most + 1) >> 32
            drawn[most if slot in drawn else slot] = None
        return state.keys.ids[list(drawn)]


class LeastRecentlyReturned(Eviction):
    """Evicts the memories that no query has returned for the longest time. An insert counts as a return."""

    minds_queries = True

    def __init__(self) -> None:
        self.recency = new_recency(np.empty(0, np.int64), 0)

    @property
    def nbytes(self) -> int:
        """Bytes of the list."""
        return sum(array.nbytes for array in self.recency)

    def choose(self, state: State, n: int) -> np.ndarray:
        """Return the ids of the first memories of the list."""
        slots = np.empty(n, np.int64)
        list_first(self._complete(state), slots)
        return state.keys.ids[slots]

    def inserted(self, state: State, first: int) -> None:
        """Append new memories to the list."""
        put_last(self._with_room(state), np.arange(first, state.keys.totals[N_MEMORIES]))

    def returned(self, state: State, ids: np.ndarray) -> None:
        """Move memories to the end of the list, row by row, the best memory of each row last."""
        asked = np.ascontiguousarray(ids[:, ::-1]).reshape(-1)
        slots = np.full(asked.size, NONE, np.int64)
        find_slots(state.keys, asked, slots)
        slots = slots[(slots != NONE) & (slots < self.recency.before.size)]
        listed = self.recency.before[slots] != NOT_LISTED  # memories that are being inserted or removed are not
        put_last(self.recency, slots[listed])

    def taken_back(self, first: int) -> None:
        """Take memories out of the list."""
        take_out(self.recency, first + np.flatnonzero(self.recency.before[first:] != NOT_LISTED))

    def moved(self, old: State, new: State) -> Eviction:
        """Return a policy with the new slots of all memories."""
        order = self._order(old)
        moved_to = np.empty_like(order)
        find_slots(new.keys, old.keys.ids[order], moved_to)
        policy = LeastRecentlyReturned()
        policy.recency = new_recency(moved_to, new.keys.ids.size)
        return policy

    def check(self, state: State) -> None:
        """Raise InvariantError unless the list holds every memory once."""
        check_recency(self._complete(state), int(state.keys.totals[N_MEMORIES]))

    def contents(self, state: State) -> dict[str, np.ndarray]:
        """Return the slots of all memories in order: int32."""
        return {_ORDER: self._order(state).astype(np.int32)}

    def restore(self, arrays: dict[str, np.ndarray], state: State) -> None:
        """List memories in the order of a file."""
        order = check_order(arrays.get(_ORDER), int(state.keys.totals[N_MEMORIES]))
        self.recency = new_recency(order, state.keys.ids.size)

    def _with_room(self, state: State) -> Recency:
        """Return the list with room for all memories of the forest."""
        recency, capacity = self.recency, state.keys.ids.size
        if recency.before.size < capacity:
            before, after = (resized(array, capacity, fill=NOT_LISTED) for array in (recency.before, recency.after))
            self.recency = recency = recency._replace(before=before, after=after)
        return recency

    def _complete(self, state: State) -> Recency:
        """Return the list of all memories. Those of an incomplete insert are appended."""
        n = int(state.keys.totals[N_MEMORIES])
        if self.recency.totals[LENGTH] < n:
            recency = self._with_room(state)
            put_last(recency, np.flatnonzero(recency.before[:n] == NOT_LISTED))
        return self.recency

    def _order(self, state: State) -> np.ndarray:
        slots = np.empty(int(state.keys.totals[N_MEMORIES]), np.int64)
        list_first(self._complete(state), slots)
        return slots


_POLICIES: dict[str, type[Eviction]] = {
    "least_recently_returned": LeastRecentlyReturned,
    "oldest": Eviction,
    "random": RandomEviction,
}
EVICTIONS = tuple(_POLICIES)


def new_eviction(name: str, *, bounded: bool) -> Eviction:
    """Return a policy by its name, or the default for an unbounded forest, which never evicts."""
    return _POLICIES[name]() if bounded else Eviction()

"""Eviction policies, which choose the memories that a bounded forest removes to make room.

A forest notifies its policy of inserts and query results. The kernel that removes memories updates ``recency``, the
list of memories in the order in which queries last returned them.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np

from .._jit import inner, kernel
from .._kernels import (
    N_MEMORIES,
    NEXT_ID,
    NONE,
    all_within,
    check_layout,
    draw_word,
    find_slots,
    kind_of,
    require,
    resized,
)
from .state import State

# Entries of ``Recency.totals``.
FIRST = 0  # slot of the least recently returned memory
LAST = 1  # slot of the most recently returned memory
LENGTH = 2  # number of memories in the list
N_TOTALS = 3
NOT_LISTED = np.int32(-2)


class Recency(NamedTuple):
    """A doubly linked list of slots, least recently returned first.

    Both neighbours of an unlisted slot are NOT_LISTED. Every listed slot has a memory, because the kernel that removes
    memories also updates the list. New memories are missing until their insert is complete.
    """

    before: Annotated[np.ndarray, kind_of(np.int32, "places")]  # predecessor of each slot, NONE for the first
    after: Annotated[np.ndarray, kind_of(np.int32, "places")]  # successor of each slot, NONE for the last
    totals: Annotated[np.ndarray, kind_of(np.int64, N_TOTALS)]


def new_recency(order: np.ndarray, capacity: int) -> Recency:
    """Return a list of the slots in ``order``, with room for ``capacity`` slots."""
    recency = Recency(
        before=np.full(capacity, NOT_LISTED, np.int32),
        after=np.full(capacity, NOT_LISTED, np.int32),
        totals=np.array([NONE, NONE, order.size], np.int64),
    )
    if order.size > 0:
        recency.before[order[1:]], recency.before[order[0]] = order[:-1], NONE
        recency.after[order[:-1]], recency.after[order[-1]] = order[1:], NONE
        recency.totals[[FIRST, LAST]] = order[[0, -1]]
    return recency


@inner
def _let_follow(recency, slot, following):
    """Make ``following`` the successor of ``slot``. NONE stands for the end of the list on either side."""
    if slot == NONE:
        recency.totals[FIRST] = following
    else:
        recency.after[slot] = following
    if following == NONE:
        recency.totals[LAST] = slot
    else:
        recency.before[following] = slot


@inner
def _unlink(recency, slot):
    _let_follow(recency, np.int64(recency.before[slot]), np.int64(recency.after[slot]))
    recency.before[slot] = NOT_LISTED
    recency.after[slot] = NOT_LISTED
    recency.totals[LENGTH] -= 1


@inner
def _rename(recency, old, new):
    before, after = np.int64(recency.before[old]), np.int64(recency.after[old])
    _let_follow(recency, before, new)
    _let_follow(recency, new, after)
    recency.before[old] = NOT_LISTED
    recency.after[old] = NOT_LISTED


@inner
def _is_listed(recency, slot):
    return slot < recency.before.size and recency.before[slot] != NOT_LISTED


@inner
def take_out_slot(recency, slot, last):
    """Remove ``slot`` from the list, and rename slot ``last`` to ``slot``. Unlisted slots are skipped."""
    if _is_listed(recency, slot):
        _unlink(recency, slot)
    if slot != last and _is_listed(recency, last):
        _rename(recency, last, slot)


@kernel
def put_last(recency, slots):
    """Move slots to the end of the list in the given order. Unlisted slots are appended, and NONE is skipped."""
    for i in range(slots.size):
        slot = slots[i]
        if slot == NONE:
            continue
        if recency.before[slot] != NOT_LISTED:
            _unlink(recency, slot)
        _let_follow(recency, recency.totals[LAST], slot)
        _let_follow(recency, slot, NONE)
        recency.totals[LENGTH] += 1


@kernel
def take_out(recency, slots):
    """Remove slots from the list."""
    for i in range(slots.size):
        _unlink(recency, slots[i])


@kernel
def list_first(recency, slots):
    """Write the first ``slots.size`` slots of the list to ``slots``, in order."""
    slot = recency.totals[FIRST]
    for i in range(slots.size):
        slots[i] = slot
        slot = np.int64(recency.after[slot])


# Policies


class Eviction:
    """Evicts the memories with the lowest ids, which are the oldest. Also the policy of unbounded forests.

    Ids ascend, so a search that continues from the last evicted id takes amortised constant time.
    """

    minds_queries = False  # whether the policy depends on query results
    recency = new_recency(np.empty(0, np.int64), 0)  # empty, for the kernel that removes memories

    def __init__(self) -> None:
        self._lowest: int | None = None  # lower bound on the stored ids

    @property
    def nbytes(self) -> int:
        """Number of bytes of the policy's arrays."""
        return 0

    def choose(self, state: State, n: int) -> np.ndarray:
        """Return the ids of the ``n`` memories to evict, as int64."""
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
        self._lowest = int(found[0])  # still stored: the caller removes it later
        return found[:n]

    def inserted(self, state: State, first: int) -> None:
        """Record new memories in slots ``first`` and above."""

    def returned(self, state: State, ids: np.ndarray) -> None:
        """Record the memories that queries have returned: ``ids[i, j]`` is the j-th result of row ``i``, or NONE."""

    def taken_back(self, first: int) -> None:
        """Forget the memories in slots ``first`` and above, whose insert failed."""

    def moved(self, old: State, new: State) -> Eviction:
        """Return a policy for ``new``, which has the memories of ``old`` in other slots; do not change this policy."""
        return self

    def check(self, state: State) -> None:
        """Raise InvariantError if the policy does not match the forest."""

    def order(self, state: State) -> np.ndarray | None:
        """Return the slots of all memories in the order of eviction as int32, or None if the policy needs none."""
        return None

    def restore(self, order: np.ndarray | None, state: State) -> None:
        """Restore the policy from its order. Raises InvariantError if it is invalid."""


class RandomEviction(Eviction):
    """Evicts random memories, drawn with the forest's random stream for queries."""

    def choose(self, state: State, n: int) -> np.ndarray:
        """Return ``n`` ids drawn without replacement (Floyd's algorithm)."""
        n_memories, stream = int(state.keys.totals[N_MEMORIES]), state.streams.size - 1
        drawn: dict[int, None] = {}  # an ordered set
        for most in range(n_memories - n, n_memories):
            slot = (int(draw_word(state.streams, stream)) >> 32) * (most + 1) >> 32
            drawn[most if slot in drawn else slot] = None
        return state.keys.ids[list(drawn)]


class LeastRecentlyReturned(Eviction):
    """Evicts the least recently returned memories. An insert counts as a return."""

    minds_queries = True

    def __init__(self) -> None:
        self.recency = new_recency(np.empty(0, np.int64), 0)

    @property
    def nbytes(self) -> int:
        """Number of bytes of the list."""
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
        listed = self.recency.before[slots] != NOT_LISTED  # false during a memory's insert or removal
        put_last(self.recency, slots[listed])

    def taken_back(self, first: int) -> None:
        """Remove the memories in slots ``first`` and above from the list."""
        take_out(self.recency, first + np.flatnonzero(self.recency.before[first:] != NOT_LISTED))

    def moved(self, old: State, new: State) -> Eviction:
        """Return a policy with the new slots of all memories."""
        order = self.order(old)
        moved_to = np.empty(order.size, np.int64)
        find_slots(new.keys, old.keys.ids[order], moved_to)
        policy = LeastRecentlyReturned()
        policy.recency = new_recency(moved_to, new.keys.ids.size)
        return policy

    def check(self, state: State) -> None:
        """Raise InvariantError unless the list holds every memory once."""
        _check_recency(self._complete(state), int(state.keys.totals[N_MEMORIES]))

    def order(self, state: State) -> np.ndarray:
        """Return the slots of all memories as int32, least recently returned first."""
        slots = np.empty(int(state.keys.totals[N_MEMORIES]), np.int64)
        list_first(self._complete(state), slots)
        return slots.astype(np.int32)

    def restore(self, order: np.ndarray | None, state: State) -> None:
        """Restore the order from a file. Raises InvariantError if it is invalid."""
        slots = np.arange(state.keys.totals[N_MEMORIES])
        complete = order is not None and np.array_equal(np.sort(order), slots)
        require(complete, "the order of memories does not list every memory")
        self.recency = new_recency(np.asarray(order, np.int64), state.keys.ids.size)

    def _with_room(self, state: State) -> Recency:
        """Return the list, enlarged to the capacity of the forest if necessary."""
        recency, capacity = self.recency, state.keys.ids.size
        if recency.before.size < capacity:
            before, after = (resized(array, capacity, fill=NOT_LISTED) for array in (recency.before, recency.after))
            self.recency = recency = recency._replace(before=before, after=after)
        return recency

    def _complete(self, state: State) -> Recency:
        """Return the list after appending the memories of an incomplete insert."""
        n = int(state.keys.totals[N_MEMORIES])
        if self.recency.totals[LENGTH] < n:
            recency = self._with_room(state)
            put_last(recency, np.flatnonzero(recency.before[:n] == NOT_LISTED))
        return self.recency


_POLICIES: dict[str, type[Eviction]] = {
    "least_recently_returned": LeastRecentlyReturned,
    "oldest": Eviction,
    "random": RandomEviction,
}
EVICTIONS = tuple(_POLICIES)


def new_eviction(name: str, *, bounded: bool) -> Eviction:
    """Return the policy called ``name``, or the base policy for an unbounded forest, which never evicts."""
    return _POLICIES[name]() if bounded else Eviction()


def _check_recency(recency: Recency, n: int) -> None:
    """Raise InvariantError unless the list contains each slot below ``n`` once, and no other slots."""
    check_layout(recency)
    require(recency.totals[LENGTH] == n <= recency.before.size, "the order of memories does not list every memory")
    inside = all_within(recency.after[:n], -1, n - 1) and all_within(recency.totals[FIRST : FIRST + 1], -1, n - 1)
    require(inside, "the order of memories refers to a memory that does not exist")
    order = np.empty(n, np.int64)
    list_first(recency, order)
    require(np.array_equal(np.sort(order), np.arange(n)), "the order of memories does not list every memory")
    again = new_recency(order, recency.before.size)
    same = all(np.array_equal(one, other) for one, other in zip(again, recency, strict=True))
    require(same, "the order of memories is inconsistent between its two directions")

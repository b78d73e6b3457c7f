"""Kernels: a doubly linked list of memories in the order in which queries last returned them.

Every operation takes constant time per memory.
"""

from typing import Annotated, NamedTuple

import numpy as np

from .._jit import inner, kernel
from .state import NONE
from .structures import kind_of

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

"""Kernels: in which order memories were last returned, a doubly linked list through their slots.

Every step takes constant time for each memory that it is about.
"""

from typing import Annotated, NamedTuple

import numpy as np

from .._jit import inner, kernel
from .state import NONE
from .structures import kind_of

# Entries of ``Recency.totals``.
FIRST = 0  # slot of the memory that has not been returned for the longest time
LAST = 1
LENGTH = 2  # memories listed
N_TOTALS = 3

NOT_LISTED = np.int32(-2)


class Recency(NamedTuple):
    """The list. Slots that are not in it have NOT_LISTED for both neighbours.

    What is listed is a memory: the kernel that removes memories takes them out. Of new memories those may be missing
    whose insert is under way or was broken off.
    """

    before: Annotated[np.ndarray, kind_of(np.int32, "places")]  # the slot returned just before, NONE for the first one
    after: Annotated[np.ndarray, kind_of(np.int32, "places")]
    totals: Annotated[np.ndarray, kind_of(np.int64, N_TOTALS)]


def new_recency(order: np.ndarray, capacity: int) -> Recency:
    """Return a list of all slots in ``order``, with room for so many."""
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
    """Let slot ``following`` come right after ``slot``; NONE stands for what is beyond either end of the list."""
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
    """Let slot ``new`` stand where ``old`` stood."""
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
    """Take a slot out of the list and call slot ``last`` by it; what is not listed stays so."""
    if _is_listed(recency, slot):
        _unlink(recency, slot)
    if slot != last and _is_listed(recency, last):
        _rename(recency, last, slot)


@kernel
def put_last(recency, slots):
    """List slots as the last ones, one after another, wherever they stood before; NONE is passed over.

    Writes ``recency``.
    """
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
    """Take slots out of the list.

    Writes ``recency``.
    """
    for i in range(slots.size):
        _unlink(recency, slots[i])


@kernel
def list_first(recency, slots):
    """Write the first slots of the list, in order."""
    slot = recency.totals[FIRST]
    for i in range(slots.size):
        slots[i] = slot
        slot = np.int64(recency.after[slot])

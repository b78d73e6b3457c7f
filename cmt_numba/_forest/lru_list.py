"""Kernels: the order in which memories were last returned, a doubly linked list of their slots.

Every operation takes constant time for each memory.
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

    All listed slots are memories: the kernel that removes memories removes them here, too. Memories whose insert is not
    complete may be missing.
    """

    before: Annotated[np.ndarray, kind_of(np.int32, "places")]  # the slot returned just before, NONE for the first one
    after: Annotated[np.ndarray, kind_of(np.int32, "places")]
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
    """Make slot ``following`` the successor of ``slot``. NONE represents either end of the list."""
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
    """Rename slot ``old`` to ``new``."""
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
    """Remove a slot from the list, and rename slot ``last`` to it. Unlisted slots stay unlisted."""
    if _is_listed(recency, slot):
        _unlink(recency, slot)
    if slot != last and _is_listed(recency, last):
        _rename(recency, last, slot)


@kernel
def put_last(recency, slots):
    """Move slots to the end of the list, one after another, or append them. NONE is skipped.

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
    """Remove slots from the list.

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

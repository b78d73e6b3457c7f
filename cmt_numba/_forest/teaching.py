"""Kernels: UPDATE of routers when the right memory is known.

Algorithm 3 learns a router's better side from the reward of a side drawn at random. When it is known which memory is
right, the reward of both sides is known, and at every node above that memory: 1 on its side, 0 on the other. So each
of these routers learns the right side at once, without exploring.
"""

import numpy as np

from .._jit import by_reference, inner, kernel
from .key_store import longest_key
from .linear_model import locate, located_margin, new_workspace, reset_weights
from .routers import train_router
from .rows import longest_row, row_of
from .state import DONE, NEXT_ROW, NODES_END, NONE, RIGHT, TABLES_FULL, TAUGHT_FROM
from .topology import parent_of, side_of


@inner
def _teach_row(state, t, x, slot, work):
    """Teach the routers above a memory to send row ``x`` its way; go on from where the tree's counters say.

    Returns DONE, or what is full. A router that sends the row the right way by a margin of 1 or more learns nothing.
    """
    counters = state.counters
    place = counters[t, TAUGHT_FROM]
    if place == NONE:
        place = ~np.int64(state.leaf_of[t, slot])
    node = parent_of(state, t, place)
    while node != NONE:
        if not locate(state, t, node, x, work):
            counters[t, TAUGHT_FROM] = place
            return TABLES_FULL
        label = 1.0 if side_of(state, t, node, place) == RIGHT else -1.0
        margin = located_margin(state, t, node, x, work)
        if label * margin < 1.0:
            train_router(state, t, node, x, work, margin, label, 1.0)
        place = node
        node = parent_of(state, t, place)
    counters[t, TAUGHT_FROM] = NONE
    return DONE


@inner
def _teach_rows(state, t, rows, order, slots, stop, work):
    counters = state.counters
    while counters[t, NEXT_ROW] < stop:
        row = order[counters[t, NEXT_ROW]]
        status = _teach_row(state, t, row_of(rows, row), slots[row], work)
        if status != DONE:
            return status
        counters[t, NEXT_ROW] += 1
    return DONE


@kernel
def teach_tree(state, t, rows, order, slots, stop):
    """Teach tree ``t`` that row ``order[i]`` belongs to the memory in slot ``slots[order[i]]``, up to ``i = stop``.

    Goes on from the row in the tree's counters.
    """
    state = by_reference(state)
    work = new_workspace(max(longest_key(state), longest_row(rows, 0, rows.offsets.size - 1)))
    return _teach_rows(state, t, rows, order, slots, stop, work)


@kernel
def forget_routes(state, t):
    """Let all routers of tree ``t`` forget what they have learned, so that they can be taught afresh."""
    state = by_reference(state)
    for node in range(state.counters[t, NODES_END]):
        reset_weights(state, t, node)

"""Kernels: UPDATE of routers when the right memory is known.

Algorithm 3 learns a router's better side from the reward of a randomly drawn side. If the right memory is known, the
rewards of both sides of every node above it are known: 1 on its side, 0 on the other. So all these routers learn the
right side at once, without exploration.
"""

from typing import NamedTuple

import numpy as np

from .._jit import by_reference, inner, kernel, release
from .linear_model import locate_or_insert, located_margin, new_workspace, reset_weights
from .routers import train_router
from .rows import Rows, longest_row, row_of
from .state import DONE, NODES_END, NONE, RIGHT, TABLES_FULL
from .topology import parent_of, side_of


class RouterLesson(NamedTuple):
    """Row ``order[i]`` belongs to the memory in slot ``slots[order[i]]``."""

    rows: Rows
    order: np.ndarray  # int64
    slots: np.ndarray  # int64 (rows,)


@inner
def _teach_row(parameters, trees, routers, t, lesson, row, at, work):
    """Teach the routers above a row's memory to route the row to it, from the place ``at[t, 1]`` upwards.

    A router with a margin of at least 1 on the correct side learns nothing. Returns DONE or TABLES_FULL.
    """
    x, place = row_of(lesson.rows, row), at[t, 1]
    if place == NONE:
        place = ~np.int64(trees.leaf_of[t, lesson.slots[row]])
    node = parent_of(trees, t, place)
    while node != NONE:
        if locate_or_insert(routers, t, node, x, work) != DONE:
            at[t, 1] = place
            return TABLES_FULL
        label = 1.0 if side_of(trees, t, node, place) == RIGHT else -1.0
        margin = located_margin(routers, t, node, x, work)
        if label * margin < 1.0:
            train_router(parameters, routers, t, node, x, work, margin, label, 1.0)
        place = node
        node = parent_of(trees, t, place)
    at[t, 1] = NONE
    return DONE


@kernel
def teach_trees(view, some, lesson, at, stop):
    """Teach ``some`` trees the rows of a lesson, each from number ``at[t, 0]`` up to ``stop``.

    ``at``, int64 of shape (trees, 2), is the progress of each tree, and is advanced: the number of the row, and the
    place above which routers have yet to learn it, NONE for the leaf. Writes the routers of these trees. Returns DONE,
    or TABLES_FULL; it can then be called again.
    """
    forest = by_reference(view)
    rows = lesson.rows
    work = new_workspace(longest_row(rows, 0, rows.offsets.size - 1))
    status = DONE
    for t in range(some.first, some.stop):
        while status == DONE and at[t, 0] < stop:
            row = lesson.order[at[t, 0]]
            status = _teach_row(forest.parameters, forest.trees, forest.routers, t, lesson, row, at, work)
            if status == DONE:
                at[t, 0] += 1
    release(work)
    return status


@kernel
def forget_routes(view, t):
    """Reset all routers of tree ``t``.

    Writes the routers of tree ``t``.
    """
    forest = by_reference(view)
    for node in range(forest.trees.counters[t, NODES_END]):
        reset_weights(forest.routers, t, node)

"""Kernels: training routers when the correct memory of a row is known.

UPDATE (Algorithm 3) estimates the better side of a node from the reward of a randomly drawn side. If the correct memory
is known, so are the rewards of both sides of every node above it: 1 for the side of the memory, and 0 for the other.
All these routers can then learn the correct side in one step, without exploration.
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
    """Rows and the memories that they belong to."""

    rows: Rows
    order: np.ndarray  # int64: the rows to learn, in this order
    slots: np.ndarray  # int64 (rows,): the slot of the memory of each row


@inner
def _teach_row(parameters, trees, routers, t, lesson, row, at, work):
    """Train the routers above the place ``at[t, 1]`` to route a row to its memory; return DONE or TABLES_FULL.

    Routers with a margin of at least 1 on the correct side are not trained.
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
    """Teach the rows ``order[at[t, 0]:stop]`` of a lesson to each tree ``t`` in ``some``.

    Returns DONE or TABLES_FULL; after TABLES_FULL the next call resumes. ``at``, int64 of shape (trees, 2), is the
    progress of each tree: the position of the current row in ``order``, and the place above which routers have not
    learned the row yet, where NONE stands for the memory's leaf. Writes ``at`` and the routers of these trees.
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
    """Reset all routers of tree ``t``."""
    forest = by_reference(view)
    for node in range(forest.trees.counters[t, NODES_END]):
        reset_weights(forest.routers, t, node)

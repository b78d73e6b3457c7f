"""Kernels: UPDATE (Algorithm 3), which trains the scorer and the routers of explored nodes on rewards, and teaching.

UPDATE estimates the better side of a node from the reward of a randomly drawn side. If the correct memory is known, so
are the rewards of both sides of every node above it: 1 for the side of the memory, and 0 for the other. All these
routers can then learn the correct side in one step, without exploration.
"""

from typing import Any, NamedTuple

import numpy as np

from .._jit import by_reference, inner, kernel, release
from .._kernels import LEFT, NONE, RIGHT, Rows, aim_probe, find_slot, longest_key, longest_row, new_probe, row_of
from .._linear import DONE, TABLES_FULL, locate_or_insert, located_margin, new_workspace, reset_weights
from .insert_remove import balance, finish_step
from .ranking import new_comparison, train_on_pair
from .routers import train_router
from .scorer import ScorerLoss, train_scorer
from .state import NODES_END, REROUTES_LEFT
from .topology import parent_of, side_of


def update_scorer(view: Any, scorer_loss: int, feedback: Any) -> None:
    """Train the scorer on rewards with the kernel for ``scorer_loss``."""
    learn = learn_rewards if scorer_loss == ScorerLoss.REGRESSION else learn_order
    learn(view, feedback)


@kernel
def learn_rewards(view, feedback):
    """Train the scorer to predict rewards.

    Skips removed memories, and rows that explored an internal node, whose rewards train the router. Writes the scorer.
    """
    forest = by_reference(view)
    n_rows = feedback.rows.offsets.size - 1
    probe = new_probe(feedback.rows, 0, n_rows)
    for row in range(n_rows):
        if feedback.hits.exploration.node[row] == NONE:
            _train_on_each(forest.parameters, forest.keys, forest.scorer, probe, feedback, row)
    release(probe)


@kernel
def learn_order(view, feedback):
    """Train the scorer to rank each row's memories by reward.

    Skips removed memories, and rows that explored an internal node, whose rewards train the router. Writes the scorer.
    """
    forest = by_reference(view)
    n_rows = feedback.rows.offsets.size - 1
    probe = new_probe(feedback.rows, 0, n_rows)
    comparison = new_comparison(forest.keys, feedback.rewards.shape[1])
    for row in range(n_rows):
        if feedback.hits.exploration.node[row] == NONE:
            train_on_pair(forest.parameters, forest.keys, forest.scorer, probe, feedback, row, comparison)
    release((probe, comparison))


@inner
def _train_on_each(parameters, keys, scorer, probe, feedback, row):
    hits, rewards = feedback.hits, feedback.rewards
    aim_probe(probe, row_of(feedback.rows, row))
    for i in range(rewards.shape[1]):
        slot = find_slot(keys, hits.ids[row, i])
        if slot != NONE:
            train_scorer(parameters, keys, scorer, probe, slot, rewards[row, i])


@inner
def _route_better(parameters, trees, routers, t, feedback, row, work):
    """Train the router of the node that a row explored (Algorithm 3, lines 4 to 6); return DONE or TABLES_FULL."""
    hits, rewards, alpha = feedback.hits, feedback.rewards, parameters.alpha
    exploration = hits.exploration
    node = np.int64(exploration.node[row])
    x = row_of(feedback.rows, row)
    if locate_or_insert(routers, t, node, x, work) != DONE:
        return TABLES_FULL
    below = trees.nodes[t, node]["below"]
    sign = 1.0 if exploration.side[row] == RIGHT else -1.0
    for i in range(rewards.shape[1]):
        if hits.ids[row, i] != NONE:
            estimate = rewards[row, i] / exploration.probability[row] * sign
            y = (1.0 - alpha) * estimate + alpha * balance(below[LEFT], below[RIGHT])
            margin = located_margin(routers, t, node, x, work)
            train_router(parameters, routers, t, node, x, work, margin, 1.0 if y > 0.0 else -1.0, np.abs(y))
    return DONE


@inner
def _explored(trees, t, row, exploration):
    """Return whether a row explored an internal node of tree ``t`` that still exists."""
    node = np.int64(exploration.node[row])
    if exploration.tree[row] != t or node == NONE:
        return False
    return trees.nodes[t, node]["generation"] == exploration.generation[row]


@kernel
def update_trees(view, some, turn, feedback):
    """Train the routers that rows explored in the trees ``some``, with reroutes after each row (UPDATE, Algorithm 3).

    Returns DONE, or the status of a full array; the next call then resumes. Skips explorations of removed nodes.
    Advances ``turn.at``, and writes the shape and the routers of these trees.
    """
    forest = by_reference(view)
    parameters, trees, routers, keys = forest.parameters, forest.trees, forest.routers, forest.keys
    counters, at, status = trees.counters, turn.at, DONE
    work = new_workspace(max(longest_key(keys), longest_row(feedback.rows, 0, feedback.rows.offsets.size - 1)))
    for t in range(some.first, some.stop):
        while True:
            status = finish_step(view, t, work)
            row = at[t]
            if status != DONE or row == turn.stop:
                break
            if _explored(trees, t, row, feedback.hits.exploration):
                status = _route_better(parameters, trees, routers, t, feedback, row, work)
                if status != DONE:
                    break
            counters[t, REROUTES_LEFT] = parameters.n_reroutes
            at[t] += 1
        if status != DONE:
            break
    release(work)
    return status


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

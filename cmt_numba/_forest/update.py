"""Kernels: UPDATE (Algorithm 3). Rewards teach the scorer, and the routers of nodes that a query explored."""

import numpy as np

from .._jit import by_reference, by_value, inner, kernel
from .insert_remove import balance, finish_step
from .key_store import find_slot, longest_key
from .linear_model import locate, located_margin, new_workspace
from .ranking import new_comparison, train_on_pair
from .routers import train_router
from .rows import longest_row, row_of
from .scorer import REGRESSION, aim_probe, new_probe, train_scorer
from .state import DONE, LEFT, NEXT_ROW, NONE, REROUTES_LEFT, RIGHT, TABLES_FULL


@kernel
def update_scorer(state, rows, hits, rewards):
    """Train the scorer on the rewards of each row's memories.

    Left out are memories that have gone, and rows that explored an internal node: their rewards are the router's.
    """
    state, rows, hits = by_reference(state), by_reference(rows), by_reference(hits)
    n_rows = rows.offsets.size - 1
    probe = new_probe(state, longest_row(rows, 0, n_rows))
    comparison = new_comparison(state, rewards.shape[1])
    for row in range(n_rows):
        if hits.exploration.node[row] != NONE:
            continue
        if state.parameters.scorer_loss == REGRESSION:
            _train_on_each(state, probe, rows, row, hits, rewards)
        else:
            train_on_pair(state, probe, rows, row, hits, rewards, comparison)


@inner
def _train_on_each(state, probe, rows, row, hits, rewards):
    aim_probe(state, probe, row_of(rows, row), False)
    for i in range(rewards.shape[1]):
        slot = find_slot(state.keys, hits.ids[row, i])
        if slot != NONE:
            train_scorer(state, probe, slot, rewards[row, i])


@inner
def _route_better(state, t, rows, row, hits, rewards, work):
    """Train the router of the node that a row explored (Algorithm 3, lines 4 to 6).

    Returns whether there was room; nothing has changed if not.
    """
    exploration, alpha = hits.exploration, state.parameters.alpha
    node = np.int64(exploration.node[row])
    x = row_of(rows, row)
    if not locate(state, t, node, x, work):
        return False
    below = state.nodes[t, node]["below"]
    sign = 1.0 if exploration.side[row] == RIGHT else -1.0
    for i in range(rewards.shape[1]):
        if hits.ids[row, i] != NONE:
            estimate = rewards[row, i] / exploration.probability[row] * sign
            y = (1.0 - alpha) * estimate + alpha * balance(below[LEFT], below[RIGHT])
            margin = located_margin(state, t, node, x, work)
            train_router(state, t, node, x, work, margin, 1.0 if y > 0.0 else -1.0, np.abs(y))
    return True


@inner
def _explored(state, t, row, exploration):
    """Return whether a row explored a node of tree ``t`` that is still there."""
    node = np.int64(exploration.node[row])
    if exploration.tree[row] != t or node == NONE:
        return False
    return state.nodes[t, node]["generation"] == exploration.generation[row]


@kernel
def update_tree(state, t, rows, hits, rewards, stop):
    """UPDATE tree ``t`` with the rows up to ``stop``: routers where rows explored it, and the reroutes due after each.

    Goes on from the row in the tree's counters. Records of nodes that have gone are passed over.
    """
    state, rows, hits = by_reference(state), by_reference(rows), by_reference(hits)
    counters = state.counters
    work = new_workspace(max(longest_key(state), longest_row(rows, 0, rows.offsets.size - 1)))
    while True:
        status = finish_step(by_value(state), t, work)
        row = counters[t, NEXT_ROW]
        if status != DONE or row == stop:
            return status
        if _explored(state, t, row, hits.exploration) and not _route_better(state, t, rows, row, hits, rewards, work):
            return TABLES_FULL
        counters[t, REROUTES_LEFT] = state.parameters.n_reroutes
        counters[t, NEXT_ROW] += 1

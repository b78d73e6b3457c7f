"""Kernels: UPDATE (Algorithm 3). Rewards teach the scorer, and the routers of nodes that a query explored."""

import numpy as np

from ._jit import inner, kernel
from ._keys import find_slot, longest_row
from ._memory import balance, finish_step
from ._routers import locate, located_margin, new_workspace, train_router
from ._scorer import aim_probe, new_probe, train_scorer
from ._state import DONE, LEFT, NEXT_ROW, NONE, REROUTES_LEFT, RIGHT, TABLES_FULL


@kernel
def update_scorer(state, rows, hits, rewards):
    """Train the scorer on the rewards of each row's memories.

    Left out are memories that have gone, and rows that explored an internal node: their rewards are the router's.
    """
    n_rows = rows.offsets.size - 1
    probe = new_probe(state, longest_row(rows, 0, n_rows))
    for row in range(n_rows):
        if hits.exploration.node[row] == NONE:
            aim_probe(state, probe, rows, row, False)
            for i in range(rewards.shape[1]):
                slot = find_slot(state.keys, hits.ids[row, i])
                if slot != NONE:
                    train_scorer(state, probe, slot, rewards[row, i])


@inner
def _learn_side(state, t, node, side, probability, values, a, b, work, reward):
    """Train a router on the reward of an explored side (Algorithm 3, lines 4 to 6); the row has been located."""
    alpha, below = state.parameters.alpha, state.nodes.below
    sign = 1.0 if side == RIGHT else -1.0
    estimate = reward / probability * sign
    y = (1.0 - alpha) * estimate + alpha * balance(below[t, node, LEFT], below[t, node, RIGHT])
    margin = located_margin(state, t, node, values, a, b, work)
    train_router(state, t, node, values, a, b, work, margin, 1.0 if y > 0.0 else -1.0, np.abs(y))


@kernel
def update_tree(state, t, rows, hits, rewards, stop):
    """UPDATE tree ``t`` with the rows up to ``stop``: routers where rows explored it, and the reroutes due after each.

    Goes on from the row in the tree's counters. Records of nodes that have gone are passed over.
    """
    counters, exploration = state.counters, hits.exploration
    work = new_workspace(state, longest_row(rows, 0, rows.offsets.size - 1))
    while True:
        status = finish_step(state, t, work)
        if status != DONE or counters[t, NEXT_ROW] == stop:
            return status
        row = counters[t, NEXT_ROW]
        node = np.int64(exploration.node[row])
        explored = exploration.tree[row] == t and node != NONE
        if explored and state.nodes.generation[t, node] == exploration.generation[row]:
            a, b = rows.offsets[row], rows.offsets[row + 1]
            if not locate(state, t, node, rows.values, rows.indices, a, b, work):
                return TABLES_FULL
            side, probability = exploration.side[row], exploration.probability[row]
            for i in range(rewards.shape[1]):
                if hits.ids[row, i] != NONE:
                    _learn_side(state, t, node, side, probability, rows.values, a, b, work, rewards[row, i])
        counters[t, REROUTES_LEFT] = state.parameters.n_reroutes
        counters[t, NEXT_ROW] += 1

"""Kernels: UPDATE (Algorithm 3). Rewards teach the scorer, and the routers of nodes that a query explored."""

import numpy as np

from ._jit import inner, kernel
from ._keys import aim_probe, find_slot, key_end, key_start, new_probe, probe_value
from ._memory import balance, finish_step
from ._routers import locate, located_margin, new_workspace, train_router
from ._state import DONE, LEFT, NEXT_ROW, NONE, REROUTES_LEFT, RIGHT, TABLES_FULL

_TINY = np.float32(1e-20)


@inner
def _learn_reward(state, probe, slot, reward):
    """Train the scorer towards the reward of one memory for the probe's query: squared loss, AdaGrad."""
    keys, theta, squares = state.keys, state.scorer.theta, state.scorer.squares
    sparse, rate = state.parameters.sparse, np.float32(state.parameters.scorer_learning_rate)
    a, b = key_start(state, slot), key_end(state, slot)
    value = np.float32(0.0)
    for i in range(a, b):
        feature = np.int64(keys.indices[i]) if sparse else i - a
        x = probe_value(probe, feature) if sparse else probe.values[feature]
        value += x * keys.values[i] * (np.float32(1.0) + theta[feature])
    slope = value - reward
    for i in range(a, b):
        feature = np.int64(keys.indices[i]) if sparse else i - a
        x = probe_value(probe, feature) if sparse else probe.values[feature]
        gradient = slope * x * keys.values[i]
        squares[feature] += gradient * gradient
        theta[feature] -= rate * gradient / np.sqrt(squares[feature] + _TINY)


@kernel
def update_scorer(state, values, indices, offsets, ids, rewards, explored_node):
    """Train the scorer on the rewards of each row's memories.

    Left out are memories that have gone, and rows that explored an internal node: their rewards are the router's.
    """
    longest = 0
    for row in range(offsets.size - 1):
        longest = max(longest, offsets[row + 1] - offsets[row])
    probe = new_probe(state, longest)
    for row in range(offsets.size - 1):
        if explored_node[row] == NONE:
            aim_probe(state, probe, values, indices, offsets[row], offsets[row + 1], False)
            for i in range(rewards.shape[1]):
                slot = find_slot(state.keys, ids[row, i]) if ids[row, i] >= 0 else np.int64(NONE)
                if slot != NONE:
                    _learn_reward(state, probe, slot, rewards[row, i])


@inner
def _learn_side(state, t, node, side, probability, values, a, b, work, reward):
    """Train a router on the reward of an explored side (Algorithm 3, lines 4 to 6); the row has been located."""
    alpha, count = state.parameters.alpha, state.nodes.count
    sign = 1.0 if side == RIGHT else -1.0
    estimate = reward / probability * sign
    y = (1.0 - alpha) * estimate + alpha * balance(count[t, node, LEFT], count[t, node, RIGHT])
    margin = located_margin(state, t, node, values, a, b, work)
    train_router(state, t, node, values, a, b, work, margin, 1.0 if y > 0.0 else -1.0, np.abs(y))


@kernel
def update_tree(state, t, values, indices, offsets, exploration, ids, rewards, stop):
    """UPDATE tree ``t`` with the rows up to ``stop``: routers where rows explored it, and the reroutes due after each.

    Goes on from the row in the tree's counters. Records of nodes that have gone are passed over.
    """
    counters = state.counters
    longest = 0
    for row in range(offsets.size - 1):
        longest = max(longest, offsets[row + 1] - offsets[row])
    work = new_workspace(state, longest)
    while True:
        status = finish_step(state, t, work)
        if status != DONE or counters[t, NEXT_ROW] == stop:
            return status
        row = counters[t, NEXT_ROW]
        node = np.int64(exploration.node[row])
        if exploration.tree[row] == t and node != NONE:
            if state.nodes.generation[t, node] == exploration.generation[row]:
                a, b = offsets[row], offsets[row + 1]
                if not locate(state, t, node, values, indices, a, b, work):
                    return TABLES_FULL
                for i in range(rewards.shape[1]):
                    if ids[row, i] != NONE:
                        _learn_side(state, t, node, exploration.side[row], exploration.probability[row], values, a, b,
                                    work, rewards[row, i])  # fmt: skip
        counters[t, REROUTES_LEFT] = state.parameters.n_reroutes
        counters[t, NEXT_ROW] += 1

"""Kernels: the linear router of an internal node: its margin and its AdaGrad step.

A dense router holds a weight for every feature; those of a sparse one are in ``_tables.py``.
"""

from typing import NamedTuple

import numpy as np

from ._jit import inner, inner_allocating, inner_fastmath
from ._keys import dot, key_of
from ._state import LONGEST, NONE
from ._tables import drop_absent_cells, find_cell, locate_cells, release_table
from ._topology import first_leaf, next_leaf

SQUARED = 0
LOGISTIC = 1

_CLOSE_ENOUGH = 0.1  # a smaller error teaches a router nothing new, so it costs no step
_TINY = np.float32(1e-20)  # keeps 0 / 0 away where a feature is absent


class Workspace(NamedTuple):
    """Room for what is worked out about one row at one node."""

    cells: np.ndarray  # int64: where the router's weight for each feature of the row lies (sparse)
    steps: np.ndarray  # float32: the AdaGrad step of each weight


@inner_allocating
def new_workspace(state, n_cells):
    """Return a workspace for any key of the store and for other rows of up to ``n_cells`` cells."""
    n = max(n_cells, state.keys.totals[LONGEST])
    return Workspace(np.empty(n, np.int64), np.empty(n, np.float32))


@inner
def _dense_start(state, node):
    """Return where a dense router's weights start; its accumulators follow them."""
    return node * 2 * state.parameters.n_features


@inner
def reset_router(state, t, node):
    """Give ``node``, which has no table, a router that answers 0 everywhere."""
    state.nodes[t, node]["bias"] = 0.0
    state.nodes[t, node]["bias_square"] = 0.0
    if not state.parameters.sparse:
        start, d = _dense_start(state, node), state.parameters.n_features
        state.routers.weights[t, start : start + 2 * d] = 0.0


@inner
def release_router(state, t, node):
    """Let others have the storage of a node's router."""
    if state.parameters.sparse:
        release_table(state, t, node)


@inner
def forget_absent(state, t, node):
    """Let the node's router forget the features that no memory below it has any more.

    So the routers of a sparse tree whose memories come and go for ever stay as large as its memories make them. Dense
    routers do the same, because the answers must not depend on how keys are written down.
    """
    if state.parameters.sparse:
        drop_absent_cells(state, t, node)
    else:
        _reset_absent_weights(state, t, node)


@inner
def _reset_absent_weights(state, t, node):
    """Set the weights of features that are 0 in all memories below the node to 0.

    For the while the other features are marked by the sign of their accumulators, which are never negative.
    """
    start, d = _dense_start(state, node), state.parameters.n_features
    weights = state.routers.weights[t, start : start + d]
    squares = state.routers.weights[t, start + d : start + 2 * d]
    n_unmarked = d
    leaf = first_leaf(state, t, node)
    while leaf != NONE and n_unmarked > 0:
        for i in range(state.leaves[t, leaf]["size"]):
            x = key_of(state, np.int64(state.members[t, leaf, i]))
            for j in range(d):
                if x.values[x.a + j] != 0.0 and not np.signbit(squares[j]):
                    squares[j] = -squares[j]
                    n_unmarked -= 1
            if n_unmarked == 0:
                break
        leaf = next_leaf(state, t, node, leaf)
    for j in range(d):
        if np.signbit(squares[j]):
            squares[j] = -squares[j]
        else:
            squares[j] = 0.0
            weights[j] = 0.0


@inner
def locate(state, t, node, x, work):
    """Make the router ready to train on a row: find its weights, giving new features a weight of 0.

    Returns False, with nothing changed, if the router's table must grow and there is no room. Dense routers need no
    search.
    """
    return not state.parameters.sparse or locate_cells(state, t, node, x, work.cells)


@inner
def router_margin(state, t, node, x):
    """Return g(x) for row ``x``: right if positive, left if not."""
    if not state.parameters.sparse:
        d = state.parameters.n_features
        return state.nodes[t, node]["bias"] + dot(state.routers.weights[t], _dense_start(state, node), x.values, x.a, d)
    margin = state.nodes[t, node]["bias"]
    if state.nodes[t, node]["table_bits"] > 0:
        table = state.routers.table
        for i in range(x.a, x.b):
            cell = find_cell(state, t, node, x.indices[i])
            if cell >= 0:
                margin += table[t, cell]["weight"] * x.values[i]
    return margin


@inner
def located_margin(state, t, node, x, work):
    """Return g(x) like :func:`router_margin`, for a row that :func:`locate` has located."""
    if not state.parameters.sparse:
        d = state.parameters.n_features
        return state.nodes[t, node]["bias"] + dot(state.routers.weights[t], _dense_start(state, node), x.values, x.a, d)
    margin = state.nodes[t, node]["bias"]
    for i in range(x.b - x.a):
        margin += state.routers.table[t, work.cells[i]]["weight"] * x.values[x.a + i]
    return margin


@inner_fastmath
def _norm_1(x):
    """Return the sum of a row's magnitudes."""
    values = x.values[x.a : x.b]
    total = np.float32(0.0)
    for i in range(values.size):
        total += np.abs(values[i])
    return total


@inner_fastmath
def _adagrad_dense(squares, row, slope, rate, steps):
    """Add the squared gradients and write the AdaGrad steps; return how far they move the margin."""
    move = np.float32(0.0)
    for i in range(row.size):
        gradient = slope * row[i]
        square = squares[i] + gradient * gradient
        squares[i] = square
        step = rate * gradient / np.sqrt(square + _TINY)
        steps[i] = step
        move += step * row[i]
    return move


@inner_fastmath
def _step_dense(weights, steps, shrink):
    for i in range(weights.size):
        weights[i] -= shrink * steps[i]


@inner
def train_router(state, t, node, x, work, margin, label, importance):
    """Train the router on a located row towards ``label`` (-1 or 1) by an AdaGrad step; return the new margin.

    ``margin`` is the router's margin before. With the squared loss a step never takes the margin past the label, so
    that a large importance or learning rate cannot overshoot.
    """
    routers = state.routers
    squared = state.parameters.router_loss == SQUARED
    slope = margin - label if squared else -label / (1.0 + np.exp(label * margin))
    error = np.abs(slope)
    if error < _CLOSE_ENOUGH or importance == 0.0:
        return margin
    # AdaGrad's first steps move every weight by the rate, so the margin by the rate times the row's 1-norm. Dividing
    # by that makes one rate fit rows of twenty features and of a thousand.
    rate = np.float32(state.parameters.router_learning_rate / (1.0 + _norm_1(x)))
    slope = np.float32(slope * importance)
    state.nodes[t, node]["bias_square"] += slope * slope
    bias_step = rate * slope / np.sqrt(state.nodes[t, node]["bias_square"] + _TINY)
    move = bias_step
    if state.parameters.sparse:
        table = routers.table[t]
        for i in range(x.b - x.a):
            gradient = slope * x.values[x.a + i]
            square = table[work.cells[i]]["square"] + gradient * gradient
            table[work.cells[i]]["square"] = square
            work.steps[i] = rate * gradient / np.sqrt(square + _TINY)
            move += work.steps[i] * x.values[x.a + i]
    else:
        start, d = _dense_start(state, node), state.parameters.n_features
        squares = routers.weights[t, start + d : start + 2 * d]
        move += _adagrad_dense(squares, x.values[x.a : x.b], slope, rate, work.steps)
    shrink = np.float32(1.0)
    if squared and np.abs(move) > error:
        shrink = np.float32(error / np.abs(move))
    state.nodes[t, node]["bias"] -= shrink * bias_step
    if state.parameters.sparse:
        table = routers.table[t]
        for i in range(x.b - x.a):
            table[work.cells[i]]["weight"] -= shrink * work.steps[i]
    else:
        _step_dense(routers.weights[t, start : start + d], work.steps, shrink)
    return margin - shrink * move

"""Kernels: the linear router of an internal node, its storage, its margin and its AdaGrad step.

A router holds a weight for every feature (dense keys) or, in an open-addressing table of its own, for every feature
it has met (sparse keys), so that the memory of sparse routers follows what was touched. Tables grow by doubling inside
one array a tree; freed tables are kept in lists by size and used again.
"""

from typing import NamedTuple

import numpy as np

from ._jit import inner, inner_allocating, inner_fastmath
from ._keys import dot, hash_feature
from ._state import CELLS_WANTED, LONGEST, NONE, SMALLEST_TABLE_BITS, TABLES_END

SQUARED = 0
LOGISTIC = 1

_CLOSE_ENOUGH = 0.1  # a smaller error teaches a router nothing new: most visits end there, and cost no step
_TINY = np.float32(1e-20)  # keeps 0 / 0 away where a feature is absent


class Workspace(NamedTuple):
    """Room for what is worked out about one row at one node, or about the members of one leaf."""

    cells: np.ndarray  # int64: where the router's weight for each feature of the row lies (sparse)
    steps: np.ndarray  # float32: the AdaGrad step of each weight


@inner_allocating
def new_workspace(state, n_cells):
    """Return a workspace for any key of the store and for other rows of up to ``n_cells`` cells."""
    n = max(n_cells, state.keys.totals[LONGEST])
    return Workspace(np.empty(n, np.int64), np.empty(n, np.float32))


@inner
def table_bits(n_features):
    """Return the size (as a power of two) of a table for ``n_features`` features: at most three quarters full."""
    bits = SMALLEST_TABLE_BITS
    while 3 * (1 << bits) < 4 * n_features:
        bits += 1
    return bits


@inner
def reset_router(state, t, node):
    """Give ``node`` a router that answers 0 everywhere."""
    routers = state.routers
    routers.bias[t, node] = 0.0
    routers.bias_squares[t, node] = 0.0
    if state.parameters.sparse:
        routers.bits[t, node] = 0
        routers.used[t, node] = 0
    else:
        d = state.parameters.n_features
        for i in range(node * d, (node + 1) * d):
            routers.weights[t, i] = 0.0
            routers.squares[t, i] = 0.0


@inner
def release_router(state, t, node):
    """Put the node's table on the list of free tables."""
    routers = state.routers
    bits = routers.bits[t, node] if state.parameters.sparse else 0
    if bits > 0:
        start = routers.start[t, node]
        _set_next_free(routers, t, start, routers.free_table[t, bits])
        routers.free_table[t, bits] = start
        routers.bits[t, node] = 0


# Tables start at multiples of the smallest table's size, so a link fits the int32 of a feature cell.
@inner
def _set_next_free(routers, t, start, next_start):
    routers.table[t, start]["feature"] = NONE if next_start == NONE else next_start >> SMALLEST_TABLE_BITS


@inner
def next_free_table(routers, t, start):
    """Return where the table that follows ``start`` in its list of free tables starts, or NONE."""
    link = np.int64(routers.table[t, start]["feature"])
    return link if link == NONE else link << SMALLEST_TABLE_BITS


@inner
def has_cells(state, t, wanted):
    """Return whether ``wanted`` cells of router storage are free; if not, note that they are wanted."""
    if state.counters[t, TABLES_END] + wanted <= state.routers.table.shape[1]:
        return True
    state.counters[t, CELLS_WANTED] = wanted
    return False


@inner
def _take_table(state, t, bits):
    """Return the start of a table of ``2 ** bits`` empty cells, or NONE if there is no room for one."""
    routers = state.routers
    start = routers.free_table[t, bits]
    if start != NONE:
        routers.free_table[t, bits] = next_free_table(routers, t, start)
    else:
        if not has_cells(state, t, 1 << bits):
            return np.int64(NONE)
        start = state.counters[t, TABLES_END]
        state.counters[t, TABLES_END] += 1 << bits
    for cell in range(start, start + (1 << bits)):
        routers.table[t, cell]["feature"] = NONE
    return start


@inner
def find_cell(routers, t, node, feature):
    """Return the cell of a feature in a node's table or, complemented, the empty cell where it would go."""
    bits = np.int64(routers.bits[t, node])
    start = routers.start[t, node]
    mask = (1 << bits) - 1
    cell = hash_feature(feature, bits)
    while True:
        found = routers.table[t, start + cell]["feature"]
        if found == feature:
            return start + cell
        if found == NONE:
            return ~(start + cell)
        cell = (cell + 1) & mask


@inner
def _enlarge_table(state, t, node, bits):
    """Move the node's router into a table of ``2 ** bits`` cells; return whether there was room."""
    routers = state.routers
    start = _take_table(state, t, bits)
    if start == NONE:
        return False
    mask = (1 << bits) - 1
    table = routers.table[t]
    old_start = routers.start[t, node]
    old_size = (1 << np.int64(routers.bits[t, node])) if routers.bits[t, node] > 0 else 0
    for old_cell in range(old_start, old_start + old_size):
        feature = table[old_cell]["feature"]
        if feature != NONE:
            cell = hash_feature(feature, bits)
            while table[start + cell]["feature"] != NONE:
                cell = (cell + 1) & mask
            table[start + cell]["feature"] = feature
            table[start + cell]["weight"] = table[old_cell]["weight"]
            table[start + cell]["square"] = table[old_cell]["square"]
    release_router(state, t, node)
    routers.start[t, node] = start
    routers.bits[t, node] = bits
    return True


@inner
def locate(state, t, node, values, indices, a, b, work):
    """Write where the router's weight for each feature of the row lies, giving new features a weight of 0.

    Returns False, with nothing changed, if the router's table must grow and there is no room. Dense routers need no
    search and leave ``cells`` alone.
    """
    if not state.parameters.sparse:
        return True
    routers = state.routers
    n_missing = b - a
    if routers.bits[t, node] > 0:
        n_missing = 0
        for i in range(a, b):
            work.cells[i - a] = find_cell(routers, t, node, indices[i])
            n_missing += work.cells[i - a] < 0
    if n_missing == 0:
        return True
    used = routers.used[t, node] + n_missing
    bits = table_bits(used)
    if bits > routers.bits[t, node] and not _enlarge_table(state, t, node, bits):
        return False
    for i in range(a, b):
        cell = find_cell(routers, t, node, indices[i])
        if cell < 0:
            cell = ~cell
            routers.table[t, cell]["feature"] = indices[i]
            routers.table[t, cell]["weight"] = 0.0
            routers.table[t, cell]["square"] = 0.0
        work.cells[i - a] = cell
    routers.used[t, node] = used
    return True


@inner
def router_margin(state, t, node, values, indices, a, b):
    """Return g(x) for the row ``a .. b``: right if positive, left if not."""
    routers = state.routers
    if not state.parameters.sparse:
        d = state.parameters.n_features
        return routers.bias[t, node] + dot(routers.weights[t], node * d, values, a, d)
    margin = routers.bias[t, node]
    if routers.bits[t, node] > 0:
        for i in range(a, b):
            cell = find_cell(routers, t, node, indices[i])
            if cell >= 0:
                margin += routers.table[t, cell]["weight"] * values[i]
    return margin


@inner
def located_margin(state, t, node, values, a, b, work):
    """Return g(x) like :func:`router_margin`, for a row that :func:`locate` has located."""
    routers = state.routers
    if not state.parameters.sparse:
        d = state.parameters.n_features
        return routers.bias[t, node] + dot(routers.weights[t], node * d, values, a, d)
    margin = routers.bias[t, node]
    for i in range(b - a):
        margin += routers.table[t, work.cells[i]]["weight"] * values[a + i]
    return margin


@inner_fastmath
def _norm_1(values, a, b):
    """Return the sum of the magnitudes of the row ``a .. b``."""
    total = np.float32(0.0)
    for x in values[a:b]:
        total += np.abs(x)
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
def train_router(state, t, node, values, a, b, work, margin, label, importance):
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
    rate = np.float32(state.parameters.router_learning_rate / (1.0 + _norm_1(values, a, b)))
    slope = np.float32(slope * importance)
    routers.bias_squares[t, node] += slope * slope
    bias_step = rate * slope / np.sqrt(routers.bias_squares[t, node] + _TINY)
    move = bias_step
    if state.parameters.sparse:
        table = routers.table[t]
        for i in range(b - a):
            gradient = slope * values[a + i]
            square = table[work.cells[i]]["square"] + gradient * gradient
            table[work.cells[i]]["square"] = square
            work.steps[i] = rate * gradient / np.sqrt(square + _TINY)
            move += work.steps[i] * values[a + i]
    else:
        first, end = node * state.parameters.n_features, (node + 1) * state.parameters.n_features
        move += _adagrad_dense(routers.squares[t, first:end], values[a:b], slope, rate, work.steps)
    shrink = np.float32(1.0)
    if squared and np.abs(move) > error:
        shrink = np.float32(error / np.abs(move))
    routers.bias[t, node] -= shrink * bias_step
    if state.parameters.sparse:
        table = routers.table[t]
        for i in range(b - a):
            table[work.cells[i]]["weight"] -= shrink * work.steps[i]
    else:
        _step_dense(routers.weights[t, first:end], work.steps, shrink)
    return margin - shrink * move

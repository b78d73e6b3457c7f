"""Kernels: linear models that learn online, the routers of nodes and the scorers of labels.

A forest has a linear model for each internal node, a head has one for each label. Both are
:class:`~cmt_numba._forest.state.LinearModels`: ``node`` is an internal node of tree ``t``, or a label of a head, whose
only tree ``t`` is 0.

A dense model has a weight for every feature; ``sparse_weights.py`` has the weights of sparse models.
"""

from typing import NamedTuple

import numpy as np

from .._jit import empty, inner, inner_allocating, inner_fastmath, inner_merged, prefetch
from .adagrad import descend
from .hash_table import hash_feature
from .rows import dot, squared_length
from .sparse_weights import find_cell, locate_or_insert_cells, release_table, reset_cells, table_start
from .state import DONE, NONE

_CELLS_IN_A_LOOKUP = 24  # cells that a sequential scan reads in the time of one look-up
_WEIGHTS_IN_A_LINE = 16  # weights in a cache line of 64 bytes


class Workspace(NamedTuple):
    """Scratch space for one row at one node."""

    cells: np.ndarray  # int64: the cell of the weight of each feature of the row (sparse)
    steps: np.ndarray  # float32: the AdaGrad step of each weight


@inner_allocating
def new_workspace(n_cells):
    """Return a workspace for rows of up to ``n_cells`` cells."""
    return Workspace(empty(n_cells, np.int64), empty(n_cells, np.float32))


@inner
def dense_start(models, node):
    """Return where a dense router's weights start; its accumulators follow them."""
    return node * 2 * models.n_features


@inner
def reset_model(models, t, node):
    """Give ``node``, which has no table, a model with weights of 0."""
    models.nodes[t, node]["bias"] = 0.0
    models.nodes[t, node]["bias_square"] = 0.0
    if not models.sparse:
        start, d = dense_start(models, node), models.n_features
        models.weights[t, start : start + 2 * d] = 0.0


@inner
def reset_weights(models, t, node):
    """Reset the weights of the model of ``node`` to 0."""
    reset_model(models, t, node)
    if models.sparse and models.nodes[t, node]["table_bits"] > 0:
        reset_cells(models, t, node)


@inner
def release_model(models, t, node):
    """Free the storage of a node's model."""
    if models.sparse:
        release_table(models, t, node)


@inner_merged
def locate_or_insert(models, t, node, x, work):
    """Find the weights of a row's features in a model, and give new features a weight of 0.

    Returns DONE, or TABLES_FULL, with nothing changed, if the model's table must grow and there is no room. Dense
    models need no search.
    """
    return locate_or_insert_cells(models, t, node, x, work.cells) if models.sparse else DONE


@inner
def prefetch_weights(models, t, node, x):
    """Prefetch the weights that :func:`margin_of` reads for row ``x``."""
    if not models.sparse:
        start = dense_start(models, node)
        for i in range(start, start + models.n_features, _WEIGHTS_IN_A_LINE):
            prefetch(models.weights[t], i)
    elif models.nodes[t, node]["table_bits"] > 0:
        bits, start = np.int64(models.nodes[t, node]["table_bits"]), table_start(models, t, node)
        for i in range(x.a, x.b):
            prefetch(models.table[t], start + hash_feature(np.int64(x.indices[i]), bits))


@inner
def margin_of(models, t, node, x):
    """Return g(x) for row ``x``: right if positive, left if not."""
    if not models.sparse:
        d = models.n_features
        return models.nodes[t, node]["bias"] + x.scale * dot(
            models.weights[t], dense_start(models, node), x.values, x.a, d
        )
    margin = models.nodes[t, node]["bias"]
    if models.nodes[t, node]["table_bits"] > 0:
        for first in range(x.a, x.b, 64):
            margin += _sparse_margin(models, t, node, x, first, min(first + 64, x.b))
    return margin


@inner
def _sparse_margin(models, t, node, x, first, stop):
    """Return the contribution of up to 64 cells of a sparse row.

    Cells of a table are seldom in a cache. So the first loop reads one cell for each feature without branches, which
    lets the processor wait for all of them at once; the second loop continues the probes of the few that collided.
    """
    table = models.table
    bits, start = np.int64(models.nodes[t, node]["table_bits"]), table_start(models, t, node)
    margin = np.float32(0.0)
    collided = np.uint64(0)
    for i in range(first, stop):
        cell = start + hash_feature(np.int64(x.indices[i]), bits)
        feature = table[t, cell]["feature"]
        found = feature == x.indices[i]
        margin += table[t, cell]["weight"] * x.values[i] * np.float32(found)
        collided |= np.uint64(not found and feature != NONE) << np.uint64(i - first)
    i = first
    while collided != np.uint64(0):
        if collided & np.uint64(1):
            cell = find_cell(models, t, node, x.indices[i])
            if cell >= 0:
                margin += table[t, cell]["weight"] * x.values[i]
        collided >>= np.uint64(1)
        i += 1
    return margin


@inner_fastmath
def _sum_over_cells(table, by_feature):
    """Return the dot product of a table with a row indexed by feature."""
    total = np.float32(0.0)
    for cell in range(table.size):
        total += by_feature[max(np.int64(table[cell]["feature"]), 0)] * table[cell]["weight"]
    return total


@inner
def probed_margin(models, t, node, probe, x):
    """Return g(x) like :func:`margin_of`, for a row that ``probe`` has been aimed at.

    If the table has few more cells than the row has features, reading all cells in order is faster, since each look-up
    waits for memory.
    """
    bits = np.int64(models.nodes[t, node]["table_bits"])
    if not models.sparse or bits == 0:
        return margin_of(models, t, node, x)
    if probe.features.size > 0 or (1 << bits) > _CELLS_IN_A_LOOKUP * (x.b - x.a):
        return margin_of(models, t, node, x)
    start = table_start(models, t, node)
    return models.nodes[t, node]["bias"] + _sum_over_cells(models.table[t, start : start + (1 << bits)], probe.values)


@inner_merged
def located_margin(models, t, node, x, work):
    """Return g(x) like :func:`margin_of`, for a row that :func:`locate_or_insert` has located."""
    if not models.sparse:
        d = models.n_features
        return models.nodes[t, node]["bias"] + x.scale * dot(
            models.weights[t], dense_start(models, node), x.values, x.a, d
        )
    margin = models.nodes[t, node]["bias"]
    for i in range(x.b - x.a):
        margin += models.table[t, work.cells[i]]["weight"] * x.values[x.a + i]
    return margin


@inner_fastmath
def _norm_1(x):
    """Return the sum of a row's magnitudes."""
    values = x.values[x.a : x.b]
    total = np.float32(0.0)
    for i in range(values.size):
        total += np.abs(np.float32(values[i]))
    return x.scale * total


@inner_fastmath
def _adagrad_dense(squares, row, slope, rate, steps):
    """Add the squared gradients and write the AdaGrad steps; return how far they move the margin."""
    move = np.float32(0.0)
    for i in range(row.size):
        gradient = slope * np.float32(row[i])
        square = squares[i] + gradient * gradient
        squares[i] = square
        step = descend(square, gradient, rate)
        steps[i] = step
        move += step * np.float32(row[i])
    return move


@inner_fastmath
def _step_dense(weights, steps, shrink):
    for i in range(weights.size):
        weights[i] -= shrink * steps[i]


@inner
def add_row(models, t, node, x, work, amount):
    """Add ``amount`` times row ``x``, which the model has located, to the model's weights, not its bias."""
    amount = np.float32(amount)
    if models.sparse:
        table = models.table[t]
        for i in range(x.b - x.a):
            table[work.cells[i]]["weight"] += amount * x.values[x.a + i]
    else:
        start, amount = dense_start(models, node), amount * x.scale
        for i in range(models.n_features):
            models.weights[t, start + i] += amount * np.float32(x.values[x.a + i])


@inner
def add_to_sum(models, t, node, x, work, amount):
    """Add ``amount`` times row ``x``, which the model has located, to the sum stored in the accumulators."""
    amount = np.float32(amount)
    if models.sparse:
        table = models.table[t]
        for i in range(x.b - x.a):
            table[work.cells[i]]["square"] += amount * x.values[x.a + i]
    else:
        start, d = dense_start(models, node), models.n_features
        for i in range(d):
            models.weights[t, start + d + i] += amount * x.scale * np.float32(x.values[x.a + i])


@inner
def located_sum(models, t, node, x, work):
    """Return the dot product of row ``x``, which the model has located, with the sum stored in the accumulators."""
    if not models.sparse:
        d = models.n_features
        return x.scale * dot(models.weights[t], dense_start(models, node) + d, x.values, x.a, d)
    total = np.float32(0.0)
    for i in range(x.b - x.a):
        total += models.table[t, work.cells[i]]["square"] * x.values[x.a + i]
    return total


@inner
def add_sum(models, t, node, amount):
    """Add ``amount`` times the sum stored in a model's accumulators to its weights."""
    if models.sparse:
        table, bits = models.table, np.int64(models.nodes[t, node]["table_bits"])
        start = table_start(models, t, node)
        for cell in range(start, start + (1 << bits) if bits > 0 else start):
            if table[t, cell]["feature"] != NONE:
                table[t, cell]["weight"] += amount * table[t, cell]["square"]
    else:
        start, d = dense_start(models, node), models.n_features
        for i in range(start, start + d):
            models.weights[t, i] += amount * models.weights[t, i + d]


@inner
def passive_aggressive_step(models, t, node, x, work, label, error, most):
    """Move the margin of a located row ``x`` by ``error`` towards ``label`` by the smallest change of the model.

    The row is added to the weights, and ``label`` to the bias, with a factor of at most ``most``. Returns the increase
    of the margin.
    """
    size = squared_length(x) + np.float32(1.0)
    amount = np.float32(label * min(most, error / size))
    add_row(models, t, node, x, work, amount)
    models.nodes[t, node]["bias"] += amount
    return amount * size


@inner
def adagrad_step(models, t, node, x, work, slope, rate, farthest):
    """Take an AdaGrad step for a located row ``x``; ``slope`` is the derivative of the loss by the margin.

    ``rate`` is divided by the sum of the row's magnitudes. AdaGrad's first steps move every weight by the rate, hence
    the margin by the rate times that sum. The division makes one rate suit rows of 20 features and of 1,000. The margin
    moves by at most ``farthest``. Returns its decrease.
    """
    rate = np.float32(rate / (1.0 + _norm_1(x)))
    slope = np.float32(slope)
    record = models.nodes[t, node]
    record["bias_square"] += slope * slope
    bias_step = descend(record["bias_square"], slope, rate)
    move = bias_step
    if models.sparse:
        table = models.table[t]
        for i in range(x.b - x.a):
            gradient = slope * x.values[x.a + i]
            square = table[work.cells[i]]["square"] + gradient * gradient
            table[work.cells[i]]["square"] = square
            work.steps[i] = descend(square, gradient, rate)
            move += work.steps[i] * x.values[x.a + i]
    else:
        start, d = dense_start(models, node), models.n_features
        squares = models.weights[t, start + d : start + 2 * d]
        move += x.scale * _adagrad_dense(squares, x.values[x.a : x.b], slope * x.scale, rate, work.steps)
    shrink = np.float32(1.0)
    if np.abs(move) > farthest:
        shrink = np.float32(farthest / np.abs(move))
    record["bias"] -= shrink * bias_step
    if models.sparse:
        table = models.table[t]
        for i in range(x.b - x.a):
            table[work.cells[i]]["weight"] -= shrink * work.steps[i]
    else:
        _step_dense(models.weights[t, start : start + d], work.steps, shrink)
    return shrink * move

"""Kernels: online linear models for the routers of nodes and the scorers of labels.

A forest has a linear model for each internal node, and a head has one for each label. Both are
:class:`~cmt_numba._forest.state.LinearModels`. In a forest, ``node`` is an internal node of tree ``t``; in a head,
``node`` is a label and ``t`` is 0.

A dense model has a weight for every feature. Sparse models store their weights in hash tables (``sparse_weights.py``).
"""

from typing import NamedTuple

import numpy as np

from .._jit import empty, inner, inner_allocating, inner_fastmath, prefetch
from .._kernels import NONE, dot, hash_feature
from .models import DONE
from .sparse_weights import find_cell, locate_or_insert_cells, release_table, reset_cells, table_start

_TINY = np.float32(1e-20)  # avoids 0 / 0 while all gradients are 0


@inner
def descend(square, gradient, rate):
    """Return the AdaGrad step; ``square`` is the sum of squared gradients including this one."""
    return rate * gradient / np.sqrt(square + _TINY)


_CELLS_IN_A_LOOKUP = 24  # break-even point: one table lookup takes about as long as a scan of this many cells
_WEIGHTS_IN_A_LINE = 16  # float32 weights in a cache line of 64 bytes


class Workspace(NamedTuple):
    """Scratch space for a training step of one model on one row."""

    cells: np.ndarray  # int64 (n_cells,): table cell of each of the row's features (sparse models)
    steps: np.ndarray  # float32 (n_cells,): AdaGrad step of each weight


@inner_allocating
def new_workspace(n_cells):
    """Return a workspace for rows of up to ``n_cells`` cells."""
    return Workspace(empty(n_cells, np.int64), empty(n_cells, np.float32))


@inner
def dense_start(models, node):
    """Return the index of a dense model's first weight. Its accumulators follow its weights."""
    return node * 2 * models.n_features


@inner
def reset_model(models, t, node):
    """Set the bias and the dense weights of ``node`` to 0. A sparse model must have no table."""
    models.records[t, node]["bias"] = 0.0
    models.records[t, node]["bias_square"] = 0.0
    if not models.sparse:
        start, d = dense_start(models, node), models.n_features
        models.weights[t, start : start + 2 * d] = 0.0


@inner
def reset_weights(models, t, node):
    """Set all weights of the model of ``node`` to 0."""
    reset_model(models, t, node)
    if models.sparse and models.records[t, node]["table_bits"] > 0:
        reset_cells(models, t, node)


@inner
def release_model(models, t, node):
    """Free the table of a sparse model."""
    if models.sparse:
        release_table(models, t, node)


@inner
def locate_or_insert(models, t, node, x, work):
    """Write the table cells of a row's features to ``work``, after inserting new features with a weight of 0.

    Returns DONE, or TABLES_FULL without changing anything if the table must grow but has no room. Dense models need no
    cells.
    """
    return locate_or_insert_cells(models, t, node, x, work.cells) if models.sparse else DONE


@inner
def prefetch_weights(models, t, node, x):
    """Prefetch the weights that :func:`margin_of` reads for row ``x``."""
    if not models.sparse:
        start = dense_start(models, node)
        for i in range(start, start + models.n_features, _WEIGHTS_IN_A_LINE):
            prefetch(models.weights[t], i)
    elif models.records[t, node]["table_bits"] > 0:
        bits, start = np.int64(models.records[t, node]["table_bits"]), table_start(models, t, node)
        for i in range(x.a, x.b):
            prefetch(models.table[t], start + hash_feature(np.int64(x.indices[i]), bits))


@inner
def margin_of(models, t, node, x):
    """Return the margin g(x) of a row. Routers send rows with a positive margin right."""
    if not models.sparse:
        d = models.n_features
        return models.records[t, node]["bias"] + x.scale * dot(
            models.weights[t], dense_start(models, node), x.values, x.a, d
        )
    margin = models.records[t, node]["bias"]
    if models.records[t, node]["table_bits"] > 0:
        for first in range(x.a, x.b, 64):
            margin += _sparse_margin(models, t, node, x, first, min(first + 64, x.b))
    return margin


@inner
def _sparse_margin(models, t, node, x, first, stop):
    """Return the contribution of up to 64 cells of a sparse row to the margin.

    Table cells are rarely in a cache. The first loop reads the home of each feature without branches, so the processor
    overlaps the cache misses. The second loop continues the search for the few features that collided.
    """
    table = models.table
    bits, start = np.int64(models.records[t, node]["table_bits"]), table_start(models, t, node)
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
    """Return the dot product of a table's weights with a row whose values are indexed by feature."""
    total = np.float32(0.0)
    for cell in range(table.size):
        total += by_feature[max(np.int64(table[cell]["feature"]), 0)] * table[cell]["weight"]
    return total


@inner
def probed_margin(models, t, node, probe, x):
    """Return g(x) like :func:`margin_of`, for a row for which ``probe`` was prepared.

    If the table is not much larger than the row, a sequential scan of its cells is faster than lookups, which wait for
    memory.
    """
    bits = np.int64(models.records[t, node]["table_bits"])
    if not models.sparse or bits == 0:
        return margin_of(models, t, node, x)
    if probe.features.size > 0 or (1 << bits) > _CELLS_IN_A_LOOKUP * (x.b - x.a):
        return margin_of(models, t, node, x)
    start = table_start(models, t, node)
    return models.records[t, node]["bias"] + _sum_over_cells(models.table[t, start : start + (1 << bits)], probe.values)


@inner
def located_margin(models, t, node, x, work):
    """Return g(x) like :func:`margin_of`, for a row whose cells :func:`locate_or_insert` has written to ``work``."""
    if not models.sparse:
        return margin_of(models, t, node, x)
    margin = models.records[t, node]["bias"]
    for i in range(x.b - x.a):
        margin += models.table[t, work.cells[i]]["weight"] * x.values[x.a + i]
    return margin


@inner_fastmath
def _norm_1(x):
    values = x.values[x.a : x.b]
    total = np.float32(0.0)
    for i in range(values.size):
        total += np.abs(np.float32(values[i]))
    return x.scale * total


@inner_fastmath
def _adagrad_dense(squares, row, slope, rate, steps):
    """Add the squared gradients to ``squares``, write the AdaGrad steps, and return the margin's decrease."""
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
    """Add ``amount`` times a located row to a model's weights. The bias does not change."""
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
    """Add ``amount`` times a located row to the sum of rows stored in the accumulators."""
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
    """Return the dot product of a located row with the sum of rows stored in the accumulators."""
    if not models.sparse:
        d = models.n_features
        return x.scale * dot(models.weights[t], dense_start(models, node) + d, x.values, x.a, d)
    total = np.float32(0.0)
    for i in range(x.b - x.a):
        total += models.table[t, work.cells[i]]["square"] * x.values[x.a + i]
    return total


@inner
def add_sum(models, t, node, amount):
    """Add ``amount`` times the sum of rows stored in the accumulators to the weights."""
    if models.sparse:
        table, bits = models.table, np.int64(models.records[t, node]["table_bits"])
        start = table_start(models, t, node)
        for cell in range(start, start + (1 << bits) if bits > 0 else start):
            if table[t, cell]["feature"] != NONE:
                table[t, cell]["weight"] += amount * table[t, cell]["square"]
    else:
        start, d = dense_start(models, node), models.n_features
        for i in range(start, start + d):
            models.weights[t, i] += amount * models.weights[t, i + d]


@inner
def reset_sum(models, t, node):
    """Set the accumulators of a model to 0."""
    if models.sparse:
        table, bits = models.table, np.int64(models.records[t, node]["table_bits"])
        start = table_start(models, t, node)
        for cell in range(start, start + (1 << bits) if bits > 0 else start):
            table[t, cell]["square"] = 0.0
    else:
        start, d = dense_start(models, node), models.n_features
        models.weights[t, start + d : start + 2 * d] = 0.0


@inner
def scale_weights(models, t, node, factor):
    """Multiply all weights by a factor."""
    if models.sparse:
        table, bits = models.table, np.int64(models.records[t, node]["table_bits"])
        start = table_start(models, t, node)
        for cell in range(start, start + (1 << bits) if bits > 0 else start):
            table[t, cell]["weight"] *= factor
    else:
        start, d = dense_start(models, node), models.n_features
        for i in range(start, start + d):
            models.weights[t, i] *= factor


@inner
def add_squares(models, t, node, x, work):
    """Add the squares of a located row to the accumulators, as a step with a slope of 1 does."""
    models.records[t, node]["bias_square"] += 1.0
    if models.sparse:
        table = models.table[t]
        for i in range(x.b - x.a):
            table[work.cells[i]]["square"] += x.values[x.a + i] * x.values[x.a + i]
    else:
        start, d = dense_start(models, node), models.n_features
        for i in range(d):
            value = x.scale * np.float32(x.values[x.a + i])
            models.weights[t, start + d + i] += value * value


@inner
def adagrad_step(models, t, node, x, work, slope, rate, farthest):
    """Take an AdaGrad step for a located row; return the decrease of the margin, at most ``farthest``.

    ``slope`` is the derivative of the loss with respect to the margin. AdaGrad's first step moves every weight by the
    learning rate, and so the margin by the rate times the sum of the row's absolute values. Dividing ``rate`` by that
    sum makes the same rate suitable for rows of 20 features and for rows of 1,000.
    """
    rate = np.float32(rate / (1.0 + _norm_1(x)))
    slope = np.float32(slope)
    record = models.records[t, node]
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

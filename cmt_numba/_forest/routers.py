"""Kernels: training routers, aiming new routers, and removing absent features from routers.

A new router starts at the principal direction of its memories. The Eigen Memory Tree splits leaves along this direction
(Rucker et al., 2022). Here, the router then learns as in the paper. Memories on one side of the longest axis are
similar, so queries find their neighbours on the same side.
"""

from enum import IntEnum

import numpy as np

from .._jit import inner
from .._kernels import NONE, key_of
from .._linear import (
    adagrad_step,
    add_row,
    add_squares,
    add_sum,
    add_to_sum,
    dense_start,
    erase_cell,
    find_cell,
    locate_or_insert,
    located_margin,
    located_sum,
    reset_sum,
    reset_weights,
    scale_weights,
    table_start,
)
from .topology import first_leaf, next_leaf


class RouterLoss(IntEnum):
    """The loss functions of routers."""

    SQUARED = 0
    LOGISTIC = 1


_CLOSE_ENOUGH = 0.1  # training skips errors below this
_ROUNDS = 2  # of the power method
_NUDGE = np.float32(0.01)  # puts members at the boundary on one side, whatever their rounding errors
_MIN_SPREAD = np.float32(1e-6)  # members whose margins differ less on average are equal


@inner
def forget_absent(trees, routers, keys, t, node):
    """Remove the features that no memory below a node has from the node's router.

    This bounds the size of sparse routers under any number of inserts and removals. Dense routers reset the weights of
    these features, because answers must not depend on whether keys are dense or sparse.
    """
    if keys.sparse:
        drop_absent_cells(trees, routers, keys, t, node)
    else:
        _reset_absent_weights(trees, routers, keys, t, node)


@inner
def _reset_absent_weights(trees, routers, keys, t, node):
    """Reset the weights of features that are 0 in all memories below the node.

    A negative sign of an accumulator, which is otherwise non-negative, temporarily marks a feature to keep.
    """
    start, d = dense_start(routers, node), keys.n_features
    weights = routers.weights[t, start : start + d]
    squares = routers.weights[t, start + d : start + 2 * d]
    n_unmarked = d
    leaf = first_leaf(trees, t, node)
    while leaf != NONE and n_unmarked > 0:
        for i in range(trees.leaves[t, leaf]["size"]):
            x = key_of(keys, np.int64(trees.members[t, leaf, i]))
            for j in range(d):
                if x.values[x.a + j] != 0.0 and not np.signbit(squares[j]):
                    squares[j] = -squares[j]
                    n_unmarked -= 1
            if n_unmarked == 0:
                break
        leaf = next_leaf(trees, t, node, leaf)
    for j in range(d):
        if np.signbit(squares[j]):
            squares[j] = -squares[j]
        else:
            squares[j] = 0.0
            weights[j] = 0.0


@inner
def train_router(parameters, routers, t, node, x, work, margin, label, importance):
    """Train a router on a located row with the label -1 or 1; return the new margin.

    ``margin`` is the margin before the step. With the squared loss, the margin never overshoots the label, even with a
    large importance or learning rate.
    """
    loss, rate = parameters.router_loss, parameters.router_learning_rate
    if loss == RouterLoss.SQUARED:
        slope, farthest = margin - label, np.abs(margin - label)
    elif loss == RouterLoss.LOGISTIC:
        slope, farthest = -label / (1.0 + np.exp(label * margin)), np.inf
    else:
        raise ValueError("train_router has no rule for this router_loss")
    if np.abs(slope) < _CLOSE_ENOUGH or importance == 0.0:
        return margin
    return margin - adagrad_step(routers, t, node, x, work, slope * importance, rate, farthest)


@inner
def aim_router(trees, routers, keys, t, node, leaf, work):
    """Aim a new router at the principal direction of a leaf's members.

    The mean absolute margin of the members is then 1, and the accumulators are those of a gradient of 1 for each. If
    all members are equal, all weights stay 0.
    """
    size = np.int64(trees.leaves[t, leaf]["size"])
    _start(trees, routers, keys, t, node, leaf, work)
    for _ in range(_ROUNDS):
        total = np.float32(0.0)
        for i in range(size):
            x = _locate_member(trees, routers, keys, t, node, leaf, i, work)
            total += located_margin(routers, t, node, x, work)
        mean, total = total / np.float32(size), np.float32(0.0)
        for i in range(size):
            x = _locate_member(trees, routers, keys, t, node, leaf, i, work)
            margin = located_margin(routers, t, node, x, work) - mean
            add_to_sum(routers, t, node, x, work, margin)
            total += np.abs(margin)
        if total == 0.0:
            break
        scale_weights(routers, t, node, np.float32(0.0))
        add_sum(routers, t, node, np.float32(1.0) / total)
        reset_sum(routers, t, node)
    spread = _center(trees, routers, keys, t, node, leaf, work)
    if spread < _MIN_SPREAD:
        reset_weights(routers, t, node)
        return
    scale_weights(routers, t, node, np.float32(1.0) / spread)
    routers.records[t, node]["bias"] = _NUDGE
    for i in range(size):
        x = _locate_member(trees, routers, keys, t, node, leaf, i, work)
        add_squares(routers, t, node, x, work)


@inner
def _start(trees, routers, keys, t, node, leaf, work):
    """Start with the difference between the first member and the member least similar to it."""
    x = _locate_member(trees, routers, keys, t, node, leaf, 0, work)
    add_row(routers, t, node, x, work, 1.0)
    farthest, lowest = 0, np.float32(np.inf)
    for i in range(np.int64(trees.leaves[t, leaf]["size"])):
        x = _locate_member(trees, routers, keys, t, node, leaf, i, work)
        margin = located_margin(routers, t, node, x, work)
        if margin < lowest:
            farthest, lowest = i, margin
    x = _locate_member(trees, routers, keys, t, node, leaf, farthest, work)
    add_row(routers, t, node, x, work, -1.0)


@inner
def _locate_member(trees, routers, keys, t, node, leaf, i, work):
    x = key_of(keys, np.int64(trees.members[t, leaf, i]))
    locate_or_insert(routers, t, node, x, work)
    return x


@inner
def _center(trees, routers, keys, t, node, leaf, work):
    """Turn the weights so that the mean margin of a leaf's members is 0, and return their mean absolute margin.

    The boundary goes through the origin, so it also divides queries that are distributed unlike the keys.
    """
    size = np.int64(trees.leaves[t, leaf]["size"])
    total = np.float32(0.0)
    for i in range(size):
        x = _locate_member(trees, routers, keys, t, node, leaf, i, work)
        total += located_margin(routers, t, node, x, work)
        add_to_sum(routers, t, node, x, work, np.float32(1.0))
    squares = np.float32(0.0)
    for i in range(size):
        x = _locate_member(trees, routers, keys, t, node, leaf, i, work)
        squares += located_sum(routers, t, node, x, work)
    if squares > _MIN_SPREAD:
        add_sum(routers, t, node, -total / squares)
    reset_sum(routers, t, node)
    total = np.float32(0.0)
    for i in range(size):
        x = _locate_member(trees, routers, keys, t, node, leaf, i, work)
        total += np.abs(located_margin(routers, t, node, x, work))
    return total / np.float32(size)


@inner
def drop_absent_cells(trees, models, keys, t, node):
    """Remove the features that no memory below a node has from the node's table.

    A negative sign of an accumulator, which is otherwise non-negative, temporarily marks a feature to keep.
    """
    record, table = trees.nodes[t, node], models.table
    if record["table_bits"] == 0:
        return
    leaf = first_leaf(trees, t, node)
    while leaf != NONE:
        for i in range(trees.leaves[t, leaf]["size"]):
            x = key_of(keys, np.int64(trees.members[t, leaf, i]))
            for j in range(x.a, x.b):
                cell = find_cell(models, t, node, x.indices[j])
                if cell >= 0:
                    table[t, cell]["square"] = -np.abs(table[t, cell]["square"])
        leaf = next_leaf(trees, t, node, leaf)
    start = table_start(models, t, node)
    end = start + (1 << np.int64(record["table_bits"]))
    for cell in range(start, end):
        while table[t, cell]["feature"] != NONE and not np.signbit(table[t, cell]["square"]):
            erase_cell(models, t, node, cell - start)
            record["table_used"] -= 1
    for cell in range(start, end):
        table[t, cell]["square"] = np.abs(table[t, cell]["square"])

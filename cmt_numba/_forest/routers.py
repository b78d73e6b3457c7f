"""Kernels: training routers, and removing absent features from them."""

from enum import IntEnum

import numpy as np

from .._jit import inner
from .key_store import key_of
from .linear_model import adagrad_step, dense_start
from .sparse_weights import drop_absent_cells
from .state import NONE
from .topology import first_leaf, next_leaf


class RouterLoss(IntEnum):
    """The loss functions of routers."""

    SQUARED = 0
    LOGISTIC = 1


_CLOSE_ENOUGH = 0.1  # training skips errors below this


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

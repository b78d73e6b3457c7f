"""Kernels: aiming a new router at the principal direction of its memories.

The Eigen Memory Tree splits leaves along this direction (Rucker et al., 2022). Here, the router then learns as in the
paper. Memories on one side of the longest axis are similar, so queries find their neighbours on the same side.
"""

import numpy as np

from .._jit import inner
from . import linear_model
from .key_store import key_of

_ROUNDS = 2  # of the power method
_NUDGE = np.float32(0.01)  # puts members at the boundary on one side, whatever their rounding errors
_LEAST_SPREAD = np.float32(1e-6)  # members whose margins differ less on average are equal


@inner
def aim_router(trees, routers, keys, t, node, leaf, work):
    """Aim a new router at the principal direction of a leaf's members.

    The mean absolute margin of the members is then 1, and the accumulators are those of a gradient of 1 for each. If
    all members are equal, all weights stay 0.
    """
    size = np.int64(trees.leaves[t, leaf]["size"])
    _start(trees, routers, keys, t, node, leaf, work)
    for _ in range(_ROUNDS):
        mean = _mean_margin(trees, routers, keys, t, node, leaf, work)
        total = np.float32(0.0)
        for i in range(size):
            x = _locate_member(trees, routers, keys, t, node, leaf, i, work)
            margin = linear_model.located_margin(routers, t, node, x, work) - mean
            linear_model.add_to_sum(routers, t, node, x, work, margin)
            total += np.abs(margin)
        if total == 0.0:
            break
        linear_model.scale_weights(routers, t, node, np.float32(0.0))
        linear_model.add_sum(routers, t, node, np.float32(1.0) / total)
        linear_model.reset_sum(routers, t, node)
    spread = _center(trees, routers, keys, t, node, leaf, work)
    if spread < _LEAST_SPREAD:
        linear_model.reset_weights(routers, t, node)
        return
    linear_model.scale_weights(routers, t, node, np.float32(1.0) / spread)
    routers.nodes[t, node]["bias"] = _NUDGE
    for i in range(size):
        x = _locate_member(trees, routers, keys, t, node, leaf, i, work)
        linear_model.add_squares(routers, t, node, x, work)


@inner
def _start(trees, routers, keys, t, node, leaf, work):
    """Start with the difference between the first member and the member least similar to it."""
    x = _locate_member(trees, routers, keys, t, node, leaf, 0, work)
    linear_model.add_row(routers, t, node, x, work, 1.0)
    farthest, lowest = 0, np.float32(np.inf)
    for i in range(np.int64(trees.leaves[t, leaf]["size"])):
        x = _locate_member(trees, routers, keys, t, node, leaf, i, work)
        margin = linear_model.located_margin(routers, t, node, x, work)
        if margin < lowest:
            farthest, lowest = i, margin
    x = _locate_member(trees, routers, keys, t, node, leaf, farthest, work)
    linear_model.add_row(routers, t, node, x, work, -1.0)


@inner
def _locate_member(trees, routers, keys, t, node, leaf, i, work):
    x = key_of(keys, np.int64(trees.members[t, leaf, i]))
    linear_model.locate_or_insert(routers, t, node, x, work)
    return x


@inner
def _mean_margin(trees, routers, keys, t, node, leaf, work):
    size, total = np.int64(trees.leaves[t, leaf]["size"]), np.float32(0.0)
    for i in range(size):
        total += linear_model.located_margin(
            routers, t, node, _locate_member(trees, routers, keys, t, node, leaf, i, work), work
        )
    return total / np.float32(size)


@inner
def _center(trees, routers, keys, t, node, leaf, work):
    """Turn the weights so that the mean margin of a leaf's members is 0, and return their mean absolute margin.

    The boundary goes through the origin, so it also divides queries that are distributed unlike the keys.
    """
    size = np.int64(trees.leaves[t, leaf]["size"])
    total = np.float32(0.0)
    for i in range(size):
        x = _locate_member(trees, routers, keys, t, node, leaf, i, work)
        total += linear_model.located_margin(routers, t, node, x, work)
        linear_model.add_to_sum(routers, t, node, x, work, np.float32(1.0))
    squares = np.float32(0.0)
    for i in range(size):
        squares += linear_model.located_sum(
            routers, t, node, _locate_member(trees, routers, keys, t, node, leaf, i, work), work
        )
    if squares > _LEAST_SPREAD:
        linear_model.add_sum(routers, t, node, -total / squares)
    linear_model.reset_sum(routers, t, node)
    total = np.float32(0.0)
    for i in range(size):
        x = _locate_member(trees, routers, keys, t, node, leaf, i, work)
        total += np.abs(linear_model.located_margin(routers, t, node, x, work))
    return total / np.float32(size)

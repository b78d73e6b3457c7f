"""Nearest-neighbour search in a vantage-point tree (Yianilos, 1993).

A node splits its points by distance from a vantage point and records the smallest and largest distance for each child.
With the triangle inequality, these values bound the distances between a query and the points below the child. The
inequality may hold only for a power of the distances, or with rare exceptions (Skopal, Unified framework for fast exact
and approximate search in dissimilarity spaces, 2007).
"""

from typing import NamedTuple

import numpy as np

from .._jit import empty, inner, kernel, release
from ._search import comes_before, offer
from ._spaces import distance, new_room, prepare

_ROUNDING = 1e-5  # relative rounding error of bounds


class Nodes(NamedTuple):
    """Nodes of a tree. Node 0 is the root. Leaves have members. Other nodes have a vantage point and two children."""

    vantage: np.ndarray  # int64 (nodes,), the vantage point, or -1 in a leaf
    children: np.ndarray  # int64 (nodes, 2), the near and the far child
    nearest: np.ndarray  # float64 (nodes, 2), smallest distance from the vantage point to a point below each child
    farthest: np.ndarray  # float64 (nodes, 2), largest distance from the vantage point to a point below each child
    members: np.ndarray  # int64 (nodes, leaf_size), points in the leaf
    n_members: np.ndarray  # int64 (nodes,), number of points in the leaf
    depth: int  # maximum number of nodes on a path
    power: float  # power of distances for which the triangle inequality holds


@inner
def _raised(length, power):
    """Return ``length ** power`` if ``length`` is positive, and otherwise ``length``."""
    if power == 1.0 or length <= 0.0:
        return np.float64(length)
    return np.exp(power * np.log(length))  # LLVM evaluates "**" even if the power is 1


@kernel
def search_nodes(nodes, queries, stored, there, share, found):
    """Write the nearest points of each query to ``found``, nearest first. Points not marked in ``there`` are ignored.

    The search skips subtrees without points closer than ``share`` times the distance of the current last result. With a
    ``share`` of 1, the results are exact.
    """
    room = new_room(queries, stored)
    n_places = 2 * nodes.depth + 2
    waiting, bounds = empty(n_places, np.int64), empty(n_places, np.float64)
    points, lengths, n_computed = found
    last, power = points.shape[1] - 1, nodes.power
    for i in range(points.shape[0]):
        prepare(queries, i, i - 1, room)
        waiting[0], bounds[0], n_waiting = 0, 0.0, 1
        while n_waiting > 0:
            n_waiting -= 1
            node, radius = waiting[n_waiting], lengths[i, last]
            if bounds[n_waiting] > _raised(share * radius, power):
                continue
            vantage = nodes.vantage[node]
            if vantage < 0:
                for member in range(nodes.n_members[node]):
                    point = nodes.members[node, member]
                    if not there[point]:
                        continue
                    length = distance(queries, i, stored, point, lengths[i, last], room)
                    n_computed[i] += 1
                    if comes_before(point, length, points[i, last], lengths[i, last]) and length < np.inf:
                        offer(point, length, points[i], lengths[i])
                continue
            reach = max(nodes.farthest[node, 0], nodes.farthest[node, 1])
            reach = _raised(radius, power) + _raised(reach, power) * (1 + _ROUNDING)
            length = distance(queries, i, stored, vantage, _raised(reach, 1.0 / power), room)
            n_computed[i] += 1
            if length == np.inf:
                continue  # all points below the node are farther than the current last result
            if there[vantage] and comes_before(vantage, length, points[i, last], radius):
                offer(vantage, length, points[i], lengths[i])
            raised = _raised(length, power)
            near = 0 if length <= nodes.farthest[node, 0] else 1
            for child in (1 - near, near):  # the nearer child is pushed last and searched first
                farthest = _raised(nodes.farthest[node, child], power)
                nearest = _raised(nodes.nearest[node, child], power)
                bound = max(raised - farthest, nearest - raised) - _ROUNDING * (raised + farthest)
                if not bound > _raised(share * lengths[i, last], power):  # the bound is NaN if a power overflows
                    waiting[n_waiting], bounds[n_waiting] = nodes.children[node, child], bound
                    n_waiting += 1
    release((room, waiting, bounds))

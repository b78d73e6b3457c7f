"""Search of a vantage-point tree for nearest points (Yianilos, 1993).

A node divides its points by their distance from a vantage point, and has the least and the greatest distance of each
part. By the triangle inequality they bound the distances of these points from a query. The inequality may hold only for
a power of the distances, or with rare exceptions (Skopal, Unified framework for fast exact and approximate search in
dissimilarity spaces, 2007).
"""

from typing import NamedTuple

import numpy as np

from .._jit import empty, inner, kernel, release
from ._search import comes_before, offer
from ._spaces import distance, new_room, prepare

_ROUNDING = 1e-5  # rounding error of bounds, relative to their distances


class Nodes(NamedTuple):
    """The nodes of a tree, the root first. A leaf has members, any other node a vantage point and two children."""

    vantage: np.ndarray  # int64 (nodes,): a point, -1 in a leaf
    children: np.ndarray  # int64 (nodes, 2): of the points near the vantage point, and of those farther away
    nearest: np.ndarray  # float64 (nodes, 2): the least distance of a child's points from the vantage point
    farthest: np.ndarray  # float64 (nodes, 2): the greatest distance of a child's points from the vantage point
    members: np.ndarray  # int64 (nodes, most)
    n_members: np.ndarray  # int64 (nodes,)
    depth: int  # the greatest number of nodes on a path
    power: float  # power of distances for which the triangle inequality holds


class Nearest(NamedTuple):
    """The nearest points of each query, the nearest first; padded with -1 and infinity."""

    points: np.ndarray  # int64 (queries, k)
    lengths: np.ndarray  # float64 (queries, k): their distances
    n_computed: np.ndarray  # int64 (queries,): number of distances computed


@inner
def _raised(length, power):
    """Return a power of a distance, or the number itself if it is not above 0."""
    if power == 1.0 or length <= 0.0:
        return np.float64(length)
    return np.exp(power * np.log(length))  # LLVM would compute "**" even where the power is 1


@kernel
def search_nodes(nodes, asked, stored, there, share, found):
    """Write the nearest points of each query, nearest first, to ``found``; only points marked in ``there`` count.

    The search skips parts without points nearer than ``share`` times the distance of the last point found. With a
    ``share`` of 1 the answer is exact.
    """
    room = new_room(asked, stored)
    n_places = 2 * nodes.depth + 2
    waiting, bounds = empty(n_places, np.int64), empty(n_places, np.float64)
    points, lengths, n_computed = found.points, found.lengths, found.n_computed
    last, power = points.shape[1] - 1, nodes.power
    for i in range(points.shape[0]):
        prepare(asked, i, i - 1, room)
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
                    length = distance(asked, i, stored, point, lengths[i, last], room)
                    n_computed[i] += 1
                    if comes_before(point, length, points[i, last], lengths[i, last]) and length < np.inf:
                        offer(point, length, points[i], lengths[i])
                continue
            reach = max(nodes.farthest[node, 0], nodes.farthest[node, 1])
            reach = _raised(radius, power) + _raised(reach, power) * (1 + _ROUNDING)
            length = distance(asked, i, stored, vantage, _raised(reach, 1.0 / power), room)
            n_computed[i] += 1
            if length == np.inf:
                continue  # all points below are farther than the last one found
            if there[vantage] and comes_before(vantage, length, points[i, last], radius):
                offer(vantage, length, points[i], lengths[i])
            raised = _raised(length, power)
            near = 0 if length <= nodes.farthest[node, 0] else 1
            for child in (1 - near, near):  # the nearer one goes on top, to be searched first
                farthest = _raised(nodes.farthest[node, child], power)
                nearest = _raised(nodes.nearest[node, child], power)
                bound = max(raised - farthest, nearest - raised) - _ROUNDING * (raised + farthest)
                if not bound > _raised(share * lengths[i, last], power):  # the bound is NaN if a power overflows
                    waiting[n_waiting], bounds[n_waiting] = nodes.children[node, child], bound
                    n_waiting += 1
    release((room, waiting, bounds))

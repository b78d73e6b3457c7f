"""Kernels: which leaves a row reaches, best-first in several trees.

A search keeps a frontier of places ordered by cost and always goes on from the cheapest. The cost of a place is what
its path fell short of: at each node a router that speaks for the side taken with a margin of ``_SURE`` or more adds
nothing, one that is undecided adds ``_SURE``, one that speaks against it adds more. So a path of sure decisions beats
one that began a little better and then met routers that do not know the query. With a single leaf of a single tree
this is the plain descent of PATH (Algorithm 1).
"""

from typing import NamedTuple

import numpy as np

from ._jit import inner, inner_allocating
from ._linear import margin_of
from ._state import LEAVES_END, LEFT, NODES_END, RIGHT, ROOT
from ._topology import child_of

# Routers learn to answer with -1 and 1. Counting only what is missing from a little less forgives a query that shares
# most, not all, of the features of the memories that a router has learned.
_SURE = np.float32(0.2)


class Frontier(NamedTuple):
    """A binary heap of places to go on from, the cheapest first; entry ``i`` is a place of one tree."""

    cost: np.ndarray  # float32
    tree: np.ndarray  # int32
    place: np.ndarray  # int32
    span: np.ndarray  # int64 (2,): the entries that form the heap
    reached_tree: np.ndarray  # int32 (leaves to reach,): the leaves reached, in the order they were
    reached_leaf: np.ndarray  # int32 (leaves to reach,)


@inner
def count_leaves(state):
    """Return an upper bound of the number of leaves of all trees."""
    n_leaves = 0
    for t in range(state.parameters.n_trees):
        n_leaves += state.counters[t, LEAVES_END]
    return n_leaves


@inner_allocating
def new_frontier(state, n_leaves):
    """Return a frontier for searches that reach up to ``n_leaves`` leaves."""
    n_places = state.parameters.n_trees
    for t in range(state.parameters.n_trees):
        n_places += state.counters[t, NODES_END]
    return Frontier(
        np.empty(n_places, np.float32),
        np.empty(n_places, np.int32),
        np.empty(n_places, np.int32),
        np.zeros(2, np.int64),
        np.empty(n_leaves, np.int32),
        np.empty(n_leaves, np.int32),
    )


@inner
def _push(frontier, cost, tree, place):
    first, i = frontier.span[0], frontier.span[1]
    frontier.span[1] += 1
    while i > first:
        above = first + (i - first - 1) // 2
        if frontier.cost[above] <= cost:
            break
        _move(frontier, above, i)
        i = above
    frontier.cost[i] = cost
    frontier.tree[i] = tree
    frontier.place[i] = place


@inner
def _move(frontier, source, target):
    frontier.cost[target] = frontier.cost[source]
    frontier.tree[target] = frontier.tree[source]
    frontier.place[target] = frontier.place[source]


@inner
def _pop(frontier):
    """Take the cheapest entry off the heap and return its cost, tree and place."""
    first = frontier.span[0]
    last = frontier.span[1] - 1
    frontier.span[1] = last
    answer = frontier.cost[first], np.int64(frontier.tree[first]), np.int64(frontier.place[first])
    cost = frontier.cost[last]
    i = first
    while True:
        below = first + 2 * (i - first) + 1
        if below >= last:
            break
        if below + 1 < last and frontier.cost[below + 1] < frontier.cost[below]:
            below += 1
        if frontier.cost[below] >= cost:
            break
        _move(frontier, below, i)
        i = below
    _move(frontier, last, i)
    return answer


@inner
def _next_leaf(state, frontier, x):
    """Go on from the cheapest entry of the frontier until it is a leaf, and return its tree and the leaf.

    Where no router is sure of anything, the cheapest places would keep changing between many half-way paths. So after
    as many routers as a full leaf has memories, the path at hand is followed to its end: finding a leaf never costs
    more than a small multiple of scanning it.
    """
    patience = state.members.shape[2]
    cost, t, place = _pop(frontier)
    while place >= 0:
        margin = np.float32(margin_of(state, t, place, x))
        side = RIGHT if margin > 0.0 else LEFT
        _push(frontier, cost + (_SURE + np.abs(margin)), t, child_of(state, t, place, RIGHT - side))
        cost += max(np.float32(0.0), _SURE - np.abs(margin))
        place = child_of(state, t, place, side)
        patience -= 1
        if patience > 0 and frontier.cost[frontier.span[0]] < cost:
            _push(frontier, cost, t, place)
            cost, t, place = _pop(frontier)
    return t, ~place


@inner
def reach_leaves(state, frontier, x):
    """Note the most promising leaves for a row, as many as the frontier has room for or there are; return how many.

    With at least a leaf for every tree, each tree gives its best leaf first: a second tree's opinion is worth more
    than a second leaf of the first.
    """
    n_trees, span, n_leaves = state.parameters.n_trees, frontier.span, frontier.reached_leaf.size
    n_reached = 0
    span[1] = 0
    for t in range(n_trees):
        span[0] = span[1]  # a heap of its own for each tree
        _push(frontier, np.float32(0.0), t, state.counters[t, ROOT])
        if n_leaves >= n_trees:
            n_reached = _reach_next(state, frontier, x, n_reached)
    if n_reached < n_leaves:
        _merge_heaps(frontier)
    while n_reached < n_leaves and span[1] > 0:
        n_reached = _reach_next(state, frontier, x, n_reached)
    return n_reached


@inner
def _reach_next(state, frontier, x, n_reached):
    frontier.reached_tree[n_reached], frontier.reached_leaf[n_reached] = _next_leaf(state, frontier, x)
    return n_reached + 1


@inner
def _merge_heaps(frontier):
    """Make one heap of all entries."""
    end = frontier.span[1]
    frontier.span[:] = 0
    for i in range(end):
        _push(frontier, frontier.cost[i], np.int64(frontier.tree[i]), np.int64(frontier.place[i]))

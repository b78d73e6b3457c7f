"""Kernels: which leaves a row reaches, best-first in several trees.

A search keeps a frontier of places ordered by cost and always goes on from the cheapest. The cost of a place is what
its path fell short of: at each node a router that speaks for the side taken with ``sure_margin`` or more adds nothing,
one that is undecided adds ``sure_margin``, one that speaks against it adds more. So a path of sure decisions beats one
that began a little better and then met routers that do not know the query. With a single leaf of a single tree this is
the plain descent of PATH (Algorithm 1).
"""

from typing import NamedTuple

import numpy as np

from ._jit import inner, inner_allocating
from ._linear import margin_of
from ._state import LEFT, NODES_END, NONE, RIGHT, ROOT
from ._topology import child_of


class Frontier(NamedTuple):
    """A binary heap of places to go on from, the cheapest first; entry ``i`` is a place of one tree."""

    cost: np.ndarray  # float32
    tree: np.ndarray  # int32
    place: np.ndarray  # int32
    span: np.ndarray  # int64 (2,): the entries that form the heap
    n_reached: np.ndarray  # int64 (1,): leaves reached so far


@inner_allocating
def new_frontier(state):
    """Return a frontier for searches of any number of leaves."""
    n_places = state.parameters.n_trees
    for t in range(state.parameters.n_trees):
        n_places += state.counters[t, NODES_END]
    return Frontier(
        np.empty(n_places, np.float32),
        np.empty(n_places, np.int32),
        np.empty(n_places, np.int32),
        np.zeros(2, np.int64),
        np.zeros(1, np.int64),
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
    patience, sure = state.members.shape[2], np.float32(state.parameters.sure_margin)
    cost, t, place = _pop(frontier)
    while place >= 0:
        margin = np.float32(margin_of(state, t, place, x))
        side = RIGHT if margin > 0.0 else LEFT
        _push(frontier, cost + (sure + np.abs(margin)), t, child_of(state, t, place, RIGHT - side))
        cost += max(np.float32(0.0), sure - np.abs(margin))
        place = child_of(state, t, place, side)
        patience -= 1
        if patience > 0 and frontier.cost[frontier.span[0]] < cost:
            _push(frontier, cost, t, place)
            cost, t, place = _pop(frontier)
    return t, ~place


@inner
def begin_search(frontier):
    """Make a frontier ready for another row."""
    frontier.span[:] = 0
    frontier.n_reached[0] = 0


@inner
def reach_next(state, frontier, x, n_leaves):
    """Return the tree and the leaf that are the most promising of those not yet reached; NONE after ``n_leaves``.

    With at least a leaf for every tree, each tree gives its best leaf first: a second tree's opinion is worth more
    than a second leaf of the first.
    """
    n_reached, n_trees, span = frontier.n_reached[0], state.parameters.n_trees, frontier.span
    if n_leaves < n_trees:
        if n_reached == 0:
            for t in range(n_trees):
                _push(frontier, np.float32(0.0), t, state.counters[t, ROOT])
    elif n_reached < n_trees:
        span[0] = span[1]  # a heap of its own for each tree
        _push(frontier, np.float32(0.0), n_reached, state.counters[n_reached, ROOT])
    elif n_reached == n_trees:
        _merge_heaps(frontier)
    if n_reached == n_leaves or span[0] == span[1]:
        return NONE, NONE
    frontier.n_reached[0] += 1
    return _next_leaf(state, frontier, x)


@inner
def _merge_heaps(frontier):
    """Make one heap of all entries."""
    end = frontier.span[1]
    frontier.span[:] = 0
    for i in range(end):
        _push(frontier, frontier.cost[i], np.int64(frontier.tree[i]), np.int64(frontier.place[i]))

"""Kernels: which leaves a row reaches, best-first in several trees.

A search keeps a frontier of places ordered by cost and always goes on from the cheapest. The cost of a place is what
its path fell short of: at each node a router that speaks for the side taken with ``sure_margin`` or more adds nothing,
one that is undecided adds ``sure_margin``, one that speaks against it adds more. So a path of sure decisions beats one
that began a little better and then met routers that do not know the query. With a single leaf of a single tree this is
the plain descent of PATH (Algorithm 1).
"""

from typing import NamedTuple

import numpy as np

from .._jit import empty, inner, inner_allocating, prefetch
from .linear_model import margin_of, prefetch_weights
from .state import LEFT, NODES_END, NONE, RIGHT, ROOT
from .topology import child_of

_MEMBERS_IN_A_LINE = 16  # a line of a cache has 64 bytes


HERE = np.dtype(
    [
        ("first", np.int64),  # the heap is the entries from here ...
        ("end", np.int64),  # ... to here
        ("n_reached", np.int64),  # paths begun so far
        ("patience", np.int64),  # routers to go until the path is followed to its end, wherever it leads
        ("tree", np.int64),  # where the path at hand has come to
        ("place", np.int64),
        ("cost", np.float32),  # of the path at hand
    ],
    align=True,
)
"""Where a search stands."""


ENTRY = np.dtype([("cost", np.float32), ("tree", np.int32), ("place", np.int32)])
"""A place to go on from."""


class Frontier(NamedTuple):
    """A binary heap of places to go on from, the cheapest first, and the path at hand.

    Searches that are made side by side each have a frontier of their own: then both arrays have one axis more.
    """

    heap: np.ndarray  # ENTRY (places,)
    here: np.ndarray  # HERE (1,)


@inner_allocating
def new_frontiers(trees, n):
    """Return ``n`` frontiers for searches of any number of leaves."""
    n_places = trees.counters.shape[0]
    for t in range(trees.counters.shape[0]):
        n_places += trees.counters[t, NODES_END]
    return Frontier(empty((n, n_places), ENTRY), empty((n, 1), HERE))


@inner_allocating
def new_frontier(n_places):
    """Return a frontier of up to so many places."""
    return Frontier(empty(n_places, ENTRY), empty(1, HERE))


@inner
def frontier_at(frontiers, i):
    """Return one of several frontiers."""
    return Frontier(frontiers.heap[i], frontiers.here[i])


@inner
def _put(frontier, i, cost, tree, place):
    entry = frontier.heap[i]
    entry["cost"] = cost
    entry["tree"] = tree
    entry["place"] = place


@inner
def _move(frontier, source, target):
    entry = frontier.heap[source]
    _put(frontier, target, entry["cost"], np.int64(entry["tree"]), np.int64(entry["place"]))


@inner
def push(frontier, cost, tree, place):
    """Put an entry on the heap: it rises past dearer ones."""
    here, heap = frontier.here[0], frontier.heap
    first, i = here["first"], here["end"]
    here["end"] += 1
    while i > first:
        above = first + (i - first - 1) // 2
        if heap[above]["cost"] <= cost:
            break
        _move(frontier, above, i)
        i = above
    _put(frontier, i, cost, tree, place)


@inner
def _replace_top(frontier, cost, tree, place):
    """Put an entry in the place of the heap's first: it sinks past cheaper ones."""
    here, heap = frontier.here[0], frontier.heap
    first, end = here["first"], here["end"]
    i = first
    while True:
        below = first + 2 * (i - first) + 1
        if below >= end:
            break
        if below + 1 < end and heap[below + 1]["cost"] < heap[below]["cost"]:
            below += 1
        if heap[below]["cost"] >= cost:
            break
        _move(frontier, below, i)
        i = below
    _put(frontier, i, cost, tree, place)


@inner
def _go_to_top(frontier):
    """Go on from the heap's first entry, which is still to be taken off or replaced."""
    here, top = frontier.here[0], frontier.heap[frontier.here[0]["first"]]
    here["cost"] = top["cost"]
    here["tree"] = top["tree"]
    here["place"] = top["place"]


@inner
def take_cheapest(frontier):
    """Take the cheapest entry off the heap and go on from there."""
    _go_to_top(frontier)
    frontier.here[0]["end"] -= 1
    last = frontier.heap[frontier.here[0]["end"]]
    _replace_top(frontier, last["cost"], np.int64(last["tree"]), np.int64(last["place"]))


@inner
def _change_to_cheapest(frontier):
    """Put the place at hand back and go on from the cheapest one."""
    here = frontier.here[0]
    cost, tree, place = here["cost"], here["tree"], here["place"]
    _go_to_top(frontier)
    _replace_top(frontier, cost, tree, place)


@inner
def begin_search(frontier):
    """Make a frontier ready for another row."""
    here = frontier.here[0]
    here["first"] = 0
    here["end"] = 0
    here["n_reached"] = 0


@inner
def begin_path(trees, frontier, n_leaves, patience, unfinished):
    """Begin the path to the leaf that is the most promising of those not yet reached; False after ``n_leaves``.

    Where the search is ``unfinished`` by then it goes on until there are no more leaves.

    With at least a leaf for every tree, each tree gives its best leaf first: a second tree's opinion is worth more
    than a second leaf of the first. ``patience`` is for how many routers the path may change, see :func:`pass_router`.
    """
    here, n_trees = frontier.here[0], trees.counters.shape[0]
    n_reached = here["n_reached"]
    if n_leaves < n_trees:
        if n_reached == 0:
            for t in range(n_trees):
                push(frontier, np.float32(0.0), t, trees.counters[t, ROOT])
    elif n_reached < n_trees:
        here["first"] = here["end"]  # a heap of its own for each tree
        push(frontier, np.float32(0.0), n_reached, trees.counters[n_reached, ROOT])
    elif n_reached == n_trees:
        _merge_heaps(frontier)
    if (n_reached >= n_leaves and not unfinished) or here["first"] == here["end"]:
        return False
    here["n_reached"] += 1
    here["patience"] = patience
    take_cheapest(frontier)
    return True


@inner
def _merge_heaps(frontier):
    """Make one heap of all entries."""
    here = frontier.here[0]
    end = here["end"]
    here["first"] = 0
    here["end"] = 0
    for i in range(end):
        entry = frontier.heap[i]
        push(frontier, entry["cost"], np.int64(entry["tree"]), np.int64(entry["place"]))


@inner
def pass_router(trees, routers, frontier, x):
    """Let the router of the place at hand, which is no leaf, send a row on.

    Where no router is sure of anything, the cheapest places would keep changing between many half-way paths. So after
    ``patience`` routers the path at hand is followed to its end. Give as many as there are memories to look at in the
    leaf: then finding it never costs more than a small multiple of scanning it.
    """
    here, sure = frontier.here[0], np.float32(trees.sure_margin)
    t, place = here["tree"], here["place"]
    margin = np.float32(margin_of(routers, t, place, x))
    side = RIGHT if margin > 0.0 else LEFT
    push(frontier, here["cost"] + (sure + np.abs(margin)), t, child_of(trees, t, place, RIGHT - side))
    here["cost"] += max(np.float32(0.0), sure - np.abs(margin))
    here["place"] = child_of(trees, t, place, side)
    here["patience"] -= 1
    if here["patience"] > 0 and frontier.heap[here["first"]]["cost"] < here["cost"]:
        _change_to_cheapest(frontier)


@inner
def prefetch_here(trees, frontier):
    """Ask for the node that a search has come to, or for the leaf and its members."""
    t, place = frontier.here[0]["tree"], frontier.here[0]["place"]
    if place >= 0:
        prefetch(trees.nodes[t], place)
    else:
        prefetch(trees.leaves[t], ~place)
        for i in range(0, trees.members.shape[2], _MEMBERS_IN_A_LINE):
            prefetch(trees.members[t, ~place], i)


@inner
def prefetch_router(routers, frontier, x):
    """Ask for what the router of the node that a search has come to will read for a row."""
    prefetch_weights(routers, frontier.here[0]["tree"], frontier.here[0]["place"], x)


@inner
def reach_next(trees, routers, frontier, x, n_leaves, patience):
    """Return the tree and the leaf that are the most promising of those not yet reached; NONE after ``n_leaves``."""
    if not begin_path(trees, frontier, n_leaves, patience, False):
        return NONE, NONE
    here = frontier.here[0]
    while here["place"] >= 0:
        pass_router(trees, routers, frontier, x)
    return here["tree"], ~here["place"]

"""Kernels: best-first search for leaves in several trees.

A search keeps a frontier of places ordered by cost and always continues from the cheapest. Each router on the path to a
place adds to its cost: nothing if it favours the side taken by a margin of ``sure_margin`` or more, ``sure_margin`` if
it is undecided, and more if it favours the other side. So a path of sure decisions beats one that began slightly better
and then met routers that are unsure about the query. With a ``sure_margin`` of 0 the first leaf is that of the
plain descent, PATH (Algorithm 1).
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
        ("first", np.int64),  # the heap begins at this entry ...
        ("end", np.int64),  # ... and ends before this one
        ("n_reached", np.int64),  # paths started so far
        ("patience", np.int64),  # routers to pass before the path is followed to its end
        ("tree", np.int64),  # the end of the current path
        ("place", np.int64),
        ("cost", np.float32),  # of the current path
    ],
    align=True,
)
"""The state of a search."""


ENTRY = np.dtype([("cost", np.float32), ("tree", np.int32), ("place", np.int32)])
"""A place to continue from."""


class Frontier(NamedTuple):
    """A binary heap of places, the cheapest first, and the current path.

    For several searches at a time, both arrays have a further axis.
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
    """Return a frontier with room for this many places."""
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
    """Push an entry on the heap."""
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
    """Replace the first entry of the heap."""
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
    """Continue from the first entry of the heap. The caller removes or replaces it."""
    here, top = frontier.here[0], frontier.heap[frontier.here[0]["first"]]
    here["cost"] = top["cost"]
    here["tree"] = top["tree"]
    here["place"] = top["place"]


@inner
def take_cheapest(frontier):
    """Pop the cheapest entry and continue from it."""
    _go_to_top(frontier)
    frontier.here[0]["end"] -= 1
    last = frontier.heap[frontier.here[0]["end"]]
    _replace_top(frontier, last["cost"], np.int64(last["tree"]), np.int64(last["place"]))


@inner
def _change_to_cheapest(frontier):
    """Push the current place and continue from the cheapest one."""
    here = frontier.here[0]
    cost, tree, place = here["cost"], here["tree"], here["place"]
    _go_to_top(frontier)
    _replace_top(frontier, cost, tree, place)


@inner
def begin_search(frontier):
    """Reset a frontier for another row."""
    here = frontier.here[0]
    here["first"] = 0
    here["end"] = 0
    here["n_reached"] = 0


@inner
def begin_path(trees, frontier, n_leaves, patience, unfinished):
    """Begin the path to the most promising leaf not yet reached; return False after ``n_leaves``.

    An ``unfinished`` search continues until there are no more leaves.

    With at least one leaf for each tree, each tree's best leaf comes first: the best leaf of a second tree is worth
    more than a second leaf of the first. ``patience`` is explained in :func:`pass_router`.
    """
    here, n_trees = frontier.here[0], trees.counters.shape[0]
    n_reached = here["n_reached"]
    if n_leaves < n_trees:
        if n_reached == 0:
            for t in range(n_trees):
                push(frontier, np.float32(0.0), t, trees.counters[t, ROOT])
    elif n_reached < n_trees:
        here["first"] = here["end"]  # each tree has its own heap
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
    """Turn all entries into one heap."""
    here = frontier.here[0]
    end = here["end"]
    here["first"] = 0
    here["end"] = 0
    for i in range(end):
        entry = frontier.heap[i]
        push(frontier, entry["cost"], np.int64(entry["tree"]), np.int64(entry["place"]))


@inner
def pass_router(trees, routers, frontier, x):
    """Route a row at the current node.

    If no router is sure, the cheapest place keeps changing between many unfinished paths. So after ``patience``
    routers the current path is followed to its end. With as many routers as a leaf has memories, finding a leaf never
    costs more than a small multiple of scanning it.
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
    """Prefetch the current node, or the current leaf and its members."""
    t, place = frontier.here[0]["tree"], frontier.here[0]["place"]
    if place >= 0:
        prefetch(trees.nodes[t], place)
    else:
        prefetch(trees.leaves[t], ~place)
        for i in range(0, trees.members.shape[2], _MEMBERS_IN_A_LINE):
            prefetch(trees.members[t, ~place], i)


@inner
def prefetch_router(routers, frontier, x):
    """Prefetch what the router of the current node reads for a row."""
    prefetch_weights(routers, frontier.here[0]["tree"], frontier.here[0]["place"], x)


@inner
def reach_next(trees, routers, frontier, x, n_leaves, patience):
    """Return the tree and the number of the most promising leaf not yet reached; NONE after ``n_leaves``."""
    if not begin_path(trees, frontier, n_leaves, patience, False):
        return NONE, NONE
    here = frontier.here[0]
    while here["place"] >= 0:
        pass_router(trees, routers, frontier, x)
    return here["tree"], ~here["place"]

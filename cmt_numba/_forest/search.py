"""Kernels: QUERY without exploration (Algorithm 2), generalised to several leaves of several trees.

A search keeps a heap of places ordered by cost and always continues from the cheapest one. Taking a side at a router
adds ``max(0, sure_margin - m)`` to the cost of a path. Here ``m`` is the router's margin for that side, which is
negative if the router favours the other side. A path of confident decisions is therefore cheaper than a path that
starts better and then meets undecided routers. With a ``sure_margin`` of 0 the first leaf is the leaf that PATH
(Algorithm 1) reaches.

A search follows links from node to node and mostly waits for memory. The kernel therefore interleaves the searches of
several rows, each in its own *lane*. A lane takes one short step, prefetches the data of its next step, and yields to
the next lane.
"""

from typing import NamedTuple

import numpy as np

from .._jit import by_reference, empty, inner, inner_allocating, inner_called, kernel, prefetch, release, zeros
from .._kernels import LEFT, RIGHT, Best, Probe, answer, best_at, clear_probe, new_bests, new_probes, probe_at, row_of
from .._linear import margin_of, prefetch_weights
from .exploration import explores
from .filtering import leave_out_others, take_only_way
from .leaf_scan import list_members, prefetch_members, score_members
from .scorer import aim_weighted_probe
from .state import COUNT, NODES_END, ROOT, leaf_limit
from .topology import child_of

_MEMBERS_IN_A_LINE = 16  # int32 slots in a cache line of 64 bytes
HERE = np.dtype(
    [
        ("first", np.int64),  # the heap is the entries first:end of the array
        ("end", np.int64),
        ("n_reached", np.int64),  # number of paths started
        ("patience", np.int64),  # number of routers to pass before the path is followed straight to a leaf
        ("tree", np.int64),  # tree of the current path
        ("place", np.int64),  # place that the current path has reached
        ("cost", np.float32),  # cost of the current path
    ],
    align=True,
)
"""The state of a search: the bounds of the heap, and the current path."""
ENTRY = np.dtype([("cost", np.float32), ("tree", np.int32), ("place", np.int32)])
"""A heap entry: a place from which the search may continue, and the cost of the path to it."""


class Frontier(NamedTuple):
    """A binary heap of places, the cheapest first, and the current path; with an axis for several searches."""

    heap: np.ndarray  # ENTRY (places,)
    here: np.ndarray  # HERE (1,)


@inner_allocating
def new_frontiers(trees, n):
    """Return ``n`` frontiers with room for all places of the trees."""
    n_places = trees.counters.shape[0]
    for t in range(trees.counters.shape[0]):
        n_places += trees.counters[t, NODES_END]
    return Frontier(empty((n, n_places), ENTRY), empty((n, 1), HERE))


@inner
def frontier_at(frontiers, i):
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
    """Push an entry onto the heap."""
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
    """Make the first heap entry the current place. The caller removes or replaces the entry."""
    here, top = frontier.here[0], frontier.heap[frontier.here[0]["first"]]
    here["cost"] = top["cost"]
    here["tree"] = top["tree"]
    here["place"] = top["place"]


@inner
def take_cheapest(frontier):
    """Pop the cheapest entry and make it the current place."""
    _go_to_top(frontier)
    frontier.here[0]["end"] -= 1
    last = frontier.heap[frontier.here[0]["end"]]
    _replace_top(frontier, last["cost"], np.int64(last["tree"]), np.int64(last["place"]))


@inner
def _change_to_cheapest(frontier):
    """Push the current place, and pop the cheapest entry as the new current place."""
    here = frontier.here[0]
    cost, tree, place = here["cost"], here["tree"], here["place"]
    _go_to_top(frontier)
    _replace_top(frontier, cost, tree, place)


@inner
def begin_search(frontier):
    """Reset a frontier for a new row."""
    here = frontier.here[0]
    here["first"] = 0
    here["end"] = 0
    here["n_reached"] = 0


@inner
def patience_of(trees):
    """Return the ``patience`` for :func:`pass_router`: the maximum number of memories in a leaf.

    The width of ``members`` may be larger, depending on memories that were removed. Saved trees do not keep it.
    """
    return leaf_limit(trees.leaf_multiplier, trees.counters[0, COUNT])


@inner
def begin_path(trees, frontier, n_leaves, patience, unfinished):
    """Begin the path to the next leaf; return False if the search has ended.

    A search ends when no leaves remain or, unless ``unfinished`` is True, after ``n_leaves`` leaves. If ``n_leaves`` is
    at least the number of trees, the best leaf of each tree comes first, because it contributes more than a second leaf
    of another tree. See :func:`pass_router` for ``patience``.
    """
    here, n_trees = frontier.here[0], trees.counters.shape[0]
    n_reached = here["n_reached"]
    if n_leaves < n_trees:
        if n_reached == 0:
            for t in range(n_trees):
                push(frontier, np.float32(0.0), t, trees.counters[t, ROOT])
    elif n_reached < n_trees:
        here["first"] = here["end"]  # start a separate heap for this tree
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
    here = frontier.here[0]
    end = here["end"]
    here["first"] = 0
    here["end"] = 0
    for i in range(end):
        entry = frontier.heap[i]
        push(frontier, entry["cost"], np.int64(entry["tree"]), np.int64(entry["place"]))


@inner
def pass_router(trees, routers, frontier, x):
    """Route a row at the current node, and continue from the cheapest place.

    While all routers are undecided, the cheapest place alternates among many unfinished paths. After ``patience``
    routers the search therefore follows the current path to its leaf. If ``patience`` is the size of a leaf, reaching
    a leaf costs at most a small multiple of scanning it.
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
    """Prefetch the weights that the current node's router reads for a row."""
    prefetch_weights(routers, frontier.here[0]["tree"], frontier.here[0]["place"], x)


# Interleaved searches

_MAX_LANES = 8
_CELLS_OF_PROBES = 1 << 17  # number of probe values in all lanes that fit into the L2 cache along with other data
# The next step of a lane.
_BEGIN = 0  # begin a new row
_CHOOSE = 1  # begin the path to the next leaf, or write the answer
_ASK = 2  # read the current node to find and prefetch the weights of its sparse router
_ROUTE = 3  # route the row at the current node
_LIST = 4  # list the memories of the leaf
_PREFETCH = 5  # prefetch their keys
_SCORE = 6  # score them
_REST = 7  # no rows are left


class SearchLanes(NamedTuple):
    """Interleaved searches."""

    frontiers: Frontier
    probes: Probe
    bests: Best
    row: np.ndarray  # int64 (lanes,): the row of each lane
    step: np.ndarray  # int64 (lanes,): the next step of each lane


@inner_allocating
def _new_lanes(trees, query, k):
    rows, first, stop = query.rows, query.first, query.stop
    probe_cells = rows.n_features if rows.sparse else 1
    n = max(1, min(_MAX_LANES, stop - first, _CELLS_OF_PROBES // probe_cells))
    return SearchLanes(
        new_frontiers(trees, n),
        new_probes(rows, first, stop, n, query.room),
        new_bests(n, k, trees.members.shape[2]),
        empty(n, np.int64),
        zeros(n, np.int64),  # _BEGIN
    )


@inner
def _begin_row(scorer, lanes, lane, rows, row):
    lanes.row[lane] = row
    aim_weighted_probe(probe_at(lanes.probes, lane), row_of(rows, row), scorer)
    best_at(lanes.bests, lane).n_found[0] = 0
    begin_search(frontier_at(lanes.frontiers, lane))
    lanes.step[lane] = _CHOOSE


@inner
def _look_ahead(trees, routers, lanes, lane, frontier, x):
    """Choose the next step of a lane for its current place, and prefetch the data of this step."""
    prefetch_here(trees, frontier)
    if frontier.here[0]["place"] < 0:
        lanes.step[lane] = _LIST
    elif routers.sparse:
        lanes.step[lane] = _ASK
    else:
        prefetch_router(routers, frontier, x)
        lanes.step[lane] = _ROUTE


@inner
def _take_step(trees, routers, keys, lanes, lane, query, restriction, ids, scores):
    frontier, best, probe = frontier_at(lanes.frontiers, lane), best_at(lanes.bests, lane), probe_at(lanes.probes, lane)
    here, step, x = frontier.here[0], lanes.step[lane], row_of(query.rows, lanes.row[lane])
    arrived = False
    if step == _ROUTE:
        if not take_only_way(trees, frontier, restriction):
            pass_router(trees, routers, frontier, x)
        arrived = True
    elif step == _ASK:
        prefetch_router(routers, frontier, x)
        lanes.step[lane] = _ROUTE
    elif step == _LIST:
        list_members(trees, keys, best, here["tree"], ~here["place"])
        leave_out_others(restriction, best)
        lanes.step[lane] = _PREFETCH
    elif step == _PREFETCH:
        prefetch_members(keys, best)
        lanes.step[lane] = _SCORE
    elif step == _SCORE:
        score_members(trees, keys, best, probe)
        lanes.step[lane] = _CHOOSE
    else:
        unfinished = restriction.slots.size > 0 and best.n_found[0] < best.scores.size
        arrived = begin_path(trees, frontier, query.n_leaves, patience_of(trees), unfinished)
        if not arrived:
            answer(keys, best, lanes.row[lane], ids, scores)
            lanes.step[lane] = _BEGIN
    if arrived:
        _look_ahead(trees, routers, lanes, lane, frontier, x)


@inner_called
def _answer_rows(view, lanes, query, restriction, ids, scores):
    forest = by_reference(view)
    trees, routers, keys, scorer = forest.trees, forest.routers, forest.keys, forest.scorer
    row, n_busy = query.first, lanes.row.size
    while n_busy > 0:
        for lane in range(lanes.row.size):
            if lanes.step[lane] == _BEGIN:
                while row < query.stop and explores(query, row):
                    row += 1
                if row < query.stop:
                    _begin_row(scorer, lanes, lane, query.rows, row)
                    row += 1
                else:
                    clear_probe(probe_at(lanes.probes, lane), query.rows.indices)
                    lanes.step[lane] = _REST
                    n_busy -= 1
            elif lanes.step[lane] != _REST:
                _take_step(trees, routers, keys, lanes, lane, query, restriction, ids, scores)


@kernel
def query_rows(view, query, restriction, ids, scores):
    """Answer the rows in ``first:stop`` that do not explore (QUERY).

    A filtered search continues beyond ``n_leaves`` until it has found ``k`` memories. Answers do not depend on the
    division of rows among calls.

    Writes the answers to ``ids`` and ``scores``, int64 and float32 of shape (n, k).
    """
    forest = by_reference(view)
    lanes = _new_lanes(forest.trees, query, ids.shape[1])
    _answer_rows(view, lanes, query, restriction, ids, scores)
    release(lanes)

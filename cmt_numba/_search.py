"""Kernels: PATH and QUERY (Algorithms 1 and 2), and the search of several leaves of several trees.

A search keeps a frontier of places ordered by cost and always goes on from the cheapest. The cost of a place is what
its path fell short of: at each node a router that speaks for the side taken with a margin of ``_SURE`` or more adds
nothing, one that is undecided adds ``_SURE``, one that speaks against it adds more. So a path of sure decisions beats
one that began a little better and then met routers that do not know the query. Plain descent (PATH) is used where the
paper explores.
"""

from typing import NamedTuple

import numpy as np

from ._jit import inner, inner_allocating, kernel
from ._keys import longest_row
from ._random import mix, random_below, random_unit
from ._routers import router_margin
from ._scorer import aim_probe, new_probe, score
from ._state import LEFT, N_MEMORIES, NODES_END, NONE, RIGHT, ROOT

# Routers learn to answer with -1 and 1. Counting only what is missing from a little less forgives a query that shares
# most, not all, of the features of the memories that a router has learned.
_SURE = np.float32(0.75)

_ROW_STEP = np.uint64(0x9E3779B97F4A7C15)
_SLOT_MASK = 0xFFFFFFFF


class Frontier(NamedTuple):
    """A binary heap of places to go on from, the cheapest first; entry ``i`` is a place of one tree."""

    cost: np.ndarray  # float32
    tree: np.ndarray  # int32
    place: np.ndarray  # int32


class Best(NamedTuple):
    """The ``k`` best memories so far, the best first."""

    scores: np.ndarray  # float32 (k,), -inf where there is none
    ties: np.ndarray  # uint64 (k,): random, decides between equal scores
    slots: np.ndarray  # int64 (k,), NONE where there is none


class Search(NamedTuple):
    """Room for the search of one row after another."""

    frontier: Frontier
    best: Best
    seen: np.ndarray  # int64 (power of two,): the row and slot of memories scored; empty with one tree
    stream: np.ndarray  # uint64 (1,): the row's random stream


class Exploration(NamedTuple):
    """What a query explored, one entry a row: the record that ``update`` learns routers from.

    Attributes
    ----------
    tree : ndarray of int32, shape (n,)
        The tree explored, -1 where the query did not explore.
    node : ndarray of int32, shape (n,)
        The internal node where a side was drawn; -1 where there was none, or where memories were drawn in a leaf.
    generation : ndarray of int32, shape (n,)
        Tells the node from a later one that was given the same number.
    side : ndarray of int8, shape (n,)
        The side drawn: 0 left, 1 right, -1 none.
    probability : ndarray of float32, shape (n,)
        The probability with which the side was drawn; NaN where there was none.
    """

    tree: np.ndarray
    node: np.ndarray
    generation: np.ndarray
    side: np.ndarray
    probability: np.ndarray


class Hits(NamedTuple):
    """The answers to a query.

    Attributes
    ----------
    ids : ndarray of int64, shape (n, k)
        Memory ids, the best first; -1 where fewer than ``k`` memories were found.
    scores : ndarray of float32, shape (n, k)
        The scorer's values; ``-inf`` where there is no memory.
    exploration : Exploration
        What each row explored, for :meth:`ContextualMemoryTree.update`.
    """

    ids: np.ndarray
    scores: np.ndarray
    exploration: Exploration


def no_hits(n: int, k: int) -> Hits:
    """Return the answers to ``n`` queries that found nothing and did not explore."""
    return Hits(
        ids=np.full((n, k), NONE, np.int64),
        scores=np.full((n, k), -np.inf, np.float32),
        exploration=Exploration(
            tree=np.full(n, NONE, np.int32),
            node=np.full(n, NONE, np.int32),
            generation=np.zeros(n, np.int32),
            side=np.full(n, NONE, np.int8),
            probability=np.full(n, np.nan, np.float32),
        ),
    )


@inner_allocating
def _new_search(state, k, n_leaves):
    n_places = state.parameters.n_trees
    for t in range(state.parameters.n_trees):
        n_places += state.counters[t, NODES_END]
    n_seen = 1
    if state.parameters.n_trees > 1:
        most = min(n_leaves * state.leaves.members.shape[2], state.keys.totals[N_MEMORIES])
        while n_seen < 2 * most:
            n_seen *= 2
    return Search(
        Frontier(np.empty(n_places, np.float32), np.empty(n_places, np.int32), np.empty(n_places, np.int32)),
        Best(np.empty(k, np.float32), np.empty(k, np.uint64), np.empty(k, np.int64)),
        np.full(n_seen, NONE, np.int64),
        np.empty(1, np.uint64),
    )


@inner
def _push(frontier, first, end, cost, tree, place):
    """Add an entry to the heap in ``first .. end``; the caller counts it."""
    i = end
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
def _drop_first(frontier, first, end):
    """Take the cheapest entry off the heap in ``first .. end``; the caller counts it."""
    last = end - 1
    cost, tree, place = frontier.cost[last], frontier.tree[last], frontier.place[last]
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
    frontier.cost[i] = cost
    frontier.tree[i] = tree
    frontier.place[i] = place


@inner
def _next_leaf(state, frontier, first, end, values, indices, a, b):
    """Go on from the cheapest entry of the heap in ``first .. end`` until it is a leaf, and take that off.

    Where no router is sure of anything, the cheapest places would keep changing between many half-way paths. So after
    as many routers as a full leaf has memories, the path at hand is followed to its end: finding a leaf never costs
    more than a small multiple of scanning it.

    Returns the leaf's tree, the leaf (NONE if the heap was empty) and the heap's new end.
    """
    if end == first:
        return np.int64(NONE), np.int64(NONE), end
    child = state.nodes.child
    patience = state.leaves.members.shape[2]
    cost, t, place = frontier.cost[first], np.int64(frontier.tree[first]), np.int64(frontier.place[first])
    _drop_first(frontier, first, end)
    end -= 1
    while place >= 0:
        margin = np.float32(router_margin(state, t, place, values, indices, a, b))
        side = RIGHT if margin > 0.0 else LEFT
        near, far = np.int64(child[t, place, side]), np.int64(child[t, place, RIGHT - side])
        _push(frontier, first, end, cost + (_SURE + np.abs(margin)), t, far)
        end += 1
        cost += max(np.float32(0.0), _SURE - np.abs(margin))
        place = near
        patience -= 1
        if patience > 0 and frontier.cost[first] < cost:
            _push(frontier, first, end, cost, t, near)
            cost, t, place = frontier.cost[first], np.int64(frontier.tree[first]), np.int64(frontier.place[first])
            _drop_first(frontier, first, end + 1)
    return t, ~place, end


@inner
def _is_new(search, row, slot):
    """Return whether this row has not met the memory yet, and remember it.

    Entries of earlier rows count as empty, so the table is never cleared.
    """
    seen = search.seen
    mask = seen.size - 1
    entry = (np.int64(row) << 32) | slot
    cell = (slot * 2654435769) & mask
    while (seen[cell] >> 32) == row:
        if seen[cell] == entry:
            return False
        cell = (cell + 1) & mask
    seen[cell] = entry
    return True


@inner
def _offer(best, n_found, k, value, tie, slot):
    """Put a memory among the ``k`` best if it belongs there; return how many there are."""
    if n_found == k and (value < best.scores[k - 1] or (value == best.scores[k - 1] and tie <= best.ties[k - 1])):
        return n_found
    i = n_found if n_found < k else k - 1
    while i > 0 and (best.scores[i - 1] < value or (best.scores[i - 1] == value and best.ties[i - 1] < tie)):
        best.scores[i] = best.scores[i - 1]
        best.ties[i] = best.ties[i - 1]
        best.slots[i] = best.slots[i - 1]
        i -= 1
    best.scores[i] = value
    best.ties[i] = tie
    best.slots[i] = slot
    return min(k, n_found + 1)


@inner
def _scan_leaf(state, search, probe, t, leaf, row, n_found):
    """Score the memories of a leaf that are new to the row; return how many of the best there are."""
    leaves = state.leaves
    k = search.best.scores.size
    salt = mix(state.streams[0])
    for i in range(leaves.size[t, leaf]):
        slot = np.int64(leaves.members[t, leaf, i])
        if search.seen.size == 1 or _is_new(search, row, slot):
            value = score(state, probe, slot)
            if n_found < k or value >= search.best.scores[k - 1]:
                tie = mix(salt ^ np.uint64(state.keys.ids[slot]))
                n_found = _offer(search.best, n_found, k, value, tie, slot)
    return n_found


@inner
def _search_leaves(state, search, probe, values, indices, a, b, row, n_leaves):
    """Fill in the best memories of ``n_leaves`` leaves; return how many there are.

    With at least a leaf for every tree, each tree gives its best leaf first: a second tree's opinion is worth more
    than a second leaf of the first.
    """
    frontier, n_trees = search.frontier, state.parameters.n_trees
    end = 0
    n_found = 0
    n_searched = 0
    for t in range(n_trees):
        start = end
        _push(frontier, start, end, np.float32(0.0), t, state.counters[t, ROOT])
        end += 1
        if n_leaves >= n_trees:
            tree, leaf, end = _next_leaf(state, frontier, start, end, values, indices, a, b)
            n_found = _scan_leaf(state, search, probe, tree, leaf, row, n_found)
            n_searched += 1
    if n_searched < n_leaves:
        for entry in range(1, end):  # make one heap of the trees' heaps
            _push(frontier, 0, entry, frontier.cost[entry], frontier.tree[entry], frontier.place[entry])
    while n_searched < n_leaves:
        tree, leaf, end = _next_leaf(state, frontier, 0, end, values, indices, a, b)
        if leaf == NONE:
            break
        n_found = _scan_leaf(state, search, probe, tree, leaf, row, n_found)
        n_searched += 1
    return n_found


@inner
def _step_down(state, t, node, values, indices, a, b):
    margin = router_margin(state, t, node, values, indices, a, b)
    return np.int64(state.nodes.child[t, node, RIGHT if margin > 0.0 else LEFT])


@inner
def _path(state, t, place, n_steps, values, indices, a, b):
    """PATH (Algorithm 1): follow the routers from ``place`` for ``n_steps`` nodes at most.

    Returns the place reached and how many nodes were passed.
    """
    passed = 0
    while place >= 0 and passed != n_steps:
        place = _step_down(state, t, place, values, indices, a, b)
        passed += 1
    return place, passed


@inner
def _explore(state, search, probe, values, indices, a, b, row, exploration):
    """Explore as QUERY does (Algorithm 2, lines 6 to 13); return how many memories were found."""
    stream = search.stream
    t = random_below(stream, 0, state.parameters.n_trees)
    root = state.counters[t, ROOT]
    place, n_nodes = _path(state, t, root, NONE, values, indices, a, b)
    drawn = random_below(stream, 0, n_nodes + 1)
    exploration.tree[row] = t
    if drawn == n_nodes:
        return _draw_members(state, search, probe, t, ~place)
    node, _ = _path(state, t, root, drawn, values, indices, a, b)
    side = random_below(stream, 0, 2)
    exploration.node[row] = node
    exploration.generation[row] = state.nodes.generation[t, node]
    exploration.side[row] = side
    exploration.probability[row] = 0.5
    place, _ = _path(state, t, np.int64(state.nodes.child[t, node, side]), NONE, values, indices, a, b)
    return _scan_leaf(state, search, probe, t, ~place, row, 0)


@inner
def _draw_members(state, search, probe, t, leaf):
    """Draw k memories of a leaf uniformly without replacement; return how many there were."""
    leaves, best = state.leaves, search.best
    size = np.int64(leaves.size[t, leaf])
    wanted = min(best.scores.size, size)
    n_found = 0
    for i in range(size):
        if random_below(search.stream, 0, size - i) < wanted - n_found:
            slot = np.int64(leaves.members[t, leaf, i])
            best.scores[n_found] = score(state, probe, slot)
            best.slots[n_found] = slot
            n_found += 1
    return n_found


@kernel
def query_rows(state, rows, first, stop, n_leaves, epsilon, seed, hits):
    """QUERY (Algorithm 2) the rows ``first .. stop``, writing their answers into the same rows of ``hits``.

    Rows do not depend on each other, nor on how they are divided among calls: a row's random draws come from ``seed``
    and its number.
    """
    probe = new_probe(state, longest_row(rows, first, stop))
    search = _new_search(state, hits.ids.shape[1], n_leaves)
    for row in range(first, stop):
        search.stream[0] = seed + np.uint64(row) * _ROW_STEP
        n_found = _query_row(state, search, probe, rows, row, n_leaves, epsilon, hits.exploration)
        for i in range(n_found):
            hits.ids[row, i] = state.keys.ids[search.best.slots[i]]
            hits.scores[row, i] = search.best.scores[i]


@inner
def _query_row(state, search, probe, rows, row, n_leaves, epsilon, exploration):
    """Fill in the best memories for one row; return how many there are."""
    values, indices, a, b = rows.values, rows.indices, rows.offsets[row], rows.offsets[row + 1]
    aim_probe(state, probe, rows, row, True)
    if epsilon > 0.0 and random_unit(search.stream, 0) < epsilon:
        return _explore(state, search, probe, values, indices, a, b, row, exploration)
    return _search_leaves(state, search, probe, values, indices, a, b, row, n_leaves)

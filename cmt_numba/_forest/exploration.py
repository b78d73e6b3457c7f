"""Kernels: PATH (Algorithm 1), and the exploration in QUERY (Algorithm 2, lines 6 to 13) with its propensities.

Exploration draws a tree, then a place on the row's path, and then a side of the node or memories of the leaf. For the
propensities, a kernel enumerates all outcomes. One side of each node leads to the leaf of the path, the other side to
another leaf.
"""

import numpy as np

from .._jit import by_reference, empty, inner, kernel, release
from .._kernels import (
    LEFT,
    NONE,
    RIGHT,
    answer,
    find_slot,
    mix,
    new_best,
    new_probe,
    random_below,
    row_of,
    score,
    unit_of,
)
from .._linear import margin_of
from .leaf_scan import scan_leaf
from .scorer import aim_weighted_probe
from .state import ROOT
from .topology import child_of, parent_of, side_of

_ROW_STEP = np.uint64(0xD1342543DE82EF95)  # odd, and different from the step within a stream, ``rng._GOLDEN_GAMMA``


@inner
def _stream_of(seed, row):
    return mix(seed + np.uint64(row) * _ROW_STEP)


@inner
def explores(query, row):
    """Return whether a row explores. The probability is ``query.epsilon``."""
    return query.epsilon > 0.0 and unit_of(_stream_of(query.seed, row)) < query.epsilon


@inner
def path(trees, routers, t, place, n_steps, x):
    """Follow routers from ``place`` past up to ``n_steps`` nodes (PATH); return the place and the number."""
    passed = 0
    while place >= 0 and passed < n_steps:
        margin = margin_of(routers, t, place, x)
        place = child_of(trees, t, place, RIGHT if margin > 0.0 else LEFT)
        passed += 1
    return place, passed


@inner
def _explore_row(trees, routers, keys, scorer, best, probe, rows, row, stream, exploration):
    """Explore a tree for one row, and write its record of exploration.

    Draw a tree and a place on the row's path. At a node, take a random side and scan the leaf below; in the leaf, draw
    random memories.
    """
    x = row_of(rows, row)
    aim_weighted_probe(probe, x, scorer)
    best.n_found[0] = 0
    t = random_below(stream, 0, trees.counters.shape[0])
    root, all_the_way = trees.counters[t, ROOT], trees.nodes.shape[1]
    place, n_nodes = path(trees, routers, t, root, all_the_way, x)
    drawn = random_below(stream, 0, n_nodes + 1)
    exploration.tree[row] = t
    if drawn == n_nodes:
        _draw_members(trees, keys, best, probe, t, ~place, stream)
        return
    node, _ = path(trees, routers, t, root, drawn, x)
    side = random_below(stream, 0, 2)
    exploration.node[row] = node
    exploration.generation[row] = trees.nodes[t, node]["generation"]
    exploration.side[row] = side
    exploration.probability[row] = 0.5
    place, _ = path(trees, routers, t, child_of(trees, t, node, side), all_the_way, x)
    scan_leaf(trees, keys, best, probe, t, ~place)


@inner
def _draw_members(trees, keys, best, probe, t, leaf, stream):
    """Draw memories of a leaf uniformly without replacement, and score them."""
    size = np.int64(trees.leaves[t, leaf]["size"])
    wanted = min(best.scores.size, size)
    n_found = 0
    for i in range(size):
        if random_below(stream, 0, size - i) < wanted - n_found:
            slot = np.int64(trees.members[t, leaf, i])
            best.scores[n_found] = score(keys, probe, slot)
            best.slots[n_found] = slot
            n_found += 1
    best.n_found[0] = n_found


@kernel
def explore_rows(view, query, hits):
    """Answer the rows in ``first:stop`` that explore (QUERY), and write their results and explorations to ``hits``.

    The draws of a row depend only on ``query.seed`` and the row's number, not on how rows are divided among calls.
    """
    forest = by_reference(view)
    trees, routers, keys, scorer = forest.trees, forest.routers, forest.keys, forest.scorer
    probe = new_probe(query.rows, query.first, query.stop)
    best = new_best(hits.ids.shape[1], trees.members.shape[2])
    stream = empty(1, np.uint64)
    for row in range(query.first, query.stop):
        if explores(query, row):
            stream[0] = _stream_of(query.seed, row)
            _explore_row(trees, routers, keys, scorer, best, probe, query.rows, row, stream, hits.exploration)
            answer(keys, best, row, hits.ids, hits.scores)
    release((probe, best, stream))


@inner
def _add_shown(trees, keys, best, probe, t, leaf, chance, ids, shown):
    """Add ``chance``, the probability of scanning a leaf, to the ids among the leaf's best memories."""
    best.n_found[0] = 0
    scan_leaf(trees, keys, best, probe, t, leaf)
    for i in range(ids.size):
        for j in range(best.n_found[0]):
            if ids[i] != NONE and keys.ids[best.slots[j]] == ids[i]:
                shown[i] += chance


@inner
def _add_drawn(trees, keys, t, leaf, chance, ids, shown):
    """Add the probability that each id is drawn from a leaf. Memories are drawn there with probability ``chance``."""
    size = np.int64(trees.leaves[t, leaf]["size"])
    for i in range(ids.size):
        slot = find_slot(keys, ids[i]) if ids[i] != NONE else NONE
        if slot != NONE and trees.leaf_of[t, slot] == leaf:
            shown[i] += chance * min(ids.size, size) / size


@inner
def _add_row(trees, routers, keys, scorer, best, probe, query, row, ids, shown):
    """Add the probabilities of all outcomes of one row's exploration."""
    x = row_of(query.rows, row)
    aim_weighted_probe(probe, x, scorer)
    n_trees, all_the_way = trees.counters.shape[0], trees.nodes.shape[1]
    for t in range(n_trees):
        place, n_nodes = path(trees, routers, t, trees.counters[t, ROOT], all_the_way, x)
        chance = query.epsilon / n_trees / (n_nodes + 1)
        _add_drawn(trees, keys, t, ~place, chance, ids[row], shown[row])
        _add_shown(trees, keys, best, probe, t, ~place, 0.5 * n_nodes * chance, ids[row], shown[row])
        for _ in range(n_nodes):
            node = parent_of(trees, t, place)
            other = child_of(trees, t, node, 1 - side_of(trees, t, node, place))
            aside, _ = path(trees, routers, t, other, all_the_way, x)
            _add_shown(trees, keys, best, probe, t, ~aside, 0.5 * chance, ids[row], shown[row])
            place = node


@kernel
def add_explored(view, query, ids, shown):
    """Add the probability that exploration returns memory ``ids[i, j]`` for row ``i`` to ``shown[i, j]``."""
    forest = by_reference(view)
    trees, routers, keys, scorer = forest.trees, forest.routers, forest.keys, forest.scorer
    probe = new_probe(query.rows, query.first, query.stop)
    best = new_best(ids.shape[1], trees.members.shape[2])
    for row in range(query.first, query.stop):
        _add_row(trees, routers, keys, scorer, best, probe, query, row, ids, shown)
    release((probe, best))

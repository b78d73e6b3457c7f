"""Kernels: the probability that an exploring query shows a memory (QUERY, Algorithm 2).

Exploration draws a tree, then a place on the row's path, and then a side of the node or memories of the leaf. The
kernel enumerates all outcomes. One side of each node leads to the leaf of the path, the other side to another leaf.
"""

import numpy as np

from .._jit import by_reference, inner, kernel, release
from .exploration import path
from .key_store import find_slot
from .leaf_scan import new_best, scan_leaf
from .rows import row_of
from .scorer import aim_weighted_probe, new_probe
from .state import NONE, ROOT
from .topology import child_of, parent_of, side_of


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
    """Add to ``shown[i, j]`` the probability that exploration shows row ``i`` the memory ``ids[i, j]``."""
    forest = by_reference(view)
    trees, routers, keys, scorer = forest.trees, forest.routers, forest.keys, forest.scorer
    probe = new_probe(query.rows, query.first, query.stop)
    best = new_best(ids.shape[1], trees.members.shape[2])
    for row in range(query.first, query.stop):
        _add_row(trees, routers, keys, scorer, best, probe, query, row, ids, shown)
    release((probe, best))

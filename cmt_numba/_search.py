"""Kernels: QUERY without exploration (Algorithm 2), generalised to several leaves of several trees."""

import numpy as np

from ._exploration import explores
from ._frontier import count_leaves, new_frontier, reach_leaves
from ._jit import inner, kernel
from ._keys import longest_row, row_of
from ._scan import answer, most_seen, new_best, scan_leaf
from ._scorer import aim_probe, new_probe


@inner
def _query_row(state, frontier, best, probe, rows, row):
    """Find the best memories of the leaves that a row reaches."""
    x = row_of(rows, row)
    aim_probe(state, probe, x, True)
    best.n_found[0] = 0
    for i in range(reach_leaves(state, frontier, x)):
        scan_leaf(state, best, probe, np.int64(frontier.reached_tree[i]), np.int64(frontier.reached_leaf[i]), row)


@kernel
def query_rows(state, rows, first, stop, n_leaves, epsilon, seed, hits):
    """QUERY those of the rows ``first .. stop`` that do not explore, writing their answers into the rows of ``hits``.

    Rows do not depend on each other, nor on how they are divided among calls.
    """
    probe = new_probe(state, longest_row(rows, first, stop))
    frontier = new_frontier(state, min(n_leaves, count_leaves(state)))
    best = new_best(hits.ids.shape[1], most_seen(state, n_leaves))
    for row in range(first, stop):
        if not explores(seed, row, epsilon):
            _query_row(state, frontier, best, probe, rows, row)
            answer(state, best, row, hits)

"""Kernels: QUERY without exploration (Algorithm 2), generalised to several leaves of several trees."""

from ._exploration import explores
from ._frontier import begin_search, new_frontier, reach_next
from ._jit import inner, kernel
from ._keys import longest_row, row_of
from ._scan import answer, most_seen, new_best, scan_leaf
from ._scorer import aim_probe, new_probe
from ._state import NONE


@inner
def _query_row(state, frontier, best, probe, rows, row, n_leaves):
    """Find the best memories of the leaves that a row reaches."""
    x = row_of(rows, row)
    aim_probe(state, probe, x, True)
    best.n_found[0] = 0
    begin_search(frontier)
    t, leaf = reach_next(state, frontier, x, n_leaves)
    while leaf != NONE:
        scan_leaf(state, best, probe, t, leaf, row)
        t, leaf = reach_next(state, frontier, x, n_leaves)


@kernel
def query_rows(state, rows, first, stop, n_leaves, epsilon, seed, hits):
    """QUERY those of the rows ``first .. stop`` that do not explore, writing their answers into the rows of ``hits``.

    Rows do not depend on each other, nor on how they are divided among calls.
    """
    probe = new_probe(state, longest_row(rows, first, stop))
    frontier = new_frontier(state)
    best = new_best(hits.ids.shape[1], most_seen(state, n_leaves))
    for row in range(first, stop):
        if not explores(seed, row, epsilon):
            _query_row(state, frontier, best, probe, rows, row, n_leaves)
            answer(state, best, row, hits)

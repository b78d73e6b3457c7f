"""Kernels: QUERY without exploration (Algorithm 2), generalised to several leaves of several trees.

A search reads a node only to learn which node to read next, so by itself it would spend most of its time waiting for
memory. Therefore several rows are under way at once, each in a *lane* of its own. A lane takes one short step, asks for
what its next step will read, and lets the others take theirs meanwhile.
"""

from typing import NamedTuple

import numpy as np

from ._exploration import explores
from ._frontier import (
    Frontier,
    begin_path,
    begin_search,
    frontier_at,
    new_frontiers,
    pass_router,
    prefetch_here,
    prefetch_router,
)
from ._jit import inner, inner_allocating, kernel
from ._keys import longest_row, row_of
from ._scan import Best, answer, best_at, meet_members, new_bests, score_members, weigh_members
from ._scorer import Probe, aim_probe, new_probes, probe_at
from ._state import NONE

_MOST_LANES = 8
_CELLS_OF_PROBES = 1 << 17  # float32 of all lanes' probes that lie in the second-level cache beside other things

# What a lane does next.
_ASK = 0  # where a router keeps its weights for a sparse row is written in the node
_ROUTE = 1
_MEET = 2
_WEIGH = 3
_SCORE = 4


class Lanes(NamedTuple):
    """Rows that are looked for side by side."""

    frontiers: Frontier
    probes: Probe
    bests: Best
    row: np.ndarray  # int64 (lanes,): NONE where there are no more rows for the lane
    step: np.ndarray  # int64 (lanes,)


@inner_allocating
def _new_lanes(state, rows, first, stop, k):
    probe_cells = state.parameters.n_features if state.parameters.sparse else 1
    n = max(1, min(_MOST_LANES, stop - first, _CELLS_OF_PROBES // probe_cells))
    return Lanes(
        new_frontiers(state, n),
        new_probes(state, longest_row(rows, first, stop), n),
        new_bests(n, k, state.members.shape[2]),
        np.full(n, NONE, np.int64),
        np.empty(n, np.int64),
    )


@inner
def _begin_row(state, lanes, lane, rows, row, n_leaves):
    """Let a lane begin with a row."""
    lanes.row[lane] = row
    aim_probe(state, probe_at(lanes.probes, lane), row_of(rows, row), True)
    best_at(lanes.bests, lane).n_found[0] = 0
    frontier = frontier_at(lanes.frontiers, lane)
    begin_search(frontier)
    begin_path(state, frontier, n_leaves)
    _look_ahead(state, lanes, lane, frontier, row_of(rows, row))


@inner
def _look_ahead(state, lanes, lane, frontier, x):
    """Decide what a lane does next at the place that it has come to, and ask for what that will read."""
    prefetch_here(state, frontier)
    if frontier.here[0]["place"] < 0:
        lanes.step[lane] = _MEET
    elif state.parameters.sparse:
        lanes.step[lane] = _ASK
    else:
        prefetch_router(state, frontier, x)
        lanes.step[lane] = _ROUTE


@inner
def _take_step(state, lanes, lane, rows, n_leaves, hits):
    """Take a lane's next step; return whether its row is answered."""
    frontier, best = frontier_at(lanes.frontiers, lane), best_at(lanes.bests, lane)
    here, x = frontier.here[0], row_of(rows, lanes.row[lane])
    if lanes.step[lane] == _ROUTE:
        pass_router(state, frontier, x)
        _look_ahead(state, lanes, lane, frontier, x)
    elif lanes.step[lane] == _ASK:
        prefetch_router(state, frontier, x)
        lanes.step[lane] = _ROUTE
    elif lanes.step[lane] == _MEET:
        meet_members(state, best, here["tree"], ~here["place"])
        lanes.step[lane] = _WEIGH
    elif lanes.step[lane] == _WEIGH:
        weigh_members(state, best, probe_at(lanes.probes, lane), here["tree"], ~here["place"])
        lanes.step[lane] = _SCORE
    else:
        score_members(state, best, probe_at(lanes.probes, lane))
        if not begin_path(state, frontier, n_leaves):
            answer(state, best, lanes.row[lane], hits)
            return True
        _look_ahead(state, lanes, lane, frontier, x)
    return False


@inner
def _next_row(row, stop, epsilon, seed):
    """Return the first row from ``row`` on that does not explore."""
    while row < stop and explores(seed, row, epsilon):
        row += 1
    return row


@inner
def _answer_rows(state, lanes, rows, first, stop, n_leaves, epsilon, seed, hits):
    row = _next_row(first, stop, epsilon, seed)
    n_busy = 0
    for lane in range(lanes.row.size):
        if row < stop:
            _begin_row(state, lanes, lane, rows, row, n_leaves)
            row = _next_row(row + 1, stop, epsilon, seed)
            n_busy += 1
    while n_busy > 0:
        for lane in range(lanes.row.size):
            if lanes.row[lane] != NONE and _take_step(state, lanes, lane, rows, n_leaves, hits):
                if row < stop:
                    _begin_row(state, lanes, lane, rows, row, n_leaves)
                    row = _next_row(row + 1, stop, epsilon, seed)
                else:
                    lanes.row[lane] = NONE
                    n_busy -= 1


@kernel
def query_rows(state, rows, first, stop, n_leaves, epsilon, seed, hits):
    """QUERY those of the rows ``first .. stop`` that do not explore, writing their answers into the rows of ``hits``.

    Rows do not depend on each other, nor on how they are divided among calls.
    """
    lanes = _new_lanes(state, rows, first, stop, hits.ids.shape[1])
    _answer_rows(state, lanes, rows, first, stop, n_leaves, epsilon, seed, hits)

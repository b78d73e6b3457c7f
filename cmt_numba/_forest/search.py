"""Kernels: QUERY without exploration (Algorithm 2), generalised to several leaves of several trees.

A single search would spend most of its time waiting for memory, since each node must be read to find the next one. So
several rows are searched in turns, each in its own *lane*. A lane takes one short step, prefetches what its next step
reads, and yields to the other lanes.
"""

from typing import NamedTuple

import numpy as np

from .._jit import by_reference, empty, inner, inner_allocating, inner_called, kernel, release, zeros
from .exploration import explores
from .filtering import leave_out_others, take_only_way
from .frontier import (
    Frontier,
    begin_path,
    begin_search,
    frontier_at,
    new_frontiers,
    pass_router,
    prefetch_here,
    prefetch_router,
)
from .leaf_scan import Best, answer, best_at, meet_members, new_bests, score_members, weigh_members
from .rows import row_of
from .scorer import Probe, aim_weighted_probe, clear_probe, new_probes, probe_at

_MOST_LANES = 8
_CELLS_OF_PROBES = 1 << 17  # float32 of all lanes' probes that fit the second-level cache with other data

# The next step of a lane.
_BEGIN = 0  # with a row
_CHOOSE = 1  # choose where to continue
_ASK = 2  # read the node, which has the position of the weights for a sparse row
_ROUTE = 3
_MEET = 4
_WEIGH = 5
_SCORE = 6
_REST = 7  # there are no more rows


class SearchLanes(NamedTuple):
    """Searches that take turns."""

    frontiers: Frontier
    probes: Probe
    bests: Best
    row: np.ndarray  # int64 (lanes,)
    step: np.ndarray  # int64 (lanes,)


@inner_allocating
def _new_lanes(trees, query, k):
    rows, first, stop = query.rows, query.first, query.stop
    probe_cells = rows.n_features if rows.sparse else 1
    n = max(1, min(_MOST_LANES, stop - first, _CELLS_OF_PROBES // probe_cells))
    return SearchLanes(
        new_frontiers(trees, n),
        new_probes(rows, first, stop, n, query.room),
        new_bests(n, k, trees.members.shape[2]),
        empty(n, np.int64),
        zeros(n, np.int64),  # _BEGIN
    )


@inner
def _begin_row(scorer, lanes, lane, rows, row):
    """Begin a row in a lane."""
    lanes.row[lane] = row
    aim_weighted_probe(probe_at(lanes.probes, lane), row_of(rows, row), scorer)
    best_at(lanes.bests, lane).n_found[0] = 0
    begin_search(frontier_at(lanes.frontiers, lane))
    lanes.step[lane] = _CHOOSE


@inner
def _look_ahead(trees, routers, lanes, lane, frontier, x):
    """Choose the next step of a lane at its current place, and prefetch what it reads."""
    prefetch_here(trees, frontier)
    if frontier.here[0]["place"] < 0:
        lanes.step[lane] = _MEET
    elif routers.sparse:
        lanes.step[lane] = _ASK
    else:
        prefetch_router(routers, frontier, x)
        lanes.step[lane] = _ROUTE


@inner
def _take_step(trees, routers, keys, codes, lanes, lane, query, restriction, ids, scores):
    """Take the next step of a lane with its row."""
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
    elif step == _MEET:
        meet_members(trees, keys, codes, best, here["tree"], ~here["place"])
        leave_out_others(restriction, best)
        lanes.step[lane] = _WEIGH
    elif step == _WEIGH:
        weigh_members(trees, keys, codes, best, probe, here["tree"], ~here["place"])
        lanes.step[lane] = _SCORE
    elif step == _SCORE:
        score_members(trees, keys, best, probe)
        lanes.step[lane] = _CHOOSE
    else:
        unfinished = restriction.slots.size > 0 and best.n_found[0] < best.scores.size
        arrived = begin_path(trees, frontier, query.n_leaves, trees.members.shape[2], unfinished)
        if not arrived:
            answer(keys, best, lanes.row[lane], ids, scores)
            lanes.step[lane] = _BEGIN
    if arrived:
        _look_ahead(trees, routers, lanes, lane, frontier, x)


@inner
def _next_row(query, row):
    """Return the first row from ``row`` on that does not explore."""
    while row < query.stop and explores(query, row):
        row += 1
    return row


@inner_called
def _answer_rows(view, lanes, query, restriction, ids, scores):
    forest = by_reference(view)
    trees, routers, keys = forest.trees, forest.routers, forest.keys
    codes, scorer = forest.codes, forest.scorer
    row, n_busy = query.first, lanes.row.size
    while n_busy > 0:
        for lane in range(lanes.row.size):
            if lanes.step[lane] == _BEGIN:
                row = _next_row(query, row)
                if row < query.stop:
                    _begin_row(scorer, lanes, lane, query.rows, row)
                    row += 1
                else:
                    clear_probe(probe_at(lanes.probes, lane), query.rows.indices)
                    lanes.step[lane] = _REST
                    n_busy -= 1
            elif lanes.step[lane] != _REST:
                _take_step(trees, routers, keys, codes, lanes, lane, query, restriction, ids, scores)


@kernel
def query_rows(view, query, restriction, ids, scores):
    """Answer those of the rows ``first .. stop`` that do not explore (QUERY).

    With a ``restriction`` a search goes beyond ``n_leaves`` until it has found ``k`` memories. Answers do not depend on
    the division of rows among calls.

    Writes the same rows of ``ids`` and ``scores``, int64 and float32 (n, k).
    """
    forest = by_reference(view)
    lanes = _new_lanes(forest.trees, query, ids.shape[1])
    _answer_rows(view, lanes, query, restriction, ids, scores)
    release(lanes)

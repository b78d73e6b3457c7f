"""Kernels: QUERY without exploration (Algorithm 2), generalised to several leaves of several trees.

A search follows links from node to node and mostly waits for memory. The kernel therefore interleaves the searches of
several rows, each in its own *lane*. A lane takes one short step, prefetches the data of its next step, and yields to
the next lane.
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
    patience_of,
    prefetch_here,
    prefetch_router,
)
from .leaf_scan import Best, answer, best_at, list_members, new_bests, prefetch_members, score_members
from .rows import row_of
from .scorer import Probe, aim_weighted_probe, clear_probe, new_probes, probe_at

_MOST_LANES = 8
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


@inner
def _next_row(query, row):
    """Return the first row at or after ``row`` that does not explore."""
    while row < query.stop and explores(query, row):
        row += 1
    return row


@inner_called
def _answer_rows(view, lanes, query, restriction, ids, scores):
    forest = by_reference(view)
    trees, routers, keys, scorer = forest.trees, forest.routers, forest.keys, forest.scorer
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

"""Kernels: PATH (Algorithm 1) and the exploring half of QUERY (Algorithm 2, lines 6 to 13)."""

import numpy as np

from .._jit import by_reference, inner, inner_allocating, kernel
from .leaf_scan import answer, new_best, scan_leaf
from .linear_model import margin_of
from .rng import mix, random_below, unit_of
from .rows import longest_row, row_of
from .scorer import aim_probe, new_probe, score
from .state import LEFT, RIGHT, ROOT
from .topology import child_of

_ROW_STEP = np.uint64(0xD1342543DE82EF95)  # odd, and not the step between the draws of one stream


@inner
def _stream_of(seed, row):
    """Return where the random stream of a row starts."""
    return mix(seed + np.uint64(row) * _ROW_STEP)


@inner
def explores(seed, row, epsilon):
    """Return whether a row explores, which it does with probability ``epsilon``."""
    return epsilon > 0.0 and unit_of(_stream_of(seed, row)) < epsilon


@inner_allocating
def _new_stream():
    return np.empty(1, np.uint64)


@inner
def _path(state, t, place, n_steps, x):
    """PATH (Algorithm 1): follow the routers from ``place`` to a leaf, or for ``n_steps`` nodes at most.

    Returns the place reached and how many nodes were passed.
    """
    passed = 0
    while place >= 0 and passed < n_steps:
        margin = margin_of(state, t, place, x)
        place = child_of(state, t, place, RIGHT if margin > 0.0 else LEFT)
        passed += 1
    return place, passed


@inner
def _explore_row(state, best, probe, rows, row, stream, hits):
    """Draw a tree and a place on the row's path there; take a random side at it, or random memories of the leaf."""
    best, exploration = by_reference(best), hits.exploration
    x = row_of(rows, row)
    aim_probe(state, probe, x, True)
    best.n_found[0] = 0
    t = random_below(stream, 0, state.parameters.n_trees)
    root, all_the_way = state.counters[t, ROOT], state.nodes.shape[1]
    place, n_nodes = _path(state, t, root, all_the_way, x)
    drawn = random_below(stream, 0, n_nodes + 1)
    exploration.tree[row] = t
    if drawn == n_nodes:
        _draw_members(state, best, probe, t, ~place, stream)
        answer(state, best, row, hits)
        return
    node, _ = _path(state, t, root, drawn, x)
    side = random_below(stream, 0, 2)
    exploration.node[row] = node
    exploration.generation[row] = state.nodes[t, node]["generation"]
    exploration.side[row] = side
    exploration.probability[row] = 0.5
    place, _ = _path(state, t, child_of(state, t, node, side), all_the_way, x)
    scan_leaf(state, best, probe, t, ~place)
    answer(state, best, row, hits)


@inner
def _draw_members(state, best, probe, t, leaf, stream):
    """Draw memories of a leaf uniformly without replacement."""
    size = np.int64(state.leaves[t, leaf]["size"])
    wanted = min(best.scores.size, size)
    n_found = 0
    for i in range(size):
        if random_below(stream, 0, size - i) < wanted - n_found:
            slot = np.int64(state.members[t, leaf, i])
            best.scores[n_found] = score(state, probe, slot)
            best.slots[n_found] = slot
            n_found += 1
    best.n_found[0] = n_found


@kernel
def explore_rows(state, rows, first, stop, epsilon, seed, hits):
    """QUERY those of the rows ``first .. stop`` that explore, writing answers and records into the rows of ``hits``.

    A row's random draws come from ``seed`` and its number, so rows may be divided among calls in any way.
    """
    state, rows, hits = by_reference(state), by_reference(rows), by_reference(hits)
    probe = new_probe(state, longest_row(rows, first, stop))
    best = new_best(hits.ids.shape[1], state.members.shape[2])
    stream = _new_stream()
    for row in range(first, stop):
        if explores(seed, row, epsilon):
            stream[0] = _stream_of(seed, row)
            _explore_row(state, best, probe, rows, row, stream, hits)

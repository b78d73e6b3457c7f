"""Kernels: searches along the links between near memories.

A search begins with the members of a leaf and keeps the nearest memories found so far as candidates. It repeatedly
visits the nearest candidate not yet visited, and compares all memories linked with it. It ends when all candidates have
been visited. The number of candidates, the *breadth*, determines the recall (Malkov and Yashunin, 2018; Fu et al.,
2019).

With a filter, a search follows the same links and returns the candidates that pass. If too few pass, the memories that
pass are too far from the query for the search to reach.

Candidates are compared by their codes. Keys are read only for those whose codes allow them to be among the best.
"""

from typing import NamedTuple

import numpy as np

from .._jit import by_reference, empty, inner, inner_allocating, kernel, prefetch, release, zeros
from .frontier import begin_search, frontier_at, new_frontiers, reach_next
from .key_store import prefetch_key
from .leaf_scan import answer, new_best, offer_memory
from .quantization import encode, prefetch_code, product_of_codes, scale_for
from .rows import UNSCALED, Row
from .scorer import aim_weighted_probe, new_dense_probe, score
from .state import NONE

_BITS = 32  # in a word of ``Walk.met``
_MOST_NOTED = 1 << 12  # maximum number of words of ``Walk.met`` to clear one by one
_LINKS_IN_A_LINE = 16  # links in a cache line of 64 bytes
_AHEAD = 4  # number of candidates to prefetch keys for

# Entries of ``Walk.totals``.
N_FOUND = 0  # candidates
_N_NOTED = 1  # words of ``Walk.met`` that are not 0; ``Walk.noted`` lists them if it has room


ALL = np.empty(0, np.bool_)
"""No filter: all memories may be returned."""

NO_SLOTS = np.empty(0, np.int64)
"""No memory is excluded from a search."""


class Walk(NamedTuple):
    """The candidates of a search, the nearest first, and the memories that it has seen."""

    scores: np.ndarray  # float32 (breadth,): from the codes, without the scale of the query
    slots: np.ndarray  # int64 (breadth,)
    left: np.ndarray  # bool (breadth,): whether it has been visited
    met: np.ndarray  # uint32 (words,): a bit for each slot
    noted: np.ndarray  # int64: words of ``met`` to clear
    ahead: np.ndarray  # int64 (links of a memory,): links of the visited memory
    values: np.ndarray  # float32 (2, links of a memory and one more)
    totals: np.ndarray  # int64 (2,)


@inner_allocating
def new_walk(near, breadth):
    """Return scratch space for searches, one at a time."""
    n_words = near.shape[0] // _BITS + 1  # enough bits for all slots with links
    return Walk(
        empty(breadth, np.float32),
        empty(breadth, np.int64),
        empty(breadth, np.bool_),
        zeros(n_words, np.uint32),
        empty(min(n_words, _MOST_NOTED), np.int64),
        empty(near.shape[1], np.int64),
        empty((2, near.shape[1] + 1), np.float32),
        zeros(2, np.int64),
    )


@inner
def begin_walk(walk):
    """Reset the scratch space for another search."""
    n_noted = walk.totals[_N_NOTED]
    if n_noted > walk.noted.size:
        walk.met[:] = 0
    else:
        for i in range(n_noted):
            walk.met[walk.noted[i]] = 0
    walk.totals[N_FOUND] = 0
    walk.totals[_N_NOTED] = 0


@inner
def is_met_first(walk, slot):
    """Mark a memory as seen; return whether this is the first time."""
    word, bit = slot // _BITS, np.uint32(1) << np.uint32(slot % _BITS)
    met = walk.met[word]
    if met & bit != 0:
        return False
    if met == 0:
        n_noted = walk.totals[_N_NOTED]
        if n_noted < walk.noted.size:
            walk.noted[n_noted] = word
        walk.totals[_N_NOTED] = n_noted + 1
    walk.met[word] = met | bit
    return True


@inner
def prefetch_links(near, slot):
    """Prefetch the links of a memory."""
    for i in range(0, near.shape[1], _LINKS_IN_A_LINE):
        prefetch(near[slot], i)


@inner
def weigh_candidate(codes, walk, asked, start, slot):
    """Insert a memory into the candidates if it is near enough. Return its position, or the number of candidates.

    The code of the query begins at ``start``.
    """
    d = codes.n_features
    value = product_of_codes(asked, start, codes.values, slot * d, d) * codes.marks[slot]["scale"]
    n_found = walk.totals[N_FOUND]
    if n_found < walk.scores.size:
        i = n_found
        walk.totals[N_FOUND] = n_found + 1
    elif value > walk.scores[n_found - 1]:
        i = n_found - 1
    else:
        return n_found
    while i > 0 and walk.scores[i - 1] < value:
        walk.scores[i] = walk.scores[i - 1]
        walk.slots[i] = walk.slots[i - 1]
        walk.left[i] = walk.left[i - 1]
        i -= 1
    walk.scores[i] = value
    walk.slots[i] = slot
    walk.left[i] = False
    return i


@inner
def follow_links(codes, near, walk, asked, start):
    """Visit candidates until all have been visited."""
    at = np.int64(0)
    while at < walk.totals[N_FOUND]:
        if walk.left[at]:
            at += 1
            continue
        walk.left[at] = True
        slot, n_ahead = walk.slots[at], 0
        for i in range(near.shape[1]):
            other = np.int64(near[slot, i])
            if other == NONE:
                break
            if is_met_first(walk, other):
                prefetch_code(codes, other)
                walk.ahead[n_ahead] = other
                n_ahead += 1
        while at < walk.totals[N_FOUND] and walk.left[at]:
            at += 1
        if at < walk.totals[N_FOUND]:  # visited next unless nearer ones are found
            prefetch_links(near, walk.slots[at])
        for i in range(n_ahead):
            at = min(at, weigh_candidate(codes, walk, asked, start, walk.ahead[i]))


@inner
def _enter_leaves(trees, routers, codes, frontiers, walk, n_leaves, x, asked):
    """Begin a search with the members of the most promising leaves."""
    frontier = frontier_at(frontiers, 0)
    begin_search(frontier)
    while True:
        t, leaf = reach_next(trees, routers, frontier, x, n_leaves, trees.members.shape[2])
        if t == NONE:
            return
        size = np.int64(trees.leaves[t, leaf]["size"])
        for i in range(size):
            prefetch_code(codes, np.int64(trees.members[t, leaf, i]))
        for i in range(size):
            slot = np.int64(trees.members[t, leaf, i])
            if is_met_first(walk, slot):
                weigh_candidate(codes, walk, asked, np.int64(0), slot)


@inner
def _score_candidates(trees, keys, codes, walk, best, probe, chosen, scale, distance):
    """Compare candidates by their keys, and keep the best.

    The query's code, times ``scale``, is the query up to ``distance``.
    """
    n_found, last = walk.totals[N_FOUND], best.scores.size - 1
    best.n_found[0] = 0
    for i in range(min(_AHEAD, n_found)):
        prefetch_key(keys, walk.slots[i])
    for i in range(n_found):
        if i + _AHEAD < n_found:
            prefetch_key(keys, walk.slots[i + _AHEAD])
        slot = walk.slots[i]
        if chosen.size > 0 and not chosen[slot]:
            continue
        error = distance + (probe.length[0] + distance) * codes.marks[slot]["error"]
        if best.n_found[0] <= last or scale * walk.scores[i] + error >= best.scores[last]:
            offer_memory(trees, keys, best, score(keys, probe, slot), slot)


@inner
def _are_enough(walk, chosen, least):
    """Return whether enough candidates pass the filter."""
    if chosen.size == 0:
        return walk.totals[N_FOUND] >= least
    n_left = 0
    for i in range(walk.totals[N_FOUND]):
        if chosen[walk.slots[i]]:
            n_left += 1
    return n_left >= least


@kernel
def query_links(view, near, rows, reach, chosen, left_out, ids, scores):
    """Answer dense rows along the links (QUERY) in ``ids`` and ``scores``, int64 and float32 (n, k).

    ``near`` has the slots that each memory is linked with, followed by NONE: int32 (slots, links of a memory). ``rows``
    are contiguous rows of unit length. ``chosen`` is a mask of the slots that may be returned, or empty. ``reach`` is
    the number of leaves to begin with, the minimum number of candidates to keep, and the minimum number that must pass
    the mask: rows with fewer are left unanswered. ``left_out`` has for each row the slot of a memory that is not
    visited, or NONE; it may be empty.

    Arguments are flat because unboxing tuples of arrays takes longer than some searches. Writes ``ids`` and ``scores``.
    """
    forest = by_reference(view)
    trees, routers, keys = forest.trees, forest.routers, forest.keys
    codes, d = forest.codes, forest.codes.n_features
    n_leaves, breadth, least = reach
    frontiers, walk = new_frontiers(trees, 1), new_walk(near, max(breadth, ids.shape[1]))
    probe, best = new_dense_probe(d), new_best(ids.shape[1], 1)
    asked = empty(d, np.int8)
    for row in range(ids.shape[0]):
        x = Row(rows, keys.indices, row * d, (row + 1) * d, UNSCALED)
        aim_weighted_probe(probe, x, forest.scorer)
        scale = scale_for(probe.values)
        distance = encode(probe.values, asked, scale)
        begin_walk(walk)
        if left_out.size > 0 and left_out[row] != NONE:
            is_met_first(walk, left_out[row])
        _enter_leaves(trees, routers, codes, frontiers, walk, n_leaves, x, asked)
        follow_links(codes, near, walk, asked, np.int64(0))
        if _are_enough(walk, chosen, least):
            _score_candidates(trees, keys, codes, walk, best, probe, chosen, scale, distance)
            answer(keys, best, row, ids, scores)
    release((frontiers, walk, probe, best, asked))

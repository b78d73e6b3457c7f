"""Kernels: searches along the links between near memories.

A search starts from the members of a few leaves and keeps the nearest memories found so far as candidates. It
repeatedly visits the nearest unvisited candidate and compares its linked memories with the query, until every candidate
has been visited. The number of candidates, the *breadth*, determines the recall (Malkov and Yashunin, 2018; Fu et al.,
2019).

With a filter, a search follows the same links and returns the candidates that pass. If too few pass, the memories that
pass are too far from the query for the search to reach.

Candidates are compared by their codes. The search then reads the keys of those that may be among the best.
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

_BITS = 32  # bits in a word of ``Walk.met``
_MOST_NOTED = 1 << 12  # maximum number of words of ``Walk.met`` to clear one by one
_LINKS_IN_A_LINE = 16  # int32 links in a cache line of 64 bytes
_AHEAD = 4  # distance between the key that is prefetched and the key that is scored

# Entries of ``Walk.totals``.
N_FOUND = 0  # number of candidates
_N_NOTED = 1  # number of nonzero words of ``Walk.met``; ``Walk.noted`` lists them if it has room


ALL = np.empty(0, np.bool_)
"""No filter: all memories may be returned."""

NO_SLOTS = np.empty(0, np.int64)
"""No memory is excluded from a search."""


class Walk(NamedTuple):
    """The candidates of a search, nearest first, and the set of memories that the search has met."""

    scores: np.ndarray  # float32 (breadth,): scores of the codes, divided by the scale of the query's code
    slots: np.ndarray  # int64 (breadth,): slots of the candidates
    left: np.ndarray  # bool (breadth,): whether the candidate has been visited
    met: np.ndarray  # uint32 (n_words,): a bit for each slot, set if the search has met the memory
    noted: np.ndarray  # int64: positions of nonzero words in ``met``
    ahead: np.ndarray  # int64 (n_links,): scratch space for the slots of linked memories
    values: np.ndarray  # float32 (2, n_links + 1): scratch space for the closeness of linked memories
    totals: np.ndarray  # int64 (2,): ``N_FOUND`` and ``_N_NOTED``


@inner_allocating
def new_walk(near, breadth):
    """Return scratch space for a sequence of searches."""
    n_words = near.shape[0] // _BITS + 1  # enough bits for all slots
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
    """Reset the scratch space for a new search."""
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
    """Mark a memory as met; return whether it was unmarked."""
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
    """Insert a memory into the candidates if it is near enough.

    Returns the position of the memory, or the number of candidates if it was not inserted. The code of the query begins
    at ``asked[start]``.
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
    """Visit candidates, nearest first, until all have been visited."""
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
        if at < walk.totals[N_FOUND]:  # the next candidate to visit, unless a nearer one is found
            prefetch_links(near, walk.slots[at])
        for i in range(n_ahead):
            at = min(at, weigh_candidate(codes, walk, asked, start, walk.ahead[i]))


@inner
def _enter_leaves(trees, routers, codes, frontiers, walk, n_leaves, x, asked):
    """Add the members of the first ``n_leaves`` leaves of a search to the candidates."""
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
    """Score the keys of the candidates that may be among the best, and keep the best.

    ``scale`` is the scale of the query's code, and ``distance`` the distance of the decoded query from the query.
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
    """Return whether at least ``least`` candidates pass the filter."""
    if chosen.size == 0:
        return walk.totals[N_FOUND] >= least
    n_left = 0
    for i in range(walk.totals[N_FOUND]):
        if chosen[walk.slots[i]]:
            n_left += 1
    return n_left >= least


@kernel
def query_links(view, near, rows, reach, chosen, left_out, ids, scores):
    """Answer dense rows by searches along the links; write ``ids`` and ``scores``.

    Arguments are flat because unboxing a tuple of arrays takes longer than some searches.

    Parameters
    ----------
    view : ForestView
    near : ndarray of int32, shape (n_slots, n_links)
        The slots of the memories linked with each memory, padded with NONE.
    rows : ndarray of float32
        Contiguous rows of unit length.
    reach : tuple of int
        The number of leaves to start from, the minimum breadth, and the minimum number of candidates that must pass the
        filter. The kernel does not answer rows with fewer.
    chosen : ndarray of bool
        A mask of the slots that the filter passes. Empty means no filter.
    left_out : ndarray of int64, shape (n,)
        For each row, the slot of a memory that the search ignores, or NONE. May be empty.
    ids, scores : ndarray of int64 and of float32, shape (n, k)
        The results.
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

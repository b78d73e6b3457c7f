"""Kernels: scans of leaves for the best memories.

A scan first lists the memories of a leaf, and then scores them. Each step prefetches the data of the next, so
interleaved searches rarely wait for memory.

Ties are broken by a hash of the memory's id and the random state of the first tree. The same memory wins in every leaf
and tree until the next insert or reroute, and answers do not depend on the division of rows among threads.
"""

from typing import NamedTuple

import numpy as np

from .._jit import empty, inner, inner_allocating, zeros
from .key_store import prefetch_key, prefetch_span
from .rng import mix
from .scorer import score

_KEYS_AHEAD = 4  # distance between the key that is prefetched and the key that is scored


class Best(NamedTuple):
    """The best ``k`` memories found for a row so far, best first, and the waiting memories of the current leaf.

    For several simultaneous searches, all arrays have an additional first axis.
    """

    scores: np.ndarray  # float32 (k,): scores of the best memories
    ties: np.ndarray  # uint64 (k,): their hashes, which order equal scores
    slots: np.ndarray  # int64 (k,): their slots
    n_found: np.ndarray  # int64 (1,): number of memories found, at most k
    waiting: np.ndarray  # int64 (width of a leaf,): slots of memories to score
    n_waiting: np.ndarray  # int64 (1,): number of waiting memories


@inner_allocating
def new_bests(n, k, width):
    """Return :class:`Best` for ``n`` rows, with room for ``k`` results per row and for leaves of ``width`` memories."""
    return Best(
        empty((n, k), np.float32),
        empty((n, k), np.uint64),
        empty((n, k), np.int64),
        zeros((n, 1), np.int64),
        empty((n, width), np.int64),
        zeros((n, 1), np.int64),
    )


@inner
def best_at(bests, i):
    return Best(bests.scores[i], bests.ties[i], bests.slots[i], bests.n_found[i], bests.waiting[i], bests.n_waiting[i])


@inner_allocating
def new_best(k, width):
    """Return :class:`Best` for a single row."""
    return best_at(new_bests(1, k, width), 0)


@inner
def offer(best, value, tie, slot):
    """Insert a memory into the sorted list of the best if its score is high enough.

    For small ``k`` a sorted list is faster than the heap of ``top_k.py``, which must be sorted at the end.
    """
    scores, ties, slots = best.scores, best.ties, best.slots
    i = best.n_found[0]
    if i < scores.size:
        best.n_found[0] += 1
    elif value > scores[i - 1] or (value == scores[i - 1] and tie > ties[i - 1]):
        i -= 1
    else:
        return
    while i > 0 and (scores[i - 1] < value or (scores[i - 1] == value and ties[i - 1] < tie)):
        scores[i] = scores[i - 1]
        ties[i] = ties[i - 1]
        slots[i] = slots[i - 1]
        i -= 1
    scores[i] = value
    ties[i] = tie
    slots[i] = slot


@inner
def offer_memory(trees, keys, best, value, slot):
    """Call :func:`offer` with the tie-breaking hash of the memory in a slot."""
    offer(best, value, mix(mix(trees.streams[0]) ^ np.uint64(keys.ids[slot])), slot)


@inner
def list_members(trees, keys, best, t, leaf):
    """List the memories of a leaf, and prefetch the spans of their keys if they are sparse."""
    best.n_waiting[0] = trees.leaves[t, leaf]["size"]
    for i in range(best.n_waiting[0]):
        slot = np.int64(trees.members[t, leaf, i])
        best.waiting[i] = slot
        if keys.sparse:
            prefetch_span(keys, slot)


@inner
def prefetch_members(keys, best):
    """Prefetch the keys of the first waiting memories."""
    for i in range(min(_KEYS_AHEAD, best.n_waiting[0])):
        prefetch_key(keys, best.waiting[i])


@inner
def _is_new(trees, best, slot):
    """Return whether a memory is not yet among the best. With several trees, a search may meet a memory twice."""
    if trees.counters.shape[0] > 1:
        for i in range(best.n_found[0]):
            if best.slots[i] == slot:
                return False
    return True


@inner
def score_members(trees, keys, best, probe):
    """Score the waiting memories, and keep the best."""
    last = best.scores.size - 1
    for i in range(best.n_waiting[0]):
        if i + _KEYS_AHEAD < best.n_waiting[0]:
            prefetch_key(keys, best.waiting[i + _KEYS_AHEAD])
        slot = best.waiting[i]
        value = score(keys, probe, slot)
        if (best.n_found[0] <= last or value >= best.scores[last]) and _is_new(trees, best, slot):
            offer_memory(trees, keys, best, value, slot)


@inner
def scan_leaf(trees, keys, best, probe, t, leaf):
    """List and score the memories of a leaf."""
    list_members(trees, keys, best, t, leaf)
    prefetch_members(keys, best)
    score_members(trees, keys, best, probe)


@inner
def answer(keys, best, row, ids, scores):
    """Write the ids and scores of the best memories to row ``row`` of ``ids`` and ``scores``."""
    for i in range(best.n_found[0]):
        ids[row, i] = keys.ids[best.slots[i]]
        scores[row, i] = best.scores[i]

"""Kernels: the best memories of a search, in a sorted list."""

from typing import NamedTuple

import numpy as np

from .._jit import empty, inner, inner_allocating, zeros


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
def answer(keys, best, row, ids, scores):
    """Write the ids and scores of the best memories to row ``row`` of ``ids`` and ``scores``."""
    for i in range(best.n_found[0]):
        ids[row, i] = keys.ids[best.slots[i]]
        scores[row, i] = best.scores[i]

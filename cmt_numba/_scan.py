"""Kernels: looking through the memories of a leaf for the best.

Ties are broken at random, by a hash of the memory's id and of the first tree's random state: the same memory wins in
every leaf and every tree, another one may after the next insert or reroute, and the answers to a batch do not depend
on how its rows are divided among threads.
"""

from typing import NamedTuple

import numpy as np

from ._jit import inner, inner_allocating
from ._random import mix
from ._scorer import score
from ._seen import is_new, new_seen
from ._state import N_MEMORIES


class Best(NamedTuple):
    """The ``k`` best memories found for a row so far, the best first."""

    scores: np.ndarray  # float32 (k,)
    ties: np.ndarray  # uint64 (k,): decides between equal scores
    slots: np.ndarray  # int64 (k,)
    n_found: np.ndarray  # int64 (1,): how many entries there are
    seen: np.ndarray  # int64 (power of two,): row and slot of memories already scored; empty with one tree


@inner
def most_seen(state, n_leaves):
    """Return how many memories of ``n_leaves`` leaves may have been seen in another tree: none in a single one."""
    if state.parameters.n_trees == 1:
        return 0
    return min(n_leaves * state.members.shape[2], state.keys.totals[N_MEMORIES])


@inner_allocating
def new_best(k, most):
    """Return room for the ``k`` best of up to ``most`` memories that may come more than once."""
    return Best(
        np.empty(k, np.float32),
        np.empty(k, np.uint64),
        np.empty(k, np.int64),
        np.zeros(1, np.int64),
        new_seen(most) if most > 0 else np.empty(0, np.int64),
    )


@inner
def offer(best, value, tie, slot):
    """Put a memory among the best if it belongs there."""
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
def scan_leaf(state, best, probe, t, leaf, row):
    """Score the memories of a leaf that are new to the row."""
    k = best.scores.size
    salt = mix(state.streams[0])
    for i in range(state.leaves[t, leaf]["size"]):
        slot = np.int64(state.members[t, leaf, i])
        if best.seen.size == 0 or is_new(best.seen, row, slot):
            value = score(state, probe, slot)
            if best.n_found[0] < k or value >= best.scores[k - 1]:
                offer(best, value, mix(salt ^ np.uint64(state.keys.ids[slot])), slot)


@inner
def answer(state, best, row, hits):
    """Write the memories found into a row of the hits."""
    for i in range(best.n_found[0]):
        hits.ids[row, i] = state.keys.ids[best.slots[i]]
        hits.scores[row, i] = best.scores[i]

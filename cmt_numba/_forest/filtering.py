"""Kernels: searches with a filter.

A filtered search skips subtrees without candidates. Before the search, every place above a candidate is marked, from
the leaves up, in time proportional to the number of candidates. Routers are evaluated only where both sides have
candidates. If scoring all candidates is faster than a search, all of them are scored instead.
"""

from typing import NamedTuple

import numpy as np

from .._jit import by_reference, inner, kernel, release
from .._kernels import LEFT, NONE, RIGHT, answer, new_best, new_probe, prefetch_key, row_of, score
from .leaf_scan import offer_memory
from .scorer import aim_weighted_probe
from .state import State
from .topology import child_of, parent_of

_KEYS_AHEAD = 8  # distance between the key that is prefetched and the key that is scored
WORTH_A_LEAF = 128  # break-even point: reaching and scanning a leaf takes about as long as scoring this many memories


class Restriction(NamedTuple):
    """The candidates of a search. If the arrays are empty, all memories are candidates."""

    slots: np.ndarray  # bool (slots,): whether the slot's memory is a candidate
    nodes: np.ndarray  # bool (trees, nodes): whether a candidate is below the node
    leaves: np.ndarray  # bool (trees, leaves): whether a candidate is in the leaf


UNRESTRICTED = Restriction(np.empty(0, np.bool_), np.empty((0, 0), np.bool_), np.empty((0, 0), np.bool_))
"""No filter: all memories are candidates."""


def are_few(slots: np.ndarray, n_leaves: int) -> bool:
    """Return whether scoring all memories in ``slots`` is at least as fast as a search."""
    return slots.size <= n_leaves * WORTH_A_LEAF


def restriction_to(state: State, slots: np.ndarray) -> Restriction:
    """Return a filter that passes only the memories in ``slots``, as an argument for kernels."""
    restriction = Restriction(
        np.zeros(state.leaf_of.shape[1], np.bool_),
        np.zeros(state.nodes.shape, np.bool_),
        np.zeros(state.leaves.shape, np.bool_),
    )
    _mark_places(state.trees, slots, restriction)
    return restriction


@kernel
def _mark_places(trees, slots, restriction):
    trees = by_reference(trees)
    for slot in slots:
        restriction.slots[slot] = True
        for t in range(trees.counters.shape[0]):
            leaf = np.int64(trees.leaf_of[t, slot])
            restriction.leaves[t, leaf] = True
            node = parent_of(trees, t, ~leaf)
            while node != NONE and not restriction.nodes[t, node]:
                restriction.nodes[t, node] = True
                node = parent_of(trees, t, node)


@inner
def _leads_anywhere(restriction, t, place):
    return restriction.nodes[t, place] if place >= 0 else restriction.leaves[t, ~place]


@inner
def take_only_way(trees, frontier, restriction):
    """Move past the current node if all candidates are on one side; return whether the search moved."""
    if restriction.slots.size == 0:
        return False
    here = frontier.here[0]
    t, node = here["tree"], here["place"]
    left, right = child_of(trees, t, node, LEFT), child_of(trees, t, node, RIGHT)
    if not _leads_anywhere(restriction, t, right):
        here["place"] = left
        return True
    if not _leads_anywhere(restriction, t, left):
        here["place"] = right
        return True
    return False


@inner
def leave_out_others(restriction, best):
    """Drop the waiting memories that do not pass the filter."""
    if restriction.slots.size == 0:
        return
    n = 0
    for i in range(best.n_waiting[0]):
        if restriction.slots[best.waiting[i]]:
            best.waiting[n] = best.waiting[i]
            n += 1
    best.n_waiting[0] = n


@kernel
def score_slots(view, query, slots, ids, scores):
    """Write the best of the memories in ``slots`` for the rows ``first:stop``, by scoring all of them."""
    forest = by_reference(view)
    trees, keys, scorer = forest.trees, forest.keys, forest.scorer
    probe = new_probe(query.rows, query.first, query.stop)
    best = new_best(ids.shape[1], 0)
    for row in range(query.first, query.stop):
        aim_weighted_probe(probe, row_of(query.rows, row), scorer)
        best.n_found[0] = 0
        for i in range(slots.size):
            if i + _KEYS_AHEAD < slots.size:
                prefetch_key(keys, slots[i + _KEYS_AHEAD])
            offer_memory(trees, keys, best, score(keys, probe, slots[i]), slots[i])
        answer(keys, best, row, ids, scores)
    release((probe, best))

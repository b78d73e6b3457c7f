"""Kernels: scans of leaves for the best memories.

A scan first lists the memories of a leaf, and then scores them. Each step prefetches the data of the next, so
interleaved searches rarely wait for memory.

Ties are broken by a hash of the memory's id and the random state of the first tree. The same memory wins in every leaf
and tree until the next insert or reroute, and answers do not depend on the division of rows among threads.
"""

import numpy as np

from .._jit import inner
from .._kernels import mix, offer, prefetch_key, prefetch_span, score

_KEYS_AHEAD = 4  # distance between the key that is prefetched and the key that is scored


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

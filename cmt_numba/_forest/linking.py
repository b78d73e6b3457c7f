"""Kernels: links between near memories, maintained while memories are inserted, changed and removed.

A memory is linked with its nearest memories in order of distance. A memory that is nearer to one of these than to the
new memory is *covered* and skipped, so links lead in different directions (an approximation of the relative
neighbourhood graph; Malkov and Yashunin, 2018).

Links are symmetric, so a removal or a move to another slot finds all links to a memory. If a memory has no room for a
new link, it drops the farthest covered link. The neighbours of a removed memory are linked with each other.
"""

import numpy as np

from .._jit import by_reference, inner, kernel, release
from .link_search import N_FOUND, begin_walk, follow_links, is_met_first, new_walk, prefetch_links, weigh_candidate
from .quantization import prefetch_code, product_of_codes
from .rng import mix
from .state import NONE

_N_DRAWN = 8  # number of random memories that a search starts from, in addition to the members of leaves
_FEWEST = 2  # minimum number of links that a memory keeps when another memory drops its link


@inner
def count_links(near, slot):
    """Return the number of links of the memory in a slot."""
    n = 0
    while n < near.shape[1] and near[slot, n] != NONE:
        n += 1
    return n


@inner
def _are_linked(near, slot, other):
    for i in range(near.shape[1]):
        if near[slot, i] == other:
            return True
        if near[slot, i] == NONE:
            break
    return False


@inner
def _drop_link(near, slot, other):
    """Remove ``other`` from the links of ``slot``."""
    last = count_links(near, slot) - 1
    for i in range(last + 1):
        if near[slot, i] == other:
            near[slot, i] = near[slot, last]
            near[slot, last] = NONE
            return


@inner
def _link(near, slot, other):
    """Link two memories that have room for another link."""
    near[slot, count_links(near, slot)] = other
    near[other, count_links(near, other)] = slot


@inner
def _closeness(codes, slot, other):
    """Return the closeness of ``other`` to ``slot``, which is comparable only with values for the same ``slot``."""
    d = codes.n_features
    return product_of_codes(codes.values, slot * d, codes.values, other * d, d) * codes.marks[other]["scale"]


@inner
def _linked_or(near, slot, i, new):
    """Return link ``i`` of a full slot, or ``new`` if ``i`` is past the last link."""
    return np.int64(near[slot, i]) if i < near.shape[1] else new


@inner
def _is_covered(codes, near, walk, slot, at, new):
    """Return whether link ``at`` is covered: nearer to one of the closer links of ``slot`` than to ``slot``.

    ``new`` counts as an additional link.
    """
    other = _linked_or(near, slot, at, new)
    value = walk.values[0, at]
    own = value / codes.marks[other]["scale"] * codes.marks[slot]["scale"]
    for i in range(near.shape[1] + 1):
        if walk.values[0, i] > value and _closeness(codes, other, _linked_or(near, slot, i, new)) > own:
            return True
    return False


@inner
def _make_room(codes, near, walk, slot, new):
    """Drop a link of a full slot to make room for ``new``; return whether a link was dropped.

    The victim is the farthest covered link or, if none is covered, the farthest link. If the victim is ``new`` itself,
    no link is dropped.
    """
    n, victim = near.shape[1], NONE
    for i in range(n):
        prefetch_code(codes, np.int64(near[slot, i]))
    for i in range(n + 1):
        walk.values[0, i] = walk.values[1, i] = _closeness(codes, slot, _linked_or(near, slot, i, new))
    for _ in range(n + 1):
        at = np.int64(0)
        for i in range(n + 1):
            if walk.values[1, i] < walk.values[1, at]:
                at = np.int64(i)
        walk.values[1, at] = np.inf
        if count_links(near, _linked_or(near, slot, at, new)) >= (_FEWEST + 1 if at < n else 1):
            if victim == NONE:
                victim = at
            if _is_covered(codes, near, walk, slot, at, new):
                victim = at
                break
    if victim < 0 or victim == n:
        return False
    other = np.int64(near[slot, victim])
    _drop_link(near, slot, other)
    _drop_link(near, other, slot)
    return True


@inner
def _begin_at(trees, codes, near, walk, slot, start):
    """Begin a search for a memory's neighbours from the members of its leaves and some random memories."""
    for t in range(trees.counters.shape[0]):
        leaf = np.int64(trees.leaf_of[t, slot])
        for i in range(trees.leaves[t, leaf]["size"]):
            prefetch_code(codes, np.int64(trees.members[t, leaf, i]))
        for i in range(trees.leaves[t, leaf]["size"]):
            other = np.int64(trees.members[t, leaf, i])
            if (other < slot or near[other, 0] != NONE) and is_met_first(walk, other):
                weigh_candidate(codes, walk, codes.values, start, other)
    for i in range(_N_DRAWN):
        if slot > 0:
            other = np.int64(mix(np.uint64(slot * _N_DRAWN + i)) % np.uint64(slot))
            if is_met_first(walk, other):
                weigh_candidate(codes, walk, codes.values, start, other)


@inner
def _link_slot(trees, codes, near, walk, slot):
    """Link a memory that has no links with near memories."""
    start, scale, n_links = slot * codes.n_features, codes.marks[slot]["scale"], near.shape[1]
    begin_walk(walk)
    is_met_first(walk, slot)
    _begin_at(trees, codes, near, walk, slot, start)
    follow_links(codes, near, walk, codes.values, start)
    n_chosen = 0
    for i in range(walk.totals[N_FOUND]):
        other = walk.slots[i]
        own = walk.scores[i] / codes.marks[other]["scale"] * scale
        if _is_covered_by_chosen(codes, walk, n_chosen, other, own):
            continue
        walk.slots[n_chosen] = other
        n_chosen += 1
        if 2 * n_chosen >= n_links:
            break
    for i in range(n_chosen):
        other = walk.slots[i]
        if near[slot, n_links - 1] != NONE:
            break
        if near[other, n_links - 1] == NONE or _make_room(codes, near, walk, other, slot):
            _link(near, slot, other)


@inner
def _is_covered_by_chosen(codes, walk, n_chosen, other, value):
    covered = False
    for i in range(n_chosen):
        if not covered:
            covered = _closeness(codes, other, walk.slots[i]) > value
    return covered


@inner
def _unlink_slot(codes, near, walk, slot):
    """Remove a memory's links, and link its neighbours with each other."""
    n = count_links(near, slot)
    for i in range(n):
        prefetch_links(near, np.int64(near[slot, i]))
        prefetch_code(codes, np.int64(near[slot, i]))
    for i in range(n):
        other = np.int64(near[slot, i])
        walk.ahead[i] = other
        _drop_link(near, other, slot)
        near[slot, i] = NONE
    for i in range(n):
        other, nearest, highest = walk.ahead[i], NONE, np.float32(-np.inf)
        if near[other, near.shape[1] - 1] != NONE:
            continue
        for j in range(n):
            third = walk.ahead[j]
            if third != other and near[third, near.shape[1] - 1] == NONE and not _are_linked(near, other, third):
                value = _closeness(codes, other, third)
                if value > highest:
                    nearest, highest = third, value
        if nearest != NONE:
            _link(near, other, nearest)


@kernel
def link_slots(view, near, breadth, slots):
    """Replace the links of the memories in ``slots`` according to their current keys.

    New memories must be linked in slot order. Writes ``near``.
    """
    forest = by_reference(view)
    trees, codes = forest.trees, forest.codes
    walk = new_walk(near, breadth)
    for i in range(slots.size):
        _unlink_slot(codes, near, walk, slots[i])
        _link_slot(trees, codes, near, walk, slots[i])
    release(walk)


@kernel
def unlink_slots(view, near, slots):
    """Remove the links of the memories in ``slots``, and link their neighbours with each other.

    Writes ``near``.
    """
    forest = by_reference(view)
    walk = new_walk(near, 0)
    for i in range(slots.size):
        _unlink_slot(forest.codes, near, walk, slots[i])
    release(walk)


@inner
def move_links(near, source, target):
    """Move the links of slot ``source`` to slot ``target``, which has none. No-op in a forest without links."""
    if near.shape[0] <= source or source == target:
        return
    for i in range(near.shape[1]):
        other = np.int64(near[source, i])
        near[target, i] = other
        near[source, i] = NONE
        if other != NONE:
            for j in range(near.shape[1]):
                if near[other, j] == source:
                    near[other, j] = target

"""Kernels: INSERT, INSERTLEAF, REMOVE and REROUTE (Algorithms 4 to 7).

A kernel may find an array full while a memory is on its way down. It then notes where the memory stands in the tree's
counters (``MOVING_SLOT``, ``MOVING_PLACE``) and returns; once there is more room it is called again and the memory goes
on from there, so nothing is done twice and growth leaves no trace in the tree. If there will be no more room,
:func:`undo_move` puts things back.
"""

import numpy as np

from ._jit import inner, kernel
from ._keys import drop_key, find_slot, key_end, key_start
from ._random import random_below
from ._routers import has_cells, locate, located_margin, new_workspace, router_margin, table_bits, train_router
from ._state import (
    COUNT,
    DONE,
    LEAVES_FULL,
    LEFT,
    MOVED_FROM,
    MOVING_PLACE,
    MOVING_SLOT,
    N_MEMORIES,
    NEXT_ROW,
    NODES_FULL,
    NONE,
    REROUTES_LEFT,
    RIGHT,
    ROOT,
    TABLES_FULL,
    leaf_limit,
)
from ._topology import (
    add_member,
    add_to_counts,
    collapse_if_empty,
    has_leaf,
    has_node,
    position_in_leaf,
    put_in_place_of,
    set_parent,
    take_leaf,
    take_member,
    take_node,
)

_SPLIT_PASSES = 5  # how often a fresh router sees the memories of a split leaf before it parts them


@inner
def balance(n_left, n_right):
    """Return log n_left - log n_right, each count one larger so that an empty side is finite."""
    return np.log((n_left + 1.0) / (n_right + 1.0))


@inner
def _teach(state, t, node, slot, work):
    """Train a node's router on a memory as INSERT does (Algorithm 4, lines 2 to 4) and return its side.

    The row has been located. The label is the side that the router leans to unless that side has grown too heavy.
    """
    keys, nodes, alpha = state.keys, state.nodes, state.parameters.alpha
    a, b = key_start(state, slot), key_end(state, slot)
    margin = located_margin(state, t, node, keys.values, a, b, work)
    pull = (1.0 - alpha) * margin + alpha * balance(nodes.below[t, node, LEFT], nodes.below[t, node, RIGHT])
    label = 1.0 if pull > 0.0 else -1.0
    margin = train_router(state, t, node, keys.values, a, b, work, margin, label, 1.0)
    nodes.examples[t, node] += 1
    nodes.mistakes[t, node] += (margin > 0.0) != (label > 0.0)
    return RIGHT if margin > 0.0 else LEFT


@inner
def _split(state, t, leaf, work):
    """Turn a full leaf into an internal node above two leaves (Algorithm 5, lines 3 to 7).

    Returns what is full if there is no room, with nothing changed.
    """
    keys, nodes, leaves = state.keys, state.nodes, state.leaves
    if not has_node(state, t):
        return NODES_FULL
    if not has_leaf(state, t):
        return LEAVES_FULL
    size = leaves.size[t, leaf]
    if state.parameters.sparse:
        n_cells = 0
        for i in range(size):
            n_cells += keys.length[leaves.members[t, leaf, i]]
        if not has_cells(state, t, 2 << table_bits(n_cells)):
            return TABLES_FULL
    node = take_node(state, t)
    put_in_place_of(state, t, ~leaf, node)
    for _ in range(_SPLIT_PASSES):
        nodes.below[t, node, LEFT] = 0
        nodes.below[t, node, RIGHT] = 0
        for i in range(size):
            slot = leaves.members[t, leaf, i]
            a, b = key_start(state, slot), key_end(state, slot)
            locate(state, t, node, keys.values, keys.indices, a, b, work)
            nodes.below[t, node, _teach(state, t, node, slot, work)] += 1
    _share_out(state, t, node, leaf, take_leaf(state, t))
    return DONE


@inner
def _share_out(state, t, node, left, right):
    """Give the members of leaf ``left`` to the two leaves below ``node`` as its router says, neither of them none."""
    nodes, leaves = state.nodes, state.leaves
    size = leaves.size[t, left]
    n_right = 0
    lowest, highest = np.float32(np.inf), np.float32(-np.inf)
    for i in range(size):
        margin = _member_margin(state, t, node, left, i)
        n_right += margin > 0.0
        lowest, highest = min(lowest, margin), max(highest, margin)
    if n_right == 0 or n_right == size:
        # The router sends all one way: move its threshold to the middle.
        state.routers.bias[t, node] -= (lowest + highest) / 2
    alike = lowest == highest  # no router can part the same key from itself; any halves will do
    leaves.size[t, left] = 0
    for i in range(size):
        slot = leaves.members[t, left, i]
        to_right = i % 2 == 1 if alike else _member_margin(state, t, node, left, i) > 0.0
        add_member(state, t, right if to_right else left, slot)
    nodes.child[t, node, LEFT] = ~left
    nodes.child[t, node, RIGHT] = ~right
    nodes.below[t, node, LEFT] = leaves.size[t, left]
    nodes.below[t, node, RIGHT] = leaves.size[t, right]
    set_parent(state, t, ~left, node)
    set_parent(state, t, ~right, node)


@inner
def _member_margin(state, t, node, leaf, i):
    keys = state.keys
    slot = state.leaves.members[t, leaf, i]
    return router_margin(state, t, node, keys.values, keys.indices, key_start(state, slot), key_end(state, slot))


@inner
def _insert_from(state, t, slot, place, n, work):
    """INSERT (Algorithm 4) from ``place`` on, in a tree of ``n`` memories with this one.

    Returns DONE, or what is full, with the place reached in the tree's counters.
    """
    keys, nodes = state.keys, state.nodes
    a, b = key_start(state, slot), key_end(state, slot)
    limit = leaf_limit(state.parameters.leaf_multiplier, n)
    status = DONE
    while True:
        if place >= 0:
            if not locate(state, t, place, keys.values, keys.indices, a, b, work):
                status = TABLES_FULL
                break
            side = _teach(state, t, place, slot, work)
            nodes.below[t, place, side] += 1
            place = nodes.child[t, place, side]
        elif state.leaves.size[t, ~place] < limit:
            add_member(state, t, ~place, slot)
            break
        else:
            status = _split(state, t, ~place, work)
            if status != DONE:
                break
            place = np.int64(state.leaves.parent[t, ~place])  # the new node
    state.counters[t, MOVING_PLACE] = place
    return status


@inner
def _begin_move(state, t, slot, moved_from):
    counters = state.counters
    counters[t, MOVING_SLOT] = slot
    counters[t, MOVING_PLACE] = counters[t, ROOT]
    counters[t, MOVED_FROM] = moved_from


@inner
def _begin_reroute(state, t):
    """REROUTE (Algorithm 7): take a memory drawn uniformly out of its leaf and send it down from the root.

    The leaf it came from stays until the memory has arrived, so that it can be put back.
    """
    slot = random_below(state.streams, t, state.counters[t, COUNT])
    leaf = np.int64(state.leaves.leaf_of[t, slot])
    take_member(state, t, leaf, slot)
    add_to_counts(state, t, ~leaf, -1)
    _begin_move(state, t, slot, leaf)


@inner
def _finish_move(state, t, work):
    """Send the moving memory on its way; return DONE when it has arrived, or what is full."""
    counters = state.counters
    slot, leaf = counters[t, MOVING_SLOT], counters[t, MOVED_FROM]
    n = counters[t, COUNT] + (leaf == NONE)
    status = _insert_from(state, t, slot, counters[t, MOVING_PLACE], n, work)
    if status == DONE:
        counters[t, MOVING_SLOT] = NONE
        if leaf == NONE:
            counters[t, COUNT] += 1
        else:
            collapse_if_empty(state, t, leaf)
    return status


@inner
def finish_step(state, t, work):
    """Finish the move under way and the reroutes that are due; return DONE or what is full."""
    counters = state.counters
    while True:
        if counters[t, MOVING_SLOT] != NONE:
            status = _finish_move(state, t, work)
            if status != DONE:
                return status
        elif counters[t, REROUTES_LEFT] > 0 and counters[t, COUNT] > 0:
            counters[t, REROUTES_LEFT] -= 1
            _begin_reroute(state, t)
        else:
            counters[t, REROUTES_LEFT] = 0
            return DONE


@kernel
def insert_slots(state, t, stop):
    """INSERT the memories up to slot ``stop`` into tree ``t``, each followed by the reroutes due."""
    counters = state.counters
    work = new_workspace(state, 0)
    while True:
        status = finish_step(state, t, work)
        if status != DONE or counters[t, COUNT] == stop:
            return status
        _begin_move(state, t, counters[t, COUNT], NONE)
        counters[t, REROUTES_LEFT] = state.parameters.n_reroutes


@kernel
def reroute_tree(state, t, stop):
    """REROUTE tree ``t`` once for each row from the one in its counters up to ``stop``."""
    counters = state.counters
    counters[t, REROUTES_LEFT] += stop - counters[t, NEXT_ROW]
    counters[t, NEXT_ROW] = stop
    return finish_step(state, t, new_workspace(state, 0))


@kernel
def undo_move(state, t):
    """Give up the step under way: put a rerouted memory back where it was, forget one that was being inserted."""
    counters = state.counters
    counters[t, REROUTES_LEFT] = 0
    slot, leaf = counters[t, MOVING_SLOT], counters[t, MOVED_FROM]
    if slot == NONE:
        return
    add_to_counts(state, t, counters[t, MOVING_PLACE], -1)
    if leaf != NONE:
        add_member(state, t, leaf, slot)
        add_to_counts(state, t, ~leaf, 1)
    counters[t, MOVING_SLOT] = NONE


@inner
def _remove_slot(state, t, slot, last):
    """REMOVE (Algorithm 6) a memory from a tree, and call the memory ``last`` by the slot that this frees."""
    leaves = state.leaves
    leaf = np.int64(leaves.leaf_of[t, slot])
    take_member(state, t, leaf, slot)
    add_to_counts(state, t, ~leaf, -1)
    collapse_if_empty(state, t, leaf)
    state.counters[t, COUNT] -= 1
    if slot != last:
        leaf = np.int64(leaves.leaf_of[t, last])
        leaves.members[t, leaf, position_in_leaf(state, t, leaf, last)] = slot
        leaves.leaf_of[t, slot] = leaf


@kernel
def remove_slots_from(state, t, first):
    """REMOVE the memories in slots ``first`` and above from tree ``t`` alone, keeping their keys."""
    while state.counters[t, COUNT] > first:
        last = state.counters[t, COUNT] - 1
        _remove_slot(state, t, last, last)


@kernel
def remove_ids(state, ids):
    """REMOVE memories from every tree and from the key store."""
    for i in range(ids.size):
        slot = find_slot(state.keys, ids[i])
        last = state.keys.totals[N_MEMORIES] - 1
        for t in range(state.parameters.n_trees):
            _remove_slot(state, t, slot, last)
        drop_key(state, slot)

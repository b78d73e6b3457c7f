"""Kernels: INSERT, INSERTLEAF, REMOVE and REROUTE (Algorithms 4 to 7).

A kernel may find an array full while a memory is on its way down. It then notes where the memory stands in the tree's
counters (``MOVING_SLOT``, ``MOVING_PLACE``) and returns; once there is more room it is called again and the memory goes
on from there, so nothing is done twice and growth leaves no trace in the tree. If there will be no more room,
:func:`undo_move` puts things back.
"""

import numpy as np

from .._jit import by_reference, by_value, inner, inner_called, inner_merged, kernel, prefetch
from .key_store import drop_key, find_slot, key_of, longest_key, prefetch_key
from .linear_model import locate, located_margin, margin_of, new_workspace, release_model, reset_model
from .lru_list import take_out_slot
from .quantization import move_code
from .rng import peek_below, random_below
from .routers import forget_absent, train_router
from .sparse_weights import has_cells, table_bits
from .state import (
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
from .topology import (
    add_member,
    add_to_counts,
    child_of,
    free_leaf,
    free_node,
    has_leaf,
    has_node,
    parent_of,
    position_in_leaf,
    put_in_place_of,
    set_parent,
    side_of,
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
def _teach(state, t, node, x, work):
    """Train a node's router on a key as INSERT does (Algorithm 4, lines 2 to 4) and return its side.

    The key has been located. The label is the side that the router leans to unless that side has grown too heavy.
    """
    record, alpha = state.nodes[t, node], state.parameters.alpha
    margin = located_margin(state, t, node, x, work)
    pull = (1.0 - alpha) * margin + alpha * balance(record["below"][LEFT], record["below"][RIGHT])
    label = 1.0 if pull > 0.0 else -1.0
    margin = train_router(state, t, node, x, work, margin, label, 1.0)
    record["examples"] += 1
    record["mistakes"] += (margin > 0.0) != (label > 0.0)
    return RIGHT if margin > 0.0 else LEFT


@inner_called
def _split(state, t, leaf, work):
    """Turn a full leaf into an internal node above two leaves (Algorithm 5, lines 3 to 7).

    Returns what is full if there is no room, with nothing changed.
    """
    state = by_reference(state)
    if not has_node(state, t):
        return NODES_FULL
    if not has_leaf(state, t):
        return LEAVES_FULL
    size = np.int64(state.leaves[t, leaf]["size"])
    if state.parameters.sparse:
        n_cells = 0
        for i in range(size):
            x = key_of(state, np.int64(state.members[t, leaf, i]))
            n_cells += x.b - x.a
        if not has_cells(state, t, 2 << table_bits(n_cells)):
            return TABLES_FULL
    node = _take_node_above(state, t, leaf, take_leaf(state, t))
    below = state.nodes[t, node]["below"]
    for _ in range(_SPLIT_PASSES):
        below[LEFT] = 0
        below[RIGHT] = 0
        for i in range(size):
            x = key_of(state, np.int64(state.members[t, leaf, i]))
            locate(state, t, node, x, work)
            below[_teach(state, t, node, x, work)] += 1
    _share_out(state, t, node)
    return DONE


@inner_merged
def _take_node_above(state, t, left, right):
    """Return a new internal node that hangs where leaf ``left`` did, above the leaves ``left`` and ``right``."""
    node = take_node(state, t)
    reset_model(state, t, node)
    put_in_place_of(state, t, ~left, node)
    state.nodes[t, node]["child"][LEFT] = ~left
    state.nodes[t, node]["child"][RIGHT] = ~right
    set_parent(state, t, ~left, node)
    set_parent(state, t, ~right, node)
    return node


@inner_merged
def _share_out(state, t, node):
    """Move the memories of the left leaf below ``node`` that its router sends right, leaving neither leaf empty."""
    left, right = ~child_of(state, t, node, LEFT), ~child_of(state, t, node, RIGHT)
    size = np.int64(state.leaves[t, left]["size"])
    n_right, lowest, highest = _sides_of_members(state, t, node, left)
    if n_right == 0 or n_right == size:
        # The router sends all one way: move its threshold to the middle.
        state.nodes[t, node]["bias"] -= (lowest + highest) / 2
        n_right, _, _ = _sides_of_members(state, t, node, left)
    # No router can part the same key from itself, nor keys whose margins rounding makes the same: any halves will do.
    alike = n_right == 0 or n_right == size
    state.leaves[t, left]["size"] = 0
    for i in range(size):
        slot = np.int64(state.members[t, left, i])
        to_right = i % 2 == 1 if alike else _member_margin(state, t, node, left, i) > 0.0
        add_member(state, t, right if to_right else left, slot)
    state.nodes[t, node]["below"][LEFT] = state.leaves[t, left]["size"]
    state.nodes[t, node]["below"][RIGHT] = state.leaves[t, right]["size"]


@inner
def _sides_of_members(state, t, node, leaf):
    """Return how many of a leaf's memories the router of ``node`` sends right, and the lowest and highest margin."""
    n_right = 0
    lowest, highest = np.float32(np.inf), np.float32(-np.inf)
    for i in range(state.leaves[t, leaf]["size"]):
        margin = _member_margin(state, t, node, leaf, i)
        n_right += margin > 0.0
        lowest, highest = min(lowest, margin), max(highest, margin)
    return n_right, lowest, highest


@inner
def _member_margin(state, t, node, leaf, i):
    return margin_of(state, t, node, key_of(state, np.int64(state.members[t, leaf, i])))


@inner_merged
def _insert_from(state, t, slot, place, n, work):
    """INSERT (Algorithm 4) from ``place`` on, in a tree of ``n`` memories with this one.

    Returns DONE, or what is full, with the place reached in the tree's counters.
    """
    x = key_of(state, slot)
    limit = leaf_limit(state.parameters.leaf_multiplier, n)
    status = DONE
    while True:
        if place >= 0:
            if not locate(state, t, place, x, work):
                status = TABLES_FULL
                break
            side = _teach(state, t, place, x, work)
            below = state.nodes[t, place]["below"]
            if limit == 1 and below[side] == 1 and below[RIGHT - side] == 0:
                side = RIGHT - side  # splitting a leaf of one memory would only put it below another empty leaf
            below[side] += 1
            place = child_of(state, t, place, side)
        elif state.leaves[t, ~place]["size"] < limit:
            add_member(state, t, ~place, slot)
            break
        else:
            status = _split(by_value(state), t, ~place, work)
            if status != DONE:
                break
            place = parent_of(state, t, place)  # the new node
    state.counters[t, MOVING_PLACE] = place
    return status


@inner
def begin_move(state, t, slot, moved_from):
    """Set a memory on its way from the root; the leaf that it was taken out of, if any, stays until it has arrived."""
    counters = state.counters
    following = peek_below(state.streams, t, counters[t, COUNT])  # what the next reroute will most likely draw
    prefetch(state.leaf_of[t], following)
    prefetch_key(state, following)
    counters[t, MOVING_SLOT] = slot
    counters[t, MOVING_PLACE] = counters[t, ROOT]
    counters[t, MOVED_FROM] = moved_from


@inner_merged
def _begin_reroute(state, t):
    """REROUTE (Algorithm 7): take a memory drawn uniformly out of its leaf and send it down from the root.

    The leaf it came from stays until the memory has arrived, so that it can be put back.
    """
    slot = random_below(state.streams, t, state.counters[t, COUNT])
    leaf = np.int64(state.leaf_of[t, slot])
    take_member(state, t, leaf, slot)
    add_to_counts(state, t, ~leaf, -1)
    begin_move(state, t, slot, leaf)


@inner_merged
def _collapse_if_empty(state, t, leaf):
    """Let an emptied leaf and its parent disappear: the leaf's sibling takes the parent's place."""
    node = parent_of(state, t, ~leaf)
    if state.leaves[t, leaf]["size"] > 0 or node == NONE:
        return
    sibling = child_of(state, t, node, RIGHT - side_of(state, t, node, ~leaf))
    put_in_place_of(state, t, node, sibling)
    release_model(state, t, node)
    free_node(state, t, node)
    free_leaf(state, t, leaf)


@inner_merged
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
            _collapse_if_empty(state, t, leaf)
    return status


@inner_called
def finish_step(state, t, work):
    """Finish the move under way and the reroutes that are due; return DONE or what is full."""
    state = by_reference(state)
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
    state = by_reference(state)
    counters = state.counters
    work = new_workspace(longest_key(state))
    while True:
        status = finish_step(by_value(state), t, work)
        if status != DONE or counters[t, COUNT] == stop:
            return status
        begin_move(state, t, counters[t, COUNT], NONE)
        counters[t, REROUTES_LEFT] = state.parameters.n_reroutes


@kernel
def reroute_tree(state, t, stop):
    """REROUTE tree ``t`` once for each row from the one in its counters up to ``stop``."""
    state = by_reference(state)
    counters = state.counters
    counters[t, REROUTES_LEFT] += stop - counters[t, NEXT_ROW]
    counters[t, NEXT_ROW] = stop
    return finish_step(by_value(state), t, new_workspace(longest_key(state)))


@kernel
def undo_move(state, t):
    """Give up the step under way: put a rerouted memory back where it was, forget one that was being inserted."""
    state = by_reference(state)
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
def forget_above(state, t, place):
    """Let routers above a place from which a memory has gone forget, each once half of what it had has gone."""
    node = parent_of(state, t, place)
    while node != NONE:
        record = state.nodes[t, node]
        record["departed"] += 1
        if 2 * np.int64(record["departed"]) >= np.int64(record["below"][LEFT]) + record["below"][RIGHT]:
            forget_absent(state, t, node)
            record["departed"] = 0
        node = parent_of(state, t, node)


@inner
def _remove_slot(state, t, slot, last):
    """REMOVE (Algorithm 6) a memory from a tree, and call the memory ``last`` by the slot that this frees."""
    leaf = np.int64(state.leaf_of[t, slot])
    take_member(state, t, leaf, slot)
    add_to_counts(state, t, ~leaf, -1)
    forget_above(state, t, ~leaf)
    _collapse_if_empty(state, t, leaf)
    state.counters[t, COUNT] -= 1
    if slot != last:
        leaf = np.int64(state.leaf_of[t, last])
        state.members[t, leaf, position_in_leaf(state, t, leaf, last)] = slot
        state.leaf_of[t, slot] = leaf


@kernel
def remove_slots_from(state, t, first):
    """REMOVE the memories in slots ``first`` and above from tree ``t`` alone, keeping their keys."""
    state = by_reference(state)
    while state.counters[t, COUNT] > first:
        last = state.counters[t, COUNT] - 1
        _remove_slot(state, t, last, last)


@kernel
def remove_ids(state, recency, ids):
    """REMOVE memories from every tree, from the key store and from the order in which they were returned."""
    state = by_reference(state)
    for i in range(ids.size):
        slot = find_slot(state.keys, ids[i])
        last = state.keys.totals[N_MEMORIES] - 1
        for t in range(state.parameters.n_trees):
            _remove_slot(state, t, slot, last)
        if not state.parameters.sparse:
            move_code(state, last, slot)
        take_out_slot(recency, slot, last)
        drop_key(state, slot)

"""Kernels: INSERT, INSERTLEAF, REMOVE and REROUTE (Algorithms 4 to 7).

If an array is full while a kernel moves a memory down a tree, the kernel records the memory and its place in the tree's
counters (``MOVING_SLOT``, ``MOVING_PLACE``) and returns. After the array has grown, the next call resumes from there
without repeating a step, so the tree does not depend on when arrays grow. If the allocation fails, :func:`undo_moves`
undoes the move.

To replace its key, a memory leaves its leaf as in REMOVE and moves down from the root as in INSERT. It keeps its id and
slot. Callers write all keys first, so a failure leaves each memory in its old or its new leaf, both of which are valid.
"""

from typing import NamedTuple

import numpy as np

from .._jit import by_reference, inner, inner_called, kernel, prefetch, release
from .._kernels import (
    LEFT,
    N_MEMORIES,
    NEXT_ID,
    NONE,
    RIGHT,
    drop_key,
    find_slot,
    key_of,
    longest_key,
    overwrite_key,
    peek_below,
    prefetch_key,
    random_below,
)
from .._linear import (
    DONE,
    TABLES_FULL,
    locate_or_insert,
    located_margin,
    margin_of,
    new_workspace,
    release_model,
    request_cells,
    reset_model,
    table_bits,
)
from . import topology
from .eviction import take_out_slot
from .routers import aim_router, forget_absent, train_router
from .state import COUNT, MOVED_FROM, MOVING_PLACE, MOVING_SLOT, REROUTES_LEFT, ROOT, leaf_limit

_SPLIT_PASSES = 5  # passes over the memories of a split leaf that train the new router


@inner
def balance(n_left, n_right):
    """Return ``log(n_left) - log(n_right)`` after adding 1 to each count, which keeps the result finite."""
    return np.log((n_left + 1.0) / (n_right + 1.0))


@inner
def _teach(parameters, trees, routers, t, node, x, work):
    """Train a node's router on a located key (Algorithm 4, lines 2 to 4), and return the side that it then favours.

    The label is the side that the router favours before training, unless that side has too many memories.
    """
    record, alpha = trees.nodes[t, node], parameters.alpha
    margin = located_margin(routers, t, node, x, work)
    pull = (1.0 - alpha) * margin + alpha * balance(record["below"][LEFT], record["below"][RIGHT])
    label = 1.0 if pull > 0.0 else -1.0
    margin = train_router(parameters, routers, t, node, x, work, margin, label, 1.0)
    record["examples"] += 1
    record["mistakes"] += (margin > 0.0) != (label > 0.0)
    return RIGHT if margin > 0.0 else LEFT


@inner_called
def _split(view, t, leaf, work):
    """Replace a full leaf by a node above two leaves (Algorithm 5, lines 3 to 7); return DONE or the full array."""
    forest = by_reference(view)
    trees, routers, keys = forest.trees, forest.routers, forest.keys
    status = topology.check_room(trees, t)
    if status != DONE:
        return status
    size = np.int64(trees.leaves[t, leaf]["size"])
    if keys.sparse:
        n_cells = 0
        for i in range(size):
            x = key_of(keys, np.int64(trees.members[t, leaf, i]))
            n_cells += x.b - x.a
        if request_cells(routers, t, 2 << table_bits(n_cells)) != DONE:
            return TABLES_FULL
    node = _take_node_above(trees, routers, t, leaf, topology.take_leaf(trees, t))
    aim_router(trees, routers, keys, t, node, leaf, work)
    below = trees.nodes[t, node]["below"]
    for _ in range(_SPLIT_PASSES):
        below[LEFT] = 0
        below[RIGHT] = 0
        for i in range(size):
            x = key_of(keys, np.int64(trees.members[t, leaf, i]))
            locate_or_insert(routers, t, node, x, work)
            below[_teach(forest.parameters, trees, routers, t, node, x, work)] += 1
    _share_out(trees, routers, keys, t, node)
    return DONE


@inner
def _take_node_above(trees, routers, t, left, right):
    """Insert a new internal node in place of the leaf ``left``, with the children ``left`` and ``right``; return it."""
    node = topology.take_node(trees, t)
    reset_model(routers, t, node)
    topology.put_in_place_of(trees, t, ~left, node)
    trees.nodes[t, node]["child"][LEFT] = ~left
    trees.nodes[t, node]["child"][RIGHT] = ~right
    topology.set_parent(trees, t, ~left, node)
    topology.set_parent(trees, t, ~right, node)
    return node


@inner
def _share_out(trees, routers, keys, t, node):
    """Divide the memories of the left leaf below ``node`` by its router. Neither leaf stays empty."""
    left, right = ~topology.child_of(trees, t, node, LEFT), ~topology.child_of(trees, t, node, RIGHT)
    size = np.int64(trees.leaves[t, left]["size"])
    n_right, lowest, highest = _sides_of_members(trees, routers, keys, t, node, left)
    if n_right == 0 or n_right == size:
        # All memories are on one side: shift the bias to the middle of their margins.
        trees.nodes[t, node]["bias"] -= (lowest + highest) / 2
        n_right, _, _ = _sides_of_members(trees, routers, keys, t, node, left)
    # No router can separate equal keys or equal rounded margins: assign these memories to the sides alternately.
    alike = n_right == 0 or n_right == size
    trees.leaves[t, left]["size"] = 0
    for i in range(size):
        slot = np.int64(trees.members[t, left, i])
        to_right = i % 2 == 1 if alike else _member_margin(trees, routers, keys, t, node, left, i) > 0.0
        topology.add_member(trees, t, right if to_right else left, slot)
    trees.nodes[t, node]["below"][LEFT] = trees.leaves[t, left]["size"]
    trees.nodes[t, node]["below"][RIGHT] = trees.leaves[t, right]["size"]


@inner
def _sides_of_members(trees, routers, keys, t, node, leaf):
    """Return the number of a leaf's memories that the router sends right, and the lowest and highest margins."""
    n_right = 0
    lowest, highest = np.float32(np.inf), np.float32(-np.inf)
    for i in range(np.int64(trees.leaves[t, leaf]["size"])):
        margin = _member_margin(trees, routers, keys, t, node, leaf, i)
        n_right += margin > 0.0
        lowest, highest = min(lowest, margin), max(highest, margin)
    return n_right, lowest, highest


@inner
def _member_margin(trees, routers, keys, t, node, leaf, i):
    return margin_of(routers, t, node, key_of(keys, np.int64(trees.members[t, leaf, i])))


@inner
def _insert_from(view, forest, t, slot, place, n, work):
    """Move a memory from ``place`` down to a leaf (INSERT, Algorithm 4).

    ``n`` is the size of the tree including this memory. Writes the place reached to ``MOVING_PLACE``. Returns DONE, or
    the status of a full array.
    """
    trees, routers = forest.trees, forest.routers
    x = key_of(forest.keys, slot)
    limit = leaf_limit(forest.parameters.leaf_multiplier, n)
    status = DONE
    while True:
        if place >= 0:
            if locate_or_insert(routers, t, place, x, work) != DONE:
                status = TABLES_FULL
                break
            side = _teach(forest.parameters, trees, routers, t, place, x, work)
            below = trees.nodes[t, place]["below"]
            if limit == 1 and below[side] == 1 and below[RIGHT - side] == 0:
                side = RIGHT - side  # splitting a leaf of one memory would only create an empty sibling
            below[side] += 1
            place = topology.child_of(trees, t, place, side)
        elif trees.leaves[t, ~place]["size"] < limit:
            topology.add_member(trees, t, ~place, slot)
            break
        else:
            status = _split(view, t, ~place, work)
            if status != DONE:
                break
            place = topology.parent_of(trees, t, place)  # the new internal node
    trees.counters[t, MOVING_PLACE] = place
    return status


@inner
def begin_move(trees, keys, t, slot, moved_from):
    """Begin to move a memory down from the root. ``moved_from`` is its former leaf, or NONE for a new memory."""
    counters = trees.counters
    following = peek_below(trees.streams, t, counters[t, COUNT])  # the next reroute usually draws this memory
    prefetch(trees.leaf_of[t], following)
    prefetch_key(keys, following)
    counters[t, MOVING_SLOT] = slot
    counters[t, MOVING_PLACE] = counters[t, ROOT]
    counters[t, MOVED_FROM] = moved_from


@inner
def _begin_reroute(trees, keys, t):
    """Take a random memory out of its leaf, and begin to move it down from the root (REROUTE, Algorithm 7).

    The former leaf is not freed before the move is complete, so the move can be undone.
    """
    slot = random_below(trees.streams, t, trees.counters[t, COUNT])
    leaf = np.int64(trees.leaf_of[t, slot])
    topology.take_member(trees, t, leaf, slot)
    topology.add_to_counts(trees, t, ~leaf, -1)
    begin_move(trees, keys, t, slot, leaf)


@inner
def _collapse_if_empty(trees, routers, t, leaf):
    """If a leaf is empty, free it and its parent, and put its sibling in the parent's place."""
    node = topology.parent_of(trees, t, ~leaf)
    if trees.leaves[t, leaf]["size"] > 0 or node == NONE:
        return
    sibling = topology.child_of(trees, t, node, RIGHT - topology.side_of(trees, t, node, ~leaf))
    topology.put_in_place_of(trees, t, node, sibling)
    release_model(routers, t, node)
    topology.free_node(trees, t, node)
    topology.free_leaf(trees, t, leaf)


@inner
def _finish_move(view, forest, t, work):
    """Continue the current move; return DONE when it is complete, or the status of a full array."""
    counters = forest.trees.counters
    slot, leaf = counters[t, MOVING_SLOT], counters[t, MOVED_FROM]
    n = counters[t, COUNT] + (leaf == NONE)
    status = _insert_from(view, forest, t, slot, counters[t, MOVING_PLACE], n, work)
    if status == DONE:
        counters[t, MOVING_SLOT] = NONE
        if leaf == NONE:
            counters[t, COUNT] += 1
        else:
            _collapse_if_empty(forest.trees, forest.routers, t, leaf)
    return status


@inner_called
def finish_step(view, t, work):
    """Complete the current move and all pending reroutes; return DONE, or the status of a full array."""
    forest = by_reference(view)
    counters = forest.trees.counters
    while True:
        if counters[t, MOVING_SLOT] != NONE:
            status = _finish_move(view, forest, t, work)
            if status != DONE:
                return status
        elif counters[t, REROUTES_LEFT] > 0 and counters[t, COUNT] > 0:
            counters[t, REROUTES_LEFT] -= 1
            _begin_reroute(forest.trees, forest.keys, t)
        else:
            counters[t, REROUTES_LEFT] = 0
            return DONE


@kernel
def insert_slots(view, some, stop, n_reroutes):
    """Insert the memories below slot ``stop`` into the trees ``some``, with ``n_reroutes`` reroutes after each.

    Returns DONE, or the status of a full array; the next call then resumes. Writes the shape and the routers of these
    trees.
    """
    forest = by_reference(view)
    trees, keys = forest.trees, forest.keys
    counters, status = trees.counters, DONE
    work = new_workspace(longest_key(keys))
    for t in range(some.first, some.stop):
        while True:
            status = finish_step(view, t, work)
            if status != DONE or counters[t, COUNT] == stop:
                break
            begin_move(trees, keys, t, counters[t, COUNT], NONE)
            counters[t, REROUTES_LEFT] = n_reroutes
        if status != DONE:
            break
    release(work)
    return status


class Turn(NamedTuple):
    """The progress of trees through the rows of a change."""

    at: np.ndarray  # int64 (trees,): the next row of each tree, which kernels advance
    stop: int  # the end of the range of rows


def begin_reroutes(counters: np.ndarray, n: int) -> None:
    """Schedule ``n`` more reroutes in every tree for the next call of :func:`insert_slots`."""
    counters[:, REROUTES_LEFT] += n


@kernel
def undo_moves(view):
    """Undo each tree's move: put a rerouted memory back into its leaf, and drop a new memory."""
    trees = by_reference(view).trees
    counters = trees.counters
    for t in range(counters.shape[0]):
        counters[t, REROUTES_LEFT] = 0
        slot, leaf = counters[t, MOVING_SLOT], counters[t, MOVED_FROM]
        if slot != NONE:
            topology.add_to_counts(trees, t, counters[t, MOVING_PLACE], -1)
            if leaf != NONE:
                topology.add_member(trees, t, leaf, slot)
                topology.add_to_counts(trees, t, ~leaf, 1)
            counters[t, MOVING_SLOT] = NONE


@inner
def forget_above(trees, routers, keys, t, place):
    """Count a removal at each node above a place.

    When the removals below a node reach half of its remaining memories, its router forgets absent features.
    """
    node = topology.parent_of(trees, t, place)
    while node != NONE:
        record = trees.nodes[t, node]
        record["departed"] += 1
        if 2 * np.int64(record["departed"]) >= np.int64(record["below"][LEFT]) + record["below"][RIGHT]:
            forget_absent(trees, routers, keys, t, node)
            record["departed"] = 0
        node = topology.parent_of(trees, t, node)


@inner
def _remove_slot(trees, routers, keys, t, slot, last):
    """Remove a memory from a tree (REMOVE, Algorithm 6), and give its slot to the memory in slot ``last``."""
    leaf = np.int64(trees.leaf_of[t, slot])
    topology.take_member(trees, t, leaf, slot)
    topology.add_to_counts(trees, t, ~leaf, -1)
    forget_above(trees, routers, keys, t, ~leaf)
    _collapse_if_empty(trees, routers, t, leaf)
    trees.counters[t, COUNT] -= 1
    if slot != last:
        leaf = np.int64(trees.leaf_of[t, last])
        trees.members[t, leaf, topology.position_in_leaf(trees, t, leaf, last)] = slot
        trees.leaf_of[t, slot] = leaf


@kernel
def withdraw_slots(view, first):
    """Remove the newest memories, in slots ``first`` and above, from trees and keys, and free their ids."""
    forest = by_reference(view)
    trees, keys = forest.trees, forest.keys
    for t in range(trees.counters.shape[0]):
        while trees.counters[t, COUNT] > first:
            last = trees.counters[t, COUNT] - 1
            _remove_slot(trees, forest.routers, keys, t, last, last)
    while keys.totals[N_MEMORIES] > first:
        drop_key(keys, keys.totals[N_MEMORIES] - 1)
        keys.totals[NEXT_ID] -= 1


@kernel
def remove_memories(view, recency, ids):
    """Remove the memories ``ids`` from every tree, from the key store and from ``recency``."""
    forest = by_reference(view)
    trees, routers, keys = forest.trees, forest.routers, forest.keys
    for i in range(ids.size):
        slot = find_slot(keys, ids[i])
        last = keys.totals[N_MEMORIES] - 1
        for t in range(trees.counters.shape[0]):
            _remove_slot(trees, routers, keys, t, slot, last)
        take_out_slot(recency, slot, last)
        drop_key(keys, slot)


@kernel
def overwrite_keys(view, slots, rows):
    """Replace the keys in ``slots`` by unit-length rows. The key store must have room."""
    keys = by_reference(view).keys
    for row in range(slots.size):
        overwrite_key(keys, slots[row], rows, row)


@kernel
def reinsert_slots(view, some, turn, slots):
    """Move the memories in ``slots`` to the leaves of their new keys in the trees ``some``, with reroutes after each.

    Returns DONE, or the status of a full array; the next call then resumes. Advances ``turn.at``, and writes the shape
    and the routers of these trees.
    """
    forest = by_reference(view)
    trees, routers, keys = forest.trees, forest.routers, forest.keys
    counters, at, status = trees.counters, turn.at, DONE
    work = new_workspace(longest_key(keys))
    for t in range(some.first, some.stop):
        while True:
            status = finish_step(view, t, work)
            if status != DONE or at[t] == turn.stop:
                break
            slot = slots[at[t]]
            at[t] += 1
            leaf = np.int64(trees.leaf_of[t, slot])
            topology.take_member(trees, t, leaf, slot)
            topology.add_to_counts(trees, t, ~leaf, -1)
            forget_above(trees, routers, keys, t, ~leaf)
            begin_move(trees, keys, t, slot, leaf)
            counters[t, REROUTES_LEFT] = forest.parameters.n_reroutes
        if status != DONE:
            break
    release(work)
    return status

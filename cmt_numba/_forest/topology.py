"""Kernels: the shape of a tree. Taking and freeing nodes and leaves, linking them, counting what is below."""

import numpy as np

from .._jit import inner
from .state import FREE_LEAF, FREE_NODE, LEAVES_END, LEFT, NODES_END, NONE, RIGHT, ROOT


@inner
def has_node(state, t):
    """Return whether an internal node can be taken."""
    counters = state.counters
    return counters[t, FREE_NODE] != NONE or counters[t, NODES_END] < state.nodes.shape[1]


@inner
def has_leaf(state, t):
    """Return whether a leaf can be taken."""
    counters = state.counters
    return counters[t, FREE_LEAF] != NONE or counters[t, LEAVES_END] < state.leaves.shape[1]


@inner
def take_node(state, t):
    """Return an internal node with nothing below it; its router is still to be reset."""
    counters, nodes = state.counters, state.nodes
    node = counters[t, FREE_NODE]
    if node != NONE:
        counters[t, FREE_NODE] = nodes[t, node]["parent"]
    else:
        node = counters[t, NODES_END]
        counters[t, NODES_END] += 1
    for side in (LEFT, RIGHT):
        nodes[t, node]["below"][side] = 0
    nodes[t, node]["examples"] = 0
    nodes[t, node]["mistakes"] = 0
    nodes[t, node]["departed"] = 0
    return node


@inner
def take_leaf(state, t):
    """Return an empty leaf."""
    counters, leaves = state.counters, state.leaves
    leaf = counters[t, FREE_LEAF]
    if leaf != NONE:
        counters[t, FREE_LEAF] = leaves[t, leaf]["parent"]
    else:
        leaf = counters[t, LEAVES_END]
        counters[t, LEAVES_END] += 1
    leaves[t, leaf]["size"] = 0
    leaves[t, leaf]["packed"] = NONE
    return leaf


@inner
def free_node(state, t, node):
    """Put an internal node on the free list; records of explorations there become void."""
    state.nodes[t, node]["generation"] += 1
    state.nodes[t, node]["parent"] = state.counters[t, FREE_NODE]
    state.counters[t, FREE_NODE] = node


@inner
def free_leaf(state, t, leaf):
    """Put a leaf on the free list."""
    state.leaves[t, leaf]["size"] = 0
    state.leaves[t, leaf]["parent"] = state.counters[t, FREE_LEAF]
    state.counters[t, FREE_LEAF] = leaf


@inner
def parent_of(state, t, place):
    """Return the internal node above a place, NONE above the root."""
    if place >= 0:
        return np.int64(state.nodes[t, place]["parent"])
    return np.int64(state.leaves[t, ~place]["parent"])


@inner
def child_of(state, t, node, side):
    """Return the place on one side of an internal node."""
    return np.int64(state.nodes[t, node]["child"][side])


@inner
def side_of(state, t, node, place):
    """Return on which side of ``node`` its child ``place`` hangs."""
    return LEFT if child_of(state, t, node, LEFT) == place else RIGHT


@inner
def set_parent(state, t, place, node):
    """Name ``node`` as the parent of ``place``."""
    if place >= 0:
        state.nodes[t, place]["parent"] = node
    else:
        state.leaves[t, ~place]["parent"] = node


@inner
def put_in_place_of(state, t, old, new):
    """Hang ``new`` where ``old`` hangs."""
    node = parent_of(state, t, old)
    set_parent(state, t, new, node)
    if node == NONE:
        state.counters[t, ROOT] = new
    else:
        state.nodes[t, node]["child"][side_of(state, t, node, old)] = new


@inner
def add_to_counts(state, t, place, amount):
    """Add ``amount`` to the counts of every internal node above ``place``."""
    node = parent_of(state, t, place)
    while node != NONE:
        state.nodes[t, node]["below"][side_of(state, t, node, place)] += amount
        place = node
        node = parent_of(state, t, place)


@inner
def first_leaf(state, t, place):
    """Return the leftmost leaf below a place."""
    while place >= 0:
        place = child_of(state, t, place, LEFT)
    return ~place


@inner
def next_leaf(state, t, top, leaf):
    """Return the leaf to the right of ``leaf`` among those below the node ``top``, NONE after the last."""
    place = ~leaf
    node = parent_of(state, t, place)
    while side_of(state, t, node, place) == RIGHT:
        if node == top:
            return NONE
        place = node
        node = parent_of(state, t, place)
    return first_leaf(state, t, child_of(state, t, node, RIGHT))


@inner
def add_member(state, t, leaf, slot):
    """Put a memory into a leaf that has room."""
    leaves = state.leaves
    state.members[t, leaf, leaves[t, leaf]["size"]] = slot
    leaves[t, leaf]["size"] += 1
    leaves[t, leaf]["packed"] = NONE
    state.leaf_of[t, slot] = leaf


@inner
def position_in_leaf(state, t, leaf, slot):
    """Return where in its leaf a memory stands."""
    members = state.members
    position = 0
    while members[t, leaf, position] != slot:
        position += 1
    return position


@inner
def take_member(state, t, leaf, slot):
    """Take a memory out of its leaf."""
    leaves = state.leaves
    position = position_in_leaf(state, t, leaf, slot)
    leaves[t, leaf]["size"] -= 1
    leaves[t, leaf]["packed"] = NONE
    state.members[t, leaf, position] = state.members[t, leaf, leaves[t, leaf]["size"]]

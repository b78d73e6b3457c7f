"""Kernels: the shape of a tree: allocating, freeing and linking nodes and leaves, and counting memories below."""

import numpy as np

from .._jit import inner
from .state import FREE_LEAF, FREE_NODE, LEAVES_END, LEFT, NODES_END, NONE, RIGHT, ROOT


@inner
def has_node(trees, t):
    """Return whether a node is free."""
    counters = trees.counters
    return counters[t, FREE_NODE] != NONE or counters[t, NODES_END] < trees.nodes.shape[1]


@inner
def has_leaf(trees, t):
    """Return whether a leaf is free."""
    counters = trees.counters
    return counters[t, FREE_LEAF] != NONE or counters[t, LEAVES_END] < trees.leaves.shape[1]


@inner
def take_node(trees, t):
    """Take a free node, with nothing below it, and return it. The caller resets its router."""
    counters, nodes = trees.counters, trees.nodes
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
def take_leaf(trees, t):
    """Take a free leaf, empty it, and return it."""
    counters, leaves = trees.counters, trees.leaves
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
def free_node(trees, t, node):
    """Put an internal node on the free list; records of explorations there become void."""
    trees.nodes[t, node]["generation"] += 1
    trees.nodes[t, node]["parent"] = trees.counters[t, FREE_NODE]
    trees.counters[t, FREE_NODE] = node


@inner
def free_leaf(trees, t, leaf):
    """Put a leaf on the free list."""
    trees.leaves[t, leaf]["size"] = 0
    trees.leaves[t, leaf]["parent"] = trees.counters[t, FREE_LEAF]
    trees.counters[t, FREE_LEAF] = leaf


@inner
def parent_of(trees, t, place):
    """Return the internal node above a place, NONE above the root."""
    if place >= 0:
        return np.int64(trees.nodes[t, place]["parent"])
    return np.int64(trees.leaves[t, ~place]["parent"])


@inner
def child_of(trees, t, node, side):
    """Return the place on one side of an internal node."""
    return np.int64(trees.nodes[t, node]["child"][side])


@inner
def side_of(trees, t, node, place):
    """Return the side of ``node`` on which its child ``place`` is."""
    return LEFT if child_of(trees, t, node, LEFT) == place else RIGHT


@inner
def set_parent(trees, t, place, node):
    """Set ``node`` as the parent of ``place``."""
    if place >= 0:
        trees.nodes[t, place]["parent"] = node
    else:
        trees.leaves[t, ~place]["parent"] = node


@inner
def put_in_place_of(trees, t, old, new):
    """Replace ``old`` by ``new`` below its parent, or as the root."""
    node = parent_of(trees, t, old)
    set_parent(trees, t, new, node)
    if node == NONE:
        trees.counters[t, ROOT] = new
    else:
        trees.nodes[t, node]["child"][side_of(trees, t, node, old)] = new


@inner
def add_to_counts(trees, t, place, amount):
    """Add ``amount`` to the counts of every internal node above ``place``."""
    node = parent_of(trees, t, place)
    while node != NONE:
        trees.nodes[t, node]["below"][side_of(trees, t, node, place)] += amount
        place = node
        node = parent_of(trees, t, place)


@inner
def first_leaf(trees, t, place):
    """Return the leftmost leaf below a place."""
    while place >= 0:
        place = child_of(trees, t, place, LEFT)
    return ~place


@inner
def next_leaf(trees, t, top, leaf):
    """Return the leaf to the right of ``leaf`` among those below the node ``top``, NONE after the last."""
    place = ~leaf
    node = parent_of(trees, t, place)
    while side_of(trees, t, node, place) == RIGHT:
        if node == top:
            return NONE
        place = node
        node = parent_of(trees, t, place)
    return first_leaf(trees, t, child_of(trees, t, node, RIGHT))


@inner
def add_member(trees, t, leaf, slot):
    """Add a memory to a leaf that has room."""
    leaves = trees.leaves
    trees.members[t, leaf, leaves[t, leaf]["size"]] = slot
    leaves[t, leaf]["size"] += 1
    leaves[t, leaf]["packed"] = NONE
    trees.leaf_of[t, slot] = leaf


@inner
def position_in_leaf(trees, t, leaf, slot):
    """Return the position of a memory in its leaf."""
    members = trees.members
    position = 0
    while members[t, leaf, position] != slot:
        position += 1
    return position


@inner
def take_member(trees, t, leaf, slot):
    """Remove a memory from its leaf."""
    leaves = trees.leaves
    position = position_in_leaf(trees, t, leaf, slot)
    leaves[t, leaf]["size"] -= 1
    leaves[t, leaf]["packed"] = NONE
    trees.members[t, leaf, position] = trees.members[t, leaf, leaves[t, leaf]["size"]]

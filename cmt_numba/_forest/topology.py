"""Kernels that allocate, free and link nodes and leaves, and count the memories below nodes."""

import numpy as np

from .._jit import inner
from .._kernels import LEFT, NONE, RIGHT
from .._linear import DONE
from .state import FREE_LEAF, FREE_NODE, LEAVES_END, LEAVES_FULL, NODES_END, NODES_FULL, ROOT


@inner
def check_room(trees, t):
    """Return DONE if tree ``t`` has a free node and a free leaf, or else NODES_FULL or LEAVES_FULL."""
    counters = trees.counters
    if counters[t, FREE_NODE] == NONE and counters[t, NODES_END] == trees.nodes.shape[1]:
        return NODES_FULL
    if counters[t, FREE_LEAF] == NONE and counters[t, LEAVES_END] == trees.leaves.shape[1]:
        return LEAVES_FULL
    return DONE


@inner
def _take_record(counters, records, t, free, end):
    """Allocate a node or a leaf, from the free list ``free`` or else from the end; return its number."""
    number = counters[t, free]
    if number != NONE:
        counters[t, free] = records[t, number]["parent"]
    else:
        number = counters[t, end]
        counters[t, end] += 1
    return number


@inner
def take_node(trees, t):
    """Allocate an internal node without memories below it; return its number. The caller resets the router."""
    nodes = trees.nodes
    node = _take_record(trees.counters, nodes, t, FREE_NODE, NODES_END)
    for side in (LEFT, RIGHT):
        nodes[t, node]["below"][side] = 0
    nodes[t, node]["examples"] = 0
    nodes[t, node]["mistakes"] = 0
    nodes[t, node]["departed"] = 0
    return node


@inner
def take_leaf(trees, t):
    """Allocate an empty leaf; return its number."""
    leaf = _take_record(trees.counters, trees.leaves, t, FREE_LEAF, LEAVES_END)
    trees.leaves[t, leaf]["size"] = 0
    return leaf


@inner
def free_node(trees, t, node):
    """Put an internal node on the free list, and invalidate earlier explorations of it."""
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
    """Return the parent of a place, or NONE for the root."""
    if place >= 0:
        return np.int64(trees.nodes[t, place]["parent"])
    return np.int64(trees.leaves[t, ~place]["parent"])


@inner
def child_of(trees, t, node, side):
    """Return the child of ``node`` on a side."""
    return np.int64(trees.nodes[t, node]["child"][side])


@inner
def side_of(trees, t, node, place):
    """Return the side of ``node`` that its child ``place`` is on."""
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
    """Make ``new`` the child of ``old``'s parent in place of ``old``, or the root if ``old`` is the root."""
    node = parent_of(trees, t, old)
    set_parent(trees, t, new, node)
    if node == NONE:
        trees.counters[t, ROOT] = new
    else:
        trees.nodes[t, node]["child"][side_of(trees, t, node, old)] = new


@inner
def add_to_counts(trees, t, place, amount):
    """Add ``amount`` to the memory counts of every node above ``place``, on the side of ``place``."""
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
    """Return the next leaf to the right of ``leaf`` below the node ``top``, or NONE after the last leaf."""
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
    trees.members[t, leaf, position] = trees.members[t, leaf, leaves[t, leaf]["size"]]

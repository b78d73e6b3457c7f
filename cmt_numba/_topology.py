"""Kernels: the shape of a tree. Taking and freeing nodes and leaves, linking them, counting what is below."""

from ._jit import inner
from ._routers import release_router, reset_router
from ._state import FREE_LEAF, FREE_NODE, LEAVES_END, LEFT, NODES_END, NONE, RIGHT, ROOT


@inner
def has_node(state, t):
    """Return whether an internal node can be taken."""
    counters = state.counters
    return counters[t, FREE_NODE] != NONE or counters[t, NODES_END] < state.nodes.parent.shape[1]


@inner
def has_leaf(state, t):
    """Return whether a leaf can be taken."""
    counters = state.counters
    return counters[t, FREE_LEAF] != NONE or counters[t, LEAVES_END] < state.leaves.parent.shape[1]


@inner
def take_node(state, t):
    """Return an internal node with a fresh router and nothing below it."""
    counters, nodes = state.counters, state.nodes
    node = counters[t, FREE_NODE]
    if node != NONE:
        counters[t, FREE_NODE] = nodes.parent[t, node]
    else:
        node = counters[t, NODES_END]
        counters[t, NODES_END] += 1
    for side in (LEFT, RIGHT):
        nodes.below[t, node, side] = 0
    nodes.examples[t, node] = 0
    nodes.mistakes[t, node] = 0
    reset_router(state, t, node)
    return node


@inner
def take_leaf(state, t):
    """Return an empty leaf."""
    counters, leaves = state.counters, state.leaves
    leaf = counters[t, FREE_LEAF]
    if leaf != NONE:
        counters[t, FREE_LEAF] = leaves.parent[t, leaf]
    else:
        leaf = counters[t, LEAVES_END]
        counters[t, LEAVES_END] += 1
    leaves.size[t, leaf] = 0
    return leaf


@inner
def free_node(state, t, node):
    """Put an internal node on the free list; records of explorations there become void."""
    release_router(state, t, node)
    state.nodes.generation[t, node] += 1
    state.nodes.parent[t, node] = state.counters[t, FREE_NODE]
    state.counters[t, FREE_NODE] = node


@inner
def free_leaf(state, t, leaf):
    """Put a leaf on the free list."""
    state.leaves.size[t, leaf] = 0
    state.leaves.parent[t, leaf] = state.counters[t, FREE_LEAF]
    state.counters[t, FREE_LEAF] = leaf


@inner
def parent_of(state, t, place):
    """Return the internal node above a place, NONE above the root."""
    if place >= 0:
        return state.nodes.parent[t, place]
    return state.leaves.parent[t, ~place]


@inner
def side_of(state, t, node, place):
    """Return on which side of ``node`` its child ``place`` hangs."""
    return LEFT if state.nodes.child[t, node, LEFT] == place else RIGHT


@inner
def set_parent(state, t, place, node):
    """Name ``node`` as the parent of ``place``."""
    if place >= 0:
        state.nodes.parent[t, place] = node
    else:
        state.leaves.parent[t, ~place] = node


@inner
def put_in_place_of(state, t, old, new):
    """Hang ``new`` where ``old`` hangs."""
    node = parent_of(state, t, old)
    set_parent(state, t, new, node)
    if node == NONE:
        state.counters[t, ROOT] = new
    else:
        state.nodes.child[t, node, side_of(state, t, node, old)] = new


@inner
def add_to_counts(state, t, place, amount):
    """Add ``amount`` to the counts of every internal node above ``place``."""
    node = parent_of(state, t, place)
    while node != NONE:
        state.nodes.below[t, node, side_of(state, t, node, place)] += amount
        place = node
        node = parent_of(state, t, place)


@inner
def add_member(state, t, leaf, slot):
    """Put a memory into a leaf that has room."""
    leaves = state.leaves
    leaves.members[t, leaf, leaves.size[t, leaf]] = slot
    leaves.size[t, leaf] += 1
    leaves.leaf_of[t, slot] = leaf


@inner
def position_in_leaf(state, t, leaf, slot):
    """Return where in its leaf a memory stands."""
    members = state.leaves.members
    position = 0
    while members[t, leaf, position] != slot:
        position += 1
    return position


@inner
def take_member(state, t, leaf, slot):
    """Take a memory out of its leaf."""
    leaves = state.leaves
    position = position_in_leaf(state, t, leaf, slot)
    leaves.size[t, leaf] -= 1
    leaves.members[t, leaf, position] = leaves.members[t, leaf, leaves.size[t, leaf]]


@inner
def collapse_if_empty(state, t, leaf):
    """Let an emptied leaf and its parent disappear: the leaf's sibling takes the parent's place."""
    node = state.leaves.parent[t, leaf]
    if state.leaves.size[t, leaf] > 0 or node == NONE:
        return
    sibling = state.nodes.child[t, node, RIGHT - side_of(state, t, node, ~leaf)]
    put_in_place_of(state, t, node, sibling)
    free_node(state, t, node)
    free_leaf(state, t, leaf)

"""Rebuilding of trees around groups of memories that belong together.

An online tree receives memories one by one, before rewards show which of them belong together. Rebuilding constructs
the tree from the root down, like a label tree (Parabel, Prabhu et al., 2018; XR-Linear, Yu et al., 2022). Balanced
2-means over the mean keys of the groups divides the memories of a node into halves, and the node's router is trained to
separate the halves. Each memory then follows the router, which ensures that its own key finds it.

New trees are complete before they replace the old ones, so nothing changes after an interrupt or if memory runs out.
NumPy and SciPy compute all sums in loops whose results do not depend on the number of threads.
"""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from .._jit import as_python
from .._kernels import NONE, Rows, as_matrix
from .._linear import DONE, FREE_TABLES, N_MODEL_COUNTERS, SMALLEST_TABLE_BITS, TABLES_END
from .allocation import with_more, with_places
from .state import FREE_LEAF, FREE_NODE, LEAF, LEAVES_END, NODES_END, ROOT, State, TreeRange, leaf_limit
from .update import RouterLesson, teach_trees

_PASSES = 5  # training passes of a router over the memories of its node
_ROUNDS = 10  # maximum number of iterations of 2-means
_LEAST_SHARE = 0.25  # if a router sends a smaller fraction to one side, the 2-means halves are used instead
_TINY = np.float32(1e-20)  # avoids division by a length of 0
_ROWS_AT_ONCE = 4096  # number of rows between checks for interrupts
_leaf_limit = as_python(leaf_limit)


class _Part(NamedTuple):
    """The memories below a place that is not built yet, and the position of the place."""

    slots: np.ndarray
    parent: int  # the internal node above the place, NONE for the root
    side: int  # whether it is the left or the right child


def without_trees(state: State) -> State:
    """Return a state with unbuilt trees that shares the keys, the scorer and the random streams of ``state``."""
    nodes, counters = np.zeros_like(state.nodes), state.counters.copy()
    nodes["generation"] = state.nodes["generation"]
    nodes["parent"] = np.arange(1, nodes.shape[1] + 1)
    for t, end in enumerate(counters[:, NODES_END]):
        nodes["generation"][t, :end] += 1  # invalidates explorations of the old nodes
        nodes["parent"][t, end - 1 : end] = NONE
        counters[t, FREE_NODE] = 0 if end > 0 else NONE
    counters[:, [LEAVES_END, TABLES_END]] = 0
    counters[:, FREE_LEAF] = NONE
    counters[:, FREE_TABLES:N_MODEL_COUNTERS] = NONE
    return state._replace(
        nodes=nodes,
        leaves=np.empty_like(state.leaves),
        members=np.empty_like(state.members),
        leaf_of=np.empty_like(state.leaf_of),
        weights=state.weights._replace(
            dense=np.zeros_like(state.weights.dense), table=np.empty_like(state.weights.table)
        ),
        counters=counters,
    )


def with_tree(state: State, t: int, rows: Rows, groups: np.ndarray, generator: np.random.Generator) -> State:
    """Build tree ``t`` level by level, and return the state.

    ``groups[slot]`` is the group of a memory. ``state`` must come from :func:`without_trees`.
    """
    limit = _leaf_limit(state.parameters.leaf_multiplier, rows.n_rows)
    level = [_Part(np.arange(rows.n_rows), int(NONE), 0)]
    while level:
        small = [part for part in level if part.slots.size <= limit]
        large = [part for part in level if part.slots.size > limit]
        state = _with_room(state, t, len(large), len(small))
        for part in small:
            _hang_leaf(state, t, part)
        if not large:
            break
        sides = [_halves(rows, groups, part.slots, generator) for part in large]
        first = _next_node(state, t)
        counters, end = state.counters[t], first + len(large)  # allocate all free nodes below ``end``
        counters[FREE_NODE] = end if end < counters[NODES_END] else NONE
        counters[NODES_END] = max(end, counters[NODES_END])
        state = _with_routers(state, t, rows, first, large, sides, generator)
        level = []
        for node, (part, side) in enumerate(zip(large, sides, strict=True), first):
            right = _margins(state, t, node, rows, part.slots) > 0.0
            if not _LEAST_SHARE <= right.mean() <= 1.0 - _LEAST_SHARE:
                right = side
            _hang(state, t, node, part)
            state.nodes["parent"][t, node] = part.parent
            state.nodes["below"][t, node] = np.count_nonzero(~right), np.count_nonzero(right)
            level += [_Part(part.slots[~right], node, 0), _Part(part.slots[right], node, 1)]
    return state


def _next_node(state: State, t: int) -> int:
    free = int(state.counters[t, FREE_NODE])
    return int(state.counters[t, NODES_END]) if free == NONE else free


def _with_room(state: State, t: int, n_nodes: int, n_leaves: int) -> State:
    """Return a state with room for ``n_nodes`` more nodes with two leaves each, and for ``n_leaves`` more leaves."""
    nodes_end = _next_node(state, t) + n_nodes
    leaves_end = int(state.counters[t, LEAVES_END]) + n_leaves + 2 * n_nodes
    if state.nodes.shape[1] < nodes_end or state.leaves.shape[1] < leaves_end:
        state = with_places(state, max(nodes_end, state.nodes.shape[1]), max(leaves_end, state.leaves.shape[1]))
    return state


def _hang(state: State, t: int, place: int, part: _Part) -> None:
    """Attach ``place`` to the parent of a part, or make it the root."""
    if part.parent == NONE:
        state.counters[t, ROOT] = place
    else:
        state.nodes["child"][t, part.parent, part.side] = place


def _hang_leaf(state: State, t: int, part: _Part) -> None:
    """Build a leaf with the memories of a part."""
    leaf = int(state.counters[t, LEAVES_END])
    state.counters[t, LEAVES_END] += 1
    state.leaves[t, leaf] = np.array((part.slots.size, part.parent), LEAF)
    state.members[t, leaf, : part.slots.size] = part.slots
    state.leaf_of[t, part.slots] = leaf
    _hang(state, t, ~leaf, part)


def _halves(rows: Rows, groups: np.ndarray, slots: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Divide memories by balanced spherical 2-means over group means; return whether each is in the right-hand half.

    Neither half is empty. A group stays together unless it is the only one.
    """
    _, group = np.unique(groups[slots], return_inverse=True)
    n = int(group.max()) + 1
    if n == 1:
        group, n = np.arange(slots.size), slots.size
    sizes = np.bincount(group)
    means = _means(as_matrix(rows.take(slots)), group, n)
    one, other = generator.choice(n, 2, replace=False)
    weights = np.zeros(n, np.float32)
    weights[one], weights[other] = -1.0, 1.0
    half, right = slots.size / 2.0, np.empty(0, np.bool_)
    for _ in range(_ROUNDS):
        order = np.argsort(_products(means, _sums(means, weights)), kind="stable")
        n_left = min(max(1, int(np.argmin(np.abs(np.cumsum(sizes[order]) - half))) + 1), n - 1)
        before, right = right, np.ones(n, np.bool_)
        right[order[:n_left]] = False
        if np.array_equal(right, before):
            break
        weights = np.zeros(n, np.float32)
        for side, sign in ((right, np.float32(1.0)), (~right, np.float32(-1.0))):
            of_side = np.where(side, sizes, 0).astype(np.float32)
            weights += of_side * (sign / max(np.linalg.norm(_sums(means, of_side)), _TINY))
    return right[group]


def _means(keys: Any, group: np.ndarray, n: int) -> Any:
    """Return the unit-length mean of each of ``n`` groups of keys. Sparse means omit features without a value."""
    members = scipy.sparse.csr_array((np.ones(group.size, np.float32), (group, np.arange(group.size))))
    means = members @ keys
    if scipy.sparse.issparse(keys):
        features, means.indices = np.unique(means.indices, return_inverse=True)
        means = scipy.sparse.csr_array((means.data, means.indices, means.indptr), (n, max(1, features.size)))
        lengths = np.sqrt((means**2).sum(axis=1))
        means.data /= np.repeat(np.maximum(lengths, _TINY), np.diff(means.indptr))
    else:
        means /= np.maximum(np.linalg.norm(means, axis=1, keepdims=True), _TINY)
    return means


def _products(rows: Any, x: np.ndarray) -> np.ndarray:
    return rows @ x if scipy.sparse.issparse(rows) else np.einsum("ij,j->i", rows, x)


def _sums(rows: Any, weights: np.ndarray) -> np.ndarray:
    return rows.T @ weights if scipy.sparse.issparse(rows) else np.einsum("ij,i->j", rows, weights)


def _with_routers(
    state: State,
    t: int,
    rows: Rows,
    first: int,
    parts: list[_Part],
    sides: list[np.ndarray],
    generator: np.random.Generator,
) -> State:
    """Train routers that separate the sides of ``parts``, in the nodes from ``first`` on; return the state.

    During training each node is the root of a tree with two leaves, one for each side.
    """
    nodes = np.arange(first, first + len(parts))
    left = int(state.counters[t, LEAVES_END]) + 2 * np.arange(len(parts), dtype=np.int64)
    state.nodes["child"][t, nodes] = np.column_stack([~left, ~(left + 1)])
    state.nodes["parent"][t, nodes] = NONE
    for i in range(2):
        state.leaves["parent"][t, left + i] = nodes
    if not rows.sparse:
        state.weights.dense[t].reshape(-1, 2 * rows.n_features)[nodes] = 0.0
    slots = np.concatenate([part.slots for part in parts])
    state.leaf_of[t, slots] = np.concatenate([leaf + side for leaf, side in zip(left, sides, strict=True)])
    at, view = np.tile(np.array([0, NONE]), (state.parameters.n_trees, 1)), state.view()
    for _ in range(_PASSES):
        lesson = RouterLesson(rows, generator.permutation(slots), np.arange(rows.n_rows))
        at[t] = 0, NONE
        for stop in [*range(_ROWS_AT_ONCE, slots.size, _ROWS_AT_ONCE), slots.size]:
            while (status := teach_trees(view, TreeRange(t, t + 1), lesson, at, stop)) != DONE:
                state = with_more(state, status, rows.n_rows)
                view = state.view()
    return state


def _margins(state: State, t: int, node: int, rows: Rows, slots: np.ndarray) -> np.ndarray:
    """Return the margins of a node's router for the memories in ``slots``."""
    keys, d = rows.take(slots), rows.n_features
    bias: np.ndarray = np.full(slots.size, state.nodes["bias"][t, node])
    if not rows.sparse:
        return bias + _products(as_matrix(keys), state.weights.dense[t, node * 2 * d : (node * 2 + 1) * d])
    if state.nodes["table_bits"][t, node] == 0:  # every key is zero
        return bias
    start = int(state.nodes["table_start"][t, node]) << SMALLEST_TABLE_BITS
    cells = state.weights.table[t, start : start + (1 << int(state.nodes["table_bits"][t, node]))]
    cells = cells[np.argsort(cells["feature"])]  # empty cells come first; the table has every feature of the keys
    weights = cells["weight"][np.searchsorted(cells["feature"], keys.indices)]
    row_of_cell = np.repeat(np.arange(slots.size), np.diff(keys.offsets))
    return bias + np.bincount(row_of_cell, weights * keys.values, slots.size)

"""Growing the arrays of a :class:`~cmt_numba._state.State`.

Kernels never allocate: they stop before an array would overflow and say which one, and the functions here return a
state with more room. Arrays double, but never past what the rows still to come are likely to need, so that a large
insert does not end with half of its memory unused.
"""

import numpy as np

from ._jit import kernel
from ._state import (
    CELLS_WANTED,
    LEAVES_END,
    LEAVES_FULL,
    N_MEMORIES,
    NODES_END,
    NODES_FULL,
    NONE,
    TABLES_END,
    TABLES_FULL,
    VALUES_END,
    VALUES_LIVE,
    Keys,
    State,
    leaf_limit,
)

_SMALLEST = 16
_GENTLE = 1.25  # growth by this factor still makes the copying per row a constant
_SPARE = 1.1


def resized(array: np.ndarray, size: int, axis: int) -> np.ndarray:
    """Return a copy of ``array`` with ``size`` entries along ``axis``, the new ones undefined."""
    shape = list(array.shape)
    shape[axis] = size
    grown = np.empty(shape, array.dtype)
    kept = tuple(slice(0, min(old, new)) for old, new in zip(array.shape, shape, strict=True))
    grown[kept] = array[kept]
    return grown


def larger(capacity: int, needed: int, fraction_done: float) -> int:
    """Return a new capacity for an array that is full with ``fraction_done`` of the rows in place."""
    expected = capacity / max(fraction_done, 1e-9) * _SPARE
    return max(_SMALLEST, needed, int(_GENTLE * capacity), int(min(2 * capacity, expected)))


def with_room_for_keys(state: State, n_rows: int, n_cells: int) -> State:
    """Return a state that can take ``n_rows`` more memories, whose sparse keys have ``n_cells`` cells in all."""
    parameters, keys, leaves = state.parameters, state.keys, state.leaves
    needed = int(keys.totals[N_MEMORIES]) + n_rows
    capacity = keys.ids.size
    if needed > capacity:
        capacity = max(_SMALLEST, needed, int(_GENTLE * capacity))
        keys = keys._replace(ids=resized(keys.ids, capacity, 0))
        if parameters.sparse:
            keys = keys._replace(start=resized(keys.start, capacity, 0), length=resized(keys.length, capacity, 0))
        else:
            keys = keys._replace(values=resized(keys.values, capacity * parameters.n_features, 0))
        leaves = leaves._replace(leaf_of=resized(leaves.leaf_of, capacity, 1))
    if 5 * needed > 4 * keys.slot_table.size:
        keys = keys._replace(slot_table=_rebuilt_slot_table(keys.ids[: keys.totals[N_MEMORIES]], needed))
    if parameters.sparse and keys.totals[VALUES_END] + n_cells > keys.values.size:
        keys = _with_room_for_cells(keys, n_cells)
    width = leaf_limit(parameters.leaf_multiplier, needed)
    if width > leaves.members.shape[2]:
        leaves = leaves._replace(members=resized(leaves.members, width, 2))
    return state._replace(keys=keys, leaves=leaves)


def _rebuilt_slot_table(ids: np.ndarray, n: int) -> np.ndarray:
    """Return a slot table for ``n`` memories, at most four fifths full."""
    table = np.full(1 << (5 * n // 4).bit_length(), NONE, np.int32)
    fill_slot_table(table, ids)
    return table


@kernel
def fill_slot_table(table, ids):
    """Enter slots ``0 ..`` under their ids into an empty table."""
    mask = table.size - 1
    for slot in range(ids.size):
        cell = ids[slot] & mask
        while table[cell] != NONE:
            cell = (cell + 1) & mask
        table[cell] = slot


def _with_room_for_cells(keys: Keys, n_cells: int) -> Keys:
    """Return keys whose cells lie together in slot order, with room for ``n_cells`` more and some time to come."""
    n, live = int(keys.totals[N_MEMORIES]), int(keys.totals[VALUES_LIVE])
    size = max(live + n_cells, int(_GENTLE * live))
    compacted = keys._replace(
        values=np.empty(size, np.float32),
        indices=np.empty(size, np.int32),
        start=keys.start.copy(),
        totals=keys.totals.copy(),
    )
    copy_cells(compacted, keys, n)
    compacted.totals[VALUES_END] = live
    return compacted


@kernel
def copy_cells(target, source, n):
    """Copy the sparse keys of slots ``0 .. n - 1`` one behind the other."""
    end = 0
    for slot in range(n):
        a = source.start[slot]
        target.start[slot] = end
        for i in range(source.length[slot]):
            target.values[end] = source.values[a + i]
            target.indices[end] = source.indices[a + i]
            end += 1


def with_more(state: State, status: int, fraction_done: float) -> State:
    """Return a state with more of what a kernel's ``status`` says is full."""
    if status == NODES_FULL:
        return _with_more_nodes(state, fraction_done)
    if status == LEAVES_FULL:
        return _with_more_leaves(state, fraction_done)
    assert status == TABLES_FULL, status
    return _with_more_tables(state, fraction_done)


def trimmed(state: State) -> State:
    """Return a state whose trees have given back room that they did not come to need.

    Leaves of a balanced tree fill, and split, at about the same time, so what was reserved for a large insert can be
    nearly twice too much.
    """
    counters = state.counters
    nodes_end, leaves_end = int(counters[:, NODES_END].max()), int(counters[:, LEAVES_END].max())
    tables_end = int(counters[:, TABLES_END].max())
    if state.nodes.parent.shape[1] > _SPARE * nodes_end + _SMALLEST:
        state = _with_nodes(state, int(_SPARE * nodes_end))
    if state.leaves.parent.shape[1] > _SPARE * leaves_end + _SMALLEST:
        state = _with_leaves(state, int(_SPARE * leaves_end))
    if state.routers.table.shape[1] > _SPARE * tables_end + _SMALLEST:
        state = _with_tables(state, int(_SPARE * tables_end))
    return state


def _with_more_nodes(state: State, fraction_done: float) -> State:
    size = state.nodes.parent.shape[1]
    return _with_nodes(state, larger(size, size + 1, fraction_done))


def _with_nodes(state: State, size: int) -> State:
    nodes, routers, parameters = state.nodes, state.routers, state.parameters
    old = nodes.parent.shape[1]
    nodes = nodes._replace(**{name: resized(getattr(nodes, name), size, 1) for name in nodes._fields})
    nodes.generation[:, old:] = 0
    per_node = ["bias", "bias_squares"]
    if parameters.sparse:
        per_node += ["start", "bits", "used"]
    routers = routers._replace(**{name: resized(getattr(routers, name), size, 1) for name in per_node})
    if not parameters.sparse:
        cells = size * parameters.n_features
        routers = routers._replace(
            weights=resized(routers.weights, cells, 1), squares=resized(routers.squares, cells, 1)
        )
    return state._replace(nodes=nodes, routers=routers)


def _with_more_leaves(state: State, fraction_done: float) -> State:
    size = state.leaves.parent.shape[1]
    return _with_leaves(state, larger(size, size + 1, fraction_done))


def _with_leaves(state: State, size: int) -> State:
    leaves = state.leaves
    per_leaf = {name: resized(getattr(leaves, name), size, 1) for name in ("members", "size", "parent")}
    return state._replace(leaves=leaves._replace(**per_leaf))


def _with_more_tables(state: State, fraction_done: float) -> State:
    needed = int((state.counters[:, TABLES_END] + state.counters[:, CELLS_WANTED]).max())
    return _with_tables(state, larger(state.routers.table.shape[1], needed, fraction_done))


def _with_tables(state: State, size: int) -> State:
    return state._replace(routers=state.routers._replace(table=resized(state.routers.table, size, 1)))

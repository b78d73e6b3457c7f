"""Functions that enlarge the arrays of a :class:`~cmt_numba._forest.state.State`.

A kernel stops before an array would overflow and returns a status that names the array. The functions here then return
a state with a larger array. Arrays grow to at most twice their size and no more than the remaining rows are expected to
need, so a large insert does not leave half of the memory unused.

*Compaction* stores memories in the order in which searches read them. They are otherwise stored in order of insertion,
which scatters the memories of a leaf. A scan of a leaf then reads contiguous storage.

All new arrays are complete before they replace the old ones, so nothing changes if memory runs out.
"""

import numpy as np

from .._jit import by_reference, kernel
from .._kernels import (
    N_MEMORIES,
    NONE,
    SMALLEST,
    KeyArrays,
    keys_with_room,
    larger_capacity,
    require,
    resized,
    trimmed_keys,
    with_cells,
)
from .._linear import (
    CELLS_WANTED,
    MAX_CELLS,
    SPARE,
    TABLES_END,
    TABLES_FULL,
    check_trimmed_models,
    max_cells_in_use,
    trimmed_models,
    used_part,
    with_room_for_models,
    with_tables,
)
from .state import (
    COUNT,
    LEAVES_END,
    LEAVES_FULL,
    MOVED_FROM,
    MOVING_PLACE,
    NODES_END,
    NODES_FULL,
    ROOT,
    State,
    leaf_limit,
)
from .topology import first_leaf, next_leaf

WORTH_GROWING_BEFORE = 1 << 22
"""Arrays of at least this many bytes grow before they are full, because copying one takes milliseconds."""
_SPARE_CELLS = 1 / 20  # minimum ratio of free to used table cells; below it, large tables grow before they are full


def larger(state: State, capacity: int, needed: int, n_memories: int) -> int:
    """Return a new capacity for an array of trees that will soon hold ``n_memories`` memories."""
    n_placed = max(1, int(state.counters[:, COUNT].min()))
    expected = SPARE * capacity * n_memories / n_placed
    return max(larger_capacity(capacity, needed), int(min(2 * capacity, expected)))


def with_room_for_keys(state: State, n_rows: int, n_cells: int) -> State:
    """Return a state with room for ``n_rows`` more memories, whose sparse keys have ``n_cells`` cells."""
    leaf_of, members = state.leaf_of, state.members
    keys = keys_with_room(state.parameters, state.keys, n_rows, n_cells)
    capacity = keys.ids.size
    if capacity > leaf_of.shape[1]:
        leaf_of = resized(leaf_of, capacity, 1)
    width = leaf_limit(state.parameters.leaf_multiplier, int(keys.totals[N_MEMORIES]) + n_rows)
    if width > members.shape[2]:
        members = resized(members, leaf_limit(state.parameters.leaf_multiplier, capacity), 2)
    if keys is state.keys and leaf_of is state.leaf_of and members is state.members:
        return state
    return state._replace(keys=keys, leaf_of=leaf_of, members=members)


def with_more(state: State, status: int, n_memories: int) -> State:
    """Enlarge the full array that ``status`` names, for a forest that will soon hold ``n_memories``."""
    if status in (NODES_FULL, LEAVES_FULL):
        size = max(state.nodes.shape[1], state.leaves.shape[1] - 1)
        size = larger(state, size, size + 1, n_memories)
        return with_places(state, size, size + 1)
    assert status == TABLES_FULL, status
    cells, wanted = max_cells_in_use(state.models), int(state.counters[:, CELLS_WANTED].max())
    size = larger(state, cells, cells + wanted, n_memories)
    return with_tables(state, min(size, max(cells + wanted, MAX_CELLS)))


def with_spare_room(state: State, n_rows: int, n_memories: int) -> State:
    """Return a state with room for ``n_rows`` in its large arrays, for a forest of ``n_memories`` soon."""
    of_places = state.nodes.nbytes + state.weights.dense.nbytes + state.members.nbytes
    of_tables = state.weights.table.nbytes
    if max(of_places, of_tables) < WORTH_GROWING_BEFORE:
        return state
    n_moved = n_rows * (1 + state.parameters.n_reroutes)  # each move may split a leaf
    most = np.maximum.reduce(state.counters)
    nodes_end, tables_end = most.item(NODES_END), most.item(TABLES_END)
    n_nodes, n_cells = state.nodes.shape[1], state.weights.table.shape[1]
    if n_nodes < nodes_end + n_moved and of_places >= WORTH_GROWING_BEFORE:
        size = larger(state, n_nodes, nodes_end + n_moved, n_memories)
        state = with_places(state, size, size + 1)
    if n_cells < (1.0 + _SPARE_CELLS) * tables_end and of_tables >= WORTH_GROWING_BEFORE:
        cells = max_cells_in_use(state.models)
        size = larger(state, cells, cells, n_memories)
        state = with_tables(state, min(size, max(n_cells, MAX_CELLS)))
    return state


def trimmed(state: State) -> State:
    """Return a state without the excess capacity that a large insert has reserved.

    All leaves of a balanced tree split at about the same time, so the reserved size may be twice the size needed.
    """
    nodes_end = int(state.counters[:, NODES_END].max())
    if state.nodes.shape[1] > SPARE * nodes_end + SMALLEST:
        size = int(SPARE * nodes_end)
        state = with_places(state, size, size + 1)
    cells = max_cells_in_use(state.models)
    if state.weights.table.shape[1] > SPARE * cells + SMALLEST:
        state = with_tables(state, int(SPARE * cells))
    return state


def with_places(state: State, n_nodes: int, n_leaves: int) -> State:
    """Return a forest with room for ``n_nodes`` nodes and ``n_leaves`` leaves in each tree."""
    leaves, members = resized(state.leaves, n_leaves, 1), resized(state.members, n_leaves, 1)
    return with_room_for_models(state._replace(leaves=leaves, members=members), n_nodes)


# Compaction


def compacted(state: State) -> State:
    """Return a state with memories sorted by the first tree's leaves."""
    n = int(state.keys.totals[N_MEMORIES])
    order = np.empty(n, np.int64)
    list_in_order(state.trees, order)
    new_slot = np.empty(n, np.int32)
    new_slot[order] = np.arange(n, dtype=np.int32)
    members, leaf_of = state.members.copy(), state.leaf_of.copy()
    leaf_of[:, :n] = leaf_of[:, order]
    rename_members(state.trees, members, new_slot)
    return state._replace(keys=_keys_in(order, new_slot, state), members=members, leaf_of=leaf_of)


@kernel
def list_in_order(trees, order):
    """Write the slots of the first tree to ``order``, leaf by leaf from left to right."""
    trees = by_reference(trees)
    root = trees.counters[0, ROOT]
    end, leaf = 0, first_leaf(trees, 0, root)
    while leaf != NONE:
        for i in range(trees.leaves[0, leaf]["size"]):
            order[end] = trees.members[0, leaf, i]
            end += 1
        leaf = next_leaf(trees, 0, root, leaf) if root >= 0 else NONE


@kernel
def rename_members(trees, members, new_slot):
    """Replace each slot in ``members`` by its new slot."""
    trees = by_reference(trees)
    for t in range(trees.counters.shape[0]):
        for leaf in range(trees.counters[t, LEAVES_END]):
            for i in range(trees.leaves[t, leaf]["size"]):
                members[t, leaf, i] = new_slot[members[t, leaf, i]]


def _rows_in(order: np.ndarray, flat: np.ndarray, width: int) -> np.ndarray:
    """Return a copy of ``flat`` in which row ``i``, of ``width`` entries, is the former row ``order[i]``."""
    moved = np.empty_like(flat)
    np.take(flat.reshape(-1, width), order, axis=0, out=moved.reshape(-1, width)[: order.size])
    return moved


def _keys_in(order: np.ndarray, new_slot: np.ndarray, state: State) -> KeyArrays:
    keys, table = state.keys, state.keys.slot_table.copy()
    table[table != NONE] = new_slot[table[table != NONE]]
    moved = keys._replace(ids=_rows_in(order, keys.ids, 1), slot_table=table)
    if not state.parameters.sparse:
        return moved._replace(values=_rows_in(order, keys.values, state.parameters.n_features))
    return with_cells(moved, order, keys.values.size)


# Files


def trimmed_state(state: State) -> State:
    """Return a state as it is saved, without spare capacity. It may share arrays with ``state``."""
    state = trimmed_models(state)
    n = int(state.keys.totals[N_MEMORIES])
    leaves_end = state.counters[:, LEAVES_END]
    leaves = used_part(state.leaves, leaves_end)
    limit = leaf_limit(state.parameters.leaf_multiplier, n)  # after removals, a leaf may be larger
    width = max(limit, int(leaves["size"].max(initial=0)))
    members = used_part(state.members[:, :, :width], leaves_end)
    members[np.arange(members.shape[2]) >= leaves["size"][:, :, None]] = 0
    state.counters[:, [MOVING_PLACE, MOVED_FROM]] = NONE  # used only during a step
    return state._replace(
        keys=trimmed_keys(state.parameters, state.keys),
        leaves=leaves,
        members=members,
        leaf_of=np.ascontiguousarray(state.leaf_of[:, :n]),
    )


def check_trimmed(state: State) -> None:
    """Raise InvariantError if a state was saved during a step."""
    check_trimmed_models(state)
    at_rest = np.all(state.counters[:, [MOVING_PLACE, MOVED_FROM]] == NONE)
    require(bool(at_rest), "an insert is unfinished")

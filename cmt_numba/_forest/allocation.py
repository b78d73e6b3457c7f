"""Functions that enlarge the arrays of a :class:`~cmt_numba._forest.state.State`.

A kernel stops before an array would overflow and returns a status that names the array. The functions here then return
a state with a larger array. Arrays grow to at most twice their size and no more than the remaining rows are expected to
need, so a large insert does not leave half of the memory unused.

*Compaction* stores memories in the order in which searches read them. They are otherwise stored in order of insertion,
which scatters the memories of a leaf. A scan of a leaf then reads contiguous storage.

All new arrays are complete before they replace the old ones, so nothing changes if memory runs out.
"""

from typing import Any

import numpy as np

from .._jit import by_reference, kernel
from . import state as states
from .columns import GROWTH, SMALLEST, larger_capacity, resized
from .key_store import enter_slot
from .sparse_weights import table_start
from .topology import first_leaf, next_leaf

SPARE = 1.1  # maximum ratio of allocated to expected size of an array after a large insert
WORTH_GROWING_BEFORE = 1 << 22
"""Arrays of at least this many bytes grow before they are full, because copying one takes milliseconds."""

_SPARE_CELLS = 1 / 20  # minimum ratio of free to used table cells; below it, large tables grow before they are full

MOST_CELLS = 2 ** (31 + states.SMALLEST_TABLE_BITS)
"""Maximum number of table cells in one tree, because table starts are int32; see ``sparse_weights.py``."""


def larger(state: states.State, capacity: int, needed: int, n_memories: int) -> int:
    """Return a new capacity for an array of trees that will soon hold ``n_memories`` memories."""
    n_placed = max(1, int(state.counters[:, states.COUNT].min()))
    expected = SPARE * capacity * n_memories / n_placed
    return max(larger_capacity(capacity, needed), int(min(2 * capacity, expected)))


def with_room_for_keys(state: states.State, n_rows: int, n_cells: int) -> states.State:
    """Return a state with room for ``n_rows`` more memories, whose sparse keys have ``n_cells`` cells."""
    leaf_of, members = state.leaf_of, state.members
    keys = keys_with_room(state.parameters, state.keys, n_rows, n_cells)
    capacity = keys.ids.size
    if capacity > leaf_of.shape[1]:
        leaf_of = resized(leaf_of, capacity, 1)
    width = states.leaf_limit(state.parameters.leaf_multiplier, int(keys.totals[states.N_MEMORIES]) + n_rows)
    if width > members.shape[2]:
        members = resized(members, states.leaf_limit(state.parameters.leaf_multiplier, capacity), 2)
    if keys is state.keys and leaf_of is state.leaf_of and members is state.members:
        return state
    return state._replace(keys=keys, leaf_of=leaf_of, members=members)


def keys_with_room(parameters: Any, keys: states.KeyArrays, n_rows: int, n_cells: int) -> states.KeyArrays:
    """Return a key store with room for ``n_rows`` more keys; sparse keys have ``n_cells`` cells in total."""
    needed = int(keys.totals[states.N_MEMORIES]) + n_rows
    capacity = keys.ids.size
    if needed > capacity:
        capacity = larger_capacity(capacity, needed)
        keys = keys._replace(ids=resized(keys.ids, capacity))
        if parameters.sparse:
            keys = keys._replace(spans=resized(keys.spans, capacity))
        else:
            keys = keys._replace(values=resized(keys.values, capacity * parameters.n_features))
    if 5 * needed > 4 * keys.slot_table.size:
        keys = keys._replace(slot_table=_rebuilt_slot_table(keys.ids[: keys.totals[states.N_MEMORIES]], needed))
    if parameters.sparse and keys.totals[states.VALUES_END] + n_cells > keys.values.size:
        keys = with_room_for_cells(keys, n_cells)
    return keys


def slot_table_size(n: int) -> int:
    """Return the size of a new slot table for ``n`` memories."""
    return 1 << (5 * n // 4).bit_length()


def _rebuilt_slot_table(ids: np.ndarray, n: int) -> np.ndarray:
    """Return a slot table that contains slot ``i`` under ``ids[i]`` and has room for ``n`` memories."""
    table = np.full(slot_table_size(n), states.NONE, np.int32)
    fill_slot_table(table, ids)
    return table


def with_ids(keys: states.KeyArrays, ids: np.ndarray) -> states.KeyArrays:
    """Return the key store with new, distinct ids. The next insert continues after the largest id."""
    totals, all_ids = keys.totals.copy(), keys.ids.copy()
    all_ids[: ids.size] = ids
    totals[states.NEXT_ID] = ids.max(initial=-1) + 1
    return keys._replace(ids=all_ids, totals=totals, slot_table=_rebuilt_slot_table(all_ids[: ids.size], ids.size))


@kernel
def fill_slot_table(table, ids):
    """Insert slot ``i`` under ``ids[i]`` into an empty table that has room."""
    for slot in range(ids.size):
        enter_slot(table, ids[slot], slot)


def with_room_for_cells(keys: states.KeyArrays, n_cells: int) -> states.KeyArrays:
    """Return the keys with contiguous cells in slot order, and with room for at least ``n_cells`` more cells."""
    n, live = int(keys.totals[states.N_MEMORIES]), int(keys.totals[states.VALUES_LIVE])
    return with_cells(keys, np.arange(n), max(live + n_cells, int(GROWTH * live)))


def with_cells(keys: states.KeyArrays, slots: np.ndarray, size: int) -> states.KeyArrays:
    """Return the keys with room for ``size`` cells; the cells of slot ``i`` come from the former slot ``slots[i]``."""
    moved = keys._replace(
        values=np.empty(size, np.float32),
        indices=np.empty(size, np.int32),
        spans=np.empty_like(keys.spans),
        totals=keys.totals.copy(),
    )
    copy_cells(moved, keys, slots)
    moved.totals[states.VALUES_END] = keys.totals[states.VALUES_LIVE]
    return moved


@kernel
def copy_cells(target, source, slots):
    """Copy the sparse keys in ``slots`` of ``source`` to contiguous cells of ``target``, which must have room."""
    end = 0
    for slot in range(slots.size):
        target.spans[slot, 0] = end
        for i in range(source.spans[slots[slot], 0], source.spans[slots[slot], 1]):
            target.values[end] = source.values[i]
            target.indices[end] = source.indices[i]
            end += 1
        target.spans[slot, 1] = end


def with_more(state: states.State, status: int, n_memories: int) -> states.State:
    """Enlarge the full array that ``status`` names, for a forest that will soon hold ``n_memories``."""
    if status in (states.NODES_FULL, states.LEAVES_FULL):
        size = max(state.nodes.shape[1], state.leaves.shape[1] - 1)
        size = larger(state, size, size + 1, n_memories)
        return with_places(state, size, size + 1)
    assert status == states.TABLES_FULL, status
    cells, wanted = most_cells_in_use(state), int(state.counters[:, states.CELLS_WANTED].max())
    size = larger(state, cells, cells + wanted, n_memories)
    return with_tables(state, min(size, max(cells + wanted, MOST_CELLS)))


def with_spare_room(state: states.State, n_rows: int, n_memories: int) -> states.State:
    """Return a state with room for ``n_rows`` in its large arrays, for a forest of ``n_memories`` soon."""
    of_places = state.nodes.nbytes + state.weights.dense.nbytes + state.members.nbytes
    of_tables = state.weights.table.nbytes
    if max(of_places, of_tables) < WORTH_GROWING_BEFORE:
        return state
    n_moved = n_rows * (1 + state.parameters.n_reroutes)  # each move may split a leaf
    most = np.maximum.reduce(state.counters)
    nodes_end, tables_end = most.item(states.NODES_END), most.item(states.TABLES_END)
    n_nodes, n_cells = state.nodes.shape[1], state.weights.table.shape[1]
    if n_nodes < nodes_end + n_moved and of_places >= WORTH_GROWING_BEFORE:
        size = larger(state, n_nodes, nodes_end + n_moved, n_memories)
        state = with_places(state, size, size + 1)
    if n_cells < (1.0 + _SPARE_CELLS) * tables_end and of_tables >= WORTH_GROWING_BEFORE:
        cells = most_cells_in_use(state)
        size = larger(state, cells, cells, n_memories)
        state = with_tables(state, min(size, max(n_cells, MOST_CELLS)))
    return state


def trimmed(state: states.State) -> states.State:
    """Return a state without the excess capacity that a large insert has reserved.

    All leaves of a balanced tree split at about the same time, so the reserved size may be twice the size needed.
    """
    nodes_end = int(state.counters[:, states.NODES_END].max())
    if state.nodes.shape[1] > SPARE * nodes_end + SMALLEST:
        size = int(SPARE * nodes_end)
        state = with_places(state, size, size + 1)
    cells = most_cells_in_use(state)
    if state.weights.table.shape[1] > SPARE * cells + SMALLEST:
        state = with_tables(state, int(SPARE * cells))
    return state


def with_nodes(state: Any, size: int) -> Any:
    """Return a forest with room for ``size`` nodes, or a head with room for ``size`` labels."""
    nodes, weights = resized(state.nodes, size, 1, fill=0), state.weights  # zeros mean generation 0 and no table
    if not state.parameters.sparse:
        weights = weights._replace(dense=resized(weights.dense, size * 2 * state.parameters.n_features, 1))
    return state._replace(nodes=nodes, weights=weights)


def with_places(state: states.State, n_nodes: int, n_leaves: int) -> states.State:
    """Return a forest with room for ``n_nodes`` nodes and ``n_leaves`` leaves in each tree."""
    leaves, members = resized(state.leaves, n_leaves, 1), resized(state.members, n_leaves, 1)
    return with_nodes(state._replace(leaves=leaves, members=members), n_nodes)


def most_cells_in_use(state: Any) -> int:
    """Return the number of table cells in use in a head, or in the tree of a forest that uses the most."""
    bits = state.nodes["table_bits"].astype(np.int64)
    return int(np.where(bits > 0, 1 << bits, 0).sum(axis=1).max())


def with_tables(state: Any, size: int) -> Any:
    """Return a forest or a head with contiguous tables and room for ``size`` table cells."""
    if size > MOST_CELLS:
        raise MemoryError(f"a tree's routers cannot have more than {MOST_CELLS} cells in total, but {size} are needed")
    table = np.empty((state.nodes.shape[0], size), state.weights.table.dtype)
    moved = state._replace(
        nodes=state.nodes.copy(), counters=state.counters.copy(), weights=state.weights._replace(table=table)
    )
    copy_tables(states.linear_models(moved), state.weights.table)
    moved.counters[:, states.CELLS_WANTED] = 0
    return moved


@kernel
def copy_tables(models, source):
    """Copy tables, their starts and their counters to contiguous cells of ``models``, which must have room."""
    models = by_reference(models)
    for t in range(models.counters.shape[0]):
        end = np.int64(0)
        for node in range(models.counters[t, states.NODES_END]):
            record = models.nodes[t, node]
            if record["table_bits"] > 0:
                start, size = table_start(models, t, node), 1 << np.int64(record["table_bits"])
                for i in range(size):
                    models.table[t, end + i] = source[t, start + i]
                record["table_start"] = end >> states.SMALLEST_TABLE_BITS
                end += size
        models.counters[t, states.TABLES_END] = end
        models.counters[t, states.FREE_TABLES :] = states.NONE


# Compaction


def compacted(state: states.State) -> states.State:
    """Return a state with memories sorted by the first tree's leaves."""
    n = int(state.keys.totals[states.N_MEMORIES])
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
    root = trees.counters[0, states.ROOT]
    end, leaf = 0, first_leaf(trees, 0, root)
    while leaf != states.NONE:
        for i in range(trees.leaves[0, leaf]["size"]):
            order[end] = trees.members[0, leaf, i]
            end += 1
        leaf = next_leaf(trees, 0, root, leaf) if root >= 0 else states.NONE


@kernel
def rename_members(trees, members, new_slot):
    """Replace each slot in ``members`` by its new slot."""
    trees = by_reference(trees)
    for t in range(trees.counters.shape[0]):
        for leaf in range(trees.counters[t, states.LEAVES_END]):
            for i in range(trees.leaves[t, leaf]["size"]):
                members[t, leaf, i] = new_slot[members[t, leaf, i]]


def _rows_in(order: np.ndarray, flat: np.ndarray, width: int) -> np.ndarray:
    """Return a copy of ``flat`` in which row ``i``, of ``width`` entries, is the former row ``order[i]``."""
    moved = np.empty_like(flat)
    np.take(flat.reshape(-1, width), order, axis=0, out=moved.reshape(-1, width)[: order.size])
    return moved


def _keys_in(order: np.ndarray, new_slot: np.ndarray, state: states.State) -> states.KeyArrays:
    keys, table = state.keys, state.keys.slot_table.copy()
    table[table != states.NONE] = new_slot[table[table != states.NONE]]
    moved = keys._replace(ids=_rows_in(order, keys.ids, 1), slot_table=table)
    if not state.parameters.sparse:
        return moved._replace(values=_rows_in(order, keys.values, state.parameters.n_features))
    return with_cells(moved, order, keys.values.size)

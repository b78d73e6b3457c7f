"""Compaction: store memories in the order in which searches read them.

Memories are stored in order of insertion, which scatters the memories of a leaf. Compaction sorts them by the leaves of
the first tree, from left to right; a scan of a leaf then reads contiguous storage. Each additional tree can have a copy
of the codes in its own leaf order. Searches use the copy for a leaf until the leaf changes.

All new arrays are complete before they replace the old ones, so nothing changes if memory runs out.
"""

import numpy as np

from .._jit import by_reference, kernel
from .allocation import with_cells
from .state import COUNT, LEAVES_END, N_MEMORIES, NONE, ROOT, Codes, KeyArrays, Packed, State, no_packed
from .topology import first_leaf, next_leaf


def compacted(state: State, *, copies: bool) -> State:
    """Return a state with memories sorted by the first tree's leaves and, if ``copies``, codes for the other trees."""
    n = int(state.keys.totals[N_MEMORIES])
    order, _ = _order_of(state, 0)
    new_slot = np.empty(n, np.int32)
    new_slot[order] = np.arange(n, dtype=np.int32)
    members, leaf_of = state.members.copy(), state.leaf_of.copy()
    leaf_of[:, :n] = leaf_of[:, order]
    rename_members(state.trees, members, new_slot)
    leaves = state.leaves.copy()
    leaves["packed"] = NONE
    state = state._replace(
        keys=_keys_in(order, new_slot, state),
        codes=_codes_in(order, state),
        packed=no_packed(state.parameters.n_trees),
        leaves=leaves,
        members=members,
        leaf_of=leaf_of,
    )
    return _with_copies(state) if copies and not state.parameters.sparse else state


def _order_of(state: State, t: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the slots of tree ``t`` leaf by leaf, and the position of each leaf's first slot among them."""
    order = np.empty(int(state.counters[t, COUNT]), np.int64)
    starts = np.full(state.leaves.shape[1], NONE, np.int32)
    list_in_order(state.trees, t, order, starts)
    return order, starts


@kernel
def list_in_order(trees, t, order, starts):
    """Write the slots of tree ``t`` to ``order``, leaf by leaf from left to right.

    Also writes the position of the first slot of each leaf to ``starts``.
    """
    trees = by_reference(trees)
    root = trees.counters[t, ROOT]
    end, leaf = 0, first_leaf(trees, t, root)
    while leaf != NONE:
        starts[leaf] = end
        for i in range(trees.leaves[t, leaf]["size"]):
            order[end] = trees.members[t, leaf, i]
            end += 1
        leaf = next_leaf(trees, t, root, leaf) if root >= 0 else NONE


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


def _codes_in(order: np.ndarray, state: State) -> Codes:
    codes = state.codes
    if state.parameters.sparse:
        return codes
    return Codes(_rows_in(order, codes.values, state.parameters.n_features), _rows_in(order, codes.marks, 1))


def _with_copies(state: State) -> State:
    """Return a state with a copy of the codes for each tree except the first, in leaf order."""
    codes, d = state.codes, state.parameters.n_features
    n, n_copies = int(state.keys.totals[N_MEMORIES]), state.parameters.n_trees - 1
    packed = Packed(np.empty((n_copies, n * d), np.int8), np.empty((n_copies, n), codes.marks.dtype))
    for t in range(1, state.parameters.n_trees):
        order, state.leaves["packed"][t] = _order_of(state, t)
        np.take(codes.values.reshape(-1, d), order, axis=0, out=packed.values[t - 1].reshape(n, d))
        np.take(codes.marks, order, out=packed.marks[t - 1])
    return state._replace(packed=packed)

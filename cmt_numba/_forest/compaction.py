"""Compaction: store memories in the order in which searches read them.

Memories are stored in order of insertion, which scatters the memories of a leaf. Compaction sorts them by the leaves of
the first tree, from left to right; a scan of a leaf then reads contiguous storage.

All new arrays are complete before they replace the old ones, so nothing changes if memory runs out.
"""

import numpy as np

from .._jit import by_reference, kernel
from .allocation import with_cells
from .state import LEAVES_END, N_MEMORIES, NONE, ROOT, KeyArrays, State
from .topology import first_leaf, next_leaf


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

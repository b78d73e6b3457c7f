"""Functions that enlarge the arrays of a key store."""

from typing import Any

import numpy as np

from .._jit import kernel
from .columns import GROWTH, larger_capacity, resized
from .constants import NONE
from .key_store import LONGEST, N_MEMORIES, NEXT_ID, VALUES_END, VALUES_LIVE, KeyArrays, enter_slot


def keys_with_room(parameters: Any, keys: KeyArrays, n_rows: int, n_cells: int) -> KeyArrays:
    """Return a key store with room for ``n_rows`` more keys; sparse keys have ``n_cells`` cells in total."""
    needed = int(keys.totals[N_MEMORIES]) + n_rows
    capacity = keys.ids.size
    if needed > capacity:
        capacity = larger_capacity(capacity, needed)
        keys = keys._replace(ids=resized(keys.ids, capacity))
        if parameters.sparse:
            keys = keys._replace(spans=resized(keys.spans, capacity))
        else:
            keys = keys._replace(values=resized(keys.values, capacity * parameters.n_features))
    if 5 * needed > 4 * keys.slot_table.size:
        keys = keys._replace(slot_table=_rebuilt_slot_table(keys.ids[: keys.totals[N_MEMORIES]], needed))
    if parameters.sparse and keys.totals[VALUES_END] + n_cells > keys.values.size:
        keys = with_room_for_cells(keys, n_cells)
    return keys


def slot_table_size(n: int) -> int:
    """Return the size of a new slot table for ``n`` memories."""
    return 1 << (5 * n // 4).bit_length()


def _rebuilt_slot_table(ids: np.ndarray, n: int) -> np.ndarray:
    """Return a slot table that contains slot ``i`` under ``ids[i]`` and has room for ``n`` memories."""
    table = np.full(slot_table_size(n), NONE, np.int32)
    fill_slot_table(table, ids)
    return table


def with_ids(keys: KeyArrays, ids: np.ndarray) -> KeyArrays:
    """Return the key store with new, distinct ids. The next insert continues after the largest id."""
    totals, all_ids = keys.totals.copy(), keys.ids.copy()
    all_ids[: ids.size] = ids
    totals[NEXT_ID] = ids.max(initial=-1) + 1
    return keys._replace(ids=all_ids, totals=totals, slot_table=_rebuilt_slot_table(all_ids[: ids.size], ids.size))


@kernel
def fill_slot_table(table, ids):
    """Insert slot ``i`` under ``ids[i]`` into an empty table that has room."""
    for slot in range(ids.size):
        enter_slot(table, ids[slot], slot)


def with_room_for_cells(keys: KeyArrays, n_cells: int) -> KeyArrays:
    """Return the keys with contiguous cells in slot order, and with room for at least ``n_cells`` more cells."""
    n, live = int(keys.totals[N_MEMORIES]), int(keys.totals[VALUES_LIVE])
    return with_cells(keys, np.arange(n), max(live + n_cells, int(GROWTH * live)))


def with_cells(keys: KeyArrays, slots: np.ndarray, size: int) -> KeyArrays:
    """Return the keys with room for ``size`` cells; the cells of slot ``i`` come from the former slot ``slots[i]``."""
    moved = keys._replace(
        values=np.empty(size, np.float32),
        indices=np.empty(size, np.int32),
        spans=np.empty_like(keys.spans),
        totals=keys.totals.copy(),
    )
    copy_cells(moved, keys, slots)
    moved.totals[VALUES_END] = keys.totals[VALUES_LIVE]
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


def trimmed_keys(parameters: Any, keys: KeyArrays) -> KeyArrays:
    """Return a key store without spare capacity, which shares arrays with ``keys``."""
    n, totals = int(keys.totals[N_MEMORIES]), keys.totals
    if parameters.sparse:
        if totals[VALUES_LIVE] < totals[VALUES_END]:
            keys = with_room_for_cells(keys, 0)
        totals = keys.totals.copy()
        totals[LONGEST] = np.diff(keys.spans[:n], axis=1).max(initial=0)
    n_cells = int(totals[VALUES_END]) if parameters.sparse else n * parameters.n_features
    return keys._replace(
        values=keys.values[:n_cells],
        indices=keys.indices[:n_cells],
        spans=keys.spans[:n],
        ids=keys.ids[:n],
        totals=totals,
    )

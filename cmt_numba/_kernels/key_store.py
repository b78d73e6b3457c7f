"""Functions that read the key store from Python, and kernels that read and change it."""

from typing import Annotated, Any, NamedTuple

import numpy as np

from .._jit import Known, by_reference, inner, kernel, known, prefetch
from .constants import NONE
from .hash_table import belongs_before, enter_place, find_place, hash_number
from .rows import UNSCALED, Row, Rows, row_of
from .structures import kind_of

# Entries of ``KeyArrays.totals``.
N_MEMORIES = 0
NEXT_ID = 1
VALUES_END = 2  # sparse keys: number of cells of ``KeyArrays.values`` ever used
VALUES_LIVE = 3  # sparse keys: number of cells of ``KeyArrays.values`` that belong to a memory
LONGEST = 4  # largest number of cells of any key stored so far
N_TOTALS = 5


class KeyArrays(NamedTuple):
    """The key store: unit-length float32 keys by slot, and the hash table from ids to slots.

    A dense key is ``values[slot * n_features : (slot + 1) * n_features]``; ``indices`` and ``spans`` are empty.
    A sparse key is the cells ``spans[slot, 0] : spans[slot, 1]`` of ``values`` and ``indices``.
    """

    values: Annotated[np.ndarray, kind_of(np.float32, "cells")]
    indices: Annotated[np.ndarray, kind_of(np.int32, "cells of sparse keys")]
    spans: Annotated[np.ndarray, kind_of(np.int64, "sparse keys", 2)]
    ids: Annotated[np.ndarray, kind_of(np.int64, "keys")]
    # open-addressing table: the slot in each cell, or NONE if the cell is empty
    slot_table: Annotated[np.ndarray, kind_of(np.int32, "cells of the slot table")]
    totals: Annotated[np.ndarray, kind_of(np.int64, N_TOTALS)]


class KeyStore(NamedTuple):
    """A key store as kernels receive it: the arrays of :class:`KeyArrays` and the type of the keys."""

    n_features: int
    sparse: Known
    values: np.ndarray
    indices: np.ndarray
    spans: np.ndarray
    ids: np.ndarray
    slot_table: np.ndarray
    totals: np.ndarray


def key_store(parameters: Any, keys: KeyArrays) -> KeyStore:
    """Return the key store of a forest or of examples for kernels."""
    return KeyStore(parameters.n_features, known(parameters.sparse), *keys)


def new_keys() -> KeyArrays:
    """Return an empty key store."""
    return KeyArrays(
        values=np.empty(0, np.float32),
        indices=np.empty(0, np.int32),
        spans=np.empty((0, 2), np.int64),
        ids=np.empty(0, np.int64),
        slot_table=np.full(1, NONE, np.int32),
        totals=np.zeros(N_TOTALS, np.int64),
    )


_CELLS_IN_A_LINE = 16  # 4-byte cells in a cache line of 64 bytes


def stored_rows(state: Any, slots: Any) -> Rows:
    """Return the keys in ``slots``, an array or a slice; a view if they are a slice of dense keys, else a copy."""
    keys, d = state.keys, state.parameters.n_features
    if state.parameters.sparse:
        spans = keys.spans[slots]
        lengths = spans[:, 1] - spans[:, 0]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        cells = np.arange(offsets[-1]) + np.repeat(spans[:, 0] - offsets[:-1], lengths)
        return Rows(keys.values[cells], keys.indices[cells], offsets, d, True)
    values = keys.values.reshape(-1, d)[slots]
    return Rows(values.reshape(-1), keys.indices, np.arange(0, values.size + 1, d, dtype=np.int64), d, False)


@inner
def key_of(keys, slot):
    """Return the key in a slot."""
    if keys.sparse:
        return Row(keys.values, keys.indices, keys.spans[slot, 0], keys.spans[slot, 1], UNSCALED)
    d = keys.n_features
    return Row(keys.values, keys.indices, slot * d, (slot + 1) * d, UNSCALED)


@inner
def prefetch_span(keys, slot):
    """Prefetch the span of a sparse key."""
    prefetch(keys.spans[slot], 0)


@inner
def prefetch_key(keys, slot):
    """Prefetch the key in a slot."""
    z = key_of(keys, slot)
    for i in range(z.a, z.b, _CELLS_IN_A_LINE):
        prefetch(z.values, i)
        if keys.sparse:
            prefetch(z.indices, i)


@inner
def enter_slot(slot_table, memory_id, slot):
    """Insert a slot under a new id into a table that has room."""
    enter_place(slot_table, slot, hash_number(memory_id, slot_table.size))


@inner
def _cell_of(keys, memory_id):
    """Return the slot-table cell of an id or, if it is missing, the complement of the empty cell to insert it into."""
    return find_place(keys.slot_table, keys.ids, memory_id, hash_number(memory_id, keys.slot_table.size))


@inner
def find_slot(keys, memory_id):
    """Return the slot of an id, or NONE if it is not stored."""
    cell = _cell_of(keys, memory_id)
    return np.int64(keys.slot_table[cell]) if cell >= 0 else NONE


@kernel
def find_slots(keys, ids, slots):
    """Write the slot of each id to ``slots``, or NONE if the id is not stored."""
    for i in range(ids.size):
        slots[i] = find_slot(keys, ids[i])


@inner
def erase_id(keys, memory_id):
    """Delete an id from the slot table, and move later entries into the gap if searches would miss them."""
    table, mask = keys.slot_table, keys.slot_table.size - 1
    gap = _cell_of(keys, memory_id)
    cell = gap
    while True:
        cell = (cell + 1) & mask
        if table[cell] == NONE:
            break
        home = hash_number(keys.ids[table[cell]], table.size)
        if belongs_before(cell, home, gap, mask):
            table[gap] = table[cell]
            gap = cell
    table[gap] = NONE


@kernel
def append_keys(keys, rows):
    """Store unit-length rows in the next slots under the next ids. The key store must have room."""
    keys = by_reference(keys)
    for row in range(rows.offsets.size - 1):
        _append_row(keys, rows, row)


@kernel
def store_keys(view, rows, first, stop):
    """Store the unit-length rows ``first:stop`` in the next slots of a forest, which must have room."""
    keys = by_reference(view).keys
    for row in range(first, stop):
        _append_row(keys, rows, row)


@inner
def _append_row(keys, rows, row):
    """Store a row in the next slot under the next id."""
    a, b = rows.offsets[row], rows.offsets[row + 1]
    slot = keys.totals[N_MEMORIES]
    memory_id = keys.totals[NEXT_ID]
    if keys.sparse:
        start = keys.totals[VALUES_END]
        keys.spans[slot, 0] = start
        keys.spans[slot, 1] = start + b - a
        keys.totals[VALUES_END] += b - a
        keys.totals[VALUES_LIVE] += b - a
        for i in range(b - a):
            keys.indices[start + i] = rows.indices[a + i]
    else:
        start = slot * keys.n_features
    for i in range(b - a):
        keys.values[start + i] = rows.values[a + i]
    keys.ids[slot] = memory_id
    enter_slot(keys.slot_table, memory_id, slot)
    keys.totals[N_MEMORIES] += 1
    keys.totals[NEXT_ID] += 1
    keys.totals[LONGEST] = max(keys.totals[LONGEST], b - a)


@inner
def overwrite_key(keys, slot, rows, row):
    """Replace the key in a slot by a unit-length row. The key store must have room."""
    x = row_of(rows, row)
    n = x.b - x.a
    if keys.sparse:
        start = keys.totals[VALUES_END]
        keys.totals[VALUES_END] += n
        keys.totals[VALUES_LIVE] += n - (keys.spans[slot, 1] - keys.spans[slot, 0])
        keys.spans[slot, 0] = start
        keys.spans[slot, 1] = start + n
        for i in range(n):
            keys.indices[start + i] = x.indices[x.a + i]
    else:
        start = slot * keys.n_features
    for i in range(n):
        keys.values[start + i] = x.values[x.a + i]
    keys.totals[LONGEST] = max(keys.totals[LONGEST], n)


@inner
def drop_key(keys, slot):
    """Remove the key in ``slot``, and move the last key to this slot."""
    last = keys.totals[N_MEMORIES] - 1
    erase_id(keys, keys.ids[slot])
    if keys.sparse:
        keys.totals[VALUES_LIVE] -= keys.spans[slot, 1] - keys.spans[slot, 0]
    if slot != last:
        keys.slot_table[_cell_of(keys, keys.ids[last])] = slot
        if keys.sparse:
            keys.spans[slot, 0] = keys.spans[last, 0]
            keys.spans[slot, 1] = keys.spans[last, 1]
        else:
            d = keys.n_features
            for i in range(d):
                keys.values[slot * d + i] = keys.values[last * d + i]
        keys.ids[slot] = keys.ids[last]
    keys.totals[N_MEMORIES] = last


@inner
def longest_key(keys):
    """Return the largest number of cells of any key stored so far."""
    return keys.totals[LONGEST]

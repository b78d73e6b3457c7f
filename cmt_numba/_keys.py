"""Kernels: the key store, and a query made ready for scoring against it.

Keys come in as *rows*: flat ``values`` (and, sparse, ``indices``) of which a row is the span ``a .. b``. Kernels pass
spans rather than array slices, which would cost a reference count each.
"""

from typing import NamedTuple

import numpy as np

from ._jit import inner, inner_allocating, inner_fastmath, kernel
from ._state import LONGEST, N_MEMORIES, NEXT_ID, NONE, VALUES_END, VALUES_LIVE

_HASH = 2654435769  # 2**32 divided by the golden ratio (Fibonacci hashing)


class Rows(NamedTuple):
    """Unit-length rows as kernels take them: row ``i`` is the span ``offsets[i] .. offsets[i + 1]``."""

    values: np.ndarray  # float32
    indices: np.ndarray  # int32, empty if the rows are dense
    offsets: np.ndarray  # int64 (n_rows + 1,)
    n_features: int
    sparse: bool

    @property
    def n_rows(self) -> int:
        """How many rows there are."""
        return self.offsets.size - 1


@inner
def hash_feature(feature, bits):
    """Return a cell of a table of ``2 ** bits`` cells for a feature index below 2**31."""
    return ((np.int64(feature) * _HASH) & 0xFFFFFFFF) >> (32 - bits)


@kernel
def normalize_rows(values, offsets, unit):
    """Write the rows scaled to Euclidean length 1 (all-zero rows stay zero) into ``unit``.

    Returns the first row that holds a NaN or an infinity, or -1. Lengths are summed in float64, where the square of
    no float32 overflows or vanishes.
    """
    for row in range(offsets.size - 1):
        a, b = offsets[row], offsets[row + 1]
        total = 0.0
        for i in range(a, b):
            total += np.float64(values[i]) * np.float64(values[i])
        if not np.isfinite(total):
            return row
        length = np.sqrt(total) if total > 0.0 else 1.0
        for i in range(a, b):
            unit[i] = values[i] / length
    return -1


@inner
def key_start(state, slot):
    """Return where the key of ``slot`` starts in the key store."""
    if state.parameters.sparse:
        return state.keys.start[slot]
    return slot * state.parameters.n_features


@inner
def key_end(state, slot):
    """Return where the key of ``slot`` ends in the key store."""
    if state.parameters.sparse:
        return state.keys.start[slot] + state.keys.length[slot]
    return (slot + 1) * state.parameters.n_features


@inner
def find_slot(keys, memory_id):
    """Return the slot of a memory id, or NONE."""
    mask = keys.slot_table.size - 1
    cell = memory_id & mask
    while keys.slot_table[cell] != NONE:
        slot = keys.slot_table[cell]
        if keys.ids[slot] == memory_id:
            return np.int64(slot)
        cell = (cell + 1) & mask
    return np.int64(NONE)


@kernel
def find_slots(keys, ids, slots):
    """Write the slot of each id, NONE where there is no such memory."""
    for i in range(ids.size):
        slots[i] = find_slot(keys, ids[i])


@inner
def _cell_of(keys, memory_id):
    mask = keys.slot_table.size - 1
    cell = memory_id & mask
    while keys.ids[keys.slot_table[cell]] != memory_id:
        cell = (cell + 1) & mask
    return cell


@inner
def _erase_id(keys, memory_id):
    """Take an id out of the slot table, moving later entries of its run up so that no search breaks off early."""
    table, mask = keys.slot_table, keys.slot_table.size - 1
    gap = _cell_of(keys, memory_id)
    cell = gap
    while True:
        cell = (cell + 1) & mask
        if table[cell] == NONE:
            break
        home = keys.ids[table[cell]] & mask
        if ((cell - home) & mask) >= ((cell - gap) & mask):
            table[gap] = table[cell]
            gap = cell
    table[gap] = NONE


@kernel
def append_keys(state, rows):
    """Store unit-length rows in the next slots under the next ids; the caller has made room."""
    keys = state.keys
    mask = keys.slot_table.size - 1
    for row in range(rows.offsets.size - 1):
        a, b = rows.offsets[row], rows.offsets[row + 1]
        slot = keys.totals[N_MEMORIES]
        memory_id = keys.totals[NEXT_ID]
        if state.parameters.sparse:
            start = keys.totals[VALUES_END]
            keys.start[slot] = start
            keys.length[slot] = b - a
            keys.totals[VALUES_END] += b - a
            keys.totals[VALUES_LIVE] += b - a
            for i in range(b - a):
                keys.indices[start + i] = rows.indices[a + i]
        else:
            start = slot * state.parameters.n_features
        for i in range(b - a):
            keys.values[start + i] = rows.values[a + i]
        keys.ids[slot] = memory_id
        cell = memory_id & mask
        while keys.slot_table[cell] != NONE:
            cell = (cell + 1) & mask
        keys.slot_table[cell] = slot
        keys.totals[N_MEMORIES] += 1
        keys.totals[NEXT_ID] += 1
        keys.totals[LONGEST] = max(keys.totals[LONGEST], b - a)


@inner
def drop_key(state, slot):
    """Forget the key of ``slot`` and move the last memory's key there."""
    keys = state.keys
    last = keys.totals[N_MEMORIES] - 1
    _erase_id(keys, keys.ids[slot])
    if state.parameters.sparse:
        keys.totals[VALUES_LIVE] -= keys.length[slot]
    if slot != last:
        keys.slot_table[_cell_of(keys, keys.ids[last])] = slot
        if state.parameters.sparse:
            keys.start[slot] = keys.start[last]
            keys.length[slot] = keys.length[last]
        else:
            d = state.parameters.n_features
            for i in range(d):
                keys.values[slot * d + i] = keys.values[last * d + i]
        keys.ids[slot] = keys.ids[last]
    keys.totals[N_MEMORIES] = last


@kernel
def drop_keys_from(state, first):
    """Forget the keys in slots ``first`` and above."""
    while state.keys.totals[N_MEMORIES] > first:
        drop_key(state, state.keys.totals[N_MEMORIES] - 1)


class Probe(NamedTuple):
    """A query row, weighted by the scorer, made ready for many dot products with stored keys.

    Dense: ``values`` has one entry a feature. Sparse: an open-addressing table of the query's features, small enough
    to stay in the first-level cache however wide the keys are.
    """

    features: np.ndarray  # int32, NONE where empty
    values: np.ndarray  # float32
    bits: np.ndarray  # int64 (1,): the table in use is the first ``2 ** bits`` cells


@inner
def _probe_bits(n_cells):
    bits = 4
    while (1 << bits) < 4 * n_cells:
        bits += 1
    return bits


@inner
def longest_row(rows, first, stop):
    """Return the most cells in any of the rows ``first .. stop``."""
    longest = 0
    for row in range(first, stop):
        longest = max(longest, rows.offsets[row + 1] - rows.offsets[row])
    return longest


@inner_allocating
def new_probe(state, longest):
    """Return a probe for rows of up to ``longest`` cells."""
    if state.parameters.sparse:
        size = 1 << _probe_bits(longest)
        return Probe(np.empty(size, np.int32), np.empty(size, np.float32), np.zeros(1, np.int64))
    return Probe(np.empty(0, np.int32), np.empty(state.parameters.n_features, np.float32), np.zeros(1, np.int64))


@inner
def aim_probe(state, probe, values, indices, a, b, weighted):
    """Make ``probe`` ready for the query row ``a .. b``, each value times 1 plus the scorer's weight if wanted."""
    theta = state.scorer.theta
    weighted = weighted and theta.size > 0
    if not state.parameters.sparse:
        for i in range(b - a):
            probe.values[i] = values[a + i] * (np.float32(1.0) + theta[i]) if weighted else values[a + i]
        return
    bits = _probe_bits(b - a)
    probe.bits[0] = bits
    mask = (1 << bits) - 1
    for cell in range(1 << bits):
        probe.features[cell] = NONE
    for i in range(a, b):
        feature = np.int64(indices[i])
        cell = hash_feature(feature, bits)
        while probe.features[cell] != NONE:
            cell = (cell + 1) & mask
        probe.features[cell] = feature
        probe.values[cell] = values[i] * (np.float32(1.0) + theta[feature]) if weighted else values[i]


@inner
def probe_value(probe, feature):
    """Return the value that a sparse probe holds for a feature, 0 where it has none."""
    bits = probe.bits[0]
    mask = (1 << bits) - 1
    cell = hash_feature(feature, bits)
    while probe.features[cell] != NONE:
        if probe.features[cell] == feature:
            return probe.values[cell]
        cell = (cell + 1) & mask
    return np.float32(0.0)


@inner_fastmath
def dot(x, a, y, c, n):
    """Return the dot product of ``n`` cells of ``x`` from ``a`` and of ``y`` from ``c``."""
    left, right = x[a : a + n], y[c : c + n]  # indexed from 0 on, which the compiler can turn into vectors
    total = np.float32(0.0)
    for i in range(n):
        total += left[i] * right[i]
    return total


@inner
def score(state, probe, slot):
    """Return f(x, z), the scorer's value for the probe's query and the memory in ``slot``."""
    keys = state.keys
    if not state.parameters.sparse:
        d = state.parameters.n_features
        return dot(probe.values, 0, keys.values, slot * d, d)
    total = np.float32(0.0)
    start = keys.start[slot]
    for i in range(start, start + keys.length[slot]):
        total += probe_value(probe, keys.indices[i]) * keys.values[i]
    return total

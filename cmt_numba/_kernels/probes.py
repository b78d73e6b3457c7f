"""Kernels: queries prepared for many dot products with stored keys."""

from typing import NamedTuple

import numpy as np

from .._jit import empty, inner, inner_allocating, inner_fastmath, release, zeros
from .constants import NONE
from .hash_table import find_feature
from .hits import NO_ROOM
from .key_store import key_of
from .rows import Rows, dot, longest_row

_WIDEST_DIRECT = 1 << 18  # maximum number of features of a direct probe, whose float32 values fit the L2 cache
PROBE_CELL = np.dtype([("feature", np.int32)])


class Probe(NamedTuple):
    """A query prepared for many dot products with stored keys.

    The ``values`` of a *direct* probe have one entry for each feature. A *hashed* probe is for very wide sparse keys:
    ``features`` and ``values`` are an open-addressing table of the query's features. Its size does not depend on the
    width of the keys.
    """

    values: np.ndarray  # float32 (n_features,) or (table size,): the value of each feature or cell
    features: np.ndarray  # PROBE_CELL (table size,): the feature of each cell or NONE; empty for a direct probe
    aimed: np.ndarray  # int64 (3,): start and end of the current row's cells, log2 of its table size


@inner
def _table_bits(n_cells):
    """Return log2 of the size of a table for ``n_cells`` features.

    The table is at most a quarter full, so most lookups read a single cell.
    """
    bits = 4
    while (1 << bits) < 4 * n_cells:
        bits += 1
    return bits


def room_for_probe(rows: Rows) -> np.ndarray:
    """Return zeros for ``Query.room`` to search for single rows, or an empty array for dense or very wide rows.

    Each search resets the array to zeros, so consecutive searches can share it. For a row with few features, clearing a
    new array would take longer than the search.
    """
    return np.zeros((1, rows.n_features), np.float32) if rows.sparse and rows.n_features <= _WIDEST_DIRECT else NO_ROOM


@inner_allocating
def new_probes(rows, first, stop, n, room):
    """Return ``n`` probes for the rows ``first:stop`` along a first axis, in ``room`` if it has ``n`` rows."""
    d = rows.n_features
    aimed = zeros((n, 3), np.int64)
    if not rows.sparse or d <= _WIDEST_DIRECT:
        values = room if room.shape[0] == n else zeros((n, d), np.float32)
        return Probe(values, empty((n, 0), PROBE_CELL), aimed)
    size = 1 << _table_bits(longest_row(rows, first, stop))
    return Probe(empty((n, size), np.float32), empty((n, size), PROBE_CELL), aimed)


@inner
def probe_at(probes, i):
    return Probe(probes.values[i], probes.features[i], probes.aimed[i])


@inner_allocating
def new_probe(rows, first, stop):
    """Return a probe for the rows ``first:stop``."""
    no_room = empty((0, 0), np.float32)
    probes = new_probes(rows, first, stop, 1, no_room)
    release(no_room)
    return probe_at(probes, 0)


@inner
def clear_probe(probe, indices):
    """Reset the values of a direct probe to 0 if it was prepared for a sparse row."""
    if probe.features.size == 0 and indices.size > 0:
        for i in range(probe.aimed[0], probe.aimed[1]):
            probe.values[indices[i]] = 0.0


@inner
def aim_probe(probe, x):
    """Prepare ``probe`` for row ``x``."""
    hashed, sparse = probe.features.size > 0, x.indices.size > 0
    if hashed:
        probe.aimed[2] = _table_bits(x.b - x.a)
        for i in range(1 << probe.aimed[2]):
            probe.features[i]["feature"] = NONE
    else:
        clear_probe(probe, x.indices)
    probe.aimed[0] = x.a
    probe.aimed[1] = x.b
    for i in range(x.a, x.b):
        feature = np.int64(x.indices[i]) if sparse else i - x.a
        cell = feature
        if hashed:
            cell = cell_for(probe, feature)
            cell = max(cell, ~cell)
            probe.features[cell]["feature"] = feature
        probe.values[cell] = x.values[i]


@inner
def cell_for(probe, feature):
    """Return a feature's cell in a hashed probe or, if it is missing, the complement of the empty cell for it."""
    return find_feature(probe.features, 0, probe.aimed[2], feature)


@inner
def value_of(probe, feature):
    """Return the value of a feature in the probe."""
    if probe.features.size == 0:
        return probe.values[feature]
    cell = cell_for(probe, feature)
    return probe.values[cell] if cell >= 0 else np.float32(0.0)


@inner_fastmath
def gathered_dot(by_feature, indices, values):
    """Return the dot product of values indexed by feature and a sparse row."""
    total = np.float32(0.0)
    for i in range(indices.size):
        total += by_feature[indices[i]] * values[i]
    return total


@inner
def probed_dot(probe, x):
    """Return the dot product of the probe with row ``x``."""
    if x.indices.size == 0:
        return x.scale * dot(probe.values, 0, x.values, x.a, x.b - x.a)
    return _sparse_dot(probe, x)


@inner
def _sparse_dot(probe, x):
    if probe.features.size == 0:
        return gathered_dot(probe.values, x.indices[x.a : x.b], x.values[x.a : x.b])
    total = np.float32(0.0)
    for i in range(x.a, x.b):
        total += value_of(probe, np.int64(x.indices[i])) * x.values[i]
    return total


@inner
def score(keys, probe, slot):
    """Return the score f(x, z) of the memory in ``slot`` for a weighted probe."""
    z = key_of(keys, slot)
    if not keys.sparse:
        return z.scale * dot(probe.values, 0, z.values, z.a, z.b - z.a)
    return _sparse_dot(probe, z)

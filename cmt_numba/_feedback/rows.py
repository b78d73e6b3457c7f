"""Kernels: queries and keys in the form that the model needs, and lists of candidates."""

from typing import NamedTuple

import numpy as np

from .._index import copy_values, largest_of, vector_of
from .._jit import by_reference, inner, inner_fastmath, kernel, prefetch
from .._kernels import NONE, dot, fill_slot_table, find_slot, slot_table_size

_SHORTEST, _FLOATS_IN_A_LINE = np.float32(1e-30), 16
_SAFE, _SMALLEST = np.float32(1e-12), np.finfo(np.float32).smallest_normal
_PREFETCHED = 256  # number of values of a row to prefetch
_FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)
_FINE = np.float64(1 << 40)  # the precision of hashed values
_HALF, _MIXED, _SIGN = np.uint64(33), np.uint64(29), np.uint64(32)


class MemoryTable(NamedTuple):
    """A hash table from ids of memories to their rows in the learned state."""

    ids: np.ndarray  # int64 (rows,)
    slot_table: np.ndarray  # int32


def new_table(ids: np.ndarray, n: int) -> MemoryTable:
    """Return a table of the first ``n`` ids, with room for all of them."""
    table = np.full(slot_table_size(ids.size), NONE, np.int32)
    fill_slot_table(table, ids[:n])
    return MemoryTable(ids, table)


@inner
def scale_row(row):
    """Scale a row to unit length."""
    length = np.sqrt(dot(row, np.int64(0), row, np.int64(0), row.size))
    if not _SAFE < length < np.float32(1.0) / _SAFE:  # squares may be too small or too large for float32
        largest = largest_of(row)
        for j in range(row.size):
            row[j] /= max(largest, _SMALLEST)
        length = np.sqrt(dot(row, np.int64(0), row, np.int64(0), row.size))
    factor = np.float32(1.0) / max(length, _SHORTEST)
    for j in range(row.size):
        row[j] *= factor


@kernel
def scale_rows(rows):
    """Scale rows to unit length."""
    for i in range(rows.shape[0]):
        scale_row(rows[i])


@inner_fastmath
def _round(values, inverse, shorts):
    for j in range(values.size):
        shorts[j] = np.int16(np.rint(values[j] * inverse))


@inner
def code_shorts(values, largest, shorts):
    """Write int16 codes of values, which can be multiplied with 8-bit codes; return their factor."""
    step = max(largest_of(values), _SHORTEST) / largest
    _round(values, np.float32(1.0) / step, shorts)
    return step


@inner
def hash_of(row):
    """Return a hash of the values of a row of unit length, below 2^32."""
    total = np.uint64(0)
    for j in range(row.size):
        total = total * _FIRST + np.uint64(np.int64(row[j] * _FINE))
    return np.int64(((total ^ (total >> _MIXED)) * _SECOND) >> _SIGN)


@inner
def prefetch_row(row):
    """Prefetch the first values of a float32 row. The processor prefetches the rest."""
    for j in range(0, min(row.size, _PREFETCHED), _FLOATS_IN_A_LINE):
        prefetch(row, j)


@inner
def read_key(index, memory, key):
    """Write the vector of a memory in a dense index, scaled to unit length; zeros if it is not stored."""
    slot = find_slot(index.vectors, memory)
    if slot == NONE:
        key[:] = np.float32(0.0)
    else:
        copy_values(vector_of(index.vectors, slot).values, key)
        scale_row(key)


@kernel
def read_keys(index, ids, keys):
    """Write the keys of memories; see :func:`read_key`."""
    index = by_reference(index)
    for i in range(ids.size):
        read_key(index, ids[i], keys[i])


@kernel
def hash_rows(values, features, offsets, rows):
    """Write sparse rows with each feature added to a cell, with a random sign."""
    width = np.uint64(rows.shape[1])
    rows[:] = np.float32(0.0)
    for i in range(rows.shape[0]):
        for cell in range(offsets[i], offsets[i + 1]):
            number = np.uint64(features[cell]) * _FIRST
            number = (number ^ (number >> _MIXED)) * _SECOND
            value = values[cell] if (number >> _SIGN) & np.uint64(1) else -values[cell]
            rows[i, np.int64((number >> _HALF) % width)] += value


@inner
def add_distinct(ids, own, n):
    """Add the ids that are not among the first ``n`` of ``own``, which may be part of it; return the new number."""
    for i in range(ids.size):
        memory, j = ids[i], np.int64(0)
        while j < n and own[j] != memory:
            j += 1
        if j == n and memory != NONE:
            own[n] = memory
            n += 1
    return n


@kernel
def drop_repeated(ids, first):
    """Move distinct ids of each row together from column ``first`` on; return the largest number of ids in a row."""
    most = np.int64(first)
    for row in range(ids.shape[0]):
        own = ids[row]
        n = add_distinct(own[first:], own, np.int64(first))
        own[n:] = NONE
        most = max(most, n)
    return most

"""Kernels: hash tables with open addressing and linear probing.

The size of a table is a power of two. The *home* of an entry is the cell of its hash. Insertion uses the first free
cell at or after the home, and lookup scans from the home until it finds the entry or an empty cell. Cells contain
either features or *places*, which are positions in a separate array of entries.
"""

import numpy as np

from .._jit import inner, inner_exported
from .constants import NONE

_FACTOR = 2654435769  # 2**32 divided by the golden ratio (Fibonacci hashing)


@inner_exported
def hash_feature(feature, bits):
    """Return the home of a feature below 2**31 in a table of ``2 ** bits`` cells."""
    return ((np.int64(feature) * _FACTOR) & 0xFFFFFFFF) >> (32 - bits)


@inner_exported
def hash_number(number, size):
    """Return the home of a non-negative integer in a table of ``size`` cells, a power of two.

    The hash spreads consecutive ids over the table. If they occupied consecutive cells, a deletion would have to scan
    all later entries.
    """
    return (((number * _FACTOR) & 0x7FFFFFFF) * size) >> 31


@inner
def find_feature(cells, start, bits, feature):
    """Return the cell of a feature in ``cells[start : start + 2**bits]``, or the complement of its empty cell."""
    mask = (1 << bits) - 1
    cell = hash_feature(feature, bits)
    while True:
        found = cells[start + cell]["feature"]
        if found == feature:
            return start + cell
        if found == NONE:
            return ~(start + cell)
        cell = (cell + 1) & mask


@inner
def find_place(table, entered, wanted, home):
    """Return the cell whose place ``p`` has ``entered[p] == wanted``, or the complement of the empty cell for it."""
    mask = table.size - 1
    cell = home
    while table[cell] != NONE:
        if entered[table[cell]] == wanted:
            return cell
        cell = (cell + 1) & mask
    return ~cell


@inner
def enter_place(table, place, home):
    """Insert a new place into a table that has room."""
    mask = table.size - 1
    cell = home
    while table[cell] != NONE:
        cell = (cell + 1) & mask
    table[cell] = place


@inner
def belongs_before(cell, home, gap, mask):
    """Return whether the entry in ``cell`` must move to ``gap``, because a search from ``home`` would stop there."""
    return ((cell - home) & mask) >= ((cell - gap) & mask)

"""Kernels: hash tables with open addressing and linear probing.

The size of a table is a power of two. An entry is in the first cell that was free, starting from its *home*, the cell
of its hash; a search probes from there until it finds the entry or an empty cell. Some tables hold features. Others
hold places, positions in an array with the entries.
"""

import numpy as np

from .._jit import inner, inner_exported
from .state import NONE

_FACTOR = 2654435769  # 2**32 divided by the golden ratio (Fibonacci hashing)


@inner_exported
def hash_feature(feature, bits):
    """Return a cell of a table of ``2 ** bits`` cells for a feature index below 2**31."""
    return ((np.int64(feature) * _FACTOR) & 0xFFFFFFFF) >> (32 - bits)


@inner_exported
def hash_number(number, size):
    """Return a cell of a table of ``size`` cells, a power of two, for an id or a slot.

    Consecutive ids without hashing would fill a table without gaps, and removing one would mean looking at all that
    follow.
    """
    return (((number * _FACTOR) & 0x7FFFFFFF) * size) >> 31


@inner
def find_feature(cells, start, bits, feature):
    """Return the cell of a feature or, complemented, the empty cell where it would go; NONE is not a feature.

    The table is the ``2 ** bits`` records of ``cells`` from ``start`` on, each with a ``feature``.
    """
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
    """Return the cell of the place where ``entered`` has the number or, complemented, the empty cell for it."""
    mask = table.size - 1
    cell = home
    while table[cell] != NONE:
        if entered[table[cell]] == wanted:
            return cell
        cell = (cell + 1) & mask
    return ~cell


@inner
def enter_place(table, place, home):
    """Insert a place into a table that does not contain it and has room."""
    mask = table.size - 1
    cell = home
    while table[cell] != NONE:
        cell = (cell + 1) & mask
    table[cell] = place


@inner
def belongs_before(cell, home, gap, mask):
    """Return whether an entry must move from its cell into a gap, so that searches still find it."""
    return ((cell - home) & mask) >= ((cell - gap) & mask)

"""Kernels: where the weights of sparse routers are kept.

Each router has an open-addressing table of its own for the features it has met, so that the memory of sparse routers
follows what was touched. Tables lie in one array a tree. A freed table goes on a list by its size and is used again;
when the array is full, ``_growth.py`` moves all tables together.

A table that would have to grow first sheds the features that no memory below its node has any more. So a tree whose
memories come and go for ever stays as large as its memories make it.
"""

import numpy as np

from ._jit import inner
from ._keys import hash_feature, key_of
from ._state import CELLS_WANTED, FREE_TABLES, LEFT, NONE, RIGHT, SMALLEST_TABLE_BITS, TABLES_END
from ._topology import first_leaf, next_leaf


@inner
def table_bits(n_features):
    """Return the size (as a power of two) of a table for ``n_features`` features: at most three quarters full."""
    bits = SMALLEST_TABLE_BITS
    while 3 * (1 << bits) < 4 * n_features:
        bits += 1
    return bits


@inner
def has_cells(state, t, wanted):
    """Return whether ``wanted`` cells of router storage are free; if not, note that they are wanted."""
    if state.counters[t, TABLES_END] + wanted <= state.routers.table.shape[1]:
        return True
    state.counters[t, CELLS_WANTED] = wanted
    return False


# Tables start at multiples of the smallest table's size, so a link fits the int32 of a feature cell.
@inner
def next_free_table(routers, t, start):
    """Return where the table that follows ``start`` in its list of free tables starts, or NONE."""
    link = np.int64(routers.table[t, start]["feature"])
    return link if link == NONE else link << SMALLEST_TABLE_BITS


@inner
def _release_cells(state, t, start, bits):
    """Put a table on the list of free tables of its size."""
    following = state.counters[t, FREE_TABLES + bits]
    state.routers.table[t, start]["feature"] = NONE if following == NONE else following >> SMALLEST_TABLE_BITS
    state.counters[t, FREE_TABLES + bits] = start


@inner
def release_table(state, t, node):
    """Take the node's table away from it, if it has one."""
    record = state.nodes[t, node]
    if record["table_bits"] > 0:
        _release_cells(state, t, record["table_start"], np.int64(record["table_bits"]))
        record["table_bits"] = 0
        record["table_used"] = 0


@inner
def _take_cells(state, t, bits):
    """Return the start of a table of ``2 ** bits`` empty cells, or NONE if there is no room for one."""
    start = state.counters[t, FREE_TABLES + bits]
    if start != NONE:
        state.counters[t, FREE_TABLES + bits] = next_free_table(state.routers, t, start)
    else:
        if not has_cells(state, t, 1 << bits):
            return NONE
        start = state.counters[t, TABLES_END]
        state.counters[t, TABLES_END] += 1 << bits
    _clear_cells(state, t, start, bits)
    return start


@inner
def _clear_cells(state, t, start, bits):
    for cell in range(start, start + (1 << bits)):
        state.routers.table[t, cell]["feature"] = NONE


@inner
def _find(state, t, start, bits, feature):
    """Return the cell of a feature in a table or, complemented, the empty cell where it would go."""
    mask = (1 << bits) - 1
    cell = hash_feature(feature, bits)
    while True:
        found = state.routers.table[t, start + cell]["feature"]
        if found == feature:
            return start + cell
        if found == NONE:
            return ~(start + cell)
        cell = (cell + 1) & mask


@inner
def find_cell(state, t, node, feature):
    """Return the cell of a feature in a node's table or, complemented, the empty cell where it would go."""
    record = state.nodes[t, node]
    return _find(state, t, record["table_start"], np.int64(record["table_bits"]), np.int64(feature))


@inner
def _copy_cell(state, t, source, start, bits):
    """Copy a feature with its weight into another table, unless it is there; return whether it was not."""
    table = state.routers.table
    cell = ~_find(state, t, start, bits, np.int64(table[t, source]["feature"]))
    if cell < 0:
        return False
    table[t, cell]["feature"] = table[t, source]["feature"]
    table[t, cell]["weight"] = table[t, source]["weight"]
    table[t, cell]["square"] = table[t, source]["square"]
    return True


@inner
def _copy_all(state, t, source, source_bits, start, bits):
    """Copy a table's features into another table; return how many there were."""
    n = 0
    for cell in range(source, source + (1 << source_bits)):
        if state.routers.table[t, cell]["feature"] != NONE:
            n += _copy_cell(state, t, cell, start, bits)
    return n


@inner
def _copy_needed(state, t, node, start, bits):
    """Copy those of the node's features that a memory below it has into another table; return how many."""
    n = 0
    leaf = first_leaf(state, t, node)
    while leaf != NONE:
        for i in range(state.leaves[t, leaf]["size"]):
            slot = np.int64(state.members[t, leaf, i])
            x = key_of(state, slot)
            for j in range(x.a, x.b):
                cell = find_cell(state, t, node, x.indices[j])
                n += cell >= 0 and _copy_cell(state, t, cell, start, bits)
        leaf = next_leaf(state, t, node, leaf)
    return n


@inner
def _enlarge_table(state, t, node, bits, n_coming):
    """Give the node a table of ``2 ** bits`` cells, or make room for ``n_coming`` features in the one that it has.

    Returns whether there was room for the larger table, which either way needs.
    """
    start = _take_cells(state, t, bits)
    if start == NONE:
        return False
    record = state.nodes[t, node]
    old_start, old_bits = record["table_start"], np.int64(record["table_bits"])
    used = 0
    if old_bits > 0:
        n_below = np.int64(record["below"][LEFT]) + record["below"][RIGHT]
        if record["examples"] < 2 * n_below:  # most of what the node has met is still there
            used = _copy_all(state, t, old_start, old_bits, start, bits)
        else:
            used = _copy_needed(state, t, node, start, bits)
            # Less than three quarters, so that it will be a while until the table is full again.
            if 8 * (used + n_coming) <= 5 * (1 << old_bits):
                _clear_cells(state, t, old_start, old_bits)
                _copy_all(state, t, start, bits, old_start, old_bits)
                _release_cells(state, t, start, bits)
                record["table_used"] = used
                return True
        release_table(state, t, node)
    record["table_start"] = start
    record["table_bits"] = bits
    record["table_used"] = used
    return True


@inner
def locate_cells(state, t, node, x, cells):
    """Write where the router's weight for each feature of the row lies, giving new features a weight of 0.

    Returns False, with nothing changed, if the router's table must grow and there is no room.
    """
    record = state.nodes[t, node]
    n_missing = x.b - x.a
    if record["table_bits"] > 0:
        n_missing = 0
        for i in range(x.a, x.b):
            cells[i - x.a] = find_cell(state, t, node, x.indices[i])
            n_missing += cells[i - x.a] < 0
    if n_missing == 0:
        return True
    bits = table_bits(record["table_used"] + n_missing)
    if bits > record["table_bits"] and not _enlarge_table(state, t, node, bits, x.b - x.a):
        return False
    for i in range(x.a, x.b):
        cell = find_cell(state, t, node, x.indices[i])
        if cell < 0:
            cell = ~cell
            state.routers.table[t, cell]["feature"] = x.indices[i]
            state.routers.table[t, cell]["weight"] = 0.0
            state.routers.table[t, cell]["square"] = 0.0
            record["table_used"] += 1
        cells[i - x.a] = cell
    return True

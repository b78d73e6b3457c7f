"""Kernels: the weights of sparse linear models.

Each model has an open-addressing table of the features that it has been trained on. A growing table moves to a larger
block of the tree's array, and freed blocks are listed by size and reused. When the array is full, ``allocation.py``
copies all tables to contiguous blocks of a larger array.

The size of a table is a power of two, stored as its exponent, which is at least ``SMALLEST_TABLE_BITS``. Tables start
at multiples of the smallest size. Stored in units of this size, starts fit into 32 bits.
"""

import numpy as np

from .._jit import by_reference, inner, inner_called
from .._kernels import NONE, belongs_before, find_feature, hash_feature
from .models import CELLS_WANTED, DONE, FREE_TABLES, SMALLEST_TABLE_BITS, TABLES_END, TABLES_FULL


@inner
def table_bits(n_features):
    """Return log2 of the size of a table that ``n_features`` features fill to at most three quarters."""
    bits = SMALLEST_TABLE_BITS
    while 3 * (1 << bits) < 4 * n_features:
        bits += 1
    return bits


@inner
def request_cells(models, t, wanted):
    """Return DONE if ``wanted`` cells are free. Otherwise write ``wanted`` to the counters and return TABLES_FULL."""
    if models.counters[t, TABLES_END] + wanted <= models.table.shape[1]:
        return DONE
    models.counters[t, CELLS_WANTED] = wanted
    return TABLES_FULL


@inner
def table_start(models, t, node):
    """Return the first cell of a node's table."""
    return np.int64(models.records[t, node]["table_start"]) << SMALLEST_TABLE_BITS


@inner
def release_table(models, t, node):
    """Add a node's table, if any, to the free list of its size."""
    record = models.records[t, node]
    bits = np.int64(record["table_bits"])
    if bits > 0:
        start = table_start(models, t, node)
        following = models.counters[t, FREE_TABLES + bits]
        models.table[t, start]["feature"] = NONE if following == NONE else following >> SMALLEST_TABLE_BITS
        models.counters[t, FREE_TABLES + bits] = start
        record["table_bits"] = 0
        record["table_used"] = 0


@inner
def _take_table(models, t, bits):
    """Allocate an empty table of ``2 ** bits`` cells; return its start, or NONE if there is no room."""
    table = models.table
    start = models.counters[t, FREE_TABLES + bits]
    if start != NONE:
        link = np.int64(table[t, start]["feature"])
        models.counters[t, FREE_TABLES + bits] = NONE if link == NONE else link << SMALLEST_TABLE_BITS
    elif request_cells(models, t, 1 << bits) == DONE:
        start = models.counters[t, TABLES_END]
        models.counters[t, TABLES_END] += 1 << bits
    else:
        return NONE
    _empty_cells(table, t, start, bits)
    return start


@inner
def _empty_cells(table, t, start, bits):
    """Empty the cells of a table. Their weights become 0, so sums over all cells need no check for empty cells."""
    for cell in range(start, start + (1 << bits)):
        table[t, cell]["feature"] = NONE
        table[t, cell]["weight"] = 0.0


@inner
def find_cell(models, t, node, feature):
    """Return a feature's cell in a node's table or, if it is missing, the complement of the empty cell for it."""
    bits = np.int64(models.records[t, node]["table_bits"])
    return find_feature(models.table[t], table_start(models, t, node), bits, np.int64(feature))


@inner_called
def _enlarge_table(models, t, node, bits):
    """Move a node's weights to a larger table; return DONE, or TABLES_FULL without changing anything."""
    models = by_reference(models)
    record, table = models.records[t, node], models.table
    start = _take_table(models, t, bits)
    if start == NONE:
        return TABLES_FULL
    used = record["table_used"]
    if record["table_bits"] > 0:
        old_start = table_start(models, t, node)
        for old in range(old_start, old_start + (1 << np.int64(record["table_bits"]))):
            feature = np.int64(table[t, old]["feature"])
            if feature != NONE:
                _copy_cell(table, t, old, ~find_feature(table[t], start, bits, feature))
        release_table(models, t, node)
    record["table_start"] = start >> SMALLEST_TABLE_BITS
    record["table_bits"] = bits
    record["table_used"] = used
    return DONE


@inner
def _copy_cell(table, t, source, target):
    table[t, target]["feature"] = table[t, source]["feature"]
    table[t, target]["weight"] = table[t, source]["weight"]
    table[t, target]["square"] = table[t, source]["square"]


@inner
def locate_or_insert_cells(models, t, node, x, cells):
    """Write the table cell of each feature of a row to ``cells``, after inserting new features with a weight of 0.

    Returns DONE, or TABLES_FULL without changing anything if the table must grow but has no room.
    """
    record, table = models.records[t, node], models.table
    n_missing = x.b - x.a
    if record["table_bits"] > 0:
        n_missing = 0
        for i in range(x.a, x.b):
            cells[i - x.a] = find_cell(models, t, node, x.indices[i])
            n_missing += cells[i - x.a] < 0
    if n_missing == 0:
        return DONE
    used = record["table_used"] + n_missing
    bits = table_bits(used)
    if bits > record["table_bits"] and _enlarge_table(models, t, node, bits) != DONE:
        return TABLES_FULL
    for i in range(x.a, x.b):
        cell = find_cell(models, t, node, x.indices[i])
        if cell < 0:
            cell = ~cell
            table[t, cell]["feature"] = x.indices[i]
            table[t, cell]["weight"] = 0.0
            table[t, cell]["square"] = 0.0
        cells[i - x.a] = cell
    record["table_used"] = used
    return DONE


@inner
def reset_cells(models, t, node):
    """Empty a node's table without changing its size."""
    _empty_cells(models.table, t, table_start(models, t, node), np.int64(models.records[t, node]["table_bits"]))
    models.records[t, node]["table_used"] = 0


@inner
def copy_heavy_cells(target, source, t, node, share):
    """Copy weights of at least ``share`` of the maximum from a node's table to a new one in ``target``."""
    record, old = target.records[t, node], source.table
    start, size = table_start(source, t, node), 1 << np.int64(source.records[t, node]["table_bits"])
    heaviest = np.float32(0.0)
    for cell in range(start, start + size):
        if old[t, cell]["feature"] != NONE:
            heaviest = max(heaviest, np.abs(old[t, cell]["weight"]))
    n_heavy = 0
    for cell in range(start, start + size):
        n_heavy += old[t, cell]["feature"] != NONE and np.abs(old[t, cell]["weight"]) >= share * heaviest
    bits = table_bits(n_heavy)
    new_start = _take_table(target, t, bits)
    for cell in range(start, start + size):
        if old[t, cell]["feature"] != NONE and np.abs(old[t, cell]["weight"]) >= share * heaviest:
            new = ~find_feature(target.table[t], new_start, bits, np.int64(old[t, cell]["feature"]))
            target.table[t, new] = old[t, cell]
    record["table_start"] = new_start >> SMALLEST_TABLE_BITS
    record["table_bits"] = bits
    record["table_used"] = n_heavy


@inner
def erase_cell(models, t, node, gap):
    """Delete the entry in cell ``gap`` of a node's table, and move later entries up if searches would miss them."""
    table, start = models.table, table_start(models, t, node)
    bits = np.int64(models.records[t, node]["table_bits"])
    mask = (1 << bits) - 1
    cell = gap
    while True:
        cell = (cell + 1) & mask
        feature = np.int64(table[t, start + cell]["feature"])
        if feature == NONE:
            break
        if belongs_before(cell, hash_feature(feature, bits), gap, mask):
            _copy_cell(table, t, start + cell, start + gap)
            gap = cell
    table[t, start + gap]["feature"] = NONE
    table[t, start + gap]["weight"] = 0.0

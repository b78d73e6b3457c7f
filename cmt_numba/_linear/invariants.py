"""Checks of linear models that kernels rely on."""

from collections.abc import Iterator

import numpy as np

from .._jit import as_python
from .._kernels import NONE, all_finite, all_within, check_runs, hash_feature, require
from .models import FREE_TABLES, MODELS_END, N_TABLE_SIZES, SMALLEST_TABLE_BITS, TABLES_END, LinearModels

_CELLS_AT_ONCE = 1 << 17
_LARGEST_TABLE_BITS = N_TABLE_SIZES - 1

_home_of_feature = as_python(hash_feature)  # for arrays


def check_model_frame(models: LinearModels, n_groups: int = 1) -> None:
    """Raise InvariantError unless the arrays of models have the expected lengths. Call :func:`check_layout` first.

    The check reads no array except ``counters``.
    """
    d, n_models = models.n_features, models.records.shape[1]
    sparse, counters = bool(models.sparse), models.counters
    require(counters.shape[0] == models.records.shape[0] == n_groups, "every group of models must have counters")
    require(
        models.weights.shape[1] == (0 if sparse else n_models * 2 * d),
        "the size of the weights does not match the number of dense models",
    )
    require(sparse or models.table.shape[1] == 0, "dense models must not have tables")
    require(all_within(counters[:, MODELS_END], 0, n_models), "the end of the models is out of range")
    n_cells = models.table.shape[1]
    require(all_within(counters[:, TABLES_END], 0, n_cells), "the end of the tables is out of range")


def check_models(models: LinearModels, t: int, used: np.ndarray, what: str, *, sums: bool = False) -> None:
    """Raise InvariantError if a model in the records ``used`` of group ``t`` is invalid.

    Call :func:`check_model_frame` first. ``what`` is the name of the models in messages. If ``sums`` is True, the
    accumulators are sums of examples, which may be negative.
    """
    nodes, d = models.records[t], models.n_features
    require(all_finite(nodes["bias"][used]), f"{what}: a model's bias is not finite")
    squares = nodes["bias_square"][used]
    require(all_finite(squares) and np.all(squares >= 0), f"{what}: a model's bias_square is negative or not finite")
    if models.sparse:
        _check_tables(models, t, used, what, sums)
        return
    require(not nodes["table_bits"][used].any(), f"{what}: a dense model has a table")
    weights = models.weights[t].reshape(-1, 2 * d)
    for rows in np.array_split(used, max(1, used.size * 2 * d // _CELLS_AT_ONCE)):
        part = weights[rows]
        require(all_finite(part), f"{what}: a model's weight is not finite")
        require(sums or np.all(part[:, d:] >= 0), f"{what}: a model's sum of squares is negative")


def _check_tables(models: LinearModels, t: int, used: np.ndarray, what: str, sums: bool) -> None:
    nodes, end = models.records[t], int(models.counters[t, TABLES_END])
    bits = nodes["table_bits"][used].astype(np.int64)
    owners, bits = used[bits != 0], bits[bits != 0]
    require(all_within(bits, SMALLEST_TABLE_BITS, _LARGEST_TABLE_BITS), f"{what}: a table has an invalid size")
    starts = nodes["table_start"][owners].astype(np.int64) << SMALLEST_TABLE_BITS
    free_starts, free_bits = _free_tables(models, t, what)
    all_starts, all_bits = np.concatenate([starts, free_starts]), np.concatenate([bits, free_bits])
    order = np.argsort(all_starts, kind="stable")
    ends = all_starts[order] + (1 << all_bits[order])
    expected = np.concatenate([np.zeros(1, np.int64), ends])
    require(np.array_equal(expected[:-1], all_starts[order]), f"{what}: tables overlap or leave a gap")
    require(int(expected[-1]) == end, f"{what}: a table is missing")
    for first, size, rows in _alike(starts, bits, owners):
        _check_cells(models, t, first, size, rows, what, sums)


def _free_tables(models: LinearModels, t: int, what: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the starts of all free tables and log2 of their sizes."""
    table, end = models.table[t], int(models.counters[t, TABLES_END])
    starts, all_bits = [], []
    left = end
    for bits in range(N_TABLE_SIZES):
        start = int(models.counters[t, FREE_TABLES + bits])
        while start != NONE:
            left -= 1 << bits
            within = bits >= SMALLEST_TABLE_BITS and 0 <= start <= end - (1 << bits) and left >= 0
            require(within, f"{what}: a list of free tables is invalid")
            starts.append(start)
            all_bits.append(bits)
            link = int(table[start]["feature"])
            start = link if link == NONE else link << SMALLEST_TABLE_BITS
    return np.array(starts, np.int64), np.array(all_bits, np.int64)


def _alike(starts: np.ndarray, bits: np.ndarray, owners: np.ndarray) -> Iterator[tuple[np.ndarray, int, np.ndarray]]:
    """Yield groups of tables of equal size: their starts, their size and their owners."""
    for size_bits in np.unique(bits):
        of_size = np.flatnonzero(bits == size_bits)
        n_parts = max(1, (of_size.size << int(size_bits)) // _CELLS_AT_ONCE)
        for part in np.array_split(of_size, min(n_parts, of_size.size)):
            yield starts[part], 1 << int(size_bits), owners[part]


def _check_cells(
    models: LinearModels, t: int, starts: np.ndarray, size: int, owners: np.ndarray, what: str, sums: bool
) -> None:
    """Raise InvariantError if the contents of tables of equal size are invalid."""
    table = models.table[t, : int(models.counters[t, TABLES_END])]
    blocks = table.view(f"V{table.itemsize << SMALLEST_TABLE_BITS}")  # of the size of the smallest table
    places = (starts >> SMALLEST_TABLE_BITS)[:, None] + np.arange(size >> SMALLEST_TABLE_BITS)
    cells = blocks[places].view(table.dtype)
    features = np.ascontiguousarray(cells["feature"])
    occupied = features != NONE
    counts = np.count_nonzero(occupied, axis=1)
    require(
        np.array_equal(counts, models.records[t]["table_used"][owners]),
        f"{what}: the feature count of a table is wrong",
    )
    require(np.all(4 * counts <= 3 * size), f"{what}: a table is too full")
    require(
        all_within(features[occupied], 0, models.n_features - 1),
        f"{what}: a table has a feature that does not exist",
    )
    ordered = np.sort(features, axis=1)
    twice = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] != NONE)
    require(not twice.any(), f"{what}: a table has a feature twice")
    check_runs(occupied, _home_of_feature(features, size.bit_length() - 1), f"{what}: a table")
    require(all_finite(cells["weight"]), f"{what}: a model's weight is not finite")
    require(not cells["weight"][~occupied].any(), f"{what}: an empty cell of a table has a weight")
    squares = cells["square"][occupied]
    require(all_finite(squares), f"{what}: a model's sum of squares is not finite")
    require(sums or np.all(squares >= 0), f"{what}: a model's sum of squares is negative")

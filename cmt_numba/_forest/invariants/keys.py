"""Checks of the key stores of forests and of examples, and checks of the scorer."""

from typing import Any

import numpy as np

from ..state import LONGEST, MOST_FEATURES, MOST_MEMORIES, N_MEMORIES, NEXT_ID, VALUES_END, VALUES_LIVE, KeyArrays
from .arrays import all_finite, all_small, all_within, check_number_table, require, rise

_MOST_IDS = 2**62
_LONGEST_VALUE = 1.001  # upper bound on the values of a unit-length key after rounding


def check_key_frame(parameters: Any, keys: KeyArrays) -> None:
    """Raise InvariantError unless the arrays of a key store have the expected lengths. Call :func:`check_layout` first.

    The check reads no array except ``totals``.
    """
    n, next_id, end, live, longest = (
        int(keys.totals[i]) for i in (N_MEMORIES, NEXT_ID, VALUES_END, VALUES_LIVE, LONGEST)
    )
    capacity, d = keys.ids.size, parameters.n_features
    require(1 <= d <= MOST_FEATURES, f"keys must have 1 to {MOST_FEATURES} features, got {d}")
    require(
        0 <= n <= min(capacity, MOST_MEMORIES),
        f"the number of memories, {n}, is not between 0 and {min(capacity, MOST_MEMORIES)}",
    )
    require(n <= next_id <= _MOST_IDS, f"the next id is invalid: {next_id}")
    require(0 <= longest <= d, f"the longest key has an invalid number of cells: {longest}")
    require(n < keys.slot_table.size, "the slot table is too small")
    if parameters.sparse:
        require(keys.indices.size == keys.values.size, "every cell of a key must have a feature")
        require(keys.spans.shape[0] == capacity, "every key must have a span")
        require(0 <= live <= end <= keys.values.size, "the key store has overflowed")
    else:
        require(keys.values.size >= capacity * d, "the key store is too small")


def check_keys(parameters: Any, keys: KeyArrays, *, values: bool = True) -> None:
    """Raise InvariantError if a key store is invalid. Call :func:`check_key_frame` first.

    If ``values`` is False, skip the values of keys, for example because only codes are stored.
    """
    n = int(keys.totals[N_MEMORIES])
    ids = keys.ids[:n]
    require(all_within(ids, 0, int(keys.totals[NEXT_ID]) - 1), "an id is out of range")
    check_number_table(keys.slot_table, ids, "the slot table")
    if parameters.sparse:
        _check_sparse(parameters, keys, n, values)
    elif values:
        require(all_small(keys.values[: n * parameters.n_features], _LONGEST_VALUE), "a key is not of length 1")


def _check_sparse(parameters: Any, keys: KeyArrays, n: int, with_values: bool) -> None:
    start, stop = keys.spans[:n, 0], keys.spans[:n, 1]
    end = int(keys.totals[VALUES_END])
    require(np.all(start <= stop), "a key ends before it starts")
    require(all_within(start, 0, end) and all_within(stop, 0, end), "a key lies outside the key store")
    lengths = stop - start
    require(int(lengths.sum()) == keys.totals[VALUES_LIVE], "the number of key cells is wrong")
    require(all_within(lengths, 0, int(keys.totals[LONGEST])), "a key has more cells than the recorded longest key")
    order = np.argsort(start[lengths > 0], kind="stable")
    start, stop = start[lengths > 0][order], stop[lengths > 0][order]
    require(np.all(stop[:-1] <= start[1:]), "two keys share a cell")
    indices, values = keys.indices[:end], keys.values[:end]
    if int(lengths.sum()) < end:  # skip the cells of removed keys
        edges = np.zeros(end + 1, np.int8)
        edges[start] += 1
        edges[stop] -= 1
        live = np.cumsum(edges[:-1], dtype=np.int8).view(np.bool_)
        indices, values = indices[live], values[live]
    firsts = np.cumsum(stop - start) - (stop - start)
    require(all_within(indices, 0, parameters.n_features - 1), "a key has a feature that does not exist")
    require(rise(indices, firsts), "the features of a key are not in ascending order")
    require(not with_values or all_small(values, _LONGEST_VALUE), "a key is not of length 1")


def check_scorer(parameters: Any, scorer: Any) -> None:
    """Raise InvariantError if a scorer is invalid."""
    require(scorer.theta.size in (0, parameters.n_features), "the scorer must have one weight per feature or none")
    require(all_finite(scorer.theta), "the scorer has a weight that is not finite")
    squares = scorer.squares
    require(all_finite(squares) and np.all(squares >= 0), "a sum of squares of the scorer is negative")

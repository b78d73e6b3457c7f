"""Kernels: the map of queries.

The map is a matrix, to which each reward adds the product of a query and a key. Queries are multiplied with the 8-bit
codes of the matrix, which fit into the cache, and with the most recent steps. These are added to the matrix together,
and coded.
"""

from typing import NamedTuple

import numpy as np

from .._index import copy_values, encode_bytes
from .._jit import (
    COLUMNS,
    LARGEST_CODE,
    add_row_pairs,
    by_reference,
    empty,
    inner,
    inner_allocating,
    inner_fastmath,
    kernel,
    release,
)
from .._kernels import dot
from .parts import slope
from .rows import code_shorts
from .state import DIAGONAL, LEARNED, MAPPED, N_RECENT, RECENT

_TOGETHER = 4  # number of rows to add at once
_NOTHING = np.float32(0.0)
_LARGEST_SHORT, _LARGEST_SUM = np.float32(32767.0), np.float32(((1 << 31) - (1 << 16)) / LARGEST_CODE)


class Terms(NamedTuple):
    """Scratch space for sums of rows."""

    folded: np.ndarray  # float32 (folded,): a query folded to the width of the map
    factors: np.ndarray  # float32 (folded + 3,)
    rows: np.ndarray  # int64 (folded + 3,): indices of rows, or of pairs of rows
    shorts: np.ndarray  # int16 (folded + 3,): codes of factors
    sums: np.ndarray  # int32 (columns of all blocks,)
    codes: np.ndarray  # int8 (folded,): the codes of a row


@inner_allocating
def new_terms(width):
    """Return scratch space for a map of this width."""
    size = max(width, N_RECENT) + _TOGETHER - 1
    floats, columns = (empty(width, np.float32), empty(size, np.float32)), -(-width // COLUMNS) * COLUMNS
    return Terms(*floats, empty(size, np.int64), empty(size, np.int16), empty(columns, np.int32), empty(width, np.int8))


@inner_fastmath
def add_scaled(total, factor, row):
    """Add ``factor`` times a row to ``total``."""
    for j in range(total.size):
        total[j] += factor * row[j]


@inner_fastmath
def _add_four(total, a, first, b, second, c, third, d, fourth):
    for j in range(total.size):
        one = a * np.float32(first[j]) + b * np.float32(second[j])
        total[j] += one + (c * np.float32(third[j]) + d * np.float32(fourth[j]))


@inner
def _add_terms(total, matrix, terms, n):
    """Add ``n`` rows of a matrix times their factors."""
    factors, rows = terms.factors, terms.rows
    factors[n : n + _TOGETHER - 1], rows[n : n + _TOGETHER - 1] = _NOTHING, 0
    for i in range(0, n, _TOGETHER):
        one, two, three, four = matrix[rows[i]], matrix[rows[i + 1]], matrix[rows[i + 2]], matrix[rows[i + 3]]
        _add_four(total, factors[i], one, factors[i + 1], two, factors[i + 2], three, factors[i + 3], four)


@inner
def _add_coded(total, codes, terms, n):
    """Write the sum of ``n`` pairs of rows of 8-bit codes times their factors."""
    shorts, sums = terms.shorts, terms.sums
    if n == 0:
        total[:] = _NOTHING
        return
    step = code_shorts(terms.factors[: 2 * n], min(_LARGEST_SHORT, _LARGEST_SUM / np.float32(2 * n)), shorts)
    for block in range(codes.shape[0]):
        add_row_pairs(codes, block, terms.rows, shorts, n, sums)
    for j in range(total.size):
        total[j] = step * np.float32(sums[j])


@inner
def fold(row, folded):
    """Write a row with the sums of the features that have the same index modulo the width of the map."""
    copy_values(row[: folded.size], folded)
    for start in range(folded.size, row.size, folded.size):
        add_scaled(folded, np.float32(1.0), row[start : start + folded.size])


@inner
def map_query(learned, query, terms, mapped):
    """Write the product of a query with the map."""
    folded, factors, rows = terms.folded, terms.factors, terms.rows
    fold(query, folded)
    n = np.int64(0)
    for i in range(0, folded.size, 2):
        first, second = folded[i], folded[i + 1] if i + 1 < folded.size else _NOTHING
        if first != _NOTHING or second != _NOTHING:
            factors[2 * n], factors[2 * n + 1], rows[n] = first * learned.map_scales[i], _NOTHING, i // 2
            if second != _NOTHING:
                factors[2 * n + 1] = second * learned.map_scales[i + 1]
            n += 1
    _add_coded(mapped, learned.map_codes, terms, n)
    n = np.int64(0)
    for i in range(learned.ends[RECENT]):
        product = dot(folded, np.int64(0), learned.recent_queries[i], np.int64(0), folded.size)
        if product != _NOTHING:
            factors[n], rows[n] = product, i
            n += 1
    _add_terms(mapped, learned.recent_keys, terms, n)


@inner
def _code(learned, i, terms):
    """Write the codes of a row, between those of the other row of its pair."""
    codes, matrix = terms.codes, learned.map_codes
    learned.map_scales[i], _ = encode_bytes(learned.map[i], codes)
    for j in range(codes.size):
        matrix[j // COLUMNS, i // 2, 2 * (j % COLUMNS) + i % 2] = codes[j]


@inner
def add_step(learned, terms):
    """Count a step, which has been written, and add the recent steps to the map if there are enough."""
    learned.ends[RECENT] += 1
    if learned.ends[RECENT] < N_RECENT:
        return
    learned.ends[RECENT] = 0
    for i in range(learned.map.shape[0]):
        n = np.int64(0)
        for j in range(N_RECENT):
            if learned.recent_queries[j, i] != _NOTHING:
                terms.factors[n], terms.rows[n] = learned.recent_queries[j, i], j
                n += 1
        if n > 0:
            _add_terms(learned.map[i], learned.recent_keys, terms, n)
            _code(learned, i, terms)


@kernel
def code_map(model):
    """Write the codes of the map."""
    learned = by_reference(model).learned
    terms = new_terms(learned.map.shape[0])
    for i in range(learned.map.shape[0]):
        _code(learned, i, terms)
    release(terms)


@inner
def transform_query(learned, query, mapped, changed):
    """Write the transformed query, and return its cosine with the query.

    Its products with keys are the parts of scores that do not depend on a memory's rewards.
    """
    weights, divisor = learned.weights[LEARNED], slope(learned)
    theta, zero = learned.diagonal[0], np.int64(0)
    by_map, by_feature = np.float32(weights[MAPPED] / divisor), np.float32(weights[DIAGONAL] / divisor)
    for j in range(changed.size):
        changed[j] = query[j] + by_map * mapped[j] + by_feature * theta[j] * query[j]
    length = np.sqrt(dot(changed, zero, changed, zero, changed.size))
    return dot(query, zero, changed, zero, query.size) / length

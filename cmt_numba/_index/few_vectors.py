"""Kernel: comparison of rows with few vectors, first in float32, and then exactly those that may be among the best."""

from typing import NamedTuple

import numpy as np

from .._jit import (
    TILE,
    by_reference,
    empty,
    first_of,
    inner,
    inner_allocating,
    inner_fastmath,
    kernel,
    marks_of,
    prefetch,
    release,
)
from .._kernels import NONE, keep_best, sort_best_first
from .codes import distance32, dot32, dot64
from .lists import vector_of
from .ranking import LEAST, exact_score, low_bar
from .state import COSINE, EUCLIDEAN, INNER_PRODUCT, METRIC

_SHORTEST, _LONGEST = np.float32(1e-15), np.float32(1e15)  # products of vectors of such lengths are safe in float32
_ROUNDING = np.float32(2.0**-23)  # bound on the rounding error of a sum of products, for each of them
_TINY, _TWO, _HALF, _ONE = np.float32(1e-30), np.float32(2.0), np.float32(0.5), np.float32(1.0)
_AHEAD, _FLOATS_IN_A_LINE = 4, 16


class FewVectors(NamedTuple):
    """Scratch space for the comparison of a row with ``m`` vectors."""

    factors: np.ndarray  # float32 (m,): the inverse length of each vector for the cosine, otherwise 1
    values: np.ndarray  # float32 (m, or more up to a multiple of 32): scores, or numbers with the same order
    highest: np.ndarray  # float32, of the size of values: scratch space for a bar


@inner_allocating
def _new_few(m):
    n = -(-m // TILE) * TILE
    return FewVectors(empty(m, np.float32), empty(n, np.float32), empty(n, np.float32))


@inner
def _measure_lengths(state, slots, few):
    """Write the factors; return the lengths of the shortest and the longest vector."""
    shortest, longest = np.float32(np.inf), np.float32(0.0)
    for i in range(slots.size):
        vector = vector_of(state.vectors, slots[i]).values
        length = np.sqrt(dot32(vector, vector))
        shortest, longest = min(shortest, length), max(longest, length)
        few.factors[i] = _ONE / max(length, _SHORTEST) if state.totals[METRIC] == COSINE else _ONE
    return shortest, longest


@inner_fastmath
def _product_and_square(x, y):
    product, square = np.float32(0.0), np.float32(0.0)
    for i in range(x.size):
        product += x[i] * y[i]
        square += y[i] * y[i]
    return product, square


@inner
def _estimate(state, x, slots, few):
    """Write the values of a row; return the lengths of the shortest and the longest vector, unless for distances."""
    shortest, longest = np.float32(np.inf), np.float32(0.0)
    for i in range(slots.size):
        coming = vector_of(state.vectors, slots[min(i + _AHEAD, slots.size - 1)]).values
        for f in range(0, coming.size, _FLOATS_IN_A_LINE):
            prefetch(coming, f)
        y = vector_of(state.vectors, slots[i]).values
        if state.totals[METRIC] == EUCLIDEAN:
            few.values[i] = -_HALF * distance32(x, y)
            continue
        product, square = _product_and_square(x, y)
        length = np.sqrt(square)
        shortest, longest = min(shortest, length), max(longest, length)
        few.values[i] = product / max(length, _SHORTEST) if state.totals[METRIC] == COSINE else product
    return shortest, longest


@inner
def _bar_of_values(state, length, d, shortest, longest, few, k):
    """Return the value that one of the best ``k`` vectors must reach for a row of a given length.

    It is LEAST if the numbers are too large or too small for float32.
    """
    metric = state.totals[METRIC]
    least = min(length, shortest if metric == COSINE else longest)
    if metric != EUCLIDEAN and not (least > _SHORTEST and max(length, longest) < _LONGEST):
        return LEAST
    bar = low_bar(few.values, few.values.size, k, few.highest)
    error = length * (longest if metric == INNER_PRODUCT else _ONE)
    if metric == EUCLIDEAN:
        error = abs(bar)
    bar -= _TWO * _ROUNDING * np.float32(d + 8) * error + _TINY
    return max(bar, LEAST)


@kernel
def compare_few(arrays, Q, first, stop, slots, products, scores, ids):
    """Write the best of the vectors in slots for a range of rows, whose products with them may be given in float32."""
    state, k, m = by_reference(arrays), ids.shape[1], slots.size
    few = by_reference(_new_few(m))
    metric, are_many = state.totals[METRIC], 4 * m > 5 * k
    shortest, longest = np.float32(0.0), np.float32(0.0)
    few.values[:] = LEAST
    few.values[m:] = -np.float32(np.inf)
    if are_many and products.size > 0:
        shortest, longest = _measure_lengths(state, slots, few)
    for row in range(first, stop):
        x, bar, best, found = Q[row], LEAST, scores[row], ids[row]
        best[:], found[:] = -np.inf, NONE
        length = np.sqrt(dot64(x, x))
        if are_many:
            if products.size > 0:
                for i in range(m):
                    few.values[i] = few.factors[i] * products[row - first, i]
            else:
                shortest, longest = _estimate(state, x, slots, few)
            bar = _bar_of_values(state, np.float32(length), x.size, shortest, longest, few, k)
            if bar == LEAST:
                few.values[:m] = LEAST
        for at in range(0, m, TILE):
            marks = marks_of(few.values, at, bar)
            while marks != 0:
                slot = slots[at + first_of(marks)]
                marks &= marks - 1
                score = exact_score(metric, x, vector_of(state.vectors, slot).values, length)
                keep_best(best, found, score, state.vectors.ids[slot])
        sort_best_first(best, found)
    release(few)

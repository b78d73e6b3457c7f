"""Kernels: rotation of vectors, 1-bit codes (Gao and Long, RaBitQ, 2024), and 8-bit codes.

A random rotation spreads the information of a vector evenly over its features. Let ``c`` be the center of a list and
``r = x - c`` the rest of a member, both rotated. Its 1-bit code is the signs of ``r``, and ``f = |r|^2 / sum(|r|)``.
For a rotated query ``q``, ``<r, q - c>`` is about ``f * <signs, q - c>``, so that::

    -|x - q|^2 / 2 = -|q - c|^2 / 2 + <r, q - c> - |r|^2 / 2
                   ~ -|q - c|^2 / 2 + f * <signs, q> - (f * <signs, c> + |r|^2 / 2)

The last bracket does not depend on the query, and one code of the query serves all lists. The standard error is
``f * |q - c| * 0.61``, plus that of the query's 4-bit code. This is the score of a member, on a scale that has no
rounding errors of long vectors. For inner products, half the squared length of the member, its *lift*, is added.
"""

from typing import NamedTuple

import numpy as np

from .._jit import (
    BITS_OF_A_WORD,
    BLOCK,
    FORM,
    LARGEST_CODE,
    PRODUCTS,
    TILE,
    add_and_subtract,
    add_products,
    by_reference,
    inner,
    inner_called,
    inner_fastmath,
    score_tile,
    signs_of,
    transform_block,
    write_form,
)
from .state import COSINE, INNER_PRODUCT, METRIC, SCALE

SHORTEST = np.float32(1e-30)
_LONGEST = 1e15  # the square of this length, and sums of such squares, are finite in float32
_ROUNDING = np.float32(1e-6)
_LARGEST_STEP = np.float32(7.0)  # largest 4-bit value of a query
_SPREAD = np.float32(0.372)  # squared standard error of a sum of signs, per squared distance from the center
_LARGEST_SUM = np.float32((1 << 31) - (1 << 16))
_LARGEST_SHORT = np.float32(4095.0)
_DEVIATIONS = np.float32(5.0)
_ONE = np.float32(1.0)


class Vector(NamedTuple):
    """A vector in a tuple, because inner functions cannot return arrays."""

    values: np.ndarray  # float32


class Queries(NamedTuple):
    """Queries in the forms that searches need, one row each."""

    rotated: np.ndarray  # float32 (m, width)
    forms: np.ndarray  # uint64 (m * words * 32,): 4-bit codes of rotated queries, see ``write_form``
    steps: np.ndarray  # float32 (m,): their factors
    totals: np.ndarray  # float32 (m,): their sums
    shorts: np.ndarray  # int16 (m, codes): codes of queries, to multiply with 8-bit codes
    scales: np.ndarray  # float32 (m,): their factors
    lengths: np.ndarray  # float32 (m,)
    errors: np.ndarray  # float32 (m,): length of the rounding error of the shorts
    numbers: np.ndarray  # int8 (width,): scratch space
    prepared: np.ndarray  # float32 (d,): scratch space


@inner
def coded_values(queries, m):
    """Return the values of a query that 8-bit codes describe."""
    return Vector(queries.rotated[m] if queries.shorts.shape[1] >= BITS_OF_A_WORD else queries.prepared)


@inner
def share_of_errors(n_codes):
    """Return the fraction of a bound on errors of 8-bit codes that errors exceed with a probability below 1e-6.

    After a rotation, rounding errors are independent of the other vector. Their standard deviation is ``1 /
    sqrt(n_codes)`` of the bound.
    """
    return min(_DEVIATIONS / np.sqrt(np.float32(n_codes)), np.float32(1.0)) if n_codes >= BITS_OF_A_WORD else _ONE


@inner
def copy_values(source, target):
    """Copy a vector to the beginning of another one."""
    for i in range(source.size):
        target[i] = source[i]


@inner_fastmath
def dot32(x, y):
    """Return the dot product of two float32 vectors."""
    total = np.float32(0.0)
    for i in range(x.size):
        total += x[i] * y[i]
    return total


@inner_fastmath
def distance32(x, y):
    """Return the squared distance of two float32 vectors."""
    total = np.float32(0.0)
    for i in range(x.size):
        apart = x[i] - y[i]
        total += apart * apart
    return total


@inner_fastmath
def dot64(x, y):
    """Return the dot product of two float32 vectors in float64."""
    total = np.float64(0.0)
    for i in range(x.size):
        total += np.float64(x[i]) * np.float64(y[i])
    return total


@inner_fastmath
def distance64(x, y):
    """Return the squared distance of two float32 vectors in float64."""
    total = np.float64(0.0)
    for i in range(x.size):
        apart = np.float64(x[i]) - np.float64(y[i])
        total += apart * apart
    return total


@inner
def dot_codes(shorts, codes):
    """Return the dot product of int16 and int8 codes, exactly. Without the casts, Numba would compute in 64 bits."""
    n_blocks, total = codes.size // PRODUCTS, np.int32(0)
    if n_blocks > 0:
        total = add_products(shorts, codes, n_blocks)
    for i in range(n_blocks * PRODUCTS, codes.size):
        total = np.int32(total + np.int32(np.int32(shorts[i]) * np.int32(codes[i])))
    return np.float32(total)


@inner_fastmath
def sum_of(x):
    total = np.int32(0)
    for i in range(x.size):
        total = np.int32(total + np.int32(x[i]))
    return total


@inner
def largest_of(x):
    """Return the largest absolute value. Four sums, so that comparisons do not wait for each other."""
    a, b, c, d = np.float32(0.0), np.float32(0.0), np.float32(0.0), np.float32(0.0)
    n = x.size // 4 * 4
    for i in range(0, n, 4):
        a, b = max(a, abs(x[i])), max(b, abs(x[i + 1]))
        c, d = max(c, abs(x[i + 2])), max(d, abs(x[i + 3]))
    for i in range(n, x.size):
        a = max(a, abs(x[i]))
    return max(max(a, b), max(c, d))


@inner
def prepare(state, x, prepared):
    """Write a vector as codes describe it, scaled or moved; return whether it was too long and was shortened."""
    length, scale = np.sqrt(distance64(x, state.origin)), state.numbers[SCALE]
    is_far = length * scale > _LONGEST and state.totals[METRIC] != COSINE
    if state.totals[METRIC] == COSINE:
        scale = 1.0 / length if length > 0.0 else 0.0
    elif is_far:
        scale = _LONGEST / length
    for i in range(x.size):
        prepared[i] = np.float32((np.float64(x[i]) - np.float64(state.origin[i])) * scale)
    return is_far


@inner
def _multiply(x, y):
    for i in range(x.size):
        x[i] *= y[i]


@inner
def _scale(x, scale):
    for i in range(x.size):
        x[i] *= scale


@inner_called
def rotate(signs, x, rotated):
    """Write the rotated vector, padded with zeros before the rotation.

    Each round flips random signs and applies a Hadamard transform to a power of two of the features: to all of them
    in two rounds, or to the first and to the last ones in turn in four rounds.
    """
    width, size = rotated.size, BITS_OF_A_WORD
    while 2 * size <= width:
        size *= 2
    copy_values(x, rotated)
    rotated[x.size :] = np.float32(0.0)
    scale = np.float32(1.0) / np.sqrt(np.float32(size))
    for turn in range(2 if size == width else 4):
        begin = (width - size) * (turn % 2)
        _multiply(rotated, signs[turn])
        h = size // 2
        while h >= BLOCK:
            for i in range(begin, begin + size, 2 * h):
                for j in range(i, i + h, BLOCK):
                    add_and_subtract(rotated, j, h)
            h //= 2
        for i in range(begin, begin + size, BLOCK):
            transform_block(rotated, i)
        _scale(rotated[begin : begin + size], scale)


@inner_fastmath
def _encode_rest(rotated, center, rest):
    """Write the rest of a vector; return its squared length, its absolute sum, and the product of its signs with c."""
    squares, absolute, signed = np.float32(0.0), np.float32(0.0), np.float32(0.0)
    for i in range(rest.size):
        r, c = rotated[i] - center[i], center[i]
        rest[i] = r
        squares += r * r
        absolute += abs(r)
        signed += c if r > np.float32(0.0) else -c
    return squares, absolute, signed


@inner
def encode_signs(rotated, center, rest, bits, at):
    """Write the 1-bit code of a vector from word ``bits[at]`` on; return ``f`` and the bracket above, negated."""
    squares, absolute, signed = _encode_rest(rotated, center, rest)
    for w in range(rest.size // BITS_OF_A_WORD):
        bits[at + w * TILE] = signs_of(rest, w * BITS_OF_A_WORD)
    factor = squares / absolute if absolute > SHORTEST else np.float32(0.0)
    return factor, -factor * signed - np.float32(0.5) * squares


@inner_fastmath
def round_to_codes(x, inverse, scale, codes):
    """Write codes; return the squared length of their rounding error."""
    squared = np.float32(0.0)
    for i in range(x.size):
        code = np.rint(x[i] * inverse)
        codes[i] = code
        rest = x[i] - scale * code
        squared += rest * rest
    return squared


@inner
def encode_bytes(x, codes):
    """Write the 8-bit codes of a vector; return their scale and the length of their rounding error."""
    scale = max(largest_of(x), SHORTEST) / np.float32(LARGEST_CODE)
    return scale, np.sqrt(round_to_codes(x, np.float32(1.0) / scale, scale, codes)) * np.float32(1.001)


@inner_called
def code_rotated(queries, m):
    """Write the 4-bit code of a rotated query, its step and its sum."""
    queries = by_reference(queries)
    rotated = queries.rotated[m]
    step = max(largest_of(rotated), SHORTEST) / _LARGEST_STEP
    round_to_codes(rotated, np.float32(1.0) / step, step, queries.numbers)
    words = rotated.size // BITS_OF_A_WORD
    for w in range(words):
        write_form(queries.numbers, w * BITS_OF_A_WORD, queries.forms, (m * words + w) * FORM)
    queries.steps[m] = step
    queries.totals[m] = np.float32(sum_of(queries.numbers))


@inner
def rotate_query(state, x, queries, m, length):
    """Write a query as codes describe it, its length and its rotated form; return whether it was too long.

    Queries of inner products get ``length``; it does not affect their ranking.
    """
    prepared = queries.prepared
    is_far = prepare(state, x, prepared)
    queries.lengths[m] = np.sqrt(dot32(prepared, prepared))
    if state.totals[METRIC] == INNER_PRODUCT:
        is_far = False
        own = np.sqrt(distance64(x, state.origin))
        if own > 0.0:
            for i in range(x.size):
                prepared[i] = np.float32(np.float64(x[i]) * (length / own))
            queries.lengths[m] = length
    rotate(state.signs, prepared, queries.rotated[m])
    return is_far


@inner
def code_query(state, x, queries, m, length):
    """Write all forms of a query; see :func:`rotate_query`."""
    is_far = rotate_query(state, x, queries, m, length)
    code_rotated(queries, m)
    values = coded_values(queries, m).values
    most = min(_LARGEST_SHORT, _LARGEST_SUM / np.float32(LARGEST_CODE * values.size))
    scale = max(largest_of(values), SHORTEST) / most
    squared = round_to_codes(values, np.float32(1.0) / scale, scale, queries.shorts[m])
    queries.scales[m] = scale
    queries.errors[m] = np.sqrt(squared) * np.float32(1.001) + _ROUNDING * queries.lengths[m]
    if is_far:
        queries.errors[m] = np.float32(np.inf)


@inner
def error_of(apart, step, width, epsilon):
    """Return ``epsilon`` standard errors of estimates at squared distance ``apart``, before each vector's factor."""
    return epsilon * np.sqrt(_SPREAD * apart + step * step * np.float32(width) / np.float32(12.0))


@inner
def score_codes(coded, tile, queries, m, base, error, least, upper, at):
    """Write upper bounds of the scores of a tile of members or routes; return marks of those of at least ``least``."""
    step, n_words = queries.steps[m], queries.rotated.shape[1] // BITS_OF_A_WORD
    return score_tile(
        coded.bits,
        tile,
        n_words,
        queries.forms,
        m * n_words * FORM,
        coded.factors,
        coded.added,
        base,
        np.float32(2.0) * step,
        error - step * queries.totals[m],
        least,
        upper,
        at,
    )

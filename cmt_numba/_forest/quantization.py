"""Kernels: 8-bit codes of dense keys, which are all that most searches read.

Searches are limited by memory bandwidth. So each dense key is also stored as 8-bit integers, its *code*. The code times
a scale differs from the key by a vector whose length is the *error*. By the Cauchy-Schwarz inequality, the score of the
code and the error bound the score of the key. Only keys whose bound reaches the best scores so far are read in full,
and answers are the same as without codes.

If only codes are stored, the key is the code times the scale, which has unit length again.
"""

import numpy as np

from .._jit import inner, inner_fastmath, prefetch

_LARGEST = np.float32(127.0)
_LINE = 64  # bytes of a cache line
_CELLS_OF_A_SUM = 1 << 16  # products of codes whose sum fits int32


@inner_fastmath
def _largest_of(values):
    largest = np.float32(0.0)
    for i in range(values.size):
        largest = max(largest, np.abs(values[i]))
    return largest


@inner_fastmath
def _encode(values, codes, scale):
    """Write the code of a key, and return the squared distance of the decoded key."""
    total = np.float32(0.0)
    inverse = np.float32(1.0) / scale
    for i in range(values.size):
        code = np.rint(values[i] * inverse)
        codes[i] = np.int8(code)
        difference = values[i] - scale * code
        total += difference * difference
    return total


@inner
def _rounding(n_features):
    """Return a generous bound on the rounding error of this many products, for a query of length 1."""
    return np.float32(1e-6 + 1e-8 * n_features)


@inner
def scale_for(values):
    """Return the scale for the code of some values."""
    scale = _largest_of(values) / _LARGEST
    return scale if scale > 0.0 else np.float32(1.0)


@inner
def encode(values, codes, scale):
    """Write the code of some values, and return the distance of the decoded values."""
    return np.sqrt(_encode(values, codes, scale))


@inner
def encode_key(keys, codes, slot):
    """Write the code of the key in a slot."""
    d = keys.n_features
    a, b = slot * d, (slot + 1) * d
    scale = scale_for(keys.values[a:b])
    squared = _encode(keys.values[a:b], codes.values[a:b], scale)
    codes.marks[slot]["scale"] = scale
    codes.marks[slot]["error"] = np.sqrt(squared) * np.float32(1.001) + _rounding(d)


@inner_fastmath
def _squared_length_of(codes):
    total = np.float32(0.0)
    for i in range(codes.size):
        total += np.float32(codes[i]) * np.float32(codes[i])
    return total


@inner
def write_code(keys, slot, values):
    """Store a key of unit length as its code, in a store without full keys. The decoded key has unit length."""
    d = keys.n_features
    a, b = slot * d, (slot + 1) * d
    _encode(values, keys.values[a:b], scale_for(values))
    squared = _squared_length_of(keys.values[a:b])
    keys.marks[slot]["scale"] = np.float32(1.0) / np.sqrt(squared) if squared > 0.0 else np.float32(1.0)
    keys.marks[slot]["error"] = _rounding(d)


@inner
def move_code(codes, source, target):
    """Move a key's code from one slot to another."""
    d = codes.n_features
    for i in range(d):
        codes.values[target * d + i] = codes.values[source * d + i]
    codes.marks[target]["scale"] = codes.marks[source]["scale"]
    codes.marks[target]["error"] = codes.marks[source]["error"]


@inner
def prefetch_code(codes, slot):
    """Prefetch a key's code."""
    d = codes.n_features
    for i in range(slot * d, (slot + 1) * d, _LINE):
        prefetch(codes.values, i)
    prefetch(codes.marks, slot)


@inner_fastmath
def _coded_dot(values, codes):
    total = np.float32(0.0)
    for i in range(codes.size):
        total += values[i] * np.float32(codes[i])
    return total


@inner
def coded_score(values, marks, at, probe, d):
    """Return the score of code number ``at``, and a bound on its difference from the score of the key."""
    mark = marks[at]
    value = mark["scale"] * _coded_dot(probe.values, values[at * d : (at + 1) * d])
    return value, mark["error"] * probe.length[0]


@inner_fastmath
def _sum_of_products(codes, others):
    total = np.int32(0)
    for i in range(codes.size):
        total = np.int32(total + np.int32(np.int32(codes[i]) * np.int32(others[i])))
    return total


@inner
def product_of_codes(codes, a, others, b, d):
    """Return the dot product of ``d`` entries of ``codes`` from ``a`` on and of ``others`` from ``b`` on."""
    total = np.float32(0.0)
    for first in range(0, d, _CELLS_OF_A_SUM):
        stop = min(first + _CELLS_OF_A_SUM, d)
        total += np.float32(_sum_of_products(codes[a + first : a + stop], others[b + first : b + stop]))
    return total

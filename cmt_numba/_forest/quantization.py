"""Kernels: 8-bit codes of dense keys.

Memory bandwidth limits the speed of searches. Each dense key is therefore also stored as 8-bit integers, its *code*.
The decoded key is the code times a scale, and the *error* of the code is the distance of the decoded key from the key.
By the Cauchy-Schwarz inequality, the score of the decoded key and the error bound the score of the key. A search reads
only the keys whose upper bounds reach the best scores so far, and returns the same answers as without codes.
"""

import numpy as np

from .._jit import inner, inner_fastmath, prefetch

_LARGEST = np.float32(127.0)
_LINE = 64  # bytes of a cache line


@inner_fastmath
def _largest_of(values):
    largest = np.float32(0.0)
    for i in range(values.size):
        largest = max(largest, np.abs(values[i]))
    return largest


@inner_fastmath
def _encode(values, codes, scale):
    """Write the code of ``values``, and return the squared distance of the decoded values from ``values``."""
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
    """Return a generous bound on the rounding error of a dot product with a query of length 1."""
    return np.float32(1e-6 + 1e-8 * n_features)


@inner
def scale_for(values):
    """Return the scale at which the code of ``values`` has entries from -127 to 127."""
    scale = _largest_of(values) / _LARGEST
    return scale if scale > 0.0 else np.float32(1.0)


@inner
def encode_key(keys, codes, slot):
    """Write the code, scale and error of the key in a slot."""
    d = keys.n_features
    a, b = slot * d, (slot + 1) * d
    scale = scale_for(keys.values[a:b])
    squared = _encode(keys.values[a:b], codes.values[a:b], scale)
    codes.marks[slot]["scale"] = scale
    codes.marks[slot]["error"] = np.sqrt(squared) * np.float32(1.001) + _rounding(d)


@inner
def move_code(codes, source, target):
    """Copy a code from slot ``source`` to slot ``target``."""
    d = codes.n_features
    for i in range(d):
        codes.values[target * d + i] = codes.values[source * d + i]
    codes.marks[target]["scale"] = codes.marks[source]["scale"]
    codes.marks[target]["error"] = codes.marks[source]["error"]


@inner
def prefetch_code(codes, slot):
    """Prefetch the code in a slot."""
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
    """Return the score of the code at position ``at``, and a bound on the difference from the key's score."""
    mark = marks[at]
    value = mark["scale"] * _coded_dot(probe.values, values[at * d : (at + 1) * d])
    return value, mark["error"] * probe.length[0]

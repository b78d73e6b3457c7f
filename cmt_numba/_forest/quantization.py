"""Kernels: a dense key in a quarter of the room, which is all that most searches read of it.

What a search waits for is memory. So each dense key is stored once more as 8-bit integers: a *code*, times a scale of
its own, is the key up to an *error*, the length of the difference. The inequality of Cauchy and Schwarz then bounds a
key's score from what its code scores, and only keys whose bound reaches the best scores found so far are read in full.
Answers are the same as without codes.
"""

import numpy as np

from .._jit import by_reference, inner, inner_fastmath, kernel, prefetch

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
    """Write the codes of a key and return its squared distance from what they stand for."""
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
    """Return how far sums of so many products may be off, for a query of length 1: a generous bound."""
    return np.float32(1e-6 + 1e-8 * n_features)


@inner
def encode_key(state, slot):
    """Write the code of the key in a slot."""
    d = state.parameters.n_features
    a, b = slot * d, (slot + 1) * d
    scale = _largest_of(state.keys.values[a:b]) / _LARGEST
    scale = scale if scale > 0.0 else np.float32(1.0)
    squared = _encode(state.keys.values[a:b], state.codes.values[a:b], scale)
    state.codes.marks[slot]["scale"] = scale
    state.codes.marks[slot]["error"] = np.sqrt(squared) * np.float32(1.001) + _rounding(d)


@kernel
def encode_keys(state, first, stop):
    """Write the codes of the keys in slots ``first .. stop``."""
    state = by_reference(state)
    for slot in range(first, stop):
        encode_key(state, slot)


@inner
def move_code(state, source, target):
    """Move a key's code from one slot to another."""
    d = state.parameters.n_features
    for i in range(d):
        state.codes.values[target * d + i] = state.codes.values[source * d + i]
    state.codes.marks[target]["scale"] = state.codes.marks[source]["scale"]
    state.codes.marks[target]["error"] = state.codes.marks[source]["error"]


@inner
def prefetch_code(state, slot):
    """Ask for a key's code."""
    d = state.parameters.n_features
    for i in range(slot * d, (slot + 1) * d, _LINE):
        prefetch(state.codes.values, i)
    prefetch(state.codes.marks, slot)


@inner_fastmath
def _coded_dot(values, codes):
    total = np.float32(0.0)
    for i in range(codes.size):
        total += values[i] * np.float32(codes[i])
    return total


@inner
def coded_score(values, marks, at, probe, d):
    """Return what the code number ``at`` says of its key's score, and by how much the score may differ from it."""
    mark = marks[at]
    value = mark["scale"] * _coded_dot(probe.values, values[at * d : (at + 1) * d])
    return value, mark["error"] * probe.length[0]

"""Kernels: seeded random streams (SplitMix64). The state of a stream is a 64-bit word.

Every tree draws from its own stream, so its growth does not depend on other trees or threads. Numba's global generator
is unsuitable, because each thread has its own state, which cannot be saved.
"""

import numpy as np

from .._jit import inner, kernel

_GOLDEN_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_SHIFT_11 = np.uint64(11)
_SHIFT_27 = np.uint64(27)
_SHIFT_30 = np.uint64(30)
_SHIFT_31 = np.uint64(31)
_SHIFT_32 = np.uint64(32)
_UNIT = 2.0**-53


@inner
def mix(word):
    """Return a bijective hash of a 64-bit word (the finaliser of SplitMix64)."""
    word = (word ^ (word >> _SHIFT_30)) * _MIX_1
    word = (word ^ (word >> _SHIFT_27)) * _MIX_2
    return word ^ (word >> _SHIFT_31)


@inner
def next_word(streams, i):
    """Advance stream ``i`` and return 64 random bits."""
    streams[i] += _GOLDEN_GAMMA
    return mix(streams[i])


@inner
def random_below(streams, i, n):
    """Advance stream ``i`` and return a uniform random integer in ``[0, n)``, where ``n < 2**32``."""
    return np.int64(((next_word(streams, i) >> _SHIFT_32) * np.uint64(n)) >> _SHIFT_32)


@inner
def peek_below(streams, i, n):
    """Return the next result of :func:`random_below` without advancing the stream."""
    return np.int64(((mix(streams[i] + _GOLDEN_GAMMA) >> _SHIFT_32) * np.uint64(n)) >> _SHIFT_32)


@inner
def unit_of(word):
    """Convert 64 random bits to a uniform float in [0, 1)."""
    return np.float64(word >> _SHIFT_11) * _UNIT


@kernel
def draw_word(streams, i):
    """Advance stream ``i`` and return 64 random bits. Python calls this instead of :func:`next_word`."""
    return next_word(streams, i)

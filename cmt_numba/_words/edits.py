"""Bit-parallel kernels for the edits between sequences of up to 64 symbols.

Two bits per row encode whether the costs in a table column rise, fall or stay the same from the row above (Myers, A
fast bit-vector algorithm for approximate string matching based on dynamic programming, 1999). A machine word contains
64 rows, so each symbol of the other sequence takes a few operations. Exchanges of neighbours need additional operations
(Hyyrö, A bit-vector algorithm for computing Levenshtein and Damerau edit distances, 2003).
"""

import numpy as np

from .._jit import inner, kernel, release, zeros

WORD = 64
N_BYTES = np.int64(256)
_ONE, _NONE, _ALL = np.uint64(1), np.uint64(0), np.uint64(0xFFFFFFFFFFFFFFFF)
_LAST = np.int64(WORD - 1)


@inner
def set_bits(x, masks, n_words, there):
    """Set or clear the position bits of the symbols of ``x``. ``masks`` has ``n_words`` words per symbol."""
    for i in range(x.size):
        place = np.int64(x[i]) * n_words + (i >> 6)
        masks[place] = (masks[place] | (_ONE << np.uint64(i & _LAST))) if there else _NONE


@inner
def edits_of_word(n, y, masks, n_words, swapped, limit):
    """Return the edits between the 1 to 64 symbols in ``masks`` and ``y``, or -1 above ``limit``."""
    up, down, matched, before = _ALL, _NONE, _NONE, _NONE  # up, down: rows that cost 1 more or less than the row above
    last, edits = np.uint64(n - 1), np.int64(n)
    most = limit + y.size  # each remaining symbol can reduce ``edits`` by at most 1
    for j in range(y.size):
        mask = masks[np.int64(y[j]) * n_words]
        level = (((mask & up) + up) ^ up) | mask | down  # rows whose cost equals the cost of their upper left neighbour
        if swapped:
            level |= ((~matched & mask) << _ONE) & before
            matched, before = level, mask
        right, left = down | ~(level | up), level & up
        edits += np.int64((right >> last) & _ONE) - np.int64((left >> last) & _ONE)
        if edits + j >= most:
            return np.int64(-1)
        right, left = (right << _ONE) | _ONE, left << _ONE
        up, down = left | ~(level | right), right & level
    return edits


@kernel
def count_edits(symbols, words, stops, candidates, limit, edits):
    """Write the edits between a word and each candidate, exchanges of neighbours included, or -1 above ``limit``.

    ``symbols`` are the 1 to 64 bytes of the word, and ``words`` those of all words, which end at ``stops``.
    """
    masks = zeros(N_BYTES, np.uint64)
    set_bits(symbols, masks, 1, True)
    for i in range(candidates.size):
        at = candidates[i]
        other = words[stops[at - 1] if at > 0 else 0 : stops[at]]
        is_near = abs(other.size - symbols.size) <= limit
        edits[i] = edits_of_word(symbols.size, other, masks, 1, True, limit) if is_near else -1
    release(masks)

"""Parts of kernels: edit distances where all edits cost the same, by the bits of machine words.

Bits tell how a column of the table of costs changes from each row to the next: by 1, 0 or -1 (Myers, A fast bit-vector
algorithm for approximate string matching based on dynamic programming, 1999). One word holds 64 rows, so a symbol of
the other sequence takes a few operations for all of them; longer sequences take several words, and exchanges of
neighbours some more operations (Hyyrö, A bit-vector algorithm for computing Levenshtein and Damerau edit distances,
2003).
"""

from typing import NamedTuple

import numpy as np

from .._jit import inner, inner_allocating, inner_called, zeros

WORD = 64
_ONE, _NONE, _ALL = np.uint64(1), np.uint64(0), np.uint64(0xFFFFFFFFFFFFFFFF)
_LAST, _LAST_BIT = np.int64(WORD - 1), np.uint64(WORD - 1)
_FURTHER = np.int64(2**62)


@inner
def limit_of(bound, unit):
    """Return how many edits of the same cost may have a cost that is not above a bound."""
    edits = np.float64(bound) / unit
    return np.int64(edits) if edits < np.float64(_FURTHER) else _FURTHER


@inner
def set_bits(x, masks, n_words, there):
    """Note in ``masks`` where each symbol of ``x`` is, ``n_words`` words for each symbol; or take it out again."""
    for i in range(x.size):
        place = np.int64(x[i]) * n_words + (i >> 6)
        masks[place] = (masks[place] | (_ONE << np.uint64(i & _LAST))) if there else _NONE


@inner
def edits_of_word(n, y, masks, n_words, swapped, limit):
    """Return how many edits turn the ``n`` symbols that ``masks`` has into ``y``, or -1 above a limit; 1 <= n <= 64."""
    up, down, matched, before = _ALL, _NONE, _NONE, _NONE  # rows that cost one more than the one above, one less
    last, edits = np.uint64(n - 1), np.int64(n)
    most = limit + y.size  # of the edits so far and the symbols to come
    for j in range(y.size):
        mask = masks[np.int64(y[j]) * n_words]
        level = (((mask & up) + up) ^ up) | mask | down  # rows that cost no more than the one before the last
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


@inner_called
def edits_of_words(n, y, masks, n_words, swapped, limit, columns):
    """Return the same for any number of symbols. ``columns`` has room for four words for each word of the symbols."""
    used, last = (n + _LAST) >> 6, np.uint64((n - 1) & _LAST)
    for word in range(used):
        columns[4 * word], columns[4 * word + 1] = _ALL, _NONE
        columns[4 * word + 2], columns[4 * word + 3] = _NONE, _NONE
    edits, most = np.int64(n), limit + y.size
    for j in range(y.size):
        place = np.int64(y[j]) * n_words
        more, less, open_above = _ONE, _NONE, _NONE  # how the row above the word changes, and its symbols not matched
        for word in range(used):
            up, down = columns[4 * word], columns[4 * word + 1]
            mask = masks[place + word]
            known = mask | less
            level = (((known & up) + up) ^ up) | known | down
            if swapped:
                waiting = ~columns[4 * word + 2] & mask
                level |= ((waiting << _ONE) | open_above) & columns[4 * word + 3]
                open_above = waiting >> _LAST_BIT
                columns[4 * word + 2], columns[4 * word + 3] = level, mask
            right, left = down | ~(level | up), level & up
            if word == used - 1:
                edits += np.int64((right >> last) & _ONE) - np.int64((left >> last) & _ONE)
            next_more, next_less = right >> _LAST_BIT, left >> _LAST_BIT
            right, left = (right << _ONE) | more, (left << _ONE) | less
            columns[4 * word], columns[4 * word + 1] = left | ~(level | right), right & level
            more, less = next_more, next_less
        if edits + j >= most:
            return np.int64(-1)
    return edits


LANES = 64
"""Sequences that are compared with another one at once."""

_SHIFTS = tuple(np.uint64(shift) for shift in (1, 2, 4, 8, 16, 32))
_PAIRS, _FOURS, _EIGHTS = (np.uint64(bits) for bits in (0x5555555555555555, 0x3333333333333333, 0x0F0F0F0F0F0F0F0F))
_SUM = np.uint64(127)


class SequenceLanes(NamedTuple):
    """Sequences of up to 64 symbols, side by side, so that vector instructions compare several with another one."""

    masks: np.ndarray  # uint64 (n_symbols, LANES): where each has each symbol
    inside: np.ndarray  # uint64 (LANES,): a bit for each symbol of each
    columns: np.ndarray  # uint64 (4, LANES)
    n_edits: np.ndarray  # int64 (LANES,)


@inner_allocating
def new_lanes(n_symbols):
    """Return room for sequences of so many symbols, or of none if they are not compared by bits."""
    n = np.int64(LANES if n_symbols > 0 else 0)
    return SequenceLanes(
        zeros((n_symbols, n), np.uint64), zeros(n, np.uint64), zeros((np.int64(4), n), np.uint64), zeros(n, np.int64)
    )


@inner
def fill_lanes(symbols, offsets, first, there, lanes):
    """Put sequences from ``first`` on into lanes, or take them out, and return how many; 0 if one is too long."""
    n = min(np.int64(LANES), offsets.size - 1 - first)
    for lane in range(n):
        if offsets[first + lane + 1] - offsets[first + lane] > WORD:
            return np.int64(0)
    for lane in range(n):
        start, stop, bit = offsets[first + lane], offsets[first + lane + 1], _ONE
        for place in range(start, stop):
            symbol = symbols[place]
            lanes.masks[symbol, lane] = (lanes.masks[symbol, lane] | bit) if there else _NONE
            bit <<= _ONE
        n_symbols = np.uint64(stop - start)
        lanes.inside[lane] = _ALL if n_symbols == np.uint64(WORD) else (_ONE << n_symbols) - _ONE
    return n


@inner
def _number_of(bits):
    """Return how many bits are set."""
    bits = bits - ((bits >> _SHIFTS[0]) & _PAIRS)
    bits = (bits & _FOURS) + ((bits >> _SHIFTS[1]) & _FOURS)
    bits = (bits + (bits >> _SHIFTS[2])) & _EIGHTS
    bits += bits >> _SHIFTS[3]
    bits += bits >> _SHIFTS[4]
    bits += bits >> _SHIFTS[5]
    return np.int64(bits & _SUM)


@inner_called
def edits_of_lanes(x, n, swapped, lanes):
    """Write how many edits turn ``x`` into the sequence of each of the first ``n`` lanes."""
    ups, downs, levels, before = lanes.columns[0], lanes.columns[1], lanes.columns[2], lanes.columns[3]
    for lane in range(n):
        ups[lane], downs[lane], levels[lane], before[lane] = _ALL, _NONE, _NONE, _NONE
    for i in range(x.size):
        masks = lanes.masks[x[i]]
        if swapped:
            for lane in range(n):
                mask, up, down = masks[lane], ups[lane], downs[lane]
                level = (((mask & up) + up) ^ up) | mask | down
                level |= ((~levels[lane] & mask) << _ONE) & before[lane]
                levels[lane], before[lane] = level, mask
                right = ((down | ~(level | up)) << _ONE) | _ONE
                ups[lane], downs[lane] = ((level & up) << _ONE) | ~(level | right), right & level
        else:
            for lane in range(n):
                mask, up, down = masks[lane], ups[lane], downs[lane]
                level = (((mask & up) + up) ^ up) | mask | down
                right = ((down | ~(level | up)) << _ONE) | _ONE
                ups[lane], downs[lane] = ((level & up) << _ONE) | ~(level | right), right & level
    for lane in range(n):
        inside = lanes.inside[lane]
        lanes.n_edits[lane] = x.size + _number_of(ups[lane] & inside) - _number_of(downs[lane] & inside)

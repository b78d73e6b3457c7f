"""Bit-parallel kernels for edit distances with equal costs: of long sequences, and of blocks of sequences.

:mod:`cmt_numba._words` explains the method. Sequences of more than 64 symbols use several machine words.
"""

from typing import NamedTuple

import numpy as np

from .._jit import empty, inner, inner_allocating, inner_called, kernel
from .._words import WORD

_ONE, _NONE, _ALL = np.uint64(1), np.uint64(0), np.uint64(0xFFFFFFFFFFFFFFFF)
_LAST, _LAST_BIT = np.int64(WORD - 1), np.uint64(WORD - 1)
_FURTHER = np.int64(2**62)


@inner
def limit_of(bound, unit):
    """Return the maximum number of edits with a total cost of at most ``bound``."""
    edits = np.float64(bound) / unit
    return np.int64(edits) if edits < np.float64(_FURTHER) else _FURTHER


@inner_called
def edits_of_words(n, y, masks, n_words, swapped, limit, columns):
    """Return the result of :func:`edits_of_word` for any positive ``n``. ``columns`` has 4 entries per word."""
    used, last = (n + _LAST) >> 6, np.uint64((n - 1) & _LAST)
    for word in range(used):
        columns[4 * word], columns[4 * word + 1] = _ALL, _NONE
        columns[4 * word + 2], columns[4 * word + 3] = _NONE, _NONE
    edits, most = np.int64(n), limit + y.size
    for j in range(y.size):
        place = np.int64(y[j]) * n_words
        more, less, open_above = _ONE, _NONE, _NONE  # carry bits from the previous word
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


LANES = 64  # number of sequences in a block
NARROW = 16  # word size of blocks of short sequences, in bits
_SHIFTS = tuple(np.uint64(shift) for shift in (1, 2, 4, 8, 16, 32))
_PAIRS, _FOURS, _EIGHTS = (np.uint64(bits) for bits in (0x5555555555555555, 0x3333333333333333, 0x0F0F0F0F0F0F0F0F))
_SUM = np.uint64(127)


class Lanes(NamedTuple):
    """Blocks of sequences in words of 16 or 64 bits. A vector instruction compares several sequences of a block."""

    masks: np.ndarray  # (blocks, classes, LANES), bits of the positions with a symbol of the class
    inside: np.ndarray  # (blocks, LANES), bits of all positions in the sequence


class Blocks(NamedTuple):
    """Sequences in ascending order of length. Sequences of up to 64 symbols are in blocks, and longer ones are not."""

    order: np.ndarray  # int64 (sequences,), indices of the sequences
    lengths: np.ndarray  # int64 (sequences,), ascending
    narrow: Lanes  # uint16 words
    wide: Lanes  # uint64 words
    n: int  # number of sequences in blocks


class LanesRoom(NamedTuple):
    """Scratch arrays for comparing a sequence with a block."""

    narrow: np.ndarray  # uint16 (4, LANES)
    wide: np.ndarray  # uint64 (4, LANES)
    n_edits: np.ndarray  # int64 (LANES,)


@inner_allocating
def new_lanes_room():
    """Return scratch arrays for comparing a sequence with a block."""
    shape = (np.int64(4), np.int64(LANES))
    return LanesRoom(empty(shape, np.uint16), empty(shape, np.uint64), empty(np.int64(LANES), np.int64))


@inner_called
def _fill(symbols, offsets, order, first, lanes):
    """Write the sequences ``order[first:]`` to the blocks of ``lanes``."""
    one, n_classes = lanes.inside.dtype.type(1), lanes.masks.shape[1]
    for position in range(first, min(first + LANES * lanes.inside.shape[0], order.size)):
        block, lane = (position - first) // LANES, (position - first) % LANES
        bit, inside = one, lanes.inside[block, lane]
        for place in range(offsets[order[position]], offsets[order[position] + 1]):
            lanes.masks[block, symbols[place] % n_classes, lane] |= bit
            inside |= bit
            bit <<= one
        lanes.inside[block, lane] = inside


@kernel
def fill_blocks(symbols, offsets, blocks):
    """Write the masks of all blocks, which must be 0 before the call."""
    order = blocks.order[: blocks.n]
    _fill(symbols, offsets, order, np.int64(0), blocks.narrow)
    _fill(symbols, offsets, order, LANES * blocks.narrow.inside.shape[0], blocks.wide)


@inner
def _number_of(bits):
    bits = bits - ((bits >> _SHIFTS[0]) & _PAIRS)
    bits = (bits & _FOURS) + ((bits >> _SHIFTS[1]) & _FOURS)
    bits = (bits + (bits >> _SHIFTS[2])) & _EIGHTS
    bits += bits >> _SHIFTS[3]
    bits += bits >> _SHIFTS[4]
    bits += bits >> _SHIFTS[5]
    return np.int64(bits & _SUM)


@inner_called
def _compare(x, lanes, block, swapped, in_part, columns, n_edits):
    """Write the edits between ``x`` and each sequence of a block or, with ``in_part``, its nearest substring."""
    word, n_classes = columns.dtype.type, lanes.masks.shape[1]
    one, none = word(1), word(0)
    first = none if in_part else ~none  # a substring may start anywhere at no cost
    ups, downs, levels, before = columns[0], columns[1], columns[2], columns[3]
    for lane in range(LANES):
        ups[lane], downs[lane], levels[lane], before[lane] = first, none, none, none
    for i in range(x.size):
        masks = lanes.masks[block, x[i] % n_classes]
        if swapped:
            for lane in range(LANES):
                mask, up, down = masks[lane], ups[lane], downs[lane]
                level = word(word(word(word(mask & up) + up) ^ up) | mask | down)
                level = word(level | word(word(word(~levels[lane] & mask) << one) & before[lane]))
                levels[lane], before[lane] = level, mask
                right = word(word(word(down | ~word(level | up)) << one) | one)
                ups[lane] = word(word(word(level & up) << one) | ~word(level | right))
                downs[lane] = right & level
        else:
            for lane in range(LANES):
                mask, up, down = masks[lane], ups[lane], downs[lane]
                level = word(word(word(word(mask & up) + up) ^ up) | mask | down)
                right = word(word(word(down | ~word(level | up)) << one) | one)
                ups[lane] = word(word(word(level & up) << one) | ~word(level | right))
                downs[lane] = right & level
    inside = lanes.inside[block]
    for lane in range(LANES):
        up, down = np.uint64(ups[lane] & inside[lane]), np.uint64(downs[lane] & inside[lane])
        if in_part:
            least, level = np.int64(0), np.int64(0)
            while up | down:
                level += np.int64(up & _ONE) - np.int64(down & _ONE)
                least = min(least, level)
                up, down = up >> _ONE, down >> _ONE
            n_edits[lane] = x.size + least
        else:
            n_edits[lane] = x.size + _number_of(up) - _number_of(down)


@inner
def edits_of_block(x, blocks, block, swapped, in_part, room):
    """Write the edits of the sequences of a block as in :func:`_compare`; return the position of the first."""
    n_narrow = blocks.narrow.inside.shape[0]
    if block < n_narrow:
        _compare(x, blocks.narrow, block, swapped, in_part, room.narrow, room.n_edits)
    else:
        _compare(x, blocks.wide, block - n_narrow, swapped, in_part, room.wide, room.n_edits)
    return block * LANES

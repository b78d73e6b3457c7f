"""Kernels: the rows of a batch, and the tiles that they share, as 8-bit codes."""

from typing import NamedTuple

import numpy as np

from .._forest import NONE
from .._jit import TILE, by_reference, empty, inner, inner_allocating, inner_called, zeros
from .byte_tiles import BLOCK_BYTES, BLOCK_MEMBERS, FEATURES, LARGEST_OF_ROWS, OFFSET, transpose_block
from .codes import SHORTEST, largest_of, round_to_codes, sum_of
from .lists import ROUNDING
from .state import INNER_PRODUCT, METRIC

_SLACK, _ROUNDING = np.float32(1.001), np.float32(1e-6)
_TWO, _HALF, _ONE = np.float32(2.0), np.float32(0.5), np.float32(1.0)
_SHORTEST_ROOT = np.float32(1e-15)


class RowCodes(NamedTuple):
    """Coded rows."""

    codes: np.ndarray  # int8 (m, 4 * n_groups), padded with zeros
    shifts: np.ndarray  # int32 (m,): 128 times the sum of the codes
    numbers: np.ndarray  # float32 (m, 4): the factors of scales, errors and lengths, and the number added to the sum


class Tile(NamedTuple):
    """A transposed tile."""

    codes: np.ndarray  # int8, flat, of shape (n_groups, 32 members, 4 features)
    numbers: np.ndarray  # float32 (4 * 32,): scales, errors, lengths, and numbers to add
    tail: np.ndarray  # int8 (16 * 64,): scratch space


@inner_allocating
def new_row_codes(m, d):
    """Return scratch space for ``m`` rows."""
    return RowCodes(empty((m, -(-d // FEATURES) * FEATURES), np.int8), empty(m, np.int32), empty((m, 4), np.float32))


@inner_allocating
def new_tile(d):
    """Return scratch space for a tile."""
    return Tile(
        empty(-(-d // BLOCK_BYTES) * BLOCK_BYTES * TILE, np.int8),
        empty(4 * TILE, np.float32),
        zeros(BLOCK_MEMBERS * BLOCK_BYTES, np.int8),
    )


@inner
def code_row(queries, m, coded):
    """Write the codes of a query whose other forms have just been written."""
    codes, prepared = coded.codes[m], queries.prepared
    codes[prepared.size :] = 0
    scale = max(largest_of(prepared), SHORTEST) / np.float32(LARGEST_OF_ROWS)
    squared, length = round_to_codes(prepared, _ONE / scale, scale, codes), queries.lengths[m]
    coded.shifts[m] = np.int32(OFFSET) * sum_of(codes)
    coded.numbers[m, 0], coded.numbers[m, 1] = scale, length
    coded.numbers[m, 2] = max(np.sqrt(squared) * _SLACK + _ROUNDING * length, queries.errors[m])
    coded.numbers[m, 3] = (ROUNDING - _HALF) * length * length


@inner_called
def load_tile(arrays, tile, loaded):
    """Transpose the codes of a tile, and write the numbers of its members: minus infinity to add for a free place."""
    state = by_reference(arrays)
    members, d, begin = state.members, state.origin.size, tile * TILE
    n_whole = d // BLOCK_BYTES
    for first in range(0, TILE, BLOCK_MEMBERS):
        at, to = (begin + first) * d, first * FEATURES
        for _ in range(n_whole):
            transpose_block(members.codes, at, d, loaded.codes, to)
            at, to = at + BLOCK_BYTES, to + BLOCK_BYTES * TILE
        if n_whole * BLOCK_BYTES < d:  # the next member's codes would follow
            for i in range(BLOCK_MEMBERS):
                codes = members.codes[begin + first + i]
                for f in range(n_whole * BLOCK_BYTES, d):
                    loaded.tail[i * BLOCK_BYTES + f - n_whole * BLOCK_BYTES] = codes[f]
            transpose_block(loaded.tail, 0, BLOCK_BYTES, loaded.codes, to)
    lifted = ROUNDING if state.totals[METRIC] == INNER_PRODUCT else ROUNDING - _ONE
    for i in range(TILE):
        place = begin + i
        lift, error = members.lifts[place], members.errors[place]
        loaded.numbers[i], loaded.numbers[TILE + i] = members.scales[place], error
        loaded.numbers[2 * TILE + i] = np.sqrt(_TWO * lift) + error + _SHORTEST_ROOT
        loaded.numbers[3 * TILE + i] = lifted * lift if members.slots[place] != NONE else -np.float32(np.inf)

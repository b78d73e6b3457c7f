"""Kernels: the rows of a batch, and the tiles that they share, as 8-bit codes."""

from typing import NamedTuple

import numpy as np

from .._forest import NONE
from .._jit import TILE, by_reference, empty, inner, inner_allocating, inner_called, zeros
from .byte_tiles import BLOCK_BYTES, BLOCK_MEMBERS, FEATURES, LARGEST_OF_ROWS, OFFSET, transpose_block
from .codes import SHORTEST, coded_values, largest_of, round_to_codes, sum_of
from .lists import ROUNDING
from .state import INNER_PRODUCT, METRIC

TILES = 6
"""Number of tiles that are loaded together. Most lists have no more."""

_SLACK, _ROUNDING = np.float32(1.001), np.float32(1e-6)
_TWO, _HALF, _ONE = np.float32(2.0), np.float32(0.5), np.float32(1.0)
_SHORTEST_ROOT = np.float32(1e-15)


class RowCodes(NamedTuple):
    """Coded rows."""

    codes: np.ndarray  # int8 (m, 4 * n_groups), padded with zeros
    shifts: np.ndarray  # int32 (m,): 128 times the sum of the codes
    factors: np.ndarray  # float32 (m,)
    errors: np.ndarray  # float32 (m,): length of the rounding error


class LoadedTiles(NamedTuple):
    """Transposed tiles."""

    codes: np.ndarray  # int8, flat, of shape (tiles, n_groups, 32 members, 4 features)
    numbers: np.ndarray  # float32 (tiles * 2 * 32,): scales, and numbers to add
    most: np.ndarray  # float32 (3,): the largest error, length and lift of their members
    tiles: np.ndarray  # int64 (tiles,)
    tail: np.ndarray  # int8 (16 * 64,): scratch space


@inner_allocating
def new_row_codes(m, d):
    """Return scratch space for ``m`` rows with ``d`` codes."""
    return RowCodes(
        empty((m, -(-d // FEATURES) * FEATURES), np.int8),
        empty(m, np.int32),
        empty(m, np.float32),
        empty(m, np.float32),
    )


@inner
def bytes_of_tile(d):
    """Return the number of bytes of a loaded tile of members with ``d`` codes."""
    return -(-d // BLOCK_BYTES) * BLOCK_BYTES * TILE


@inner_allocating
def new_tiles(d):
    """Return scratch space for tiles of members with ``d`` codes."""
    return LoadedTiles(
        empty(TILES * bytes_of_tile(d), np.int8),
        empty(TILES * 2 * TILE, np.float32),
        empty(3, np.float32),
        empty(TILES, np.int64),
        zeros(BLOCK_MEMBERS * BLOCK_BYTES, np.int8),
    )


@inner
def code_row(queries, m, coded):
    """Write the codes of a query whose other forms have just been written."""
    codes, values = coded.codes[m], coded_values(queries, m).values
    codes[values.size :] = 0
    scale = max(largest_of(values), SHORTEST) / np.float32(LARGEST_OF_ROWS)
    squared = round_to_codes(values, _ONE / scale, scale, codes)
    coded.shifts[m], coded.factors[m] = np.int32(OFFSET) * sum_of(codes), scale
    coded.errors[m] = max(np.sqrt(squared) * _SLACK + _ROUNDING * queries.lengths[m], queries.errors[m])


@inner
def error_of_row(queries, m, coded, share, most):
    """Return a bound on the errors of a row's scores for loaded tiles. It is a ``share`` of the largest error."""
    length = queries.lengths[m]
    error = share * (length * most[0] + coded.errors[m] * most[1]) + ROUNDING * (_HALF * length * length + most[2])
    return error if error < np.inf else np.float32(np.inf)  # NaN if an infinite error is multiplied by 0


@inner_called
def load_tile(arrays, tile, loaded, i):
    """Load a tile as the ``i``-th one: transpose its codes, and write numbers, minus infinity to add for free places.

    The first one begins the largest numbers of members anew.
    """
    state = by_reference(arrays)
    members, begin = state.members, tile * TILE
    d = members.codes.shape[1]
    for first in range(0, TILE, BLOCK_MEMBERS):
        at, to = (begin + first) * d, i * bytes_of_tile(d) + first * FEATURES
        if d < BLOCK_BYTES:  # the next member's codes would follow
            for member in range(BLOCK_MEMBERS):
                for f in range(d):
                    loaded.tail[member * BLOCK_BYTES + f] = members.codes[begin + first + member, f]
            transpose_block(loaded.tail, 0, BLOCK_BYTES, loaded.codes, to)
        else:
            for _ in range(d // BLOCK_BYTES):
                transpose_block(members.codes, at, d, loaded.codes, to)
                at, to = at + BLOCK_BYTES, to + BLOCK_BYTES * TILE
    if i == 0:
        loaded.most[:] = np.float32(0.0)
    loaded.tiles[i] = tile
    error, lift = loaded.most[0], loaded.most[2]
    lifted = np.float32(0.0) if state.totals[METRIC] == INNER_PRODUCT else -_ONE
    of = i * 2 * TILE
    for member in range(TILE):
        place = begin + member
        is_there = members.slots[place] != NONE
        loaded.numbers[of + member] = members.scales[place]
        loaded.numbers[of + TILE + member] = lifted * members.lifts[place] if is_there else -np.float32(np.inf)
        if is_there:
            error, lift = max(error, members.errors[place]), max(lift, members.lifts[place])
    loaded.most[0], loaded.most[1], loaded.most[2] = error, np.sqrt(_TWO * lift) + error + _SHORTEST_ROOT, lift

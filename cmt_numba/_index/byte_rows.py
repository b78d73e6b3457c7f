"""Kernels: the rows of a batch, and the tiles that they share, as 8-bit codes."""

from typing import NamedTuple

import numpy as np

from .._jit import TILE, by_reference, empty, inner, inner_allocating, inner_called, zeros
from .._kernels import NONE
from .byte_tiles import BLOCK_BYTES, BLOCK_MEMBERS, FEATURES, LARGEST_OF_ROWS, OFFSET, transpose_block
from .codes import SHORTEST, copy_values, dot32, encode_bytes, largest_of, round_to_codes, sum_of
from .lists import ROUNDING
from .state import INNER_PRODUCT, METRIC, N_TILES

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
    """Transposed tiles of members or centers."""

    codes: np.ndarray  # int8, flat, of shape (tiles, n_groups, 32 members, 4 features)
    numbers: np.ndarray  # float32 (tiles * 2 * 32,): scales, and numbers to add
    most: np.ndarray  # float32 (3,): the largest error, length and lift of their members
    places: np.ndarray  # int64 (tiles * 32,): the places of members, or NONE
    some: np.ndarray  # int8 (16 * codes + 64,): scratch space for the codes of 16 vectors


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
def new_tiles(d, n):
    """Return scratch space for ``n`` tiles of members or centers with ``d`` codes."""
    return LoadedTiles(
        empty(n * bytes_of_tile(d), np.int8),
        empty(n * 2 * TILE, np.float32),
        empty(3, np.float32),
        empty(n * TILE, np.int64),
        zeros(BLOCK_MEMBERS * d + BLOCK_BYTES, np.int8),
    )


@inner
def code_row(values, length, is_far, m, coded):
    """Write the codes of a query, of which ``values`` are rotated or not."""
    codes = coded.codes[m]
    codes[values.size :] = 0
    scale = max(largest_of(values), SHORTEST) / np.float32(LARGEST_OF_ROWS)
    squared = round_to_codes(values, _ONE / scale, scale, codes)
    coded.shifts[m], coded.factors[m] = np.int32(OFFSET) * sum_of(codes), scale
    coded.errors[m] = np.float32(np.inf) if is_far else np.sqrt(squared) * _SLACK + _ROUNDING * length


@inner
def error_of_row(queries, m, coded, share, most):
    """Return a bound on the errors of a row's scores for loaded tiles.

    The errors of both codes are independent after a rotation, which a ``share`` below 1 implies.
    """
    length = queries.lengths[m]
    of_members, of_row = length * most[0], coded.errors[m] * most[1]
    error = of_members + of_row
    if share < _ONE:
        error = share * np.sqrt(of_members * of_members + of_row * of_row)
    error += ROUNDING * (_HALF * length * length + most[2])
    return error if error < np.inf else np.float32(np.inf)  # NaN if an infinite error is multiplied by 0


@inner
def _transpose(codes, at, loaded, d, i, first):
    """Transpose the codes of 16 vectors, which become members ``first`` to ``first + 15`` of the ``i``-th tile."""
    to = i * bytes_of_tile(d) + first * FEATURES
    for _ in range(-(-d // BLOCK_BYTES)):  # a block may also read codes of the next vectors, which are ignored
        transpose_block(codes, at, d, loaded.codes, to)
        at, to = at + BLOCK_BYTES, to + BLOCK_BYTES * TILE


@inner_called
def load_tile(arrays, loaded, i):
    """Load the members in ``loaded.places`` of the ``i``-th tile: transpose their codes, and write their numbers.

    The number to add for a free place is minus infinity. The first tile begins the largest numbers of members anew.
    """
    state, loaded = by_reference(arrays), by_reference(loaded)
    lists, d, of = state.lists, state.lists.codes.shape[1], i * 2 * TILE
    if i == 0:
        loaded.most[:] = np.float32(0.0)
    error, lift = loaded.most[0], loaded.most[2]
    lifted = np.float32(0.0) if state.totals[METRIC] == INNER_PRODUCT else -_ONE
    for member in range(TILE):
        place, row = loaded.places[i * TILE + member], member % BLOCK_MEMBERS
        loaded.numbers[of + member], loaded.numbers[of + TILE + member] = np.float32(0.0), -np.float32(np.inf)
        if place != NONE and lists.slots[place] != NONE:
            copy_values(lists.codes[place], loaded.some[row * d : (row + 1) * d])
            loaded.numbers[of + member] = lists.scales[place]
            loaded.numbers[of + TILE + member] = lifted * lists.lifts[place]
            error, lift = max(error, lists.errors[place]), max(lift, lists.lifts[place])
        if row == BLOCK_MEMBERS - 1:
            _transpose(loaded.some, 0, loaded, d, i, member - row)
    _set_most(loaded, error, lift)


@inner_called
def load_stored_tile(arrays, loaded, i, tile):
    """Load a tile as it is stored, like :func:`load_tile`, but without the largest numbers of members."""
    state, loaded = by_reference(arrays), by_reference(loaded)
    lists, d, of, begin = state.lists, state.lists.codes.shape[1], i * 2 * TILE, tile * TILE
    if (begin + TILE) * d + BLOCK_BYTES > lists.codes.size:  # a block might end after the last code
        for member in range(TILE):
            loaded.places[i * TILE + member] = begin + member
        load_tile(state, loaded, i)
        return
    for first in range(0, TILE, BLOCK_MEMBERS):
        _transpose(lists.codes, (begin + first) * d, loaded, d, i, first)
    lifted = np.float32(0.0) if state.totals[METRIC] == INNER_PRODUCT else -_ONE
    for member in range(TILE):
        place = begin + member
        added = lifted * lists.lifts[place]
        loaded.numbers[of + member] = lists.scales[place]
        loaded.numbers[of + TILE + member] = added if lists.slots[place] != NONE else -np.float32(np.inf)


@inner
def _set_most(loaded, error, lift):
    loaded.most[0], loaded.most[1], loaded.most[2] = error, np.sqrt(_TWO * lift) + error + _SHORTEST_ROOT, lift


@inner_called
def load_centers(arrays, loaded):
    """Load 8-bit codes of the centers in all tiles of groups. Scores are their nearness without that of the row."""
    state, loaded = by_reference(arrays), by_reference(loaded)
    groups, width = state.groups, state.lists.centers.shape[1]
    error, lift = np.float32(0.0), np.float32(0.0)
    for place in range(groups.counts[N_TILES] * TILE):
        of, member = place // TILE * 2 * TILE + place % TILE, place % BLOCK_MEMBERS
        loaded.numbers[of], loaded.numbers[of + TILE] = np.float32(0.0), -np.float32(np.inf)
        if groups.slots[place] != NONE:
            center = state.lists.centers[groups.slots[place]]
            scale, own = encode_bytes(center, loaded.some[member * width : (member + 1) * width])
            half = _HALF * dot32(center, center)
            loaded.numbers[of], loaded.numbers[of + TILE] = scale, groups.lifts[place] - half
            error, lift = max(error, own), max(lift, half)
        if member == BLOCK_MEMBERS - 1:
            _transpose(loaded.some, 0, loaded, width, place // TILE, place % TILE - member)
    _set_most(loaded, error, lift)

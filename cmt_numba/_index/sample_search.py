"""Kernels: the nearest stored vectors of samples, and the gaps at which searches reach them.

All vectors are compared, by their 8-bit codes alone. The first bar follows from the scores of thousands of members, so
few members reach it. The codes decide which of two members is nearer unless the difference is very small.
"""

from typing import NamedTuple

import numpy as np

from .._jit import (
    TILE,
    by_reference,
    empty,
    first_of,
    inner,
    inner_allocating,
    inner_called,
    inner_fastmath,
    kernel,
    marks_of,
    release,
)
from .._kernels import NONE
from .byte_rows import TILES, bytes_of_tile, code_row, load_stored_tile, new_row_codes, new_tiles
from .byte_tiles import FEATURES, ROWS, score_rows
from .codes import coded_values, copy_values, distance32, distance64, dot32, prepare, rotate_query
from .lists import choose_groups, lift_of, new_queries, new_scan, usual_length, vector_of
from .ranking import LEAST, low_bar
from .state import INNER_PRODUCT, METRIC, N_LISTS, N_TILES, SCALE

_SHORTEST, _MISSING = np.float32(1e-30), np.float32(np.nan)
_LENGTH = np.float32(1.0)  # of queries of inner products; it does not affect their ranking
_HALF = np.float32(0.5)
_PADDED = 64  # number of scores that LLVM compares in one iteration
_MAX_ROWS = 64  # number of rows that share loaded tiles
_MAX_TILES = 252  # number of tiles whose scores are compared with a bar together, a multiple of TILES


class SampleScores(NamedTuple):
    """Scratch space for the scores of a block of rows."""

    values: np.ndarray  # float32 (rows, 252 * 32): scores of the current tiles
    highest: np.ndarray  # float32, for the first bar
    together: np.ndarray  # int64 (8,): rows that are compared with a tile together
    scores: np.ndarray  # float32 (8 * 32,): scores of a tile for these rows
    limits: np.ndarray  # float32 (8,): infinite, because bars are compared with the scores of many tiles
    bars: np.ndarray  # float32 (rows,): no member with a lower score is among the best
    n_kept: np.ndarray  # int64 (rows,)
    kept: np.ndarray  # float32 (rows, 4 * k): scores of members that may be among the best
    slots: np.ndarray  # int32 (rows, 4 * k): their slots
    best: np.ndarray  # float32 (k,): scratch space for sorting
    found: np.ndarray  # int32 (k,)
    limits_of_copies: np.ndarray  # float32 (rows,): the least scores of near copies
    lengths: np.ndarray  # float32 (rows,): for inner products, the length of the row, otherwise 0
    is_copy: np.ndarray  # bool (252 * 32,)


@inner_allocating
def _new_scores(n_rows, k):
    return SampleScores(
        empty((n_rows, _MAX_TILES * TILE), np.float32),
        empty(TILE * -(-2 * (k + 1) // TILE), np.float32),
        empty(ROWS, np.int64),
        empty(ROWS * TILE, np.float32),
        empty(ROWS, np.float32),
        empty(n_rows, np.float32),
        empty(n_rows, np.int64),
        empty((n_rows, 4 * k), np.float32),
        empty((n_rows, 4 * k), np.int32),
        empty(k, np.float32),
        empty(k, np.int32),
        empty(n_rows, np.float32),
        empty(n_rows, np.float32),
        empty(_MAX_TILES * TILE, np.bool_),
    )


@inner
def _score_loaded(loaded, n_tiles, coded, n_rows, block, at):
    """Write the scores of loaded tiles for all rows of a block to ``block.values[:, at:]``."""
    n_codes = coded.codes.shape[1]
    for begin in range(0, n_rows, ROWS):
        for r in range(ROWS):
            block.together[r] = min(begin + r, n_rows - 1)
        for t in range(n_tiles):
            score_rows(
                loaded.codes,
                t * bytes_of_tile(n_codes),
                loaded.numbers,
                t * 2 * TILE,
                n_codes // FEATURES,
                coded.codes,
                coded.shifts,
                coded.factors,
                block.limits,
                block.together,
                block.scores,
            )
            for r in range(min(ROWS, n_rows - begin)):
                copy_values(block.scores[r * TILE : (r + 1) * TILE], block.values[begin + r, at + t * TILE :])


@inner_called
def _n_above(values, n, value):
    """Return how many of the first ``n`` values are higher. In a function of its own, LLVM uses vector instructions."""
    n_above = np.int32(0)
    for i in range(n):
        n_above = np.int32(n_above + np.int32(values[i] > value))
    return n_above


@inner
def _keep_best(kept, slots, n, best, found):
    """Sort the best of the first ``n`` kept members, best first, and return their number."""
    best[:] = -np.float32(np.inf)
    n_padded = min(-(-n // _PADDED) * _PADDED, kept.size)
    kept[n:n_padded] = -np.float32(np.inf)
    for i in range(n):
        rank = _n_above(kept, n_padded, kept[i])
        while rank < best.size and best[rank] == kept[i]:
            rank += 1
        if rank < best.size:
            best[rank], found[rank] = kept[i], slots[i]
    n = min(n, best.size)
    copy_values(best[:n], kept)
    copy_values(found[:n], slots)
    return n


@inner
def _length_of(state, x):
    """Return the length of a vector on the scale of codes."""
    return np.float32(np.sqrt(distance64(x, state.origin)) * state.numbers[SCALE])


@inner
def _limit_copies(state, x, queries, m, radius, block):
    """Write the score from which members are within the radius of a row, or infinity if the radius is 0."""
    length = queries.lengths[m]
    block.lengths[m] = np.float32(0.0)
    if state.totals[METRIC] == INNER_PRODUCT:
        block.lengths[m] = length = _length_of(state, x)
    limit = _HALF * (length * length - radius * radius)
    block.limits_of_copies[m] = limit if radius > np.float32(0.0) else np.float32(np.inf)


@inner
def _drop_copies(lists, begin, n, own, m, block, n_copies):
    """Drop the scores of a row's near copies and of the vector in slot ``own``, and count them in their lists."""
    values, limit, length = block.values[m], block.limits_of_copies[m], block.lengths[m]
    lifted = np.float32(1.0)
    if length == np.float32(0.0):
        length, lifted = np.float32(1.0), np.float32(0.0)
    slots, lifts, is_copy = lists.slots[begin : begin + n], lists.lifts[begin : begin + n], block.is_copy
    for i in range(n):
        is_copy[i] = (length * values[i] - lifted * lifts[i] >= limit) | (slots[i] == own)
    for i in range(n):
        if is_copy[i] and slots[i] != NONE:
            values[i] = -np.float32(np.inf)
            n_copies[lists.list_of[(begin + i) // TILE]] += 1


@inner
def _keep_near(members, m, block):
    """Keep the members of some tiles that may be among the best of a row."""
    values, kept, slots, n_kept, k = block.values[m], block.kept[m], block.slots[m], block.n_kept[m], block.best.size
    bar = block.bars[m]
    if bar == LEAST:
        bar = low_bar(values, members.size, k, block.highest)
    for at in range(0, members.size, TILE):
        marks = marks_of(values, at, bar)
        while marks != 0:
            i = at + first_of(marks)
            marks &= marks - 1
            if n_kept == kept.size:
                n_kept = _keep_best(kept, slots, n_kept, block.best, block.found)
                bar = max(bar, kept[k - 1])
            kept[n_kept], slots[n_kept] = values[i], members[i]
            n_kept += 1
    block.bars[m], block.n_kept[m] = bar, n_kept


@kernel
def find_nearest(arrays, Q, own, radius, slots, n_copies):
    """Write the slots of the vectors nearest to each row, best first, padded with NONE.

    Slot ``own[row]`` and vectors within a radius of the row are left out. They are counted for each list.
    """
    state = by_reference(arrays)
    lists, k = state.lists, slots.shape[1]
    width, n_tiles = lists.codes.shape[1], lists.counts[N_TILES]
    most = max(1, min(Q.shape[0], _MAX_ROWS))
    queries = by_reference(new_queries(most, Q.shape[1], state.signs.shape[1]))
    coded, loaded = by_reference(new_row_codes(most, width)), by_reference(new_tiles(width, TILES))
    block = by_reference(_new_scores(most, k))
    block.limits[:] = np.float32(np.inf)
    n_copies[:, :] = 0
    for first in range(0, Q.shape[0], most):
        n_rows = min(most, Q.shape[0] - first)
        block.bars[:], block.n_kept[:] = LEAST, 0
        for m in range(n_rows):
            is_far = rotate_query(state, Q[first + m], queries, m, _LENGTH)
            code_row(coded_values(queries, m).values, queries.lengths[m], is_far, m, coded)
            _limit_copies(state, Q[first + m], queries, m, radius, block)
        for begin in range(0, n_tiles, _MAX_TILES):
            stop = min(begin + _MAX_TILES, n_tiles)
            for tile in range(begin, stop, TILES):
                n = min(TILES, stop - tile)
                for t in range(n):
                    load_stored_tile(state, loaded, t, tile + t)
                _score_loaded(loaded, n, coded, n_rows, block, (tile - begin) * TILE)
            for m in range(n_rows):
                row, n = first + m, (stop - begin) * TILE
                _drop_copies(lists, begin * TILE, n, own[row], m, block, n_copies[row])
                _keep_near(lists.slots[begin * TILE : stop * TILE], m, block)
        for m in range(n_rows):
            n = _keep_best(block.kept[m], block.slots[m], block.n_kept[m], block.best, block.found)
            copy_values(block.found[:n], slots[first + m])
            slots[first + m, n:] = NONE
    release((queries, coded, loaded, block))


class NearLists(NamedTuple):
    """Scratch space for the nearness of lists."""

    nearness: np.ndarray  # float32 (lists,)
    center: np.ndarray  # float32 (width,): the center of a list without the copies of a row
    other: np.ndarray  # float32 (d,): another vector as codes describe it


@inner_allocating
def _new_near(n_lists, width, d):
    return NearLists(empty(n_lists, np.float32), empty(width, np.float32), empty(d, np.float32))


@inner_fastmath
def _remove_copies(center, size, y, ratio, n, rest):
    """Write the mean of ``size`` members, of which ``n`` are removed that equal ``ratio * y``."""
    left, share = np.float32(size) / np.float32(size - n), ratio * np.float32(n) / np.float32(size - n)
    for f in range(center.size):
        rest[f] = left * center[f] - share * y[f]


@inner_fastmath
def _distance_of_multiple(x, ratio, y):
    """Return the squared distance of ``ratio * x`` and ``y``."""
    total = np.float32(0.0)
    for f in range(x.size):
        apart = ratio * x[f] - y[f]
        total += apart * apart
    return total


@inner
def _measure_nearness(state, y, ratio, n_copies, space):
    """Write how near all lists are to a row; return the nearest list."""
    lists, groups, best = state.lists, state.groups, np.int64(0)
    for j in range(lists.counts[N_LISTS]):
        n, size = np.int64(n_copies[j]), lists.sizes[j]
        value = groups.lifts[groups.places[j]] - _HALF * distance32(lists.centers[j], y)
        if n >= size > 0:
            value = -np.float32(np.inf)
        elif n > 0:
            _remove_copies(lists.centers[j], size, y, ratio, n, space.center)
            square, mass = dot32(space.center, space.center), lists.masses[j]
            mass -= np.float32(n) * _HALF * ratio * ratio * dot32(y, y)
            value = lift_of(state, square, mass, size - n) - _HALF * distance32(space.center, y)
        space.nearness[j] = value
        if value > space.nearness[best]:
            best = np.int64(j)
    return best


@kernel
def find_gaps(arrays, Q, slots, n_copies, gaps, distances, by_angle, n_groups):
    """Write the gap at which a search for row ``i`` reaches the list of ``slots[i, j]``; NaN where this is NONE.

    Centers are computed without the row and its copies, because other queries have no part in a center. Also writes the
    distances of the vectors, for inner products also those of vectors as long as the row, and the number of groups to
    compare.
    """
    state = by_reference(arrays)
    lists, groups, metric = state.lists, state.groups, state.totals[METRIC]
    queries = by_reference(new_queries(1, Q.shape[1], state.signs.shape[1]))
    scan = by_reference(new_scan(groups.sizes.size, 0))
    space = by_reference(_new_near(lists.counts[N_LISTS], state.signs.shape[1], Q.shape[1]))
    usual = usual_length(state)
    for row in range(Q.shape[0]):
        rotate_query(state, Q[row], queries, 0, usual)
        y, ratio, farthest = queries.rotated[0], np.float32(1.0), np.float32(0.0)
        if metric == INNER_PRODUCT:
            ratio = _length_of(state, Q[row]) / usual
        best = _measure_nearness(state, y, ratio, n_copies[row], space)
        choose_groups(groups, y, groups.counts[N_LISTS], scan)
        for i in range(slots.shape[1]):
            gaps[row, i], distances[row, i], by_angle[row, i] = _MISSING, _MISSING, _MISSING
            if slots[row, i] != NONE:
                j = lists.list_of[lists.places[slots[row, i]] // TILE]
                gaps[row, i] = space.nearness[best] - space.nearness[j]
                farthest = max(farthest, scan.apart[groups.list_of[groups.places[j] // TILE]])
                prepare(state, vector_of(state.vectors, np.int64(slots[row, i])).values, space.other)
                distances[row, i] = np.sqrt(_distance_of_multiple(queries.prepared, ratio, space.other))
                by_angle[row, i] = distances[row, i]
                if metric == INNER_PRODUCT:
                    longer = usual / max(np.sqrt(dot32(space.other, space.other)), _SHORTEST)
                    by_angle[row, i] = np.sqrt(_distance_of_multiple(space.other, longer, queries.prepared))
        n_groups[row] = 0
        for g in range(groups.counts[N_LISTS]):
            n_groups[row] += scan.apart[g] <= farthest
    release((queries, scan, space))

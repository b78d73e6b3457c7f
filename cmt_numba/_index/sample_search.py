"""Kernel: the nearest stored vectors of samples.

All vectors are compared, by their 8-bit codes alone. The first bar follows from the scores of thousands of members, so
few members reach it. The codes decide which of two members is nearer unless the difference is very small.
"""

from typing import NamedTuple

import numpy as np

from .._forest import NONE
from .._jit import (
    TILE,
    by_reference,
    by_value,
    empty,
    first_of,
    inner,
    inner_allocating,
    inner_called,
    kernel,
    marks_of,
    release,
)
from .byte_rows import TILES, bytes_of_tile, code_row, load_stored_tile, new_row_codes, new_tiles
from .byte_tiles import FEATURES, ROWS, score_rows
from .codes import coded_values, copy_values, rotate_query
from .lists import new_queries
from .ranking import LEAST, low_bar
from .state import N_TILES

_LENGTH = np.float32(1.0)  # of queries of inner products; it does not affect their ranking
_PADDED = 64  # number of scores that LLVM compares in one iteration
_MOST_ROWS = 64  # number of rows that share loaded tiles
_MOST_TILES = 252  # number of tiles whose scores are compared with a bar together, a multiple of TILES


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


@inner_allocating
def _new_scores(n_rows, k):
    return SampleScores(
        empty((n_rows, _MOST_TILES * TILE), np.float32),
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
def _keep_near(members, own, m, block):
    """Keep the members of some tiles that may be among the best of a row, except for the one in slot ``own``."""
    values, kept, slots, n_kept, k = block.values[m], block.kept[m], block.slots[m], block.n_kept[m], block.best.size
    bar = block.bars[m]
    if bar == LEAST:
        bar = low_bar(values, members.size, k + 1, block.highest)
    for at in range(0, members.size, TILE):
        marks = marks_of(values, at, bar)
        while marks != 0:
            i = at + first_of(marks)
            marks &= marks - 1
            if members[i] == own:
                continue
            if n_kept == kept.size:
                n_kept = _keep_best(kept, slots, n_kept, block.best, block.found)
                bar = max(bar, kept[k - 1])
            kept[n_kept], slots[n_kept] = values[i], members[i]
            n_kept += 1
    block.bars[m], block.n_kept[m] = bar, n_kept


@kernel
def find_nearest(arrays, Q, own, slots):
    """Write the slots of the vectors nearest to each row, except slot ``own[row]``, best first, padded with NONE."""
    state = by_reference(arrays)
    lists, k = state.lists, slots.shape[1]
    width, n_tiles = lists.codes.shape[1], lists.counts[N_TILES]
    most = max(1, min(Q.shape[0], _MOST_ROWS))
    queries, coded = new_queries(most, Q.shape[1], state.signs.shape[1]), new_row_codes(most, width)
    loaded, block = new_tiles(width, TILES), _new_scores(most, k)
    block.limits[:] = np.float32(np.inf)
    for first in range(0, Q.shape[0], most):
        n_rows = min(most, Q.shape[0] - first)
        block.bars[:], block.n_kept[:] = LEAST, 0
        for m in range(n_rows):
            is_far = rotate_query(state, Q[first + m], queries, m, _LENGTH)
            code_row(coded_values(queries, m).values, queries.lengths[m], is_far, m, coded)
        for begin in range(0, n_tiles, _MOST_TILES):
            stop = min(begin + _MOST_TILES, n_tiles)
            for tile in range(begin, stop, TILES):
                n = min(TILES, stop - tile)
                for t in range(n):
                    load_stored_tile(by_value(state), loaded, t, tile + t)
                _score_loaded(loaded, n, coded, n_rows, block, (tile - begin) * TILE)
            for m in range(n_rows):
                _keep_near(lists.slots[begin * TILE : stop * TILE], own[first + m], m, block)
        for m in range(n_rows):
            n = _keep_best(block.kept[m], block.slots[m], block.n_kept[m], block.best, block.found)
            copy_values(block.found[:n], slots[first + m])
            slots[first + m, n:] = NONE
    release((queries, coded, loaded, block))

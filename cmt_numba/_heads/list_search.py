"""Kernels: search for the best labels of dense rows in cluster lists.

Rows are searched in blocks. Each row of a block is compared with all landmarks, and reaches the lists whose landmark
scores are within a gap of the best one. Each list is then multiplied by the rows that reach it. Products of 8-bit codes
are exact integers, so a row's answer does not depend on other rows of its block.
"""

from typing import NamedTuple

import numpy as np

from .._forest import NONE, dot, keep_best, sort_best_first
from .._jit import (
    FEATURES_OF_A_WORD,
    LARGEST_CODE,
    ROWS_OF_A_TILE,
    TILE,
    TileQueries,
    empty,
    first_of,
    inner,
    inner_allocating,
    inner_called,
    kernel,
    marks_of,
    prefetch,
    release,
    score_tile,
    score_tile_for_one,
)
from .coded_lists import CodedLists

_REACHED_AT_ONCE = 1 << 22  # maximum number of lists reached by all rows of a block together
_KEPT_AT_ONCE = 1 << 20  # maximum number of rows in a block, times labels per row
_MOST_ROWS = 4096
_LONGEST = np.float32(1 << 23)  # limits the scale of rows, so that sums of products fit into an int32
_SLACK = np.float32(1e-6)
_LEAST = np.finfo(np.float32).min  # smallest finite score; the score of padding is minus infinity
_WAITING = 64  # maximum number of rows that wait for a tile
_PREFETCHED = 256  # maximum number of values of a scorer to prefetch
_LINE = 64  # bytes in a cache line


class Landmarks(NamedTuple):
    """Landmarks, their cluster lists, and the gap that decides which lists a search reaches."""

    near: CodedLists  # the landmarks, in a single list
    lists: CodedLists
    gap: float  # maximum difference from the score of the best landmark


class Scorers(NamedTuple):
    """Scorers as float32: the weights of label ``l`` begin at ``l * stride``."""

    weights: np.ndarray  # float32, flat
    stride: int
    biases: np.ndarray  # float32 (labels,), or empty if all are 0


class Reached(NamedTuple):
    """The rows of a block and the lists that they reach."""

    asked: TileQueries  # codes of all rows, and positions of the rows compared with the current list
    scales: np.ndarray  # float32 (rows,): scales of the codes
    errors: np.ndarray  # float32 (rows,): length of the rounding error of the codes
    scores: np.ndarray  # float32 (8 * landmarks,): landmark scores of eight rows
    lists: np.ndarray  # int32: the lists that each row reaches, row by row
    ends: np.ndarray  # int64 (rows,): the end of each row's lists
    by_list: np.ndarray  # int32: the rows that reach each list, list by list
    stops: np.ndarray  # int64 (lists + 1,): the end of each list's rows
    waiting: np.ndarray  # int64 (64,): rows whose best labels may be in the current tile
    their_scores: np.ndarray  # float32 (64 * 32,): scores of the tile for the waiting rows


@inner_allocating
def _new_reached(n_rows, n_groups, n_lists):
    n_reached = max(min(n_rows * n_lists, _REACHED_AT_ONCE), min(n_rows, ROWS_OF_A_TILE) * n_lists)
    return Reached(
        TileQueries(
            empty(n_rows * n_groups, np.int32),
            empty(n_rows + ROWS_OF_A_TILE, np.int64),
            empty(n_rows + ROWS_OF_A_TILE, np.float32),
            empty(n_rows + ROWS_OF_A_TILE, np.float32),
        ),
        empty(n_rows, np.float32),
        empty(n_rows, np.float32),
        empty(ROWS_OF_A_TILE * -(-n_lists // TILE) * TILE, np.float32),
        empty(n_reached, np.int32),
        empty(n_rows, np.int64),
        empty(n_reached, np.int32),
        empty(n_lists + 1, np.int64),
        empty(_WAITING, np.int64),
        empty(_WAITING * TILE, np.float32),
    )


@inner
def _n_groups(d):
    return (d + FEATURES_OF_A_WORD - 1) // FEATURES_OF_A_WORD


@inner
def _encode_row(values, a, d, zero, reached, i):
    """Write a row's codes, four in each integer, their scale, and the length of their rounding error."""
    above, below = np.float32(0.0), np.float32(0.0)
    for f in range(d):
        above, below = max(above, values[a + f]), max(below, -values[a + f])
    scale = max(above / np.float32(LARGEST_CODE - zero), np.sqrt(np.float32(d)) / _LONGEST)
    if zero > 0:
        scale = max(scale, below / np.float32(zero))
    squared, n_groups = np.float32(0.0), _n_groups(d)
    for group in range(n_groups):
        word, first = np.int32(0), group * FEATURES_OF_A_WORD
        for f in range(first, min(first + FEATURES_OF_A_WORD, d)):
            code = min(max(np.rint(values[a + f] / scale), np.float32(-zero)), np.float32(LARGEST_CODE - zero))
            left = values[a + f] - code * scale
            squared += left * left
            word |= np.int32(np.int32(code) + zero) << np.int32(8 * (f - first))
        reached.asked.codes[i * n_groups + group] = word
    reached.scales[i] = scale
    reached.errors[i] = np.sqrt(squared) * np.float32(1.001) + _SLACK


@inner
def _take_at_hand(reached, i, row, n_groups):
    reached.asked.places[i] = row * n_groups
    reached.asked.scales[i] = reached.scales[row]


@inner
def _score(lists, tile, reached, first, n, n_groups, at, width):
    """Score a tile for ``n`` current rows; return a bit mask of the rows with a score above their thresholds."""
    if n == 1:
        return score_tile_for_one(lists.tiles, tile, reached.asked, first, n_groups, reached.scores, at, width)
    return score_tile(lists.tiles, tile, reached.asked, first, n_groups, reached.scores, at, width)


@inner
def _list_reached(scores, gap, lists):
    """Write the lists whose landmark scores are less than ``gap`` below the best; return their number."""
    largest, n = np.float32(_LEAST), np.int64(0)
    for first in range(0, scores.size, TILE):
        marks = marks_of(scores, first, largest)
        while marks != 0:
            largest = max(largest, scores[first + first_of(marks)])
            marks &= marks - 1
    least = max(largest - gap, np.float32(_LEAST))
    for first in range(0, scores.size, TILE):
        marks = marks_of(scores, first, least)
        while marks != 0:
            lists[n] = first + first_of(marks)
            n += 1
            marks &= marks - 1
    return n


@inner_called
def _find_reached(landmarks, rows, first, reached, n_rows):
    """Write the lists that each row of a block reaches, while there is room; return the number of rows done.

    The block begins at row ``first`` and has at most ``n_rows`` rows.
    """
    near, n_lists, d = landmarks.near, landmarks.lists.heads.size, rows.n_features
    width, n_groups, end = near.nexts.size * TILE, _n_groups(d), np.int64(0)
    for begin in range(0, n_rows, ROWS_OF_A_TILE):
        n = min(ROWS_OF_A_TILE, n_rows - begin)
        if end + n * n_lists > reached.lists.size:
            return begin
        for i in range(n):
            _encode_row(rows.values, rows.offsets[first + begin + i], d, near.zero, reached, begin + i)
        for i in range(ROWS_OF_A_TILE):
            _take_at_hand(reached, i, begin + min(i, n - 1), n_groups)
            reached.asked.bars[i] = np.inf
        for tile in range(near.nexts.size):
            _score(near, tile, reached, 0, n, n_groups, tile * TILE, width)
        for i in range(n):
            scores = reached.scores[i * width : (i + 1) * width]
            end += _list_reached(scores, np.float32(landmarks.gap), reached.lists[end : end + n_lists])
            reached.ends[begin + i] = end
    return n_rows


@inner_called
def _group_by_list(reached, n_rows):
    """Group the rows of a block by the lists that they reach."""
    stops = reached.stops
    stops[:] = 0
    for i in range(reached.ends[n_rows - 1]):
        stops[reached.lists[i]] += 1
    end = np.int64(0)
    for j in range(stops.size):
        end += stops[j]
        stops[j] = end - stops[j]
    first = np.int64(0)
    for row in range(n_rows):
        for i in range(first, reached.ends[row]):
            j = reached.lists[i]
            reached.by_list[stops[j]] = row
            stops[j] += 1
        first = reached.ends[row]


@inner
def _bar_of(lists, reached, row, scores):
    """Return the score of codes that a label must exceed to be among a row's best labels."""
    return scores[0] - reached.errors[row] * np.float32(lists.longest)


@inner
def _best_marked(scores, at, bar):
    """Return the position of a tile's best score if it is above the threshold, otherwise -1."""
    best, value, marks = -1, bar, marks_of(scores, at, bar)
    while marks != 0:
        j = at + first_of(marks)
        marks &= marks - 1
        if scores[j] > value:
            best, value = j, scores[j]
    return best


@inner
def _let_wait(lists, scorers, d, tile, reached, i, group, n):
    """Add a row to the rows waiting for a tile, and prefetch the scorer that may be its best."""
    reached.waiting[n] = i
    at = (i - group) * TILE
    for j in range(TILE):
        reached.their_scores[n * TILE + j] = reached.scores[at + j]
    best = _best_marked(reached.scores, at, reached.asked.bars[i])
    label = lists.labels[tile * TILE + best - at]
    for f in range(0, min(d, _PREFETCHED), _LINE // 4):
        prefetch(scorers.weights, label * scorers.stride + f)


@inner_called
def _look_through(lists, scorers, rows, first, tile, begin, reached, n_waiting, answers):
    """Compute exact scores of the tile's labels that may be among a waiting row's best, and keep the best."""
    d, bars, their_scores = rows.n_features, reached.asked.bars, reached.their_scores
    for n in range(n_waiting):
        i = reached.waiting[n]
        row = np.int64(reached.by_list[begin + i])
        scores, labels = answers.scores[first + row], answers.labels[first + row]
        best = _best_marked(their_scores, n * TILE, bars[i])
        while best >= 0:
            their_scores[best] = -np.inf
            label = lists.labels[tile * TILE + best - n * TILE]
            value = dot(rows.values, rows.offsets[first + row], scorers.weights, label * scorers.stride, d)
            if scorers.biases.size > 0:
                value += scorers.biases[label]
            keep_best(scores, labels, value, label)
            bars[i] = _bar_of(lists, reached, row, scores)
            best = _best_marked(their_scores, n * TILE, bars[i])


@inner_called
def _search_list(lists, scorers, rows, first, j, following, reached, answers):
    """Compare list ``j`` with the rows of a block that reach it, and prefetch list ``following``."""
    n_groups, bars = _n_groups(rows.n_features), reached.asked.bars
    begin = reached.stops[j - 1] if j > 0 else np.int64(0)
    n_rows = reached.stops[j] - begin
    for i in range(-(-n_rows // ROWS_OF_A_TILE) * ROWS_OF_A_TILE):
        row = np.int64(reached.by_list[begin + min(i, n_rows - 1)])
        _take_at_hand(reached, i, row, n_groups)
        bars[i] = _bar_of(lists, reached, row, answers.scores[first + row]) if i < n_rows else np.inf
    n_bytes, n_calls = n_groups * FEATURES_OF_A_WORD * TILE, -(-n_rows // ROWS_OF_A_TILE)
    n_ahead = -(-n_bytes // (_LINE * n_calls)) * _LINE  # bytes of the next tile to prefetch with each call
    coming = lists.heads[j]
    while coming != NONE:
        tile, coming, n_waiting = coming, lists.nexts[coming], 0
        after = lists.heads[following] if coming == NONE and following < lists.heads.size else coming
        ahead = after * n_bytes
        end = ahead + n_bytes if after != NONE else ahead
        for i in range(0, TILE, _LINE // 8):
            prefetch(lists.labels, tile * TILE + i)
        for group in range(0, n_rows, ROWS_OF_A_TILE):
            until = min(ahead + n_ahead, end)
            for i in range(ahead, until, _LINE):
                prefetch(lists.tiles.codes, i)
            ahead = until
            marks = _score(lists, tile, reached, group, n_rows - group, n_groups, 0, TILE)
            while marks != 0:
                _let_wait(lists, scorers, rows.n_features, tile, reached, group + first_of(marks), group, n_waiting)
                n_waiting += 1
                marks &= marks - 1
                if n_waiting == _WAITING:
                    _look_through(lists, scorers, rows, first, tile, begin, reached, n_waiting, answers)
                    n_waiting = 0
        if n_waiting > 0:
            _look_through(lists, scorers, rows, first, tile, begin, reached, n_waiting, answers)


@inner
def _next_reached(reached, j, n_lists):
    """Return the first list after ``j`` that a row reaches, or ``n_lists`` if there is none."""
    begin = reached.stops[j] if j >= 0 else np.int64(0)
    j += 1
    while j < n_lists and reached.stops[j] == begin:
        j += 1
    return j


@inner_called
def _search_block(landmarks, sizes, scorers, rows, first, n_rows, reached, answers):
    """Write the best labels of a block's rows; return the number of rows done."""
    n_rows = _find_reached(landmarks, rows, first, reached, n_rows)
    before = np.int64(0)
    for i in range(n_rows):
        n_scored = np.int64(0)
        for j in range(before, reached.ends[i]):
            n_scored += sizes[reached.lists[j]]
        answers.n_scored[first + i] = n_scored
        before = reached.ends[i]
        answers.labels[first + i, :] = NONE
        answers.scores[first + i, :] = -np.inf
    _group_by_list(reached, n_rows)
    j = _next_reached(reached, -1, sizes.size)
    while j < sizes.size:
        following = _next_reached(reached, j, sizes.size)
        _search_list(landmarks.lists, scorers, rows, first, j, following, reached, answers)
        j = following
    for i in range(n_rows):
        sort_best_first(answers.scores[first + i], answers.labels[first + i])
    return n_rows


@kernel
def search_lists(landmarks, sizes, scorers, rows, first, stop, answers):
    """Search the lists that rows ``first:stop`` reach, and write each row's best labels to ``answers``.

    ``sizes`` has the number of labels in each list. Writes the ``labels`` and ``scores`` of the answers, padded with
    NONE and minus infinity, and ``n_scored``, the number of labels in the lists that each row reaches.
    """
    n_lists, k = sizes.size, answers.labels.shape[1]
    at_once = max(1, min(stop - first, _MOST_ROWS, max(ROWS_OF_A_TILE, _KEPT_AT_ONCE // k)))
    reached = _new_reached(at_once, _n_groups(rows.n_features), n_lists)
    begin = first
    while begin < stop:
        begin += _search_block(landmarks, sizes, scorers, rows, begin, min(at_once, stop - begin), reached, answers)
    release(reached)

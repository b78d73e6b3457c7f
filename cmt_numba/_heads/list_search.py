"""Kernels: the best labels of dense rows in lists of similar scorers.

Rows are searched for in blocks. Each row of a block is compared with the landmarks of all lists, and reaches those
whose landmark is not much farther from it than the nearest one. Then the block goes through the lists, one after the
other, and each list is multiplied with those rows that reach it. All of this is done with codes, whose products are
integers, so a row's answer does not depend on the rows beside it.
"""

from typing import NamedTuple

import numpy as np

from .._forest.rows import dot
from .._forest.state import NONE
from .._jit import (
    ROWS_OF_A_TILE,
    TILE,
    Asked,
    empty,
    inner,
    inner_allocating,
    inner_called,
    kernel,
    release,
    score_tile,
    score_tile_for_one,
    zeros,
)
from .coded_lists import CodedLists

_REACHED_AT_ONCE = 1 << 23  # rows and lists of a block
_KEPT_AT_ONCE = 1 << 20  # rows and labels wanted
_MOST_ROWS = 4096
_LARGEST = np.float32(32767.0)
_LONGEST = np.float32(1 << 23)  # times the root of the number of features: no sum of products exceeds an int32
_SLACK = np.float32(1e-6)


class Landmarks(NamedTuple):
    """Scorers in lists, and what tells which of the lists are searched."""

    near: CodedLists  # the landmarks of the lists, all in one list
    lists: CodedLists
    gap: float  # between the scores of the nearest landmark and of the farthest one that counts


class Scorers(NamedTuple):
    """The same scorers as float32: that of label ``l`` begins at ``l * stride``."""

    weights: np.ndarray  # float32, flat
    stride: int
    biases: np.ndarray  # float32, one for each label, or none at all


class Reached(NamedTuple):
    """The rows of a block, and which lists they reach."""

    asked: Asked  # all of them, and those that are at hand
    scales: np.ndarray  # float32 (rows,), of the codes
    errors: np.ndarray  # float32 (rows,): the length of what codes leave out
    scores: np.ndarray  # float32 (8 * landmarks,), of the rows at hand
    largest: np.ndarray  # float32 (32,)
    lists: np.ndarray  # int32 (rows * lists,): those that each row reaches, one row after the other
    ends: np.ndarray  # int64 (rows,)
    by_list: np.ndarray  # int32 (rows * lists,): rows, one list after the other
    stops: np.ndarray  # int64 (lists + 1,)


@inner_allocating
def _new_reached(n_rows, n_pairs, n_lists):
    return Reached(
        Asked(
            empty(n_rows * n_pairs, np.int32),
            zeros(ROWS_OF_A_TILE, np.int64),
            zeros(ROWS_OF_A_TILE, np.float32),
            zeros(ROWS_OF_A_TILE, np.float32),
        ),
        empty(n_rows, np.float32),
        empty(n_rows, np.float32),
        empty(ROWS_OF_A_TILE * -(-n_lists // TILE) * TILE, np.float32),
        empty(TILE, np.float32),
        empty(n_rows * n_lists, np.int32),
        empty(n_rows, np.int64),
        empty(n_rows * n_lists, np.int32),
        empty(n_lists + 1, np.int64),
    )


@inner
def _encode_row(values, a, d, reached, i):
    """Write the codes of a row, two in each integer, with their scale and the length of what they leave out."""
    largest = np.float32(0.0)
    for f in range(d):
        largest = max(largest, np.abs(values[a + f]))
    scale = np.float32(max(largest / _LARGEST, np.sqrt(np.float32(d)) / _LONGEST))
    squared, n_pairs = np.float32(0.0), (d + 1) // 2
    for pair in range(n_pairs):
        word = np.int32(0)
        for half in range(2):
            f = 2 * pair + half
            if f < d:
                code = np.rint(values[a + f] / scale)
                left = values[a + f] - code * scale
                squared += left * left
                word |= np.int32((np.int32(code) & np.int32(0xFFFF)) << np.int32(16 * half))
        reached.asked.codes[i * n_pairs + pair] = word
    reached.scales[i] = scale
    reached.errors[i] = np.sqrt(squared) * np.float32(1.001) + _SLACK


@inner
def _take_at_hand(reached, i, row, n_pairs):
    reached.asked.places[i] = row * n_pairs
    reached.asked.scales[i] = reached.scales[row]


@inner
def _score(lists, tile, reached, n, n_pairs, at, width):
    """Score a tile for the ``n`` rows at hand; return whether one of the scores is above its row's bar."""
    if n == 1:
        return score_tile_for_one(lists.tiles, tile, reached.asked, n_pairs, reached.scores, at, width)
    return score_tile(lists.tiles, tile, reached.asked, n_pairs, reached.scores, at, width)


@inner
def _largest_of(scores, largest):
    """Return the largest of whole tiles of scores, with room to work in: side by side, as registers compare them."""
    largest[:] = -np.float32(np.inf)
    for first in range(0, scores.size, TILE):
        some = scores[first : first + TILE]
        for j in range(TILE):
            largest[j] = some[j] if some[j] > largest[j] else largest[j]
    for j in range(1, TILE):
        largest[0] = max(largest[0], largest[j])
    return largest[0]


@inner
def _list_reached(scores, least, lists):
    """Write which of the lists have such scores that they are reached, and return how many these are."""
    n = np.int64(0)
    for j in range(scores.size):
        lists[n] = j
        n += np.int64(scores[j] >= least)
    return n


@inner_called
def _find_reached(landmarks, reached, n_rows, n_pairs):
    """Write which lists each row of a block reaches."""
    near, n_lists, end = landmarks.near, landmarks.lists.starts.size - 1, np.int64(0)
    width = near.starts[1] * TILE
    for first in range(0, n_rows, ROWS_OF_A_TILE):
        n = min(ROWS_OF_A_TILE, n_rows - first)
        for i in range(ROWS_OF_A_TILE):
            _take_at_hand(reached, i, first + min(i, n - 1), n_pairs)
        for tile in range(near.starts[1]):
            _score(near, tile, reached, n, n_pairs, tile * TILE, width)
        for i in range(n):
            scores = reached.scores[i * width : (i + 1) * width]
            least = _largest_of(scores, reached.largest) - np.float32(landmarks.gap)
            end += _list_reached(scores[:n_lists], least, reached.lists[end : end + n_lists])
            reached.ends[first + i] = end


@inner_called
def _group_by_list(reached, n_rows):
    """Write which rows of a block reach each list."""
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
def _is_worse(scores, labels, i, j):
    """Return whether the label at ``i`` belongs behind that at ``j``."""
    return scores[i] < scores[j] or (scores[i] == scores[j] and labels[i] > labels[j])


@inner
def _swap(scores, labels, i, j):
    scores[i], scores[j] = scores[j], scores[i]
    labels[i], labels[j] = labels[j], labels[i]


@inner
def _sink(scores, labels, i, n):
    """Restore a heap of ``n`` labels with the worst at its root, of which entry ``i`` may be out of place."""
    while True:
        worst = i
        for child in (2 * i + 1, 2 * i + 2):
            if child < n and _is_worse(scores, labels, child, worst):
                worst = child
        if worst == i:
            return
        _swap(scores, labels, i, worst)
        i = worst


@inner
def _keep(scores, labels, value, label):
    """Put a label into a heap in place of its worst, if it is better; entries not yet taken are the worst."""
    if value > scores[0] or (value == scores[0] and label < labels[0]):
        scores[0], labels[0] = value, label
        _sink(scores, labels, 0, scores.size)


@inner
def _sort_best_first(scores, labels):
    for n in range(scores.size - 1, 0, -1):
        _swap(scores, labels, 0, n)
        _sink(scores, labels, 0, n)


@inner
def _bar_of(lists, reached, row, scores):
    """Return the score that codes have to exceed if a label may be among the best of a row."""
    return scores[0] - reached.errors[row] * np.float32(lists.longest)


@inner
def _look_through(lists, scorers, rows, first, row, tile, reached, i, answers):
    """Score those labels of a tile in full that may be among the best of the row, and keep these."""
    x, d = rows.offsets[first + row], rows.n_features
    scores, labels = answers.scores[first + row], answers.labels[first + row]
    for j in range(TILE):
        if reached.scores[i * TILE + j] > reached.asked.bars[i]:
            label = lists.labels[tile * TILE + j]
            value = dot(rows.values, x, scorers.weights, label * scorers.stride, d)
            if scorers.biases.size > 0:
                value += scorers.biases[label]
            _keep(scores, labels, value, label)
            reached.asked.bars[i] = _bar_of(lists, reached, row, scores)


@inner_called
def _search_list(lists, scorers, rows, first, j, reached, answers):
    """Compare a list with the rows of a block that reach it."""
    n_pairs = (rows.n_features + 1) // 2
    begin = reached.stops[j - 1] if j > 0 else np.int64(0)
    for group in range(begin, reached.stops[j], ROWS_OF_A_TILE):
        n = min(ROWS_OF_A_TILE, reached.stops[j] - group)
        for i in range(ROWS_OF_A_TILE):
            row = np.int64(reached.by_list[group + min(i, n - 1)])
            _take_at_hand(reached, i, row, n_pairs)
            reached.asked.bars[i] = _bar_of(lists, reached, row, answers.scores[first + row]) if i < n else np.inf
        for tile in range(lists.starts[j], lists.starts[j + 1]):
            if _score(lists, tile, reached, n, n_pairs, 0, TILE):
                for i in range(n):
                    row = np.int64(reached.by_list[group + i])
                    _look_through(lists, scorers, rows, first, row, tile, reached, i, answers)


@inner_called
def _search_block(landmarks, sizes, scorers, rows, first, n_rows, reached, answers):
    """Write the best labels of some rows."""
    d = rows.n_features
    for i in range(n_rows):
        _encode_row(rows.values, rows.offsets[first + i], d, reached, i)
        answers.labels[first + i, :] = NONE
        answers.scores[first + i, :] = -np.inf
    _find_reached(landmarks, reached, n_rows, (d + 1) // 2)
    before = np.int64(0)
    for i in range(n_rows):
        n_scored = np.int64(0)
        for j in range(before, reached.ends[i]):
            n_scored += sizes[reached.lists[j]]
        answers.n_scored[first + i] = n_scored
        before = reached.ends[i]
    _group_by_list(reached, n_rows)
    for j in range(sizes.size):
        _search_list(landmarks.lists, scorers, rows, first, j, reached, answers)
    for i in range(n_rows):
        _sort_best_first(answers.scores[first + i], answers.labels[first + i])


@kernel
def search_lists(landmarks, sizes, scorers, rows, first, stop, answers):
    """Write the best labels of the rows ``first .. stop`` among those of the lists that they reach into ``answers``.

    ``sizes`` are those of the lists. Writes ``labels``, ``scores`` and ``n_scored`` of the answers: NONE and minus
    infinity behind the last label, and how many labels the lists reached have.
    """
    n_lists, k = sizes.size, answers.labels.shape[1]
    at_once = min(_MOST_ROWS, _REACHED_AT_ONCE // n_lists, max(ROWS_OF_A_TILE, _KEPT_AT_ONCE // k))
    at_once = max(1, min(stop - first, at_once))
    reached = _new_reached(at_once, (rows.n_features + 1) // 2, n_lists)
    for begin in range(first, stop, at_once):
        _search_block(landmarks, sizes, scorers, rows, begin, min(at_once, stop - begin), reached, answers)
    release(reached)

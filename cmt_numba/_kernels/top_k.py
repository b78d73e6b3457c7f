"""Selection of the ``k`` items with the largest scores, and search in sorted arrays.

Among equal scores the lowest item ranks first, so results do not depend on the order of the input or on the processor.
Tree searches break ties at random; see ``leaf_scan.py``.
"""

from typing import NamedTuple

import numpy as np

from .._jit import TILE, empty, first_of, inner, inner_allocating, inner_called, kernel, marks_of, release
from .constants import NONE

_MAX_HELD = 64  # capacity of :class:`HeldScores`, at least 2 * TILE
_LONG, _VERY_LONG = 4 * TILE, 128 * TILE  # between these numbers of scores, two passes are faster than one
_FEW, _MOST_RANKED = 2, 24  # ranking is faster than a heap for k from 3 to 24


@inner
def _swap(scores, items, i, j):
    scores[i], scores[j] = scores[j], scores[i]
    items[i], items[j] = items[j], items[i]


@inner
def _sink(scores, items, n):
    """Restore a heap of ``n`` entries, with the worst entry at the root, after the root has changed."""
    i = 0
    while True:
        worst = i
        for child in (2 * i + 1, 2 * i + 2):
            if child < n and (
                scores[child] < scores[worst] or (scores[child] == scores[worst] and items[child] > items[worst])
            ):
                worst = child
        if worst == i:
            return
        _swap(scores, items, i, worst)
        i = worst


@inner
def keep_best(scores, items, score, item):
    """Replace the worst entry of a heap, entry 0, if ``score`` and ``item`` rank above it.

    Initialise all scores to minus infinity and, if actual scores may be minus infinity, all items to a number above
    every item.
    """
    if score > scores[0] or (score == scores[0] and item < items[0]):
        scores[0], items[0] = score, item
        _sink(scores, items, scores.size)


@inner
def sort_best_first(scores, items):
    """Turn a heap into a sorted list, best entry first."""
    for n in range(scores.size - 1, 0, -1):
        _swap(scores, items, 0, n)
        _sink(scores, items, n)


@inner
def lower_bound(ascending, first, stop, value):
    """Return the first position from ``first`` to ``stop`` whose value is at least ``value``."""
    while first < stop:
        middle = (first + stop) >> 1
        if ascending[middle] < value:
            first = middle + 1
        else:
            stop = middle
    return first


class HeldScores(NamedTuple):
    """Candidates for the ``k`` best scores of a row."""

    scores: np.ndarray  # float32 (64,): scores of the candidates, padded with minus infinity
    columns: np.ndarray  # int64 (64,): their columns; equal scores are in column order
    order: np.ndarray  # int64 (64,): scratch space for the positions of the k best candidates


@inner_allocating
def new_held_scores():
    """Return a buffer for :func:`select_few`, to be released by the caller."""
    return HeldScores(empty(_MAX_HELD, np.float32), empty(_MAX_HELD, np.int64), empty(_MAX_HELD, np.int64))


@inner_called
def _keep_held(held, n, best, found):
    """Write the best of ``n`` held scores and their columns, and drop all other scores; return the number written.

    The rank of a score is the number of larger scores plus the number of equal scores before it.
    """
    k = found.size
    held.order[:k] = NONE
    for i in range(n):
        score, rank = held.scores[i], np.int32(0)
        for j in range(_MAX_HELD):  # a constant number of vector comparisons
            rank = np.int32(rank + np.int32(held.scores[j] > score))
        while rank < k and held.order[rank] != NONE:
            rank = np.int32(rank + 1)
        if rank < k:
            held.order[rank] = i
    n = min(n, k)
    for i in range(n):
        best[i], found[i] = held.scores[held.order[i]], held.columns[held.order[i]]
    for i in range(n):
        held.scores[i], held.columns[i] = best[i], found[i]
    held.scores[n:] = -np.float32(np.inf)
    return n


@inner
def _marked(scores, first, least):
    """Return an int64 whose bit ``i`` is set if ``scores[first + i] >= least``, like :func:`marks_of`.

    The last tile of a row may have fewer than 32 scores.
    """
    if first + TILE <= scores.size:
        return marks_of(scores, first, least)
    marks = np.int64(0)
    for j in range(first, scores.size):
        if scores[j] >= least:
            marks |= np.int64(1) << np.int64(j - first)
    return marks


@inner_called
def _lower_bar(scores, held, best, found):
    """Return a number that at least ``k`` of a row's scores reach: the k-th best of the 32 maxima of every 32nd score.

    Restores ``held``. Few scores exceed this number, so most are compared only twice.
    """
    for first in range(0, scores.size - TILE + 1, TILE):
        tile = scores[first : first + TILE]
        for j in range(TILE):
            held.scores[j] = tile[j] if tile[j] > held.scores[j] else held.scores[j]
    n = _keep_held(held, np.int64(TILE), best, found)
    held.scores[:n] = -np.float32(np.inf)
    return best[n - 1]


@inner_called
def select_few(scores, held, best, found):
    """Write up to 24 best scores of a row and their columns by ranking candidates; return the number written.

    NaN is ignored. This takes a third of the time of a heap.
    """
    n, bar = np.int64(0), -np.float32(np.inf)
    held.scores[:] = -np.float32(np.inf)
    if _LONG <= scores.size < _VERY_LONG:
        bar = _lower_bar(scores, held, best, found)
    for first in range(0, scores.size, TILE):
        if n + TILE > _MAX_HELD:
            n = _keep_held(held, n, best, found)
            bar = best[n - 1] if n == found.size else bar
        marks = _marked(scores, first, bar)
        while marks != 0:
            column = first + first_of(marks)
            marks &= marks - 1
            held.scores[n], held.columns[n] = scores[column], column
            n += 1
    return _keep_held(held, n, best, found)


@inner_called
def _select_many(scores, best, found):
    """Write the best scores of a row and their columns with a heap; return the number written."""
    best[:] = -np.float32(np.inf)
    found[:] = scores.size
    for first in range(0, scores.size, TILE):
        marks = _marked(scores, first, best[0])
        while marks != 0:
            column = first + first_of(marks)
            marks &= marks - 1
            keep_best(best, found, scores[column], column)
    sort_best_first(best, found)
    n = found.size
    while n > 0 and found[n - 1] == scores.size:
        n -= 1
    return n


@kernel
def best_columns(scores, columns, values):
    """Write the columns with the largest scores in each row to ``columns``, and these scores to ``values``, best first.

    NaN is ignored, and missing entries are -1 and minus infinity. Most scores are below the lowest of the best scores
    so far, which is therefore compared with tiles of 32 scores.
    """
    k = columns.shape[1]
    held = new_held_scores()
    for i in range(scores.shape[0]):
        best, found = values[i], columns[i]
        if _FEW < k <= _MOST_RANKED:
            n = select_few(scores[i], held, best, found)
        else:
            n = _select_many(scores[i], best, found)
        best[n:] = -np.float32(np.inf)
        found[n:] = NONE
    release(held)


def top_k(scores: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the columns (int64) and the values (float32) of the ``k`` largest scores in each row, best first.

    Equal scores are ordered by column. A row with fewer than ``k`` scores is padded with -1 and minus infinity.
    """
    columns, values = np.empty((scores.shape[0], k), np.int64), np.empty((scores.shape[0], k), np.float32)
    best_columns(np.ascontiguousarray(scores, np.float32), columns, values)
    return columns, values

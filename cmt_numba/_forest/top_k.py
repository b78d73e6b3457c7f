"""Selection of the ``k`` items with the largest scores.

Among equal scores the lowest item ranks first, so results do not depend on the order of the input or on the processor.
Tree searches break ties at random; see ``leaf_scan.py``.
"""

import numpy as np

from .._jit import TILE, first_of, inner, kernel, marks_of


@inner
def _is_worse(scores, items, i, j):
    """Return whether entry ``i`` ranks below entry ``j``."""
    return scores[i] < scores[j] or (scores[i] == scores[j] and items[i] > items[j])


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
            if child < n and _is_worse(scores, items, child, worst):
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


@kernel
def best_columns(scores, columns, values):
    """Write the columns with the largest scores in each row to ``columns``, and these scores to ``values``, best first.

    NaN is ignored, and missing entries are -1 and minus infinity. Most scores are below the worst of the heap, so the
    loop compares a tile of 32 scores with it at once.
    """
    n = scores.shape[1]
    n_in_tiles = n - n % TILE
    for i in range(scores.shape[0]):
        of_row, found, best = scores[i], columns[i], values[i]
        found[:] = n
        best[:] = -np.float32(np.inf)
        for first in range(0, n_in_tiles, TILE):
            marks = marks_of(of_row, first, best[0])
            while marks != 0:
                j = first + first_of(marks)
                marks &= marks - 1
                keep_best(best, found, of_row[j], j)
        for j in range(n_in_tiles, n):
            keep_best(best, found, of_row[j], j)
        sort_best_first(best, found)
        for rank in range(found.size):
            if found[rank] == n:
                found[rank] = -1


def top_k(scores: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the columns (int64) and the values (float32) of the ``k`` largest scores in each row, best first.

    Equal scores are ordered by column. A row with fewer than ``k`` scores is padded with -1 and minus infinity.
    """
    columns, values = np.empty((scores.shape[0], k), np.int64), np.empty((scores.shape[0], k), np.float32)
    best_columns(np.ascontiguousarray(scores, np.float32), columns, values)
    return columns, values

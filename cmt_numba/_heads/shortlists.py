"""The hardest negatives of each row, found by one search and kept for further passes over the rows.

What a search finds does not depend on what the head has learned, only on its index, and most of it scores far below
the right label. So after the first look at a row only its best candidates are kept.
"""

from collections.abc import Iterator

import numpy as np

from .._forest.state import NONE
from .search import Found

_LENGTH = 16  # candidates kept for a row: twice as many as it can be held apart from at once
_ROWS_AT_ONCE = 1024


def new_shortlists(n_rows: int) -> np.ndarray:
    """Return shortlists of no labels: int32, shape (rows, labels), NONE after the last one."""
    return np.full((n_rows, _LENGTH), NONE, np.int32)


def shorten(found: Found, shortlists: np.ndarray) -> None:
    """Write the candidates of the highest scores of each row of ``found`` to its shortlist."""
    n_each = np.diff(found.ends, prepend=0)
    row = np.repeat(np.arange(n_each.size), n_each)
    place = np.arange(row.size) - np.repeat(found.ends - n_each, n_each)
    longest = int(n_each.max(initial=0))
    labels = np.full((n_each.size, max(longest, shortlists.shape[1])), NONE, np.int32)
    labels[row, place] = found.labels[: row.size]
    if longest > shortlists.shape[1]:
        scores = np.full(labels.shape, -np.inf, np.float32)
        scores[row, place] = found.scores[: row.size]
        best = np.argpartition(-scores, shortlists.shape[1] - 1, axis=1)[:, : shortlists.shape[1]]
        labels = np.take_along_axis(labels, best, axis=1)
    shortlists[found.rows] = -np.sort(-labels, axis=1)  # NONE comes last, and the order does not depend on NumPy


def shortlisted(shortlists: np.ndarray, order: np.ndarray) -> Iterator[Found]:
    """Yield the shortlists of the rows of ``order`` as candidates, some rows at a time."""
    for first in range(0, order.size, _ROWS_AT_ONCE):
        rows = order[first : first + _ROWS_AT_ONCE]
        labels = shortlists[rows]
        n_each = (labels != NONE).sum(axis=1)
        kept = labels[labels != NONE].astype(np.int64)
        yield Found(rows, np.cumsum(n_each), n_each, kept, np.empty(kept.size, np.float32), 0, shortlists.shape[1])

"""An inverted index over sparse rows: for each feature the rows that have it. Exact, and compiled by numba."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import scipy.sparse

from .contract import NONE, Options, Peer

Cells = tuple[np.ndarray, np.ndarray, np.ndarray]
"""A compressed sparse matrix: where each row, or each feature, starts; the indices; and the values of the cells."""

_ROUNDING = 1e-5  # sums of products in another order differ by less
_COST_OF_A_CELL = 4.0  # of a row fetched on its own, relative to a posting
_COST_OF_A_LOOK = 0.5  # at a row's sum, likewise


class InvertedIndex(Peer):
    """Scores added up feature by feature, either for all rows or only as long as new rows can still win.

    Without pruning every posting of a query's features is read. With pruning features come by how much they can add
    to a score, the highest first (as in MaxScore, Turtle and Flood 1995). As soon as the features to come add up to
    less than the k-th best sum so far, no row that has not been met can win; once the rows that still can are few,
    their scores are completed one by one, and the long lists of common features are never read. That needs values
    of one sign; where there are negative ones, all postings are read.
    """

    name = "inverted index"
    package = "numba"
    dense = False
    sparse = True
    exact = True
    compiles = True

    def settings(self, build: Options, quick: bool) -> list[Options]:
        return [{"pruned": False}, {"pruned": True}]

    def build(self, **options: Any) -> None:
        by_feature = scipy.sparse.csc_matrix(self.X)
        self._postings = (by_feature.indptr.astype(np.int64), by_feature.indices, by_feature.data)
        self._rows = (self.X.indptr.astype(np.int64), self.X.indices, self.X.data)
        self._highest = np.zeros(self.shape.n_features, np.float32)
        used = np.flatnonzero(np.diff(by_feature.indptr))
        if used.size:
            self._highest[used] = np.maximum.reduceat(by_feature.data, by_feature.indptr[used])
        self._no_negatives = bool(self.X.nnz == 0 or self.X.data.min() >= 0)

    def set(self, **options: Any) -> None:
        self._pruned = options["pruned"]

    def ask(self, queries: Any, k: int) -> np.ndarray:
        n_queries, n_rows = queries.shape[0], self.shape.n_rows
        ids = np.full((n_queries, k), NONE, np.int64)
        asked = (queries.indptr.astype(np.int64), queries.indices, queries.data)
        if self._pruned and self._no_negatives and (queries.nnz == 0 or queries.data.min() >= 0):
            search_pruned(asked, self._postings, self._rows, self._highest, n_rows, ids)
        else:
            search_all(asked, self._postings, n_rows, ids)
        return ids


@numba.njit(cache=True, nogil=True)
def search_all(asked: Cells, postings: Cells, n_rows: int, ids: np.ndarray) -> None:
    """Write to ``ids`` the rows with the highest products with each query, from the sums of all their postings."""
    offsets, features, values = asked
    starts, rows, weights = postings
    k = ids.shape[1]
    sums = np.zeros(n_rows, np.float32)
    best = np.empty(k, np.float32)
    for query in range(ids.shape[0]):
        for cell in range(offsets[query], offsets[query + 1]):
            value = values[cell]
            for place in range(starts[features[cell]], starts[features[cell] + 1]):
                sums[rows[place]] += value * weights[place]
        best[:] = -np.inf
        _rank_all(sums, ids[query], best)
        sums[:] = 0.0


@numba.njit(cache=True, nogil=True)
def search_pruned(
    asked: Cells, postings: Cells, stored: Cells, highest: np.ndarray, n_rows: int, ids: np.ndarray
) -> None:
    """Write to ``ids`` the rows with the highest products with each query, passing over what cannot matter."""
    offsets, features, values = asked
    starts, rows, weights = postings
    row_starts, row_features, row_values = stored
    k = ids.shape[1]
    sums = np.zeros(n_rows, np.float32)
    hopeful = np.empty(n_rows + 1, np.int64)
    best = np.empty(k, np.float32)
    query_weights = np.zeros(highest.size, np.float32)
    cost_of_row = _COST_OF_A_CELL * row_starts[n_rows] / max(n_rows, 1)
    for query in range(ids.shape[0]):
        first, stop = offsets[query], offsets[query + 1]
        bounds = values[first:stop] * highest[features[first:stop]]
        left, to_read = np.float32(np.sum(bounds)), 0
        for cell in range(first, stop):
            to_read += starts[features[cell] + 1] - starts[features[cell]]
        top, n_hopeful, look_below = np.float32(0.0), -1, np.float32(np.inf)
        for i in np.argsort(-bounds):
            if top > left + _ROUNDING and left <= look_below and to_read > n_rows * _COST_OF_A_LOOK:
                threshold = top if k == 1 else _kth_highest(sums, best)
                n_hopeful = _find_above(sums, threshold - left - _ROUNDING, hopeful) if threshold > left else -1
                if n_hopeful >= 0 and n_hopeful * cost_of_row < to_read:
                    break
                n_hopeful, look_below = -1, left * np.float32(0.7)  # the next check must see far fewer candidates
            feature, value = features[first + i], values[first + i]
            for place in range(starts[feature], starts[feature + 1]):
                total = sums[rows[place]] + value * weights[place]
                sums[rows[place]] = total
                top = max(top, total)
            left -= bounds[i]
            to_read -= starts[feature + 1] - starts[feature]
        best[:] = -np.inf
        if n_hopeful < 0:
            _rank_all(sums, ids[query], best)
        else:
            for cell in range(first, stop):
                query_weights[features[cell]] = values[cell]
            for row in hopeful[:n_hopeful]:
                total = np.float32(0.0)
                for place in range(row_starts[row], row_starts[row + 1]):
                    total += query_weights[row_features[place]] * row_values[place]
                if total > best[k - 1]:
                    _rank(row, total, ids[query], best)
            for cell in range(first, stop):
                query_weights[features[cell]] = 0.0
        sums[:] = 0.0


@numba.njit(cache=True, nogil=True)
def _rank_all(sums: np.ndarray, ids: np.ndarray, best: np.ndarray) -> None:
    """Rank all rows by their sums."""
    for row in range(sums.size):
        if sums[row] > best[best.size - 1]:
            _rank(row, sums[row], ids, best)


@numba.njit(cache=True, nogil=True)
def _rank(row: int, score: float, ids: np.ndarray, best: np.ndarray) -> None:
    """Put a row in its place among the best."""
    place = best.size - 1
    while place > 0 and best[place - 1] < score:
        best[place], ids[place] = best[place - 1], ids[place - 1]
        place -= 1
    best[place], ids[place] = score, row


@numba.njit(cache=True, nogil=True)
def _kth_highest(sums: np.ndarray, best: np.ndarray) -> float:
    """Return the k-th highest of some sums, using ``best`` as scratch space."""
    last = best.size - 1
    best[:] = -np.inf
    for score in sums:
        if score > best[last]:
            place = last
            while place > 0 and best[place - 1] < score:
                best[place] = best[place - 1]
                place -= 1
            best[place] = score
    return best[last]


@numba.njit(cache=True, nogil=True)
def _find_above(sums: np.ndarray, least: float, found: np.ndarray) -> int:
    """Write the rows whose sums are at least so high to ``found``, and return how many there are."""
    n_found = 0
    for row in range(sums.size):
        found[n_found] = row
        n_found += sums[row] >= least
    return n_found

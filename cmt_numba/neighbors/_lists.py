"""Inverted file: lists of rows near landmarks (Sivic and Zisserman, Video Google, ICCV 2003).

``Lists`` are immutable. Each change returns new lists, which may share arrays with the old lists because new rows are
written after the rows in use. Searches continue during a change, and a failed change has no effect.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from sklearn.cluster import MiniBatchKMeans
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from .._forest import GrowingColumns, top_k
from ._measures import Measure

_ROWS_OF_A_LIST = 64  # sample size of k-means per list
_COMPARED_AT_ONCE = 1 << 21
_ROWS_AT_ONCE = 4096  # maximum number of queries searched together
_SCORES_AT_ONCE = 1 << 24  # maximum number of scores computed together: 64 MB


class Part(NamedTuple):
    """The rows of one list."""

    columns: GrowingColumns

    @property
    def rows(self) -> np.ndarray:
        """Rows relative to the origin: float32, shape (n, n_features)."""
        return self.columns.columns[0]

    @property
    def halves(self) -> np.ndarray:
        """Half the squared length of each row, or 0 if the measure does not use it: float32, shape (n,)."""
        return self.columns.columns[1]

    @property
    def ids(self) -> np.ndarray:
        """Ids of the rows in ascending order: int64, shape (n,)."""
        return self.columns.columns[2]

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.columns)


class Lists(NamedTuple):
    """All lists of an index."""

    origin: np.ndarray  # float32 (n_features,), subtracted from all rows
    landmarks: np.ndarray  # float32 (n_lists, n_features)
    halves: np.ndarray  # float32 (n_lists,), half the squared length of each landmark
    parts: tuple[Part, ...]
    n: int  # number of rows in all lists

    def all_rows(self) -> tuple[np.ndarray, np.ndarray]:
        """Return all rows without the shift by the origin, and their ids in ascending order."""
        ids = np.concatenate([part.ids for part in self.parts])
        order = np.argsort(ids)
        return np.concatenate([part.rows for part in self.parts])[order] + self.origin, ids[order]


def trained(measure: Measure, rows: np.ndarray, n_lists: int, seed: int) -> Lists:
    """Return empty lists with landmarks that k-means finds in a sample of the rows."""
    random = np.random.default_rng(seed)
    some = rows[np.sort(random.permutation(rows.shape[0])[: _ROWS_OF_A_LIST * n_lists])]
    n_features = rows.shape[1]
    origin = some.mean(axis=0) if measure.by_squares else np.zeros(n_features, np.float32)
    some = some - origin
    if n_lists == 1:
        landmarks = some.mean(axis=0, keepdims=True)
    else:
        means = MiniBatchKMeans(n_lists, batch_size=max(1024, 4 * n_lists), n_init=1, random_state=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # occurs if there are fewer distinct rows than lists
            with threadpool_limits(1):  # several threads are slower
                landmarks = means.fit(some).cluster_centers_
    landmarks = np.unique(np.ascontiguousarray(landmarks, np.float32), axis=0)
    if measure.metric == "cosine":
        landmarks /= np.maximum(np.linalg.norm(landmarks, axis=1, keepdims=True), np.float32(1e-30))
    empty = GrowingColumns(np.empty((0, n_features), np.float32), np.empty(0, np.float32), np.empty(0, np.int64))
    return Lists(origin, landmarks, measure.halves(landmarks), (Part(empty),) * landmarks.shape[0], 0)


def assigned(lists: Lists, rows: np.ndarray) -> np.ndarray:
    """Return the index of the landmark nearest to each row."""
    nearest = np.empty(rows.shape[0], np.int64)
    halves = 0.5 * np.einsum("ij,ij->i", lists.landmarks, lists.landmarks)
    length = max(1, _COMPARED_AT_ONCE // lists.landmarks.shape[0])
    for first in range(0, rows.shape[0], length):
        scores = (rows[first : first + length] - lists.origin) @ lists.landmarks.T
        np.argmax(scores - halves, axis=1, out=nearest[first : first + length])
    return nearest


def with_rows(measure: Measure, lists: Lists, rows: np.ndarray, ids: np.ndarray, which: np.ndarray) -> Lists:
    """Return lists with additional rows. ``which`` is the list of each row.

    The ids of the new rows must ascend and exceed all earlier ids.
    """
    parts = list(lists.parts)
    order = np.argsort(which, kind="stable")
    for j, places in _grouped(which[order], order):
        centered = rows[places] - lists.origin
        parts[j] = Part(parts[j].columns.appended(centered, measure.halves(centered), ids[places]))
    return lists._replace(parts=tuple(parts), n=lists.n + ids.size)


def without(lists: Lists, ids: np.ndarray, which: np.ndarray) -> Lists:
    """Return lists without some rows. ``which`` is the list of each row."""
    parts = list(lists.parts)
    order = np.argsort(which, kind="stable")
    for j, places in _grouped(which[order], order):
        kept = ~np.isin(parts[j].ids, ids[places])
        parts[j] = Part(GrowingColumns(*(column[kept] for column in parts[j].columns.columns)))
    return lists._replace(parts=tuple(parts), n=lists.n - ids.size)


def held(lists: Lists, ids: np.ndarray, which: np.ndarray) -> np.ndarray:
    """Return a mask of the ids that are stored. ``which`` is the list of each id, or negative for unknown ids."""
    there = np.zeros(ids.size, bool)
    order = np.argsort(which, kind="stable")
    for j, places in _grouped(which[order], order):
        if j >= 0:
            there[places] = np.isin(ids[places], lists.parts[j].ids)
    return there


def _grouped(which: np.ndarray, values: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield each distinct number in the sorted array ``which`` with its values."""
    starts = [0] if which.size == 1 else np.flatnonzero(np.diff(which, prepend=which[:1] - 1)).tolist()
    for first, stop in pairwise([*starts, which.size]):
        yield int(which[first]), values[first:stop]


# Search


class Pool(NamedTuple):
    """Unsorted results of a search."""

    rows: list[np.ndarray]  # int64, positions of queries
    ids: list[np.ndarray]  # int64, ids of rows that were found
    scores: list[np.ndarray]  # float32, scores of these rows


def search(
    measure: Measure, lists: Lists, X: np.ndarray, k: int, n_probes: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the best rows in the lists nearest to each query.

    Returns
    -------
    ids : ndarray of int64, shape (n, k)
        Ids of the best rows, best first, padded with -1. Ties are in order of insertion.
    scores : ndarray of float32, shape (n, k)
        Scores of these rows, padded with minus infinity.
    n_computed : ndarray of int64, shape (n,)
        Number of scored rows.
    """
    n = X.shape[0]
    ids, scores = np.full((n, k), -1, np.int64), np.full((n, k), -np.inf, np.float32)
    n_computed = np.empty(n, np.int64)
    sizes = np.array([part.n for part in lists.parts])
    n_probes = min(n_probes, sizes.size)
    length = max(1, min(_ROWS_AT_ONCE, _SCORES_AT_ONCE // max(k, sizes.size, int(sizes.max()))))
    for first in range(0, n, length):
        block = slice(first, first + length)
        asked = X[block] - lists.origin
        near = measure.scores(asked, lists.landmarks, lists.halves)
        near[:, sizes == 0] = -np.inf
        if n_probes < sizes.size:
            probed = top_k(near, n_probes)[0]
        else:
            probed = np.broadcast_to(np.arange(sizes.size), near.shape)
        nearest = near.argmax(axis=1)[:, None]
        n_computed[block] = sizes[probed].sum(axis=1)
        pool, worst = Pool([], [], []), np.full(asked.shape[0], -np.inf, np.float32)
        _scan(measure, lists, asked, np.arange(asked.shape[0]), nearest[:, 0], k, worst, pool)
        of_rows, ranks = np.nonzero(probed != nearest)
        _scan(measure, lists, asked, of_rows, probed[of_rows, ranks], k, worst, pool)
        _merge(pool, ids[block], scores[block])
    return ids, scores, n_computed


def _scan(
    measure: Measure,
    lists: Lists,
    asked: np.ndarray,
    of_rows: np.ndarray,
    which: np.ndarray,
    k: int,
    worst: np.ndarray,
    pool: Pool,
) -> None:
    """Search list ``which[i]`` for query ``of_rows[i]``, and add the best rows to the pool.

    ``worst`` contains the smallest score with which a row may be among the ``k`` best rows of each query. The
    query's first list with more than ``k`` rows determines this score.
    """
    order = np.argsort(which, kind="stable")
    for j, rows in _grouped(which[order], of_rows[order]):
        part = lists.parts[j]
        if part.n == 0:
            continue
        some = asked[rows]
        scores = measure.scores(some, part.rows, part.halves)
        bounds = worst[rows]
        if part.n > k and np.isneginf(bounds).any():
            worst[rows] = bounds = np.maximum(bounds, np.partition(scores, part.n - k, axis=1)[:, part.n - k])
        found, places = np.nonzero(scores >= bounds[:, None])
        if found.size:
            refined = measure.refined(some[found], part.rows[places], scores[found, places])
            pool.rows.append(rows[found])
            pool.ids.append(part.ids[places])
            pool.scores.append(refined)


def _merge(pool: Pool, ids: np.ndarray, scores: np.ndarray) -> None:
    """Write the ids and scores of each query's best rows in the pool."""
    if not pool.rows:
        return
    of_rows, found, values = (np.concatenate(parts) for parts in pool)
    order = np.lexsort((found, -values, of_rows))
    of_rows, found, values = of_rows[order], found[order], values[order]
    rank = np.arange(of_rows.size) - np.searchsorted(of_rows, of_rows)
    kept = rank < ids.shape[1]
    ids[of_rows[kept], rank[kept]] = found[kept]
    scores[of_rows[kept], rank[kept]] = values[kept]

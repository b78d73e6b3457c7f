"""Cluster lists of dense scorers (an inverted file), each around a landmark.

A search compares a row with all landmarks. It then searches the lists whose landmark scores are within a gap of the
best one (``list_search.py``). The lists come from spherical k-means. The gap is calibrated on sample rows: for nearly
all of them, a search must find the best label other than the row's own.
"""

from collections.abc import Callable, Generator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from .._forest import NODES_END, NONE, Rows
from .candidates import LabelAnswers
from .coded_lists import CodedLists, coded_lists, zero_for
from .label_scorers import Head
from .list_search import Landmarks, Scorers, search_lists

_LISTS = 4.0  # number of lists, divided by the square root of the number of labels
_ROUNDS = 6  # iterations of k-means
_SHARE_FOUND = 0.996  # fraction of sample rows for which a search must find the best label
_COPIED_AT_ONCE = 1 << 23  # number of values copied in one batch
_SHORTEST = np.float32(1e-30)

MEMBERS_SAMPLED = 40
"""Number of vectors per list in the sample for k-means."""

ROWS_ASKED = 8192
"""Number of sample rows for the calibration."""

Share = Callable[[Callable[[int, int], Any]], None]
"""A function that calls its argument with spans of rows until all rows are done."""


class ScorerLists(NamedTuple):
    """Cluster lists of scorers."""

    landmarks: Landmarks
    sizes: np.ndarray  # int64 (n_lists,): number of labels in each list
    biases: np.ndarray  # float32 (labels,), or empty if all are 0


class Centers:
    """Cluster centers of unit-length vectors.

    Parameters
    ----------
    vectors : ndarray of float32, shape (n, n_features)
        The centers.
    zero : int
        The code for 0 in the vectors to compare with the centers.
    """

    def __init__(self, vectors: np.ndarray, zero: int) -> None:
        self.vectors, self.coded = vectors, in_one_list(vectors, zero)
        every = Landmarks(in_one_list(vectors[:1], zero), self.coded, np.inf)
        self._list = ScorerLists(every, np.full(1, len(vectors)), np.empty(0, np.float32))

    @property
    def nbytes(self) -> int:
        """The size in bytes of the centers and their codes."""
        return self.vectors.nbytes + self.coded.tiles.codes.nbytes

    def nearest(self, units: np.ndarray) -> np.ndarray:
        """Return the position of the center nearest to each vector."""
        scorers = Scorers(self.vectors.reshape(-1), units.shape[1], self._list.biases)
        return _best_for(self._list, scorers, units, 1)[:, 0]


def dense_scorers(head: Head, biases: np.ndarray | None = None) -> Scorers:
    """Return views of a dense head's scorers. Biases are read from the head by default."""
    n_labels, d = int(head.counters[0, NODES_END]), head.parameters.n_features
    if biases is None:
        biases = np.ascontiguousarray(head.nodes["bias"][0, :n_labels])
        biases = biases if biases.any() else np.empty(0, np.float32)
    return Scorers(head.routers.weights[0, : n_labels * 2 * d], 2 * d, biases)


def vectors_of(scorers: Scorers, n_features: int) -> np.ndarray:
    """Return a view of the scorers' weights: shape (n_labels, n_features)."""
    return scorers.weights.reshape(-1, scorers.stride)[:, :n_features]


def listed(scorers: Scorers, asked: np.ndarray, own: np.ndarray) -> ScorerLists:
    """Group dense scorers into cluster lists. The result is deterministic.

    Parameters
    ----------
    scorers : Scorers
    asked : ndarray of float32, shape (n, n_features)
        Sample rows of unit length for the calibration of the gap.
    own : ndarray of int64, shape (n,)
        The label of each sample row, NONE if unknown.
    """
    vectors = vectors_of(scorers, asked.shape[1])
    n_labels = vectors.shape[0]
    n_lists = max(1, min(n_labels, int(_LISTS * np.sqrt(n_labels))))
    order = np.random.default_rng(0).permutation(n_labels)
    sample = scaled(vectors[np.sort(order[: MEMBERS_SAMPLED * n_lists])])
    near = finished(find_centers(scaled(vectors[np.sort(order[:n_lists])]), sample, len(sample)))
    nearest = np.empty(n_labels, np.int64)
    length = max(1, _COPIED_AT_ONCE // vectors.shape[1])
    for first in range(0, n_labels, length):
        nearest[first : first + length] = near.nearest(scaled(vectors[first : first + length]))
    used, list_of = np.unique(nearest, return_inverse=True)
    centers = near.vectors[used]
    zero = zero_for(asked)
    lists = coded_lists(vectors, scorers.biases if scorers.biases.size > 0 else None, list_of, used.size, zero)
    every = Landmarks(in_one_list(centers, zero), lists, np.inf)
    made = ScorerLists(every, np.bincount(list_of, minlength=used.size), scorers.biases)
    gap = _gap_that_finds(made, centers, list_of, scorers, asked, own)
    return made._replace(landmarks=every._replace(gap=gap))


def find_centers(centers: np.ndarray, sample: np.ndarray, n_rows: int) -> Generator[None, None, Centers]:
    """Improve cluster centers by spherical k-means, yield after every ``n_rows`` sample rows, and return the result."""
    zero = zero_for(sample)
    for _ in range(_ROUNDS):
        known, sums = Centers(centers, zero), np.zeros_like(centers)
        for first in range(0, len(sample), n_rows):
            some = sample[first : first + n_rows]
            sums += _membership(known.nearest(some), len(centers)) @ some
            yield
        centers = np.where((sums != 0.0).any(axis=1)[:, None], scaled(sums), centers)
    return Centers(centers, zero)


def finished(work: Generator[None, None, Centers]) -> Centers:
    """Exhaust a generator, and return its result."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            centers: Centers = done.value
            return centers


def in_one_list(vectors: np.ndarray, zero: int) -> CodedLists:
    """Return vectors in a single coded list."""
    return coded_lists(vectors, None, np.zeros(vectors.shape[0], np.int64), 1, zero)


def scaled(vectors: np.ndarray) -> np.ndarray:
    """Return vectors scaled to unit length; zeros stay zeros."""
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
    units: np.ndarray = vectors / np.maximum(lengths, _SHORTEST)[:, None]
    return units


def _membership(nearest: np.ndarray, n_lists: int) -> scipy.sparse.csr_array:
    members = np.arange(nearest.size)
    return scipy.sparse.csr_array((np.ones(nearest.size, np.float32), (nearest, members)), (n_lists, nearest.size))


def _best_for(lists: ScorerLists, scorers: Scorers, units: np.ndarray, k: int) -> np.ndarray:
    n, d = units.shape
    rows = Rows(units.reshape(-1), np.empty(0, np.int32), np.arange(0, n * d + 1, d), d, False)
    return best_listed(lists, scorers, rows, k, lambda work: work(0, n)).labels


def _gap_that_finds(
    every: ScorerLists, centers: np.ndarray, list_of: np.ndarray, scorers: Scorers, asked: np.ndarray, own: np.ndarray
) -> float:
    """Return the gap with which a search finds the best label of nearly all sample rows."""
    first, second = _best_for(every, scorers, asked, 2).T
    best = np.where((first == own) & (second != NONE), second, first)
    near = asked @ centers.T
    return float(np.quantile(near.max(axis=1) - near[np.arange(own.size), list_of[best]], _SHARE_FOUND))


def best_listed(lists: ScorerLists, scorers: Scorers, rows: Rows, k: int, share: Share) -> LabelAnswers:
    """Return the ``k`` best labels of each row in the lists that it reaches, padded with NONE and minus infinity.

    In the answers, ``n_scored`` is the number of labels in these lists.
    """
    n = rows.n_rows
    answers = LabelAnswers(
        np.empty((n, k), np.int64), np.empty((n, k), np.float32), np.empty(n, np.int64), np.empty(n, np.int64)
    )
    share(lambda first, stop: search_lists(lists.landmarks, lists.sizes, scorers, rows, first, stop, answers))
    answers.n_met[:] = answers.n_scored
    return answers

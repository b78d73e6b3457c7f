"""An inverted file of dense scorers: labels in lists by similar scorers, each list with a landmark in its middle.

A row is compared with all landmarks, and scored against the labels of those lists whose landmark is not much farther
from it than the nearest one. A batch is grouped by list, so that each list costs one matrix product. The lists are made
by spherical k-means, and how much farther is decided by the scorers themselves: each should find the labels that are
most similar to it.
"""

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from .._forest.rows import Rows, as_matrix
from .._forest.state import NONE
from .products import AllScorers

_LISTS = 1.4  # times the root of the number of labels
_LABELS_OF_A_LIST = 64  # that k-means looks at
_ROUNDS = 6  # of k-means
_SCORERS_ASKED = 512  # to decide which lists are searched
_FEWEST_ASKED_AT_ONCE = 8  # so that very many scorers are not read once for each of those asked
_SIMILAR = 5  # labels that each of them should find
_SHARE_FOUND = 0.98  # of those labels
SHARE_FOUND_UNTRAINED = 0.999
"""The same for scorers that are single examples: rows lie farther from them than from means of several."""

_COMPARED_AT_ONCE = 1 << 21  # rows and landmarks, or labels
_SHORTEST = np.float32(1e-30)


class Landmarks(NamedTuple):
    """Scorers in lists: list ``j`` has the entries ``starts[j] .. starts[j + 1]``."""

    centers: np.ndarray  # float32 (n_lists, n_features), of unit length
    starts: np.ndarray  # int64 (n_lists + 1,)
    labels: np.ndarray  # int64 (n_labels,), in rising order in each list
    weights: np.ndarray  # float32 (n_labels, n_features), of these labels
    biases: np.ndarray | None  # float32 (n_labels,), None if all are 0
    gap: float  # between the scores of the nearest landmark and of the farthest one that counts, of a row of length 1


def landmarks_of(scorers: AllScorers, share_found: float = _SHARE_FOUND) -> Landmarks:
    """Return dense scorers in lists; the same for the same scorers.

    With as many lists as are reached, a scorer finds this share of those that are most similar to it.
    """
    weights = scorers.weights.T
    n_labels = weights.shape[0]
    units = _scaled(weights)
    n_lists = max(1, min(n_labels, int(_LISTS * np.sqrt(n_labels))))
    rng = np.random.default_rng(0)
    sample = np.sort(rng.permutation(n_labels)[: _LABELS_OF_A_LIST * n_lists])
    centers = units[np.sort(rng.permutation(n_labels)[:n_lists])]
    for _ in range(_ROUNDS):
        nearest = _nearest(centers, units[sample])
        sums = _membership(nearest, n_lists) @ units[sample]
        centers = np.where((sums != 0.0).any(axis=1)[:, None], _scaled(sums), centers)
    used, nearest = np.unique(_nearest(centers, units), return_inverse=True)
    centers, n_lists = centers[used], used.size
    order = np.argsort(nearest, kind="stable")
    starts = np.searchsorted(nearest[order], np.arange(n_lists + 1))
    biases = None if scorers.biases is None else scorers.biases[order]
    asked = units[np.sort(rng.permutation(n_labels)[:_SCORERS_ASKED])]
    gap = _gap_that_finds(centers, nearest, scorers, asked, share_found)
    return Landmarks(centers, starts, order, weights[order], biases, gap)


def _scaled(vectors: np.ndarray) -> np.ndarray:
    """Return vectors of unit length, as far as they have any."""
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
    scaled: np.ndarray = vectors / np.maximum(lengths, _SHORTEST)[:, None]
    return scaled


def _membership(nearest: np.ndarray, n_lists: int) -> scipy.sparse.csr_array:
    members = np.arange(nearest.size)
    return scipy.sparse.csr_array((np.ones(nearest.size, np.float32), (nearest, members)), (n_lists, nearest.size))


def _nearest(centers: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Return the landmark nearest to each vector."""
    nearest = np.empty(vectors.shape[0], np.int64)
    length = max(1, _COMPARED_AT_ONCE // centers.shape[0])
    for first in range(0, vectors.shape[0], length):
        np.argmax(vectors[first : first + length] @ centers.T, axis=1, out=nearest[first : first + length])
    return nearest


def _gap_that_finds(
    centers: np.ndarray, nearest: np.ndarray, scorers: AllScorers, asked: np.ndarray, share: float
) -> float:
    """Return the gap with which the vectors asked find this share of the labels that score best for them."""
    n_similar, gaps = min(_SIMILAR, nearest.size), []
    length = max(_FEWEST_ASKED_AT_ONCE, _COMPARED_AT_ONCE // nearest.size)
    for first in range(0, asked.shape[0], length):
        some = asked[first : first + length]
        scores, near = some @ scorers.weights, some @ centers.T
        if scorers.biases is not None:
            scores += scorers.biases
        best = np.argpartition(-scores, n_similar - 1, axis=1)[:, :n_similar]
        gaps.append(near.max(axis=1)[:, None] - np.take_along_axis(near, nearest[best], axis=1))
    return float(np.quantile(np.concatenate(gaps), share))


def _lists_reached(landmarks: Landmarks, X: np.ndarray) -> np.ndarray:
    """Return which lists rows of unit length reach: bool, shape (n_lists, n_rows)."""
    near = landmarks.centers @ X.T
    reached: np.ndarray = near >= near.max(axis=0) - np.float32(landmarks.gap)
    return reached


def _scores_in_list(landmarks: Landmarks, j: Any, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the labels of a list and their scores for rows."""
    span = slice(landmarks.starts[j], landmarks.starts[j + 1])
    scores: np.ndarray = X @ landmarks.weights[span].T
    if landmarks.biases is not None:
        scores += landmarks.biases[span]
    return landmarks.labels[span], scores


def count_reached(landmarks: Landmarks, rows: Rows, *, at_once: int = _COMPARED_AT_ONCE) -> np.ndarray:
    """Return how many labels are scored for each row: int64, shape (n_rows,)."""
    X, sizes = as_matrix(rows), np.diff(landmarks.starts)
    length = max(1, at_once // sizes.size)
    counts = [sizes @ _lists_reached(landmarks, X[i : i + length]) for i in range(0, rows.n_rows, length)]
    return np.concatenate(counts)


def best_of_reached(landmarks: Landmarks, rows: Rows, *, at_once: int = _COMPARED_AT_ONCE) -> np.ndarray:
    """Return the best label of each row among those of the lists that it reaches: int64."""
    X, found = as_matrix(rows), np.empty(rows.n_rows, np.int64)
    length = max(1, at_once // landmarks.centers.shape[0])
    for first in range(0, rows.n_rows, length):
        block = X[first : first + length]
        found[first : first + length] = _best_in_block(landmarks, block) if len(block) > 1 else _best(landmarks, block)
    return found


def _best(landmarks: Landmarks, X: np.ndarray) -> int:
    """Return the best label of a single row."""
    reached = np.flatnonzero(_lists_reached(landmarks, X)[:, 0])
    labels, scores = zip(*[_scores_in_list(landmarks, j, X[0]) for j in reached], strict=True)
    every = np.concatenate(scores)
    return int(np.concatenate(labels)[every == every.max()].min())


def _best_in_block(landmarks: Landmarks, X: np.ndarray) -> np.ndarray:
    """Return the best label of each of some rows."""
    reached = _lists_reached(landmarks, X)
    lists, which = np.nonzero(reached)
    starts, ends = landmarks.starts.tolist(), np.cumsum(np.count_nonzero(reached, axis=1)).tolist()
    best, largest = np.empty(which.size, np.int64), np.empty(which.size, np.float32)
    n_rows = max(end - start for start, end in pairwise([0, *ends]))
    room, asked = np.empty(n_rows * int(np.diff(landmarks.starts).max()), np.float32), np.empty_like(X[:n_rows])
    for j, (first, stop) in enumerate(pairwise([0, *ends])):
        n, start, end = stop - first, starts[j], starts[j + 1]
        if n == 0:
            continue
        np.take(X, which[first:stop], axis=0, out=asked[:n], mode="clip")
        scores = room[: n * (end - start)].reshape(n, end - start)
        np.matmul(asked[:n], landmarks.weights[start:end].T, out=scores)
        if landmarks.biases is not None:
            scores += landmarks.biases[start:end]
        at = scores.argmax(axis=1, out=best[first:stop])
        np.take(scores, at + np.arange(0, scores.size, end - start), out=largest[first:stop], mode="clip")
    by_row = (np.cumsum(reached) - 1).reshape(reached.shape).T[reached.T]
    n_each = np.count_nonzero(reached, axis=0)
    first_of_row = np.cumsum(n_each) - n_each
    labels, largest = landmarks.labels[landmarks.starts[lists] + best][by_row], largest[by_row]
    best_of_row = np.repeat(np.maximum.reduceat(largest, first_of_row), n_each)
    labels[largest < best_of_row] = landmarks.labels.size
    found: np.ndarray = np.minimum.reduceat(labels, first_of_row)
    return found


def top_of_reached(
    landmarks: Landmarks, rows: Rows, k: int, *, at_once: int = _COMPARED_AT_ONCE
) -> tuple[np.ndarray, np.ndarray]:
    """Return the ``k`` best labels of each row in the lists that it reaches, and their scores.

    Returns
    -------
    labels : ndarray of int64, shape (n_rows, k)
        The best first, NONE where there are no more.
    scores : ndarray of float32, shape (n_rows, k)
        Minus infinity for NONE.
    """
    X, n_lists = as_matrix(rows), landmarks.centers.shape[0]
    top, values = np.full((rows.n_rows, k), NONE, np.int64), np.full((rows.n_rows, k), -np.inf, np.float32)
    length = max(1, at_once // max(landmarks.labels.size, n_lists))
    for start in range(0, rows.n_rows, length):
        block = X[start : start + length]
        reached, found = _lists_reached(landmarks, block), []
        for j in np.flatnonzero(reached.any(axis=1)):
            which = np.flatnonzero(reached[j])
            labels, scores = _scores_in_list(landmarks, j, block[which])
            column = np.arange(labels.size) + np.zeros((which.size, 1), np.int64)
            if labels.size > k:
                column = np.argpartition(-scores, k - 1, axis=1)[:, :k]
            of_rows = np.repeat(which, column.shape[1])
            found.append((of_rows, labels[column].reshape(-1), np.take_along_axis(scores, column, axis=1).reshape(-1)))
        of_rows, labels, scores = (np.concatenate(part) for part in zip(*found, strict=True))
        order = np.lexsort((labels, -scores, of_rows))
        of_rows, labels, scores = of_rows[order], labels[order], scores[order]
        rank = np.arange(of_rows.size) - np.searchsorted(of_rows, of_rows)
        kept = rank < k
        top[start + of_rows[kept], rank[kept]] = labels[kept]
        values[start + of_rows[kept], rank[kept]] = scores[kept]
    return top, values

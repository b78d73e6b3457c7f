"""What a dense head says of all labels: matrix products of rows and scorers, in blocks.

For many rows a product costs a tenth of what a kernel takes for the same pairs of a row and a label, so up to some
thousands of labels it is cheaper to score all than to search for candidates. Products are of float32, and the last bits
of a sum depend on the shape of the block. So labels that are nearly the best are compared by sums that are always taken
in the same order, and a row's answer does not depend on the rows beside it.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from .._forest.rows import Rows, as_matrix
from .._forest.state import NODES_END
from .label_scorers import Head

_SCORES_AT_ONCE = 1 << 22  # of a block, 16 MB: a product of fewer rows spends much of its time in packing the scorers
_VALUES_AT_ONCE = 1 << 18  # of rows, or of scorers, that are copied
_ROUNDING = 2.0**-22  # of a sum of float32, for each of its terms, on both sides of a comparison
_SHORTEST, _LONGEST = 1e-12, 1e12  # lengths of rows whose products neither overflow nor vanish


def weights_of(head: Head) -> np.ndarray:
    """Return the scorers of a dense head, which share memory with it: float32, shape (n_labels, n_features)."""
    n_labels, d = int(head.counters[0, NODES_END]), head.parameters.n_features
    return head.routers.weights[0, : n_labels * 2 * d].reshape(n_labels, 2 * d)[:, :d]


def biases_of(head: Head) -> np.ndarray | None:
    """Return the biases of labels, or None if all are 0."""
    biases: np.ndarray = head.nodes["bias"][0, : int(head.counters[0, NODES_END])]
    return biases if biases.any() else None


def unscaled_rows(head: Head, X: Any) -> tuple[Rows, np.ndarray] | None:
    """Return rows as they are, and their lengths, if they can be ranked by a dense head without being scaled.

    Without biases the best label does not depend on a row's length. None stands for rows that need to be scaled, or
    are wrong.
    """
    if type(X) is not np.ndarray or X.dtype != np.float32 or not X.flags.c_contiguous or biases_of(head) is not None:
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        lengths = np.sqrt(np.einsum("ij,ij->i", X, X))
    if not (lengths.min() > _SHORTEST and lengths.max() < _LONGEST):  # false for NaN
        return None
    offsets = np.arange(0, X.size + 1, X.shape[1], dtype=np.int64)
    return Rows(X.reshape(-1), np.empty(0, np.int32), offsets, X.shape[1], False), lengths


def blocks_of_scores(head: Head, rows: Rows) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the scores of all labels for one block of rows after the other, and the first row of the block.

    The scores, float32 of shape (rows of the block, n_labels), are valid until the next block, and may be overwritten.
    """
    X, weights, biases = as_matrix(rows), weights_of(head), biases_of(head)
    n_rows, n_labels = X.shape[0], weights.shape[0]
    length = max(1, min(n_rows, _SCORES_AT_ONCE // max(1, n_labels)))
    room = np.empty((length, n_labels), np.float32)
    for first in range(0, n_rows, length):
        scores = room[: min(length, n_rows - first)]
        np.matmul(X[first : first + length], weights.T, out=scores)
        if biases is not None:
            scores += biases
        yield first, scores


def exact_scores_of_all(head: Head, rows: Rows) -> np.ndarray:
    """Return the scores of all labels, summed in float64, shape (n_rows, n_labels)."""
    weights, biases = weights_of(head), biases_of(head)
    X = as_matrix(rows).astype(np.float64)
    scores = np.empty((X.shape[0], weights.shape[0]))
    length = max(1, _VALUES_AT_ONCE // weights.shape[1])
    for first in range(0, weights.shape[0], length):
        part = weights[first : first + length].astype(np.float64)
        np.matmul(X, part.T, out=scores[:, first : first + length])
    return scores if biases is None else scores + biases


def scores_of_pairs(head: Head, rows: Rows, of_rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the scores of pairs of a row and a label, all summed in the same order: float32."""
    X, weights, biases = as_matrix(rows), weights_of(head), biases_of(head)
    scores = np.empty(labels.size, np.float32)
    length = max(1, _VALUES_AT_ONCE // X.shape[1])
    for first in range(0, labels.size, length):
        span = slice(first, first + length)
        np.einsum("ij,ij->i", X[of_rows[span]], weights[labels[span]], out=scores[span])
    return scores if biases is None else scores + biases[labels]


def rounding_of(head: Head, scores: np.ndarray, lengths: np.ndarray | float) -> np.ndarray:
    """Return how close scores have to be for a product to confuse them; ``scores`` are of rows of these lengths."""
    largest: np.ndarray = np.maximum(np.abs(scores), lengths)
    return largest * np.float32(head.parameters.n_features * _ROUNDING)


def best_of_all(head: Head, rows: Rows, lengths: np.ndarray | None = None) -> np.ndarray:
    """Return the best label of each row, of equal ones the first: int64. ``lengths`` are those of rows not scaled."""
    labels = np.empty(rows.n_rows, np.int64)
    for first, scores in blocks_of_scores(head, rows):
        stop, every = first + scores.shape[0], np.arange(scores.shape[0])
        best = scores.argmax(axis=1, out=labels[first:stop])
        largest = scores[every, best]
        least = largest - rounding_of(head, largest, 1.0 if lengths is None else lengths[first:stop])
        scores[every, best] = -np.inf
        tied = np.flatnonzero(scores.max(axis=1) >= least)
        scores[tied, best[tied]] = largest[tied]
        for some in np.split(tied, range(_few(scores), tied.size, _few(scores))):
            row, near = np.nonzero(scores[some] >= least[some, None])
            best[some] = ranked(near, scores_of_pairs(head, rows, first + some[row], near), row, 1)[0][:, 0]
    return labels


def top_of_all(head: Head, rows: Rows, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the ``k`` best labels of each row and their scores; of labels of one score the first comes first.

    Returns
    -------
    labels : ndarray of int64, shape (n_rows, k)
    scores : ndarray of float32, shape (n_rows, k)
    """
    labels, found = np.empty((rows.n_rows, k), np.int64), np.empty((rows.n_rows, k), np.float32)
    for first, scores in blocks_of_scores(head, rows):
        n_labels = scores.shape[1]
        for start in range(0, scores.shape[0], _few(scores)):
            some = scores[start : start + _few(scores)]
            worst = some.max(axis=1) if k == 1 else np.partition(some, n_labels - k, axis=1)[:, n_labels - k]
            row, near = np.nonzero(some >= (worst - rounding_of(head, worst, 1.0))[:, None])
            span = slice(first + start, first + start + some.shape[0])
            exact = scores_of_pairs(head, rows, span.start + row, near)
            labels[span], found[span] = ranked(near, exact, row, k)
    return labels, found


def all_above(head: Head, rows: Rows, lowest: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the rows, the labels and the scores of all pairs of a score above ``lowest``: int64, int64, float32."""
    found = []
    for first, scores in blocks_of_scores(head, rows):
        least = lowest - rounding_of(head, np.full(1, lowest, np.float32), 1.0)
        row, labels = np.nonzero(scores > least)
        exact = scores_of_pairs(head, rows, first + row, labels)
        kept = exact > lowest
        found.append((first + row[kept], labels[kept], exact[kept]))
    of_rows, labels, scores = (np.concatenate(part) for part in zip(*found, strict=True))
    return of_rows, labels, scores


def _few(scores: np.ndarray) -> int:
    """Return a number of rows that all labels may be candidates of, without taking too much memory."""
    return max(1, _VALUES_AT_ONCE // scores.shape[1])


def ranked(labels: np.ndarray, scores: np.ndarray, of_rows: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the ``k`` best labels of each row, and their scores, out of pairs in the order of their rows."""
    starts = np.flatnonzero(np.diff(of_rows, prepend=-1))
    best = np.lexsort((labels, -scores, of_rows))[starts[:, None] + np.arange(k)]
    return labels[best], scores[best]

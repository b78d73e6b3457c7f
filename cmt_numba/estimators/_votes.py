"""Votes of neighbors, weighted by distance, score or similarity."""

import numpy as np

from .._forest import NONE, Rows, as_matrix

_KERNELS = ("gaussian", "laplacian")
VOTES = ("uniform", "distance", "score", "cosine", *_KERNELS)  # valid values of ``weights``
_LEAST = 1e-6  # minimum weight of a vote, so that every neighbor counts
_CELLS_AT_ONCE = 1 << 20


def weights_of_votes(kind: str, scores: np.ndarray, rows: Rows, stored: Rows, slots: np.ndarray) -> np.ndarray:
    """Return the weight of each neighbor's vote: float64, shape (n_rows, k).

    - ``kind``: one of ``VOTES``.
    - ``scores`` (float32 (n_rows, k)): scores of the neighbors: 1 minus their distances.
    - ``rows``, ``stored``: the queries and all stored examples, of unit length.
    - ``slots`` (int64 (n_rows, k)): positions of the neighbors in ``stored``; negative for a missing neighbor, which
      has weight 0.
    """
    there = slots >= 0
    weights = np.ones(slots.shape)
    if kind == "score":
        weights = scores.astype(np.float64)
    elif kind == "distance":
        return _inverse(1.0 - scores.astype(np.float64))
    elif kind != "uniform":
        weights = np.zeros(slots.shape)
        weights[there] = _compared(kind, rows, stored, np.nonzero(there)[0], slots[there])
    if kind in _KERNELS:
        weights = _kernel(kind, np.where(there, weights, np.inf))
    return np.where(there, np.maximum(weights, _LEAST), 0.0)


def count_votes(classes: np.ndarray, weights: np.ndarray, n_classes: int) -> np.ndarray:
    """Return the votes for each class: float64, shape (n_rows, n_classes). Votes for NONE are ignored."""
    votes = np.zeros((classes.shape[0], n_classes))
    row, rank = np.nonzero(classes != NONE)
    np.add.at(votes, (row, classes[row, rank]), weights[row, rank])
    return votes


def _inverse(distances: np.ndarray) -> np.ndarray:
    """Return inverse distances. If a row has distances of 0, return 1 for these and 0 for all others."""
    with np.errstate(divide="ignore"):
        weights = 1.0 / distances
    is_same = np.isinf(weights)
    return np.where(is_same.any(axis=1, keepdims=True), is_same.astype(np.float64), weights)


def _compared(kind: str, rows: Rows, stored: Rows, of_rows: np.ndarray, slots: np.ndarray) -> np.ndarray:
    """Return the cosine of each pair or, for kernels, the Euclidean distance (city block for "laplacian")."""
    step = max(1, _CELLS_AT_ONCE // max(1, rows.n_features if not rows.sparse else 256))
    found = [np.empty(0)]
    for first in range(0, slots.size, step):
        pairs = slice(first, first + step)
        asked, keys = as_matrix(rows.take(of_rows[pairs])), as_matrix(stored.take(slots[pairs]))
        if kind == "laplacian":
            found.append(np.asarray(abs(asked - keys).sum(axis=1), np.float64).ravel())
            continue
        cosines = np.asarray((asked * keys).sum(axis=1), np.float64).ravel()
        found.append(cosines if kind == "cosine" else np.sqrt(np.maximum(2.0 - 2.0 * cosines, 0.0)))
    return np.concatenate(found)


def _kernel(kind: str, apart: np.ndarray) -> np.ndarray:
    """Return kernel values of distances, which may be infinite. The bandwidth is the row's median distance."""
    n_found = np.isfinite(apart).sum(axis=1)
    middle = np.take_along_axis(np.sort(apart, axis=1), np.maximum(n_found - 1, 0)[:, None] // 2, axis=1)
    bandwidth = np.where(np.isfinite(middle) & (middle > 0.0), middle, 1.0)
    scaled = apart / bandwidth
    return np.exp(-0.5 * scaled**2 if kind == "gaussian" else -scaled)

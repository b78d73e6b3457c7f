"""Weights of features, learned from rewards, which rank the best results of a search again."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse

from .._forest import NONE, require

N_RANKED = 50
"""Number of results that the weights rank again."""

N_COMPETITORS = 9
"""If only one memory is rewarded, this many other results count with reward 0."""

_STEEPNESS = 20.0  # steepness of the softmax, per unit of the cosine
_RATE = 0.1


class LearnedFeatures:
    """Weights ``theta`` that add the sum of ``theta * x * z`` to the cosine of a query ``x`` and a vector ``z``.

    Parameters
    ----------
    n_features : int
        The number of features.
    """

    def __init__(self, n_features: int) -> None:
        self.theta, self._squares = np.zeros(n_features, np.float32), np.zeros(n_features, np.float32)

    def rank(self, index: Any, Q: Any, ids: np.ndarray, scores: np.ndarray) -> None:
        """Sort the results of a search by learned scores, in place."""
        for row in range(len(ids)):
            known = ids[row][ids[row] != NONE]
            if known.size == 0:
                continue
            features, products, _, scale = _products(Q, row, index.vectors(known))
            learned = products @ self.theta[features].astype(np.float64) * (1.0 if index.metric == "cosine" else scale)
            new = scores[row, : known.size] + learned
            if index.metric == "euclidean":
                new = -np.sqrt(np.maximum(np.square(scores[row, : known.size]) - 2 * learned, 0.0))
            order = np.argsort(-new, kind="stable")
            ids[row, : known.size], scores[row, : known.size] = known[order], new[order]

    def learn(self, index: Any, Q: Any, ids: np.ndarray, rewards: np.ndarray) -> None:
        """Learn from the rewards of memories, arrays of shape (n, k). An id of -1 stands for no memory."""
        for row in range(len(ids)):
            shown = np.flatnonzero(ids[row] != NONE)
            total = rewards[row, shown].sum()
            if shown.size < 2 or total == 0.0:
                continue
            features, products, cosines, _ = _products(Q, row, index.vectors(ids[row, shown]))
            scores = _STEEPNESS * (cosines + products @ self.theta[features])
            chances = np.exp(scores - scores.max())
            gradient = (rewards[row, shown] / total - chances / chances.sum()) @ products
            self._squares[features] += np.square(gradient).astype(np.float32)
            steps = gradient / np.sqrt(np.maximum(self._squares[features], 1e-30))
            self.theta[features] += (_RATE * steps).astype(np.float32)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays to save."""
        return {"theta": self.theta, "squares": self._squares}

    @classmethod
    def of_arrays(cls, arrays: dict[str, np.ndarray], n_features: int) -> LearnedFeatures:
        """Return weights with these arrays. Raise InvariantError if they are invalid."""
        weights = cls(n_features)
        for name, array in arrays.items():
            require(array.shape == (n_features,) and array.dtype == np.float32, "there must be a weight per feature")
            require(bool(np.isfinite(array).all()), f"{name} must be finite")
        weights.theta, weights._squares = arrays["theta"].copy(), arrays["squares"].copy()
        return weights


def _products(Q: Any, row: int, vectors: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray]:
    """Return the features of a query, its products with vectors for each feature, the cosines, and the lengths.

    Products are those of vectors of length 1. Lengths are those of the query times those of the vectors.
    """
    if scipy.sparse.issparse(Q):
        features: Any = Q.indices[Q.indptr[row] : Q.indptr[row + 1]]
        query = Q.data[Q.indptr[row] : Q.indptr[row + 1]].astype(np.float64)
        lengths = np.sqrt(np.asarray(vectors.astype(np.float64).power(2).sum(axis=1))).reshape(-1)
        products = vectors[:, features].toarray() * query
    else:
        features, query = slice(None), Q[row].astype(np.float64)
        lengths = np.linalg.norm(vectors.astype(np.float64), axis=1)
        products = vectors * query
    scale = np.maximum(np.linalg.norm(query) * lengths, 1e-300)
    products = products / scale[:, None]
    return features, products, products.sum(axis=1), scale

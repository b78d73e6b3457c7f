"""Distances and similarities of dense rows, computed as scores. A larger score means a nearer row."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.spatial.distance import cdist, pdist

from .._validation import check_matrix

METRICS = ("cosine", "inner_product", "euclidean", "gaussian", "laplacian")
_KERNELS = ("gaussian", "laplacian")
_SAMPLE = 1000  # number of rows whose distances determine the bandwidth
_LARGEST = 1e15  # a sum of a million squares of this number is finite in float32
_LEAST = 1e-15  # the square of this number is a normal number in float32
_SHORTEST = np.float32(1e-30)


def fits(rows: np.ndarray) -> bool:
    """Return whether the squares of rows are finite in float32."""
    return rows.size == 0 or bool(rows.max() <= _LARGEST and rows.min() >= -_LARGEST)  # false for NaN


class Measure:
    """Similarity or distance of dense rows."""

    def __init__(self, metric: str) -> None:
        self.metric = metric
        self.by_squares = metric in ("euclidean", "gaussian")  # whether scores are based on squared distances
        self.by_products = metric != "laplacian"
        self.has_bandwidth = metric in _KERNELS

    def rows(self, X: Any, n_features: int | None) -> np.ndarray:
        """Convert rows to float32 in C order, with unit length for the cosine similarity."""
        if hasattr(X, "toarray"):
            raise TypeError("X must be dense: use CMTRetriever for sparse rows")
        rows = np.ascontiguousarray(check_matrix(X, n_features=n_features), np.float32)
        if not np.isfinite(rows).all():
            raise ValueError("X must be finite, but contains NaN or infinity")
        if self.metric != "cosine":
            if not fits(rows):
                raise ValueError(f"X must be between -{_LARGEST:g} and {_LARGEST:g}: scale X")
            return rows
        lengths = np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
        if not lengths.all():
            raise ValueError("X must not have rows of zeros, because their cosine is undefined: remove them")
        return (rows / lengths).astype(np.float32)

    def check_spread(self, rows: np.ndarray) -> None:
        """Raise ValueError if the squared differences of rows underflow in float32."""
        if self.by_products and self.metric != "cosine":
            spread = float(np.abs(rows - rows[0] if self.by_squares else rows).max())
            if 0.0 < spread < _LEAST:
                raise ValueError(f"rows of X must differ by at least {_LEAST:g}, got {spread:g}: scale X")

    def halves(self, rows: np.ndarray) -> np.ndarray:
        """Return half the squared length of each row, or zeros if scores do not depend on squares."""
        if not self.by_squares:
            return np.zeros(rows.shape[0], np.float32)
        halves: np.ndarray = np.float32(0.5) * np.einsum("ij,ij->i", rows, rows)
        return halves

    def scores(self, asked: np.ndarray, rows: np.ndarray, halves: np.ndarray) -> np.ndarray:
        """Return the score of each row for each query: float32, shape (n_queries, n_rows)."""
        if not self.by_products:
            return -cdist(asked, rows, "cityblock").astype(np.float32)
        scores: np.ndarray = asked @ rows.T
        if self.by_squares:
            scores -= halves
        return scores

    def refined(self, asked: np.ndarray, rows: np.ndarray, scores: np.ndarray) -> np.ndarray:
        """Return accurate scores of pairs of rows. Squared distances are recomputed from differences."""
        if not self.by_squares:
            return scores
        apart = asked - rows
        refined: np.ndarray = -np.einsum("ij,ij->i", apart, apart)
        return refined

    def values(self, scores: np.ndarray, bandwidth: float) -> np.ndarray:
        """Convert refined scores to distances or similarities. Missing rows have the score minus infinity."""
        if not self.has_bandwidth:
            return np.sqrt(-scores) if self.metric == "euclidean" else scores
        with np.errstate(over="ignore"):  # a tiny bandwidth causes overflow
            if self.metric == "laplacian":
                similarities = np.exp(scores / np.float64(bandwidth))
            else:
                similarities = np.exp(-0.5 * (np.sqrt(-scores) / np.float64(bandwidth)) ** 2)
        return similarities.astype(np.float32)

    def bandwidth_of(self, rows: np.ndarray, random: np.random.Generator) -> float:
        """Return the median distance in a sample of rows, or 1.0 if all rows are equal.

        The distance is the city-block distance for "laplacian", and the Euclidean distance for "gaussian".
        """
        if not self.has_bandwidth or rows.shape[0] < 2:
            return 1.0
        some = random.permutation(rows.shape[0])[:_SAMPLE]
        apart = pdist(rows[some], "cityblock" if self.metric == "laplacian" else "euclidean")
        apart = apart[apart > 0]
        return float(np.median(apart)) if apart.size else 1.0


def weights_of(metric: str, values: np.ndarray) -> np.ndarray:
    """Return positive weights of votes: similarities, or inverse distances."""
    weights = 1.0 / np.maximum(values, _SHORTEST) if metric == "euclidean" else np.maximum(values, _SHORTEST)
    return np.asarray(weights, np.float64)

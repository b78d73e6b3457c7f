"""Logs of features and rewards, on which models are trained."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from .._forest import require
from .._validation import unmasked
from ..persistence import read_array, read_sparse_matrix, sparse_matrix

LARGEST_WEIGHT = 1e30  # maximum weight of a query. Sums of such weights are finite.


class RewardLog(NamedTuple):
    """Features and known rewards of query-document pairs, grouped by query."""

    X: Any  # float32 (n_pairs, n_features), an array or a CSR matrix
    rewards: np.ndarray  # float32 (n_pairs,)
    sizes: np.ndarray  # int64 (n_queries,), number of pairs of each query
    weights: np.ndarray | None  # float64 (n_queries,), or None for equal weights

    @classmethod
    def of(cls, X: Any, of_query: np.ndarray, rewards: np.ndarray, weights: np.ndarray | None) -> RewardLog:
        """Return a log of the pairs whose reward is not NaN."""
        known = np.flatnonzero(~np.isnan(rewards))
        queries, sizes = np.unique(of_query[known], return_counts=True)
        return cls(X[known], rewards[known], sizes, None if weights is None else weights[queries])

    def followed_by(self, more: RewardLog) -> RewardLog:
        """Return this log followed by ``more``."""
        both = [self.X, more.X]
        if scipy.sparse.issparse(self.X):
            X: Any = scipy.sparse.csr_matrix(scipy.sparse.vstack(both, "csr"))
        else:
            X = np.concatenate(both)
        weights = None
        if self.weights is not None or more.weights is not None:
            weights = np.concatenate([_or_ones(log.weights, log.sizes.size) for log in (self, more)])
        rewards = np.concatenate([self.rewards, more.rewards])
        return RewardLog(X, rewards, np.concatenate([self.sizes, more.sizes]), weights)

    def of_queries(self, kept: np.ndarray) -> RewardLog:
        """Return the log of the queries selected by a boolean mask."""
        pairs = np.flatnonzero(np.repeat(kept, self.sizes))
        weights = None if self.weights is None else self.weights[kept]
        return RewardLog(self.X[pairs], self.rewards[pairs], self.sizes[kept], weights)

    def arrays(self) -> tuple[list[int] | None, dict[str, np.ndarray]]:
        """Return the shape of sparse features, or None for dense ones, and the arrays to save."""
        arrays = {"rewards": self.rewards, "sizes": self.sizes}
        if self.weights is not None:
            arrays["weights"] = self.weights
        if not scipy.sparse.issparse(self.X):
            return None, arrays | {"X": self.X}
        shape, parts = sparse_matrix("X", self.X)
        return shape, arrays | parts

    @classmethod
    def read(cls, shape: Any, arrays: dict[str, np.ndarray], n_features: int) -> RewardLog:
        """Return the log saved in ``arrays``. Raise InvariantError or ValueError if it is invalid."""
        if shape is None:
            X: Any = read_array("X", arrays, np.float32, n_axes=2)
        else:
            X = scipy.sparse.csr_matrix(read_sparse_matrix(shape, "X", arrays, thorough=True))
            require(X.dtype == np.float32, "features must be float32")
            X.has_canonical_format = False
            X.sum_duplicates()  # also sorts indices, as models require
        rewards, sizes = read_array("rewards", arrays, np.float32), read_array("sizes", arrays, np.int64)
        weights = read_array("weights", arrays, np.float64) if "weights" in arrays else None
        require(X.shape == (rewards.size, n_features), "X must have one row for each reward")
        require(np.isfinite(X.data if scipy.sparse.issparse(X) else X).all(), "features must be finite")
        require(np.all((rewards >= 0.0) & (rewards <= 1.0)), "rewards must be between 0 and 1")
        require(
            sizes.size > 0 and np.all(sizes > 0) and int(sizes.sum()) == rewards.size,
            "sizes must add up to the number of rewards",
        )
        if weights is not None:
            sound = weights.shape == sizes.shape and bool(np.all((weights >= 0.0) & (weights <= LARGEST_WEIGHT)))
            require(sound, f"weights must be between 0 and {LARGEST_WEIGHT:g}, one for each query")
        return cls(X, rewards, sizes, weights)


def _or_ones(weights: np.ndarray | None, n: int) -> np.ndarray:
    return np.ones(n) if weights is None else weights


def check_known_rewards(rewards: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Convert rewards to float32. Unknown rewards are NaN."""
    given = np.asarray(unmasked("rewards", rewards))
    if given.dtype.kind not in "fiub":
        raise TypeError(f"rewards must be numbers, got {given.dtype}")
    if given.shape != shape:
        raise ValueError(f"rewards must have shape {shape} like hits.ids, got {given.shape}")
    known = given[~np.isnan(given)] if given.dtype.kind == "f" else given
    if known.size == 0:
        raise ValueError("rewards must contain at least one number that is not NaN")
    if not np.all((known >= 0) & (known <= 1)):
        raise ValueError("rewards must be between 0 and 1, or NaN if unknown")
    return given.astype(np.float32)


def check_weights(weights: Any, n_queries: int) -> np.ndarray | None:
    """Convert the weights of queries to float64, or return None if there are no weights."""
    if weights is None:
        return None
    given = np.asarray(unmasked("weights", weights))
    if given.shape != (n_queries,) or given.dtype.kind not in "fiu":
        raise ValueError(f"weights must have one entry for each of the {n_queries} queries, got shape {given.shape}")
    if not np.all((given >= 0) & (given <= LARGEST_WEIGHT)) or not np.any(given > 0):
        raise ValueError(f"weights must be between 0 and {LARGEST_WEIGHT:g}, and at least one must be above 0")
    return given.astype(np.float64)

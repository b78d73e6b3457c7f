"""Ridge regressions of rewards on dense or sparse contexts, one for each action."""

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
import scipy.sparse.linalg

from .._kernels import require
from ._models import Arrays, checked

_MAX_ROWS = 1500  # maximum number of rows for which the dual problem is solved


class ActionRidges(NamedTuple):
    """Ridge regression weights of all actions."""

    weights: Any  # float64 (actions, features + 1), CSR for sparse contexts; the last column contains intercepts

    def scores(self, X: Any) -> np.ndarray:
        """Return the expected reward of each action in each context: float64, shape (n, actions)."""
        slopes, intercepts = self.weights[:, :-1], self.weights[:, [-1]]
        scores = X @ slopes.T
        if scipy.sparse.issparse(scores):
            return np.asarray(scores.toarray() + intercepts.toarray().T)
        return np.asarray(scores + intercepts.T)

    def arrays(self) -> Arrays:
        """Return the arrays to save."""
        if not scipy.sparse.issparse(self.weights):
            return {"weights": self.weights}
        return {name: getattr(self.weights, name) for name in ("data", "indices", "indptr")}

    @classmethod
    def read(cls, arrays: Arrays, n_actions: int, n_features: int) -> "ActionRidges":
        """Return saved weights. Raise InvariantError if they are invalid."""
        shape = n_actions, n_features + 1
        if "weights" in arrays:
            return cls(checked(arrays, "weights", shape, np.dtype(np.float64)))
        starts = checked(arrays, "indptr", (n_actions + 1,), np.dtype(np.int64), 2**62)
        require(starts[0] == 0 and np.all(np.diff(starts) >= 0), "indptr must start at 0 and be in ascending order")
        data = checked(arrays, "data", (int(starts[-1]),), np.dtype(np.float64))
        indices = checked(arrays, "indices", data.shape, np.dtype(np.int64), n_features)
        require(np.all(indices >= 0), "indices must not be negative")
        return cls(scipy.sparse.csr_array((data, indices, starts), shape))


def fit_ridges(
    X: Any, actions: np.ndarray, n_actions: int, rewards: np.ndarray, weights: np.ndarray, regularization: float
) -> ActionRidges:
    """Fit a ridge regression of rewards for each action. The intercept is penalized too."""
    sparse, roots = scipy.sparse.issparse(X), np.sqrt(weights / weights.mean())
    one = np.ones((X.shape[0], 1))
    X = scipy.sparse.csr_array(scipy.sparse.hstack([X, one])) if sparse else np.hstack([X, one])
    order = np.argsort(actions, kind="stable")
    ends = np.searchsorted(actions[order], np.arange(n_actions + 1))
    found: list[Any] = []
    for first, stop in pairwise(ends.tolist()):
        rows = order[first:stop]
        scale = scipy.sparse.diags_array(roots[rows]) if sparse else roots[rows, None]
        A, b = (scale @ X[rows] if sparse else scale * X[rows]), roots[rows] * rewards[rows]
        w = _solve(A, b, regularization)
        found.append(scipy.sparse.csr_array(w[None]) if sparse else w)
    if not sparse:
        return ActionRidges(np.array(found).reshape(n_actions, X.shape[1]))
    stacked = scipy.sparse.csr_array(scipy.sparse.vstack(found, format="csr"))
    indices, starts = stacked.indices.astype(np.int64), stacked.indptr.astype(np.int64)
    return ActionRidges(scipy.sparse.csr_array((stacked.data, indices, starts), stacked.shape))


def with_indicators(contexts: Any, actions: np.ndarray, known: np.ndarray) -> Any:
    """Return contexts with the one-hot actions as further columns, which are 0 for unknown actions."""
    place = np.minimum(np.searchsorted(known, actions), known.size - 1)
    held = (known[place] == actions).astype(float)
    indicators = scipy.sparse.csr_array((held, (np.arange(held.size), place)), (held.size, known.size))
    return scipy.sparse.csr_matrix(scipy.sparse.hstack([scipy.sparse.csr_array(contexts), indicators]))


def _solve(A: Any, b: np.ndarray, regularization: float) -> np.ndarray:
    """Return the weights of a ridge regression, computed by the cheapest of three solvers."""
    n, d = A.shape
    if n <= min(d, _MAX_ROWS):
        products = A @ A.T
        products = products.toarray() if scipy.sparse.issparse(products) else products
        return np.asarray(A.T @ np.linalg.solve(products + regularization * np.eye(n), b))
    if scipy.sparse.issparse(A):
        return np.asarray(scipy.sparse.linalg.lsqr(A, b, damp=np.sqrt(regularization), atol=1e-10, btol=1e-10)[0])
    return np.asarray(np.linalg.solve(A.T @ A + regularization * np.eye(d), A.T @ b))

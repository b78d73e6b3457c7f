"""Exact search by matrix products: the simplest rival."""

from typing import Any

import numpy as np
import scipy.sparse


def best_columns(scores: Any, k: int) -> np.ndarray:
    """Return the columns of the ``k`` largest scores of each row, best first."""
    scores = scores.toarray() if scipy.sparse.issparse(scores) else scores
    best = scores.argmax(axis=1)[:, None] if k == 1 else np.argpartition(-scores, k - 1, axis=1)[:, :k]
    order = np.argsort(-np.take_along_axis(scores, best, axis=1), axis=1, kind="stable")
    return np.take_along_axis(best, order, axis=1)


def best_by_product(queries: Any, keys: Any, k: int, block: int = 250) -> np.ndarray:
    """Return the positions of the ``k`` keys with the largest products for each query, best first."""
    by_feature = keys.T.tocsr() if scipy.sparse.issparse(keys) else keys.T
    starts = range(0, queries.shape[0], block)
    return np.concatenate([best_columns(queries[first : first + block] @ by_feature, k) for first in starts])

"""Exact search by matrix products: the simplest rival."""

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse

from cmt_numba import CMTMultilabelClassifier
from cmt_numba._heads import weights_of_labels

from .labelled_sets import RANKS

PRODUCTS_AT_ONCE = 1 << 24


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


def product_of_all(learner: Any) -> Callable[[Any], np.ndarray]:
    """Return a function that answers like :func:`ask`, by products of rows and the scorers of all labels."""
    head, n_labels = learner._model.index.head, learner._model.index.n_labels
    by_label = weights_of_labels(head, np.arange(n_labels))
    weights = by_label.T.tocsr() if head.parameters.sparse else np.ascontiguousarray(by_label.T)
    several = isinstance(learner, CMTMultilabelClassifier)
    k = RANKS[-1] if several else 1
    biases, length = head.nodes["bias"][0, :n_labels], max(1, PRODUCTS_AT_ONCE // n_labels)

    def best(queries: Any) -> np.ndarray:
        found = np.empty((queries.shape[0], k), np.int64)
        for first in range(0, queries.shape[0], length):
            scores = queries[first : first + length] @ weights
            scores = (scores.toarray() if scipy.sparse.issparse(scores) else scores) + biases
            found[first : first + length] = best_columns(scores, k)
        model = learner._model
        return model.column_of_label[found] if several else model.classes[model.class_of_label[found[:, 0]]]

    return best

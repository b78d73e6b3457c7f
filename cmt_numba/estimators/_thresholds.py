"""The score above which labels are predicted: a number, or the one that predicts the best label sets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse
from sklearn.base import clone

from .._forest.rows import Rows, as_matrix
from .._validation import check_real
from ._held_out import held_out
from ._weights import taken

if TYPE_CHECKING:
    from ._multilabel import CMTMultilabelClassifier

F1 = "f1"

_FEWEST_HELD_OUT = 10
_TRIED = 200  # thresholds
_LARGEST = 1e6


class Threshold(NamedTuple):
    """A number, or "f1"."""

    def check(self, name: str, value: Any) -> float | str:
        """Return the value of an option."""
        if isinstance(value, str):
            if value != F1:
                raise ValueError(f'{name} must be a number or "{F1}", not {value!r:.50}')
            return value
        return check_real(name, value, -_LARGEST, _LARGEST)

    def __str__(self) -> str:
        return f'float or "{F1}"'


def best_threshold(
    classifier: CMTMultilabelClassifier, rows: Rows, answers: scipy.sparse.csr_array, weights: np.ndarray | None = None
) -> float:
    """Return the threshold for the best label sets: of examples held out, by a classifier that learns the others.

    With too few examples, and with examples without labels, it is 0.
    """
    apart, seen = held_out(rows.n_rows, classifier._seed)
    if apart.size < _FEWEST_HELD_OUT or answers.nnz == 0:
        return 0.0
    learner: Any = clone(classifier).set_params(threshold=0.0, store_examples=False)
    learner.fit(as_matrix(rows.take(seen)), answers[seen], sample_weight=taken(weights, seen))
    row, column, scores = learner._labels_above(rows.take(apart), -_LARGEST)
    wanted = answers[apart]
    n_wanted, n_columns = np.diff(wanted.indptr), answers.shape[1]
    pairs = np.repeat(np.arange(apart.size), n_wanted) * n_columns + wanted.indices
    return threshold_of(row, scores, np.isin(row * n_columns + column, pairs), n_wanted, taken(weights, apart))


def threshold_of(
    row: np.ndarray,
    scores: np.ndarray,
    is_right: np.ndarray,
    n_wanted: np.ndarray,
    weights: np.ndarray | None = None,
) -> float:
    """Return the threshold for the highest mean F1 of the label sets of rows, of equal ones the nearest to 0.

    Parameters
    ----------
    row, scores, is_right : ndarray, shape (n_pairs,)
        For each pair of a row and a label: the row, the score, and whether the row has the label.
    n_wanted : ndarray of int, shape (n_rows,)
        How many labels each row has. Rows without any count 1 if none is predicted.
    weights : ndarray of float32, shape (n_rows,), optional
        How much each row counts in the mean.
    """
    if scores.size == 0:
        return 0.0
    tried = np.unique(
        np.append(np.quantile(scores[is_right] if is_right.any() else scores, np.linspace(0, 1, _TRIED)), 0)
    )
    found = np.array([_mean_f1(row, scores > threshold, is_right, n_wanted, weights) for threshold in tried])
    best = np.flatnonzero(found >= found.max() - 1e-12)
    return float(tried[best[np.argmin(np.abs(tried[best]))]])


def _mean_f1(
    row: np.ndarray, predicted: np.ndarray, is_right: np.ndarray, n_wanted: np.ndarray, weights: np.ndarray | None
) -> float:
    n_predicted = np.bincount(row[predicted], minlength=n_wanted.size)
    n_right = np.bincount(row[predicted & is_right], minlength=n_wanted.size)
    total = n_predicted + n_wanted
    return float(np.average(np.where(total > 0, 2 * n_right / np.maximum(total, 1), 1.0), weights=weights))

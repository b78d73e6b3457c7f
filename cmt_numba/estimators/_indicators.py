"""Labels of many for each example: indicator matrices, and vectors of two classes."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
from sklearn.utils.multiclass import check_classification_targets

from .._validation import unmasked
from ._labels import check_unmixed, in_one_type


def is_vector(Y: Any) -> bool:
    """Return whether labels are given as one class for each example."""
    unmasked("Y", Y)
    try:
        return not scipy.sparse.issparse(Y) and np.asarray(Y).ndim == 1
    except ValueError:  # lists of several lengths
        return False


def pair_of_classes(y: Any) -> np.ndarray:
    """Return the classes of a vector, sorted: at most two."""
    check_unmixed("Y", y)
    y = np.asarray(y)
    check_classification_targets(y)
    classes: np.ndarray = np.unique(y)
    if classes.size > 2:
        raise ValueError(
            "Y must be a matrix of labels or a vector of two classes. Only binary classification is supported. "
            f"({classes.size} classes: CMTClassifier takes any number of them.)"
        )
    return classes


def is_second(y: Any, pair: np.ndarray) -> np.ndarray:
    """Return a column that says which rows are of the second of two classes."""
    check_unmixed("Y", y)
    pair, y = in_one_type("Y", pair, np.asarray(y))
    if not np.isin(y, pair).all():
        raise ValueError(f"Y must hold only the classes {pair.tolist()}")
    return (y[:, None] == pair[1:]) if pair.size == 2 else np.zeros((y.size, 1), np.bool_)


def label_lists(Y: Any, n_rows: int) -> scipy.sparse.csr_array:
    """Return an indicator matrix of labels in CSR form, checked.

    The errors contain the words by which scikit-learn's checks of estimators know them.
    """
    if Y is None:
        raise ValueError("Y must be given: a classifier requires y to be passed, but the target y is None")
    try:
        Y = Y if scipy.sparse.issparse(Y) else np.asarray(Y)
        lists = scipy.sparse.csr_array(Y)
    except (TypeError, ValueError) as error:
        raise TypeError(f"Unknown label type: Y must be an indicator matrix of labels: {error}") from error
    if Y.ndim != 2 or lists.dtype.kind not in "fiub":
        raise ValueError(
            "Unknown label type: Y must be an indicator matrix of labels, of two dimensions, not 0 where a row has one"
        )
    if lists.shape[0] != n_rows:
        raise ValueError(f"Y must have one row for each of the {n_rows} rows of X, not {lists.shape[0]}")
    if not np.isfinite(lists.data).all():
        raise ValueError("Y must be finite")
    lists = lists.copy()
    lists.sum_duplicates()
    lists.eliminate_zeros()
    return lists

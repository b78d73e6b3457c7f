"""Conversion of multi-label targets: indicator matrices, lists of names, and vectors of two classes."""

from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.utils.multiclass import check_classification_targets

from .._validation import check_entries, label_array, unmasked
from ._labels import check_labels, in_one_type


def lists_of_names(Y: Any, *, expected: bool = False) -> list[list[str]] | None:
    """Return the names in each row if ``Y`` has lists, arrays or sets of strings (all empty only if ``expected``)."""
    if scipy.sparse.issparse(Y) or (hasattr(Y, "dtype") and (Y.dtype != object or Y.ndim != 1)):
        return None
    try:
        rows = list(Y)
    except TypeError:
        return None
    if not rows or not all(isinstance(row, list | tuple | set | frozenset | np.ndarray) for row in rows):
        return None
    if any(isinstance(row, np.ndarray) and row.ndim != 1 for row in rows):
        return None
    are_sets = [isinstance(row, set | frozenset) for row in rows]
    lists = [sorted(row, key=str) if is_set else list(row) for row, is_set in zip(rows, are_sets, strict=True)]
    found = [name for names in lists for name in names]
    if not any(isinstance(name, str) for name in found):
        if found and any(are_sets):
            raise TypeError(f"Y must have sets of strings, got a set with {found[0]!r:.50}: convert labels to strings")
        return lists if expected and not found else None
    others = [name for name in found if not isinstance(name, str)]
    if others:
        kind = type(others[0]).__name__
        raise TypeError(f"Y must not mix strings with values of type {kind}, such as {others[0]!r:.50}")
    return lists


def indicator_of(lists: list[list[str]], known: np.ndarray) -> tuple[np.ndarray, scipy.sparse.csr_array]:
    """Return the known names, followed by the new ones in sorted order, and the indicator matrix of the lists."""
    listed = [name for names in lists for name in names]
    found = label_array("Y", listed) if listed else np.empty(0, str)
    names = np.concatenate([known, np.setdiff1d(found, known)])
    order = np.argsort(names, kind="stable")
    columns = order[np.searchsorted(names[order], found)]
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in lists])])
    indicator = scipy.sparse.csr_array((np.ones(columns.size, np.int64), columns, offsets), (len(lists), names.size))
    return names, indicator


def label_sets(
    row: np.ndarray, column: np.ndarray, shape: tuple[int, int], *, names: np.ndarray | None, sparse: bool
) -> Any:
    """Return the labels of each row as tuples of names or, for labels without names, as an indicator matrix."""
    indicator = scipy.sparse.csr_array((np.ones(row.size, np.int64), (row, column)), shape)
    indicator.sort_indices()
    if names is not None:
        sorted_names = names[indicator.indices].tolist()
        bounds = indicator.indptr.tolist()
        return [tuple(sorted_names[first:stop]) for first, stop in pairwise(bounds)]
    return indicator if sparse else indicator.toarray()


def is_vector(Y: Any) -> bool:
    """Return whether ``Y`` holds one class for each example."""
    unmasked("Y", Y)
    try:
        return not scipy.sparse.issparse(Y) and np.asarray(Y).ndim < 2 and Y is not None
    except ValueError:  # lists of different lengths
        return False


def pair_of_classes(y: Any) -> np.ndarray:
    """Return the sorted classes of a vector, or raise ValueError if there are more than two."""
    y = check_labels("Y", y)
    check_classification_targets(y)
    classes: np.ndarray = np.unique(y)
    if classes.size > 2:
        raise ValueError(
            f"Y must be an indicator matrix or a vector of at most two classes, got {classes.size} classes: use "
            "CMTClassifier. Only binary classification is supported for vectors."
        )
    return classes


def is_second(y: Any, pair: np.ndarray) -> np.ndarray:
    """Return whether each row has the second class, as a matrix of one column."""
    pair, y = in_one_type("Y", pair, check_labels("Y", y))
    if not np.isin(y, pair).all():
        raise ValueError(f"Y must contain only the classes {pair.tolist()}")
    return (y[:, None] == pair[1:]) if pair.size == 2 else np.zeros((y.size, 1), np.bool_)


def label_lists(Y: Any, n_rows: int) -> scipy.sparse.csr_array:
    """Check an indicator matrix, with messages as ``check_estimator`` requires; return it as a CSR array."""
    if Y is None:
        raise ValueError("Y must be given: a classifier requires y to be passed, but the target y is None")
    try:
        Y = Y if scipy.sparse.issparse(Y) else np.asarray(Y)
        if Y.dtype == object:  # for example a data frame with nullable types
            Y = np.array(Y.tolist())
        elif Y.dtype == np.float16:  # SciPy has no matrices of this type
            Y = Y.astype(np.float32)
        lists = scipy.sparse.csr_array(Y)
    except (TypeError, ValueError) as error:
        raise TypeError(f"Unknown label type: Y must be an indicator matrix of labels: {error}") from error
    if Y.ndim != 2 or lists.dtype.kind not in "fiub":
        raise ValueError(
            "Unknown label type: Y must be an indicator matrix with one row for each row of X and one column per label"
        )
    check_entries("Y", lists.shape[0], n_rows)
    if not np.isfinite(lists.data).all():
        raise ValueError("Y must be finite, but contains NaN or infinity")
    lists = lists.copy()
    lists.sum_duplicates()
    lists.eliminate_zeros()
    return lists


def labels_of(Y: Any, rows: np.ndarray) -> Any:
    """Return the labels of some rows, in the same format as ``Y``."""
    lists = lists_of_names(Y, expected=True)
    if lists is not None:
        return [lists[row] for row in rows]
    return scipy.sparse.csr_array(Y)[rows] if scipy.sparse.issparse(Y) else np.asarray(Y)[rows]


def first_labels(
    Y: Any, classes: Any, n_rows: int
) -> tuple[np.ndarray | None, np.ndarray | None, scipy.sparse.csr_array]:
    """Convert the labels of the first call; return label names or None, classes of a vector or None, and a matrix."""
    lists = lists_of_names(Y)
    if lists is not None:
        names, indicator = indicator_of(lists, np.empty(0, str))
        return names, None, label_lists(indicator, n_rows)
    pair = pair_of_classes(Y if classes is None else classes) if is_vector(Y) else None
    return None, pair, label_lists(Y if pair is None else is_second(Y, pair), n_rows)


def further_labels(
    Y: Any, names: np.ndarray | None, pair: np.ndarray | None, n_rows: int
) -> tuple[np.ndarray | None, scipy.sparse.csr_array]:
    """Convert the labels of a later call; return the names of all labels, or None, and the indicator matrix."""
    lists = lists_of_names(Y, expected=names is not None)
    if (lists is None) != (names is None) or (lists is None and is_vector(Y)) != (pair is not None):
        raise ValueError(
            "Y must have the format of the first Y: an indicator matrix, lists of names or a vector of classes"
        )
    if lists is not None and names is not None:
        names, Y = indicator_of(lists, names)
    return names, label_lists(Y if pair is None else is_second(Y, pair), n_rows)

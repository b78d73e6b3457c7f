"""Lossless conversion of labels of many types.

NumPy silently turns numbers in a list with strings into strings, and large integers in a list with floats into floats
that are no longer distinct. These functions convert labels only if every label keeps its value.
"""

import warnings
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from sklearn.utils.multiclass import check_classification_targets

from .._kernels import NONE
from .._validation import label_array, unmasked

_NUMBERS = "biuf"
_WORDS = {**dict.fromkeys(_NUMBERS, "numbers"), "U": "strings", "O": "strings", "T": "strings", "S": "bytes"}


def check_unmixed(name: str, labels: Any) -> None:
    """Raise TypeError or ValueError if NumPy would change labels; leave other errors to later checks."""
    unmasked(name, labels)
    if labels is None or scipy.sparse.issparse(labels):
        return
    try:
        array = label_array(name, labels)
    except ValueError:
        array = None  # sequences of different lengths
    if name == "y" and (array is None or (array.ndim == 2 and array.shape[1] > 1)):
        raise ValueError("y must have one class for each row: use CMTMultilabelClassifier for several labels per row")
    if array is None:
        return
    if array.dtype.kind in "mM":
        raise TypeError(f"{name} must be strings, numbers or bools, got {array.dtype}: convert dates to strings")
    if array.dtype.kind == "O":
        missing = [label is None for label in array.ravel().tolist()]
        if any(missing):
            raise ValueError(f"{name} must have a class for each row, but {name}[{missing.index(True)}] is None")
        are_strings = [isinstance(label, str) for label in array.ravel().tolist()]
        if any(are_strings) and not all(are_strings):
            other = array.ravel()[are_strings.index(False)]
            kind = type(other).__name__
            raise TypeError(f"{name} must not mix strings with values of type {kind}, such as {other!r:.50}")
    elif not hasattr(labels, "dtype") and not are_kept(labels, array):
        raise TypeError(
            f"{name} must have labels of one type: an array of {array.dtype} would change some of them; "
            "convert them all to strings, for example"
        )


def check_classes(y: Any, classes: Any) -> tuple[Any, np.ndarray | None]:
    """Check and return the classes of rows, and the expected classes as an array or None."""
    if type(y) is np.ndarray and y.ndim == 1 and y.dtype.kind in "biuS" and classes is None:
        return y, None  # NumPy cannot change these labels
    y = y if y is None or scipy.sparse.issparse(y) else check_labels("y", y)
    return y, None if classes is None else np.ravel(check_labels("classes", classes))


def check_labels(name: str, labels: Any) -> np.ndarray:
    """Return labels as an array of one type that preserves every label."""
    check_unmixed(name, labels)
    array = label_array(name, labels)
    if array.ndim == 0 and name in ("y", "Y"):
        raise ValueError(f"{name} must be a list with one label for each row of X, not the single label {labels!r:.50}")
    return array


def are_kept(given: Any, array: np.ndarray) -> bool:
    """Return whether an array has the same values as the sequence from which it was converted."""
    if array.dtype.kind not in "biufUS":
        return True
    objects = np.asarray(given, dtype=object)
    if objects.shape != array.shape:
        return True
    held = array.ravel().tolist()
    return all(bool(a == b) or (a != a and b != b) for a, b in zip(held, objects.ravel(), strict=True))


def in_one_type(name: str, known: np.ndarray, *others: np.ndarray) -> list[np.ndarray]:
    """Convert arrays of labels to one type: that of the known labels or, if necessary, a common type."""
    if all(other.dtype == known.dtype for other in others):
        return [known, *others]
    if known.dtype.kind == "U" and all(other.dtype.kind == "U" for other in others):
        longest = np.result_type(known, *others)
        return [labels.astype(longest, copy=False) for labels in (known, *others)]
    for other in others:
        kinds = [_WORDS.get(labels.dtype.kind, str(labels.dtype)) for labels in (known, other)]
        if kinds[0] != kinds[1] and known.dtype.kind != other.dtype.kind:
            raise TypeError(
                f"{name} must have labels of the same type as the known labels, {kinds[0]} ({known.dtype}), "
                f"got {kinds[1]} ({other.dtype}); convert all labels to one type before the first call"
            )
    converted = exactly(known, *others)
    if converted is None:
        raise ValueError(
            f"{name} must have labels of the same type as the known labels, because no type represents all values of "
            f"{' and '.join(dict.fromkeys(str(labels.dtype) for labels in (known, *others)))} exactly; "
            "convert all labels to one type before the first call"
        )
    return converted


def exactly(known: np.ndarray, *others: np.ndarray) -> list[np.ndarray] | None:
    """Convert arrays to the type of the first one, or else to a common type; return None if this changes a value."""
    arrays = [known, *(_as_text(other) if known.dtype.kind == "U" else other for other in others)]
    for dtype in (known.dtype, np.result_type(*arrays)):
        converted = [_exactly(array, dtype) for array in arrays]
        if all(array is not None for array in converted):
            return converted  # type: ignore[return-value]
    return None


def _as_text(labels: np.ndarray) -> np.ndarray:
    """Return string objects as an array of strings, or ``labels`` itself if the conversion would change a label."""
    if labels.dtype.kind != "O" or not all(isinstance(label, str) for label in labels):
        return labels
    text = labels.astype(str)
    return text if text.tolist() == labels.tolist() else labels


def _exactly(labels: np.ndarray, dtype: np.dtype) -> np.ndarray | None:
    if labels.dtype == dtype:
        return labels
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            converted = labels.astype(dtype)
            same = np.array_equal(converted.astype(labels.dtype), labels)
            if same and labels.dtype.kind in _NUMBERS:  # integers that overflowed pass the comparison, too
                same = np.array_equal(converted < 0, labels < 0)
        except (TypeError, ValueError, OverflowError):
            return None
    return converted if same else None


def check_targets(y: Any) -> None:
    if isinstance(y, np.ndarray) and y.ndim == 1 and y.dtype.kind in "biuUS":
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # many classes with few examples are common here
        check_classification_targets(y)


def distinct_classes(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the sorted distinct classes of rows, and the position of each row's class as int64."""
    if y.size == 1:
        check_targets(y)
        return y, np.zeros(1, np.int64)
    check_targets(y[:1])  # check one object first: objects other than strings may not be sortable
    distinct, positions = np.unique(y, return_inverse=True)
    check_targets(distinct)
    return distinct, positions


def places_in(known: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the position of each value in the sorted array ``known``, or NONE if it is missing."""
    if known.size == 0:
        return np.full(np.shape(values), NONE, np.int64)
    places = np.minimum(np.searchsorted(known, values), known.size - 1)
    return np.where(known[places] == values, places, NONE)


def looked_up(table: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return the entries of a table at ``rows``, and NONE for NONE."""
    return np.where(rows == NONE, NONE, table[rows]) if table.size > 0 else rows


def positions_of(labels: Any, classes: np.ndarray) -> np.ndarray:
    """Return the sorted positions of labels in ``classes``."""
    labels = np.ravel(label_array("labels", labels))
    if labels.size == 0:
        return np.empty(0, np.int64)
    in_common, labels = in_one_type("labels", classes, labels)
    unknown = np.setdiff1d(labels, in_common)
    if unknown.size > 0:
        raise ValueError(f"labels must be known classes, but {unknown.tolist()[0]!r} is not one of the {classes.size}")
    positions = np.searchsorted(in_common, np.unique(labels))
    if positions.size == classes.size:
        raise ValueError("labels must not include all classes: call fit to replace them")
    return positions


class ClassPlaces(NamedTuple):
    """The positions of the classes of a batch among all classes."""

    classes: np.ndarray  # all classes including the new ones, sorted
    added: np.ndarray  # int64: insertion positions of the new classes, as for numpy.insert
    of_batch: np.ndarray  # int64: ascending positions in ``classes`` of the batch's distinct classes


def place_classes(
    known: np.ndarray | None, y: np.ndarray, expected: np.ndarray | None
) -> tuple[ClassPlaces, np.ndarray]:
    """Return the positions of a batch's classes, and each row's index into ``ClassPlaces.of_batch``."""
    found, of_rows = distinct_classes(y)
    if found.size == 1 and expected is None and known is not None and found.dtype == known.dtype:
        place = np.searchsorted(known, found)
        if place[0] < known.size and known[place[0]] == found[0]:
            return ClassPlaces(known, np.empty(0, np.int64), place), of_rows
    if known is None:
        known = (found if expected is None else expected)[:0]
    if expected is None:
        if known.size > 0:
            known, found = in_one_type("y", known, found)
        expected = found
    else:
        known, found, expected = in_one_type("y", known, found, expected)
        expected = np.unique(expected)
        if np.any(places_in(expected, found) == NONE):
            raise ValueError(
                "y must contain only labels listed in classes: add the missing labels to classes, or pass classes=None"
            )
    new = expected[places_in(known, expected) == NONE]
    added = np.searchsorted(known, new)
    classes = np.insert(known, added, new) if new.size > 0 else known
    return ClassPlaces(classes, added, np.searchsorted(classes, found)), of_rows


def with_reject_label(classes: np.ndarray, reject_label: Any) -> np.ndarray:
    """Return classes followed by the label of rejected rows, which must not be a class.

    If ``reject_label`` is None, it is -1 for numbers and booleans, and "" for strings.
    """
    if reject_label is None:
        kind = classes.dtype.kind
        if kind not in "biufUO":
            raise ValueError(f"reject_label must be given for classes of type {classes.dtype}")
        reject_label = "" if kind in "UO" else -1
    known, rejected = in_one_type("reject_label", classes, label_array("reject_label", [reject_label]))
    if np.isin(rejected, known).any():
        raise ValueError(f"reject_label must not be a class, but {reject_label!r} is a class")
    return np.concatenate([known, rejected])

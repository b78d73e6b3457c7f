"""Checks of rows, weights and ids for estimators.

Weights are None if all are 1.
"""

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .._heads import StoredExamples, slots_of_examples
from .._kernels import NONE, Rows, with_room
from .._validation import check_entries, check_ids, check_known, check_range, check_real, unmasked
from ._labels import check_labels

DTYPES = [np.float32, np.float64]

Factors = np.ndarray | None  # float32: a number for each row, such as its weight or its length; None if all are 1

_HEAVIEST = 1e6
_LIGHTEST = 1e-9  # smallest positive weight; products of weights must stay in the range of float32


class ExampleBatch(NamedTuple):
    """A batch of examples to learn."""

    rows: Rows
    y: np.ndarray  # class of each example
    ids: np.ndarray | None  # ids of the examples, int64 or strings; None to number them
    weights: np.ndarray | None  # float32, above 0
    lengths: np.ndarray | None = None  # float32: lengths of the rows before scaling, None if all are 1
    are_weighted: bool = False  # whether the rows are marked as weighted already


class ExampleNames:
    """Mapping between the distinct string ids ``names`` and the integer ``ids`` of stored examples."""

    def __init__(self, names: Sequence[str] = (), ids: Sequence[int] = ()) -> None:
        self._ids = dict(zip(names, ids, strict=True))
        self._names = dict(zip(ids, names, strict=True))

    def add(self, names: Sequence[str], first_id: int) -> None:
        """Add names for the examples with consecutive ids from ``first_id``."""
        ids = range(first_id, first_id + len(names))
        self._ids.update(zip(names, ids, strict=True))
        self._names.update(zip(ids, names, strict=True))

    def copied(self) -> "ExampleNames":
        other = copy.copy(self)
        other._ids, other._names = dict(self._ids), dict(self._names)
        return other

    def named(self, names: Sequence[str]) -> np.ndarray:
        """Return the integer id for each name, or NONE if the name is unknown."""
        return np.array([self._ids.get(name, NONE) for name in names], np.int64)

    def of_ids(self, ids: np.ndarray) -> np.ndarray:
        """Return an array with the name for each id, or an empty string for NONE."""
        found = [self._names.get(int(each), "") for each in ids.ravel()]
        return np.array(found, str).reshape(ids.shape)


def check_sample_weight(sample_weight: Any, n_rows: int) -> Factors:
    """Return weights as float32 of at least 1e-9 where positive, or None if all are 1."""
    if sample_weight is None:
        return None
    unmasked("sample_weight", sample_weight)
    try:
        weights = np.asarray(sample_weight, np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"sample_weight must be an array of numbers: {error}") from error
    if weights.shape != (n_rows,):
        raise ValueError(f"sample_weight must have one entry for each of the {n_rows} rows, got shape {weights.shape}")
    check_range("sample_weight", weights, 0, round(_HEAVIEST))
    if n_rows > 0 and not weights.any():
        raise ValueError("sample_weight must be above 0 for at least one row, but all weights are zero")
    if np.all(weights == 1.0):
        return None
    return np.where(weights > 0.0, np.maximum(weights, _LIGHTEST), 0.0).astype(np.float32)


def check_class_weight(class_weight: Any) -> None:
    """Raise TypeError or ValueError unless ``class_weight`` is None, "balanced", or a dict of class weights."""
    if class_weight is None or (isinstance(class_weight, str) and class_weight == "balanced"):
        return
    if not isinstance(class_weight, dict):
        raise ValueError(f"class_weight must be 'balanced', a dict of weights by class, or None, got {class_weight!r}")
    for label, weight in class_weight.items():
        check_real(f"class_weight of {label!r}", weight, 0.0, _HEAVIEST)


def check_weights(sample_weight: Any, class_weight: Any, y: np.ndarray) -> Factors:
    """Check weights; return each example's weight times the weight of its class, or None if all products are 1.

    Classes missing from a dict have weight 1. "balanced" gives all classes the same total weight without
    ``sample_weight``.
    """
    weights = check_sample_weight(sample_weight, y.size)
    if class_weight is None:
        return weights
    classes, of_rows = np.unique(y, return_inverse=True)
    if class_weight == "balanced":
        of_classes = y.size / (classes.size * np.bincount(of_rows))
    else:
        of_classes = np.array([class_weight.get(label, 1.0) for label in classes.tolist()], np.float64)
    product = np.clip(of_classes[of_rows], _LIGHTEST, None) * (of_classes[of_rows] > 0.0) * filled(weights, y.size)
    return check_sample_weight(product, y.size)


def present(batch: ExampleBatch) -> ExampleBatch:
    """Return a batch without the examples of weight 0."""
    weights = batch.weights
    if weights is None or weights.all():
        return batch
    kept = np.flatnonzero(weights)
    ids, weights, lengths = (taken(part, kept) for part in (batch.ids, weights, batch.lengths))
    return ExampleBatch(batch.rows.take(kept), batch.y[kept], ids, weights, lengths, batch.are_weighted)


def present_values(rows: Rows, values: Any, weights: Factors, *, numbered: bool) -> tuple[Rows, Any, np.ndarray | None]:
    """Return what has positive weight. If values are ``numbered``, the remaining rows get the first numbers."""
    if weights is None or weights.all():
        return rows, values, weights
    kept = np.flatnonzero(weights)
    return rows.take(kept), values[: kept.size] if numbered else values[kept], weights[kept]


def weighted(rows: Rows, weights: Factors) -> Rows:
    if weights is None:
        return rows
    return rows._replace(values=rows.values * np.repeat(weights, np.diff(rows.offsets)))


def joined_weights(weights: Factors, n: int, more: np.ndarray | None, n_more: int) -> np.ndarray | None:
    """Append weights, in place if there is room; return the array, whose spare capacity is filled with 0."""
    if weights is None and more is None:
        return None
    weights = with_room(filled(weights, n) if weights is None else weights, n, n_more, fill=0.0)
    weights[n : n + n_more] = filled(more, n_more)
    return weights


def trim_weights(weights: np.ndarray) -> np.ndarray:
    """Return a view of weights without spare capacity, for a file."""
    return np.trim_zeros(weights, "b")


def taken(weights: Factors, which: np.ndarray) -> np.ndarray | None:
    """Return the weights at some positions, or None if there are no weights."""
    return None if weights is None else weights[which]


def total_weights(labels: np.ndarray, weights: Factors, n_labels: int) -> np.ndarray:
    return np.bincount(labels, weights, n_labels).astype(np.float64)


def filled(weights: Factors, n: int) -> np.ndarray:
    """Return ``n`` weights as float32. None stands for weights of 1."""
    return np.ones(n, np.float32) if weights is None else weights[:n]


def check_example_ids(
    ids: Any, n_rows: int, examples: StoredExamples | None, names: ExampleNames | None, *, stored: bool
) -> np.ndarray | None:
    """Check the ids of new examples. Return them as int64 or strings, or None if none are given.

    ``names`` holds the string ids of the stored ``examples``, or is None if their ids are integers.
    """
    if ids is None:
        if names is not None:
            raise ValueError("example_ids must be given, because the stored examples have string ids")
        return None
    if not stored:
        raise ValueError("example_ids need stored examples: pass store_examples=True, or omit example_ids")
    given = _checked_names("example_ids", ids)
    if given is None:
        given = check_ids(ids)
    check_entries("example_ids", given.size, n_rows)
    if examples is not None:
        _check_kind("example_ids", given, names)
    if given.dtype.kind != "i":
        in_use = [] if names is None else given[names.named(given.tolist()) != NONE]
        if len(in_use) > 0:
            raise ValueError(f"example_ids must be new, but {in_use[0]!r} is already stored: remove it first")
        return given
    ids = given
    if ids.size > 0 and (ids.min() < 0 or ids.max() == np.iinfo(np.int64).max):
        raise ValueError(f"example_ids must be between 0 and {np.iinfo(np.int64).max - 1}")
    known = np.empty(0, np.int64) if examples is None else ids[slots_of_examples(examples, ids) != NONE]
    if known.size > 0:
        raise ValueError(f"example_ids must be new, but {known[0]} is already stored: remove it first")
    return ids


def _checked_names(name: str, ids: Any) -> np.ndarray | None:
    """Return distinct string ids as an array of objects, or None if ids are not strings."""
    given = np.atleast_1d(check_labels(name, ids))
    if given.dtype.kind not in "UO" or given.ndim != 1 or given.size == 0:
        return None
    strings = given.astype(object)
    if not all(isinstance(each, str) for each in strings):
        raise TypeError(f"{name} must be all integers or all strings")
    distinct, counts = np.unique(strings, return_counts=True)
    if distinct.size < strings.size:
        raise ValueError(f"{name} must be distinct, but {distinct[counts > 1][0]!r} occurs twice")
    if "" in distinct:
        raise ValueError(f"{name} must not contain empty strings")
    return strings


def _check_kind(name: str, ids: np.ndarray, names: ExampleNames | None) -> None:
    """Raise TypeError if ids are strings but stored ids are integers, or the reverse."""
    kinds = ("integers", "strings")
    if (ids.dtype.kind != "i") != (names is not None):
        stored, given = kinds[names is not None], kinds[ids.dtype.kind != "i"]
        raise TypeError(f"{name} must be {stored} like the ids of the stored examples, got {given}")


def known_slots(examples: StoredExamples, ids: Any, names: ExampleNames | None) -> np.ndarray:
    """Return the slots of the stored examples with these ids, in ascending order. With ``names``, ids are strings."""
    given = _checked_names("ids", ids)
    if given is None:
        given = check_ids(ids)
    _check_kind("ids", given, names)
    numbers = given if names is None else names.named(given.tolist())
    slots = slots_of_examples(examples, numbers)
    check_known(given, slots)
    return np.sort(slots)

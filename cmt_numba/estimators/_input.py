"""Checks of rows, weights and ids for estimators. Weights that are all 1 are None."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np

from .._forest import NONE, Rows, with_room
from .._heads import StoredExamples, slots_of_examples
from .._validation import check_ids, check_known, unmasked

DTYPES = [np.float32, np.float64]

_ROWS_LOOKED_AT = 1000
_SELDOM = 0.05  # share of rows; features that are nonzero in fewer rows are ignored
_UNEQUAL = 100.0  # ratio to the first quartile of sizes

_HEAVIEST = 1e6
_LIGHTEST = 1e-9  # positive weight, so that products of weights stay in the range of float32


def warn_of_scales(X: Any) -> None:
    """Warn if some dense features are much larger than others, because they would dominate rows of unit length.

    The size of a feature is the root mean square of its nonzero entries, so that one-hot columns, tf-idf and images
    give no warning.
    """
    if not isinstance(X, np.ndarray) or X.shape[1] < 2:
        return
    some = X[:: -(-X.shape[0] // _ROWS_LOOKED_AT)].astype(np.float64, copy=False)
    n_entries = np.count_nonzero(some, axis=0)
    counts = n_entries > _SELDOM * some.shape[0]
    if np.count_nonzero(counts) < 2:
        return
    with np.errstate(over="ignore"):
        sizes = np.sqrt(np.sum(some[:, counts] ** 2, axis=0) / n_entries[counts])
    usual = np.quantile(sizes, 0.25, method="lower")
    if np.isfinite(sizes).all() and sizes.max() > _UNEQUAL * usual:
        largest = np.flatnonzero(counts)[sizes.argmax()]
        warnings.warn(
            f"features differ by orders of magnitude: feature {largest} is about {sizes.max() / usual:.0f} times as "
            "large as others, which will hardly count; scale them, for example with "
            "make_pipeline(StandardScaler(), CMTClassifier())",
            UserWarning,
            stacklevel=2,
        )


class ExampleBatch(NamedTuple):
    """A batch of examples to learn."""

    rows: Rows
    y: np.ndarray  # the class of each example
    ids: np.ndarray | None  # ids of the examples; None for the next free ones
    weights: np.ndarray | None  # float32, above 0
    lengths: np.ndarray | None = None  # float32: lengths of the rows before scaling; None if all are 1


def check_sample_weight(sample_weight: Any, n_rows: int) -> np.ndarray | None:
    """Return the weights of ``n_rows`` examples as float32, or None if all are 1.

    Positive weights below 1e-9 become 1e-9.

    Raises
    ------
    TypeError, ValueError
        If there is not one number from 0 to 1,000,000 for each row, or all are 0.
    """
    if sample_weight is None:
        return None
    unmasked("sample_weight", sample_weight)
    try:
        weights = np.asarray(sample_weight, np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"sample_weight must be an array of numbers: {error}") from error
    if weights.shape != (n_rows,):
        raise ValueError(f"sample_weight must be one number for each of the {n_rows} rows of X, got {weights.shape}")
    if not np.all((weights >= 0.0) & (weights <= _HEAVIEST)):  # NaN compares false
        raise ValueError(f"sample_weight must be from 0 to {_HEAVIEST:g}")
    if n_rows > 0 and not weights.any():
        raise ValueError("sample_weight must not be 0 for all rows: all weights are zero")
    if np.all(weights == 1.0):
        return None
    return np.where(weights > 0.0, np.maximum(weights, _LIGHTEST), 0.0).astype(np.float32)


def present(batch: ExampleBatch) -> ExampleBatch:
    """Return the examples of a batch with positive weights; the others are ignored."""
    weights = batch.weights
    if weights is None or weights.all():
        return batch
    kept = np.flatnonzero(weights)
    others = (taken(part, kept) for part in (batch.ids, weights, batch.lengths))
    return ExampleBatch(batch.rows.take(kept), batch.y[kept], *others)


def present_values(
    rows: Rows, values: Any, weights: np.ndarray | None, *, numbered: bool
) -> tuple[Rows, Any, np.ndarray | None]:
    """Return the rows with positive weights, their values and weights. ``numbered`` values are renumbered."""
    if weights is None or weights.all():
        return rows, values, weights
    kept = np.flatnonzero(weights)
    return rows.take(kept), values[: kept.size] if numbered else values[kept], weights[kept]


def weighted(rows: Rows, weights: np.ndarray | None) -> Rows:
    """Return rows multiplied by their weights."""
    if weights is None:
        return rows
    return rows._replace(values=rows.values * np.repeat(weights, np.diff(rows.offsets)))


def joined_weights(weights: np.ndarray | None, n: int, more: np.ndarray | None, n_more: int) -> np.ndarray | None:
    """Append the weights of ``n_more`` examples to those of ``n`` examples; return the array, with zeros at the end.

    The given array is used if it has enough spare capacity.
    """
    if weights is None and more is None:
        return None
    weights = with_room(filled(weights, n) if weights is None else weights, n, n_more, fill=0.0)
    weights[n : n + n_more] = filled(more, n_more)
    return weights


def trim_weights(weights: np.ndarray) -> np.ndarray:
    """Return a view of weights without spare capacity, for a file."""
    return np.trim_zeros(weights, "b")


def taken(weights: np.ndarray | None, which: np.ndarray) -> np.ndarray | None:
    """Return the weights of some examples."""
    return None if weights is None else weights[which]


def total_weights(labels: np.ndarray, weights: np.ndarray | None, n_labels: int) -> np.ndarray:
    """Return the total weight of each label: float64, shape (n_labels,)."""
    return np.bincount(labels, weights, n_labels).astype(np.float64)


def filled(weights: np.ndarray | None, n: int) -> np.ndarray:
    """Return the weights of ``n`` examples as float32, 1 if they are None."""
    return np.ones(n, np.float32) if weights is None else weights[:n]


def check_example_ids(ids: Any, n_rows: int, examples: StoredExamples | None, *, stored: bool) -> np.ndarray | None:
    """Return ids for new examples, or None if none are given.

    Raises
    ------
    TypeError, ValueError
        If ids are not distinct nonnegative integers, one for each row, or if an id is in use.
    """
    if ids is None:
        return None
    if not stored:
        raise ValueError("example_ids need stored examples: pass store_examples=True, or omit them")
    ids = check_ids(ids)
    if ids.size != n_rows:
        raise ValueError(f"example_ids must be one for each of the {n_rows} rows, got {ids.size}")
    if ids.size > 0 and (ids.min() < 0 or ids.max() == np.iinfo(np.int64).max):
        raise ValueError(f"example_ids must be from 0 to {np.iinfo(np.int64).max - 1}")
    known = np.empty(0, np.int64) if examples is None else ids[slots_of_examples(examples, ids) != NONE]
    if known.size > 0:
        raise ValueError(f"example_ids must be new, but {known[0]} is stored already: remove it first")
    return ids


def known_slots(examples: StoredExamples, ids: Any) -> np.ndarray:
    """Return the slots of stored examples, sorted.

    Raises
    ------
    KeyError
        If an id is not stored.
    TypeError, ValueError
        If ``ids`` are not distinct integers.
    """
    ids = check_ids(ids)
    slots = slots_of_examples(examples, ids)
    check_known(ids, slots)
    return np.sort(slots)

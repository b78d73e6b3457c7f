"""Weights of examples: how much each counts beside others. None stands for weights that are all 1."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .._forest.rows import Rows
from .._validation import unmasked

_MOST = 1e6
_LEAST = 1e-9  # of a positive weight: its products stay within the range of float32
_GENTLE = 1.25  # growth of the array of weights


class Batch(NamedTuple):
    """Examples to be learned together."""

    rows: Rows
    y: np.ndarray  # the class of each
    ids: np.ndarray | None  # by which they can be removed; None for the next ones
    weights: np.ndarray | None  # float32, above 0


def check_sample_weight(sample_weight: Any, n_rows: int) -> np.ndarray | None:
    """Return the weights of ``n_rows`` examples as float32, or None if all are 1.

    Positive weights below 1e-9 become 1e-9.

    Raises
    ------
    TypeError, ValueError
        If they are not one number from 0 to a million for each row, or all are 0.
    """
    if sample_weight is None:
        return None
    unmasked("sample_weight", sample_weight)
    try:
        weights = np.asarray(sample_weight, np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"sample_weight must be an array of numbers: {error}") from error
    if weights.shape != (n_rows,):
        raise ValueError(f"sample_weight must be one number for each of the {n_rows} rows of X, not {weights.shape}")
    if not np.all((weights >= 0.0) & (weights <= _MOST)):  # NaN compares false
        raise ValueError(f"sample_weight must be from 0 to {_MOST:g}")
    if n_rows > 0 and not weights.any():
        raise ValueError("sample_weight must not be 0 for all rows: all weights are zero")
    if np.all(weights == 1.0):
        return None
    return np.where(weights > 0.0, np.maximum(weights, _LEAST), 0.0).astype(np.float32)


def present(batch: Batch) -> Batch:
    """Return the examples of a batch whose weight is not 0: the others count as if they had not come."""
    weights = batch.weights
    if weights is None or weights.all():
        return batch
    kept = np.flatnonzero(weights)
    return Batch(batch.rows.take(kept), batch.y[kept], None if batch.ids is None else batch.ids[kept], weights[kept])


def present_values(
    rows: Rows, values: Any, weights: np.ndarray | None, *, numbered: bool
) -> tuple[Rows, Any, np.ndarray | None]:
    """Return the rows whose weight is not 0, their values and weights; values that number rows number those kept."""
    if weights is None or weights.all():
        return rows, values, weights
    kept = np.flatnonzero(weights)
    return rows.take(kept), values[: kept.size] if numbered else values[kept], weights[kept]


def weighted(rows: Rows, weights: np.ndarray | None) -> Rows:
    """Return rows times their weights."""
    if weights is None:
        return rows
    return rows._replace(values=rows.values * np.repeat(weights, np.diff(rows.offsets)))


def joined(weights: np.ndarray | None, n: int, more: np.ndarray | None, n_more: int) -> np.ndarray | None:
    """Return the weights of ``n`` examples, of ``n_more`` others behind them, and 0 where there is room for further.

    They lie in the array given, behind those of the ``n`` examples, if there is room.
    """
    if weights is None and more is None:
        return None
    if weights is None or n + n_more > weights.size:
        larger = np.zeros(max(n + n_more, int(_GENTLE * n)), np.float32)
        larger[:n] = filled(weights, n)
        weights = larger
    weights[n : n + n_more] = filled(more, n_more)
    return weights


def trim_weights(weights: np.ndarray) -> np.ndarray:
    """Return weights for a file, without the room behind them. They share memory."""
    return np.trim_zeros(weights, "b")


def taken(weights: np.ndarray | None, which: np.ndarray) -> np.ndarray | None:
    """Return the weights of some examples."""
    return None if weights is None else weights[which]


def totals(labels: np.ndarray, weights: np.ndarray | None, n_labels: int) -> np.ndarray:
    """Return the total weight of each label: float64, shape (n_labels,)."""
    return np.bincount(labels, weights, n_labels).astype(np.float64)


def count(
    labels: np.ndarray, weights: np.ndarray | None, n_of_label: np.ndarray, weight_of_label: np.ndarray | None
) -> None:
    """Add examples of these labels to how many each label has and, unless that is None, to what they weigh together."""
    np.add.at(n_of_label, labels, 1)
    if weight_of_label is not None:
        np.add.at(weight_of_label, labels, 1.0 if weights is None else weights)


def filled(weights: np.ndarray | None, n: int) -> np.ndarray:
    """Return the weights of ``n`` examples, as numbers: float32."""
    return np.ones(n, np.float32) if weights is None else weights[:n]

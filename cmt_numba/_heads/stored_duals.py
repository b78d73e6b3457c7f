"""Dual variables of examples, stored between the batches that a head learns.

A scorer is its label's mean plus a sum of examples, each multiplied by a dual variable. To reduce a weight that has
become too large, training on the example again needs its dual variables.
"""

from typing import Annotated, NamedTuple

import numpy as np

from .._forest import NONE, kind_of
from .._jit import kernel
from .multiclass_svm import Duals

N_STORED = 4
"""Number of competitors stored per example, those with the largest weights. A larger number gives no lower error."""

_GENTLE = 1.25  # growth factor of the arrays


class StoredDuals(NamedTuple):
    """The dual variables of examples by slot. Slots beyond the end have none."""

    competitors: Annotated[np.ndarray, kind_of(np.int32, "slots", N_STORED)]  # labels, padded with NONE
    weights: Annotated[np.ndarray, kind_of(np.float32, "slots", N_STORED)]


def no_stored_duals(n_slots: int = 0) -> StoredDuals:
    """Return dual variables of 0 for ``n_slots`` untrained examples."""
    return StoredDuals(np.full((n_slots, N_STORED), NONE, np.int32), np.zeros((n_slots, N_STORED), np.float32))


@kernel
def _copy_stored(competitors, weights, slots, of_rows, weights_of_rows):
    for i in range(slots.size):
        if slots[i] < weights.shape[0]:
            for j in range(N_STORED):
                of_rows[i, j] = competitors[slots[i], j]
                weights_of_rows[i, j] = weights[slots[i], j]


@kernel
def _store_largest(of_rows, weights_of_rows, slots, competitors, weights):
    """Store each row's largest weights with their competitors. Ties go to the first competitor."""
    for i in range(slots.size):
        slot, n = slots[i], 0
        for j in range(weights_of_rows.shape[1]):
            weight, place = weights_of_rows[i, j], n
            if weight <= 0.0 or (n == N_STORED and weight <= weights[slot, N_STORED - 1]):
                continue
            n = min(n + 1, N_STORED)
            place = n - 1
            while place > 0 and weights[slot, place - 1] < weight:
                weights[slot, place] = weights[slot, place - 1]
                competitors[slot, place] = competitors[slot, place - 1]
                place -= 1
            weights[slot, place], competitors[slot, place] = weight, of_rows[i, j]
        for j in range(n, N_STORED):
            weights[slot, j], competitors[slot, j] = np.float32(0.0), NONE


def resume(stored: StoredDuals, slots: np.ndarray, duals: Duals) -> None:
    """Copy the stored dual variables of some slots to ``duals``, which has an empty row for each slot."""
    _copy_stored(stored.competitors, stored.weights, slots, duals.competitors, duals.weights)


def with_duals(stored: StoredDuals, slots: np.ndarray, duals: Duals) -> StoredDuals:
    """Store the ``duals`` of the examples in some slots; return all stored duals, in larger arrays if needed."""
    n = int(slots.max(initial=-1)) + 1
    if n > stored.weights.shape[0]:
        larger = no_stored_duals(max(n, int(_GENTLE * stored.weights.shape[0])))
        for new, old in zip(larger, stored, strict=True):
            new[: old.shape[0]] = old
        stored = larger
    _store_largest(duals.competitors, duals.weights, slots, stored.competitors, stored.weights)
    return stored


def duals_of_slots(stored: StoredDuals, slots: np.ndarray, number: np.ndarray) -> StoredDuals:
    """Return the dual variables of the examples in some slots, in this order, with renumbered labels.

    Label ``l`` becomes ``number[l]``. Competitors whose new number is NONE lose their weight.
    """
    fewer, known = no_stored_duals(slots.size), slots < stored.weights.shape[0]
    competitors = stored.competitors[slots[known]]
    competitors = np.where(competitors == NONE, NONE, number[competitors])
    fewer.competitors[known] = competitors
    fewer.weights[known] = np.where(competitors == NONE, np.float32(0.0), stored.weights[slots[known]])
    return fewer


def trim_duals(stored: StoredDuals) -> StoredDuals:
    """Return views of dual variables for a file, without trailing examples that have none."""
    used = np.flatnonzero(stored.weights.any(axis=1))
    n = int(used[-1]) + 1 if used.size > 0 else 0
    return StoredDuals(stored.competitors[:n], stored.weights[:n])

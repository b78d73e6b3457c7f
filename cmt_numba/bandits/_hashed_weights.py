"""Kernels: a linear model of the reward of each of very many actions, in one table of fixed size.

The weight of a feature for an action is the cell ``hash(action) + feature`` of the table, as in feature hashing
(Weinberger et al., 2009). Each weight has a variance of its own, and they are learned by the steps of a Kalman filter
that ignores covariances, as in AROW (Crammer, Kulesza and Dredze, 2009): a decision takes time proportional to the
features of the context that are present.
"""

from typing import NamedTuple

import numpy as np

from .._forest import mix
from .._jit import by_reference, inner, kernel


class Table(NamedTuple):
    """The weights of all actions."""

    cells: np.ndarray  # float32 (cells, 2), a power of two: weights, and sums of squares of the features learned
    ridge: np.ndarray  # float64 (1,)


def new_table(n_bits: int, ridge: float) -> Table:
    """Return a table without rewards."""
    return Table(np.zeros((1 << n_bits, 2), np.float32), np.array([ridge]))


@inner
def _cell(rows, base, place, first, mask):
    """Return the cell of an entry of a row, for the action that is hashed to ``base``."""
    feature = np.uint64(rows.indices[place]) if rows.sparse else np.uint64(place - first)
    return np.int64((base + feature) & mask)


@inner
def expect(table, rows, row, base, mask):
    """Return the mean and the variance of the reward of an action."""
    mean, variance = 0.0, 0.0
    first = rows.offsets[row]
    for place in range(first, rows.offsets[row + 1]):
        cell, x = _cell(rows, base, place, first, mask), np.float64(rows.values[place])
        mean += x * table.cells[cell, 0]
        variance += x * x / (table.ridge[0] + table.cells[cell, 1])
    return mean, variance


@kernel
def learn_rewards(table, rows, of_pairs, actions, rewards):
    """Learn the rewards of pairs of a row and an action, one after the other."""
    table = by_reference(table)
    rows = by_reference(rows)
    mask = np.uint64(table.cells.shape[0] - 1)
    for i in range(actions.size):
        base, row = mix(np.uint64(actions[i])), of_pairs[i]
        mean, variance = expect(table, rows, row, base, mask)
        step = (rewards[i] - mean) / (1.0 + variance)
        first = rows.offsets[row]
        for place in range(first, rows.offsets[row + 1]):
            cell, x = _cell(rows, base, place, first, mask), np.float64(rows.values[place])
            table.cells[cell, 0] += np.float32(step * x / (table.ridge[0] + table.cells[cell, 1]))
            table.cells[cell, 1] += np.float32(x * x)

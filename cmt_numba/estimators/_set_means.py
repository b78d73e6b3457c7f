"""Means of the rows of each label set, which stand for earlier rows of tables."""

from typing import Annotated, NamedTuple

import numpy as np

from .._forest import kind_of

_MOST_SETS = 64  # beyond it, most sets have too few rows
UNLIKELY = 0.01  # a label set has stopped coming if rows in random order would lack it with a smaller probability


class SetMeans(NamedTuple):
    """The label sets of all rows, and the mean of the rows of each set."""

    sets: Annotated[np.ndarray, kind_of(np.bool_, "sets", "columns")]
    sums: Annotated[np.ndarray, kind_of(np.float64, "sets", "features")]
    amounts: Annotated[np.ndarray, kind_of(np.float64, "sets")]  # total weight of the rows
    last: Annotated[np.ndarray, kind_of(np.int64, "sets")]  # number of the last row with the set
    n_rows: int

    def learned(self, X: np.ndarray, sets: np.ndarray, weights: np.ndarray) -> "SetMeans | None":
        """Return the means after further rows, or None if there are too many label sets."""
        known = np.pad(self.sets, ((0, 0), (0, sets.shape[1] - self.sets.shape[1])))
        distinct, places = np.unique(np.concatenate([known, sets]), axis=0, return_inverse=True)
        if (n := len(distinct)) > _MOST_SETS:
            return None
        places = places.ravel()  # NumPy 2.0 returns a column
        sums, amounts, last = np.zeros((n, X.shape[1])), np.zeros(n), np.zeros(n, np.int64)
        np.add.at(sums, places, np.concatenate([self.sums, weights[:, None] * X]))
        np.add.at(amounts, places, np.concatenate([self.amounts, weights]))
        np.maximum.at(last, places, np.concatenate([self.last, self.n_rows + 1 + np.arange(len(X))]))
        return SetMeans(distinct, sums, amounts, last, self.n_rows + len(X))

    def stopped(self, n_new: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the means and labels of the sets that have stopped coming, except those of the last ``n_new`` rows."""
        by_chance = (1.0 - self.amounts / self.amounts.sum()) ** (self.n_rows - self.last)
        chosen = np.flatnonzero((by_chance < UNLIKELY) & (self.last <= self.n_rows - n_new))
        return self.sums[chosen] / self.amounts[chosen, None], self.sets[chosen]


def no_means(n_features: int) -> SetMeans:
    """Return the means before the first row."""
    return SetMeans(np.zeros((0, 0), bool), np.zeros((0, n_features)), np.zeros(0), np.zeros(0, np.int64), 0)

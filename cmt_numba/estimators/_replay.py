"""Which stored examples are learned again and when all are, and means that stand for earlier rows of tables."""

import math
from typing import Annotated, NamedTuple

import numpy as np

from .._heads import StoredExamples, draw_replayed
from .._kernels import kind_of

_REPLAYED = 8  # number of stored examples to replay with each new example
_GROWTH = 0.25  # fraction of new examples that triggers retraining; each example is learned five times on average
_FEWEST = 16  # number of new examples below which no retraining is due
_MAX_SETS = 64  # of labels; beyond it, most sets have too few rows
UNLIKELY = 0.01  # a label set has stopped coming if rows in random order would lack it with a smaller probability


def is_due(n_examples: int, n_learned: int) -> bool:
    """Return whether enough examples are new to retrain on all of them. False before the first fit."""
    return n_learned > 0 and n_examples - n_learned >= max(_FEWEST, _GROWTH * n_learned)


def has_grown(n_examples: int, n_new: int) -> bool:
    """Return whether the number of examples, at least 1, has grown by another quarter with the newest ones."""
    scale, n_before = math.log(1.0 + _GROWTH), max(1, n_examples - n_new)
    return int(math.log(n_examples) / scale) > int(math.log(n_before) / scale)


def replayed(
    examples: StoredExamples, n_new: int, competing: np.ndarray, generator: np.random.Generator, n_swept: int = 0
) -> tuple[np.ndarray, int]:
    """Draw stored examples to learn with the newest ``n_new``; return all slots and the number of swept examples.

    Half of the replayed examples are drawn from all earlier ones, and half from labels in ``competing``. The newest
    examples follow, and then up to ``n_swept`` drawn from all. The time hardly depends on the number of stored
    examples.
    """
    numbers = generator.random((_REPLAYED * n_new // 2, 3))
    slots, ends = np.empty(2 * numbers.shape[0] + n_new + n_swept, np.int64), np.empty(2, np.int64)
    draw_replayed(examples.lists, np.sort(competing), numbers, generator.random(n_swept), n_new, slots, ends)
    return slots[: ends[1]], int(ends[1] - ends[0])


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
        if (n := len(distinct)) > _MAX_SETS:
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

"""Costs of edits: what the kernels are told of them, and how they change."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ._encoding import Sequences
from ._features import pooled
from ._spaces import Counts, Kind, Space

ASKED, STORED = 0, 1
"""Where a sequence is: symbols of what is asked for are deleted, those of what is stored are inserted."""

_LEAST, _MOST = 1e-3, 1e3  # costs that are learned, relative to their mean
_LEAST_FACTOR, _MOST_FACTOR = 0.05, 20.0


class Costs(NamedTuple):
    """Costs of all edits."""

    pairs: (
        np.ndarray
    )  # float32 (n_symbols + 1, n_symbols + 1): insertions in the last row, deletions in the last column
    swaps: np.ndarray  # float32 (n_symbols, n_symbols): of neighbours that are exchanged; (0, 0) if they cannot be
    factors: (
        np.ndarray
    )  # float32 (2, n_symbols + 1, n_symbols): of gaps by the symbol before, the last for none; or none
    both: bool = False  # whether distances are the smaller of both directions

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """The costs alone, by their names."""
        return {"pairs": self.pairs, "swaps": self.swaps, "factors": self.factors}

    def gaps(self, sequences: Sequences, side: int) -> np.ndarray:
        """Return the cost of deleting each symbol, or of inserting it: float32."""
        symbols = sequences.symbols
        gaps = (self.pairs[:, -1] if side == ASKED else self.pairs[-1])[symbols]
        if self.factors.size > 0:
            gaps = gaps * self.factors[side][self.before(sequences), symbols]
        return np.ascontiguousarray(gaps)

    def before(self, sequences: Sequences) -> np.ndarray:
        """Return the symbol before each symbol, the number of symbols for none."""
        before = np.roll(sequences.symbols, 1).astype(np.int64)
        starts = sequences.offsets[:-1]
        before[starts[starts < before.size]] = self.pairs.shape[0] - 1
        return before

    def points(self, sequences: Sequences, side: int) -> Space:
        """Return sequences as points under these costs."""
        longest = int(np.diff(sequences.offsets).max(initial=0))
        gaps, rows = self.gaps(sequences, side), np.empty((0, 0), np.float32)
        turned = self.gaps(sequences, ASKED + STORED - side) if self.both else np.empty(0, np.float32)
        return Space(int(Kind.EDIT), longest, *sequences, gaps, turned, self.both, self.pairs, self.swaps, rows)

    def no_counts(self, asked: Sequences, stored: Sequences) -> Counts:
        """Return counts of edits before any is counted."""
        sizes = asked.symbols.size, stored.symbols.size
        return Counts(np.zeros(self.pairs.shape), np.zeros(sizes[0]), np.zeros(sizes[1]), np.zeros(self.swaps.shape))


class Tally(NamedTuple):
    """Weighted counts of the edits between some sequences and others."""

    counts: Counts
    asked: Sequences
    stored: Sequences


class Learner:
    """AdaGrad steps of the logarithms of costs.

    ``features``, of the symbols and the gap, are given if costs are to be the same for similar edits.
    """

    def __init__(
        self, costs: Costs, symmetric: bool, learning_rate: float, prior: float, features: np.ndarray | None = None
    ) -> None:
        self.costs = costs
        self._symmetric, self._rate, self._features = symmetric, learning_rate, features
        self._squares = [np.full(array.shape, prior**2) for array in costs.arrays.values()]

    def step(self, tallies: list[Tally]) -> None:
        """Let costs follow the weighted counts of edits: those that occur in what is right become cheaper."""
        costs, gradients = self.costs, [np.zeros(array.shape) for array in self.costs.arrays.values()]
        for counts, asked, stored in tallies:
            gradients[0] += counts.pairs
            gradients[1] += counts.swaps
            np.add.at(gradients[0][:, -1], asked.symbols, counts.of_asked)
            np.add.at(gradients[0][-1], stored.symbols, counts.of_stored)
            if costs.factors.size > 0:
                for side, sequences, of_gaps in ((ASKED, asked, counts.of_asked), (STORED, stored, counts.of_stored)):
                    np.add.at(gradients[2][side], (costs.before(sequences), sequences.symbols), of_gaps)
        if self._symmetric:
            gradients = [
                gradients[0] + gradients[0].T,
                gradients[1] + gradients[1].T,
                gradients[2].sum(axis=0) + np.zeros((2, 1, 1)) if costs.factors.size else gradients[2],
            ]
        if self._features is not None:
            gradients[0] = pooled(gradients[0], self._features)
            if self._symmetric:
                gradients[0] = 0.5 * (gradients[0] + gradients[0].T)
        stepped = []
        for array, gradient, squares in zip(costs.arrays.values(), gradients, self._squares, strict=True):
            squares += gradient**2
            stepped.append(array * np.exp(-self._rate * gradient / np.sqrt(squares)))
        others = ~np.eye(costs.pairs.shape[0], dtype=bool)
        mean = stepped[0][others].mean()
        pairs = closed(np.where(others, np.clip(stepped[0] / mean, _LEAST, _MOST), 0.0))
        swaps = np.clip(stepped[1] / mean, _LEAST, _MOST).astype(np.float32)
        factors = np.clip(stepped[2], _LEAST_FACTOR, _MOST_FACTOR).astype(np.float32)
        self.costs = Costs(pairs, swaps, factors, costs.both)


def closed(costs: np.ndarray) -> np.ndarray:
    """Return costs of the cheapest ways over any number of symbols (Floyd and Warshall): float32."""
    costs = costs.astype(np.float64)
    for through in range(costs.shape[0]):
        np.minimum(costs, costs[:, through, None] + costs[through], out=costs)
    return np.ascontiguousarray(costs, np.float32)

"""Costs of edits, and their training.

The margin of a query is its distance from the nearest wrong target minus its distance from the correct target (Parker,
Fern and Tadepalli, Learning for efficient retrieval of structured data with noisy queries, ICML 2007, section 2.2). The
loss of a margin is ``log(1 + exp(-margin / scale))``, and its gradient is a weighted count of edits.
"""

from collections.abc import Hashable
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.special import expit
from sklearn.tree import DecisionTreeRegressor

from .. import persistence as files
from .._change import with_progress
from .._words import WORD
from ._alignments import Counts, count_edits
from ._edits import Edits
from ._encoding import Sequences
from ._search import blocks_of, nothing_found, search
from ._spaces import Space, SpaceKind, distances_between

QUERIED, STORED = 0, 1
"""Roles of sequences. Edits delete symbols of the query and insert symbols of the stored sequence."""

_LEAST, _MOST = 1e-3, 1e3  # limits of learned costs, relative to their mean


_MAX_WORDS = 2**23  # maximum size of masks: 64 MB
_LEAVES = 16  # maximum number of groups of edits
_CELLS_AT_ONCE = 1 << 18
_EXACT = 2**24  # float32 represents all integers up to this value


class Costs(NamedTuple):
    """Costs of all edits. Arrays of edits that are not allowed are empty."""

    pairs: np.ndarray  # float32 (n_symbols + 1, n_symbols + 1), last row: insertions, last column: deletions
    swaps: np.ndarray  # float32 (n_symbols, n_symbols), costs of exchanging neighbours
    openings: np.ndarray = np.empty(0, np.float32)  # float32 (2,), costs of opening a run of deletions or insertions
    ends: np.ndarray = np.empty(0, np.float32)  # float32 (1,), cost of skipping a symbol at an end of the query
    normalized: bool = False  # whether distances are divided by the length of the longer sequence
    unit: float = 0.0  # common cost of all edits, or 0 if costs differ

    @classmethod
    def of(cls, *costs: Any) -> Self:
        """Return costs with a computed ``unit``."""
        made = cls(*costs)
        return made._replace(unit=made._cost_of_all())

    def _cost_of_all(self) -> float:
        unit, others = self.pairs[0, -1], ~np.eye(self.pairs.shape[0], dtype=bool)
        if self.openings.size > 0 or self.ends.size > 0:
            return 0.0
        return float(unit) if (self.pairs[others] == unit).all() and (self.swaps == unit).all() else 0.0

    def _least(self, min_gap: float) -> float:
        others = ~np.eye(self.pairs.shape[0] - 1, dtype=bool)
        costs = self.pairs[:-1, :-1][others], self.swaps[others] if self.swaps.size else self.swaps, self.ends
        return float(min(min_gap, *(cost.min(initial=np.inf) for cost in costs)))

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """The arrays of costs."""
        return self.pairs, self.swaps, self.openings, self.ends

    def points(self, sequences: Sequences, side: int) -> Space:
        """Return sequences as points of a space with these costs."""
        longest = int(np.diff(sequences.offsets).max(initial=0))
        of_symbols = self.pairs[:, -1] if side == QUERIED else self.pairs[-1]
        gaps, rows, unit = np.ascontiguousarray(of_symbols[sequences.symbols]), np.empty((0, 0), np.float32), self.unit
        n_words = self.pairs.shape[0] * (longest // WORD + 1)
        if n_words > _MAX_WORDS or unit.as_integer_ratio()[0] * (longest + 1) > _EXACT:
            unit = 0.0
        min_gap = float(np.minimum(self.pairs[-1, :-1], self.pairs[:-1, -1]).min())  # of an insertion or deletion
        edits = Edits(self.pairs, self.swaps, self.openings, self.ends, min_gap, self._least(min_gap), unit)
        return Space(int(SpaceKind.EDIT), longest, *sequences, gaps, self.normalized, edits, rows)

    def no_counts(self, queries: Sequences, stored: Sequences) -> Counts:
        """Return zero counts for all edits."""
        sizes = queries.symbols.size, stored.symbols.size
        shapes = self.pairs.shape, *sizes, self.swaps.shape, self.openings.shape, self.ends.shape
        return Counts(*(np.zeros(shape) for shape in shapes))


def _costs(n_axes: int) -> files.ArrayField:
    return files.ArrayField(np.float32, n_axes=n_axes, bounds=(0, float(np.finfo(np.float32).max)))


COSTS = files.TupleField(
    Costs, pairs=_costs(2), swaps=_costs(2), openings=_costs(1), ends=_costs(1), normalized=files.FlagField()
)


def checked_costs(costs: Costs, n: int, *, normalized: bool) -> Costs:
    """Return costs from a file. Raise ValueError unless they fit a distance and its alphabet of ``n`` symbols."""
    if costs.normalized != normalized:
        raise ValueError("costs must have the parameters of the distance")
    if costs.pairs.shape != (n + 1, n + 1) or costs.swaps.shape not in ((n, n), (0, 0)):
        raise ValueError("pairs and swaps must have one row for each symbol")
    if costs.openings.size not in (0, 2) or costs.ends.size not in (0, 1):
        raise ValueError("openings must have 0 or 2 costs, and ends must have 0 or 1")
    if costs.pairs.diagonal().any():
        raise ValueError("pairs must be 0 on the diagonal")
    return Costs.of(*costs[:-1])


class Learner:
    """AdaGrad optimizer of the logarithms of costs. With ``features``, similar edits take the same step."""

    def __init__(
        self, costs: Costs, symmetric: bool, learning_rate: float, prior: float, features: np.ndarray | None = None
    ) -> None:
        self.costs = costs
        self._symmetric, self._rate, self._features = symmetric, learning_rate, features
        self._squares = [np.full(array.shape, prior**2) for array in costs.arrays]

    def step(self, counts: Counts, queries: Sequences, stored: Sequences) -> None:
        """Update costs from weighted counts of edits. Edits with positive counts become cheaper."""
        costs, gradients = self.costs, [counts.pairs, counts.swaps, counts.openings, counts.ends]
        np.add.at(gradients[0][:, -1], queries.symbols, counts.of_queries)
        np.add.at(gradients[0][-1], stored.symbols, counts.of_stored)
        if self._symmetric:
            gradients = [
                gradients[0] + gradients[0].T,
                gradients[1] + gradients[1].T,
                gradients[2].sum() + np.zeros_like(gradients[2]),
                gradients[3],
            ]
        if self._features is not None:
            gradients[0] = pooled(gradients[0], self._features)
            if self._symmetric:
                gradients[0] = 0.5 * (gradients[0] + gradients[0].T)
        stepped = []
        for array, gradient, squares in zip(costs.arrays, gradients, self._squares, strict=True):
            squares += gradient**2
            stepped.append(array * np.exp(-self._rate * gradient / np.sqrt(squares)))
        others = ~np.eye(costs.pairs.shape[0], dtype=bool)
        mean = stepped[0][others].mean()
        scaled = [np.clip(array / mean, _LEAST, _MOST).astype(np.float32) for array in stepped]
        pairs = closed(np.where(others, scaled[0], 0.0), costs.openings.size > 0)
        self.costs = Costs.of(pairs, *scaled[1:], costs.normalized)


def closed(costs: np.ndarray, opened: bool = False) -> np.ndarray:
    """Return the smallest cost of each replacement by a chain of edits (Floyd-Warshall algorithm): float32.

    With ``opened``, opening a gap has a cost, and chains contain no insertions or deletions.
    """
    costs = costs.astype(np.float64)
    for through in range(costs.shape[0] - opened):
        np.minimum(costs, costs[:, through, None] + costs[through], out=costs)
    return np.ascontiguousarray(costs, np.float32)


# Features of symbols


def symbol_features(symbols: tuple[Hashable, ...]) -> np.ndarray:
    """Return the features of each symbol and, in the last row, the smaller ones of the gap: float32."""
    try:
        rows = np.array([symbol if isinstance(symbol, tuple) else (symbol,) for symbol in symbols])
    except ValueError:
        rows = np.empty(0, object)
    if rows.ndim != 2 or rows.dtype.kind not in "biuf" or not np.isfinite(rows).all():
        raise ValueError("with featured=True, symbols must be finite numbers, or equally long tuples of them")
    rows = rows.astype(np.float32)
    least = rows.min(axis=0)
    return np.vstack([rows, least - 2.0 * (rows.max(axis=0) - least) - 1.0])


def pooled(gradient: np.ndarray, features: np.ndarray) -> np.ndarray:
    """Replace the gradient of each edit by the sum over a group of similar edits.

    Groups are the leaves of a regression tree that predicts gradients from the features of both symbols and their
    differences.
    """
    rows, columns = np.nonzero(gradient)
    if rows.size == 0:
        return gradient
    n, values = features.shape[0], gradient[rows, columns]
    tree = DecisionTreeRegressor(max_leaf_nodes=_LEAVES, random_state=0)
    tree.fit(_described(features, rows, columns), values)
    sums = np.bincount(tree.apply(_described(features, rows, columns)), values, tree.tree_.node_count)
    leaves = np.empty((n, n), np.int64)
    step = max(1, _CELLS_AT_ONCE // n)
    for first in range(0, n, step):
        block = np.arange(first, min(n, first + step))
        cells = np.repeat(block, n), np.tile(np.arange(n), block.size)
        leaves[block] = tree.apply(_described(features, *cells)).reshape(block.size, n)
    return sums[leaves]


def _described(features: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return the features of both symbols of each edit, and their absolute differences."""
    old, new = features[rows], features[columns]
    return np.hstack([old, new, np.abs(old - new)])


_FEW_PAIRS = 1 << 20  # maximum number of pairs that are all compared
_CANDIDATES = 32  # number of candidates per query if there are more pairs
_CHECKED, _MAX_MISSED = 16, 0.1  # queries per round that verify the candidates, and the tolerated failure rate


def learn(
    learner: Learner,
    targets: Sequences,
    queries: Sequences,
    answers: np.ndarray,
    n_rounds: int,
    n_examples: int,
    random: np.random.RandomState,
    verbose: bool,
) -> tuple[Costs, list[float]]:
    """Train costs on up to ``n_examples`` random queries per round. ``answers`` are the positions of their targets.

    Return the costs of the round with the smallest error rate, and the error rate of each round.
    """
    best, least, errors, scale = learner.costs, np.inf, [], 0.0
    wrongs = WrongTargets(learner.costs.points(targets, STORED))
    for _ in with_progress(range(n_rounds), "round", verbose):
        some = np.arange(queries.n)
        if some.size > n_examples:
            some = np.sort(random.permutation(some.size)[:n_examples])
        costs, drawn, right = learner.costs, queries.take(some), answers[some]
        query_points, stored = costs.points(drawn, QUERIED), costs.points(targets, STORED)
        rows = np.arange(some.size)
        wrong, lengths = wrongs.nearest(costs, drawn, stored, right)
        margins = lengths - distances_between(query_points, stored, rows, right)
        errors.append(float(np.mean(margins <= 0.0)))
        if errors[-1] <= least:
            best, least = costs, errors[-1]
        scale = scale or float(np.mean(np.abs(margins))) + 1e-9
        weights = expit(-margins.astype(np.float64) / scale)
        counts, pairs = costs.no_counts(drawn, targets), (np.tile(rows, 2), np.append(right, wrong))
        count_edits(query_points, stored, *pairs, np.append(weights, -weights), counts, np.empty((0, 2), np.int64))
        learner.step(counts, drawn, targets)
    return best, errors


class WrongTargets:
    """Search for the nearest wrong target of each query.

    If there are many pairs, queries are compared only with candidates. A few queries of each round are also compared
    with all targets. If the candidates miss too many nearest targets, all later queries are compared with all targets.
    """

    def __init__(self, targets: Space) -> None:
        self._blocks, self._owners = blocks_of(targets), np.arange(targets.offsets.size - 1)
        self._n_missed = self._n_checked = 0

    def nearest(
        self, costs: Costs, queries: Sequences, stored: Space, answers: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the nearest wrong target of each query and its distance."""
        few = queries.n * self._owners.size <= _FEW_PAIRS
        if few or self._n_missed > _MAX_MISSED * self._n_checked:
            return self._search(costs, queries, stored, answers, 0)
        wrong, lengths = self._search(costs, queries, stored, answers, _CANDIDATES)
        checked = np.unique(np.linspace(0, queries.n - 1, _CHECKED).astype(np.int64))
        least = self._search(costs, queries.take(checked), stored, answers[checked], 0)[1]
        self._n_missed += int(np.count_nonzero(least < lengths[checked]))
        self._n_checked += checked.size
        return wrong, lengths

    def _search(
        self, costs: Costs, queries: Sequences, stored: Space, answers: np.ndarray, n_candidates: int
    ) -> tuple[np.ndarray, np.ndarray]:
        query_points = costs.points(queries, QUERIED)
        found = nothing_found(queries.n, 1)
        search(query_points, stored, self._blocks, self._owners, answers, n_candidates, found)
        return found.ids[:, 0], found.distances[:, 0]

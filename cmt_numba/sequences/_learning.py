"""Training of edit costs.

The margin of a query is its distance from the nearest wrong target minus its distance from the correct target (Parker,
Fern and Tadepalli, Learning for efficient retrieval of structured data with noisy queries, ICML 2007, section 2.2). The
loss of a margin is ``log(1 + exp(-margin / scale))``, and its gradient is a weighted count of edits.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import expit

from .._change import with_progress
from ._alignments import count_edits
from ._costs import QUERIED, STORED, Costs, Learner, Tally
from ._encoding import Sequences
from ._search import blocks_of, nothing_found, search
from ._spaces import Space
from ._vantage import distances_between

_FEW_PAIRS = 1 << 20  # maximum number of pairs that are all compared
_CANDIDATES = 32  # number of candidates per query if there are more pairs
_CHECKED, _MOST_MISSED = 16, 0.1  # queries per round that verify the candidates, and the tolerated failure rate


class QueryExamples(NamedTuple):
    """Queries and their targets."""

    queries: Sequences
    answers: np.ndarray  # int64 (queries,), positions of the targets

    def take(self, positions: np.ndarray) -> QueryExamples:
        """Return the examples at the given positions."""
        return QueryExamples(self.queries.take(positions), self.answers[positions])


class Pulls(NamedTuple):
    """Weighted pairs of sequences. A positive weight makes the edits of the pair cheaper."""

    first: np.ndarray  # int64 (pairs,), positions of the first sequences
    second: np.ndarray  # int64 (pairs,), positions of the second sequences
    weights: np.ndarray  # float64 (pairs,)


def learn(
    learner: Learner,
    targets: Sequences,
    examples: QueryExamples,
    n_rounds: int,
    n_examples: int,
    random: np.random.RandomState,
    verbose: bool,
) -> tuple[Costs, list[float]]:
    """Train costs on up to ``n_examples`` random queries per round.

    Return the costs of the round with the smallest error rate, and the error rate of each round.
    """
    best, least, errors, scale = learner.costs, np.inf, [], 0.0
    wrongs = WrongTargets(learner.costs.points(targets, STORED))
    for _ in with_progress(range(n_rounds), "round", verbose):
        some = np.arange(examples.queries.n)
        if some.size > n_examples:
            some = np.sort(random.permutation(some.size)[:n_examples])
        costs, (queries, answers) = learner.costs, examples.take(some)
        query_points, stored = costs.points(queries, QUERIED), costs.points(targets, STORED)
        rows = np.arange(some.size)
        wrong, lengths = wrongs.nearest(costs, queries, stored, answers)
        margins = lengths - distances_between(query_points, stored, rows, answers)
        errors.append(float(np.mean(margins <= 0.0)))
        if errors[-1] <= least:
            best, least = costs, errors[-1]
        scale = scale or float(np.mean(np.abs(margins))) + 1e-9
        weights = expit(-margins.astype(np.float64) / scale)
        pulls = Pulls(np.tile(rows, 2), np.append(answers, wrong), np.append(weights, -weights))
        learner.step(tally(costs, queries, targets, pulls))
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
        if few or self._n_missed > _MOST_MISSED * self._n_checked:
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
        found = nothing_found(query_points, 1)
        search(query_points, stored, self._blocks, self._owners, answers, n_candidates, found)
        return found.points[:, 0], found.lengths[:, 0]


def tally(costs: Costs, first: Sequences, second: Sequences, pulls: Pulls) -> Tally:
    """Count the edits in optimal alignments."""
    counts, no_steps = costs.no_counts(first, second), np.empty((0, 2), np.int64)
    points = costs.points(first, QUERIED), costs.points(second, STORED)
    count_edits(*points, pulls.first, pulls.second, pulls.weights, counts, no_steps)
    return Tally(counts, first, second)

"""Training of edit costs for accurate results and for efficient search in vantage-point trees.

The accuracy margin of a query is its distance from the nearest wrong target minus its distance from the correct target
(Parker, Fern and Tadepalli, Learning for efficient retrieval of structured data with noisy queries, ICML 2007, section
2.2). An efficiency margin belongs to a node on the path to the correct target in a vantage-point tree. It is the slack
in the triangle inequality that allows a search to skip the node's other child after finding the target (section 3.3).
The loss of a margin is ``log(1 + exp(-margin / scale))``, and its gradient is a weighted count of edits.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import expit

from .._change import with_progress
from ._alignments import count_edits
from ._costs import ASKED, STORED, Costs, Learner, Tally
from ._encoding import Sequences
from ._search import blocks_of, nothing_found, search
from ._spaces import Space
from ._vantage import distances_between, part, power_for

_TOLERANCE = 0.01  # fraction of triples that may violate the triangle inequality
_LEAF_SIZE = 8  # maximum number of points in a leaf
_FEW_PAIRS = 1 << 20  # maximum number of pairs that are all compared
_CANDIDATES = 32  # number of candidates per query if there are more pairs
_CHECKED, _MOST_MISSED = 16, 0.1  # queries per round that verify the candidates, and the tolerated failure rate


class Rounds(NamedTuple):
    """Options of the training rounds."""

    accurate: int  # number of rounds that learn only accuracy
    efficient: int  # number of later rounds that also learn efficiency
    efficiency: float  # weight of efficiency in the gradients of the later rounds
    n_examples: int  # maximum number of queries in a round
    verbose: bool  # whether to show a progress bar


class LearnedCosts(NamedTuple):
    """Learned costs and the errors of all rounds."""

    costs: Costs  # costs of the best round
    errors: list[float]  # error rate of each round
    pruned: list[float]  # weighted fraction of children that can be skipped, for each efficient round


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
    learner: Learner, targets: Sequences, examples: QueryExamples, rounds: Rounds, random: np.random.RandomState
) -> LearnedCosts:
    """Train costs, and return the costs of the round with the smallest error rate or loss."""
    best, least, errors, pruned = learner.costs, np.inf, [], []
    scale, scale_of_paths = 0.0, 0.0
    # The trees of all rounds have the same seed, which makes the losses of rounds comparable.
    seed = random.randint(2**31) if rounds.efficient > 0 else 0
    wrongs = WrongTargets(learner.costs.points(targets, STORED))
    for number in with_progress(range(rounds.accurate + rounds.efficient), "round", rounds.verbose):
        share = rounds.efficiency if number >= rounds.accurate else 0.0
        if number == rounds.accurate:
            learner.costs, least = best, np.inf
        some = np.arange(examples.queries.n)
        if some.size > rounds.n_examples:
            some = np.sort(random.permutation(some.size)[: rounds.n_examples])
        costs, (queries, answers) = learner.costs, examples.take(some)
        query_points, stored = costs.points(queries, ASKED), costs.points(targets, STORED)
        rows = np.arange(some.size)
        wrong, lengths = wrongs.nearest(costs, queries, stored, answers)
        right = distances_between(query_points, stored, rows, answers)
        margins = lengths - right
        errors.append(float(np.mean(margins <= 0.0)))
        scale = scale or float(np.mean(np.abs(margins))) + 1e-9
        weights = (1.0 - share) * expit(-margins.astype(np.float64) / scale)
        pulls = [Pulls(rows, answers, weights), Pulls(rows, wrong, -weights)]
        tallies, loss = [], errors[-1]
        if number >= rounds.accurate:
            generator = np.random.default_rng(seed)
            ways, power = paths(stored, generator).take(answers), power_for(stored, _TOLERANCE, generator)
            lengths = distances_between(query_points, stored, ways.owners, ways.vantages)
            unit = float(np.concatenate([right[ways.owners], lengths, ways.lengths, [1e-9]]).mean()) or 1.0
            margins, slopes = ways.margins(lengths, right, power, unit)
            pruned.append(float(np.average(margins > 0.0, weights=ways.weights)) if margins.size else 0.0)
            loss = (1.0 - share) * loss + share * (1.0 - pruned[-1])
            scale_of_paths = scale_of_paths or (float(np.mean(np.abs(margins))) if margins.size else 0.0) + 1e-9
            weights = unit * share * ways.weights * expit(-margins / scale_of_paths)
            pulls += ways.pulls(weights * slopes, answers)
            tallies = tally(costs, targets, targets, ways.pulls_of_borders(weights * slopes))
        if loss <= least:
            best, least = costs, loss
        together = Pulls(*(np.concatenate(parts) for parts in zip(*pulls, strict=True)))
        learner.step(tally(costs, queries, targets, together) + tallies)
    return LearnedCosts(best, errors, pruned)


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
        query_points = costs.points(queries, ASKED)
        found = nothing_found(query_points, 1)
        search(query_points, stored, self._blocks, self._owners, answers, n_candidates, found)
        return found.points[:, 0], found.lengths[:, 0]


def tally(costs: Costs, first: Sequences, second: Sequences, pulls: Pulls) -> list[Tally]:
    """Count the edits in optimal alignments. With two directions, align each pair in the cheaper direction."""
    one_way, no_steps = costs._replace(both=False), np.empty((0, 2), np.int64)
    ways = [(first, second, pulls)]
    if costs.both:
        ways.append((second, first, Pulls(pulls.second, pulls.first, pulls.weights)))
    spaces = [(one_way.points(queries, ASKED), one_way.points(stored, STORED)) for queries, stored, _ in ways]
    lengths = [
        distances_between(*points, one.first, one.second)
        for points, (_, _, one) in zip(spaces, ways, strict=True)
        if costs.both
    ]
    tallies = []
    for i, (points, (queries, stored, one)) in enumerate(zip(spaces, ways, strict=True)):
        if costs.both:
            shorter = lengths[0] <= lengths[1]
            one = Pulls(*(part[shorter if i == 0 else ~shorter] for part in one))
        counts = one_way.no_counts(queries, stored)
        count_edits(*points, one.first, one.second, one.weights, counts, no_steps)
        tallies.append(Tally(counts, queries, stored))
    return tallies


class Paths(NamedTuple):
    """Paths from the root of a vantage-point tree to points, with a row for each point and each node above it."""

    owners: np.ndarray  # int64 (rows,), the point, ascending
    vantages: np.ndarray  # int64 (rows,), vantage point of the node
    borders: np.ndarray  # int64 (rows,), point of the other child that is nearest to the border between the children
    lengths: np.ndarray  # float64 (rows,), distance between vantage point and border point
    signs: np.ndarray  # float64 (rows,), 1 if the point is in the far child, -1 if it is in the near child
    weights: np.ndarray  # float64 (rows,), 2 ** -depth of the node

    def take(self, points: np.ndarray) -> Paths:
        """Return the paths to the given points. Owners become positions in ``points``."""
        starts, stops = np.searchsorted(self.owners, points), np.searchsorted(self.owners, points, side="right")
        counts = stops - starts
        rows = np.arange(counts.sum()) + np.repeat(starts - (np.cumsum(counts) - counts), counts)
        return Paths(np.repeat(np.arange(points.size), counts), *(array[rows] for array in self[1:]))

    def margins(
        self, lengths: np.ndarray, right: np.ndarray, power: float, unit: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the efficiency margin of each row, and the derivatives of the three powers in the margin.

        ``lengths`` contains the distance between query and vantage point for each row. ``right`` contains the distance
        between query and target for each owner. Distances are divided by ``unit`` and raised to ``power``.
        """
        sides = np.stack([right[self.owners], lengths, self.lengths]).astype(np.float64) / unit
        sides = np.maximum(sides, 1e-3)  # limits the derivatives of powers below 1
        raised = sides**power
        return self.signs * (raised[1] - raised[2]) - raised[0], power * sides ** (power - 1.0) / unit

    def pulls(self, weights: np.ndarray, answers: np.ndarray) -> list[Pulls]:
        """Return the pulls of queries to targets and vantage points that increase the margins."""
        meant = Pulls(self.owners, answers[self.owners], weights[0])
        return [meant, Pulls(self.owners, self.vantages, -self.signs * weights[1])]

    def pulls_of_borders(self, weights: np.ndarray) -> Pulls:
        """Return the pulls of vantage points to border points that increase the margins."""
        return Pulls(self.vantages, self.borders, self.signs * weights[2])


def paths(space: Space, random: np.random.Generator) -> Paths:
    """Build a vantage-point tree and return the paths to all points."""
    found = [Paths(*(np.empty(0, kind) for kind in (np.int64, np.int64, np.int64, float, float, float)))]
    waiting = [(np.arange(space.offsets.size - 1), 1)]
    while waiting:
        points, depth = waiting.pop()
        if points.size <= _LEAF_SIZE:
            continue
        parted = part(space, points, random)
        half = parted.half
        for sign, members, border in ((-1.0, parted.points[:half], half), (1.0, parted.points[half:], half - 1)):
            waiting.append((members, depth + 1))
            if border < parted.points.size:
                row = parted.vantage, parted.points[border], parted.distances[border], sign, 0.5**depth
                found.append(Paths(members, *(np.full(members.size, value) for value in row)))
    joined = [np.concatenate(arrays) for arrays in zip(*found, strict=True)]
    order = np.argsort(joined[0], kind="stable")
    return Paths(*(array[order] for array in joined))

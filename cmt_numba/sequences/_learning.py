"""Learns the costs of edits from margins of distances, and from the parts that a vantage-point tree can skip.

The accuracy of a query has the margin of its distance from the nearest wrong target over that from the right one
(Parker, Fern and Tadepalli, Learning for efficient retrieval of structured data with noisy queries, ICML 2007, section
2.2). The efficiency has a margin for each node on the path to the right target in a vantage-point tree: the slack of
the triangle inequality for skipping the other part of the node once the right target is found (section 3.3). Both have
losses ``log(1 + exp(-margin / scale))``, whose gradients are weighted counts of edits.
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

_TOLERANCE = 0.01  # share of triples that may violate the triangle inequality, when the power of distances is chosen
_LEAF_SIZE = 8  # points in a leaf of the tree
_FEW_PAIRS = 1 << 20  # pairs that are all compared in a round
_CANDIDATES = 32  # targets compared with a query if there are more
_CHECKED, _MOST_MISSED = 16, 0.1  # queries of a round that check the candidates, and the share that may fail


class Rounds(NamedTuple):
    """Numbers of rounds, and of examples in each."""

    accurate: int  # rounds that learn accuracy alone
    efficient: int  # later rounds that also learn efficiency
    efficiency: float  # weight of efficiency in the gradients of these later rounds
    n_examples: int  # maximum for a round
    verbose: bool  # whether to show a progress bar


class LearnedCosts(NamedTuple):
    """The learned costs, and the errors of all rounds."""

    costs: Costs  # costs of the best round
    errors: list[float]  # error of each round
    pruned: list[float]  # for each efficient round, the weighted share of parts that can be skipped


class QueryExamples(NamedTuple):
    """Queries and their targets."""

    queries: Sequences
    answers: np.ndarray  # int64 (queries,)

    def take(self, positions: np.ndarray) -> QueryExamples:
        """Return some examples."""
        return QueryExamples(self.queries.take(positions), self.answers[positions])


class Pulls(NamedTuple):
    """Weighted pairs of sequences. A positive weight makes the edits between them cheaper."""

    first: np.ndarray
    second: np.ndarray
    weights: np.ndarray


def learn(
    learner: Learner, targets: Sequences, examples: QueryExamples, rounds: Rounds, random: np.random.RandomState
) -> LearnedCosts:
    """Return the costs of the round with the least error, or of the efficient round with the least loss."""
    best, least, errors, pruned = learner.costs, np.inf, [], []
    scale, scale_of_paths = 0.0, 0.0
    seed = (
        random.randint(2**31) if rounds.efficient > 0 else 0
    )  # the same for all trees, so that the losses of rounds are comparable
    wrongs = WrongTargets(learner.costs.points(targets, STORED))
    for number in with_progress(range(rounds.accurate + rounds.efficient), "round", rounds.verbose):
        share = rounds.efficiency if number >= rounds.accurate else 0.0
        if number == rounds.accurate:
            learner.costs, least = best, np.inf
        some = np.arange(examples.queries.n)
        if some.size > rounds.n_examples:
            some = np.sort(random.permutation(some.size)[: rounds.n_examples])
        costs, (queries, answers) = learner.costs, examples.take(some)
        asked, stored = costs.points(queries, ASKED), costs.points(targets, STORED)
        rows = np.arange(some.size)
        wrong, lengths = wrongs.nearest(costs, queries, stored, answers)
        right = distances_between(asked, stored, rows, answers)
        margins = lengths - right
        errors.append(float(np.mean(margins <= 0.0)))
        scale = scale or float(np.mean(np.abs(margins))) + 1e-9
        weights = (1.0 - share) * expit(-margins.astype(np.float64) / scale)
        pulls = [Pulls(rows, answers, weights), Pulls(rows, wrong, -weights)]
        tallies, loss = [], errors[-1]
        if number >= rounds.accurate:
            generator = np.random.default_rng(seed)
            ways, power = paths(stored, generator).take(answers), power_for(stored, _TOLERANCE, generator)
            lengths = distances_between(asked, stored, ways.owners, ways.vantages)
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
    """Finds the nearest wrong targets of queries, among candidates if there are very many pairs.

    Some queries of each round are also compared with all targets. If candidates miss too often, every query is.
    """

    def __init__(self, targets: Space) -> None:
        self._blocks, self._owners = blocks_of(targets), np.arange(targets.offsets.size - 1)
        self._n_missed = self._n_checked = 0

    def nearest(
        self, costs: Costs, queries: Sequences, stored: Space, answers: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the nearest target of each query other than its answer, and the distance."""
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
        asked = costs.points(queries, ASKED)
        found = nothing_found(asked, 1)
        search(asked, stored, self._blocks, self._owners, answers, n_candidates, found)
        return found.points[:, 0], found.lengths[:, 0]


def tally(costs: Costs, first: Sequences, second: Sequences, pulls: Pulls) -> list[Tally]:
    """Count the edits of best alignments. If the costs use both directions, align each pair in the nearer one."""
    one_way, no_steps = costs._replace(both=False), np.empty((0, 2), np.int64)
    ways = [(first, second, pulls)]
    if costs.both:
        ways.append((second, first, Pulls(pulls.second, pulls.first, pulls.weights)))
    spaces = [(one_way.points(asked, ASKED), one_way.points(stored, STORED)) for asked, stored, _ in ways]
    lengths = [
        distances_between(*points, one.first, one.second)
        for points, (_, _, one) in zip(spaces, ways, strict=True)
        if costs.both
    ]
    tallies = []
    for i, (points, (asked, stored, one)) in enumerate(zip(spaces, ways, strict=True)):
        if costs.both:
            shorter = lengths[0] <= lengths[1]
            one = Pulls(*(part[shorter if i == 0 else ~shorter] for part in one))
        counts = one_way.no_counts(asked, stored)
        count_edits(*points, one.first, one.second, one.weights, counts, no_steps)
        tallies.append(Tally(counts, asked, stored))
    return tallies


class Paths(NamedTuple):
    """The nodes above each point of a vantage-point tree: a row for each point and node, sorted by point."""

    owners: np.ndarray  # int64 (rows,): the points
    vantages: np.ndarray  # int64 (rows,)
    borders: np.ndarray  # int64 (rows,): the point of the other part that is nearest to the border
    lengths: np.ndarray  # float64 (rows,): of borders from vantages
    signs: np.ndarray  # float64 (rows,): 1 for a point in the far part, -1 in the near one
    weights: np.ndarray  # float64 (rows,): 2 ** -depth

    def take(self, points: np.ndarray) -> Paths:
        """Return the nodes above some points. Their owners are positions in ``points``."""
        starts, stops = np.searchsorted(self.owners, points), np.searchsorted(self.owners, points, side="right")
        counts = stops - starts
        rows = np.arange(counts.sum()) + np.repeat(starts - (np.cumsum(counts) - counts), counts)
        return Paths(np.repeat(np.arange(points.size), counts), *(array[rows] for array in self[1:]))

    def margins(
        self, lengths: np.ndarray, right: np.ndarray, power: float, unit: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the margins for skipping the other parts, and the derivatives of their three powers.

        ``lengths`` are the distances of queries from vantage points, ``right`` those from their targets, by owner.
        Powers are of distances divided by ``unit``.
        """
        sides = np.stack([right[self.owners], lengths, self.lengths]).astype(np.float64) / unit
        sides = np.maximum(sides, 1e-3)  # keeps powers below 1 from being too steep
        raised = sides**power
        return self.signs * (raised[1] - raised[2]) - raised[0], power * sides ** (power - 1.0) / unit

    def pulls(self, weights: np.ndarray, answers: np.ndarray) -> list[Pulls]:
        """Return the pulls between queries and their targets and vantage points that widen the margins."""
        meant = Pulls(self.owners, answers[self.owners], weights[0])
        return [meant, Pulls(self.owners, self.vantages, -self.signs * weights[1])]

    def pulls_of_borders(self, weights: np.ndarray) -> Pulls:
        """Return the pulls between vantage points and borders."""
        return Pulls(self.vantages, self.borders, self.signs * weights[2])


def paths(space: Space, random: np.random.Generator) -> Paths:
    """Build a vantage-point tree and return the nodes above each point."""
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

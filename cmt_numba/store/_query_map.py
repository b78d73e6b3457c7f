"""A linear map of dense queries, learned from rewards.

Queries may differ systematically from their answers, for example in length or in the features that matter. A linear map
corrects the differences that all queries share. Stored vectors do not change.

For a query ``x``, let ``p`` be the probability that a shown memory ``z`` is the answer (a softmax of the cosines), and
``q`` its fraction of the rewards. The sum ``G`` of ``(q - p) z x^T`` over all queries and shown memories is the
gradient of the log-likelihood with respect to the map, at the identity. A Newton step with a prior yields
the map ``I + s G (A + c I)^-1``, where ``A`` is the sum of ``x x^T``. The sums do not depend on the order of the
queries, and no query is stored.

A quarter of the queries is held out to choose the strength ``s``. Queries are mapped only if some strength
significantly improves the results of the held-out queries.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

WIDEST = 512
"""The maximum width of queries to map. A map has a square matrix of this width."""

_STRENGTHS = np.array([1.0, 3.0, 10.0, 30.0])
_STEEPNESS = 20.0  # steepness of the softmax, per unit of the cosine
_PRIOR = 1.0  # ratio of the prior to the mean squared feature
_KEPT = 0.999  # decay of earlier trials with each new one, because maps improve
_DEVIATIONS = 2.0  # required gain in log-likelihood, in standard errors
_TOLERATED = 1.0  # tolerated loss in the reward of the first result, in standard errors
_FEWEST = 20  # minimum number of held-out queries before queries are mapped
_TINY = np.float32(1e-38)
_ROWS_IN_A_BLOCK = 256  # rows evaluated with the same maps
_HELD_OUT = 0.25
_N_COLUMNS = 5  # columns of ``trials``


class RewardedQueries(NamedTuple):
    """Queries and the memories shown for them, all of unit length."""

    asked: np.ndarray  # float (n, n_features)
    shown: np.ndarray  # float (n, k, n_features)
    rewards: np.ndarray  # float (n, k), NaN where there is no memory


class QueryMap:
    """A learned map of queries.

    Parameters
    ----------
    sums : ndarray of float32, shape (2, n_features, n_features)
        The gradient ``G`` and the sum ``A``.
    trials : ndarray of float64, shape (n_strengths, 5)
        For each strength: the number of held-out queries, the sum of their gains in log-likelihood, the sum of the
        squared gains, and both sums for the gains in the reward of the first result.
    """

    def __init__(self, sums: np.ndarray, trials: np.ndarray) -> None:
        self.sums, self.trials = sums, trials
        strength = self._best()
        self.matrix = None if strength == 0.0 else (strength * self._step()).astype(np.float32)

    @classmethod
    def untaught(cls, n_features: int) -> QueryMap:
        """Return an untrained map."""
        return cls(np.zeros((2, n_features, n_features), np.float32), np.zeros((_STRENGTHS.size, _N_COLUMNS)))

    @classmethod
    def read(cls, contents: Any, n_features: int | None) -> QueryMap:
        """Return a map from the bytes that :meth:`written` returned.

        Raises
        ------
        ValueError
            If the contents are invalid, or belong to queries of another width.
        """
        n_trials = _N_COLUMNS * _STRENGTHS.size
        if n_features is None or not isinstance(contents, bytes) or len(contents) != 8 * (n_trials + n_features**2):
            raise ValueError("the query map does not match the vectors")
        trials = np.frombuffer(contents, "<f8", n_trials).reshape(-1, _N_COLUMNS)
        sums = np.frombuffer(contents, "<f4", offset=8 * n_trials).reshape(2, n_features, n_features)
        if not (np.isfinite(trials).all() and np.isfinite(sums).all()):
            raise ValueError("the query map is not finite")
        return cls(sums.astype(np.float32), trials.astype(np.float64))

    def written(self) -> bytes:
        """Return the map as bytes."""
        return self.trials.astype("<f8").tobytes() + self.sums.astype("<f4").tobytes()

    def mapped(self, X: np.ndarray) -> np.ndarray:
        """Return mapped queries as float32. Their lengths change."""
        if self.matrix is None:
            return X
        X = X / np.maximum(np.abs(X).max(axis=1, keepdims=True), _TINY)  # avoids overflow
        return X + X @ self.matrix.T

    def taught(self, lesson: RewardedQueries) -> QueryMap:
        """Return the map after learning from additional queries."""
        sums, trials = self.sums.astype(np.float64), self.trials.copy()
        for first in range(0, len(lesson.asked), _ROWS_IN_A_BLOCK):
            some = _comparable(RewardedQueries(*(part[first : first + _ROWS_IN_A_BLOCK] for part in lesson)))
            held_out = _are_held_out(some.asked)
            if sums[0].any():
                _try(trials, QueryMap(sums, trials)._step(), RewardedQueries(*(part[held_out] for part in some)))
            asked, shown, rewards = (part[~held_out] for part in some)
            pulls = np.einsum("ij,ijf->if", _weights(rewards) - _chances(asked, shown, rewards), shown)
            sums += pulls.T @ asked, asked.T @ asked
        return QueryMap(sums.astype(np.float32), trials)

    def _step(self) -> np.ndarray:
        """Return the map at strength 1, minus the identity matrix."""
        gradient, squares = self.sums.astype(np.float64)
        prior = _PRIOR * (1.0 + np.trace(squares) / len(squares))
        step: np.ndarray = np.linalg.solve(squares + prior * np.eye(len(squares)), gradient.T).T
        return step

    def _best(self) -> float:
        """Return the best strength, or 0 if no strength is significantly better than no map."""
        n = np.maximum(self.trials[:, 0], 1.0)
        gain, square, first, first_square = self.trials[:, 1:].T / n
        error, first_error = (np.sqrt(it / n) for it in (square, first_square))
        helps = (n >= _FEWEST) & (gain > _DEVIATIONS * error) & (first >= -_TOLERATED * first_error)
        return float(_STRENGTHS[np.argmax(np.where(helps, gain, 0.0))]) if helps.any() else 0.0


def _comparable(lesson: RewardedQueries) -> RewardedQueries:
    """Return the queries whose rewards are not all equal."""
    rewards = lesson.rewards
    some = np.flatnonzero(np.nanmax(rewards, axis=1, initial=0.0) > np.nanmin(rewards, axis=1, initial=1.0))
    return RewardedQueries(*(part[some] for part in lesson))


def _are_held_out(asked: np.ndarray) -> np.ndarray:
    """Return a mask of held-out queries. A hash of the query decides, so equal queries are treated alike."""
    factors = np.random.default_rng(0).integers(0, 2**32, asked.shape[1], dtype=np.uint32) | np.uint32(1)
    words = np.ascontiguousarray(asked, np.float32).view(np.uint32)
    sums = (words * factors).sum(axis=1, dtype=np.uint32)
    held_out: np.ndarray = sums < _HELD_OUT * 2**32
    return held_out


def _weights(rewards: np.ndarray) -> np.ndarray:
    """Divide the rewards of each row by their sum. The result is 0 where there is no memory."""
    there = np.nan_to_num(rewards)
    shares: np.ndarray = there / there.sum(axis=1, keepdims=True)
    return shares


def _chances(asked: np.ndarray, shown: np.ndarray, rewards: np.ndarray) -> np.ndarray:
    """Return the probability that each shown memory is the answer: a softmax of cosines."""
    scores = _STEEPNESS * np.einsum("if,ijf->ij", asked, shown)
    scores = np.where(np.isnan(rewards), -np.inf, scores)
    chances = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares: np.ndarray = chances / chances.sum(axis=1, keepdims=True)
    return shares


def _try(trials: np.ndarray, step: np.ndarray, lesson: RewardedQueries) -> None:
    """Evaluate maps of all strengths on held-out queries, and add the results to ``trials``."""
    if len(lesson.asked) == 0:
        return
    shares = _weights(lesson.rewards)

    def likelihoods(asked: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        chances = _chances(asked / np.linalg.norm(asked, axis=1, keepdims=True), lesson.shown, lesson.rewards)
        first = np.take_along_axis(lesson.rewards, chances.argmax(axis=1)[:, None], axis=1)[:, 0]
        return (shares * np.log(np.maximum(chances, 1e-9))).sum(axis=1), first

    own, own_first = likelihoods(lesson.asked)
    trials *= _KEPT ** len(own)
    for i, strength in enumerate(_STRENGTHS):
        found, first = likelihoods(lesson.asked + strength * lesson.asked @ step.T)
        gain, gain_of_first = found - own, first - own_first
        trials[i] += len(gain), *(np.sum(it**power) for it in (gain, gain_of_first) for power in (1, 2))

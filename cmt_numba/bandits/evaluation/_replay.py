"""Replay evaluation of learning policies (Li et al., 2010, Algorithm 3)."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._validation import check_integer
from .._checks import generator_of
from ._estimators import Estimate, checked_range
from ._logs import Log

_FARTHEST = 256  # maximum number of rows in a call of act


@dataclass(frozen=True, repr=False)
class Replay:
    """Result of a replay: the rows of a log in which a policy chose the logged action."""

    rows: np.ndarray
    """Indices of these rows (int64, shape (m,))."""
    rewards: np.ndarray
    """Rewards of these rows (float64, shape (m,))."""
    n_seen: int
    """Number of rows that were read."""

    def __repr__(self) -> str:
        return f"Replay(value {self.value:.4g}, from {self.rows.size:,} of {self.n_seen:,} rows)"

    @property
    def value(self) -> float:
        """Mean reward, or NaN if no row was used."""
        return float(self.rewards.mean()) if self.rewards.size else float("nan")

    def estimate(self, reward_range: tuple[float, float] = (0.0, 1.0)) -> Estimate:
        """Return the mean reward as an :class:`Estimate`. Its intervals are valid if the policy does not learn."""
        if self.rewards.size == 0:
            raise ValueError("cannot estimate the mean reward: the policy never chose the logged action")
        ones, bounds = np.ones(self.rewards.size), checked_range(reward_range, self.rewards)
        return Estimate("replay", self.value, self.rewards, ones, bounds, bounds)


def replay(policy: Any, log: Log, *, learn: bool = True, n_rewards: int | None = None, random_state: Any = 0) -> Replay:
    """Evaluate a policy on the rows of a log in which it chooses the logged action.

    If the logged actions were chosen uniformly, the kept rows have the same distribution as decisions of the policy
    itself (Li et al., 2010, Algorithm 3). If propensities differ, a row is kept only with probability ``p_min / p``,
    where ``p`` is its propensity and ``p_min`` is the smallest propensity in the log. This makes all actions equally
    frequent.

    Parameters
    ----------
    policy : object
        An object with ``act(contexts, actions)`` and ``learn(contexts, actions, rewards, propensities)``, such as a
        policy of :mod:`cmt_numba.bandits`. The policy is modified, so pass a new policy or a copy.
    log : Log
        The log. If it has no propensities, its actions must have been chosen uniformly among the allowed actions.
    learn : bool, default True
        Whether the policy learns from the kept rows.
    n_rewards : int, optional
        Maximum number of kept rows.
    random_state : int or numpy.random.SeedSequence, default 0
        Random seed for dropping rows.
    """
    wanted = len(log) if n_rewards is None else check_integer("n_rewards", n_rewards, 1)
    usable = _usable(log, generator_of(random_state, "replay"))
    kept: list[int] = []
    contexts = np.ones((len(log), 1)) if log.contexts is None else log.contexts
    first, ahead = 0, 1
    while first < len(log) and len(kept) < wanted:
        stop = min(first + ahead, len(log))
        actions, propensities = policy.act(contexts[first:stop], log.allowed_between(first, stop))
        same = np.flatnonzero((actions == log.actions[first:stop]) & usable[first:stop])
        same = same[: 1 if learn else wanted - len(kept)]  # learning invalidates later choices
        kept.extend(int(i) for i in first + same)
        if learn and same.size:
            row = slice(kept[-1], kept[-1] + 1)
            policy.learn(contexts[row], log.actions[row], log.rewards[row], propensities[same])
            stop = kept[-1] + 1
        first = stop
        ahead = _FARTHEST if not learn else min(_FARTHEST, max(1, first // max(1, len(kept))))
    rows = np.array(kept, np.int64)
    return Replay(rows, log.rewards[rows], first)


def _usable(log: Log, rng: np.random.Generator) -> np.ndarray:
    """Return a random mask of rows in which all actions are equally frequent."""
    if log.propensities is None or np.ptp(log.propensities) <= 1e-12:
        return np.ones(len(log), np.bool_)
    return rng.random(len(log)) * log.propensities < log.propensities.min()

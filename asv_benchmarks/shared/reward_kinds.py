"""Kinds of rewards as users give them: clean, noisy, rare, of several memories together, or without any information."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

_EXAMINED = np.array(
    [1.0, 0.6, 0.45, 0.35, 0.3]
)  # probability that a user looks at each place, from the fifth on the last


class RewardKind(NamedTuple):
    """A function from whether each shown memory was right, shape (n, k), to rewards, and the share of rewarded queries.

    Rewards of shape (n,) are one outcome for all memories that were shown. With ``of_queries``, the function gets
    whether a query is easy in the place of whether memories were right.
    """

    rewards: Callable[[np.ndarray, np.random.Generator], np.ndarray]
    share: float = 1.0
    of_queries: bool = False


def _flipped(share: float) -> RewardKind:
    return RewardKind(lambda right, rng: np.abs(right - (rng.random(right.shape) < share)))


def _clicks(right: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    places = np.minimum(np.arange(right.shape[1]), _EXAMINED.size - 1)
    return right * (rng.random(right.shape) < _EXAMINED[places])


KINDS = {
    "clean": RewardKind(lambda right, rng: right),
    "flipped 0.1": _flipped(0.1),
    "flipped 0.2": _flipped(0.2),
    "flipped 0.3": _flipped(0.3),
    "clicks": RewardKind(_clicks),
    "weak": RewardKind(lambda right, rng: (rng.random(right.shape) < 0.4 + 0.2 * right).astype(float)),
    "from 0.6": RewardKind(lambda right, rng: 0.6 + 0.4 * right),
    "to 0.4": RewardKind(lambda right, rng: 0.4 * right),
    "weak outcome": RewardKind(
        lambda right, rng: (rng.random(len(right)) < 0.4 + 0.2 * right.max(axis=1)).astype(float)
    ),
    "outcome": RewardKind(lambda right, rng: right.max(axis=1)),
    "rare outcome": RewardKind(lambda right, rng: right.max(axis=1), share=0.15),
    "all 1": RewardKind(lambda right, rng: np.ones_like(right)),
    "all 0": RewardKind(lambda right, rng: np.zeros_like(right)),
    "all 0.5": RewardKind(lambda right, rng: np.full_like(right, 0.5)),
    "easy queries": RewardKind(
        lambda easy, rng: (rng.random(easy.shape) < 0.1 + 0.8 * easy).astype(float), of_queries=True
    ),
    "coins": RewardKind(lambda right, rng: rng.integers(0, 2, right.shape).astype(float)),
    "outcome 1": RewardKind(lambda right, rng: np.ones(len(right))),
}
"""Kinds of rewards by name. The last six say nothing about memories."""

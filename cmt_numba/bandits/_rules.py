"""How estimates become probabilities of actions. Pairs are grouped by rows: ``offsets`` says where each row's begin."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from scipy.special import ndtr

from ._choosing import draw_pairs, share_best

_CELLS = 512  # of the numerical integration of Thompson sampling
_REACH = 6.0  # standard deviations beyond which a score is impossible


def rows_of(offsets: np.ndarray) -> np.ndarray:
    """Return the row of each pair."""
    return np.arange(offsets.size - 1).repeat(offsets[1:] - offsets[:-1])


def uniform(offsets: np.ndarray) -> np.ndarray:
    """Return the same probability for all actions of a row."""
    sizes = np.diff(offsets)
    return np.repeat(1.0 / sizes, sizes)


def greedy(scores: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return the probabilities of choosing one of the best actions at random."""
    probabilities = np.empty(scores.size)
    share_best(scores, offsets, probabilities)
    return probabilities


def mixed(probabilities: np.ndarray, offsets: np.ndarray, epsilon: float) -> np.ndarray:
    """Return the probabilities of exploring uniformly with probability ``epsilon``."""
    return (1.0 - epsilon) * probabilities + epsilon * uniform(offsets) if epsilon > 0.0 else probabilities


def inverse_gaps(scores: np.ndarray, offsets: np.ndarray, gamma: float) -> np.ndarray:
    """Return probabilities inversely proportional to the gap to the best action (SquareCB)."""
    rows = rows_of(offsets)
    best = np.maximum.reduceat(scores, offsets[:-1])[rows]
    probabilities = 1.0 / (np.diff(offsets)[rows] + gamma * (best - scores))
    rest = np.maximum(1.0 - np.add.reduceat(probabilities, offsets[:-1]), 0.0)
    result: np.ndarray = probabilities + rest[rows] * greedy(scores, offsets)
    return result


def thompson(means: np.ndarray, deviations: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return the probability that each action has the largest score, if scores are independent and normal.

    This is the integral of the density of the action's score times the probabilities that all others are smaller, by
    the midpoint rule.
    """
    probabilities = np.empty(means.size)
    for a, b in pairwise(offsets):
        probabilities[a:b] = _largest(means[a:b], deviations[a:b])
    return probabilities


def _largest(means: np.ndarray, deviations: np.ndarray) -> np.ndarray:
    deviations = np.maximum(deviations, 1e-12 * max(1.0, float(np.abs(means).max())))
    low, high = (means - _REACH * deviations).max(), (means + _REACH * deviations).max()
    edges = np.linspace(low, high, _CELLS + 1)
    middles = (edges[1:] + edges[:-1]) / 2.0
    inside = np.diff(ndtr((edges - means[:, None]) / deviations[:, None]), axis=1)
    below = np.log(np.maximum(ndtr((middles - means[:, None]) / deviations[:, None]), 1e-300))
    masses = np.einsum("ac,ac->a", inside, np.exp(np.minimum(below.sum(axis=0) - below, 0.0)))
    result: np.ndarray = masses / masses.sum()
    return result


def draw(probabilities: np.ndarray, offsets: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
    """Return the pair that each row draws, given a number in [0, 1) for each row. It has a positive probability."""
    drawn = np.empty(offsets.size - 1, np.int64)
    draw_pairs(probabilities, offsets, uniforms, drawn)
    return drawn

"""Rules that convert estimated rewards to probabilities. Row ``i`` has the pairs ``offsets[i]:offsets[i + 1]``."""

import math
from itertools import pairwise

import numpy as np
from scipy.special import ndtr

from ._reward_kernels import draw_pairs, share_best

_FEW = 10  # maximum size of arrays that are drawn number by number
_REACH = 8.0  # densities are treated as 0 beyond this number of standard deviations
_MIN_DEVIATION = 1e-13  # smallest deviation relative to the largest mean, about the rounding error
_LONGEST = 2.0  # maximum length of a quadrature interval, in standard deviations
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)  # Gauss-Legendre rule on [-1, 1]


def rows_of(offsets: np.ndarray) -> np.ndarray:
    """Return the row index of each pair."""
    return np.arange(offsets.size - 1).repeat(offsets[1:] - offsets[:-1])


def greedy(scores: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return equal probabilities for the best-scored pairs of each row, and 0 for its other pairs."""
    probabilities = np.empty(scores.size)
    share_best(scores, offsets, probabilities)
    return probabilities


def mixed(probabilities: np.ndarray, offsets: np.ndarray, epsilon: float) -> np.ndarray:
    """Mix probabilities with the uniform distribution, which has weight ``epsilon``."""
    sizes = np.diff(offsets)
    return (1.0 - epsilon) * probabilities + epsilon * np.repeat(1.0 / sizes, sizes) if epsilon > 0.0 else probabilities


def inverse_gaps(scores: np.ndarray, offsets: np.ndarray, gamma: float) -> np.ndarray:
    """Return the probabilities of SquareCB, in which gaps have the weight ``gamma``."""
    rows = rows_of(offsets)
    best = np.maximum.reduceat(scores, offsets[:-1])[rows]
    probabilities = 1.0 / (np.diff(offsets)[rows] + gamma * (best - scores))
    rest = np.maximum(1.0 - np.add.reduceat(probabilities, offsets[:-1]), 0.0)
    return probabilities + rest[rows] * greedy(scores, offsets)


def thompson(means: np.ndarray, deviations: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return the probability that each pair has the largest score of its row, for independent normal scores.

    Gauss-Legendre quadrature integrates the density of a score times the probability that all other scores are smaller.
    An interval is at most twice as long as the smallest standard deviation of the densities that reach the interval, so
    the result is accurate even if standard deviations differ by orders of magnitude.
    """
    probabilities = np.empty(means.size)
    for a, b in pairwise(offsets):
        probabilities[a:b] = _largest(means[a:b], deviations[a:b])
    return probabilities


def _largest(means: np.ndarray, deviations: np.ndarray) -> np.ndarray:
    scale = max(float(np.abs(means).max()), float(deviations.max())) or 1.0
    means, deviations = means / scale, np.maximum(deviations / scale, _MIN_DEVIATION)
    lows = means - _REACH * deviations
    first = int(np.argmax(lows))  # this density has the largest lower end, which the largest score exceeds
    centers = means - means[first] + _REACH * deviations[first]
    highs = centers + _REACH * deviations
    possible = np.flatnonzero(highs > 0.0)
    centers, deviations = centers[possible], deviations[possible]
    edges = _edges(highs[possible], deviations)
    middles, halves = (edges[1:] + edges[:-1]) / 2.0, np.diff(edges) / 2.0
    points = (middles[:, None] + halves[:, None] * _NODES).reshape(-1)
    standard = (points - centers[:, None]) / deviations[:, None]
    below = np.log(ndtr(standard))
    others = np.exp(below.sum(axis=0) - below - 0.5 * standard * standard)
    masses = (others @ (halves[:, None] * _WEIGHTS).reshape(-1)) / deviations
    probabilities = np.zeros(means.size)
    probabilities[possible] = masses / masses.sum()
    return probabilities


def _edges(highs: np.ndarray, deviations: np.ndarray) -> np.ndarray:
    """Return the edges of quadrature intervals from 0 to the largest of ``highs``, the upper ends of densities.

    All densities begin below 0, so a density reaches a point if its upper end lies above the point.
    """
    order = np.argsort(highs)
    stops = highs[order]
    narrowest = np.minimum.accumulate(deviations[order][::-1])[::-1]
    changes = np.flatnonzero(np.diff(narrowest, append=np.inf))  # positions where the narrowest deviation changes
    edges, start = [np.zeros(1)], 0.0
    for stop, width in zip(stops[changes].tolist(), narrowest[changes].tolist(), strict=True):
        n = max(1, round((stop - start) / (_LONGEST * width) + 0.5))
        edges.append(start + (stop - start) * np.arange(1, n + 1) / n)
        start = stop
    return np.concatenate(edges)


def draw(probabilities: np.ndarray, offsets: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
    """Draw a pair with positive probability in each row, from one uniform number in [0, 1) per row."""
    drawn = np.empty(offsets.size - 1, np.int64)
    draw_pairs(probabilities, offsets, uniforms, drawn)
    return drawn


def uniform_numbers(generator: np.random.Generator, *shape: int) -> np.ndarray:
    """Return uniform numbers in [0, 1). Small arrays are drawn without releasing the interpreter lock."""
    n = math.prod(shape)
    if n > _FEW:
        return generator.random(shape)
    return np.array([generator.random() for _ in range(n)]).reshape(shape)

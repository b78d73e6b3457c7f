"""Confidence intervals of means."""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtri

_LEAST, _MOST = 1e-300, 1.0 - 1e-16  # probabilities whose logarithms are finite

METHODS = ("bernstein", "chernoff", "bootstrap", "normal")


def normal(values: np.ndarray, confidence: float) -> tuple[float, float]:
    """Return the interval of the central limit theorem."""
    half = float(ndtri(0.5 + confidence / 2.0)) * float(values.std(ddof=1)) / math.sqrt(values.size)
    return float(values.mean()) - half, float(values.mean()) + half


def bernstein(values: np.ndarray, low: float, high: float, confidence: float) -> tuple[float, float]:
    """Return the interval of the empirical Bernstein bound, for values in ``[low, high]`` (Maurer and Pontil, 2009)."""
    n, log = values.size, math.log(4.0 / (1.0 - confidence))  # half of the error probability on each side
    half = math.sqrt(2.0 * float(values.var(ddof=1)) * log / n) + 7.0 * (high - low) * log / (3.0 * (n - 1))
    mean = float(values.mean())
    return max(mean - half, low), min(mean + half, high)


def chernoff(values: np.ndarray, low: float, high: float, confidence: float) -> tuple[float, float]:
    """Return the interval of the relative-entropy Chernoff bound, for values in ``[low, high]``.

    A mean ``p`` of ``n`` values in [0, 1] whose expectation is ``q`` is as far away from ``q`` with probability at most
    ``exp(-n kl(p, q))`` on each side.
    """
    log = math.log(2.0 / (1.0 - confidence)) / values.size
    p = min(max((float(values.mean()) - low) / (high - low), 0.0), 1.0)

    def excess(q: float) -> float:
        return relative_entropy(p, q) - log

    lower, upper = 0.0, 1.0
    if p > _LEAST and excess(_LEAST) > 0.0:
        lower = brentq(excess, _LEAST, p, xtol=1e-15)
    if p < _MOST and excess(_MOST) > 0.0:
        upper = brentq(excess, p, _MOST, xtol=1e-15)
    return low + lower * (high - low), low + upper * (high - low)


def relative_entropy(p: float, q: float) -> float:
    """Return the relative entropy of two coins."""
    first = 0.0 if p == 0.0 else p * math.log(p / q)
    second = 0.0 if p == 1.0 else (1.0 - p) * math.log((1.0 - p) / (1.0 - q))
    return first + second


def bootstrap(
    offsets: np.ndarray,
    numerators: np.ndarray,
    denominators: np.ndarray,
    confidence: float,
    n_resamples: int,
    rng: np.random.Generator,
) -> tuple[float, float]:
    """Return the percentiles, over resampled rows, of the mean of ``offsets`` plus a ratio of means."""
    n = numerators.size
    values = np.empty(n_resamples)
    for i in range(n_resamples):
        rows = rng.integers(0, n, n)
        values[i] = offsets[rows].mean() + numerators[rows].sum() / (denominators[rows].sum() or 1.0)
    tail = 50.0 * (1.0 - confidence)
    low, high = np.percentile(values, [tail, 100.0 - tail])
    return float(low), float(high)

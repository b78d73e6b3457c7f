"""Confidence intervals for means."""

import math

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtri

_LEAST, _MOST = 1e-300, 1.0 - 1e-16  # probabilities whose logarithms are finite

METHODS = ("betting", "bernstein", "chernoff", "bootstrap", "normal")

_CELLS_AT_ONCE = 1 << 20
_GRID = 400  # number of candidate means
_MOST_BET = 0.75  # maximum fraction of the capital that a bet can lose


def normal(values: np.ndarray, confidence: float) -> tuple[float, float]:
    """Return the interval of the normal approximation."""
    half = float(ndtri(0.5 + confidence / 2.0)) * float(values.std(ddof=1)) / math.sqrt(values.size)
    return float(values.mean()) - half, float(values.mean()) + half


def bernstein_below(values: np.ndarray, error: float) -> float:
    """Return an empirical Bernstein lower bound on the mean of non-negative values (Maurer and Pontil, 2009).

    Values are clipped at the cube root of their number. Clipping lowers the mean, so the bound remains valid.
    """
    n, log = values.size, math.log(2.0 / error)
    most = n ** (1.0 / 3.0)
    clipped = np.minimum(values, most)
    half = math.sqrt(2.0 * float(clipped.var(ddof=1)) * log / n) + 7.0 * most * log / (3.0 * (n - 1))
    return max(float(clipped.mean()) - float(half), 0.0)


def bernstein(values: np.ndarray, low: float, high: float, confidence: float) -> tuple[float, float]:
    """Return the empirical Bernstein interval for the mean of values in ``[low, high]`` (Maurer and Pontil, 2009)."""
    n, log = values.size, math.log(4.0 / (1.0 - confidence))  # half of the error probability on each side
    half = math.sqrt(2.0 * float(values.var(ddof=1)) * log / n) + 7.0 * (high - low) * log / (3.0 * (n - 1))
    mean = float(values.mean())
    return max(mean - half, low), min(mean + half, high)


def betting_below(values: np.ndarray, error: float) -> np.ndarray:
    """Return lower bounds on the mean of non-negative values, one after each value, all valid simultaneously.

    For each candidate mean, a gambler bets that values are larger. If the candidate is the true mean, the capital ever
    exceeds ``1 / error`` with probability at most ``error``. Candidates with more capital are therefore excluded
    (Waudby-Smith and Ramdas, Estimating means of bounded random variables by betting, 2024). Values need no upper
    bound.
    """
    n = values.size
    seen = np.arange(n)
    before = (0.5 + np.concatenate([[0.0], np.cumsum(values)[:-1]])) / (seen + 1.0)  # running mean
    squares = np.concatenate([[0.0], np.cumsum((values - before) ** 2)[:-1]])
    variances = (0.25 + squares) / (seen + 1.0)
    bounds = np.zeros(n)
    grid = np.linspace(0.0, 1.0, _GRID + 1)[1:]
    step = max(1, _CELLS_AT_ONCE // n)
    for first in range(0, grid.size, step):
        means = grid[first : first + step, None]
        apart = before - means
        bets = np.clip(apart / (variances + apart**2), 0.0, _MOST_BET / means)
        capital = np.maximum.accumulate(np.cumsum(np.log1p(bets * (values - means)), axis=1), axis=1)
        # A mean is excluded only if all smaller means are excluded.
        excluded = np.logical_and.accumulate(capital > math.log(1.0 / error), axis=0)
        if first > 0:
            excluded &= bounds >= grid[first - 1]
        bounds = np.where(excluded.any(axis=0), means[excluded.sum(axis=0) - 1, 0], bounds)
    return bounds


def chernoff(values: np.ndarray, low: float, high: float, confidence: float) -> tuple[float, float]:
    """Return the relative-entropy Chernoff interval for the mean of values in ``[low, high]``.

    The mean of ``n`` values in [0, 1] with expectation ``q`` lies beyond ``p`` with probability at most
    ``exp(-n kl(p, q))``.
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
    """Return the relative entropy of the Bernoulli distributions with means ``p`` and ``q``."""
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
    """Return the bootstrap percentile interval of the mean of ``offsets`` plus a ratio of means."""
    n = numerators.size
    values = np.empty(n_resamples)
    for i in range(n_resamples):
        rows = rng.integers(0, n, n)
        values[i] = offsets[rows].mean() + numerators[rows].sum() / (denominators[rows].sum() or 1.0)
    tail = 50.0 * (1.0 - confidence)
    low, high = np.percentile(values, [tail, 100.0 - tail])
    return float(low), float(high)

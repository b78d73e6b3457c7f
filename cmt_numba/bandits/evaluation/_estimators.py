"""Estimators of a policy's value from the log of another policy, and confidence intervals for means."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtri

from ..._validation import check_choice, check_entries, check_integer, check_real
from .._checks import check_rewards, generator_of, numbers

_SELF_NORMALIZED = "self-normalised"
_THRESHOLDS = 20  # number of thresholds to compare
_LEAST = 1e-100  # minimum propensity; smaller ones lead to weights whose squares overflow
_METHODS = ("betting", "bernstein", "chernoff", "bootstrap", "normal")
_MIN_PROBABILITY, _MAX_PROBABILITY = 1e-300, 1.0 - 1e-16  # probabilities whose logarithms are finite
_CELLS_AT_ONCE = 1 << 20
_GRID = 400  # number of candidate means
_MAX_BET = 0.75  # maximum fraction of the capital that a bet can lose


@dataclass(frozen=True, repr=False)
class Estimate:
    """An estimate of the mean reward of a policy."""

    name: str
    """Name of the estimator."""
    value: float
    """The estimate, which is the mean of ``terms``."""
    terms: np.ndarray
    """The contribution of each row (float64, shape (n,))."""
    weights: np.ndarray
    """The importance weight of each row (float64, shape (n,))."""
    bounds: tuple[float, float] | None
    """The smallest and largest possible terms, or None if terms are not independent."""
    reward_range: tuple[float, float] | None = None
    """The smallest and largest possible rewards. Intervals are clipped to this range."""
    _parts: tuple[np.ndarray, np.ndarray] | None = None  # numerators and denominators of a ratio of means
    _offsets: np.ndarray | None = None  # terms whose mean is added to the ratio
    # Two arrays of non-negative terms whose means estimate the fractions of the range below and above the value.
    _sides: tuple[np.ndarray, np.ndarray] | None = None
    _corrected: "Estimate | None" = None  # doubly robust estimate that provides the interval of a biased estimate

    def __repr__(self) -> str:
        return f"Estimate({self.name}, value {self.value:.4g}, from {self.terms.size:,} rows)"

    @property
    def effective_sample_size(self) -> float:
        """Effective sample size ``sum(w)**2 / sum(w**2)`` of the weights."""
        squares = float(np.square(self.weights).sum())
        return float(self.weights.sum()) ** 2 / squares if squares > 0.0 else 0.0

    def interval(
        self, method: str = "bernstein", *, confidence: float = 0.95, n_resamples: int = 1000, random_state: Any = 0
    ) -> tuple[float, float]:
        """Return a confidence interval for the value.

        Parameters
        ----------
        method : {"betting", "bernstein", "chernoff", "bootstrap", "normal"}, default "bernstein"
            - "betting": The betting interval of Waudby-Smith and Ramdas (2024). Valid for any number of rows, and
              usually narrower than "bernstein" and "chernoff".
            - "bernstein": The empirical Bernstein bound. Valid for any number of rows.
            - "chernoff": The relative-entropy Chernoff bound. Valid for any number of rows, and narrow if the value is
              close to one of ``bounds``. Strehl et al. (2010) use this bound on [0, 1 / tau].
            - "bootstrap": Percentiles over resampled rows. Requires many rows.
            - "normal": The normal approximation. Requires many rows.

            For estimates without a reward model, "betting" and "bernstein" are valid with weights of any size and any
            ``tau``. If the interval is as wide as ``reward_range``, use more rows or a policy closer to the logged
            policy.

            :func:`switch` and the direct method in :func:`evaluate` omit corrections and are biased. Their interval is
            the interval of the doubly robust estimate, extended to include the biased estimate.
        confidence : float between 0 and 1, default 0.95
            Probability that the interval contains the value.
        n_resamples : int, default 1000
            Number of bootstrap resamples.
        random_state : int or numpy.random.SeedSequence, default 0
            Random seed of the bootstrap.
        """
        check_choice("method", method, _METHODS)
        confidence = check_real("confidence", confidence, 0.0, 1.0, above=True)
        if confidence == 1.0:
            raise ValueError(f"confidence must be below 1, got {confidence}")
        n_resamples = check_integer("n_resamples", n_resamples, 1)
        if self.terms.size < 2:
            raise ValueError(f"an interval requires at least two rows, got {self.terms.size}")
        judge = self if self._corrected is None else self._corrected
        # Incorrect weights can make the bounds cross.
        low, high = sorted(judge._unclipped(method, confidence, n_resamples, random_state))
        if judge is not self:
            low, high = min(low, self.value), max(high, self.value)
        lowest, highest = (-np.inf, np.inf) if self.reward_range is None else self.reward_range
        return float(np.clip(low, lowest, highest)), float(np.clip(high, lowest, highest))

    def has_interval(self, method: str) -> bool:
        """Return whether the estimator supports a method of :meth:`interval`."""
        if method in ("betting", "bernstein") and self._sides is not None:
            return True
        return method in ("bootstrap", "normal") or (method != "betting" and self.bounds is not None)

    def confidence_sequence(self, confidence: float = 0.95) -> np.ndarray:
        """Return the lower and upper betting bound after each row.

        All intervals together contain the value with probability ``confidence``. They may therefore be monitored while
        rows are collected, and collection may stop at any time.
        """
        error = (1.0 - check_real("confidence", confidence, 0.0, 1.0, above=True)) / 2.0
        if error == 0.0:
            raise ValueError(f"confidence must be below 1, got {confidence}")
        if self._sides is None:
            raise self._unsupported("betting")
        return np.column_stack(self._by_sides(betting_below, error))

    def _by_sides(self, bound_below: Callable[[np.ndarray, float], Any], error: float) -> tuple[Any, Any]:
        """Return bounds on the value from lower bounds on its distances from both ends of the range of rewards."""
        assert self._sides is not None
        assert self.reward_range is not None
        low, high = self.reward_range
        lower, upper = (bound_below(terms, error) for terms in self._sides)
        return low + (high - low) * lower, high - (high - low) * upper

    def _unsupported(self, method: str) -> ValueError:
        if self.name == _SELF_NORMALIZED and method in ("betting", "bernstein"):  # it would have sides with a range
            return ValueError(f"method={method!r} requires reward_range: pass it to self_normalized")
        return ValueError(f'method={method!r} is not valid for the estimator {self.name!r}: use method="bootstrap"')

    def _unclipped(self, method: str, confidence: float, n_resamples: int, random_state: Any) -> tuple[float, float]:
        if method == "betting":
            low, high = self.confidence_sequence(confidence)[-1].tolist()
            return low, high
        if method == "bernstein" and self._sides is not None:
            return self._by_sides(bernstein_below, (1.0 - confidence) / 2.0)
        if method == "bootstrap":
            rng = generator_of(random_state, "bootstrap")
            offsets = np.zeros(self.terms.size) if self._offsets is None else self._offsets
            above, below = (self.terms, np.ones(self.terms.size)) if self._parts is None else self._parts
            return bootstrap(offsets, above, below, confidence, n_resamples, rng)
        if method == "normal":
            return normal(self._linearized(), confidence)
        if self.bounds is None:
            raise self._unsupported(method)
        bound = bernstein if method == "bernstein" else chernoff
        return bound(self.terms, *self.bounds, confidence)

    def _linearized(self) -> np.ndarray:
        """Return independent terms whose mean has, to first order, the same variance as the estimate."""
        if self._parts is None:
            return self.terms
        above, below = self._parts
        scale = below.mean() or 1.0
        ratio = above.mean() / scale
        return (0.0 if self._offsets is None else self._offsets) + ratio + (above - ratio * below) / scale


def importance_weights(propensities: Any, target: Any, tau: float = 0.0) -> np.ndarray:
    """Return ``target / max(propensities, tau)``."""
    tau = check_real("tau", tau, 0.0, 1.0)
    propensities, target = numbers("propensities", propensities, 1), numbers("target", target, 1)
    if target.size != propensities.size or target.size == 0:
        raise ValueError(
            f"propensities and target must have the same length, got {propensities.size} and {target.size}"
        )
    for name, array in (("propensities", propensities), ("target", target)):
        if not np.all((array >= 0.0) & (array <= 1.0 + 1e-9)):
            raise ValueError(f"{name} must be between 0 and 1")
    propensities = np.maximum(propensities, tau)
    row = int(np.argmin(propensities))
    if propensities[row] < _LEAST:
        bound = f"{_LEAST:g}" if propensities[row] > 0.0 else "0"
        raise ValueError(
            f"propensities must be above {bound}, got {propensities[row]:g} in row {row}: set tau to a value above 0"
        )
    return target / propensities


def inverse_propensity(
    rewards: Any, propensities: Any, target: Any, *, tau: float = 0.0, reward_range: tuple[float, float] = (0.0, 1.0)
) -> Estimate:
    """Estimate the value by inverse propensity scoring (Strehl et al., 2010, equation 2).

    Parameters
    ----------
    rewards : array-like, shape (n,)
        The logged rewards.
    propensities : array-like, shape (n,)
        The known or estimated probabilities with which the logged actions were chosen.
    target : array-like, shape (n,)
        The probabilities of the logged actions under the evaluated policy.
    tau : float in [0, 1], default 0.0
        Smaller propensities are raised to ``tau``. This bounds the variance, but underestimates the value of
        non-negative rewards.
    reward_range : tuple of float, default (0.0, 1.0)
        The smallest and largest possible rewards, used for intervals.
    """
    weights = importance_weights(propensities, target, tau)
    rewards = check_rewards(rewards, weights.size)
    low, high = checked_range(reward_range, rewards)
    largest = _largest_weight(propensities, tau)
    terms, bounds = weights * rewards, (min(low * largest, 0.0), max(high * largest, 0.0))
    sides = _weighted_sides(weights, rewards, (low, high))
    return Estimate("inverse propensity", float(terms.mean()), terms, weights, bounds, (low, high), _sides=sides)


def self_normalized(
    rewards: Any, propensities: Any, target: Any, *, tau: float = 0.0, reward_range: tuple[float, float] | None = None
) -> Estimate:
    """Estimate the value by self-normalised inverse propensity scoring, or as 0 if all weights are 0.

    The arguments are those of :func:`inverse_propensity`. "betting" and "bernstein" intervals require ``reward_range``,
    the smallest and largest possible rewards.
    """
    weights = importance_weights(propensities, target, tau)
    rewards = check_rewards(rewards, weights.size)
    above, its_range, sides = weights * rewards, None, None
    if reward_range is not None:
        its_range = checked_range(reward_range, rewards)
        sides = _weighted_sides(weights, rewards, its_range)
    terms = above / (weights.mean() or 1.0)
    return Estimate(
        _SELF_NORMALIZED, float(terms.mean()), terms, weights, None, its_range, (above, weights), _sides=sides
    )


def direct_method(expected_of_target: Any, *, reward_range: tuple[float, float] = (0.0, 1.0)) -> Estimate:
    """Estimate the value by the policy's mean expected reward according to a reward model.

    Parameters
    ----------
    expected_of_target : array-like, shape (n,)
        The policy's expected reward in each row: action probabilities times expected rewards, summed over actions.
    reward_range : tuple of float, default (0.0, 1.0)
        The smallest and largest possible rewards, used for intervals. The intervals ignore the error of the model.
    """
    terms = numbers("expected_of_target", expected_of_target, 1)
    if terms.size == 0:
        raise ValueError("expected_of_target must have at least one entry")
    low, high = checked_range(reward_range, np.empty(0))
    bounds = (min(low, float(terms.min())), max(high, float(terms.max())))
    return Estimate("direct method", float(terms.mean()), terms, np.ones(terms.size), bounds, (low, high))


def doubly_robust(
    rewards: Any,
    propensities: Any,
    target: Any,
    expected: Any,
    expected_of_target: Any,
    *,
    tau: float = 0.0,
    reward_range: tuple[float, float] = (0.0, 1.0),
) -> Estimate:
    """Estimate the value by the doubly robust method.

    The estimate is unbiased if the propensities or the reward model are correct.

    Parameters
    ----------
    rewards, propensities, target, tau, reward_range
        As in :func:`inverse_propensity`.
    expected : array-like, shape (n,)
        The expected reward of each logged action according to a reward model.
    expected_of_target : array-like, shape (n,)
        The policy's expected reward in each row according to the model.
    """
    rewards, weights, errors, base = _corrections(rewards, propensities, target, expected, expected_of_target, tau)
    max_weight = _largest_weight(propensities, tau)
    return _corrected("doubly robust", rewards, weights, errors, base, max_weight, reward_range)


def self_normalized_doubly_robust(
    rewards: Any,
    propensities: Any,
    target: Any,
    expected: Any,
    expected_of_target: Any,
    *,
    tau: float = 0.0,
    reward_range: tuple[float, float] | None = None,
) -> Estimate:
    """Estimate the value by the doubly robust method, with weights divided by their mean.

    The arguments are those of :func:`doubly_robust`. Intervals are clipped to ``reward_range``.
    """
    rewards, weights, errors, base = _corrections(rewards, propensities, target, expected, expected_of_target, tau)
    its_range = None if reward_range is None else checked_range(reward_range, rewards)
    above = weights * errors
    terms = base + above / (weights.mean() or 1.0)
    name = "self-normalised doubly robust"
    return Estimate(name, float(terms.mean()), terms, weights, None, its_range, (above, weights), base)


def switch(
    rewards: Any,
    propensities: Any,
    target: Any,
    expected: Any,
    expected_of_target: Any,
    *,
    threshold: float | None = None,
    reward_range: tuple[float, float] = (0.0, 1.0),
) -> Estimate:
    """Estimate the value by the switch method (Wang, Agarwal and Dudik, 2017).

    The estimate is doubly robust in rows with weights up to a threshold. In other rows it uses only the reward model.

    Parameters
    ----------
    rewards, propensities, target, expected, expected_of_target, reward_range
        As in :func:`doubly_robust`.
    threshold : float, optional
        The largest weight to use. By default, the threshold with the smallest estimated mean squared error. A smaller
        threshold reduces the variance and increases the bias.
    """
    if threshold is not None:
        threshold = check_real("threshold", threshold, 0.0, 1e18)
    rewards, weights, errors, base = _corrections(rewards, propensities, target, expected, expected_of_target, _LEAST)
    if threshold is None:
        threshold = tuned_threshold(weights, errors, base)
    kept = np.where(weights <= threshold, weights, 0.0)
    max_weight, max_kept = _largest_weight(propensities, _LEAST), min(threshold, float(weights.max()))
    robust = _corrected("doubly robust", rewards, weights, errors, base, max_weight, reward_range)
    switched = _corrected("switch", rewards, kept, errors, base, max_kept, reward_range)
    return replace(switched, _corrected=robust)


def tuned_threshold(weights: np.ndarray, errors: np.ndarray, base: np.ndarray) -> float:
    """Return the threshold of :func:`switch` with the smallest estimated mean squared error."""
    corrections, some = weights * errors, weights[weights > 0.0]
    thresholds = [0.0, *np.quantile(some, np.linspace(0.05, 1.0, _THRESHOLDS)).tolist()] if some.size else [0.0]
    squares = []
    for threshold in thresholds:
        kept = np.where(weights <= threshold, corrections, 0.0)
        bias = float((corrections - kept).mean())
        squares.append(float((base + kept).var()) / weights.size + bias**2)
    return thresholds[int(np.argmin(squares))]


def _corrected(
    name: str,
    rewards: np.ndarray,
    weights: np.ndarray,
    errors: np.ndarray,
    base: np.ndarray,
    largest: float,
    reward_range: tuple[float, float],
) -> Estimate:
    """Return the estimate with the terms ``base + weights * errors``, whose weights are at most ``largest``.

    Rewards lie in ``reward_range``, but expected rewards may lie outside.
    """
    low, high = its_range = checked_range(reward_range, rewards)
    terms, expected = base + weights * errors, rewards - errors
    low = min(low, float(expected.min()), float(base.min()))
    high = max(high, float(expected.max()), float(base.max()))
    bounds = low - largest * (high - low), high + largest * (high - low)
    return Estimate(name, float(terms.mean()), terms, weights, bounds, its_range)


def _weighted_sides(
    weights: np.ndarray, rewards: np.ndarray, reward_range: tuple[float, float]
) -> tuple[np.ndarray, np.ndarray]:
    """Return two arrays whose expected means are at most the fractions of the range below and above the value."""
    low, high = reward_range
    shares = (rewards - low) / (high - low)
    return weights * shares, weights * (1.0 - shares)


def _largest_weight(propensities: Any, tau: float) -> float:
    return 1.0 / max(float(np.min(propensities)), tau)


def _corrections(
    rewards: Any, propensities: Any, target: Any, expected: Any, expected_of_target: Any, tau: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return rewards, weights, the model's errors on logged actions, and the policy's expected rewards."""
    weights = importance_weights(propensities, target, tau)
    rewards = check_rewards(rewards, weights.size)
    model = []
    for name, values in (("expected", expected), ("expected_of_target", expected_of_target)):
        array = numbers(name, values, 1)
        check_entries(name, array.size, weights.size, "rows")
        model.append(array)
    return rewards, weights, rewards - model[0], model[1]


def checked_range(reward_range: Any, rewards: np.ndarray) -> tuple[float, float]:
    """Return ``reward_range``, or raise TypeError or ValueError if it is invalid or does not contain the rewards."""
    if not isinstance(reward_range, tuple | list) or len(reward_range) != 2:
        raise TypeError(f"reward_range must be a pair of numbers, got {reward_range!r}")
    low, high = (check_real("reward_range", value, -1e18, 1e18) for value in reward_range)
    if not low < high:
        raise ValueError(f"the first number of reward_range must be less than the second, got ({low}, {high})")
    if rewards.size and not (low <= rewards.min() and rewards.max() <= high):
        raise ValueError(
            f"rewards must lie in reward_range, [{low}, {high}], got rewards from {rewards.min()} to {rewards.max()}: "
            "pass a wider reward_range"
        )
    return low, high


# Confidence intervals


def normal(values: np.ndarray, confidence: float) -> tuple[float, float]:
    """Return the interval of the normal approximation."""
    half = float(ndtri(0.5 + confidence / 2.0)) * float(values.std(ddof=1)) / math.sqrt(values.size)
    return float(values.mean()) - half, float(values.mean()) + half


def bernstein_below(values: np.ndarray, error: float) -> float:
    """Return an empirical Bernstein lower bound on the mean of non-negative values (Maurer and Pontil, 2009).

    Values are clipped at the cube root of their number. Clipping lowers the mean, so the bound remains valid.
    """
    n, log = values.size, math.log(2.0 / error)
    limit = n ** (1.0 / 3.0)
    clipped = np.minimum(values, limit)
    half = math.sqrt(2.0 * float(clipped.var(ddof=1)) * log / n) + 7.0 * limit * log / (3.0 * (n - 1))
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
        bets = np.clip(apart / (variances + apart**2), 0.0, _MAX_BET / means)
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
    if p > _MIN_PROBABILITY and excess(_MIN_PROBABILITY) > 0.0:
        lower = brentq(excess, _MIN_PROBABILITY, p, xtol=1e-15)
    if p < _MAX_PROBABILITY and excess(_MAX_PROBABILITY) > 0.0:
        upper = brentq(excess, p, _MAX_PROBABILITY, xtol=1e-15)
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

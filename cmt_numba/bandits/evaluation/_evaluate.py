"""Evaluation of policies by all estimators, with warnings if the log does not support the estimates, and by replay."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

import numpy as np

from ..._validation import check_integer, check_real
from .._checks import Choices, generator_of, numbers
from . import _estimators as estimators
from ._logs import Log

_ROWS_AT_ONCE = 10_000
_FEWEST_USABLE = 0.1  # minimum fraction of rows that a replay can use without a warning
_FARTHEST = 256  # maximum number of rows in a call of act
_FEW = 100  # minimum effective sample size without a warning
_UNSURE = 3.0  # tolerated deviation of the mean weight, in standard errors
_SURE = 0.997  # confidence of a normal interval of three standard errors


@dataclass(frozen=True)
class Evaluation:
    """Estimates of the value of a policy."""

    estimates: dict[str, estimators.Estimate]
    """Estimates by name: "ips" and "snips", and with a reward model also "dm", "dr", "sndr" and "switch"."""
    logged: float
    """Mean reward of the log."""
    n_rows: int
    """Number of rows in the log."""
    effective_sample_size: float
    """Effective sample size of the importance weights."""
    mean_weight: float
    """Mean importance weight. Its expectation is 1 if the log supports the policy."""
    clipped: float
    """Fraction of the rows with positive weight whose propensity is below ``tau``."""
    advice: list[str]
    """Reasons not to trust the estimates. Empty if there are none."""

    def to_pandas(self, method: str = "normal", *, confidence: float = 0.95) -> Any:
        """Return the estimates and their intervals as a data frame.

        Parameters
        ----------
        method : str, default "normal"
            Interval method, as in :meth:`Estimate.interval`. Two additional columns contain "betting" intervals, or NaN
            for estimators that do not support them.
        confidence : float between 0 and 1, default 0.95
            Probability that an interval contains the value.
        """
        percent = f"{100.0 * confidence:g}% CI"
        rows = []
        for estimate in self.estimates.values():
            relative = estimate.value / self.logged if self.logged else float("nan")
            low, high = _interval(estimate, method, confidence)
            sure_low, sure_high = _interval(estimate, "betting", confidence)
            rows.append((estimate.value, relative, low, high, sure_low, sure_high))
        names = ["estimated_policy_value", "relative_estimated_policy_value"]
        names += [f"{percent} (lower)", f"{percent} (upper)"]
        names += ["betting (lower)", "betting (upper)"]
        return import_module("pandas").DataFrame(rows, list(self.estimates), names)

    def __str__(self) -> str:
        lines = [f"{'':8}{'value':>8}{'95 % (normal)':>20}{'95 % (betting)':>20}"]
        for name, estimate in self.estimates.items():
            spans = [_span(_interval(estimate, method, 0.95)) for method in ("normal", "betting")]
            lines.append(f"{name:8}{estimate.value:8.4f}{spans[0]:>20}{spans[1]:>20}")
        effective = f"effective sample size {self.effective_sample_size:.0f}"
        lines.append(f"mean reward of the log {self.logged:.4f}, {self.n_rows:,} rows, {effective}")
        return "\n".join(lines + self.advice)


@dataclass(frozen=True)
class PolicyComparison:
    """Evaluations of several policies on one log."""

    evaluations: dict[str, Evaluation]
    """Evaluations by policy name."""

    def __getitem__(self, name: str) -> Evaluation:
        return self.evaluations[name]

    def to_pandas(self, method: str = "normal", *, confidence: float = 0.95) -> Any:
        """Return the estimates of all policies as a data frame, indexed by policy and estimator.

        The arguments are those of :meth:`Evaluation.to_pandas`.
        """
        tables = {name: one.to_pandas(method, confidence=confidence) for name, one in self.evaluations.items()}
        return import_module("pandas").concat(tables, names=["policy", "estimator"])

    def __str__(self) -> str:
        return "\n\n".join(f"{name}\n{one}" for name, one in self.evaluations.items())

    def plot(self, path: Any = None, *, method: str = "normal", confidence: float = 0.95) -> Any:
        """Plot all estimates with their intervals.

        Parameters
        ----------
        path : path-like, optional
            File to save the figure to.
        method : str, default "normal"
            Method of the intervals drawn as thick lines, as in :meth:`Estimate.interval`. Thin lines are "betting"
            intervals.
        confidence : float between 0 and 1, default 0.95
            Probability that an interval contains the value.
        """
        figure = import_module("matplotlib.figure").Figure(figsize=(8, 4), layout="constrained")
        axes, n = figure.subplots(), len(self.evaluations)
        for i, (policy, one) in enumerate(self.evaluations.items()):
            for j, estimate in enumerate(one.estimates.values()):
                place = j + 0.7 * (i - (n - 1) / 2) / n
                for own, width in (("betting", 0.8), (method, 3.0)):
                    axes.plot([place, place], _interval(estimate, own, confidence), color=f"C{i}", linewidth=width)
                label = policy if j == 0 else None
                axes.plot([place], [estimate.value], "o", color=f"C{i}", markersize=4, label=label)
            axes.axhline(one.logged, color="black", linestyle="dashed", linewidth=0.8)
        names = list(next(iter(self.evaluations.values())).estimates)
        axes.set_xticks(range(len(names)), names)
        axes.set_ylabel("value")
        axes.legend()
        if path is not None:
            figure.savefig(path)
        return figure


def _interval(estimate: estimators.Estimate, method: str, confidence: float) -> tuple[float, float]:
    """Return a confidence interval, or a pair of NaN for a single row or if the estimator has no such interval."""
    if estimate.terms.size < 2 or not estimate.has_interval(method):
        return float("nan"), float("nan")
    return estimate.interval(method, confidence=confidence)


def _span(interval: tuple[float, float]) -> str:
    return "" if np.isnan(interval[0]) else f"{interval[0]:.4f} to {interval[1]:.4f}"


def target_probabilities(policy: Any, log: Log) -> np.ndarray:
    """Return a policy's probability of each of ``log.allowed`` in each row of a log: shape (n, k).

    ``policy`` is an object with ``probabilities(contexts, actions)``, or a function of contexts that returns one action
    per context, as a number or a name, or the probability of each action, as in :func:`evaluate`.
    """
    contexts = np.ones((len(log), 1)) if log.contexts is None else log.contexts
    choices = log.choices()
    answer = np.zeros(choices.shape)
    for first in range(0, len(log), _ROWS_AT_ONCE):
        stop = min(first + _ROWS_AT_ONCE, len(log))
        if _has_other_names(policy, log):
            own = choices.part(first, stop)
            part = policy.probabilities(contexts[first:stop], log.allowed_names_between(first, stop))
            answer.reshape(-1)[own.places] = part[np.arange(part.shape[1]) < own.sizes[:, None]]
            continue
        if hasattr(policy, "probabilities"):
            part = policy.probabilities(contexts[first:stop], log.allowed_between(first, stop))
        else:
            part = policy(contexts[first:stop])
            if isinstance(part, Mapping) or np.ndim(part) != 1:
                part = log.with_columns("policy", part, first, stop)
            else:
                part = _of_chosen(log.numbers_of(part), choices.part(first, stop))
            if part.shape != (stop - first, choices.shape[1]):
                raise ValueError(
                    "policy must return one action for each context, or probabilities of shape "
                    f"{(stop - first, choices.shape[1])}, got {part.shape}"
                )
        answer[first:stop, : part.shape[1]] = part
    return answer


def _has_other_names(policy: Any, log: Log) -> bool:
    """Return whether a policy was trained on a log in which the names of actions have other numbers."""
    names = getattr(policy, "arms_", None)
    return names is not None and log.arms is not None and names != log.arms


def _of_chosen(actions: np.ndarray, choices: Choices) -> np.ndarray:
    """Return probability 1 for the action chosen in each row, and 0 for other actions."""
    if actions.size != choices.shape[0]:
        raise ValueError(f"policy must return {choices.shape[0]} actions, one for each context, got {actions.size}")
    rows = np.repeat(np.arange(actions.size), choices.sizes)
    same = choices.actions == actions[rows]
    if np.unique(rows[same]).size < actions.size:
        raise ValueError("policy must return only allowed actions")
    probabilities = np.zeros(choices.shape)
    probabilities.reshape(-1)[choices.places[same] - choices.places.min() // choices.shape[1] * choices.shape[1]] = 1.0
    return probabilities


def evaluate(
    policy: Any,
    log: Log,
    *,
    propensities: Any = None,
    expected: Any = None,
    tau: float = 0.0,
    threshold: float | None = None,
    reward_range: tuple[float, float] = (0.0, 1.0),
) -> Any:
    """Estimate the value of one or more policies from the log of another policy.

    Parameters
    ----------
    policy : object, callable, array-like or dict
        A policy or function as in :func:`target_probabilities`, or probabilities: a data frame or a dict with a column
        of shape (n,) for each action, by name or number, or an array of shape (n, k) with a column for each of
        ``log.allowed``. A dict of policies by name is also accepted. Policies are not trained.
    log : Log
        The log.
    propensities : array-like, shape (n,), optional
        Propensities to use instead of those in the log, for example from :func:`estimate_propensities`.
    expected : array-like, shape (n, k), optional
        Expected rewards of the allowed actions, for example from :func:`estimate_rewards`, or a data frame or a dict
        like ``policy``. Required for all estimators except "ips" and "snips".
    tau : float in [0, 1], default 0.0
        Smaller propensities are raised to ``tau``, as in :func:`inverse_propensity`.
    threshold : float, optional
        Weight threshold of :func:`switch`. By default, the threshold is tuned.
    reward_range : tuple of float, default (0.0, 1.0)
        The smallest and largest possible rewards.
    """
    if isinstance(policy, dict) and not (policy and all(np.ndim(column) == 1 for column in policy.values())):
        if not policy:
            raise ValueError("the dict policy must contain at least one policy")
        options: dict[str, Any] = {"propensities": propensities, "expected": expected, "tau": tau}
        options |= {"threshold": threshold, "reward_range": reward_range}
        return PolicyComparison({str(name): evaluate(one, log, **options) for name, one in policy.items()})
    tau = check_real("tau", tau, 0.0, 1.0)
    given = log.propensities if propensities is None else numbers("propensities", propensities, 1)
    if given is None:
        raise ValueError("propensities must be given, because the log has none: call estimate_propensities")
    choices = log.choices()
    acts = hasattr(policy, "probabilities") or callable(policy)
    probabilities = target_probabilities(policy, log) if acts else log.with_columns("policy", policy)
    if probabilities.shape != choices.shape:
        raise ValueError(f"policy must return probabilities of shape {choices.shape}, got {probabilities.shape}")
    rows = np.repeat(np.arange(len(log)), np.diff(choices.offsets))
    at = choices.places[choices.actions == log.actions[rows]]  # position of the logged action of each row
    target = probabilities.reshape(-1)[at]
    if not np.allclose(probabilities.sum(axis=1), 1.0, atol=1e-6) or probabilities.min() < -1e-6:
        raise ValueError(
            "policy must return probabilities of at least 0 that sum to 1 over the allowed actions of each row"
        )
    common: dict[str, Any] = {"tau": tau, "reward_range": reward_range}
    ips = estimators.inverse_propensity(log.rewards, given, target, **common)
    estimates = {"ips": ips, "snips": estimators.self_normalized(log.rewards, given, target, **common)}
    if expected is not None:
        is_array = isinstance(expected, np.ndarray)  # as estimate_rewards returns it, in the order of allowed
        model = numbers("expected", expected, 2) if is_array else log.with_columns("expected", expected)
        if model.shape != choices.shape:
            raise ValueError(f"expected must have shape {choices.shape}, got {model.shape}")
        logged, of_target = model.reshape(-1)[at], (probabilities * model).sum(axis=1)
        columns = (log.rewards, given, target, logged, of_target)
        estimates["dm"] = estimators.direct_method(of_target, reward_range=reward_range)
        estimates["dr"] = estimators.doubly_robust(*columns, **common)
        estimates["dm"] = replace(estimates["dm"], _corrected=estimates["dr"])
        estimates["sndr"] = estimators.self_normalized_doubly_robust(*columns, **common)
        if np.all(given > 0.0):
            estimates["switch"] = estimators.switch(*columns, threshold=threshold, reward_range=reward_range)
    weighted = target > 0.0
    clipped = float(np.mean(given[weighted] < tau)) if np.any(weighted) else 0.0
    return Evaluation(
        estimates,
        float(log.rewards.mean()),
        len(log),
        ips.effective_sample_size,
        float(ips.weights.mean()),
        clipped,
        _advice(ips, clipped) + _advice_of_model(estimates),
    )


def _advice_of_model(estimates: dict[str, estimators.Estimate]) -> list[str]:
    """Return a warning if the reward model disagrees with the logged rewards."""
    if "dm" not in estimates or estimates["dm"].terms.size < 2:
        return []
    low, high = estimates["sndr"].interval("normal", confidence=_SURE)
    value = estimates["dm"].value
    if low <= value <= high:
        return []
    return [
        f"dm is {value:.3f}, but {estimates['sndr'].value:.3f} when corrected by the errors of the model (sndr): the "
        "model is biased; use sndr or snips, or pass another regressor to estimate_rewards"
    ]


def _advice(ips: estimators.Estimate, clipped: float) -> list[str]:
    """Return reasons not to trust estimates with these weights."""
    weights, n = ips.weights, ips.weights.size
    if not np.any(weights > 0.0):
        return ["the policy never chooses a logged action: the log says nothing about it"]
    advice = []
    if ips.effective_sample_size < _FEW:
        advice.append(
            f"the effective sample size of the {n} rows is only {ips.effective_sample_size:.0f}: use a log with more "
            "exploration, or evaluate a policy that is closer to the logged policy"
        )
    if not np.any(ips.terms):
        advice.append(
            "all weighted rewards are 0, so bootstrap and normal intervals have width 0: use betting, bernstein or "
            "chernoff intervals"
        )
    mean, error = float(weights.mean()), float(weights.std()) / np.sqrt(n)
    if mean + _UNSURE * error < 1.0 and clipped == 0.0:
        advice.append(
            f"the mean weight is {mean:.2f}, not 1: about {100 * (1 - mean):.0f} % of the policy's choices cannot "
            "occur in the log, and their rewards are missing from ips and dr"
        )
    if mean - _UNSURE * error > 1.0:
        advice.append(f"the mean weight is {mean:.2f}, not 1: the propensities are too small")
    if clipped > 0.0:
        advice.append(
            f"{100 * clipped:.0f} % of the rows with a positive weight have propensities below tau, so the value is "
            "underestimated"
        )
    return advice


# Replay (Li et al., 2010, Algorithm 3)


@dataclass(frozen=True, repr=False)
class Replay:
    """Result of a replay: the rows of a log in which a policy chose the logged action."""

    rows: np.ndarray
    """Indices of these rows (int64, shape (m,))."""
    rewards: np.ndarray
    """Rewards of these rows (float64, shape (m,))."""
    n_seen: int
    """Number of rows that were read."""
    advice: list[str] = field(default_factory=list)
    """Reasons why no row or few rows were used."""

    def __repr__(self) -> str:
        advice = "".join(f"; {reason}" for reason in self.advice)
        return f"Replay(value {self.value:.4g}, from {self.rows.size:,} of {self.n_seen:,} rows{advice})"

    @property
    def value(self) -> float:
        """Mean reward, or NaN if no row was used."""
        return float(self.rewards.mean()) if self.rewards.size else float("nan")

    def estimate(self, reward_range: tuple[float, float] = (0.0, 1.0)) -> estimators.Estimate:
        """Return the mean reward as an :class:`Estimate`. Its intervals are valid if the policy does not learn."""
        if self.rewards.size == 0:
            raise ValueError(f"cannot estimate the mean reward: {'; '.join(self.advice)}")
        ones, bounds = np.ones(self.rewards.size), estimators.checked_range(reward_range, self.rewards)
        return estimators.Estimate("replay", self.value, self.rewards, ones, bounds, bounds)


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
        others = _has_other_names(policy, log)
        allowed = log.allowed_names_between(first, stop) if others else log.allowed_between(first, stop)
        actions, propensities = policy.act(contexts[first:stop], allowed)
        actions = log.numbers_of(actions)
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
    return Replay(rows, log.rewards[rows], first, _advice_of_replay(log, usable[:first], rows.size))


def _advice_of_replay(log: Log, usable: np.ndarray, n_kept: int) -> list[str]:
    """Return reasons why a replay used no row, or few rows of a log that was not uniform."""
    advice, n_usable = [], int(usable.sum())
    if n_usable < _FEWEST_USABLE * usable.size:
        low, high = log.propensities.min(), log.propensities.max()
        advice.append(
            f"the log is not uniform: with propensities from {low:.3g} to {high:.3g}, only {n_usable:,} of "
            f"{usable.size:,} rows could be used; use evaluate, which weights rows instead of dropping them"
        )
    if n_kept == 0:
        advice.append(f"the policy never chose the logged action in the {n_usable:,} usable rows")
    return advice


def _usable(log: Log, rng: np.random.Generator) -> np.ndarray:
    """Return a random mask of rows in which all actions are equally frequent."""
    if log.propensities is None or np.ptp(log.propensities) <= 1e-12:
        return np.ones(len(log), np.bool_)
    return rng.random(len(log)) * log.propensities < log.propensities.min()

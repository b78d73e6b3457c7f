"""Evaluation of policies by all estimators, with advice on whether the log supports the estimates."""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np

from ..._validation import check_real
from .._checks import Choices, numbers
from ._estimators import (
    Estimate,
    direct_method,
    doubly_robust,
    inverse_propensity,
    self_normalized,
    self_normalized_doubly_robust,
    switch,
)
from ._logs import Log

_ROWS_AT_ONCE = 10_000
_FEW = 100  # minimum effective sample size
_UNSURE = 3.0  # tolerated deviation, in standard errors
_SURE = 0.997  # the confidence that corresponds to three standard errors


@dataclass(frozen=True)
class Evaluation:
    """Estimates of the value of a policy.

    Attributes
    ----------
    estimates : dict of str to Estimate
        By estimator: "ips", "snips" and, with a model of the rewards, "dm", "dr", "sndr", "switch".
    logged : float
        The mean reward of the log.
    n_rows : int
        Rows of the log.
    effective_sample_size : float
        The number of equally weighted rows with the same information.
    mean_weight : float
        The mean importance weight, 1 in expectation if the log supports the policy.
    clipped : float
        The share of rows with a propensity below ``tau``, among those with a positive weight.
    advice : list of str
        Reasons not to trust the estimates; empty if there are none.
    """

    estimates: dict[str, Estimate]
    logged: float
    n_rows: int
    effective_sample_size: float
    mean_weight: float
    clipped: float
    advice: list[str]

    def to_pandas(self, method: str = "normal", *, confidence: float = 0.95) -> Any:
        """Return a table with a row for each estimator.

        Parameters
        ----------
        method : str, default "normal"
            Kind of the intervals, see :meth:`Estimate.interval`. Two more columns have "betting" intervals, for the
            estimators that have them.
        confidence : float between 0 and 1, default 0.95
            The confidence of the intervals.

        Returns
        -------
        pandas.DataFrame
            Columns have the names of Open Bandit Pipeline if they exist there.
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
    """Evaluations of several policies on one log.

    Attributes
    ----------
    evaluations : dict of str to Evaluation
        By the names of the policies.
    """

    evaluations: dict[str, Evaluation]

    def __getitem__(self, name: str) -> Evaluation:
        return self.evaluations[name]

    def to_pandas(self, method: str = "normal", *, confidence: float = 0.95) -> Any:
        """Return the tables of all policies (:meth:`Evaluation.to_pandas`) as one, by policy and estimator."""
        tables = {name: one.to_pandas(method, confidence=confidence) for name, one in self.evaluations.items()}
        return import_module("pandas").concat(tables, names=["policy", "estimator"])

    def __str__(self) -> str:
        return "\n\n".join(f"{name}\n{one}" for name, one in self.evaluations.items())

    def plot(self, path: Any = None, *, method: str = "normal", confidence: float = 0.95) -> Any:
        """Draw all estimates with their intervals; thin lines are betting intervals.

        Parameters
        ----------
        path : path-like, optional
            A file to write.
        method : str, default "normal"
            Kind of the intervals.
        confidence : float between 0 and 1, default 0.95
            The confidence of the intervals.

        Returns
        -------
        matplotlib.figure.Figure
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


def _interval(estimate: Estimate, method: str, confidence: float) -> tuple[float, float]:
    """Return an interval, or NaN if the estimator has none of that kind."""
    if method not in ("normal", "bootstrap") and not estimate.has_interval(method):
        return float("nan"), float("nan")
    return estimate.interval(method, confidence=confidence)


def _span(interval: tuple[float, float]) -> str:
    return "" if np.isnan(interval[0]) else f"{interval[0]:.4f} to {interval[1]:.4f}"


def target_probabilities(policy: Any, log: Log) -> np.ndarray:
    """Return the probabilities of the allowed actions under a policy, in each row of a log.

    Parameters
    ----------
    policy : object or callable
        An object with ``probabilities(contexts, actions)``, like the policies of :mod:`cmt_numba.bandits`. Or a
        function of contexts that returns an action for each, by number or by name, or probabilities of the columns of
        ``log.allowed``, shape (n, k).
    log : Log
        The log.

    Returns
    -------
    ndarray of float64, shape (n, k)
        The columns are those of ``log.allowed``, or its mask.

    Raises
    ------
    TypeError, ValueError
        If a function returns something else, or an action that is not allowed.
    """
    contexts = np.ones((len(log), 1)) if log.contexts is None else log.contexts
    choices = log.choices()
    answer = np.zeros(choices.shape)
    for first in range(0, len(log), _ROWS_AT_ONCE):
        stop = min(first + _ROWS_AT_ONCE, len(log))
        if hasattr(policy, "probabilities"):
            part = policy.probabilities(contexts[first:stop], log.allowed_between(first, stop))
        else:
            part = np.asarray(policy(contexts[first:stop]))
            if part.ndim == 1:
                part = _of_chosen(log.numbers_of(part), choices.part(first, stop))
            elif part.shape != (stop - first, choices.shape[1]):
                raise ValueError(
                    "policy must return an action for each context, or probabilities of shape "
                    f"{(stop - first, choices.shape[1])}, got {part.shape}"
                )
        answer[first:stop, : part.shape[1]] = part
    return answer


def _of_chosen(actions: np.ndarray, choices: Choices) -> np.ndarray:
    """Return probabilities of 1 for the actions chosen in each row."""
    if actions.size != choices.shape[0]:
        raise ValueError(f"policy must return {choices.shape[0]} actions, one for each context, got {actions.size}")
    rows = np.repeat(np.arange(actions.size), choices.sizes)
    same = choices.actions == actions[rows]
    if np.unique(rows[same]).size < actions.size:
        raise ValueError("policy must return allowed actions")
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
    """Estimate the value of a policy, or of each of several, from the log of another one.

    Parameters
    ----------
    policy : object, callable, array-like or dict
        A policy, a function (:func:`target_probabilities`), or probabilities of the allowed actions, shape (n, k), with
        the columns of ``log.allowed`` or its mask; or a dict of these by name. The policy does not learn.
    log : Log
        The log.
    propensities : array-like, shape (n,), optional
        Estimated propensities (:func:`estimate_propensities`), if the log has none.
    expected : array-like, shape (n, k), optional
        Expected rewards of the allowed actions (:func:`estimate_rewards`), for the estimators that need a model.
    tau : float in [0, 1], default 0.0
        Least propensity, see :func:`inverse_propensity`.
    threshold : float, optional
        The threshold of :func:`switch`, which tunes it by default.
    reward_range : tuple of float, default (0.0, 1.0)
        The least and the largest possible reward.

    Returns
    -------
    Evaluation or PolicyComparison
        A comparison if there are several policies.

    Raises
    ------
    TypeError, ValueError
        If an argument is invalid, or there are no propensities.
    """
    if isinstance(policy, dict):
        if not policy:
            raise ValueError("policy must contain at least one policy")
        options: dict[str, Any] = {"propensities": propensities, "expected": expected, "tau": tau}
        options |= {"threshold": threshold, "reward_range": reward_range}
        return PolicyComparison({str(name): evaluate(one, log, **options) for name, one in policy.items()})
    tau = check_real("tau", tau, 0.0, 1.0)
    given = log.propensities if propensities is None else numbers("propensities", propensities, 1)
    if given is None:
        raise ValueError("propensities must be in the log or passed: estimate_propensities computes them")
    choices = log.choices()
    acts = hasattr(policy, "probabilities") or callable(policy)
    probabilities = target_probabilities(policy, log) if acts else numbers("policy", policy, 2)
    if probabilities.shape != choices.shape:
        raise ValueError(f"policy must have probabilities of shape {choices.shape}, got {probabilities.shape}")
    rows = np.repeat(np.arange(len(log)), np.diff(choices.offsets))
    at = choices.places[choices.actions == log.actions[rows]]  # position of the logged action of each row
    target = probabilities.reshape(-1)[at]
    if not np.allclose(probabilities.sum(axis=1), 1.0, atol=1e-6):
        raise ValueError("policy must have probabilities that sum to 1 over the allowed actions of each row")
    common: dict[str, Any] = {"tau": tau, "reward_range": reward_range}
    ips = inverse_propensity(log.rewards, given, target, **common)
    estimates = {"ips": ips, "snips": self_normalized(log.rewards, given, target, **common)}
    if expected is not None:
        model = numbers("expected", expected, 2)
        if model.shape != choices.shape:
            raise ValueError(f"expected must have shape {choices.shape}, got {model.shape}")
        logged, of_target = model.reshape(-1)[at], (probabilities * model).sum(axis=1)
        columns = (log.rewards, given, target, logged, of_target)
        estimates["dm"] = direct_method(of_target, reward_range=reward_range)
        estimates["dr"] = doubly_robust(*columns, **common)
        estimates["dm"] = replace(estimates["dm"], _corrected=estimates["dr"])
        estimates["sndr"] = self_normalized_doubly_robust(*columns, **common)
        if np.all(given > 0.0):
            estimates["switch"] = switch(*columns, threshold=threshold, reward_range=reward_range)
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


def _advice_of_model(estimates: dict[str, Estimate]) -> list[str]:
    """Return a warning if the model of the rewards disagrees with the rewards of the log."""
    if "dm" not in estimates:
        return []
    low, high = estimates["sndr"].interval("normal", confidence=_SURE)
    value = estimates["dm"].value
    if low <= value <= high:
        return []
    return [
        f"dm is {value:.3f}, but {estimates['sndr'].value:.3f} when corrected by the errors of the model (sndr): the "
        "model is biased; use sndr or snips, or pass another regressor to estimate_rewards"
    ]


def _advice(ips: Estimate, clipped: float) -> list[str]:
    """Return reasons not to trust estimates with these weights."""
    weights, n = ips.weights, ips.weights.size
    if not np.any(weights > 0.0):
        return ["the policy never chooses a logged action: the log says nothing about it"]
    advice = []
    if ips.effective_sample_size < _FEW:
        advice.append(
            f"the {n} rows are worth {ips.effective_sample_size:.0f} rows of the policy itself: use a log that "
            "explores more, or evaluate a policy that is closer to that of the log"
        )
    if not np.any(ips.terms):
        advice.append(
            "no row that the policy could have chosen has a reward, and neither has any resample: use the interval "
            "betting, bernstein or chernoff"
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

"""All estimators on a policy and a log, with a word on whether the log can answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._validation import check_real
from .._checks import numbers
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
_FEW = 100  # effective rows
_UNSURE = 3.0  # standard errors


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
        The number of rows of equal weight that would tell as much.
    mean_weight : float
        The mean importance weight, 1 in expectation if the log supports the policy.
    clipped : float
        The share of rows whose propensity is below ``tau``, among those with a weight.
    advice : list of str
        What speaks against trusting the estimates; empty if nothing does.
    """

    estimates: dict[str, Estimate]
    logged: float
    n_rows: int
    effective_sample_size: float
    mean_weight: float
    clipped: float
    advice: list[str]


def target_probabilities(policy: Any, log: Log) -> np.ndarray:
    """Return the probabilities with which a policy chooses among the allowed actions in each row of a log.

    Parameters
    ----------
    policy : object
        With ``probabilities(contexts, actions)``, as the policies of :mod:`cmt_numba.bandits` have it.
    log : Log
        The log.

    Returns
    -------
    ndarray of float64, shape (n, k)
        The columns are those of ``log.allowed``, or its mask.
    """
    contexts = np.ones((len(log), 1)) if log.contexts is None else log.contexts
    width = log.choices().shape[1]
    answer = np.zeros((len(log), width))
    for first in range(0, len(log), _ROWS_AT_ONCE):
        stop = min(first + _ROWS_AT_ONCE, len(log))
        part = policy.probabilities(contexts[first:stop], log.allowed_between(first, stop))
        answer[first:stop, : part.shape[1]] = part
    return answer


def evaluate(
    policy: Any,
    log: Log,
    *,
    propensities: Any = None,
    expected: Any = None,
    tau: float = 0.0,
    threshold: float = 10.0,
    reward_range: tuple[float, float] = (0.0, 1.0),
) -> Evaluation:
    """Estimate what a policy would have earned in place of the one that made a log.

    Parameters
    ----------
    policy : object or array-like
        A policy, which does not learn meanwhile, or its probabilities of the allowed actions, shape (n, k), with the
        columns of ``log.allowed`` or its mask.
    log : Log
        The log.
    propensities : array-like, shape (n,), optional
        Estimated propensities (:func:`estimate_propensities`), where the log has none.
    expected : array-like, shape (n, k), optional
        Expected rewards of the allowed actions (:func:`estimate_rewards`), for the estimators that need a model.
    tau : float in [0, 1], default 0.0
        Least propensity, see :func:`inverse_propensity`.
    threshold : float, default 10.0
        Of :func:`switch`.
    reward_range : tuple of float, default (0.0, 1.0)
        The least and the largest possible reward.

    Returns
    -------
    Evaluation

    Raises
    ------
    TypeError, ValueError
        If an argument cannot be used, or there are no propensities.
    """
    tau = check_real("tau", tau, 0.0, 1.0)
    given = log.propensities if propensities is None else numbers("propensities", propensities, 1)
    if given is None:
        raise ValueError("propensities must be part of the log, or given: see estimate_propensities")
    choices = log.choices()
    acts = hasattr(policy, "probabilities")
    probabilities = target_probabilities(policy, log) if acts else numbers("policy", policy, 2)
    if probabilities.shape != choices.shape:
        raise ValueError(f"policy must have probabilities of shape {choices.shape}, not {probabilities.shape}")
    rows = np.repeat(np.arange(len(log)), np.diff(choices.offsets))
    at = choices.places[choices.actions == log.actions[rows]]  # of the logged action of each row
    target = probabilities.reshape(-1)[at]
    if not np.allclose(probabilities.sum(axis=1), 1.0, atol=1e-6):
        raise ValueError("policy must have probabilities that sum to 1 over the allowed actions of each row")
    clipping = {"tau": tau}
    ips = inverse_propensity(log.rewards, given, target, reward_range=reward_range, **clipping)
    estimates = {"ips": ips, "snips": self_normalized(log.rewards, given, target, **clipping)}
    if expected is not None:
        model = numbers("expected", expected, 2)
        if model.shape != choices.shape:
            raise ValueError(f"expected must be of shape {choices.shape}, not {model.shape}")
        logged, of_target = model.reshape(-1)[at], (probabilities * model).sum(axis=1)
        common = (log.rewards, given, target, logged, of_target)
        estimates["dm"] = direct_method(of_target, reward_range=reward_range)
        estimates["dr"] = doubly_robust(*common, reward_range=reward_range, **clipping)
        estimates["sndr"] = self_normalized_doubly_robust(*common, **clipping)
        if np.all(given > 0.0):
            estimates["switch"] = switch(*common, threshold=threshold, reward_range=reward_range)
    weighted = target > 0.0
    clipped = float(np.mean(given[weighted] < tau)) if np.any(weighted) else 0.0
    return Evaluation(
        estimates,
        float(log.rewards.mean()),
        len(log),
        ips.effective_sample_size,
        float(ips.weights.mean()),
        clipped,
        _advice(ips, clipped),
    )


def _advice(ips: Estimate, clipped: float) -> list[str]:
    """Return what speaks against trusting estimates with these weights."""
    weights, n = ips.weights, ips.weights.size
    if not np.any(weights > 0.0):
        return ["the policy never chooses what the log holds: nothing can be said of it"]
    advice = []
    if ips.effective_sample_size < _FEW:
        advice.append(
            f"the {n} rows tell as much as {ips.effective_sample_size:.0f} rows of the policy itself: get a log that "
            "explores more, or evaluate a policy that is closer to the one that made it"
        )
    if not np.any(ips.terms):
        advice.append(
            "no row that the policy may have chosen has a reward, so that resampling finds none either: take the "
            "interval bernstein or chernoff for how much it may be"
        )
    mean, error = float(weights.mean()), float(weights.std()) / np.sqrt(n)
    if mean + _UNSURE * error < 1.0 and clipped == 0.0:
        advice.append(
            f"weights average {mean:.2f}, not 1: about {100 * (1 - mean):.0f} % of the policy's choices have no chance "
            "to be in the log, and what they earn is missing from ips and dr"
        )
    if mean - _UNSURE * error > 1.0:
        advice.append(f"weights average {mean:.2f}, not 1: the propensities are too small")
    if clipped > 0.0:
        advice.append(
            f"{100 * clipped:.0f} % of the rows with a weight have propensities below tau: the value is underestimated "
            "by what they earn"
        )
    return advice

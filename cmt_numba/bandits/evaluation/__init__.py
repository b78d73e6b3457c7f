"""Off-policy evaluation: estimates of a policy's value from the log of another policy.

A log contains contexts, actions, rewards and, if known, propensities: the probabilities with which the actions were
chosen. The weight ``w_i`` of row ``i`` is the probability of its action under the evaluated policy, divided by its
propensity. Each estimator is the mean of one term per row:

- inverse propensity: ``w_i r_i``. Propensities below ``tau`` are raised to ``tau``, which bounds the variance but
  underestimates the value of non-negative rewards (Strehl, Langford, Li and Kakade, 2010, equation 2),
- self-normalised: ``w_i r_i / mean(w)``,
- direct method: the policy's expected reward according to a reward model,
- doubly robust: the direct method plus ``w_i`` times the model's error on row ``i`` (Dudik, Langford and Li, 2011),
- switch: doubly robust in rows with weights up to a threshold, and the direct method in other rows (Wang, Agarwal and
  Dudik, 2017).

:func:`evaluate` computes all estimators. :func:`replay` evaluates policies that learn while they choose.
"""

from ._estimators import (
    Estimate,
    direct_method,
    doubly_robust,
    inverse_propensity,
    self_normalized,
    self_normalized_doubly_robust,
    switch,
)
from ._evaluate import Evaluation, PolicyComparison, Replay, evaluate, replay, target_probabilities
from ._logs import Log, read_log
from ._nuisances import estimate_propensities, estimate_rewards

for _public in (Estimate, Evaluation, Log, PolicyComparison, Replay):
    _public.__module__ = __name__

__all__ = [
    "Log",
    "direct_method",
    "doubly_robust",
    "estimate_propensities",
    "estimate_rewards",
    "evaluate",
    "inverse_propensity",
    "read_log",
    "replay",
    "self_normalized",
    "self_normalized_doubly_robust",
    "switch",
]

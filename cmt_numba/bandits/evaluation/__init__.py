"""Off-policy evaluation: what a policy would earn, from the log of another one.

A log holds contexts, the actions that were chosen, their rewards and, if they are known, the probabilities with which
they were chosen (propensities). With the probability ``w_i`` that the policy to evaluate gives to the action of row
``i``, divided by the propensity of that action, the estimators are means of

- inverse propensity scores: ``w_i r_i``; with ``tau`` propensities below ``tau`` are replaced by it, which
  underestimates rather than blow up (Strehl, Langford, Li and Kakade, 2010, equation 2),
- self-normalised: ``w_i r_i / mean(w)``,
- the direct method: the reward expected of the policy, by a model of the rewards,
- doubly robust: the direct method plus ``w_i`` times the error of the model on row ``i`` (Dudik, Langford and Li,
  2011),
- switch: doubly robust where ``w_i`` is at most a threshold, the direct method elsewhere (Wang, Agarwal and Dudik,
  2017).

:func:`evaluate` applies them to a policy and a log. :func:`replay` evaluates policies that learn on the way.
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
from ._evaluate import Evaluation, PolicyComparison, evaluate, target_probabilities
from ._logs import Log, read_log, read_log_in_batches
from ._nuisances import estimate_propensities, estimate_rewards
from ._replay import Replay, replay

for _public in (Estimate, Evaluation, Log, PolicyComparison, Replay):
    _public.__module__ = __name__

__all__ = [
    "Estimate",
    "Evaluation",
    "Log",
    "PolicyComparison",
    "Replay",
    "direct_method",
    "doubly_robust",
    "estimate_propensities",
    "estimate_rewards",
    "evaluate",
    "inverse_propensity",
    "read_log",
    "read_log_in_batches",
    "replay",
    "self_normalized",
    "self_normalized_doubly_robust",
    "switch",
    "target_probabilities",
]

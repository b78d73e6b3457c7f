"""Contextual bandits: policies that choose actions and learn from rewards, and off-policy evaluation from logs."""

import os

from ..persistence import object_of
from . import evaluation
from ._base import Chosen, Policy
from ._cmt_bandit import CMTBandit
from ._logged import ArgmaxRegressor
from ._policies import UCB1, EpsilonGreedy, HybridLinUCB, LinearThompson, LinUCB, SquareCB

_POLICIES = (CMTBandit, EpsilonGreedy, HybridLinUCB, LinUCB, LinearThompson, SquareCB, UCB1)

for _public in (ArgmaxRegressor, Policy, *_POLICIES):
    _public.__module__ = __name__  # module path in pickles


def load_policy(path: str | os.PathLike[str]) -> Policy | ArgmaxRegressor:
    """Load a policy from a file that ``save`` has written."""
    classes: tuple[type[Policy | ArgmaxRegressor], ...] = (*_POLICIES, ArgmaxRegressor)
    return object_of(classes, path)


__all__ = [
    "UCB1",
    "ArgmaxRegressor",
    "CMTBandit",
    "EpsilonGreedy",
    "HybridLinUCB",
    "LinUCB",
    "LinearThompson",
    "SquareCB",
    "evaluation",
    "load_policy",
]

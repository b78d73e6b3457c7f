"""Contextual bandits: policies that choose actions and learn from their rewards, and their evaluation from logs."""

from . import evaluation
from ._base import Chosen, Policy
from ._cmt_bandit import CMTBandit, Decisions
from ._policies import UCB1, EpsilonGreedy, HybridLinUCB, LinearThompson, LinUCB, Random, SquareCB

for _public in (
    CMTBandit,
    Decisions,
    Policy,
    UCB1,
    EpsilonGreedy,
    HybridLinUCB,
    LinearThompson,
    LinUCB,
    Random,
    SquareCB,
):
    _public.__module__ = __name__  # where pickles find them, wherever they are defined

__all__ = [
    "UCB1",
    "CMTBandit",
    "Chosen",
    "Decisions",
    "EpsilonGreedy",
    "HybridLinUCB",
    "LinUCB",
    "LinearThompson",
    "Policy",
    "Random",
    "SquareCB",
    "evaluation",
]

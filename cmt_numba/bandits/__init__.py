"""Contextual bandits: policies that choose actions and learn from their rewards, and their evaluation from logs."""

import os

from ..persistence import object_of
from . import evaluation
from ._base import Chosen, Policy
from ._cmt_bandit import CMTBandit
from ._logged import ArgmaxRegressor
from ._policies import (
    UCB1,
    EpsilonGreedy,
    HybridLinUCB,
    LinearThompson,
    LinUCB,
    Omniscient,
    Random,
    SquareCB,
    WarmEpsilonGreedy,
    WarmUCB1,
)

_POLICIES = (
    *(CMTBandit, EpsilonGreedy, HybridLinUCB, LinUCB, LinearThompson, Omniscient, Random, SquareCB, UCB1),
    *(WarmEpsilonGreedy, WarmUCB1),
)

for _public in (ArgmaxRegressor, Policy, *_POLICIES):
    _public.__module__ = __name__  # where pickles find them, wherever they are defined

Decisions = Chosen
"""The name of :class:`Chosen` for decisions of a :class:`CMTBandit`, in pickles of earlier versions."""


def load_policy(path: str | os.PathLike[str]) -> Policy | ArgmaxRegressor:
    """Return the policy in a file, of whatever class.

    Parameters
    ----------
    path : path-like
        A file that ``save`` has written.

    Returns
    -------
    Policy or ArgmaxRegressor

    Raises
    ------
    cmt_numba.persistence.FileFormatError
        If the file holds no policy, is damaged, or of a later version.
    OSError
        If the file cannot be read.
    """
    classes: tuple[type[Policy | ArgmaxRegressor], ...] = (*_POLICIES, ArgmaxRegressor)
    return object_of(classes, path)


__all__ = [
    "UCB1",
    "ArgmaxRegressor",
    "CMTBandit",
    "Chosen",
    "Decisions",
    "EpsilonGreedy",
    "HybridLinUCB",
    "LinUCB",
    "LinearThompson",
    "Omniscient",
    "Policy",
    "Random",
    "SquareCB",
    "WarmEpsilonGreedy",
    "WarmUCB1",
    "evaluation",
    "load_policy",
]

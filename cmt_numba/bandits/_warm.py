"""Policies without a model of contexts that start from one which was trained on an earlier log."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import expit

from .._forest.invariants.errors import require
from .._forest.state import NONE
from .._validation import Constraint, Real, check_real
from ..persistence._container import Contents
from ._base import OF_ALL, Policy, changes
from ._checks import LARGEST, numbers
from ._models import Arrays, Estimates, Means, checked
from ._policies import SCALE, UCB1
from ._rules import greedy, mixed
from .evaluation._logs import Log

_CONTEXTS_KEPT = 256  # over which the expected reward of an action is averaged


class _Warm(Policy):
    """A policy that adds to the mean reward of an action what its reward in this context differs from the mean.

    The difference is that of a logistic regression on all products of a feature of the context and one of the action,
    which is trained once (:meth:`warm_up`), as in the experiments of Li et al. (2010). Until then it is 0.
    """

    _is_contextual = True

    _weights: np.ndarray  # (features of contexts + 1, features of actions + 1), without rows at first
    _kept: np.ndarray  # contexts of the log

    def _start(self, **options: Any) -> None:
        super()._start(**options)
        self._weights, self._kept = np.empty((0, 0)), np.empty((0, 0))
        self._model = Means()
        self._model.reserve(self._ids.size)

    @property
    def n_features(self) -> int | None:
        """Features of contexts, or None before :meth:`warm_up`."""
        return self._weights.shape[0] - 1 if self._weights.size else None

    @changes
    def warm_up(self, log: Log, action_features: Any, *, C: float = 1.0) -> Self:
        """Train the model of contexts and actions. What is known of the mean rewards stays.

        Parameters
        ----------
        log : Log
            A log with contexts, whose rewards are 0 or 1.
        action_features : array-like, shape (n_actions, n_action_features)
            Features of the actions 0 .. n_actions - 1, which become known. Those of other actions come by
            :meth:`add_actions`.
        C : float, default 1.0
            Inverse strength of the regularization.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            If an argument cannot be used; nothing has changed then.
        """
        from sklearn.linear_model import LogisticRegression

        C = check_real("C", C, 0.0, 1e9, above=True)
        features = numbers("action_features", action_features, 2)
        if log.contexts is None:
            raise ValueError("log must have contexts")
        if log.actions.max() >= features.shape[0] or np.any(self._ids >= features.shape[0]):
            raise ValueError(f"action_features must have a row for each action, not {features.shape[0]}")
        if np.unique(log.rewards).tolist() != [0.0, 1.0]:
            raise ValueError("log must have rewards of 0 and of 1, and no others")
        x, f = _with_one(log.contexts), _with_one(features[log.actions])
        products = (x[:, :, None] * f[:, None, :]).reshape(len(log), -1)
        model = LogisticRegression(C=C, fit_intercept=False, max_iter=1000).fit(products, log.rewards)
        known = self._ids.copy()
        new = np.setdiff1d(np.arange(features.shape[0]), known)
        self._enter(new, None)
        self._features = features[self._ids]
        self._weights = model.coef_.reshape(x.shape[1], f.shape[1])
        self._kept = log.contexts[:: -(-len(log) // _CONTEXTS_KEPT)].copy()
        return self

    @changes
    def add_actions(self, actions: Any, features: Any = None) -> Self:
        """Make actions known.

        Parameters
        ----------
        actions : int or array-like of int, shape (k,)
            Distinct actions, not known yet: integers from 0 on.
        features : array-like, shape (k, n_action_features), optional
            Their features, which are needed after :meth:`warm_up`, and only then.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            If they are not new, distinct actions, or features are missing or not wanted; nothing has changed then.
        """
        new = self._new(actions)
        if (features is None) == (self._weights.size > 0):
            raise ValueError(f"features must {'' if features is None else 'not '}be given")
        if features is None:
            self._enter(new, None)
            return self
        array = numbers("features", features, 2)
        if array.shape != (new.size, self._weights.shape[1] - 1):
            raise ValueError(f"features must have shape {(new.size, self._weights.shape[1] - 1)}, not {array.shape}")
        self._enter(new, array)
        return self

    def _check_learnable(self, actions: np.ndarray) -> None:
        if self._weights.size and np.any(self._slots_of(actions) == NONE):
            raise ValueError("actions must have features: call add_actions with them")

    def _estimates(self, rows: np.ndarray, of_pairs: np.ndarray, actions: np.ndarray) -> Estimates:
        self._check_learnable(actions)
        found = super()._estimates(rows, of_pairs, actions)
        if self._weights.size == 0:
            return found
        slots, at = np.unique(self._slots_of(actions), return_inverse=True)
        of_actions = _with_one(self._features[slots]) @ self._weights.T  # weights of contexts, for each action
        usual = expit(_with_one(self._kept) @ of_actions.T).mean(axis=0)
        expected = expit(np.einsum("pd,pd->p", _with_one(rows)[of_pairs], of_actions[at]))
        return found._replace(means=found.means + expected - usual[at])

    def _contents(self) -> Contents:
        plain = super()._contents()
        return Contents(
            plain.kind,
            plain.fields | {"n_features": None},
            plain.arrays | {"warm.weights": self._weights, "warm.kept": self._kept},
        )

    @classmethod
    def _made_of(cls, contents: Contents) -> Self:
        policy = super()._made_of(contents)
        arrays = contents.arrays
        for name in ("warm.weights", "warm.kept"):
            require(name in arrays and arrays[name].ndim == 2, f"{name} must be a matrix")
        weights, kept = arrays["warm.weights"], arrays["warm.kept"]
        policy._weights = checked(arrays, "warm.weights", weights.shape, np.dtype(np.float64))
        policy._kept = checked(arrays, "warm.kept", kept.shape, np.dtype(np.float64), LARGEST)
        width = policy._features.shape[1] + 1 if policy._features.size else 0
        require(weights.size == 0 or weights.shape[1] == width, "weights must be as wide as features")
        require(
            weights.size == 0 or (kept.shape[1] + 1, kept.size > 0) == (weights.shape[0], True), "contexts must fit"
        )
        return policy

    def _features_of(self, arrays: Arrays, n: int) -> np.ndarray:
        features = arrays.get("features", np.empty(0))
        if features.ndim == 2 and features.shape[1] > 0:
            return checked(arrays, "features", (n, features.shape[1]), np.dtype(np.float64), LARGEST)
        return super()._features_of(arrays, n)


class WarmEpsilonGreedy(_Warm):
    """Choose the action of the best mean reward after a correction for the context, sometimes one at random.

    The correction is what a logistic regression of an earlier log (:meth:`warm_up`) expects of the action in this
    context above what it expects in all contexts: the warm form of epsilon-greedy of Li et al. (2010).

    Parameters
    ----------
    n_actions : int, optional
        The actions 0 .. n_actions - 1 are known at first; by default none are.
    epsilon : float in [0, 1], default 0.1
        Probability of exploring.
    random_state : int or numpy.random.SeedSequence, optional
        Seed.
    """

    _constraints: ClassVar[dict[str, Constraint]] = {**OF_ALL, "epsilon": Real(0.0, 1.0)}

    def __init__(self, n_actions: int | None = None, *, epsilon: float = 0.1, random_state: Any = None) -> None:
        self._start(n_actions=n_actions, epsilon=epsilon, random_state=random_state)

    def _rule(self, estimates: Estimates, offsets: np.ndarray) -> np.ndarray:
        return mixed(greedy(estimates.means, offsets), offsets, self._options["epsilon"])


class WarmUCB1(_Warm, UCB1):
    """Choose by the upper confidence bound of the mean reward after a correction for the context.

    See :class:`UCB1`, and :class:`WarmEpsilonGreedy` for the correction.

    Parameters
    ----------
    n_actions : int, optional
        The actions 0 .. n_actions - 1 are known at first; by default none are.
    scale : float, default 1.0
        Factor of the bonus.
    random_state : int or numpy.random.SeedSequence, optional
        Seed, for actions of equal bounds.
    """

    _constraints: ClassVar[dict[str, Constraint]] = {**OF_ALL, "scale": SCALE}


def _with_one(rows: np.ndarray) -> np.ndarray:
    """Return rows with a further column of ones."""
    return np.column_stack([rows, np.ones(rows.shape[0])])

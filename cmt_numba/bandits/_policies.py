"""Policies that estimate the reward of every allowed action."""

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from .._validation import Checked, Flag, Real
from ._base import Policy
from ._checks import numbers
from ._models import Estimates
from ._rules import greedy, inverse_gaps, mixed, thompson

_LARGEST = 1e9
_LARGEST_SHARED = 1e20  # for larger features, rounding errors exceed the ridge

SCALE = Real(0.0, _LARGEST)

RIDGE = Real(1e-9, _LARGEST)


def _check_features(features: Any) -> np.ndarray | None:
    return None if features is None else numbers("action_features", features, 2)


@dataclass(eq=False, repr=False, kw_only=True)
class UCB1(Policy):
    """UCB1 policy, which ignores contexts (Auer, Cesa-Bianchi and Fischer, 2002).

    The policy chooses the action with the largest upper confidence bound ``mean + scale * sqrt(2 log(t) / n)``, where
    ``mean`` is the mean of the action's ``n`` rewards and ``t`` is the number of all rewards. Actions without rewards
    are chosen first. Rewards should lie in [0, 1].

    Parameters
    ----------
    scale : float, default 1.0
        Factor of the confidence bonus. The published algorithm uses 1.
    n_actions, random_state
        As for :class:`EpsilonGreedy`.
    """

    scale: Annotated[float, SCALE] = 1.0

    def _rule(self, estimates: Estimates, offsets: np.ndarray) -> np.ndarray:
        bonus = self._options["scale"] * np.sqrt(2.0 * np.log(max(self.n_rewards, 1)))
        untried = np.isinf(estimates.variances)
        deviations = np.sqrt(np.where(untried, 0.0, estimates.variances))
        return greedy(np.where(untried, np.inf, estimates.means + bonus * deviations), offsets)


@dataclass(eq=False, repr=False, kw_only=True)
class EpsilonGreedy(Policy):
    """Epsilon-greedy policy, which chooses the action with the best estimated reward or explores uniformly.

    With ``epsilon=1.0``, the policy is uniformly random, for collecting logs or as a baseline. With ``epsilon=0.0`` and
    trained on a whole log, it chooses the action with the best mean in hindsight, an upper bound for policies that
    ignore contexts (Li et al., 2010): ``replay(policy, log, learn=False)``.

    Parameters
    ----------
    n_actions : int, optional
        Number of initial actions, 0 to n_actions - 1. By default there are no initial actions.
    epsilon : float in [0, 1], default 0.1
        Probability of exploring.
    decay : float, default 0.0
        The probability of exploring after ``t`` rewards is ``epsilon / (1 + decay * t)``.
    contextual : bool, default False
        If True, estimate rewards with a linear model of the context for each action. If False, use the mean reward of
        the action, or 0 if the action has no rewards.
    regularization : float, default 1.0
        Ridge penalty of the linear models.
    random_state : int or numpy.random.SeedSequence, optional
        Random seed.

    Examples
    --------
    >>> from cmt_numba.bandits import EpsilonGreedy
    >>> EpsilonGreedy(4, epsilon=1.0, random_state=0).act().propensities.tolist()
    [0.25]
    """

    epsilon: Annotated[float, Real(0.0, 1.0)] = 0.1
    decay: Annotated[float, SCALE] = 0.0
    contextual: Annotated[bool, Flag()] = False
    regularization: Annotated[float, RIDGE] = 1.0

    def __post_init__(self) -> None:
        self._is_contextual = bool(self.contextual)  # type: ignore[misc]
        super().__post_init__()

    def _rule(self, estimates: Estimates, offsets: np.ndarray) -> np.ndarray:
        epsilon: float = self._options["epsilon"] / (1.0 + self._options["decay"] * self.n_rewards)
        return mixed(greedy(estimates.means, offsets), offsets, epsilon)


@dataclass(eq=False, repr=False, kw_only=True)
class LinUCB(Policy):
    """LinUCB policy with a linear reward model for each action (Li et al., 2010, Algorithm 1).

    The policy chooses the action with the largest upper confidence bound ``theta_a . x + alpha * sqrt(x^T A_a^-1 x)``.
    ``A_a`` is the ridge matrix plus the sum of ``x x^T`` over the contexts in which the action was chosen, and
    ``theta_a`` is the ridge regression of the action's rewards.

    A decision takes time proportional to the number of allowed actions times the squared number of features. Learning
    a reward takes time proportional to the squared number of features.

    Parameters
    ----------
    alpha : float, default 1.0
        Weight of the uncertainty.
    n_actions, regularization, random_state
        As for :class:`EpsilonGreedy`.

    Examples
    --------
    >>> import numpy as np
    >>> from cmt_numba.bandits import LinUCB
    >>> policy = LinUCB(n_actions=2, alpha=0.5, random_state=0)
    >>> contexts = np.array([[1.0, 0.0], [0.0, 1.0]])
    >>> for _ in range(20):
    ...     actions, propensities = policy.act(contexts)
    ...     rewards = (actions == [0, 1]).astype(float)
    ...     policy = policy.learn(contexts, actions, rewards, propensities)
    >>> policy.act(contexts).actions.tolist()
    [0, 1]
    """

    _is_contextual = True

    alpha: Annotated[float, SCALE] = 1.0
    regularization: Annotated[float, RIDGE] = 1.0

    def _rule(self, estimates: Estimates, offsets: np.ndarray) -> np.ndarray:
        return greedy(estimates.means + self._options["alpha"] * np.sqrt(estimates.variances), offsets)


@dataclass(eq=False, repr=False, kw_only=True)
class HybridLinUCB(Policy):
    """LinUCB policy with shared features (Li et al., 2010, Algorithm 2).

    The policy adds a shared linear model ``beta . z`` to the model of each action. The shared features ``z`` are all
    products of a context feature and an action feature. A reward of an action therefore also improves the estimates
    of similar actions. This helps most at the beginning, when few rewards are known.

    A decision takes time proportional to the number of allowed actions times the squared number of shared features.

    Parameters
    ----------
    n_actions : int, optional
        Number of initial actions, 0 to n_actions - 1. By default, the number of rows of ``action_features``.
    alpha : float, default 1.0
        Weight of the uncertainty.
    action_features : array-like, shape (n_actions, n_action_features), optional
        Features of the initial actions. Pass the features of other actions to :meth:`add_actions`. Without action
        features, ``z`` is the context.
    regularization, random_state
        As for :class:`EpsilonGreedy`.
    """

    _is_contextual = True
    _has_features = True

    alpha: Annotated[float, SCALE] = 1.0
    action_features: Annotated[Any, Checked(_check_features, "array-like")] = None
    regularization: Annotated[float, RIDGE] = 1.0

    def __post_init__(self) -> None:
        features = _check_features(self.action_features)
        self.action_features = None
        super().__post_init__()
        if features is not None:
            if self.n_actions is not None and features.shape[0] != self.n_actions:
                raise ValueError(f"action_features must have {self.n_actions} rows, got {features.shape[0]}")
            self._set_ids(np.empty(0, np.int64))  # discard initial actions without features
            self._enter(np.arange(features.shape[0]), features)

    def _n_shared(self, n_features: int) -> int:
        return n_features * max(1, self._features.shape[1])

    def _checked(self, contexts: Any, n_rows: int = 1) -> np.ndarray:
        rows = super()._checked(contexts, n_rows)
        largest = np.abs(rows).max()
        if self._features.shape[1] > 0:
            largest *= np.abs(self._features).max(initial=0.0)
        if largest > _LARGEST_SHARED:
            raise ValueError(
                f"products of context and action features must be at most {_LARGEST_SHARED:g}, got {largest:g}: "
                "scale contexts down"
            )
        return rows

    def _shared(self, rows: np.ndarray, of_pairs: np.ndarray, actions: np.ndarray, slots: np.ndarray) -> np.ndarray:
        contexts: np.ndarray = rows[of_pairs]
        if self._features.shape[1] == 0:
            return contexts
        self._check_featured(actions, slots)
        products = self._features[slots][:, :, None] * contexts[:, None, :]
        return np.ascontiguousarray(products.reshape(slots.size, -1))

    _rule = LinUCB._rule


@dataclass(eq=False, repr=False, kw_only=True)
class LinearThompson(Policy):
    """Thompson sampling with a Bayesian linear model for each action (Agrawal and Goyal, 2013).

    The expected reward of an action is normal with mean ``theta_a . x`` and standard deviation
    ``scale * sqrt(x^T A_a^-1 x)``. Each action is chosen with the probability that its expected reward is the largest.
    This probability is computed by numerical integration, so propensities are exact. Sampling model parameters would
    leave the propensities unknown.

    Parameters
    ----------
    scale : float, default 0.3
        Assumed standard deviation of rewards. Larger values explore more.
    n_actions, regularization, random_state
        As for :class:`EpsilonGreedy`.
    """

    _is_contextual = True

    scale: Annotated[float, SCALE] = 0.3
    regularization: Annotated[float, RIDGE] = 1.0

    def _rule(self, estimates: Estimates, offsets: np.ndarray) -> np.ndarray:
        deviations: np.ndarray = self._options["scale"] * np.sqrt(estimates.variances)
        return thompson(estimates.means, deviations, offsets)


@dataclass(eq=False, repr=False, kw_only=True)
class SquareCB(Policy):
    """SquareCB policy with a linear reward model for each action (Foster and Rakhlin, 2020).

    If ``k`` actions are allowed, an action whose estimated reward is ``gap`` below the best estimate has probability
    ``1 / (k + weight * gap)``. The best action has the remaining probability.

    Parameters
    ----------
    gamma : float, default 10.0
        The weight of gaps after ``t`` rewards is ``gamma * t ** exponent``.
    exponent : float in [0, 1], default 0.5
        Exponent in the weight of gaps.
    n_actions, regularization, random_state
        As for :class:`EpsilonGreedy`.
    """

    _is_contextual = True

    gamma: Annotated[float, SCALE] = 10.0
    exponent: Annotated[float, Real(0.0, 1.0)] = 0.5
    regularization: Annotated[float, RIDGE] = 1.0

    def _rule(self, estimates: Estimates, offsets: np.ndarray) -> np.ndarray:
        gamma: float = self._options["gamma"] * float(self.n_rewards) ** self._options["exponent"]
        return inverse_gaps(estimates.means, offsets, gamma)

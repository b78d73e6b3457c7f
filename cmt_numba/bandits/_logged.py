"""A policy learned from a log: the best action by a regression, among those that the log supports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np

from .._forest import require
from .._validation import check_choice, check_real
from ..persistence import Contents, Saved, as_part, generator_fields, of_part, read_array, read_generator, take
from ._base import Chosen
from ._checks import MOST_ACTIONS, MOST_FEATURES, Choices, all_of, check_choices, check_contexts, generator_of, numbers
from ._kernels import ActionPairs
from ._models import RewardModels, checked
from ._rules import draw, greedy, rows_of
from .evaluation._estimators import importance_weights
from .evaluation._logs import Log

SUPPORTS = ("contexts", "actions", "all")

_NOT_FITTED = "there is no policy yet: call fit with a log first"
_OPTIONS: dict[str, type] = {"tau": float, "support": str, "regularization": float}  # in files

_PAIRS_AT_ONCE = 1 << 16

_OTHERWISE = -1e300  # the expected reward of an action without support


class ArgmaxRegressor(Saved):
    """Choose the action with the largest reward expected by a regression, among those that a log supports.

    The rewards of a log are learned with the weights ``1 / max(propensity, tau)``. The policy chooses among the actions
    ``C(x)`` that were ever chosen in the context ``x``, because the log says nothing of others (Strehl, Langford, Li
    and Kakade, 2010). It does not learn further; :meth:`warm_start` teaches a policy that does. :meth:`save` writes one
    with the default regression to a file; those with another one can be pickled.

    Parameters
    ----------
    regressor : scikit-learn regressor, optional
        Learns rewards with ``sample_weight``, from contexts and an indicator of the action, or from
        ``pair_features``. By default there is a ridge regression for each action, or one on ``pair_features``.
    tau : float in [0, 1], default 0.01
        Least propensity. Smaller ones are replaced by it.
    support : {"contexts", "actions", "all"}, default "actions"
        - "contexts": an action is supported by rows of the same context. In a context that the log does not hold,
          actions are supported as by "actions".
        - "actions": an action is supported wherever it is allowed, if the log holds it at all.
        - "all": all actions are.
    pair_features : callable, optional
        Called with contexts, shape (n, n_features), and actions, shape (n,); returns features of each pair, shape
        (n, k).
    regularization : float, default 1.0
        The ridge of the default regression.
    random_state : int or numpy.random.SeedSequence, optional
        Seed, for ties.

    Examples
    --------
    >>> import numpy as np
    >>> from cmt_numba.bandits import ArgmaxRegressor
    >>> from cmt_numba.bandits.evaluation import Log
    >>> contexts = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    >>> log = Log([0, 1, 0, 1], [1, 0, 0, 1], contexts, [0.5, 0.5, 0.5, 0.5])
    >>> ArgmaxRegressor(random_state=0).fit(log).act(contexts).actions.tolist()
    [0, 0, 1, 1]
    """

    def __init__(
        self,
        regressor: Any = None,
        *,
        tau: float = 0.01,
        support: str = "actions",
        pair_features: Callable[[np.ndarray, np.ndarray], Any] | None = None,
        regularization: float = 1.0,
        random_state: Any = None,
    ) -> None:
        check_choice("support", support, SUPPORTS)
        if pair_features is not None and not callable(pair_features):
            raise TypeError("pair_features must be a function of contexts and actions")
        self.regressor, self.support, self.pair_features = regressor, support, pair_features
        self.tau = check_real("tau", tau, 0.0, 1.0)
        self.regularization = check_real("regularization", regularization, 1e-9, 1e9)
        self._generator = generator_of(random_state, "choices")
        self._model: Any = None

    def fit(self, log: Log, propensities: Any = None) -> Self:
        """Learn from a log.

        Parameters
        ----------
        log : Log
            The log, with contexts.
        propensities : array-like, shape (n,), optional
            Estimated propensities, where the log has none
            (:func:`~cmt_numba.bandits.evaluation.estimate_propensities`).

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            If an argument cannot be used, or contexts or propensities are missing; nothing has changed then.
        """
        given = log.propensities if propensities is None else propensities
        if log.contexts is None or given is None:
            raise ValueError("the log must have contexts and propensities: see estimate_propensities")
        weights = importance_weights(given, np.ones(len(log)), self.tau)
        known, chosen = np.unique(log.actions, return_inverse=True)
        model = self._fitted(log, known, chosen, weights)
        self._known, self._width, self._model = known, log.contexts.shape[1], model
        self._seen: dict[bytes, np.ndarray] = {}
        if self.support == "contexts":
            distinct, of_rows = np.unique(log.contexts, axis=0, return_inverse=True)
            order = np.argsort(of_rows.reshape(-1), kind="stable")
            ends = np.cumsum(np.bincount(of_rows.reshape(-1)))[:-1]
            parts = np.split(log.actions[order], ends)
            self._seen = {row.tobytes(): np.unique(actions) for row, actions in zip(distinct + 0.0, parts, strict=True)}
        return self

    def _fitted(self, log: Log, known: np.ndarray, chosen: np.ndarray, weights: np.ndarray) -> Any:
        """Return a model of the rewards of contexts and actions."""
        X = log.contexts
        assert X is not None
        if self.regressor is None and self.pair_features is None:
            return self._linear(X, known, chosen, weights, log.rewards)
        from sklearn.base import clone
        from sklearn.linear_model import Ridge

        model = Ridge(alpha=self.regularization) if self.regressor is None else clone(self.regressor)
        model.fit(self._features(X, log.actions, known), log.rewards, sample_weight=weights)
        return model

    def _features(self, contexts: np.ndarray, actions: np.ndarray, known: np.ndarray) -> Any:
        """Return the features of contexts and actions for a regressor."""
        import scipy.sparse

        if self.pair_features is not None:
            return numbers("pair_features", self.pair_features(contexts, actions), 2)
        place = np.minimum(np.searchsorted(known, actions), known.size - 1)
        held = (known[place] == actions).astype(float)
        indicators = scipy.sparse.csr_array((held, (np.arange(held.size), place)), (held.size, known.size))
        return scipy.sparse.csr_matrix(scipy.sparse.hstack([scipy.sparse.csr_array(contexts), indicators]))

    def _linear(
        self, X: np.ndarray, known: np.ndarray, chosen: np.ndarray, weights: np.ndarray, rewards: np.ndarray
    ) -> RewardModels:
        models = RewardModels(X.shape[1] + 1, 0, self.regularization)
        models.reserve(known.size)
        roots = np.sqrt(weights / weights.mean())
        scaled = np.column_stack([X, np.ones(X.shape[0])]) * roots[:, None]
        models.learn(ActionPairs(scaled, np.arange(X.shape[0]), chosen, np.empty((X.shape[0], 0))), rewards * roots)
        return models

    def _expect(self, contexts: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """Return the rewards expected of actions."""
        known = self._known
        if not isinstance(self._model, RewardModels):
            found = self._model.predict(self._features(contexts, actions, known))
            return np.asarray(found, np.float64).reshape(-1)
        places = np.minimum(np.searchsorted(known, actions), known.size - 1)
        slots = np.where(known[places] == actions, places, known.size)  # as an action without rewards
        rows = np.column_stack([contexts, np.ones(contexts.shape[0])])
        return self._model.estimate(ActionPairs(rows, np.arange(slots.size), slots, np.empty((slots.size, 0)))).means

    # Files

    def _contents(self) -> Contents:
        if self._model is None:
            raise ValueError(_NOT_FITTED)
        if not isinstance(self._model, RewardModels):
            raise TypeError(
                "a policy with a regressor or pair_features of its own cannot be saved, because files hold no code: "
                "pickle it"
            )
        rows = [np.frombuffer(row, np.float64) for row in self._seen]
        fields = {
            **{name: getattr(self, name) for name in _OPTIONS},
            "generator": generator_fields(self._generator),
        }
        arrays = {
            "actions": self._known,
            "seen.contexts": np.array(rows).reshape(len(rows), self._width),
            "seen.lengths": np.array([actions.size for actions in self._seen.values()], np.int64),
            "seen.actions": np.concatenate([np.empty(0, np.int64), *self._seen.values()]),
        }
        return Contents(type(self).__name__, fields, arrays | as_part("model", self._model.arrays(self._known.size)))

    @classmethod
    def _made_of(cls, contents: Contents) -> Self:
        fields, arrays = contents.fields, contents.arrays
        policy = cls(**{name: take(fields, name, kind) for name, kind in _OPTIONS.items()})
        policy._generator = read_generator("the generator", fields.get("generator"))
        policy._known = read_array("actions", arrays, np.int64)
        lengths, seen = (read_array(f"seen.{name}", arrays, np.int64) for name in ("lengths", "actions"))
        require(policy._known.size > 0, "there must be actions")
        for name, actions in (("actions", policy._known), ("seen.actions", seen)):
            require(bool(np.all((actions >= 0) & (actions <= MOST_ACTIONS))), f"{name} must be in range")
        require(bool(np.all(np.diff(policy._known) > 0)), "actions must ascend")
        rows = arrays.get("seen.contexts")
        require(rows is not None and rows.ndim == 2, "there must be an array of contexts that were seen")
        assert rows is not None
        require(1 <= rows.shape[1] <= MOST_FEATURES, f"contexts must have between 1 and {MOST_FEATURES} features")
        rows = checked(arrays, "seen.contexts", (lengths.size, rows.shape[1]), np.dtype(np.float64))
        require(bool(np.all(lengths > 0)) and int(lengths.sum()) == seen.size, "contexts must have actions")
        policy._width = rows.shape[1]
        model = of_part("model", arrays)
        policy._model = RewardModels.read(model, policy._known.size, policy._width + 1, 0, policy.regularization)
        parts = np.split(seen.copy(), np.cumsum(lengths)[:-1]) if lengths.size else []
        policy._seen = {row.tobytes(): actions for row, actions in zip(rows, parts, strict=True)}
        return policy

    # Pickles hold arrays in place of the linear models, whose class may change.

    def __getstate__(self) -> dict[str, Any]:
        state = dict(vars(self))
        if isinstance(self._model, RewardModels):
            state["_model"] = self._model.arrays(self._known.size)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        if isinstance(state["_model"], dict):
            n = self._known.size
            self._model = RewardModels.read(state["_model"], n, self._width + 1, 0, self.regularization)

    def expected(self, contexts: Any, actions: Any) -> np.ndarray:
        """Return the rewards expected of actions, whether they are supported or not.

        Parameters
        ----------
        contexts : array-like, shape (n, n_features)
            Contexts.
        actions : array-like of int, shape (n,)
            An action in each.

        Returns
        -------
        ndarray of float64, shape (n,)
        """
        rows, actions = self._checked(contexts), np.asarray(actions)
        choices = check_choices(actions[:, None], rows.shape[0])
        return self._expect(rows, choices.actions)

    def probabilities(self, contexts: Any, actions: Any = None) -> np.ndarray:
        """Return the probabilities with which :meth:`act` chooses.

        Parameters
        ----------
        contexts : array-like, shape (n, n_features)
            Contexts.
        actions : array-like, optional
            The actions allowed, as of :meth:`Policy.act`; by default those of the log.

        Returns
        -------
        ndarray of float64, shape (n, k)
            As of :meth:`Policy.probabilities`.
        """
        _, choices, probabilities = self._asked(contexts, actions)
        answer = np.zeros(choices.shape)
        answer.reshape(-1)[choices.places] = probabilities
        return answer

    def act(self, contexts: Any, actions: Any = None) -> Chosen:
        """Choose an action in each context.

        Parameters
        ----------
        contexts, actions
            As of :meth:`probabilities`.

        Returns
        -------
        Chosen
            As of :meth:`Policy.act`.
        """
        _, choices, probabilities = self._asked(contexts, actions)
        drawn = draw(probabilities, choices.offsets, self._generator.random(choices.shape[0]))
        return Chosen(choices.actions[drawn], probabilities[drawn])

    def warm_start(self, policy: Any, contexts: Any) -> Any:
        """Teach a policy the rewards that are expected of the actions chosen here, clipped to [0, 1].

        Parameters
        ----------
        policy : object
            With ``learn(contexts, actions, rewards)``, as :class:`CMTBandit`.
        contexts : array-like, shape (n, n_features)
            Contexts, for example those of the log.

        Returns
        -------
        object
            The policy, which has learned.
        """
        chosen = self.act(contexts).actions
        policy.learn(contexts, chosen, np.clip(self.expected(contexts, chosen), 0.0, 1.0))
        return policy

    def _checked(self, contexts: Any) -> np.ndarray:
        if self._model is None:
            raise ValueError(_NOT_FITTED)
        return check_contexts(contexts, self._width)

    def _asked(self, contexts: Any, actions: Any) -> tuple[np.ndarray, Choices, np.ndarray]:
        rows = self._checked(contexts)
        choices = all_of(self._known, rows.shape[0]) if actions is None else check_choices(actions, rows.shape[0])
        of_pairs = rows_of(choices.offsets)
        scores = np.empty(of_pairs.size)
        for first in range(0, of_pairs.size, _PAIRS_AT_ONCE):
            part = slice(first, first + _PAIRS_AT_ONCE)
            scores[part] = self._expect(rows[of_pairs[part]], choices.actions[part])
        supported = self._supported(rows, choices)
        some = np.add.reduceat(supported, choices.offsets[:-1]) > 0  # where there are none, all remain
        scores = np.where(supported | ~some[of_pairs], scores, _OTHERWISE)
        return rows, choices, greedy(scores, choices.offsets)

    def _supported(self, rows: np.ndarray, choices: Choices) -> np.ndarray:
        if self.support == "all":
            return np.ones(choices.actions.size, np.bool_)
        supported = np.isin(choices.actions, self._known)
        for i, row in enumerate(rows + 0.0 if self.support == "contexts" else ()):
            seen = self._seen.get(row.tobytes())
            if seen is not None:
                span = slice(*choices.offsets[i : i + 2])
                supported[span] = np.isin(choices.actions[span], seen)
        return supported

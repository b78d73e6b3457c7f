"""A policy trained on a log."""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from types import SimpleNamespace
from typing import Annotated, Any, NamedTuple, Self

import numpy as np
import scipy.sparse
from sklearn.base import clone

from .. import persistence as files
from .._kernels import require
from .._validation import Constrained, OneOf, Optional, Real, Seed, check_parameters
from ..estimators import CMTClassifier
from ..persistence import Saved
from ._base import Chosen
from ._checks import LARGEST, MAX_ACTIONS, Choices, all_of, check_choices, generator_of, numbers
from ._ridges import ActionRidges, fit_ridges, with_indicators
from ._rules import draw, greedy, rows_of
from .evaluation._estimators import importance_weights
from .evaluation._logs import Log, check_log_contexts, number_names

SUPPORTS = ("contexts", "actions", "all")
METHODS = ("classification", "product", "regression")

_NOT_FITTED = "the policy is not fitted: call fit with a log first"
_OPTIONS = ("support", "regularization", "method", "tau")  # options saved in files

_ACTIONS = files.ArrayField(np.int64, bounds=(0, MAX_ACTIONS))
_CELLS_AT_ONCE = 1 << 21
_OTHERWISE = -1e300  # score of an unsupported action
_TAUS = (1.0, 0.05)  # values of tau to compare: 1 gives equal weights, 0.05 limits weights to 20
_FOLDS, _FEWEST_ROWS = 4, 40
_MIN_REWARD = 1e-3  # lower limit of expected rewards in products
_MIN_PROPENSITY = 0.03  # lower limit of propensities in held-out rows, to bound the variance of weights
_MARGIN, _MARGIN_OF_REGRESSION = 1.5, 4.0  # required lead over the best method so far, in standard errors


class LogModel(NamedTuple):
    """Models trained on a log: a reward regression and a classifier of rewarded actions."""

    regression: Any  # ActionRidges or a scikit-learn regressor
    classifier: CMTClassifier | None

    def tables(self, X: Any, n_actions: int) -> tuple[np.ndarray, np.ndarray]:
        """Return expected rewards and class probabilities: two float64 arrays of shape (n, n_actions)."""
        shares = np.zeros((X.shape[0], n_actions))
        if self.classifier is not None:
            shares[:, self.classifier.classes_] = self.classifier.predict_proba(X)
        expected: np.ndarray = self.regression.scores(X)
        return expected, shares


def combine(method: str, rewards: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Return the scores of a method from expected rewards and class probabilities."""
    products: np.ndarray = np.maximum(rewards, _MIN_REWARD) * shares
    return {"classification": shares, "product": products, "regression": rewards}[method]


@dataclass(eq=False, repr=False)
class ArgmaxRegressor(Saved, Constrained):
    """Greedy policy trained on a log.

    The policy chooses the action with the highest score among the actions that the log supports, because the log does
    not show the rewards of other actions (Strehl, Langford, Li and Kakade, 2010). Several scoring methods are compared
    on held-out rows, and the best method is trained on the whole log.

    The policy does not learn online, but :meth:`warm_start` can train a policy that does. A policy without
    ``regressor`` and ``pair_features`` can be saved to a file. Any policy can be pickled.

    Parameters
    ----------
    regressor : scikit-learn regressor, optional
        Predicts rewards from contexts and one-hot actions, or from ``pair_features``. It must accept ``sample_weight``.
        By default, each action has a ridge regression. With ``pair_features``, all actions share one regression.
    method : {"auto", "classification", "product", "regression"}, default "auto"
        - "classification": Scores are probabilities of a :class:`~cmt_numba.CMTClassifier` that predicts the actions of
          rewarded rows, weighted by non-negative rewards. Best if the logged actions are good.
        - "regression": Scores are expected rewards.
        - "product": Scores are products of the scores of "classification" and "regression".
        - "auto": Selects a method by its score on held-out rows. "classification" is preferred unless "product" or
          "regression" is clearly better. "regression" is selected if there are negative rewards, a ``regressor`` or
          ``pair_features``.
    tau : float in [0, 1], optional
        The regression weights rows by ``1 / max(propensity, tau)``. By default, ``tau`` is 1 (equal weights) or 0.05,
        selected by the score on held-out rows.
    support : {"contexts", "actions", "all"}, default "actions"
        - "contexts": The log supports an action in the contexts where it was chosen. In a context that is not in the
          log, all logged actions are supported.
        - "actions": All logged actions are supported.
        - "all": All actions are supported.
    pair_features : callable, optional
        Function of contexts, shape (n, n_features), and actions, shape (n,), that returns features of the
        context-action pairs, shape (n, k).
    regularization : float, default 0.3
        Ridge penalty of the default regression.
    random_state : int or numpy.random.SeedSequence, optional
        Random seed for breaking ties.

    Attributes
    ----------
    method_ : str
        The selected method.
    tau_ : float
        The selected ``tau``.
    arms_ : tuple of str or None
        The names of actions 0, 1, 2, ..., if the log has names. :meth:`act` then returns names, and methods accept
        names or numbers.
    values_ : dict of (str, float) to float
        The held-out score of each compared method and ``tau``, ``2 * sum(w * p * r) / sum(w * (p + r))``. Each row has
        the reward ``r``, shifted to be non-negative, the importance weight ``w``, and the probability ``p`` with which
        the method chooses the logged action.

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

    FIELDS = files.FieldTable(
        method=files.NameField("auto", *METHODS),
        tau=files.OptionalField(files.RealField(0.0, 1.0)),
        support=files.NameField(*SUPPORTS),
        regularization=files.RealField(1e-9, 1e9),
        chosen_method=files.NameField(*METHODS),
        chosen_tau=files.RealField(0.0, 1.0),
        _generator=files.GeneratorField(),
        _width=files.NumberField(1, 2**31 - 1),
        _known=_ACTIONS,
        arms_=files.OptionalField(files.TextsField()),
        # the distinct contexts of the log, the number of actions in each, and these actions, context by context
        seen=files.FieldTable(
            contexts=files.ArrayField(np.float64, n_axes=2, bounds=(-LARGEST, LARGEST)),
            lengths=files.ArrayField(np.int64),
            actions=_ACTIONS,
        ),
        model=files.NamedArraysField(),
        classifier=files.OptionalField(files.PartField(CMTClassifier)),
    )

    regressor: Any = None
    _: KW_ONLY
    method: Annotated[str, OneOf(("auto", *METHODS))] = "auto"
    tau: Annotated[float | None, Optional(Real(0.0, 1.0))] = None
    support: Annotated[str, OneOf(SUPPORTS)] = "actions"
    pair_features: Callable[[np.ndarray, np.ndarray], Any] | None = None
    regularization: Annotated[float, Real(1e-9, 1e9)] = 0.3
    random_state: Seed = None

    def __post_init__(self) -> None:
        check_parameters(self, self._constraints)
        if self.pair_features is not None and not callable(self.pair_features):
            raise TypeError("pair_features must be a callable of contexts and actions")
        self.regularization = float(self.regularization)
        self.tau = None if self.tau is None else float(self.tau)
        self._generator = generator_of(self.random_state, "choices")
        self._model: LogModel | None = None

    def fit(self, log: Log, propensities: Any = None) -> Self:
        """Train the policy on a log with dense or sparse contexts.

        ``propensities`` are used instead of those in the log. They may be estimates, for example from
        :func:`~cmt_numba.bandits.evaluation.estimate_propensities`.
        """
        given = log.propensities if propensities is None else numbers("propensities", propensities, 1)
        if log.contexts is None or given is None:
            raise ValueError("the log must have contexts and propensities; estimate_propensities estimates these")
        importance_weights(given, np.ones(len(log)), 0.5 if self.tau is None else self.tau)  # validates propensities
        known, chosen = np.unique(log.actions, return_inverse=True)
        ways, values = self._ways(log, chosen, given), {}
        if len(ways) > 1:
            values = self._held_out_values(log, known, chosen, given, ways)
            best = ways[0]
            for way in ways[1:]:
                better = values[way] - values[best]
                margin = _MARGIN_OF_REGRESSION if way[0] == "regression" != best[0] else _MARGIN
                if better.mean() > margin * better.std() / np.sqrt(len(log)):
                    best = way
            ways = [best]
        method, tau = ways[0]
        model = self._learned(log, np.arange(len(log)), known, chosen, given, tau, method != "regression")
        self.arms_ = log.arms
        self._known, self._width, self._model = known, log.contexts.shape[1], model
        self.method_, self.tau_ = method, tau
        self.values_ = {way: float(terms.mean()) for way, terms in values.items()}
        self._seen: dict[bytes, np.ndarray] = {}
        if self.support == "contexts":
            contexts = log.contexts.toarray() if scipy.sparse.issparse(log.contexts) else log.contexts
            distinct, of_rows = np.unique(contexts, axis=0, return_inverse=True)
            order = np.argsort(of_rows.reshape(-1), kind="stable")
            ends = np.cumsum(np.bincount(of_rows.reshape(-1)))[:-1]
            parts = np.split(log.actions[order], ends)
            self._seen = {row.tobytes(): np.unique(actions) for row, actions in zip(distinct + 0.0, parts, strict=True)}
        return self

    def _ways(self, log: Log, chosen: np.ndarray, propensities: np.ndarray) -> list[tuple[str, float]]:
        """Return the ``(method, tau)`` pairs to compare."""
        own = self.regressor is not None or self.pair_features is not None
        rewarded = np.unique(chosen[log.rewards > 0.0]).size
        classifies = not own and rewarded > 1 and float(log.rewards.min()) >= 0.0
        if self.method not in ("auto", "regression") and not classifies:
            raise ValueError(
                f"method={self.method!r} requires non-negative rewards, at least two rewarded actions, and no "
                'regressor or pair_features: use method="regression"'
            )
        methods: tuple[str, ...] = (self.method,) if self.method != "auto" else METHODS if classifies else METHODS[-1:]
        taus = (self.tau,) if self.tau is not None else _TAUS if np.ptp(propensities) > 1e-9 else _TAUS[:1]
        if len(log) < _FEWEST_ROWS:
            return [(methods[-1], taus[0])]
        others = [(method, taus[0]) for method in methods[:-1]]
        return others + [(methods[-1], tau) for tau in (taus if methods[-1] == "regression" else taus[:1])]

    def _held_out_values(
        self, log: Log, known: np.ndarray, chosen: np.ndarray, propensities: np.ndarray, ways: list[tuple[str, float]]
    ) -> dict[tuple[str, float], np.ndarray]:
        """Return terms for each ``(method, tau)`` pair: float64, shape (n,). Their mean is the held-out score.

        The score is a ratio of means, linearized into one term per row. Differences of terms therefore give the
        standard error of a difference of scores.
        """
        n = len(log)
        folds = generator_of(0, "folds").permutation(n) % _FOLDS
        chances = {way: np.zeros(n) for way in ways}  # probabilities of the logged actions
        for fold in range(_FOLDS):
            rows, held = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
            if np.unique(chosen[rows][log.rewards[rows] > 0.0]).size < 2 and ways[0][0] != "regression":
                continue
            for tau in dict.fromkeys(tau for _, tau in ways):
                methods = [method for method, its in ways if its == tau]
                model = self._learned(log, rows, known, chosen, propensities, tau, methods != ["regression"])
                part = log.take(held).choices()
                scores = self._scores(model, log.contexts[held], part, known, methods)
                supported = np.isin(part.actions, known) if self.support != "all" else None
                logged = part.actions == log.actions[held][rows_of(part.offsets)]
                for method in methods:
                    own = scores[method] if supported is None else np.where(supported, scores[method], _OTHERWISE)
                    chances[method, tau][held] = greedy(own, part.offsets)[logged]
        terms, weights = {}, 1.0 / np.maximum(propensities, _MIN_PROPENSITY)
        rewards = log.rewards - min(0.0, float(log.rewards.min()))
        for way, chance in chances.items():
            earned = weights * chance * rewards
            largest = weights * (chance + rewards) / 2.0
            scale = float(largest.mean()) or 1.0
            score = float(earned.mean()) / scale
            terms[way] = score + (earned - score * largest) / scale
        return terms

    def _learned(
        self,
        log: Log,
        rows: np.ndarray,
        known: np.ndarray,
        chosen: np.ndarray,
        propensities: np.ndarray,
        tau: float,
        classifies: bool,
    ) -> LogModel:
        X, actions, rewards = log.contexts[rows], chosen[rows], log.rewards[rows]
        weights = importance_weights(propensities[rows], np.ones(rows.size), tau)
        regression: Any
        if self.regressor is None and self.pair_features is None:
            regression = fit_ridges(X, actions, known.size, rewards, weights, self.regularization)
        else:
            from sklearn.linear_model import Ridge

            regression = Ridge(alpha=self.regularization) if self.regressor is None else clone(self.regressor)
            regression.fit(self._features(X, log.actions[rows], known), rewards, sample_weight=weights)
        classifier = None
        if classifies:
            good = np.flatnonzero(rewards > 0.0)
            classifier = CMTClassifier(random_state=0, store_examples=False)
            classifier.fit(X[good], actions[good], sample_weight=rewards[good] / rewards[good].mean())
        return LogModel(regression, classifier)

    def _features(self, contexts: Any, actions: np.ndarray, known: np.ndarray) -> Any:
        if self.pair_features is not None:
            return numbers("pair_features", self.pair_features(contexts, actions), 2)
        return with_indicators(contexts, actions, known)

    def _scores(
        self, model: LogModel, X: Any, choices: Choices, known: np.ndarray, methods: list[str]
    ) -> dict[str, np.ndarray]:
        """Return scores of all allowed actions for each method. Ridge regressions give unknown actions a score of 0."""
        scores = {method: np.zeros(choices.actions.size) for method in methods}
        n_rows = max(1, _CELLS_AT_ONCE // max(known.size, choices.shape[1]))
        for first in range(0, X.shape[0], n_rows):
            stop = min(first + n_rows, X.shape[0])
            offsets, pairs = choices.between(first, stop)
            rows, actions = rows_of(offsets), choices.actions[pairs]
            if not isinstance(model.regression, ActionRidges):
                found = model.regression.predict(self._features(X[first:stop][rows], actions, known))
                scores["regression"][pairs] = np.asarray(found, np.float64).reshape(-1)
                continue
            places = np.minimum(np.searchsorted(known, actions), known.size - 1)
            tables = model.tables(X[first:stop], known.size)
            for method in methods:
                own = combine(method, *tables)[rows, places]
                scores[method][pairs] = np.where(known[places] == actions, own, 0.0)
        return scores

    # Files

    def _packed(self) -> Any:
        if self._model is None:
            raise ValueError(_NOT_FITTED)
        regression, classifier = self._model
        if not isinstance(regression, ActionRidges):
            raise TypeError(
                "a policy with a custom regressor or pair_features cannot be saved, because files contain no code: "
                "pickle it instead"
            )
        rows = [np.frombuffer(row, np.float64) for row in self._seen]
        seen = SimpleNamespace(
            contexts=np.array(rows).reshape(len(rows), self._width if rows else 1),
            lengths=np.array([actions.size for actions in self._seen.values()], np.int64),
            actions=np.concatenate([np.empty(0, np.int64), *self._seen.values()]),
        )
        chosen = {"chosen_method": self.method_, "chosen_tau": self.tau_}
        parts = {"seen": seen, "model": regression.arrays(), "classifier": classifier}
        return SimpleNamespace(**vars(self), **chosen, **parts)

    @classmethod
    def _of_fields(cls, values: dict[str, Any]) -> Self:
        policy = cls(**{name: values[name] for name in _OPTIONS})
        vars(policy).update({name: values[name] for name in ("_generator", "_known", "_width", "arms_")})
        policy.arms_ = None if policy.arms_ is None else tuple(policy.arms_)
        known, width, (rows, lengths, seen) = policy._known, policy._width, values["seen"].values()
        require(known.size > 0 and np.all(np.diff(known) > 0), "actions must be in ascending order, at least one")
        require(
            len(rows) == lengths.size and (len(rows) == 0 or rows.shape[1] == width),
            f"contexts must have shape ({lengths.size}, {width})",
        )
        require(np.all(lengths > 0) and int(lengths.sum()) == seen.size, "every context must have at least one action")
        method, classifier = values["chosen_method"], values["classifier"]
        if classifier is not None:
            classes = np.asarray(classifier.classes_)
            of_actions = classes.dtype.kind == "i" and classes.min() >= 0 and classes.max() < known.size
            require(of_actions, "classes must be positions in actions")
            require(classifier.n_features_in_ == width, "the classifier must have the features of contexts")
        require(classifier is not None or method == "regression", f"method {method!r} needs a classifier")
        policy.method_, policy.tau_, policy.values_ = method, values["chosen_tau"], {}
        policy._model = LogModel(ActionRidges.read(values["model"], known.size, width), classifier)
        parts = np.split(seen.copy(), np.cumsum(lengths)[:-1]) if lengths.size else []
        policy._seen = {row.tobytes(): actions for row, actions in zip(rows, parts, strict=True)}
        return policy

    def expected(self, contexts: Any, actions: Any) -> np.ndarray:
        """Return the expected reward of one action in each context, according to the regression.

        The log need not contain the actions.
        """
        (model, rows), actions = self._checked(contexts), np.asarray(self._numbered(actions)[0])
        choices = check_choices(actions[:, None], rows.shape[0])
        regression = LogModel(model.regression, None)
        return self._scores(regression, rows, choices, self._known, ["regression"])["regression"]

    def probabilities(self, contexts: Any, actions: Any = None) -> np.ndarray:
        """Return the probability with which :meth:`act` chooses each of the allowed actions.

        By default, all actions of the log are allowed; see :meth:`Policy.act`.
        """
        choices, probabilities = self._scored_choices(contexts, self._numbered(actions)[0])
        answer = np.zeros(choices.shape)
        answer.reshape(-1)[choices.places] = probabilities
        return answer

    def act(self, contexts: Any, actions: Any = None) -> Chosen:
        """Choose an action in each context, by name if the log has names. Arguments are as in :meth:`probabilities`."""
        actions, names = self._numbered(actions)
        chosen, propensities = self._drawn(contexts, actions)
        return Chosen(chosen if names is None else np.array(names)[chosen], propensities)

    def _numbered(self, actions: Any) -> tuple[Any, list[str] | None]:
        """Return actions as numbers, and the names of all numbers if the log has names."""
        if self._model is None or self.arms_ is None:
            return actions, None
        names = list(self.arms_)
        actions = None if actions is None else number_names(actions, names)
        return actions, names

    def _drawn(self, contexts: Any, actions: Any) -> tuple[np.ndarray, np.ndarray]:
        choices, probabilities = self._scored_choices(contexts, actions)
        drawn = draw(probabilities, choices.offsets, self._generator.random(choices.shape[0]))
        return choices.actions[drawn], probabilities[drawn]

    def warm_start(self, policy: Any, contexts: Any) -> Any:
        """Train another policy, such as a :class:`CMTBandit`, on the actions that this policy chooses, and return it.

        Its ``learn(contexts, actions, rewards)`` receives the expected rewards, clipped to [0, 1].
        """
        chosen, _ = self._drawn(contexts, None)
        policy.learn(contexts, chosen, np.clip(self.expected(contexts, chosen), 0.0, 1.0))
        return policy

    def _checked(self, contexts: Any) -> tuple[LogModel, Any]:
        """Return the model, and contexts as its regression expects them."""
        model = self._model
        if model is None:
            raise ValueError(_NOT_FITTED)
        rows = check_log_contexts(contexts)
        if rows.shape[1] != self._width:
            raise ValueError(f"contexts must have {self._width} features like the log, got {rows.shape[1]}")
        if isinstance(model.regression, ActionRidges) and scipy.sparse.issparse(model.regression.weights):
            return model, scipy.sparse.csr_array(rows)
        return model, rows.toarray() if scipy.sparse.issparse(rows) else rows

    def _scored_choices(self, contexts: Any, actions: Any) -> tuple[Choices, np.ndarray]:
        model, rows = self._checked(contexts)
        choices = all_of(self._known, rows.shape[0]) if actions is None else check_choices(actions, rows.shape[0])
        scores = self._scores(model, rows, choices, self._known, [self.method_])[self.method_]
        supported = self._supported(rows, choices)
        # A row without supported actions allows all of its actions.
        some = np.add.reduceat(supported, choices.offsets[:-1]) > 0
        scores = np.where(supported | ~some[rows_of(choices.offsets)], scores, _OTHERWISE)
        return choices, greedy(scores, choices.offsets)

    def _supported(self, rows: Any, choices: Choices) -> np.ndarray:
        if self.support == "all":
            return np.ones(choices.actions.size, np.bool_)
        supported = np.isin(choices.actions, self._known)
        if self.support == "actions":
            return supported
        for i in range(rows.shape[0]):
            row = rows[[i]].toarray()[0] if scipy.sparse.issparse(rows) else rows[i]
            seen = self._seen.get((row + 0.0).tobytes())
            if seen is not None:
                span = slice(*choices.offsets[i : i + 2])
                supported[span] = np.isin(choices.actions[span], seen)
        return supported

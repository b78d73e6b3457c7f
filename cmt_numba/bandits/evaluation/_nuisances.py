"""Estimates of propensities and expected rewards from a log."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.base import clone

from ..._validation import check_choice, check_integer, check_real
from .._checks import check_contexts, generator_of
from .._ridges import ActionRidges, fit_ridges, with_indicators
from ._logs import Log

_CELLS_AT_ONCE = 1 << 21

METHODS = ("ridge", "logistic", "classifier", "frequency")


def estimate_propensities(log: Log, method: str = "ridge", *, regularization: float = 1.0) -> np.ndarray:
    """Estimate the propensities of logged actions.

    A separate model is fitted to each block of consecutive rows that allow the same actions.

    Parameters
    ----------
    log : Log
        The log. Its own propensities are ignored.
    method : {"ridge", "logistic", "classifier", "frequency"}, default "ridge"
        - "ridge": Ridge regression of one-hot actions on contexts, as in Strehl et al. (2010).
        - "logistic": Logistic regression by scikit-learn.
        - "classifier": Probabilities of :class:`~cmt_numba.CMTClassifier`, for very many actions.
        - "frequency": Relative frequency of each action, regardless of the context.
    regularization : float, default 1.0
        Ridge penalty for "ridge", and ``1 / C`` for "logistic".

    Returns
    -------
    ndarray of float64, shape (n,)
        Estimates in [0, 1]. Because estimates may be 0, estimators that use them need ``tau`` above 0.
    """
    check_choice("method", method, METHODS)
    regularization = check_real("regularization", regularization, 0.0, 1e9, above=True)
    if log.contexts is None and method != "frequency":
        raise ValueError(f'the log must have contexts for method={method!r}: use method="frequency"')
    propensities = np.empty(len(log))
    for first, stop in _stretches(log):
        actions = log.actions[first:stop]
        X = np.ones((stop - first, 1)) if method == "frequency" else log.contexts[first:stop]
        if method == "frequency":
            _, numbers, counts = np.unique(actions, return_inverse=True, return_counts=True)
            propensities[first:stop] = counts[numbers] / actions.size
        elif method == "ridge":
            propensities[first:stop] = _ridge(X, actions, regularization)
        else:
            propensities[first:stop] = _by_classifier(X, actions, method, regularization)
    return np.clip(propensities, 0.0, 1.0)


def _stretches(log: Log) -> Iterator[tuple[int, int]]:
    """Yield spans ``(first, stop)`` of consecutive rows that allow the same actions."""
    choices, first = log.choices(), 0
    if not log._is_by_row():
        yield 0, len(log)
        return
    sets = [np.sort(choices.actions[a:b]) for a, b in zip(choices.offsets[:-1], choices.offsets[1:], strict=True)]
    for row in range(1, len(log) + 1):
        if row == len(log) or not np.array_equal(sets[row], sets[first]):
            yield first, row
            first = row


def _ridge(X: Any, actions: np.ndarray, regularization: float) -> np.ndarray:
    """Return the fitted probability of each row's logged action."""
    X = np.column_stack([check_contexts(X, None), np.ones(X.shape[0])])
    penalty = np.eye(X.shape[1]) * regularization
    penalty[-1, -1] = 1e-9  # the intercept is not penalized
    chosen, numbers = np.unique(actions, return_inverse=True)
    sums = np.zeros((chosen.size, X.shape[1]))
    np.add.at(sums, numbers, X)  # sum of the contexts of each action
    weights = np.linalg.solve(X.T @ X + penalty, sums.T)
    return np.einsum("nd,nd->n", X, weights.T[numbers])


def _by_classifier(X: Any, actions: np.ndarray, method: str, regularization: float) -> np.ndarray:
    if np.unique(actions).size < 2:
        return np.ones(actions.size)
    classifier: Any
    if method == "logistic":
        from sklearn.linear_model import LogisticRegression

        classifier = LogisticRegression(C=1.0 / regularization, max_iter=1000)
    else:
        from ...estimators import CMTClassifier

        classifier = CMTClassifier(random_state=0)
    classifier.fit(X, actions)
    probabilities: np.ndarray = classifier.predict_proba(X)
    chosen = np.searchsorted(classifier.classes_, actions)
    return probabilities[np.arange(actions.size), chosen]


def estimate_rewards(
    log: Log, *, n_folds: int = 2, regularization: float = 1.0, regressor: Any = None, random_state: Any = 0
) -> np.ndarray:
    """Estimate the reward of each allowed action in each row of a log by cross-fitting.

    Parameters
    ----------
    log : Log
        A log with contexts.
    n_folds : int, default 2
        Number of random folds. Each fold is predicted by a model that is trained on the other folds. With a single
        fold, the model predicts its own training rows.
    regularization : float, default 1.0
        Ridge penalty of the default model.
    regressor : scikit-learn regressor, optional
        Predicts rewards from contexts and one-hot actions. By default, each action has a ridge regression.
    random_state : int or numpy.random.SeedSequence, default 0
        Random seed of the folds.

    Returns
    -------
    ndarray of float64, shape (n, k)
        Columns correspond to ``log.allowed``. Actions that are not allowed have the value 0.
    """
    if log.contexts is None:
        raise ValueError("the log must have contexts to model rewards")
    regularization = check_real("regularization", regularization, 1e-9, 1e9)
    n_folds = check_integer("n_folds", n_folds, 1, max(1, len(log)))
    folds = generator_of(random_state, "folds").permutation(len(log)) % n_folds
    choices = log.choices()
    rows = np.repeat(np.arange(len(log)), np.diff(choices.offsets))
    known, numbers = np.unique(choices.actions, return_inverse=True)
    chosen = np.searchsorted(known, log.actions)
    expected = np.zeros(choices.shape)
    for fold in range(n_folds):
        train = np.flatnonzero(folds != fold) if n_folds > 1 else np.arange(len(log))
        of_fold = np.flatnonzero(folds[rows] == fold)
        X, rewards = log.contexts[train], log.rewards[train]
        if regressor is None:
            ridges = fit_ridges(X, chosen[train], known.size, rewards, np.ones(train.size), regularization)
            found = _scores_of_pairs(ridges, log.contexts, rows[of_fold], numbers[of_fold])
        else:
            fitted = clone(regressor).fit(with_indicators(X, log.actions[train], known), rewards)
            pairs = with_indicators(log.contexts[rows[of_fold]], choices.actions[of_fold], known)
            found = np.asarray(fitted.predict(pairs), np.float64)
        expected.reshape(-1)[choices.places[of_fold]] = found
    return expected


def _scores_of_pairs(ridges: ActionRidges, contexts: Any, rows: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """Return the expected reward of each pair of a row of ``contexts`` and an action. Rows must ascend."""
    of_rows, places = np.unique(rows, return_inverse=True)
    found, step = np.empty(rows.size), max(1, _CELLS_AT_ONCE // ridges.weights.shape[0])
    for first in range(0, of_rows.size, step):
        pairs = slice(*np.searchsorted(places, [first, first + step]).tolist())
        scores = ridges.scores(contexts[of_rows[first : first + step]])
        found[pairs] = scores[places[pairs] - first, actions[pairs]]
    return found

"""Tuning of classifiers whose classes have too few examples for cross-validation."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import ParameterGrid
from sklearn.utils import check_random_state, indexable

from .._validation import unmasked

DEFAULT_GRID: dict[str, Sequence[Any]] = {"aggressiveness": (1.0, 0.3, 3.0), "n_router_passes": (2, 5)}
"""Parameters whose best values vary most between data sets."""


class Tuning(NamedTuple):
    """The result of :func:`tune`.

    Attributes
    ----------
    best : estimator
        A clone with the best options, fitted to all examples.
    params : dict
        The best options.
    scores : list of (dict, float)
        The score of each setting on held-out examples, best first.
    """

    best: Any
    params: dict[str, Any]
    scores: list[tuple[dict[str, Any], float]]


def tune(
    estimator: Any,
    X: Any,
    y: Any,
    grid: Mapping[str, Sequence[Any]] | None = None,
    *,
    most_held_out: int = 2000,
    random_state: Any = None,
) -> Tuning:
    """Choose the best options of a classifier on held-out examples, and fit a clone with them to all examples.

    At most one example per class is held out, and none of a class with a single example. Every class is therefore
    learned, whereas in cross-validation some folds would lack whole classes.

    Parameters
    ----------
    estimator : estimator
        A :class:`CMTClassifier`, or any classifier with scikit-learn's interface.
    X : array-like or sparse matrix, shape (n, n_features)
        Examples.
    y : array-like, shape (n,)
        Class of each example.
    grid : mapping of option to values, optional
        By default :data:`DEFAULT_GRID`.
    most_held_out : int, default 2000
        Maximum number of held-out examples.
    random_state : int, numpy.random.RandomState or None
        Seed for the choice of held-out examples.
    """
    X, y = indexable(X, np.asarray(unmasked("y", y)))
    if not hasattr(X, "shape"):
        X = np.asarray(X)
    order = check_random_state(random_state).permutation(y.size)
    _, first, counts = np.unique(y[order], return_index=True, return_counts=True)
    held_out = order[first[counts > 1]][:most_held_out]
    if held_out.size == 0:
        raise ValueError("y must contain a class with at least two examples, so that one of them can be held out")
    kept = np.setdiff1d(np.arange(y.size), held_out)
    settings = list(ParameterGrid(dict(DEFAULT_GRID if grid is None else grid)))
    fitted = (clone(estimator).set_params(**params).fit(X[kept], y[kept]) for params in settings)
    scores = (float(one.score(X[held_out], y[held_out])) for one in fitted)
    scored = list(zip(settings, scores, strict=True))
    scored.sort(key=lambda pair: -pair[1])
    return Tuning(clone(estimator).set_params(**scored[0][0]).fit(X, y), scored[0][0], scored)

"""Logistic regression for tables, in place of a head that separates classes by margins."""

import warnings

import numpy as np

from .._heads import Head, dense_parts
from .._kernels import Rows, as_matrix
from ._calibration import min_loss
from ._input import Factors

_MAX_STEPS = 300
_CLEARLY_LESS = 0.95  # margins must have a log loss below this fraction of that of the logistic regression

Ranked = list[tuple[np.ndarray, np.ndarray]]  # arguments of :func:`min_loss` for several splits


def is_preferred(logits: Ranked, margins: Ranked) -> bool:
    """Return whether a logistic regression is preferred, by its logits and the margins of held-out examples.

    The scale of the margins suits these examples, and has to be learned from others. Margins must therefore be clearly
    better, and their scale counts like one more parameter (Akaike, 1974).
    """
    logistic_loss, margin_loss = (
        min_loss(np.concatenate([scores for scores, _ in some]), np.concatenate([right for _, right in some]), slope)[1]
        for some, slope in ((logits, 1.0), (margins, None))
    )
    return _CLEARLY_LESS * logistic_loss <= margin_loss + 1.0 / sum(right.size for _, right in margins)


def fit_logistic(head: Head, rows: Rows, labels: np.ndarray, weights: Factors) -> None:
    """Replace the scorers of a dense head, in place, by those of a logistic regression.

    The rows are standardised and keep their lengths. Their last feature is constant: the root of the number of others.
    """
    from sklearn.linear_model import LogisticRegression  # slow to import

    X = as_matrix(rows)[:, :-1].astype(np.float64)
    if head.n_labels < 2:
        return
    learner = LogisticRegression(max_iter=_MAX_STEPS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # classes of few examples are common here, and steps are limited
        learner.fit(X, labels, sample_weight=weights)
    W = np.column_stack([learner.coef_, learner.intercept_ / X.shape[1] ** 0.5])
    dense_parts(head)[0][learner.classes_] = np.stack([-W[0], W[0]]) / 2.0 if len(W) == 1 else W

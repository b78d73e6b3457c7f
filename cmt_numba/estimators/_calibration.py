"""How sure a classifier is: what its scores are worth as logits, learned from examples that the scorers did not see.

Probabilities are the softmax of scores times one number (temperature scaling; Guo et al., 2017), chosen by the
likelihood of held-out examples. Of the examples stored some are held out, and scorers like the classifier's own are
trained on the others.
"""

from __future__ import annotations

import logging
from typing import Any, cast

import numpy as np
from scipy.optimize import minimize_scalar

from .._forest.state import NONE
from .._heads.examples import StoredExamples, all_examples
from .._heads.multiclass_svm import margin_wanted
from ._held_out import held_out
from ._label_forest import LOGITS_PER_MARGIN
from ._weights import taken, totals

MOST_RANKED = 256
"""Classes of a row that count for its probabilities when these are learned; others have next to none."""

_FEWEST_HELD_OUT = 20  # from fewer nothing is learned
_LEAST, _MOST = 0.1, 1e3  # logits per margin
_WORTH_A_WORD = 20_000  # examples from which on it takes some seconds

logger = logging.getLogger("cmt_numba")


def logits_per_margin(scores: np.ndarray, right: np.ndarray, margin: float) -> float:
    """Return what a margin is worth, by the likelihood of the right classes.

    Parameters
    ----------
    scores : ndarray of float, shape (n, k)
        The scores of the best classes of each row, the best first; minus infinity for none.
    right : ndarray of int64, shape (n,)
        Which of them is right, -1 where none is: then it is as likely as the last.
    margin : float
        What the scores are divided by.
    """
    with np.errstate(invalid="ignore"):
        behind = (scores - scores[:, :1]).astype(np.float64) / margin
    last = np.isfinite(behind).sum(axis=1) - 1
    of_right = behind[np.arange(right.size), np.where(right == NONE, last, right)]

    def loss(log_slope: float) -> float:
        slope = np.exp(log_slope)
        return float(np.mean(np.log(np.exp(slope * behind).sum(axis=1)) - slope * of_right))

    bounds = (np.log(_LEAST), np.log(_MOST))
    return float(np.exp(minimize_scalar(loss, bounds=bounds, method="bounded").x))


def positions_in(found: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return where in each row of ``found`` the wanted entry is, NONE where it is not."""
    there = found == wanted[:, None]
    return np.where(there.any(axis=1), there.argmax(axis=1), NONE)


def learn_logits(classifier: Any) -> float:
    """Return what a margin is worth to a classifier, from its stored examples, if these are enough to say."""
    examples: StoredExamples | None = classifier.examples_
    if examples is None:
        return LOGITS_PER_MARGIN
    rows, labels = all_examples(examples)
    apart, seen = held_out(labels.size, 0, never=np.unique(labels, return_index=True)[1])  # a label needs one to learn
    if apart.size < _FEWEST_HELD_OUT:
        return LOGITS_PER_MARGIN
    if labels.size >= _WORTH_A_WORD:
        logger.warning("learning probabilities from %d examples; see CMTClassifier.calibrate", labels.size)
    learner = _with_head_of(classifier, rows.take(seen), labels[seen], taken(classifier._example_weights, seen))
    found, scores, *_ = learner._best_labels(rows.take(apart), min(MOST_RANKED, classifier.forest_.n_memories))
    return logits_per_margin(scores, positions_in(found, labels[apart]), margin_wanted(learner.head_))


def _with_head_of(classifier: Any, rows: Any, labels: np.ndarray, weights: np.ndarray | None) -> Any:
    """Return a classifier like another one, with the same forest, whose head has learned these rows and no others."""
    learner = cast(Any, object.__new__(type(classifier)))
    vars(learner).update(vars(classifier))
    learner._orders = np.random.default_rng(classifier._seed)
    learner._n_of_label = np.bincount(labels)
    learner._weight_of_label = None if weights is None else totals(labels, weights, learner._n_of_label.size)
    learner._n_measured = learner._cells_pruned = 0
    learner._train_from_means(rows, labels, weights)
    return learner

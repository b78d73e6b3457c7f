"""Why a classifier answers as it does: examples and features that speak for a class, and against the runner-up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from .._forest.rows import Rows, as_matrix, rescaled
from .._forest.state import NONE
from .._heads.examples import Examples, all_examples
from .._heads.label_scorers import weights_of_labels


class Explanation(NamedTuple):
    """Why one row is of its class.

    A contribution is a feature's value in the row, which is scaled to length 1, times its weight in a class's scorer:
    with the scorer's bias the contributions of all features sum to the score. Those that set the runner-up apart sum,
    with the difference of biases, to ``lead``: the row would be the runner-up's if they lost so much.
    """

    label: Any  # the class
    probability: float
    score: float
    examples: np.ndarray  # int64: ids of the class's stored examples most like the row, the most similar first
    similarities: np.ndarray  # float32: their cosines
    features: list[tuple[Any, float]]  # what weighs most for the class: feature and contribution, the largest first
    runner_up: Any  # the second class, None if there is none
    runner_up_probability: float
    lead: float  # of the class over the runner-up, in scores
    differences: list[tuple[Any, float]]  # what sets it apart most: feature and how much more it gives to the class

    def __str__(self) -> str:
        lines = [f"{self.label!s}: probability {self.probability:.2f}, score {self.score:.3f}"]
        if self.features:
            lines.append(f"  features: {_listed(self.features)}")
        if self.examples.size > 0:
            pairs = zip(self.examples, self.similarities, strict=True)
            lines.append("  examples: " + ", ".join(f"{example} (cosine {cosine:.2f})" for example, cosine in pairs))
        if self.runner_up is not None:
            lines.append(
                f"  rather than {self.runner_up!s}: probability {self.runner_up_probability:.2f}, "
                f"behind by {self.lead:.3f}, most of it by {_listed(self.differences) or 'no feature'}"
            )
        return "\n".join(lines)


def _listed(features: list[tuple[Any, float]]) -> str:
    return ", ".join(f"{feature} {contribution:+.3f}" for feature, contribution in features)


def explanations(
    classifier: Any, rows: Rows, proba_of: Callable[[np.ndarray], np.ndarray], n_examples: int, n_features: int
) -> list[Explanation]:
    """Return an explanation of each row, with so many examples and features at most."""
    names = getattr(classifier, "feature_names_in_", None)
    scaled = rescaled(rows)
    found = []
    for i in range(rows.n_rows):
        row = rows.take(np.array([i]))
        scores = classifier._class_scores(row)
        proba = proba_of(scores.copy())[0]
        first, second = _two_best(scores[0])
        labels = classifier._label_of_class[[first] if second == NONE else [first, second]]
        x = as_matrix(scaled.take(np.array([i])))
        given = _contributions(weights_of_labels(classifier.head_, labels), x)
        apart = given[0] - given[1] if second != NONE else np.zeros_like(given[0])
        ids, cosines = _nearest_of_label(classifier.examples_, int(labels[0]), x, n_examples)
        found.append(
            Explanation(
                _named(classifier.classes_, first),
                float(proba[first]),
                float(scores[0, first]),
                ids,
                cosines,
                _largest(given[0], names, n_features),
                None if second == NONE else _named(classifier.classes_, second),
                0.0 if second == NONE else float(proba[second]),
                0.0 if second == NONE else float(scores[0, first] - scores[0, second]),
                _largest(apart, names, n_features),
            )
        )
    return found


def _named(classes: np.ndarray, position: int) -> Any:
    """Return a class as Python has it."""
    return classes[position : position + 1].tolist()[0]


def _two_best(scores: np.ndarray) -> tuple[int, int]:
    order = np.argsort(-scores, kind="stable")[:2]
    second = int(order[1]) if order.size > 1 and np.isfinite(scores[order[1]]) else int(NONE)
    return int(order[0]), second


def _contributions(weights: Any, x: Any) -> np.ndarray:
    """Return what each feature gives to the score of each label for a row: shape (n_labels, n_features)."""
    if scipy.sparse.issparse(x):
        return np.asarray(weights.multiply(x).toarray(), np.float64)
    return np.asarray(weights, np.float64) * np.asarray(x, np.float64)


def _largest(contributions: np.ndarray, names: np.ndarray | None, n: int) -> list[tuple[Any, float]]:
    """Return the features that give most, with what they give, the largest first; none that gives nothing."""
    order = np.argsort(-contributions, kind="stable")[:n]
    return [
        (int(feature) if names is None else str(names[feature]), float(contributions[feature]))
        for feature in order
        if contributions[feature] > 0.0
    ]


def _nearest_of_label(examples: Examples | None, label: int, x: Any, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids of the examples of a label that are most like a row, and their cosines."""
    if examples is None or n == 0:
        return np.empty(0, np.int64), np.empty(0, np.float32)
    rows, labels = all_examples(examples)
    slots = np.flatnonzero(labels == label)
    products = as_matrix(rescaled(rows.take(slots))) @ x.T
    cosines = np.asarray(products.toarray() if scipy.sparse.issparse(products) else products, np.float32).ravel()
    best = np.argsort(-cosines, kind="stable")[:n]
    return examples.keys.ids[slots[best]].copy(), cosines[best]

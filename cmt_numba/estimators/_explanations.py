"""Explanations of predictions by the examples and features that support a class."""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from .._change import spans
from .._heads import all_examples, weights_of_labels
from .._kernels import as_matrix, rescaled
from .._validation import check_rows
from ._classification_model import ClassificationModel, ClassOptions

_VALUES_AT_ONCE = 1 << 22  # maximum number of scores or contributions in memory


class Explanation(NamedTuple):
    """An explanation of the predicted class of one row.

    The contribution of a feature is its value in the row, scaled to length 1, times its weight in the scorer of a
    class. The score is the sum of all contributions and the scorer's bias. ``lead`` is the sum of the differences
    between a feature's contributions to the class and to the runner-up, plus the difference of the biases. If features
    are standardised, a contribution refers to the difference from the feature's mean.
    """

    label: Any  # the predicted class
    probability: float
    score: float
    examples: np.ndarray  # ids of the class's stored examples that are most similar to the row
    similarities: np.ndarray  # float32: cosines of these examples with the row, largest first
    features: list[tuple[Any, float]]  # pairs of a feature and its contribution, largest first
    runner_up: Any  # the class with the second highest score, or None
    runner_up_probability: float
    lead: float  # the score of the class minus that of the runner-up
    differences: list[tuple[Any, float]]  # pairs of a feature and the difference of its contributions, largest first

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
    model: ClassificationModel,
    X: Any,
    options: ClassOptions,
    names: np.ndarray | None,
    n_examples: int,
    n_features: int,
) -> list[Explanation]:
    """Explain each row with at most ``n_examples`` and ``n_features``, which may have ``names`` (an array or None)."""
    length = max(1, _VALUES_AT_ONCE // max(model.classes.size, 1 if model.index.is_sparse else X.shape[1]))
    if X.shape[0] > length:
        blocks = (X[first:stop] for first, stop in spans(X.shape[0], length))
        return [each for block in blocks for each in explanations(model, block, options, names, n_examples, n_features)]
    x = model.index.prepared_matrix(X)
    every, scores = np.arange(x.n_rows), model.class_scores(x, options)
    proba = model.probabilities(scores.copy(), options)
    best = scores.argmax(axis=1)
    score = scores[every, best]
    scores[every, best] = -np.inf
    second = scores.argmax(axis=1)
    lead = score - scores[every, second]
    has_second = np.isfinite(lead)
    label = model.label_of_class[best]
    x = as_matrix(x if model.index.is_logistic else rescaled(x))
    given = _contributions(weights_of_labels(model.index.head, label), x)
    to_second = model.label_of_class[np.where(has_second, second, best)]
    differences = given - _contributions(weights_of_labels(model.index.head, to_second), x)
    if model.index.is_standardized:  # the last contribution is the intercept
        given, differences = given[:, :-1], differences[:, :-1]
    rows = as_matrix(rescaled(check_rows(X, sparse=model.index.is_sparse)))
    nearest = _nearest_of_labels(model, label, rows, n_examples)
    return [
        Explanation(
            _named(model.classes, best[i]),
            float(proba[i, best[i]]),
            float(score[i]),
            *nearest[i],
            _largest(given, i, names, n_features),
            _named(model.classes, second[i]) if has_second[i] else None,
            float(proba[i, second[i]]) if has_second[i] else 0.0,
            float(lead[i]) if has_second[i] else 0.0,
            _largest(differences, i, names, n_features),
        )
        for i in every.tolist()
    ]


def _named(classes: np.ndarray, position: int) -> Any:
    return classes[position : position + 1].tolist()[0]


def _contributions(weights: Any, x: Any) -> Any:
    """Return the contribution of each feature to the score of each row's label: float64, sparse if ``x`` is sparse."""
    if scipy.sparse.issparse(x):
        given = weights.multiply(x).tocsr().astype(np.float64)
        given.sort_indices()
        return given
    return weights.astype(np.float64) * x


def _largest(contributions: Any, i: int, names: np.ndarray | None, n: int) -> list[tuple[Any, float]]:
    """Return the features with the largest positive contributions to row ``i``, paired with these contributions."""
    if scipy.sparse.issparse(contributions):
        cells = slice(contributions.indptr[i], contributions.indptr[i + 1])
        features, values = contributions.indices[cells], contributions.data[cells]
    else:
        features, values = np.arange(contributions.shape[1]), contributions[i]
    order = np.argsort(-values, kind="stable")[:n]
    return [
        (int(features[at]) if names is None else str(names[features[at]]), float(values[at]))
        for at in order
        if values[at] > 0.0
    ]


def _nearest_of_labels(
    model: ClassificationModel, labels: np.ndarray, x: Any, n: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the ids and cosines of each row's ``n`` most similar stored examples with the row's label."""
    examples = model.index.examples
    found = [(np.empty(0, np.int64), np.empty(0, np.float32))] * labels.size
    if examples is None or n == 0:
        return found
    rows, of_examples = all_examples(examples)
    for label in np.unique(labels):
        slots = np.flatnonzero(of_examples == label)
        keys = as_matrix(rescaled(rows.take(slots)))
        for i in np.flatnonzero(labels == label):
            products = keys @ x[[i]].T
            cosines = np.asarray(products.toarray() if scipy.sparse.issparse(products) else products, np.float32)[:, 0]
            nearest = np.argsort(-cosines, kind="stable")[:n]
            found[i] = model.shown_ids(examples.keys.ids[slots[nearest]]), cosines[nearest]
    return found

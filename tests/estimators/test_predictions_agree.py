"""``predict`` returns the best class of ``decision_function`` and of ``predict_proba``."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse
from sklearn.datasets import make_classification

from cmt_numba import CMTClassifier


def table(n_classes: int) -> tuple[Any, np.ndarray]:
    X, y = make_classification(
        300, 8, n_informative=4, n_classes=n_classes, n_clusters_per_class=1, class_sep=0.4, random_state=0
    )
    return X + 3.0, y


def counts() -> tuple[Any, np.ndarray]:
    random = np.random.default_rng(0)
    y = random.integers(5, size=300)
    rates = random.gamma(0.1, size=(5, 200))
    return scipy.sparse.csr_array(random.poisson(rates[y]).astype(np.float32)), y


def directions() -> tuple[Any, np.ndarray]:
    random = np.random.default_rng(0)
    y = random.integers(5, size=300)
    X = random.normal(size=(5, 120))[y] + 3.0 * random.normal(size=(300, 120))
    return X / np.linalg.norm(X, axis=1, keepdims=True), y


def many_classes() -> tuple[Any, np.ndarray]:
    """Return sparse rows of more classes than are scored by products."""
    y = np.arange(1100).repeat(2)
    return scipy.sparse.random_array((y.size, 500), density=0.02, format="csr", rng=np.random.default_rng(0)), y


KINDS = {
    "table": table(4),
    "table of two classes": table(2),
    "directions": directions(),
    "counts": counts(),
    "many classes": many_classes(),
}


CASES = [(kind, loss, "head") for kind in KINDS for loss in ("mira", "softmax", "logistic")]
CASES += [
    (kind, "mira", method)
    for kind in KINDS
    for method in ("neighbors", "scored_neighbors", "auto")
    if kind != "many classes"
]


@pytest.mark.parametrize(("kind", "loss", "method"), CASES)
def test_the_predicted_class_has_the_highest_score_and_probability(kind: str, loss: str, method: str):
    X, y = KINDS[kind]
    classifier = CMTClassifier(loss=loss, method=method, random_state=0).fit(X[::2], y[::2])
    for rows in (X[1::2], X[1:2]):
        scores = classifier.decision_function(rows)
        best = scores.argmax(axis=1) if scores.ndim == 2 else (scores > 0.0).astype(np.int64)
        np.testing.assert_array_equal(classifier.predict(rows), classifier.classes_[best])
        np.testing.assert_array_equal(classifier.predict_proba(rows).argmax(axis=1), best)

"""``loss="auto"``: a logistic regression takes the place of the margin for tables that it suits better."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import needs_jit
from internals import estimators_classification_model, model_of
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from cmt_numba import CMTClassifier


def table(n: int = 900, n_classes: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """Return rows with classes that are more certain for long rows."""
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(n, 3)) * rng.uniform(0.2, 2.0, (n, 1))
    logits = 2.0 * Z @ rng.normal(size=(3, n_classes)) + rng.gumbel(size=(n, n_classes))
    return Z * [0.01, 1.0, 1000.0] + 7.0, np.array([f"class {i}" for i in logits.argmax(axis=1)])


def regression() -> Any:
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))


@pytest.fixture
def logistic_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a logistic regression win on held-out examples."""
    monkeypatch.setattr(estimators_classification_model, "is_preferred", lambda *_: True)


@needs_jit
def test_the_lower_log_loss_decides():
    X, y = table()
    classifier = CMTClassifier(random_state=0).fit(X[:600], y[:600])
    rivals = regression(), CMTClassifier(loss="mira", random_state=0)
    best = min(log_loss(y[600:], one.fit(X[:600], y[:600]).predict_proba(X[600:])) for one in rivals)
    assert log_loss(y[600:], classifier.predict_proba(X[600:])) < best + 0.02


@needs_jit
def test_softmax_converges_on_a_small_table():
    X, y = make_classification(
        1500, 10, n_informative=7, n_redundant=0, n_classes=10, n_clusters_per_class=1, class_sep=0.8, random_state=0
    )
    rivals = CMTClassifier(loss="softmax", random_state=0), regression()
    ours, theirs = (one.fit(X[:1000], y[:1000]).score(X[1000:], y[1000:]) for one in rivals)
    assert ours >= theirs - 0.02


@needs_jit
@pytest.mark.parametrize("n_classes", [2, 5])
def test_it_is_a_logistic_regression(n_classes: int, logistic_wins: None, tmp_path: Path):
    X, y = table(n_classes=n_classes)
    classifier, expected = CMTClassifier(random_state=0).fit(X[:600], y[:600]), regression().fit(X[:600], y[:600])
    assert model_of(classifier).index.is_logistic
    margin = CMTClassifier(loss="mira", random_state=0).fit(X[:600], y[:600])
    assert not model_of(margin).index.is_logistic
    proba = classifier.predict_proba(X[600:])
    np.testing.assert_allclose(proba, expected.predict_proba(X[600:]), atol=0.01)
    assert np.mean(classifier.predict(X[600:]) == expected.predict(X[600:])) > 0.98
    np.testing.assert_array_equal(classifier.classes_[proba.argmax(axis=1)], classifier.predict(X[600:]))
    classifier.save(tmp_path / "file")
    for again in (CMTClassifier.load(tmp_path / "file"), pickle.loads(pickle.dumps(classifier))):
        again.check_invariants()
        np.testing.assert_array_equal(again.predict_proba(X), classifier.predict_proba(X))
    why = classifier.explain(X[:1])[0]
    assert why.label == classifier.predict(X[:1])[0]
    np.testing.assert_allclose(why.probability, classifier.predict_proba(X[:1]).max())


@needs_jit
def test_it_changes_like_a_refit(logistic_wins: None, tmp_path: Path):
    X, y = table()
    y[y == "class 4"] = "class 3"
    old = np.arange(500)
    with CMTClassifier.open(tmp_path / "folder", random_state=0) as classifier:
        classifier.fit(X[old], y[old])
        assert model_of(classifier).index.is_logistic
        for first in (500, 510, 511, 600):
            classifier.partial_fit(X[first : first + 10], y[first : first + 10])
        known = np.concatenate([old, np.arange(500, 520), np.arange(511, 521), np.arange(600, 610)])
        expected = regression().fit(X[known], y[known])
        assert np.mean(classifier.predict(X[620:]) == expected.predict(X[620:])) > 0.95
        classifier.remove(classifier.kneighbors(X[:20], 1, return_distance=False)[:, 0]).remove_classes(["class 1"])
        classifier.check_invariants()
        proba = classifier.predict_proba(X)
        assert proba.shape == (900, 3)
    with CMTClassifier.open(tmp_path / "folder") as again:
        np.testing.assert_allclose(again.predict_proba(X), proba, rtol=1e-6)
    far, none = CMTClassifier(random_state=0).fit(X, y), CMTClassifier(store_examples=False, random_state=0).fit(X, y)
    assert far.calibrate(X, y).predict_proba(X[:5]).shape == (5, 4)
    assert not model_of(none).index.is_logistic
    far.partial_fit(X[:3] + 1000.0, ["a new class"] * 3)  # of few examples, which margins find
    assert not model_of(far).index.is_logistic
    assert (far.predict(X[3:6] + 1000.0) == "a new class").all()
    untrained = CMTClassifier(n_head_passes=0, random_state=0).fit(X, y)
    assert not model_of(untrained).index.is_logistic

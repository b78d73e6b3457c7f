"""Probabilities, decision values and explanations of the classifier."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from conftest import FORMS, needs_jit
from internals import estimators_calibration as calibration
from internals import estimators_label_index, model_of
from numpy.typing import NDArray

from cmt_numba import CMTClassifier
from cmt_numba.estimators import held_out

FEW: dict[str, Any] = {"random_state": 0}


def noisy(rng: np.random.Generator, n: int, noise: float) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return ``n`` points around each of six centers, and the center of each point."""
    centers, y = np.eye(6, 10), np.repeat(np.arange(6), n)
    return (centers[y] + noise * rng.normal(size=(y.size, 10))).astype(np.float32), y


@pytest.mark.parametrize("noise", [0.2, 0.6])
def test_probabilities_match_the_accuracy(noise: float):
    differences = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        (X, y), (queries, answers) = noisy(rng, 60, noise), noisy(rng, 500, noise)
        classifier = CMTClassifier(**FEW).fit(X, y)
        proba = classifier.predict_proba(queries)
        np.testing.assert_allclose(proba.sum(axis=1), 1.0)
        right = classifier.classes_[proba.argmax(axis=1)] == answers
        differences.append(abs(proba.max(axis=1).mean() - right.mean()))
        np.testing.assert_array_equal(classifier.classes_[proba.argmax(axis=1)], classifier.predict(queries))
    assert np.mean(differences) < 0.04


def test_the_value_of_a_margin_is_found():
    generator = np.random.default_rng(0)
    scores = -np.sort(-generator.normal(size=(20_000, 5)))
    proba = np.exp(2.5 * scores / 0.5)
    proba /= proba.sum(axis=1, keepdims=True)
    right = (generator.random(20_000)[:, None] > np.cumsum(proba, axis=1)).sum(axis=1)
    assert abs(calibration.logits_per_margin(scores / 0.5, np.minimum(right, 4)) - 2.5) < 0.15
    assert calibration.logits_per_margin(scores / 0.5, np.zeros(20_000, np.int64)) > 100.0  # no wrong prediction


def test_the_first_example_of_a_label_is_not_held_out():
    labels = np.repeat(np.arange(100), 2)
    apart, seen = held_out(labels.size, 0, never=np.unique(labels, return_index=True)[1])
    assert apart.size == 40
    assert np.unique(labels[seen]).size == 100
    np.testing.assert_array_equal(np.sort(np.concatenate([apart, seen])), np.arange(200))
    assert held_out(50, 0, never=np.arange(50))[0].size == 0
    assert held_out(20_000, 0)[0].size == 2000


@FORMS
def test_calibration_is_kept(form: Any, rng: np.random.Generator, tmp_path: Path):
    X, y = noisy(rng, 20, 0.5)
    classifier = CMTClassifier(**FEW).fit(form(X), y)
    proba = classifier.predict_proba(form(X))
    assert classifier.calibrate() is classifier
    np.testing.assert_array_equal(classifier.predict_proba(form(X)), proba)
    classifier.save(tmp_path / "file")
    np.testing.assert_array_equal(CMTClassifier.load(tmp_path / "file").predict_proba(form(X)), proba)
    surer = classifier.calibrate(form(X), classifier.predict(form(X))).predict_proba(form(X))
    assert surer.max(axis=1).mean() > proba.max(axis=1).mean()
    unsure = classifier.calibrate(form(X), np.full(y.size, 99)).predict_proba(form(X))
    assert unsure.max(axis=1).mean() < proba.max(axis=1).mean()


@needs_jit
def test_calibration_of_many_examples_is_announced(rng: np.random.Generator, caplog: pytest.LogCaptureFixture):
    X = rng.normal(size=(20_000, 3)).astype(np.float32)
    classifier = CMTClassifier(**FEW).fit(X, X[:, 0] > 0.0)
    with caplog.at_level(logging.WARNING, "cmt_numba"):
        classifier.predict_proba(X[:1])
    assert "learning probabilities from 20000 examples" in caplog.text


def test_without_examples_to_hold_out():
    classifier = CMTClassifier(**FEW).fit(np.eye(6), np.arange(6))
    np.testing.assert_allclose(classifier.predict_proba(np.eye(6)).sum(axis=1), 1.0)
    assert model_of(classifier).calibration[0] == 4.0


@pytest.mark.parametrize(
    ("given", "error", "reason"),
    [
        ((np.ones((2, 10)), None), ValueError, "together, or both be omitted"),
        ((np.ones((2, 10)), [1]), ValueError, "one entry for each of the 2 rows"),
        ((np.ones((2, 9)), [1, 1]), ValueError, "9 features"),
        ((np.ones((2, 10)), ["a", "b"]), TypeError, "y must have labels of the same type as the known labels"),
    ],
)
def test_bad_calibrations(given: Any, error: type[Exception], reason: str, rng: np.random.Generator):
    classifier = CMTClassifier(**FEW).fit(*noisy(rng, 4, 0.2))
    with pytest.raises(error, match=reason):
        classifier.calibrate(*given)


@FORMS
@pytest.mark.parametrize("method", ["head", "neighbors"])
def test_the_highest_decision_is_predicted(form: Any, method: str, rng: np.random.Generator):
    X, y = noisy(rng, 10, 0.4)
    classifier = CMTClassifier(method=method, **FEW).fit(form(X), y)
    decisions = classifier.decision_function(form(X))
    assert decisions.shape == (60, 6)
    np.testing.assert_array_equal(classifier.classes_[decisions.argmax(axis=1)], classifier.predict(form(X)))
    two = CMTClassifier(method=method, **FEW).fit(form(X[:20]), y[:20])
    np.testing.assert_array_equal(two.decision_function(form(X)) > 0, two.predict(form(X)) == 1)


def test_classes_out_of_reach_decide_lowest(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(estimators_label_index, "MAX_SCORED_SPARSE", 0)  # few classes are otherwise all scored
    X, y = noisy(rng, 10, 0.4)
    X = scipy.sparse.csr_array(np.abs(X))
    decisions = CMTClassifier(n_candidates=2, **FEW).fit(X, y).decision_function(X)
    lowest = decisions == decisions.min()
    assert np.all(lowest.sum(axis=1) == 4)


@FORMS
def test_contributions_are_the_score(form: Any, rng: np.random.Generator):
    X, y = noisy(rng, 10, 0.1)
    names = np.array(list("abcdef"))
    classifier = CMTClassifier(feature_weights="none", **FEW).fit(form(X), names[y])
    found = classifier.explain(form(X[:8]), n_features=10)
    decisions = classifier.decision_function(form(X[:8]))
    assert str(classifier.explain(form(X[3:4]), n_features=10)[0]) == str(found[3])
    for i, why in enumerate(found):
        order = np.argsort(-decisions[i])
        assert (why.label, why.runner_up) == tuple(classifier.classes_[order[:2]])
        np.testing.assert_allclose(why.score, decisions[i].max(), atol=1e-5)
        np.testing.assert_allclose(why.lead, decisions[i, order[0]] - decisions[i, order[1]], atol=1e-5)
        assert [c for _, c in why.features] == sorted((c for _, c in why.features), reverse=True)
        assert all(c > 0.0 for _, c in why.features + why.differences)
        assert sum(c for _, c in why.features) >= why.score - 1e-5
        assert sum(c for _, c in why.differences) >= why.lead - 1e-5
        np.testing.assert_allclose(why.probability, classifier.predict_proba(form(X[i : i + 1])).max())
        assert why.examples[0] == i
        assert why.similarities[0] == pytest.approx(1.0, abs=1e-5)
        assert np.all(names[y[why.examples]] == why.label)
        assert str(why).startswith(f"{why.label}: probability")
        assert f"rather than {why.runner_up}" in str(why)


def test_explanations_name_features():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(np.eye(3), columns=["red", "green", "blue"])
    classifier = CMTClassifier(store_examples=False, **FEW).fit(frame, [1, 2, 3])
    why = classifier.explain(frame[1:2], n_examples=0)[0]
    assert why.label == 2
    assert why.features[0][0] == "green"
    assert why.examples.size == 0
    assert "examples:" not in str(why)


def test_explanations_of_one_class():
    why = CMTClassifier(**FEW).fit(np.eye(2), [5, 5]).explain(np.eye(2)[:1])[0]
    assert (why.label, why.runner_up, why.differences) == (5, None, [])
    with pytest.raises(ValueError, match="n_features"):
        CMTClassifier(**FEW).fit(np.eye(2), [5, 6]).explain(np.eye(2), n_features=-1)


@pytest.mark.parametrize(("names", "label"), [("abc", ""), ([5, 7, 9], -1), (np.uint8([5, 7, 9]), -1)])
def test_unlikely_rows_are_rejected(names: Any, label: Any, rng: np.random.Generator):
    y = np.arange(60) % 3
    X = np.eye(3, 5)[y] + 0.1 * rng.normal(size=(60, 5))
    classifier = CMTClassifier(random_state=0).fit(X, np.array(list(names))[y])
    asked = np.vstack([np.eye(3, 5), np.ones((1, 5)), -np.eye(5)[4:]])
    highest = classifier.predict_proba(asked).max(axis=1)
    lowest = float(np.sort(highest)[1:3].mean())
    answers = classifier.predict(asked, reject_below=lowest)
    assert answers.tolist() == np.where(highest < lowest, label, classifier.predict(asked).astype(object)).tolist()
    np.testing.assert_array_equal(classifier.predict(asked, reject_below=0.0), classifier.predict(asked))
    with pytest.raises(ValueError, match="must not be a class, but"):
        classifier.predict(asked, reject_below=0.5, reject_label=classifier.classes_[1])
    with pytest.raises(TypeError, match="reject_label must have"):
        classifier.predict(asked, reject_below=0.5, reject_label=b"no")

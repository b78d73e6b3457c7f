"""Online learning from stored examples, compared with one ``fit``."""

from typing import Any

import numpy as np
import pytest
from conftest import FORMS, needs_jit
from internals import estimators_classification_model, model_of, trained_head
from internals import estimators_replay as replay

from cmt_numba import CMTClassifier
from cmt_numba._heads import all_examples, some_examples
from cmt_numba._kernels import as_matrix
from cmt_numba.estimators import means_of

FEW = {"random_state": 0}


def clouds(rng: np.random.Generator, n: int, n_classes: int = 30) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of overlapping classes, with features of different importance."""
    y = rng.integers(n_classes, size=n)
    centers = np.random.default_rng(3).normal(size=(n_classes, 12))
    return np.hstack([centers[y] + 0.8 * rng.normal(size=(n, 12)), 2.0 * rng.normal(size=(n, 4))]), y


def learned_in_batches(X: Any, y: np.ndarray, size: int, **options: Any) -> CMTClassifier:
    classifier = CMTClassifier(**FEW, **options)
    for first in range(0, y.size, size):
        classifier.partial_fit(X[first : first + size], y[first : first + size])
    return classifier


def test_relearning_happens_when_due():
    assert not replay.is_due(1000, 0)  # before the first fit
    assert not replay.is_due(124, 100)
    assert replay.is_due(125, 100)
    assert not replay.is_due(25, 10)
    assert replay.is_due(26, 10)


@FORMS
def test_examples_are_given_back(form: Any, rng: np.random.Generator):
    X, y = clouds(rng, 60, 5)
    classifier = learned_in_batches(form(X), y, 20, n_head_passes=0)
    rows, labels = all_examples(classifier.examples_)
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    found = np.zeros_like(unit)
    for i in range(60):
        cells = slice(rows.offsets[i], rows.offsets[i + 1])
        found[i, rows.indices[cells] if rows.sparse else slice(None)] = rows.values[cells]
    np.testing.assert_allclose(found, unit, atol=1e-6)
    np.testing.assert_array_equal(classifier.classes_[model_of(classifier).class_of_label[labels]], y)

    means, lengths = means_of(rows, labels, np.arange(60), 5)
    sums = np.array([unit[labels == label].sum(axis=0) for label in range(5)])
    np.testing.assert_allclose(lengths, np.linalg.norm(sums, axis=1), rtol=1e-5)
    assert means.n_rows == 5

    slots = np.array([7, 7, 3, *range(50, 60)])
    some, some_labels = some_examples(classifier.examples_, slots)
    np.testing.assert_array_equal(some_labels, labels[slots])
    taken = as_matrix(some)
    np.testing.assert_array_equal(taken.toarray() if rows.sparse else taken, found[slots])


@needs_jit
@FORMS
def test_online_is_as_good_as_one_fit(form: Any, rng: np.random.Generator):
    X, y = clouds(rng, 900)
    queries, answers = clouds(rng, 1500)
    fitted = CMTClassifier(**FEW).fit(form(X), y).score(form(queries), answers)
    online = learned_in_batches(form(X), y, 45)
    assert online.score(form(queries), answers) > fitted - 0.035
    online.check_invariants()


@needs_jit
def test_old_classes_keep_their_accuracy(rng: np.random.Generator):
    X, y = clouds(rng, 900)
    queries, answers = clouds(rng, 1500)
    old = answers < 20
    classifier = CMTClassifier(**FEW).fit(X[y < 20], y[y < 20])
    for label in range(20, 30):
        classifier.partial_fit(X[y == label], y[y == label])
    fitted = CMTClassifier(**FEW).fit(X, y).score(queries[old], answers[old])
    assert classifier.score(queries[old], answers[old]) > fitted - 0.05


@needs_jit
def test_dual_variables_match_the_scorers(rng: np.random.Generator):
    X, y = clouds(rng, 300, 5)  # at most as many competitors of a class as are stored
    classifier = CMTClassifier(feature_weights="none", **FEW).fit(X[:200], y[:200])
    classifier.partial_fit(X[200:210], y[200:210]).partial_fit(X[210:220], y[210:220])
    rows, labels = model_of(classifier).index.prepared_examples()
    keys, sums = rows.values.reshape(rows.n_rows, -1), np.zeros((5, 16))
    competitors, weights = model_of(classifier).duals
    np.add.at(sums, labels, keys)
    learned = sums / np.linalg.norm(sums, axis=1, keepdims=True)
    np.add.at(learned, labels, keys * weights[: labels.size].sum(axis=1, keepdims=True))
    for competitor, weight in zip(competitors[: labels.size].T, weights[: labels.size].T, strict=True):
        np.subtract.at(learned, competitor, keys * weight[:, None])
    scorers = trained_head(classifier).weights.dense[0, : 5 * 32].reshape(5, 32)[:, :16]
    np.testing.assert_allclose(scorers, learned, atol=2e-3)
    classifier.remove(np.arange(0, 20)).remove_classes([2]).check_invariants()
    assert model_of(classifier).duals.weights.any()
    assert model_of(classifier).duals.competitors.max() == 3


def test_examples_that_are_not_stored_are_learned_once(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch):
    X, y = clouds(rng, 60, 5)
    monkeypatch.setattr(estimators_classification_model.ClassificationModel, "train_from_means", None)
    classifier = learned_in_batches(X, y, 20, store_examples=False)
    assert classifier.score(X, y) > 0.5

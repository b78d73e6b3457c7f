"""Classifiers of so many dense classes that an index finds the best one."""

import numpy as np
import pytest
from conftest import needs_jit
from internals import estimators_label_index, model_of, trained_head

from cmt_numba import CMTClassifier
from cmt_numba._heads import all_scorers, weights_of_labels
from cmt_numba._kernels import as_matrix
from cmt_numba._validation import check_rows


@needs_jit
def test_an_index_finds_the_best_classes_with_biases(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(estimators_label_index, "MAX_SCORED", 1500)
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(40, 24))
    means = centers[rng.integers(40, size=2000)] + 0.6 * rng.normal(size=(2000, 24))
    y = np.repeat(np.arange(2000), 2)
    classifier = CMTClassifier(random_state=0, n_head_passes=1).fit(means[y] + 0.1 * rng.normal(size=(4000, 24)), y)
    index = model_of(classifier).index
    assert index.dense_index() is not None
    rows = index.prepared_matrix(means)
    weights, biases = weights_of_labels(index.head, np.arange(2000)), index.head.labels["bias"][0, :2000]
    expected = as_matrix(rows) @ weights.T + biases
    found = index.best_labels(rows, 5, classifier)
    np.testing.assert_allclose(found.scores, np.take_along_axis(expected, found.labels, axis=1), rtol=1e-4, atol=1e-4)
    assert np.mean(found.labels[:, 0] == expected.argmax(axis=1)) > 0.98


@needs_jit
def test_a_classifier_of_many_classes_uses_an_index():
    rng = np.random.default_rng(0)
    X, n = rng.normal(size=(8200, 20)), 8193
    queries = X[:500] + 0.2 * rng.normal(size=(500, 20))
    classifier = CMTClassifier(random_state=0).fit(X[: n - 1], np.arange(n - 1))
    everything = classifier.predict(queries)
    assert (classifier.count_candidates(queries) == n - 1).all()
    classifier.partial_fit(X[n - 1 : n], [n - 1])
    predicted, (classes, scores) = classifier.predict(queries), classifier.top_classes(queries, 4)
    assert np.mean(predicted == everything) > 0.93
    np.testing.assert_array_equal(predicted, classifier.classes_[classes[:, 0]])
    np.testing.assert_array_equal(classifier.predict(queries.astype(np.float32)), predicted)
    assert (np.diff(scores, axis=1) <= 0).all()
    every = all_scorers(trained_head(classifier))
    assert every is not None
    asked, stored = (as_matrix(check_rows(some)) for some in (queries, X[:n]))
    nearness = (asked @ stored.T + (asked @ every.weights)[:, model_of(classifier).label_of_class]) / 2.0
    distances, ids = classifier.set_params(method="scored_neighbors").kneighbors(queries, 3)
    assert np.mean(ids[:, 0] == nearness.argmax(axis=1)) > 0.95
    biases = 0.0 if every.biases is None else every.biases[model_of(classifier).label_of_class[ids]] / 2.0
    expected = np.take_along_axis(nearness, ids, axis=1) + biases
    np.testing.assert_allclose(1.0 - distances, expected, atol=1e-4)
    proba = classifier.set_params(method="head").predict_proba(queries[:20])
    np.testing.assert_array_equal(proba.argmax(axis=1), classes[:20, 0])
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)
    # New classes are found immediately, whether or not the index has been built again.
    for first in range(n, 8200, 4):
        new = np.arange(first, min(first + 4, 8200))
        np.testing.assert_array_equal(classifier.partial_fit(X[new], new).predict(X[new]), new)


@needs_jit
def test_very_many_classes_of_one_example_are_not_trained():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(estimators_label_index.MAX_TRAINED_ALONE_DENSE + 1, 4)).astype(np.float32)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    classifier = CMTClassifier(random_state=0).fit(X, np.arange(len(X)))
    scorers = all_scorers(trained_head(classifier))
    assert scorers is not None
    np.testing.assert_allclose(scorers.weights.T, X[model_of(classifier).class_of_label], atol=1e-5)
    assert np.mean(classifier.predict(X[:500]) == np.arange(500)) > 0.99


@needs_jit
def test_an_index_finds_hard_negatives_among_very_many_classes(monkeypatch: pytest.MonkeyPatch):
    rng = np.random.default_rng(0)
    centers, y = rng.normal(size=(300, 16)), rng.permutation(np.arange(2400) % 300)
    X = centers[y] + 0.7 * rng.normal(size=(2400, 16))
    errors = []
    for most in (estimators_label_index.MAX_SCORED_IN_TRAINING, 100):
        monkeypatch.setattr(estimators_label_index, "MAX_SCORED_IN_TRAINING", most)
        errors.append(1.0 - CMTClassifier(random_state=0).fit(X[:1200], y[:1200]).score(X[1200:], y[1200:]))
    assert abs(errors[1] - errors[0]) < 0.02

"""Scorers in lists around landmarks."""

import numpy as np
import pytest
from conftest import needs_jit

from cmt_numba import CMTClassifier
from cmt_numba._heads.landmarks import best_of_reached, count_reached, landmarks_of, top_of_reached
from cmt_numba._heads.products import AllScorers, all_scorers, best_of_all, top_of_all
from cmt_numba._validation import check_rows
from cmt_numba.estimators._label_forest import MOST_TRAINED_ALONE_DENSE


def clustered(n_labels: int, *, biased: bool, seed: int = 0) -> tuple[AllScorers, np.ndarray]:
    """Return scorers around some centres, and rows near them."""
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(12, 24))
    weights = (centers[rng.integers(12, size=n_labels)] + 0.6 * rng.normal(size=(n_labels, 24))).astype(np.float32)
    rows = weights[rng.integers(n_labels, size=200)] + 0.6 * rng.normal(size=(200, 24)).astype(np.float32)
    return AllScorers(weights.T, 0.1 * rng.normal(size=n_labels).astype(np.float32) if biased else None, False), rows


@pytest.mark.parametrize("biased", [False, True])
def test_nearly_all_of_the_best_labels_are_found_in_few_lists(biased: bool):
    scorers, X = clustered(900, biased=biased)
    landmarks, rows = landmarks_of(scorers), check_rows(X)
    np.testing.assert_array_equal(np.sort(landmarks.labels), np.arange(900))
    n_reached = count_reached(landmarks, rows, at_once=5000)
    assert n_reached.mean() < 600
    best = best_of_reached(landmarks, rows, at_once=5000)
    assert np.mean(best == best_of_all(scorers, rows)) > 0.95
    labels, scores = top_of_reached(landmarks, rows, 900, at_once=5000)
    np.testing.assert_array_equal(labels[:, 0], best)
    np.testing.assert_array_equal((labels >= 0).sum(axis=1), n_reached)
    assert np.isneginf(scores[labels < 0]).all()
    expected = check_rows(X).values.reshape(X.shape) @ scorers.weights
    expected = expected if scorers.biases is None else expected + scorers.biases
    row, rank = np.nonzero(labels >= 0)
    np.testing.assert_allclose(scores[row, rank], expected[row, labels[row, rank]], rtol=1e-4, atol=1e-5)
    few, _ = top_of_reached(landmarks, rows, 3, at_once=5000)
    np.testing.assert_array_equal(few, labels[:, :3])
    for i in range(0, 200, 40):
        assert best_of_reached(landmarks, check_rows(X[[i]])) == best[i]


def test_with_every_list_reached_answers_are_those_of_all_labels():
    scorers, X = clustered(300, biased=True)
    landmarks, rows = landmarks_of(scorers)._replace(gap=1e9), check_rows(X)
    np.testing.assert_array_equal(best_of_reached(landmarks, rows), best_of_all(scorers, rows))
    np.testing.assert_array_equal(top_of_reached(landmarks, rows, 5)[0], top_of_all(scorers, rows, 5)[0])


@pytest.mark.parametrize("weights", [np.zeros((20, 4)), np.ones((20, 4)), np.eye(3), np.ones((1, 2))])
def test_degenerate_scorers(weights: np.ndarray):
    """The first of equal labels is found, in batches and alone."""
    scorers = AllScorers(weights.astype(np.float32).T, None, False)
    rows, landmarks = check_rows(np.ones((6, weights.shape[1]))), landmarks_of(scorers)
    assert (best_of_reached(landmarks, rows) == 0).all()
    assert (best_of_reached(landmarks, rows.between(0, 1)) == 0).all()
    labels, _ = top_of_reached(landmarks, rows, 3)
    assert (labels == [0, 1, 2] if len(weights) > 2 else labels == [0, -1, -1]).all()


@needs_jit
def test_a_classifier_of_many_classes_uses_lists():
    rng = np.random.default_rng(0)
    X, n = rng.normal(size=(8200, 20)), 8193
    queries = X[:500] + 0.2 * rng.normal(size=(500, 20))
    classifier = CMTClassifier(n_trees=2, random_state=0).fit(X[: n - 1], np.arange(n - 1))
    everything = classifier.predict(queries)
    assert (classifier.count_candidates(queries) == n - 1).all()
    classifier.partial_fit(X[n - 1 : n], [n - 1])
    n_classes = classifier.count_candidates(queries)
    assert 5 < n_classes.mean() < n / 2
    predicted, (classes, scores) = classifier.predict(queries), classifier.top_classes(queries, 4)
    assert np.mean(predicted == everything) > 0.93
    np.testing.assert_array_equal(predicted, classifier.classes_[classes[:, 0]])
    np.testing.assert_array_equal(classifier.predict(queries.astype(np.float32)), predicted)
    assert (np.diff(scores, axis=1) <= 0).all()
    proba = classifier.predict_proba(queries[:20])
    np.testing.assert_array_equal(proba.argmax(axis=1), classes[:20, 0])
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)
    # New classes are in the lists, whether or not the scorers have been made ready to be read.
    for first in range(n, 8200, 4):
        new = np.arange(first, min(first + 4, 8200))
        np.testing.assert_array_equal(classifier.partial_fit(X[new], new).predict(X[new]), new)
    assert classifier.set_params(n_candidates=9).count_candidates(queries).max() <= 9


@needs_jit
def test_very_many_classes_of_one_example_are_not_trained():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(MOST_TRAINED_ALONE_DENSE + 1, 4)).astype(np.float32)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    classifier = CMTClassifier(n_trees=1, random_state=0).fit(X, np.arange(len(X)))
    scorers = all_scorers(classifier.head_)
    assert scorers is not None
    np.testing.assert_allclose(scorers.weights.T, X[classifier._class_of_label], atol=1e-5)
    assert np.mean(classifier.predict(X[:500]) == np.arange(500)) > 0.99
    landmarks = classifier._landmarks()
    assert landmarks is not None
    assert landmarks.gap > landmarks_of(scorers).gap

"""Search in lists of scorers around landmarks."""

import numpy as np
import pytest
from conftest import needs_jit

from cmt_numba import CMTClassifier
from cmt_numba._forest.rows import as_matrix
from cmt_numba._heads import LabelAnswers
from cmt_numba._heads.landmarks import ScorerLists, best_listed, listed
from cmt_numba._heads.list_search import Scorers
from cmt_numba._heads.products import all_scorers
from cmt_numba._validation import check_rows
from cmt_numba.estimators import _label_index
from cmt_numba.estimators._label_index import MOST_TRAINED_ALONE_DENSE

NOT_KNOWN = -1


def scorers_of(weights: np.ndarray, biases: np.ndarray | None = None) -> Scorers:
    """Return scorers in the memory layout of a head, with other numbers after the weights of each scorer."""
    both = np.concatenate([weights, np.full_like(weights, np.nan)], axis=1).astype(np.float32)
    return Scorers(both.reshape(-1), both.shape[1], np.zeros(0, np.float32) if biases is None else biases)


def clustered(
    n_labels: int, *, biased: bool, n_features: int = 24, seed: int = 0
) -> tuple[np.ndarray, Scorers, np.ndarray]:
    """Return weights around some centers, their scorers, and rows near these."""
    rng = np.random.default_rng(seed)
    centers, shape = rng.normal(size=(12, n_features)), (n_labels, n_features)
    weights = (centers[rng.integers(12, size=n_labels)] + 0.6 * rng.normal(size=shape)).astype(np.float32)
    rows = weights[rng.integers(n_labels, size=200)] + 0.6 * rng.normal(size=(200, n_features)).astype(np.float32)
    biases = 0.1 * rng.normal(size=n_labels).astype(np.float32) if biased else None
    return weights, scorers_of(weights, biases), rows


def in_lists(scorers: Scorers, asked: np.ndarray) -> ScorerLists:
    rows = check_rows(asked)
    return listed(scorers, as_matrix(rows), np.full(rows.n_rows, NOT_KNOWN))


def asked_at_once(lists: ScorerLists, scorers: Scorers, X: np.ndarray, k: int) -> LabelAnswers:
    rows = check_rows(X)
    return best_listed(lists, scorers, rows, k, lambda work: work(0, rows.n_rows))


def expected_scores(weights: np.ndarray, scorers: Scorers, X: np.ndarray) -> np.ndarray:
    scores: np.ndarray = as_matrix(check_rows(X)).astype(np.float64) @ weights.T.astype(np.float64)
    return scores if scorers.biases.size == 0 else scores + scorers.biases


@pytest.mark.parametrize("biased", [False, True])
def test_nearly_all_of_the_best_labels_are_found_in_few_lists(biased: bool):
    weights, scorers, X = clustered(900, biased=biased)
    lists = in_lists(scorers, X[:100])
    found = asked_at_once(lists, scorers, X, 900)
    assert lists.sizes.sum() == 900
    assert found.n_scored.mean() < 600
    expected = expected_scores(weights, scorers, X)
    assert np.mean(found.labels[:, 0] == expected.argmax(axis=1)) > 0.95
    np.testing.assert_array_equal((found.labels >= 0).sum(axis=1), found.n_scored)
    row, rank = np.nonzero(found.labels >= 0)
    np.testing.assert_allclose(found.scores[row, rank], expected[row, found.labels[row, rank]], rtol=1e-4, atol=1e-5)
    assert np.isneginf(found.scores[found.labels < 0]).all()
    assert all((np.diff(scores[:n]) <= 0).all() for scores, n in zip(found.scores, found.n_scored, strict=True))
    few = asked_at_once(lists, scorers, X, 3)
    np.testing.assert_array_equal(few.labels, found.labels[:, :3])
    np.testing.assert_array_equal(few.scores, found.scores[:, :3])


@pytest.mark.parametrize("n_features", [1, 2, 7, 24])
@pytest.mark.parametrize("k", [1, 5])
def test_with_every_list_reached_answers_are_the_best_of_all_labels(n_features: int, k: int):
    weights, scorers, X = clustered(300, biased=True, n_features=n_features)
    lists = in_lists(scorers, X)
    lists = lists._replace(landmarks=lists.landmarks._replace(gap=np.inf))
    found, expected = asked_at_once(lists, scorers, X, k), expected_scores(weights, scorers, X)
    best = np.sort(expected, axis=1)[:, ::-1][:, :k]
    np.testing.assert_allclose(np.take_along_axis(expected, found.labels, axis=1), best, rtol=1e-5, atol=1e-6)
    assert (found.n_scored == 300).all()


def test_a_row_is_answered_alone_as_in_a_batch():
    _, scorers, X = clustered(500, biased=True)
    lists = in_lists(scorers, X)
    together = asked_at_once(lists, scorers, X, 4)
    for n in (1, 2, 3, 5):
        for first in range(0, 60, n):
            alone = asked_at_once(lists, scorers, X[first : first + n], 4)
            for ours, theirs in zip(alone, together, strict=True):
                np.testing.assert_array_equal(ours, theirs[first : first + n])


def test_rows_wait_for_a_right_label_that_is_not_their_own():
    """Rows equal to scorers would all find their own label in the nearest list."""
    weights, scorers, _ = clustered(600, biased=False)
    asked = as_matrix(check_rows(weights[:200]))
    own = listed(scorers, asked, np.arange(200))
    assert own.landmarks.gap > listed(scorers, asked, np.full(200, NOT_KNOWN)).landmarks.gap


@pytest.mark.parametrize("weights", [np.zeros((20, 4)), np.ones((20, 4)), np.eye(3), np.ones((1, 2))])
def test_degenerate_scorers(weights: np.ndarray):
    """The search finds the first of several equal labels, in batches and for single rows."""
    scorers, X = scorers_of(weights), np.ones((6, weights.shape[1]))
    lists = in_lists(scorers, X)
    assert (asked_at_once(lists, scorers, X, 1).labels == 0).all()
    assert (asked_at_once(lists, scorers, X[:1], 1).labels == 0).all()
    labels = asked_at_once(lists, scorers, X, 3).labels
    assert (labels == [0, 1, 2] if len(weights) > 2 else labels == [0, -1, -1]).all()
    assert (asked_at_once(lists, scorers, 0.0 * X, 1).labels == 0).all()


def test_scorers_of_very_different_lengths():
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(400, 10)) * 10.0 ** rng.integers(-30, 15, size=(400, 1))
    scorers, X = scorers_of(weights), rng.normal(size=(50, 10))
    lists = in_lists(scorers, X)
    found = asked_at_once(lists._replace(landmarks=lists.landmarks._replace(gap=np.inf)), scorers, X, 1)
    np.testing.assert_array_equal(found.labels[:, 0], expected_scores(weights, scorers, X).argmax(axis=1))


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
    every = all_scorers(classifier._model.index.head)
    assert every is not None
    asked, stored = (as_matrix(check_rows(some)) for some in (queries, X[:n]))
    nearness = (asked @ stored.T + (asked @ every.weights)[:, classifier._model.label_of_class]) / 2.0
    distances, ids = classifier.set_params(method="scored_neighbors").kneighbors(queries, 3)
    assert np.mean(ids[:, 0] == nearness.argmax(axis=1)) > 0.95
    biases = 0.0 if every.biases is None else every.biases[classifier._model.label_of_class[ids]] / 2.0
    expected = np.take_along_axis(nearness, ids, axis=1) + biases
    np.testing.assert_allclose(1.0 - distances, expected, atol=1e-4)
    proba = classifier.set_params(method="head").predict_proba(queries[:20])
    np.testing.assert_array_equal(proba.argmax(axis=1), classes[:20, 0])
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)
    # New classes are found immediately, whether or not the lists have been rebuilt.
    for first in range(n, 8200, 4):
        new = np.arange(first, min(first + 4, 8200))
        np.testing.assert_array_equal(classifier.partial_fit(X[new], new).predict(X[new]), new)
    assert classifier.set_params(n_candidates=9).count_candidates(queries).max() <= 9


@needs_jit
def test_rows_that_choose_the_number_of_lists_are_not_initial_landmarks(
    monkeypatch: pytest.MonkeyPatch,
):
    """A row that starts a landmark may be alone in its list, and its best other label is then farther away."""
    X = np.random.default_rng(0).normal(size=(8193, 20))
    classifier = CMTClassifier(n_trees=2, n_router_passes=0, n_head_passes=0, store_examples=False, random_state=0)
    classifier.fit(X, np.arange(len(X)))
    gap_of_all = classifier._model.index._new_lists().landmarks.gap
    monkeypatch.setattr(_label_index, "ROWS_ASKED", 360)
    assert classifier._model.index._new_lists().landmarks.gap < 1.1 * gap_of_all


@needs_jit
def test_very_many_classes_of_one_example_are_not_trained():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(MOST_TRAINED_ALONE_DENSE + 1, 4)).astype(np.float32)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    classifier = CMTClassifier(random_state=0).fit(X, np.arange(len(X)))
    assert classifier.forest_._forest.allocated().parameters.n_trees == 1
    scorers = all_scorers(classifier._model.index.head)
    assert scorers is not None
    np.testing.assert_allclose(scorers.weights.T, X[classifier._model.class_of_label], atol=1e-5)
    assert np.mean(classifier.predict(X[:500]) == np.arange(500)) > 0.99

"""Scoring all labels by matrix products."""

import pickle
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from internals import model_of, trained_head

from cmt_numba import CMTClassifier, CMTMultilabelClassifier
from cmt_numba._heads import (
    AllScorers,
    Head,
    HeadLoss,
    HeadParameters,
    all_scorers,
    exact_scores_of_all,
    new_head,
    products,
    with_labels,
)
from cmt_numba._validation import check_rows


def head_of(weights: np.ndarray, biases: np.ndarray | None = None) -> Head:
    """Return a dense head with these scorers."""
    parameters = HeadParameters(weights.shape[1], False, int(HeadLoss.MIRA), 1.0)
    head = with_labels(new_head(parameters), check_rows(weights))
    scorers_of(head).weights[:] = weights.T
    if biases is not None:
        head.labels["bias"][0, : weights.shape[0]] = biases
    return head


def scorers_of(head: Head) -> AllScorers:
    """Return the scorers of a head in a layout for products in many small blocks."""
    scorers = all_scorers(head)
    return scorers._replace(scores_at_once=200, values_at_once=128)


def drawn(rng: np.random.Generator, n_rows: int, n_labels: int, *, biased: bool) -> tuple[Head, np.ndarray]:
    biases = rng.normal(size=n_labels).astype(np.float32) if biased else None
    head = head_of(rng.normal(size=(n_labels, 16)).astype(np.float32), biases)
    return head, rng.normal(size=(n_rows, 16)).astype(np.float32)


@pytest.mark.parametrize("biased", [False, True])
def test_products_rank_all_labels(biased: bool):
    head, X = drawn(np.random.default_rng(0), 50, 30, biased=biased)
    scorers = scorers_of(head)
    unit = X.astype(np.float64) / np.linalg.norm(X.astype(np.float64), axis=1, keepdims=True)
    scores = unit @ scorers.weights.astype(np.float64) + head.labels["bias"][0, :30]
    order, rows = np.argsort(-scores, axis=1), check_rows(X)
    np.testing.assert_array_equal(products.best_of_all(scorers, rows), order[:, 0])
    for k in (1, 4, 30):
        labels, found = products.top_of_all(scorers, rows, k)
        np.testing.assert_array_equal(labels, order[:, :k])
        np.testing.assert_allclose(found, np.take_along_axis(scores, order, axis=1)[:, :k], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(products.exact_scores_of_all(scorers, rows), scores, rtol=1e-5, atol=1e-6)
    row, labels, above = products.all_above(scorers, rows, 0.5)
    assert set(zip(row, labels, strict=True)) == set(zip(*np.nonzero(scores > 0.5), strict=True))
    np.testing.assert_allclose(above, scores[row, labels], rtol=1e-4, atol=1e-5)


def test_the_first_of_equal_labels_comes_first():
    rng = np.random.default_rng(1)
    weights = np.repeat(rng.normal(size=(7, 40)).astype(np.float32), 5, axis=0)[rng.permutation(35)]
    head, X = head_of(weights), rng.normal(size=(60, 40)).astype(np.float32)
    X[3] = 0.0
    scorers, rows = scorers_of(head), check_rows(X)
    best = products.best_of_all(scorers, rows)
    assert all((weights[: best[i]] != weights[best[i]]).any(axis=1).all() for i in range(60))
    assert best[3] == 0
    labels, scores = products.top_of_all(scorers, rows, 12)
    np.testing.assert_array_equal(labels[:, 0], best)
    ordered = np.lexsort((labels, -scores))
    np.testing.assert_array_equal(ordered, np.tile(np.arange(12), (60, 1)))


def test_an_answer_does_not_depend_on_the_batch():
    head, X = drawn(np.random.default_rng(2), 40, 50, biased=False)
    scorers = scorers_of(head)
    labels, scores = products.top_of_all(scorers, check_rows(X), 5)
    for i in range(0, 40, 7):
        alone = products.top_of_all(scorers, check_rows(X[[i]]), 5)
        np.testing.assert_array_equal(alone[0], labels[[i]])
        np.testing.assert_array_equal(alone[1], scores[[i]])


def test_rows_are_ranked_without_being_scaled():
    head, X = drawn(np.random.default_rng(3), 20, 30, biased=False)
    scorers = scorers_of(head)
    X *= np.logspace(-9, 9, 20, dtype=np.float32)[:, None]
    unscaled = products.unscaled_rows(scorers, X)
    assert unscaled is not None
    np.testing.assert_array_equal(
        products.best_of_all(scorers, *unscaled), products.best_of_all(scorers, check_rows(X))
    )
    for wrong in (np.nan, np.inf, 1e30):
        X[4, 2] = wrong
        assert products.unscaled_rows(scorers, X) is None
    X[4] = 0.0
    for other in (X, X[:4].astype(np.float64), np.asfortranarray(X[:4]), X[:4].tolist()):
        assert products.unscaled_rows(scorers, other) is None


def views(n_classes: int, n_each: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return noisy rows of classes that are the same for every seed."""
    centers = np.random.default_rng(0).normal(size=(n_classes, 12))
    y = np.repeat(np.arange(n_classes), n_each)
    return centers[y] + 0.4 * np.random.default_rng(seed).normal(size=(y.size, 12)), y


def test_sparse_rows_are_scored_by_products():
    X = scipy.sparse.random_array((90, 60), density=0.1, random_state=np.random.default_rng(0), format="csr")
    X = (X + 3 * scipy.sparse.csr_array((np.ones(90), (np.arange(90), np.arange(90) % 30)), (90, 60))).tocsr()
    y = np.arange(90) % 30
    classifier = CMTClassifier(random_state=0).fit(X, y)
    predicted, (classes, scores) = classifier.predict(X), classifier.top_classes(X, 30)
    np.testing.assert_array_equal(predicted, classes[:, 0])
    assert (np.diff(scores, axis=1) <= 0).all()
    proba = classifier.predict_proba(X)
    np.testing.assert_array_equal(np.sort(-proba, axis=1), -np.take_along_axis(proba, classes, axis=1))
    np.testing.assert_array_equal(proba[[4]], classifier.predict_proba(X[[4]]))
    many = scipy.sparse.vstack([X] * 100, format="csr")  # in two blocks
    np.testing.assert_array_equal(classifier.predict(many), np.tile(predicted, 100))
    classifier.partial_fit(X[:1], y[:1])  # makes the layout obsolete
    again = pickle.loads(pickle.dumps(classifier))
    np.testing.assert_array_equal(again.predict_proba(X), classifier.predict_proba(X))


def test_features_without_weights_are_not_laid_out():
    wide = scipy.sparse.csr_array((np.ones(60), (np.arange(60), np.arange(60))), (60, 200_000))
    classifier = CMTClassifier(random_state=0).fit(wide, np.arange(60) % 30)
    scorers = all_scorers(trained_head(classifier))
    assert scorers.weights.size <= 60 * 30  # only features with a weight
    np.testing.assert_array_equal(classifier.predict(wide), np.arange(60) % 30)


def test_scorers_have_the_same_scores_in_a_matrix_in_lists_and_in_tables(monkeypatch: pytest.MonkeyPatch):
    X = scipy.sparse.random_array((90, 60), density=0.1, random_state=np.random.default_rng(0), format="csr")
    classifier = CMTClassifier(random_state=0).fit(X, np.arange(90) % 30)
    head, rows = trained_head(classifier), check_rows(X.astype(np.float32))
    in_matrix, in_tables = all_scorers(head), all_scorers(head, in_tables=True)
    monkeypatch.setattr("cmt_numba._heads.products._MAX_SPREAD", 0)
    monkeypatch.setattr("cmt_numba._heads.products._MAX_SPREAD_EACH", 0)
    in_lists = all_scorers(head)
    assert in_matrix.places is not None
    assert in_lists.lists is not None
    assert in_tables.models is not None
    expected = exact_scores_of_all(in_matrix, rows)
    for scorers in (in_lists, in_tables):
        np.testing.assert_array_equal(exact_scores_of_all(scorers, rows), expected)


@pytest.mark.parametrize("form", [np.float32, np.float64])
def test_a_classifier_scores_all_classes_by_default(form: Any):
    X, y = views(40, 3, 1)
    queries, _ = views(40, 2, 2)
    queries = queries.astype(form)
    classifier = CMTClassifier(random_state=0).fit(X, y)
    assert (classifier.count_candidates(queries) == 40).all()
    classes, scores = classifier.top_classes(queries, 50)
    assert (classes[:, 40:] == -1).all()
    assert np.isneginf(scores[:, 40:]).all()
    assert (np.sort(classes[:, :40], axis=1) == np.arange(40)).all()
    predicted = classifier.predict(queries)
    np.testing.assert_array_equal(predicted, classes[:, 0])
    np.testing.assert_array_equal([classifier.predict(query[None])[0] for query in queries], predicted)
    proba = classifier.predict_proba(queries)
    assert (np.diff(np.take_along_axis(proba, classes[:, :40], axis=1), axis=1) <= 0.0).all()


@pytest.mark.parametrize("sparse", [False, True])
def test_a_multilabel_classifier_scores_common_labels_by_products(sparse: bool):
    X, y = views(30, 4, 1)
    X = scipy.sparse.csr_array(X) if sparse else X
    Y = np.eye(30, dtype=int)[y] + np.eye(30, dtype=int)[(y + 1) % 30]
    classifier = CMTMultilabelClassifier(random_state=0).fit(X, Y)
    by_product = classifier.decision_function(X)
    model_of(classifier).index.all_scorers = lambda *_: None
    np.testing.assert_allclose(by_product, classifier.decision_function(X), atol=0.02)
    del model_of(classifier).index.all_scorers
    np.testing.assert_array_equal(classifier.predict(X), by_product > classifier.threshold_)
    labels, scores = classifier.top_labels(X, 3)
    np.testing.assert_array_equal(labels, np.argsort(-by_product, axis=1, kind="stable")[:, :3])
    np.testing.assert_allclose(scores, -np.sort(-by_product, axis=1)[:, :3], atol=1e-5)

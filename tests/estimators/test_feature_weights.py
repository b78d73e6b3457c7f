"""Weights that classifiers learn for the features of sparse rows."""

import warnings

import numpy as np
import pytest
import scipy.sparse
from internals import model_of
from sklearn.exceptions import NotFittedError

from cmt_numba import CMTClassifier
from cmt_numba.text import BM25Vectorizer

N_CLASSES, N_FREQUENT, N_RARE = 24, 20, 6


def texts_like(n_each, rng, classes=range(N_CLASSES)):
    """Return word counts: each row has many frequent words, and two of the few words that identify its class."""
    y = np.repeat(np.asarray(list(classes)), n_each)
    X = np.zeros((y.size, N_FREQUENT + N_CLASSES * N_RARE + 200), np.float32)
    for i, label in enumerate(y):
        np.add.at(X[i], rng.integers(N_FREQUENT, size=12), 1.0)
        X[i, N_FREQUENT + label * N_RARE + rng.integers(N_RARE, size=2)] = 1.0
    return scipy.sparse.csr_array(X), y


def error_of(classifier, X, y):
    return np.mean(classifier.predict(X) != y)


@pytest.fixture
def sets():
    rng = np.random.default_rng(3)
    return *texts_like(3, rng), *texts_like(20, rng)


def test_rare_features_weigh_more_in_counts(sets):
    X, y, X_new, y_new = sets
    learned = CMTClassifier(random_state=0).fit(X, y)
    plain = CMTClassifier(feature_weights="none", random_state=0).fit(X, y)
    assert error_of(learned, X_new, y_new) < 0.7 * error_of(plain, X_new, y_new)
    same = CMTClassifier(feature_weights="idf", random_state=0).fit(X, y)
    np.testing.assert_array_equal(learned.decision_function(X_new), same.decision_function(X_new))


def test_weighted_keys_are_left_unchanged(sets):
    X, y, X_new, _ = sets
    idf = 1.0 + np.log((1 + X.shape[0]) / (1 + np.bincount(X.indices, minlength=X.shape[1])))
    weighted, queries = X.multiply(idf[None]).tocsr(), X_new.multiply(idf[None]).tocsr()
    learned = CMTClassifier(random_state=0).fit(weighted, y)
    plain = CMTClassifier(feature_weights="none", random_state=0).fit(weighted, y)
    np.testing.assert_array_equal(learned.decision_function(queries), plain.decision_function(queries))


TEXTS = [f"t{i % 9} t{i % 5} a a b {'c ' * (i % 3)}d{i}" for i in range(60)]


@pytest.mark.parametrize("norm", ["append", "l2", None])
@pytest.mark.parametrize("query_idf", [0.0, 0.5, 1.0])
def test_rows_of_our_vectorizers_are_left_unchanged(norm, query_idf):
    vectorizer, y = BM25Vectorizer(norm=norm, query_idf=query_idf), np.arange(60) % 9
    X, asked = vectorizer.fit_transform(TEXTS), vectorizer.transform(TEXTS)
    plain = CMTClassifier(feature_weights="none", random_state=0)
    expected = plain.fit(X, y).decision_function(asked)
    np.testing.assert_array_equal(CMTClassifier(random_state=0).fit(X, y).decision_function(asked), expected)
    learned = CMTClassifier(random_state=0).partial_fit(X[:10], y[:10]).partial_fit(X[10:], y[10:])
    plain = (
        CMTClassifier(feature_weights="none", random_state=0).partial_fit(X[:10], y[:10]).partial_fit(X[10:], y[10:])
    )
    np.testing.assert_array_equal(learned.decision_function(asked), plain.decision_function(asked))


def test_a_folder_remembers_that_rows_are_weighted(tmp_path):
    vectorizer = BM25Vectorizer(query_idf=1.0)
    X, asked = vectorizer.fit_transform(TEXTS), vectorizer.transform(TEXTS)
    with CMTClassifier.open(tmp_path / "folder", random_state=0, snapshot_seconds=1e9) as classifier:
        classifier.partial_fit(X, np.arange(60) % 9)
        expected = classifier.decision_function(asked)
    with CMTClassifier.open(tmp_path / "folder") as replayed:
        np.testing.assert_array_equal(replayed.decision_function(asked), expected)


@pytest.mark.parametrize("exponent", [0.25, 0.5])
def test_held_out_examples_decide_if_values_hardly_grow_with_rarity(sets, exponent):
    X, y, X_new, y_new = sets
    idf = 1.0 + np.log((1 + X.shape[0]) / (1 + np.bincount(X.indices, minlength=X.shape[1])))
    X, X_new = ((rows.multiply(idf[None] ** exponent)).tocsr() for rows in (X, X_new))
    errors = {
        weights: error_of(CMTClassifier(feature_weights=weights, random_state=0).fit(X, y), X_new, y_new)
        for weights in ("auto", "idf", "none")
    }
    assert errors["auto"] == min(errors.values())


def test_dense_rows_are_left_unchanged(sets):
    X, y, X_new, _ = sets
    learned = CMTClassifier(feature_weights="idf", random_state=0).fit(X.toarray(), y)
    plain = CMTClassifier(feature_weights="none", random_state=0).fit(X.toarray(), y)
    np.testing.assert_array_equal(learned.predict(X_new.toarray()), plain.predict(X_new.toarray()))


@pytest.mark.parametrize("store_examples", [True, False])
def test_partial_fit_updates_frequencies(sets, store_examples):
    X, y, X_new, y_new = sets
    order = np.argsort(y % 3, kind="stable")
    learned = CMTClassifier(store_examples=store_examples, random_state=0)
    for some in np.array_split(order, 3):
        learned.partial_fit(X[some], y[some])
    counts = model_of(learned).index.feature_weights.counts
    np.testing.assert_array_equal(counts, np.bincount(X.indices, minlength=X.shape[1]))
    plain = CMTClassifier(feature_weights="none", random_state=0).fit(X, y)
    assert error_of(learned, X_new, y_new) < error_of(plain, X_new, y_new)


def test_removed_examples_do_not_count_once_the_others_are_learned_again(sets):
    X, y, X_new, y_new = sets
    learned = CMTClassifier(random_state=0).fit(X, y).remove(np.flatnonzero(y < 12))
    left = scipy.sparse.csr_array(X[y >= 12])
    counts = model_of(learned).index.feature_weights.counts
    np.testing.assert_array_equal(counts, np.bincount(left.indices, minlength=X.shape[1]))
    assert error_of(learned, X_new[y_new >= 12], y_new[y_new >= 12]) < 0.5


def test_weights_of_examples_count_like_repeated_rows(sets):
    X, y, _, _ = sets
    twice = CMTClassifier(random_state=0).fit(scipy.sparse.vstack([X, X]).tocsr(), np.concatenate([y, y]))
    weighted = CMTClassifier(random_state=0).fit(X, y, sample_weight=np.full(y.size, 2.0))
    found, expected = (model_of(one).index.feature_weights for one in (weighted, twice))
    np.testing.assert_array_equal(found.counts, expected.counts)
    assert found.n_rows == expected.n_rows


def test_lost_features_of_a_frozen_vocabulary_warn_once():
    rng = np.random.default_rng(5)
    X, y = texts_like(6, rng)
    old = y < 18
    known = np.flatnonzero(np.bincount(X[old].indices, minlength=X.shape[1]))
    frozen = X[:, known].tocsr()
    classifier = CMTClassifier(random_state=0).fit(frozen[old], y[old])
    first, second = (y >= 18) & (y < 21), y >= 21
    with pytest.warns(UserWarning, match="fewer features"):
        classifier.partial_fit(frozen[first], y[first])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        classifier.partial_fit(frozen[second], y[second])
        CMTClassifier(random_state=0).fit(X[old], y[old]).partial_fit(X[~old], y[~old])


def test_unknown_kinds_of_weights_are_refused(sets):
    X, y, *_ = sets
    classifier = CMTClassifier(feature_weights="tfidf")
    with pytest.raises(ValueError, match="feature_weights"):
        classifier.fit(X, y)
    with pytest.raises(NotFittedError):
        classifier.predict(X)

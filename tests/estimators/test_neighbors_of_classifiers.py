"""Nearest examples of a classifier, and the choice between neighbors and the head."""

import pickle
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from conftest import FORMS
from internals import choice_of, estimators_neighbors, index_of, model_of, neighbors_of
from sklearn.datasets import load_digits, make_moons
from sklearn.neighbors import KNeighborsClassifier

from cmt_numba import CMTClassifier


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X[:500], y[:500], X[500:800], y[500:800]


def curved(n, seed=0):
    X, y = make_moons(n, noise=0.15, random_state=seed)
    return X + 1.0, y


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize(
    "options", [{}, {"metric": "cosine"}, {"weights": "distance"}, {"n_neighbors": 1}, {"n_neighbors": 150}], ids=str
)
def test_neighbors_answer_as_in_scikit_learn(digits, form, options):
    X, y, queries, _ = digits
    ours = CMTClassifier(method="neighbors", random_state=0, **options).fit(form(X), y)
    theirs = KNeighborsClassifier(**options).fit(X, y)
    distances, ids = ours.kneighbors(form(queries))
    expected, nearest = theirs.kneighbors(queries)
    np.testing.assert_allclose(distances, expected, rtol=1e-3, atol=1e-5)
    assert np.mean([np.isin(*pair).mean() for pair in zip(ids, nearest, strict=True)]) > 0.99  # others are ties
    assert np.mean(ours.predict(form(queries)) == theirs.predict(queries)) > 0.99
    np.testing.assert_allclose(ours.predict_proba(form(X)).sum(axis=1), 1.0)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_an_index_finds_nearly_the_same_neighbors(metric, monkeypatch):
    monkeypatch.setattr(estimators_neighbors, "_FEW_EXAMPLES", 1000)
    monkeypatch.setattr(estimators_neighbors, "_PAIRS_WORTH_AN_INDEX", 100 * 1500)
    rng = np.random.default_rng(0)
    X, queries = rng.normal(size=(1500, 6)) + 1.0, rng.normal(size=(50, 6)) + 1.0
    classifier = CMTClassifier(method="neighbors", metric=metric, random_state=0).fit(X, np.arange(1500) % 3)
    exact, expected = classifier.kneighbors(queries, 5)
    assert index_of(neighbors_of(model_of(classifier))[1]) is None
    distances, ids = classifier.kneighbors(queries, 5)
    assert index_of(neighbors_of(model_of(classifier))[1]) is not None
    is_same = (ids == expected).all(axis=1)
    assert is_same.mean() > 0.9
    np.testing.assert_allclose(distances[is_same], exact[is_same], rtol=1e-4)
    assert (distances >= exact - 1e-6).all()
    classifier.partial_fit(queries, np.zeros(50))
    assert classifier.kneighbors(queries, 1)[1].ravel().tolist() == list(range(1500, 1550))


def test_equal_examples_have_distance_zero_and_come_in_order():
    X = np.array([[3.0, 4.0], [0.0, 2.0], [3.0, 4.0], [0.0, 0.0]])
    for form in (np.asarray, scipy.sparse.csr_array):
        classifier = CMTClassifier(random_state=0).fit(form(X), ["a", "b", "c", "d"])
        distances, ids = classifier.kneighbors(form(X[:1]), 5)
        assert ids[0].tolist() == [0, 2, 1, 3, -1]
        np.testing.assert_allclose(distances[0], [0.0, 0.0, np.sqrt(13.0), 5.0, np.inf], rtol=1e-5)


def test_fewer_examples_than_neighbors_vote():
    """A missing neighbor must not read the label of an example that does not exist."""
    classifier = CMTClassifier(method="neighbors", n_neighbors=5, random_state=0)
    classifier.fit(scipy.sparse.csr_array(np.eye(40, 4)[:3]), ["a", "b", "a"])
    model_of(classifier).stored().label_of[3:] = 10**9  # spare capacity is not initialised
    assert classifier.predict(scipy.sparse.csr_array(np.eye(4)[:2])).tolist() == ["a", "a"]


def test_neighbors_follow_what_is_learned_and_removed(digits, tmp_path):
    X, y, queries, _ = digits
    classifier = CMTClassifier(method="neighbors", random_state=0)
    for some in np.array_split(np.arange(500), 4):
        classifier.partial_fit(X[some], y[some])
    classifier.remove(np.arange(0, 500, 5))
    left = np.flatnonzero(np.arange(500) % 5)
    theirs = KNeighborsClassifier().fit(X[left], y[left])
    _, ids = classifier.kneighbors(queries)
    assert np.mean(ids == left[theirs.kneighbors(queries)[1]]) > 0.97
    classifier.save(tmp_path / "classifier")
    for other in (CMTClassifier.load(tmp_path / "classifier"), pickle.loads(pickle.dumps(classifier))):
        other.check_invariants()
        np.testing.assert_array_equal(other.kneighbors(queries)[1], ids)


def test_the_method_is_chosen_by_held_out_error():
    X, y = curved(400)
    queries, wanted = curved(300, seed=1)
    chosen = CMTClassifier(method="auto", random_state=0).fit(X, y)
    neighbors = CMTClassifier(method="neighbors", random_state=0).fit(X, y)
    np.testing.assert_array_equal(chosen.predict(queries), neighbors.predict(queries))
    assert chosen.score(queries, wanted) > 0.9 > CMTClassifier(random_state=0).fit(X, y).score(queries, wanted)

    # A hyperplane through the origin separates the classes, in too many dimensions for neighbors.
    rng = np.random.default_rng(0)
    X, plane = rng.normal(size=(400, 30)), rng.normal(size=30)
    queries, X, y = X[300:], X[:300], X[:300] @ plane > 0.0
    chosen = CMTClassifier(method="auto", random_state=0).fit(X, y)
    head = CMTClassifier(random_state=0).fit(X, y)
    np.testing.assert_array_equal(chosen.predict_proba(queries), head.predict_proba(queries))


def test_the_choice_is_made_again_and_is_kept_in_folders(tmp_path):
    X, y = curved(400)
    options = {"method": "auto", "n_neighbors": "auto", "metric": "auto"}
    with CMTClassifier.open(tmp_path / "folder", random_state=0, **options) as one:
        one.partial_fit(X[:10], y[:10])
        assert choice_of(one).method == "head"
        one.partial_fit(X[10:200], y[10:200]).partial_fit(X[200:], y[200:])
        answers, choice = one.predict(X), choice_of(one)
        assert choice.method == "neighbors"
    with CMTClassifier.open(tmp_path / "folder") as other:
        assert choice_of(other) == choice
        np.testing.assert_array_equal(other.predict(X), answers)


def test_impossible_combinations_are_refused(digits):
    X, y, *_ = digits
    for options, message in (
        ({"method": "neighbors", "weights": "score"}, "needs method='scored_neighbors'"),
        ({"method": "neighbors", "store_examples": False}, "needs stored examples"),
        ({"n_neighbors": "many"}, "n_neighbors"),
        ({"n_neighbors": 0}, "n_neighbors"),
        ({"metric": "hamming"}, "metric"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            CMTClassifier(**options).fit(X, y)


def test_examples_too_long_to_square():
    """Squared lengths above the largest float32 must not lead to positions that do not exist."""
    X = np.array([[1e25, 0.0], [0.0, 1e25], [1.0, 1.0], [-3e25, 2.0]], np.float32)
    classifier = CMTClassifier(method="neighbors", metric="euclidean", n_neighbors=1, feature_weights="none").fit(
        X, [0, 1, 2, 0]
    )
    found = classifier.kneighbors(X, 4, return_distance=False)
    assert np.sort(found, axis=1).tolist() == [[0, 1, 2, 3]] * 4
    assert classifier.predict(X).shape == (4,)


@FORMS
def test_probabilities_of_votes_are_never_zero(form: Any):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 4, 600)
    X = np.abs(rng.normal(size=(4, 6))[y] + 0.9 * rng.normal(size=(600, 6)))
    for options in ({}, {"weights": "distance"}, {"method": "scored_neighbors", "weights": "score"}):
        classifier = CMTClassifier(random_state=0, **{"method": "neighbors"} | options).fit(form(X[:300]), y[:300])
        proba = classifier.predict_proba(form(X[300:]))
        np.testing.assert_allclose(proba.sum(axis=1), 1.0)
        assert proba.min() > 0.0
        np.testing.assert_array_equal(proba.argmax(axis=1), classifier.predict(form(X[300:])))
        # The proportion is about the best for these rows.
        votes = classifier.decision_function(form(X[300:]))
        right = (votes / votes.sum(axis=1, keepdims=True))[np.arange(300), y[300:]]
        losses = [-np.mean(np.log((1.0 - share) * right + share / 4)) for share in np.linspace(0.01, 0.99, 50)]
        assert -np.mean(np.log(proba[np.arange(300), y[300:]])) < min(losses) + 0.05

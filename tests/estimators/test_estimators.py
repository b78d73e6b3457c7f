"""The interface of the classifier for users of scikit-learn."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse
from conftest import FORMS, needs_jit, text_like
from internals import estimators_label_index, model_of, trained_head
from sklearn.base import clone
from sklearn.metrics.pairwise import euclidean_distances, manhattan_distances
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import normalize
from sklearn.svm import LinearSVC

from cmt_numba import CMTClassifier, InvariantError
from cmt_numba._heads import HEAD_LOSSES

FEW = {"n_head_passes": 2, "random_state": 0}
"""Options for tests that also run without compiled kernels."""


def classes_of_views(n_classes: int, n_views: int, noise: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return noisy views of random objects, and the object of each view."""
    objects = np.random.default_rng(7).normal(size=(n_classes, 20))
    y = np.repeat(np.arange(n_classes), n_views)
    X = objects[y] + noise * np.random.default_rng(seed).normal(size=(y.size, 20))
    order = np.random.default_rng(seed).permutation(y.size)
    return X[order], y[order]


@FORMS
@pytest.mark.parametrize("loss", HEAD_LOSSES)
def test_few_views_are_enough(form: Any, loss: str):
    X, y = classes_of_views(15, 3, 0.3)
    queries, answers = classes_of_views(15, 2, 0.3, seed=1)
    classifier = CMTClassifier(loss=loss, **FEW).fit(form(X), y)
    assert classifier.score(form(queries), answers) > 0.9
    assert classifier.n_features_in_ == 20
    np.testing.assert_array_equal(classifier.classes_, np.arange(15))
    classifier.check_invariants()


@needs_jit
def test_it_learns_to_ignore_noisy_features():
    """If features unrelated to the class are noisy, learning beats the nearest neighbour."""
    rng = np.random.default_rng(0)
    y = np.arange(2000) % 50
    objects = rng.normal(size=(50, 20))

    def views(n: int) -> np.ndarray:
        return np.hstack([objects[y[:n]] + 0.3 * rng.normal(size=(n, 20)), 2 * rng.normal(size=(n, 20))])

    X, queries = views(2000), views(500)
    nearest = KNeighborsClassifier(1, metric="cosine").fit(X, y).score(queries, y[:500])
    unsupervised = CMTClassifier(n_head_passes=0, random_state=0).fit(X, y).score(queries, y[:500])
    learned = CMTClassifier(feature_weights="none", random_state=0).fit(X, y)
    assert learned.score(queries, y[:500]) > max(nearest, unsupervised) + 0.02


@needs_jit
@pytest.mark.parametrize("signed", [False, True], ids=["counts", "signed"])
def test_rare_features_lead_to_their_classes(signed: bool):
    """Two rare features identify each class; there are 2,000 classes."""
    rng = np.random.default_rng(0)
    common = scipy.sparse.random_array((6000, 50), density=0.2, random_state=rng, format="csr")
    y = np.repeat(np.arange(2000), 3)
    rows, features = np.repeat(np.arange(6000), 2), np.repeat(2 * y, 2) + [0, 1] * 6000
    rare = scipy.sparse.csr_array((np.full(12000, 1.5), (rows, features)))
    X = scipy.sparse.hstack([common, rare]).tocsr()
    if signed:
        X = X @ scipy.sparse.diags_array(rng.choice([-1.0, 1.0], X.shape[1]))
    seen = np.arange(6000) % 3 > 0
    classifier = CMTClassifier(random_state=0).fit(X[seen], y[seen])
    assert classifier.score(X[~seen], y[~seen]) > 0.99
    assert classifier.count_candidates(X[~seen]).max() <= 400


def test_classes_of_any_type_come_at_any_time():
    X, y = classes_of_views(12, 3, 0.1)
    names = np.array([f"object {i:02}" for i in y], dtype=object)
    classifier = CMTClassifier(**FEW)
    for first in range(0, 36, 4):
        classifier.partial_fit(X[first : first + 4], names[first : first + 4])
        assert set(classifier.predict(X[: first + 4])) <= set(names[: first + 4])
        assert list(classifier.classes_) == sorted(set(names[: first + 4]))
    assert classifier.score(X, names) > 0.95
    assert classifier.predict_proba(X).shape == (36, 12)
    classifier.check_invariants()


def test_classes_named_beforehand():
    X, y = classes_of_views(4, 3, 0.1)
    classifier = CMTClassifier(**FEW).partial_fit(X[y < 2], y[y < 2], classes=np.arange(4))
    assert list(classifier.classes_) == [0, 1, 2, 3]
    assert (classifier.predict_proba(X)[:, 2:] == 0).all()
    assert classifier.partial_fit(X[y >= 2], y[y >= 2]).score(X, y) == 1.0
    with pytest.raises(ValueError, match="y must contain only labels listed in classes"):
        CMTClassifier(**FEW).partial_fit(X, y, classes=[0, 1])


@FORMS
def test_neighbours_are_found_and_vote(form: Any):
    X, y = classes_of_views(10, 4, 0.3)
    options = {"method": "scored_neighbors", "n_neighbors": 4, **FEW}
    classifier = CMTClassifier(**options).partial_fit(form(X[:25]), y[:25]).partial_fit(form(X[25:]), y[25:])
    distances, ids = classifier.kneighbors(form(X))
    assert ids.shape == distances.shape == (40, 4)
    assert (np.diff(distances, axis=1) >= 0).all()
    assert np.mean(ids[:, 0] == np.arange(40)) > 0.9
    np.testing.assert_array_equal(ids, classifier.kneighbors(form(X), return_distance=False))
    voters = clone(classifier).fit(form(X), y)
    proba = voters.predict_proba(form(X))
    votes = np.zeros((40, 10))
    ids = voters.kneighbors(form(X), return_distance=False)
    for row, found in enumerate(ids):
        np.add.at(votes[row], y[found], 0.25)
    prior = 10.0 * proba[votes == 0.0]  # equal probabilities of all classes are mixed in
    assert 0.0 < prior[0] < 0.5
    np.testing.assert_allclose(prior, prior[0])
    np.testing.assert_allclose(proba, (1.0 - prior[0]) * votes + prior[0] / 10.0)
    np.testing.assert_array_equal(voters.predict(form(X)), votes.argmax(axis=1))
    weighted = voters.set_params(weights="score").predict_proba(form(X))
    np.testing.assert_allclose(weighted.sum(axis=1), 1.0)
    assert ((weighted > weighted.min() + 1e-6) == (votes > 0)).all()
    unit = normalize(X)
    similarities = {"cosine": np.maximum(unit @ unit.T, 1e-6)}
    for weights, apart in (("gaussian", euclidean_distances(unit)), ("laplacian", manhattan_distances(unit))):
        middle = np.sort(np.take_along_axis(apart, ids, axis=1), axis=1)[:, 1:2]  # the lower median of four
        similarities[weights] = np.exp(-0.5 * (apart / middle) ** 2 if weights == "gaussian" else -apart / middle)
    for weights, of_all in similarities.items():
        votes = np.zeros((40, 10))
        np.add.at(votes, (np.arange(40)[:, None], y[ids]), np.take_along_axis(of_all, ids, axis=1))
        found = voters.set_params(weights=weights).predict_proba(form(X))
        prior = 10.0 * found.min()
        shares = (1.0 - prior) * votes / votes.sum(axis=1, keepdims=True) + prior / 10.0
        np.testing.assert_allclose(found, shares, rtol=1e-3, atol=1e-4)


@needs_jit
def test_answers_do_not_depend_on_threads_or_batches():
    X, y = classes_of_views(300, 4, 0.3)
    one = CMTClassifier(random_state=3).fit(X, y)
    two = CMTClassifier(random_state=3, n_jobs=2).fit(X, y)
    np.testing.assert_array_equal(one.predict_proba(X), two.predict_proba(X))
    np.testing.assert_array_equal(one.predict(X), np.concatenate([one.predict(row[None]) for row in X]))
    np.testing.assert_array_equal(one.kneighbors(X)[1], two.kneighbors(X)[1])


@needs_jit
def test_dense_and_sparse_queries_agree():
    X, y = text_like(400, 50, 12, seed=5), np.arange(400) % 100
    for fitted in (CMTClassifier(random_state=0).fit(X.toarray(), y), CMTClassifier(random_state=0).fit(X, y)):
        np.testing.assert_array_equal(fitted.predict(X), fitted.predict(X.toarray()))


def test_a_head_with_a_removed_loss_is_refused():
    X, y = classes_of_views(3, 2, 0.1)
    classifier = CMTClassifier(**FEW).fit(X, y)
    parameters = trained_head(classifier).parameters._replace(loss=3)
    model_of(classifier).index.head = trained_head(classifier)._replace(parameters=parameters)
    with pytest.raises(InvariantError, match="the loss of the head is unknown"):
        classifier.check_invariants()


@needs_jit
def test_fewer_candidates_can_be_asked_for_at_any_time(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(estimators_label_index, "MAX_SCORED_SPARSE", 0)  # few classes are otherwise all scored
    X, y = classes_of_views(60, 2, 0.1)
    X = scipy.sparse.csr_array(X)
    classifier = CMTClassifier(**FEW).fit(X, y)
    looked_at = {}
    for n_candidates in (None, 5, 40):
        classifier.set_params(n_candidates=n_candidates)
        looked_at[n_candidates] = classifier.count_candidates(X).max()
        assert np.mean(classifier.predict(X) == y) > (0.2 if n_candidates == 5 else 0.6)
    assert looked_at[5] <= 5 < looked_at[40] <= 40
    assert looked_at[None] == 16


@needs_jit
def test_two_noisy_classes_of_many_examples_are_told_apart():
    """The class means are similar, so scorers that stay close to them make more errors than a linear model."""
    rng, d, n = np.random.default_rng(0), 400, 2000
    frequency, tilt, y = 1.0 / np.arange(1, d + 1), 0.5 * rng.normal(size=d), rng.integers(0, 2, 5000)
    shares = np.stack([frequency * np.exp(side * tilt) for side in (1, -1)])
    shares /= shares.sum(axis=1, keepdims=True)
    X = scipy.sparse.csr_array(np.log1p(rng.multinomial(8, shares[y])))
    errors = [
        np.mean(classifier.fit(X[:n], y[:n]).predict(X[n:]) != y[n:])
        for classifier in (LinearSVC(), CMTClassifier(random_state=0))
    ]
    assert errors[1] < errors[0] + 0.01

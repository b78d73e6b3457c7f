"""``LandmarkIndex`` compared with exhaustive search after insertions, removals and loading; and its classifier."""

import pickle

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.datasets import make_moons
from sklearn.metrics.pairwise import laplacian_kernel, rbf_kernel
from sklearn.neighbors import KNeighborsClassifier

from cmt_numba.neighbors import LandmarkClassifier, LandmarkIndex

every_metric = pytest.mark.parametrize("metric", ["cosine", "inner_product", "euclidean", "gaussian", "laplacian"])


def all_values(metric: str, asked: np.ndarray, stored: np.ndarray, bandwidth: float) -> np.ndarray:
    """Return the values of all pairs by their definitions."""
    unit = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (asked, stored)]
    if metric == "cosine":
        return unit[0] @ unit[1].T
    if metric == "inner_product":
        return asked @ stored.T
    if metric == "gaussian":
        return rbf_kernel(asked, stored, 0.5 / bandwidth**2)
    if metric == "laplacian":
        return laplacian_kernel(asked, stored, 1.0 / bandwidth)
    return np.linalg.norm(asked[:, None] - stored, axis=2)


def grouped(rng: np.random.Generator, n: int, n_features: int = 4) -> np.ndarray:
    """Return clustered rows far from the origin."""
    middles = np.random.default_rng(5).normal(size=(12, n_features)) * 3.0 + 4.0
    return (middles[rng.integers(12, size=n)] + rng.normal(size=(n, n_features))).astype(np.float32)


def check(index: LandmarkIndex, stored: np.ndarray, ids: np.ndarray, asked: np.ndarray, k: int) -> None:
    """Compare an exact search with the values of all pairs."""
    found, sign = index.query(asked, k), -1.0 if index.metric == "euclidean" else 1.0
    np.testing.assert_array_equal(index.ids, ids)
    assert len(index) == ids.size
    n_found = min(k, ids.size)
    assert (found.ids[:, n_found:] == -1).all()
    assert (found.values[:, n_found:] == -sign * np.inf).all()
    if ids.size == 0:
        return
    values = all_values(index.metric, asked, stored, index.bandwidth_)
    best = -sign * np.sort(-sign * values, axis=1)[:, :n_found]
    np.testing.assert_allclose(found.values[:, :n_found], best, rtol=1e-4, atol=1e-4)
    places = np.searchsorted(ids, found.ids[:, :n_found])
    np.testing.assert_array_equal(ids[places], found.ids[:, :n_found])
    np.testing.assert_allclose(
        np.take_along_axis(values, places, axis=1), found.values[:, :n_found], rtol=1e-4, atol=1e-4
    )


def test_tables_are_classified_by_distances():
    """Angles say little about places in a plane."""
    X, y = make_moons(600, noise=0.25, random_state=0)
    classifiers = (LandmarkClassifier(random_state=0), KNeighborsClassifier())
    errors = [1.0 - one.fit(X[:400], y[:400]).score(X[400:], y[400:]) for one in classifiers]
    assert errors[0] <= errors[1] + 0.01


@every_metric
def test_exact_neighbours_after_changes(metric: str, rng: np.random.Generator):
    rows, asked = grouped(rng, 700), grouped(rng, 25)
    index = LandmarkIndex(metric, target_recall=1.0, random_state=0)
    ids = np.empty(0, np.int64)
    check(index, rows[ids], ids, asked, 3)
    for first, stop in ((0, 40), (40, 41), (41, 150), (150, 700)):
        assert index.insert(rows[first:stop]).tolist() == list(range(first, stop))
        ids = np.arange(stop)
        check(index, rows[ids], ids, asked, 6)
    assert index.n_lists_ == len(index.landmarks_) > 2
    for gone in (ids[::3], np.array([1]), ids[401::3]):
        index.remove(gone)
        ids = np.setdiff1d(ids, gone)
        check(index, rows[ids], ids, asked, 6)
    index.rebuild()
    check(index, rows[ids], ids, asked, 1000)
    index.remove(ids)
    check(index, rows[:0], ids[:0], asked, 2)
    assert index.insert(rows[:3]).tolist() == [700, 701, 702]
    check(index, rows[:3], np.arange(700, 703), asked, 5)


def test_a_higher_target_finds_more(rng: np.random.Generator):
    rows, asked = rng.normal(size=(3000, 6)), rng.normal(size=(100, 6))
    index = LandmarkIndex("euclidean", target_recall=1.0, random_state=0)
    index.insert(rows)
    exact, shares = index.query(asked, 5), []
    for index.target_recall in (0.5, 0.9, 0.99):
        found = index.query(asked, 5)
        shares.append(np.mean([np.isin(a, b).mean() for a, b in zip(found.ids, exact.ids, strict=True)]))
    assert shares == sorted(shares)
    assert shares[-1] > 0.95
    index.target_recall = 0.0
    with pytest.raises(ValueError, match="target_recall must be"):
        index.query(asked)


def test_landmarks_are_the_means_of_lists(rng: np.random.Generator):
    rows = grouped(rng, 700)
    index = LandmarkIndex("euclidean", random_state=0)
    index.insert(rows)
    landmarks = index.landmarks_
    nearest = np.linalg.norm(rows[:, None] - landmarks, axis=2).min(axis=1)
    assert nearest.mean() < 0.7 * np.linalg.norm(rows - rows.mean(axis=0), axis=1).mean()


def test_rows_that_are_alike(rng: np.random.Generator):
    index = LandmarkIndex("euclidean", target_recall=1.0, random_state=0)
    index.insert(np.ones((50, 3)))
    found = index.query(np.ones((2, 3)), 4)
    assert found.ids.tolist() == [[0, 1, 2, 3]] * 2
    assert (found.values == 0.0).all()
    assert LandmarkIndex("gaussian").insert(np.ones((5, 3))).size == 5  # there is no median distance


def test_bandwidths(rng: np.random.Generator):
    rows = grouped(rng, 400)
    for metric, order in (("gaussian", 2), ("laplacian", 1)):
        index = LandmarkIndex(metric, random_state=0)
        index.insert(rows)
        apart = np.linalg.norm(rows[:, None] - rows, axis=2, ord=order)[np.triu_indices(400, 1)]
        assert index.bandwidth_ == pytest.approx(np.median(apart), rel=1e-4)
        given_one = LandmarkIndex(metric, bandwidth=2.5)
        given_one.insert(rows)
        assert given_one.bandwidth_ == 2.5
        of_large_rows = LandmarkIndex(metric, random_state=0)
        of_large_rows.insert((1e36 * rows).astype(np.float32))
        assert pickle.loads(pickle.dumps(of_large_rows)).bandwidth_ == of_large_rows.bandwidth_ > 1e30


@given(data=st.data())
@settings(max_examples=10)
def test_changes_in_any_order(data: st.DataObject):
    rng = np.random.default_rng(data.draw(st.integers(0, 5)))
    index = LandmarkIndex("euclidean", target_recall=1.0)
    rows, ids = np.empty((0, 3), np.float32), np.empty(0, np.int64)
    for change in data.draw(st.lists(st.sampled_from(["insert", "remove", "rebuild"]), max_size=8)):
        if change == "insert":
            more = grouped(rng, int(rng.integers(1, 30)), 3)
            ids, rows = np.append(ids, index.insert(more)), np.concatenate([rows, more])
        elif change == "remove" and ids.size > 0:
            gone = rng.choice(ids, rng.integers(1, ids.size + 1), replace=False)
            index.remove(gone)
            assert all(one not in index for one in gone)
            ids = np.setdiff1d(ids, gone)
        elif change == "rebuild":
            index.rebuild()
    check(index, rows[ids], ids, grouped(rng, 4, 3), 3)


# Votes


@pytest.mark.parametrize("weights", ["uniform", "score"])
@every_metric
def test_votes(metric: str, weights: str, rng: np.random.Generator):
    X, asked = grouped(rng, 300), grouped(rng, 40)
    y = np.array(["low", "high"])[(X[:, 0] > 4.0).astype(int)]
    classifier = LandmarkClassifier(7, metric=metric, weights=weights, target_recall=1.0, random_state=0).fit(X, y)
    values = all_values(metric, asked, X, classifier.index_.bandwidth_)
    apart = -values if metric != "euclidean" else values
    nearest = np.argsort(apart, axis=1)[:, :7]
    of_nearest = np.take_along_axis(values, nearest, axis=1)
    votes = np.ones_like(of_nearest)
    if weights == "score":
        votes = 1.0 / of_nearest if metric == "euclidean" else of_nearest
    shares = (votes * (y[nearest] == "high")).sum(axis=1) / votes.sum(axis=1)
    np.testing.assert_allclose(classifier.predict_proba(asked)[:, 0], shares, rtol=1e-3)
    assert set(classifier.predict(asked)) == {"low", "high"}
    if metric == "euclidean":
        peer = KNeighborsClassifier(7, weights="uniform" if weights == "uniform" else "distance").fit(X, y)
        assert (classifier.predict(asked) == peer.predict(asked)).all()
    assert clone(classifier).set_params(n_neighbors=1, metric="cosine").fit(X, y).score(X, y) == 1.0


# Invalid input


def test_invalid_input_is_refused(rng: np.random.Generator):
    for options, message in [
        ({"metric": "manhattan"}, "metric must be one of"),
        ({"target_recall": 0.0}, "target_recall must be"),
        ({"bandwidth": 0.0}, "bandwidth must be"),
    ]:
        with pytest.raises(ValueError, match=message):
            LandmarkIndex(**options)
    index = LandmarkIndex(random_state=0)
    with pytest.raises(ValueError, match="landmarks exist only after the first insert"):
        _ = index.landmarks_
    with pytest.raises(KeyError):
        index.remove(0)
    index.insert(np.eye(3))
    for X, error, message in [
        (np.eye(4), ValueError, "features"),
        (np.zeros((1, 3)), ValueError, "rows of zeros"),
        ([[np.nan, 0.0, 1.0]], ValueError, "finite"),
        (scipy.sparse.eye_array(3).tocsr(), TypeError, "dense"),
    ]:
        for use in (index.insert, index.query):
            with pytest.raises(error, match=message):
                use(X)
    large = LandmarkIndex("euclidean", target_recall=1.0, random_state=0)
    with pytest.raises(ValueError, match="too large"):
        large.insert([[1e39, 0.0]])
    large.insert([[1e35, 0.0], [-1e35, 0.0], [0.0, 1e35]])
    assert large.query([[-9e34, 0.0]], 3).ids.tolist() == [[1, 2, 0]]
    for ids, error in [([0, 3], KeyError), ([-1], KeyError), ([0, 0], ValueError), ([0.0], TypeError)]:
        with pytest.raises(error):
            index.remove(ids)
    assert index.ids.tolist() == [0, 1, 2]
    assert 2 in index
    assert "2" not in index
    for options, y, message in [
        ({"n_neighbors": 0}, [0, 1, 1], "n_neighbors must be"),
        ({"weights": "distance"}, [0, 1, 1], "weights must be one of"),
        ({}, [0, 1], "one entry for each of the 3 rows"),
        ({}, [0.5, 1.5, 2.5], "Unknown label type"),
    ]:
        with pytest.raises(ValueError, match=message):
            LandmarkClassifier(**options).fit(np.eye(3), y)


@pytest.mark.parametrize(("metric", "sign"), [("inner_product", -1), ("euclidean", 1)])
def test_values_too_large_for_float32_are_the_largest(metric: str, sign: int):
    index = LandmarkIndex(metric, random_state=0)
    index.insert([[3e38, 3e38]])
    found = index.query([[-3e38, -3e38]], 2)
    assert found.ids.tolist() == [[0, -1]]
    assert found.values.tolist() == [[sign * np.finfo(np.float32).max, sign * np.inf]]

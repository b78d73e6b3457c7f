"""The retriever, and its kernels compared with plain Python."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from conftest import needs_jit
from internals import estimators_values, model_of
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import normalize
from sklearn.utils.estimator_checks import parametrize_with_checks
from test_supervision import FORMS

from cmt_numba import CMTRetriever
from cmt_numba._validation import check_rows
from cmt_numba.estimators._retrieval_model import ValueExpectation
from cmt_numba.evaluation import batch_evaluation

EXACT: dict[str, Any] = {"target_recall": 1.0, "random_state": 0}


def pictures(n: int = 300, width: int = 40, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return keys of a few words each, and values that are noisy sums of the vectors of these words."""
    rng = np.random.default_rng(seed)
    keys = (rng.random((n, 25)) < 0.15) * rng.random((n, 25))
    keys[:, 0] += 0.2
    meanings = np.random.default_rng(7).normal(size=(25, width))
    return keys, keys @ meanings + 0.1 * rng.normal(size=(n, width))


def mean_cosine(found: np.ndarray, right: np.ndarray) -> float:
    return float(np.mean(np.clip(np.sum(normalize(found) * normalize(right), axis=1), 0, 1)))


# Kernels


def new_map(n_features: int, n_components: int, sparse: bool) -> ValueExpectation:
    return ValueExpectation.new(estimators_values.Components(None, n_components), n_features, sparse)


def components_of(vectors: np.ndarray) -> np.ndarray:
    """Return vectors of unit length as vectors of the index."""
    return np.pad(normalize(vectors).astype(np.float32), ((0, 0), (0, 1)))


@FORMS
def test_expectations_are_those_of_ridge_regression(form: Any, rng: np.random.Generator):
    keys, values = pictures(60, 8)
    rows, vectors = check_rows(form(keys)), components_of(values)
    learned, weights = new_map(25, 8, rows.sparse), rng.uniform(0.1, 1.0, 60).astype(np.float32)
    options = CMTRetriever(regularization=0.5, n_value_passes=50)
    learned.learn_values(rows, vectors, weights, rng, options)
    with_bias = np.hstack([normalize(keys), np.ones((60, 1))])
    ridge = Ridge(alpha=0.5, fit_intercept=False).fit(with_bias, vectors, weights)
    np.testing.assert_allclose(learned.expect(rows, 1), ridge.predict(with_bias), atol=2e-3)


@FORMS
def test_rewards_teach_as_in_plain_python(form: Any, rng: np.random.Generator):
    keys, _ = pictures(20)
    rows, learned = check_rows(form(keys)), new_map(25, 6, scipy.sparse.issparse(form(keys)))
    pairs = rng.integers(0, 20, 50)
    vectors, rewards = normalize(rng.normal(size=(50, 6))), rng.random(50).astype(np.float32)
    learned.learn_rewards(rows, pairs, vectors, rewards, 2.0)
    X, W = np.hstack([normalize(keys), np.ones((20, 1))]), np.zeros((26, 6))
    for i, vector, reward in zip(pairs, vectors, rewards, strict=True):
        size = (X[i] @ X[i]) * (vector @ vector)
        W += (reward - X[i] @ W @ vector) / (size + 2.0) * np.outer(X[i], vector)
    np.testing.assert_allclose(learned.expect(rows, 1)[:, :-1], X @ W, atol=1e-4)


def test_features_get_weights_when_they_occur(rng: np.random.Generator):
    few, every, first = new_map(10**6, 2, sparse=True), new_map(10**3, 2, sparse=False), np.zeros(1, np.int64)
    for _ in range(30):
        X = scipy.sparse.csr_array((np.ones(40), ([0] * 40, rng.integers(0, 10**3, 40))), (1, 10**6))
        rows = [check_rows(X), check_rows(X[:, : 10**3].toarray())]
        for learned, row in zip((few, every), rows, strict=True):
            learned.learn_rewards(row, first, np.eye(2)[:1], np.array([0.7]), 1.0)
        np.testing.assert_allclose(few.expect(rows[0], 1), every.expect(rows[1], 1), atol=1e-5)


@pytest.mark.parametrize("sparse", [False, True])
def test_components_keep_lengths_and_products(sparse: bool, rng: np.random.Generator):
    values = rng.normal(size=(50, 8)) @ rng.normal(size=(8, 30))
    given = scipy.sparse.csr_array(values) if sparse else values
    reduced = estimators_values.Components.of(given, 8, 0).reduced(given)
    unit = normalize(values)
    np.testing.assert_allclose(reduced @ reduced.T, unit @ unit.T, atol=1e-3)  # rank 8, so the components are complete
    rough = estimators_values.Components.of(given, 3, 0).reduced(given)
    np.testing.assert_allclose(np.linalg.norm(rough, axis=1), 1.0, atol=1e-5)
    assert rough.shape == (50, 4)
    assert rough[:, -1].max() > 0.1
    few = estimators_values.Components.of(given[:2], 5, 0)  # random vectors complete the basis
    np.testing.assert_allclose(few.basis.T @ few.basis, np.eye(5), atol=1e-5)


# Searching


@FORMS
def test_by_key_finds_what_exact_search_finds(form: Any):
    keys, values = pictures(80)
    queries, _ = pictures(40, seed=1)
    retriever = CMTRetriever("key", **EXACT).fit(form(keys), values)
    distances, ids = retriever.kneighbors(form(queries), 3)
    exact, nearest = NearestNeighbors(n_neighbors=3, metric="cosine").fit(keys).kneighbors(queries)
    np.testing.assert_allclose(distances, exact, atol=1e-5)
    assert np.mean(ids == nearest) > 0.99  # except ties
    np.testing.assert_array_equal(retriever.predict(form(queries)), values[ids[:, 0]])


@needs_jit
@FORMS
def test_by_value_finds_the_value_most_like_the_expected_one(form: Any):
    keys, values = pictures()
    queries, right = pictures(80, seed=1)
    retriever = CMTRetriever(n_components=40, n_value_passes=200, **EXACT).fit(form(keys), values)
    assert retriever.search_ == "value"
    unit = normalize(values)
    features, asked = (np.hstack([normalize(rows), np.ones((len(rows), 1))]) for rows in (keys, queries))
    expected = Ridge(alpha=3.0, fit_intercept=False).fit(features, unit).predict(asked)
    hits = retriever.query(form(queries), 2)
    best = np.argsort(-expected @ unit.T, axis=1)[:, :2]
    assert np.mean(hits.ids == best) > 0.97  # except near ties
    np.testing.assert_allclose(hits.scores, np.clip(np.sort(expected @ unit.T)[:, ::-1][:, :2], 0, 1), atol=5e-3)
    by_key = CMTRetriever("key", **EXACT).fit(form(keys), values)
    assert retriever.score(form(queries), right) > by_key.score(form(queries), right) + 0.02
    assert retriever.score(form(queries), right) == pytest.approx(
        mean_cosine(retriever.predict(form(queries)), right), abs=1e-6
    )


@needs_jit
def test_searches_with_a_target_recall_are_nearly_as_good_as_exact_ones():
    keys, values = pictures(3000)
    queries, right = pictures(200, seed=1)
    few = CMTRetriever(random_state=0).fit(keys, values).score(queries, right)
    every = CMTRetriever(**EXACT).fit(keys, values).score(queries, right)
    chance = mean_cosine(values[np.random.default_rng(0).integers(0, 3000, 200)], right)
    assert few > every - 0.03
    assert few > chance + 0.3


def test_sparse_vectors_are_values_like_dense_ones():
    keys, values = pictures(40)
    values[np.abs(values) < 0.5] = 0.0
    dense = CMTRetriever(random_state=0).fit(keys, values)
    sparse = CMTRetriever(random_state=0).fit(keys, scipy.sparse.csr_array(values))
    assert np.mean(dense.query(keys).ids == sparse.query(keys).ids) > 0.97
    assert scipy.sparse.issparse(sparse.predict(keys))
    assert sparse.score(keys, scipy.sparse.csr_array(values)) == pytest.approx(dense.score(keys, values), abs=0.02)
    sparse.partial_fit(keys[:5], values[:5])
    assert sparse.values([40, 3]).shape == (2, 40)


@pytest.mark.parametrize(
    "objects",
    [
        ["red", "green", "blue"],
        [{"a": 1}, None, (1, 2)],
        [(1, 2), (3, 4), (5, 6)],
        [[1], [1, 2], []],
        np.array(["x", "yy", "zzz"]),
        [1.5, 2.5, 3.5],
    ],
)
def test_values_may_be_objects_of_any_kind(objects: Any):
    if isinstance(objects, list) and objects[0] == (1, 2):
        boxed = np.empty(3, object)
        boxed[:] = objects
        objects = boxed
    retriever = CMTRetriever(random_state=0).fit(np.eye(3), objects)
    assert retriever.search_ == "key"
    found = retriever.predict(np.eye(3)[[2, 0]])
    assert [found[0], found[1]] == [objects[2], objects[0]]
    assert retriever.score(np.eye(3), objects) == 1.0
    retriever.partial_fit(-np.eye(3)[:1], [objects[1]])
    assert retriever.predict(-np.eye(3)[:1])[0] == objects[1]


def test_without_values_positions_are_answers():
    retriever = CMTRetriever(random_state=0).fit(np.eye(3)).partial_fit(-np.eye(3))
    np.testing.assert_array_equal(retriever.predict(np.vstack([np.eye(3), -np.eye(3)])), np.arange(6))


# Learning


@pytest.mark.parametrize("search", ["key", "value"])
def test_memories_may_come_one_by_one(search: str):
    keys, values = pictures(50)
    retriever = CMTRetriever(search, **EXACT)
    for i in range(0, 50, 7):
        retriever.partial_fit(keys[i : i + 7], values[i : i + 7])
        retriever.check_invariants()
    queries, right = pictures(30, seed=1)
    whole = CMTRetriever(search, **EXACT).fit(keys, values)
    assert retriever.n_memories_ == 50
    assert retriever.score(queries, right) > whole.score(queries, right) - 0.1
    np.testing.assert_array_equal(retriever.values(np.arange(50)), values)


@needs_jit
def test_feedback_by_value_moves_what_is_expected():
    keys, values = pictures(200)
    values = values[::-1].copy()  # the stored values are wrong for the queries
    retriever = CMTRetriever(**EXACT).fit(keys, values)
    queries, right = pictures(400, seed=1)
    before = retriever.score(queries[200:], right[200:])
    for start in range(0, 200, 20):
        asked, answers = queries[start : start + 20], right[start : start + 20]
        ids = np.tile(np.random.default_rng(start).integers(0, 200, 10), (20, 1))
        rewards = [[mean_cosine(values[[i]], answers[[row]]) for i in ids[row]] for row in range(20)]
        retriever.feedback(asked, ids, rewards)
    assert retriever.score(queries[200:], right[200:]) > before + 0.1


@pytest.mark.parametrize("search", ["key", "value"])
def test_removed_memories_are_not_found(search: str):
    keys, values = pictures(20)
    retriever = CMTRetriever(search, **EXACT).fit(np.vstack([keys, keys]), np.vstack([values, values]))
    retriever.remove(np.arange(20))
    assert retriever.n_memories_ == 20
    assert np.all(retriever.query(keys, 3).ids >= 20)  # equal memories are still stored
    retriever.remove(np.arange(20, 30))
    assert np.all(retriever.query(keys, 3).ids >= 30)
    with pytest.raises(KeyError, match="no memory has id 5"):
        retriever.remove([35, 5])
    assert retriever.n_memories_ == 10
    retriever.partial_fit(keys[:1], values[:1])  # a removed value
    assert 40 in retriever.query(keys[:1], 10).ids
    retriever.remove(np.arange(30, 41))
    retriever.check_invariants()
    with pytest.raises(LookupError, match="all memories have been removed"):
        retriever.predict(keys[:1])
    assert np.all(retriever.kneighbors(keys[:2], 2, return_distance=False) == -1)


@pytest.mark.parametrize("values", [["a", "bc"], [b"a", b"bc"], [1, 2], [None, ["x"]], np.eye(2)], ids=repr)
def test_an_emptied_retriever_can_be_saved(values: Any):
    retriever = CMTRetriever(**EXACT).fit(np.eye(2), values)
    stored = retriever.predict(np.eye(2))
    loaded = pickle.loads(pickle.dumps(retriever.remove([0, 1])))
    assert loaded.n_memories_ == 0
    np.testing.assert_array_equal(loaded.partial_fit(np.eye(2), values).predict(np.eye(2)), stored)


# Surface


def test_answers_depend_on_the_seed_only():
    keys, values = pictures(30)
    one, other = (CMTRetriever(random_state=5, n_jobs=jobs).fit(keys, values) for jobs in (None, 2))
    np.testing.assert_array_equal(one.query(keys, 4).ids, other.query(keys, 4).ids)
    np.testing.assert_array_equal(one.query(keys, 4).scores, pickle.loads(pickle.dumps(one)).query(keys, 4).scores)
    assert clone(one).get_params() == one.get_params()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda one, _, X, y: one.partial_fit(X, y[:5]), ValueError, "y must have one entry for each of the 20 rows"),
        (lambda one, _, X, y: one.partial_fit(X, y[:, :3]), ValueError, "y must contain vectors of 40 numbers"),
        (lambda one, _, X, y: one.partial_fit(X, y * np.nan), ValueError, "y must be finite"),
        (lambda one, _, X, y: one.partial_fit(X, ["a"] * 20), ValueError, "y must contain vectors of 40 numbers"),
        (lambda one, _, X, y: one.feedback(X, np.full(20, 99), np.ones(20)), KeyError, "no memory has id 99"),
        (lambda one, _, X, y: one.feedback(X, [0] * 20, np.full(20, 1.5)), ValueError, "must be between 0 and 1"),
        (lambda one, _, X, y: one.feedback(X, [0] * 20, np.ones(19)), ValueError, "rewards must have shape"),
        (lambda one, _, X, y: one.feedback(X, np.zeros((5, 4), int), np.ones(20)), ValueError, "one row for each"),
        (lambda one, _, X, y: one.values([-1]), KeyError, "no memory has id -1"),
        (lambda one, _, X, y: one.replace([0], X[:1]), ValueError, "keys are not stored"),
        (lambda one, _, X, y: one.set_values([20], y[:1]), KeyError, "no memory has id 20"),
        (lambda one, _, X, y: one.set_values([0, 0], y[:2]), ValueError, "occurs twice"),
        (lambda one, _, X, y: one.set_values([0], y[:1, :5]), ValueError, "vectors of 40 numbers"),
        (lambda _, by_key, X, y: by_key.replace([20], X[:1]), KeyError, "no memory has id 20"),
        (lambda _, by_key, X, y: by_key.replace([0, 0], X[:2]), ValueError, "occurs twice"),
        (lambda _, by_key, X, y: by_key.set_values([0, 1], ["a"]), ValueError, "one entry for each of the 2 rows"),
        (lambda *_: CMTRetriever("value").fit(np.eye(3), [1, 2, 3]), ValueError, "y must contain vectors"),
        (lambda *_: CMTRetriever("nearest").fit(np.eye(3)), ValueError, "search must be one of"),
        (lambda *_: CMTRetriever(regularization=0.0).fit(np.eye(3)), ValueError, "regularization"),
        (lambda *_: CMTRetriever().predict(np.eye(3)), NotFittedError, "not fitted"),
    ],
)
def test_bad_input_raises_before_anything_changes(call: Any, error: type[Exception], message: str):
    keys, values = pictures(20)
    by_value, by_key = (CMTRetriever(random_state=0).fit(keys, y) for y in (values, list(range(20))))
    with pytest.raises(error, match=message):
        call(by_value, by_key, keys, values)
    np.testing.assert_array_equal(by_value.values(np.arange(20)), values)
    assert by_key.values(np.arange(20)).tolist() == list(range(20))


def test_cosines_of_zero_vectors_are_zero():
    np.testing.assert_array_equal(estimators_values.cosines(np.zeros((1, 3)), np.ones((1, 3))), [0.0])


@FORMS
@pytest.mark.parametrize("n", [3, 1100])  # few, and enough for searches of lists
def test_keys_and_queries_of_zeros_have_a_similarity_of_zero(form: Any, n: int, rng: np.random.Generator):
    keys = rng.random((n, 4))
    keys[1] = 0.0
    retriever = CMTRetriever(random_state=0).fit(form(keys))
    distances, ids = retriever.kneighbors(form(keys[1:2]), n)
    assert np.sort(ids[0]).tolist() == list(range(n))
    assert np.all(distances == 1.0)
    distances, ids = retriever.kneighbors(form(keys[:1]), n)
    assert np.sort(ids[0]).tolist() == list(range(n))
    assert ids[0, -1] == 1
    assert distances[0, -1] == 1.0


@needs_jit
@parametrize_with_checks([CMTRetriever("key", random_state=0), CMTRetriever(random_state=0)])
def test_conventions_of_scikit_learn(estimator: Any, check: Any):
    check(estimator)


@pytest.mark.parametrize("search", ["key", "value"])
def test_feedback_on_nothing_teaches_nothing(search: str):
    keys, values = pictures(30)
    retriever = CMTRetriever(search, random_state=0).fit(keys, values)
    before = retriever.query(keys, 3)
    retriever.feedback(keys[:4], np.full((4, 2), -1), np.ones((4, 2)))
    np.testing.assert_array_equal(retriever.query(keys, 3).scores, before.scores)


def test_an_evaluation_stores_every_memory_once():
    keys, values = pictures(60)
    result = batch_evaluation(CMTRetriever(random_state=0), keys, values, seeds=(0,))
    assert result.n_train == 48


@needs_jit
@pytest.mark.parametrize("kind", ["objects", "vectors", "sparse vectors"])
def test_what_is_removed_is_not_kept(kind: str, tmp_path: Path):
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(400, 50))
    kinds: dict[str, Any] = {
        "objects": [f"value {i:04} " + 50 * "x" for i in range(400)],
        "vectors": vectors,
        "sparse vectors": scipy.sparse.csr_array(vectors),
    }
    keys, values = rng.normal(size=(400, 6)), kinds[kind]
    retriever = CMTRetriever(random_state=0).fit(keys[:40], values[:40])
    size, sizes = len(pickle.dumps(retriever)), []
    for i in range(360):
        retriever.remove([i]).partial_fit(keys[40 + i : 41 + i], values[40 + i : 41 + i])
        sizes.append(model_of(retriever).memories.values.n_values)
    retriever.check_invariants()
    assert max(sizes) <= 2 * 40 + 20
    assert len(pickle.dumps(retriever)) < 1.2 * size + 1000
    assert retriever.n_memories_ == 40
    assert retriever.kneighbors(keys, 3, return_distance=False).min() >= 360
    with pytest.raises(KeyError, match="no memory has id 3"):
        retriever.values([3])
    retriever.remove([390])
    retriever.save(tmp_path / "file")
    gone = b"value 0390" if kind == "objects" else vectors[390].tobytes()
    there = b"value 0391" if kind == "objects" else vectors[391].tobytes()
    text = "".join(chr(i) for i in gone).encode("utf-32-le") if kind == "objects" else gone
    for held in (pickle.dumps(retriever), (tmp_path / "file").read_bytes()):
        assert gone not in held
        assert text not in held
    assert there in pickle.dumps(retriever) or "".join(map(chr, there)).encode("utf-32-le") in pickle.dumps(retriever)

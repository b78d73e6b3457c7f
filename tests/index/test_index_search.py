"""The search of the inverted index, which finds the same labels as scoring all of them."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse
from conftest import needs_jit
from internals import estimators_label_index, model_of

from cmt_numba import CMTClassifier
from cmt_numba._jit import kernel
from cmt_numba._kernels import NONE
from cmt_numba._postings import (
    Digest,
    LabelAnswers,
    all_of,
    keep_best_labels,
    label_bounds,
    list_by_feature,
    rank_listed,
)
from cmt_numba._validation import check_rows


def zipf_rows(rng: np.random.Generator, n_rows: int, n_features: int = 60, width: int = 8) -> Any:
    """Return nonnegative rows of a few features each. Some features are very frequent."""
    weight = 1.0 / np.arange(1, n_features + 1)
    cells = np.array([rng.choice(n_features, width, replace=False, p=weight / weight.sum()) for _ in range(n_rows)])
    values = rng.random(cells.shape) / (0.1 + weight[cells])
    X = scipy.sparse.csr_array(
        (values.ravel(), cells.ravel(), np.arange(0, cells.size + 1, width)), (n_rows, n_features)
    )
    X.sort_indices()
    return X.astype(np.float32)


def ranked(scorers: Any, biases: np.ndarray, queries: Any, k: int, shares: np.ndarray | None = None) -> LabelAnswers:
    offsets = scorers.indptr.astype(np.int64)
    features, weights = scorers.indices.astype(np.int32), scorers.data.astype(np.float32)
    digest = Digest(offsets, features, weights)
    postings = list_by_feature(digest, weights != 0.0, scorers.shape[1])
    n_rows, rows = queries.shape[0], check_rows(queries)
    labels, scores = np.full((n_rows, k), NONE, np.int64), np.full((n_rows, k), -np.inf, np.float32)
    answers = LabelAnswers(labels, scores, np.zeros(n_rows, np.int64), np.zeros(n_rows, np.int64))
    bounds = label_bounds(postings, biases.astype(np.float32))
    bounds = bounds if shares is None else bounds._replace(shares=shares)
    rank_listed(postings, digest, bounds, all_of(rows), answers)
    return answers


@pytest.mark.parametrize("n_features", [60, 1 << 19], ids=["direct", "hashed"])
@pytest.mark.parametrize("k", [1, 3, 16])
@pytest.mark.parametrize("spread", [0.0, 0.3], ids=["alike", "biased"])
def test_the_best_labels_are_found(k: int, spread: float, n_features: int, rng: np.random.Generator):
    scorers, queries = zipf_rows(rng, 600), zipf_rows(rng, 25)
    scorers.resize(600, n_features)
    queries.resize(25, n_features)
    biases = spread * rng.normal(size=600).astype(np.float32)
    labels, scores, n_scored, n_met = ranked(scorers, biases, queries, k)
    unit = queries.toarray() if n_features == 60 else queries[:, :60].toarray()
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    expected = unit @ scorers[:, :60].toarray().T + biases
    shared = unit @ (scorers[:, :60].toarray().T > 0) > 0
    expected[~shared] = -np.inf
    np.testing.assert_allclose(scores, -np.sort(-expected, axis=1)[:, :k], rtol=1e-4)
    np.testing.assert_allclose(np.take_along_axis(expected, labels, axis=1), scores, rtol=1e-4)
    assert (n_met <= shared.sum(axis=1)).all()
    assert ((n_scored > 0) == (n_met > 0)).all()
    if k == 1 and spread == 0.0:
        assert n_met.mean() < 0.7 * shared.sum(axis=1).mean()


def test_light_labels_in_long_lists_are_not_scored():
    weights = np.zeros((2000, 2), np.float32)
    weights[:, 1] = 0.1
    weights[1:21, 0] = 0.5  # a rare feature
    weights[0, 1], weights[1, 0] = 1.0, 0.6
    scorers, queries = scipy.sparse.csr_array(weights), scipy.sparse.csr_array(np.array([[0.9, 0.43]], np.float32))
    answers = ranked(scorers, np.zeros(2000), queries, 1)
    assert answers.labels.tolist() == [[1]]
    assert answers.n_scored[0] <= 2
    assert ranked(scorers, np.zeros(2000), queries, 1, np.ones(2000, np.float32)).n_scored[0] > 20


def test_labels_without_a_common_feature_are_not_found(rng: np.random.Generator):
    scorers = scipy.sparse.csr_array(np.array([[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0]], np.float32))
    queries = scipy.sparse.csr_array(np.array([[0, 1, 0, 1], [0, 0, 0, 1], [1, 0, 0, 0]], np.float32))
    labels, scores, _, n_met = ranked(scorers, np.zeros(3), queries, 2)
    assert labels[0].tolist() == [1, NONE]
    assert labels[1].tolist() == [NONE, NONE]
    assert sorted(labels[2]) == [0, 1]
    assert n_met.tolist() == [1, 0, 2]
    np.testing.assert_array_equal(np.isneginf(scores), labels == NONE)


@pytest.mark.parametrize("k", [1, 2, 16])
def test_ties_go_to_the_first_label(k: int, rng: np.random.Generator):
    some = zipf_rows(rng, 200)
    scorers = scipy.sparse.vstack([some, some[::-1], some], format="csr")
    labels, scores, *_ = ranked(scorers, np.zeros(600), zipf_rows(rng, 25), k)
    pairs = [list(zip(-row_scores, row, strict=True)) for row_scores, row in zip(scores, labels, strict=True)]
    assert all(row == sorted(row) for row in pairs)
    assert (labels[:, 0] < 200).all()
    if k > 1:
        np.testing.assert_array_equal(scores[:, 0], scores[:, 1])


@pytest.fixture
def texts(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    monkeypatch.setattr(
        estimators_label_index, "MAX_SCORED_SPARSE", 0
    )  # few classes are otherwise scored without a search
    rng = np.random.default_rng(1)
    return zipf_rows(rng, 60), zipf_rows(rng, 12)


def classifier_of(X: Any, **options: Any) -> CMTClassifier:
    return CMTClassifier(random_state=0, store_examples=False, **options).fit(X, np.arange(X.shape[0]))


def lists_best(classifier: CMTClassifier, k: int) -> bool:
    return model_of(classifier).index.lists_best(k, classifier)


def test_classes_of_one_text_are_compared_with_all(texts: tuple[Any, Any]):
    X, queries = texts
    classifier = classifier_of(X, n_head_passes=0)
    unit = X.toarray() / np.linalg.norm(X.toarray(), axis=1, keepdims=True)
    assert (classifier.predict(queries) == (queries @ unit.T).argmax(axis=1)).all()
    assert (classifier.predict(X) == np.arange(60)).all()
    top, scores = classifier.top_classes(queries, 3)
    np.testing.assert_array_equal(top[:, 0], classifier.predict(queries))
    assert (np.diff(scores, axis=1) <= 0).all()
    # A row that shares no feature with any class gets the most frequent one.
    assert classifier.predict(scipy.sparse.csr_array((1, 60), dtype=np.float32))[0] in classifier.classes_


def test_dense_and_trained_heads_and_explicit_options_search_candidates(texts: tuple[Any, Any]):
    X = texts[0][:20]
    assert lists_best(classifier_of(X, n_head_passes=0), 3)
    assert not lists_best(classifier_of(X, n_head_passes=0), 17)
    assert not lists_best(classifier_of(X, n_head_passes=0, n_candidates=5), 1)
    assert not lists_best(classifier_of(X, n_head_passes=1), 1)
    assert not lists_best(classifier_of(X.toarray(), n_head_passes=0), 1)


@needs_jit
def test_many_classes_of_one_example_are_not_trained():
    rng = np.random.default_rng(0)
    X = scipy.sparse.random_array((8193, 300), density=0.02, format="csr", random_state=rng)

    def scores(n: int, n_head_passes: int) -> np.ndarray:
        classifier = CMTClassifier(n_head_passes=n_head_passes, random_state=0)
        return classifier.fit(X[:n], np.arange(n)).top_classes(X[:20], 2)[1]

    assert np.abs(scores(8192, 1) - scores(8192, 0)).max() > 0.005
    np.testing.assert_array_equal(scores(8193, 1), scores(8193, 0))


@kernel
def kept_of(labels, sums, n_kept):
    """Compile and call a function that kernels inline."""
    return keep_best_labels(labels, sums, n_kept)


@pytest.mark.parametrize("n_kept", [1, 2, 7, 50, 80])
def test_the_heaviest_labels_are_kept(n_kept: int, rng: np.random.Generator):
    sums = rng.random(100).astype(np.float32)
    labels = rng.permutation(100)[:50]
    expected = set(labels[np.argsort(-sums[labels])][:n_kept])
    kept = labels.copy()
    assert kept_of(kept, sums, n_kept) == min(n_kept, 50)
    assert set(kept[:n_kept]) == expected
    assert sorted(kept) == sorted(labels)

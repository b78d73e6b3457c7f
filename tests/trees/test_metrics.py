"""Measures compared with scikit-learn's and with plain loops."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import f1_score, hamming_loss, ndcg_score

from cmt_numba import metrics

FORMS = pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array, scipy.sparse.coo_matrix, list])
SEEDS = st.integers(0, 2**32 - 1)


def labels_and_ranking(seed: int, n: int = 20, n_labels: int = 9) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return indicators of labels, scores without ties, and the ranking by scores, a few of its last places empty."""
    rng = np.random.default_rng(seed)
    Y = (rng.random((n, n_labels)) < rng.random((n, 1))).astype(np.int64)
    scores = rng.permuted(np.tile(np.arange(n_labels), (n, 1)), axis=1).astype(np.float64)
    ranked = np.argsort(-scores, axis=1)
    ranked[rng.random(n) < 0.3, 6:] = -1
    return Y, scores, ranked


@given(SEEDS)
def test_ndcg_equals_that_of_scikit_learn(seed: int):
    Y, scores, ranked = labels_and_ranking(seed)
    for k in (1, 3, 6):
        assert metrics.ndcg_at(Y, ranked, k) == pytest.approx(ndcg_score(Y, scores, k=k))


@given(SEEDS)
def test_precision_by_plain_loops(seed: int):
    Y, _, ranked = labels_and_ranking(seed)
    for k in (1, 3, 9):
        right = sum(Y[i, label] for i, row in enumerate(ranked) for label in row[:k] if label >= 0)
        assert metrics.precision_at(Y, ranked, k) == pytest.approx(right / (k * len(Y)))


@given(SEEDS)
def test_propensity_scored_measures_by_plain_loops(seed: int):
    Y, _, ranked = labels_and_ranking(seed)
    worth = metrics.inverse_propensities(Y, a=0.5, b=0.4)
    for k in (1, 3, 9):
        for measure, discounts in (
            (metrics.precision_at, np.ones(k)),
            (metrics.ndcg_at, [1 / np.log2(place + 2) for place in range(k)]),
        ):
            gained = possible = 0.0
            for has, row in zip(Y, ranked, strict=True):
                gained += sum(
                    d * worth[label] * has[label] for d, label in zip(discounts, row, strict=False) if label >= 0
                )
                best = sorted(worth[has > 0], reverse=True)
                possible += sum(d * value for d, value in zip(discounts, best, strict=False))
            assert measure(Y, ranked, k, inverse_propensities=worth) == pytest.approx(gained / possible)


@given(SEEDS)
def test_sets_of_labels_are_compared_like_scikit_learn_does(seed: int):
    Y, scores, _ = labels_and_ranking(seed)
    predicted = (scores > 5).astype(np.int64)
    predicted[0] = Y[0] = 0
    for average in ("micro", "samples"):
        wanted = f1_score(Y, predicted, average=average, zero_division=1.0)
        assert metrics.f1(Y, predicted, average) == pytest.approx(wanted)
    assert metrics.hamming(Y, predicted) == pytest.approx(9 * hamming_loss(Y, predicted))


@FORMS
def test_labels_of_any_form(form: Any):
    Y, _, ranked = labels_and_ranking(3)
    assert metrics.ndcg_at(form(Y), ranked, 3) == metrics.ndcg_at(Y, ranked, 3)
    assert metrics.f1(form(Y), form(5 * Y[::-1])) == metrics.f1(Y, Y[::-1])
    np.testing.assert_array_equal(metrics.inverse_propensities(form(2.5 * Y)), metrics.inverse_propensities(Y))


def test_stored_zeros_are_no_labels():
    Y = scipy.sparse.csr_array((np.array([1, 0, 1]), np.array([0, 1, 1]), np.array([0, 2, 3])), (2, 2))
    assert metrics.hamming(Y, np.eye(2)) == 0.0
    assert metrics.precision_at(Y, [[1], [1]], 1) == 0.5


def test_inverse_propensities_by_the_formula():
    Y = np.zeros((100, 3))
    Y[:50, 0] = Y[:3, 1] = 1
    c = (np.log(100) - 1) * 2.5**0.55
    wanted = [1 + c * (n + 1.5) ** -0.55 for n in (50, 3, 0)]
    np.testing.assert_allclose(metrics.inverse_propensities(Y), wanted)
    assert (metrics.inverse_propensities(Y[:1]) == 1.0).all()


def test_entropy_reduction():
    assert metrics.entropy_reduction(0.5, 0.001) == pytest.approx(np.log2(500))
    assert metrics.entropy_reduction(0.0, 0.1) == -np.inf
    assert metrics.entropy_reduction(0.0, 0.0) == -np.inf
    assert metrics.entropy_reduction(0.1, 0.0) == np.inf
    assert metrics.constant_accuracy(["b", "a", "b", "c"]) == 0.5


@given(SEEDS)
def test_recall_by_plain_loops(seed: int):
    rng = np.random.default_rng(seed)
    found, exact = (rng.permuted(np.tile(np.arange(12), (7, 1)), axis=1) for _ in range(2))
    found[2, 3:] = exact[1, 4:] = exact[2, 2:] = -1
    for k in (1, 5, 12):
        common = sum(len(set(a[:k]) & set(b[:k]) - {-1}) for a, b in zip(found, exact, strict=True))
        assert metrics.recall_at(found, exact, k) == pytest.approx(common / np.sum(exact[:, :k] >= 0))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: metrics.entropy_reduction(1.5, 0.5), ValueError, "accuracy must be between"),
        (lambda: metrics.entropy_reduction("a", 0.5), TypeError, "accuracy must be a real number"),
        (lambda: metrics.constant_accuracy([]), ValueError, "y must have one class"),
        (lambda: metrics.hamming(np.ones((2, 3)), np.ones((2, 4))), ValueError, "predicted must have shape"),
        (lambda: metrics.hamming(np.ones(2), np.ones(2)), ValueError, "Y must be a two-dimensional indicator matrix"),
        (lambda: metrics.hamming([["a"]], [[1]]), TypeError, "Y must be an indicator matrix"),
        (lambda: metrics.hamming(np.ones((0, 2)), np.ones((0, 2))), ValueError, "Y must have at least one row"),
        (lambda: metrics.f1([[1]], [[1]], "macro"), ValueError, "average must be one of"),
        (lambda: metrics.precision_at([[1]], [[0.0]], 1), TypeError, "ranked must be integers"),
        (lambda: metrics.precision_at([[1]], [[0]], 2), ValueError, "ranked must have two dimensions"),
        (lambda: metrics.precision_at([[1]], [[0], [0]], 1), ValueError, "ranked must have one entry for each"),
        (lambda: metrics.precision_at([[1]], [[1]], 1), ValueError, "ranked must contain columns of Y"),
        (lambda: metrics.ndcg_at([[1]], [[0]], 0), ValueError, "k must be between"),
        (
            lambda: metrics.ndcg_at([[1]], [[0]], 1, inverse_propensities=[1, 2]),
            ValueError,
            "inverse_propensities must",
        ),
        (lambda: metrics.inverse_propensities([[1]], b=0.0), ValueError, "b must be above"),
        (lambda: metrics.recall_at([[1]], [[1], [2]], 1), ValueError, "same number of rows"),
        (lambda: metrics.recall_at([[1]], [[-1]], 1), ValueError, "exact must contain at least one id"),
    ],
)
def test_invalid_arguments_of_metrics_are_named(call: Any, error: type[Exception], message: str):
    with pytest.raises(error, match=message):
        call()

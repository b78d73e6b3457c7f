"""The multi-label classifier, and its kernels against plain Python."""

import pickle
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from conftest import needs_jit
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.svm import LinearSVC
from test_supervision import ALL_LABELS, FORMS, state_of, weights_of

from cmt_numba import CMTMultilabelClassifier, ContextualMemoryTree
from cmt_numba._candidates import Questions
from cmt_numba._head import HeadParameters, forget_labels, new_head, with_labels, with_more_cells
from cmt_numba._membership import Answers, learn_memberships, new_memberships
from cmt_numba._state import DONE, NEXT_ROW
from cmt_numba._validation import check_rows

FEW = {"n_trees": 2, "n_router_passes": 1, "n_head_passes": 3, "random_state": 0}


def topics(n: int, n_labels: int = 12, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return rows that are sums of the vectors of their one to three labels, with a little noise; and these labels."""
    rng = np.random.default_rng(seed)
    vectors = np.abs(np.random.default_rng(5).normal(size=(n_labels, 30))) * (
        np.random.default_rng(6).random((n_labels, 30)) < 0.3
    )
    Y = np.zeros((n, n_labels), np.int64)
    for row in Y:
        row[rng.choice(n_labels, rng.integers(1, 4), replace=False)] = 1
    return Y @ vectors + 0.1 * np.abs(rng.normal(size=(n, 30))), Y


@FORMS
def test_memberships_match_plain_python(form: Any, rng: np.random.Generator):
    X = np.abs(rng.normal(size=(25, 5)))
    X = (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)
    Y = rng.random((25, 5)) < 0.4
    tree = ContextualMemoryTree(leaf_multiplier=100.0, random_state=0)
    tree.insert(form(np.eye(5)))
    state, checked = state_of(tree), check_rows(form(X))
    head = with_labels(new_head(HeadParameters(1, 5, checked.sparse, 0, 1.0)), check_rows(form(np.eye(5))))
    forget_labels(head, 0)
    lists = scipy.sparse.csr_array(Y)
    answers = Answers(lists.indptr.astype(np.int64), lists.indices.astype(np.int64))
    duals, questions, order = new_memberships(2.0, answers), Questions(checked, checked), np.arange(25)
    for _ in range(3):
        head.counters[0, NEXT_ROW] = 0
        while learn_memberships(state, head, questions, order, answers, 25, ALL_LABELS, duals) != DONE:
            head = with_more_cells(head)
    W, bias, alpha = np.zeros((5, 5)), np.zeros(5), np.zeros((25, 5))
    for _ in range(3):
        for i, x in enumerate(X):
            for _ in range(2):
                for label in [*np.flatnonzero(Y[i]), *np.flatnonzero(~Y[i])]:  # labels do not depend on each other
                    sign = 1.0 if Y[i, label] else -1.0
                    short = 1.0 - sign * (W[label] @ x + bias[label]) - 0.25 * alpha[i, label]
                    change = max(short / (2.0 + 0.25), -alpha[i, label])
                    if abs(change) >= 0.001:
                        alpha[i, label] += change
                        W[label] += sign * change * x
                        bias[label] += sign * change
    for label in range(5):
        np.testing.assert_allclose(weights_of(head, 0, label), W[label], atol=3e-3)
        assert head.nodes[0, label]["bias"] == pytest.approx(bias[label], abs=3e-3)


@needs_jit
@FORMS
def test_it_comes_close_to_one_against_all(form: Any):
    X, Y = topics(600)
    queries, answers = topics(300, seed=1)
    learned = CMTMultilabelClassifier(random_state=0).fit(form(X), Y)
    wrong = (learned.predict(form(queries)) != answers).sum()
    lengths = np.linalg.norm(X, axis=1, keepdims=True), np.linalg.norm(queries, axis=1, keepdims=True)
    against_all = [LinearSVC().fit(X / lengths[0], y).predict(queries / lengths[1]) for y in Y.T]
    assert wrong <= 1.2 * (np.transpose(against_all) != answers).sum() + 5
    assert wrong < 0.2 * answers.sum()
    columns, scores = learned.top_labels(form(queries), 3)
    assert np.mean(answers[np.arange(300), columns[:, 0]]) > 0.97
    assert (np.diff(scores, axis=1) <= 0).all()


@needs_jit
def test_few_of_many_labels_are_looked_at():
    X, Y = topics(3000, n_labels=500)
    classifier = CMTMultilabelClassifier(random_state=0).fit(scipy.sparse.csr_array(X), scipy.sparse.csr_array(Y))
    assert classifier.count_candidates(X[:100]).max() <= 100
    assert scipy.sparse.issparse(classifier.predict(X[:10]))
    assert classifier.predict(X[:10]).shape == (10, 500)


@FORMS
def test_answers_agree_with_each_other(form: Any):
    X, Y = topics(60)
    classifier = CMTMultilabelClassifier(**FEW).fit(form(X), Y)
    decisions, predicted = classifier.decision_function(form(X)), classifier.predict(form(X))
    assert decisions.shape == predicted.shape == (60, 12)
    np.testing.assert_array_equal(predicted, decisions > 0)
    np.testing.assert_array_equal(classifier.predict_proba(form(X)) > 0.5, decisions > 0)
    columns, scores = classifier.top_labels(form(X), 2)
    np.testing.assert_allclose(np.take_along_axis(decisions, columns, axis=1), scores, rtol=1e-6)
    again = pickle.loads(pickle.dumps(classifier))
    np.testing.assert_array_equal(again.decision_function(form(X)), decisions)
    np.testing.assert_array_equal(clone(classifier).fit(form(X), Y).decision_function(form(X)), decisions)


@FORMS
def test_labels_come_at_any_time(form: Any):
    X, Y = topics(90)
    classifier = CMTMultilabelClassifier(**FEW)
    for first in range(0, 90, 30):
        known = 4 + first // 30 * 4
        classifier.partial_fit(form(X[first : first + 30]), Y[first : first + 30, :known])
        assert classifier.n_labels_ == known
        assert classifier.predict(form(X[:5])).shape == (5, known)
    for _ in range(3):
        classifier.partial_fit(form(X), Y)
    assert np.mean(classifier.predict(form(X)) != Y) < 0.1
    classifier.forest_.check_invariants()


def test_rows_without_labels():
    X, Y = topics(20)
    classifier = CMTMultilabelClassifier(**FEW).fit(X, np.zeros_like(Y))
    assert not classifier.predict(X).any()
    assert (classifier.top_labels(X, 2)[0] == -1).all()
    assert (classifier.count_candidates(X) == 0).all()
    Y[::2] = 0
    assert classifier.partial_fit(X, Y).predict(X).shape == Y.shape


@pytest.mark.parametrize(
    ("Y", "error", "message"),
    [
        (np.zeros(10), ValueError, "Y must be an indicator matrix"),
        (np.zeros((9, 3)), ValueError, "Y must have one row for each of the 10 rows"),
        (np.full((10, 3), np.nan), ValueError, "Y must be finite"),
        (np.full((10, 3), "a"), TypeError, "Y must be an indicator matrix"),
    ],
)
def test_wrong_labels_are_refused(Y: Any, error: type[Exception], message: str):
    with pytest.raises(error, match=message):
        CMTMultilabelClassifier().fit(np.ones((10, 4)), Y)


def test_other_mistakes():
    X, Y = topics(10)
    with pytest.raises(NotFittedError):
        CMTMultilabelClassifier().predict(X)
    with pytest.raises(ValueError, match="aggressiveness must be above"):
        CMTMultilabelClassifier(aggressiveness=0.0).fit(X, Y)
    classifier = CMTMultilabelClassifier(**FEW).fit(X, Y)
    with pytest.raises(ValueError, match="Y must have at least the 12 columns of before, not 3"):
        classifier.partial_fit(X, Y[:, :3])
    with pytest.raises(ValueError, match="features"):
        classifier.predict(X[:, :3])
    with pytest.raises(ValueError, match="k must be between"):
        classifier.top_labels(X, 0)

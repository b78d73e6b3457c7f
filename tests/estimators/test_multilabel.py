"""The multi-label classifier, and its kernels compared with plain Python."""

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from conftest import needs_jit
from internals import heads_room, model_of, trained_head
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import f1_score
from sklearn.neighbors import NearestNeighbors
from sklearn.svm import LinearSVC
from test_supervision import FORMS, weights_of

from cmt_numba import CMTMultilabelClassifier
from cmt_numba._heads import (
    ExamplePairs,
    FormerRows,
    Head,
    HeadParameters,
    LabelBlock,
    Training,
    cells_of_tables,
    forget_labels,
    group_by_label,
    is_in_lists,
    joined,
    learn_afresh,
    learn_memberships,
    new_digest,
    new_duties,
    new_head,
    no_former_rows,
    one_block,
    pair_with_all,
    pair_with_answers,
    pair_with_hard_negatives,
    pairs_that_count,
    weights_of_labels,
    with_labels,
    with_lists,
    with_means_in_lists,
    without_digest,
)
from cmt_numba._kernels import NONE, arrays_of
from cmt_numba._postings import heavy_cells, list_by_feature
from cmt_numba._validation import check_rows

FEW = {"n_head_passes": 3, "random_state": 0}


def topics(n: int, n_labels: int = 12, seed: int = 0, width: int = 30) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and their labels: each row is the sum of the vectors of its one to three labels, plus noise."""
    rng = np.random.default_rng(seed)
    vectors = np.abs(np.random.default_rng(5).normal(size=(n_labels, width))) * (
        np.random.default_rng(6).random((n_labels, width)) < 9 / width
    )
    Y = np.zeros((n, n_labels), np.int64)
    for row in Y:
        row[rng.choice(n_labels, rng.integers(1, 4), replace=False)] = 1
    return Y @ vectors + 0.1 * np.abs(rng.normal(size=(n, width))), Y


def with_rare_labels(Y: np.ndarray) -> scipy.sparse.csr_array:
    """Return the labels and more than 1,024 new ones of one row each, so that not all can be common."""
    rare = scipy.sparse.csr_array((np.ones(1030, np.int64), (np.arange(1030) % len(Y), np.arange(1030))))
    return scipy.sparse.hstack([Y, rare], format="csr")


def unit(X: np.ndarray) -> np.ndarray:
    return (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize("n_known", [0, 4])
@FORMS
def test_memberships_match_those_of_liblinear(form: Any, n_known: int, rng: np.random.Generator):
    X = unit(np.abs(rng.normal(size=(25, 5))) * (rng.random((25, 5)) < 0.8) + 1e-3)
    Y = rng.random((25, 4)) < 0.4
    checked = check_rows(form(X))
    head = with_labels(new_head(HeadParameters(5, checked.sparse, 0, 1.0)), check_rows(form(np.eye(4, 5))))
    forget_labels(head.models, 0)
    every_second = np.arange(0, 25, 2)
    hard_negatives = np.full((25, 2), NONE, np.int32)
    hard_negatives[every_second, 0] = 3
    answers = pair_with_answers(*np.nonzero(Y), 4)
    against_all = pair_with_all(answers, np.array([0, 1, 2]), 25)
    of_the_last = ExamplePairs(np.array([0, 0, 0, 0, Y[:, 3].sum()]), *(part[-Y[:, 3].sum() :] for part in answers[1:]))
    found = group_by_label(hard_negatives, rng.permutation(25), 4)
    against_some = joined([block.pairs for block in pair_with_hard_negatives(of_the_last, found, 25, 10)])
    weights = rng.uniform(0.3, 3.0, 25).astype(np.float32)
    former = no_former_rows(4, 5)
    if n_known > 0:  # weights that have learned before are harder to change
        former = FormerRows(np.zeros(4), rng.uniform(0.0, 5.0, 4).astype(np.float32), rng.random(5, np.float32))
    duties = new_duties(2.0, weights, np.full(4, 15 + weights.sum()), n_known, former)
    for pairs in (against_all, against_some):
        for n_threads in (1, 2):  # the second run continues from the result of the first
            head = learn_memberships(head, one_block(pairs), Training(checked, duties, 150, 0.0, n_threads))
    with_bias, no_features = np.hstack([X, np.ones((25, 1))]), np.append(np.zeros(5), 1.0)
    for label in range(4):
        seen = np.arange(25) if label < 3 else np.flatnonzero(Y[:, 3] | np.isin(np.arange(25), every_second))
        others = duties.totals[label] - weights[seen].sum()
        units = 1.0 / np.sqrt(1.0 + former.curvature[label] * np.append(former.squares, 1.0))
        svm = LinearSVC(C=2.0, dual=False, fit_intercept=False, tol=1e-8)
        svm.fit(
            np.vstack([with_bias[seen], no_features]) * units,
            np.append(Y[seen, label], False),
            np.append(weights[seen], others),
        )
        expected = units * svm.coef_[0]
        np.testing.assert_allclose(weights_of(head, 0, label), expected[:5], atol=0.01)
        assert head.labels[0, label]["bias"] == pytest.approx(expected[5], abs=0.01)


@FORMS
def test_a_rare_label_is_solved_in_few_sweeps(form: Any):
    rows = check_rows(form(np.eye(4, 6)))
    head = with_labels(new_head(HeadParameters(6, rows.sparse, 0, 1.0)), check_rows(form(np.ones((1, 6)))))
    forget_labels(head.models, 0)
    # Nearly all rows lack the features of the label.
    duties = new_duties(1.0, np.ones(4, np.float32), np.full(1, 100_000), 0, no_former_rows(1, 6))
    pairs = pair_with_all(pair_with_answers(np.arange(4), np.zeros(4, np.int64), 1), np.zeros(1, np.int64), 4)
    learn_memberships(head, one_block(pairs), Training(rows, duties, 4, 0.0))
    # The bias is -1, so a margin of 1 requires a weight of 2, reduced by the softness.
    np.testing.assert_allclose(pairs.weights, 2.0 / 1.5, atol=0.01)


@FORMS
def test_memberships_do_not_depend_on_threads_or_tasks(form: Any, rng: np.random.Generator):
    rows, Y = check_rows(form(unit(np.abs(rng.normal(size=(20, 6)))))), rng.random((20, 7)) < 0.4
    tables = []
    for n_threads, n_cells, n_tasks in ((1, 1 << 20, 16), (3, 100, 16), (2, 1, 2)):
        head = with_labels(new_head(HeadParameters(6, rows.sparse, 0, 1.0)), check_rows(form(np.eye(7, 6) + 1e-3)))
        forget_labels(head.models, 0)
        pairs = pair_with_all(pair_with_answers(*np.nonzero(Y), 7), np.arange(7), 20)
        assert len(heads_room.solved_labels.tasks_for(rows, one_block(pairs)[0], 5, 0.0, n_cells)) == {1 << 20: 1}.get(
            n_cells, 7
        )
        duties = new_duties(1.0, np.ones(20, np.float32), np.full(7, 20), 0, no_former_rows(7, 6))
        training = Training(rows, duties, 5, 0.0, n_threads, n_cells, n_tasks)
        head = learn_memberships(head, one_block(pairs), training)
        tables.append([(*weights_of(head, 0, label), head.labels[0, label]["bias"]) for label in range(7)])
    np.testing.assert_array_equal(tables[1], tables[0])
    np.testing.assert_array_equal(tables[2], tables[0])


def _in_blocks(pairs: ExamplePairs, n_pairs: int) -> list[LabelBlock]:
    none = heads_room.hard_negatives.HardNegatives(np.zeros(pairs.offsets.size, np.int64), np.empty(0, np.int32))
    return list(pair_with_hard_negatives(pairs, none, 20, n_pairs))


def in_lists(head: Head, n_labels: int) -> Head:
    return with_lists(head, new_digest(np.zeros(n_labels, np.int64)))


@pytest.mark.parametrize(("n_threads", "n_cells", "n_tasks"), [(1, 1 << 20, 16), (3, 100, 16), (2, 1, 2)])
def test_scorers_learned_in_lists_are_those_learned_in_tables(
    n_threads: int, n_cells: int, n_tasks: int, rng: np.random.Generator
):
    rows = check_rows(scipy.sparse.csr_array(unit(rng.normal(size=(20, 40)) * (rng.random((20, 40)) < 0.5))))
    answers = pair_with_answers(*np.nonzero(rng.random((20, 7)) < 0.4), 7)
    head = with_labels(new_head(HeadParameters(40, True, 0, 1.0)), rows.take(np.arange(7)))
    forget_labels(head.models, 0)
    listed = in_lists(head, 7)
    for labels in (np.array([1, 4]), np.array([0, 2, 3, 6])):  # label 5 is not trained
        former = no_former_rows(7, 40)
        duties = [new_duties(1.0, np.ones(20, np.float32), np.full(7, 20), 0, former) for _ in range(2)]
        pairs = [pair_with_all(answers, labels, 20) for _ in range(2)]
        head = learn_memberships(head, one_block(pairs[0]), Training(rows, duties[0], 5, 0.04))
        training = Training(rows, duties[1], 5, 0.04, n_threads, n_cells, n_tasks)
        listed = learn_afresh(listed, _in_blocks(pairs[1], n_tasks), training)
    assert is_in_lists(listed)
    assert not is_in_lists(head)
    assert listed.digest.offsets[5] == listed.digest.offsets[6]
    np.testing.assert_array_equal(listed.labels["bias"], head.labels["bias"])
    expected = weights_of_labels(head, np.arange(7)).toarray()
    np.testing.assert_array_equal(weights_of_labels(listed, np.arange(7)).toarray(), expected)
    in_tables = without_digest(listed)
    assert cells_of_tables(listed) == cells_of_tables(in_tables) > 0
    np.testing.assert_array_equal(weights_of_labels(in_tables, np.arange(7)).toarray(), expected)


def test_tasks_are_bounded_by_the_cells_of_any_number_of_pairs():
    n_pairs = 600_000
    rows = check_rows(scipy.sparse.csr_array(np.tri(4)))
    pairs = ExamplePairs(
        np.array([0, 1, 1, 300_000, n_pairs]),
        np.arange(n_pairs, dtype=np.int32) % 4,
        np.ones(n_pairs, np.bool_),
        np.ones(n_pairs, np.float32),
    )
    n_cells = [
        np.diff(rows.offsets)[pairs.rows[a:b]].sum() for a, b in zip(pairs.offsets, pairs.offsets[1:], strict=False)
    ]
    for most in (1, n_cells[2], n_cells[3], sum(n_cells)):
        tasks = heads_room.solved_labels.tasks_for(rows, one_block(pairs)[0], 4, 0.0, int(most))
        assert [task.stop for task in tasks[:-1]] == [task.first for task in tasks[1:]]
        assert (tasks[0].first, tasks[-1].stop) == (0, 4)
        for task in tasks:
            assert sum(n_cells[task.first : task.stop]) <= most or task.stop - task.first == 1


def test_weights_that_the_index_lists_do_not_depend_on_how_many_are_compared_at_once(rng: np.random.Generator):
    digest = new_digest(np.array([3, 0, 5, 0, 2, 4]))
    digest.weights[:] = rng.normal(size=14).astype(np.float32)
    digest.weights[4] = 0.0
    expected = [
        cell
        for label in (0, 1, 2, 3, 5)
        for cell in range(digest.offsets[label], digest.offsets[label + 1])
        if abs(digest.weights[cell])
        >= max(np.float32(0.3) * np.abs(digest.weights[digest.offsets[label] : digest.offsets[label + 1]]).max(), 1e-9)
    ]
    for n in (1, 5, 100):
        heavy = heavy_cells(digest, 0.3, np.array([4]), cells_at_once=n)
        np.testing.assert_array_equal(np.flatnonzero(heavy), expected)


def test_the_index_does_not_depend_on_how_many_weights_are_looked_at_at_once(rng: np.random.Generator):
    digest = new_digest(np.full(30, 20))
    digest.features[:] = np.concatenate([rng.permutation(25)[:20] for _ in range(30)])
    digest.weights[:] = np.round(rng.normal(size=600), 1) + 0.05  # some are equal
    at_once = list_by_feature(digest, np.ones(600, np.bool_), 25)
    of_label = np.repeat(np.arange(30), 20)
    for feature in range(25):
        cells = np.flatnonzero(digest.features == feature)
        sign = 1.0 if digest.weights[cells].sum() >= 0.0 else -1.0
        cells = cells[sign * digest.weights[cells] > 0.0]
        cells = cells[np.argsort(-np.abs(digest.weights[cells]), kind="stable")]
        entries = slice(*at_once.offsets[feature : feature + 2])
        np.testing.assert_array_equal(at_once.labels[entries], of_label[cells])
        np.testing.assert_array_equal(at_once.weights[entries], digest.weights[cells])
    for one, other in zip(list_by_feature(digest, np.ones(600, np.bool_), 25, cells_at_once=7), at_once, strict=True):
        np.testing.assert_array_equal(one, other)


@needs_jit
def test_sparse_scorers_lie_in_lists_while_nothing_is_learned():
    X, Y = topics(300)
    X, Y = scipy.sparse.csr_array(X), with_rare_labels(Y)
    learner = CMTMultilabelClassifier(random_state=0).fit(X[:200], Y[:200])
    assert is_in_lists(trained_head(learner))
    assert trained_head(learner).weights.table.size == 0
    before, copied = learner.top_labels(X), pickle.loads(pickle.dumps(learner))
    learner.partial_fit(X[200:203], Y[200:203])
    assert not is_in_lists(
        trained_head(learner)
    )  # three rows of 1,042 labels are too few to prepare the head for queries
    assert (
        np.mean(learner.top_labels(X)[0][:, 0] == before[0][:, 0]) > 0.85
    )  # training continues from the earlier scorers
    for learned in (learner, copied.partial_fit(X[200:203], Y[200:203])):
        learned.partial_fit(X[203:], Y[203:])
        assert is_in_lists(trained_head(learned))
        assert trained_head(learned).weights.table.size == 0
    np.testing.assert_array_equal(learner.top_labels(X)[1], copied.top_labels(X)[1])


@needs_jit
def test_the_width_of_rows_does_not_change_answers():
    X, Y = topics(200)
    X, Y = scipy.sparse.csr_array(X), with_rare_labels(Y)
    wide = scipy.sparse.csr_array((X.data, X.indices * 20_000, X.indptr), (X.shape[0], 20_000 * X.shape[1]))
    answers = [CMTMultilabelClassifier(random_state=0).fit(x, Y).top_labels(x) for x in (X, wide)]
    np.testing.assert_array_equal(answers[1][0][:, 0], answers[0][0][:, 0])
    np.testing.assert_allclose(answers[1][1], answers[0][1], atol=1e-5)


def test_scorers_in_lists_start_as_means():
    means = check_rows(scipy.sparse.csr_array(np.tri(3, 6)))
    head = with_means_in_lists(new_head(HeadParameters(6, True, 3, 1.0)), means)
    assert is_in_lists(head)
    tables = with_labels(new_head(HeadParameters(6, True, 3, 1.0)), means)
    for one in (head, without_digest(head)):
        np.testing.assert_array_equal(
            weights_of_labels(one, np.arange(3)).toarray(), weights_of_labels(tables, np.arange(3)).toarray()
        )


def test_used_pairs_are_kept_without_duplicates():
    pairs = pair_with_answers(np.array([4, 0, 2]), np.array([1, 0, 1]), 2)
    np.testing.assert_array_equal(pairs.offsets, [0, 1, 3])
    hard_negatives = np.full((5, 2), NONE, np.int32)
    hard_negatives[[0, 1, 4], 0] = [1, 0, 1]
    hard_negatives[1, 1] = 1
    found = group_by_label(hard_negatives, np.arange(5), 2)
    (block,) = pair_with_hard_negatives(pairs, found, 5)
    assert (block.first, block.stop) == (0, 2)
    more = joined([block.pairs for block in pair_with_hard_negatives(pairs, found, 5, 1)])  # one label per block
    for one, other in zip(more, block.pairs, strict=True):
        np.testing.assert_array_equal(one, other)
    assert [set(more.rows[a:b]) for a, b in zip(more.offsets, more.offsets[1:], strict=False)] == [{0, 1}, {4, 2, 0, 1}]
    np.testing.assert_array_equal(more.rows[more.has], [0, 4, 2])
    more.weights[more.rows == 1] = [0.5, 0.0]
    fewer = pairs_that_count(more)
    np.testing.assert_array_equal(fewer.offsets, [0, 2, 4])
    np.testing.assert_array_equal(fewer.weights, [0.0, 0.5, 0.0, 0.0])


@needs_jit
@FORMS
def test_few_labels_are_learned_one_against_all(form: Any):
    X, Y = topics(600, width=120)  # narrower tables are standardised
    queries, answers = topics(300, seed=1, width=120)
    learned = CMTMultilabelClassifier(random_state=0).fit(form(X), Y)
    hard = np.ones(12)
    if scipy.sparse.issparse(form(X)):  # labels with many rows are regularised more
        hard = np.clip((Y.sum(axis=0) / 20.0) ** -0.4, 0.25, 1.0)
    machines = [LinearSVC(C=C, tol=1e-6).fit(unit(X), y) for y, C in zip(Y.T, hard, strict=True)]
    expected = np.transpose([machine.decision_function(unit(queries)) for machine in machines])
    np.testing.assert_allclose(learned.decision_function(form(queries)), expected, atol=0.06)
    wrong = (learned.predict(form(queries)) != answers).sum()
    assert wrong <= 1.02 * ((expected > 0) != answers).sum() + 2
    assert (learned.count_candidates(form(queries)) == 12).all()
    columns, scores = learned.top_labels(form(queries), 3)
    assert np.mean(answers[np.arange(300), columns[:, 0]]) > 0.97
    assert (np.diff(scores, axis=1) <= 0).all()


@needs_jit
def test_common_labels_are_those_of_most_rows():
    X, Y = topics(300)
    classifier = CMTMultilabelClassifier(**FEW).fit(scipy.sparse.csr_array(X), with_rare_labels(Y)[:, 1:])
    common = trained_head(classifier).common.labels
    assert set(model_of(classifier).column_of_label[common]) == set(range(11))
    # Scores with and without the digest are the same.
    decisions = classifier.decision_function(X)
    model_of(classifier).index.head = without_digest(trained_head(classifier))
    np.testing.assert_allclose(classifier.decision_function(X), decisions, atol=1e-5)
    assert scipy.sparse.issparse(classifier.predict(X[:10]))
    assert classifier.predict(X[:10]).shape == (10, 1041)


@needs_jit
def test_rare_labels():
    """Labels that appear late have the biases of rare labels, and are in posting lists."""
    X, Y = topics(600)
    X, Y = scipy.sparse.csr_array(X), np.hstack([Y, np.zeros((600, 1), np.int64)])
    Y[3, 12] = 1
    classifier = CMTMultilabelClassifier(**FEW).fit(X, Y)
    assert trained_head(classifier).postings.labels.size == 0
    classifier.partial_fit(X[10:20], with_rare_labels(Y[10:20]))
    common, listed = trained_head(classifier).common.labels, trained_head(classifier).postings.labels
    assert set(model_of(classifier).column_of_label[common]) == set(range(12))
    later = model_of(classifier).label_of_column[12:]
    assert set(later) <= set(listed)
    assert not set(common) & set(listed)
    biases = trained_head(classifier).labels[0, later]["bias"]
    assert np.all((biases > -1.1) & (biases < -0.7))


@FORMS
def test_answers_agree_with_each_other(form: Any):
    X, Y = topics(30)
    classifier = CMTMultilabelClassifier(**FEW).fit(form(X), Y)
    decisions, predicted = classifier.decision_function(form(X)), classifier.predict(form(X))
    assert decisions.shape == predicted.shape == (30, 12)
    np.testing.assert_array_equal(predicted, decisions > 0)
    np.testing.assert_array_equal(classifier.predict_proba(form(X)) > 0.5, decisions > 0)
    columns, scores = classifier.top_labels(form(X), 2)
    np.testing.assert_allclose(np.take_along_axis(decisions, columns, axis=1), scores, rtol=1e-6)
    again = pickle.loads(pickle.dumps(classifier))
    np.testing.assert_array_equal(again.decision_function(form(X)), decisions)
    np.testing.assert_array_equal(clone(classifier).fit(form(X), Y).decision_function(form(X)), decisions)


@needs_jit
@FORMS
def test_labels_come_at_any_time(form: Any):
    X, Y = topics(60)
    classifier = CMTMultilabelClassifier(**FEW)
    for first in range(0, 60, 20):
        known = 4 + first // 20 * 4
        classifier.partial_fit(form(X[first : first + 20]), Y[first : first + 20, :known])
        assert classifier.n_labels_ == known
        assert classifier.predict(form(X[:5])).shape == (5, known)
    for _ in range(2):
        classifier.partial_fit(form(X), Y)
    assert np.mean(classifier.predict(form(X)) != Y) < 0.1
    classifier.check_invariants()


@needs_jit
@FORMS
def test_batches_of_noisy_label_sets_are_learned_like_one_fit(form: Any):
    (X, Y), (Q, answers) = (topics(n, 20, seed, width=60) for n, seed in ((1500, 1), (500, 2)))
    noisy = Y ^ (np.random.default_rng(3).random(Y.shape) < 0.1)
    fitted = CMTMultilabelClassifier(random_state=0).fit(form(X), noisy)
    live = CMTMultilabelClassifier(random_state=0)
    for first in range(0, 1500, 50):
        live.partial_fit(form(X[first : first + 50]), noisy[first : first + 50])
    scores = [f1_score(answers, one.predict(form(Q)), average="micro") for one in (live, fitted)]
    assert scores[0] > scores[1] - 0.03


def test_rows_without_labels():
    X, Y = topics(20)
    classifier = CMTMultilabelClassifier(**FEW).fit(X, np.zeros_like(Y))
    assert not classifier.predict(X).any()
    assert (classifier.top_labels(X, 2)[0] == -1).all()
    assert (classifier.count_candidates(X) == 0).all()
    Y[::2] = 0
    assert classifier.partial_fit(X, Y).predict(X).shape == Y.shape


def test_labels_of_other_types():
    X, Y = topics(20)
    expected = CMTMultilabelClassifier(**FEW).fit(X, Y).predict(X)
    for other in (Y.astype(np.float16), pd.DataFrame(Y).astype("boolean")):
        np.testing.assert_array_equal(CMTMultilabelClassifier(**FEW).fit(X, other).predict(X), expected)
    names = np.array([f"label {i:02}" for i in range(12)])
    rows = [names[row > 0] for row in Y]
    for other in (rows, pd.Series(rows)):
        found = CMTMultilabelClassifier(**FEW).fit(X, other).predict(X)
        assert found == [tuple(names[row > 0].tolist()) for row in expected]


def test_names_are_scored_like_a_matrix():
    X, Y = topics(20)
    Y[1] = 0
    names, weights = np.array([f"label {i:02}" for i in range(12)]), np.arange(20.0)
    rows = [names[row > 0].tolist() for row in Y]
    learned = CMTMultilabelClassifier(**FEW).fit(X, rows)
    expected = CMTMultilabelClassifier(**FEW).fit(X, Y).score(X, Y, weights)
    assert expected > 0.0
    assert learned.score(X, rows, weights) == pytest.approx(expected)
    assert learned.score(X, learned.predict(X)) == 1.0
    assert learned.score(X, [{"unknown"}] * 20) == 0.0
    with pytest.raises(ValueError, match="y must have one entry for each of the 20 rows"):
        learned.score(X, rows[:5])


@pytest.mark.parametrize(
    ("Y", "error", "message"),
    [
        (np.arange(10), ValueError, "Y must be an indicator matrix or a vector of at most two classes"),
        (np.zeros((9, 3)), ValueError, "Y must have one entry for each of the 10 rows"),
        (np.full((10, 3), np.nan), ValueError, "Y must be finite"),
        (np.full((10, 3), "a"), TypeError, "Y must be an indicator matrix"),
        ([{1, 2}] * 10, TypeError, "Y must have sets of strings"),
        ([{1, "a"}] * 10, TypeError, "Y must not mix strings"),
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
    with pytest.raises(ValueError, match="Y must have at least 12 columns like the first Y, got 3"):
        classifier.partial_fit(X, Y[:, :3])
    with pytest.raises(ValueError, match="features"):
        classifier.predict(X[:, :3])
    with pytest.raises(ValueError, match="k must be between"):
        classifier.top_labels(X, 0)


@FORMS
def test_neighbours_are_the_nearest_examples(form: Any):
    X, Y = topics(60)
    queries, _ = topics(20, seed=1)
    tagger = CMTMultilabelClassifier(**FEW).fit(form(X[:40]), Y[:40]).partial_fit(form(X[40:]), Y[40:])
    distances, ids = tagger.kneighbors(form(queries), 3)
    exact, nearest = NearestNeighbors(n_neighbors=3, metric="cosine").fit(X).kneighbors(queries)
    found = np.mean([len(set(a) & set(b)) / 3 for a, b in zip(ids, nearest, strict=True)])
    assert found > 0.9
    same = ids == nearest
    np.testing.assert_allclose(distances[same], exact[same], atol=1e-5)
    np.testing.assert_array_equal(tagger.kneighbors(form(queries), 3, return_distance=False), ids)


def test_what_is_learned_does_not_depend_on_stored_examples():
    X, Y = topics(40)
    stored, stream = (CMTMultilabelClassifier(store_examples=store, **FEW).fit(X, Y) for store in (True, False))
    np.testing.assert_array_equal(stored.decision_function(X), stream.decision_function(X))
    with pytest.raises(ValueError, match="pass store_examples=True and fit again"):
        stream.kneighbors(X)
    with pytest.raises(TypeError, match="store_examples must be True or False"):
        CMTMultilabelClassifier(store_examples=1).fit(X, Y)


def few_words(rng: np.random.Generator, n_rows: int, n_labels: int = 1100) -> tuple[Any, Any]:
    """Return rows of one label each. Each label has its own features, and there are too many for all to be common."""
    labels = np.arange(n_rows) % n_labels
    cells = np.column_stack([2 * labels, 2 * labels + 1, 2 * n_labels + rng.integers(50, size=n_rows)])
    values = np.column_stack([np.ones((n_rows, 2)), rng.random(n_rows)])
    X = scipy.sparse.csr_array((values.ravel(), (np.repeat(np.arange(n_rows), 3), cells.ravel())))
    X.resize(n_rows, 2 * n_labels + 50)
    return X.astype(np.float32), scipy.sparse.csr_array((np.ones(n_rows), (np.arange(n_rows), labels)))


@needs_jit
def test_very_many_sparse_labels_are_found_in_posting_lists(rng: np.random.Generator, tmp_path: Any):
    X, Y = few_words(rng, 2200)
    classifier = CMTMultilabelClassifier(random_state=0).fit(X, Y)
    np.testing.assert_array_equal(classifier.top_labels(X[:1100], 1)[0][:, 0], np.arange(1100))
    assert classifier.count_candidates(X[:100]).max() <= 48
    classifier.save(tmp_path / "model")
    loaded = CMTMultilabelClassifier.load(tmp_path / "model")
    for each in (classifier, loaded):
        each.partial_fit(X[:8], Y[:8])
        each.check_invariants()
    np.testing.assert_array_equal(loaded.top_labels(X)[1], classifier.top_labels(X)[1])


@needs_jit
def test_very_many_dense_labels_learn_from_their_hardest_negatives(rng: np.random.Generator):
    labels = rng.permutation(np.arange(3600) % 1200)
    X = rng.normal(size=(1200, 24))[labels] + 0.3 * rng.normal(size=(3600, 24))
    Y = scipy.sparse.csr_array((np.ones(3600), (np.arange(3600), labels)))
    classifier = CMTMultilabelClassifier(random_state=0).fit(X[:2400], Y[:2400])
    assert (classifier.count_candidates(X[:10]) > 1100).all()
    known = 2400 + np.flatnonzero(np.isin(labels[2400:], labels[:2400]))
    assert np.mean(classifier.top_labels(X[known], 1)[0][:, 0] == labels[known]) > 0.9
    classifier.partial_fit(X[2400:], Y[2400:])
    assert np.mean(classifier.top_labels(X[2400:], 1)[0][:, 0] == labels[2400:]) > 0.98
    classifier.check_invariants()


@needs_jit
def test_new_labels_are_found_at_once(rng: np.random.Generator):
    X, Y = few_words(rng, 1100)
    old = np.flatnonzero(np.arange(1100) < 1090)
    classifier = CMTMultilabelClassifier(random_state=0).fit(X[old], Y[old])
    classifier.partial_fit(X[1090:], Y[1090:])
    np.testing.assert_array_equal(classifier.top_labels(X[1090:], 1)[0][:, 0], np.arange(1090, 1100))


@needs_jit
def test_sparse_scorers_are_the_same_on_any_number_of_threads():
    X, Y = topics(300)
    X, Y = scipy.sparse.csr_array(X), with_rare_labels(Y)
    one, three = (model_of(CMTMultilabelClassifier(random_state=0, n_jobs=n).fit(X, Y)).index.head for n in (1, 3))
    for path, array in arrays_of(one).items():
        np.testing.assert_array_equal(arrays_of(three)[path], array, path)

"""The search for candidates in blocks, whose results do not depend on the block size."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse
from conftest import needs_jit
from internals import estimators_label_index, heads_room, model_of, trained_head

from cmt_numba import CMTClassifier, CMTMultilabelClassifier
from cmt_numba._heads import SearchEffort, list_hard_negatives
from cmt_numba._postings import all_of
from cmt_numba._validation import check_rows


def rows_of(rng: np.random.Generator) -> scipy.sparse.csr_array:
    """Return sparse rows. Only they reach the search for candidates."""
    return scipy.sparse.csr_array(np.where(rng.random((60, 6)) < 0.5, rng.normal(size=(60, 6)), 0.0))


def repeated(X: Any) -> Any:
    """Return more rows and candidates than fit into a block."""
    return scipy.sparse.vstack([X] * 30, format="csr")


@pytest.fixture(autouse=True)
def search_among_few_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let also few sparse labels be searched for, instead of scoring all."""
    monkeypatch.setattr(estimators_label_index, "MAX_SCORED_SPARSE", 0)


def test_a_classifier_does_not_depend_on_the_size_of_blocks(rng: np.random.Generator):
    X = rows_of(rng)
    classifier = CMTClassifier(n_head_passes=2, random_state=0).fit(X, np.arange(60) % 20)
    classifier.partial_fit(X[:7], np.arange(7) + 15)
    for method in (classifier.predict, classifier.predict_proba):
        np.testing.assert_array_equal(method(repeated(X)), np.concatenate([method(X)] * 30))


def test_a_multilabel_classifier_does_not_depend_on_the_size_of_blocks(rng: np.random.Generator):
    X, Y = rows_of(rng), rng.random((60, 20)) < 0.15
    tagger = CMTMultilabelClassifier(n_head_passes=2, random_state=0).fit(X, Y)
    model_of(tagger).index.all_scorers = lambda *_: None  # few labels are otherwise scored without a search
    labels, scores = tagger.top_labels(X, 4)
    for answer, of_many in zip((labels, scores), tagger.top_labels(repeated(X), 4), strict=True):
        np.testing.assert_array_equal(of_many, np.tile(answer, (30, 1)))
    labels, scores = tagger.top_labels(X, 20)
    lowest = float(np.median(scores[labels >= 0]))
    expected = {(row, labels[row, i]): scores[row, i] for row, i in np.argwhere(scores > lowest).tolist()}
    for n_listed, asked in ((1, X), (10, X), (1000, X), (10**5, repeated(X))):
        rows, columns, found = model_of(tagger).labels_above(
            model_of(tagger).index.prepared_matrix(asked), lowest, tagger, n_listed
        )
        assert rows.size == asked.shape[0] // 60 * len(expected)
        assert dict(zip(zip(rows % 60, columns, strict=True), found, strict=True)) == expected


def asked_of(rng: np.random.Generator) -> tuple[Any, ...]:
    """Return the head, questions and effort of a fitted classifier."""
    X = rows_of(rng)
    classifier = CMTClassifier(random_state=0).fit(X, np.arange(60) % 20)
    return trained_head(classifier).scorers, all_of(check_rows(X)), SearchEffort(3, 12)


def test_candidates_do_not_depend_on_the_size_of_blocks(rng: np.random.Generator):
    head, questions, effort = asked_of(rng)
    found, order = [], rng.permutation(60)
    for n_rows, n_labels in ((1, 1), (7, 40), (60, 10**6)):
        blocks = heads_room.search.candidates_of(
            head, questions, order, effort, rows_at_once=n_rows, labels_at_once=n_labels
        )
        found.append([])
        for block in blocks:
            starts = np.concatenate([[0], block.ends[:-1]])
            each = zip(block.rows, starts, block.ends, block.n_met, strict=True)
            found[-1] += [(row, block.labels[a:b].tolist(), n) for row, a, b, n in each]
    assert [row for row, *_ in found[0]] == order.tolist()
    assert found[0] == found[1] == found[2]


def test_the_best_of_the_labels_found_are_scored(rng: np.random.Generator):
    head, questions, _ = asked_of(rng)
    scored = {}
    for n_scored in (3, 20):
        effort = SearchEffort(n_listed=n_scored, n_met=20)
        (found,) = heads_room.candidates.scored_candidates(head, questions, effort)
        starts = np.concatenate([[0], found.ends[:-1]])
        scored[n_scored] = [set(found.labels[a:b].tolist()) for a, b in zip(starts, found.ends, strict=True)]
        n_met = found.n_met.copy()
    assert [len(few) for few in scored[3]] == np.minimum(n_met, 3).tolist()
    assert [len(many) for many in scored[20]] == n_met.tolist()
    assert all(few <= many for few, many in zip(scored[3], scored[20], strict=True))
    assert n_met.max() > 3


def test_labels_that_are_not_listed_are_candidates_of_every_row(rng: np.random.Generator):
    head, questions, effort = asked_of(rng)
    head = head._replace(postings=head.postings._replace(n_labels=17))
    (found,) = heads_room.candidates.scored_candidates(head, questions, effort)
    starts = np.concatenate([[0], found.ends[:-1]])
    assert all(found.labels[a : a + 3].tolist() == [17, 18, 19] for a in starts)
    assert (np.diff(found.ends, prepend=0) <= 6).all()


@needs_jit
def test_new_classes_are_found_before_and_after_they_are_listed(rng: np.random.Generator):
    """Up to 256 new classes are scored for every row. Then the posting lists are updated."""
    X = scipy.sparse.csr_array(np.where(rng.random((700, 200)) < 0.05, 1.0 + rng.random((700, 200)), 0.0))
    classifier = CMTClassifier(random_state=0).fit(X[:300], np.arange(300))
    for first in range(300, 700, 50):
        new = np.arange(first, first + 50)
        classifier.partial_fit(X[first : first + 50], new)
        assert np.mean(classifier.predict(X[new]) == new) > 0.9
        n_unlisted = classifier.classes_.size - trained_head(classifier).postings.n_labels
        assert 0 <= n_unlisted <= 256
        assert (classifier.count_candidates(X[:20]) >= n_unlisted).all()


def test_rows_without_a_known_feature_get_the_most_frequent_class(rng: np.random.Generator):
    X = scipy.sparse.csr_array((np.ones(60), (np.arange(60), np.arange(60) % 20)), (60, 30))
    classifier = CMTClassifier(random_state=0).fit(X, np.where(np.arange(60) < 50, np.arange(60) % 20, 7))
    unknown = scipy.sparse.csr_array(([1.0], ([0], [25])), (1, 30))
    assert classifier.predict(unknown).tolist() == [7]
    assert classifier.predict_proba(unknown).argmax() == 7
    assert classifier.top_classes(unknown, 3)[0].tolist() == [[7, -1, -1]]


def test_rivals_are_the_candidates_that_are_not_common(rng: np.random.Generator):
    head, questions, effort = asked_of(rng)
    common = np.array([3, 17])
    head = head._replace(common=head.common._replace(labels=common))
    wide, narrow = np.empty((60, 12), np.int32), np.empty((60, 4), np.int32)
    list_hard_negatives(head, questions, effort, wide)
    list_hard_negatives(head, questions._replace(first=10), effort, narrow[:])
    assert not np.isin(wide, common).any()
    n_each = (wide >= 0).sum(axis=1)
    assert n_each.max() <= 10
    assert len(set(n_each)) > 1
    assert all((row[:n] >= 0).all() and (row[n:] == -1).all() for row, n in zip(wide, n_each, strict=True))
    np.testing.assert_array_equal(narrow[10:], wide[10:, :4])

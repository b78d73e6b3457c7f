"""The search for candidates in blocks, whose results do not depend on the block size."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse
from conftest import FORMS
from internals import state_of, trained_head

from cmt_numba import CMTClassifier, CMTMultilabelClassifier
from cmt_numba._heads.candidates import SearchEffort, list_hard_negatives, scored_candidates
from cmt_numba._heads.search import all_of, candidates_of
from cmt_numba._validation import check_rows


def rows_of(form: Any, rng: np.random.Generator) -> Any:
    X = np.where(rng.random((60, 6)) < 0.5, rng.normal(size=(60, 6)), 0.0)
    return form(X)


def repeated(X: Any) -> Any:
    """Return more rows and candidates than fit into a block."""
    return scipy.sparse.vstack([X] * 30, format="csr") if scipy.sparse.issparse(X) else np.tile(X, (30, 1))


@FORMS
def test_a_classifier_does_not_depend_on_the_number_of_threads(form: Any, rng: np.random.Generator):
    X = rows_of(form, rng)
    classifier = CMTClassifier(n_trees=2, n_head_passes=2, n_probes=4, random_state=0).fit(X, np.arange(60) % 20)
    classifier.partial_fit(X[:7], np.arange(7) + 15)
    for method in (classifier.predict, classifier.predict_proba):
        np.testing.assert_array_equal(method(repeated(X)), np.concatenate([method(X)] * 30))


@FORMS
def test_a_multilabel_classifier_does_not_depend_on_the_number_of_threads(form: Any, rng: np.random.Generator):
    X, Y = rows_of(form, rng), rng.random((60, 20)) < 0.15
    tagger = CMTMultilabelClassifier(n_trees=2, n_head_passes=2, n_probes=4, random_state=0).fit(X, Y)
    tagger._model.index.all_scorers = lambda *_: None  # few labels are otherwise scored without a search
    labels, scores = tagger.top_labels(X, 4)
    for answer, of_many in zip((labels, scores), tagger.top_labels(repeated(X), 4), strict=True):
        np.testing.assert_array_equal(of_many, np.tile(answer, (30, 1)))
    labels, scores = tagger.top_labels(X, 20)
    lowest = float(np.median(scores[labels >= 0]))
    expected = {(row, labels[row, i]): scores[row, i] for row, i in np.argwhere(scores > lowest).tolist()}
    for n_listed, asked in ((1, X), (10, X), (1000, X), (10**5, repeated(X))):
        rows, columns, found = tagger._model.labels_above(tagger._checked(asked), lowest, tagger, n_listed)
        assert rows.size == asked.shape[0] // 60 * len(expected)
        assert dict(zip(zip(rows % 60, columns, strict=True), found, strict=True)) == expected


def asked_of(rng: np.random.Generator) -> tuple[Any, ...]:
    """Return the trees, routers, head, questions and effort of a fitted classifier."""
    X = rows_of(scipy.sparse.csr_array, rng)
    classifier = CMTClassifier(n_trees=2, random_state=0).fit(X, np.arange(60) % 20)
    state, rows = state_of(classifier.forest_), check_rows(X)
    return (state.trees, state.models, trained_head(classifier).scorers, all_of(rows, rows), SearchEffort(4, 12, 3, 12))


def test_candidates_do_not_depend_on_the_number_of_threads(rng: np.random.Generator):
    trees, routers, head, questions, effort = asked_of(rng)
    found, order = [], rng.permutation(60)
    for n_rows, n_labels in ((1, 1), (7, 40), (60, 10**6)):
        blocks = candidates_of(
            trees, routers, head, questions, order, effort, rows_at_once=n_rows, labels_at_once=n_labels
        )
        found.append([])
        for block in blocks:
            starts = np.concatenate([[0], block.ends[:-1]])
            each = zip(block.rows, starts, block.ends, block.n_met, strict=True)
            found[-1] += [(row, block.labels[a:b].tolist(), n) for row, a, b, n in each]
    assert [row for row, *_ in found[0]] == order.tolist()
    assert found[0] == found[1] == found[2]


def test_the_best_of_the_labels_found_are_scored(rng: np.random.Generator):
    trees, routers, head, questions, _ = asked_of(rng)
    scored = {}
    for n_scored in (3, 20):
        effort = SearchEffort(n_leaves=0, n_labels=n_scored, n_listed=20, n_met=20)
        (found,) = scored_candidates(trees, routers, head, questions, effort)
        starts = np.concatenate([[0], found.ends[:-1]])
        scored[n_scored] = [set(found.labels[a:b].tolist()) for a, b in zip(starts, found.ends, strict=True)]
        n_met = found.n_met.copy()
    assert [len(few) for few in scored[3]] == np.minimum(n_met, 3).tolist()
    assert [len(many) for many in scored[20]] == n_met.tolist()
    assert all(few <= many for few, many in zip(scored[3], scored[20], strict=True))
    assert n_met.max() > 3


def test_only_rows_without_lists_search_leaves(rng: np.random.Generator):
    trees, routers, head, questions, _ = asked_of(rng)
    effort = SearchEffort(n_leaves=4, n_labels=20, n_listed=20, n_met=20)
    n_found = []
    for some in (effort._replace(leaves_last=True), effort, effort._replace(n_leaves=0)):
        (found,) = scored_candidates(trees, routers, head, questions, some)
        n_found.append(np.diff(found.ends, prepend=0))
    if_needed, always, never = n_found
    np.testing.assert_array_equal(if_needed, np.where(never > 0, never, always))
    assert 0 < (never == 0).sum() < 60
    assert never.sum() < always.sum()


@pytest.mark.parametrize(
    ("n_classes", "n_probes", "expected"), [(1100, None, True), (1100, 4, False), (1000, None, False)]
)
def test_training_searches_leaves_like_prediction(n_classes: int, n_probes: int | None, expected: bool):
    """Leaves are searched only for rows without posting lists if the index lists very many classes."""
    X = scipy.sparse.eye_array(n_classes, format="csr", dtype=np.float32)
    X = scipy.sparse.vstack([X, X[:20]], format="csr")
    y = np.arange(X.shape[0]) % n_classes
    classifier = CMTClassifier(n_trees=1, n_probes=n_probes, random_state=0).fit(X, y)
    assert classifier._model.index.effort(classifier, training=True).leaves_last == expected
    classifier.partial_fit(X[:3], n_classes + np.arange(3))  # classes that are not in the index yet
    assert not classifier._model.index.effort(classifier, training=True).leaves_last


def test_rivals_are_the_candidates_that_are_not_common(rng: np.random.Generator):
    trees, routers, head, questions, effort = asked_of(rng)
    common = np.array([3, 17])
    head = head._replace(common=head.common._replace(labels=common))
    wide, narrow = np.empty((60, 12), np.int32), np.empty((60, 4), np.int32)
    list_hard_negatives(trees, routers, head, questions, effort, wide)
    list_hard_negatives(trees, routers, head, questions._replace(first=10), effort, narrow[:])
    assert not np.isin(wide, common).any()
    n_each = (wide >= 0).sum(axis=1)
    assert n_each.max() <= 10
    assert len(set(n_each)) > 1
    assert all((row[:n] >= 0).all() and (row[n:] == -1).all() for row, n in zip(wide, n_each, strict=True))
    np.testing.assert_array_equal(narrow[10:], wide[10:, :4])

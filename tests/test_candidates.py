"""Candidates are found for some rows at a time, and it makes no difference for how many."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from cmt_numba import CMTClassifier, CMTMultilabelClassifier
from cmt_numba._heads import search
from cmt_numba._heads.candidates import Effort, Listing, list_hard_negatives, list_labels, scored_candidates
from cmt_numba._heads.search import all_of
from cmt_numba._validation import check_rows
from cmt_numba.estimators import _multilabel

FORMS = pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array], ids=["dense", "sparse"])


def few_at_once(monkeypatch: pytest.MonkeyPatch, n_rows: int, n_labels: int) -> None:
    monkeypatch.setattr(search, "_ROWS_AT_ONCE", n_rows)
    monkeypatch.setattr(search, "_LABELS_AT_ONCE", n_labels)


def rows_of(form: Any, rng: np.random.Generator) -> Any:
    X = np.where(rng.random((60, 6)) < 0.5, rng.normal(size=(60, 6)), 0.0)
    return form(X)


def answers_of_classifier(X: Any, loss: str) -> list[np.ndarray]:
    classifier = CMTClassifier(n_trees=2, loss=loss, n_head_passes=2, random_state=0).fit(X, np.arange(60) % 20)
    classifier.partial_fit(X[:7], np.arange(7) + 15)
    return [classifier.predict(X), classifier.predict_proba(X), *classifier.kneighbors(X, 3)]


@FORMS
def test_a_classifier_does_not_depend_on_how_many(form: Any, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch):
    X = rows_of(form, rng)
    expected = answers_of_classifier(X, "mira")
    few_at_once(monkeypatch, 7, 40)
    for answer, as_before in zip(answers_of_classifier(X, "mira"), expected, strict=True):
        np.testing.assert_array_equal(answer, as_before)


def test_other_losses_do_not_depend_on_how_many(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch):
    X = rows_of(np.asarray, rng)
    expected = answers_of_classifier(X, "softmax")
    few_at_once(monkeypatch, 1, 1)
    for answer, as_before in zip(answers_of_classifier(X, "softmax"), expected, strict=True):
        np.testing.assert_array_equal(answer, as_before)


def answers_of_tagger(X: Any, Y: np.ndarray) -> list[np.ndarray]:
    tagger = CMTMultilabelClassifier(n_trees=2, n_head_passes=2, random_state=0).fit(X, Y)
    return [tagger.predict(X), *tagger.top_labels(X, 4)]


@FORMS
def test_a_multilabel_classifier_does_not_depend_on_how_many(
    form: Any, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
):
    X, Y = rows_of(form, rng), rng.random((60, 20)) < 0.15
    expected = answers_of_tagger(X, Y)
    few_at_once(monkeypatch, 7, 40)
    monkeypatch.setattr(_multilabel, "_LABELS_LISTED", 1)
    for answer, as_before in zip(answers_of_tagger(X, Y), expected, strict=True):
        np.testing.assert_array_equal(answer, as_before)


def asked_of(rng: np.random.Generator) -> tuple[Any, ...]:
    """Return what a fitted classifier hands on: trees, routers, a head, questions and an effort."""
    X = rows_of(scipy.sparse.csr_array, rng)
    classifier = CMTClassifier(n_trees=2, random_state=0).fit(X, np.arange(60) % 20)
    state, rows = classifier.forest_._allocated(), check_rows(X)
    return state.trees, state.models, classifier.head_.scorers, all_of(rows, rows), Effort(4, 12, 3)


def test_labels_are_listed_as_long_as_there_is_room(rng: np.random.Generator):
    trees, routers, head, questions, effort = asked_of(rng)
    expected = []
    for found in scored_candidates(trees, routers, head, questions, effort):
        starts = np.concatenate([[0], found.ends[:-1]])
        for first, end in zip(starts, found.ends, strict=True):
            above = found.scores[first:end] > 0.2
            expected.append((found.labels[first:end][above].tolist(), found.scores[first:end][above].tolist()))
    assert len(expected) == 60
    for room in (10, 1000):
        listing = Listing(np.full(60, -7), np.empty(room, np.int64), np.empty(room, np.float32))
        asked = questions._replace(first=5)
        done = list_labels(trees, routers, head, asked, effort, 0.2, listing)
        ends = [0, *listing.ends[5:done]]
        got = [(listing.labels[a:b].tolist(), listing.scores[a:b].tolist()) for a, b in pairwise(ends)]
        assert got == expected[5:done]
        assert (listing.ends[done:] == -7).all()
        assert done == 60 or ends[-1] + len(expected[done][0]) > room
        assert (done == 60) == (room == 1000)


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

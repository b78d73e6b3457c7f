"""The memory for learning a few rows, which must not grow with the number of stored examples."""

import tracemalloc
from typing import Any

import numpy as np
import pytest
from conftest import FORMS, needs_jit
from internals import estimators_classification_model, heads_room, model_of
from internals import estimators_replay as replay

from cmt_numba import CMTClassifier, CMTRetriever
from cmt_numba._heads import all_examples, draw_replayed, some_examples

N, N_CLASSES = 60_000, 20


def rows(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    y = rng.integers(N_CLASSES, size=n)
    return np.random.default_rng(0).normal(size=(N_CLASSES, 3))[y] + 0.5 * rng.normal(size=(n, 3)), y


def most_allocated(estimator: Any, *arguments: Any, with_ids: bool = False) -> int:
    """Return the peak number of bytes allocated while a row is learned."""
    for number in range(2):  # in the first call, arrays that are nearly full may grow
        options = {"example_ids": [10 * N - number]} if with_ids else {}
        tracemalloc.start()
        estimator.partial_fit(*arguments, **options)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return most


@needs_jit
@FORMS
@pytest.mark.parametrize("weighted", [False, True])
def test_a_classifier_makes_no_array_as_long_as_what_is_stored(form: Any, weighted: bool, rng: np.random.Generator):
    most = []
    for n in (600, N):
        X, y = rows(rng, n + 1)
        weights = 1.0 + rng.random(n + 1) if weighted else np.ones(n + 1)
        classifier = CMTClassifier(n_head_passes=1, loss="mira", random_state=0)
        classifier.fit(form(X[:n]), y[:n], weights[:n])
        most.append(most_allocated(classifier, form(X[n:]), y[n:], None, weights[n:], with_ids=weighted))
        classifier.check_invariants()
        assert (model_of(classifier).example_weights is not None) == weighted
    assert most[1] - most[0] < N  # bytes


@needs_jit
@pytest.mark.parametrize("search", ["key", "value"])
def test_a_retriever_makes_no_array_as_long_as_what_is_stored(search: Any, rng: np.random.Generator):
    most = []
    for n in (6_000, N):  # enough for lists of vectors
        X, values = rows(rng, n + 1)[0], rng.normal(size=(n + 1, 2)).astype(np.float32)
        retriever = CMTRetriever(search, random_state=0)
        retriever.fit(X[:n], values[:n])
        most.append(most_allocated(retriever, X[n:], values[n:]))
    assert most[1] - most[0] < N  # bytes


@needs_jit
def test_new_classes_go_among_those_known(rng: np.random.Generator):
    y = np.concatenate([np.arange(0, 400, 2), [401, 7]])  # one new class at the end, one in between
    X = rng.normal(size=(y.size, 3))
    classifier = CMTClassifier(n_head_passes=0, random_state=0)
    classifier.fit(X[:200], y[:200]).partial_fit(X[200:], y[200:], classes=[5, 7, 401])
    np.testing.assert_array_equal(classifier.classes_, np.sort([*y, 5]))
    classifier.check_invariants()
    labels = all_examples(classifier.examples_)[1]
    np.testing.assert_array_equal(classifier.classes_[model_of(classifier).class_of_label[labels]], y)
    with pytest.raises(ValueError, match="listed in classes"):
        classifier.partial_fit(X[:2], [7, 9], classes=[5, 7, 401])


@FORMS
def test_what_is_learned_again_is_drawn_by_label(form: Any, rng: np.random.Generator):
    y = np.repeat([0, 1, 2], [500, 60, 40])
    X = rng.normal(size=(600, 3))
    classifier = CMTClassifier(n_head_passes=0, random_state=0).fit(form(X), y)
    examples, label = classifier.examples_, model_of(classifier).label_of_class
    shares = np.arange(300) / 300

    def drawn(labels: np.ndarray, n_old: int) -> np.ndarray:
        """Return the slots drawn by numbers that draw every example of the labels, and slot 0 of all examples."""
        numbers = np.column_stack([shares, shares, np.zeros(300)])
        slots, ends = np.empty(1000, np.int64), np.empty(2, np.int64)
        draw_replayed(examples.lists, np.sort(labels), numbers, shares, 600 - n_old, slots, ends)
        np.testing.assert_array_equal(slots[ends[0] - 600 + n_old : ends[0]], np.arange(n_old, 600))
        assert np.unique(slots[: ends[1]]).size == ends[1]
        return np.sort(slots[: ends[0] - 600 + n_old])

    newest = np.arange(500 - heads_room.examples.MAX_DRAWN_FROM, 500)
    np.testing.assert_array_equal(drawn(label[[0]], 590), [0, *newest])  # only the newest examples
    np.testing.assert_array_equal(drawn(label[[1]], 590), [0, *range(500, 560)])
    np.testing.assert_array_equal(drawn(label[[2]], 590), [0, *range(560, 590)])  # examples before slot 590
    assert drawn(label[[2]], 560)[0] == 0  # no example of the label is old: draws are from all
    assert drawn(label[[2]], 560).size > 100

    slots, n_swept = replay.replayed(examples, 10, label[[2, 2, 1]], np.random.default_rng(0))
    assert n_swept == 0
    assert slots[-10:].tolist() == list(range(590, 600))
    assert np.unique(slots).size == slots.size
    of_drawn = np.bincount(some_examples(examples, slots[:-10])[1], minlength=3)[label] / (slots.size - 10)
    assert of_drawn[0] > 0.3  # half of the draws are from all labels
    assert of_drawn[1] > 0.15
    assert of_drawn[2] > 0.15
    assert replay.replayed(examples, 600, label[:0], np.random.default_rng(0))[0].tolist() == list(range(600))


@needs_jit
def test_many_examples_are_not_all_learned_again_at_once(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch):
    X, y = rng.normal(size=(1500, 4)) + 3.0 * np.eye(4)[np.arange(1500) % 4], np.arange(1500) % 4
    classifier = CMTClassifier(loss="mira", random_state=0).fit(X[:1100], y[:1100])
    n_learned: list[int] = []
    train_head = estimators_classification_model.ClassificationModel._train_head

    def note(self: Any, rows: Any, *args: Any) -> None:
        n_learned.append(rows.n_rows)
        train_head(self, rows, *args)

    monkeypatch.setattr(estimators_classification_model.ClassificationModel, "_train_head", note)
    for i in range(1100, 1400):
        classifier.partial_fit(X[[i]], y[[i]])
    assert max(n_learned) <= 32
    assert min(n_learned) > 8
    classifier.partial_fit(X[1400:], y[1400:])  # enough to learn all examples again
    assert n_learned[-1] == 1500
    classifier.check_invariants()

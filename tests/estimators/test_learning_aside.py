"""Changes of estimators in a copy while other threads read."""

import copy
import pickle
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from conftest import needs_jit
from failures import failing
from threads import SOON, Threads, started

from cmt_numba import CMTClassifier, CMTMultilabelClassifier, CMTRetriever
from cmt_numba.estimators._base import MemoryEstimator

pytestmark = needs_jit

rng = np.random.default_rng(0)
X = rng.normal(size=(200, 8)).astype(np.float32)
y = rng.integers(0, 12, 200)
Y = np.eye(15, dtype=int)[y] | np.eye(15, dtype=int)[(y + 1) % 15]

Change = Callable[[Any], Any]


def of_classes(estimator: Any) -> list[Change]:
    labels = y if isinstance(estimator, CMTClassifier) else Y
    changes: list[Change] = [
        lambda e: e.partial_fit(X[100:110], labels[100:110]),
        lambda e: e.partial_fit(X[110:190], labels[110:190] + (1 if labels is y else 0)),
        lambda e: e.partial_fit(X[190:191], labels[190:191]),
    ]
    if labels is y:
        changes += [lambda e: e.remove(np.arange(7)), lambda e: e.remove_classes([3])]
    return changes


def of_values(estimator: Any) -> list[Change]:
    vectors = X[:, :5] if estimator.search == "value" else y
    changes: list[Change] = [
        lambda e: e.partial_fit(X[100:150], vectors[100:150]),
        lambda e: e.feedback(X[150:190], np.arange(40), np.linspace(0.0, 1.0, 40)),
        lambda e: e.set_values(np.arange(20), vectors[20:40]),
        lambda e: e.remove(np.arange(5, 30)),
    ]
    return changes + ([] if estimator.search == "value" else [lambda e: e.replace(np.arange(50, 90), X[:40])])


KINDS: dict[str, tuple[Any, Any, Callable[[Any], list[Change]]]] = {
    "classifier": (CMTClassifier(n_trees=2, random_state=0), y, of_classes),
    "multi-label classifier": (CMTMultilabelClassifier(n_trees=2, random_state=0), Y, of_classes),
    "retriever by key": (CMTRetriever("key", random_state=0), y, of_values),
    "retriever by value": (CMTRetriever("value", random_state=0), X[:, :5], of_values),
}


def fitted(kind: str, rows: Any = X) -> Any:
    estimator, labels, _ = KINDS[kind]
    return copy.deepcopy(estimator).fit(rows[:100], labels[:100])


@pytest.fixture
def aside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make all changes in copies."""
    monkeypatch.setattr(MemoryEstimator, "_takes_long", lambda *_: True)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_changes_in_place_and_on_a_copy_are_equal(kind: str, sparse: bool, monkeypatch: pytest.MonkeyPatch):
    rows = scipy.sparse.csr_array(X * (X > 0.0)) if sparse else X
    found = []
    for is_aside in (False, True):
        monkeypatch.setattr(MemoryEstimator, "_takes_long", lambda *_: is_aside)  # noqa: B023
        estimator = fitted(kind, rows)
        before = estimator._model.index
        KINDS[kind][2](estimator)[0](estimator)
        assert (estimator._model.index is before) == (not is_aside)
        for change in KINDS[kind][2](estimator)[1:]:
            assert change(estimator) is estimator
        estimator.check_invariants()
        found.append(pickle.dumps(estimator))
    assert found[0] == found[1]


@pytest.mark.parametrize("kind", KINDS)
def test_queries_during_a_change_see_the_earlier_state(kind: str, aside: None, monkeypatch: pytest.MonkeyPatch):
    for change in KINDS[kind][2](KINDS[kind][0]):
        estimator = fitted(kind)
        estimator.partial_fit(X[50:60], KINDS[kind][1][50:60])
        after = copy.deepcopy(estimator)
        before = estimator.predict(X)
        change(after)
        learned, put_in_place = threading.Event(), threading.Event()

        def wait(*_: Any) -> None:
            learned.set()  # noqa: B023
            assert put_in_place.wait(SOON)  # noqa: B023

        during: list[Any] = []
        with monkeypatch.context() as patch:
            patch.setattr(MemoryEstimator, "_note_duration", wait)  # by then the copy has learned everything
            writer = started(lambda: change(estimator))  # noqa: B023
            while not learned.is_set() or len(during) < 3:
                during.append(estimator.predict(X))
            put_in_place.set()
            writer.join(SOON)
        for answers in during:
            np.testing.assert_array_equal(answers, before)
        np.testing.assert_array_equal(estimator.predict(X), after.predict(X))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
def test_a_failed_change_on_a_copy_changes_nothing(kind: str, error: type[BaseException], aside: None):
    estimator = fitted(kind)
    estimator.predict(X)
    model = type(estimator._model)
    prepare = f"{model.__module__}.{model.__name__}.prepare_like".removeprefix("cmt_numba.")
    before = pickle.dumps(estimator)
    for change in [*KINDS[kind][2](estimator), lambda e: e.fit(X, KINDS[kind][1])]:
        with failing(prepare, error):
            change(estimator)
        assert pickle.dumps(estimator) == before
    KINDS[kind][2](estimator)[0](estimator)
    estimator.check_invariants()


@pytest.mark.parametrize("kind", KINDS)
def test_folders_keep_changes_made_on_a_copy(kind: str, aside: None, tmp_path: Path):
    model, labels, changes = KINDS[kind]
    options = {name: value for name, value in model.get_params().items() if name in ("n_trees", "search")}
    with type(model).open(tmp_path / "model", random_state=0, **options) as estimator:
        estimator.fit(X[:100], labels[:100])

        def ask() -> None:
            estimator.predict(X[:20])
            if kind.startswith("retriever"):
                estimator.query(X[:20], 2)
            elif kind == "classifier":
                estimator.predict_proba(X[:20])  # learns the calibration

        with Threads(ask):
            for change in changes(estimator):
                change(estimator)
        expected = estimator._contents()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with type(model).open(tmp_path / "model") as reopened:
            reopened.check_invariants()
            found = reopened._contents()
            assert found.fields == expected.fields
            assert found.arrays.keys() == expected.arrays.keys()
            for name, array in found.arrays.items():
                np.testing.assert_array_equal(array, expected.arrays[name], err_msg=name)


def test_short_or_unobserved_changes_are_made_in_place():
    classifier = fitted("classifier")
    forest = classifier.forest_
    classifier.predict(X)
    classifier.partial_fit(X[:10], y[:10])
    assert classifier.forest_ is forest
    with Threads(lambda: classifier.predict(X[:1])):
        classifier.partial_fit(X[:1], y[:1])
        assert classifier.forest_ is forest
        assert classifier._lock.has_other_readers()
        classifier.partial_fit(X[:90], y[:90])  # enough to learn all examples again
        assert classifier.forest_ is not forest


def test_readers_find_prepared_scorers(aside: None, monkeypatch: pytest.MonkeyPatch):
    """The layout for matrix products is prepared before a change is swapped in, not by each reader thread."""
    classifier = fitted("classifier", scipy.sparse.csr_array(X * (X > 0.0)))
    expected = copy.deepcopy(classifier).partial_fit(X[100:], y[100:]).predict(X)
    classifier.predict(X)
    classifier.partial_fit(X[100:], y[100:])

    def fail(*_: Any) -> None:
        raise AssertionError("laid out again")

    monkeypatch.setattr("cmt_numba._heads.all_scorers", fail)
    np.testing.assert_array_equal(classifier.predict(X), expected)


def test_readers_in_steps_of_a_stream_of_changes():
    """Each of several reader threads sees a consistent state: classes appear one after the other."""
    classifier = CMTClassifier(n_trees=2, random_state=0).fit(X, y)
    seen: list[int] = []

    def ask() -> None:
        proba = classifier.predict_proba(X[:3])
        np.testing.assert_allclose(proba.sum(axis=1), 1.0)
        seen.append(proba.shape[1])

    with Threads(ask):
        for i in range(8):
            classifier.partial_fit(X[:40], np.where(np.arange(40) < 3, 100 + i, y[:40]))
    assert set(seen) <= set(range(12, 21))
    assert seen == sorted(seen)
    classifier.check_invariants()

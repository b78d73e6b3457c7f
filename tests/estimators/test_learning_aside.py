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
from conftest import FORM_OF, needs_jit
from estimator_changes import Kind, X, kinds, y
from failures import failing
from internals import contents_of, lock_of, model_of
from threads import SOON, Threads, started

pytestmark = needs_jit

KINDS = kinds()


def patch_estimators(monkeypatch: pytest.MonkeyPatch, name: str, function: Callable[..., Any]) -> None:
    for kind in KINDS.values():
        monkeypatch.setattr(type(kind.estimator), name, function)


@pytest.fixture
def aside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make all changes in copies."""
    patch_estimators(monkeypatch, "_takes_long", lambda *_: True)


@pytest.mark.parametrize("form", FORM_OF)
@pytest.mark.parametrize("name", KINDS)
def test_changes_in_place_and_on_a_copy_are_equal(name: str, form: str, monkeypatch: pytest.MonkeyPatch):
    kind, found = kinds(form)[name], []
    for is_aside in (False, True):
        patch_estimators(monkeypatch, "_takes_long", lambda *_: is_aside)  # noqa: B023
        estimator = kind.fitted()
        before = model_of(estimator).index
        kind.changes["partial_fit"](estimator)
        assert (model_of(estimator).index is before) == (not is_aside)
        for change in kind.changes.values():
            assert change(estimator) is estimator
        estimator.check_invariants()
        found.append(pickle.dumps(estimator))
    assert found[0] == found[1]


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_queries_during_a_change_see_the_earlier_state(kind: Kind, aside: None, monkeypatch: pytest.MonkeyPatch):
    for change in kind.changes.values():
        estimator = kind.fitted()
        estimator.partial_fit(X[50:60], kind.labels[50:60])
        after = copy.deepcopy(estimator)
        before = estimator.predict(X)
        change(after)
        learned, put_in_place = threading.Event(), threading.Event()

        def wait(*_: Any) -> None:
            learned.set()  # noqa: B023
            assert put_in_place.wait(SOON)  # noqa: B023

        during: list[Any] = []
        with monkeypatch.context() as patch:
            patch_estimators(patch, "_note_duration", wait)  # by then the copy has learned everything
            writer = started(lambda: change(estimator))  # noqa: B023
            while not learned.is_set() or len(during) < 3:
                during.append(estimator.predict(X))
            put_in_place.set()
            writer.join(SOON)
        for answers in during:
            np.testing.assert_array_equal(answers, before)
        np.testing.assert_array_equal(estimator.predict(X), after.predict(X))


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
def test_a_failed_change_on_a_copy_changes_nothing(kind: Kind, error: type[BaseException], aside: None):
    estimator = kind.fitted()
    estimator.predict(X)
    model = type(model_of(estimator))
    prepare = f"{model.__module__}.{model.__name__}.prepare_like".removeprefix("cmt_numba.")
    before = pickle.dumps(estimator)
    for change in [*kind.changes.values(), lambda e: e.fit(X, kind.labels)]:
        with failing(prepare, error):
            change(estimator)
        assert pickle.dumps(estimator) == before
    kind.changes["partial_fit"](estimator)
    estimator.check_invariants()


@pytest.mark.parametrize("name", KINDS)
def test_folders_keep_changes_made_on_a_copy(name: str, aside: None, tmp_path: Path):
    model, labels = KINDS[name].estimator, KINDS[name].labels
    options = {name: value for name, value in model.get_params().items() if name == "search"}
    with type(model).open(tmp_path / "model", random_state=0, **options) as estimator:
        estimator.fit(X[:100], labels[:100])

        def ask() -> None:
            estimator.predict(X[:20])
            if name.startswith("retriever"):
                estimator.query(X[:20], 2)
            elif name == "classifier":
                estimator.predict_proba(X[:20])  # learns the calibration

        with Threads(ask):
            for change in KINDS[name].changes.values():
                change(estimator)
        expected = contents_of(estimator)()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with type(model).open(tmp_path / "model") as reopened:
            reopened.check_invariants()
            found = contents_of(reopened)()
            assert found.fields == expected.fields
            assert found.arrays.keys() == expected.arrays.keys()
            for name, array in found.arrays.items():
                np.testing.assert_array_equal(array, expected.arrays[name], err_msg=name)


def test_short_or_unobserved_changes_are_made_in_place():
    classifier = KINDS["classifier"].fitted()
    model = model_of(classifier)
    classifier.predict(X)
    classifier.partial_fit(X[:10], y[:10])
    assert model_of(classifier) is model
    with Threads(lambda: classifier.predict(X[:1])):
        classifier.partial_fit(X[:1], y[:1])
        assert model_of(classifier) is model
        assert lock_of(classifier).has_other_readers()
        classifier.partial_fit(X[:90], y[:90])  # enough to learn all examples again
        assert model_of(classifier) is not model


def test_readers_find_prepared_scorers(aside: None, monkeypatch: pytest.MonkeyPatch):
    """The layout for matrix products is prepared before a change is swapped in, not by each reader thread."""
    classifier = kinds("sparse")["classifier"].fitted()
    expected = copy.deepcopy(classifier).partial_fit(X[100:], y[100:]).predict(X)
    classifier.predict(X)
    classifier.partial_fit(X[100:], y[100:])

    def fail(*_: Any) -> None:
        raise AssertionError("laid out again")

    monkeypatch.setattr("cmt_numba._heads.all_scorers", fail)
    np.testing.assert_array_equal(classifier.predict(X), expected)

"""Interrupted changes of estimators. ``interrupt_estimators.py`` runs the same cases any number of times."""

import pickle
import signal
from operator import attrgetter
from typing import Any

import numpy as np
import pytest
from conftest import needs_jit
from interrupt_estimators import at_line, by_signals, cases, check, duration, lines_of
from sklearn.exceptions import NotFittedError

from cmt_numba import CMTClassifier, CMTRetriever, estimators
from cmt_numba.estimators._classification_model import ClassificationModel

CHANGES = cases() if hasattr(signal, "setitimer") else {}

pytestmark = needs_jit


@pytest.mark.parametrize("name", CHANGES)
def test_interrupted_at_a_line(name: str):
    case, random = CHANGES[name], np.random.default_rng(len(name))
    n_lines = min(lines_of(case) for _ in range(3))  # loading kernels and admitting readers runs additional lines
    lines = random.choice(np.arange(1, n_lines + 1), 3, replace=False)
    assert {at_line(case, int(line)) for line in lines} <= {"works", "unfitted"}


@pytest.mark.parametrize("name", [name for name in CHANGES if name.startswith("sparse") and "first" not in name])
def test_interrupted_by_signals(name: str):
    case, random = CHANGES[name], np.random.default_rng(len(name))
    seconds = duration(case)
    outcomes = {by_signals(case, float(share * seconds), 2, 1e-4) for share in random.random(2)}
    assert outcomes <= {"works", "too late"}


@pytest.mark.parametrize(
    ("name", "failing"),
    [
        ("dense classifier: partial_fit", "_label_index.teach_rows"),
        ("dense retriever by value: remove", "_retrieval_model.remove_ids"),
    ],
)
def test_a_change_that_fails_part_way_leaves_a_valid_estimator(
    name: str, failing: str, monkeypatch: pytest.MonkeyPatch
):
    case = CHANGES[name]
    estimator = pickle.loads(pickle.dumps(case.estimator))
    answers = estimator.predict(case.rows)
    left = 1

    def fail_once(*arguments: Any, **named: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0:
            raise MemoryError
        return working(*arguments, **named)

    with monkeypatch.context() as patch:
        working = attrgetter(failing)(estimators)
        patch.setattr(f"cmt_numba.estimators.{failing}", fail_once)
        with pytest.raises(MemoryError):
            case.change(estimator)
    assert estimator.predict(case.rows).shape == answers.shape
    assert check(case, estimator) == "works"


def test_a_broken_first_fit_leaves_nothing_fitted(monkeypatch: pytest.MonkeyPatch):
    case = CHANGES["dense classifier: first fit"]
    estimator = pickle.loads(pickle.dumps(case.estimator))

    def fail(*_: Any) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(ClassificationModel, "_train_head", fail)
        with pytest.raises(MemoryError):
            case.change(estimator)
    for use in (lambda: estimator.predict(case.rows), estimator.check_invariants):
        with pytest.raises(NotFittedError):
            use()
    assert case.change(estimator) is estimator


def test_a_refused_fit_keeps_what_was_learned():
    X = np.eye(4)
    classifier = CMTClassifier(n_trees=1, random_state=0).fit(X, [1, 2, 3, 4])
    retriever = CMTRetriever(random_state=0).fit(X, list("abcd"))
    with pytest.raises(ValueError, match="sample"):
        classifier.fit(np.eye(7), [1])
    with pytest.raises(ValueError, match="one value for each"):
        retriever.fit(np.eye(7), ["a"])
    with pytest.raises(ValueError, match="loss"):
        classifier.set_params(loss="none").fit(np.eye(7), np.arange(7))
    assert classifier.set_params(loss="mira").predict(X).tolist() == [1, 2, 3, 4]
    assert retriever.predict(X).tolist() == list("abcd")

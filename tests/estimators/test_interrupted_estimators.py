"""Interrupted and failing changes of estimators."""

import pickle
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from conftest import FORM_OF, needs_jit
from estimator_changes import Change, Kind, kinds
from failures import failing
from interruptions import Lines
from sklearn.exceptions import NotFittedError

from cmt_numba import CMTClassifier, CMTRetriever

pytestmark = needs_jit


class Case(NamedTuple):
    """A change to interrupt."""

    fitted: Callable[[], Any]  # returns the estimator to change
    change: Change
    learn: Change  # must work afterwards
    rows: Any  # to query it with
    may_be_unfitted: bool = False


def cases() -> dict[str, Case]:
    """Return the changes of all kinds of estimators by name. Each estimator is fitted on first use."""
    found: dict[str, Case] = {}
    for form in FORM_OF:
        for name, kind in kinds(form).items():
            fit = partial(fit_again, kind)
            fitted, learn = cache(kind.fitted), kind.changes["partial_fit"]
            found[f"{form} {name}: first fit"] = Case(partial(copied, kind.estimator), fit, learn, kind.rows, True)
            for what, change in ({"fit": fit} | kind.changes).items():
                found[f"{form} {name}: {what}"] = Case(fitted, change, learn, kind.rows)
    return found


def fit_again(kind: Kind, estimator: Any) -> Any:
    return estimator.fit(kind.rows[:120], kind.labels[:120])


def copied(estimator: Any) -> Any:
    return pickle.loads(pickle.dumps(estimator))


def saved(estimator: Any, folder: Path) -> bytes:
    estimator.save(folder / "state")
    return (folder / "state").read_bytes()


def check(case: Case, estimator: Any, path: Path) -> None:
    """Use an estimator after an interrupted change."""
    try:
        answers = estimator.predict(case.rows)
    except NotFittedError:
        assert case.may_be_unfitted, "what had been fitted is not any more"
        case.change(estimator)
        estimator.check_invariants()
        return
    assert answers.shape[0] == case.rows.shape[0]
    estimator.check_invariants()
    estimator.save(path)
    loaded = type(estimator).load(path)
    loaded.check_invariants()
    for each in (estimator, loaded, copied(estimator)):
        case.learn(each)
        each.check_invariants()
        each.predict(case.rows)


CHANGES = cases()


@pytest.mark.parametrize("name", CHANGES)
def test_interrupted_at_a_line(name: str, tmp_path: Path):
    """The estimator has its state from before or after the change, and works afterwards."""
    case, random = CHANGES[name], np.random.default_rng(len(name))
    n_lines, states = [], [saved(case.fitted(), tmp_path)]
    for _ in range(3):  # loading kernels and admitting readers runs additional lines
        lines, estimator = Lines(), copied(case.fitted())
        lines.run(partial(case.change, estimator))
        n_lines.append(lines.n)
        states.append(saved(estimator, tmp_path))
    for stop in random.choice(np.arange(1, min(n_lines) + 1), 3, replace=False):
        estimator = copied(case.fitted())
        with pytest.raises(KeyboardInterrupt):
            Lines(int(stop)).run(partial(case.change, estimator))
        assert saved(estimator, tmp_path) in states, "the change was made in part"
        check(case, estimator, tmp_path / "estimator")


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("dense classifier: long partial_fit", "estimators._label_index.LabelIndex.end_training"),
        ("dense classifier: long partial_fit", "estimators._classification_model.ClassificationModel._train_head"),
        ("sparse classifier: long partial_fit", "_heads.with_labels"),
        ("sparse classifier: long partial_fit", "_heads.with_room_for_examples"),
        ("dense retriever by value: partial_fit", "estimators._memories.Memories.with_more"),
        ("dense retriever by value: set_values", "estimators._memories.Memories.with_values"),
        ("dense retriever by value: remove", "estimators._memories.Memories.without"),
    ],
)
def test_a_change_that_fails_part_way_can_be_made_again(name: str, place: str, tmp_path: Path):
    case = CHANGES[name]
    estimator, twin = copied(case.fitted()), copied(case.fitted())
    with failing(place, call=1):
        case.change(estimator)
    assert_equal_answers(case, estimator, twin)
    for each in (estimator, twin):
        case.change(each)
    assert_equal_answers(case, estimator, twin)
    check(case, estimator, tmp_path / "estimator")


def assert_equal_answers(case: Case, one: Any, other: Any) -> None:
    for found, expected in zip(one.kneighbors(case.rows, 3), other.kneighbors(case.rows, 3), strict=True):
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(one.predict(case.rows), other.predict(case.rows))
    if hasattr(one, "decision_function"):
        np.testing.assert_array_equal(one.decision_function(case.rows), other.decision_function(case.rows))


def test_a_failed_first_fit_leaves_nothing_fitted():
    case = CHANGES["dense classifier: first fit"]
    estimator = copied(case.fitted())
    with failing("estimators._classification_model.ClassificationModel._train_head"):
        case.change(estimator)
    for use in (lambda: estimator.predict(case.rows), estimator.check_invariants):
        with pytest.raises(NotFittedError):
            use()
    assert case.change(estimator) is estimator


def test_a_refused_fit_keeps_what_was_learned():
    X = np.eye(4)
    classifier = CMTClassifier(random_state=0).fit(X, [1, 2, 3, 4])
    retriever = CMTRetriever(random_state=0).fit(X, list("abcd"))
    with pytest.raises(ValueError, match="sample"):
        classifier.fit(np.eye(7), [1])
    with pytest.raises(ValueError, match="one entry for each"):
        retriever.fit(np.eye(7), ["a"])
    with pytest.raises(ValueError, match="loss"):
        classifier.set_params(loss="none").fit(np.eye(7), np.arange(7))
    assert classifier.set_params(loss="mira").predict(X).tolist() == [1, 2, 3, 4]
    assert retriever.predict(X).tolist() == list("abcd")

"""Interrupted and failing changes of estimators."""

import pickle
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.sparse
from conftest import needs_jit
from failures import failing
from interruptions import Lines
from sklearn.exceptions import NotFittedError

from cmt_numba import CMTClassifier, CMTMultilabelClassifier, CMTRetriever

pytestmark = needs_jit

FEW: dict[str, Any] = {"n_trees": 2, "n_router_passes": 1, "random_state": 0}

Change = Callable[[Any], Any]


class Case(NamedTuple):
    """A change to interrupt."""

    fitted: Callable[[], Any]  # returns the estimator to change
    change: Change
    learn: Change  # must work afterwards
    rows: Any  # to query it with
    may_be_unfitted: bool = False


def data(sparse: bool) -> tuple[Any, np.ndarray]:
    random = np.random.default_rng(3)
    rows = random.normal(size=(80, 20)) * (random.random((80, 20)) < 0.4 if sparse else 1.0)
    rows[:, 0] += 0.1
    return (scipy.sparse.csr_array(rows) if sparse else rows), random.integers(0, 12, 80)


def cases() -> dict[str, Case]:
    """Return the changes of all kinds of estimators by name. Each estimator is fitted on first use."""
    found: dict[str, Case] = {}
    for sparse in (False, True):
        X, y = data(sparse)
        form = "sparse" if sparse else "dense"
        Y = np.eye(14, dtype=int)[y] | np.eye(14, dtype=int)[(y + 1) % 14]
        vectors = np.random.default_rng(4).normal(size=(80, 7)).round(1)
        classifiers = {
            "classifier": (CMTClassifier(n_head_passes=2, **FEW), y, y + 5),
            "multilabel": (CMTMultilabelClassifier(n_head_passes=2, **FEW), Y[:, :8], Y),
        }
        for kind, (estimator, some, more) in classifiers.items():
            learn = learning(X, more)
            found[f"{form} {kind}: first fit"] = Case(partial(copied, estimator), fitting(X, some), learn, X, True)
            fitted = cache(partial(fit_copy, estimator, X[:50], some[:50]))
            found[f"{form} {kind}: fit"] = Case(fitted, fitting(X, some), learn, X)
            found[f"{form} {kind}: partial_fit"] = Case(fitted, learn, learn, X)
        retrievers = {"by key": ("key", [f"value {i}" for i in range(80)]), "by value": ("value", vectors[:80] * 1.0)}
        for kind, (search, values) in retrievers.items():
            estimator = CMTRetriever(search, n_components=4, random_state=0)
            learn = learning(X[60:], values[60:])
            fitted = cache(partial(fitted_with_feedback, estimator, X, values))
            name = f"{form} retriever {kind}"
            found[f"{name}: first fit"] = Case(partial(copied, estimator), fitting(X, values), learn, X, True)
            found[f"{name}: fit"] = Case(fitted, fitting(X, values), learn, X)
            found[f"{name}: partial_fit"] = Case(fitted, learn, learn, X)
            found[f"{name}: feedback"] = Case(fitted, rewarding(X), learn, X)
            found[f"{name}: remove"] = Case(fitted, lambda e: e.remove(np.arange(5, 45)), learn, X)
            found[f"{name}: set_values"] = Case(fitted, setting(values), learn, X)
            if search == "key":
                found[f"{name}: replace"] = Case(fitted, replacing(X), learn, X)
    return found


def fit_copy(estimator: Any, X: Any, y: Any) -> Any:
    return copied(estimator).fit(X, y)


def fitted_with_feedback(estimator: Any, X: Any, values: Any) -> Any:
    fitted = fit_copy(estimator, X[:60], values[:60])
    fitted.feedback(X[60:], np.arange(20), np.ones(20))
    return fitted


def fitting(X: Any, y: Any) -> Change:
    return lambda estimator: estimator.fit(X, y)


def learning(X: Any, y: Any) -> Change:
    return lambda estimator: estimator.partial_fit(X, y)


def rewarding(X: Any) -> Change:
    ids = np.arange(80).reshape(40, 2) % 60
    return lambda estimator: estimator.feedback(X[:40], ids, np.tile([1.0, 0.2], (40, 1)))


def setting(values: Any) -> Change:
    return lambda estimator: estimator.set_values(np.arange(10, 30), values[60:80])


def replacing(X: Any) -> Change:
    return lambda estimator: estimator.replace(np.arange(10, 30), X[60:80])


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
        ("dense classifier: partial_fit", "estimators._label_index.teach_rows"),
        ("dense classifier: partial_fit", "estimators._label_index.insert_rows"),
        ("dense classifier: partial_fit", "estimators._label_index.LabelIndex.end_training"),
        ("dense classifier: partial_fit", "estimators._classification_model.ClassificationModel._train_head"),
        ("sparse classifier: partial_fit", "_heads.with_labels"),
        ("sparse classifier: partial_fit", "_heads.with_room_for_examples"),
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
    classifier = CMTClassifier(n_trees=1, random_state=0).fit(X, [1, 2, 3, 4])
    retriever = CMTRetriever(random_state=0).fit(X, list("abcd"))
    with pytest.raises(ValueError, match="sample"):
        classifier.fit(np.eye(7), [1])
    with pytest.raises(ValueError, match="one entry for each"):
        retriever.fit(np.eye(7), ["a"])
    with pytest.raises(ValueError, match="loss"):
        classifier.set_params(loss="none").fit(np.eye(7), np.arange(7))
    assert classifier.set_params(loss="mira").predict(X).tolist() == [1, 2, 3, 4]
    assert retriever.predict(X).tolist() == list("abcd")

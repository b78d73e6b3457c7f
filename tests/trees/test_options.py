"""The options of trees and estimators: checks and docstrings agree with one declaration each."""

import inspect
import re
from typing import Any

import numpy as np
import pytest
from internals import constraints_of, kernels_room

from cmt_numba import CMTClassifier, CMTMultilabelClassifier, CMTRetriever, ContextualMemoryTree, bandits
from cmt_numba._validation import check_rows
from cmt_numba.tree import OPTIONS

CLASSES: dict[type, dict[str, Any]] = {
    ContextualMemoryTree: OPTIONS,
    **{kind: constraints_of(kind) for kind in (CMTClassifier, CMTMultilabelClassifier, CMTRetriever)},
    **{kind: constraints_of(kind) for kind in map(vars(bandits).get, bandits.__all__) if hasattr(kind, "add_actions")},
}
CASES = [(kind, name) for kind, options in CLASSES.items() for name in options]


def documented(kind: type) -> dict[str, str]:
    """Return the type and the default of each parameter in the docstring of a class."""
    section = inspect.cleandoc(kind.__doc__ or "").split("Parameters\n----------\n")[1]
    section = re.split(r"\n\n\w+\n-+\n", section)[0]
    entries = [line.partition(" : ") for line in section.splitlines() if line and not line.startswith(" ")]
    return {name: what for names, _, what in entries for name in names.split(", ")}


@pytest.mark.parametrize("kind", CLASSES)
def test_every_option_has_a_constraint_and_is_documented(kind: type):
    names = set(inspect.signature(kind).parameters)
    assert names == set(CLASSES[kind]) == set(documented(kind))


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_docstrings_state_types_and_defaults(kind: type, name: str):
    what, default = documented(kind)[name], inspect.signature(kind).parameters[name].default
    if what == "":
        return  # same as for another class
    assert what.startswith(str(CLASSES[kind][name]))
    if default is None:
        assert what.endswith(("optional", "None"))
    else:
        assert what.replace('"', "'").endswith(f"default {default!r}")


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_every_option_is_checked_by_its_name(kind: type, name: str):
    default = inspect.signature(kind).parameters[name].default
    CLASSES[kind][name].check(name, default)
    with pytest.raises((TypeError, ValueError), match=f"{name}|seed"):  # scikit-learn checks seeds
        getattr(kind(**{name: object()}), "_check_parameters", list)()


@pytest.mark.parametrize("invalid", [{"learning_rate": 2e9}, {"aggressiveness": -1.0}, {"n_candidates": "many"}])
def test_all_methods_check_options_alike(invalid: dict[str, Any]):
    X, y = np.eye(4, dtype=np.float32), np.arange(4)
    classifier = CMTClassifier(random_state=0).fit(X, y).set_params(**invalid)
    for call in (classifier.fit, classifier.partial_fit, lambda X, _: classifier.predict(X)):
        with pytest.raises((TypeError, ValueError), match=next(iter(invalid))):
            call(X, y)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("which", [[], [3, 3, 0], "mask"], ids=["none", "repeated", "mask"])
def test_rows_are_taken_like_those_of_a_matrix(sparse: bool, which: Any):
    X = np.random.default_rng(0).integers(-1, 2, (20, 5)).astype(np.float32)
    X[4] = 0.0
    rows = check_rows(X, sparse=sparse)
    chosen = np.arange(20) % 3 == 1 if which == "mask" else np.array(which, np.int64)
    taken, matrix = rows.take(chosen), kernels_room.as_matrix(rows)
    expected = matrix.toarray()[chosen] if sparse else matrix[chosen]
    found = kernels_room.as_matrix(taken)
    np.testing.assert_array_equal(found.toarray() if sparse else found, expected)
    assert taken.n_rows == expected.shape[0]
    assert [array.dtype for array in taken[:3]] == [array.dtype for array in rows[:3]]


@pytest.mark.parametrize("sparse", [False, True])
def test_rescaled_rows_equal_rows_checked_again(sparse: bool):
    rows = check_rows(np.random.default_rng(0).normal(size=(2000, 5)), sparse=sparse)
    again = check_rows(kernels_room.as_matrix(rows))
    np.testing.assert_array_equal(kernels_room.rescaled(rows).values, again.values)
    assert np.any(again.values != rows.values)


def test_parameters_are_checked_again_when_they_have_been_set():
    X, y = np.eye(4, dtype=np.float32), np.arange(4)
    classifier = CMTClassifier(random_state=0).fit(X, y)
    for _ in range(2):
        assert classifier.set_params(n_candidates=None).predict(X[:1]).tolist() == [0]
        assert classifier.predict(X[:1]).tolist() == [0]
        with pytest.raises(ValueError, match="n_candidates must be between 1"):
            classifier.set_params(n_candidates=0).predict(X[:1])
        with pytest.raises(ValueError, match="n_candidates must be between 1"):
            classifier.predict(X[:1])

"""Removal of examples and classes, after which a classifier is as if it had never learned them."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import FORMS, needs_jit
from internals import model_of
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError

from cmt_numba import CMTClassifier

FEW: dict[str, Any] = {"random_state": 0}


@pytest.fixture
def clouds(rng: np.random.Generator) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return six points around each of eight centers, and the center of each point."""
    centers, y = 3.0 * rng.normal(size=(8, 6)), np.repeat(np.arange(8), 6)
    return (centers[y] + 0.3 * rng.normal(size=(48, 6))).astype(np.float32), y


@FORMS
def test_scorers_of_means_are_those_of_the_rest(form: Any, clouds: Any):
    X, y = clouds
    rest = np.flatnonzero((y != 2) & (y != 7) & (np.arange(48) % 6 != 1))
    classifier = CMTClassifier(n_head_passes=0, **FEW).fit(form(X), y)
    classifier.remove_classes([7, 2]).remove(np.flatnonzero((np.arange(48) % 6 == 1) & (y != 2) & (y != 7)))
    other = CMTClassifier(n_head_passes=0, **FEW).fit(form(X[rest]), y[rest])
    classifier.check_invariants()
    np.testing.assert_array_equal(classifier.classes_, other.classes_)
    np.testing.assert_allclose(classifier.decision_function(form(X)), other.decision_function(form(X)), atol=1e-4)


@FORMS
@pytest.mark.parametrize("stored", [True, False], ids=["examples stored", "examples not stored"])
def test_removed_classes_are_not_predicted(form: Any, stored: bool, clouds: Any, tmp_path: Path):
    X, y = clouds
    classifier = CMTClassifier(store_examples=stored, **FEW).fit(form(X), y)
    classifier.remove_classes([0, 3])
    classifier.check_invariants()
    assert not np.isin(classifier.predict(form(X)), [0, 3]).any()
    assert np.mean(classifier.predict(form(X[y == 5])) == 5) > 0.8
    classifier.save(tmp_path / "file")
    loaded = CMTClassifier.load(tmp_path / "file")
    np.testing.assert_array_equal(loaded.decision_function(form(X)), classifier.decision_function(form(X)))
    loaded.partial_fit(form(X[y == 3]), y[y == 3])
    loaded.check_invariants()
    assert np.mean(loaded.predict(form(X[y == 3])) == 3) > 0.8


@FORMS
def test_examples_keep_their_ids(form: Any, clouds: Any):
    X, y = clouds
    classifier = CMTClassifier(**FEW).fit(form(X), y)
    classifier.remove([5, 0, 30])
    left = np.delete(np.arange(48), [0, 5, 30])
    np.testing.assert_array_equal(classifier.kneighbors(form(X[left]), 1, return_distance=False)[:, 0], left)
    classifier.partial_fit(form(X[:1]), y[:1])
    assert classifier.kneighbors(form(X[:1]), 1, return_distance=False)[0, 0] == 48
    with pytest.raises(KeyError, match="no memory has id 30"):
        classifier.remove([31, 30])
    assert classifier.kneighbors(form(X[31:32]), 1, return_distance=False)[0, 0] == 31


def test_own_ids(clouds: Any):
    X, y = clouds
    own = np.arange(48) * 10 + 3
    classifier = CMTClassifier(method="neighbors", **FEW).fit(X, y, example_ids=own)
    np.testing.assert_array_equal(classifier.kneighbors(X, 1, return_distance=False)[:, 0], own)
    assert classifier.score(X, y) > 0.9
    with pytest.raises(ValueError, match="23 is already stored"):
        classifier.partial_fit(X[:2], y[:2], example_ids=[5, 23])
    classifier.remove(23).partial_fit(X[2:3], y[2:3], example_ids=[23])
    assert 23 in classifier.kneighbors(X[2:3], 1, return_distance=False)
    classifier.partial_fit(X[:1], y[:1])
    classifier.check_invariants()
    assert 474 in classifier.kneighbors(X[:1], 2, return_distance=False)  # the largest id plus 1


def test_strings_as_ids(clouds: Any, tmp_path: Path):
    X, y = clouds
    own = np.array([f"example {i}" for i in range(48)])
    classifier = CMTClassifier(method="neighbors", **FEW).fit(X[:40], y[:40], example_ids=own[:40])
    classifier.partial_fit(X[40:], y[40:], example_ids=own[40:].tolist())
    for change, error, reason in (
        (
            lambda: classifier.partial_fit(X[:1], y[:1], example_ids=["example 7"]),
            ValueError,
            "'example 7' is already stored",
        ),
        (lambda: classifier.partial_fit(X[:2], y[:2], example_ids=["a", "a"]), ValueError, "'a' occurs twice"),
        (lambda: classifier.partial_fit(X[:2], y[:2], example_ids=["a", 3]), TypeError, "of one type"),
        (lambda: classifier.partial_fit(X[:1], y[:1], example_ids=[""]), ValueError, "must not contain empty strings"),
        (lambda: classifier.partial_fit(X[:1], y[:1], example_ids=[99]), TypeError, "must be strings like the ids of"),
        (lambda: classifier.partial_fit(X[:1], y[:1]), ValueError, "must be given"),
        (lambda: classifier.remove([3]), TypeError, "must be strings"),
        (lambda: classifier.remove(["example 3", "x"]), KeyError, "no memory has id x"),
    ):
        with pytest.raises(error, match=reason):
            change()
    for _ in range(2):
        classifier.check_invariants()
        np.testing.assert_array_equal(classifier.kneighbors(X, 1, return_distance=False)[:, 0], own)
        assert classifier.explain(X[:1])[0].examples[0] == "example 0"
        classifier.save(tmp_path / "classifier.cmt")
        classifier = CMTClassifier.load(tmp_path / "classifier.cmt")
    classifier.remove(["example 2", "example 47"]).partial_fit(X[2:3], y[2:3], example_ids=["example 47"])
    classifier = pickle.loads(pickle.dumps(classifier))
    classifier.check_invariants()
    distances, ids = classifier.kneighbors(X[2:3], 60)
    assert ids[0, 0] == "example 47"
    assert (ids[0, 47:] == "").all()
    assert np.isinf(distances[0, 47:]).all()
    with pytest.raises(TypeError, match="must be integers like the ids of"):
        CMTClassifier(**FEW).fit(X, y).remove(["example 1"])


def test_removing_a_quarter_relearns_everything(clouds: Any):
    X, y = clouds
    kept = np.arange(48) % 6 < 4
    classifier = CMTClassifier(**FEW).fit(X, y).remove(np.flatnonzero(~kept))
    assert model_of(classifier).n_relearned == kept.sum()
    other = CMTClassifier(**FEW).fit(X[kept], y[kept])
    np.testing.assert_array_equal(classifier.predict(X), other.predict(X))


@pytest.mark.parametrize(
    ("change", "error", "reason"),
    [
        (lambda c: c.remove_classes([3, 99]), ValueError, "but 99 is not"),
        (lambda c: c.remove_classes(["3"]), TypeError, "labels must have labels of the same type as the known labels"),
        (lambda c: c.remove_classes(range(8)), ValueError, "must not include all classes"),
        (lambda c: c.remove([48]), KeyError, "no memory has id 48"),
        (lambda c: c.remove([1, 1]), ValueError, "must be distinct"),
        (lambda c: c.remove([0.5]), TypeError, "must be integers"),
        (lambda c: c.remove(range(48)), ValueError, "must not include all examples"),
        (lambda c: c.partial_fit(np.ones((2, 6)), [1, 1], example_ids=[100]), ValueError, "for each of the 2 rows"),
        (lambda c: c.partial_fit(np.ones((1, 6)), [1], example_ids=[-1]), ValueError, "must be between 0"),
        (lambda c: c.partial_fit(np.ones((2, 5)), [100, 101]), ValueError, "features"),
        (lambda c: c.partial_fit(np.ones((0, 6)), []), ValueError, "sample"),
        (lambda c: c.partial_fit(np.full((1, 6), np.nan), [100]), ValueError, "NaN"),
        (lambda c: c.partial_fit(np.full((1, 6), 1e300), [100]), ValueError, "float32"),
    ],
)
def test_bad_input_changes_nothing(change: Any, error: type[Exception], reason: str, clouds: Any):
    X, y = clouds
    classifier = CMTClassifier(**FEW).fit(X, y)
    before = classifier.decision_function(X)
    with pytest.raises(error, match=reason):
        change(classifier)
    classifier.check_invariants()
    np.testing.assert_array_equal(classifier.decision_function(X), before)
    assert classifier.classes_.size == 8


def test_nothing_to_forget(clouds: Any):
    X, y = clouds
    with pytest.raises(NotFittedError):
        CMTClassifier().remove([0])
    classifier = CMTClassifier(store_examples=False, **FEW).fit(X, y)
    with pytest.raises(ValueError, match="store_examples=True"):
        classifier.remove([0])
    with pytest.raises(ValueError, match="example_ids need stored examples"):
        classifier.partial_fit(X[:1], y[:1], example_ids=[7])
    assert classifier.remove_classes([]) is classifier


@needs_jit
@FORMS
def test_it_stays_valid_over_many_removals_and_additions(form: Any, rng: np.random.Generator, clouds: Any):
    X, y = clouds
    classifier = CMTClassifier(**FEW).fit(form(X), y)
    stored, next_id, sizes = dict(enumerate(y)), 48, []
    for step in range(120):
        rows = rng.choice(48, 2, replace=False)
        classifier.partial_fit(form(X[rows]), y[rows])
        stored |= {next_id: y[rows[0]], next_id + 1: y[rows[1]]}
        next_id += 2
        gone = rng.choice(list(stored), 2, replace=False)
        classifier.remove(gone)
        for example in gone:
            del stored[example]
        if step % 10 == 9:
            classifier.check_invariants()
            sizes.append(len(classifier.__getstate__()["_model"][1]["index.examples.keys.values"]))
        assert set(classifier.classes_) == set(stored.values())
    assert max(sizes[6:]) <= max(sizes[:6])
    assert classifier.score(form(X), y) > 0.7

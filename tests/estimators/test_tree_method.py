"""``CMTClassifier(method="tree")``: the paper's classifier, whose memories are examples."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import FORMS, needs_jit
from internals import forest_of
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

from cmt_numba import CMTClassifier, ContextualMemoryTree
from cmt_numba.persistence import FileFormatError
from cmt_numba.rewards import LabelEquality


def views(n: int, seed: int = 0, n_classes: int = 15) -> tuple[np.ndarray, np.ndarray]:
    """Return noisy rows of classes that are the same for every seed, and their names."""
    y = np.arange(n) % n_classes
    X = np.random.default_rng(7).normal(size=(n_classes, 20))[y]
    return X + 0.3 * np.random.default_rng(seed).normal(size=X.shape), np.array([f"class {i:02}" for i in y])


def new(**options: Any) -> CMTClassifier:
    return CMTClassifier(method="tree", tree=ContextualMemoryTree(**options), random_state=0)


@FORMS
def test_it_learns_like_a_tree_by_hand(form: Any):
    (X, y), (queries, answers) = views(60), views(60, seed=1)
    classifier = new(n_trees=2, leaf_multiplier=1.0).fit(form(X), y)
    seed = np.random.RandomState(0).randint(2**31)
    tree = ContextualMemoryTree(2, leaf_multiplier=1.0, random_state=seed)
    ids = tree.insert(form(X))
    how: dict[str, Any] = {"k": 10, "epsilon": 0.1, "key_learning_rate": 0.0}
    tree.learn(form(X), LabelEquality(y, y), own_ids=ids, n_passes=2, **how)
    np.testing.assert_array_equal(classifier.predict(form(queries)), y[tree.query(form(queries)).ids[:, 0]])
    more, of_more = views(8, seed=2)
    of_more[-1] = "a new class"
    classifier.partial_fit(form(more), of_more)
    tree.learn(form(more), LabelEquality(y, of_more), **how)
    tree.insert(form(more))
    known = np.concatenate([y, of_more])
    np.testing.assert_array_equal(classifier.predict(form(queries)), known[tree.query(form(queries)).ids[:, 0]])
    assert classifier.classes_.tolist() == sorted(set(known))
    assert classifier.score(form(queries), answers) > 0.8
    assert classifier.tree_.n_memories == 68
    classifier.check_invariants()


def test_the_options_are_those_of_the_given_tree():
    X, y = views(30)
    given = ContextualMemoryTree(3, alpha=0.7, n_threads=1)
    classifier = CMTClassifier(method="tree", tree=given, random_state=0)
    assert classifier.get_params()["tree"] is given
    twin = clone(classifier).fit(X, y)
    classifier.fit(X, y)
    assert given.n_memories == 0
    assert repr(classifier.tree_) == repr(twin.tree_) == repr(given).replace("with 0", "with 30")
    np.testing.assert_array_equal(twin.predict(X), classifier.predict(X))
    untaught = CMTClassifier(method="tree", n_head_passes=0, random_state=0).fit(X, y)
    by_default = ContextualMemoryTree()
    assert repr(untaught.tree_) == repr(by_default).replace("with 0", "with 30")


@FORMS
def test_files_pickles_and_folders(form: Any, tmp_path: Path):
    X, y = views(45)
    classifier = new(leaf_multiplier=2.0).fit(form(X), y)
    classifier.save(tmp_path / "file")
    folder = tmp_path / "folder"
    with CMTClassifier.open(folder, method="tree", tree=ContextualMemoryTree(2), random_state=3) as kept:
        kept.fit(form(X), y).partial_fit(form(X[:5]), y[:5]).remove_classes(["class 03"])
        expected = kept.decision_function(form(X))
    with CMTClassifier.open(folder) as again:
        np.testing.assert_array_equal(again.decision_function(form(X)), expected)
        assert again.tree_.n_memories == 50 - np.count_nonzero(np.concatenate([y, y[:5]]) == "class 03")
    copies = CMTClassifier.load(tmp_path / "file"), pickle.loads(pickle.dumps(classifier))
    for each in copies:
        each.check_invariants()
        np.testing.assert_array_equal(each.partial_fit(form(X[:9]), y[:9]).predict(form(X)), copies[0].predict(form(X)))
    again = clone(copies[0])
    assert forest_of(again.tree).options == forest_of(classifier.tree).options
    with pytest.raises(FileFormatError):
        ContextualMemoryTree.load(tmp_path / "file")


def test_forgetting():
    X, y = views(45)
    classifier = new().fit(X, y)
    classifier.remove([0, 15, 30])
    assert "class 00" not in classifier.classes_
    assert classifier.tree_.n_memories == 42
    classifier.remove([1])
    assert "class 01" in classifier.classes_
    classifier.remove_classes(["class 02"]).check_invariants()
    assert set(classifier.predict(X)) <= set(classifier.classes_) < set(y)
    with pytest.raises(KeyError):
        classifier.remove([0])
    with pytest.raises(ValueError, match="all examples would be removed"):
        classifier.remove(classifier.tree_.ids)
    assert classifier.tree_.n_memories == 38


def test_scores_and_neighbors():
    X, y = views(45)
    classifier = new().fit(X, y)
    scores = classifier.decision_function(X)
    assert scores.shape == (45, 15)
    np.testing.assert_array_equal(classifier.classes_[scores.argmax(axis=1)], classifier.predict(X))
    distances, ids = classifier.kneighbors(X, 3)
    assert np.mean(y[ids[:, 0]] == y) > 0.9
    assert (np.diff(distances, axis=1) >= 0.0).all()
    assert make_pipeline(StandardScaler(), clone(classifier)).fit(X, y).score(X, y) > 0.8


def test_what_does_not_apply_is_refused():
    X, y = views(30)
    classifier = new().fit(X, y)
    for name in ("predict_proba", "top_classes", "count_candidates", "calibrate", "explain"):
        assert not hasattr(classifier, name)
    arguments: list[dict[str, Any]] = [{"example_ids": np.arange(30)}, {"sample_weight": np.full(30, 0.5)}]
    for given in arguments:
        with pytest.raises(ValueError, match=f"{next(iter(given))} must be"):
            classifier.fit(X, y, **given)
    with pytest.raises(ValueError, match="class_weight must be"):
        clone(classifier).set_params(class_weight="balanced").fit(X, y)
    with pytest.raises(ValueError, match="max_examples must be"):
        clone(classifier).set_params(max_examples=9).fit(X, y)
    with pytest.raises(ValueError, match="tree needs method='tree'"):
        CMTClassifier(tree=ContextualMemoryTree()).fit(X, y)
    with pytest.raises(TypeError, match="tree must be a ContextualMemoryTree"):
        CMTClassifier(method="tree", tree=5).fit(X, y)
    with pytest.raises(ValueError, match="tree must be empty"):
        CMTClassifier(method="tree", tree=classifier.tree_).fit(X, y)
    linear = clone(classifier).set_params(method="head", tree=None).fit(X, y)
    for one, other in ((classifier, {"method": "head", "tree": None}), (linear, {"method": "tree"})):
        one.set_params(**other)
        for call in (lambda: one.predict(X), lambda: one.partial_fit(X, y), lambda: one.remove([1])):  # noqa: B023
            with pytest.raises(ValueError, match="call fit again"):
                call()
        assert one.fit(X, y).score(X, y) > 0.8
    weights = np.where(np.arange(30) < 15, 1.0, 0.0)
    assert new().fit(X, y, sample_weight=weights).tree_.n_memories == 15


@needs_jit
@pytest.mark.filterwarnings("ignore")
def test_it_conforms_to_scikit_learn():
    for twin, check in estimator_checks_generator(CMTClassifier(method="tree", random_state=0)):
        name = getattr(check, "func", check).__name__
        # Kernels take NumPy arrays only, and weights are refused.
        if name != "check_array_api_input" and "weight" not in name:
            check(twin)

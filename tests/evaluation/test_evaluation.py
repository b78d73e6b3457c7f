"""How estimators are evaluated, with estimators that are spied on and against plain loops over the trees' state."""

import gc
import json
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from conftest import needs_jit, text_like
from internals import evaluation_answers, evaluation_rivals, forest_room, state_of
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import SGDClassifier

from cmt_numba import CMTClassifier, CMTMultilabelClassifier, ContextualMemoryTree, metrics
from cmt_numba.evaluation import RIVALS, batch_evaluation, growing_batches, profile, progressive_validation

FEW = {"n_head_passes": 2}


class Rote(ClassifierMixin, BaseEstimator):
    """Knows the classes of rows by heart, says "?" of all others, and writes down what it is asked to do."""

    def __init__(self, random_state: Any = None) -> None:
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Any:
        self.known_, self.calls_ = {}, []
        return self.partial_fit(X, y)

    def partial_fit(self, X: Any, y: Any) -> Any:
        if not hasattr(self, "known_"):
            self.known_, self.calls_ = {}, []
        self.calls_.append(("learn", len(X)))
        self.known_.update(zip(map(tuple, X), y, strict=True))
        return self

    def predict(self, X: Any) -> np.ndarray:
        if not hasattr(self, "known_"):
            raise NotFittedError
        self.calls_.append(("predict", len(X)))
        return np.array([self.known_.get(tuple(row), "?") for row in X], dtype=object)


class Retriever(BaseEstimator):
    """Earns for each row a tenth of what it has been taught values for."""

    def partial_fit(self, X: Any, values: Any) -> Any:
        self.n_ = getattr(self, "n_", 0) + len(X)
        return self

    fit = partial_fit

    def reward(self, X: Any, values: Any) -> np.ndarray:
        if not hasattr(self, "n_"):
            raise NotFittedError
        return np.full(len(X), min(1.0, self.n_ / 10))


def objects(n: int, n_classes: int = 8, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return noisy views of random objects in random order, and which object each shows."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % n_classes)
    return np.random.default_rng(7).normal(size=(n_classes, 12))[y] + 0.3 * rng.normal(size=(n, 12)), y


# Batches


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.coo_array, pd.DataFrame, list])
def test_batches_are_a_small_share_of_what_came_before(form: Any):
    X, y = np.arange(1000.0).reshape(500, 2), np.arange(500)
    batches = list(growing_batches(form(X), y, share=0.1, max_rows=20))
    sizes = [len(part) for _, part in batches]
    seen = np.cumsum([0, *sizes[:-1]])
    np.testing.assert_array_equal(sizes[:-1], np.clip(0.1 * seen, 1, 20).astype(int)[:-1])
    np.testing.assert_array_equal(np.concatenate([part for _, part in batches]), y)
    rows = [part.toarray() if scipy.sparse.issparse(part) else np.asarray(part) for part, _ in batches]
    np.testing.assert_array_equal(np.concatenate(rows), X)


def test_batches_of_wrong_arguments():
    with pytest.raises(ValueError, match="y must have one entry for each of the 3 rows"):
        growing_batches(np.ones((3, 1)), [1, 2])
    with pytest.raises(ValueError, match="share must be between"):
        growing_batches(np.ones((3, 1)), [1, 2, 3], share=2.0)
    with pytest.raises(ValueError, match="max_rows must be between"):
        growing_batches(np.ones((3, 1)), [1, 2, 3], max_rows=0)


# Progressive validation


def test_every_batch_is_predicted_before_it_is_learned():
    X, y = np.array([[1], [2], [1], [3], [2], [1]]), np.array(list("ababba"), dtype=object)
    learner = Rote()
    result = progressive_validation(learner, [(X[:1], y[:1]), (X[1:3], y[1:3]), (X[3:6], y[3:6])])
    assert learner.calls_ == [("learn", 1), ("predict", 2), ("learn", 2), ("predict", 3), ("learn", 3)]
    # What comes again is known by then, all else is not: rows 2, 4 and 5 are right.
    assert result.metrics["error"] == pytest.approx(0.5)
    assert result.n_examples == 6
    assert result.task == "multiclass"
    assert result.metrics["constant_accuracy"] == pytest.approx(0.5)
    assert result.metrics["entropy_reduction"] == pytest.approx(0.0)
    # Of the second batch one is "a", which alone had come; then "a" was the more frequent: "bba" has one.
    assert result.metrics["majority_accuracy"] == pytest.approx(2 / 6)
    assert result.by_shots["n_shots"] == [0, 1, 2]
    assert result.by_shots["n_examples"] == [2, 3, 1]
    assert result.by_shots["error"] == pytest.approx([1.0, 1 / 3, 0.0])


def test_shots_are_examples_learned_before():
    X = np.arange(8)[:, None]
    y = np.array([0, 0, 1, 0, 1, 1, 2, 0])
    result = progressive_validation(Rote(), [(X[:3], y[:3]), (X[3:], y[3:])])
    # Learned before the second batch: two of class 0, one of class 1, none of class 2.
    assert result.by_shots == {"n_shots": [0, 1, 2], "error": [1.0, 1.0, 1.0], "n_examples": [4, 2, 2]}


def test_no_more_than_a_batch_is_held():
    X, y = objects(60)
    held: list[weakref.ref[Any]] = []

    def batches() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for first in range(0, 60, 6):
            gc.collect()
            assert all(reference() is None for reference in held)
            part = X[first : first + 6].copy()
            held.append(weakref.ref(part))
            yield part, y[first : first + 6]
            del part

    learner = SGDClassifier(random_state=0)
    assert progressive_validation(learner, batches(), classes=np.arange(8)).n_examples == 60
    assert len(held) == 10


def test_curves_agree_with_totals():
    X, y = objects(400)
    points = []
    learner = SGDClassifier(loss="log_loss", random_state=0)
    result = progressive_validation(learner, growing_batches(X, y), classes=np.arange(8), callback=points.append)
    curve, n = result.curve, np.array(result.curve["n_examples"])
    assert n[-1] == result.n_examples == 400
    assert 30 <= n.size <= 60
    for name, value in result.metrics.items():
        assert curve[name][-1] == value
        assert len(curve[name]) == len(curve[f"{name}_recent"]) == n.size
    n_wrong = np.cumsum(np.diff(n, prepend=0) * curve["error_recent"])
    np.testing.assert_allclose(n_wrong / n, curve["error"])
    shots = result.by_shots
    assert sum(shots["n_examples"]) == 400
    assert np.dot(shots["n_examples"], shots["error"]) == pytest.approx(400 * result.metrics["error"])
    assert points == [{name: curve[name][i] for name in points[0]} for i in range(n.size)]


@needs_jit
def test_our_classifier_learns_online_as_well_as_at_once():
    X, y = objects(600, 30)
    learner = CMTClassifier(random_state=0, store_examples=False)
    result = progressive_validation(learner, growing_batches(X, y), n_rows=600, progress=True)
    at_once = CMTClassifier(random_state=0).fit(X, y)
    queries, answers = objects(300, 30, seed=1)
    assert learner.score(queries, answers) >= at_once.score(queries, answers) - 0.02
    assert result.by_shots["error"][0] == 1.0
    assert result.by_shots["error"][5] < 0.2
    assert result.metrics["entropy_reduction"] > 4.0
    assert result.us_per_query > 0.0
    text = json.dumps(result.as_dict(), allow_nan=False)
    assert json.loads(text)["curve"]["entropy_reduction"][0] is None  # no answer was right


def test_labels_online():
    rng = np.random.default_rng(0)
    Y = scipy.sparse.csr_array(rng.random((80, 6)) < 0.3)
    X = scipy.sparse.csr_array(Y @ np.abs(rng.normal(size=(6, 15))))
    batches = [(X[i : i + 8], Y[i : i + 8, : 3 + i // 20]) for i in range(0, 80, 8)]  # columns come later
    learner, twin = (CMTMultilabelClassifier(random_state=0, **FEW) for _ in range(2))
    result = progressive_validation(learner, batches)
    n_wrong, n_first, common, either = 0.0, 0, 0, 0
    for i, (rows, truth) in enumerate(batches):
        has = truth.toarray()
        said, best = np.zeros_like(has), np.full(8, -1)
        if i > 0:
            known = twin.predict(rows).toarray()
            said[:, : known.shape[1]] = known
            best = twin.top_labels(rows, 1)[0][:, 0]
        n_wrong += (has != said).sum()
        n_first += sum(label >= 0 and has[row, label] for row, label in enumerate(best))
        common, either = common + (has & said).sum(), either + has.sum() + said.sum()
        twin.partial_fit(rows, truth)
    assert result.task == "multilabel"
    assert result.metrics["hamming"] == pytest.approx(n_wrong / 80)
    assert result.metrics["precision@1"] == pytest.approx(n_first / 80)
    assert result.metrics["f1"] == pytest.approx(2 * common / either)
    assert set(result.curve) >= {"ndcg@5", "ndcg@5_recent", "f1_samples"}
    assert result.by_shots == {}


def test_rewards_online():
    X = np.ones((20, 1))
    result = progressive_validation(Retriever(), [(X[i : i + 5], X[i : i + 5]) for i in range(0, 20, 5)])
    assert result.task == "retrieval"
    assert result.metrics == {"reward": pytest.approx((0 + 0.5 + 1 + 1) / 4)}


def test_invalid_arguments_of_validation():
    X, y = objects(10)
    with pytest.raises(TypeError, match="estimator must have a partial_fit method"):
        progressive_validation(object(), [(X, y)])
    with pytest.raises(ValueError, match="batches must contain at least one batch"):
        progressive_validation(Rote(), [])
    with pytest.raises(ValueError, match="batches must have at least one row"):
        progressive_validation(Rote(), [(X[:0], y[:0])])


# Batch evaluation


def test_seeds_hold_out_other_examples():
    X, y = np.arange(40)[:, None], np.arange(40) % 4
    asked: list[set[int]] = []

    class Spy(Rote):
        def predict(self, X: Any) -> np.ndarray:
            assert not {tuple(row) for row in X} & set(self.known_)
            if len(X) > 1:  # a single row is no question yet
                asked.append({int(row[0]) for row in X})
                assert len(self.known_) == 30
            return super().predict(X)

    result = batch_evaluation(Spy(), X, y, holdout=0.25, seeds=(3, 4))
    assert (result.n_train, result.n_test) == (30, 10)
    assert len(asked) == 2
    assert asked[0] != asked[1]
    assert result.metrics["error"] == (1.0, 0.0)
    assert result.metrics["entropy_reduction"][0] == -np.inf


def test_folds_hold_out_every_example_once_for_each_seed():
    X, y = np.arange(40)[:, None], np.arange(40) % 4
    asked: list[int] = []

    class Spy(Rote):
        def predict(self, X: Any) -> np.ndarray:
            assert not {tuple(row) for row in X} & set(self.known_)
            asked.extend(int(row[0]) for row in X if len(X) > 1)
            return super().predict(X)

    result = batch_evaluation(Spy(), X, y, folds=4, seeds=(3, 4))
    assert (result.n_train, result.n_test, len(result.per_seed)) == (30, 10, 8)
    assert sorted(asked) == sorted([*range(40), *range(40)])
    assert set(asked[:10]) not in [set(asked[first : first + 10]) for first in range(40, 80, 10)]


def test_batch_evaluation_gives_the_same_again():
    X, y = objects(160)
    learner = CMTClassifier(random_state=9, **FEW)
    first, second = (batch_evaluation(learner, X, y, seeds=(0, 1)) for _ in range(2))
    assert first.per_seed == second.per_seed
    assert first.metrics == second.metrics
    assert not hasattr(learner, "classes_")
    errors = [one["error"] for one in first.per_seed]
    assert first.metrics["error"] == (pytest.approx(np.mean(errors)), pytest.approx(np.std(errors)))
    json.dumps(first.as_dict(), allow_nan=False)


def test_examples_to_test_on():
    X, y = objects(80)
    queries, answers = objects(40, seed=1)
    result = batch_evaluation(CMTClassifier(**FEW), X, y, queries, answers, seeds=(5,))
    alone = CMTClassifier(random_state=5, **FEW).fit(X, y)
    assert result.metrics["accuracy"] == (alone.score(queries, answers), 0.0)
    assert result.metrics["entropy_reduction"][0] == pytest.approx(np.log2(result.metrics["accuracy"][0] / 0.125))


def test_labels_held_out():
    rng = np.random.default_rng(0)
    Y = scipy.sparse.csr_array(rng.random((60, 6)) < 0.3)
    X = Y @ np.abs(rng.normal(size=(6, 15)))
    result = batch_evaluation(CMTMultilabelClassifier(**FEW), X[:40], Y[:40], X[40:], Y[40:], seeds=(1,))
    alone = CMTMultilabelClassifier(random_state=1, **FEW).fit(X[:40], Y[:40])
    best = alone.top_labels(X[40:], 5)[0]
    worth = metrics.inverse_propensities(Y[:40])
    assert result.metrics["hamming"][0] == metrics.hamming(Y[40:], alone.predict(X[40:]))
    assert result.metrics["psp@3"][0] == metrics.precision_at(Y[40:], best, 3, inverse_propensities=worth)


def test_rewards_of_a_batch():
    X = np.ones((10, 1))
    assert batch_evaluation(Retriever(), X, X, X, X, seeds=(0,)).metrics == {"reward": (1.0, 0.0)}


def test_invalid_arguments_of_evaluation():
    X, y = objects(10)
    for options, message in (
        ({"seeds": ()}, "seeds must contain"),
        ({"holdout": 0.0}, "holdout must be above"),
        ({"holdout": 0.95}, "holdout=0.95 of 10 examples leaves none for training"),
        ({"X_test": X}, "X_test and y_test must both be given"),
        ({"folds": 1}, "folds must be"),
        ({"folds": 11}, "at most the number of examples, 10"),
        ({"folds": 2, "X_test": X, "y_test": y}, "folds and X_test cannot be combined"),
    ):
        with pytest.raises(ValueError, match=message):
            batch_evaluation(Rote(), X, y, **options)


# Trees


@pytest.fixture(scope="module", params=["dense", "sparse"])
def stored(request: Any) -> tuple[ContextualMemoryTree, Any, np.ndarray]:
    keys = np.random.default_rng(0).normal(size=(120, 6)) if request.param == "dense" else text_like(120, 90, 9, seed=0)
    tree = ContextualMemoryTree(2, leaf_multiplier=1.0, random_state=0)
    ids = tree.insert(keys)
    gone = ids % 5 == 0
    tree.remove(ids[gone])
    return tree, keys[~gone], ids[~gone]


def leaves_by_hand(tree: ContextualMemoryTree) -> list[tuple[int, int, int]]:
    """Return the tree, depth and size of all leaves by descending to each."""
    state, result = state_of(tree), []
    assert state is not None

    def descend(t: int, place: int, depth: int) -> None:
        if place < 0:
            result.append((t, depth, int(state.leaves[t, ~place]["size"])))
        else:
            for child in state.nodes[t, place]["child"]:
                descend(t, int(child), depth + 1)

    for t in range(state.parameters.n_trees):
        descend(t, int(state.counters[t, forest_room.state.ROOT]), 0)
    return result


def test_leaves_and_profile(stored: Any):
    tree, _, _ = stored
    by_hand = leaves_by_hand(tree)
    leaves = tree.leaves()
    assert all(column.dtype == np.int64 for column in leaves)
    assert sorted(zip(*(column.tolist() for column in leaves), strict=True)) == sorted(by_hand)
    shape = profile(tree)
    assert (shape.n_memories, shape.n_trees, shape.depth, shape.nbytes) == (96, 2, tree.depth, tree.nbytes)
    for counts, column in ((shape.leaf_depths, 1), (shape.leaf_sizes, 2)):
        values = [leaf[column] for leaf in by_hand]
        assert counts.tolist() == [values.count(value) for value in range(max(values) + 1)]
    balances = []
    for t in range(2):
        depths = [depth for number, depth, _ in by_hand if number == t]
        balances.append(np.log2(len(depths)) / np.mean(depths))
        assert sum(size for number, _, size in by_hand if number == t) == state_of(tree).counters[t, forest_room.COUNT]
    assert shape.balance == pytest.approx(np.mean(balances))
    assert 0.0 < shape.balance <= 1.0
    assert json.loads(json.dumps(shape.as_dict()))["leaf_sizes"] == shape.leaf_sizes.tolist()


def test_profile_of_an_empty_tree():
    shape = profile(ContextualMemoryTree(3))
    assert (shape.n_memories, shape.n_trees, shape.depth, shape.balance) == (0, 3, 0, 1.0)
    assert shape.leaf_sizes.tolist() == [3]
    with pytest.raises(TypeError, match="tree must be a ContextualMemoryTree"):
        profile(CMTClassifier())


def topics(n: int, seed: int) -> tuple[np.ndarray, list[str], list[str]]:
    """Return counts of words, the texts that have them, and their classes: three words tell each of four topics."""
    words = [f"word{i}" for i in range(30)]
    rng = np.random.default_rng(seed)
    of_row = rng.integers(4, size=n)
    chosen = np.concatenate([3 * of_row[:, None] + rng.integers(3, size=(n, 2)), rng.integers(12, 30, (n, 2))], axis=1)
    X = np.array([np.bincount(row, minlength=30) for row in chosen], np.float32)
    return X, [" ".join(words[i] for i in row) for row in chosen], [f"topic {i}" for i in of_row]


class Majority(ClassifierMixin, BaseEstimator):
    """Says the most frequent class, and is as sure of it as it should be."""

    def fit(self, X: Any, y: Any) -> Any:
        self.classes_, counts = np.unique(y, return_counts=True)
        self.shares_ = counts / counts.sum()
        return self

    def predict(self, X: Any) -> np.ndarray:
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

    def predict_proba(self, X: Any) -> np.ndarray:
        return np.tile(self.shares_, (X.shape[0], 1))


class NoLabels(BaseEstimator):
    """Predicts no labels."""

    def fit(self, X: Any, Y: Any) -> Any:
        self.width_ = Y.shape[1]
        return self

    def predict(self, X: Any) -> Any:
        return scipy.sparse.csr_array((X.shape[0], self.width_), dtype=np.int64)


def with_long_indices(X: np.ndarray) -> Any:
    rows = scipy.sparse.csr_array(X)
    rows.indices, rows.indptr = rows.indices.astype(np.int64), rows.indptr.astype(np.int64)
    return rows


@pytest.mark.parametrize("form", [np.asarray, with_long_indices, pd.DataFrame])
def test_rivals_of_classes(form: Any):
    (X, texts, y), (asked, texts_asked, wanted) = topics(300, 0), topics(100, 1)
    beside = {"rivals": RIVALS, "texts": texts, "texts_test": texts_asked, "details": True}
    result = batch_evaluation(Majority(), form(X), y, form(asked), wanted, seeds=(0,), **beside)
    found = {one.name: one for one in result.rivals}
    assert list(found) == ["estimator", *RIVALS]
    assert found["estimator"].value == found["majority"].value == result.metrics["error"][0] > 0.6
    assert all(found[name].value < 0.3 for name in ("exact", "means", "linear", "bm25"))
    assert found["linear"].value == 0.0
    assert all(one.us_per_query > 0 and one.note == "" for one in result.rivals)
    # The other classes are all taken for the most frequent one.
    assert [one.predicted for one in result.confused] == [result.confused[0].predicted] * 3
    assert sum(one.n for one in result.confused) == round(100 * result.metrics["error"][0])
    assert all(set(one.examples) <= set(texts_asked) for one in result.confused)
    (probability,), (accuracy,) = result.calibration["probability"], result.calibration["accuracy"]
    assert abs(probability - accuracy) == pytest.approx(evaluation_answers.calibration_error(result.calibration))
    assert accuracy == pytest.approx(result.metrics["accuracy"][0])
    json.dumps(result.as_dict())


def test_rivals_of_many_examples(monkeypatch):
    (X, texts, y), (asked, texts_asked, wanted) = topics(200, 0), topics(150, 1)
    for limit in ("_PRODUCTS", "_LINEAR_WORK"):
        monkeypatch.setattr(f"cmt_numba.evaluation._rivals.{limit}", 1)
    split = evaluation_rivals.Split(X, asked, y, wanted, texts, texts_asked)
    exact, linear = (evaluation_rivals.measure_rival(name, "multiclass", split, 0) for name in ("exact", "linear"))
    assert exact.value < 0.3
    assert exact.note == "on 100 of the held-out examples"
    assert linear.value is None
    assert linear.note == "skipped: 6,000 values and 4 labels would take minutes"
    letters = np.array(["a", ""], object)
    skipped = evaluation_rivals.measure_rival(
        "exact", "multiclass", evaluation_rivals.Split(letters, letters, np.arange(2), np.arange(2)), 0
    )
    assert skipped.note == "skipped: the texts have no words of at least two letters"


def test_confused_rows_are_named_by_their_positions():
    X, _, y = topics(400, 0)
    result = batch_evaluation(Majority(), X, y, holdout=0.5, seeds=(0, 1), rivals=["means"], details=True)
    assert len(result.confused) == 3
    assert all(y[row] == one.label for one in result.confused for row in one.examples)


def test_rivals_of_labels():
    X, _, y = topics(200, 0)
    Y = scipy.sparse.csr_array(np.array(y)[:, None] == np.array([*np.unique(y), "never"])).astype(np.int64)
    names = ["majority", "exact", "means", "linear"]
    result = batch_evaluation(NoLabels(), X, Y, seeds=(0,), rivals=names, details=True)
    found = {one.name: one for one in result.rivals}
    assert found["majority"].value == found["estimator"].value == result.metrics["hamming"][0]
    assert max(found["linear"].value, found["exact"].value) < 0.1 * found["majority"].value
    assert "one class for each" in found["means"].note
    assert result.confused == []


def test_invalid_rivals():
    X, texts, y = topics(20, 0)
    for options, message in (
        ({"rivals": ["oracle"]}, "majority, exact, means, linear, bm25, got 'oracle'"),
        ({"rivals": ["bm25"]}, "needs texts"),
        ({"texts": texts[:3]}, "one entry for each of the 20 rows, got 3"),
        ({"texts_test": texts}, "texts_test must be"),
    ):
        with pytest.raises(ValueError, match=message):
            batch_evaluation(Majority(), X, y, seeds=(0,), **options)
    with pytest.raises(TypeError, match="sequence of names"):
        batch_evaluation(Majority(), X, y, rivals="exact")
    with pytest.raises(ValueError, match="not supported for retrieval"):
        evaluation_rivals.check_rivals(["exact"], "retrieval", None)

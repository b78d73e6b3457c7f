"""Learning from rewards in passes, the rewards themselves, and the choice of options."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse
from conftest import needs_jit
from sklearn.metrics import f1_score
from sklearn.neighbors import KNeighborsClassifier

from cmt_numba import CMTClassifier, ContextualMemoryTree, tune
from cmt_numba._forest.hits import no_hits, rewarded_memories, without_own
from cmt_numba.rewards import LabelEquality, LabelF1, ValueCosine

FORMS = pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array], ids=["dense", "sparse"])
NONE = -1


def noisy_views(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of which the second half of the features says nothing of the label, and is louder."""
    labels = np.arange(n) % 20
    objects = np.random.default_rng(5).normal(size=(20, 15))
    return np.hstack([objects[labels] + 0.3 * rng.normal(size=(n, 15)), 1.5 * rng.normal(size=(n, 15))]), labels


# Rewards


def test_label_equality():
    reward = LabelEquality(np.array(["a", "b", "a"]), np.array(["a", "b"]))
    ids = np.array([[2, 1, NONE], [0, NONE, 1]])
    np.testing.assert_array_equal(reward(np.array([0, 1]), ids), [[1, 0, 0], [0, 0, 1]])


@FORMS
def test_label_f1(form: Any, rng: np.random.Generator):
    of_memories, of_rows = rng.random((6, 8)) < 0.4, rng.random((4, 8)) < 0.4
    of_memories[0], of_rows[0] = False, False
    rows, ids = np.array([3, 0, 1]), rng.integers(-1, 6, (3, 5))
    rewards = LabelF1(form(of_memories.astype(float)), form(of_rows.astype(float)))(rows, ids)
    for i, row in enumerate(rows):
        for j, memory in enumerate(ids[i]):
            expected = f1_score(of_rows[row], of_memories[memory], zero_division=1.0) if memory != NONE else 0.0
            assert rewards[i, j] == pytest.approx(expected)


@FORMS
def test_value_cosine(form: Any, rng: np.random.Generator):
    of_memories, of_rows = rng.normal(size=(6, 4)), rng.normal(size=(4, 4))
    rows, ids = np.array([3, 0, 1]), rng.integers(-1, 6, (3, 5))
    rewards = ValueCosine(form(of_memories), form(of_rows))(rows, ids)
    for i, row in enumerate(rows):
        for j, memory in enumerate(ids[i]):
            a, b = of_rows[row], of_memories[memory]
            expected = max(0.0, a @ b / np.linalg.norm(a) / np.linalg.norm(b)) if memory != NONE else 0.0
            assert rewards[i, j] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LabelEquality([[1]], [1]), "must have one dimension"),
        (
            lambda: LabelF1(np.eye(3), np.eye(2)),
            "of_memories and of_rows must have the same number of columns, not 3 and 2",
        ),
        (lambda: ValueCosine(np.eye(3), np.full((3, 3), np.nan)), "of_rows must be finite"),
        (lambda: ValueCosine(np.eye(3)[0], np.eye(3)), "of_memories must have two dimensions"),
        (lambda: LabelEquality([1], [1])(np.array([0]), np.array([[1]])), "of_memories must have an entry"),
        (lambda: LabelF1(np.eye(2), np.eye(2))(np.array([2]), np.array([[1]])), "of_rows must have an entry for row 2"),
    ],
)
def test_wrong_rewards_are_refused(make: Any, message: str):
    with pytest.raises(ValueError, match=message):
        make()


# Passes


@needs_jit
@FORMS
@pytest.mark.parametrize("loss", ["ranking", "mira"])
def test_passes_make_the_first_memory_better(form: Any, loss: str, rng: np.random.Generator):
    X, labels = noisy_views(rng, 800)
    queries, answers = noisy_views(rng, 400)
    tree = ContextualMemoryTree(4, scorer_loss=loss, random_state=0)
    ids = tree.insert(form(X))

    def errors() -> float:
        return float(np.mean(labels[tree.query(form(queries), n_probes=16).ids[:, 0]] != answers))

    before = errors()
    rewards = [
        tree.learn(form(X), LabelEquality(labels, labels), own_ids=ids, n_probes=16, epsilon=0.1) for _ in range(4)
    ]
    assert errors() < before - 0.05
    assert rewards[-1] > rewards[0]
    tree.check_invariants()


def test_learning_is_querying_rewarding_and_updating(rng: np.random.Generator):
    """A pass over rows of a single block does what its steps do one by one."""
    X, labels = noisy_views(rng, 60)
    one, other = (ContextualMemoryTree(2, random_state=0) for _ in range(2))
    one.insert(X), other.insert(X)
    mean = one.learn(X, LabelEquality(labels, labels), k=5, epsilon=0.3)
    order = other._new_generator().permutation(60)
    hits = other.query(X[order], 5, n_probes=8, epsilon=0.3)
    rewards = labels[hits.ids] == labels[order][:, None]
    other.update(X[order], hits, rewards)
    taught, best = rewarded_memories(hits, np.full(60, NONE), rewards.astype(np.float32))
    other.teach(X[order][taught], best)
    assert mean == pytest.approx(rewards[:, 0].mean())
    np.testing.assert_array_equal(one.query(X, 5).ids, other.query(X, 5).ids)
    np.testing.assert_allclose(one.query(X, 5).scores, other.query(X, 5).scores, rtol=1e-6)


def test_rows_do_not_find_themselves(rng: np.random.Generator):
    X = rng.normal(size=(30, 4))
    tree = ContextualMemoryTree(random_state=0)
    ids = tree.insert(X)
    asked = []

    def reward(rows: np.ndarray, found: np.ndarray) -> np.ndarray:
        assert found.shape == (30, 3)
        assert not (found == ids[rows][:, None]).any()
        asked.append(np.sort(rows))
        return np.zeros(found.shape)

    assert tree.learn(X, reward, own_ids=ids, k=3, n_passes=2) == 0.0
    np.testing.assert_array_equal(asked, [np.arange(30)] * 2)


def test_own_memories_are_left_out():
    hits = no_hits(3, 3)
    hits.ids[:] = [[5, 6, 7], [5, 6, -1], [5, 6, 7]]
    hits.scores[:] = [[3, 2, 1], [3, 2, -np.inf], [3, 2, 1]]
    left = without_own(hits, np.array([6, 5, -1]), 2)
    np.testing.assert_array_equal(left.ids, [[5, 7], [6, -1], [5, 6]])
    np.testing.assert_array_equal(left.scores, [[3, 1], [2, -np.inf], [3, 2]])


def test_wrong_arguments_of_learn_are_refused(rng: np.random.Generator):
    X = rng.normal(size=(10, 3))
    tree = ContextualMemoryTree(random_state=0)
    assert tree.learn(X, LabelEquality([], np.zeros(10))) == 0.0  # nothing stored, nothing found
    tree.insert(X)
    good = LabelEquality(np.zeros(10), np.zeros(10))
    for wrong, message in (
        ({"own_ids": [1]}, "ids must be one for each"),
        ({"n_passes": 0}, "n_passes must be between"),
        ({"epsilon": 2.0}, "epsilon must be between"),
        ({"k": 0}, "k must be between"),
    ):
        with pytest.raises(ValueError, match=message):
            tree.learn(X, good, **wrong)
    with pytest.raises(ValueError, match="rewards must lie in"):
        tree.learn(X, lambda rows, ids: np.full(ids.shape, 2.0))
    with pytest.raises(ValueError, match="rewards must have shape"):
        tree.learn(X, lambda rows, ids: np.zeros((1, 1, 1)))


# Tuning


def test_the_best_options_are_found(rng: np.random.Generator):
    X, labels = noisy_views(rng, 100)
    found = tune(
        CMTClassifier(2, n_head_passes=2, random_state=0), X, labels, {"n_head_passes": [0, 2]}, random_state=0
    )
    assert found.params == found.scores[0][0]
    assert [score for _, score in found.scores] == sorted((score for _, score in found.scores), reverse=True)
    assert {params["n_head_passes"] for params, _ in found.scores} == {0, 2}
    assert found.best.get_params()["n_head_passes"] == found.params["n_head_passes"]
    assert len(found.best.examples_.label_of) >= 100


def test_one_example_of_a_class_is_held_out_and_only_of_those_with_more():
    X, y = np.arange(12.0).reshape(6, 2) + 1, np.array(["a", "a", "b", "b", "b", "c"])
    kept = []

    class Watching(KNeighborsClassifier):
        def fit(self, X: Any, y: Any) -> Any:
            kept.append(sorted(y))
            return super().fit(X, y)

    tune(Watching(1), X, y, {"n_neighbors": [1]}, random_state=0)
    assert kept == [["a", "b", "b", "c"], sorted(y)]
    with pytest.raises(ValueError, match="y must hold a class of two or more examples"):
        tune(CMTClassifier(), X[4:], y[4:])


def test_routers_learn_the_way_to_the_first_of_the_best():
    hits = no_hits(6, 3)
    hits.ids[:] = [[7, 3, 5], [7, 3, NONE], [4, NONE, NONE], [NONE] * 3, [8, 9, 1], [2, 6, 8]]
    rewards = np.array([[1, 1, 0], [0.6, 1, 0], [0.4, 1, 1], [1, 1, 1], [1, 1, 0], [0, 1, 0.9]], np.float32)
    rows, best = rewarded_memories(hits, np.array([NONE, NONE, NONE, NONE, 4, 9]), rewards)
    assert rows.tolist() == [0, 1, 4, 5]  # the others were worth less, or there was nothing
    assert best.tolist() == [3, 3, 4, 6]


@needs_jit
def test_rewards_alone_lead_to_memories(rng: np.random.Generator):
    n_classes = 60
    centres = rng.normal(size=(n_classes, 20))
    y = np.repeat(np.arange(n_classes), 8)
    X = centres[y] + 0.9 * rng.normal(size=(y.size, 20))
    answers = np.repeat(np.arange(n_classes), 10)
    queries = centres[answers] + 0.9 * rng.normal(size=(answers.size, 20))
    tree = ContextualMemoryTree(leaf_multiplier=2.0, random_state=0)
    ids = tree.insert(X)
    before = np.mean(y[tree.query(queries).ids[:, 0]] != answers)
    tree.learn(X, LabelEquality(y, y), own_ids=ids, n_passes=5)
    tree.check_invariants()
    assert np.mean(y[tree.query(queries).ids[:, 0]] != answers) < 0.9 * before

"""Learning from rewards in passes, and the rewards themselves."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse
from conftest import FORMS, needs_jit
from failures import failing
from internals import forest_of, kernels_room, state_of
from sklearn.datasets import load_digits
from sklearn.metrics import f1_score

from cmt_numba import ContextualMemoryTree
from cmt_numba.rewards import LabelEquality, LabelF1, ValueCosine

NONE = -1


def noisy_views(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows whose second half of the features is larger and independent of the label."""
    labels = np.arange(n) % 20
    objects = np.random.default_rng(5).normal(size=(20, 15))
    return np.hstack([objects[labels] + 0.3 * rng.normal(size=(n, 15)), 1.5 * rng.normal(size=(n, 15))]), labels


# Rewards


def test_label_equality():
    reward = LabelEquality(np.array(["a", "b", "a"]), np.array(["a", "b"]))
    ids = np.array([[2, 1, NONE], [0, NONE, 1]])
    np.testing.assert_array_equal(reward(np.array([0, 1]), ids), [[1, 0, 0], [0, 0, 1]])


def test_texts_are_compared_whole():
    reward = LabelEquality(["a\0", "a"], ["a", "a\0"])
    np.testing.assert_array_equal(reward(np.array([0, 1]), np.array([[0, 1], [0, 1]])), [[0, 1], [1, 0]])


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
        (lambda: LabelEquality([[1]], [1]), "must be one-dimensional"),
        (
            lambda: LabelF1(np.eye(3), np.eye(2)),
            "of_memories and of_rows must have the same number of columns, got 3 and 2",
        ),
        (lambda: ValueCosine(np.eye(3), np.full((3, 3), np.nan)), "of_rows must be finite"),
        (lambda: ValueCosine(np.eye(3)[0], np.eye(3)), "of_memories must have two dimensions"),
        (lambda: LabelEquality([1], [1])(np.array([0]), np.array([[1]])), "of_memories must have an entry"),
        (lambda: LabelEquality([1], [1])(np.array([0]), np.array([[-2]])), "ids must be ids of memories, or -1"),
        (lambda: LabelEquality([1], [1])(np.array([-1]), np.array([[0]])), "rows must not be negative"),
        (lambda: LabelF1(np.eye(2), np.eye(2))(np.array([2]), np.array([[1]])), "of_rows must have an entry for row 2"),
    ],
)
def test_wrong_rewards_are_refused(make: Any, message: str):
    with pytest.raises(ValueError, match=message):
        make()


# Passes


@needs_jit
@FORMS
@pytest.mark.parametrize("loss", ["contrast", "regression"])
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
    """A pass equals its steps one by one, if too few memories are in groups for a rebuild."""
    X, labels = noisy_views(rng, 60)
    labels = np.where(rng.permutation(60) < 15, 1, 0)  # the other group has more than half of the memories
    one, other = (ContextualMemoryTree(2, random_state=0) for _ in range(2))
    ids, _ = (tree.insert(X) for tree in (one, other))
    mean = one.learn(X, LabelEquality(labels, labels), own_ids=ids, k=5, epsilon=0.3)
    order = np.random.Generator(np.random.PCG64(forest_of(other).draw_word())).permutation(60)
    first_rewards = []
    for block in (order[8:], order[:8]):
        hits = kernels_room.without_own(other.query(X[block], 6, n_probes=8, epsilon=0.3), block, 5)
        rewards = labels[hits.ids] == labels[block][:, None]
        other.update(X[block], hits, rewards, key_learning_rate=0.3)
        taught, best = kernels_room.rewarded_memories(hits, block, rewards.astype(np.float32))
        other.teach(X[block][taught], best)
        first_rewards.append(rewards[:, 0])
    assert mean == pytest.approx(np.concatenate(first_rewards).mean())
    np.testing.assert_array_equal(one.query(X, 5).ids, other.query(X, 5).ids)
    np.testing.assert_allclose(one.query(X, 5).scores, other.query(X, 5).scores, rtol=1e-6)


def test_rows_do_not_find_themselves(rng: np.random.Generator):
    X = rng.normal(size=(30, 4))
    tree = ContextualMemoryTree(random_state=0)
    ids = tree.insert(X)
    asked = []

    def reward(rows: np.ndarray, found: np.ndarray) -> np.ndarray:
        assert found.shape == (rows.size, 3)
        assert not (found == ids[rows][:, None]).any()
        asked.extend(rows)
        return np.zeros(found.shape)

    assert tree.learn(X, reward, own_ids=ids, k=3, n_passes=2) == 0.0
    np.testing.assert_array_equal(np.sort(np.reshape(asked, (2, 30))), [np.arange(30)] * 2)


def test_own_memories_are_left_out():
    hits = kernels_room.no_hits(3, 3)
    hits.ids[:] = [[5, 6, 7], [5, 6, -1], [5, 6, 7]]
    hits.scores[:] = [[3, 2, 1], [3, 2, -np.inf], [3, 2, 1]]
    left = kernels_room.without_own(hits, np.array([6, 5, -1]), 2)
    np.testing.assert_array_equal(left.ids, [[5, 7], [6, -1], [5, 6]])
    np.testing.assert_array_equal(left.scores, [[3, 1], [2, -np.inf], [3, 2]])


def test_routers_learn_the_path_to_the_best_memory():
    hits = kernels_room.no_hits(6, 3)
    hits.ids[:] = [[7, 3, 5], [7, 3, NONE], [4, NONE, NONE], [NONE] * 3, [8, 9, 1], [2, 6, 8]]
    rewards = np.array([[1, 1, 0], [0.6, 1, 0], [0.4, 1, 1], [1, 1, 1], [1, 1, 0], [0, 1, 0.9]], np.float32)
    rows, best = kernels_room.rewarded_memories(hits, np.array([NONE, NONE, NONE, NONE, 4, 9]), rewards)
    assert rows.tolist() == [0, 1, 4, 5]  # the others had lower rewards, or found nothing
    assert best.tolist() == [3, 3, 4, 6]


# Rebuilding trees


def in_groups(form: Any, n_trees: int = 1, **options: Any) -> tuple[ContextualMemoryTree, np.ndarray, np.ndarray]:
    """Return a tree, the ids of its memories, some of which differ from their slots, and groups of four unlike keys."""
    tree = ContextualMemoryTree(n_trees, leaf_multiplier=2.0, random_state=0, **options)
    X = np.random.default_rng(7).normal(size=(90, 80)).astype(np.float32)
    ids = tree.insert(form(np.where(np.abs(X) < 0.7, 0.0, X)))
    tree.remove(ids[3:13])
    return tree, np.setdiff1d(ids, ids[3:13]), np.random.default_rng(8).permutation(80) // 4


def together(tree: ContextualMemoryTree, ids: np.ndarray, groups: np.ndarray, t: int = 0) -> float:
    """Return the share of the groups all of whose memories are in one leaf of tree ``t``."""
    leaf = state_of(tree).leaf_of[t, forest_of(tree).slots_of(ids)]
    return float(np.mean([np.unique(leaf[groups == group]).size == 1 for group in np.unique(groups)]))


@needs_jit
@FORMS
def test_rebuilt_trees_keep_groups_together(form: Any):
    tree, ids, groups = in_groups(form, 2)
    keys = [state_of(tree).keys.values.copy(), tree.ids]
    asked = form(np.random.default_rng(9).normal(size=(20, 80)))
    explored = tree.query(asked, epsilon=1.0)
    assert together(tree, ids, groups) < 0.2
    tree.rebuild(ids, groups)
    tree.check_invariants()
    after = np.concatenate([state_of(tree).keys.values, tree.ids])
    np.testing.assert_array_equal(after, np.concatenate(keys))
    assert min(together(tree, ids, groups, t) for t in range(2)) >= 0.7
    assert len({state_of(tree).leaf_of[t, :80].tobytes() for t in range(2)}) == 2  # trees differ
    again, _, _ = in_groups(form, 2)
    again.query(asked, epsilon=1.0)  # this draws from the random stream
    again.rebuild(ids[::-1], groups[::-1])
    for t in range(2):
        np.testing.assert_array_equal(state_of(again).leaf_of[t, :80], state_of(tree).leaf_of[t, :80])
    tree.update(asked, explored, np.ones(20))  # of removed nodes, so it is skipped
    tree.remove(ids[:30])
    tree.insert(asked)
    tree.reroute(50)
    tree.check_invariants()


def test_rebuilt_trees_find_memories_by_their_keys():
    """Runs as plain Python as well."""
    tree, ids, groups = in_groups(np.asarray)
    tree.rebuild(ids, groups)
    X = state_of(tree).keys.values.reshape(-1, 80)[forest_of(tree).slots_of(ids)]
    assert np.mean(tree.query(X).ids[:, 0] == ids) > 0.95


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array, None], ids=["dense", "sparse", "all alike"])
def test_inseparable_keys_are_divided(form: Any):
    tree = ContextualMemoryTree(leaf_multiplier=1.0, random_state=0)
    X = np.zeros((40, 3)) if form else np.ones((40, 3))
    ids = tree.insert((form or np.asarray)(X))
    tree.rebuild(ids[:20], np.zeros(20, np.uint8))
    tree.check_invariants()
    assert tree.query(X[:1], 40, n_probes=100).ids.min() >= 0


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
def test_a_failed_rebuild_keeps_the_old_trees(error: type[BaseException]):
    tree, ids, groups = in_groups(np.asarray, 2)
    before, leaf_of = state_of(tree), state_of(tree).leaf_of.copy()
    with failing("_forest.partition.teach_trees", error, call=7):
        tree.rebuild(ids, groups)
    assert state_of(tree) is before
    np.testing.assert_array_equal(state_of(tree).leaf_of, leaf_of)
    tree.check_invariants()


def test_memories_of_the_same_rows_are_joined():
    hits = kernels_room.no_hits(4, 3)
    hits.ids[:] = [[7, 3, 5], [9, 8, NONE], [5, 4, 1], [2, 6, NONE]]
    rewards = np.array([[1, 0, 1], [1, 1, 1], [1, 0.9, 0], [0, 0.5, 1]], np.float32)
    pairs = kernels_room.rewarded_pairs(hits, np.array([NONE, NONE, 1, 0]), rewards)
    assert pairs.tolist() == [[7, 7], [7, 5], [9, 9], [9, 8], [1, 5]]
    ids, groups = kernels_room.joined(pairs)
    assert ids.tolist() == [1, 5, 7, 8, 9]
    assert groups.tolist() == [1, 1, 1, 8, 8]
    assert [part.size for part in kernels_room.joined(pairs[:0])] == [0, 0]


class Watched(ContextualMemoryTree):
    """A tree that counts its rebuilds, not counting those of its copies."""

    rebuilds = 0

    def rebuild(self, ids: Any, groups: Any, *, progress: bool = False) -> None:
        self.rebuilds += 1
        super().rebuild(ids, groups, progress=progress)


@needs_jit
@pytest.mark.parametrize(
    ("n_labels", "n_rewarded", "rebuilt"), [(40, 800, 1), (40, 200, 0), (1, 800, 0), (800, 800, 0)]
)
def test_a_pass_rebuilds_trees_after_enough_rewards(n_labels: int, n_rewarded: int, rebuilt: int):
    rng = np.random.default_rng(3)
    labels = np.arange(800) % n_labels
    X = rng.normal(size=(n_labels, 16))[labels] + 0.7 * rng.normal(size=(800, 16))
    tree = Watched(random_state=0)
    ids = tree.insert(X)
    known = np.where(np.arange(800) < n_rewarded, labels, -1 - np.arange(800))
    tree.learn(X, LabelEquality(known, known), own_ids=ids, k=30)
    assert tree.rebuilds == rebuilt


@needs_jit
@pytest.mark.parametrize("divided", [lambda y: y % 2, lambda y: y // 5], ids=["parity", "half"])
def test_coarse_rewards_do_not_lower_the_rewards_of_new_rows(divided: Any):
    """Routers cannot separate two large groups, so trees that are rebuilt around these would find less."""
    X, y = load_digits(return_X_y=True)
    X, group = X - X.mean(axis=0), divided(y)
    tree = ContextualMemoryTree(4, random_state=0)
    ids = tree.insert(X[:1200])

    def reward() -> float:
        return float(np.mean(group[tree.query(X[1200:]).ids[:, 0]] == group[1200:]))

    before = reward()
    tree.learn(X[:1200], LabelEquality(group[:1200], group[:1200]), own_ids=ids)
    assert reward() > before - 0.01

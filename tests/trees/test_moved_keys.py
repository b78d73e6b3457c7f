"""Dense keys that rewards move."""

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from internals import forest_of, kernels_room, prove, state_of
from journals import journal_of

from cmt_numba import ContextualMemoryTree
from cmt_numba.rewards import LabelEquality

NONE = -1


def unit(x: np.ndarray) -> np.ndarray:
    """Return rows of length 1."""
    return np.asarray(x / np.linalg.norm(x, axis=-1, keepdims=True))


def keys_of(tree: ContextualMemoryTree) -> np.ndarray:
    """Return the keys in the order of their ids."""
    return np.array(
        kernels_room.as_matrix(kernels_room.stored_rows(state_of(tree), forest_of(tree).slots_of(np.sort(tree.ids))))
    )


def grown(rng: np.random.Generator, n_trees: int = 1, **options: Any) -> tuple[ContextualMemoryTree, np.ndarray]:
    """Return a tree with 60 memories, and 20 rows."""
    tree = ContextualMemoryTree(n_trees, leaf_multiplier=1.0, n_reroutes=0, random_state=0, **options)
    X = rng.normal(size=(80, 12)).astype(np.float32)
    tree.insert(X[:60])
    prove(tree)
    return tree, X[60:]


def moved_by_definition(
    keys: np.ndarray, tree: ContextualMemoryTree, asked: Any, hits: kernels_room.Hits, rewards: Any
) -> Any:
    """Return the keys after updates with a rate of 0.3, computed from the definition in blocks of sixteen rows."""
    weights, keys = 1.0 + state_of(tree).scorer.theta, keys.astype(np.float64)
    for first in range(0, len(asked), 16):
        steps = np.zeros(keys.shape)
        for row in range(first, min(first + 16, len(asked))):
            x, ids, worth = unit(asked[row]), hits.ids[row], rewards[row]
            there = [i for i in range(ids.size) if ids[i] in range(len(keys))]
            gains = np.array([worth[i] for i in there])
            if hits.exploration.node[row] != NONE or len(there) == 0 or gains.max() == gains.min():
                continue
            chances = np.exp([20.0 * np.sum(weights * x * keys[ids[i]]) for i in there])
            chances, span = chances / chances.sum(), gains.max() - gains.min()
            shares = chances * (gains - gains.min())
            for i, pull in zip(there, span * (shares / shares.sum() - chances), strict=True):
                steps[ids[i]] += pull * x
        lengths = np.linalg.norm(steps, axis=1)
        for i in np.flatnonzero(lengths):
            keys[i] = unit(keys[i] + 0.3 * steps[i] / max(1.0, lengths[i]))
    return keys


def test_keys_move_as_defined(rng: np.random.Generator) -> None:
    tree, asked = grown(rng)
    hits = tree.query(asked, 4)
    tree.update(asked, hits, rng.random(hits.ids.shape), key_learning_rate=0.0)  # trains weights but moves no key
    theta, keys = state_of(tree).scorer.theta.copy(), keys_of(tree)
    assert theta.any()
    hits = tree.query(asked, 5, epsilon=0.4)
    hits.ids[3, 2:], hits.ids[4], rewards = NONE, NONE, rng.integers(0, 3, hits.ids.shape) / 2
    rewards[5] = 1.0
    assert 0 < np.count_nonzero(hits.exploration.node != NONE) < len(asked)
    tree.update(asked, hits, rewards, key_learning_rate=0.3)
    np.testing.assert_allclose(keys_of(tree), moved_by_definition(keys, tree, asked, hits, rewards), atol=3e-6)
    tree.check_invariants()


def test_unmoved_keys_stay_equal_bit_for_bit(rng: np.random.Generator) -> None:
    tree, asked = grown(rng)
    keys, hits = keys_of(tree), tree.query(asked, 4)
    tree.update(asked, hits, rng.random(hits.ids.shape), key_learning_rate=0.0)
    tree.update(asked, hits, np.ones(hits.ids.shape), key_learning_rate=0.3)  # no memory is better than another
    tree.update(asked, tree.query(asked, 4, epsilon=1.0), np.ones(hits.ids.shape), key_learning_rate=0.3)
    tree.learn(asked, lambda rows, ids: rng.random(ids.shape), key_learning_rate=0.0)
    np.testing.assert_array_equal(keys_of(tree), keys)
    sparse = ContextualMemoryTree(random_state=0)
    prove(sparse)
    sparse.insert(scipy.sparse.csr_array(keys))
    hits = sparse.query(scipy.sparse.csr_array(asked), 4)
    before = state_of(sparse).keys.values.copy()
    sparse.update(scipy.sparse.csr_array(asked), hits, rng.random(hits.ids.shape), key_learning_rate=0.3)
    np.testing.assert_array_equal(state_of(sparse).keys.values, before)


def test_many_rows_move_a_key_no_farther_than_one(rng: np.random.Generator) -> None:
    tree, asked = grown(rng)
    keys, alike = keys_of(tree), np.repeat(asked[:1], 16, axis=0)
    hits = tree.query(alike, 2)
    tree.update(alike, hits, np.tile([0.0, 1.0], (16, 1)), key_learning_rate=0.3)
    wrong, right = hits.ids[0]
    assert keys[wrong] @ keys_of(tree)[wrong] > np.sqrt(1.0 - 0.3**2) - 1e-6  # the largest angle of such a step
    assert unit(asked[0]) @ keys_of(tree)[right] > unit(asked[0]) @ keys[right]
    np.testing.assert_allclose(
        keys_of(tree), moved_by_definition(keys, tree, alike, hits, np.tile([0, 1], (16, 1))), atol=3e-6
    )


def test_a_key_that_would_vanish_stays(rng: np.random.Generator) -> None:
    tree = ContextualMemoryTree(random_state=0)
    tree.insert([[1.0, 0.0], [-1.0, 0.0], [0.0, 0.0]])
    prove(tree)
    hits = tree.query([[1.0, 0.0]], 3)
    assert hits.ids.tolist() == [[0, 2, 1]]
    for _ in range(40):
        tree.update([[1.0, 0.0]], hits, [[0.0, 0.5, 1.0]], key_learning_rate=1.0)
        tree.check_invariants()
        assert np.isfinite(keys_of(tree)).all()


def test_keys_of_zeros_stay() -> None:
    tree = ContextualMemoryTree(random_state=0)
    tree.insert(np.zeros((3, 2)))
    prove(tree)
    tree.update([[1.0, 0.0]], tree.query([[1.0, 0.0]], 1), [0.3])
    np.testing.assert_array_equal(keys_of(tree), np.zeros((3, 2)))


def test_passes_move_keys_towards_queries(rng: np.random.Generator) -> None:
    centers, y = rng.normal(size=(60, 20)), np.repeat(np.arange(60), 8)
    X = centers[y] + 0.9 * rng.normal(size=(y.size, 20))
    queries = centers[y] + 0.9 * rng.normal(size=(y.size, 20))
    errors, own = [], []
    for rate in (0.0, 0.3):
        tree = ContextualMemoryTree(random_state=0)
        ids = tree.insert(X)
        tree.learn(X, LabelEquality(y, y), own_ids=ids, key_learning_rate=rate, n_passes=3)
        tree.check_invariants()
        errors.append(np.mean(y[tree.query(queries, n_probes=1000).ids[:, 0]] != y))
        own.append(np.mean(tree.query(X, n_probes=1000).ids[:, 0] == ids))
    assert errors[1] < 0.9 * errors[0], errors
    assert min(own) > 0.98, own  # a memory is still found by its original key


def test_files_keep_moved_keys(tmp_path: Path, rng: np.random.Generator) -> None:
    X = rng.normal(size=(60, 12))
    tree = ContextualMemoryTree.open(tmp_path / "tree", random_state=0)
    tree.insert(X)
    tree.update(X[:20], tree.query(X[:20], 3), rng.random((20, 3)), key_learning_rate=0.3)
    tree.learn(X, lambda rows, ids: (ids % 5 == rows[:, None] % 5).astype(float), n_passes=2)
    tree.update(X[:20], tree.query(X[:20], 3), rng.random((20, 3)))
    keys = keys_of(tree)
    journal_of(tree).folder.close()  # like a crash, without a snapshot
    assert np.any(np.abs(keys - unit(X)) > 0.01)
    with ContextualMemoryTree.open(tmp_path / "tree") as again:
        np.testing.assert_array_equal(keys_of(again), keys)
        again.check_invariants()
        again.compact()
        unclosed = again._twin()
    with ContextualMemoryTree.open(tmp_path / "tree") as mapped:  # keys are in the snapshot
        for tree in (unclosed, mapped):
            ContextualMemoryTree.update(tree, X[:20], tree.query(X[:20], 3), np.eye(20, 3), key_learning_rate=0.5)
        np.testing.assert_array_equal(keys_of(mapped), keys_of(unclosed))
        assert np.any(keys_of(mapped) != keys)
        mapped.check_invariants()

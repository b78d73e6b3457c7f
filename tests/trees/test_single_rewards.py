"""Learning from the reward of a single memory per row."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse
from internals import contents_of, forest_of, prove, state_of

from cmt_numba import ContextualMemoryTree
from cmt_numba._engine import Forest

WIDTH = 12


def rows_of(kinds: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return rows of several kinds, with one informative feature and noise in the others."""
    rows = (rng.random((kinds.size, WIDTH)) < 0.5) * 1.3
    rows[:, :6] = np.eye(6)[kinds]
    return rows


def same(tree: ContextualMemoryTree, other: ContextualMemoryTree) -> bool:
    """Return whether two trees are equal, bit for bit, apart from the evidence of rewards."""
    arrays, others = (
        {name: array for name, array in contents_of(each)().arrays.items() if not name.startswith("evidence")}
        for each in (tree, other)
    )
    return arrays.keys() == others.keys() and all(np.array_equal(arrays[name], others[name]) for name in arrays)


@pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csr_array])
def test_the_best_other_memory_counts_as_half_as_good_as_usual(kind: Any) -> None:
    rng = np.random.default_rng(0)
    keys, asked = (kind(rows_of(rng.integers(0, 6, n), rng)) for n in (60, 25))
    tree, other = (ContextualMemoryTree(2, leaf_multiplier=1.0, random_state=1) for _ in range(2))
    for each in (tree, other):
        each.insert(keys)
        prove(each)
    hits, rewards = tree.query(asked, k=2), np.arange(25) % 3 / 2
    tree.update(asked, hits, rewards)
    prove(other)
    other.update(asked, hits, np.column_stack([rewards, np.full(25, forest_of(tree).evidence.mean_reward / 2)]))
    assert np.any(state_of(tree).scorer.theta)
    assert same(tree, other)
    tree.check_invariants()


def test_rewards_of_1_teach_the_routers(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    keys, asked = (rows_of(rng.integers(0, 6, n), rng) for n in (60, 25))
    trees = [ContextualMemoryTree(random_state=1) for _ in range(2)]
    rewards = np.arange(75).reshape(25, 3) % 2
    for tree in trees:
        tree.insert(keys)
        hits = tree.query(asked, k=3, epsilon=0.3)
        prove(tree)
        monkeypatch.setattr(Forest, "teaches", tree is trees[0])
        tree.update(asked, hits, rewards)
    assert not same(*trees)
    trees[1].teach(asked, np.where(rewards == 1, hits.ids, 60).min(axis=1))
    assert np.any(state_of(trees[0]).scorer.theta)
    assert same(*trees)


def test_rewards_one_at_a_time_raise_the_share_of_right_answers() -> None:
    rng = np.random.default_rng(0)
    tree = ContextualMemoryTree(random_state=1)  # with defaults
    tree.insert(rows_of(np.arange(6), rng))
    earned = []
    for kind in rng.integers(0, 6, 300):
        row = rows_of(np.array([kind]), rng)
        hits = tree.query(row)
        earned.append(float(hits.ids[0, 0] == kind))
        tree.update(row, hits, earned[-1:])
    assert np.mean(earned[-100:]) > np.mean(earned[:100]) + 0.1


def test_rewards_of_0_and_of_removed_memories_teach_nothing() -> None:
    tree = ContextualMemoryTree(random_state=1)
    rng = np.random.default_rng(0)
    tree.insert(rows_of(np.arange(6), rng))
    asked = rows_of(np.arange(6), rng)
    hits = tree.query(asked)
    tree.update(asked, hits, np.zeros(6))
    assert not np.any(state_of(tree).scorer.theta)
    tree.remove(np.unique(hits.ids))
    tree.update(asked, hits, np.ones(6))
    assert not np.any(state_of(tree).scorer.theta)
    tree.remove(tree.ids)
    tree.update(asked, hits, np.ones(6))
    tree.check_invariants()

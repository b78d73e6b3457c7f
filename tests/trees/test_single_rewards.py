"""Learning from the reward of a single memory per row."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from internals import contents_of, state_of

from cmt_numba import ContextualMemoryTree
from cmt_numba.journal import DurableTree

WIDTH = 12


def rows_of(kinds: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return rows of several kinds, with one informative feature and noise in the others."""
    rows = (rng.random((kinds.size, WIDTH)) < 0.5) * 1.3
    rows[:, :6] = np.eye(6)[kinds]
    return rows


def warnings_of(tree: ContextualMemoryTree, asked: np.ndarray) -> list[str]:
    """Return the warnings of an update by single rewards. Without compiled kernels NumPy also warns of overflows."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        tree.update(asked, tree.query(asked), np.ones(len(asked)))
    return [str(warning.message) for warning in caught if warning.category is UserWarning]


def same(tree: ContextualMemoryTree, other: ContextualMemoryTree) -> bool:
    """Return whether two trees are equal, bit for bit."""
    arrays, others = contents_of(tree)().arrays, contents_of(other)().arrays
    return arrays.keys() == others.keys() and all(np.array_equal(arrays[name], others[name]) for name in arrays)


@pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csr_array])
def test_the_best_other_memory_counts_as_unrewarded(kind: Any) -> None:
    rng = np.random.default_rng(0)
    keys, asked = (kind(rows_of(rng.integers(0, 6, n), rng)) for n in (60, 25))
    tree, other = (
        ContextualMemoryTree(2, leaf_multiplier=1.0, scorer_loss=loss, random_state=1)
        for loss in ("contrast", "ranking")
    )
    for each in (tree, other):
        each.insert(keys)
    hits, rewards = tree.query(asked, k=2), np.arange(25) % 3 / 2
    tree.update(asked, hits, rewards)
    other.update(asked, hits, np.column_stack([rewards, np.zeros(25)]))
    other.teach(asked[rewards == 1], hits.ids[rewards == 1, 0])
    assert np.any(state_of(tree).scorer.theta)
    assert same(tree, other)
    tree.check_invariants()


def test_full_rewards_train_the_scorer_like_ranking_and_teach_the_routers() -> None:
    rng = np.random.default_rng(0)
    keys, asked = (rows_of(rng.integers(0, 6, n), rng) for n in (60, 25))
    trees = [ContextualMemoryTree(scorer_loss=loss, random_state=1) for loss in ("contrast", "ranking")]
    for tree in trees:
        tree.insert(keys)
        hits, rewards = tree.query(asked, k=3, epsilon=0.3), np.arange(75).reshape(25, 3) % 2
        tree.update(asked, hits, rewards)
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


@pytest.mark.parametrize("loss", ["ranking", "mira"])
def test_an_update_that_cannot_teach_warns_once(loss: str) -> None:
    tree = ContextualMemoryTree(leaf_multiplier=1.0, scorer_loss=loss, random_state=1)
    rng = np.random.default_rng(0)
    asked = rows_of(rng.integers(0, 6, 40), rng)
    tree.insert(asked)
    tree.update(asked, tree.query(asked, k=2), np.ones((40, 2)))
    tree.update(asked, tree.query(asked, epsilon=1.0), np.ones(40))
    (message,) = warnings_of(tree, asked)
    assert message.startswith(f"this update changes nothing: scorer_loss='{loss}' compares the rewards of several")
    assert not warnings_of(tree, asked)


def test_opening_a_folder_repeats_no_warning(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    asked = rows_of(rng.integers(0, 6, 10), rng)
    with DurableTree(tmp_path / "tree", scorer_loss="ranking", random_state=1) as tree:
        tree.insert(asked)
        assert len(warnings_of(tree, asked)) == 1
    with DurableTree(tmp_path / "tree") as tree:  # warnings are errors
        assert len(warnings_of(tree, asked)) == 1
    with DurableTree(tmp_path / "contrast", random_state=1) as tree:
        tree.insert(asked)
        tree.update(asked, tree.query(asked), np.ones(10))
        theta = state_of(tree).scorer.theta
    with DurableTree(tmp_path / "contrast") as tree:
        np.testing.assert_array_equal(state_of(tree).scorer.theta, theta)

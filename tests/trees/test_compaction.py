"""Compaction, which speeds up searches without changing answers."""

from typing import Any

import numpy as np
import pytest
from conftest import EVERY_LEAF
from failures import failing
from internals import forest_room, kernels_room, state_of

from cmt_numba import ContextualMemoryTree, Hits


def grown(keys: Any, **options: Any) -> ContextualMemoryTree:
    tree = ContextualMemoryTree(leaf_multiplier=1.0, random_state=0, **options)
    tree.remove(tree.insert(keys)[::5])
    return tree


def same(hits: Hits, others: Hits) -> bool:
    return np.array_equal(hits.ids, others.ids) and np.array_equal(hits.scores, others.scores)


@pytest.mark.parametrize("n_trees", [1, 3])
def test_compaction_changes_no_answer(keys: Any, n_trees: int):
    tree = grown(keys, n_trees=n_trees)
    questions = [{"k": 1}, {"k": 4, "n_probes": 5}, {"k": 300, "n_probes": EVERY_LEAF}]
    before = [tree.query(keys, **question) for question in questions]
    tree.compact()
    tree.check_invariants()
    assert all(same(tree.query(keys, **question), hits) for question, hits in zip(questions, before, strict=True))
    explored = tree.query(keys, k=2, epsilon=1.0)
    assert np.all(explored.ids[:, 0] != kernels_room.NONE)


def test_the_memories_of_a_leaf_lie_together(keys: Any):
    tree = grown(keys, n_trees=2)
    tree.compact()
    state = state_of(tree)
    for leaf in range(state.counters[0, forest_room.state.LEAVES_END]):
        slots = state.members[0, leaf, : state.leaves["size"][0, leaf]]
        np.testing.assert_array_equal(np.diff(slots), 1)


def test_a_compacted_tree_can_change(keys: Any):
    """Without reroutes nothing is random, so a compacted tree must stay equal to one that was not compacted."""
    trees = [grown(keys, n_trees=3, n_reroutes=0) for _ in range(2)]
    trees[1].compact()
    for tree in trees:
        ids = tree.insert(keys[:40])
        tree.remove(ids[::3])
        tree.remove(tree.ids.min())
        hits = tree.query(keys, 3)
        tree.update(keys, hits, np.random.default_rng(0).random(hits.ids.shape))
        tree.check_invariants()
    assert same(trees[0].query(keys, 3, n_probes=6), trees[1].query(keys, 3, n_probes=6))
    trees[1].reroute(200)
    trees[1].check_invariants()
    trees[1].compact()
    trees[1].check_invariants()


def test_compaction_that_fails_changes_nothing(dense_keys: np.ndarray):
    tree = grown(dense_keys, n_trees=2)
    before = tree.query(dense_keys, 3)
    with failing("_forest.allocation.rename_members"):
        tree.compact()
    tree.check_invariants()
    assert same(tree.query(dense_keys, 3), before)


@pytest.mark.parametrize("k", [1, 7])
def test_nearly_equal_keys(rng: np.random.Generator, k: int):
    """Keys that hardly differ are still distinguished, and all of the best keys are found."""
    centers = rng.normal(size=(6, 24))
    keys = np.repeat(centers, 40, axis=0) + 2e-3 * rng.normal(size=(240, 24))
    tree = ContextualMemoryTree(n_trees=2, random_state=0)
    tree.insert(keys)
    queries = keys + 1e-3 * rng.normal(size=keys.shape)
    hits = tree.query(queries, k, n_probes=EVERY_LEAF)
    keys, queries = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (keys, queries))
    scores = queries @ keys.T
    np.testing.assert_allclose(hits.scores, -np.sort(-scores, axis=1)[:, :k], atol=1e-6)
    np.testing.assert_allclose(np.take_along_axis(scores, hits.ids, 1), hits.scores, atol=1e-6)


@pytest.mark.parametrize("n_rows", [1, 2, 7, 8, 9, 50])
def test_rows_of_a_batch_are_independent(keys: Any, n_rows: int):
    tree = grown(keys, n_trees=2)
    together = tree.query(keys[:n_rows], 3, n_probes=5)
    for row in range(n_rows):
        alone = tree.query(keys[[row]], 3, n_probes=5)
        np.testing.assert_array_equal(together.ids[row], alone.ids[0])
        np.testing.assert_array_equal(together.scores[row], alone.scores[0])

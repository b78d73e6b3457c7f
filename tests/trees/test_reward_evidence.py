"""Rewards teach only if they depend on memories."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from internals import contents_of, forest_of, forest_room, kernels_room, state_of
from reference import log_odds_of

from cmt_numba import ContextualMemoryTree

N, WIDTH = 60, 12


def grown(form: Any = np.asarray, **options: Any) -> tuple[ContextualMemoryTree, Any]:
    """Return a tree and queries. Query ``i`` wants memory ``i % N``, whose key is less typical than the queries."""
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(N, WIDTH))
    keys = centers + rng.normal(size=(N, WIDTH))
    tree = ContextualMemoryTree(random_state=0, **options)
    tree.insert(form(keys))
    return tree, form(np.tile(centers, (5, 1)) + 0.4 * rng.normal(size=(5 * N, WIDTH)))


def right(rows: np.ndarray, ids: np.ndarray) -> np.ndarray:
    return (ids == rows[:, None] % N).astype(float)


def stream(tree: ContextualMemoryTree, queries: Any, k: int, reward: Callable[..., np.ndarray]) -> None:
    """Update with the rewards of all queries in small batches."""
    for first in range(0, queries.shape[0], 10):
        batch = queries[first : first + 10]
        hits = tree.query(batch, k)
        tree.update(batch, hits, reward(np.arange(first, first + 10), hits.ids))


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array])
@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("scorer_loss", ["contrast", "regression"])
def test_rewards_that_say_nothing_leave_rankings_as_they_were(form: Any, k: int, scorer_loss: str) -> None:
    rng = np.random.default_rng(1)
    for reward in (
        lambda rows, ids: np.ones(ids.shape),
        lambda rows, ids: np.full(ids.shape, 0.5),
        lambda rows, ids: np.zeros(ids.shape),
        lambda rows, ids: rng.integers(0, 2, ids.shape),
    ):
        tree, queries = grown(form, scorer_loss=scorer_loss)
        before = tree.query(queries, 5)
        stream(tree, queries, k, reward)
        after = tree.query(queries, 5)
        np.testing.assert_array_equal(after.ids, before.ids)
        np.testing.assert_array_equal(after.scores, before.scores)


@pytest.mark.parametrize("k", [1, 3])
def test_sums_that_have_faded_are_no_evidence(k: int) -> None:
    tree, queries = grown()
    sums = forest_of(tree).evidence.sums.sums
    for product, square in ((5e-324, 0.0), (1e-160, 0.0), (1e-160, 5e-324)):
        sums[:] = 1000.0, 0.0, product, product, square, square, 1000.0, 1.0, 0.0, 0.0
        tree.update(queries[:1], tree.query(queries[:1], k), np.ones((1, k)))
        assert not forest_of(tree).evidence.is_enough


def test_passes_over_constant_rewards_teach_nothing() -> None:
    tree, queries = grown()
    before = tree.query(queries, 5)
    tree.learn(queries, lambda rows, ids: np.ones(ids.shape), epsilon=0.0)
    np.testing.assert_array_equal(tree.query(queries, 5).scores, before.scores)


@pytest.mark.parametrize("noise", [0.0, 0.15])
@pytest.mark.parametrize("k", [1, 3])
def test_clean_and_noisy_rewards_teach(k: int, noise: float) -> None:
    rng, (tree, queries) = np.random.default_rng(2), grown()
    held = queries[-N:]
    before = np.mean(tree.query(held).ids[:, 0] == np.arange(N))
    for _ in range(3):
        stream(tree, queries[:-N], k, lambda rows, ids: np.abs(right(rows, ids) - (rng.random(ids.shape) < noise)))
    assert np.mean(tree.query(held).ids[:, 0] == np.arange(N)) > before + 0.03


def test_rewards_wait_for_evidence_and_are_then_learned(tmp_path: Path) -> None:
    tree, queries = grown(leaf_multiplier=100.0)
    at = None
    for i in range(5 * N):
        hits = tree.query(queries[i], 3)
        rewards = right(np.array([i]), hits.ids)
        if i == 3:
            assert len(forest_of(tree).evidence.waiting) == 3
            assert not state_of(tree).scorer.theta.size
            tree.save(tmp_path / "tree")
            other = ContextualMemoryTree.load(tmp_path / "tree")
            assert other.nbytes == tree.nbytes
        tree.update(queries[i], hits, rewards)
        if i >= 3:
            other.update(queries[i], hits, rewards)
        if forest_of(tree).evidence.is_enough:
            at = i
            break
    assert at is not None
    assert at > 3
    assert not forest_of(tree).evidence.waiting
    arrays, others = contents_of(tree)().arrays, contents_of(other)().arrays
    assert arrays.keys() == others.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, others[name], err_msg=name)


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array])
def test_few_rows_wait(monkeypatch: pytest.MonkeyPatch, form: Any, tmp_path: Path) -> None:
    tree, queries = grown(form)
    evidence = forest_of(tree).evidence
    for first in range(0, 60, 20):
        hits = tree.query(queries[first : first + 20], 2, epsilon=0.5)
        tree.update(queries[first : first + 20], hits, np.ones(hits.ids.shape))
    assert len(evidence.waiting) == 3
    rows, hits, rewards = evidence.joined()
    assert rows.n_rows == len(hits.ids) == len(rewards) < 60  # without those that explored
    monkeypatch.setattr("cmt_numba._engine.evidence._MOST_WAITING", 15)
    hits = tree.query(queries[:20], 2)
    tree.update(queries[:20], hits, np.ones(hits.ids.shape))
    np.testing.assert_array_equal(evidence.joined().hits.ids, hits.ids[-15:])
    assert evidence.joined().rows.n_rows == 15
    tree.update(queries[:20], hits._replace(ids=hits.ids[:, :1], scores=hits.scores[:, :1]), np.ones(20))
    hits = tree.query(queries[:20], 3)
    tree.update(queries[:20], hits, np.ones(hits.ids.shape))  # of another width
    assert evidence.joined().hits.ids.shape == (15, 3)
    tree.save(tmp_path / "tree")
    again = forest_of(ContextualMemoryTree.load(tmp_path / "tree")).evidence
    for array, other in zip(evidence.saved(), again.saved(), strict=True):
        np.testing.assert_array_equal(array, other)


@pytest.mark.parametrize(("k", "n_rewards"), [(1, 1), (2, 1), (4, 4)])
def test_odds_agree_with_their_definition(k: int, n_rewards: int) -> None:
    tree, queries = grown(scorer_loss="regression")
    rng, evidence, rows = np.random.default_rng(3), forest_of(tree).evidence.sums, []
    for first in range(0, 5 * N, 50):
        hits = tree.query(queries[first : first + 50], k)
        rewards = (0.5 * right(np.arange(first, first + 50), hits.ids) + 0.5 * rng.random(hits.ids.shape)).astype("f4")
        rewards = rewards[:, :n_rewards]
        hits.ids[::7, -1] = -1
        plain = kernels_room.Hits(hits.ids, hits.scores, hits.exploration)
        feedback = kernels_room.Feedback(forest_of(tree).check_rows(queries[first : first + 50]), plain, rewards)
        odds = forest_room.weigh_rewards(forest_of(tree).view(), evidence, feedback)
        rows += list(zip(hits.ids.tolist(), hits.scores.tolist(), rewards.tolist(), strict=True))
        assert odds == pytest.approx(log_odds_of(rows), rel=1e-3, abs=1e-3)

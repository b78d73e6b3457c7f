"""The properties that the paper proves or claims, on seeded random data: balance, depth, self-consistency, space."""

import math
from typing import Any

import numpy as np
import pytest
from conftest import EVERY_LEAF, needs_jit, text_like
from internals import forest_room, state_of

from cmt_numba import ContextualMemoryTree

pytestmark = needs_jit


def dense_rows(n: int, n_features: int = 16, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, n_features)).astype(np.float32)


def rows_of(kind: str, n: int, seed: int = 0) -> Any:
    return dense_rows(n, seed=seed) if kind == "dense" else text_like(n, 5000, 12, seed)


def grown(X: Any, **options: Any) -> ContextualMemoryTree:
    tree = ContextualMemoryTree(**{"random_state": 0} | options)
    tree.insert(X)
    return tree


def self_consistency(tree: ContextualMemoryTree, X: Any) -> float:
    """Return the share of stored memories that a query with their own key returns."""
    return float(np.mean(tree.query(X).ids[:, 0] == np.arange(X.shape[0])))


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("alpha", [0.5, 0.9, 1.0])
def test_balance(kind: str, alpha: float):
    """Each child of a node holds at least 1 / K of its memories (Theorem 3.3)."""
    tree = grown(rows_of(kind, 8000), alpha=alpha, n_reroutes=0)
    state = state_of(tree)
    end = state.counters[0, forest_room.NODES_END]
    below, examples = state.nodes["below"][0, :end], state.nodes["examples"][0, :end]
    progressive_error = state.nodes["mistakes"][0, :end] / examples
    numerator = 1 + math.exp((1 - alpha) / alpha)
    denominator = (1 - progressive_error) - numerator / examples
    # These include the examples that trained the router in a split, a few hundred at most.
    enough = (examples >= 2000) & (denominator > 0)
    assert enough.sum() >= 3
    least = below[enough].sum(axis=1) * denominator[enough] / numerator
    assert np.all(below[enough].min(axis=1) >= least - 1)  # counts are integers


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_depth_grows_with_log_n(kind: str):
    X = rows_of(kind, 16_000)
    tree = ContextualMemoryTree(n_reroutes=0, random_state=0)
    for n in (500, 1000, 2000, 4000, 8000, 16_000):
        tree.insert(X[tree.n_memories : n])
        # A balanced tree of leaves of 4 log2(n) memories has log2(n) - log2(4 log2(n)) levels, 5 to 6 fewer than this.
        assert math.log2(n / (4 * math.log2(n))) <= tree.depth <= math.log2(n) - 1


def test_reroutes_raise_self_consistency():
    X = dense_rows(4000)
    trees = [grown(X, n_reroutes=d) for d in (0, 5, 20)]
    rates = [self_consistency(tree, X) for tree in trees]
    assert rates[0] + 0.05 < rates[1] < rates[2]
    trees[0].reroute(4000)
    after = self_consistency(trees[0], X)
    trees[0].reroute(12_000)
    assert rates[0] < after < self_consistency(trees[0], X)


def test_self_consistency_of_text():
    X = text_like(4000, 20_000, 15, seed=3)
    slow = {"router_learning_rate": 0.1}  # at the default rate routers leave nothing for reroutes to repair
    rates = [self_consistency(grown(X, n_reroutes=d, **slow), X) for d in (0, 5, 20)]
    assert rates[0] < rates[1] <= rates[2]
    assert self_consistency(grown(X, n_reroutes=20), X) > 0.97


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_constant_space_per_memory(kind: str):
    per_memory = []
    for n in (2000, 32_000):
        X = rows_of(kind, n)
        key_bytes = X.nbytes if kind == "dense" else X.data.nbytes + X.indices.nbytes
        per_memory.append((grown(X, n_reroutes=0).nbytes - key_bytes) / n)
    assert max(per_memory) <= 1.3 * min(per_memory)


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_churn_keeps_space(kind: str):
    """A tree of 1,000 memories that are replaced continually stays bounded and never reuses an id."""
    X = rows_of(kind, 5000)
    tree = grown(X[:1000], n_reroutes=1)
    before = tree.nbytes
    held = list(range(1000))
    rng = np.random.default_rng(0)
    for row in range(1000, 5000):
        place = int(rng.integers(1000))
        tree.remove(held[place])
        (new,) = tree.insert(X[row : row + 1])
        assert new == row
        held[place] = int(new)
    tree.check_invariants()
    assert set(tree.ids.tolist()) == set(held)
    assert tree.nbytes <= 1.75 * before
    assert np.mean(tree.query(X[held], n_probes=EVERY_LEAF).ids[:, 0] == held) > 0.999


def arrays_of(tree: ContextualMemoryTree) -> list[bytes]:
    """Return the bytes in use of the arrays of a tree's shape and routers."""
    state = state_of(tree)
    nodes, n = state.counters[:, forest_room.NODES_END].max(), tree.n_memories
    return [
        state.counters[
            :, [*forest_room.SHAPE, forest_room.state.REROUTES_LEFT]
        ].tobytes(),  # others depend on when tables have grown
        state.nodes["child"][:, :nodes].tobytes(),
        state.nodes["below"][:, :nodes].tobytes(),
        state.nodes["bias"][:, :nodes].tobytes(),
        state.leaf_of[:, :n].tobytes(),
        state.scorer.theta.tobytes(),
        state.streams.tobytes(),
    ]


def everything(X: Any, queries: Any, **options: Any) -> tuple[ContextualMemoryTree, list[np.ndarray]]:
    """Apply all operations to a new forest; return it and all answers."""
    tree = grown(X, **{"n_trees": 3, "n_reroutes": 2} | options)
    hits = tree.query(queries, k=3, epsilon=0.5)
    tree.update(queries, hits, (hits.ids % 3 == 0).astype(np.float32))
    tree.remove(np.arange(0, X.shape[0], 7))
    tree.replace(np.arange(1, X.shape[0], 7), X[: len(range(1, X.shape[0], 7))])
    tree.reroute(100)
    later = tree.query(queries, k=5, n_probes=7, epsilon=0.3)
    return tree, [hits.ids, hits.scores, *hits.exploration, later.ids, later.scores, *later.exploration]


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_seeds_and_threads(kind: str):
    """The same seed gives the same trees and answers on any number of threads, another seed gives others."""
    X, queries = rows_of(kind, 2000), rows_of(kind, 500, seed=9)
    tree, answers = everything(X, queries, n_threads=1)
    for n_threads in (1, 2, 3):
        twin, same = everything(X, queries, n_threads=n_threads)
        assert arrays_of(tree) == arrays_of(twin)
        for first, second in zip(answers, same, strict=True):
            np.testing.assert_array_equal(first, second)
    other, different = everything(X, queries, n_threads=1, random_state=1)
    assert arrays_of(tree)[4] != arrays_of(other)[4]
    assert np.any(answers[0] != different[0])
    assert np.any(answers[2] != different[2])

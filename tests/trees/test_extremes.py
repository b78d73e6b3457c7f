"""Extreme values, equal keys, and counters near their largest values."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse
from conftest import EVERY_LEAF
from exact_keys import LARGEST, check_keys, trees
from internals import forest_room, kernels_room, linear_room, model_of, state_of
from numba import njit

from cmt_numba import CMTClassifier, ContextualMemoryTree
from cmt_numba._jit import as_python

EXTREME = {
    "squares overflow": [[3e38, 2e38, -1e38, 0], [1e20, 1e30, 0, 0]],
    "all the largest": [[LARGEST] * 4, [-LARGEST, LARGEST, 0, LARGEST]],
    "squares vanish": [[1e-30, 2e-30, -3e-30, 0], [1e-38, 0, 1e-37, 0]],
    "denormal": [[2.0**-149, 2.0**-148, 0, 0], [2.0**-140, 0, 3 * 2.0**-149, -(2.0**-130)]],
    "huge and tiny in a row": [[LARGEST, 2.0**-149, 1.0, 0], [1e30, 1e-30, 1e30, -1e30]],
    "huge and tiny rows": [[LARGEST, LARGEST, 0, 0], [2.0**-149, 0, 2.0**-149, 0]],
    "negative zeros": [[-0.0, 1.0, -0.0, 0.0], [-0.0, -0.0, -0.0, -0.0]],
}


@pytest.mark.parametrize("what", EXTREME)
def test_extreme_values_as_in_float64(what: str):
    """Scores are exact for the float32 values: digits are lost in this conversion, and nowhere later."""
    rows = np.array(EXTREME[what], np.float64).astype(np.float32)
    for form in (np.asarray, scipy.sparse.csr_array):
        for tree in trees(4):
            check_keys(tree, form(rows), rows)
            check_keys(tree, form(rows.astype(np.float64)), rows)


@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("rate", [1e-30, 1e6])
@pytest.mark.parametrize("sparse", [False, True])
def test_extreme_learning_rates(sparse: bool, rate: float, loss: str):
    rows = np.random.default_rng(1).normal(size=(200, 3))
    rows = scipy.sparse.csr_array(rows) if sparse else rows
    tree = ContextualMemoryTree(
        leaf_multiplier=1.0,
        router_loss=loss,
        router_learning_rate=rate,
        scorer_learning_rate=rate,
        scorer_loss="regression",
        random_state=0,
    )
    ids = tree.insert(rows)
    tree.update(rows, tree.query(rows, k=3, epsilon=0.5), np.ones((200, 3)))
    tree.teach(rows, ids)
    tree.check_invariants()
    assert np.all(np.isfinite(tree.query(rows).scores))


# Equal keys


@pytest.mark.parametrize(("leaf_multiplier", "alpha"), [(0.01, 0.9), (1.0, 1e-300)])
@pytest.mark.parametrize("noise", [0.0, 6e-8, 1e-7, 1e-6])
@pytest.mark.parametrize("sparse", [False, True])
def test_nearly_identical_keys(sparse: bool, noise: float, leaf_multiplier: float, alpha: float):
    """No threshold separates keys that differ by rounding errors, but their leaves are still split."""
    rng = np.random.default_rng(0)
    rows = (rng.normal(size=4) + noise * rng.normal(size=(150, 4))).astype(np.float32)
    rows = scipy.sparse.csr_array(rows) if sparse else rows
    tree = ContextualMemoryTree(leaf_multiplier=leaf_multiplier, alpha=alpha, random_state=0)
    for first in range(0, 150, 50):
        tree.insert(rows[first : first + 50])
        tree.check_invariants()
    assert tree.leaves().size.min() > 0
    assert tree.leaves().size.size <= 150
    tree.reroute(100)
    tree.remove(tree.ids[:100])
    tree.check_invariants()
    np.testing.assert_allclose(tree.query(rows, k=50, n_probes=EVERY_LEAF).scores, 1.0, rtol=1e-5)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("n_distinct", [0, 1, 3])
def test_few_distinct_keys(n_distinct: int, sparse: bool):
    """A tree of 6,000 keys, nearly all of them equal, stays flat. With ``n_distinct=0`` all keys are zero."""
    n = 6_000
    kinds = np.arange(n) % max(1, n_distinct)
    rows = np.zeros((n, 3))
    rows[np.arange(n), kinds] = n_distinct > 0
    rows = scipy.sparse.csr_array(rows) if sparse else rows
    tree = ContextualMemoryTree(random_state=0, n_reroutes=1)
    ids = tree.insert(rows)
    tree.check_invariants()
    assert tree.depth <= 3 * np.log2(n)
    assert tree.leaves().size.size < n / 16
    hits = tree.query(rows[:30], k=5)
    assert np.all(kinds[hits.ids] == kinds[:30, None])
    np.testing.assert_allclose(hits.scores, float(n_distinct > 0))
    tree.remove(ids[::2])
    tree.check_invariants()


# Numbers near 2**31


def test_highest_feature_indices():
    width = 2**31 - 1
    places = [0, 1, 2, 3], [width - 1, width - 2, 0, width - 1]
    rows = scipy.sparse.csr_array((np.ones(4), places), shape=(4, width))
    tree = ContextualMemoryTree(leaf_multiplier=0.5, random_state=0)
    tree.insert(rows)
    tree.insert(rows)
    tree.check_invariants()
    hits = tree.query(rows, k=4, n_probes=EVERY_LEAF)
    assert [sorted(row) for row in hits.ids[[0, 3]]] == [[0, 3, 4, 7]] * 2
    np.testing.assert_allclose(hits.scores[0], 1.0)
    assert [sorted(row[:2]) for row in hits.ids[1:3]] == [[1, 5], [2, 6]]
    assert tree.nbytes < 100_000
    tree.remove(tree.ids)
    tree.check_invariants()


def test_hashes_of_large_numbers():
    for bits in (4, 16, 31, 32):
        for feature in (0, 1, 2**31 - 2, 2**31 - 1):
            assert 0 <= kernels_room.hash_feature(np.int32(feature), np.int64(bits)) < 2**bits
    for size in (1, 16, 2**31, 2**32):
        for number in (0, 1, 2**31 - 1, 2**31, 2**62, 2**63 - 1):
            assert 0 <= kernels_room.hash_number(np.int64(number), np.int64(size)) < size


@njit
def margin_in_kernel(models: Any, t: int, label: int, probe: Any, row: Any) -> float:
    """Call a function that only kernels can call, and return its result."""
    return linear_room.probed_margin(models, t, label, probe, row)


def test_sizes_near_the_limits():
    assert forest_room.state.leaf_limit(4.0, np.int64(2**31 - 1)) == 123
    assert forest_room.state.leaf_limit(2.0**20, np.int64(2**31 - 1)) < 2**31
    bits = as_python(linear_room.table_bits)  # no wrapper for Python is compiled
    assert bits(np.int64(2**30)) == 31
    assert 3 * 2 ** bits(np.int64(2**31 - 1)) >= 4 * (2**31 - 1)


def test_more_router_storage_than_can_be_addressed():
    """Offsets of tables have 32 bits: a tree that needs more raises an error and stays unchanged."""
    rows = scipy.sparse.random_array((400, 300), density=0.05, format="csr", random_state=np.random.default_rng(0))
    tree = ContextualMemoryTree(leaf_multiplier=0.5, random_state=0)
    tree.insert(rows[:100])
    with pytest.raises(MemoryError, match="a group of models cannot have more than"):
        linear_room.with_tables(state_of(tree), linear_room.allocation.MAX_CELLS + 1)
    tree.check_invariants()
    assert tree.insert(rows[100:]).tolist() == list(range(100, 400))
    tree.check_invariants()


def test_generations_wrap_around():
    """The record of a node that was freed 2**31 times still differs from others."""
    tree = ContextualMemoryTree(leaf_multiplier=0.5, random_state=0)
    tree.insert(np.random.default_rng(0).normal(size=(60, 3)))
    state_of(tree).nodes["generation"] = 2**31 - 1
    queries = np.random.default_rng(1).normal(size=(40, 3))
    hits = tree.query(queries, epsilon=1.0)
    tree.remove(tree.ids[:50])
    tree.insert(np.random.default_rng(2).normal(size=(50, 3)))
    assert state_of(tree).nodes["generation"].min() == -(2**31)
    tree.check_invariants()
    tree.update(queries, hits, np.ones(40))
    tree.check_invariants()


def test_labels_with_a_mean_of_zero():
    """Their scorers start without weights, and so without a table."""
    rows = scipy.sparse.csr_array([[0.0, 1.0], [0.0, -1.0], [1.0, 0.0], [1.0, 0.0]])
    head = model_of(CMTClassifier(n_head_passes=0, random_state=0).fit(rows, [0, 0, 1, 1])).index.head
    head.weights.table["weight"][0, :16] = 5.0  # the weights of the other label
    tables = head.labels["table_bits"][0, :2]
    probe = kernels_room.Probe(np.ones(2, np.float32), np.empty(0, np.int32), np.zeros(3, np.int64))
    row = kernels_room.Row(np.ones(2, np.float32), np.arange(2, dtype=np.int32), 0, 2, kernels_room.UNSCALED)
    assert sorted(tables > 0) == [False, True]
    assert margin_in_kernel(head.models, 0, int(np.argmin(tables)), probe, row) == 0.0

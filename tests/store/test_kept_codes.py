"""Tests of stores and trees that keep only codes."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from cmt_numba import ContextualMemoryTree, InvariantError, MemoryStore
from cmt_numba._forest.rows import as_matrix
from cmt_numba.store._metrics import METRICS
from cmt_numba.store._search import stored_units

N, D, EVERY_LEAF = 60, 8, 1000


def rows(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, D)).astype(np.float32)


def grown(X: Any, **options: Any) -> ContextualMemoryTree:
    tree = ContextualMemoryTree(n_trees=2, n_links=6, keep="codes", random_state=0, **options)
    tree.insert(X)
    return tree


def units(tree: ContextualMemoryTree) -> np.ndarray:
    state = tree._forest.allocated()
    return np.asarray(stored_units(state, tree._forest.slots_of(np.sort(tree.ids))))


def test_codes_approximate_the_inserted_keys():
    X = np.concatenate([rows(N - 1), np.zeros((1, D), np.float32)])
    tree = grown(X)
    kept, unit = units(tree), as_matrix(tree._forest.check_rows(X))
    np.testing.assert_allclose(np.linalg.norm(kept[:-1], axis=1), 1.0, atol=1e-6)
    steps = np.abs(unit).max(axis=1, keepdims=True) / 127
    assert (np.abs(kept - unit) <= 0.5 * steps + 0.01 * np.abs(unit)).all()
    assert not kept[-1].any()
    assert tree._forest.allocated().keys.values.size == 0
    Q = rows(5, 1)
    scores = Q / np.linalg.norm(Q, axis=1, keepdims=True) @ kept.T
    for how in ({"n_probes": EVERY_LEAF}, {"breadth": N}, {"n_probes": EVERY_LEAF, "among": np.arange(N)}):
        found = tree.query(Q, N, **how)
        np.testing.assert_allclose(found.scores, np.take_along_axis(scores, found.ids, axis=1), atol=1e-5)
        np.testing.assert_allclose(found.scores, -np.sort(-scores, axis=1), atol=1e-5)


def test_a_tree_of_codes_changes_learns_and_is_saved_like_others(tmp_path: Path):
    tree = grown(rows(N), max_memories=70, scorer_loss="ranking")
    tree.replace([3, 5], rows(2, 1))
    tree.remove([0, 7, 59])
    tree.insert(rows(20, 2))  # evicts some
    tree.compact()
    tree.check_invariants()
    hits = tree.query(rows(20, 2), 3, epsilon=0.5)
    before = tree.query(rows(9, 3), 4, EVERY_LEAF)
    tree.update(rows(20, 2), hits, (hits.ids % 2).astype(float))
    tree.reroute(10)
    tree.rebuild(tree.ids[:30], np.arange(30) % 5)
    assert not np.array_equal(tree.query(rows(9, 3), 4, EVERY_LEAF).scores, before.scores)
    tree.check_invariants()
    tree.save(tmp_path / "tree")
    for again in (*(tree.load(tmp_path / "tree", mmap) for mmap in (False, True)), pickle.loads(pickle.dumps(tree))):
        np.testing.assert_array_equal(units(again), units(tree))
        np.testing.assert_array_equal(again.query(rows(9), 4).scores, tree.query(rows(9), 4).scores)
        again.insert(rows(3, 4))
        again.check_invariants()
    tree._forest.allocated().codes.marks["scale"][5] *= 2
    with pytest.raises(InvariantError, match="length 1"):
        tree.check_invariants()


def test_sparse_keys_are_kept_in_full():
    X = scipy.sparse.csr_array(np.maximum(rows(N), 0))
    tree = grown(X)
    np.testing.assert_array_equal(tree.query(X, 1, EVERY_LEAF).ids[:, 0], np.arange(N))
    tree.check_invariants()
    assert tree._forest.allocated().keys.values.size >= X.nnz


@pytest.mark.parametrize("metric", METRICS)
def test_stores_of_codes_return_decoded_vectors(metric: str, tmp_path: Path):
    X, folder = rows(N), tmp_path / "store"
    with MemoryStore(folder, metric, keep="codes", n_trees=2, random_state=0) as store:
        store.add(range(N), X, [{"n": i} for i in range(N)])
        store.upsert([3, 100], 2 * rows(2, 1), [{"n": 3}, None])  # longer than the other vectors
        store.delete([8])
        got, longest = store.get(range(9, N)).vectors, np.linalg.norm(X, axis=1).max()
        np.testing.assert_allclose(got, X[9:], atol=0.03 * longest)
        assert not np.array_equal(got, X[9:])
        answers = store.query(got[:9], 2, where={"n": {"ge": 9}}, target_recall=1.0)
        np.testing.assert_array_equal(answers.keys[:, 0] if metric != "inner_product" else range(9, 18), range(9, 18))
        store.feedback(X[9:18], range(9, 18), np.ones(9))
        store.save(tmp_path / "file")
        keys = sorted(store)
        contents = store.get(keys).vectors
    with pytest.raises(ValueError, match="keep must be 'codes'"):
        MemoryStore(folder, keep="all")
    with MemoryStore(folder) as again:
        np.testing.assert_array_equal(again.get(keys).vectors, contents)
    np.testing.assert_array_equal(MemoryStore.load(tmp_path / "file").get(keys).vectors, contents)


@pytest.mark.parametrize("keep", ["all", "codes"])
def test_keys_are_compared_with_those_stored(keep: str):
    store = MemoryStore(keep=keep, random_state=0)
    store.add(range(N), rows(N))
    search = store._contents.search
    keys, others = search.keys_of(rows(N)).rows, search.keys_of(rows(N, 1)).rows
    assert search.has_keys(np.arange(N), keys)
    assert not search.has_keys(np.arange(N), others)
    assert not search.has_keys(np.arange(1, N + 1), keys)


def test_other_words_are_refused():
    with pytest.raises(ValueError, match="keep must be"):
        ContextualMemoryTree(keep="some")

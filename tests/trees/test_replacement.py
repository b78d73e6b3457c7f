"""Replacing the keys and the values of memories."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse
from conftest import needs_jit, text_like
from failures import failing
from internals import lock_of, model_of
from test_tree import FAILURES, assert_holds, drop_spare_room

from cmt_numba import CMTRetriever, ContextualMemoryTree


def test_few_memories_are_replaced_in_one_step(dense_keys: np.ndarray):
    """Other threads see memories with their old or new keys, and wait only once."""
    tree = ContextualMemoryTree(n_trees=2, random_state=0)
    tree.insert(dense_keys)
    before = lock_of(tree).n_steps
    tree.replace([1, 5], -dense_keys[:2])
    assert lock_of(tree).n_steps == before + 1
    assert tree.query(-dense_keys[:2], 1, n_probes=100).ids[:, 0].tolist() == [1, 5]
    tree.check_invariants()


@needs_jit
def test_memory_stays_bounded():
    """Replaced sparse keys leave nothing in the key store or in routers."""
    keys = text_like(12_000, 30_000, 12, seed=5)
    tree = ContextualMemoryTree(leaf_multiplier=1.0, random_state=0)
    ids = tree.insert(keys[:1000])
    used = []
    for first in range(1000, 12_000, 1000):
        tree.replace(ids, keys[first : first + 1000])
        used.append(tree.nbytes)
    tree.check_invariants()
    assert max(used) < 2.0 * min(used)
    assert max(used[6:]) <= 1.2 * max(used[:6])  # one of the arrays may still double


def replace_over_and_over(tree: ContextualMemoryTree, ids: np.ndarray, keys: Any) -> None:
    """Replace keys in arrays that have no room, until one has to grow for the third time."""
    for _ in range(5):
        drop_spare_room(tree)
        tree.replace(ids, keys)


@needs_jit
@pytest.mark.parametrize("n_trees", [1, 2])
@pytest.mark.parametrize(("n", "error"), FAILURES)
def test_a_failed_replacement_loses_no_memory(n: int, error: type[BaseException], n_trees: int):
    """All memories are stored with their new keys, and replacing them again completes the change."""
    keys = text_like(2000, 2000, 12, seed=3)
    tree = ContextualMemoryTree(n_trees, leaf_multiplier=1.0, n_reroutes=2, n_threads=2, random_state=0)
    ids = tree.insert(keys[:1000])
    with failing("_forest.with_more", error, n):
        replace_over_and_over(tree, ids, keys[1000:])
    assert_holds(tree, ids, keys[1000:])
    tree.replace(ids, keys[:1000])
    assert_holds(tree, ids, keys[:1000])


@needs_jit
def test_a_replacement_without_memory_changes_nothing(sparse_keys: Any):
    tree = ContextualMemoryTree(random_state=0)
    ids = tree.insert(sparse_keys[:100])
    with failing("_forest.with_room_for_keys"):
        tree.replace(ids, sparse_keys[100:200])
    assert_holds(tree, ids, sparse_keys[:100])


# The retriever's memories


def colours(n: int) -> list[str]:
    return [f"colour {i}" for i in range(n)]


def test_other_objects_for_keys(keys: Any):
    retriever = CMTRetriever(random_state=0).fit(keys[:100], colours(100))
    assert retriever.set_values([3, 1], ["a much longer name than before", "blue"]) is retriever
    assert retriever.values([1, 2, 3]).tolist() == ["blue", "colour 2", "a much longer name than before"]
    assert retriever.predict(keys[[3]]).tolist() == ["a much longer name than before"]
    assert retriever.n_memories_ == 100


def test_other_keys_for_objects(keys: Any):
    retriever = CMTRetriever(random_state=0).fit(keys[:100], colours(100))
    assert retriever.replace([7, 8], keys[200:202]) is retriever
    assert retriever.predict(keys[[200, 201]]).tolist() == ["colour 7", "colour 8"]
    assert retriever.query(keys[[7]]).scores[0, 0] < 0.999
    retriever.remove([7])
    assert 7 not in retriever.query(keys[[200]], 20).ids


@pytest.mark.parametrize("sparse", [False, True])
def test_other_vectors_for_keys_searched_by_value(dense_keys: np.ndarray, sparse: bool):
    """Searches return values: memories that no longer share a value separate, and others merge."""
    y = np.repeat(np.eye(10, dtype=np.float32), 3, axis=0)
    y = scipy.sparse.csr_array(y) if sparse else y
    retriever = CMTRetriever(random_state=0, n_components=20).fit(dense_keys[:30], y)
    assert len(model_of(retriever).index) == 10
    retriever.set_values(
        [0, 1, 2, 3], y[[3, 6, 9, 3]]
    )  # no memory has the first value any more, and one memory has its own value again
    assert len(model_of(retriever).index) == 9
    retriever.set_values([29, 28], y[[0, 0]])  # it is the value of two memories again
    assert len(model_of(retriever).index) == 10
    wanted = np.repeat(np.arange(10), 3)
    wanted[[0, 1, 2]], wanted[[28, 29]] = [1, 2, 3], 0
    held = retriever.values(np.arange(30))
    np.testing.assert_array_equal(np.asarray((held.toarray() if sparse else held).argmax(axis=1)), wanted)
    entries, owners = model_of(retriever).memories.entries, model_of(retriever).memories.owners_of
    assert len(set(entries.tolist())) == len(set(zip(entries.tolist(), wanted.tolist(), strict=True))) == 10
    assert np.array_equal(wanted[owners(entries)], wanted)  # what is found has the value
    hits = retriever.query(dense_keys[:30], 10)
    assert set(wanted[hits.ids[0]].tolist()) == set(range(10))
    retriever.remove(np.arange(1, 30))
    assert len(model_of(retriever).index) == 1
    retriever.check_invariants()

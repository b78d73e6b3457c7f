"""Queries with a filter."""

import numpy as np
import pytest
import scipy.sparse
from internals import forest_of

from cmt_numba import ContextualMemoryTree

N = 3000


def make_keys(sparse):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 24)).astype(np.float32)
    if sparse:
        X[rng.random(X.shape) < 0.7] = 0.0
        X[:, 0] = 1.0
        return scipy.sparse.csr_array(X)
    return X


def best_among(X, queries, ids, k):
    """Return the exact answers: the ids of the largest cosines."""
    X = np.asarray(X.todense() if scipy.sparse.issparse(X) else X, np.float64)
    queries = np.asarray(queries.todense() if scipy.sparse.issparse(queries) else queries, np.float64)
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    cosines = queries @ unit[ids].T
    return ids[np.argsort(-cosines, axis=1)[:, :k]]


@pytest.fixture(scope="module", params=[False, True], ids=["dense", "sparse"])
def grown(request):
    X = make_keys(request.param)
    tree = ContextualMemoryTree(n_trees=3, random_state=0)
    tree.insert(X)
    return tree, X


@pytest.mark.parametrize("share", [0.003, 0.05, 0.6])
@pytest.mark.parametrize("compact", [False, True], ids=["as inserted", "compact"])
def test_all_leaves_of_a_filtered_search_give_the_exact_answers(grown, share, compact):
    tree, X = grown
    if compact:
        tree.compact()
    ids = np.sort(np.random.default_rng(1).permutation(N)[: int(share * N)])
    queries = X[:40]
    hits = tree.query(queries, 5, n_probes=10 * N, among=ids)
    np.testing.assert_array_equal(hits.ids, best_among(X, queries, ids, 5))


@pytest.mark.parametrize("share", [0.003, 0.05, 0.6])
def test_a_filtered_search_of_one_leaf_finds_k_selected_memories(grown, share):
    tree, X = grown
    ids = np.random.default_rng(2).permutation(N)[: int(share * N)]
    hits = tree.query(X[:200], 7, n_probes=1, among=ids)
    assert np.isin(hits.ids, ids).all()
    assert all(np.unique(row).size == 7 for row in hits.ids)
    assert (np.diff(hits.scores, axis=1) <= 0).all()
    if share < 0.01:  # all of so few are scored
        np.testing.assert_array_equal(hits.ids, best_among(X, X[:200], ids, 7))


def test_filtered_searches_find_near_memories_better_than_filtering_afterwards(grown):
    tree, X = grown
    ids = np.flatnonzero(np.arange(N) % 10 == 0)
    exact = best_among(X, X[:300], ids, 1)
    filtered = tree.query(X[:300], 1, n_probes=6, among=ids).ids
    afterwards = tree.query(X[:300], 10, n_probes=6).ids
    kept = [next((i for i in row if i % 10 == 0), -1) for row in afterwards]
    assert np.mean(filtered == exact) > np.mean(np.array(kept) == exact[:, 0])


def test_a_mask_selects_by_id(grown):
    tree, X = grown
    mask = np.zeros(N, bool)
    mask[100:900] = True
    by_mask = tree.query(X[:30], 4, among=mask)
    by_ids = tree.query(X[:30], 4, among=np.arange(100, 900))
    np.testing.assert_array_equal(by_mask.ids, by_ids.ids)
    np.testing.assert_array_equal(tree.query(X[:30], 4, among=mask[:900]).ids, by_ids.ids)
    assert (tree.query(X[:3], 2, among=np.zeros(N, bool)).ids == -1).all()
    assert (tree.query(X[:3], 2, among=[]).ids == -1).all()


def test_only_masks_may_include_removed_memories():
    X = make_keys(False)
    tree = ContextualMemoryTree(random_state=0)
    tree.insert(X)
    tree.remove(np.arange(1000))
    mask = np.ones(2 * N, bool)
    np.testing.assert_array_equal(tree.query(X[1000:1050], 3, among=mask).ids, tree.query(X[1000:1050], 3).ids)
    with pytest.raises(KeyError, match="among must refer to stored memories, but no memory has id 3"):
        tree.query(X[:1], among=[2000, 3])


def test_a_repeated_filter_is_prepared_once_until_a_change():
    tree, X = ContextualMemoryTree(random_state=0), make_keys(False)
    tree.insert(X[:600])
    ids, mask = np.arange(100, 400), np.arange(600) % 2 == 0

    def prepared(among):
        tree.query(X[:1], among=among)
        return forest_of(tree).filters.of(among, lambda: pytest.fail("it is not remembered"))

    by_ids, by_mask = prepared(ids), prepared(mask)
    assert prepared(ids) is by_ids
    assert prepared(mask) is by_mask
    mask[0] = False
    assert tree.query(X[:1], among=mask).ids[0, 0] != 0
    assert prepared(mask) is not by_mask
    tree.remove([2, 100])
    assert tree.query(X[2:3], 5, among=mask).ids[0, 0] != 2
    with pytest.raises(KeyError, match="no memory has id 100"):
        tree.query(X[:1], among=ids)
    for _ in range(20):
        tree.query(X[:1], among=np.array([1, 3]))
    assert len(forest_of(tree).filters._made) <= 8


def test_a_filter_of_all_memories_changes_nothing(grown):
    tree, X = grown
    np.testing.assert_array_equal(tree.query(X, 3, among=np.arange(N)).ids, tree.query(X, 3).ids)


def test_answers_do_not_depend_on_the_number_of_threads(grown):
    tree, X = grown
    other = ContextualMemoryTree.__new__(ContextualMemoryTree)
    other.__setstate__(tree.__getstate__())
    forest_of(other).n_threads = 4
    mask = np.arange(N) % 3 == 0
    np.testing.assert_array_equal(tree.query(X, 5, among=mask).ids, other.query(X, 5, among=mask).ids)


def test_a_filtered_search_of_an_empty_tree():
    tree = ContextualMemoryTree()
    assert (tree.query(np.eye(3), among=np.ones(5, bool)).ids == -1).all()
    with pytest.raises(KeyError, match="no memory has id 0"):
        tree.query(np.eye(3), among=[0])

"""Tests of the index of sparse vectors, against a comparison of all vectors in float64."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from internals import list_all, postings_of, stored_in

from cmt_numba._postings import SparseIndex
from cmt_numba._postings import sparse_index as module
from cmt_numba.store import METRICS

D = 40


def drawn(n: int, seed: int, *, signed: bool) -> np.ndarray:
    rng = np.random.default_rng(seed)
    X = rng.integers(1, 4, (n, D)) * (rng.random((n, D)) < 1 / (2 + np.arange(D)))
    X[:, -1] += rng.integers(1, 3, n)  # no zero rows
    return (X * rng.choice([-1, 1], X.shape) if signed else X).astype(np.float32)


def expected(metric: str, Q: np.ndarray, X: np.ndarray, ids: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    Q, X = Q.astype(float), X.astype(float)
    scores = Q @ X.T
    if metric == "cosine":
        scores /= np.linalg.norm(Q, axis=1)[:, None] * np.linalg.norm(X, axis=1)
    if metric == "euclidean":
        scores = -np.linalg.norm(Q[:, None] - X[None], axis=2)
    order = np.lexsort((np.broadcast_to(ids, scores.shape), -scores.round(12)), axis=1)[:, :k]
    return ids[order], np.take_along_axis(scores, order, axis=1)


def check_search(index: SparseIndex, stored: dict[int, np.ndarray], Q: np.ndarray, k: int, among: Any = None) -> None:
    ids = np.array(sorted(stored if among is None else set(among) & set(stored)), np.int64)
    allowed = None if among is None else index.allow(np.array(among, np.int64))
    found, scores = index.search(scipy.sparse.csr_array(Q), k, among=allowed, n_threads=2)
    n = min(k, ids.size)
    assert found.shape == scores.shape == (len(Q), k)
    assert (found[:, n:] == -1).all()
    assert np.isneginf(scores[:, n:]).all()
    if n > 0:
        best, best_scores = expected(index.metric, Q, np.stack([stored[i] for i in ids]), ids, n)
        np.testing.assert_allclose(scores[:, :n], best_scores, rtol=1e-6, atol=1e-6)
        unlike = best != found[:, :n]  # only where scores are equal up to rounding
        for row in np.flatnonzero(unlike.any(axis=1)):
            assert set(found[row, :n]) <= set(ids)
            assert len(set(found[row, :n])) == n


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("metric", METRICS)
def test_searches_are_exact_after_any_changes(metric: str, signed: bool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(SparseIndex, "_most_recent", 20)
    monkeypatch.setattr(module, "_FEW", 10)
    rng, index, stored = np.random.default_rng(0), SparseIndex(D, metric), {}
    for step in range(40):
        X = drawn(int(rng.integers(1, 60)), step, signed=signed)
        for i, x in zip(index.insert(scipy.sparse.csr_array(X)).tolist(), X, strict=True):
            stored[i] = x
        changed = rng.choice(list(stored), min(len(stored), int(rng.integers(1, 30))), replace=False)
        if step % 3 == 0:
            index.remove(changed)
            for i in changed.tolist():
                del stored[i]
        elif step % 3 == 1:
            new = drawn(changed.size, 1000 + step, signed=signed)
            index.replace(changed, scipy.sparse.csr_array(new))
            stored |= dict(zip(changed.tolist(), new, strict=True))
        index.check_invariants()
        assert stored_in(index).features.dtype == np.int32  # kernels would be compiled for others
        assert sorted(index.ids) == sorted(stored)
        Q = drawn(4, 2000 + step, signed=signed)
        for k in (1, 3, 200):
            check_search(index, stored, Q, k)
            check_search(index, stored, Q, k, rng.integers(0, index.next_id, 30).tolist())
    assert postings_of(index) is not None
    some = np.array(sorted(stored)[::7])
    np.testing.assert_array_equal(index.vectors(some).toarray(), np.stack([stored[i] for i in some.tolist()]))
    again = SparseIndex.of_arrays(*index.arrays())
    check_search(again, stored, Q, 5)
    assert again.next_id == index.next_id


@given(st.integers(0, 10**6), st.sampled_from(list(METRICS)), st.integers(1, 30))
@settings(max_examples=25, deadline=None)
def test_queries_without_common_features(seed: int, metric: str, k: int):
    rng = np.random.default_rng(seed)
    X = drawn(60, seed, signed=bool(seed % 2))
    Q = np.zeros((3, D), np.float32)
    Q[np.arange(3), rng.integers(0, D, 3)] = rng.choice([-1.0, 1.0, 2.0], 3)
    index = SparseIndex(D, metric)
    ids = index.insert(scipy.sparse.csr_array(X))
    list_all(index)
    check_search(index, dict(zip(ids.tolist(), X, strict=True)), Q, k)


def test_equal_vectors_are_ranked_by_id():
    index = SparseIndex(D, "cosine")
    index.insert(scipy.sparse.csr_array(np.repeat(drawn(3, 0, signed=False), 30, axis=0)))
    list_all(index)
    assert index.search(index.vectors(np.array([40])), 4)[0].tolist() == [[30, 31, 32, 33]]

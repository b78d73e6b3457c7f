"""Tests that vectors are returned bit for bit, and that exact results equal results in float64."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from stores import true_scores

from cmt_numba import MemoryStore
from cmt_numba.store import METRICS

D = 6


def drawn(n: int, seed: int = 0, magnitude: float = 1.0) -> np.ndarray:
    return (np.random.default_rng(seed).normal(size=(n, D)) * magnitude).astype(np.float32)


def check_answers(store: MemoryStore, metric: str, Q: np.ndarray, X: np.ndarray, k: int = 10) -> None:
    """Check that exact results are the best memories with correct scores."""
    answers, true = store.query(Q, k, target_recall=1.0), true_scores(metric, Q, X)
    of_answers = np.take_along_axis(true, answers.keys.astype(np.int64), axis=1)
    scale = np.abs(true).max()
    np.testing.assert_allclose(of_answers, -np.sort(-true, axis=1)[:, :k], rtol=1e-13, atol=1e-15 * scale)
    np.testing.assert_allclose(answers.scores, of_answers, rtol=1e-4, atol=1e-6 * scale)


def bits(X: Any) -> bytes:
    return (X.toarray() if scipy.sparse.issparse(X) else X).tobytes()


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("magnitude", [1e-44, 1e-20, 1.0, 1e20, 1e38])
@pytest.mark.parametrize("metric", METRICS)
def test_vectors_come_back_bit_for_bit(metric: str, magnitude: float, form: Any, tmp_path: Path):
    X = np.clip(drawn(40, 1, magnitude), -3e38, 3e38).astype(np.float32)
    X[np.abs(X) < magnitude / 3] = 0.0
    X[:, 0] = magnitude
    X[:3] /= np.float32(1e3)
    X[:3, 0] = magnitude
    X = X if form is np.asarray else X + np.float32(0.0)  # sparse matrices have no negative zeros
    keys = list(range(40))
    with MemoryStore(tmp_path / "store", metric, random_state=0) as store:
        for first, stop in ((0, 1), (1, 5), (5, 40)):
            store.add(keys[first:stop], form(X[first:stop]))
        assert bits(store.get(keys).vectors) == X.tobytes()
        store.upsert([7, 8], form(X[[8, 7]]))
        X[[7, 8]] = X[[8, 7]]
        assert bits(store.get(keys[::-1]).vectors) == X[::-1].tobytes()
        store.check_invariants()
        store.save(tmp_path / "file")
    with MemoryStore(tmp_path / "store") as again:
        assert bits(again.get(keys).vectors) == X.tobytes()
    assert bits(MemoryStore.load(tmp_path / "file").get(keys).vectors) == X.tobytes()


@pytest.mark.parametrize("far", [1e4, 1e8, 1e10, 1e20])
@pytest.mark.parametrize("metric", METRICS)
def test_a_distant_vector_changes_no_other(metric: str, far: float, tmp_path: Path):
    X, keys = drawn(50), list(range(50))
    with MemoryStore(tmp_path / "store", metric, random_state=0) as store:
        store.add(keys, X)
        store.add([99], np.full((1, D), far, np.float32))
        assert store.get(keys).vectors.tobytes() == X.tobytes()
        assert store.get([99]).vectors.tobytes() == np.full((1, D), far, np.float32).tobytes()
        store.delete([99])
        check_answers(store, metric, X, X)
    with MemoryStore(tmp_path / "store") as again:
        assert again.get(keys).vectors.tobytes() == X.tobytes()


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("far", [1e3, 1e5, 1e12])
def test_small_stores_are_exact_next_to_a_distant_vector(metric: str, far: float):
    X, Q = drawn(1000), drawn(50, 1)
    X[0, 0] = far
    store = MemoryStore(metric=metric, random_state=0)
    store.add(range(1000), X)
    check_answers(store, metric, Q, X)
    check_answers(store, metric, Q * np.float32(far), X)


def towns(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return points near 20 distant places, and queries near the same places."""
    random = np.random.default_rng(1)
    centers = random.uniform(0, 100_000, (20, 2))
    points = (centers[random.integers(0, 20, n + 100)] + 10 * random.normal(size=(n + 100, 2))).astype(np.float32)
    return points[:n], points[n:]


def test_near_points_on_a_wide_map_are_distinguished():
    X, Q = towns(4000)
    store = MemoryStore(metric="euclidean", random_state=0)
    store.add(range(4000), X)
    check_answers(store, "euclidean", Q, X)


def test_nearly_equal_directions_are_distinguished():
    X = (1 + 1e-4 * np.random.default_rng(0).normal(size=(3000, D))).astype(np.float32)
    store = MemoryStore(random_state=0)
    store.add(range(3000), X)
    check_answers(store, "cosine", X[:50] + np.float32(1e-5), X)

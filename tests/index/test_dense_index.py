"""``DenseIndex`` against a naive model."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import needs_jit
from internals import index_room, inner_state

from cmt_numba._index import DenseIndex, changes, dense_index, invariants
from cmt_numba._jit import held
from cmt_numba._kernels import InvariantError

METRICS = ("cosine", "inner_product", "euclidean")


def vectors(n, d, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d)).astype(np.float32)


def scores_of(metric, q, V):
    q, V = q.astype(np.float64), V.astype(np.float64)
    if metric == "euclidean":
        return -np.sqrt(((V - q) ** 2).sum(axis=1))
    products = V @ q
    return products / np.sqrt((V**2).sum(axis=1) * (q**2).sum()) if metric == "cosine" else products


@pytest.mark.parametrize("n_without_lists", [30, 1024])
@pytest.mark.parametrize("metric", METRICS)
def test_random_changes_match_a_dict(metric, n_without_lists, monkeypatch):
    monkeypatch.setattr(dense_index, "_FEW", n_without_lists)
    rng = np.random.default_rng(1)
    dense, model = DenseIndex(5, metric=metric, random_state=3), {}
    for step in range(60):
        kind, known = rng.integers(4), np.array(sorted(model), np.int64)
        if kind <= 1 or known.size == 0:
            X = vectors(rng.integers(1, 40), 5, step)
            ids = dense.insert(X)
            model |= dict(zip(ids.tolist(), X, strict=True))
        elif kind == 2:
            gone = rng.permutation(known)[: rng.integers(1, 1 + known.size)]
            dense.remove(gone)
            for i in gone.tolist():
                del model[i]
        else:
            some = rng.permutation(known)[: rng.integers(1, 1 + known.size)]
            X = vectors(some.size, 5, step)
            dense.replace(some, X)
            model |= dict(zip(some.tolist(), X, strict=True))
        dense.check_invariants()
        known = np.array(sorted(model), np.int64)
        assert len(dense) == len(model)
        np.testing.assert_array_equal(np.sort(dense.ids), known)
        if known.size == 0:
            continue
        V = np.array([model[i] for i in known.tolist()])
        np.testing.assert_array_equal(dense.vectors(known), V)
        q, allowed = vectors(1, 5, 1000 + step), known[rng.random(known.size) < 0.5]
        for among, possible in ((None, known), (dense.allow(allowed), allowed)):
            found, scores = dense.search(q, 7, target_recall=1.0, among=among)
            expected = scores_of(metric, q[0], V[np.isin(known, possible)])
            best = np.argsort(-expected, kind="stable")[:7]
            np.testing.assert_array_equal(found[0, : best.size], possible[best])
            np.testing.assert_allclose(scores[0, : best.size], expected[best], rtol=1e-9, atol=1e-9)
            assert (found[0, best.size :] == -1).all()
            assert (scores[0, best.size :] == -np.inf).all()


def test_ids_are_never_reused():
    dense = DenseIndex(2)
    dense.remove(dense.insert(vectors(10, 2)))
    np.testing.assert_array_equal(dense.insert(vectors(3, 2)), [10, 11, 12])
    np.testing.assert_array_equal(dense.contains(np.array([9, 10, 13, -1])), [False, True, False, False])


def test_equal_scores_are_ordered_by_id():
    dense = DenseIndex(3, metric="inner_product")
    dense.insert(np.ones((20, 3), np.float32))
    dense.remove(np.array([0, 3]))
    found, _ = dense.search(np.ones((1, 3), np.float32), 5)
    np.testing.assert_array_equal(found, [[1, 2, 4, 5, 6]])


def test_allowed_vectors_are_valid_until_the_next_change():
    dense = DenseIndex(3)
    allowed = dense.allow(dense.insert(vectors(10, 3)))
    dense.remove(np.array([0]))
    with pytest.raises(ValueError, match="earlier version"):
        dense.search(vectors(1, 3), 1, among=allowed)


@pytest.mark.parametrize("n_without_lists", [50, 1024])
@pytest.mark.parametrize("mode", ["r", "c"])
def test_an_index_is_restored_from_arrays(tmp_path, mode, n_without_lists, monkeypatch):
    monkeypatch.setattr(dense_index, "_FEW", n_without_lists)
    dense = DenseIndex(4, metric="euclidean", random_state=5)
    dense.insert(vectors(100, 4))
    dense.remove(np.arange(0, 100, 3))
    arrays, facts = dense.arrays()
    np.save(tmp_path / "vectors.npy", arrays["vectors"])
    mapped = arrays | {"vectors": np.load(tmp_path / "vectors.npy", mmap_mode=mode)}
    restored, copied = DenseIndex.of_arrays(mapped, facts), dense.copy()
    for twin in (dense, restored, copied):
        twin.insert(vectors(10, 4, 1))
        twin.remove(np.array([1]))
        twin.replace(np.array([2]), vectors(1, 4, 2))
        twin.check_invariants()
    for twin in (restored, copied):
        for a, b in zip(dense.search(vectors(9, 4, 3), 6), twin.search(vectors(9, 4, 3), 6), strict=True):
            np.testing.assert_array_equal(a, b)


def test_lists_that_are_too_long_to_be_divided_are_refused(monkeypatch):
    monkeypatch.setattr(dense_index, "_FEW", 50)
    dense = DenseIndex(4)
    dense.insert(vectors(100, 4))
    monkeypatch.setattr(invariants, "LIST_SIZE", 49)
    with pytest.raises(InvariantError, match="more members than can be divided"):
        DenseIndex.of_arrays(*dense.arrays())


def test_saved_arrays_have_no_arbitrary_values():
    saved = []
    for filler in (7, 9):
        filled = [np.full(size, filler, np.uint8) for size in (128, 256, 1024, 4096) for _ in range(300)]
        del filled  # new arrays may reuse this memory
        dense = DenseIndex(4, "cosine", 0)
        dense.insert(vectors(12, 4))
        dense.remove(np.array([3]))
        saved.append({name: array.tobytes() for name, array in dense.arrays()[0].items()})
    assert saved[0] == saved[1]


def clustered(n, d, seed=0):
    rng = np.random.default_rng(seed)
    centers = np.random.default_rng(99).standard_normal((20, d))
    return (centers[rng.integers(20, size=n)] + 0.5 * rng.standard_normal((n, d))).astype(np.float32)


@pytest.mark.parametrize("metric", METRICS)
def test_lists_grow_and_shrink(metric, monkeypatch):
    monkeypatch.setattr(dense_index, "_FEW", 100)
    dense, rng = DenseIndex(20, metric=metric), np.random.default_rng(0)
    n = 600
    for turn in range(2):
        ids = dense.insert(clustered(n, 20, turn))
        dense.check_invariants()
        dense.replace(ids[: n // 4], clustered(n // 4, 20, turn + 10))
        dense.check_invariants()
        assert dense.recall(clustered(50, 20, 77), 10, 0.95) > 0.85
        dense.remove(rng.permutation(dense.ids)[: 9 * len(dense) // 10])
        dense.check_invariants()
        dense.reroute(100)
        dense.check_invariants()
        assert dense.recall(clustered(50, 20, 77), 10, 0.95) > 0.85


@needs_jit
def test_the_effort_follows_lists_that_split_at_the_same_time():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((100, 64))[rng.integers(100, size=16_400)] + 0.3 * rng.standard_normal((16_400, 64))
    dense = DenseIndex(64)
    for part in np.array_split(X[:16_000].astype(np.float32), 32):
        dense.insert(part)
    assert dense.recall(X[16_000:].astype(np.float32), 10, 0.95) > 0.92


@needs_jit
@pytest.mark.parametrize("metric", METRICS)
def test_groups_of_lists_grow_and_shrink(metric):
    dense, X = DenseIndex(8, metric=metric), clustered(40_000, 8)
    ids = dense.insert(X[:30_000])
    dense.check_invariants()
    assert inner_state(dense).groups.counts[index_room.state.N_LISTS] > 1
    assert dense.recall(clustered(50, 8, 77), 10, 0.95) > 0.9
    twin = dense.copy()
    for it in (dense, twin):
        it.insert(X[30_000:])
        it.replace(ids[:5000], 3.0 - X[35_000:])
        it.check_invariants()
    for name, array in dense.arrays()[0].items():
        np.testing.assert_array_equal(array, twin.arrays()[0][name])
    for part in np.array_split(np.random.default_rng(0).permutation(dense.ids)[:39_000], 10):
        dense.remove(part)
        dense.check_invariants()
    assert inner_state(dense).groups.counts[index_room.state.N_LISTS] == 1


@needs_jit
def test_lists_with_equal_centers_are_divided_into_groups():
    dense = DenseIndex(3, metric="euclidean")
    dense.insert(np.zeros((30_000, 3), np.float32))
    dense.check_invariants()
    assert inner_state(dense).groups.counts[index_room.state.N_LISTS] > 1
    assert inner_state(dense).groups.sizes.max() <= 2 * index_room.state.LIST_SIZE


@needs_jit
@pytest.mark.parametrize("seed", [174, 399])
def test_a_replaced_vector_may_leave_a_list_that_gets_another_number(seed: int):
    rng = np.random.default_rng(seed)

    def clusters(n):
        centers = 3 * rng.standard_normal((20, 8))
        return (centers[rng.integers(20, size=n)] + 0.01 * rng.standard_normal((n, 8))).astype(np.float32)

    dense = DenseIndex(8, "euclidean")
    ids = dense.insert(clusters(3000))
    dense.replace(rng.permutation(ids)[:2000], clusters(2000))
    dense.check_invariants()


def test_equal_vectors_are_divided_too(monkeypatch):
    monkeypatch.setattr(dense_index, "_FEW", 100)
    dense = DenseIndex(8, metric="euclidean")
    dense.insert(np.zeros((400, 8), np.float32))
    dense.check_invariants()
    ids, scores = dense.search(np.zeros((1, 8), np.float32), 5, target_recall=1.0)
    np.testing.assert_array_equal(ids, [[0, 1, 2, 3, 4]])
    np.testing.assert_array_equal(scores, 0.0)
    dense.remove(np.arange(390))
    dense.check_invariants()
    assert len(dense.search(np.zeros((1, 8), np.float32), 5)[0]) == 1


@pytest.mark.parametrize("share", [0.5, 0.2])
@pytest.mark.parametrize("is_local", [False, True])
def test_searches_among_many_find_most_of_the_best(share, is_local, monkeypatch):
    monkeypatch.setattr(dense_index, "_FEW", 100)
    dense, X, Q = DenseIndex(20), clustered(2000, 20), clustered(50, 20, 1)
    ids = dense.insert(X)
    order = np.argsort(X[:, 0]) if is_local else np.random.default_rng(2).permutation(2000)
    allowed = np.sort(ids[order[: int(share * 2000)]])
    found, _ = dense.search(Q, 10, 0.95, among=dense.allow(allowed))
    one_by_one = np.concatenate([dense.search(q[None], 10, 0.95, among=dense.allow(allowed))[0] for q in Q])
    best = np.array([allowed[np.argsort(-scores_of("cosine", q, X[allowed]))[:10]] for q in Q])
    assert np.isin(found, allowed).all()
    for some in (found, one_by_one):
        assert np.mean([np.isin(a, b).mean() for a, b in zip(best, some, strict=True)]) > 0.9


def test_threads_do_not_change_results(monkeypatch):
    monkeypatch.setattr(dense_index, "_FEW", 100)
    dense, Q = DenseIndex(20), clustered(50, 20, 1)
    dense.insert(clustered(2000, 20))
    for rows in (Q, Q[:5]):
        for a, b in zip(dense.search(rows, 5), dense.search(rows, 5, n_threads=3), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("n_stored", [10, 98, 110])  # vectors in no lists, in new lists, in lists
def test_a_failed_insertion_leaves_no_trace(n_stored, monkeypatch):
    monkeypatch.setattr(dense_index, "_FEW", 100)
    dense = DenseIndex(4)
    dense.insert(vectors(n_stored, 4))
    few, many, n_calls = changes.change_few, changes.change_vectors, 0

    def fail_in_few(state, change, ids, X):
        few(state, change, ids[:5] if change != changes.REMOVE else ids, X)
        if change != changes.REMOVE:
            raise KeyboardInterrupt

    def fail_in_many(state, change, ids, X, first):
        nonlocal n_calls
        n_calls += change != changes.REMOVE
        if n_calls == 2:
            n_calls += 1
            raise KeyboardInterrupt
        return many(state, change, ids[:5] if n_calls == 1 else ids, X, first)

    monkeypatch.setattr(changes, "change_few", fail_in_few)
    monkeypatch.setattr(changes, "change_vectors", fail_in_many)
    with pytest.raises(KeyboardInterrupt):
        dense.insert(vectors(20, 4, 1))
    monkeypatch.undo()
    dense.check_invariants()
    np.testing.assert_array_equal(np.sort(dense.ids), np.arange(n_stored))
    np.testing.assert_array_equal(dense.insert(vectors(2, 4, 2)), [n_stored, n_stored + 1])


def test_many_results_are_complete(monkeypatch):
    monkeypatch.setattr(dense_index, "_FEW", 100)
    dense, Q = DenseIndex(20), clustered(6, 20, 1)
    dense.insert(clustered(400, 20))
    found, scores = dense.search(Q, 500)
    for row in found:
        np.testing.assert_array_equal(np.sort(row[:400]), np.arange(400))
    assert (found[:, 400:] == -1).all()
    assert (np.diff(scores[:, :400]) <= 0).all()


@pytest.mark.parametrize("n_rows", [1, 20])
def test_the_nearest_list_is_searched_although_its_estimate_is_too_low(n_rows, monkeypatch):
    monkeypatch.setattr(dense_index, "_FEW", 100)
    dense = DenseIndex(20)
    allowed = dense.allow(dense.insert(clustered(400, 20))[::2])
    inner_state(dense).groups.added[:] -= 0.5
    zeros = np.zeros(24, np.float32)
    effort = held(index_room.search.ListEffort(zeros, zeros, zeros, zeros, zeros, 1.9, 1))
    monkeypatch.setattr(dense._gaps, "effort", lambda _: effort)
    found, _ = dense.search(clustered(n_rows, 20, 1), 3, among=allowed)
    assert (found >= 0).all()


def copies(n_copies, noise, n_clusters, n=6000, d=64):
    """Return stored vectors with near copies, and queries without any."""
    rng = np.random.default_rng(0)
    own = rng.standard_normal((n // n_copies + 300, d))
    if n_clusters > 0:
        own = 0.4 * own + rng.standard_normal((n_clusters, d))[rng.integers(n_clusters, size=len(own))]
    stored = np.repeat(own[300:], n_copies, axis=0)
    stored = rng.permutation(stored + noise * rng.standard_normal(stored.shape))
    return stored.astype(np.float32), own[:300].astype(np.float32)


@needs_jit
@pytest.mark.parametrize(
    ("metric", "noise", "n_clusters"),
    [*((metric, noise, 0) for metric in METRICS for noise in (0.0, 0.05)), ("cosine", 0.0, 30), ("euclidean", 0.0, 30)],
)
def test_queries_without_near_copies_are_found_too(metric: str, noise: float, n_clusters: int):
    stored, Q = copies(10, noise, n_clusters)
    dense = DenseIndex(64, metric)
    for part in np.array_split(stored, 12):
        dense.insert(part)
    best = dense.search(Q, 1, 1.0)[1]
    alone = np.concatenate([dense.search(q[None], 1)[1] for q in Q])
    for scores in (dense.search(Q, 1)[1], alone):
        assert (scores >= best - 1e-9).mean() > 0.93


@needs_jit
def test_the_effort_follows_replaced_vectors():
    rng, n = np.random.default_rng(1), 6000
    old, new = rng.standard_normal((n, 32)), rng.standard_normal((n + 300, 32)) ** 3
    dense = DenseIndex(32, "inner_product")
    ids = dense.insert(old.astype(np.float32))
    for some, X in zip(np.array_split(ids, 12), np.array_split(new[:n].astype(np.float32), 12), strict=True):
        dense.replace(some, X)
    assert dense.recall(new[n:].astype(np.float32), 10, 0.95) > 0.93


@needs_jit
@pytest.mark.parametrize("is_batch", [False, True])
def test_queries_correct_the_effort(is_batch: bool):
    rng = np.random.default_rng(0)
    centers = rng.standard_normal((100, 32))
    X = centers[rng.integers(100, size=4000)] + 0.2 * rng.standard_normal((4000, 32))
    Q = (rng.permutation(X) + rng.permutation(X))[:300].astype(np.float32) / 2.0  # unlike the stored vectors
    dense = DenseIndex(32, "euclidean")
    dense.insert(X.astype(np.float32))
    assert dense.recall_seen is None
    before, asked = dense.recall(Q, 10, 0.95), Q[rng.integers(300, size=40_000)]
    if is_batch:
        for part in np.array_split(np.tile(asked, (8, 1)), 320):
            dense.search(part, 10)
    else:
        for q in asked:
            dense.search(q[None], 10)
    assert before - 0.1 < dense.recall_seen <= 1.0
    assert dense.recall(Q, 10, 0.95) >= min(before, 0.95) - 0.01


@needs_jit
def test_queries_far_from_all_vectors_keep_their_recall():
    rng = np.random.default_rng(0)
    centers = rng.standard_normal((100, 64))
    X = centers[rng.integers(100, size=16_000)] + 0.4 * rng.standard_normal((16_000, 64))
    Q = (rng.permutation(X) + rng.permutation(X))[:1000].astype(np.float32) / 2.0
    dense = DenseIndex(64, "euclidean")
    dense.insert(X.astype(np.float32))
    for _ in range(160):
        dense.search(Q[rng.integers(500, 1000, size=2000)], 10)
    assert dense.recall_seen is not None
    assert dense.recall(Q[:500], 10, 0.95) > 0.95


@needs_jit
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("n", [1500, 4000, 40_000])
def test_queries_unlike_the_stored_vectors_are_found_too(metric: str, n: int):
    rng = np.random.default_rng(0)
    centers = rng.standard_normal((100, 32))
    X = (centers[rng.integers(100, size=n)] + 0.4 * rng.standard_normal((n, 32))).astype(np.float32)
    dense = DenseIndex(32, metric)
    for part in np.array_split(X, 10):
        dense.insert(part)
    between = (rng.permutation(X)[:400] + rng.permutation(X)[:400]) / 2.0
    noise = rng.standard_normal((400, 32)).astype(np.float32)
    for Q in (between, noise, 3.0 * noise):
        for k in (1, 10):
            best = dense.search(Q, k, 1.0)[1][:, -1:]
            alone = np.concatenate([dense.search(q[None], k)[1] for q in Q])
            for scores in (dense.search(Q, k)[1], alone):
                assert (scores >= best - 1e-9).mean() > 0.92


@needs_jit
@pytest.mark.parametrize("metric", METRICS)
def test_a_search_returns_as_many_as_wanted(metric: str):
    """A lower bound of a 1-bit code may be too high, but it must not exclude the vector itself."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 24)).astype(np.float32)
    Q = X[rng.integers(0, 2000, 600)] + 0.5 * rng.normal(size=(600, 24)).astype(np.float32)
    dense = DenseIndex(24, metric, random_state=0)
    dense.insert(X)
    for k in (1, 3):
        assert (dense.search(Q, k)[0] >= 0).all()
        assert all((dense.search(Q[i : i + 1], k)[0] >= 0).all() for i in range(0, 600, 10))


@pytest.mark.parametrize("metric", METRICS)
def test_vectors_of_any_length_are_compared_exactly(metric: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(dense_index, "_FEW", 100)
    X, Q, rng = clustered(400, 20), clustered(6, 20, 1), np.random.default_rng(0)
    dense = DenseIndex(20, metric)
    dense.insert(X[:200])
    X[200:] *= (10.0 ** rng.uniform(-40, 36, (200, 1))).astype(np.float32)
    dense.insert(X[200:])
    dense.check_invariants()
    for scale in (1e-30, 1.0, 1e30):
        some = Q * np.float32(scale)
        best = np.array([np.argsort(-scores_of(metric, q, X), kind="stable")[:10] for q in some])
        found = dense.search(some, 10, 0.95 if metric != "cosine" else 1.0)[0]
        np.testing.assert_allclose(
            [scores_of(metric, q, X[ids]) for q, ids in zip(some, found, strict=True)],
            [scores_of(metric, q, X[ids]) for q, ids in zip(some, best, strict=True)],
            rtol=1e-12,
        )
    dense.remove(np.arange(200, 400))
    dense.check_invariants()
    assert inner_state(dense).totals[index_room.state.N_FAR] == 0


def towns(rng, d):
    centers = rng.uniform(0, 1e5, (20, d))
    return centers[rng.integers(20, size=4200)] + 10 * rng.standard_normal((4200, d))


def clusters_and_far_vectors(rng, d):
    """Return clusters with some vectors far from all of them. Half of the last 400 vectors are far."""
    centers = 5 * rng.standard_normal((20, d))
    X = centers[rng.integers(20, size=4400)] + 0.5 * rng.standard_normal((4400, d))
    is_far = rng.random(4400) < 0.05
    is_far[4000:] = np.arange(400) < 200
    X[is_far] = 8 * rng.standard_normal((is_far.sum(), d))
    return X


def long_positive_vectors(rng, d):
    return np.abs(rng.standard_t(3, size=(4400, d)))


@needs_jit
@pytest.mark.parametrize(
    ("metric", "drawn", "d", "least"),
    [
        ("euclidean", towns, 2, 0.88),
        ("euclidean", towns, 6, 0.88),
        ("cosine", clusters_and_far_vectors, 32, 0.93),
        ("euclidean", clusters_and_far_vectors, 32, 0.93),
        ("inner_product", long_positive_vectors, 32, 0.93),
    ],
)
def test_vectors_of_unusual_distributions_are_found(metric, drawn, d, least):
    X = drawn(np.random.default_rng(1), d).astype(np.float32)
    recalls = []
    for random_state in range(4):
        dense = DenseIndex(d, metric, random_state)
        for first in range(0, 4000, 250):
            dense.insert(X[first : first + 250])
        recalls.append(dense.recall(X[4000:], 10, 0.95))
    assert np.mean(recalls) > least


HARD: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "usual": lambda V: V,
    "nearly equal": lambda V: V[:1] + 1e-7 * V,
    "equal": lambda V: np.repeat(V[:20], 15, axis=0),
    "far from zero": lambda V: 1000.0 + 0.001 * V,
    "long": lambda V: 1e18 * V,
    "with squares beyond float32": lambda V: 1e25 * V,
    "short": lambda V: 1e-30 * V,
    "of very different lengths": lambda V: V * 10.0 ** np.linspace(-12, 12, len(V))[:, None],
}


@pytest.mark.parametrize("vectors_of", HARD.values(), ids=HARD)
@pytest.mark.parametrize("metric", METRICS)
def test_rows_of_a_batch_are_answered_like_single_rows(metric: str, vectors_of: Callable[[np.ndarray], np.ndarray]):
    V = vectors_of(vectors(300, 24)).astype(np.float32)
    dense = DenseIndex(24, metric=metric)
    dense.insert(V)
    Q = np.concatenate([V[:10], vectors_of(vectors(300, 24, 1))[:10].astype(np.float32), np.zeros((1, 24), np.float32)])
    every, their_scores = dense.search(Q[:1], 300)
    for allowed in (np.arange(300), np.arange(5), np.arange(0, 300, 3)):
        among, is_allowed = dense.allow(allowed), np.isin(every[0], allowed)
        for k in (1, 10, 120):
            ids, scores = dense.search(Q, k, among=among)
            n = min(k, allowed.size)
            assert (ids[:, :n] >= 0).all()
            np.testing.assert_array_equal(ids[0, :n], every[0, is_allowed][:n])
            np.testing.assert_array_equal(scores[0, :n], their_scores[0, is_allowed][:n])
            for i, q in enumerate(Q):
                alone = dense.search(q[None], k, among=among)
                np.testing.assert_array_equal(ids[i], alone[0][0])
                np.testing.assert_array_equal(scores[i], alone[1][0])


@needs_jit
@pytest.mark.parametrize("metric", METRICS)
def test_batches_are_searched_like_single_rows(metric: str):
    V = np.repeat(clustered(2500, 24), 2, axis=0)  # pairs of equal vectors
    dense = DenseIndex(24, metric)
    dense.insert(V[::-1].copy())
    Q = V[:300:3] + np.float32(0.1) * vectors(100, 24)
    for among in (None, dense.allow(np.arange(900))):
        alone, their_scores = np.concatenate([dense.search(q[None], 10, among=among) for q in Q], axis=1)
        for n in (2, 16, 100):
            ids, scores = dense.search(Q[:n], 10, among=among)
            shared = ids[:, :, None] == alone[:n, None]
            assert shared.any(axis=2).mean() > 0.95 if n == 100 else np.array_equal(ids, alone[:n])
            rows, places, others = shared.nonzero()
            np.testing.assert_array_equal(scores[rows, places], their_scores[rows, others])
            assert not ((scores[:, 1:] == scores[:, :-1]) & (ids[:, 1:] < ids[:, :-1])).any()


@needs_jit
def test_kernels_are_not_compiled_again_for_every_second_id():
    dense = DenseIndex(5)
    ids = dense.insert(vectors(20, 5))
    dense.vectors(ids)
    n_compiled = len(changes.find_ids.signatures)
    np.testing.assert_array_equal(dense.vectors(ids[::2]), vectors(20, 5)[::2])
    assert len(changes.find_ids.signatures) == n_compiled


def test_checked_queries_are_spread_over_the_rows_of_batches():
    checks, Q, checked = index_room.query_checks.QueryChecks(), np.arange(1000.0)[:, None], []
    for _ in range(500):
        checked += [query.x[0] for query in checks.due(Q, 10, 0.95, together=True)]
    assert len(checked) == 500 * 250 // 1024 // 8 * 8
    assert np.histogram(checked, 10, (0.0, 1000.0))[0].min() >= len(checked) // 12


class RowsThatWait:
    """Rows of queries. Reading one calls ``meanwhile``, as if another thread ran."""

    def __init__(self, meanwhile: Callable[[], None]) -> None:
        self._meanwhile = meanwhile

    def __len__(self) -> int:
        return 2 * 1024

    def __getitem__(self, _: Any) -> np.ndarray:
        self._meanwhile()
        return np.zeros(1)


def test_checked_queries_that_a_thread_has_taken_do_not_change_because_of_another():
    checks, taken = index_room.query_checks.QueryChecks(), []

    def take() -> None:
        found = checks.due(np.zeros((8 * 1024, 1)), 1, 0.95, together=False)
        taken.append((found, len(found)))

    rows: Any = RowsThatWait(take)
    checks.due(rows, 1, 0.95, together=False)
    assert taken[0][1] > 0
    assert all(len(found) == n for found, n in taken)

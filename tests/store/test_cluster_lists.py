"""Tests of the cluster lists of a store: they are updated with changes, and large batches are searched in them."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from cmt_numba import MemoryStore
from cmt_numba._engine import cluster_lists
from cmt_numba._heads import VectorLists
from cmt_numba.store import _recall

N, D, K = 1200, 16, 8
TARGET = 0.9


@pytest.fixture(autouse=True)
def small_stores_have_lists(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(_recall, "N_EXACT", N // 4)
    monkeypatch.setattr(_recall, "_FEWEST_LISTED", N // 2)
    monkeypatch.setattr(_recall, "_rows_listed", lambda *_: 1)  # always choose lists
    return


def drawn(n: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centers = np.random.default_rng(7).normal(size=(40, D))
    return (centers[rng.integers(40, size=n)] + 0.5 * rng.normal(size=(n, D))).astype(np.float32)


def filled(**options: object) -> MemoryStore:
    """Return a store whose recall has been measured."""
    store = MemoryStore(random_state=0, n_trees=1, n_links=4, target_recall=TARGET, **options)
    store.add(np.arange(N), drawn(N))
    store.calibrate(K)
    return store


def lists_of(store: MemoryStore) -> VectorLists | None:
    return store._contents.tree._forest.lists


def share_found(store: MemoryStore, Q: np.ndarray) -> float:
    found, true = store.query(Q, K).keys, store.query(Q, K, target_recall=1.0).keys
    return float(np.mean([np.isin(a, b).mean() for a, b in zip(found, true, strict=True)]))


def test_lists_reach_the_recall():
    store, Q = filled(), drawn(300, 1)
    assert lists_of(store) is not None
    (effort,) = store.recall
    assert effort.gap is not None
    assert effort.n_rows_listed == 1
    assert TARGET - 0.05 < share_found(store, Q) < 1.0


def test_a_row_has_the_same_answer_alone_and_in_a_batch():
    store, Q = filled(), drawn(100, 1)
    together = store.query(Q, K)
    for i in range(0, 100, 9):
        alone = store.query(Q[i], K)
        np.testing.assert_array_equal(alone.keys[0], together.keys[i])
        np.testing.assert_array_equal(alone.scores[0], together.scores[i])


def test_lists_follow_changes():
    store, rng = filled(), np.random.default_rng(3)
    for seed in range(4):
        keys = rng.permutation(np.array([key for key in store if key < N]))
        store.delete(keys[:100].tolist())
        store.upsert(keys[100:150].tolist(), drawn(50, 10 + seed))
        store.add(np.arange(N + 50 * seed, N + 50 * (seed + 1)), drawn(50, 20 + seed))
        store.add([2 * N + seed], drawn(1, 30 + seed))
        store.delete([2 * N + seed])
        store.check_invariants()
    lists = lists_of(store)
    assert lists is not None
    assert lists.sizes.sum() == lists.n_listed == len(store)
    np.testing.assert_array_equal(store.query(drawn(50, 20), 1).keys[:, 0], np.arange(N, N + 50))
    assert share_found(store, drawn(200, 1)) > TARGET - 0.05


def test_lists_follow_compaction():
    store, Q = filled(), drawn(100, 1)
    before = store.query(Q, K)
    store.compact()
    store.check_invariants()
    assert lists_of(store) is not None
    after = store.query(Q, K)
    np.testing.assert_array_equal(after.keys, before.keys)
    np.testing.assert_array_equal(after.scores, before.scores)


def test_many_changes_lead_to_new_lists():
    store = filled()
    former = lists_of(store)
    for seed in range(2):
        store.upsert(np.arange(N), -drawn(N, 5 + seed))
    assert lists_of(store) is None  # each vector has changed twice
    assert share_found(store, -drawn(100, 1)) > TARGET - 0.05  # links find them
    store.calibrate(K)
    assert lists_of(store) not in (None, former)
    assert share_found(store, -drawn(100, 1)) > TARGET - 0.05
    store.check_invariants()


def test_lists_are_made_in_parts_between_changes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cluster_lists, "_CELLS_IN_A_PART", 100 * D)
    store = MemoryStore(random_state=0, n_trees=1, n_links=4, target_recall=TARGET)
    store.add(np.arange(N), drawn(N))
    Q, changed = drawn(1, 1), 0
    for i in range(2000):
        store.query(Q, K)
        lists = lists_of(store)
        if lists is not None and not lists.is_complete and changed < 3:
            store.delete([i])
            store.add([N + i], drawn(1, i))
            store.upsert([N - 1], drawn(1, i + 1))
            changed += 1
        if not store._contents.efforts.under_way:
            break
    assert changed == 3
    lists = lists_of(store)
    assert lists is not None
    assert lists.is_complete
    assert lists.n_listed == len(store) == N
    store.check_invariants()


@pytest.mark.parametrize("mmap", [False, True])
def test_lists_are_made_again_after_loading(tmp_path: Path, mmap: bool):
    store, Q = filled(), drawn(100, 1)
    store.save(tmp_path / "store")
    loaded = MemoryStore.load(tmp_path / "store", mmap=mmap, target_recall=TARGET)
    assert loaded.recall == store.recall
    assert lists_of(loaded) is None
    assert share_found(loaded, Q) > TARGET - 0.05
    loaded.calibrate(K)
    assert lists_of(loaded) is not None
    np.testing.assert_array_equal(loaded.query(Q, K).keys, store.query(Q, K).keys)


def test_a_failed_insert_leaves_no_trace_in_the_lists(monkeypatch: pytest.MonkeyPatch):
    store, Q = filled(), drawn(50, 1)
    before = store.query(Q, K)

    def fail(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(VectorLists, "enter", fail)
        with pytest.raises(MemoryError):
            store.add([-1, -2], drawn(2, 2))
    store.check_invariants()
    np.testing.assert_array_equal(store.query(Q, K).keys, before.keys)
    assert len(store) == N


def test_stores_of_codes_alone_and_of_sparse_vectors_have_no_lists():
    store = filled(keep="codes")
    assert lists_of(store) is None
    assert store.recall[0].gap is None


def test_lists_that_are_not_faster_are_dropped(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_recall, "_rows_listed", lambda *_: None)
    store = filled()
    assert store.recall[0].gap is None
    assert lists_of(store) is None


@pytest.mark.parametrize("metric", ["inner_product", "euclidean"])
def test_other_metrics_are_searched_in_lists(metric: str):
    store = filled(metric=metric)
    assert lists_of(store) is not None
    assert share_found(store, drawn(100, 1)) > TARGET - 0.05

"""Tests that learned maps of dense queries help where they can, and do no harm elsewhere."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from journals import crashed

from cmt_numba import FileFormatError, MemoryStore
from cmt_numba.store._query_map import WIDEST, QueryMap, RewardedQueries

N, D = 300, 12


def rows(n: int, seed: int, d: int = D) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32)


def asked(X: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return queries with noise in half of their features, and the rows that they should find."""
    wanted = np.random.default_rng(seed).integers(0, len(X), 1200)
    Q = X[wanted] + 0.2 * rows(1200, seed)
    Q[:, D // 2 :] = 1.5 * rows(1200, seed + 1)[:, D // 2 :]
    return Q.astype(np.float32), wanted


def store_of(X: np.ndarray, path: Path | None = None, metric: str = "cosine") -> MemoryStore:
    store = MemoryStore(path, metric, random_state=0, n_trees=1)
    store.add(range(len(X)), X)
    return store


def teach(store: MemoryStore, Q: np.ndarray, wanted: np.ndarray) -> None:
    shown = store.query(Q, 10).keys
    store.feedback(Q, shown, (shown == wanted[:, None]).astype(float))


def right(store: MemoryStore, Q: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.mean(store.query(Q, 1).keys[:, 0] == wanted))


@pytest.fixture(scope="module")
def taught() -> MemoryStore:
    X = rows(N, 0)
    store = store_of(X)
    teach(store, *asked(X, 1))
    return store


def test_rewards_help_queries_that_were_never_seen(taught: MemoryStore):
    X = rows(N, 0)
    unseen, plain = asked(X, 3), store_of(X)
    before = right(plain, *unseen)
    assert right(taught, *unseen) > before + 0.1
    for n in (1, 40):  # few rewards do no harm either
        Q, wanted = asked(X, 1)
        teach(plain, Q[:n], wanted[:n])
        assert right(plain, *unseen) > before - 0.02


def test_useless_rewards_change_nothing():
    X = rows(N, 0)
    Q = (X + 0.6 * rows(N, 5)).astype(np.float32)
    store, answers = store_of(X), store_of(X).query(Q, 10).keys
    for _ in range(3):
        store.feedback(Q, answers, np.random.default_rng(0).integers(0, 2, answers.shape).astype(float))
    learned = store._contents.space.query_map
    assert learned is not None
    assert learned.matrix is None
    assert learned.trials[:, 0].min() > 100


def test_places_without_a_memory_teach_nothing():
    store = store_of(rows(5, 0))
    store._contents.tree._forest.allocated().keys.values[5 * D :] = np.nan  # spare capacity that was never written
    store.feedback(rows(40, 1), [[0, None]] * 40, np.ones((40, 2)))
    store.feedback(rows(40, 2), [1] * 40, np.ones(40))
    learned = store._contents.space.query_map
    assert learned is not None
    assert learned.sums.any()
    assert np.isfinite(learned.sums).all()


def test_lessons_may_come_in_any_parts_and_queries_be_of_any_length():
    X = rows(N, 0)
    Q, wanted = asked(X, 1)
    Q, X = (A / np.linalg.norm(A, axis=1, keepdims=True) for A in (Q, X))
    shown = np.argsort(-Q @ X.T, axis=1)[:, :8]
    lesson = RewardedQueries(Q, X[shown], (shown == wanted[:, None]).astype(float))
    whole, parts = QueryMap.untaught(D).taught(lesson), QueryMap.untaught(D)
    for first in range(0, len(Q), 100):
        parts = parts.taught(RewardedQueries(*(part[first : first + 100] for part in lesson)))
    np.testing.assert_allclose(whole.sums, parts.sums, rtol=1e-3, atol=1e-3)
    assert whole.matrix is not None
    units = [mapped / np.linalg.norm(mapped, axis=1, keepdims=True) for mapped in map(whole.mapped, (Q, 1e38 * Q))]
    np.testing.assert_allclose(*units, atol=1e-5)


def test_what_is_learned_is_kept(taught: MemoryStore, tmp_path: Path):
    X, Q = rows(N, 0), rows(20, 9)
    taught.save(tmp_path / "file")
    expected = taught.query(Q, 3)
    for again in (MemoryStore.load(tmp_path / "file"), pickle.loads(pickle.dumps(taught))):
        np.testing.assert_array_equal(again.query(Q, 3).scores, expected.scores)
    folder = tmp_path / "folder"
    with store_of(X, folder) as store:
        teach(store, *asked(X, 1))
        learned = store._contents.space.query_map
        assert learned is not None
        assert learned.matrix is not None
        with MemoryStore(crashed(folder)) as again:
            np.testing.assert_array_equal(again.query(Q, 3).scores, store.query(Q, 3).scores)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(store._contents.tree), "teach", lambda *_: (_ for _ in ()).throw(MemoryError))
            with pytest.raises(MemoryError):
                teach(store, *asked(X, 7))
        kept = store._contents.space.query_map
        assert kept is not None
        np.testing.assert_array_equal(kept.sums, learned.sums)
        store._contents.change(lambda: store._contents.records.set_facts({"query_map": learned.written()[8:]}))
    with pytest.raises(FileFormatError, match="query map"):
        MemoryStore(folder)


def test_only_directions_of_few_features_are_mapped():
    for metric, d in (("inner_product", D), ("cosine", WIDEST + 1)):
        store = store_of(rows(20, 0, d), metric=metric)
        store.feedback(rows(20, 0, d), range(20), np.ones(20))
        assert store._contents.space.query_map is None


def test_damaged_sums_are_refused():
    written = QueryMap.untaught(D).written()
    assert QueryMap.read(written, D).matrix is None
    for contents, n_features in ((written, D + 1), (written, None), ("text", D), (b"\xff" * len(written), D)):
        with pytest.raises(ValueError, match="query map"):
            QueryMap.read(contents, n_features)

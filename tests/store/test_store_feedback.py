"""Tests of stores that learn from rewards."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import FORM_OF
from failures import failing
from internals import contents_of, store_state

from cmt_numba import MemoryStore
from cmt_numba._feedback import LearnedSearch
from cmt_numba.report import write_report
from cmt_numba.store import METRICS

N, D = 40, 10


def rows(n: int, seed: int = 0) -> np.ndarray:
    X = np.abs(np.random.default_rng(seed).normal(size=(n, D)))
    return (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)


def taught(form: str = "dense", metric: str = "cosine", path: Path | None = None, **options: Any) -> MemoryStore:
    """Return a store that was rewarded for its third result."""
    to = FORM_OF[form]
    store = MemoryStore(path, metric, random_state=0, **options)
    store.add(np.arange(N), to(rows(N)), [{"even": i % 2 == 0} for i in range(N)])
    for seed in range(4):
        Q = to(rows(10, seed % 2 + 5))
        keys = store.query(Q, 3).keys
        store.feedback(Q, keys, np.broadcast_to([0.0, 0.0, 1.0], keys.shape))
    return store


def answers(store: MemoryStore, Q: Any, **options: Any) -> tuple[list[Any], np.ndarray]:
    found = store.query(Q, 5, **options)
    return found.keys.tolist(), found.scores


def assert_same(one: MemoryStore, other: MemoryStore, form: str = "dense") -> None:
    Q = FORM_OF[form](rows(20, 5))
    (keys, scores), (expected, expected_scores) = answers(one, Q), answers(other, Q)
    assert keys == expected
    np.testing.assert_array_equal(scores, expected_scores)


def test_what_was_learned_is_never_copied(monkeypatch: pytest.MonkeyPatch):
    """A copy takes time in proportion to all rewarded memories."""
    store, steps = taught(), []
    monkeypatch.setattr(LearnedSearch, "of_arrays", None)
    step = contents_of(store).lock.step
    monkeypatch.setattr(contents_of(store).lock, "step", lambda *a, **o: (steps.append(o), step(*a, **o))[1])
    Q = rows(50, 9)
    keys = store.query(Q, 3).keys
    store.feedback(Q, keys, np.ones(keys.shape))
    assert len(steps) == 4
    model = contents_of(store).state.feedback.model  # type: ignore[union-attr]
    rewarded = np.unique(keys)
    assert model.counts(rewarded).all()
    store.upsert(rewarded[:2], rows(2, 3))
    store.delete(rewarded[2])
    assert model.counts(rewarded)[:3].tolist() == [0, 0, 0]
    assert model.counts(rewarded)[3:].all()


def test_a_failed_upsert_keeps_what_was_learned(monkeypatch: pytest.MonkeyPatch):
    store, twin = taught(), taught()
    with monkeypatch.context() as patch:
        patch.setattr(store_state.StoreState, "insert", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            store.upsert(range(N + 1), rows(N + 1, 4))
    assert_same(store, twin)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("form", FORM_OF)
def test_rewarded_memories_come_first_and_scores_descend(form: str, metric: str):
    to, store = FORM_OF[form], MemoryStore(metric=metric, random_state=0)
    X = rows(N)
    store.add(np.arange(N), to(X), [{"even": i % 2 == 0} for i in range(N)])
    Q = to(rows(12, 5))
    wanted = store.query(Q, 4).keys[:, 3]
    for _ in range(3):
        keys = store.query(Q, 4).keys
        store.feedback(Q, keys, (keys == wanted[:, None]).astype(float))
        store.feedback(Q, wanted, np.ones(12))
    assert np.mean(store.query(Q, 1).keys[:, 0] == wanted) > 0.8
    found = store.query(Q, N)
    assert (np.diff(found.scores, axis=1) <= 0).all()
    assert (np.sort(found.keys, axis=1) == np.arange(N)).all()
    best = store.query(Q, 4).keys
    np.testing.assert_array_equal(store.query(Q, 4, target_recall=1.0).keys, best)
    even = store.query(Q, 50, where={"even": True}).keys
    assert (np.sort(even[:, :20].astype(int), axis=1) == np.arange(0, N, 2)).all()
    assert (even[:, 20:] == None).all()  # noqa: E711
    one_by_one = [store.query(Q[[i]], 4).keys[0].tolist() for i in range(12)]
    assert one_by_one == best.tolist()


@pytest.mark.parametrize("magnitude", [1e-30, 1e25, 1e37])
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("form", FORM_OF)
def test_vectors_with_squares_beyond_float32_earn_rewards(form: str, metric: str, magnitude: float):
    to, V = FORM_OF[form], np.random.default_rng(0).normal(size=(N + 12, 8))
    X, Q = to((magnitude * V[:N]).astype(np.float32)), to(magnitude * (V[N:] / 3.0 + V[:12]))
    wanted, store = np.arange(20, 32), MemoryStore(metric=metric, random_state=0)
    store.add(np.arange(N), X)
    for _ in range(10):
        keys = store.query(Q, 5).keys
        store.feedback(Q, wanted, np.ones(12))
        store.feedback(Q, keys, (keys == wanted[:, None]).astype(float))
    found = store.query(Q, 3)
    assert np.isfinite(found.scores).all()
    assert np.mean(found.keys[:, 0] == wanted) > 0.8
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(store)).query(Q, 3).keys, found.keys)


@pytest.mark.parametrize("n_first", [1, N])
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("form", FORM_OF)
def test_rewards_of_outliers_are_learned_too(form: str, metric: str, n_first: int):
    to, shares = FORM_OF[form], []
    for seed in range(3):
        V = 1000.0 * np.random.default_rng(seed).normal(size=(N + 24, 8))
        X, Q, far = to(V[:N].astype(np.float32)), to(V[:12] + V[N : N + 12] / 3.0), to(1e9 * V[N + 12 :])
        wanted, store = np.arange(20, 32), MemoryStore(metric=metric, random_state=0)
        store.add(np.arange(n_first), X[:n_first])
        store.feedback(far[[0]], [0], [1.0])
        if n_first < N:
            store.add(np.arange(n_first, N), X[n_first:])
        for _ in range(10):
            keys = store.query(Q, 5).keys
            store.feedback(Q, wanted, np.ones(12))
            store.feedback(Q, keys, (keys == wanted[:, None]).astype(float))
            store.feedback(far, store.query(far, 1).keys, np.zeros(12))
        found = store.query(Q, 3)
        shares.append(np.mean(found.keys[:, 0] == wanted))
        assert np.isfinite(found.scores).all()
        assert np.isfinite(store.query(far, 3).scores).all()
    assert np.mean(shares) > 0.6
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(store)).query(Q, 3).keys, found.keys)


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_near_copies_of_a_key_do_not_come_first(metric: str):
    rng, store = np.random.default_rng(0), MemoryStore(metric=metric, random_state=0)
    X = (rng.normal(size=(1, 16)) + 1e-3 * rng.normal(size=(300, 16))).astype(np.float32)
    store.add(range(300), X)
    for _ in range(20):
        i, j = rng.integers(300, size=(2, 10))
        store.feedback(X[i], np.stack([i, j], 1), [[0.0, 1.0]] * 10)
    assert np.mean(store.query(X, 1, target_recall=1.0).keys[:, 0] == np.arange(300)) > 0.99


def test_keys_of_equal_direction_are_told_apart_by_their_lengths():
    rng, store = np.random.default_rng(0), MemoryStore(metric="euclidean", random_state=0)
    lengths = 1000.0 + 0.1 * np.arange(300)
    X = np.concatenate([lengths[:, None] * [[0.6, 0.8]], 1000.0 * rng.uniform(size=(300, 2))]).astype(np.float32)
    store.add(range(600), X)
    for _ in range(20):
        i, j = rng.integers(600, size=10), rng.integers(20, size=10)
        store.feedback(X[i], np.stack([i, j], 1), [[0.0, 1.0]] * 10)
    assert store.learned().share > 0.0
    np.testing.assert_array_equal(store.query(X, 1, target_recall=1.0).keys[:, 0], np.arange(600))


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("form", FORM_OF)
def test_the_key_of_a_memory_always_finds_it(form: str, metric: str):
    store, Q = taught(form, metric), FORM_OF[form](rows(N))
    for _ in range(3):
        store.feedback(Q, np.arange(N), np.zeros(N))
        keys = store.query(Q, 3).keys
        store.feedback(Q, keys, np.broadcast_to([0.0, 1.0, 1.0], keys.shape))
    assert store.query(Q, 1).keys[:, 0].tolist() == list(range(N))
    late = FORM_OF[form](rows(5, 9))
    store.add(np.arange(N, N + 5), late)
    assert store.query(late, 1).keys[:, 0].tolist() == list(range(N, N + 5))


def test_unknown_rewards_teach_nothing():
    store, plain, Q = taught(), taught(), rows(10, 5)
    keys = store.query(Q, 2).keys
    store.feedback(Q, keys, np.full(keys.shape, np.nan))
    store.feedback(Q, [None] * 10, np.ones(10))
    assert_same(store, plain)
    store.feedback(Q[:5], keys[:5], np.column_stack([np.full(5, np.nan), np.ones(5)]))
    second = np.column_stack([np.full(5, None), keys[:5, 1]])  # at the same place
    plain.feedback(Q[:5], second, np.column_stack([np.zeros(5), np.ones(5)]))
    assert answers(store, Q)[0] == answers(plain, Q)[0]


def test_a_common_outcome_counts_once():
    each, shared = taught(), taught()
    Q = rows(10, 5)
    keys, outcomes = each.query(Q, 3).keys, np.arange(10) % 2.0
    each.feedback(Q, keys, np.repeat(outcomes[:, None], 3, axis=1))
    shared.feedback(Q, keys, outcomes)
    assert not np.array_equal(answers(each, Q)[1], answers(shared, Q)[1])
    one, several = taught(), taught()
    one.feedback(Q, keys[:, 0], np.ones(10))
    several.feedback(Q, keys[:, :1], np.ones((10, 1)))
    assert_same(one, several)


@pytest.mark.parametrize("form", FORM_OF)
def test_rewards_may_come_after_other_queries(form: str):
    to, one, other = FORM_OF[form], taught(form), taught(form)
    first, second, third = to(rows(3, 5)), to(rows(2, 6)), to(rows(80, 7))
    keys = one.query(first, 3).keys
    other.query(first, 3)
    rewards = np.broadcast_to([0.0, 1.0, 0.0], keys.shape)
    one.feedback(first, keys, rewards)
    for row in range(2):
        other.query(second[row : row + 1], 3)
    other.feedback(first, keys, rewards)
    assert_same(one, other, form)
    # candidates that are no longer known are searched again
    one.query(second, 3)
    for row in range(80):
        one.query(third[row : row + 1], 3)
        other.query(third[row : row + 1], 3)
    for store in one, other:
        store.delete([1])
        store.feedback(second, [2, 2], [1.0, 0.0])
        store.feedback(third[40:], np.full(40, 2), np.ones(40))
    assert_same(one, other, form)


@pytest.mark.parametrize("form", FORM_OF)
def test_what_was_learned_of_a_memory_is_forgotten_with_it(form: str):
    store, to = taught(form), FORM_OF[form]
    known = contents_of(store).state.feedback.model.ids  # type: ignore[union-attr]
    rewarded = known.tolist()
    store.delete(rewarded[:2])
    store.upsert(rewarded[2:4], to(rows(2, 8)))
    known = contents_of(store).state.feedback.model.ids  # type: ignore[union-attr]
    assert sorted(known) == sorted(rewarded[4:])
    store.upsert(rewarded[:2], to(rows(2, 9)))
    store.check_invariants()
    store.query(to(rows(3)), 5)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("form", FORM_OF)
def test_files_pickles_and_folders_keep_what_was_learned(form: str, metric: str, tmp_path: Path):
    store = taught(form, metric)
    store.save(tmp_path / "store.cmt")
    assert_same(MemoryStore.load(tmp_path / "store.cmt"), store, form)
    assert_same(pickle.loads(pickle.dumps(store)), store, form)
    for number, snapshots in enumerate([{}, {"snapshot_bytes": 0, "snapshot_seconds": 0.0}]):
        with taught(form, metric, tmp_path / f"{number}", **snapshots) as durable:
            assert_same(durable, store, form)
        with MemoryStore(tmp_path / f"{number}") as again:
            assert_same(again, store, form)
            again.feedback(FORM_OF[form](rows(40)), np.arange(40), np.ones(40))
        with MemoryStore(tmp_path / f"{number}", read_only=True) as again:
            expected = taught(form, metric)
            expected.feedback(FORM_OF[form](rows(40)), np.arange(40), np.ones(40))
            assert_same(again, expected, form)


def test_without_rewards_nothing_is_ranked():
    store = MemoryStore()
    store.add([0, 1], rows(2))
    store.query(rows(2), 1)
    store.add([2], texts=["no vector"])
    store.feedback(rows(1), [[2, None]], [[1.0, 0.0]])
    assert contents_of(store).state.feedback is None


@pytest.mark.parametrize("form", FORM_OF)
def test_what_was_learned_is_shown(form: str, tmp_path: Path):
    store, plain = taught(form), MemoryStore()
    queries = [FORM_OF[form](rows(1, seed)) for seed in range(5, 25)]  # some are ranked statically
    query = next(query for query in queries if len(store.explain(query, 1)[0].parts) > 1)
    plain.add([0, 1], rows(2))
    assert plain.learned() is None
    assert plain.explain(rows(1), 1)[0].parts == {"similarity": pytest.approx(1.0)}
    learned, explained = store.learned(), store.explain(query, 4)
    assert learned is not None
    assert learned.interval[0] <= learned.gain <= learned.interval[1]
    assert 0.0 <= learned.share <= 31 / 32  # few rewards
    assert [result.key for result in explained] == store.query(query, 4).keys[0].tolist()
    for result in explained:
        assert sum(result.parts.values()) == pytest.approx(result.score, abs=1e-4)
    assert any("moved key" in result.parts for result in explained)
    with pytest.raises(ValueError, match="a single query"):
        store.explain(FORM_OF[form](rows(2)), 1)
    pytest.importorskip("matplotlib")
    pytest.importorskip("jinja2")
    write_report(tmp_path / "page.html", learned, explained=explained)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert all(
        text in page for text in ("moved key", f"{learned.gain:+.3f}", learned.reason, f"{explained[0].score:.3f}")
    )


@pytest.mark.parametrize("form", FORM_OF)
def test_moved_keys_find_memories_that_are_not_similar(form: str):
    rng, to, store = np.random.default_rng(3), FORM_OF[form], MemoryStore(random_state=0)
    X = rows(400)
    store.add(np.arange(400), to(X), [{"even": i % 2 == 0} for i in range(400)])
    wanted = np.argsort(X @ rows(1, 5)[0], kind="stable")[[150, 151]]  # far from the query
    near = rows(1, 5) + 0.05 * rng.normal(size=(20, X.shape[1]))
    Q = to(near.astype(np.float32))
    for _ in range(20):
        store.feedback(Q, np.tile(wanted, (20, 1)), np.ones((20, 2)))
    assert np.isin(wanted, store.query(Q[:1], 5).keys[0].astype(np.int64)).all()
    kept = store.query(Q[:1], 5, where={"even": bool(wanted[0] % 2 == 0)}).keys[0].astype(np.int64)
    assert wanted[0] in kept
    assert (kept % 2 == wanted[0] % 2).all()


@pytest.mark.parametrize("form", FORM_OF)
def test_a_filter_without_memories_finds_none(form: str):
    store = taught(form)
    for n in (1, 2):
        found = store.query(FORM_OF[form](rows(n)), 3, where=lambda payload: False)
        assert found.keys.tolist() == [[None] * 3] * n


def test_the_control_group_can_be_left_out(tmp_path: Path):
    Q = rows(400, 10)

    def n_static(store: MemoryStore) -> int:
        """Return the number of queries that a store ranks by similarity alone."""
        return sum(store.explain(query, 1)[0].parts.keys() == {"similarity"} for query in Q)

    stores = {flag: taught(path=tmp_path / str(flag), measure_gain=flag) for flag in (True, False)}
    for store in stores.values():
        for _ in range(8):
            keys = store.query(Q, 3).keys
            store.feedback(Q, keys, keys.astype(int) % 2)
    share = stores[True].learned().share
    assert share == pytest.approx(1.0 - 0.5 / np.sqrt(3241), abs=1e-3)  # a small control group after many rewards
    assert 0 < n_static(stores[True]) < 10
    assert stores[False].learned().share == 1.0
    assert n_static(stores[False]) == 0
    for flag, store in stores.items():
        store.close()
        with MemoryStore(tmp_path / str(flag)) as reopened:
            assert reopened.learned().share == (share if flag else 1.0)
        with pytest.raises(ValueError, match=f"measure_gain must be {flag}"):
            MemoryStore(tmp_path / str(flag), measure_gain=not flag)
    with pytest.raises(TypeError, match="measure_gain must be True or False"):
        MemoryStore(measure_gain=2)


def test_the_gain_of_queries_with_texts_compares_rankings_by_both():
    """Vectors mislead until rewards come, but texts put the right memory first with and without rewards."""
    rng, n, store = np.random.default_rng(0), 40, MemoryStore(random_state=0)
    keys = rng.normal(size=(n, 8)).astype(np.float32)
    keys /= np.linalg.norm(keys, axis=1, keepdims=True)
    store.add(range(n), keys, texts=[f"word{i}" for i in range(n)])
    for _ in range(60):
        wanted = rng.integers(0, n, 10)
        Q, texts = 0.8 * keys[wanted] + keys[wanted - 1], [f"word{i}" for i in wanted]
        shown = store.query(Q, 2, texts=texts).keys.astype(int)
        store.feedback(Q, shown, (shown == wanted[:, None]).astype(float), texts=texts)
    learned = store.learned()
    assert learned is not None
    assert learned.share > 0.5
    np.testing.assert_allclose(learned.interval, 0.0, atol=0.02)


def test_coins_leave_the_ranking_of_queries_with_texts_static():
    """Also the weight of words is used only after proof."""
    rng, n, stores = np.random.default_rng(0), 40, [MemoryStore(random_state=0) for _ in range(2)]
    keys, texts = rng.normal(size=(n, 8)), [f"word{i % 7} word{i % 11}" for i in range(n)]
    Q, asked = rng.normal(size=(200, 8)), [f"word{i % 5}" for i in range(200)]
    for store in stores:
        store.add(range(n), keys, texts=texts)
    for first in range(0, 200, 20):
        some = slice(first, first + 20)
        shown = stores[0].query(Q[some], 3, texts=asked[some]).keys
        stores[0].feedback(Q[some], shown, rng.integers(0, 2, shown.shape), texts=asked[some])
    found, expected = (store.query(Q, 5, texts=asked) for store in stores)
    np.testing.assert_array_equal(found.scores, expected.scores)


def test_a_failed_upsert_forgets_nothing():
    store, plain = taught(), taught()
    rewarded = int(contents_of(store).state.feedback.model.ids[0])  # type: ignore[union-attr]
    with failing("store._contents.StoreContents.insert"):
        store.upsert([rewarded, N], rows(2, 8))
    assert_same(store, plain)

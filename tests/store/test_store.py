"""Tests of stores in memory: queries, changes, filters, invalid arguments, and recovery from failures."""

import pickle
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from conftest import FORM_OF
from internals import contents_of, filters_of, store_records, store_results, store_state
from stores import BAD_CALLS, X2, filled, true_scores, vectors

from cmt_numba import ContextualMemoryTree, FileFormatError, MemoryStore
from cmt_numba.journal import JournalError
from cmt_numba.store import METRICS, Items
from cmt_numba.store._eviction import RandomOrder


def check(store: MemoryStore) -> None:
    store.check_invariants()


@pytest.fixture
def store() -> MemoryStore:
    return filled()


# Searches


@pytest.mark.parametrize("form", FORM_OF)
@pytest.mark.parametrize("metric", METRICS)
def test_scores_and_order_are_those_of_the_metric(metric: str, form: str):
    X, Q = vectors(90), vectors(20, 1)
    X[40:] *= 20
    store, as_form = MemoryStore(metric=metric, random_state=0), FORM_OF[form]
    store.add(np.arange(40), as_form(X[:40]))
    store.add(np.arange(40, 90), as_form(X[40:]))
    for rows in (as_form(Q), Q, Q.astype(float).tolist()):
        answers = store.query(rows, 7)
        true = true_scores(metric, Q, X)
        np.testing.assert_array_equal(answers.keys, np.argsort(-true, axis=1)[:, :7])
        np.testing.assert_allclose(answers.scores, -np.sort(-true, axis=1)[:, :7], rtol=1e-4, atol=1e-5)
    got = store.get([50, 3]).vectors
    np.testing.assert_allclose(got.toarray() if form == "sparse" else got, X[[50, 3]], rtol=1e-4, atol=1e-5)
    check(store)


def test_answers_are_filled_up_or_say_what_is_missing(store: MemoryStore):
    everything = store.query(vectors(2, 1), 100)
    assert everything.keys.shape == everything.scores.shape == (2, 100)
    assert sorted(everything.keys[0, :60]) == sorted(store)
    assert everything.keys[0, 60:].tolist() == [None] * 40
    assert np.isneginf(everything.scores[:, 60:]).all()
    assert len(everything[0]) == 60
    empty = MemoryStore().query([[1.0, 2.0]], 3)
    assert empty.keys.tolist() == [[None] * 3]
    assert store.query(vectors(1), 2, where={"n": -1}).payloads == [[None, None]]


def test_results_are_rows(store: MemoryStore):
    results = store.query(vectors(4), 3)
    assert len(results) == 4
    assert [row[0].key for row in results] == ["k0", "k1", "k2", "k3"]
    assert results[-1][0].payload == {"n": 3, "odd": True}
    assert results[1:3].keys.tolist() == results.keys[1:3].tolist()
    assert results[np.array([True, False, False, True])].payloads == [results.payloads[0], results.payloads[3]]
    assert len(results[[]]) == 0
    assert "4 rows" in repr(results)
    with pytest.raises(TypeError, match="only by row"):
        results[0, 1]
    for frame in (results.to_pandas(), results.to_polars()):
        assert list(frame.columns) == ["row", "rank", "key", "score", "payload", "text"]
        assert len(frame) == 12
        assert frame["key"][0] == "k0"
    assert results.to_pandas()["payload"][0] == {"n": 0, "odd": False}


def test_payloads_are_those_of_the_query_whenever_they_are_read():
    store, Q = filled(), vectors(3)
    read = store.query(Q, 4).payloads
    unread, some, pickled, unread_at_close = (store.query(Q, 4) for _ in range(4))
    some, pickled = some[1:], pickle.loads(pickle.dumps(pickled))
    store.upsert(["k0", "k1"], vectors(2), [None, {"new": True}])
    store.delete("k2")
    assert unread.payloads == pickled.payloads == read
    assert some.payloads == read[1:]
    assert "k2" not in store.query(Q, 4).keys
    later = store.query(Q[:1], 2)
    store.close()
    assert later[0][0].payload is None
    assert unread_at_close.payloads == read


# Filters


def test_filters_of_all_kinds(store: MemoryStore):
    Q = vectors(5, 2)
    of_dict = store.query(Q, 4, where={"odd": True, "n": {"lt": 30}})
    assert all(payload["odd"] and payload["n"] < 30 for row in of_dict.payloads for payload in row)
    of_callable = store.query(Q, 4, where=lambda payload: payload["odd"] and payload["n"] < 30)
    of_keys = store.query(Q, 4, where=[f"k{i}" for i in range(1, 30, 2)])
    for other in (of_callable, of_keys):
        np.testing.assert_array_equal(other.keys, of_dict.keys)
    store.create_index("n")
    np.testing.assert_array_equal(store.query(Q, 4, where={"odd": True, "n": {"lt": 30}}).keys, of_dict.keys)
    with pytest.raises(KeyError, match="but 'x' is not"):
        store.query(Q, where=["x"])


def test_filters_are_prepared_once_until_something_changes(store: MemoryStore):
    where = {"n": {"ge": 5}}
    first = filters_of(store).find(where, contents_of(store))
    before = store.query(vectors(3), 2, where=where)
    assert filters_of(store).find(where, contents_of(store)) is first
    assert "k1" not in before.keys
    store.upsert(["k1"], vectors(1, 9), [{"n": 100}])
    assert filters_of(store).find(where, contents_of(store)) is not first
    assert store.query(vectors(1, 9), 1, where=where).keys[0, 0] == "k1"
    store.delete("k1")
    assert "k1" not in store.query(vectors(1, 9), 60, where=where).keys


# Changes


def test_keys_are_held_once(store: MemoryStore):
    assert len(store) == 60
    assert "k5" in store
    assert "x" not in store
    assert 5 not in store
    assert True not in store
    assert None not in store
    assert "\0" not in store
    assert sorted(store) == sorted(f"k{i}" for i in range(60))
    store.upsert(["k5", "new"], vectors(2, 3), [{"z": [1, None]}, None])
    assert len(store) == 61
    items = store.get(["new", "k5", "new"])
    np.testing.assert_allclose(items.vectors, vectors(2, 3)[[1, 0, 1]], rtol=1e-6)
    assert items.payloads == [None, {"z": [1, None]}, None]
    store.upsert("k5", vectors(1))
    assert store.get("k5").payloads == [None]
    store.delete(["k5", "new"])
    assert len(store) == 59
    check(store)


@BAD_CALLS
def test_bad_input_is_refused_before_anything_changes(call: Any, error: type[Exception], words: str):
    store = filled()
    before = store.query(vectors(9, 5), 60)
    with pytest.raises(error, match=words):
        call(store)
    after = store.query(vectors(9, 5), 60)
    np.testing.assert_array_equal(after.keys, before.keys)
    np.testing.assert_array_equal(after.scores, before.scores)
    assert after.payloads == before.payloads
    check(store)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"metric": "manhattan"}, ValueError),
        ({"target_recall": 0.0}, ValueError),
        ({"max_items": 0}, ValueError),
        ({"eviction": "newest"}, ValueError),
        ({"n_threads": 1.5}, TypeError),
        ({"read_only": True}, ValueError),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], error: type[Exception]):
    with pytest.raises(error):
        MemoryStore(**options)


def test_a_bounded_store_forgets_keys_and_payloads_too():
    store = filled(30, max_items=30, eviction="oldest")
    assert store.max_items == 30
    store.add(["x", "y"], X2)
    assert len(store) == 30
    assert "k0" not in store
    assert "k2" in store
    assert store.query(vectors(1), 30, where=lambda payload: payload is not None).keys[0, 28:].tolist() == [None] * 2
    store.upsert([f"m{i}" for i in range(50)], vectors(50, 4))
    assert sorted(store) == sorted(f"m{i}" for i in range(20, 50))
    check(store)


@pytest.mark.parametrize("seed", range(3))
def test_eviction_follows_a_simple_model(seed: int):
    generator, X, most = np.random.default_rng(seed), np.eye(64, dtype=np.float32), 12
    store, useful, n_returned, added = MemoryStore(max_items=most, random_state=0), {}, 0, 0

    def change(key: int, by: int) -> None:
        useful[key] = max(useful.get(key, 0) + by + by * n_returned // (8 * most), 0)

    for _ in range(400):
        stored, kind = list(useful), generator.choice(["add", "return", "reward", "delete"], p=[0.3, 0.4, 0.25, 0.05])
        if kind == "add" or not stored:
            if len(useful) == most:
                del useful[min(useful, key=lambda key: (useful[key], key))]
            free = next(i for i in range(64) if all(key % 64 != i for key in useful))
            added += 64
            store.add([added + free], X[free : free + 1])
            change(added + free, 10_000)
        elif kind == "return":
            for key in generator.choice(stored, 5).tolist():
                assert store.query(X[key % 64], 1).keys == key
                change(key, 1_000)
                n_returned += 1
                if n_returned == 8 * most:
                    n_returned = 0
                    useful = {other: value // 2 for other, value in useful.items()}
        elif kind == "reward":
            key, reward = int(generator.choice(stored)), float(generator.choice([0.0, 0.5, 1.0]))
            store.feedback(X[key % 64], [key], [reward])
            change(key, round(reward * 11_000) - 1_000)
        else:
            key = int(generator.choice(stored))
            store.delete([key])
            del useful[key]
        assert sorted(store) == sorted(useful)


class CountedState:
    """The part of a store's state that an eviction policy needs, without a list of all ids."""

    def __init__(self, n: int, next_id: int) -> None:
        self.n, self.next_id = n, next_id

    def __len__(self) -> int:
        return self.n


def test_random_eviction_is_uniform_and_does_not_list_all_memories():
    n, n_seeds, n_new, counts = 8, 400, 90, np.zeros(98)
    for seed in range(n_seeds):
        order, stored = RandomOrder(seed, n), set(range(n))
        order.returned(np.arange(n))
        for new in range(n, n + n_new):
            [evicted] = order.choose(CountedState(n, new), 1).tolist()
            stored.remove(evicted)
            order.returned(np.array([new]))
            order.removed(np.array([evicted]))
            stored.add(new)
            if new == n + 40:
                order.restore(order.arrays(), np.array(sorted(stored)), new + 1)
        counts[sorted(stored)] += 1
    chances = (1 - 1 / n) ** np.append(np.full(n, n_new), np.arange(n_new)[::-1])
    assert (np.abs(counts / n_seeds - chances) <= 4 * np.sqrt(chances / n_seeds) + 0.01).all()
    assert sorted(order.choose(CountedState(n, 1000), n).tolist()) == sorted(stored)


@pytest.mark.parametrize("eviction", ["random", "oldest"])
def test_eviction_continues_in_a_folder_as_in_memory(eviction: str, tmp_path: Path):
    twin = MemoryStore(max_items=10, eviction=eviction, random_state=0)
    for start in range(0, 60, 12):
        with MemoryStore(tmp_path / "store", max_items=10, eviction=eviction, random_state=0) as store:
            for both in (store, twin):
                both.add(range(start, start + 12), vectors(12))
                both.delete([max(both)])
            assert sorted(store) == sorted(twin)
            if start == 24:
                contents_of(store).journal.snapshot()  # type: ignore[union-attr]


def test_rewards_of_evicted_memories_are_ignored():
    store = filled(30, max_items=30, eviction="oldest")
    found = store.query(vectors(3), 2)
    store.add([f"m{i}" for i in range(29)], vectors(29, 4))
    store.feedback(vectors(3), found.keys, [[1.0, 0.0]] * 3)
    store.feedback(vectors(1), ["k0"], [1.0])
    store.delete(["k29"])
    with pytest.raises(KeyError):
        filled(30).feedback(vectors(1), ["k30"], [1.0])
    check(store)


# Failures


CHANGES: dict[str, Any] = {
    "insert": lambda store: store.add(["x", "y"], vectors(2, 7), [{"new": 1}, None]),
    "replace": lambda store: store.upsert(["k1", "x", "k2"], vectors(3, 7), [{"new": 1}, None, {}]),
    "remove": lambda store: store.delete(["k1", "k2"]),
}


def everything(store: MemoryStore) -> tuple[list[Any], bytes, list[Any]]:
    items = store.get(sorted(store))
    return items.keys, items.vectors.tobytes(), items.payloads


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("n_steps", [1, 2, 3])
def test_an_interrupted_change_is_whole_or_not_made(
    change: str, n_steps: int, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
):
    """An upsert that replaces and adds memories never does one without the other."""
    before, twin = everything(store), filled()
    CHANGES[change](twin)
    left, step = [n_steps], contents_of(store).lock.step

    def interrupted(work: Any, **options: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            signal.raise_signal(signal.SIGINT)
        return step(work, **options)

    monkeypatch.setattr(contents_of(store).lock, "step", interrupted)
    with suppress(KeyboardInterrupt):  # a change of fewer steps is not interrupted
        CHANGES[change](store)
    monkeypatch.undo()
    check(store)
    assert everything(store) in (before, everything(twin))


def test_a_failed_first_insert_decides_nothing(monkeypatch: pytest.MonkeyPatch):
    store, insert = MemoryStore(random_state=0), store_state.StoreState.insert
    with monkeypatch.context() as patch:
        patch.setattr(store_state.StoreState, "insert", lambda self, X: insert(self, X) + None)
        with pytest.raises(TypeError):
            store.add(["a"], np.eye(3)[:1])
    assert store.n_features is None
    store.add(["a"], scipy.sparse.csr_array(np.eye(5)[:1]))
    assert store.n_features == 5


def test_a_closed_store_says_so(store: MemoryStore):
    with store:
        pass
    store.close()
    for call in (
        lambda: store.query(X2),
        lambda: store.add(["x", "y"], X2),
        lambda: "k1" in store,
        lambda: list(store),
    ):
        with pytest.raises(JournalError, match="closed; open it again"):
            call()


# Recall


def test_recall_is_reached_and_measured():
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(100, 16)).astype(np.float32)
    X = centers[rng.integers(100, size=8_200)] + 0.3 * rng.normal(size=(8_200, 16)).astype(np.float32)
    X, Q = X[:8_000], X[8_000:]
    store = MemoryStore(random_state=0)
    assert store.recall(Q) == 1.0
    store.add(np.arange(8_000), X)
    true = store.query(Q, 8, target_recall=1.0).keys
    for target in (0.6, 0.95):
        found = store.query(Q, 8, target_recall=target).keys
        recall = float(np.mean([np.isin(a, b).mean() for a, b in zip(found, true, strict=True)]))
        assert recall > target - 0.1
        assert store.recall(Q, 8, target) == pytest.approx(recall, abs=0.02)


# Files


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("metric", METRICS)
def test_files_and_pickles(metric: str, mmap: bool, tmp_path: Path):
    store = filled(metric=metric)
    store.create_index("n")
    store.feedback(X2, ["k1", "k2"], [1.0, 0.5])
    store.save(tmp_path / "store.cmt")
    for other in (MemoryStore.load(tmp_path / "store.cmt", mmap, target_recall=0.5), pickle.loads(pickle.dumps(store))):
        answers, expected = (
            other.query(vectors(5, 1), 3, where={"n": {"gt": 9}}),
            store.query(vectors(5, 1), 3, where={"n": {"gt": 9}}),
        )
        np.testing.assert_array_equal(answers.keys, expected.keys)
        np.testing.assert_array_equal(answers.scores, expected.scores)
        assert answers.payloads == expected.payloads
        assert other.metric == metric
        other.upsert(["k1", "new"], X2)
        check(other)
    assert "new" not in store
    MemoryStore(metric=metric).save(tmp_path / "empty.cmt")
    empty = MemoryStore.load(tmp_path / "empty.cmt")
    empty.add([1], [[1.0]])
    assert empty.metric == metric


# Threads


def test_readers_beside_a_writer():
    store = filled(metric="inner_product")

    def read(_: int) -> None:
        answers = store.query(vectors(3), 5, where={"n": {"lt": 50}})
        assert all(row[0].payload["n"] < 50 for row in answers)
        for row in store.query(vectors(3), 5):
            assert len(row) == 5
        store.get("k3")

    with ThreadPoolExecutor(3) as pool:
        readings = [pool.submit(read, i) for i in range(40)]
        for i in range(12):
            store.add([f"n{i}.{j}" for j in range(10)], vectors(10, i) * (i + 1), [{"n": 1000}] * 10)
            store.upsert(["k1"], vectors(1, i), [{"n": 1}])
            store.delete([f"n{i}.{j}" for j in range(10)])
        for reading in readings:
            reading.result()
    assert len(store) == 60
    check(store)


def test_payloads_that_two_threads_read_are_those_before_a_change():
    """A thread reads the payloads and changes them while another thread is still reading."""
    texts = {0: "before"}

    def find(ids: list[int]) -> dict[int, str]:
        if len(reading) == 0:
            reading.append(ids)
            payloads.read()
            texts.clear()
        return dict(texts)

    reading: list[Any] = []
    payloads = store_results.Unread(find, np.zeros((1, 1), np.int64))
    assert payloads.read().tolist() == [["before"]]


def test_payloads_that_sqlite_would_not_read_are_refused():
    store, limit = filled(), sys.getrecursionlimit()
    store.create_index("n")
    deep: Any = 1
    for _ in range(2500):
        deep = [deep]
    sys.setrecursionlimit(20_000)
    try:
        for payload in ({"n": deep}, deep[0][0]):
            with pytest.raises(ValueError, match=r"nested|recursion"):
                store.add(["x"], vectors(1), [payload])
    finally:
        sys.setrecursionlimit(limit)
    for _ in range(1601):
        deep = deep[0]
    store.add(["x"], vectors(1), [{"n": deep}])
    assert len(store.query(vectors(1), 60, where={"n": {"ge": 0}})[0]) == 60
    check(store)


@pytest.mark.parametrize("in_folder", [False, True])
def test_a_filter_cannot_change_the_store(in_folder: bool, tmp_path: Path):
    with MemoryStore(tmp_path / "store" if in_folder else None, random_state=0) as store:
        store.add(range(5), np.eye(5), [{"a": 1}] * 5)
        with pytest.raises(RuntimeError, match="cannot be changed during its query"):
            store.query(np.eye(5)[0], where=lambda payload: store.delete([0]))
        assert store.query(np.eye(5)[0], 1, where=lambda payload: payload["a"] == 1).keys == [[0]]
        check(store)


def test_metrics_have_other_names():
    for name, metric in (("l2", "euclidean"), ("ip", "inner_product")):
        assert MemoryStore(metric=name).metric == metric


def test_a_new_store_in_memory_does_not_query_its_database(monkeypatch: pytest.MonkeyPatch):
    def fail(*_: Any) -> None:
        raise AssertionError

    monkeypatch.setattr("cmt_numba.store._records.Records._look_up", fail)
    store = MemoryStore(random_state=0)
    for first in range(0, 40, 10):
        store.add([f"k{i}" for i in range(first, first + 10)], np.eye(40)[first : first + 10], [{"i": first}] * 10)
    store.delete(["k3", "k20"])
    store.upsert(["k5", "new"], np.eye(40)[[3, 20]])
    assert store.query(np.eye(40)[[3, 4, 20]], 1).keys[:, 0].tolist() == ["k5", "k4", "new"]
    assert store.query(np.eye(40)[[3, 4]], 1).payloads == [[None], [{"i": 0}]]


def test_queries_must_fit_vectors_that_another_thread_adds_first(monkeypatch: pytest.MonkeyPatch):
    store = MemoryStore(random_state=0)
    read = contents_of(store).lock.read

    def read_later(work: Any) -> Any:
        monkeypatch.undo()
        store.add([1, 2], np.eye(2, 7))
        return read(work)

    monkeypatch.setattr(contents_of(store).lock, "read", read_later)
    with pytest.raises(ValueError, match="must have 7 features"):
        store.query(np.ones((1, 3)), 1)


@pytest.mark.parametrize("form", ["dense", "sparse", "with texts"])
def test_each_memory_changes_as_a_whole(form: str, monkeypatch: pytest.MonkeyPatch):
    """Between the steps of a change, each memory has the vector, the payload and the text of one version."""
    n, store, n_seen = 600, MemoryStore(random_state=0), set()
    lock = contents_of(store).lock
    step = lock.step

    def checked(work: Any, **options: Any) -> Any:
        answer = step(work, **options)
        if lock._gate is None and contents_of(store)._failed is None:  # not within another step
            items = store.get([key for key in range(n) if key in store]) if len(store) > 0 else Items([], [], [], [])
            for i, payload in enumerate(items.payloads):
                vector = items.vectors[[i]]
                assert (vector.toarray() if form == "sparse" else vector).tolist() == [[1.0, payload["version"]]]
                assert items.texts[i] == (f"version {payload['version']}" if form == "with texts" else None)
            n_seen.add(sum(payload["version"] for payload in items.payloads))
        return answer

    def upsert(keys: range, version: int) -> None:
        X: Any = np.tile(np.array([[1.0, version]], np.float32), (len(keys), 1))
        texts = [f"version {version}"] * len(keys) if form == "with texts" else None
        X = scipy.sparse.csr_array(X) if form == "sparse" else X
        store.upsert(keys, X, [{"version": version}] * len(keys), texts=texts)

    monkeypatch.setattr(lock, "step", checked)
    upsert(range(500), 1)
    upsert(range(n), 2)
    assert max(n_seen) == 2 * n
    assert len(n_seen) == (5 if form == "dense" else 3)
    with monkeypatch.context() as patched:
        patched.setattr(store_state.StoreState, "insert", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            upsert(range(n + 1), 3)
    assert sum(payload["version"] for payload in store.get(range(n)).payloads) == 2 * n
    store.check_invariants()


def test_an_undo_that_fails_for_lack_of_memory_is_finished_before_the_next_use(monkeypatch: pytest.MonkeyPatch):
    store, keys = MemoryStore(random_state=0), [str(i) for i in range(600)]
    store.add(keys[:500], vectors(500), [{"i": 0}] * 500)
    before, failures = store.get(keys[:500]).vectors, [MemoryError] * 2
    put_back = store_state.StoreState.put_back

    def put_back_later(*arguments: Any) -> None:
        if failures:
            raise failures.pop()
        put_back(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(store_records.Records, "insert", lambda *_: 1 / 0)
        patched.setattr(store_state.StoreState, "put_back", put_back_later)
        with pytest.raises(ZeroDivisionError):
            store.upsert(keys, vectors(600, seed=5), [{"i": 1}] * 600)
        with pytest.raises(MemoryError):
            store.get(keys[0])
        assert store[keys[0]].payload == {"i": 0}
    np.testing.assert_array_equal(store.get(keys[:500]).vectors, before)
    store.check_invariants()


@pytest.fixture
def listed() -> MemoryStore:
    store = MemoryStore(random_state=0)
    years: list[Any] = [1990, 1985, None, 2001, 1985]
    payloads = [{"n": i, **({} if year is None else {"year": year})} for i, year in enumerate(years)]
    store.add(["c", "a", "e", "b", "d"], vectors(5), payloads, texts=["likes tea", *["likes coffee"] * 4])
    return store


@pytest.mark.parametrize(
    ("options", "keys"),
    [
        ({}, "caebd"),
        ({"order_by": "-$added"}, "dbeac"),
        ({"order_by": "$key"}, "abcde"),
        ({"order_by": "-$key", "limit": 2, "offset": 1}, "dc"),
        ({"order_by": "year"}, "adcbe"),
        ({"order_by": "-year"}, "bcdae"),
        ({"where": {"year": {"lt": 2000}}}, "cad"),
        ({"where": {"year": {"lt": 2000}}, "order_by": "-$added", "limit": 2}, "da"),
        ({"where": {"year": {"lt": 2000}}, "order_by": "-n", "offset": 1}, "ac"),
        ({"where": lambda payload: payload["n"] > 2}, "bd"),
        ({"where": {"year": 1}}, ""),
        ({"limit": 0}, ""),
        ({"offset": 9}, ""),
    ],
)
def test_memories_are_listed(options: dict[str, Any], keys: str, listed: MemoryStore):
    items = listed.get(**options)
    assert items.keys == list(keys)
    assert items.payloads == [listed[key].payload for key in keys]
    assert items.texts == [listed[key].text for key in keys]
    for i, key in enumerate(keys):
        assert np.array_equal(items.vectors[i], listed[key].vector)


def test_pages_contain_each_memory_once_while_others_change(listed: MemoryStore):
    seen: list[Any] = []
    for i, page in enumerate(listed.pages(size=2)):
        seen += page.keys
        listed.delete(page.keys[0])
        listed.upsert(f"new{i}", vectors(1), texts="more")
    assert seen == list("caebd")
    assert [page.keys for page in listed.pages({"year": {"exists": True}}, size=1)] == [["a"], ["b"]]
    assert list(MemoryStore().pages()) == []


def test_no_result_is_below_the_lowest_score(listed: MemoryStore):
    for query in ({"X": vectors(2, 3)}, {"texts": ["tea", "coffee"]}, {"X": vectors(2, 3), "texts": ["tea", "coffee"]}):
        everything = listed.query(**query, k=5)
        lowest = float(np.median(everything.scores[np.isfinite(everything.scores)]))
        found = listed.query(**query, k=5, min_score=lowest)
        expected = [[result for result in row if result.score >= lowest] for row in everything]
        assert [found[i] for i in range(2)] == expected
        assert 0 < sum(map(len, expected)) < 10
    assert listed.query(vectors(1), min_score=2.0)[0] == []
    with pytest.raises(ValueError, match="min_score"):
        listed.query(vectors(1), min_score=np.nan)


def test_foreign_and_damaged_files_are_refused(store: MemoryStore, tmp_path: Path):
    path = tmp_path / "store.cmt"
    ContextualMemoryTree().save(path)
    with pytest.raises(FileFormatError, match="of type MemoryStore, got"):
        MemoryStore.load(path)
    store.save(path)
    contents = bytearray(path.read_bytes())
    at = contents.index(b"CREATE TABLE facts")
    contents[at] ^= 1
    path.write_bytes(contents)
    with pytest.raises(FileFormatError):
        MemoryStore.load(path)

"""Parts of sharded stores without Ray: requests, the division of keys, moves, and merged results."""

import json
import pickle
import shutil
import sys
from collections.abc import Callable
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import FORM_OF
from internals import (
    contents_of,
    distributed_calls,
    distributed_folder,
    distributed_moves,
    distributed_results,
    distributed_shard,
    distributed_store_access,
    distributed_topology,
    move_under_way,
    opened,
)

from cmt_numba import FileFormatError, MemoryStore
from cmt_numba._words import hash_words
from cmt_numba.distributed import NoAnswerError, PartialChangeError, ShardedClassifier, ShardedStore
from cmt_numba.journal import JournalError
from cmt_numba.store import Items, Results

X = np.eye(4, dtype=np.float32)


def test_without_ray_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"cmt-numba\[ray\]"):
        ShardedStore(2)


# Requests


@pytest.mark.parametrize("in_folder", [False, True])
def test_a_request_is_made_once(tmp_path: Path, in_folder: bool):
    store = MemoryStore(tmp_path / "store" if in_folder else None, "euclidean", random_state=0)
    requests = distributed_shard.Requests(store, least_kept=2)
    requests.make("a", lambda: store.add(["k"], X[:1]))
    assert requests.is_known("a")
    with pytest.raises(KeyError):
        requests.make("b", lambda: store.delete(["missing"]))
    assert not requests.is_known("b")
    requests.make("b", lambda: store.upsert(["k", "l"], 10 * X[:2]))
    if in_folder:
        store.close()
        store = MemoryStore(tmp_path / "store")
        requests = distributed_shard.Requests(store, least_kept=2)
    assert requests.is_known("b")
    for name in "cdef":  # enough for the first to be forgotten
        requests.make(name, lambda: store.upsert(["k"], X[:1]))
    names = {name for name in distributed_store_access.facts_of(store) if name.startswith("request ")}
    assert "request a" not in names
    assert len(names) <= 4
    assert requests.is_known("f")
    store.close()


def test_a_request_is_written_with_its_change_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with MemoryStore(tmp_path / "store", "euclidean", random_state=0) as store:
        store.add(["k"], X[:1])
        requests = distributed_shard.Requests(store)

        def fail(*arguments: Any) -> None:
            raise OSError("no room")

        with monkeypatch.context() as patched:
            patched.setattr(type(contents_of(store).records), "insert", fail)
            with pytest.raises(JournalError, match="no room"):  # after all keys have changed
                requests.make("a", lambda: store.add(["l"], 100 * X[1:2]))
        assert not distributed_shard.Requests(store).is_known("a")
        requests.make("a", lambda: store.add(["l"], 100 * X[1:2]))
        assert sorted(store) == ["k", "l"]


# Division and merging


def test_hashes_never_change():
    assert distributed_topology.hash_keys(["a", "ä", ""]).tolist() == [
        3405396810240292928,
        4152366542966443504,
        13020603013274838756,
    ]
    assert distributed_topology.hash_keys([0, -1, 2**63 - 1]).tolist() == [
        16294208416658607535,
        16490336266968443936,
        3055647633038352039,
    ]


@pytest.mark.parametrize("keys", [list(range(20_000)), [f"key {i}" for i in range(20_000)]], ids=["int", "str"])
def test_keys_are_divided_evenly_and_few_move(keys: list[Any]):
    three, four = (
        distributed_topology.owners_of([f"shard-{i:03d}" for i in range(n)], distributed_topology.hash_keys(keys))
        for n in (3, 4)
    )
    assert np.bincount(four).min() > 0.95 * len(keys) / 4
    assert set(four[three != four]) == {3}  # keys only move to the new shard


def test_merged_answers_are_the_best_of_all():
    def answer(keys: list[Any], scores: list[float]) -> Results:
        payloads = np.array([[json.dumps(key) for key in keys]], object)
        return Results(np.array([keys]), np.array([scores], np.float32), payloads)

    both = distributed_results.merge_results([answer([1, 2], [0.9, 0.1]), answer([3], [0.5])], 2)
    assert both.keys.dtype == np.int64
    assert (both.keys.tolist(), both.payloads) == ([[1, 3]], [[1, 3]])
    again = distributed_results.merge_results([answer([2], [0.2]), answer([1, 2], [0.9, 0.3])], 2, are_distinct=False)
    assert (again.keys.tolist(), again.payloads) == ([[1, 2]], [[1, 2]])
    assert again.scores.tolist() == [[np.float32(0.9), np.float32(0.2)]]
    few = distributed_results.merge_results([answer(["a"], [0.5]), answer(["b"], [0.7])], 4)
    assert few.keys.tolist() == [["b", "a", None, None]]
    assert np.isneginf(few.scores[0, 2:]).all()
    few.missing_shards = ("shard-001",)
    rows = distributed_results.stack_results([few, distributed_results.merge_results([answer(["c"], [1.0])], 4)])
    assert len(rows) == 2
    assert rows[1:].missing_shards == ("shard-001",)
    assert [result.key for result in rows[1]] == ["c"]
    assert "without shard-001" in repr(rows)


# Moves


def topologies() -> tuple[distributed_topology.Topology, distributed_topology.Topology]:
    """Return the topology of one shard, and one with a second shard to which memories move."""
    one = distributed_topology.Topology(1, ("shard-000",), ("shard-000",), move=1)
    return one, one.next(("shard-000", "shard-001"))


@pytest.mark.parametrize("fails_at", [0, 1, 2, 3])
def test_a_move_goes_on_after_a_failure(fails_at: int):
    """Any step may fail and leave the records written so far."""
    stores = {name: MemoryStore(random_state=0) for name in ("shard-000", "shard-001")}
    steps = iter(range(100))
    keys = [f"k{i}" for i in range(60)]
    vectors = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
    stores["shard-000"].add(keys, vectors, [{"n": i} for i in range(60)])
    before, after = topologies()
    belong = {keys[i] for i in after.divided(keys)["shard-001"]}

    def opened(name: str) -> distributed_moves.Moves:
        return distributed_moves.Moves(name, stores[name], send, lambda *_: None)

    def send(topology: distributed_topology.Topology, to: str, *batch: Any) -> None:
        fail()  # before the other shard has the batch
        assert opened(to).receive(topology.version, *batch)
        fail()  # before this shard deletes it

    def fail() -> None:
        if next(steps) == fails_at:
            raise ConnectionError

    assert not belong >= set(keys[:10])
    opened("shard-001").adopt(after)
    opened("shard-000").adopt(before)
    assert opened("shard-000").give(after.version, None) is None  # this shard does not know about the move
    opened("shard-000").adopt(after)
    is_done = False
    while not is_done:
        giving = opened("shard-000")  # as after a restart
        try:
            giving.give(after.version, keys[:10])  # because a client reads these keys
            while not is_done:
                is_done = bool(giving.give(after.version, None))
        except ConnectionError:
            held = sum(map(len, stores.values()))
            twice = distributed_topology.count_duplicates({name: opened(name).progress for name in stores})
            assert held - twice == 60
    assert set(stores["shard-001"]) == belong
    assert set(stores["shard-000"]) == set(keys) - belong
    there = sorted(belong)
    items = stores["shard-001"].get(there)
    np.testing.assert_allclose(items.vectors, vectors[[keys.index(key) for key in there]], rtol=1e-5, atol=1e-6)
    assert items.payloads == [{"n": keys.index(key)} for key in there]
    late = Items([there[0]], vectors[:1], [None], [None])
    assert opened("shard-001").receive(after.version, "shard-000", 1, late)  # a repetition
    assert stores["shard-001"].get(there[0]).payloads == items.payloads[:1]
    assert not opened("shard-001").receive(before.version, "shard-000", 9, Items(["x"], vectors[:1], [None], [None]))


def test_moves_are_recorded_before_they_begin(tmp_path: Path):
    """Each copy of the folder is the state that a killed process would leave."""
    after = topologies()[1]
    keys = [f"k{i}" for i in range(20)]

    def left(name: str) -> distributed_moves.Moves:
        with MemoryStore(shutil.copytree(tmp_path / "store", tmp_path / name)) as store:
            return distributed_moves.Moves("shard-000", store, lambda *_: None, lambda *_: None)

    def send(*_: Any) -> None:
        assert move_under_way(left("sending")) == move_under_way(moves) is not None

    with MemoryStore(tmp_path / "store", random_state=0) as store:
        store.add(keys, np.random.default_rng(0).normal(size=(20, 4)))
        moves = distributed_moves.Moves("shard-000", store, send, lambda *_: None)
        moves.adopt(after)
        assert left("adopted").topology == after
        moves.give(after.version, None)
        assert 0 < len(store) < 20
        assert left("given").progress == moves.progress == distributed_topology.MoveProgress({"shard-001": 1}, {})
        assert move_under_way(left("given 2")) is None


def test_a_move_goes_on_without_memories_that_were_evicted():
    after = topologies()[1]
    stores = [MemoryStore(max_items=4, random_state=0), MemoryStore(random_state=0)]
    keys = [key for key in range(100) if 0 in after.divided([key]).get("shard-001", [])][:4]

    def send(topology: distributed_topology.Topology, to: str, *batch: Any) -> None:
        stores[0].upsert([1000, 1001], X[:2])  # evicts two of the batch
        stores[1].add(*batch[2][:4])
        raise ConnectionError

    stores[0].add(keys, X)
    moves = distributed_moves.Moves("shard-000", stores[0], send, lambda *_: None)
    moves.adopt(after)
    with pytest.raises(ConnectionError):
        moves.give(after.version, keys)
    received: list[Any] = []
    moves = distributed_moves.Moves("shard-000", stores[0], lambda *given: received.append(given), lambda *_: None)
    assert moves.give(after.version, keys)
    assert [given[3] for given in received] == [1]  # the number of the same batch
    assert set(received[0][4].keys) < set(keys)
    assert set(stores[0]) == {1000, 1001}
    assert set(stores[1]) == set(keys)


def test_memories_added_during_a_query_displace_no_others(monkeypatch: pytest.MonkeyPatch):
    topology = topologies()[0].with_schema(distributed_topology.Schema("cosine", 2, False, "str"))
    shard = distributed_shard.Shard(
        distributed_calls.ShardPlan("shard-000", "", None, True, None, {"random_state": 0}, 0)
    )
    shard.adopt(topology)
    shard.change(topology.version, "one", "add", ["far"], np.float32([[0.0, 1.0]]), None, None, None)
    store = opened(shard).store
    query = store._query

    def query_later(*arguments: Any, **options: Any) -> Results:
        assert shard.receive(topology.move, "shard-001", 1, Items(["near"], np.float32([[1.0, 0.0]]), [None], [None]))
        return query(*arguments, **options)

    monkeypatch.setattr(store, "_query", query_later)
    read = shard.read(topology.version, (0, 0), "query", np.float32([[1.0, 0.1]]), None, 10, None, None, None)
    assert isinstance(read, distributed_calls.Reply)
    assert read.progress.received == {}
    assert "far" in read.value.keys


def test_a_leaving_shard_refuses_late_queries(monkeypatch: pytest.MonkeyPatch):
    one, other = topologies()
    stays, leaves = (each.with_schema(distributed_topology.Schema("cosine", 2, False, "str")) for each in (one, other))
    shard = distributed_shard.Shard(
        distributed_calls.ShardPlan("shard-000", "", None, True, None, {"random_state": 0}, 0)
    )
    shard.adopt(stays)
    shard.change(stays.version, "one", "add", ["a"], np.ones((1, 2), np.float32), None, None, None)

    def fail(keys: list[Any]) -> None:
        shard.adopt(leaves)
        shard.close()
        raise JournalError("closed")

    monkeypatch.setattr(opened(shard).store, "get", fail)
    assert shard.read(stays.version, (0, 0), "get", ["a"]) == distributed_calls.OtherTopology(leaves)
    monkeypatch.undo()
    with pytest.raises(JournalError, match="closed"):
        shard.read(leaves.version, (0, 0), "get", ["a"])


def test_answers_that_lack_moved_memories_are_noticed():
    giver, receiver = (
        distributed_topology.MoveProgress({"b": 2}, {}),
        distributed_topology.MoveProgress({}, {"a": (1, 10)}),
    )
    assert distributed_topology.shards_behind({"a": giver, "b": receiver}) == ["b"]
    assert (
        distributed_topology.shards_behind({"a": giver, "b": distributed_topology.MoveProgress({}, {"a": (2, 10)})})
        == []
    )
    assert distributed_topology.shards_behind({"a": giver}) == []  # b was not asked
    assert distributed_topology.count_duplicates({"a": distributed_topology.MoveProgress({}, {}), "b": receiver}) == 10
    assert distributed_topology.count_duplicates({"a": giver, "b": receiver}) == 0


# Folders and errors


def listed(*names: str) -> distributed_folder.ShardList:
    return distributed_folder.ShardList(distributed_topology.Topology(1, names, names, move=1), len(names), len(names))


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda path: (path / "shards.json").write_text("{"), "damaged"),
        (lambda path: (path / "shards.json").write_bytes(b"\xff"), "damaged"),
        (lambda path: distributed_folder.write_list(path, listed("..")), "damaged"),
        (lambda path: distributed_folder.write_list(path, listed()), "damaged"),
        (lambda path: (path / "shards.json").unlink(), "has no shards.json"),
        (
            lambda path: (path / "shards.json").write_text('{"kind": "x", "version": 1, "shards": []}'),
            "and version 5, got",
        ),
    ],
)
def test_folders_of_something_else_are_refused(tmp_path: Path, spoil: Callable[[Path], Any], words: str):
    assert distributed_folder.read_list(tmp_path) is None
    distributed_folder.write_list(tmp_path, listed("shard-000"))
    assert distributed_folder.read_list(tmp_path) == listed("shard-000")
    (tmp_path / "other").touch()
    spoil(tmp_path)
    with pytest.raises(FileFormatError, match=words):
        ShardedStore(path=tmp_path)


def test_a_shard_whose_folder_is_gone_is_not_opened_empty(tmp_path: Path):
    with pytest.raises(FileFormatError, match="missing"):
        distributed_shard.Shard(
            distributed_calls.ShardPlan("shard-000", "", str(tmp_path / "shard-000"), False, None, {})
        ).topology()


REFUSED: dict[Any, list[tuple[dict[str, Any], type[Exception], str]]] = {
    (ShardedStore, ShardedClassifier): [
        ({}, ValueError, "n_shards must be given"),
        ({"n_shards": 0}, ValueError, "n_shards"),
        ({"n_shards": 2, "n_tree": 3}, TypeError, "n_tree"),
        ({"n_shards": 2, "timeout": 0}, ValueError, "timeout"),
    ],
    (ShardedStore,): [
        ({"n_shards": 2, "metric": "manhattan"}, ValueError, "metric"),
        ({"n_shards": 2, "read_only": True}, TypeError, "read_only"),
        ({"n_shards": 2, "sync_every": 0}, ValueError, "sync_every"),
        ({"n_shards": 2, "max_pending": 0}, ValueError, "max_pending"),
        ({"n_shards": 2, "n_replicas": -1}, ValueError, "n_replicas"),
        ({"n_shards": 2, "n_replicas": 1, "max_items": 10}, ValueError, "eviction='oldest'"),
    ],
    (ShardedClassifier,): [
        ({"n_shards": 2, "aggressiveness": -2.0}, ValueError, "aggressiveness"),
        ({"n_shards": 2, "method": "neighbors"}, ValueError, "method must be 'head'"),
        ({"n_shards": 2, "store_examples": False}, ValueError, "store_examples must be True"),
        ({"n_shards": 2, "random_state": -1}, ValueError, "random_state"),
    ],
}


@pytest.mark.parametrize(
    ("kind", "options", "error", "words"),
    [(kind, *case) for kinds, cases in REFUSED.items() for kind in kinds for case in cases],
)
def test_bad_options_are_refused_before_anything_starts(
    kind: Any, options: dict[str, Any], error: type[Exception], words: str, monkeypatch: Any, tmp_path: Path
):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(error, match=words):
        kind(path=tmp_path / "folder", **options)
    assert not (tmp_path / "folder").exists()


@pytest.mark.parametrize(
    "error",
    [
        NoAnswerError(["shard-000"], "try again"),
        PartialChangeError(["a"], ["b"], [], {"shard-001": OSError("no room")}),
        FileFormatError("file", "is damaged"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_pass_between_processes(error: Exception):
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


N, WIDTH = 60, 16


@pytest.mark.parametrize("form", FORM_OF)
def test_two_shards_learn_like_one_store(form: str, tmp_path: Path):
    rng, to = np.random.default_rng(0), FORM_OF[form]
    keys = rng.normal(size=(N, WIDTH)).astype(np.float32)
    one = MemoryStore(random_state=0)
    one.add(np.arange(N), to(keys))
    shards = [MemoryStore(tmp_path / f"{i}", random_state=i) for i in range(2)]
    for i, shard in enumerate(shards):
        shard.add(np.arange(i, N, 2), to(keys[i::2]))

    def ask(n: int) -> tuple[Any, np.ndarray]:  # half of the features are noise
        wanted = rng.integers(0, N, n)
        rows = keys[wanted].copy()
        rows[:, WIDTH // 2 :] = rng.normal(size=(n, WIDTH // 2))
        return to(rows), wanted

    def found(Q: Any, k: int) -> np.ndarray:
        return distributed_results.merge_results([shard.query(Q, k) for shard in shards], k).keys.astype(np.int64)

    Q, wanted = ask(400)
    before = np.mean(one.query(Q, 1).keys[:, 0] == wanted)
    for _ in range(25):
        asked, right = ask(20)
        shown = one.query(asked, 3).keys
        one.feedback(asked, shown, (shown == right[:, None]).astype(float))
        shown = found(asked, 3)
        known = np.unique(shown).tolist()
        for shard in shards:
            rewards = (shown == right[:, None]).astype(float)
            distributed_store_access.learn_from_all(shard, asked, None, shown, rewards, (known, to(keys)[known]), None)
    after = np.mean(one.query(Q, 1).keys[:, 0] == wanted)
    shared = np.mean(found(Q, 1)[:, 0] == wanted)
    assert after > before + 0.1
    assert shared > after - 0.05
    for i in range(5):
        explained = distributed_results.merge_explained([shard.explain(Q[[i]], 4) for shard in shards], 4)
        assert [result.key for result in explained] == found(Q[[i]], 4)[0].tolist()
        assert all(result.parts["similarity"] < 1.0 for result in explained)
    learned = [shard.learned() for shard in shards]
    mean = distributed_results.mean_summary([summary for summary in learned if summary is not None])
    assert mean is not None
    assert 0.0 < mean.gain == pytest.approx(np.mean([summary.gain for summary in learned if summary is not None]))
    assert "similarity" in [part.name for part in mean.parts]
    for i, shard in enumerate(shards):
        expected = shard.query(Q[:20], 5)
        shard.close()
        with MemoryStore(tmp_path / f"{i}") as again:
            np.testing.assert_array_equal(again.query(Q[:20], 5).keys, expected.keys)
            again.check_invariants()


@pytest.mark.parametrize("form", FORM_OF)
def test_only_stored_memories_of_a_kind_are_rewarded(form: str):
    X = FORM_OF[form](np.eye(4, dtype=np.float32))
    bounded, unbounded = MemoryStore(max_items=3, random_state=0), MemoryStore(random_state=0)
    for store in (bounded, unbounded):
        store.add(["a"], X[:1], texts="red")
        store.add(["b", "c"], X[1:3])
        store.add(["d"], texts="blue")  # evicts "a" from the bounded store
    keys, vectors = distributed_store_access.rewarded(bounded, ["a", "b", "c", "d"], False)
    assert keys == ["b", "c"]
    assert (vectors != X[1:3]).sum() == 0
    assert distributed_store_access.rewarded(bounded, ["a", "b", "d"], True) == (["d"], ["blue"])
    assert distributed_store_access.rewarded(bounded, ["a", "d"], False) == ([], None)
    assert distributed_store_access.rewarded(unbounded, ["d", "a"], True) == (["d", "a"], ["blue", "red"])
    with pytest.raises(KeyError, match="nobody"):
        distributed_store_access.rewarded(unbounded, ["a", "nobody"], False)


def test_shards_learn_by_texts_alone(tmp_path: Path):
    rng = np.random.default_rng(0)
    notes = [f"w{i % 7} w{i % 11} note{i}" for i in range(N)]
    one = MemoryStore(random_state=0)
    one.add(np.arange(N), texts=notes)
    shards = [MemoryStore(tmp_path / f"{i}", random_state=i) for i in range(2)]
    shards.append(MemoryStore(random_state=0))  # has no texts, and learns nothing
    for i, shard in enumerate(shards[:2]):
        shard.add(np.arange(i, N, 2), texts=notes[i::2])

    def ask(n: int) -> tuple[list[str], np.ndarray]:
        wanted = rng.integers(0, N, n)
        return [f"w{i % 7} w{(i * 3) % 11} problem{i % 20}" for i in wanted], wanted

    def statistics_of_all(words: Any) -> Any:
        distinct = list(set[int]().union(*words))
        return reduce(or_, [distributed_store_access.statistics_of(shard, distinct) for shard in shards])

    def found(texts: list[str], k: int) -> Any:
        words = [hash_words(text) for text in texts]
        statistics = statistics_of_all(words)
        return distributed_results.merge_results(
            [distributed_store_access.query(shard, None, words, k, None, None, statistics) for shard in shards], k
        )

    queries, wanted = ask(300)
    before = np.mean(one.query(texts=queries, k=1).keys[:, 0] == wanted)
    np.testing.assert_allclose(found(queries, 3).scores, one.query(texts=queries, k=3).scores, rtol=1e-6)
    for _ in range(20):
        asked, right = ask(20)
        shown = one.query(texts=asked, k=3).keys
        one.feedback(None, shown, (shown == right[:, None]).astype(float), texts=asked)
        shown, words = found(asked, 3).keys, [hash_words(text) for text in asked]
        known = sorted({int(key) for key in shown.ravel() if key is not None})
        others = known, [notes[key] for key in known]
        for shard in shards:
            rewards = (shown == right[:, None]).astype(float)
            distributed_store_access.learn_from_all(
                shard, None, words, shown, rewards, others, statistics_of_all(words)
            )
    after = np.mean(one.query(texts=queries, k=1).keys[:, 0] == wanted)
    shared = np.mean(found(queries, 1).keys[:, 0] == wanted)
    assert after > before + 0.1
    assert shared > after - 0.05
    for i, shard in enumerate(shards[:2]):
        expected = shard.query(texts=queries[:20], k=5)
        shard.close()
        with MemoryStore(tmp_path / f"{i}") as again:
            np.testing.assert_array_equal(again.query(texts=queries[:20], k=5).scores, expected.scores)

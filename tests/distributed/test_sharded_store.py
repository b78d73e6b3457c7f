"""Sharded stores on a substitute for Ray without processes: contents, changes, texts, and invalid arguments."""

import pickle
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from internals import client_of, distributed_topology, peers_of
from local_ray import ACTORS, use_local_ray
from stores import BAD_CALLS, filled, vectors

from cmt_numba import MemoryStore
from cmt_numba.distributed import ClusterError, ShardedStore
from cmt_numba.journal import AlreadyOpenError, JournalError
from cmt_numba.persistence import FileFormatError

N = 10_000


@pytest.fixture(scope="module", autouse=True)
def without_processes() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        use_local_ray(patch)
        yield


@pytest.fixture(scope="module")
def one() -> MemoryStore:
    """Return a store without shards, which no test changes."""
    return filled(N)


@pytest.fixture(scope="module")
def sharded(without_processes: None, one: MemoryStore) -> Iterator[ShardedStore]:
    """Return a sharded store with the same memories, which no test changes."""
    with ShardedStore(3, random_state=0) as store:
        store.add(list(one), one.get(list(one)).vectors, one.get(list(one)).payloads)
        yield store


def is_a_number(payload: dict[str, Any] | None) -> bool:
    return payload is not None and isinstance(payload["a"], float | int)


def is_one_of_the_last(payload: dict[str, Any]) -> bool:
    return bool(payload["n"] >= N - 5)


@pytest.mark.parametrize(
    "where",
    [None, {"odd": True, "n": {"lt": 500}}, ["k5", "k77", "k9999"], is_one_of_the_last],
    ids=["all", "dict", "keys", "function"],
)
def test_all_shards_together_answer_as_one_store(one: MemoryStore, sharded: ShardedStore, where: Any):
    expected, found = (store.query(vectors(70, 1), 8, where, target_recall=1.0) for store in (one, sharded))
    np.testing.assert_array_equal(found.keys, expected.keys)
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-5, atol=1e-6)
    assert found.payloads == expected.payloads
    assert found.missing_shards == ()


def test_prepared_filters_find_what_one_store_finds(one: MemoryStore, sharded: ShardedStore):
    Q = vectors(20, 3)
    for given in ({"where": {"n": {"lt": 300}}}, {"keys": ["k5", "k77", "k9999"]}):
        expected, found = (store.query(Q, 3, store.filter(**given), target_recall=1.0) for store in (one, sharded))
        np.testing.assert_array_equal(found.keys, expected.keys)
    prepared = sharded.filter(keys=["k5"])
    assert [sharded.query(Q[:1], 1, prepared).keys[0, 0] for _ in range(2)] == ["k5", "k5"]
    with pytest.raises(KeyError, match="'nobody'"):
        sharded.filter(keys=["k5", "nobody"])
    with pytest.raises(TypeError, match="either where or keys"):
        sharded.filter()


def test_shards_count_measure_and_check_themselves(one: MemoryStore, sharded: ShardedStore):
    assert 0.9 <= sharded.recall(vectors(50, 3), 5) <= 1.0
    for where in (None, {"n": {"lt": 300}}, ["k5", "k77"]):
        assert sharded.count(where) == one.count(where)
    assert sharded.max_items is None
    sharded.check_invariants()


def test_contents_of_a_sharded_store(one: MemoryStore, sharded: ShardedStore):
    assert len(sharded) == N
    assert set(sharded) == set(one)
    assert "k3" in sharded
    assert not any(key in sharded for key in ("k", 3, True, "\0", None))
    keys = ["k9", "k1", "k9", "k5000"]
    expected, found = one.get(keys), sharded.get(keys)
    assert found.keys == keys
    np.testing.assert_array_equal(found.vectors, expected.vectors)
    assert found.payloads == expected.payloads
    assert (sharded.n_features, sharded.metric, sharded.path) == (8, "cosine", None)
    assert len(sharded.shards) == 3
    sizes = [facts.n_memories for facts in client_of(sharded).survey().facts.values()]
    assert min(sizes) > 0.8 * N / 3


def test_recall_is_no_lower_by_default(one: MemoryStore, sharded: ShardedStore):
    Q = vectors(100, 2)
    true = one.query(Q, 10, target_recall=1.0).keys
    recalls = [
        np.mean([np.isin(row, right).mean() for row, right in zip(store.query(Q, 10).keys, true, strict=True)])
        for store in (one, sharded)
    ]
    assert recalls[1] >= recalls[0] - 0.005


def test_a_bounded_store_deletes_by_a_filter_and_ignores_rewards_of_missing_memories():
    with ShardedStore(2, random_state=0, max_items=1000) as store:
        store.add(range(60), vectors(60), [{"n": i % 3} for i in range(60)])
        assert store.delete(where={"n": 1}) == 20
        assert store.delete(where={"n": 1}) == 0
        assert store.delete([0, 2]) == 2
        assert set(store) == {i for i in range(60) if i % 3 != 1} - {0, 2}
        assert store.max_items == 1000
        store.feedback(vectors(2), [0, 3], [1.0, 1.0])  # a bounded store ignores rewards of memories that are gone
        learned = store.learned()
        assert learned is not None
        for given in ({}, {"keys": [3], "where": {"n": 0}}):
            with pytest.raises(TypeError, match="either where or keys"):
                store.delete(**given)


@BAD_CALLS
def test_bad_input_is_refused_before_anything_changes(
    sharded: ShardedStore, call: Callable[[ShardedStore], Any], error: type[Exception], words: str
):
    with pytest.raises(error, match=words):
        call(sharded)
    assert len(sharded) == N
    assert "a" not in sharded


@pytest.mark.parametrize(
    ("options", "is_ordered"),
    [
        ({}, False),
        ({"order_by": "-$added"}, False),
        ({"where": {"a": {"gt": 3}}}, False),
        ({"order_by": "$key"}, True),
        ({"order_by": "-$key", "limit": 7, "offset": 5}, True),
        ({"order_by": "a", "where": {"a": {"exists": True}}}, True),
        ({"order_by": "-a", "where": {"a": {"exists": True}}, "limit": 15}, True),
        ({"order_by": "a", "offset": 12, "limit": 3}, True),
        ({"limit": 0}, True),
        ({"offset": 99}, True),
        ({"where": ["k3", "k9"], "order_by": "$key"}, True),
        ({"where": is_a_number, "order_by": "$key"}, True),
    ],
)
def test_shards_list_as_one_store(options: dict[str, Any], is_ordered: bool):
    """Values of a field are numbers, texts, lists and missing."""
    payloads = [{"a": value} for value in (3, 1.5, "é", "z", True, [1], *range(6, 16))] + [None] * 4
    lists = []
    for store in (MemoryStore(random_state=0), ShardedStore(2, random_state=0)):
        with store:
            store.add([f"k{i}" for i in range(10)], vectors(10), payloads[:10])
            store.add([f"k{i}" for i in range(10, 20)], None, payloads[10:], texts=["some words"] * 10)
            items = store.get(**options)
            rows = zip(items.keys, items.payloads, items.texts, np.array(items.vectors).tolist(), strict=True)
            lists.append([str(row) for row in rows] if items.vectors is not None else items.keys)
            if not is_ordered:
                lists[-1].sort()
            pages = list(store.pages(options.get("where"), size=3))
            assert sorted(key for page in pages for key in page.keys) == sorted(
                store.get(where=options.get("where")).keys
            )
            assert all(len(page.keys) <= 3 for page in pages)
    assert lists[0] == lists[1]


def test_pages_of_shards_contain_no_memory_twice_while_others_change():
    with ShardedStore(2, random_state=0) as store:
        store.add(range(40), vectors(40))
        seen = []
        for i, page in enumerate(store.pages(size=4)):
            seen += page.keys
            store.delete(page.keys[0])
            store.upsert(100 + i, vectors(1))
        assert sorted(key for key in seen if key < 100) == list(range(40))
        assert len(set(seen)) == len(seen)
        pages = store.pages(size=4)
        next(pages)
        store.add_shard()
        with pytest.raises(RuntimeError, match="start again"):
            list(pages)


def test_shards_leave_out_low_scores(one: MemoryStore, sharded: ShardedStore):
    expected, found = (store.query(vectors(20, 1), 8, min_score=0.97, target_recall=1.0) for store in (one, sharded))
    np.testing.assert_array_equal(found.keys, expected.keys)
    assert 0 < sum(map(len, found)) < 160


@pytest.mark.parametrize("n_replicas", [0, 1])
def test_memories_of_shards_expire(n_replicas: int, monkeypatch: pytest.MonkeyPatch):
    """Also after they have moved to another shard."""
    now, day = time.time(), timedelta(days=1)
    with ShardedStore(2, random_state=0, n_replicas=n_replicas) as store:
        store.add(range(20), vectors(20), expires=[day if i % 2 else None for i in range(20)])
        store.upsert([0, 20], vectors(2), [{}, {}], expires=2 * day)
        store.add_shard()
        assert len(store) == 21
        expires = store.get([2, 0, 1]).expires
        assert expires is not None
        assert [None if at is None else round((at.timestamp() - now) / 86400) for at in expires] == [None, 2, 1]
        assert store[1].expires == expires[2]
        for after, n in ((1.5, 11), (2.5, 9)):
            monkeypatch.setattr(time, "time", lambda after=after: now + 86400 * after)
            for _ in range(2):  # the shard and the replica take turns
                assert len(store) == n
                assert len(store.get().keys) == len(list(store)) == n
                assert len({key for key in store.query(vectors(1), 20).keys[0] if key is not None}) == n
        store.add([1], vectors(1))
        store.check_invariants()
        assert store.get(order_by="$key").expires is None


def test_no_shard_sets_fields_if_one_of_them_cannot():
    with ShardedStore(2, random_state=0) as store:
        store.add(range(20), vectors(20), [{"n": i} for i in range(19)] + ["text"])
        new = {"n": -1}
        for keys, fields in ((range(20), new), (range(20), [new] * 20), (range(19), [*[new] * 18, 3])):
            with pytest.raises(TypeError, match="must be a dict"):
                store.update_payload(keys, fields)
        assert store.get(range(19)).payloads == [{"n": i} for i in range(19)]
        store.update_payload([0, 1, 2], iter([{"n": 5}, {"n": 6}, {"n": 7}]))
        assert store.get([0, 1, 2]).payloads == [{"n": 5}, {"n": 6}, {"n": 7}]


def test_a_copy_finds_entirely_new_shards():
    with ShardedStore(1) as store:
        store.add(["a", "b"], vectors(2))
        copies = [pickle.loads(pickle.dumps(store)) for _ in range(3)]
        store.add_shard()
        store.remove_shard("shard-000")
        nowhere = distributed_topology.Topology(
            1, ("shard-009",), ("shard-009",)
        )  # the copy has no handle of its actor
        client_of(copies[1]).topology = nowhere
        assert copies[0].query(vectors(2), 1).keys.ravel().tolist() == ["a", "b"]
        assert copies[1].query(vectors(2), 1).keys.ravel().tolist() == ["a", "b"]
        copies[2].upsert("c", vectors(1, 1))
        assert [copy.shards for copy in copies] == [("shard-001",)] * 3
        assert "c" in store
        client_of(copies[1]).topology = nowhere._replace(version=client_of(store).topology.version)
        with pytest.raises(ClusterError, match="shard-009 has no actor"):  # and there are no later shards
            copies[1].query(vectors(1), 1)


def test_a_dead_shard_with_a_stale_replica_is_lost():
    with ShardedStore(1, n_replicas=1) as store:
        store.add(range(10), vectors(10))
        shard, replica = (peer.handle.name for peer in peers_of(client_of(store).actors)["shard-000"])
        ACTORS[replica].wait()
        del ACTORS[shard]
        assert [len(store) for _ in range(4)] == [10] * 4
        ACTORS[replica]._is_ready.clear()
        for _ in range(4):  # the shard and the replica take turns
            for call in (len, list, lambda store: 3 in store, lambda store: store.query(vectors(1))):
                with pytest.raises(ClusterError, match="shard-000 has died"):
                    call(store)


WORDS = ["red", "green", "blue", "apple", "pear", "car", "house", "door", "window", "E17"]


def notes(n: int) -> list[str]:
    rng = np.random.default_rng(5)
    return [" ".join(rng.choice(WORDS, rng.integers(1, 7))) for _ in range(n)]


def add_notes(store: Any) -> Any:
    """Add memories with vectors and texts, with texts only, and with vectors only."""
    texts, X = notes(60), vectors(60)
    store.add([f"both{i}" for i in range(30)], X[:30], [{"n": i} for i in range(30)], texts[:30])
    store.add([f"text{i}" for i in range(30)], texts=texts[30:])
    store.upsert([f"vector{i}" for i in range(30)], X[30:])
    return store


def assert_same_answers(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-5)
    scores = np.round(expected.scores, 4)
    for row in range(len(expected)):  # memories with equal scores may be in any order
        for score in np.unique(scores[row, :-1]):
            same = scores[row] == score
            if not same[-1]:
                assert set(found.keys[row, same]) == set(expected.keys[row, same])


def test_texts_in_shards_are_found_as_in_one_store(tmp_path: Path):
    one, Q = add_notes(MemoryStore(random_state=0)), vectors(5, 2)
    queries = ["red apple", "E17", "a house", "pear", "?"]
    with ShardedStore(2, tmp_path / "notes", random_state=0) as store:
        add_notes(store)
        misspelt = ["rde aple", "a hous", "wndow", "unheard"]
        for shards in (2, 3):
            expected = one.query(texts=misspelt, k=6, fuzzy=True)
            assert all(expected.keys[:3, 0])
            assert_same_answers(store.query(texts=misspelt, k=6, fuzzy=True), expected)
            for X, texts, where in ((None, queries, None), (Q, queries, None), (None, queries, {"n": {"lt": 20}})):
                expected = one.query(X, 6, where, 1.0, texts)
                found = store.query(X, 6, where, 1.0, texts)
                assert_same_answers(found, expected)
                given = {result.key: result.text for row in expected for result in row}
                assert all(result.text == given.get(result.key, result.text) for row in found for result in row)
            if shards == 2:
                store.add_shard()  # moves texts and memories without vectors
        assert_same_answers(store.query(Q, 6, target_recall=1.0), one.query(Q, 6, target_recall=1.0))
        keys = ["text3", "both4", "vector5"]
        found, expected = store.get(keys), one.get(keys)
        np.testing.assert_array_equal(found.vectors, expected.vectors)
        assert (found.texts, found.payloads) == (expected.texts, expected.payloads)
        assert store.get(["text1"]).vectors is None
        store.feedback(Q[:1], [["both1", "text1", None]], [[1.0, 0.0, np.nan]])
        store.feedback(Q[:1], ["text1"], [1.0])  # learns nothing
        store.feedback(None, [["text1", "both4", "vector5"]] * 2, [1.0, 1.0], texts=["unheard of", "unheard"])
        assert store.query(texts="unheard", k=2).keys.tolist() == [[None, None]]  # equal rewards teach nothing
        for call, words in (
            (lambda: store.add(["x"]), "pass vectors X, texts, or both"),
            (lambda: store.query(k=1), "pass vectors X, texts, or both"),
            (lambda: store.query(Q, fuzzy=True), "pass texts, or omit fuzzy"),
            (lambda: store.add(["x"], texts=["!"]), "texts must contain words"),
            (lambda: store.query(Q[:1], texts=["a", "b"]), "texts"),
        ):
            with pytest.raises((TypeError, ValueError), match=words):
                call()


def test_an_encoder_computes_the_vectors_of_shards():
    def encode(texts: list[str]) -> np.ndarray:
        return np.array([[len(text), text.count("e") + 1.0] for text in texts], np.float32)

    texts = notes(12)
    with ShardedStore(2, random_state=0, encoder=encode) as store:
        store.add(range(12), texts=texts)
        np.testing.assert_array_equal(store.get([7]).vectors, encode(texts[7:8]))
        one = MemoryStore(encoder=encode, random_state=0)
        one.add(range(12), texts=texts)
        assert_same_answers(store.query(texts=texts[:4], k=3), one.query(texts=texts[:4], k=3))


def test_changes_in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("cmt_numba.distributed._client._ROWS_AT_ONCE", 50)
    path, X = tmp_path / "store", scipy.sparse.csr_array(np.maximum(vectors(300), 0))
    options: dict[str, Any] = {"random_state": 0}
    with (
        ShardedStore(2, path, "inner_product", **options) as store,
        MemoryStore(None, "inner_product", **options) as one,
    ):
        assert store.query(X[:2], 2).keys.tolist() == [[None, None]] * 2
        for each in (store, one):
            each.add(range(200), X[:200], [{"n": i} for i in range(200)])
            each.create_index("n")
            each.upsert(np.arange(190, 250), X[240:300])
            each.delete(np.arange(30))
            assert each.learned() is None
            each.feedback(X[100:103], [[100, 101], [None, 102], [103, None]], np.ones((3, 2)))
            learned = each.learned()
            assert learned is not None
            assert learned.n_rewards == pytest.approx(3.0, abs=0.1)
            explained = [(result.key, result.score) for result in each.explain(X[[120]], 4)]
            assert explained == [(result.key, result.score) for result in each.query(X[[120]], 4)[0]]
        assert sorted(store) == sorted(one)
        expected, found = one.get(range(30, 250)), store.get(range(30, 250))
        np.testing.assert_allclose(found.vectors.toarray(), expected.vectors.toarray(), rtol=1e-4, atol=1e-5)
        assert found.payloads == expected.payloads
        assert store.query(X[:60], 3, {"n": {"lt": 60}}).keys.dtype == np.int64
        store.save(tmp_path / "saved")
        with pytest.raises(FileExistsError):
            store.save(tmp_path / "saved")
        with pytest.raises(AlreadyOpenError, match="already open"):
            ShardedStore(path=path, timeout=1.0)
        answers = store.query(X, 5, target_recall=1.0)
    with pytest.raises(JournalError, match="closed"):
        store.query(X)
    with pytest.raises(ValueError, match="n_shards must be 2"):
        ShardedStore(3, path)
    with pytest.raises(FileFormatError, match=r"lacks the file shard-000.cmt; pass the path to ShardedStore"):
        ShardedStore.load(path)
    for again in (ShardedStore(path=path), ShardedStore.load(tmp_path / "saved")):
        with again:
            assert len(again) == 220
            same = again.query(X, 5, target_recall=1.0)
            np.testing.assert_array_equal(same.keys, answers.keys)
            np.testing.assert_array_equal(same.scores, answers.scores)
            assert again.add_shard() == "shard-002"
            assert sorted(again) == list(range(30, 250))


def test_a_move_that_failed_is_finished_when_the_folder_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    keys, Q = [f"k{i}" for i in range(400)], vectors(5, 1)
    store = ShardedStore(1, tmp_path / "store", random_state=0)
    store.add(keys, vectors(400), [{"n": i} for i in range(400)])
    store.create_index("n")
    expected = store.query(Q, 400, target_recall=1.0)
    ask = client_of(store).actors.ask

    def fail(method: str, *arguments: Any) -> Any:
        if method == "give":
            raise ClusterError("ended")  # after the folder and the shards have recorded the move
        return ask(method, *arguments)

    monkeypatch.setattr(client_of(store).actors, "ask", fail)
    with pytest.raises(ClusterError, match="ended"):
        store.add_shard()
    store.close()
    with ShardedStore(path=tmp_path / "store") as store:
        assert store.shards == ("shard-000", "shard-001")
        assert sorted(store) == sorted(keys)
        made_alike = client_of(store).actors.ask("options", dict.fromkeys(store.shards, ())).values
        assert made_alike["shard-000"] == made_alike["shard-001"]
        assert made_alike["shard-001"][1] == [("n",)]
        np.testing.assert_array_equal(store.query(Q, 400, target_recall=1.0).keys, expected.keys)
        assert min(facts.n_memories for facts in client_of(store).survey().facts.values()) > 50

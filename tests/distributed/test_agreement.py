"""Shards agree on a schema before they accept memories, and every folder opens."""

import json
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from internals import (
    client_of,
    distributed_calls,
    distributed_resizing,
    distributed_shard,
    distributed_store_access,
    distributed_topology,
    opened,
)
from local_ray import use_local_ray

from cmt_numba import MemoryStore
from cmt_numba.distributed import MoveError, ShardConflictError, ShardedStore
from cmt_numba.store import Items

NAMES = ("shard-000", "shard-001")
EMPTY = distributed_topology.Topology(1, NAMES, NAMES, distributed_topology.Schema("cosine"), 1)
COMPLETE = EMPTY.with_schema(distributed_topology.Schema("cosine", 4, False, "str"))
X = np.eye(4, dtype=np.float32)


def keys_of(shard: str, kind: type = str) -> list[Any]:
    """Return three keys that belong to one of two shards."""
    keys = [f"k{i}" if kind is str else i for i in range(60)]
    return [key for key in keys if shard in EMPTY.divided([key])][:3]


@pytest.fixture(autouse=True)
def without_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    use_local_ray(monkeypatch)


# One shard


def new_shard(topology: distributed_topology.Topology) -> distributed_shard.Shard:
    shard = distributed_shard.Shard(distributed_calls.ShardPlan("shard-000", "", None, True, None, {"random_state": 0}))
    shard.adopt(topology)
    return shard


def test_the_first_shard_decides_once_which_topology_follows():
    shard = new_shard(EMPTY)
    others = EMPTY.with_schema(distributed_topology.Schema("cosine", 6, False, "str")), EMPTY.next(NAMES[:1])
    for _ in range(2):  # as if the first answer had been lost
        assert shard.decide(EMPTY.version, COMPLETE) == COMPLETE
    for other in others:
        assert other.version == COMPLETE.version
        assert shard.decide(EMPTY.version, other) == COMPLETE
    assert shard.topology() == COMPLETE


def test_a_shard_accepts_only_what_was_agreed_on():
    shard, keys = new_shard(EMPTY), keys_of("shard-000")
    assert isinstance(
        shard.change(COMPLETE.version, "a", "add", keys[:1], X[:1], None), distributed_calls.OtherTopology
    )
    with pytest.raises(RuntimeError, match="the shards must agree"):
        shard.change(EMPTY.version, "b", "add", keys[:1], X[:1], None)
    shard.adopt(COMPLETE)
    for method in ("add", "upsert"):
        with pytest.raises(ValueError, match="4 features, like the vectors in the store, got 3"):
            shard.change(COMPLETE.version, f"c {method}", method, keys[:1], X[:1, :3], None)
        with pytest.raises(TypeError, match="strings, like the keys in the store, got integers"):
            shard.change(COMPLETE.version, f"d {method}", method, [7], X[:1], None)
    assert len(opened(shard).store) == 0
    made = shard.change(COMPLETE.version, "e", "add", keys[:1], scipy.sparse.csr_array(X[:1]), None, None, None)
    assert not isinstance(made, distributed_calls.OtherTopology)
    assert distributed_store_access.schema_of(opened(shard).store) == COMPLETE.schema  # dense, as agreed
    with pytest.raises(ValueError, match="4 features"):
        shard.receive(COMPLETE.move, "shard-001", 1, Items(keys[1:2], X[:1, :3], [None], [None]))
    assert shard.receive(COMPLETE.move, "shard-001", 1, Items(keys[1:2], X[1:2], [None], [None]))


def test_a_new_schema_leaves_a_move_under_way_as_it_is():
    moving = COMPLETE.next(NAMES[1:])
    shard = new_shard(moving)
    assert shard.receive(moving.move, "shard-001", 1, Items(["a"], X[:1], [None], [None]))
    received = opened(shard).moves.progress.received
    moving = moving.with_schema(distributed_topology.Schema("cosine"))
    assert shard.adopt(moving) == moving
    assert opened(shard).moves.progress.received == received
    back = moving.next(moving.before)
    assert shard.adopt(back) == back
    assert opened(shard).moves.progress.received == {}


def test_returning_memories_replace_leftover_copies():
    shard, keys = new_shard(COMPLETE), keys_of("shard-000")
    shard.change(COMPLETE.version, "a", "add", keys, X[:3], None, None, None)
    back = COMPLETE.next(NAMES[1:]).next(NAMES)
    shard.adopt(back)
    assert shard.receive(back.move, "shard-001", 1, Items(keys[:2], X[:2], [{"n": 1}, None], [None, None]))
    assert len(opened(shard).store) == 3
    assert opened(shard).store.get(keys).payloads == [{"n": 1}, None, None]


def test_incompatible_shards_are_named():
    some = distributed_topology.Schema("cosine", 4, True, "str")
    assert distributed_topology.common_schema({"a": some, "b": distributed_topology.Schema("cosine")}) == some
    assert distributed_topology.common_schema({"a": some, "b": some._replace(is_sparse=False)}) == some._replace(
        is_sparse=False
    )
    for other, words in (
        (some._replace(n_features=6), "a contains vectors of 4 features, and b contains vectors of 6"),
        (some._replace(key_type="int"), "a contains keys of type str, and b contains keys of type int"),
        (some._replace(metric="euclidean"), "a has the metric cosine, and b has the metric euclidean"),
    ):
        with pytest.raises(ShardConflictError, match=words) as caught:
            distributed_topology.common_schema({"a": some, "b": other})
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


# Clients


@pytest.mark.parametrize("what", ["width", "kind"])
def test_one_of_two_incompatible_first_changes_is_refused(tmp_path: Path, what: str):
    text, others = keys_of("shard-000"), keys_of("shard-001", int if what == "kind" else str)
    width, made, refused = 4 if what == "kind" else 6, [], []
    with ShardedStore(2, tmp_path / "store") as store:
        copies = [store, pickle.loads(pickle.dumps(store))]
        barrier = threading.Barrier(2)

        def add(each: ShardedStore, keys: list[Any], width: int) -> None:
            barrier.wait()
            try:
                each.add(keys, np.ones((3, width)))
                made.append(keys)
            except (TypeError, ValueError):
                refused.append(keys)

        threads = [
            threading.Thread(target=add, args=arguments)
            for arguments in zip(copies, (text, others), (4, width), strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(made) == len(refused) == 1
        assert sorted(store) == made[0]
        width = 4 if made[0] == text else width
        assert store.n_features == width
        for each in copies:
            assert sorted(each.query(np.ones((1, width)), 3).keys[0]) == made[0]
        with pytest.raises((TypeError, ValueError)):
            store.upsert(refused[0], np.ones((3, 6 if what == "width" and width == 4 else 4)))
        store.remove_shard()
        assert sorted(store) == made[0]
    with ShardedStore(path=tmp_path / "store") as store:
        assert sorted(store) == made[0]


def test_clients_notice_that_the_keys_are_of_another_type(tmp_path: Path):
    text, numbers = keys_of("shard-000"), keys_of("shard-001", int)
    with ShardedStore(2, tmp_path / "store") as store, MemoryStore() as one:
        copy = pickle.loads(pickle.dumps(store))
        for each, other in ((store, copy), (one, one)):
            each.add(text, X[:3])
            with pytest.raises(TypeError, match="strings"):
                other.add(numbers, X[:3])
            each.delete(text)
            other.add(numbers, X[:3])
            for method in (each.add, each.upsert):
                with pytest.raises(TypeError, match="integers"):
                    method(text, X[:3])
            with pytest.raises(ValueError, match="4 features"):
                other.add([99], X[:1, :2])
            assert sorted(each) == numbers
        store.remove_shard()
        other = pickle.loads(pickle.dumps(store))
    with ShardedStore(path=tmp_path / "store") as store:
        assert sorted(store) == numbers


# Folders of earlier versions


def write_bad_folder(path: Path, *, moving: bool, kind: type = str, width: int = 4) -> list[list[Any]]:
    """Write shards with incompatible memories, as copied folders could be; return their keys."""
    keys = [keys_of("shard-000"), keys_of("shard-001", kind)]
    path.mkdir()
    for name, own, n_features in zip(NAMES, keys, (4, width), strict=True):
        with MemoryStore(path / name) as store:
            store.add(own, np.eye(n_features)[:3])
    after = list(NAMES[:1] if moving else NAMES)
    found = {"kind": "ShardedStore", "version": 5, "complete": True, "topology": 2, "shards": after}
    (path / "shards.json").write_text(
        json.dumps(found | {"before": NAMES, "schema": [], "move": 1, "left": [], "parts": 2, "made": 2})
    )
    return keys


@pytest.mark.parametrize("changed", [{"kind": int}, {"width": 6}], ids=["key types", "widths"])
def test_a_folder_opens_though_its_move_cannot_be_finished(tmp_path: Path, changed: dict[str, Any]):
    keys = write_bad_folder(tmp_path / "store", moving=True, **changed)
    for _ in range(2):
        with (
            pytest.warns(RuntimeWarning, match="shards are incompatible: shard-000 .* and shard-001"),
            pytest.warns(RuntimeWarning, match="cannot be moved from shard-001 to shard-000: .* undo_move"),
        ):
            store = ShardedStore(path=tmp_path / "store")
        assert len(store) == 6
        with pytest.raises(MoveError, match="undo_move"):
            store.finish_move()
        assert store.get(keys[0]).keys == keys[0]
        store.close()
    with pytest.warns(RuntimeWarning):
        store = ShardedStore(path=tmp_path / "store")
    with store:
        store.undo_move()
        store.undo_move()  # there is no move to undo
        assert store.shards == NAMES
        assert len(store) == 6
        assert store.get(keys[1]).keys == keys[1]
        with pytest.raises(ShardConflictError, match="before adding memories, delete"):
            store.add(["new"], X[:1])
        with pytest.raises(ShardConflictError, match="shards are incompatible"):
            store.remove_shard()
        with pytest.raises(ShardConflictError, match="shards are incompatible"):
            store.add_shard()
        store.delete(keys[1])
        if "width" in changed:
            assert store.remove_shard() == "shard-001"  # it is empty
            store.add_shard()
        store.add(["new"], X[:1])
        assert sorted(store) == sorted([*keys[0], "new"])
        assert store.query(X[:1], 1, target_recall=1.0).keys.shape == (1, 1)
    with ShardedStore(path=tmp_path / "store") as store:
        assert len(store) == 4


def test_a_failed_move_is_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    keys, vectors = [f"k{i}" for i in range(40)], np.random.default_rng(0).normal(size=(40, 4))

    def fail_after(store: ShardedStore, n_calls: int) -> Callable[..., Any]:
        ask, calls = client_of(store).actors.ask, iter(range(100))

        def failing(method: str, *arguments: Any) -> Any:
            if method == "give" and next(calls) >= n_calls:
                raise MoveError("shard-000", "shard-001", "no room")
            return ask(method, *arguments)

        return failing

    with ShardedStore(2, tmp_path / "store", random_state=0) as store:
        store.add(keys, vectors)
        for change in (store.add_shard, store.remove_shard):
            for n_calls in (0, 1):
                with monkeypatch.context() as patched:
                    patched.setattr(client_of(store).actors, "ask", fail_after(store, n_calls))
                    with pytest.raises(MoveError, match="no room"):
                        change()
                store.undo_move()
                assert store.shards == NAMES
                assert len(store) == 40
                assert sorted(store) == sorted(keys)
    with ShardedStore(path=tmp_path / "store") as store:
        assert (store.shards, len(store)) == (NAMES, 40)
        assert store.query(vectors, 1, target_recall=1.0).keys[:, 0].tolist() == keys
        assert store.add_shard() == "shard-004"


def test_a_decided_but_unlisted_shard_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):

    written = []
    write = distributed_resizing.write_list
    keys, vectors = [f"k{i}" for i in range(40)], np.random.default_rng(0).normal(size=(40, 4))
    store = ShardedStore(1, tmp_path / "store", random_state=0)
    store.add(keys, vectors)

    def write_once(*arguments: Any) -> None:
        written.append(arguments)
        if len(written) > 1:
            raise OSError("no room")
        write(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(distributed_resizing, "write_list", write_once)
        with pytest.raises(OSError, match="no room"):
            store.add_shard()
        store.close()
    with ShardedStore(path=tmp_path / "store") as store:
        assert store.shards == NAMES
        assert sorted(store) == sorted(keys)
        assert min(fact.n_memories for fact in client_of(store).survey().facts.values()) > 0


def test_shards_agree_on_a_schema_while_another_one_is_added(monkeypatch: pytest.MonkeyPatch):
    with ShardedStore(1, random_state=0) as store:
        copy, ask, keys = pickle.loads(pickle.dumps(store)), client_of(store).actors.ask, [f"k{i}" for i in range(20)]

        def add_first(method: str, *arguments: Any) -> Any:
            if method == "decide" and len(copy) == 0:
                copy.add(keys, np.random.default_rng(0).normal(size=(20, 4)))  # so this decision comes too late
            return ask(method, *arguments)

        monkeypatch.setattr(client_of(store).actors, "ask", add_first)
        assert store.add_shard() == NAMES[1]
        assert store.shards == NAMES
        assert client_of(store).topology.schema == COMPLETE.schema
        assert sorted(store) == sorted(copy) == sorted(keys)
        assert copy.shards == NAMES
        with pytest.raises(TypeError, match="strings"):
            copy.add([1], X[:1])

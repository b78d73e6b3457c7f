"""What sharded stores need beside Ray: requests that are made once, the division of keys, and merged answers."""

import json
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cmt_numba import FileFormatError, MemoryStore
from cmt_numba.distributed import NoAnswerError, PartialChangeError, ShardedStore
from cmt_numba.distributed._folder import read_list, write_list
from cmt_numba.distributed._hashing import Ring, hashes
from cmt_numba.distributed._results import merged, stacked
from cmt_numba.distributed._shard import Plan, Shard
from cmt_numba.journal import JournalError
from cmt_numba.store import Results
from cmt_numba.store._requests import Requests

X = np.eye(4, dtype=np.float32)


def test_without_ray_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"cmt-numba\[ray\]"):
        ShardedStore(2)


# Requests


@pytest.mark.parametrize("in_folder", [False, True])
def test_a_request_is_made_once(tmp_path: Path, in_folder: bool):
    store = MemoryStore(tmp_path / "store" if in_folder else None, "euclidean", random_state=0)
    requests = Requests(store, least_kept=2)
    assert requests.make("a", lambda: store.add(["k"], X[:1]))
    assert not requests.make("a", lambda: store.add(["k"], X[:1]))
    with pytest.raises(KeyError):
        requests.make("b", lambda: store.delete(["missing"]))
    assert requests.make("b", lambda: store.upsert(["k", "l"], 10 * X[:2]))  # which gives all other keys first
    if in_folder:
        store.close()
        store = MemoryStore(tmp_path / "store")
        requests = Requests(store, least_kept=2)
    assert not requests.make("b", lambda: store.delete(["k"]))
    for name in "cdef":  # so many that the first are forgotten
        assert requests.make(name, lambda: store.upsert(["k"], X[:1]))
    names = {name for name in store._records().facts() if name.startswith("request ")}
    assert "request a" not in names
    assert len(names) <= 4
    assert not requests.make("f", lambda: store.delete(["k"]))
    store.close()


def test_a_request_is_written_with_its_change_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with MemoryStore(tmp_path / "store", "euclidean", random_state=0) as store:
        store.add(["k"], X[:1])
        requests = Requests(store)

        def fail(*arguments: Any) -> None:
            raise OSError("no room")

        with monkeypatch.context() as patched:
            patched.setattr(type(store._records()), "insert", fail)
            with pytest.raises(JournalError, match="no room"):  # after all have got other keys
                requests.make("a", lambda: store.add(["l"], 100 * X[1:2]))
        assert Requests(store).make("a", lambda: store.add(["l"], 100 * X[1:2]))
        assert sorted(store) == ["k", "l"]


# Division and merging


def test_hashes_never_change():
    assert hashes(["a", "ä", ""]).tolist() == [3405396810240292928, 4152366542966443504, 13020603013274838756]
    assert hashes([0, -1, 2**63 - 1]).tolist() == [16294208416658607535, 16490336266968443936, 3055647633038352039]


@pytest.mark.parametrize("keys", [list(range(20_000)), [f"key {i}" for i in range(20_000)]], ids=["int", "str"])
def test_keys_are_divided_evenly_and_few_move(keys: list[Any]):
    three, four = (Ring([f"shard-{i:03d}" for i in range(n)]).owners(keys) for n in (3, 4))
    assert np.bincount(four).min() > 0.8 * len(keys) / 4
    assert set(four[three != four]) == {3}  # the new shard takes keys over, and no others change


def test_merged_answers_are_the_best_of_all():
    def answer(keys: list[Any], scores: list[float]) -> Results:
        payloads = np.array([[json.dumps(key) for key in keys]], object)
        return Results(np.array([keys]), np.array([scores], np.float32), payloads)

    both = merged([answer([1, 2], [0.9, 0.1]), answer([3], [0.5])], 2)
    assert both.keys.dtype == np.int64
    assert (both.keys.tolist(), both.payloads) == ([[1, 3]], [[1, 3]])
    few = merged([answer(["a"], [0.5]), answer(["b"], [0.7])], 4)
    assert few.keys.tolist() == [["b", "a", None, None]]
    assert np.isneginf(few.scores[0, 2:]).all()
    few.missing_shards = ("shard-001",)
    rows = stacked([few, merged([answer(["c"], [1.0])], 4)])
    assert len(rows) == 2
    assert rows[1:].missing_shards == ("shard-001",)
    assert [result.key for result in rows[1]] == ["c"]
    assert "without shard-001" in repr(rows)


# Folders and errors


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda path: (path / "shards.json").write_text("{"), "damaged"),
        (lambda path: (path / "shards.json").write_bytes(b"\xff"), "damaged"),
        (lambda path: write_list(path, [".."], complete=True), "damaged"),
        (lambda path: write_list(path, [], complete=True), "damaged"),
        (lambda path: (path / "shards.json").unlink(), "has no shards.json"),
        (lambda path: (path / "shards.json").write_text('{"kind": "x", "version": 1, "shards": []}'), "version 1"),
    ],
)
def test_folders_of_something_else_are_refused(tmp_path: Path, spoil: Callable[[Path], Any], words: str):
    assert read_list(tmp_path) is None
    write_list(tmp_path, ["shard-000"], complete=True)
    assert read_list(tmp_path) == (["shard-000"], True)
    (tmp_path / "other").touch()
    spoil(tmp_path)
    with pytest.raises(FileFormatError, match=words):
        ShardedStore(path=tmp_path)


def test_a_shard_whose_folder_is_gone_is_not_opened_empty(tmp_path: Path):
    with pytest.raises(FileFormatError, match="missing"):
        Shard(Plan("shard-000", str(tmp_path / "shard-000"), False, None, {})).facts()


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({}, ValueError, "n_shards must be given"),
        ({"n_shards": 0}, ValueError, "n_shards"),
        ({"n_shards": 2, "n_tree": 3}, TypeError, "n_tree"),
        ({"n_shards": 2, "metric": "manhattan"}, ValueError, "metric"),
        ({"n_shards": 2, "read_only": True}, TypeError, "read_only"),
        ({"n_shards": 2, "sync_every": 0}, ValueError, "sync_every"),
        ({"n_shards": 2, "timeout": 0}, ValueError, "timeout"),
        ({"n_shards": 2, "max_pending": 0}, ValueError, "max_pending"),
    ],
)
def test_bad_options_are_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], error: type[Exception], words: str
):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(error, match=words):
        ShardedStore(path=tmp_path / "store", **options)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    "error",
    [
        NoAnswerError(["shard-000"], "ask again"),
        PartialChangeError(["a"], ["b"], [], {"shard-001": OSError("no room")}),
        FileFormatError("file", "is damaged"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_pass_between_processes(error: Exception):
    assert str(pickle.loads(pickle.dumps(error))) == str(error)

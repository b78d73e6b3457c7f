"""Memories that expire."""

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cmt_numba import MemoryStore

DAY = timedelta(days=1)


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that moves the clock forward."""
    offset, now = 0.0, time.time

    def move(by: timedelta) -> None:
        nonlocal offset
        offset += by.total_seconds()

    monkeypatch.setattr(time, "time", lambda: now() + offset)
    return move


def filled(path: Path | None) -> MemoryStore:
    """Return a store in which "short" expires after a day and "long" after two."""
    store = MemoryStore(path, random_state=0)
    payloads, texts = [{"n": 1}, {"n": 2}, {"n": 3}], ["a b", "a c", "a d"]
    store.add(["short", "long", "ever"], np.eye(3), payloads, texts, expires=[DAY, 2 * DAY, None])
    return store


def assert_contents(store: MemoryStore, keys: list[str]) -> None:
    found = {
        "len": len(store),
        "count": store.count(),
        "count where": store.count({"n": {"le": 3}}),
        "in": [key for key in ("short", "long", "ever") if key in store],
        "iter": list(store),
        "listed": store.get().keys,
        "listed where": store.get(where={"n": {"gt": 0}}, order_by="n").keys,
        "ordered": store.get(order_by="$key").keys,
        "pages": [key for page in store.pages(size=1) for key in page.keys],
        "function": store.get(where=lambda payload: True).keys,
        "vectors": sorted(key for key in store.query(np.ones((1, 3)), 3).keys[0] if key is not None),
        "words": sorted(key for key in store.query(texts="a", k=3).keys[0] if key is not None),
        "prepared": sorted(key for key in store.query(texts="a", k=3, where=PREPARED[0]).keys[0] if key is not None),
    }
    assert {name: sorted(value) if isinstance(value, list) else value for name, value in found.items()} == {
        name: len(keys) if isinstance(value, int) else sorted(keys) for name, value in found.items()
    }
    for key in {"short", "long"}.difference(keys):
        with pytest.raises(KeyError, match=key):
            store.get(key)


PREPARED: list[Any] = [None]


@pytest.mark.parametrize("is_in_folder", [False, True])
def test_expired_memories_are_gone_at_once(is_in_folder: bool, tmp_path: Path, later: Any):
    store = filled(tmp_path / "store" if is_in_folder else None)
    PREPARED[0] = store.filter({"n": {"gt": 0}})
    reader = MemoryStore(tmp_path / "store", read_only=True) if is_in_folder else store
    for keys in (["short", "long", "ever"], ["long", "ever"], ["ever"]):
        assert_contents(store, keys)
        assert_contents(reader, keys)
        later(DAY)
    store.add("new", np.ones((1, 3)), texts=["b"])  # deletes what has expired
    store.check_invariants()
    assert list(store) == ["ever", "new"]
    if is_in_folder:
        reader.refresh()
        assert list(reader) == ["ever", "new"]
        reader.check_invariants()
        store.close()
        assert list(MemoryStore(tmp_path / "store")) == ["ever", "new"]


@pytest.mark.parametrize("is_in_folder", [False, True])
def test_memories_expire_by_a_clock_that_steps_back(is_in_folder: bool, tmp_path: Path, later: Any):
    """All methods agree on what is there. What a change has deleted does not return."""
    store = filled(tmp_path / "store" if is_in_folder else None)
    PREPARED[0] = store.filter({"n": {"gt": 0}})
    reader = MemoryStore(tmp_path / "store", read_only=True) if is_in_folder else store
    for by, keys in ((2, ["ever"]), (-1, ["long", "ever"]), (-5, ["short", "long", "ever"]), (5, ["long", "ever"])):
        later(by * DAY)
        assert_contents(store, keys)
        assert_contents(reader, keys)
    store.upsert("ever", np.ones((1, 3)), texts=["a d"], payloads=[{"n": 3}])  # deletes "short"
    later(-5 * DAY)
    reader.refresh()
    assert_contents(store, ["long", "ever"])
    assert_contents(reader, ["long", "ever"])
    store.check_invariants()


def test_an_expired_key_can_be_added_again(later: Any):
    store = filled(None)
    later(DAY)
    store.add("short", np.ones((1, 3)), texts=["again"])
    assert store["short"].text == "again"
    later(DAY)
    assert "short" in store
    assert "long" not in store


def test_upserts_replace_times_and_other_changes_keep_them(later: Any):
    store = filled(None)
    store.upsert("short", np.ones((1, 3)))
    store.update_payload("long", {"m": 1})
    store.feedback(np.ones((1, 3)), ["long"], [1.0])
    later(2 * DAY)
    assert sorted(store) == ["ever", "short"]
    with pytest.raises(KeyError):
        store.feedback(np.ones((1, 3)), ["long"], [1.0])


def test_files_keep_times(tmp_path: Path, later: Any):
    filled(None).save(tmp_path / "store.cmt")
    store = MemoryStore.load(tmp_path / "store.cmt")
    later(DAY)
    assert sorted(store) == ["ever", "long"]


@pytest.mark.parametrize("is_in_folder", [False, True])
def test_a_failed_change_keeps_memories_that_have_not_expired(is_in_folder: bool, tmp_path: Path, later: Any):
    store = filled(tmp_path / "store" if is_in_folder else None)
    later(DAY)
    with pytest.raises(KeyError):
        store.delete(["short"])
    store.check_invariants()
    assert sorted(store) == ["ever", "long"]


@pytest.mark.parametrize(
    ("expires", "error", "message"),
    [
        (3600, TypeError, "expires must be a timedelta, a datetime or a list of these, got 3600"),
        ([3600], TypeError, "expires must be a timedelta, a datetime or None for each memory, got 3600"),
        ([DAY, DAY], ValueError, "expires must have one entry for each of the 1 keys"),
        (datetime(2030, 1, 1), ValueError, "has no UTC offset"),
    ],
)
def test_unclear_times_are_refused(expires: Any, error: type[Exception], message: str):
    store = MemoryStore()
    with pytest.raises(error, match=message):
        store.add("a", [[1.0]], expires=expires)
    assert len(store) == 0
    store.add("a", [[1.0]], expires=datetime(2030, 1, 1, tzinfo=UTC))

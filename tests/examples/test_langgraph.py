"""The example store for LangGraph, used through the classes of LangGraph."""

import asyncio
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cmt_numba import MemoryStore

base = pytest.importorskip("langgraph.store.base")
USER = ("users", "ann")
VALUES = {"a": {"text": "likes red apples", "n": 1}, "b": {"text": "lives in Rome", "n": 2}}


def encode(texts: list[str]) -> np.ndarray:
    return np.array([[len(text), text.count("a"), 1.0] for text in texts])


@pytest.fixture(params=[None, encode], ids=["words", "vectors"])
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "examples")
    recipe: Any = __import__("langgraph_store")
    made = recipe.NotesStore(MemoryStore(encoder=request.param, random_state=0))
    for key, value in VALUES.items():
        made.put(USER, key, value)
    made.put(("other",), "a", {"text": "red"})
    return made


def test_notes_are_read_replaced_and_deleted(store: Any):
    before = store.get(USER, "a")
    assert (before.namespace, before.key, before.value) == (USER, "a", VALUES["a"])
    assert store.get(USER, "c") is None
    store.put(USER, "a", {"text": "likes pears"})
    store.delete(USER, "b")
    store.delete(USER, "b")
    after = store.get(USER, "a")
    assert after.value == {"text": "likes pears"}
    assert after.created_at == before.created_at < after.updated_at
    assert store.get(USER, "b") is None
    store.put(("empty",), "a", {})
    assert store.get(("empty",), "a").value == {}


def test_notes_are_found_by_words_and_listed_by_filters(store: Any):
    hits = store.search(("users",), query="who likes apples", limit=1)
    assert [(hit.key, hit.namespace) for hit in hits] == [("a", USER)]
    assert hits[0].score > 0.0
    assert [hit.key for hit in store.search(("users",))] == ["a", "b"]
    assert [hit.key for hit in store.search(("users",), limit=1, offset=1)] == ["b"]
    assert [hit.key for hit in store.search((), filter={"n": 2})] == ["b"]
    assert [hit.key for hit in store.search((), filter={"n": {"$gte": 1}})] == ["a", "b"]
    store.put(("odd",), "!!!", {"tags": ["a", "b"], "at": datetime(2026, 1, 2)}, index=False)
    assert len(store.search(("odd",), filter={"tags": ["a", "b"]})) == 1
    assert store.search(("odd",), filter={"tags": ["a"]}) == []
    assert store.search(("odd",))[0].value == {"tags": ["a", "b"], "at": "2026-01-02T00:00:00"}


def test_namespaces_are_listed(store: Any):
    assert store.list_namespaces() == [("other",), USER]
    assert store.list_namespaces(max_depth=1) == [("other",), ("users",)]
    assert store.list_namespaces(prefix=("*", "ann")) == [USER]
    assert store.list_namespaces(suffix=("ann",)) == [USER]
    assert store.list_namespaces(suffix=("a", "b")) == []
    assert store.list_namespaces(limit=1, offset=1) == [USER]


def test_batches_are_answered_in_order(store: Any):
    operations = [base.PutOp(USER, "c", {"n": 3}), base.GetOp(USER, "c"), base.PutOp(USER, "c", None)]
    _, item, _, missing = store.batch([*operations, base.GetOp(USER, "c")])
    assert (item.value, missing) == ({"n": 3}, None)


def test_notes_expire(store: Any, monkeypatch: pytest.MonkeyPatch):
    now = time.time
    store.put(USER, "short", {"n": 3}, ttl=1)
    assert store.get(USER, "short").value == {"n": 3}
    monkeypatch.setattr(time, "time", lambda: now() + 61.0)
    assert store.get(USER, "short") is None
    assert [hit.key for hit in store.search(USER)] == ["a", "b"]


def test_notes_are_read_asynchronously(store: Any):
    item, missing = asyncio.run(store.abatch([base.GetOp(USER, "a"), base.GetOp(USER, "c")]))
    assert (item.value, missing) == (VALUES["a"], None)

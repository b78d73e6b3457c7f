"""Tests of the example of a support desk's notes, and of the store for LangGraph in its tutorial."""

import asyncio
import sys
from collections import namedtuple
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from conftest import ROOT, needs_jit

from cmt_numba import MemoryStore

GetOp = namedtuple("GetOp", ["namespace", "key"])
PutOp = namedtuple("PutOp", ["namespace", "key", "value", "index"], defaults=[None])
SearchOp = namedtuple(
    "SearchOp", ["namespace_prefix", "filter", "limit", "offset", "query"], defaults=[None, 10, 0, None]
)
ListNamespacesOp = namedtuple(
    "ListNamespacesOp", ["match_conditions", "max_depth", "limit", "offset"], defaults=[None, None, 100, 0]
)
MatchCondition = namedtuple("MatchCondition", ["match_type", "path"])
Item = namedtuple("Item", ["namespace", "key", "value", "created_at", "updated_at"])
SearchItem = namedtuple(
    "SearchItem", ["namespace", "key", "value", "created_at", "updated_at", "score"], defaults=[None]
)


def encode(texts: list[str]) -> np.ndarray:
    return np.array([[len(text), text.count("a"), 1.0] for text in texts])


def test_a_store_for_langgraph(monkeypatch: pytest.MonkeyPatch):
    base: Any = ModuleType("langgraph.store.base")
    base.BaseStore = object
    for kind in (GetOp, PutOp, SearchOp, Item, SearchItem):
        setattr(base, kind.__name__, kind)
    for name in ("langgraph", "langgraph.store"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "langgraph.store.base", base)
    monkeypatch.syspath_prepend(ROOT / "examples")
    recipe: Any = __import__("langgraph_store")

    store = recipe.NotesStore(MemoryStore(encoder=encode, random_state=0))
    user = ("users", "ann")
    values = {"a": {"text": "likes red apples", "n": 1}, "b": {"text": "lives in Rome", "n": 2}}
    assert store.batch([PutOp(user, key, value) for key, value in values.items()]) == [None, None]
    store.batch([PutOp(("other",), "a", {"text": "red"})])
    (item, missing) = asyncio.run(store.abatch([GetOp(user, "a"), GetOp(user, "c")]))
    assert (item.namespace, item.key, item.value, missing) == (user, "a", values["a"], None)
    (hits,) = store.batch([SearchOp(("users",), query="who eats apples", limit=1)])
    assert [(hit.key, hit.namespace) for hit in hits] == [("a", user)]
    assert hits[0].score > 0.0
    assert {hit.key for hit in store.batch([SearchOp(("users",))])[0]} == {"a", "b"}
    assert [hit.key for hit in store.batch([SearchOp((), {"n": 2})])[0]] == ["b"]
    assert store.batch([ListNamespacesOp()]) == [[("other",), user]]
    assert store.batch([ListNamespacesOp(max_depth=1)]) == [[("other",), ("users",)]]
    conditions = {("prefix", ("*", "ann")): [user], ("suffix", ("ann",)): [user], ("suffix", ("a", "b")): []}
    for condition, found in conditions.items():
        assert store.batch([ListNamespacesOp((MatchCondition(*condition),))]) == [found]
    assert store.batch([PutOp(("empty",), "a", {}), GetOp(("empty",), "a")])[1].value == {}
    before = item.created_at
    store.batch([PutOp(user, "a", {"text": "likes pears"}), PutOp(user, "b", None), PutOp(user, "b", None)])
    (item, missing) = store.batch([GetOp(user, "a"), GetOp(user, "b")])
    assert item.value == {"text": "likes pears"}
    assert item.created_at == before < item.updated_at
    assert missing is None


@needs_jit
def test_the_desk_learns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.syspath_prepend(ROOT / "examples")
    notes: Any = __import__("support_notes")
    monkeypatch.setattr(sys, "argv", ["support_notes.py", "--questions", "100", "--output", str(tmp_path)])
    notes.main()
    assert "feedback" in capsys.readouterr().out
    assert (tmp_path / "support_notes.png").stat().st_size > 5000
    desk = notes.Desk(0)
    assert len(desk.change()) == len(desk.problems) // 3
    assert all(desk.right[problem] for problem in desk.problems)

"""Promises that every durable class makes about its folder."""

import os
import signal
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from cmt_numba import CMTClassifier, CMTMultilabelClassifier, CMTRetriever, DurableTree, MemoryStore
from cmt_numba.journal import Journal
from cmt_numba.text import TextClassifier

X = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
Y = np.eye(5, dtype=int)[np.arange(20) % 5]


class Kind(NamedTuple):
    """A durable class: how to open it, and change number ``i``."""

    open: Callable[..., Any]
    change: Callable[[Any, int], Any]


KINDS = {
    "tree": Kind(DurableTree, lambda tree, i: tree.insert(X + i)),
    "store": Kind(MemoryStore, lambda store, i: store.add([f"{i} {j}" for j in range(20)], X + i)),
    "classifier": Kind(CMTClassifier.open, lambda model, i: model.partial_fit(X + i, np.arange(20) % 5)),
    "multilabel": Kind(CMTMultilabelClassifier.open, lambda model, i: model.partial_fit(X + i, Y)),
    "retriever": Kind(CMTRetriever.open, lambda model, i: model.partial_fit(X + i, X[:, :2])),
    "texts": Kind(
        TextClassifier.open, lambda model, i: model.partial_fit([f"{i} {j}" for j in range(20)], ["a", "b"] * 10)
    ),
}
every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))


def opened(kind: Kind, path: Path | str, n: int, **options: Any) -> Any:
    """Return an object in a folder after ``n`` changes."""
    thing = kind.open(path, **options)
    for i in range(n):
        kind.change(thing, i)
    return thing


def snapshot(thing: Any) -> None:
    """Replace the journal of an object with a snapshot."""
    journal_of(thing).snapshot()


def count(thing: Any) -> int:
    """Return the number of changes of an object."""
    return journal_of(thing).sequence


def journal_of(thing: Any) -> Journal:
    for part in (thing, *vars(thing).values()):
        for name in ("_journal", "journal", "tree"):
            found = getattr(part, name, None)
            if isinstance(found, Journal):
                return found
            if isinstance(getattr(found, "_journal", None), Journal):
                return found._journal
    raise AssertionError("no journal")


@every_kind
def test_a_folder_is_found_after_chdir(kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A snapshot never goes to the folder that a relative path names by now."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "one")
    one = opened(kind, "model", 2)
    monkeypatch.chdir(tmp_path / "two")
    two = opened(kind, "model", 1)
    kind.change(one, 2)
    snapshot(one)
    one.close()
    two.close()
    for name, thing in (("one", one), ("two", two)):
        with kind.open(tmp_path / name / "model") as again:
            assert count(again) == count(thing)


@pytest.mark.skipif(os.name != "posix", reason="Windows does not rename a folder with open files")
@every_kind
def test_a_renamed_folder_keeps_its_changes(kind: Kind, tmp_path: Path):
    one = opened(kind, tmp_path / "model", 2)
    (tmp_path / "model").rename(tmp_path / "old")
    two = opened(kind, tmp_path / "model", 1)
    kind.change(one, 2)
    with pytest.raises(OSError, match="has been moved or replaced"):
        snapshot(one)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*a snapshot failed")  # if closing takes one
        one.close()
    kind.change(two, 1)
    two.close()
    for name, thing in (("old", one), ("model", two)):
        with kind.open(tmp_path / name) as again:
            assert count(again) == count(thing)


@every_kind
def test_one_process_reads_a_folder_twice(kind: Kind, tmp_path: Path):
    opened(kind, tmp_path / "model", 1).close()
    with kind.open(tmp_path / "model", read_only=True) as one, kind.open(tmp_path / "model", read_only=True) as two:
        assert count(one) == count(two) > 0


@every_kind
def test_an_interrupted_close_closes(kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    thing = opened(kind, tmp_path / "model", 2)
    sync = Journal.sync

    def interrupted(journal: Journal) -> None:
        signal.raise_signal(signal.SIGINT)
        sync(journal)

    monkeypatch.setattr(Journal, "sync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        thing.close()
    monkeypatch.undo()
    with kind.open(tmp_path / "model") as again:
        assert count(again) == count(thing)

"""Promises that every durable class makes about its folder."""

import gc
import os
import re
import shutil
import signal
import threading
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from internals import journal_of
from structure import MODULES

from cmt_numba import CMTClassifier, CMTMultilabelClassifier, CMTRetriever, ContextualMemoryTree, MemoryStore
from cmt_numba.bandits import CMTBandit, LinUCB, Policy
from cmt_numba.journal import AlreadyOpenError, Journal, JournalError
from cmt_numba.persistence import FileFormatError
from cmt_numba.text import TextClassifier

X = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
Y = np.eye(5, dtype=int)[np.arange(20) % 5]


def decide(bandit: CMTBandit, i: int) -> None:
    if i == 0:
        bandit.add_actions(np.arange(20), X)
    bandit.reward(bandit.act(X + i).ids, np.arange(20) % 2)


class Kind(NamedTuple):
    """A durable class: how to open it, and change number ``i``."""

    open: Callable[..., Any]
    change: Callable[[Any, int], Any]


KINDS = {
    "tree": Kind(ContextualMemoryTree.open, lambda tree, i: tree.insert(X + i)),
    "store": Kind(MemoryStore, lambda store, i: store.add([f"{i} {j}" for j in range(20)], X + i)),
    "classifier": Kind(CMTClassifier.open, lambda model, i: model.partial_fit(X + i, np.arange(20) % 5)),
    "multilabel": Kind(CMTMultilabelClassifier.open, lambda model, i: model.partial_fit(X + i, Y)),
    "retriever": Kind(CMTRetriever.open, lambda model, i: model.partial_fit(X + i, X[:, :2])),
    "texts": Kind(
        TextClassifier.open, lambda model, i: model.partial_fit([f"{i} {j}" for j in range(20)], ["a", "b"] * 10)
    ),
    "bandit": Kind(partial(CMTBandit.open, n_bits=8), decide),
    "linear policy": Kind(LinUCB.open, lambda policy, i: policy.learn(X + i, np.arange(20) % 5, np.arange(20) % 2)),
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
    journal_within(thing).snapshot()


def count(thing: Any) -> int:
    """Return the number of changes of an object."""
    return journal_within(thing).sequence


def journal_within(thing: Any) -> Journal:
    for part in (thing, *vars(thing).values()):
        for name in ("_journal", "journal", "tree"):
            found = getattr(part, name, None)
            if isinstance(found, Journal):
                return found
            if isinstance(getattr(found, "_journal", None), Journal):
                return journal_of(found)
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


@every_kind
def test_an_object_that_is_dropped_without_close_releases_its_folder(kind: Kind, tmp_path: Path):
    with opened(kind, tmp_path / "model", 1) as thing:
        n = count(thing)
    del thing
    gc.collect()
    descriptors = Path("/proc/self/fd")
    before = len(list(descriptors.iterdir())) if descriptors.is_dir() else 0
    opened(kind, tmp_path / "model", 0)
    kind.open(tmp_path / "model", read_only=True)
    gc.collect()
    assert before == (len(list(descriptors.iterdir())) if descriptors.is_dir() else 0)
    with kind.open(tmp_path / "model") as again:
        assert count(again) == n


@pytest.mark.skipif(os.name != "posix", reason="Windows does not rename a folder with open files")
@every_kind
def test_a_reader_notices_another_history(kind: Kind, tmp_path: Path):
    """The folder of a reader is replaced by another one with the same number of changes, and fewer later."""
    opened(kind, tmp_path / "model", 1).close()
    with kind.open(tmp_path / "model", read_only=True) as reader:
        for name in ("one", "two"):
            with opened(kind, tmp_path / name, 1) as other:
                identity, n = journal_within(other).folder.identity, count(other)
            (tmp_path / "model").rename(tmp_path / f"before {name}")
            (tmp_path / name).rename(tmp_path / "model")
            assert reader.refresh()
            assert (journal_within(reader).folder.identity, count(reader)) == (identity, n)
            assert not reader.refresh()


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


@pytest.mark.skipif(os.name != "posix", reason="Windows does not delete open files")
@pytest.mark.parametrize("is_replaced", [False, True], ids=["deleted", "replaced"])
@every_kind
def test_a_deleted_folder_refuses_changes(kind: Kind, is_replaced: bool, tmp_path: Path):
    folder = tmp_path / "model"
    thing = opened(kind, folder, 2, sync_every=100)
    n_before = count(thing)
    shutil.copytree(folder, tmp_path / "copy")
    shutil.rmtree(folder)
    if is_replaced:
        (tmp_path / "copy").rename(folder)
    for call in (lambda: kind.change(thing, 2), journal_within(thing).sync):
        with pytest.raises(JournalError, match="has been deleted or replaced; save the object"):
            call()
    assert count(thing) == n_before
    assert not journal_within(thing).is_behind
    thing.save(tmp_path / "saved")
    with pytest.raises(JournalError, match="has been deleted"):  # some changes are not on disk
        thing.close()


@every_kind
def test_one_process_reads_a_folder_twice(kind: Kind, tmp_path: Path):
    with pytest.raises(FileNotFoundError):
        kind.open(tmp_path / "model", read_only=True)
    (tmp_path / "model").mkdir()
    with pytest.raises(FileFormatError, match="open it without read_only"):
        kind.open(tmp_path / "model", read_only=True)
    opened(kind, tmp_path / "model", 1).close()
    before = {path.name: path.read_bytes() for path in (tmp_path / "model").iterdir()}
    with kind.open(tmp_path / "model", read_only=True) as one, kind.open(tmp_path / "model", read_only=True) as two:
        assert count(one) == count(two) > 0
        assert answers(one) == answers(two)
        with pytest.raises(JournalError, match="read-only; open it without read_only"):
            kind.change(one, 1)
        assert {path.name: path.read_bytes() for path in (tmp_path / "model").iterdir()} == before
        with kind.open(tmp_path / "model") as writer:  # readers do not lock the folder
            kind.change(writer, 1)
            assert count(one) < count(writer)
    for closed in (one, writer):
        with pytest.raises(JournalError, match="is closed"):
            kind.change(closed, 2)


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


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")  # Python 3.12 and later
@every_kind
def test_a_fork_of_a_writer_reads_but_does_not_write(kind: Kind, tmp_path: Path):
    """Whether the fork closes or only drops it: SQLite in the fork would believe that it owns the journal."""
    thing = opened(kind, tmp_path / "model", 2)
    for closes in (True, False):
        process = os.fork()
        if process == 0:
            try:
                answers(thing)
                with pytest.raises(JournalError, match="opened by the parent"):
                    kind.change(thing, 2)
                with pytest.raises(AlreadyOpenError):
                    kind.open(tmp_path / "model")
                if closes:
                    thing.close()
                del thing
                gc.collect()
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(process, 0)[1] == 0
        kind.change(thing, 3 - closes)
    expected = answers(thing)
    thing.close()
    with kind.open(tmp_path / "model") as again:
        assert count(again) == count(thing)
        assert answers(again) == expected


# Readers


@every_kind
def test_a_reader_follows_the_writer(kind: Kind, tmp_path: Path):
    """It replays new entries, or loads the snapshot that has replaced them, in the process of the writer, too."""
    writer = opened(kind, tmp_path / "model", 1)
    reader, every = (
        kind.open(tmp_path / "model", read_only=True),
        kind.open(tmp_path / "model", read_only=True, refresh_every=0.0),
    )
    for i in range(1, 4):
        kind.change(writer, i)
        if i == 2:
            snapshot(writer)
            kind.change(writer, 5)
        assert count(reader) < count(writer)
        assert reader.refresh()
        assert not reader.refresh()
        assert not writer.refresh()
        assert answers(reader) == answers(writer) == answers(every)
        assert count(reader) == count(every) == count(writer)
        getattr(reader, "check_invariants", reader.refresh)()
    for thing in (reader, writer, every):
        thing.close()
    with pytest.raises(JournalError, match="is closed"):
        reader.refresh()


def answers(thing: Any) -> Any:
    if isinstance(thing, TextClassifier):
        return thing.top_classes(["1 3", "2 4"])[1].tobytes()
    if isinstance(thing, Policy):
        return thing.probabilities(X).tobytes()
    if isinstance(thing, MemoryStore | ContextualMemoryTree):
        return thing.query(X, 3).scores.tobytes()
    return thing.predict(X).tobytes()


@every_kind
def test_a_second_writer_waits(kind: Kind, tmp_path: Path):
    one = opened(kind, tmp_path / "model", 1)
    with pytest.raises(AlreadyOpenError, match="is already open in this or another process"):
        kind.open(tmp_path / "model")
    kind.change(one, 1)
    closing = threading.Timer(0.05, one.close)
    closing.start()
    with kind.open(tmp_path / "model", timeout=60.0) as two:
        kind.change(two, 2)
        assert count(two) > count(one)
    closing.join()
    with pytest.raises(ValueError, match="refresh_every requires read_only"):
        kind.open(tmp_path / "model", refresh_every=1.0)


@every_kind
def test_the_system_clock_may_go_back(kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path, seconds = tmp_path / "thing", iter(range(10**9, 0, -1000))
    monkeypatch.setattr(time, "time", lambda: float(next(seconds)))
    monkeypatch.setattr(time, "time_ns", lambda: next(seconds) * 10**9)

    def set_back() -> None:
        """Give all files earlier times than before."""
        for name in path.iterdir():
            os.utime(name, (now := next(seconds), now))

    with kind.open(path) as writer:
        kind.change(writer, 0)
        set_back()
        reader = kind.open(path, read_only=True)
        for i in range(1, 4):
            kind.change(writer, i)
            set_back()
            if i == 2:
                snapshot(writer)
                set_back()
            assert reader.refresh()
            assert not reader.refresh()
        reader.close()
        with pytest.raises(AlreadyOpenError):
            kind.open(path, timeout=0.01)
    kind.open(path).close()


def test_no_module_reads_the_system_clock():
    names = re.compile(r"\btime\(\)|\btime_ns|datetime\.now|utcnow|date\.today|localtime")
    found = [path.name for path in MODULES if names.search(path.read_text(encoding="utf-8"))]
    of_expiry = ["_checks.py", "_records.py"]
    assert sorted(found) == of_expiry, "waits and ages are measured by clocks that never go back"

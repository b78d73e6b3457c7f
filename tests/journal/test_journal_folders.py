"""Folders of durable trees: ownership, read-only access, names of operations, and returned memories."""

import errno
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import needs_jit
from internals import contents_of, folder_of, forest_room, tree_folder
from journals import OPTIONS, journal_of, same
from saved import dense_rows

from cmt_numba import CMTClassifier, ContextualMemoryTree, FileFormatError, MemoryStore
from cmt_numba._engine import Forest
from cmt_numba.journal import JournalError, SharedConnection

FILES = ["acknowledged", "journal.sqlite", "tree-0.cmt"]


def names_in(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def files_in(folder: Path) -> dict[str, bytes]:
    """Return the contents of all files except the index of the log, which SQLite makes again."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.endswith("-shm")}


def test_returned_memories_are_recorded_during_changes(folder: Path, monkeypatch: pytest.MonkeyPatch):
    rows, noted = np.eye(6), threading.Event()
    with ContextualMemoryTree.open(folder, max_memories=3, random_state=0) as tree:
        tree.insert(rows[:3])
        reroute = Forest.in_steps

        def wait(*arguments: Any) -> None:
            assert noted.wait(60)
            reroute(*arguments)

        monkeypatch.setattr(Forest, "in_steps", wait)
        change = threading.Thread(target=tree.reroute, args=(1,))
        change.start()
        while not journal_of(tree)._is_under_way:
            pass
        assert tree.query(rows[:1]).ids.tolist() == [[0]]  # this does not wait
        noted.set()
        change.join()
        monkeypatch.undo()
        tree.insert(rows[3:4])
        assert sorted(tree.ids) == [0, 2, 3]
    with ContextualMemoryTree.open(folder) as tree:
        assert sorted(tree.ids) == [0, 2, 3]


def test_the_journal_records_evictions(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """If trees grow differently, the policy would choose other memories."""
    with ContextualMemoryTree.open(
        folder, max_memories=20, eviction="random", random_state=0, snapshot_seconds=1e9
    ) as tree:
        tree.insert(dense_rows(50, 4))
        live = sorted(tree.ids)
    choose = forest_room.eviction.RandomEviction.choose

    def choose_others(self: forest_room.eviction.RandomEviction, state: Any, n: int) -> np.ndarray:
        choose(self, state, n)  # draws the same number of words
        return np.sort(state.keys.ids[:20])[:n]

    monkeypatch.setattr(forest_room.eviction.RandomEviction, "choose", choose_others)
    with ContextualMemoryTree.open(folder, read_only=True) as tree:
        tree.check_invariants()
        assert sorted(tree.ids) == live


# Ownership


def test_files_of_others_are_left_alone(folder: Path):
    for name in ("tree-0.cmt", "tree-99.cmt", "acknowledged", "journal.sqlite", "notes.txt", "journal.sqlite-wal"):
        folder.mkdir()
        (folder / name).write_bytes(b"precious")
        with pytest.raises(FileFormatError):
            ContextualMemoryTree.open(folder)
        assert files_in(folder) == {name: b"precious"}
        shutil.rmtree(folder)


def test_links_are_not_followed(folder: Path, tmp_path: Path):
    target = tmp_path / "target"
    for content in (b"", b"precious"):
        target.write_bytes(content)
        for name in (*FILES, "journal.sqlite-wal", "journal.sqlite-journal"):
            folder.mkdir()
            (folder / name).symlink_to(target)
            with pytest.raises(FileFormatError):
                ContextualMemoryTree.open(folder)
            shutil.rmtree(folder)
            ContextualMemoryTree.open(folder, random_state=0).close()
            (folder / name).unlink(missing_ok=True)
            (folder / name).symlink_to(target)
            for read_only in (False, True):
                with pytest.raises(FileFormatError):
                    ContextualMemoryTree.open(folder, read_only=read_only)
            assert target.read_bytes() == content
            shutil.rmtree(folder)


@pytest.mark.parametrize("application", [0, 7])
@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_a_foreign_database_stays_as_it_is(application: int, mode: str, folder: Path):
    folder.mkdir()
    connection = sqlite3.connect(folder / "journal.sqlite", isolation_level=None)
    connection.execute(f"PRAGMA application_id = {application}")
    connection.execute(f"PRAGMA journal_mode = {mode}")
    connection.execute("CREATE TABLE t (x)")
    connection.execute("INSERT INTO t VALUES (1)")
    copied = Path(shutil.copytree(folder, folder.with_name("killed")))
    connection.close()
    for path in (folder, copied):
        before = files_in(path)
        for read_only in (False, True):
            with pytest.raises(FileFormatError, match="not a cmt-numba journal"):
                ContextualMemoryTree.open(path, read_only=read_only)
            assert files_in(path) == before


def test_snapshots_leave_files_of_others_alone(folder: Path, tmp_path: Path):
    others = ContextualMemoryTree(random_state=0)
    others.insert(np.eye(3))
    tree = ContextualMemoryTree.open(folder, **OPTIONS)
    for name in ("tree-99.cmt", "tree-2.cmt"):
        others.save(folder / name)
    (folder / "tree-3.cmt").symlink_to(tmp_path / "target")
    for _ in range(3):
        tree.insert(np.eye(4))
        if journal_of(tree).sequence == 1:
            tree.checkpoint()
        else:
            with pytest.raises(FileExistsError, match="move it elsewhere"):
                tree.checkpoint()
    tree.insert(np.eye(4))
    tree.checkpoint()
    tree.close()
    assert names_in(folder) == ["acknowledged", "journal.sqlite", *(f"tree-{i}.cmt" for i in (2, 3, 4, 99))]
    assert same(ContextualMemoryTree.load(folder / "tree-99.cmt"), others)
    assert same(ContextualMemoryTree.load(folder / "tree-2.cmt"), others)
    assert not (tmp_path / "target").exists()
    with ContextualMemoryTree.open(folder) as tree:
        assert len(tree) == 16


@pytest.mark.parametrize("name", ["journal.sqlite", "acknowledged", "tree-0.cmt"])
def test_files_of_another_folder_are_refused(name: str, folder: Path):
    options = OPTIONS | {"snapshot_seconds": 1e9}
    with (
        ContextualMemoryTree.open(folder, **options) as tree,
        ContextualMemoryTree.open(folder.with_name("other"), **options) as other,
    ):
        tree.insert(np.eye(4))
        other.insert(np.eye(4))
        other.insert(np.eye(4))
    shutil.copy(folder.with_name("other") / name, folder / name)
    for read_only in (False, True):
        with pytest.raises(FileFormatError, match="does not belong to the journal"):
            ContextualMemoryTree.open(folder, read_only=read_only)


@pytest.mark.skipif(os.name != "posix", reason="permissions are those of POSIX")
def test_others_cannot_read_it(folder: Path):
    before = os.umask(0o022)
    try:
        with ContextualMemoryTree.open(folder, **OPTIONS) as tree:
            tree.insert(np.eye(4))
            tree.checkpoint()
            tree.insert(np.eye(4))
            found = ["acknowledged", "journal.sqlite", "journal.sqlite-shm", "journal.sqlite-wal", "tree-1.cmt"]
            assert names_in(folder) == found
            assert [os.stat(path).st_mode & 0o777 for path in folder.iterdir()] == [0o600] * 5
            assert os.stat(folder).st_mode & 0o777 == 0o700
    finally:
        os.umask(before)


# Read-only access


def killed(folder: Path) -> Path:
    """Return the folder of a killed process, whose log has all except the first changes."""
    with ContextualMemoryTree.open(folder, **OPTIONS) as tree:
        tree.insert(dense_rows(300, 4))
        tree.remove([1, 2])
        return Path(shutil.copytree(folder, folder.with_name("killed")))


def test_the_folder_of_a_killed_process_is_read_without_changing_it(folder: Path):
    path = killed(folder)
    before = files_in(path)
    assert len(before["journal.sqlite-wal"]) > 10_000
    with ContextualMemoryTree.open(path, read_only=True) as tree:
        tree.check_invariants()
        assert (len(tree), journal_of(tree).sequence) == (298, 2)
        for act in (tree.checkpoint, journal_of(tree).sync):
            with pytest.raises(JournalError, match="is read-only; open it without read_only"):
                act()
    assert files_in(path) == before
    with ContextualMemoryTree.open(path) as tree:
        tree.insert(np.eye(4))
        assert (
            len(ContextualMemoryTree.open(Path(shutil.copytree(path, path.with_name("again"))), read_only=True)) == 302
        )


READING = """
import sys
from cmt_numba import ContextualMemoryTree

for _ in range(20):
    with ContextualMemoryTree.open(sys.argv[1], read_only=True) as tree:
        tree.check_invariants()
        print(tree._folder.journal.sequence, len(tree))
"""


@needs_jit
def test_other_processes_read_while_one_writes(folder: Path):
    """Every reader gets the tree after one of the changes, and later readers get later ones."""
    X = dense_rows(5, 4)
    with ContextualMemoryTree.open(folder, snapshot_bytes=50_000, snapshot_seconds=0.0, **OPTIONS) as tree:
        tree.insert(X)
        command = [sys.executable, "-c", READING, str(folder)]
        reader = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while reader.poll() is None:
            tree.insert(X)
            time.sleep(0.005)
        lines, errors = reader.communicate()
    assert reader.returncode == 0, errors  # a slow reader also writes that it compiles
    seen = [tuple(map(int, line.split())) for line in lines.splitlines()]
    assert len(seen) == 20
    assert seen == sorted(seen)
    assert all(n == len(X) * sequence for sequence, n in seen)


@pytest.mark.parametrize("code", [getattr(sqlite3, f"SQLITE_{n}") for n in ("FULL", "IOERR", "CANTOPEN", "READONLY")])
@pytest.mark.parametrize("statement", ["PRAGMA user_version", "journal_mode", "BEGIN EXCLUSIVE", "SELECT"])
def test_sqlite_fails_when_a_folder_is_opened(code: int, statement: str, folder: Path, monkeypatch: pytest.MonkeyPatch):
    path = killed(folder)
    connect = sqlite3.connect

    class Failing(SharedConnection):
        def execute(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
            if statement in sql:
                error = sqlite3.OperationalError("database or disk is full")
                error.sqlite_errorcode = code
                raise error
            return super().execute(sql, *arguments)

    monkeypatch.setattr(sqlite3, "connect", lambda *args, **options: connect(*args, **options | {"factory": Failing}))
    monkeypatch.setattr("cmt_numba.journal._database._may_be_written", lambda _: False)
    with pytest.raises(OSError, match="cannot be read or written: database or disk is full") as raised:
        ContextualMemoryTree.open(path)
    assert raised.value.errno == {13: errno.ENOSPC, 10: errno.EIO}.get(code, errno.EACCES)
    monkeypatch.undo()
    with ContextualMemoryTree.open(path) as tree:
        assert len(tree) == 298


def test_queries_answer_although_the_disk_is_full(folder: Path):
    with ContextualMemoryTree.open(folder, max_memories=3, random_state=0) as tree:
        tree.insert(np.eye(3))

        def fail(*_: Any) -> None:
            raise OSError(errno.ENOSPC, "no room")

        append, journal_of(tree).folder.database.append = journal_of(tree).folder.database.append, fail
        for _ in range(2):
            assert tree.query(np.eye(3)).ids.tolist() == [[0], [1], [2]]
        with pytest.raises(JournalError, match="cannot be written to the journal"):
            tree.insert(np.eye(3))
        assert sorted(tree.ids) == [0, 1, 2]
        journal_of(tree).folder.database.append = append
        tree.query(np.eye(3)[:2])
        tree.insert(np.eye(3)[:1])
        assert sorted(tree.ids) == [0, 1, 3]
        tree.remove(3)
        tree.insert(np.eye(3)[2:])
    with ContextualMemoryTree.open(folder) as tree:
        assert sorted(tree.ids) == [0, 1, 4]


def fill_disk_once(database: Any, statement: str, monkeypatch: pytest.MonkeyPatch, *, after: bool = False) -> None:
    """Let the next execution of a statement fail as on a full disk, where SQLite rolls the transaction back."""

    def run(sql: str, values: Any = ()) -> Any:
        if not sql.startswith(statement):
            return execute(sql, values)
        monkeypatch.undo()
        if after:
            execute(sql, values)
        elif database.connection.in_transaction:
            database.connection.rollback()
        raise OSError(errno.ENOSPC, "no room")

    execute = database.execute
    monkeypatch.setattr(database, "execute", run)


@pytest.mark.parametrize("sync_every", [1, 3])
def test_changes_by_readers_that_a_full_disk_rolls_back_are_not_acknowledged(
    sync_every: int, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    X, y = dense_rows(40, 4), np.arange(40) % 2
    with CMTClassifier.open(folder, sync_every=sync_every, random_state=0) as classifier:
        classifier.partial_fit(X, y)
        journal = folder_of(classifier).journal
        before = classifier.predict_proba(X)
        fill_disk_once(journal.folder.database, "COMMIT", monkeypatch)
        with pytest.raises(JournalError, match="cannot be written to the journal"):
            classifier.calibrate(X, 1 - y)
        classifier.calibrate(X, 1 - y)  # the same calibration, which is entered again
        after = classifier.predict_proba(X)
        assert not np.array_equal(before, after)
    with CMTClassifier.open(folder) as classifier:
        assert np.array_equal(classifier.predict_proba(X), after)


@pytest.mark.parametrize("statement", ["INSERT", "COMMIT", "SAVEPOINT"])
def test_a_full_disk_may_also_roll_back_what_queries_have_noted(
    statement: str, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    rows = dense_rows(12, 4)
    with ContextualMemoryTree.open(folder, sync_every=3, max_memories=10, random_state=0) as tree:
        tree.insert(rows[:10])
        tree.query(rows[:5], 2)
        assert journal_of(tree).sequence > 1
        fill_disk_once(journal_of(tree).folder.database, statement, monkeypatch)
        with pytest.raises(JournalError, match="cannot be written to the journal"):
            tree.insert(rows[10:11])
        assert journal_of(tree).sequence == 1
        tree.insert(rows[11:])
        tree.sync()
    with ContextualMemoryTree.open(folder) as again:
        assert same(again, tree)


@pytest.mark.parametrize("statement", ["PRAGMA user_version", "COMMIT"])
def test_a_commit_whose_sync_fails_is_not_numbered_twice(statement: str, folder: Path, monkeypatch: pytest.MonkeyPatch):
    with MemoryStore(folder, sync_every=2) as store:
        store.add(["a", "b"], np.eye(2), [{"n": 1}, {"n": 2}])
        fill_disk_once(contents_of(store).journal.folder.database, statement, monkeypatch, after=True)
        with pytest.raises(JournalError, match="cannot be written to the journal"):
            store.create_index("n")
        store.add(["c"], np.ones((1, 2)))
    with MemoryStore(folder) as store:
        assert sorted(store) == ["a", "b", "c"]


def test_changes_by_readers_may_be_too_large_for_an_entry(folder: Path):
    rows = dense_rows(2000, 4)
    with ContextualMemoryTree.open(folder, snapshot_bytes=0, max_memories=10, random_state=0) as tree:
        tree.insert(rows[:5])
        tree.query(rows, 5)
        tree.sync()
        assert journal_of(tree).folder.base == journal_of(tree).folder.synced == journal_of(tree).sequence > 1
        tree.query(rows, 5)
        with pytest.raises(ValueError, match="features"):
            tree.insert(rows[:, :3])
        tree.insert(rows[5:9])
    with ContextualMemoryTree.open(folder) as again:
        assert same(again, tree)


def test_a_folder_that_cannot_be_written(folder: Path, monkeypatch: pytest.MonkeyPatch):
    path = killed(folder)
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)  # as on a read-only file system
    with pytest.raises(PermissionError, match="read_only=True"):
        ContextualMemoryTree.open(path)
    assert len(ContextualMemoryTree.open(path, read_only=True)) == 298


# Names


def test_names_of_operations_are_kept():
    """The operations in journals. New ones, new versions and optional arguments may be added, none may be removed."""
    assert {key: dict(operation.parameters).keys() for key, operation in tree_folder.OPERATIONS.items()} == {
        ("insert", 1): {"keys"},
        ("update", 1): {"keys", "hits", "rewards", "rate"},
        ("teach", 1): {"keys", "ids", "passes", "afresh"},
        ("remove", 1): {"ids"},
        ("replace", 1): {"ids", "keys"},
        ("reroute", 1): {"number"},
        ("rebuild", 1): {"ids", "groups"},
        ("compact", 1): set(),
        ("draw", 1): set(),
        ("return", 1): {"ids"},
    }

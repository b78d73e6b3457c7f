"""Tests of stores in folders: recovery after crashes and failed writes, and invalid folders."""

import os
import pickle
import shutil
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from failures import failing
from internals import contents_of, set_durations, store_records, table_of
from journals import crashed, execute
from stores import vectors
from threads import Threads, started

from cmt_numba import ContextualMemoryTree, FileFormatError, MemoryStore
from cmt_numba.journal import EntryDatabase, Journal, JournalError
from cmt_numba.store import METRICS


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(folder: Path) -> Iterator[MemoryStore]:
    with MemoryStore(folder, random_state=0) as opened:
        opened.add([f"k{i}" for i in range(30)], vectors(30), [{"n": i} for i in range(30)])
        yield opened


def contents(store: MemoryStore) -> tuple[list[Any], bytes, list[Any]]:
    """Check that the parts of a store match, and return its keys, vectors and payloads."""
    contents_of(store).check_open()  # opens the folder again after a failure
    store.check_invariants()
    keys = sorted(store)
    items = store.get(keys) if keys else None
    return (keys, items.vectors.tobytes(), items.payloads) if items else ([], b"", [])


def go_through_everything(store: MemoryStore) -> Iterator[str]:
    yield "empty"
    store.add([f"k{i}" for i in range(30)], vectors(30), [{"n": i} for i in range(30)])
    yield "added"
    store.upsert(["k1", "new", "k2"], 30 * vectors(3, 1), [None, {"a": "é"}, [1]])
    yield "upserted"
    store.delete(["k3", "k4"])
    yield "deleted"
    store.create_index("n")
    yield "an index"
    store.feedback(vectors(4), ["k1", "k5", "k6", "k7"], [1.0, 0.5, 0.0, 1.0])
    yield "feedback"
    store.add([f"m{i}" for i in range(15)], vectors(15, 2))
    yield "evicted, if it is bounded"


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("snapshots", [{}, {"snapshot_bytes": 0, "snapshot_seconds": 0.0}], ids=["few", "many"])
def test_a_store_is_restored_after_a_crash(metric: str, snapshots: dict[str, Any], folder: Path):
    options: dict[str, Any] = {"random_state": 0, "max_items": 36}
    plain = MemoryStore(metric=metric, **options)
    with MemoryStore(folder, metric, **options, **snapshots) as store:
        for done, _ in zip(go_through_everything(store), go_through_everything(plain), strict=True):
            assert contents(store) == contents(plain), done
            with MemoryStore(crashed(folder)) as again:
                assert contents(again) == contents(store), done
                assert again.metric == metric
                if len(store) > 0:
                    answers, expected = again.query(vectors(3, 5), 4), plain.query(vectors(3, 5), 4)
                    store.query(vectors(3, 5), 4)  # the results affect later evictions
                    np.testing.assert_array_equal(answers.keys, expected.keys)
                    np.testing.assert_array_equal(answers.scores, expected.scores)
    with MemoryStore(folder) as again:
        assert contents(again) == contents(plain)
        assert contents_of(again).records.fields() == ['$."n"']


def test_a_store_whose_creation_failed_is_created_with_the_options_of_stores(folder: Path):
    with failing("journal._folder.Folder.create", KeyboardInterrupt):
        MemoryStore(folder, random_state=0)
    with MemoryStore(folder, random_state=0) as store:
        expected = MemoryStore(random_state=0)
        assert contents_of(store).state.options == contents_of(expected).state.options


def test_a_crash_between_a_change_and_its_commit_loses_both(store: MemoryStore, folder: Path):
    before = contents(store)
    journal = contents_of(store).journal
    states = []
    commit = journal.folder.sync

    def crash(sequence: int) -> None:
        states.append(crashed(folder))
        commit(sequence)
        states.append(crashed(folder))

    journal.folder.sync = crash
    store.upsert(["k1", "x"], vectors(2, 5), [{"new": 1}, None])
    with MemoryStore(states[0]) as early, MemoryStore(states[1]) as late:
        assert contents(early) == before
        assert contents(late) == contents(store)


@pytest.mark.parametrize("bad", [{"sync_every": 0}, {"snapshot_bytes": -1}, {"snapshot_seconds": float("nan")}])
def test_options_of_folders_are_checked_without_a_folder(bad: dict[str, Any]):
    with pytest.raises(ValueError, match=next(iter(bad))):
        MemoryStore(**bad)


# Failures


def limit(store: MemoryStore) -> None:
    """Stop the database of a store from growing, like a full disk."""
    database = contents_of(store).journal.folder.database
    pages = database.execute("PRAGMA page_count")[0][0]
    database.execute(f"PRAGMA max_page_count = {pages}")


def test_a_full_disk_is_reported_and_the_store_goes_on(store: MemoryStore):
    before = contents(store)
    limit(store)
    with pytest.raises(JournalError, match=r"the change was not made: .*full"):
        store.upsert(["k1", *(f"x{i}" for i in range(500))], vectors(501, 2), [{"n": "y" * 100}] * 501)
    assert contents(store) == before
    assert store.query(vectors(1), 1).keys[0, 0] == "k0"
    store.upsert(["k1", "x"], vectors(2, 2), [{"n": 5}, None])  # opening the folder again lifted the limit
    assert store.get("k1").payloads == [{"n": 5}]
    with MemoryStore(crashed(Path(str(store.path)))) as again:
        assert contents(again) == contents(store)


def test_a_change_that_is_on_disk_is_made_though_no_snapshot_replaces_the_journal(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    def full(self: EntryDatabase, sequence: int, entry: bytes) -> None:
        if b'"snapshot"' in entry:
            raise OSError(28, "no space")
        append(self, sequence, entry)

    append, expected = EntryDatabase.append, MemoryStore(random_state=0)
    expected.add([f"k{i}" for i in range(30)], vectors(30))
    with MemoryStore(folder, random_state=0, snapshot_bytes=0, snapshot_seconds=0.0) as store:
        store.add([f"k{i}" for i in range(30)], vectors(30))
        monkeypatch.setattr(EntryDatabase, "append", full)
        for i in range(2):
            set_durations(contents_of(store).journal, changes=1e6)
            with pytest.warns(RuntimeWarning, match=r"a snapshot failed.*no space"):
                store.upsert("k1", vectors(1, i))
            expected.upsert("k1", vectors(1, i))
            assert contents(store) == contents(expected)
            with MemoryStore(crashed(folder)) as again:
                assert contents(again) == contents(expected)
        monkeypatch.undo()
        store.upsert("k2", vectors(1, 3))
        expected.upsert("k2", vectors(1, 3))
        assert contents(store) == contents(expected)
    with MemoryStore(folder) as again:
        assert contents(again) == contents(expected)


def test_a_store_that_cannot_be_opened_again_can_be_queried_and_recovers(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
):
    before = contents(store)
    limit(store)

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(28, "no space")

    with monkeypatch.context() as patch:
        patch.setattr("cmt_numba.journal._folder.EntryDatabase", refuse)
        for _ in range(2):
            with pytest.raises(JournalError, match=r"no space|full"):
                store.add([f"x{i}" for i in range(500)], vectors(500, 2))
            assert contents(store) == before
            assert store.query(vectors(1), 1, where={"n": 0}).keys[0, 0] == "k0"
    store.add(["x"], vectors(1, 2))
    assert "x" in store


def test_opening_a_store_does_not_read_all_keys(store: MemoryStore, folder: Path):
    n_before = len(store)
    store.add([f"more{i}" for i in range(200)], vectors(200, 6))
    store.delete("k3")
    store.upsert("k4", vectors(1, 4))
    store.close()
    with MemoryStore(folder) as again:
        records = contents_of(again).records
        few = np.array([2, 3, 4, 4, -1, 999])
        looked_up = records.named(few)
        assert records.kind() is str
        again.add("new", vectors(1, 5))
        again.delete("k5")
        assert table_of(records).last_id > 5  # some keys were read before the changes
        assert not table_of(records).is_complete
        for _ in range(10):
            read = records.named(few)
        assert table_of(records).is_complete
        for there, found in ((looked_up, read), (records.named(few), read)):
            assert there.are_there.tolist() == found.are_there.tolist() == [True, False, True, True, False, False]
            assert there.keys[there.are_there].tolist() == ["k2", "k4", "k4"]
            assert (there.kinds == store_records.WITH)[there.are_there].tolist() == [True, False, False]
        assert records.named(np.array([5, n_before + 200])).are_there.tolist() == [False, True]
        stored = records.named(records.all_ids())
        assert stored.are_all_there()
        assert sorted(stored.keys.tolist()) == sorted(again)


def test_check_invariants_finds_damage_that_opening_does_not_read(store: MemoryStore, folder: Path):
    store.check_invariants()
    store.close()
    journal = folder / "journal.sqlite"
    contents = journal.read_bytes()
    assert contents.count(b"k17") == 2  # in the table and in its index
    journal.write_bytes(contents.replace(b"k17", b"k1x", 1))
    with MemoryStore(folder) as again, pytest.raises(FileFormatError, match=r"journal\.sqlite.*do not match its rows"):
        again.check_invariants()


@pytest.mark.parametrize(
    ("column", "value"), [("key", "k99"), ("payload", '{"n":4}'), ("payload", "{"), ("text", "one word"), ("text", "1")]
)
def test_damaged_keys_payloads_and_texts_are_found(column: str, value: str, folder: Path):
    with MemoryStore(folder, random_state=0) as store:
        store.add([f"k{i}" for i in range(9)], vectors(9), [{"n": i} for i in range(9)], texts=["two words"] * 9)
        store.update_payload("k4", {"n": 5})
        store.upsert("k5", vectors(1), texts="three more words")
        store.check_invariants()
    execute(folder, f"UPDATE records SET {column} = '{value}' WHERE id = 3")
    for read_only in (False, True):
        with MemoryStore(folder, read_only=read_only) as again:
            if value == "{":
                with pytest.raises(FileFormatError, match=r"journal\.sqlite: has a damaged payload"):
                    again.get("k3")
                with pytest.raises(FileFormatError, match=r"journal\.sqlite: has a damaged payload"):
                    again.query(vectors(9)[3], 9).payloads  # noqa: B018
            with pytest.raises(FileFormatError, match=r"journal\.sqlite: has a damaged key, payload or text"):
                again.check_invariants()


# Folders


def test_options_of_a_folder_stay(store: MemoryStore, folder: Path):
    store.close()
    with pytest.raises(ValueError, match="metric must be 'cosine'"):
        MemoryStore(folder, "euclidean")
    with pytest.raises(ValueError, match="max_items must be None"):
        MemoryStore(folder, max_items=3)
    with MemoryStore(folder, "cosine", n_threads=1) as again:
        assert len(again) == 30


def test_folders_of_other_kinds_are_refused(store: MemoryStore, folder: Path, tmp_path: Path):
    store.close()
    with pytest.raises(FileFormatError, match="not have the tables of a journal"):
        ContextualMemoryTree.open(folder)
    ContextualMemoryTree.open(tmp_path / "tree").close()
    with pytest.raises(FileFormatError, match="not the journal of a store"):
        MemoryStore(tmp_path / "tree")
    with pytest.raises(ValueError, match="metric"):
        MemoryStore(tmp_path / "other", "manhattan")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("DELETE FROM records WHERE id = 3", "do not match its memories"),
        ("UPDATE records SET id = 99 WHERE id = 3", "do not match its memories"),
        ("UPDATE records SET key = 7 WHERE id = 3", "keys are not all strings"),
        ("CREATE VIEW v AS SELECT 1", "not the journal of a store"),
        ("CREATE INDEX i ON records (payload)", "not the journal of a store"),
    ],
)
def test_damaged_folders_are_refused(statement: str, words: str, store: MemoryStore, folder: Path):
    store.close()
    execute(folder, statement)
    with pytest.raises(FileFormatError, match=words):
        MemoryStore(folder)
    with sqlite3.connect(folder / "journal.sqlite") as connection:  # raises an error if the database is locked
        connection.execute("PRAGMA user_version")
    connection.close()


def test_a_refused_change_neither_restores_the_store_nor_forgets_queries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with MemoryStore(tmp_path / "store", max_items=3, random_state=0) as store:
        store.add(["a", "b", "c"], np.eye(3))
        store.query(np.eye(3)[:1], 1)
        monkeypatch.setattr(Journal, "_replay_all", None)
        with pytest.raises(ValueError, match="must have 3 features"):
            store.add(["d"], np.ones((1, 4)))
        monkeypatch.undo()
        with failing("journal._folder.EntryDatabase.sync", OSError("full"), raised=JournalError):
            store.add(["d"], np.ones((1, 3)))
        store.add(["d"], np.ones((1, 3)))
        assert list(store) == ["a", "c", "d"]


@pytest.mark.parametrize("in_folder", [False, True])
def test_saved_files_and_pickles_keep_the_results_of_queries(in_folder: bool, folder: Path, tmp_path: Path):
    with MemoryStore(folder if in_folder else None, max_items=3, random_state=0) as store:
        store.add(["a", "b", "c"], np.eye(3))
        store.query(np.eye(3)[:1], 1)  # "b" has now been returned least recently
        store.save(tmp_path / "saved")
        copies = [MemoryStore.load(tmp_path / "saved"), pickle.loads(pickle.dumps(store))]
        for one in (store, *copies):
            one.add(["d"], np.ones((1, 3)))
            assert sorted(one) == ["a", "c", "d"]


def test_filters_are_evaluated_on_what_is_searched(folder: Path):
    """A reader that follows its writer refreshes before it evaluates the filter, and not meanwhile."""
    threads = []

    def is_one(payload: Any) -> bool:
        if not threads:
            store.upsert(["b"], [[0.0, 1.0]], [{"n": 2}])
            threads.append(started(reader.refresh))
            threads[0].join(0.1)
        return bool(payload["n"] == 1)

    with MemoryStore(folder, random_state=0) as store:
        store.add(["a", "b", "c"], np.eye(3, 2) + 0.1, [{"n": 1}] * 3)
        with MemoryStore(folder, read_only=True, refresh_every=0.0) as reader:
            store.upsert(["a"], [[1.0, 0.0]], [{"n": 2}])
            assert reader.query([1.0, 0.0], 2, where={"n": 1}).payloads == [[{"n": 1}, {"n": 1}]]
        with MemoryStore(folder, read_only=True) as reader:
            assert reader.query([1.0, 0.0], 2, where=is_one).payloads == [[{"n": 1}, {"n": 1}]]
            threads[0].join()
            assert reader.count({"n": 1}) == 1


def test_a_reader_uses_a_new_index_at_once(store: MemoryStore, folder: Path):
    with MemoryStore(folder, read_only=True) as reader:
        for _ in range(2):  # the second time, it exists already
            store.create_index("n")
            assert contents_of(reader).records.fields() == contents_of(store).records.fields() == ['$."n"']
            assert not reader.refresh()


# Readers


def told_by(store: MemoryStore) -> list[Any]:
    """Return all that a store says of its memories."""
    items = store.get(sorted(store))
    found = store.query(vectors(5, 3), 4)
    learned = [store.count({"n": n}) for n in range(4)]
    return [items.keys, items.vectors.tolist(), items.payloads, items.texts, found.keys.tolist(), found.texts, learned]


@pytest.mark.parametrize("few_lookups", [False, True])
def test_a_reader_follows_all_kinds_of_changes(few_lookups: bool, folder: Path):
    random = np.random.default_rng(0)
    with MemoryStore(folder, random_state=0, max_items=60) as store:
        store.add([f"k{i}" for i in range(50)], vectors(50), [{"n": i % 4} for i in range(50)])
        with MemoryStore(folder, read_only=True) as reader:
            if not few_lookups:
                told_by(reader)
            for i in range(25):
                keys = [f"k{key}" for key in random.choice(90, 5, replace=False)]
                stored = [key for key in keys if key in store]
                if i % 4 == 0:
                    store.upsert(keys, vectors(5, i), [{"n": i}] * 5, texts=[f"text {i}"] * 5)
                elif i % 4 == 1 and stored:
                    store.update_payload(stored, {"n": i % 3})
                elif i % 4 == 2 and stored:
                    store.delete(stored)
                else:
                    store.upsert(keys, vectors(5, i))
                if i == 20:
                    store.create_index("n")
                    contents_of(store).change(lambda: contents_of(store).records.set_facts({"fact": 1}))
                before = None if i % 3 == 0 else reader.query(vectors(1), 5)
                assert i % 3 > 0 or reader.refresh()
                if i % 3 == 0:
                    assert told_by(reader) == told_by(store)
                    reader.check_invariants()
                elif before is not None:
                    assert before.payloads == reader.query(vectors(1), 5).payloads
            assert contents_of(reader).records.facts() == {"fact": 1}


def test_a_reader_notices_a_backup_that_is_restored(folder: Path, tmp_path: Path):
    """Its numbers of changes may be below or above those of the reader."""
    with MemoryStore(folder, random_state=0) as store:
        store.add(["a", "b", "c"], vectors(3), [{"n": 0}] * 3)
    shutil.copytree(folder, tmp_path / "backup")
    for n_changes in (0, 3):
        with MemoryStore(folder) as store:
            store.upsert("a", vectors(1, 5), {"n": 1})
            store.upsert("b", vectors(1, 6), {"n": 1})
        with MemoryStore(folder, read_only=True) as reader:
            shutil.rmtree(folder)
            shutil.copytree(tmp_path / "backup", folder)
            with MemoryStore(folder) as store:
                for i in range(n_changes):
                    store.upsert("c", vectors(1, 7 + i), {"n": 2})
                assert reader.refresh()
                assert told_by(reader) == told_by(store)


def test_a_reader_refreshes_only_for_rows_that_have_changed(folder: Path):
    with MemoryStore(folder, random_state=0) as store:
        store.add(["a", "b"], np.eye(2), [{"n": 0}, {"n": 0}])
        with MemoryStore(folder, read_only=True) as reader:
            reader.query([1.0, 0.0], 1)  # the first one also reads how many records there are
            store.upsert(["b", "c"], np.eye(2), [{"n": 1}] * 2)
            assert reader.query([1.0, 0.0], 1).payloads == [[{"n": 0}]]  # of "a"
            assert len(reader) == 2
            assert reader.query([0.0, 1.0], 1).payloads == [[{"n": 1}]]
            assert len(reader) == 3
            store.delete("a")
            assert reader.query([0.0, 1.0], 3).keys.tolist() == [["c", "b", None]]
            store.upsert("d", np.eye(2)[:1], {"n": 1})
            assert reader.count({"n": 1}) == len(reader) == 3


def test_a_reader_sees_one_state_of_a_writer_that_never_stops(folder: Path):
    """Options of a test of readers: whether queries read all rows, and whether snapshots replace the journal."""

    def list_all() -> None:
        assert len(set(map(str, reader.get(order_by="n").payloads))) == 1

    def query() -> None:
        vectors_of, payloads = reader.get(["a", "b"])[1:3]
        assert len({int(vector[1]) for vector in vectors_of} | {payload["n"] for payload in payloads}) == 1
        assert len(set(map(str, reader.query([1.0, 0.0], 2).payloads[0]))) == 1

    with MemoryStore(folder, random_state=0, sync_every=100, metric="inner_product", snapshot_bytes=30_000) as store:
        store.add(["a", "b"], [[1.0, 0.0], [1.0, 0.0]], [{"n": 0}] * 2)
        with (
            MemoryStore(folder, read_only=True) as reader,
            Threads(list_all, query, query, reader.refresh),
        ):
            for n in range(1, 100):
                store.upsert(["a", "b"], [[1.0, n], [1.0, n]], [{"n": n}] * 2)
                reader.query([1.0, 0.0], 1)


def test_an_open_reader_does_not_keep_the_log_of_its_writer(folder: Path):
    with MemoryStore(folder, random_state=0) as store:
        store.add(["a", "b"], np.eye(2), ["x" * 100_000] * 2)
        with MemoryStore(folder, read_only=True) as reader:
            for i in range(200):
                store.upsert("a", [[1.0, 0.0]], [f"{i}" * 50_000])
                reader.query([0.0, 1.0], 1)
            assert (folder / "journal.sqlite-wal").stat().st_size < 10_000_000


@pytest.mark.parametrize("has_log", [False, True])
def test_a_reader_of_a_folder_that_it_may_not_write(
    has_log: bool, store: MemoryStore, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    if not has_log:
        store.close()
    copy = Path(shutil.copytree(folder, tmp_path / "copy", ignore=shutil.ignore_patterns("*-shm")))
    names = sorted(path.name for path in copy.iterdir())
    assert ("journal.sqlite-wal" in names) == has_log
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)  # as on a read-only file system
    with MemoryStore(copy, read_only=True) as reader:
        assert reader.count({"n": {"lt": 10}}) == 10
        assert sorted(path.name for path in copy.iterdir()) == names
        monkeypatch.undo()
        with MemoryStore(copy) as writer:  # of another user
            writer.upsert("k1", vectors(1), {"n": 100})
            assert reader["k1"].payload == {"n": 100}
            writer.upsert("k1", vectors(1), {"n": 101})
            assert reader["k1"].payload == {"n": 101}
        assert reader["k1"].payload == {"n": 101}
        assert reader.count() == 30


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_of_a_reader_reads(store: MemoryStore, folder: Path):
    with MemoryStore(folder, read_only=True) as reader:
        assert reader["k1"].payload == {"n": 1}
        process = os.fork()
        if process == 0:
            os._exit(0 if reader["k2"].payload == {"n": 2} and reader.count({"n": 3}) == 1 else 1)
        assert os.waitpid(process, 0)[1] == 0
        store.upsert("k1", vectors(1), {"n": 5})
        assert reader["k1"].payload == {"n": 5}


def test_threads_read_while_a_reader_follows_its_writer(folder: Path):
    keys = list(range(50))

    def iterate() -> None:
        assert list(reader) == keys

    with MemoryStore(folder, random_state=0) as store:
        store.add(keys, np.random.default_rng(0).normal(size=(50, 4)), [{"n": 1}] * 50)
        with (
            MemoryStore(folder, read_only=True) as reader,
            Threads(reader.refresh, lambda: reader.count({"n": 2}), lambda: 7 in reader, iterate),
        ):
            for i in range(20):
                store.update_payload([i], {"n": i})


def test_a_reader_is_closed_while_threads_query_it(store: MemoryStore, folder: Path):
    errors: list[Any] = []

    def query() -> None:
        try:
            while True:
                assert reader["k1"].payload == {"n": 1}
                reader.count({"n": 2})
        except JournalError:
            errors.append(None)
        except BaseException as error:
            errors.append(error)

    for _ in range(10):
        reader = MemoryStore(folder, read_only=True)
        threads = [started(query) for _ in range(3)]
        time.sleep(0.05)
        reader.close()
        for thread in threads:
            thread.join()
    assert errors == [None] * 30


@pytest.mark.parametrize("in_folder", [False, True])
def test_closing_a_store_waits_for_queries(in_folder: bool, folder: Path):
    store = MemoryStore(folder if in_folder else None, random_state=0)
    store.add(["a", "b"], np.eye(2), [{"n": 1}] * 2)
    threads = []

    def close(payload: Any) -> bool:
        if not threads:
            threads.append(started(store.close))
            threads[0].join(0.1)
        return True

    assert store.query([1.0, 0.0], 2, where=close).keys.tolist() == [["a", "b"]]
    threads[0].join()
    with pytest.raises(JournalError, match="closed"):
        store.query([1.0, 0.0])

"""Trees in folders: reopening, refused calls, and when snapshots are taken."""

import copy
import pickle
import shutil
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from internals import forest_of, set_durations, tree_folder
from journals import OPTIONS, Opened, crashed, entries_in, journal_of, same, snapshots_in
from saved import dense_rows, sparse_rows

from cmt_numba import ContextualMemoryTree
from cmt_numba.journal import AlreadyOpenError, JournalError
from cmt_numba.rewards import LabelEquality

READING = {"check_invariants", "leaves", "plot", "save"}


def go_through_everything(tree: ContextualMemoryTree, rows: Any) -> None:
    """Call all methods that change a tree, with arguments of many types."""
    ids = tree.insert(rows)
    tree.remove(ids[::4])
    tree.remove(int(ids[1]))
    tree.remove(ids[2:4].astype(np.uint16).tolist())
    tree.reroute(np.int8(20))
    tree.insert(rows[:10].toarray().tolist() if scipy.sparse.issparse(rows) else scipy.sparse.coo_array(rows[:10]))
    hits = tree.query(rows[:30], 3, epsilon=0.5)
    tree.update(rows[:30].astype(np.float64), hits, np.random.default_rng(4).random(hits.ids.shape))
    hits = tree.query(rows[:30], epsilon=np.float32(0.5))
    tree.update(rows[:30], hits._replace(ids=hits.ids.tolist()), [True] * 30, progress=True)
    tree.teach(rows[5:8], ids[5:8], n_passes=2, afresh=np.True_)
    labels = np.arange(10_000) % 3
    tree.learn(rows, LabelEquality(labels, labels), k=4, n_passes=2)
    tree.learn(rows, lambda positions, found: (found % 3 == positions[:, None] % 3).astype(float), epsilon=0.0)
    tree.rebuild(np.sort(tree.ids)[:18].tolist(), np.arange(18, dtype=np.uint8) // 3)
    tree.compact()
    tree.replace(ids[9:12], rows[4:7])
    tree.insert(rows[10:15])


# Reopening


@pytest.mark.parametrize("rows", [dense_rows(60, 6), sparse_rows(60, 40)], ids=["dense", "sparse"])
@pytest.mark.parametrize("snapshot_bytes", [0, 1 << 26], ids=["many snapshots", "one snapshot"])
def test_a_tree_is_what_it_was_and_goes_on_as_it_would(rows: Any, snapshot_bytes: int, folder: Path, opened: Opened):
    plain = ContextualMemoryTree(**OPTIONS)
    tree = opened(snapshot_bytes=snapshot_bytes, snapshot_seconds=1e9, **OPTIONS)
    for each in (plain, tree):
        go_through_everything(each, rows)
    assert same(tree, plain)
    assert journal_of(tree).sequence == journal_of(tree).folder.synced
    assert snapshots_in(folder) == ["tree-0.cmt"] or snapshot_bytes == 0
    again = opened(crashed(folder))
    again.check_invariants()
    assert same(again, plain)
    assert (journal_of(again).sequence, journal_of(again).folder.synced) == (
        journal_of(tree).sequence,
        journal_of(tree).sequence,
    )
    for each in (plain, again):
        go_through_everything(each, rows)
    assert same(again, plain)
    again.close()
    assert same(opened(journal_of(again).path), plain)


def test_every_change_is_journaled():
    """Each method that changes a tree has an operation, or calls others, or notes what queries change."""
    of_others = {"learn", "query", "draw", "return"}
    methods = {name for name, method in vars(ContextualMemoryTree).items() if callable(method) and name[0] != "_"}
    assert {name for name, _ in tree_folder.OPERATIONS} - of_others == methods - READING - of_others


def test_a_copy_is_a_tree_like_any_other(folder: Path, opened: Opened):
    tree = opened(**OPTIONS)
    tree.insert(dense_rows(30, 4))
    for one in (pickle.loads(pickle.dumps(tree)), copy.copy(tree), copy.deepcopy(tree)):
        assert type(one) is ContextualMemoryTree
        assert same(one, tree)
        one.insert(dense_rows(3, 4))
    assert len(tree) == 30
    assert repr(tree) == repr(one).replace("33", "30")
    assert journal_of(tree).path == folder


def test_changes_of_several_threads(folder: Path, opened: Opened):
    tree, rows = opened(**OPTIONS), dense_rows(40, 4)
    tree.insert(rows)

    def work(i: int) -> None:
        ids = tree.insert(rows[i : i + 3])
        hits = tree.query(rows[:5], 2, epsilon=0.9)
        tree.update(rows[:5], hits._replace(exploration=tree.query(rows[:5]).exploration), np.ones((5, 2)))
        tree.learn(rows[:4], lambda positions, found: np.zeros(found.shape))
        tree.remove(ids[:1])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(12)))
    assert len(tree) == 40 + 12 * 2
    assert journal_of(tree).sequence == 1 + 12 * (4 + 5)
    assert same(opened(crashed(folder)), tree)


def test_arguments_are_those_that_were_given(folder: Path, opened: Opened):
    """Rows are not scaled twice, and memory and disk agree to the last bit."""
    messy = scipy.sparse.csr_array(([0.1, 0.2, 1e-60, 3.0], [1, 1, 0, 2], [0, 2, 4]), shape=(2, 4))
    tree = opened(**OPTIONS)
    tree.insert(messy)
    tree.insert(np.array([[1, 2, 0, 0]], dtype=">i4"))
    tree.insert([[0.1, 0.0, 0.7, 0.3]])
    assert messy.nnz == 4
    plain = ContextualMemoryTree(**OPTIONS)
    for rows in (messy, [[1, 2, 0, 0]], [[0.1, 0.0, 0.7, 0.3]]):
        plain.insert(rows)
    assert same(tree, plain)
    assert same(opened(crashed(folder)), plain)


# Snapshots and waiting for the disk


def test_changes_wait_for_the_disk_as_often_as_wanted(folder: Path, opened: Opened):
    tree, rows = opened(sync_every=3, **OPTIONS), dense_rows(10, 4)
    for n in range(1, 9):
        tree.insert(rows)
        tree.query(rows, epsilon=0.5)  # draws a random number, which does not count
        assert (journal_of(tree).sequence, journal_of(tree).folder.synced) == (2 * n, 2 * (n // 3 * 3) - (n >= 3))
    assert len(opened(crashed(folder))) == 80  # a killed process loses nothing
    tree.sync()
    assert journal_of(tree).folder.synced == 16
    tree.insert(rows)
    tree.close()
    assert len(opened()) == 90


@pytest.mark.parametrize("sync_every", [1, 4])
def test_snapshots_keep_the_journal_short(sync_every: int, folder: Path, opened: Opened):
    tree = opened(snapshot_bytes=2_000, snapshot_seconds=1e9, sync_every=sync_every, **OPTIONS)
    bases = []
    for i in range(60):
        tree.insert(dense_rows(4, 6, i))
        bases.append(snapshots_in(folder))
        assert len(bases[-1]) == 1
        left = opened(crashed(folder), **OPTIONS)
        assert (
            journal_of(left).sequence
            == journal_of(tree).sequence
            >= journal_of(tree).folder.synced
            > i + 1 - sync_every
        )
        entries = sum(len(entry) for _, entry in entries_in(crashed(folder)))
        assert entries <= max(2_000, (folder / bases[-1][0]).stat().st_size) + 2_000
        left.close()
        shutil.rmtree(journal_of(left).path)
    assert 3 < len(set(map(tuple, bases))) < 12


def test_changes_that_took_long_are_not_kept_long(folder: Path, opened: Opened, monkeypatch: pytest.MonkeyPatch):
    seconds = iter(range(0, 10_000, 1))  # between any two readings of the clock, so a snapshot takes one second
    tree = opened(snapshot_seconds=3, **OPTIONS)
    monkeypatch.setattr("cmt_numba.journal._journal.perf_counter", lambda: next(seconds))
    tree.insert(np.eye(4))
    found = []
    for _ in range(12):
        tree.reroute(1)
        found.append(int(snapshots_in(folder)[0][5:-4]))
    assert sorted(set(found)) == [0, 4, 9]  # more than 3 s, and then more than 4 times the snapshot's 1 s


@pytest.mark.parametrize("takes", [0.2, 0.3])
def test_changes_that_took_long_are_not_made_again_after_the_folder_was_closed(takes: float, folder: Path):
    with ContextualMemoryTree.open(folder, **OPTIONS) as tree:
        tree.insert(dense_rows(40, 4))
        tree.checkpoint()
        tree.remove([1])
        set_durations(journal_of(tree), changes=takes, snapshot=1.0)
        before = copy.deepcopy(tree)
    assert snapshots_in(folder) == ["tree-1.cmt" if takes < 0.25 else "tree-2.cmt"]
    with ContextualMemoryTree.open(folder) as again:
        assert same(again, before)


def test_a_change_too_large_for_the_journal_is_a_snapshot(folder: Path, opened: Opened):
    tree = opened(snapshot_bytes=10_000, sync_every=5, **OPTIONS)
    tree.insert(dense_rows(5, 6))
    assert journal_of(tree).folder.synced == 0
    tree.insert(dense_rows(1000, 6))
    assert snapshots_in(folder) == ["tree-2.cmt"]
    assert journal_of(tree).folder.synced == 2
    assert same(opened(crashed(folder)), tree)
    tree.insert(dense_rows(400, 6))  # less than the last snapshot
    tree.sync()
    assert snapshots_in(folder) == ["tree-2.cmt"]
    assert same(opened(crashed(folder)), tree)


def test_a_snapshot_on_request(folder: Path, opened: Opened):
    tree = opened(snapshot_seconds=1e9, **OPTIONS)
    tree.insert(dense_rows(30, 4))
    tree.checkpoint()
    tree.checkpoint()
    assert snapshots_in(folder) == ["tree-1.cmt"]
    tree.remove(3)
    tree.close()
    assert [sequence for sequence, _ in entries_in(folder)] == [1, 2]
    assert sorted(path.name for path in folder.iterdir()) == ["acknowledged", "journal.sqlite", "tree-1.cmt"]


# Refused calls


def test_a_closed_tree_answers_but_does_not_change(folder: Path, opened: Opened):
    with opened(max_memories=9, **OPTIONS) as tree:
        tree.insert(np.eye(4))
    tree.close()
    assert tree.query(np.eye(4)[:1]).ids.tolist() == [[0]]
    explore = partial(tree.query, np.eye(4), epsilon=0.5)
    for act in (lambda: tree.insert(np.eye(4)), journal_of(tree).sync, tree.checkpoint, explore):
        with pytest.raises(JournalError, match="closed; open it again"):
            act()
    assert len(tree) == 4


def test_options_of_an_existing_tree(folder: Path, opened: Opened):
    opened(n_trees=3, alpha=0.8).close()
    with pytest.raises(ValueError, match=r"n_trees must be 3, as for the tree in .*, or omitted, got 2"):
        opened(n_trees=2)
    tree = opened(n_trees=3, alpha=0.8, n_threads=2, random_state=3)
    assert forest_of(tree).n_threads == 2
    for options in ({"sync_every": 0}, {"snapshot_bytes": -1}, {"snapshot_seconds": -1.0}, {"n_trees": 0}):
        with pytest.raises(ValueError, match=next(iter(options))):
            opened(folder.with_name("other"), **options)
    assert not folder.with_name("other").exists()
    with pytest.raises(FileNotFoundError):
        opened(folder / "far" / "away")
    folder.with_name("file").write_bytes(b"")
    with pytest.raises(FileExistsError):
        opened(folder.with_name("file"))


# Failures in the middle of a change


@pytest.mark.parametrize(
    ("owner", "step", "error"),
    [
        ("_folder.journal", "_save_snapshot", OSError("no room")),
        ("_folder.journal.folder.database", "restart", AlreadyOpenError("in use")),  # another program uses the journal
    ],
)
def test_changes_are_acknowledged_although_snapshots_fail(
    owner: str, step: str, error: Exception, folder: Path, opened: Opened, monkeypatch: pytest.MonkeyPatch
):
    tree = opened(snapshot_bytes=2_000, **OPTIONS)

    def fail(*_: Any) -> None:
        raise error

    def insert() -> None:
        for i in range(10):
            tree.insert(dense_rows(5, 4, i))

    monkeypatch.setattr(attrgetter(owner)(tree), step, fail)
    with pytest.warns(RuntimeWarning, match=f"a snapshot failed.*{error}") as warned:
        insert()
    assert 1 < len(warned) < 6
    assert warned[0].filename == __file__
    with pytest.raises(type(error), match=str(error)):
        tree.checkpoint()
    assert len(tree) == len(opened(crashed(folder))) == 50
    monkeypatch.undo()
    tree.checkpoint()
    assert snapshots_in(folder) == ["tree-10.cmt"]

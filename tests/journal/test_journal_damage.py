"""Damaged or forged folders are refused, or do no harm."""

import copy
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import conftest
import numpy as np
import pytest
from internals import contents_of, journal_entries, set_durations, tree_folder
from journals import OPTIONS, Opened, crashed, entries_in, execute, journal_of, same
from mutations import start_of
from saved import dense_rows

from cmt_numba import ContextualMemoryTree, FileFormatError
from cmt_numba._kernels import Hits
from cmt_numba.journal import Entry, unpack_entry
from cmt_numba.persistence import read_object, write_object


@pytest.fixture(scope="module")
def left_behind(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, ContextualMemoryTree]:
    """Return the folder of a killed tree, that of the same tree after closing it, and the expected tree."""
    folder = tmp_path_factory.mktemp("left") / "tree"
    with ContextualMemoryTree.open(folder, snapshot_seconds=1e9, **OPTIONS) as tree:  # regardless of compile time
        tree.insert(dense_rows(40, 4))
        tree.checkpoint()
        tree.insert(dense_rows(600, 4, 1))  # more than fits into the later log
        journal_of(tree).folder.database.run("PRAGMA wal_checkpoint(TRUNCATE)")
        tree.remove([1, 2])
        hits = tree.query(dense_rows(9, 4, 2), epsilon=0.7)
        tree.update(dense_rows(9, 4, 2), hits, np.ones(9))
        tree.insert(dense_rows(3, 4, 3))
        killed = crashed(folder)
        assert (killed / "journal.sqlite-wal").stat().st_size > 10_000
        return killed, folder, copy.deepcopy(tree)


def damaged(contents: bytes, random: np.random.Generator) -> bytes:
    """Return contents with a flipped bit, some overwritten bytes, or a missing end."""
    spoilt, place = bytearray(contents), int(random.integers(len(contents)))
    match random.integers(4):
        case 0:
            return contents[:place]
        case 1:
            length = int(random.integers(1, 600))
            spoilt[place : place + length] = bytes(len(spoilt[place : place + length]))
        case _:
            spoilt[place] ^= 1 << int(random.integers(8))
    return bytes(spoilt)


@pytest.mark.filterwarnings("ignore:.*replaying the journal")  # with damaged keys, which the check detects
@pytest.mark.parametrize("state", ["killed", "closed"])
def test_damage_is_reported_or_harmless(state: str, left_behind: Any, tmp_path: Path):
    folder, expected, random = left_behind[state == "closed"], left_behind[2], np.random.default_rng(11)
    names = sorted(path.name for path in folder.iterdir() if path.suffix != ".sqlite-shm")  # SQLite makes it again
    n_refused = dict.fromkeys(names, 0)  # after hearing of the folder
    for i in range(30 * len(names)):
        name = names[i % len(names)]
        copied = Path(shutil.copytree(folder, tmp_path / "copy"))
        contents = (copied / name).read_bytes()
        spoilt = damaged(contents, random)
        (copied / name).write_bytes(spoilt)
        try:
            with ContextualMemoryTree.open(copied, snapshot_seconds=1e6) as tree:
                tree.check_invariants()
                assert same(tree, expected)
        except FileFormatError as error:
            n_refused[name] += spoilt != contents and str(error).startswith(str(copied))
        shutil.rmtree(copied)
    assert all(n_refused.values()), n_refused
    assert n_refused["acknowledged"] == 30


def spoil_array(folder: Path, name: str, at: int, bit: int) -> None:
    """Flip a bit of a byte of an array of the snapshot in a folder."""
    path = next(folder.glob("tree-*.cmt"))
    file = bytearray(path.read_bytes())
    file[start_of(bytes(file), name) + at] ^= bit
    path.write_bytes(bytes(file))


@pytest.mark.parametrize("name", sorted(tree_folder.VALUES))
def test_damaged_keys_are_reported_when_all_is_read(name: str, tmp_path: Path):
    folder = tmp_path / "tree"
    with ContextualMemoryTree.open(folder, **OPTIONS) as tree:
        tree.insert(dense_rows(40, 4))
        tree.compact()
        tree.checkpoint()
    spoil_array(folder, name, 32, 1)
    with ContextualMemoryTree.open(folder, snapshot_seconds=0.0) as tree:
        set_durations(journal_of(tree), snapshot=0.0)  # a snapshot is due after every change
        words = f"tree-2.cmt: array '{name}' is damaged"
        with pytest.raises(FileFormatError, match=words):
            tree.check_invariants()
        with pytest.warns(RuntimeWarning, match=f"a snapshot failed.*{words}"):
            tree.remove([1])
        with pytest.raises(FileFormatError, match=words):
            tree.checkpoint()
    assert [path.name for path in folder.glob("tree-*")] == ["tree-2.cmt"]
    with ContextualMemoryTree.open(folder) as tree:
        assert len(tree) == 39


@pytest.mark.parametrize("name", ["keys.ids", "keys.slot_table", "members", "leaf_of", "leaves", "nodes"])
def test_damage_that_misleads_searches_is_reported_at_once(name: str, tmp_path: Path):
    folder = tmp_path / "tree"
    with ContextualMemoryTree.open(folder, **OPTIONS) as tree:
        tree.insert(dense_rows(40, 4))
        tree.checkpoint()
    spoil_array(folder, f"state.{name}", 2, 64)
    with pytest.raises(FileFormatError, match="is damaged"):
        ContextualMemoryTree.open(folder)


def rewritten(folder: Path, sequence: int, entry: Entry) -> None:
    """Replace an entry by another one of the same journal."""
    entry = entry._replace(journal=entry_of(folder, 1 if sequence > 1 else 0).journal)
    execute(
        folder,
        ("UPDATE entries SET entry = ? WHERE sequence = ?", (journal_entries.pack_entry(sequence, entry), sequence)),
    )


def entry_of(folder: Path, sequence: int) -> Entry:
    return unpack_entry(folder, sequence, dict(entries_in(folder))[sequence])


AFTER = {"n_memories": 640, "next_id": 640, "trees": 0}
FORGED: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "a gap": ("entry 3 is missing", lambda f: execute(f, "DELETE FROM entries WHERE sequence = 3")),
    "no end": ("ends with change 5, but 6", lambda f: execute(f, "DELETE FROM entries WHERE sequence = 6")),
    "no snapshot": (
        "entry 2 is not valid: the journal does not",
        lambda f: execute(f, "DELETE FROM entries WHERE sequence=1"),
    ),
    "nothing": ("is empty, but had 6 changes", lambda f: execute(f, "DELETE FROM entries")),
    "text": ("entry 3 is not valid", lambda f: execute(f, "UPDATE entries SET entry = 'text' WHERE sequence = 3")),
    "no bytes": (
        "entry 3: is not a cmt-numba file",
        lambda f: execute(f, "UPDATE entries SET entry = x'' WHERE sequence = 3"),
    ),
    "another's": (
        "entry 3 is not valid: it has the number 2",
        lambda f: execute(
            f, "UPDATE entries SET entry = (SELECT entry FROM entries WHERE sequence=2) WHERE sequence=3"
        ),
    ),
    "an unknown change": (
        "its operation 'explode', version 1, is unknown",
        lambda f: rewritten(f, 2, Entry("explode", {}, AFTER)),
    ),
    "a private method": (
        "its operation .__init__., version 1, is unknown",
        lambda f: rewritten(f, 2, Entry("__init__", {}, AFTER)),
    ),
    "a second snapshot": (
        "its operation 'snapshot', version 1, is unknown",
        lambda f: rewritten(f, 2, Entry("snapshot", {}, AFTER)),
    ),
    "a later operation": ("its operation 'reroute', version 9, is unknown", lambda f: _of_version(f, 9)),
    "another journal's": (
        "entry 2 is not valid: it belongs to another journal",
        lambda f: _of_another_journal(f, "00" * 16),
    ),
    "no journal's": ("entry 2 is not valid: journal must be of type str", lambda f: _of_another_journal(f, None)),
    "no arguments": ("lacks the argument 'keys'", lambda f: rewritten(f, 2, Entry("insert", {}, AFTER))),
    "more arguments": ("unknown argument 'm'", lambda f: rewritten(f, 2, Entry("compact", {"m": 2}, AFTER))),
    "wide keys": ("features", lambda f: rewritten(f, 2, Entry("insert", {"keys": dense_rows(30, 5)}, AFTER))),
    "one key": ("n_memories=41", lambda f: rewritten(f, 2, Entry("insert", {"keys": np.ones(4)}, AFTER))),
    "a number for keys": ("X must have two", lambda f: rewritten(f, 2, Entry("insert", {"keys": 3}, AFTER))),
    "unknown ids": ("no memory has id 99", lambda f: rewritten(f, 2, Entry("remove", {"ids": np.array([99])}, AFTER))),
    "fewer keys": (
        "gave n_memories=60",
        lambda f: rewritten(f, 2, Entry("insert", {"keys": dense_rows(20, 4)}, AFTER)),
    ),
    "no fingerprint": ("n_memories", lambda f: rewritten(f, 2, Entry("insert", {"keys": dense_rows(30, 4)}, {}))),
    "a draw from nothing": ("is not valid", lambda f: _empty_but_for_a_draw(f)),
    "a view": (
        "the tables of a journal",
        lambda f: execute(f, "ALTER TABLE entries RENAME TO t", "CREATE VIEW entries AS SELECT * FROM t"),
    ),
    "a trigger": (
        "the tables of a journal",
        lambda f: execute(f, "CREATE TRIGGER t DELETE ON entries BEGIN SELECT 1; END"),
    ),
    "a later version": ("has version 9", lambda f: execute(f, "PRAGMA user_version = 9")),
    "an earlier version": (
        "has version 4, but this version of cmt-numba reads version 5; make",
        lambda f: execute(f, "PRAGMA user_version = 4"),
    ),
    "another program's": ("not a cmt-numba journal", lambda f: execute(f, "PRAGMA application_id = 7")),
    "a ban on writing": ("readonly", lambda f: _overwrite(f / "journal.sqlite", 18, b"\x03")),
    "a lost page": ("is damaged: .*freelist", lambda f: _overwrite(f / "journal.sqlite", 36, b"\x00\x00\x00\x07")),
    "no database": (
        "is not an SQLite database: it is damaged",
        lambda f: (f / "journal.sqlite").write_bytes(b"journal" * 1000),
    ),
    "an empty journal": ("empty, but had 6 changes", lambda f: (f / "journal.sqlite").write_bytes(b"")),
    "no journal": ("empty, but had 6 changes", lambda f: (f / "journal.sqlite").unlink()),
    "no mark": ("acknowledged: is missing", lambda f: (f / "acknowledged").unlink()),
    "no tree": ("tree-1.cmt: is missing", lambda f: (f / "tree-1.cmt").unlink()),
    "another tree": (
        "tree-1.cmt: does not belong to the journal",
        lambda f: ContextualMemoryTree().save(f / "tree-1.cmt"),
    ),
    "a tree by another name": ("entry 1 is not valid: replaying it gave", lambda f: _with_the_tree_of_its_beginning(f)),
}


def _overwrite(path: Path, place: int, contents: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(place)
        file.write(contents)


def _of_version(folder: Path, version: int) -> None:
    rewritten(folder, 2, Entry("reroute", {"number": 1}, AFTER, version=version))


def _of_another_journal(folder: Path, identity: str | None) -> None:
    packed = journal_entries.pack_entry(2, entry_of(folder, 2)._replace(journal=identity))
    execute(folder, ("UPDATE entries SET entry = ? WHERE sequence = 2", (packed,)))


def _with_the_tree_of_its_beginning(folder: Path) -> None:
    contents = read_object(folder / "tree-1.cmt", ("ContextualMemoryTree",), mmap=False)
    empty = contents_of(ContextualMemoryTree())()
    forged = empty._replace(fields=empty.fields | {"journal": contents.fields["journal"]})
    write_object(folder / "tree-1.cmt", lambda: forged, lambda _: None)


def _empty_but_for_a_draw(folder: Path) -> None:
    shutil.rmtree(folder)
    ContextualMemoryTree.open(folder).close()
    draw = Entry("draw", {}, {"n_memories": 0, "next_id": 0, "trees": 0}, journal=entry_of(folder, 0).journal)
    execute(folder, ("INSERT INTO entries VALUES (1, x'00', ?)", (journal_entries.pack_entry(1, draw),)))


@pytest.mark.parametrize("what", FORGED)
def test_a_forged_folder_is_refused(what: str, left_behind: Any, tmp_path: Path):
    folder = Path(shutil.copytree(left_behind[1], tmp_path / "tree"))
    message, forge = FORGED[what]
    forge(folder)
    for _ in range(2):  # and the folder is unchanged
        with pytest.raises(FileFormatError, match=message):
            ContextualMemoryTree.open(folder)


@pytest.mark.parametrize(
    "spoil", [{"ids": np.zeros((9, 1), np.int32)}, {"exploration.node": np.zeros((9, 1), np.int32)}]
)
def test_answers_of_the_wrong_form(spoil: dict[str, np.ndarray], left_behind: Any, monkeypatch: pytest.MonkeyPatch):

    entry = entry_of(left_behind[1], 5)
    assert isinstance(entry.arguments["hits"], Hits)
    put = journal_entries._put_argument

    def put_spoilt(name: str, value: Any, arrays: dict[str, np.ndarray]) -> Any:
        how = put(name, value, arrays)
        if name == "hits":
            arrays |= {f"hits.{path}": array for path, array in spoil.items()}
        return how

    monkeypatch.setattr(journal_entries, "_put_argument", put_spoilt)
    with pytest.raises(ValueError, match=f"the array 'hits.{next(iter(spoil))}'"):
        unpack_entry("journal", 5, journal_entries.pack_entry(5, entry))


def test_trees_that_grow_otherwise_keep_their_memories(left_behind: Any, tmp_path: Path, opened: Opened):
    """If another processor rounds differently, an explored node may not exist in the trees any more."""
    folder, expected = Path(shutil.copytree(left_behind[1], tmp_path / "tree")), left_behind[2]
    update = entry_of(folder, 5)
    exploration = update.arguments["hits"].exploration
    elsewhere = exploration._replace(node=np.where(exploration.node >= 0, 10_000, -1).astype(np.int32))
    hits = update.arguments["hits"]._replace(exploration=elsewhere)
    rewritten(folder, 5, update._replace(arguments=update.arguments | {"hits": hits}))
    with pytest.raises(FileFormatError, match=r"entry 5 is not valid: hits\.exploration must come from this forest"):
        opened(folder)
    removal = entry_of(folder, 3)
    rewritten(folder, 3, removal._replace(after=removal.after | {"trees": 1}))
    with pytest.warns(RuntimeWarning, match="all memories are present") as warned:
        tree = opened(folder)
    assert warned[0].filename == conftest.__file__  # this opens the folder
    tree.check_invariants()
    assert sorted(tree.ids) == sorted(expected.ids)
    assert journal_of(tree).sequence == 6

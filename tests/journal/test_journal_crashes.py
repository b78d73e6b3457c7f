"""Trees in folders lose no acknowledged change, whenever their process is killed."""

import copy
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from internals import journal_folder
from journals import OPTIONS, Opened, change, crashed, journal_of, same, snapshots_in

from cmt_numba import ContextualMemoryTree
from cmt_numba.journal import EntryDatabase


def test_a_crash_at_any_step(folder: Path, opened: Opened, monkeypatch: pytest.MonkeyPatch):
    left: list[tuple[int, Path]] = []
    acknowledged = [0]

    def crash_before_and_after(owner: Any, name: str) -> None:
        step = getattr(owner, name)

        def watched(*args: Any, **kwargs: Any) -> Any:
            left.append((acknowledged[0], crashed(folder)))
            result = step(*args, **kwargs)
            left.append((acknowledged[0], crashed(folder)))
            return result

        monkeypatch.setattr(owner, name, watched)

    for name in ("append", "sync", "restart"):
        crash_before_and_after(EntryDatabase, name)
    crash_before_and_after(journal_folder.Acknowledged, "set")
    crash_before_and_after(Path, "replace")  # of the unfinished snapshot
    crash_before_and_after(Path, "unlink")
    reference: list[ContextualMemoryTree] = [ContextualMemoryTree(**OPTIONS)]
    tree = opened(snapshot_bytes=3_000, **OPTIONS)
    while journal_of(tree).sequence < 12:
        number = journal_of(tree).sequence
        change(tree, "dense", number, 1)
        acknowledged[0] = journal_of(tree).folder.synced
        reference.append(copy.deepcopy(reference[-1]))
        change(reference[-1], "dense", number, 1)
    monkeypatch.undo()
    assert journal_of(tree).folder.base > 0
    assert any(len(snapshots_in(path)) == 2 for _, path in left)
    assert any(list(path.glob(".*.part")) for _, path in left)
    for at_least, path in left:
        again = opened(path, **OPTIONS)
        assert journal_of(again).sequence >= at_least
        assert same(again, reference[journal_of(again).sequence])
        assert len(snapshots_in(path)) == 1
        assert not list(path.glob(".*"))
        change(again, "dense", journal_of(again).sequence, 1)
        again.close()


def test_a_checkpoint_of_the_database_can_be_cut_short(tmp_path: Path):
    with ContextualMemoryTree.open(tmp_path / "tree", snapshot_seconds=1e9) as tree:
        for row in np.eye(50, dtype=np.float32):
            tree.insert(row[None])
        shutil.copytree(journal_of(tree).path, tmp_path / "cut")
    first_page = (tmp_path / "tree" / "journal.sqlite").read_bytes()[:4096]
    with open(tmp_path / "cut" / "journal.sqlite", "r+b") as database:
        database.write(first_page)  # names more pages than the file has
    with ContextualMemoryTree.open(tmp_path / "cut") as tree:
        assert len(tree) == 50

"""The folder that a tree lives in: snapshots, the journal, and the mark of what has been acknowledged."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from ..persistence import FileFormatError
from ..persistence._container import bring_to_disk
from ._database import Database
from ._mark import Mark

_SNAPSHOT = re.compile(r"tree-([0-9]{1,20})\.cmt")
_UNFINISHED = re.compile(r"\.tree-[0-9]+\.cmt\.[0-9a-f]+\.part")

Save = Callable[[Path], None]


class Folder:
    """A folder, made if it does not exist, and open for nobody else until it is closed.

    Parameters
    ----------
    path : path-like
        The folder; the one that it lies in must exist.

    Attributes
    ----------
    is_new : bool
        Whether :meth:`create` must be called before anything else. Otherwise :meth:`entries` must be gone through.
    base : int
        The number of the snapshot.

    Raises
    ------
    AlreadyOpenError, FileFormatError, OSError
        As :class:`~cmt_numba.journal._database.Database` does, and FileFormatError if there must have been a journal
        although there is none.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if not self.path.is_dir():
            self.path.mkdir()
            bring_to_disk(self.path.absolute().parent)
        self._database = Database(self.path / "journal.sqlite")
        self._mark: Mark | None = None
        self.base = 0
        self.is_new = self._database.is_new
        try:
            if self.is_new:
                self._check_that_nothing_is_lost()
            else:
                self._mark = Mark(self._mark_path)
        except BaseException:
            self.close()
            raise

    @property
    def synced(self) -> int:
        """The number of the last change known to be on the disk."""
        return 0 if self._mark is None else self._mark.sequence

    @property
    def journal_path(self) -> Path:
        """The file that entries are in."""
        return self._database.path

    @property
    def _mark_path(self) -> Path:
        return self.path / "acknowledged"

    def _check_that_nothing_is_lost(self) -> None:
        numbers = [self._number(path) or 0 for path in self.path.iterdir()]
        with suppress(FileFormatError):  # what a crash leaves is not there, or not complete
            mark = Mark(self._mark_path)
            numbers.append(mark.sequence)
            mark.close()
        if any(numbers):
            raise FileFormatError(self._database.path, f"is empty, but there have been {max(numbers)} changes")

    def create(self, save: Save, entry: bytes) -> None:
        """Put the first snapshot and its entry into a new folder.

        Parameters
        ----------
        save : callable
            Writes the snapshot to a path, and to the disk.
        entry : bytes
            The entry.
        """
        self._mark = Mark.create(self._mark_path)
        save(self.snapshot_path(0))
        self._database.create(entry)
        self.is_new = False
        self.clean_up()

    def entries(self) -> Iterator[tuple[int, bytes]]:
        """Yield the entries of the snapshot and of the changes since, with their numbers, and see that all are there.

        Raises
        ------
        FileFormatError
            If one is missing.
        """
        last = None
        for sequence, entry in self._database.entries():
            if last is None:
                self.base = sequence
            yield sequence, entry
            last = sequence
        if last is None:
            raise FileFormatError(self._database.path, "is damaged: it has no entry")
        if last < self.synced:
            raise FileFormatError(
                self._database.path, f"is damaged: it ends with change {last}, but {self.synced} were acknowledged"
            )
        self._database.checkpoint()
        self.sync(last)
        self.clean_up()

    def snapshot_path(self, sequence: int) -> Path:
        """Return where the snapshot of this number lies."""
        return self.path / f"tree-{sequence}.cmt"

    def append(self, sequence: int, entry: bytes) -> None:
        """Enter a change."""
        self._database.append(sequence, entry)

    def sync(self, sequence: int) -> None:
        """Bring the changes up to the last, whose number this is, to the disk."""
        assert self._mark is not None
        self._database.sync()
        if self._mark.sequence < sequence:
            self._mark.set(sequence)

    def restart(self, sequence: int, entry: bytes) -> None:
        """Let a snapshot, which is on the disk, take the place of all changes up to this number."""
        assert self._mark is not None
        self._database.restart(sequence, entry)
        self._mark.set(sequence)
        self.base = sequence
        self.clean_up()

    def clean_up(self) -> None:
        """Delete all snapshots but the one that counts, and what crashes have left."""
        for path in self.path.iterdir():
            if _UNFINISHED.fullmatch(path.name) or self._number(path) not in (None, self.base):
                with suppress(OSError):  # some systems do not delete a file that somebody has mapped
                    path.unlink()

    def _number(self, path: Path) -> int | None:
        found = _SNAPSHOT.fullmatch(path.name)
        return None if found is None else int(found[1])

    def close(self) -> None:
        """Let go of the folder. Entries not yet on the disk are given up."""
        self._database.close()
        if self._mark is not None:
            self._mark.close()

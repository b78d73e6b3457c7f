"""The folder of a durable object, with its snapshot, its journal and the number of the last acknowledged change."""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from collections.abc import Callable, Generator
from contextlib import closing, suppress
from pathlib import Path

from ..persistence import FileFormatError, bring_to_disk, read_fields
from ._database import EntryDatabase, ExtraTables, is_blank
from ._files import Acknowledged, check_regular, open_file

IDENTITY = "journal"
"""The snapshot field that contains the identity of the journal."""

_JOURNAL = "journal.sqlite"
_MARK = "acknowledged"
_OF_SQLITE = {f"{_JOURNAL}{suffix}" for suffix in ("", "-wal", "-shm", "-journal")}
_SNAPSHOT = re.compile(r"tree-([0-9]{1,20})\.cmt")
_UNFINISHED = re.compile(r"\.(tree-[0-9]+\.cmt|acknowledged)\.[0-9a-f]{8}\.part")

Save = Callable[[Path], None]


class Folder:
    """The folder of a durable object, locked until it is closed. A missing folder is created.

    Parameters
    ----------
    path : path-like
        An empty folder, or the folder of a durable object. Its parent must exist.
    read_only : bool, default False
        Whether to open an existing folder without writing to it or locking it.
    tables : ExtraTables, optional
        Additional tables of the journal's database.
    waits : bool, default True
        Whether each commit waits for the disk.

    Attributes
    ----------
    database : EntryDatabase
        The database of the journal.
    is_new : bool
        Whether the folder is empty. If so, call :meth:`create` first; otherwise, iterate over :meth:`entries` first.
    base : int
        The number of the snapshot.
    identity : str or None
        The identity of the journal, or None in version 1.

    Raises
    ------
    AlreadyOpenError
        If the folder is already open.
    FileFormatError
        If the folder is damaged, its journal is lost, or it contains other files.
    OSError
        If the folder cannot be read or written.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        read_only: bool = False,
        tables: ExtraTables | None = None,
        waits: bool = True,
    ) -> None:
        self.path = Path(path).absolute()  # a later os.chdir must not redirect snapshots
        self._read_only = read_only
        self._descriptor: int | None = None  # holds the folder, so that no other folder gets its inode number
        self._acknowledged: Acknowledged | None = None
        self._is_closed = False
        self.base = 0
        self.identity: str | None = None
        if not self.path.is_dir() and not read_only:
            self.path.mkdir(0o700)
            bring_to_disk(self.path.parent)
        self._check_whose_it_is()
        if read_only and check_regular(self._acknowledged_path):  # read it first: a writer may append entries
            self._acknowledged = Acknowledged(self._acknowledged_path, read_only=True)
        self.database = EntryDatabase(self.journal_path, tables, waits=waits, read_only=read_only)
        self.is_new = self.database.is_new
        try:
            if os.name == "posix":  # Windows does not rename a folder with open files
                self._descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            if self.is_new:
                self._check_that_nothing_is_lost()
                if read_only:
                    raise FileFormatError(self.journal_path, "is empty; open it without read_only first")
            elif self._acknowledged is None:
                self._acknowledged = Acknowledged(self._acknowledged_path, read_only=read_only)
        except BaseException:
            self.close()
            raise

    @property
    def synced(self) -> int:
        """The number of the last change known to be on disk."""
        return 0 if self._acknowledged is None else self._acknowledged.sequence

    @property
    def journal_path(self) -> Path:
        """The path of the journal's database."""
        return self.path / _JOURNAL

    @property
    def mode(self) -> int:
        """The permissions of new files, which are the permissions of the journal."""
        return stat.S_IMODE(os.stat(self.journal_path).st_mode) & 0o666

    @property
    def _acknowledged_path(self) -> Path:
        return self.path / _MARK

    # Checking the folder

    def _check_whose_it_is(self) -> None:
        """Raise FileFormatError if the folder has files but no journal. Create a journal file in an empty folder."""
        there_is_one = check_regular(self.journal_path)
        if there_is_one and not is_blank(self.journal_path):
            return
        of_the_journal = _OF_SQLITE if there_is_one else set()
        others = sorted(set(os.listdir(self.path)) - of_the_journal)
        if others:
            if _MARK in others:
                self._check_that_nothing_is_lost()
            if not self._is_left_by_a_crash(others):
                reason = f"contains files such as {others[0]!r}, but no journal; choose an empty folder"
                raise FileFormatError(self.path, reason)
        if not self._read_only:
            with suppress(FileExistsError):
                os.close(open_file(self.journal_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
                bring_to_disk(self.path)
        elif not there_is_one:
            reason = "has no journal; check the path, or open it without read_only first"
            raise FileFormatError(self.path, reason)

    def _check_that_nothing_is_lost(self) -> None:
        """Raise FileFormatError if the other files prove that the empty journal had entries."""
        found = [_SNAPSHOT.fullmatch(name) for name in os.listdir(self.path)]
        numbers = [int(match[1]) for match in found if match is not None]
        with suppress(FileFormatError):  # after a crash the file may be missing or incomplete
            last = Acknowledged(self._acknowledged_path, read_only=True)
            numbers.append(last.sequence)
            last.close()
        if any(numbers):
            reason = f"is empty, but had {max(numbers)} changes before; restore it from a copy"
            raise FileFormatError(self.journal_path, reason)

    def _is_left_by_a_crash(self, names: list[str]) -> bool:
        """Return whether an earlier library version seems to have crashed while creating the folder."""
        if _MARK not in names or self._read_only:
            return False
        Acknowledged(self._acknowledged_path, read_only=True).close()
        return all(name in (_MARK, "tree-0.cmt") or _UNFINISHED.fullmatch(name) for name in names)

    # New folders

    def create(self, save: Save, pack: Callable[[], bytes]) -> None:
        """Create the first snapshot and its entry in a new folder.

        Parameters
        ----------
        save : callable
            A function that writes the snapshot to a path and syncs it to disk.
        pack : callable
            A function that returns the entry.
        """
        self.identity = new_identity()
        self._acknowledged = Acknowledged.create(self._acknowledged_path, self.identity, 0, self.mode)
        self._check_that_it_is_no_link(0)
        save(self.snapshot_path(0))
        self.database.append(0, pack())
        self.database.sync()
        self.is_new = False
        self.clean_up()

    # Existing folders

    def belong(self, identity: str | None) -> None:
        """Set the identity of the journal, which the first entry contains, and compare it with ``acknowledged``."""
        self.identity = identity
        assert self._acknowledged is not None
        if identity not in (None, self._acknowledged.identity):
            raise FileFormatError(
                self._acknowledged_path, "does not belong to the journal in the folder; restore it from a copy"
            )

    def entries(self) -> Generator[tuple[int, bytes], None, None]:
        """Yield the number and the bytes of each entry. The first entry describes the snapshot.

        Raises
        ------
        FileFormatError
            If an entry is missing or invalid, or the journal ends before the last acknowledged change.
        """
        last = None
        with closing(self.database.entries()) as entries:
            for sequence, entry in entries:
                if last is None:
                    self.base = sequence
                yield sequence, entry
                last = sequence
        assert last is not None
        assert self._acknowledged is not None
        if last < self.synced:
            raise FileFormatError(
                self.journal_path,
                f"is damaged: it ends with change {last}, but {self.synced} changes were acknowledged",
            )

    def settle(self, last: int) -> None:
        """Sync changes of a killed process up to number ``last``, and delete its temporary files."""
        if not self._read_only:
            self.database.checkpoint()
            self.sync(last)
            self.clean_up()

    def snapshot_path(self, sequence: int) -> Path:
        """Return the path of snapshot ``sequence``."""
        return self.path / f"tree-{sequence}.cmt"

    def check_room_for(self, sequence: int) -> None:
        """Raise OSError if the folder has moved, or a foreign file occupies the path of snapshot ``sequence``."""
        self._check_place()
        path = self._check_that_it_is_no_link(sequence)
        if path.exists() and not self._is_ours(path, sequence, sequence):
            message = f"{path} exists but does not belong to this tree; move it elsewhere"
            raise FileExistsError(errno.EEXIST, message)

    def _check_place(self) -> None:
        """Raise FileNotFoundError if the folder has been moved. Another folder may have its path."""
        if self._descriptor is None:
            return
        held = os.fstat(self._descriptor)
        with suppress(OSError):
            found = os.stat(self.path)
            if (found.st_dev, found.st_ino) == (held.st_dev, held.st_ino):
                return
        message = f"{self.path} has been moved or replaced; close it and open it at its new path"
        raise FileNotFoundError(errno.ENOENT, message)

    def _check_that_it_is_no_link(self, sequence: int) -> Path:
        path = self.snapshot_path(sequence)
        try:
            check_regular(path)
        except FileFormatError as error:
            raise FileExistsError(errno.EEXIST, f"{error}; move it elsewhere") from error
        return path

    # Changes

    def sync(self, sequence: int) -> None:
        """Sync all changes to disk. ``sequence`` is the number of the last change."""
        assert self._acknowledged is not None
        self.database.sync()
        if self._acknowledged.sequence < sequence:
            self._acknowledged.set(sequence)

    def identify(self) -> str:
        """Return the identity for the next snapshot. A journal of version 1 gets a new identity.

        A new identity is written first to ``acknowledged``, then to the snapshot, then to the journal. A crash may
        leave a journal without identity next to an ``acknowledged`` with one, but never two different identities.
        """
        assert self._acknowledged is not None
        if self._acknowledged.identity is None:
            renewed = Acknowledged.create(
                self._acknowledged_path, new_identity(), self._acknowledged.sequence, self.mode
            )
            self._acknowledged.close()
            self._acknowledged = renewed
        assert self._acknowledged.identity is not None
        return self._acknowledged.identity

    def restart(self, sequence: int, entry: bytes) -> None:
        """Replace all entries up to number ``sequence`` with the entry of a snapshot, which must be on disk.

        If this fails, the journal keeps all its committed changes.
        """
        assert self._acknowledged is not None
        self.database.restart(sequence, entry)
        if self._acknowledged.sequence < sequence:
            self._acknowledged.set(sequence)
        superseded, self.base = self.base, sequence
        if self.identity is None and superseded != sequence:
            with suppress(OSError):  # ``clean_up`` recognises only snapshots with an identity
                self.snapshot_path(superseded).unlink()
        self.identity = self._acknowledged.identity
        self.clean_up()

    def clean_up(self) -> None:
        """Delete outdated snapshots of this tree and temporary files left by crashes."""
        for path in self.path.iterdir():
            found = _SNAPSHOT.fullmatch(path.name)
            number = None if found is None else int(found[1])
            superseded = number not in (None, self.base) and self._is_ours(path, number or 0, self.synced)
            if superseded or (_UNFINISHED.fullmatch(path.name) and path.is_file() and not path.is_symlink()):
                with suppress(OSError):  # Windows cannot delete a mapped file
                    path.unlink()

    def _is_ours(self, path: Path, number: int, last: int) -> bool:
        """Return whether a snapshot belongs to this journal. Snapshots of version 1 have no identity."""
        assert self._acknowledged is not None
        try:
            check_regular(path)
            identity = read_fields(path).get(IDENTITY)
        except (FileFormatError, OSError):
            return False
        if identity is None:
            return self.identity is None and number <= last
        return bool(identity == self._acknowledged.identity)

    def close(self) -> None:
        """Discard uncommitted entries, close the files and release the lock."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self.database.close()
        finally:
            if self._acknowledged is not None:
                self._acknowledged.close()
            if self._descriptor is not None:
                os.close(self._descriptor)


def read_at_one_moment(path: str | os.PathLike[str], read: Callable[[], None]) -> None:
    """Call ``read``, which reads the files of a folder. If it fails because a file has changed, call it again."""
    while True:
        before = _stamps(Path(path))
        try:
            return read()
        except (FileFormatError, FileNotFoundError):
            if _stamps(Path(path)) == before:
                raise


def _stamps(path: Path) -> list[tuple[str, int, int]]:
    """Return the name, size and modification time of each file."""
    stamps = []
    with suppress(FileNotFoundError):
        for name in sorted(os.listdir(path)):
            with suppress(FileNotFoundError):
                found = os.stat(path / name)
                stamps.append((name, found.st_size, found.st_mtime_ns))
    return stamps


def new_identity() -> str:
    """Return a random identity for a journal."""
    return secrets.token_hex(16)

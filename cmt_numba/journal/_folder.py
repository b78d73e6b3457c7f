"""The folder of a durable object, with its snapshot, its journal and the number of the last acknowledged change."""

import errno
import os
import re
import secrets
import stat
from collections.abc import Callable, Generator
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple

from ..persistence import FileFormatError, bring_to_disk, read_fields
from ._database import EntryDatabase, ExtraTables, Position, ReaderDatabase, check_files, is_blank
from ._files import Acknowledged, check_regular, open_file

IDENTITY = "journal"  # snapshot field that contains the identity of the journal
_JOURNAL = "journal.sqlite"
_MARK = "acknowledged"
_OF_SQLITE = {f"{_JOURNAL}{suffix}" for suffix in ("", "-wal", "-shm", "-journal")}
_SNAPSHOT = re.compile(r"tree-([0-9]{1,20})\.cmt")
_UNFINISHED = re.compile(r"\.tree-[0-9]+\.cmt\.[0-9a-f]{8}\.part")

Save = Callable[[Path], None]
Entries = list[tuple[int, bytes]]


class FolderFiles:
    """The files in a folder."""

    path: Path

    @property
    def journal_path(self) -> Path:
        """The path of the journal's database."""
        return self.path / _JOURNAL

    def snapshot_path(self, sequence: int) -> Path:
        """Return the path of snapshot ``sequence``."""
        return self.path / f"tree-{sequence}.cmt"


class Folder(FolderFiles):
    """The folder of a writer, locked until it is closed. A missing folder is created.

    - ``path``: an empty folder, or the folder of a durable object. Its parent must exist.
    - ``tables``: additional tables of the journal's ``database``.
    - ``waits``: whether each commit waits for the disk.
    - ``timeout``: the time to wait for another writer, in seconds.
    - ``is_new``: whether the folder is empty. If so, call :meth:`create` first; otherwise, iterate over :meth:`entries`
      first.
    - ``base``: the number of the snapshot.
    """

    database: EntryDatabase
    _descriptor: int | None = None  # holds the folder, so that no other folder gets its inode number
    _is_closed = False

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        tables: ExtraTables | None = None,
        waits: bool = True,
        timeout: float = 0.0,
    ) -> None:
        self.path = Path(path).absolute()  # a later os.chdir must not redirect snapshots
        self.base = 0
        if not self.path.is_dir():
            self.path.mkdir(0o700)
            bring_to_disk(self.path.parent)
        self._check_whose_it_is()
        self._acknowledged = Acknowledged(self.path / _MARK, timeout=timeout)
        try:
            if os.name == "posix":  # Windows does not rename a folder with open files
                self._descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            if is_blank(self.journal_path):
                self._check_that_nothing_is_lost()
                os.close(open_file(self.journal_path, os.O_WRONLY | os.O_CREAT))
                bring_to_disk(self.path)
            self.database = EntryDatabase.of_writer(self.journal_path, tables, waits=waits)
            self._inode = os.stat(self.journal_path).st_ino
            first = self.database.first_entry()
            self.is_new, self.base = first is None, first or 0
            if self.is_new:
                self._check_that_nothing_is_lost()
            elif self._acknowledged.identity is None:
                raise FileFormatError(self.path / _MARK, "is missing; restore it from a copy")
        except BaseException:
            self.close()
            raise

    @property
    def identity(self) -> str:
        """The identity of the journal."""
        assert self._acknowledged.identity is not None
        return self._acknowledged.identity

    @property
    def synced(self) -> int:
        """The number of the last change known to be on disk."""
        return self._acknowledged.sequence

    @property
    def mode(self) -> int:
        """The permissions of new files, which are the permissions of the journal."""
        return stat.S_IMODE(os.stat(self.journal_path).st_mode) & 0o666

    # Checking the folder

    def _check_whose_it_is(self) -> None:
        """Raise FileFormatError if the folder has files but no journal."""
        check_regular(self.path / _MARK)
        if is_blank(self.journal_path):
            names = set(os.listdir(self.path))
            if _MARK in names:
                self._check_that_nothing_is_lost()
                names -= {_MARK, "tree-0.cmt", *filter(_UNFINISHED.fullmatch, names)}  # left by a crash
            if others := sorted(names - (_OF_SQLITE if _JOURNAL in names else set())):
                reason = f"contains files such as {others[0]!r}, but no journal; choose an empty folder"
                raise FileFormatError(self.path, reason)

    def _check_that_nothing_is_lost(self) -> None:
        """Raise FileFormatError if the other files prove that the empty journal had entries."""
        found = [_SNAPSHOT.fullmatch(name) for name in os.listdir(self.path)]
        numbers = [int(match[1]) for match in found if match is not None]
        numbers.append(Acknowledged(self.path / _MARK, read_only=True).sequence)
        if any(numbers):
            reason = f"is empty, but had {max(numbers)} changes before; restore it from a copy"
            raise FileFormatError(self.journal_path, reason)

    # New folders

    def create(self, save: Save, pack: Callable[[], bytes]) -> None:
        """Create the first snapshot by ``save``, which syncs it to disk, and its entry by ``pack``."""
        self._acknowledged.begin(secrets.token_hex(16))
        self._check_that_it_is_no_link(0)
        save(self.snapshot_path(0))
        self.database.append(0, pack())
        self.database.sync()
        self.is_new = False
        self.clean_up()

    # Existing folders

    def entries(self) -> Generator[tuple[int, bytes], None, None]:
        """Yield the number and the bytes of each entry. The first entry describes the snapshot."""
        last = self.base
        with closing(self.database.entries()) as entries:
            for last, entry in entries:
                yield last, entry
        check_end(self.journal_path, last, self.synced)

    def check_room_for(self, sequence: int) -> None:
        """Raise OSError if the folder has moved, or a foreign file occupies the path of snapshot ``sequence``."""
        self._check_place()
        path = self._check_that_it_is_no_link(sequence)
        if path.exists() and not self._is_ours(path):
            message = f"{path} exists but does not belong to this object; move it elsewhere"
            raise FileExistsError(errno.EEXIST, message)

    def check_presence(self) -> None:
        """Raise FileNotFoundError if the journal has been deleted or replaced. The folder may have been renamed."""
        if self._descriptor is None:  # Windows does not delete open files
            return
        try:
            if os.stat(_JOURNAL, dir_fd=self._descriptor).st_ino == self._inode:
                return
        except OSError as error:
            if error.errno != errno.ENOENT:  # for example a folder that may no longer be searched
                return
        message = f"{self.journal_path} has been deleted or replaced; save the object to a file"
        raise FileNotFoundError(errno.ENOENT, message)

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
        self.database.sync()
        if self._acknowledged.sequence < sequence:
            self._acknowledged.set(sequence)

    def restart(self, sequence: int, entry: bytes) -> None:
        """Replace all entries up to number ``sequence`` with the entry of a snapshot, which must be on disk.

        If this fails, the journal keeps all its committed changes.
        """
        self.database.restart(sequence, entry)
        if self._acknowledged.sequence < sequence:
            self._acknowledged.set(sequence)
        self.base = sequence
        self.clean_up()

    def clean_up(self) -> None:
        """Delete outdated snapshots of this object and temporary files left by crashes."""
        for path in self.path.iterdir():
            found = _SNAPSHOT.fullmatch(path.name)
            superseded = found is not None and int(found[1]) != self.base and self._is_ours(path)
            if superseded or (_UNFINISHED.fullmatch(path.name) and path.is_file() and not path.is_symlink()):
                with suppress(OSError):  # Windows cannot delete a mapped file
                    path.unlink()

    def _is_ours(self, path: Path) -> bool:
        try:
            check_regular(path)
            return bool(read_fields(path).get(IDENTITY) == self.identity)
        except (FileFormatError, OSError):
            return False

    def close(self) -> None:
        """Discard uncommitted entries, close the files and release the lock."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if hasattr(self, "database"):  # opening it may have failed
                self.database.close()
        finally:
            self._acknowledged.close()
            self._let_go()

    def _let_go(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def __del__(self) -> None:
        self._let_go()  # its database and its lock do the same


def check_end(path: Path, last: int, acknowledged: int) -> None:
    """Raise FileFormatError if the journal ends with entry ``last``, before the last acknowledged change."""
    if last < acknowledged:
        reason = f"is damaged: it ends with change {last}, but {acknowledged} changes were acknowledged"
        raise FileFormatError(path, reason)


class JournalView(NamedTuple):
    """The journal of a folder as it is between two commits of its writer."""

    entries: Entries  # the entries after a position, or all; the first of all describes the snapshot
    continues: bool  # whether the entries are those after the position
    position: Position  # the last entry
    acknowledged: int  # the number of a change that must not be missing


class FolderReader(FolderFiles):
    """A folder that is read while another process, or this one, may change it. Nothing is written.

    - ``path``: the folder of a durable object.
    - ``tables``: additional tables of the journal's database.
    - ``identity``: the identity of the journal when all its entries were last read.
    - ``database``: reads additional tables in place.
    """

    identity: str | None = None

    def __init__(self, path: str | os.PathLike[str], tables: ExtraTables | None) -> None:
        self.path = Path(path).absolute()
        self._tables = tables
        names = os.listdir(self.path)
        if not check_regular(self.journal_path):
            others = f"contains files such as {min(names)!r}, but " if names else "has "
            raise FileFormatError(self.path, f"{others}no journal; check the path, or open it without read_only first")
        self.database = ReaderDatabase(self.journal_path, tables)
        check_files(self.journal_path)
        self.database.at_last_state(lambda: self.database.current().check_kind())

    def read(self, after: Position | None = None) -> JournalView:
        """Return the entries after a position, or all if it is None or the folder has another history by now.

        The caller is within :meth:`ReaderDatabase.at_last_state`.
        """
        check_files(self.journal_path)
        has_begun = self.database.is_in_transaction
        acknowledged = Acknowledged(self.path / _MARK, read_only=True)  # before a writer appends more entries
        database = self.database.current()
        continues = (
            after is not None
            and acknowledged.identity == self.identity
            and database.mark_of(after.sequence) == after.mark
        )
        if not continues:
            database.check(self._tables)
            self.identity = acknowledged.identity
        last = database.last_position()
        if last is None:
            raise FileFormatError(self.journal_path, "is empty; open it without read_only first")
        entries = list(database.entries(after.sequence if continues and after is not None else -1))
        # a transaction may have begun before the number was read
        present = min(acknowledged.sequence, last.sequence) if has_begun else acknowledged.sequence
        return JournalView(entries, continues, last, present)

    def close(self) -> None:
        """Close the connections to the database."""
        self.database.close()

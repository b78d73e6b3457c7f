"""The journal itself: numbered entries in an SQLite database. Knows nothing of what they mean."""

from __future__ import annotations

import ctypes
import os
import sqlite3
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..persistence import FileFormatError
from ._errors import AlreadyOpenError

MOST_BYTES = 1 << 29
"""Bytes of an entry: SQLite's own limit is a little less than twice that."""

_APPLICATION = 0x434D544A  # "CMTJ"
_VERSION = 1  # of what is in the database
_SCHEMA = "CREATE TABLE entries (sequence INTEGER PRIMARY KEY, entry BLOB NOT NULL)"
_LONGEST_LOG = 1 << 22  # bytes; what a large entry has made longer is cut off

_IN_USE = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_NOT_THE_FILES_FAULT = {
    *(sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_FULL, sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_IOERR),
    *(sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_PERM),
}

_open: weakref.WeakSet[Database] = weakref.WeakSet()


def _leave_to_the_parent() -> None:
    """Keep the connections that a fork has inherited from ever being closed in the child, be it by its end.

    SQLite takes its memory's word that it holds the lock, and would delete the log that the parent is writing.
    """
    for database in _open:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(database._connection))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_the_parent)


class Database:
    """The entries of a journal. Nobody else can open it until it is closed, or the process ends.

    Parameters
    ----------
    path : Path
        The file of the database, made if there is none.

    Raises
    ------
    AlreadyOpenError
        If it is open already.
    FileFormatError
        If it is damaged, of a later version, or another program's.
    OSError
        If it cannot be read or written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._process = os.getpid()
        if path.exists() and not os.access(path, os.R_OK | os.W_OK):
            raise PermissionError(f"{path} cannot be written")
        with self._reading():
            # Changes are made one at a time, in whatever thread.
            self._connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
        try:
            with self._reading():
                self.is_new = self._prepare()
        except BaseException:
            self._connection.close()
            raise
        _open.add(self)

    def _prepare(self) -> bool:
        """Lock and check the database; return whether there is nothing in it yet."""
        self._run("PRAGMA locking_mode = EXCLUSIVE")  # from the first access on, which comes next
        self._run("PRAGMA journal_mode = WAL")
        self._run("PRAGMA synchronous = FULL")
        self._run(f"PRAGMA journal_size_limit = {_LONGEST_LOG}")
        self._run("PRAGMA trusted_schema = OFF")
        self._run("PRAGMA cell_size_check = ON")
        self._run("BEGIN EXCLUSIVE")
        self._run("COMMIT")
        schema = self._connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema").fetchall()
        application, version = self._run("PRAGMA application_id"), self._run("PRAGMA user_version")
        if not schema and application == version == 0:
            return True
        if application != _APPLICATION:
            raise FileFormatError(self.path, "is not a journal that cmt-numba has written")
        if version != _VERSION:
            raise FileFormatError(self.path, f"is of version {version}; this version of cmt-numba reads {_VERSION}")
        if schema != [("table", "entries", "entries", _SCHEMA)]:
            raise FileFormatError(self.path, "has other tables than a journal")
        found = self._run("PRAGMA integrity_check(1)")
        if found != "ok":
            raise FileFormatError(self.path, f"is damaged: {' '.join(str(found).split())}")
        self._run("BEGIN")
        self._run(f"PRAGMA user_version = {_VERSION}")  # fails if the database says that nobody may write to it
        self._run("ROLLBACK")
        return False

    def _run(self, statement: str) -> object:
        row = self._connection.execute(statement).fetchone()
        return row[0] if row else None

    def create(self, entry: bytes) -> None:
        """Make the journal, with its first entry, on the disk."""
        self._run("BEGIN")
        self._run(f"PRAGMA application_id = {_APPLICATION}")
        self._run(f"PRAGMA user_version = {_VERSION}")
        self._run(_SCHEMA)
        self.append(0, entry)
        self.sync()

    def entries(self) -> Iterator[tuple[int, bytes]]:
        """Yield all entries and their numbers, in order, without a gap.

        Raises
        ------
        FileFormatError
            If one is missing or no entry.
        """
        expected = None
        with self._reading():
            for sequence, entry in self._connection.execute("SELECT sequence, entry FROM entries ORDER BY sequence"):
                if type(entry) is not bytes or sequence < 0:
                    raise FileFormatError(self.path, f"entry {sequence} is no entry")
                if expected not in (None, sequence):
                    raise FileFormatError(self.path, f"entry {expected} is missing")
                yield sequence, entry
                expected = sequence + 1

    def append(self, sequence: int, entry: bytes) -> None:
        """Write an entry; it is on the disk after the next :meth:`sync`."""
        if not self._connection.in_transaction:
            self._run("BEGIN")
        self._connection.execute("INSERT INTO entries VALUES (?, ?)", (sequence, entry))

    def sync(self) -> None:
        """Bring all entries to the disk."""
        if self._connection.in_transaction:
            self._run("COMMIT")

    def restart(self, sequence: int, entry: bytes) -> None:
        """Put one entry in the place of all, on the disk."""
        if not self._connection.in_transaction:
            self._run("BEGIN")
        self._run("DELETE FROM entries")
        self.append(sequence, entry)
        self.sync()

    def checkpoint(self) -> None:
        """Bring what is in the log to the disk, although nothing has been entered since it was opened.

        What a killed process has left there may be in the memory of the system only.
        """
        self._run("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        """Close the database, unless it is a parent process's. Entries not yet on the disk are given up."""
        if self._process != os.getpid():
            return
        if self._connection.in_transaction:
            self._connection.rollback()
        self._connection.close()

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Say what is wrong with the file, where something is."""
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF  # without its finer points
            if code in _IN_USE:
                raise AlreadyOpenError(f"{self.path.parent} is open already, in this process or another") from error
            if code in _NOT_THE_FILES_FAULT:
                raise OSError(f"{self.path} cannot be read or written: {error}") from error
            raise FileFormatError(self.path, f"is damaged: {error}") from error

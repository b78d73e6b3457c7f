"""The SQLite database of a journal, which stores numbered entries as bytes."""

from __future__ import annotations

import ctypes
import errno
import os
import sqlite3
import struct
import threading
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..persistence import FileFormatError
from ._files import AlreadyOpenError, check_regular, open_file

MOST_BYTES = 1 << 29
"""Maximum size of an entry in bytes, well below SQLite's limit of about 2**30."""

VERSION = 3
"""The version of the database. The first new entry upgrades a database of an earlier version."""

_APPLICATION = 0x434D544A  # "CMTJ" in ASCII
_SCHEMA = "CREATE TABLE entries (sequence INTEGER PRIMARY KEY, entry BLOB NOT NULL)"
_MOST_ATTEMPTS = 20  # maximum number of attempts to read files that another process is writing
_LONGEST_LOG = 1 << 22  # bytes to which a checkpoint truncates the log
_OTHERS = ("-wal", "-shm", "-journal")  # suffixes of SQLite's additional files

# Layout of the first page (big-endian): the fields that are read, separated by padding
_FIRST_PAGE = struct.Struct(">16s2xBB8xI36xI28xxxxH")
_MAGIC = b"SQLite format 3\0"

_IN_USE = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_ENVIRONMENT_ERRORS = {
    sqlite3.SQLITE_CANTOPEN: errno.EACCES,
    sqlite3.SQLITE_FULL: errno.ENOSPC,
    sqlite3.SQLITE_INTERRUPT: errno.EINTR,
    sqlite3.SQLITE_IOERR: errno.EIO,
    sqlite3.SQLITE_NOMEM: errno.ENOMEM,
    sqlite3.SQLITE_PERM: errno.EACCES,
}

# SQLite's write-ahead log; see "The Write-Ahead Log" in the documentation of SQLite's file format
_HEADER = struct.Struct(">IIIIIIII")  # fields: magic, version, page size, checkpoint number, 2 salts, 2 checksums
_FRAME = struct.Struct(">IIIIII")  # fields: page number, number of pages after a commit (else 0), 2 salts, 2 checksums
_LOG_MAGIC = 0x377F0682  # larger by 1 if checksums are computed from big-endian numbers
_LOG_VERSION = 3_007_000
_PAGE_SIZES = {1 << i for i in range(9, 17)}

SchemaRow = tuple[object, ...]


class ExtraTables(NamedTuple):
    """Additional tables of the database. They change in the same transactions as the entries."""

    statements: tuple[str, ...]  # SQL statements that create the tables
    allows: Callable[[list[SchemaRow]], bool]  # checks the schema rows (type, name, table, SQL) of the tables


class SharedConnection(sqlite3.Connection):
    """A connection that several threads can use.

    ``sqlite3`` caches prepared statements by their text, so two threads that execute the same text concurrently can
    share one statement. A lock therefore makes each thread execute a statement and read all rows before the next
    thread starts.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.turn = threading.RLock()
        _connections.add(self)

    def rows(self, statement: str, values: SchemaRow = ()) -> list[SchemaRow]:
        """Execute a statement and return all result rows."""
        with self.turn:
            return self.execute(statement, values).fetchall()


_opening = threading.Lock()
_open: weakref.WeakSet[EntryDatabase] = weakref.WeakSet()
_connections: weakref.WeakSet[SharedConnection] = weakref.WeakSet()


def _leave_to_the_parent() -> None:
    """Prevent a forked child from ever closing inherited connections.

    When SQLite closes a connection in the child, it acts as the owner of the lock and deletes the log that the parent
    is writing.
    """
    global _opening
    _opening = threading.Lock()
    for connection in _connections:
        connection.turn = threading.RLock()  # a thread of the parent may hold the inherited lock
    for database in _open:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(database._connection))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_the_parent)


def is_blank(path: Path) -> bool:
    """Return whether a database is empty, without opening it in SQLite.

    Raises
    ------
    AlreadyOpenError
        If the database is open in this process. Opening and closing the file again releases SQLite's lock.
    FileFormatError
        If the file is not a journal.
    OSError
        If the file cannot be read.
    """
    with _opening:
        _check_that_it_is_not_open(path)
        return _is_blank(path, _read(path, _FIRST_PAGE.size))


def _check_that_it_is_not_open(path: Path) -> None:
    with suppress(FileNotFoundError):
        found = os.stat(path)
        for database in _open:
            if database._process == os.getpid() and database._identity == (found.st_dev, found.st_ino):
                raise AlreadyOpenError(f"{path.parent} is already open in this process; close it there first")


def _is_blank(path: Path, first: bytes) -> bool:
    """Return whether a database is empty, given the first bytes of its file."""
    for other in _OTHERS:
        check_regular(Path(f"{path}{other}"))
    if not first:
        return True
    if len(first) < _FIRST_PAGE.size or not first.startswith(_MAGIC):
        raise FileFormatError(path, "is not an SQLite database: it is damaged, or not a cmt-numba journal")
    log_path = Path(f"{path}-wal")
    if _FIRST_PAGE.unpack_from(first)[4] == 0 and check_regular(log_path):
        log = read_log(_read(log_path, -1))  # a process was killed before it wrote to the database file
        first = first if log is None else log.pages.get(1, first)
    _, _, _, n_pages, application, n_cells = _FIRST_PAGE.unpack_from(first)
    if application == 0 and n_pages <= 1 and n_cells == 0:
        return True
    if application != _APPLICATION:
        raise FileFormatError(path, "is not a cmt-numba journal")
    return False


def _read(path: Path, n_bytes: int) -> bytes:
    with open(open_file(path, os.O_RDONLY), "rb") as file:
        return file.read(n_bytes)


def _read_if_any(path: Path) -> bytes:
    """Return the contents of a file, or ``b""`` if the file does not exist."""
    try:
        return _read(path, -1)
    except FileNotFoundError:
        return b""


class EntryDatabase:
    """The database with a journal's entries, locked until it is closed or the process ends.

    Parameters
    ----------
    path : Path
        The file of a journal, or an empty file.
    tables : ExtraTables, optional
        Additional tables. By default, the database contains only entries.
    waits : bool, default True
        Whether each commit waits for the disk. If False, a crash of the machine may lose the commits since the last
        :meth:`sync`. A crash of the process loses none.
    read_only : bool, default False
        Copy the current contents of the journal to memory. The journal is neither written nor locked, and another
        process may continue to write to it. The copy is made without SQLite, which needs write access to read a log.

    Attributes
    ----------
    is_new : bool
        Whether the database has no entries.

    Raises
    ------
    AlreadyOpenError
        If the database is already open.
    FileFormatError
        If the database is damaged, has a later version, or belongs to another program.
    OSError
        If the database cannot be read or written.
    """

    def __init__(
        self, path: Path, tables: ExtraTables | None = None, *, waits: bool = True, read_only: bool = False
    ) -> None:
        self.path = path
        self._tables = tables
        self._waits = waits
        self._read_only = read_only
        self._is_on_disk = True  # whether all commits are on disk
        self._process = os.getpid()
        self._identity: tuple[int, int] | None = None
        self._version = VERSION
        with _opening:
            _check_that_it_is_not_open(path)
            self._connection = self._copied() if read_only else self._connected()
            try:
                self.is_new = self._prepare()
                found = os.stat(path)
            except BaseException:
                self._connection.close()
                raise
            self._identity = found.st_dev, found.st_ino
            if not read_only:
                _open.add(self)

    def _connected(self) -> SharedConnection:
        """Return a connection to the database, which :meth:`_prepare` locks."""
        if not os.access(self.path, os.R_OK | os.W_OK):
            message = f"{self.path} cannot be written; open the folder with read_only=True"
            raise PermissionError(errno.EACCES, message)
        _is_blank(self.path, _read(self.path, _FIRST_PAGE.size))  # reject foreign files before SQLite opens them
        with self._translated_errors():
            # The lock of the object serialises changes, so any thread may use the connection.
            options: Any = {"timeout": 0, "isolation_level": None, "check_same_thread": False}
            return sqlite3.connect(self.path, factory=SharedConnection, **options)

    def _copied(self) -> SharedConnection:
        """Return a connection to a copy of the journal in memory. Another process may be writing the journal."""
        contents, log_bytes = self._read_together()
        if _is_blank(self.path, contents):
            raise FileFormatError(self.path, "is empty; open it without read_only first")
        with self._translated_errors():
            options: Any = {"isolation_level": None, "check_same_thread": False}
            connection = sqlite3.connect(":memory:", factory=SharedConnection, **options)
            try:
                connection.deserialize(with_log(contents, read_log(log_bytes)))
            except BaseException:
                connection.close()
                raise
            return connection

    def _read_together(self) -> tuple[bytes, bytes]:
        """Return consistent contents of the database file and its log.

        Until the header of the log changes, the log contains every page that a checkpoint copies to the database file.
        """
        log_path = Path(f"{self.path}-wal")
        log = _read_if_any(log_path)
        for _ in range(_MOST_ATTEMPTS):
            contents = _read(self.path, -1)
            before, log = log, _read_if_any(log_path)
            if log[: _HEADER.size] == before[: _HEADER.size]:
                return contents, log
        raise AlreadyOpenError(f"{self.path.parent} changed during {_MOST_ATTEMPTS} attempts to read it; try again")

    def _prepare(self) -> bool:
        """Lock and check the database. Return whether it has no entries."""
        if self._read_only:
            self._distrust()
            self._run("PRAGMA cell_size_check = ON")
            self._run("PRAGMA query_only = ON")
            return self._check()
        self._run("PRAGMA locking_mode = EXCLUSIVE")  # takes effect at the next access
        self._run(f"PRAGMA synchronous = {'FULL' if self._waits else 'NORMAL'}")
        self._distrust()
        self._run("PRAGMA cell_size_check = ON")
        self._run("BEGIN EXCLUSIVE")
        if not self._schema() and self._run("PRAGMA application_id") == 0:
            # Create the schema in one transaction before enabling the log, so that the file is recognisable without its
            # log.
            self._run(f"PRAGMA application_id = {_APPLICATION}")
            self._run(f"PRAGMA user_version = {VERSION}")
            for statement in (_SCHEMA, *(self._tables.statements if self._tables else ())):
                self._run(statement)
        self._run("COMMIT")
        self._run("PRAGMA journal_mode = WAL")
        self._run(f"PRAGMA journal_size_limit = {_LONGEST_LOG}")
        is_new = self._check()
        self._run("BEGIN")
        self._run(f"PRAGMA user_version = {self._version}")  # fails if the database cannot be written
        self._run("ROLLBACK")
        return is_new

    def _distrust(self) -> None:
        """Forbid functions in the schema, which also forbids indexes on JSON values.

        Journals with additional tables may have such indexes, so :meth:`_check` validates their schema instead.
        """
        if self._tables is None:
            self._run("PRAGMA trusted_schema = OFF")

    def _check(self) -> bool:
        """Raise FileFormatError if the database is not a valid journal. Return whether it has no entries."""
        if self._run("PRAGMA application_id") != _APPLICATION:
            raise FileFormatError(self.path, "is not a cmt-numba journal")
        version = self._run("PRAGMA user_version")
        if not isinstance(version, int) or not 1 <= version <= VERSION:
            reason = (
                f"has version {version}, but this version of cmt-numba reads versions 1 to {VERSION}; "
                "open it with a later version of cmt-numba"
            )
            raise FileFormatError(self.path, reason)
        self._version = version
        schema, entries = self._schema(), ("table", "entries", "entries", _SCHEMA)
        others = [row for row in schema if row != entries]
        if entries not in schema or not (self._tables.allows(others) if self._tables else not others):
            reason = (
                "does not have the tables of a journal" if self._tables is None else "is not the journal of a store"
            )
            raise FileFormatError(self.path, reason)
        # A check of additional tables takes long. Damage in them raises an error when it is read.
        found = self._run("PRAGMA quick_check(1)" if self._tables is None else "PRAGMA quick_check(entries)")
        if found != "ok":
            raise FileFormatError(self.path, f"is damaged: {' '.join(str(found).split())}")
        return not self._run("SELECT EXISTS (SELECT * FROM entries)")

    def _schema(self) -> list[SchemaRow]:
        return self.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema")

    def _run(self, statement: str, values: tuple[object, ...] = ()) -> object:
        with self._translated_errors():
            rows = self._connection.rows(statement, values)
            return rows[0][0] if rows else None

    def execute(self, statement: str, values: tuple[object, ...] = ()) -> list[SchemaRow]:
        """Execute a statement and return all result rows."""
        with self._translated_errors():
            return self._connection.rows(statement, values)

    def execute_many(self, statement: str, rows: Iterable[SchemaRow]) -> None:
        """Execute a statement once for each row of values."""
        with self._translated_errors():
            self._connection.executemany(statement, rows)

    @property
    def n_written(self) -> int:
        """The number of rows written so far."""
        return self._connection.total_changes

    def entries(self) -> Generator[tuple[int, bytes], None, None]:
        """Yield the number and the bytes of each entry, in order.

        Raises
        ------
        FileFormatError
            If an entry is missing or invalid.
        """
        expected = None
        with self._translated_errors():
            found = self._connection.execute("SELECT sequence, entry FROM entries ORDER BY sequence")
        with closing(found):  # an open cursor prevents checkpoints
            while True:
                with self._translated_errors():
                    row = found.fetchone()
                if row is None:
                    return
                sequence, entry = row
                if type(entry) is not bytes or sequence < 0:
                    raise FileFormatError(
                        self.path, f"entry {sequence} is not valid: entries must be bytes, numbered from 0"
                    )
                if expected not in (None, sequence):
                    raise FileFormatError(self.path, f"entry {expected} is missing")
                yield sequence, entry
                expected = sequence + 1

    def append(self, sequence: int, entry: bytes) -> None:
        """Write an entry. Call :meth:`commit` to commit it."""
        self.begin()
        if self._version < VERSION:  # earlier versions of the library cannot read the new entries
            self._run(f"PRAGMA user_version = {VERSION}")
            self._version = VERSION
        self._run("INSERT INTO entries VALUES (?, ?)", (sequence, entry))

    def begin(self) -> None:
        """Begin a transaction unless one is active."""
        if not self._connection.in_transaction:
            self._run("BEGIN")

    def commit(self) -> None:
        """Commit the active transaction, if any. A crash of the process cannot lose committed changes."""
        if self._connection.in_transaction:
            self._run("COMMIT")
            self._is_on_disk = self._waits

    def sync(self) -> None:
        """Commit the active transaction, if any, and sync all commits to disk."""
        self.commit()
        if not self._is_on_disk:
            self.checkpoint()
            self._is_on_disk = True

    def begin_change(self) -> bool:
        """Begin a change that :meth:`undo_change` can undo.

        Return whether the active transaction contains earlier writes, which :meth:`undo_change` must keep.
        """
        if not self._connection.in_transaction:
            self._run("BEGIN")
            return False
        self._run("SAVEPOINT change")
        return True

    def undo_change(self, keep_earlier: bool) -> None:
        """Undo all writes since :meth:`begin_change`. Pass the value that it returned as ``keep_earlier``."""
        if keep_earlier:
            self._run("ROLLBACK TO change")
            self._run("RELEASE change")
        else:
            self.roll_back()

    def roll_back(self) -> None:
        """Undo all writes since the last commit."""
        with self._translated_errors():
            if self._connection.in_transaction:
                self._connection.rollback()

    def restart(self, sequence: int, entry: bytes) -> None:
        """Replace all entries with a single entry and sync it to disk. On failure, keep the previous entries."""
        version = self._version
        try:
            self.begin()
            self._run("DELETE FROM entries")
            self.append(sequence, entry)
            self.sync()
        except BaseException:
            self._version = version
            self.roll_back()
            raise

    def checkpoint(self) -> None:
        """Write the log to the database file and sync it to disk, including commits of a killed process."""
        if not self._read_only:
            self._run("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        """Discard uncommitted writes and close the database. Do nothing in a forked child process."""
        if self._process != os.getpid():
            return
        with _opening:
            _open.discard(self)
            try:
                self.roll_back()
            finally:
                with self._translated_errors():
                    self._connection.close()

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        """Turn SQLite's errors into errors that name the file."""
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF  # the primary error code
            if code in _IN_USE:
                message = f"{self.path.parent} is already open in this or another process; close it there first"
                raise AlreadyOpenError(message) from error
            if code in _ENVIRONMENT_ERRORS:
                message = f"{self.path} cannot be read or written: {error}"
                if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN):
                    message += "; free disk space, or open the folder with read_only=True"
                raise OSError(_ENVIRONMENT_ERRORS[code], message) from error
            raise FileFormatError(self.path, f"is damaged: {error}") from error


# Reading a log without SQLite, which needs write access to read one


class LogPages(NamedTuple):
    """The committed contents of a write-ahead log."""

    page_size: int
    n_pages: int  # number of pages of the database after the last commit
    pages: dict[int, bytes]  # the changed pages by number, from 1


def read_log(log: bytes) -> LogPages | None:
    """Return the committed contents of a log, or None if the log contains no commit."""
    if len(log) < _HEADER.size:
        return None
    magic, version, page_size, _, *salts, first, second = _HEADER.unpack_from(log)
    if magic & ~1 != _LOG_MAGIC or version != _LOG_VERSION or page_size not in _PAGE_SIZES:
        return None
    order = ">u4" if magic & 1 else "<u4"
    if _checksums(np.frombuffer(log, order, 6)[None], (0, 0)) != [(first, second)]:
        return None
    size = _FRAME.size + page_size
    frames = np.frombuffer(log, np.uint8, (len(log) - _HEADER.size) // size * size, _HEADER.size).reshape(-1, size)
    summed = np.concatenate([frames[:, :8], frames[:, _FRAME.size :]], axis=1).view(order)
    pages: dict[int, bytes] = {}
    written: dict[int, bytes] = {}
    n_pages = 0
    for frame, checksums in zip(frames, _checksums(summed, (first, second)), strict=True):
        page, n_after, *others = _FRAME.unpack(frame[: _FRAME.size].tobytes())
        if page == 0 or others != [*salts, *checksums]:
            break
        written[page] = frame[_FRAME.size :].tobytes()
        if n_after > 0:
            n_pages, pages, written = n_after, pages | written, {}
    return LogPages(page_size, n_pages, pages) if n_pages > 0 else None


def with_log(database: bytes, log: LogPages | None) -> bytes:
    """Return a database file with the pages of its log merged into it. Its header states that it has no log."""
    merged = bytearray(database)
    if log is not None:
        size = log.n_pages * log.page_size
        merged = bytearray(merged[:size].ljust(size, b"\0"))
        for page, contents in log.pages.items():
            if page <= log.n_pages:
                merged[(page - 1) * log.page_size : page * log.page_size] = contents
    merged[18:20] = b"\x01\x01"
    return bytes(merged)


def _checksums(numbers: np.ndarray, before: tuple[int, int]) -> list[tuple[int, int]]:
    """Return the running checksums ``(s, t)`` after each row of ``numbers``, an array of shape (n, 2 * m).

    Each pair of numbers ``a, b`` changes ``s, t`` to ``s + t + a, s + 2 * t + a + b``, modulo 2**32. The update is
    linear, so a pair's contribution to the row's sums is the pair times a matrix power that depends only on its
    position in the row.
    """
    n_pairs = numbers.shape[1] // 2
    powers = np.empty((n_pairs + 1, 2, 2), np.uint32)
    power = ((1, 0), (0, 1))
    for i in range(n_pairs + 1):
        powers[i] = power
        (a, b), (c, d) = power
        power = ((a + b) % 2**32, (a + 2 * b) % 2**32), ((c + d) % 2**32, (c + 2 * d) % 2**32)
    left = numbers[:, ::2].astype(np.uint32)
    both = left + numbers[:, 1::2].astype(np.uint32)
    counts = powers[n_pairs - 1 :: -1]
    added = [left @ counts[:, i, 0] + both @ counts[:, i, 1] for i in (0, 1)]
    whole, sums, (s, t) = powers[n_pairs].tolist(), [], before
    for s_added, t_added in zip(added[0].tolist(), added[1].tolist(), strict=True):
        s, t = (
            (whole[0][0] * s + whole[0][1] * t + s_added) % 2**32,
            (whole[1][0] * s + whole[1][1] * t + t_added) % 2**32,
        )
        sums.append((s, t))
    return sums

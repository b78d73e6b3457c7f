"""The SQLite database of a journal, which stores numbered entries as bytes."""

import ctypes
import errno
import json
import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from ..persistence import FileFormatError
from ._files import AlreadyOpenError, check_regular

T = TypeVar("T")
MOST_BYTES = 1 << 29  # maximum size of an entry in bytes, well below SQLite's limit of about 2**30
VERSION = 5  # version of the database. Version 0.4 of the library started with version 5.
_APPLICATION = 0x434D544A  # "CMTJ" in ASCII
_SCHEMA = "CREATE TABLE entries (sequence INTEGER PRIMARY KEY, mark BLOB NOT NULL, entry BLOB NOT NULL)"
_LONGEST_LOG = 1 << 22  # bytes to which a checkpoint truncates the log
_OTHERS = ("-wal", "-shm", "-journal")  # suffixes of SQLite's additional files
_MOST_ATTEMPTS = 20  # maximum number of attempts to read a database that a writer is opening or closing
_SECONDS_IN_USE = 5.0  # time to wait for another connection that recovers the log
_OPTIONS: Any = {"isolation_level": None, "check_same_thread": False}

_IN_USE = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_ENVIRONMENT_ERRORS = {
    sqlite3.SQLITE_CANTOPEN: errno.EACCES,
    sqlite3.SQLITE_FULL: errno.ENOSPC,
    sqlite3.SQLITE_INTERRUPT: errno.EINTR,
    sqlite3.SQLITE_IOERR: errno.EIO,
    sqlite3.SQLITE_NOMEM: errno.ENOMEM,
    sqlite3.SQLITE_PERM: errno.EACCES,
    sqlite3.SQLITE_READONLY: errno.EACCES,
}

# How readers open a database. Only with the index of its log do SQLite's locks protect them from a writer.
_LOCKED, _WITHOUT_LOG = "mode=ro", "immutable=1"
_WITHOUT_INDEX = f"mode=ro&vfs={'unix' if os.name == 'posix' else 'win32'}-none"

SchemaRow = tuple[object, ...]


class Position(NamedTuple):
    """A change in the history of a folder."""

    sequence: int  # the number of the entry
    mark: bytes  # its mark, which no other history has


class ExtraTables(NamedTuple):
    """Additional tables of the database. They change in the same transactions as the entries."""

    statements: tuple[str, ...]  # SQL statements that create the tables
    allows: Callable[[list[SchemaRow]], bool]  # checks the schema rows (type, name, table, SQL) of the tables
    functions: dict[str, Callable[..., Any]]  # functions that statements may call, by name
    count_unchanged: str  # counts rows, by ids as JSON, that no change after a number has written


class SharedConnection(sqlite3.Connection):
    """A connection that several threads can use.

    ``sqlite3`` caches prepared statements by their text, so two threads that execute the same text concurrently can
    share one statement. Threads must therefore hold the lock ``turn`` until they have read all rows of a statement.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.turn, self.process = threading.RLock(), os.getpid()
        super().__init__(*args, **kwargs)
        _connections.add(self)

    def close(self) -> None:
        with self.turn:
            super().close()

    def __del__(self) -> None:
        # Python 3.13 warns of connections that are open. Only the connection itself can prevent that, because in a
        # reference cycle it may be finalised before its owner.
        with suppress(AttributeError, sqlite3.ProgrammingError):  # a connection that could not be opened
            self.close()


_connections: weakref.WeakSet[SharedConnection] = weakref.WeakSet()
_to_files: weakref.WeakSet[SharedConnection] = weakref.WeakSet()


def _leave_to_the_parent() -> None:
    """Prevent a forked child from ever closing the connections to files.

    When SQLite closes a connection in the child, it acts as the owner of the locks and may delete the log that the
    parent is writing.
    """
    for connection in _connections:
        connection.turn = threading.RLock()  # a thread of the parent may hold the inherited lock
    for connection in _to_files:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_the_parent)


def _may_be_written(path: Path) -> bool:
    """Return whether the system allows changes of a database, its log and their folder."""
    return all(os.access(file, os.W_OK) for file in (path.parent, *path.parent.glob(f"{path.name}*")))


@contextmanager
def translated_errors(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into errors that name the file."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF  # the primary error code
        if code in _IN_USE:
            raise AlreadyOpenError(f"{path} is in use by another program; close it there first") from None
        is_forged = code == sqlite3.SQLITE_READONLY and _may_be_written(path)
        if code in _ENVIRONMENT_ERRORS and not is_forged:
            message = f"{path} cannot be read or written: {error}"
            if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
                message += "; free disk space, allow access to the files, or open the folder with read_only=True"
            raise OSError(_ENVIRONMENT_ERRORS[code], message) from error
        if code == sqlite3.SQLITE_NOTADB:
            raise FileFormatError(
                path, "is not an SQLite database: it is damaged, or not a cmt-numba journal"
            ) from error
        raise FileFormatError(path, f"is damaged: {error}") from error


def is_blank(path: Path) -> bool:
    """Return whether a database is missing or empty. Raise FileFormatError if it is not a journal.

    SQLite reads the file, because closing it otherwise would release the locks of readers in this process.
    """
    check_files(path)
    if not check_regular(path) or path.stat().st_size == 0:
        return True
    with translated_errors(path), closing(_connected(path, _mode_of_reader(path))) as connection:
        EntryDatabase(path, connection).check_kind()
    return False


def _mode_of_reader(path: Path) -> str:
    """Return how to open a database. Read without its log, one whose checkpoint was cut short looks damaged."""
    log = Path(f"{path}-wal")
    if not check_regular(log) or log.stat().st_size == 0:
        return _WITHOUT_LOG
    can_have_index = os.access(path.parent, os.W_OK) or os.path.exists(f"{path}-shm")
    return _LOCKED if can_have_index else _WITHOUT_INDEX


def check_files(path: Path) -> None:
    """Raise FileFormatError if one of SQLite's additional files is not a regular file."""
    for other in _OTHERS:
        check_regular(Path(f"{path}{other}"))


def _connected(path: Path, mode: str, tables: ExtraTables | None = None) -> SharedConnection:
    options = _OPTIONS | {"timeout": _SECONDS_IN_USE, "uri": True}
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", factory=SharedConnection, **options)
    _to_files.add(connection)
    if mode == _WITHOUT_INDEX:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")  # SQLite then makes an index in memory
    for name, function in (tables.functions if tables else {}).items():
        connection.create_function(name, -1, function, deterministic=True)
    return connection


class EntryDatabase:
    """The database of a writer, which readers in any process can read at the same time, or a reader's connection to it.

    Each entry has a random mark. Two databases with the same mark for an entry agree in all changes up to it.

    - ``path``: the file, for error messages.
    - ``waits``: whether each commit waits for the disk. If False, a crash of the machine may lose the commits since the
      last :meth:`sync`. A crash of the process loses none.
    """

    def __init__(self, path: Path, connection: SharedConnection, *, waits: bool = True) -> None:
        self.path, self.connection = path, connection
        self._waits, self._is_on_disk = waits, True  # whether all commits are on disk

    @classmethod
    def of_writer(cls, path: Path, tables: ExtraTables | None, *, waits: bool) -> "EntryDatabase":
        """Open the file of a journal, or an empty file, for changes."""
        if not os.access(path, os.R_OK | os.W_OK):
            message = f"{path} cannot be written; open the folder with read_only=True"
            raise PermissionError(errno.EACCES, message)
        with translated_errors(path):
            self = cls(path, _connected(path, "mode=rw", tables), waits=waits)
        try:
            self._prepare(tables)
        except BaseException:
            self.connection.close()
            raise
        return self

    @property
    def is_of_parent(self) -> bool:
        """Whether this process is a fork of the process that has opened the database."""
        return self.connection.process != os.getpid()

    def run(self, statement: str, values: SchemaRow = ()) -> Any:
        """Execute a statement and return the first column of the first row, or None."""
        rows = self.execute(statement, values)
        return rows[0][0] if rows else None

    def execute(self, statement: str, values: SchemaRow = (), ids: Any = None) -> list[SchemaRow]:
        """Execute a statement and return all result rows. Only readers use ``ids``."""
        connection = self.connection
        try:
            with connection.turn:
                return connection.execute(statement, values).fetchall()
        except sqlite3.Error:
            with translated_errors(self.path):
                raise

    def execute_many(self, statement: str, rows: Iterable[SchemaRow]) -> None:
        """Execute a statement once for each row of values."""
        try:
            self.connection.executemany(statement, rows)
        except sqlite3.Error:
            with translated_errors(self.path):
                raise

    def check_kind(self) -> None:
        """Raise FileFormatError if the database does not say that it is a journal of this version."""
        if self.run("PRAGMA application_id") != _APPLICATION:
            raise FileFormatError(self.path, "is not a cmt-numba journal")
        version: Any = self.run("PRAGMA user_version")
        if version != VERSION:
            advice = "open it with a later version" if version > VERSION else "make the folder again from its data"
            reason = f"has version {version}, but this version of cmt-numba reads version {VERSION}; {advice}"
            raise FileFormatError(self.path, reason)

    def check(self, tables: ExtraTables | None) -> None:
        """Raise FileFormatError if the database is not a valid journal with the given tables."""
        self.check_kind()
        # Functions in a schema are forbidden, and so are indexes on JSON values, which additional tables may have.
        if tables is None:
            self.run("PRAGMA trusted_schema = OFF")
        self.run("PRAGMA cell_size_check = ON")
        schema, entries = self.schema(), ("table", "entries", "entries", _SCHEMA)
        others = [row for row in schema if row != entries]
        if entries not in schema or not (tables.allows(others) if tables else not others):
            reason = "does not have the tables of a journal" if tables is None else "is not the journal of a store"
            raise FileFormatError(self.path, reason)
        # A check of additional tables takes long. Damage in them raises an error when it is read.
        found = self.run("PRAGMA quick_check(1)" if tables is None else "PRAGMA quick_check(entries)")
        if found != "ok":
            raise FileFormatError(self.path, f"is damaged: {' '.join(str(found).split())}")

    def schema(self) -> list[SchemaRow]:
        """Return the rows (type, name, table, SQL) of the schema."""
        return self.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema")

    def entries(self, after: int = -1) -> Generator[tuple[int, bytes], None, None]:
        """Yield the number and the bytes of each entry with a number above ``after``, in order."""
        expected = None
        with translated_errors(self.path):
            statement = "SELECT sequence, entry FROM entries WHERE sequence > ? ORDER BY sequence"
            found = self.connection.execute(statement, (after,))
        with closing(found):  # an open cursor prevents checkpoints
            while True:
                with translated_errors(self.path):
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

    def mark_of(self, sequence: int) -> bytes | None:
        """Return the mark of an entry, or None if there is no such entry."""
        return self.run("SELECT mark FROM entries WHERE sequence = ?", (sequence,))

    def last_position(self) -> Position | None:
        """Return the last change, or None if there is no entry."""
        rows: Any = self.execute("SELECT sequence, mark FROM entries ORDER BY sequence DESC LIMIT 1")
        return Position(*rows[0]) if rows else None

    def first_entry(self) -> int | None:
        """Return the number of the first entry, or None if there is none."""
        return self.run("SELECT min(sequence) FROM entries")

    def last_entry(self) -> int | None:
        """Return the number of the last entry, or None if there is none."""
        return self.run("SELECT max(sequence) FROM entries")

    # Changes

    def _prepare(self, tables: ExtraTables | None) -> None:
        """Create the tables of an empty database, or check those of a journal."""
        self.run(f"PRAGMA synchronous = {'FULL' if self._waits else 'NORMAL'}")
        self.run("BEGIN EXCLUSIVE")
        if not self.schema() and self.run("PRAGMA application_id") == 0:
            # Create the schema in one transaction before enabling the log, so that the file is recognisable without its
            # log.
            self.run(f"PRAGMA application_id = {_APPLICATION}")
            self.run(f"PRAGMA user_version = {VERSION}")
            for statement in (_SCHEMA, *(tables.statements if tables else ())):
                self.run(statement)
        self.run("COMMIT")
        self.run("PRAGMA journal_mode = WAL")
        self.run(f"PRAGMA journal_size_limit = {_LONGEST_LOG}")
        self.check(tables)
        self.sync(is_due=True)  # also commits of a killed process; fails if the database cannot be written

    def append(self, sequence: int, entry: bytes) -> None:
        """Write an entry. Call :meth:`commit` to commit it."""
        if not self.connection.in_transaction:
            self.execute("BEGIN")
        self.execute("INSERT INTO entries VALUES (?, randomblob(8), ?)", (sequence, entry))

    def commit(self) -> None:
        """Commit the active transaction, if any. A crash of the process cannot lose committed changes."""
        if self.connection.in_transaction:
            self.execute("COMMIT")
            self._is_on_disk = self._waits

    def sync(self, *, is_due: bool = False) -> None:
        """Commit the active transaction, if any, and sync all commits to disk."""
        self.commit()
        if is_due or not self._is_on_disk:
            self.run("PRAGMA synchronous = FULL")
            self.run(f"PRAGMA user_version = {VERSION}")  # a commit that waits for the disk, and for all before it
            self.run(f"PRAGMA synchronous = {'FULL' if self._waits else 'NORMAL'}")
            self._is_on_disk = True

    def begin_change(self) -> bool:
        """Begin a change that :meth:`undo_change` can undo; return whether there are earlier writes to keep."""
        if not self.connection.in_transaction:
            self.execute("BEGIN")
            return False
        self.execute("SAVEPOINT change")
        return True

    def undo_change(self, keep_earlier: bool) -> None:
        """Undo all writes since :meth:`begin_change`. Pass the value that it returned as ``keep_earlier``."""
        if keep_earlier:
            self.run("ROLLBACK TO change")
            self.run("RELEASE change")
        else:
            self.roll_back()

    def roll_back(self) -> None:
        """Undo all writes since the last commit."""
        with translated_errors(self.path), self.connection.turn:
            if self.connection.in_transaction:
                self.connection.rollback()

    def restart(self, sequence: int, entry: bytes) -> None:
        """Replace all entries with a single entry and sync it to disk. On failure, keep the previous entries."""
        try:
            if not self.connection.in_transaction:
                self.execute("BEGIN")
            mark = self.mark_of(sequence)
            self.run("DELETE FROM entries")
            self.append(sequence, entry)
            if mark is not None:  # the new entry stands for the same changes
                self.execute("UPDATE entries SET mark = ?", (mark,))
            self.sync()
        except BaseException:
            self.roll_back()
            raise

    def close(self) -> None:
        """Discard uncommitted writes and close the database. Do nothing in a forked child process."""
        if not self.is_of_parent:
            try:
                self.roll_back()
            finally:
                with translated_errors(self.path):
                    self.connection.close()


# Readers


class StaleReaderError(Exception):
    """A writer has changed what a reader reads."""


class _Reading(threading.local):
    """The connection of a thread, and its current transaction."""

    database: EntryDatabase | None = None
    mode = _LOCKED
    files: Any = None  # the files when it was opened
    is_active = False  # whether the thread is within ``at_one_state``
    stamp: Any = None  # the stamp of the files before the transaction; None outside of it
    last: Position | None = None  # the last change in the database; None if unknown


class ReaderDatabase:
    """The database of a writer, read in place: additional tables as they were after the change at ``position``.

    Transactions are short, so that the writer can truncate its log: each lasts until the end of :meth:`at_one_state`.
    :meth:`execute` raises :class:`StaleReaderError` if the database has later changes, unless it reads only rows that
    they have not written. Each thread has a connection of its own.

    A writer may commit, open or close the database at any time. Without a log, SQLite reads the file alone and creates
    no files. With a log, it reads both, and makes the index of the log in memory if it may not create the file.

    - ``position``: the last change that the reader has replayed.
    """

    position: Position | None = None

    def __init__(self, path: Path, tables: ExtraTables | None) -> None:
        self.path, self._tables = path, tables
        self._reading = _Reading()
        self._connections: weakref.WeakSet[SharedConnection] = weakref.WeakSet()

    @property
    def is_active(self) -> bool:
        """Whether the thread is within :meth:`at_one_state`."""
        return self._reading.is_active

    @property
    def is_in_transaction(self) -> bool:
        """Whether a transaction of the thread has begun."""
        return self._reading.stamp is not None

    def at_one_state(self, work: Callable[[], T]) -> T:
        """Call ``work``, which reads the database as it is between two commits, and return its result.

        Raise StaleReaderError if a writer has disturbed it.
        """
        reading = self._reading
        if reading.is_active:
            return work()
        reading.is_active = True
        try:
            answer = work()
            self.check_undisturbed()
            return answer
        except (OSError, FileFormatError, AlreadyOpenError) as error:
            if reading.stamp is not None and reading.stamp != _stamp(self.path):
                raise StaleReaderError from error
            raise
        finally:
            if reading.stamp is not None and reading.database is not None:
                with suppress(FileFormatError):  # another thread may have closed it
                    reading.database.roll_back()
            reading.is_active, reading.stamp, reading.last = False, None, None
            if self._tables is None:  # there is nothing to read before the next refresh
                self.close_own()

    def check_undisturbed(self) -> None:
        """Raise StaleReaderError if the files have changed since the transaction began, and no locks protect it."""
        reading = self._reading
        if reading.stamp is not None and reading.mode != _LOCKED and reading.stamp != _stamp(self.path):
            raise StaleReaderError

    def at_last_state(self, work: Callable[[], T]) -> T:
        """Call ``work`` as :meth:`at_one_state` does, again if a writer has disturbed it."""
        if self.is_active:
            return work()
        cause: BaseException | None = None
        for _ in range(_MOST_ATTEMPTS):
            try:
                return self.at_one_state(work)
            except StaleReaderError as error:
                cause = error.__cause__
        message = f"{self.path.parent} changed during {_MOST_ATTEMPTS} attempts to read it; try again"
        raise cause or AlreadyOpenError(message)

    def current(self) -> EntryDatabase:
        """Return the database of the thread, in a transaction that lasts until the end of :meth:`at_one_state`."""
        reading, path = self._reading, self.path
        if reading.stamp is not None and reading.database is not None:
            return reading.database
        reading.stamp, mode = _stamp(path), _mode_of_reader(path)
        files = mode, [found[0] for found in reading.stamp] if mode == _LOCKED else reading.stamp
        if reading.database is None or files != reading.files or reading.database.is_of_parent:
            with translated_errors(path):
                connection = _connected(path, mode, self._tables)
            self._connections.add(connection)
            self.close_own()
            reading.database, reading.mode, reading.files = EntryDatabase(path, connection), mode, files
        reading.database.execute("BEGIN")
        return reading.database

    def execute(self, statement: str, values: SchemaRow = (), ids: list[int] | None = None) -> list[SchemaRow]:
        """Execute a statement and return all result rows. Pass ``ids`` if it reads only rows with these ids."""
        reading = self._reading
        if not reading.is_active:
            return self.at_one_state(lambda: self.execute(statement, values, ids))
        database = self.current()
        reading.last = reading.last or database.last_position()
        if reading.last != self.position and not self._are_unchanged(database, ids):
            raise StaleReaderError
        return database.execute(statement, values)

    def _are_unchanged(self, database: EntryDatabase, ids: list[int] | None) -> bool:
        position, tables = self.position, self._tables
        assert position is not None
        assert tables is not None
        if ids is None or database.mark_of(position.sequence) != position.mark:
            return False
        distinct = {memory_id for memory_id in ids if memory_id >= 0}
        n: int = database.run(tables.count_unchanged, (json.dumps(list(distinct)), position.sequence))
        return n == len(distinct)

    def close_own(self) -> None:
        """Close the connection of the thread."""
        database, self._reading.database = self._reading.database, None
        if database is not None:
            self._connections.discard(database.connection)
            database.close()

    def close(self) -> None:
        """Close all connections of this process."""
        for connection in list(self._connections):
            EntryDatabase(self.path, connection).close()


def _stamp(path: Path) -> list[tuple[int, int, int]]:
    """Return the inode number, size and modification time of a database and its log, if they exist."""
    stamp = []
    for name in (path, f"{path}-wal"):
        try:
            found = os.stat(name)
        except FileNotFoundError:
            continue
        stamp.append((found.st_ino, found.st_size, found.st_mtime_ns))
    return stamp

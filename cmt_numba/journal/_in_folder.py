"""What is kept in a folder: an object in memory, its last snapshot, and a journal of the changes since."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple, Self

from .._concurrency.rwlock import ReadWriteLock
from .._validation import check_integer, check_real
from ..persistence import FileFormatError
from ..persistence._container import Contents, verify_arrays
from ..persistence._trees import DTYPES, read_object, refusing, write_object
from ._database import MOST_BYTES, Tables
from ._entries import Entry, count_argument_bytes, pack_entry, unpack_entry
from ._errors import AlreadyOpenError, JournalError
from ._folder import IDENTITY, Folder
from ._links import check_regular
from ._operations import SNAPSHOT
from ._replay import refusing_entry

CLOSED = "it is closed"
READ_ONLY = "it is read-only"
REMEDIES = {CLOSED: "open it again", READ_ONLY: "open it without read_only"}
_TIMES_A_SNAPSHOT = 4  # smallest ratio of the time between snapshots to the time of a snapshot
_AT_THE_END = 1 / 40  # of how long a journal may get, above which it gets a snapshot when the folder is closed


class _Effort(NamedTuple):
    """The cost of reading a snapshot or replaying changes."""

    n_bytes: int
    seconds: float


def check_durability(sync_every: int, snapshot_bytes: int, snapshot_seconds: float) -> tuple[int, int, float]:
    """Return how an object is to be kept in a folder. Raises TypeError or ValueError if that is impossible."""
    return (
        check_integer("sync_every", sync_every, 1),
        check_integer("snapshot_bytes", snapshot_bytes, 0),
        check_real("snapshot_seconds", snapshot_seconds, 0.0, 1e9),
    )


class InFolder:
    """The part of an object in a folder that writes snapshots and the journal, and reads them again.

    A subclass says what its fingerprint and the contents of its snapshots are, and how an entry is replayed.
    """

    _kind_of_snapshot: str  # the kind of object that files of snapshots hold
    _unread: frozenset[str] = frozenset()  # arrays of snapshots that are mapped, and verified later
    _tables: Tables | None = None  # of a subclass, beside the entries of the journal
    _lock: ReadWriteLock  # of what is in memory
    _refusal: str | None  # the reason why it cannot be changed

    def _open_folder(
        self,
        path: str | os.PathLike[str],
        *,
        sync_every: int,
        snapshot_bytes: int,
        snapshot_seconds: float,
        read_only: bool = False,
    ) -> None:
        """Open the folder, and lock it. Nothing has been read yet."""
        checked = check_durability(sync_every, snapshot_bytes, snapshot_seconds)
        self._sync_every, self._snapshot_bytes, self._snapshot_seconds = checked
        self._process = os.getpid()
        self._changing = threading.RLock()
        self._refusal = None
        self._sequence = self._unsynced = 0
        self._as_one = self._only_in_memory = False  # see _journaling.as_one
        self._journal = self._last_snapshot = _Effort(0, 0.0)
        self._is_verified = True  # whether no array is mapped that may be damaged
        self._folder = Folder(path, read_only=read_only, tables=self._tables, waits=self._sync_every == 1)

    # What a subclass defines

    def _fingerprint(self) -> dict[str, int]:
        """Return what tells the object from others, and is cheap to compute."""
        raise NotImplementedError

    def _has_fingerprint(self, after: dict[str, int]) -> bool:
        """Return whether it has this fingerprint; raise ValueError if it differs too much."""
        raise NotImplementedError

    def _contents_of_snapshot(self) -> Contents:
        """Return what a snapshot holds."""
        raise NotImplementedError

    def _made_of_snapshot(self, contents: Contents, *, values: bool = True) -> Any:
        """Return the object in a snapshot, checked; arrays in ``_unread`` need be only with ``values``."""
        raise NotImplementedError

    def _begin_from(self, restored: Any) -> None:
        """Become the object of a snapshot, or raise ValueError if options do not fit it."""
        raise NotImplementedError

    def _redo(self, entry: Entry, exact: bool) -> None:
        """Make the change of an entry again, which must be as it was if all is ``exact`` so far."""
        raise NotImplementedError

    def _enter_notes(self) -> None:
        """Journal what has been noted since the last change, if anything."""

    # What is written

    @property
    def path(self) -> Path:
        """The folder."""
        return self._folder.path

    @property
    def sequence(self) -> int:
        """The number of changes since it was created. A draw of a random number counts as one."""
        return self._sequence

    @property
    def synced_sequence(self) -> int:
        """The number of changes that are on disk."""
        return self._folder.synced

    def sync(self) -> None:
        """Write all changes to disk and wait for it.

        Raises
        ------
        JournalError
            If it is closed or could not be written.
        """
        with self._alone():
            self._enter_notes()
            self._sync()

    def snapshot(self) -> None:
        """Replace the journal by a snapshot. This happens automatically when the journal gets long.

        Raises
        ------
        JournalError
            If it is closed or could not be written.
        OSError
            If the snapshot cannot be written. The journal is unchanged.
        """
        with self._alone():
            self._enter_notes()
            self._sync()
            if self._folder.base < self._sequence:
                self._take_snapshot()

    def close(self) -> None:
        """Write all changes to disk and close the folder. It can still be queried, but not changed.

        If it would take long to make the changes in the journal again, a snapshot replaces it.

        Raises
        ------
        JournalError
            If not all changes could be written; the folder is closed nevertheless.
        """
        if self._is_a_fork():
            self._refusal = CLOSED
            self._folder.close()
            return
        with self._changing:
            if self._refusal in (CLOSED, READ_ONLY):
                return
            try:
                if self._refusal is None:  # after a failure, what is in memory is not what entries would follow
                    self._enter_notes()
                if self._refusal is None:
                    self._sync()
                    self._take_snapshot_if_due(_AT_THE_END)
            finally:
                self._refusal = CLOSED
                self._folder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Journaling

    def _enter(self, entry: Entry, seconds: float, synced: bool) -> None:
        """Journal a change that has been made."""
        if count_argument_bytes(entry.arguments) > min(self._most_bytes(), MOST_BYTES):
            if not self._as_one:
                self._sync()
            self._sequence += 1
            self._only_in_memory = True
            if not self._as_one:
                self._end_change()
            return
        packed = pack_entry(self._sequence + 1, entry)
        with self._writing():
            self._folder.append(self._sequence + 1, packed)
        self._sequence += 1
        self._lengthen(len(packed), seconds)
        self._unsynced += synced
        if not self._as_one:
            self._end_change()

    def _end_change(self) -> None:
        """Sync the change, or take the snapshot that a change with large arguments needs, for it has no entry."""
        if self._only_in_memory:
            with self._writing():
                self._take_snapshot()
            self._only_in_memory, self._unsynced = False, 0
        elif self._unsynced >= self._sync_every:
            self._sync()
        elif self._unsynced > 0:
            with self._writing():
                self._folder.database.commit()

    def _lengthen(self, n_bytes: int, seconds: float) -> None:
        self._journal = _Effort(self._journal.n_bytes + n_bytes, self._journal.seconds + seconds)

    def _sync(self) -> None:
        with self._writing():
            self._folder.sync(self._sequence)
        self._unsynced = 0

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Reject all further changes if the journal cannot be written."""
        try:
            yield
        except BaseException as error:
            self._refusal = "a change could not be written to the journal"
            if isinstance(error, OSError | FileFormatError | AlreadyOpenError):
                raise JournalError(f"{self.path}: {self._refusal}: {error}; close it and open it again") from error
            raise

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Lock it for a change or for writing."""
        if self._is_a_fork() and self._refusal is None:
            message = f"{self.path} is open in the process that this one was forked from; change it there"
            raise JournalError(message)
        with self._changing:
            if self._refusal is not None:
                remedy = REMEDIES.get(self._refusal, "close it and open it again")
                raise JournalError(f"{self.path}: {self._refusal}; {remedy}")
            yield

    def _is_a_fork(self) -> bool:
        """Return whether this process was forked from the one that opened the folder."""
        return self._process != os.getpid()

    # Snapshots

    def _most_bytes(self) -> int:
        """Return the size of the journal above which a snapshot is due."""
        return max(self._snapshot_bytes, self._last_snapshot.n_bytes)

    def _take_snapshot_if_due(self, share: float = 1.0) -> None:
        """Take a snapshot if the journal has got longer than it may, or than a share of that."""
        most_seconds = share * max(self._snapshot_seconds, _TIMES_A_SNAPSHOT * self._last_snapshot.seconds)
        if self._journal.n_bytes <= share * self._most_bytes() and self._journal.seconds <= most_seconds:
            return
        self._sync()
        try:
            self._take_snapshot()
        except (AssertionError, MemoryError, OSError, TypeError, ValueError) as error:  # the journal holds the changes
            self._journal = _Effort(0, 0.0)  # try again after as many further changes
            message = f"{self.path}: no snapshot could be taken, so the journal keeps growing: {error}"
            warnings.warn(message, RuntimeWarning, stacklevel=4)

    def _take_snapshot(self) -> None:
        """Replace the journal by a snapshot. The journal must be synced, except for changes only in the snapshot."""
        started = perf_counter()
        self._verify()  # what is damaged must not get into another file
        self._folder.check_room_for(self._sequence)
        path = self._folder.snapshot_path(self._sequence)
        self._save_snapshot(path)
        try:
            self._folder.restart(self._sequence, pack_entry(self._sequence, self._snapshot_entry()))
        except OSError:
            raise  # the journal holds the changes
        except BaseException:
            with self._writing():
                raise
        self._journal, self._last_snapshot = _Effort(0, 0.0), _Effort(path.stat().st_size, perf_counter() - started)

    def _verify(self) -> None:
        """Raise FileFormatError if an array of the last snapshot that was only mapped is damaged."""
        if not self._is_verified:
            verify_arrays(self._folder.snapshot_path(self._folder.base), DTYPES, self._unread)
            self._is_verified = True

    def _save_snapshot(self, path: Path) -> None:
        identity, mode = self._folder.identify(), self._folder.mode

        def contents() -> Contents:
            contents = self._contents_of_snapshot()
            return contents._replace(fields=contents.fields | {IDENTITY: identity})

        self._lock.change(lambda: write_object(path, contents, self._made_of_snapshot, mode))

    def _snapshot_entry(self) -> Entry:
        return Entry(SNAPSHOT, {}, self._fingerprint(), journal=self._folder.identify())

    # Opening

    def _create(self) -> None:
        """Write the first snapshot of a new folder."""
        self._folder.create(self._save_snapshot, lambda: pack_entry(0, self._snapshot_entry()))

    def _go_through(self) -> bool:
        """Restore the object from the folder; return whether it is identical to the one before."""
        with closing(self._folder.entries()) as entries:
            sequence, packed = next(entries)
            with refusing_entry(self._folder.journal_path, sequence):
                entry = unpack_entry(self._folder.journal_path, sequence, packed)
                if entry.name != SNAPSHOT:
                    raise ValueError("a journal must begin with a snapshot")
                if entry.journal is None and entry.version > 1:
                    raise ValueError("it has no identity of a journal")
            self._folder.belong(entry.journal)
            self._start_from(sequence)
            with refusing_entry(self._folder.journal_path, sequence):
                exact = self._has_fingerprint(entry.after)
            for sequence, packed in entries:
                started = perf_counter()
                with refusing_entry(self._folder.journal_path, sequence):
                    entry = unpack_entry(self._folder.journal_path, sequence, packed)
                    self._redo(entry, exact)
                    exact &= self._has_fingerprint(entry.after)
                self._sequence = sequence
                self._lengthen(len(packed), perf_counter() - started)
            return exact

    def _start_from(self, sequence: int) -> None:
        """Restore the object of a snapshot."""
        path, started = self._folder.snapshot_path(sequence), perf_counter()
        if not check_regular(path):
            raise FileFormatError(path, "is missing; restore it from a copy")
        contents = read_object(path, (self._kind_of_snapshot,), mmap=False, unread=self._unread)
        self._is_verified = not self._unread
        if contents.fields.get(IDENTITY) != self._folder.identity:
            raise FileFormatError(path, "is of another journal than the one in the folder")
        with refusing(path):
            restored = self._made_of_snapshot(contents, values=False)
        self._journal = _Effort(0, 0.0)
        self._last_snapshot = _Effort(path.stat().st_size, perf_counter() - started)
        self._begin_from(restored)
        self._sequence = sequence

"""``Journal``: the snapshots and the journal of an object in a folder."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple, Protocol, TypeVar

from .._change import ReadWriteLock, defer_interrupts, uninterrupted
from .._display import warn
from .._validation import check_integer, check_real
from ..persistence import (
    DTYPES,
    Contents,
    FileFormatError,
    read_object,
    refusing,
    verify_arrays,
    write_object,
)
from ._database import MOST_BYTES, ExtraTables
from ._entries import Entry, count_argument_bytes, pack_entry, unpack_entry
from ._files import AlreadyOpenError, JournalError, check_regular
from ._folder import IDENTITY, Folder, read_at_one_moment

T = TypeVar("T")

SNAPSHOT = "snapshot"
"""The name of the entry of a snapshot, which is not an operation."""

CLOSED = "it is closed"
READ_ONLY = "it is read-only"
_REMEDIES = {CLOSED: "open it again", READ_ONLY: "open it without read_only"}
_TIMES_A_SNAPSHOT = 4  # smallest ratio of the time between snapshots to the time of a snapshot
_AT_THE_END = 1 / 40  # share of a journal's limits above which closing the folder takes a snapshot


class Durability(NamedTuple):
    """When to wait for the disk, and when a snapshot replaces the journal; see :class:`~cmt_numba.DurableTree`."""

    sync_every: int = 1
    snapshot_bytes: int = 1 << 26
    snapshot_seconds: float = 10.0

    def checked(self) -> Durability:
        """Return validated parameters. Raises TypeError or ValueError if one is invalid."""
        return Durability(
            check_integer("sync_every", self.sync_every, 1),
            check_integer("snapshot_bytes", self.snapshot_bytes, 0),
            check_real("snapshot_seconds", self.snapshot_seconds, 0.0, 1e9),
        )


class DurableForm(Protocol):
    """The methods by which a :class:`Journal` writes, restores and compares objects of one class.

    Attributes
    ----------
    kind : str
        The kind of object that files of snapshots hold.
    unread : frozenset of str
        The arrays of snapshots that are mapped when a folder is opened, and verified later.
    """

    kind: str
    unread: frozenset[str]

    @property
    def lock(self) -> ReadWriteLock:
        """The lock of the object."""

    def contents(self) -> Contents:
        """Return the contents of a snapshot of the object. No other thread changes it meanwhile."""

    def made_of(self, contents: Contents, *, values: bool) -> Any:
        """Return the object in a snapshot. The arrays in ``unread`` need be valid only with ``values``.

        Raises InvariantError, TypeError or ValueError if it is not valid.
        """

    def fingerprint(self, made: Any = None) -> dict[str, int]:
        """Return a fingerprint of an object, by default of the current one. It must be cheap to compute."""

    def has_fingerprint(self, made: Any, after: dict[str, int]) -> bool:
        """Return whether an object has a fingerprint. Raises ValueError if it differs so much that data is missing."""

    def replay(self, made: Any, entry: Entry, exact: bool) -> None:
        """Replay the change of an entry. If the replay has been ``exact`` so far, this must succeed.

        Raises LookupError, TypeError or ValueError if it fails.
        """

    def recover(self, replay_all: Callable[[], tuple[Any, bool]]) -> tuple[Any, bool]:
        """Return the result of ``replay_all``: the object in the folder, and whether its fingerprints match."""

    def use(self, made: Any) -> None:
        """Replace the current object by one that was restored from the folder."""

    def enter_notes(self) -> None:
        """Append entries for changes that readers have made since the last change, if any."""

    def mark(self) -> Any:
        """Return the state of the object before a change, for :meth:`is_changed`."""

    def is_changed(self, mark: Any, error: BaseException) -> bool:
        """Return whether a failed change may have changed the object since the mark."""


class _Effort(NamedTuple):
    """The cost of reading a snapshot or replaying changes."""

    n_bytes: int
    seconds: float


class Journal:
    """The folder of an object: its last snapshot, and a journal of the changes since.

    A change is made in memory, appended to the journal and committed before it is acknowledged. If it fails or
    is interrupted, its writes are undone, and the object is restored from the folder to its state after the last
    acknowledged change.

    Parameters
    ----------
    path : path-like
        The folder: empty, or the folder of such an object. If it does not exist, it is created; its parent must exist.
    form : DurableForm
        How the object is written and restored. A new folder starts with the current object of ``form``.
    durability : Durability
        When to wait for the disk and to take snapshots.
    tables : ExtraTables, optional
        Tables that the database holds besides the entries. They change in the same transactions.
    read_only : bool, default False
        Read the current contents of an existing folder and write nothing. Another process may continue to change it.

    Attributes
    ----------
    folder : Folder
        The folder.
    sequence : int
        The number of changes since the object was created.

    Raises
    ------
    AlreadyOpenError, FileFormatError, OSError
        If the folder cannot be opened.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        form: DurableForm,
        durability: Durability,
        *,
        tables: ExtraTables | None = None,
        read_only: bool = False,
    ) -> None:
        self._durability = durability.checked()
        self._form = form
        self._process = os.getpid()
        self._writing = threading.RLock()
        self._is_under_way = False  # whether the thread that holds the lock is making a change
        self._is_behind = False  # whether the object must be restored after a failure
        self._refusal: str | None = None  # why changes are refused
        self._n_unsynced = 0
        self._is_too_large = False  # whether the current change is too large for an entry and needs a snapshot
        self._journal = self._last_snapshot = _Effort(0, 0.0)
        self._is_verified = True  # whether all mapped arrays have been verified
        self.sequence = 0
        if read_only:
            self._refusal = READ_ONLY
            read_at_one_moment(path, partial(self._begin, path, tables, read_only=True))
            if tables is None:
                self.folder.close()
        else:
            self._begin(path, tables, read_only=False)

    def _begin(self, path: str | os.PathLike[str], tables: ExtraTables | None, *, read_only: bool) -> None:
        """Open the folder and restore the object, or create the folder."""
        self.folder = Folder(path, read_only=read_only, tables=tables, waits=self._durability.sync_every == 1)
        try:
            if self.folder.is_new:
                self.folder.create(self._save_snapshot, lambda: pack_entry(0, self._snapshot_entry()))
            else:
                self._open()
        except BaseException:
            self.folder.close()
            raise

    @property
    def path(self) -> Path:
        """The folder."""
        return self.folder.path

    @property
    def identity(self) -> str | None:
        """The identity of the journal, which its entries name; None in version 1."""
        return self.folder.identity

    @property
    def is_writable(self) -> bool:
        """Whether the journal is open in this process, and not read-only."""
        return self._refusal is None and not self._is_a_fork()

    # Changes

    def change(self, make: Callable[[], tuple[T, Entry]], *, counts: bool = True) -> T:
        """Make a change, append its entry, and return its result.

        Within a :meth:`transaction`, the change is committed when the transaction is.

        Parameters
        ----------
        make : callable
            Makes the change in memory, and returns its result and its entry.
        counts : bool, default True
            Whether the change counts for ``sync_every``. Otherwise it is committed with the next change that counts.

        Raises
        ------
        JournalError
            If the object is closed or read-only, or the change could not be written; nothing has changed then.
        """

        def make_and_append() -> T:
            started = perf_counter()
            answer, entry = make()
            with self._translated_errors():
                self._append(entry, perf_counter() - started, counts)
            return answer

        with self._alone():
            return make_and_append() if self._is_under_way else self._attempt(make_and_append, counts)

    def transaction(self, work: Callable[[], T]) -> T:
        """Make several changes, and write to further tables, in one transaction; return the result of ``work``.

        Raises
        ------
        JournalError
            As for :meth:`change`.
        """
        with self._alone():
            return work() if self._is_under_way else self._attempt(work, True)

    def alone(self, work: Callable[[], T]) -> T:
        """Call ``work`` while no other thread changes the object, and return its result.

        Raises
        ------
        JournalError
            If the object is closed or read-only.
        """
        with self._alone():
            return work()

    def note(self, entry: Entry) -> None:
        """Append an entry for a change that readers have made in memory. It is committed with the next change."""
        try:
            with self._translated_errors():
                self._append(entry, 0.0, False)
        except BaseException:
            self._is_behind = True  # the object and the journal differ now
            raise

    def enter_notes(self) -> None:
        """Append entries for changes that readers have made."""
        with self._alone():
            self._form.enter_notes()

    @property
    def is_behind(self) -> bool:
        """Whether a failed change could not be undone yet, so that the object and the folder differ."""
        return self._is_behind

    def catch_up(self) -> None:
        """Restore the object from the folder if a failed change could not be undone yet.

        Raises
        ------
        JournalError
            If this fails.
        """
        with self._alone():
            self._catch_up()

    def check_changeable(self) -> None:
        """Raise JournalError if the object cannot be changed."""
        with self._alone():
            pass

    def _attempt(self, work: Callable[[], T], counts: bool) -> T:
        """Make changes, and commit them if ``counts``. If this fails, undo them."""
        attempt = partial(self._all_or_none, work, counts)
        return self._form.lock.change(attempt) if counts else defer_interrupts(attempt)

    def _all_or_none(self, work: Callable[[], T], counts: bool) -> T:
        self._catch_up()
        if counts:
            self._form.enter_notes()
        database, form = self.folder.database, self._form
        before, mark = (self.sequence, self._n_unsynced, self._journal), form.mark()
        self._is_under_way, keep_earlier = True, True
        try:
            with self._translated_errors():
                keep_earlier = database.begin_change()
            answer = work()
            if counts:
                self._commit(before[0])
        except BaseException as error:
            uninterrupted(self._undo, before, keep_earlier, form.is_changed(mark, error))
            raise
        finally:
            self._is_under_way = False
        if counts:
            self._form.enter_notes()
            self._take_snapshot_if_due()
        return answer

    def _append(self, entry: Entry, seconds: float, counts: bool) -> None:
        """Write the entry of a change, or note that it is too large for an entry and needs a snapshot."""
        if count_argument_bytes(entry.arguments) > min(self._most_bytes(), MOST_BYTES):
            self._is_too_large = True
        else:
            packed = pack_entry(self.sequence + 1, entry)
            self.folder.database.append(self.sequence + 1, packed)
            self._lengthen(len(packed), seconds)
        self.sequence += 1
        self._n_unsynced += counts

    def _commit(self, before: int) -> None:
        """Commit the changes after ``before``, and wait for the disk if that is due."""
        with self._translated_errors():
            if self._is_too_large:
                self._take_snapshot()
            elif self.sequence > before and self._n_unsynced >= self._durability.sync_every:
                self._sync()
            else:
                self.folder.database.commit()

    def _undo(self, before: tuple[int, int, _Effort], keep_earlier: bool, is_changed: bool) -> None:
        """Undo the writes of a change, and restore the object if it has changed."""
        self.sequence, self._n_unsynced, self._journal = before
        self._is_too_large, self._is_behind = False, True
        with suppress(OSError, FileFormatError, AlreadyOpenError):
            self.folder.database.undo_change(keep_earlier)
            self._is_behind = is_changed
        with suppress(JournalError):  # the next change retries
            self._catch_up()

    def _catch_up(self) -> None:
        """Restore the object from the folder if a failure has left it in another state."""
        if not self._is_behind:
            return
        try:
            self.folder.database.roll_back()
            self._form.use(self._form.recover(self._replay_all)[0])
        except (FileFormatError, MemoryError, OSError, AlreadyOpenError) as error:
            message = f"{self.path}: a change failed and could not be undone: {error}; close it and open it again"
            raise JournalError(message) from error
        self._is_behind = False

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        """Turn errors of files into JournalError."""
        try:
            yield
        except (OSError, FileFormatError, AlreadyOpenError) as error:
            raise JournalError(f"{self.path}: the change could not be written to the journal: {error}") from error

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Lock the object for a change or for writing."""
        if self._is_a_fork() and self._refusal is None:
            message = f"{self.path} was opened by the parent of this process; change it there"
            raise JournalError(message)
        with self._writing:
            if self._refusal is not None:
                raise JournalError(f"{self.path}: {self._refusal}; {_REMEDIES[self._refusal]}")
            yield

    def _is_a_fork(self) -> bool:
        """Return whether this process was forked from the one that opened the folder."""
        return self._process != os.getpid()

    def try_alone(self, work: Callable[[], None]) -> None:
        """Call ``work`` if the object can be changed and no other thread is changing it."""
        if self.is_writable and self._writing.acquire(blocking=False):
            try:
                work()
            finally:
                self._writing.release()

    # Contents of the disk

    def sync(self) -> None:
        """Write all changes to disk and wait for it.

        Raises
        ------
        JournalError
            If it is closed or could not be written.
        """
        with self._alone(), self._translated_errors():
            self._catch_up()
            self._form.enter_notes()
            self._sync()

    def snapshot(self) -> None:
        """Replace the journal by a snapshot. This happens automatically when the journal grows long.

        Raises
        ------
        JournalError
            If it is closed or could not be written.
        OSError
            If the snapshot cannot be written. The journal is unchanged.
        """
        with self._alone():
            self.sync()
            if self.folder.base < self.sequence:
                self._take_snapshot()

    def close(self) -> None:
        """Write all changes to disk and close the folder. The object can still be queried, but not changed.

        If it would take long to replay the journal, a snapshot replaces it. After a failure that could not be undone
        nothing is written.

        Raises
        ------
        JournalError
            If not all changes could be written; the folder is closed nevertheless.
        """
        if self._is_a_fork():
            self._refusal = CLOSED
            self.folder.close()
            return
        with self._writing:
            try:
                if self._refusal is None and not self._is_behind:
                    defer_interrupts(self._finish)
            finally:
                self._refusal = self._refusal or CLOSED
                self.folder.close()

    def _finish(self) -> None:
        self.sync()
        self._take_snapshot_if_due(_AT_THE_END)

    def _sync(self) -> None:
        self.folder.sync(self.sequence)
        self._n_unsynced = 0

    def _lengthen(self, n_bytes: int, seconds: float) -> None:
        self._journal = _Effort(self._journal.n_bytes + n_bytes, self._journal.seconds + seconds)

    def _most_bytes(self) -> int:
        """Return the size of the journal above which a snapshot is due."""
        return max(self._durability.snapshot_bytes, self._last_snapshot.n_bytes)

    def _take_snapshot_if_due(self, share: float = 1.0) -> None:
        """Take a snapshot if the journal exceeds its limits, or a share of them."""
        most_seconds = share * max(self._durability.snapshot_seconds, _TIMES_A_SNAPSHOT * self._last_snapshot.seconds)
        if self._journal.n_bytes <= share * self._most_bytes() and self._journal.seconds <= most_seconds:
            return
        try:
            self._sync()
            self._take_snapshot()
        except (AssertionError, MemoryError, OSError, TypeError, ValueError) as error:  # the journal has all changes
            self._journal = _Effort(0, 0.0)  # retry when the journal reaches its limits again
            warn(f"{self.path}: no snapshot could be taken, so the journal keeps growing: {error}", RuntimeWarning)

    def _take_snapshot(self) -> None:
        """Replace the journal by a snapshot. The journal must be synced, except for changes only in the snapshot."""
        started = perf_counter()
        self.verify()  # damage must not be copied into the new file
        self.folder.check_room_for(self.sequence)
        path = self.folder.snapshot_path(self.sequence)
        self._save_snapshot(path)
        self.folder.restart(self.sequence, pack_entry(self.sequence, self._snapshot_entry()))
        self._n_unsynced, self._is_too_large = 0, False
        self._journal, self._last_snapshot = _Effort(0, 0.0), _Effort(path.stat().st_size, perf_counter() - started)

    def verify(self) -> None:
        """Raise FileFormatError if a mapped array of the last snapshot is damaged."""
        if self._is_verified or self._refusal == CLOSED:
            return
        try:
            verify_arrays(self.folder.snapshot_path(self.folder.base), DTYPES, self._form.unread)
        except FileNotFoundError:
            if self._refusal != READ_ONLY:  # otherwise the writer has deleted it, and only the mapping is left
                raise
        self._is_verified = True

    def _save_snapshot(self, path: Path) -> None:
        identity, form = self.folder.identify(), self._form

        def contents() -> Contents:
            contents = form.contents()
            return contents._replace(fields=contents.fields | {IDENTITY: identity})

        check = partial(form.made_of, values=True)
        form.lock.change(lambda: write_object(path, contents, check, self.folder.mode))

    def _snapshot_entry(self) -> Entry:
        return Entry(SNAPSHOT, {}, self._form.fingerprint(), journal=self.folder.identify())

    # Opening

    def _open(self) -> None:
        """Restore the object from the folder, and complete the work of a killed process."""
        made, exact = self._form.recover(self._replay_all)
        self.folder.settle(self.sequence)
        self._form.use(made)
        if not exact:
            message = (
                f"{self.path}: replaying the changes since the last snapshot gave another model than before, for "
                "example because of another processor or another version of a library; all memories are present"
            )
            warn(message, RuntimeWarning)

    def _replay_all(self) -> tuple[Any, bool]:
        """Return the object in the folder, and whether all fingerprints match."""
        path, form = self.folder.journal_path, self._form
        with closing(self.folder.entries()) as entries:
            sequence, packed = next(entries)
            with _refused_entry(path, sequence):
                entry = unpack_entry(path, sequence, packed)
                if entry.name != SNAPSHOT:
                    raise ValueError("the journal does not begin with a snapshot")
                if entry.journal is None and entry.version > 1:
                    raise ValueError("it has no journal identity")
            self.folder.belong(entry.journal)
            made = self._read_snapshot(sequence)
            with _refused_entry(path, sequence):
                exact = form.has_fingerprint(made, entry.after)
            for sequence, packed in entries:
                started = perf_counter()
                with _refused_entry(path, sequence):
                    entry = unpack_entry(path, sequence, packed)
                    if entry.journal != self.folder.identity:
                        raise ValueError("it belongs to another journal")
                    form.replay(made, entry, exact)
                    exact &= form.has_fingerprint(made, entry.after)
                self.sequence = sequence
                self._lengthen(len(packed), perf_counter() - started)
            return made, exact

    def _read_snapshot(self, sequence: int) -> Any:
        """Return the object in a snapshot."""
        path, started = self.folder.snapshot_path(sequence), perf_counter()
        if not check_regular(path):
            raise FileFormatError(path, "is missing; restore it from a copy")
        contents = read_object(path, (self._form.kind,), mmap=False, unread=self._form.unread)
        self._is_verified = not self._form.unread
        if contents.fields.get(IDENTITY) != self.folder.identity:
            raise FileFormatError(path, "does not belong to the journal in the folder")
        with refusing(path):
            made = self._form.made_of(contents, values=False)
        self._journal = _Effort(0, 0.0)
        self._last_snapshot = _Effort(path.stat().st_size, perf_counter() - started)
        self.sequence = sequence
        return made


@contextmanager
def _refused_entry(path: Path, sequence: int) -> Iterator[None]:
    """Turn errors about an entry into errors that name it."""
    try:
        yield
    except FileFormatError:
        raise
    except (AssertionError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise FileFormatError(path, f"entry {sequence} is not valid: {error}") from error

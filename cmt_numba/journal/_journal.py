"""``Journal``, which records the changes of an object in a folder and restores the object."""

import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from operator import attrgetter
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any, NamedTuple, Protocol, TypedDict, TypeVar

from .. import persistence as files
from .._change import ReadWriteLock, defer_interrupts, uninterrupted
from .._display import warn
from .._validation import check_integer, check_real
from ._database import MOST_BYTES, ExtraTables, ReaderDatabase, StaleReaderError
from ._entries import Entry, entry_contents, pack_entry, unpack_entry
from ._files import AlreadyOpenError, JournalError, check_regular
from ._folder import IDENTITY, Folder, FolderReader, JournalView, check_end

T = TypeVar("T")
SNAPSHOT = "snapshot"  # name of a snapshot's entry. It is not an operation.
_TABLES = "tables"  # the name of the entry of a change to additional tables alone

CLOSED = "it is closed"
READ_ONLY = "it is read-only"
_REMEDIES = {CLOSED: "open it again", READ_ONLY: "open it without read_only"}
_TIMES_A_SNAPSHOT = 4  # minimum ratio of the duration of journaled changes to the duration of a snapshot
_N_BYTES = attrgetter("nbytes")
_AT_THE_END = 1 / 40  # fraction of the journal's limits above which closing the folder takes a snapshot


class FolderOptions(TypedDict, total=False):
    """The types of the options in :class:`Durability`, as keyword arguments."""

    sync_every: int
    snapshot_bytes: int
    snapshot_seconds: float
    read_only: bool
    refresh_every: float | None
    timeout: float


class Durability(NamedTuple):
    """Options of a journal; see :meth:`InFolder.open`."""

    sync_every: int = 1
    snapshot_bytes: int = 1 << 26
    snapshot_seconds: float = 10.0
    read_only: bool = False
    refresh_every: float | None = None
    timeout: float = 0.0

    @classmethod
    def taken_from(cls, options: dict[str, Any]) -> "Durability":
        """Remove the options of a journal from ``options``, and return them."""
        return cls(**{name: options.pop(name) for name in cls._fields if name in options})

    def checked(self) -> "Durability":
        """Return the validated options. Raise TypeError or ValueError if an option is invalid."""
        if self.refresh_every is not None and not self.read_only:
            raise ValueError("refresh_every requires read_only=True")
        return Durability(
            check_integer("sync_every", self.sync_every, 1),
            check_integer("snapshot_bytes", self.snapshot_bytes, 0),
            check_real("snapshot_seconds", self.snapshot_seconds, 0.0, 1e9),
            bool(self.read_only),
            None if self.refresh_every is None else check_real("refresh_every", self.refresh_every, 0.0, 1e9),
            check_real("timeout", self.timeout, 0.0, 1e9),
        )


class DurableForm(Protocol):
    """The interface through which a :class:`Journal` saves, restores and compares an object.

    Subclasses may keep the methods that have a body.
    """

    kind: str  # type of the object, as named in snapshot files
    # names of snapshot arrays that are mapped when a folder is opened and verified later
    unread: frozenset[str] = frozenset()
    essential: tuple[str, ...] = ()  # numbers of the fingerprint without which memories or data are missing
    lock: ReadWriteLock  # lock of the object

    def contents(self) -> files.Contents:
        """Return the contents for a snapshot of the object. The caller holds the lock."""

    def made_of(self, contents: files.Contents, *, values: bool) -> Any:
        """Return the object in a snapshot. Validate the arrays in ``unread`` only if ``values`` is True.

        Raises InvariantError, TypeError or ValueError if the contents are invalid.
        """

    def fingerprint(self, made: Any = None) -> dict[str, int]:
        """Return a cheap fingerprint of an object (default: the current object)."""

    def has_fingerprint(self, made: Any, after: dict[str, int]) -> bool:
        """Return whether an object has the fingerprint ``after``. Raises ValueError if an essential number differs."""
        found = self.fingerprint(made)
        for name in self.essential:
            if found.get(name) != after.get(name):
                raise ValueError(
                    f"replaying it gave {name}={found.get(name)}, but the original change gave {after.get(name)!r:.50}"
                )
        return found == after

    def replay(self, made: Any, entry: Entry, exact: bool) -> None:
        """Replay the change of an entry. Errors may be ignored only if ``exact`` is False.

        ``exact`` tells whether all earlier fingerprints have matched. Raises LookupError, TypeError or ValueError if
        the replay fails.
        """

    def twin(self) -> Any:
        """Return an object that shares the state and the lock of the current object, but is not in a folder.

        :meth:`replay` changes it when a reader follows the writer, and :meth:`use` takes over its state.
        """

    def follow(self, apply: Callable[[], None]) -> None:
        """Call ``apply``, which replays entries of the writer and calls :meth:`follow_tables`, as one change."""
        self.lock.change(apply)

    def follow_tables(self, entries: list[tuple[int, bytes]]) -> None:
        """Follow the changes of additional tables that belong to entries of the writer."""
        return

    def use(self, made: Any) -> None:
        """Replace the current object with a restored one."""

    def enter_notes(self) -> None:
        """Append entries for changes that readers have made since the last change."""
        return

    def mark(self) -> Any:
        """Return a mark of the object's state before a change, for :meth:`is_changed`."""
        return self.lock.n_steps

    def is_changed(self, mark: Any, error: BaseException) -> bool:
        """Return whether a failed change may have changed the object since the mark."""
        return bool(mark != self.mark())


class _Effort(NamedTuple):
    """The size and duration of a snapshot or of journaled changes."""

    n_bytes: int
    seconds: float


class Journal:
    """The journal of an object: it records changes in a folder and restores the object from the folder.

    A change is made in memory, appended to the journal and committed before it is acknowledged. If it fails or is
    interrupted, its writes are undone, and the object is restored from the folder to its state after the last
    acknowledged change.

    - ``path``: an empty folder, or the folder of an object of the same type. A missing folder is created; its parent
      must exist.
    - ``form``: the interface to the object. A new folder starts with a snapshot of the current object.
    - ``durability``: when to wait for the disk, and when to take snapshots.
    - ``tables``: additional tables of the database. They change in the same transactions as the entries.
    - ``folder``: the folder. For a writer, ``folder.database`` executes statements on the additional tables.
    - ``sequence``: the number of changes since the object was created.
    - ``is_behind``: whether the object differs from the folder because a failed change has not been undone yet.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        form: DurableForm,
        durability: Durability,
        *,
        tables: ExtraTables | None = None,
    ) -> None:
        self._durability = durability.checked()
        self._form, self._tables = form, tables
        self._process = os.getpid()
        self._writing, self._refreshing = threading.RLock(), threading.RLock()
        self._is_under_way = False  # True while the thread that holds ``_writing`` makes a change
        self.is_behind = False  # True if the object must be restored because a change or a refresh failed
        self._is_undone = False  # whether the writes of the last failed change have been undone
        self._is_exact = True  # whether replayed entries had the fingerprints of the original changes
        self._refusal = READ_ONLY if self._durability.read_only else None  # the reason for rejecting changes
        self._n_unsynced = 0
        self._n_bytes_of_change = 0  # the size of the entries of the current change
        self._is_too_large = False  # True if they are too large, so that the change needs a snapshot
        self._journal = self._last_snapshot = _Effort(0, 0.0)
        self._most_bytes = self._durability.snapshot_bytes  # size of the journal above which a snapshot is due
        self._is_verified = True  # False until all mapped arrays have been verified
        self._refresh_due = float("inf") if self._durability.refresh_every is None else 0.0
        self.sequence = self._base = 0  # the numbers of the last change and of the snapshot
        self.folder: Any
        _journals.add(self)
        if self._durability.read_only:
            self.folder = FolderReader(path, tables)
            self.folder.database.at_last_state(lambda: self._load(self.folder.read()))
        else:
            self._begin(path)

    def _begin(self, path: str | os.PathLike[str]) -> None:
        """Open the folder and restore the object, or start a new folder with a snapshot of the object."""
        durability = self._durability
        self.folder = Folder(path, tables=self._tables, waits=durability.sync_every == 1, timeout=durability.timeout)
        try:
            if self.folder.is_new:
                self.folder.create(self._save_snapshot, lambda: self._packed_snapshot(0))
            else:
                made = self._replay_all()
                self.folder.sync(self.sequence)  # changes of a killed process
                self.folder.clean_up()
                self._use(made)
        except BaseException:
            self.folder.close()
            raise

    @property
    def path(self) -> Path:
        """The folder."""
        return self.folder.path

    @property
    def is_writable(self) -> bool:
        """Whether this process has opened the journal for changes."""
        return self._refusal is None and not self._is_a_fork()

    # Changes

    def change(self, work: Callable[[], T], *, counts: bool = True) -> T:
        """Call ``work`` in a transaction, and return its result.

        A change within another one is committed with the outer one.

        - ``work``: a function that changes the object in memory, calls :meth:`append` for each change, and may write to
          additional tables.
        - ``counts``: whether to commit the transaction. If False, the next change that counts commits it.
        """
        with self._writing:
            self.check_changeable()
            if self._is_under_way:
                return work()
            attempt = partial(self._all_or_none, work, counts)
            return self._form.lock.change(attempt) if counts else defer_interrupts(attempt)

    def append(self, entry: Entry, *, counts: bool = True) -> None:
        """Write the entry of a change, within :meth:`change`. ``counts`` is whether it counts towards ``sync_every``.

        If the entries of the change are too large, a snapshot replaces them.
        """
        contents = entry_contents(self.sequence + 1, entry._replace(journal=self.folder.identity))
        self._n_bytes_of_change += sum(map(_N_BYTES, contents.arrays.values()))
        if self._n_bytes_of_change > min(self._most_bytes, MOST_BYTES):
            self._is_too_large = True
        else:
            packed = files.pack_contents(contents)
            self._write(self.folder.database.append, self.sequence + 1, packed)
            self._journal = self._journal._replace(n_bytes=self._journal.n_bytes + len(packed))
        self.sequence += 1
        self._n_unsynced += counts

    def alone(self, work: Callable[[], T]) -> T:
        """Call ``work`` while no other thread changes the object, and return its result."""
        with self._writing:
            self.check_changeable()
            return work()

    def note(self, entry: Entry) -> None:
        """Append an entry for a change that readers have made in memory. The next change commits it."""
        try:
            self.append(entry, counts=False)
        except BaseException:
            self.is_behind, self._is_undone = True, False  # the object differs from the journal
            raise

    def catch_up(self) -> None:
        """Restore the object from the folder if a failed change has not been undone yet."""
        if self._refusal == READ_ONLY:
            self.refresh()
            return
        with self._writing:
            self.check_changeable()
            self._catch_up()

    def check_changeable(self) -> None:
        """Raise JournalError if the object cannot be changed."""
        if self._refusal is not None:
            raise JournalError(f"{self.path}: {self._refusal}; {_REMEDIES[self._refusal]}")
        if self._process != os.getpid():
            raise JournalError(f"{self.path} was opened by the parent process and can be changed only there")

    def _all_or_none(self, work: Callable[[], T], counts: bool) -> T:
        """Make changes and, if ``counts``, commit them. Undo them after a failure."""
        started, database, form = perf_counter(), self.folder.database, self._form
        if self.is_behind:
            self._catch_up()
        self._write(self.folder.check_presence)
        if counts:
            form.enter_notes()
        before, mark = (self.sequence, self._n_unsynced, self._journal, self._is_too_large), form.mark()
        n_written = database.connection.total_changes
        self._is_under_way, keep_earlier, self._n_bytes_of_change = True, True, 0
        try:
            keep_earlier = self._write(database.begin_change)
            answer = work()
            if self.sequence > before[0]:
                self._journal = self._journal._replace(seconds=self._journal.seconds + perf_counter() - started)
            elif counts and database.connection.total_changes > n_written:
                self.append(Entry(_TABLES, {}, form.fingerprint()))  # so that readers notice it
            if counts:
                is_due = self.sequence > before[0] and self._n_unsynced >= self._durability.sync_every
                self._write(self._sync if is_due or self._is_too_large else database.commit)
        except BaseException as error:
            uninterrupted(self._undo, before, keep_earlier, form.is_changed(mark, error))
            raise
        finally:
            self._is_under_way = False
        if counts:
            self._take_snapshot_if_due()
        return answer

    def _undo(self, before: tuple[int, int, _Effort, bool], keep_earlier: bool, is_changed: bool) -> None:
        """Undo the writes of a change. Restore the object if ``is_changed``, or if the database does not match it."""
        self.sequence, self._n_unsynced, self._journal, self._is_too_large = before
        self.is_behind, self._is_undone = True, False
        with suppress(OSError, files.FileFormatError, AlreadyOpenError):
            self.folder.database.undo_change(keep_earlier)
            # A commit that failed may have removed earlier entries, and one that succeeded cannot be undone.
            self.is_behind = is_changed or self.folder.database.last_entry() != self.sequence
            self._is_undone = True
        with suppress(JournalError):  # the next change retries
            self._catch_up()

    def _catch_up(self) -> None:
        """Restore the object from the folder if a failed change has not been undone yet."""
        if not self.is_behind:
            return
        try:
            if not self._is_undone:  # otherwise keep the notes before the failed change
                self.folder.database.roll_back()
            self._form.use(self._replay_all())
            self._is_too_large = False
        except (files.FileFormatError, MemoryError, OSError, AlreadyOpenError) as error:
            message = f"{self.path}: a failed change could not be undone: {error}; close the folder and open it again"
            raise JournalError(message) from error
        self.is_behind = False

    def _write(self, write: Callable[..., T], *arguments: Any) -> T:
        """Call a function that writes to the folder. Turn its errors into JournalError."""
        try:
            return write(*arguments)
        except (OSError, files.FileFormatError, AlreadyOpenError) as error:
            raise JournalError(f"{self.path}: the change cannot be written to the journal: {error}") from error

    def _is_a_fork(self) -> bool:
        """Return whether this process is a fork of the process that opened the folder."""
        return self._process != os.getpid()

    def try_alone(self, work: Callable[[], None]) -> None:
        """Call ``work`` if the object can be changed and no other thread is changing it. Do not wait."""
        if self.is_writable and self._writing.acquire(blocking=False):
            try:
                work()
            finally:
                self._writing.release()

    # Following a writer

    def refresh(self) -> bool:
        """Bring a read-only object to the writer's last change. Return whether it has changed.

        Entries after the last refresh are replayed on the object, unless a snapshot has replaced them.
        """
        if self._refusal == CLOSED:
            raise JournalError(f"{self.path}: {CLOSED}; {_REMEDIES[CLOSED]}")
        if self._refusal is None:
            return False
        with self._refreshing:
            now = monotonic()
            refresh = partial(uninterrupted, self._form.lock.change, self._refresh)
            has_changed: bool = self.folder.database.at_last_state(refresh)
            if self._durability.refresh_every is not None:
                self._refresh_due = now + self._durability.refresh_every
            return has_changed

    def at_one_state(self, work: Callable[[], T]) -> T:
        """Call ``work``, which reads additional tables of a read-only object, and return its result.

        Refresh the object first if later changes have written what ``work`` reads.
        """
        database: ReaderDatabase = self.folder.database
        if database.is_active:
            return work()
        with suppress(StaleReaderError):
            return database.at_one_state(work)

        def refreshed() -> T:
            database.current()
            self.refresh()
            return work()

        with self._refreshing:
            return database.at_last_state(refreshed)

    def _refresh(self) -> bool:
        database: ReaderDatabase = self.folder.database
        view: JournalView = self.folder.read(None if self.is_behind else database.position)
        if not view.entries:
            return False
        self.is_behind, was_exact, has_followed = True, self._is_exact, False
        if view.continues:
            # If the cause of an error persists, loading everything raises it.
            with suppress(files.FileFormatError, MemoryError):
                self._form.follow(partial(self._follow, view))
                has_followed = self._is_exact == was_exact
        if not has_followed:
            self._load(self.folder.read() if view.continues else view)
        database.check_undisturbed()
        self.is_behind = False
        return True

    def _follow(self, view: JournalView) -> None:
        twin = self._form.twin()
        self._replay(twin, view.entries)
        self._check_end(view)
        self._form.use(twin)
        self.folder.database.position = view.position
        self._form.follow_tables(view.entries)

    def _load(self, view: JournalView) -> None:
        """Restore the object from the folder."""
        made = self._replayed(iter(view.entries))
        self._check_end(view)

        def use() -> None:
            self._use(made)
            self.folder.database.position = view.position

        self._form.follow(use)
        if self._durability.refresh_every is not None:
            self._form.lock.before_read = self._refresh_if_due

    def _check_end(self, view: JournalView) -> None:
        check_end(self.folder.journal_path, self.sequence, view.acknowledged)

    @property
    def is_refresh_due(self) -> bool:
        """Whether the object of a reader is older than ``refresh_every``."""
        return monotonic() >= self._refresh_due and self._refusal == READ_ONLY

    def _refresh_if_due(self) -> None:
        if self.is_refresh_due:
            with self._refreshing:
                if self.is_refresh_due:
                    self.refresh()

    # Syncing and snapshots

    def sync(self) -> None:
        """Write all changes to disk and wait until they are stored.

        If this fails, the changes that readers have made since the last change are undone.
        """
        with self._writing:
            self.check_changeable()
            self._catch_up()
            if self._n_unsynced > 0:
                self._write(self.folder.check_presence)
            self._form.enter_notes()
            try:
                self._write(self._sync)
            except BaseException:
                counts = self.sequence, self._n_unsynced, self._journal, self._is_too_large
                uninterrupted(self._undo, counts, False, False)
                raise

    def snapshot(self) -> None:
        """Replace the journal with a snapshot. This happens automatically when the journal becomes long."""
        with self._writing:
            self.sync()
            if self._base < self.sequence:
                self._take_snapshot()

    def close(self) -> None:
        """Write all changes to disk and close the folder, even if a change cannot be written (JournalError).

        The object can still be queried, but not changed. If the journal takes long to replay, a snapshot replaces it.
        If a failed change could not be undone, nothing is written.
        """
        if self._is_a_fork():
            self._refusal = CLOSED
            self.folder.close()
        else:
            uninterrupted(self._close)

    def _close(self) -> None:
        with self._writing:
            try:
                if self._refusal is None and not self.is_behind:
                    self.sync()
                    self._take_snapshot_if_due(_AT_THE_END)
            finally:
                self._refusal = CLOSED
                self.folder.close()

    def _sync(self) -> None:
        """Commit all entries and wait for the disk. Take a snapshot if a change was too large for an entry."""
        if self._is_too_large:
            self._take_snapshot()
        else:
            self.folder.sync(self.sequence)
            self._n_unsynced = 0

    def _take_snapshot_if_due(self, share: float = 1.0) -> None:
        most_seconds = share * max(self._durability.snapshot_seconds, _TIMES_A_SNAPSHOT * self._last_snapshot.seconds)
        if self._journal.n_bytes <= share * self._most_bytes and self._journal.seconds <= most_seconds:
            return
        try:
            self._sync()
            self._take_snapshot()
        except (
            AlreadyOpenError,
            AssertionError,
            MemoryError,
            OSError,
            TypeError,
            ValueError,
        ) as error:  # no change is lost: the journal contains them all
            self._journal = _Effort(0, 0.0)  # retry when the journal is full again
            warn(f"{self.path}: a snapshot failed, so the journal keeps growing: {error}", RuntimeWarning)

    def _take_snapshot(self) -> None:
        """Replace the journal with a snapshot. All changes with an entry must be synced."""
        started = perf_counter()
        self.verify()  # do not copy damaged arrays to the new snapshot
        self.folder.check_room_for(self.sequence)
        path = self.folder.snapshot_path(self.sequence)
        self._save_snapshot(path)
        self.folder.restart(self.sequence, self._packed_snapshot(self.sequence))
        self._n_unsynced, self._is_too_large, self._base = 0, False, self.sequence
        self._begin_journal(path, perf_counter() - started)

    def _begin_journal(self, snapshot: Path, seconds: float) -> None:
        """Begin an empty journal after a snapshot, which took some seconds."""
        self._journal, self._last_snapshot = _Effort(0, 0.0), _Effort(snapshot.stat().st_size, seconds)
        self._most_bytes = max(self._durability.snapshot_bytes, self._last_snapshot.n_bytes)

    def verify(self) -> None:
        """Raise FileFormatError if a mapped array of the last snapshot is damaged."""
        if self._is_verified or self._refusal == CLOSED:
            return
        try:
            files.verify_arrays(self.folder.snapshot_path(self._base), self._form.unread)
        except FileNotFoundError:
            if self._refusal != READ_ONLY:  # a writer may delete the snapshot of a reader, which keeps the mapping
                raise
        self._is_verified = True

    def _save_snapshot(self, path: Path) -> None:
        identity, form = self.folder.identity, self._form

        def contents() -> files.Contents:
            contents = form.contents()
            return contents._replace(fields=contents.fields | {IDENTITY: identity})

        check = partial(form.made_of, values=True)
        form.lock.change(lambda: files.write_object(path, contents, check, self.folder.mode))

    def _packed_snapshot(self, sequence: int) -> bytes:
        return pack_entry(sequence, Entry(SNAPSHOT, {}, self._form.fingerprint(), journal=self.folder.identity))

    # Opening

    def _use(self, made: Any) -> None:
        """Start to use an object from the folder."""
        self._form.use(made)
        if not self._is_exact:
            message = (
                f"{self.path}: replaying the journal produced a model that differs from the saved one, for example "
                "because the processor or a library version has changed; all memories are present"
            )
            warn(message, RuntimeWarning)

    def _replay_all(self) -> Any:
        """Return the object in the folder."""
        with closing(self.folder.entries()) as entries:
            return self._replayed(entries)

    def _replayed(self, entries: Iterator[tuple[int, bytes]]) -> Any:
        """Return the object after all entries, the first of which describes the snapshot."""
        path = self.folder.journal_path
        sequence, packed = next(entries)
        with _refused_entry(path, sequence):
            entry = unpack_entry(path, sequence, packed)
            if entry.name != SNAPSHOT:
                raise ValueError("the journal does not begin with a snapshot")
        if entry.journal != self.folder.identity:
            reason = "does not belong to the journal in the folder; restore it from a copy"
            raise files.FileFormatError(path.with_name("acknowledged"), reason)
        made = self._read_snapshot(sequence)
        with _refused_entry(path, sequence):
            self._is_exact = entry.after is not None and self._form.has_fingerprint(made, entry.after)
        self._replay(made, entries)
        return made

    def _replay(self, made: Any, entries: Iterable[tuple[int, bytes]]) -> None:
        path, form = self.folder.journal_path, self._form
        for sequence, packed in entries:
            started = perf_counter()
            with _refused_entry(path, sequence):
                entry = unpack_entry(path, sequence, packed)
                if entry.journal != self.folder.identity:
                    raise ValueError("it belongs to another journal")
                if entry.name != _TABLES:
                    form.replay(made, entry, self._is_exact)
                if entry.after is not None:
                    self._is_exact &= form.has_fingerprint(made, entry.after)
            self.sequence = sequence
            n_bytes, seconds = self._journal
            self._journal = _Effort(n_bytes + len(packed), seconds + perf_counter() - started)

    def _read_snapshot(self, sequence: int) -> Any:
        path, started = self.folder.snapshot_path(sequence), perf_counter()
        if not check_regular(path):
            raise files.FileFormatError(path, "is missing; restore it from a copy")
        contents = files.read_object(path, (self._form.kind,), mmap=False, unread=self._form.unread)
        self._is_verified = not self._form.unread
        if contents.fields.get(IDENTITY) != self.folder.identity:
            raise files.FileFormatError(
                path, "does not belong to the journal in the folder; restore the matching snapshot"
            )
        with files.refusing(path):
            made = self._form.made_of(contents, values=False)
        self._begin_journal(path, perf_counter() - started)
        self.sequence = self._base = sequence
        return made


_journals: weakref.WeakSet[Journal] = weakref.WeakSet()


def _renew_in_child() -> None:
    for journal in _journals:
        # Threads of the parent may hold the inherited locks.
        journal._writing, journal._refreshing = threading.RLock(), threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_in_child)


@contextmanager
def _refused_entry(path: Path, sequence: int) -> Iterator[None]:
    """Turn errors about an entry into FileFormatError, which names the entry."""
    try:
        yield
    except files.FileFormatError:
        raise
    except (AssertionError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise files.FileFormatError(path, f"entry {sequence} is not valid: {error}") from error

"""``DurableTree``: a tree that is stored in a folder."""

from __future__ import annotations

import os
import threading
import warnings
from collections import deque
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple, Self

import numpy as np

from .._validation import check_ids, check_integer, check_known, check_real
from ..persistence import FileFormatError
from ..persistence._container import Contents
from ..persistence._trees import read_object, refusing, write_object
from ..tree import ContextualMemoryTree
from ._database import MOST_BYTES, Tables
from ._entries import Entry, count_argument_bytes, pack_entry, plain_arguments, unpack_entry
from ._errors import AlreadyOpenError, JournalError
from ._fingerprint import fingerprint, has_fingerprint
from ._folder import IDENTITY, Folder
from ._journaling import journaled
from ._links import check_regular
from ._operations import SNAPSHOT, Operation
from ._replay import recover, redo, refusing_entry

_KIND = "ContextualMemoryTree"  # of the object in a snapshot
_RETURN = "return"  # the operation that records the memories returned by queries
_CLOSED = "the tree is closed"
_READ_ONLY = "the tree is read-only"
_REMEDIES = {_CLOSED: "open it again", _READ_ONLY: "open it without read_only"}
_TIMES_A_SNAPSHOT = 4  # smallest ratio of the time between snapshots to the time of a snapshot


class _Effort(NamedTuple):
    """The cost of reading a snapshot or replaying changes."""

    n_bytes: int
    seconds: float


class DurableTree(ContextualMemoryTree):
    """A tree that is stored in a folder and whose changes survive a crash.

    Each change (``insert``, ``update``, ``remove``, ...), and each block of ``learn``, is written to a journal on disk
    before the call returns. When the folder is opened again, the tree is bit-identical to the one after the last
    change. Otherwise it behaves like any other tree.

    A change with invalid arguments changes nothing. A change that fails half-way (out of memory, disk full,
    interrupted) leaves a tree in memory that differs from the one on disk: it can still be queried, but it rejects
    changes until its folder has been closed and opened again, which restores the tree before that change.

    Changes from several threads are made one after the other. A forked child of the process that opened the folder can
    query the tree, but not change it.

    Parameters
    ----------
    path : path-like
        The folder: empty, or that of a tree. If it does not exist, it is created with access for its owner only; its
        parent must exist.
    sync_every : int, default 1
        The number of changes after which to wait for the disk. With a value above 1, a crash of the machine may lose up
        to ``sync_every - 1`` of the last changes. :meth:`sync` waits at once.
    snapshot_bytes : int, default 2**26
        The size of the journal, in bytes, above which a snapshot replaces it; at least the size of the last snapshot.
    snapshot_seconds : float, default 10.0
        The total time of the changes in the journal, in seconds, above which a snapshot replaces it; at least 4 times
        the time of the last snapshot. Opening the folder takes about this long.
    read_only : bool, default False
        Open an existing tree for queries and write nothing, for example if the disk is full or cannot be written.
        Queries with an ``epsilon`` above 0 and changes are not possible. The folder is not locked: other processes may
        open it afterwards, and their changes are not seen. A folder that is open for changes cannot be opened.
    **options
        Options of :class:`~cmt_numba.ContextualMemoryTree` for a new tree. An existing tree keeps its options:
        different values raise an error, except that ``n_threads`` replaces the stored value and ``random_state`` is
        ignored.

    Raises
    ------
    AlreadyOpenError
        If the folder is already open in this or another process.
    cmt_numba.persistence.FileFormatError
        If the folder is damaged or not that of a tree.
    OSError
        If the folder cannot be read or written. If it can be read, try ``read_only``.
    TypeError, ValueError
        If an option is invalid or differs from that of the tree in the folder.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> with DurableTree(folder.name, random_state=0) as tree:
    ...     ids = tree.insert(np.eye(3))
    ...     tree.remove(ids[:1])
    >>> tree = DurableTree(folder.name)
    >>> len(tree), tree.sequence
    (2, 2)
    >>> tree.close()
    >>> folder.cleanup()
    """

    _tables: Tables | None = None  # of a subclass, beside the entries of the journal

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        sync_every: int = 1,
        snapshot_bytes: int = 1 << 26,
        snapshot_seconds: float = 10.0,
        read_only: bool = False,
        **options: Any,
    ) -> None:
        self._sync_every = check_integer("sync_every", sync_every, 1)
        self._snapshot_bytes = check_integer("snapshot_bytes", snapshot_bytes, 0)
        self._snapshot_seconds = check_real("snapshot_seconds", snapshot_seconds, 0.0, 1e9)
        fresh = ContextualMemoryTree(**options)
        self._process = os.getpid()
        self._changing = threading.RLock()
        self._under_way = False  # whether the thread that holds the lock is making a change
        self._notes_returned = True  # whether the current change records returned memories
        self._forgotten: list[np.ndarray] = []  # ids evicted by the current change
        self._to_forget: np.ndarray | None = None  # ids that a replayed change must evict
        self._returned: deque[np.ndarray] = deque()  # ids returned by queries during a change of another thread
        self._as_reopened = self._is_ambiguous = False  # see _replay.recover
        self._refusal: str | None = None  # the reason why the tree cannot be changed
        self._sequence = self._unsynced = 0
        self._as_one = self._only_in_memory = False  # see _journaling.as_one
        self._journal = self._last_snapshot = _Effort(0, 0.0)
        self._folder = Folder(path, read_only=bool(read_only), tables=self._tables)
        try:
            if self._folder.is_new:
                self._become_the_same(fresh)
                self._folder.create(self._save_snapshot, lambda: pack_entry(0, self._snapshot_entry()))
            else:
                self._recover(fresh, options)
            if read_only:
                self._refusal = _READ_ONLY
                if self._tables is None:
                    self._folder.close()
        except BaseException:
            self._folder.close()
            raise

    # What is written

    @property
    def path(self) -> Path:
        """The folder."""
        return self._folder.path

    @property
    def sequence(self) -> int:
        """The number of changes since the tree was created. Drawing a random number is a change."""
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
            If the tree is closed or could not be written.
        """
        with self._alone():
            self._enter_notes()
            self._sync()

    def snapshot(self) -> None:
        """Replace the journal by a snapshot. This happens automatically when the journal gets long.

        Raises
        ------
        JournalError
            If the tree is closed or could not be written.
        OSError
            If the snapshot cannot be written. The journal is unchanged.
        """
        with self._alone():
            self._enter_notes()
            self._sync()
            if self._folder.base < self._sequence:
                self._take_snapshot()

    def close(self) -> None:
        """Write all changes to disk and close the folder. The tree can still be queried, but not changed.

        Raises
        ------
        JournalError
            If not all changes could be written; the folder is closed nevertheless.
        """
        if self._is_a_fork():
            self._refusal = _CLOSED
            self._folder.close()
            return
        with self._changing:
            if self._refusal in (_CLOSED, _READ_ONLY):
                return
            try:
                self._enter_notes()
                if self._refusal is None:
                    self._sync()
            finally:
                self._refusal = _CLOSED
                self._folder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Changes

    insert = journaled("insert", ContextualMemoryTree.insert)
    update = journaled("update", ContextualMemoryTree.update)
    teach = journaled("teach", ContextualMemoryTree.teach)
    remove = journaled("remove", ContextualMemoryTree.remove)
    replace = journaled("replace", ContextualMemoryTree.replace)
    reroute = journaled("reroute", ContextualMemoryTree.reroute)
    compact = journaled("compact", ContextualMemoryTree.compact)
    _draw_word = journaled("draw", ContextualMemoryTree._draw_word, synced=False)  # losing a draw does no harm
    _enter_returned = journaled(_RETURN, ContextualMemoryTree._enter_returned, synced=False)

    def _note_returned(self, ids: np.ndarray) -> None:
        if self._in_a_change():
            if self._notes_returned:
                super()._note_returned(ids)
        elif self._eviction.minds_queries and self._refusal not in _REMEDIES and not self._is_a_fork():
            self._returned.append(ids)
            if self._changing.acquire(blocking=False):  # otherwise the thread that holds the lock writes them
                try:
                    self._enter_notes()
                finally:
                    self._changing.release()

    def _enter_notes(self) -> None:
        """Journal the memories returned by queries. If this fails, changes are rejected, but queries still work."""
        while self._returned and self._refusal is None:
            with suppress(JournalError):
                self._enter_returned(self._returned.popleft())
        if self._refusal is not None:
            self._returned.clear()

    def _choose_to_forget(self, n: int) -> np.ndarray:
        chosen = super()._choose_to_forget(n)
        if self._to_forget is not None:
            if self._to_forget.size < n:
                raise ValueError("it does not list the evicted memories")
            chosen, self._to_forget = check_ids(self._to_forget[:n]), self._to_forget[n:]
            check_known(chosen, self._slots(chosen))
        self._forgotten.append(chosen)
        return chosen

    # Copies are in-memory trees

    def __reduce__(self) -> tuple[Any, ...]:
        return ContextualMemoryTree.__new__, (ContextualMemoryTree,), self.__getstate__()

    @classmethod
    def load(cls, path: str | os.PathLike[str], mmap: bool = False) -> Self:
        """Not supported for durable trees: use ``ContextualMemoryTree.load`` or open a folder.

        Raises
        ------
        TypeError
            Always.
        """
        raise TypeError("a file is loaded by ContextualMemoryTree.load; a folder is opened by DurableTree(path)")

    # Journaling

    def _in_a_change(self) -> bool:
        """Return whether the calling thread is making a change; nested changes are part of it."""
        if not self._changing.acquire(blocking=False):
            return False
        try:
            return self._under_way
        finally:
            self._changing.release()

    def _change(
        self, name: str, operation: Operation, arguments: dict[str, Any], shown: dict[str, Any], synced: bool
    ) -> Any:
        """Make a change and journal it."""
        with self._alone():
            if name != _RETURN:
                self._enter_notes()  # queries before the change
            arguments = plain_arguments(arguments)
            started = perf_counter()
            # If the following is interrupted, for example by a signal, memory and journal may disagree.
            self._refusal = f"{name} was interrupted, and the tree in memory may differ from the journal"
            try:
                answer = self._do(operation, arguments | shown)
            except (LookupError, TypeError, ValueError):
                self._refusal = None
                raise
            forgotten = np.concatenate(self._forgotten) if self._forgotten else None
            entry = Entry(name, operation.stored(arguments), fingerprint(self), forgotten, self._folder.identity)
            self._enter(entry, perf_counter() - started, synced)
            self._refusal = None
            if name != _RETURN:
                self._enter_notes()  # queries during the change
            if not self._as_one:
                self._take_snapshot_if_due()
            return answer

    def _do(self, operation: Operation, arguments: dict[str, Any]) -> Any:
        self._under_way = True
        self._notes_returned = operation.notes_returned or self._as_reopened
        self._forgotten = []
        try:
            return operation.method(self, **arguments)
        finally:
            self._under_way = False

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
        """Lock the tree for a change or for writing."""
        if self._is_a_fork() and self._refusal is None:
            message = f"{self.path} is open in the process that this one was forked from; change the tree there"
            raise JournalError(message)
        with self._changing:
            if self._refusal is not None:
                remedy = _REMEDIES.get(self._refusal, "close it and open it again")
                raise JournalError(f"{self.path}: {self._refusal}; {remedy}")
            yield

    def _is_a_fork(self) -> bool:
        """Return whether this process was forked from the one that opened the folder."""
        return self._process != os.getpid()

    # Snapshots

    def _most_bytes(self) -> int:
        """Return the size of the journal above which a snapshot is due."""
        return max(self._snapshot_bytes, self._last_snapshot.n_bytes)

    def _take_snapshot_if_due(self) -> None:
        most_seconds = max(self._snapshot_seconds, _TIMES_A_SNAPSHOT * self._last_snapshot.seconds)
        if self._journal.n_bytes <= self._most_bytes() and self._journal.seconds <= most_seconds:
            return
        self._sync()
        try:
            self._take_snapshot()
        except (MemoryError, OSError) as error:  # the journal holds the changes
            self._journal = _Effort(0, 0.0)  # try again after as many further changes
            message = f"{self.path}: no snapshot could be taken, so the journal keeps growing: {error}"
            warnings.warn(message, RuntimeWarning, stacklevel=4)

    def _take_snapshot(self) -> None:
        """Replace the journal by a snapshot. The journal must be synced, except for changes only in the snapshot."""
        started = perf_counter()
        self._folder.check_room_for(self._sequence)
        path = self._folder.snapshot_path(self._sequence)
        self._save_snapshot(path)
        with self._writing():
            self._folder.restart(self._sequence, pack_entry(self._sequence, self._snapshot_entry()))
        self._journal, self._last_snapshot = _Effort(0, 0.0), _Effort(path.stat().st_size, perf_counter() - started)

    def _save_snapshot(self, path: Path) -> None:
        identity, mode = self._folder.identify(), self._folder.mode

        def contents() -> Contents:
            fields, arrays = self._contents()
            return Contents(_KIND, fields | {IDENTITY: identity}, arrays)

        def made_of(read: Contents) -> ContextualMemoryTree:
            return ContextualMemoryTree._made_of(read.fields, read.arrays, thorough=True)

        self._lock.change(lambda: write_object(path, contents, made_of, mode))

    def _snapshot_entry(self) -> Entry:
        return Entry(SNAPSHOT, {}, fingerprint(self), journal=self._folder.identify())

    # Opening

    def _recover(self, fresh: ContextualMemoryTree, options: dict[str, Any]) -> None:
        """Restore the tree from the snapshot and the changes since."""
        if not recover(self, lambda: self._go_through(fresh, options)):
            message = (
                f"{self.path}: replaying the changes since the last snapshot gave different trees than before, for "
                "example because of another processor or another version of a library; all memories are present"
            )
            warnings.warn(message, RuntimeWarning, stacklevel=4)

    def _go_through(self, fresh: ContextualMemoryTree, options: dict[str, Any]) -> bool:
        """Restore the tree from the folder; return whether it is identical to the one before."""
        with closing(self._folder.entries()) as entries:
            sequence, packed = next(entries)
            with refusing_entry(self._folder.journal_path, sequence):
                entry = unpack_entry(self._folder.journal_path, sequence, packed)
                if entry.name != SNAPSHOT:
                    raise ValueError("a journal must begin with a snapshot")
                if entry.journal is None and entry.version > 1:
                    raise ValueError("it has no identity of a journal")
            self._folder.belong(entry.journal)
            self._start_from(sequence, fresh, options)
            with refusing_entry(self._folder.journal_path, sequence):
                exact = has_fingerprint(self, entry.after)
            self._has_warned = True  # of what was done long ago
            for sequence, packed in entries:
                started = perf_counter()
                with refusing_entry(self._folder.journal_path, sequence):
                    entry = unpack_entry(self._folder.journal_path, sequence, packed)
                    redo(self, entry, exact)
                    exact &= has_fingerprint(self, entry.after)
                self._sequence = sequence
                self._lengthen(len(packed), perf_counter() - started)
            self._has_warned = False
            return exact

    def _start_from(self, sequence: int, fresh: ContextualMemoryTree, options: dict[str, Any]) -> None:
        """Restore the tree of a snapshot."""
        path, started = self._folder.snapshot_path(sequence), perf_counter()
        if not check_regular(path):
            raise FileFormatError(path, "is missing; restore it from a copy")
        contents = read_object(path, (_KIND,), mmap=False)
        if contents.fields.get(IDENTITY) != self._folder.identity:
            raise FileFormatError(path, "is of another journal than the one in the folder")
        with refusing(path):
            tree = ContextualMemoryTree._made_of(contents.fields, contents.arrays, thorough=True)
        self._journal = _Effort(0, 0.0)
        self._last_snapshot = _Effort(path.stat().st_size, perf_counter() - started)
        given, kept = fresh._named_options(), tree._named_options()
        for name in options:
            if name in kept and given[name] != kept[name]:
                message = (
                    f"{name} must be {kept[name]!r}, as for the tree in {self.path}, or omitted, not {given[name]!r}"
                )
                raise ValueError(message)
        if "n_threads" in options:
            tree._n_threads = fresh._n_threads
        self._become_the_same(tree)
        self._sequence = sequence

    def _become_the_same(self, tree: ContextualMemoryTree) -> None:
        vars(self).update(vars(tree))

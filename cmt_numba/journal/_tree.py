"""``DurableTree``: a tree that lives in a folder."""

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
from ._database import MOST_BYTES
from ._entries import Entry, count_argument_bytes, pack_entry, plain_arguments, unpack_entry
from ._errors import AlreadyOpenError, JournalError
from ._folder import IDENTITY, Folder
from ._journaling import journaled
from ._links import check_regular
from ._operations import SNAPSHOT, Operation
from ._outline import is_outline, outline
from ._replay import recover, redo, refusing_entry

_KIND = "ContextualMemoryTree"  # of what is in a snapshot
_RETURN = "return"  # the operation that takes note of what queries have returned
_CLOSED = "the tree is closed"
_READ_ONLY = "the tree can only be read"
_REMEDIES = {_CLOSED: "open it again", _READ_ONLY: "open it without read_only"}
_TIMES_A_SNAPSHOT = 4  # as long at least is changed before the next one, so that these take a fifth of the time at most


class _Effort(NamedTuple):
    """What it takes to read something again."""

    n_bytes: int
    seconds: float


class DurableTree(ContextualMemoryTree):
    """A tree that lives in a folder: what was done to it survives when its process is killed.

    Each change (``insert``, ``update``, ``remove``, ...) is entered in a journal on the disk before the call returns,
    and each block of ``learn`` is. The next time the folder is opened, the tree is what it was after the last of them,
    bit for bit. Everything else is as with any other tree.

    A change that fails because of its arguments leaves nothing behind. One that fails halfway (out of memory, disk
    full, interrupted) leaves a tree in memory that is not the one on the disk: it can still be asked, but refuses to be
    changed until its folder has been closed and opened again, which gives the tree before that change.

    Changes from several threads are made one after the other. A process that has been forked from the one that opened
    the folder can ask the tree, but not change it.

    Parameters
    ----------
    path : path-like
        The folder: empty, or that of a tree. It is made if it does not exist, for its owner alone; the one that it lies
        in must.
    sync_every : int, default 1
        After how many changes to wait until the disk has them. With more than 1 a crash may cost the last
        ``sync_every - 1`` changes, never one from the middle; :meth:`sync` waits at once.
    snapshot_bytes : int, default 2**26
        How long the journal may get, in bytes, before a snapshot takes its place; but at least as long as the last
        snapshot.
    snapshot_seconds : float, default 10.0
        How long the changes in the journal may have taken, in seconds, before a snapshot takes their place: opening the
        folder takes about as long. But at least 4 times as long as the last snapshot took.
    read_only : bool, default False
        Open the tree as it is on the disk, which must be there, and write nothing: where the disk is full, or cannot
        be written. The tree can be asked, but not with an ``epsilon`` above 0, and not be changed. Nothing is kept
        open: others may open the folder at once, and what they change is not seen. A folder that is open to be changed
        cannot be opened so meanwhile.
    **options
        Those of :class:`~cmt_numba.ContextualMemoryTree`, for a tree that is new. A tree that is there keeps its own:
        other options raise an error, but for ``n_threads``, which takes the place of what was, and ``random_state``,
        which is not looked at.

    Raises
    ------
    AlreadyOpenError
        If the folder is open already, in this process or another.
    cmt_numba.persistence.FileFormatError
        If what is in the folder is damaged, or not a tree's; it says what is wrong.
    OSError
        If the folder cannot be read or written; with ``read_only`` it may be read still.
    TypeError, ValueError
        If an option cannot be used, or is another one than that of the tree in the folder.

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
        self._under_way = False  # a change, in the thread that holds the lock
        self._notes_returned = True  # whether that change does
        self._forgotten: list[np.ndarray] = []  # what it has forgotten to make room
        self._to_forget: np.ndarray | None = None  # what it must forget, as the journal says
        self._returned: deque[np.ndarray] = deque()  # by queries, while another thread was making a change
        self._as_reopened = self._is_ambiguous = False  # see _replay.recover
        self._refusal: str | None = None  # why the tree cannot be changed
        self._sequence = self._unsynced = 0
        self._journal = self._last_snapshot = _Effort(0, 0.0)
        self._folder = Folder(path, read_only=bool(read_only))
        try:
            if self._folder.is_new:
                self._become_the_same(fresh)
                self._folder.create(self._save_snapshot, lambda: pack_entry(0, self._snapshot_entry()))
            else:
                self._recover(fresh, options)
            if read_only:
                self._refusal = _READ_ONLY
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
        """How many changes there have been since the tree was new; drawing a random number is one."""
        return self._sequence

    @property
    def synced_sequence(self) -> int:
        """How many of the changes are on the disk."""
        return self._folder.synced

    def sync(self) -> None:
        """Bring all changes to the disk, and wait until they are there.

        Raises
        ------
        JournalError
            If the tree is closed or could not be written.
        """
        with self._alone():
            self._enter_notes()
            self._sync()

    def snapshot(self) -> None:
        """Put a snapshot in the place of the journal. Trees do so on their own when the journal gets long.

        Raises
        ------
        JournalError
            If the tree is closed or could not be written.
        OSError
            If the snapshot cannot be written. The journal is there as before.
        """
        with self._alone():
            self._enter_notes()
            self._sync()
            if self._folder.base < self._sequence:
                self._take_snapshot()

    def close(self) -> None:
        """Bring all changes to the disk and let go of the folder. The tree can still be asked, but not changed.

        Raises
        ------
        JournalError
            If not all changes could be written; the folder is closed all the same.
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

    # What changes it

    insert = journaled("insert", ContextualMemoryTree.insert)
    update = journaled("update", ContextualMemoryTree.update)
    teach = journaled("teach", ContextualMemoryTree.teach)
    remove = journaled("remove", ContextualMemoryTree.remove)
    replace = journaled("replace", ContextualMemoryTree.replace)
    reroute = journaled("reroute", ContextualMemoryTree.reroute)
    compact = journaled("compact", ContextualMemoryTree.compact)
    _draw_word = journaled("draw", ContextualMemoryTree._draw_word, synced=False)  # nothing that anybody could miss
    _enter_returned = journaled(_RETURN, ContextualMemoryTree._enter_returned, synced=False)

    def _note_returned(self, ids: np.ndarray) -> None:
        if self._in_a_change():
            if self._notes_returned:
                super()._note_returned(ids)
        elif self._eviction.minds_queries and self._refusal not in _REMEDIES and not self._is_a_fork():
            self._returned.append(ids)
            if self._changing.acquire(blocking=False):  # or else whoever has the lock does so
                try:
                    self._enter_notes()
                finally:
                    self._changing.release()

    def _enter_notes(self) -> None:
        """Enter what queries have returned. If that cannot be written, changes are refused, but queries answer."""
        while self._returned and self._refusal is None:
            with suppress(JournalError):
                self._enter_returned(self._returned.popleft())
        if self._refusal is not None:
            self._returned.clear()

    def _choose_to_forget(self, n: int) -> np.ndarray:
        chosen = super()._choose_to_forget(n)
        if self._to_forget is not None:
            if self._to_forget.size < n:
                raise ValueError("it does not say what was forgotten")
            chosen, self._to_forget = check_ids(self._to_forget[:n]), self._to_forget[n:]
            check_known(chosen, self._slots(chosen))
        self._forgotten.append(chosen)
        return chosen

    # Copies are trees like any other

    def __reduce__(self) -> tuple[Any, ...]:
        return ContextualMemoryTree.__new__, (ContextualMemoryTree,), self.__getstate__()

    @classmethod
    def load(cls, path: str | os.PathLike[str], mmap: bool = False) -> Self:
        """Not for trees that live in folders: use ``ContextualMemoryTree.load``.

        Raises
        ------
        TypeError
            Always.
        """
        raise TypeError("a file is loaded by ContextualMemoryTree.load; a folder is opened by DurableTree(path)")

    # Changes

    def _in_a_change(self) -> bool:
        """Return whether this thread is in the middle of a change, of which all that it does is a part."""
        if not self._changing.acquire(blocking=False):
            return False
        try:
            return self._under_way
        finally:
            self._changing.release()

    def _change(
        self, name: str, operation: Operation, arguments: dict[str, Any], shown: dict[str, Any], synced: bool
    ) -> Any:
        """Do a change and enter it in the journal."""
        with self._alone():
            if name != _RETURN:
                self._enter_notes()  # which came before
            arguments = plain_arguments(arguments)
            started = perf_counter()
            # Whatever interrupts what follows, be it a signal: memory and journal may not agree then.
            self._refusal = f"{name} was broken off, and what is in memory may not be what is in the journal"
            try:
                answer = self._do(operation, arguments | shown)
            except (LookupError, TypeError, ValueError):
                self._refusal = None
                raise
            forgotten = np.concatenate(self._forgotten) if self._forgotten else None
            entry = Entry(name, operation.stored(arguments), outline(self), forgotten, self._folder.identity)
            self._enter(entry, perf_counter() - started, synced)
            self._refusal = None
            if name != _RETURN:
                self._enter_notes()  # which came meanwhile
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
        """Enter a change that has been done."""
        if count_argument_bytes(entry.arguments) > min(self._most_bytes(), MOST_BYTES):
            self._sync()
            self._sequence += 1
            with self._writing():
                self._take_snapshot()  # which says the same, and would be due anyway
            return
        packed = pack_entry(self._sequence + 1, entry)
        with self._writing():
            self._folder.append(self._sequence + 1, packed)
        self._sequence += 1
        self._lengthen(len(packed), seconds)
        self._unsynced += synced
        if self._unsynced >= self._sync_every:
            self._sync()

    def _lengthen(self, n_bytes: int, seconds: float) -> None:
        self._journal = _Effort(self._journal.n_bytes + n_bytes, self._journal.seconds + seconds)

    def _sync(self) -> None:
        with self._writing():
            self._folder.sync(self._sequence)
        self._unsynced = 0

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Refuse all further changes if something cannot be written to the journal."""
        try:
            yield
        except BaseException as error:
            self._refusal = "a change could not be written to the journal"
            if isinstance(error, OSError | FileFormatError | AlreadyOpenError):
                raise JournalError(f"{self.path}: {self._refusal}: {error}; close it and open it again") from error
            raise

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Have the tree to oneself, to change or to write it."""
        if self._is_a_fork() and self._refusal is None:
            raise JournalError(f"{self.path} is open in the process that this one was forked from")
        with self._changing:
            if self._refusal is not None:
                remedy = _REMEDIES.get(self._refusal, "close it and open it again")
                raise JournalError(f"{self.path}: {self._refusal}; {remedy}")
            yield

    def _is_a_fork(self) -> bool:
        """Return whether another process opened the folder: what holds the lock there never releases it here."""
        return self._process != os.getpid()

    # Snapshots

    def _most_bytes(self) -> int:
        """Return how long the journal may get."""
        return max(self._snapshot_bytes, self._last_snapshot.n_bytes)

    def _take_snapshot_if_due(self) -> None:
        most_seconds = max(self._snapshot_seconds, _TIMES_A_SNAPSHOT * self._last_snapshot.seconds)
        if self._journal.n_bytes <= self._most_bytes() and self._journal.seconds <= most_seconds:
            return
        self._sync()
        try:
            self._take_snapshot()
        except (MemoryError, OSError) as error:  # the changes are in the journal
            self._journal = _Effort(0, 0.0)  # try again when there is as much once more
            message = f"{self.path}: no snapshot could be taken, and the journal gets longer: {error}"
            warnings.warn(message, RuntimeWarning, stacklevel=4)

    def _take_snapshot(self) -> None:
        """Put a snapshot in the place of the journal, which is on the disk but for what only the snapshot will say."""
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

        self._guard.change(lambda: write_object(path, contents, made_of, mode))

    def _snapshot_entry(self) -> Entry:
        return Entry(SNAPSHOT, {}, outline(self), journal=self._folder.identify())

    # Opening

    def _recover(self, fresh: ContextualMemoryTree, options: dict[str, Any]) -> None:
        """Become the tree in the folder: the snapshot, and what has been done since."""
        if not recover(self, lambda: self._go_through(fresh, options)):
            message = (
                f"{self.path}: the changes since the last snapshot have led to other trees than before, as on another "
                "kind of processor or with another version of a library; every memory is there"
            )
            warnings.warn(message, RuntimeWarning, stacklevel=4)

    def _go_through(self, fresh: ContextualMemoryTree, options: dict[str, Any]) -> bool:
        """Become the tree in the folder; return whether it is the very same as before."""
        with closing(self._folder.entries()) as entries:
            sequence, packed = next(entries)
            with refusing_entry(self._folder.journal_path, sequence):
                entry = unpack_entry(self._folder.journal_path, sequence, packed)
                if entry.name != SNAPSHOT:
                    raise ValueError("a journal must begin with a snapshot")
                if entry.journal is None and entry.version > 1:
                    raise ValueError("it does not say of which journal it is")
            self._folder.belong(entry.journal)
            self._start_from(sequence, fresh, options)
            with refusing_entry(self._folder.journal_path, sequence):
                exact = is_outline(self, entry.after)
            for sequence, packed in entries:
                started = perf_counter()
                with refusing_entry(self._folder.journal_path, sequence):
                    entry = unpack_entry(self._folder.journal_path, sequence, packed)
                    redo(self, entry, exact)
                    exact &= is_outline(self, entry.after)
                self._sequence = sequence
                self._lengthen(len(packed), perf_counter() - started)
            return exact

    def _start_from(self, sequence: int, fresh: ContextualMemoryTree, options: dict[str, Any]) -> None:
        """Become the tree of a snapshot."""
        path, started = self._folder.snapshot_path(sequence), perf_counter()
        if not check_regular(path):
            raise FileFormatError(path, "is missing")
        contents = read_object(path, (_KIND,), mmap=False)
        if contents.fields.get(IDENTITY) != self._folder.identity:
            raise FileFormatError(path, "is of another journal than that in the folder")
        with refusing(path):
            tree = ContextualMemoryTree._made_of(contents.fields, contents.arrays, thorough=True)
        self._journal = _Effort(0, 0.0)
        self._last_snapshot = _Effort(path.stat().st_size, perf_counter() - started)
        given, kept = fresh._named_options(), tree._named_options()
        for name in options:
            if name in kept and given[name] != kept[name]:
                raise ValueError(f"{name} must be {kept[name]!r} as of the tree in {self.path}, not {given[name]!r}")
        if "n_threads" in options:
            tree._n_threads = fresh._n_threads
        self._become_the_same(tree)
        self._sequence = sequence

    def _become_the_same(self, tree: ContextualMemoryTree) -> None:
        vars(self).update(vars(tree))

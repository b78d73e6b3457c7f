"""``DurableTree``: a tree that lives in a folder."""

from __future__ import annotations

import inspect
import os
import sqlite3
import threading
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from time import perf_counter
from typing import Any, Concatenate, NamedTuple, ParamSpec, Self, TypeVar

import numpy as np

from .._state import COUNT, FREE_LEAF, FREE_NODE, LEAVES_END, N_MEMORIES, NEXT_ID, NODES_END, ROOT
from .._validation import check_integer, check_real
from ..persistence import FileFormatError
from ..tree import ContextualMemoryTree
from ._database import MOST_BYTES
from ._entries import Entry, count_argument_bytes, pack_entry, plain_arguments, unpack_entry
from ._errors import JournalError
from ._folder import Folder

_SNAPSHOT = "snapshot"
_CLOSED = "the tree is closed"
_TIMES_A_SNAPSHOT = 4  # as long at least is changed before the next one, so that these take a fifth of the time at most
_TELLING = [ROOT, COUNT, NODES_END, FREE_NODE, LEAVES_END, FREE_LEAF]  # counters that other trees would not share

P = ParamSpec("P")
T = TypeVar("T")
Method = Callable[Concatenate[Any, P], T]


class _Change(NamedTuple):
    """What an entry's name stands for."""

    method: Callable[..., Any]
    synced: bool


_changes: dict[str, _Change] = {}


class _Effort(NamedTuple):
    """What it takes to read something again."""

    n_bytes: int
    seconds: float


def journaled(method: Method[P, T], *, synced: bool = True) -> Method[P, T]:
    """Return a method of a tree as one that is entered in the journal.

    Parameters
    ----------
    method : function
        One that changes the tree: the same way for the same arguments. What it raises of LookupError, TypeError and
        ValueError it must raise before anything has changed.
    synced : bool, default True
        Whether the change counts for ``sync_every``. One that does not waits for the next that does.
    """
    name, signature = method.__name__.lstrip("_"), inspect.signature(method)
    _changes[name] = _Change(method, synced)

    @wraps(method)
    def change(self: DurableTree, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if self._in_a_change():
            return method(self, *args, **kwargs)
        arguments = signature.bind(self, *args, **kwargs).arguments
        shown = {"progress": arguments.pop("progress")} if "progress" in arguments else {}
        del arguments["self"]
        answer: T = self._change(name, arguments, shown)
        return answer

    return change


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
        The folder. It is made if it does not exist; the one that it lies in must.
    sync_every : int, default 1
        After how many changes to wait until the disk has them. With more than 1 a crash may cost the last
        ``sync_every - 1`` changes, never one from the middle; :meth:`sync` waits at once.
    snapshot_bytes : int, default 2**26
        How long the journal may get, in bytes, before a snapshot takes its place; but at least as long as the last
        snapshot.
    snapshot_seconds : float, default 10.0
        How long the changes in the journal may have taken, in seconds, before a snapshot takes their place: opening the
        folder takes about as long. But at least 4 times as long as the last snapshot took.
    **options
        Those of :class:`~cmt_numba.ContextualMemoryTree`, for a tree that is new. A tree that is there keeps its own:
        other options raise an error, but for ``n_threads``, which takes the place of what was, and ``random_state``,
        which is not looked at.

    Raises
    ------
    AlreadyOpenError
        If the folder is open already, in this process or another.
    cmt_numba.persistence.FileFormatError
        If what is in the folder is damaged; it says what is wrong.
    OSError
        If the folder cannot be read or written.
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
        **options: Any,
    ) -> None:
        self._sync_every = check_integer("sync_every", sync_every, 1)
        self._snapshot_bytes = check_integer("snapshot_bytes", snapshot_bytes, 0)
        self._snapshot_seconds = check_real("snapshot_seconds", snapshot_seconds, 0.0, 1e9)
        fresh = ContextualMemoryTree(**options)
        self._process = os.getpid()
        self._changing = threading.RLock()
        self._under_way = False  # a change, in the thread that holds the lock
        self._refusal: str | None = None  # why the tree cannot be changed
        self._sequence = self._unsynced = 0
        self._journal = self._last_snapshot = _Effort(0, 0.0)
        self._folder = Folder(path)
        try:
            if self._folder.is_new:
                self._become_the_same(fresh)
                self._folder.create(self.save, pack_entry(0, Entry(_SNAPSHOT, {}, _outline(self))))
            else:
                self._recover(fresh, options)
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
            if self._refusal == _CLOSED:
                return
            try:
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

    insert = journaled(ContextualMemoryTree.insert)
    update = journaled(ContextualMemoryTree.update)
    teach = journaled(ContextualMemoryTree.teach)
    remove = journaled(ContextualMemoryTree.remove)
    replace = journaled(ContextualMemoryTree.replace)
    reroute = journaled(ContextualMemoryTree.reroute)
    compact = journaled(ContextualMemoryTree.compact)
    _draw_word = journaled(ContextualMemoryTree._draw_word, synced=False)  # nothing that anybody could miss

    _enter_returned = journaled(ContextualMemoryTree._enter_returned, synced=False)

    def _note_returned(self, ids: np.ndarray) -> None:
        if self._refusal is None and not self._is_a_fork():
            super()._note_returned(ids)

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

    def _change(self, name: str, arguments: dict[str, Any], shown: dict[str, Any]) -> Any:
        """Do a change and enter it in the journal."""
        with self._alone():
            arguments = plain_arguments(arguments)
            started = perf_counter()
            # Whatever interrupts what follows, be it a signal: memory and journal may not agree then.
            self._refusal = f"{name} was broken off, and what is in memory may not be what is in the journal"
            try:
                answer = self._do(name, arguments | shown)
            except (LookupError, TypeError, ValueError):
                self._refusal = None
                raise
            self._enter(Entry(name, arguments, _outline(self)), perf_counter() - started)
            self._refusal = None
            self._take_snapshot_if_due()
            return answer

    def _do(self, name: str, arguments: dict[str, Any]) -> Any:
        self._under_way = True
        try:
            return _changes[name].method(self, **arguments)
        finally:
            self._under_way = False

    def _enter(self, entry: Entry, seconds: float) -> None:
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
        self._unsynced += _changes[entry.name].synced
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
            if isinstance(error, OSError | sqlite3.Error):
                raise JournalError(f"{self.path}: {self._refusal}: {error}; close it and open it again") from error
            raise

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Have the tree to oneself, to change or to write it."""
        if self._is_a_fork() and self._refusal is None:
            raise JournalError(f"{self.path} is open in the process that this one was forked from")
        with self._changing:
            if self._refusal is not None:
                remedy = "open it" if self._refusal == _CLOSED else "close it and open it"
                raise JournalError(f"{self.path}: {self._refusal}; {remedy} again")
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
        path = self._folder.snapshot_path(self._sequence)
        self.save(path)
        with self._writing():
            self._folder.restart(self._sequence, pack_entry(self._sequence, Entry(_SNAPSHOT, {}, _outline(self))))
        self._journal, self._last_snapshot = _Effort(0, 0.0), _Effort(path.stat().st_size, perf_counter() - started)

    # Opening

    def _recover(self, fresh: ContextualMemoryTree, options: dict[str, Any]) -> None:
        """Become the tree in the folder: the snapshot, and what has been done since."""
        entries = self._folder.entries()
        sequence, packed = next(entries)
        with self._refusing(sequence):
            entry = unpack_entry(self._folder.journal_path, sequence, packed)
            if entry.name != _SNAPSHOT:
                raise ValueError("a journal must begin with a snapshot")
        self._start_from(sequence, fresh, options)
        with self._refusing(sequence):
            exact = _is_outline(self, entry.after)
        for sequence, packed in entries:
            started = perf_counter()
            with self._refusing(sequence):
                entry = unpack_entry(self._folder.journal_path, sequence, packed)
                self._redo(entry, exact)
                exact &= _is_outline(self, entry.after)
            self._sequence = sequence
            self._lengthen(len(packed), perf_counter() - started)
        if not exact:
            message = (
                f"{self.path}: the changes since the last snapshot have led to other trees than before, as on another "
                "kind of processor or with another version of a library; every memory is there"
            )
            warnings.warn(message, RuntimeWarning, stacklevel=4)

    def _start_from(self, sequence: int, fresh: ContextualMemoryTree, options: dict[str, Any]) -> None:
        """Become the tree of a snapshot."""
        path, started = self._folder.snapshot_path(sequence), perf_counter()
        if not path.exists():
            raise FileFormatError(path, "is missing")
        tree = ContextualMemoryTree.load(path)
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

    def _redo(self, entry: Entry, exact: bool) -> None:
        """Do a change of the journal."""
        if entry.name not in _changes:
            raise ValueError(f"there is no such change as {entry.name!r:.50}")
        inspect.signature(_changes[entry.name].method).bind(self, **entry.arguments)
        try:
            self._do(entry.name, entry.arguments)
        except (LookupError, TypeError, ValueError):
            # Where trees have grown otherwise than before, what a query explored may be no place in them. That is
            # passed over; whether a memory is missing is seen from their number.
            if exact:
                raise

    @contextmanager
    def _refusing(self, sequence: int) -> Iterator[None]:
        """Turn what is wrong with an entry into an error that names it."""
        try:
            yield
        except FileFormatError:
            raise
        except (AssertionError, LookupError, TypeError, ValueError) as error:
            raise FileFormatError(self._folder.journal_path, f"entry {sequence} is not valid: {error}") from error


def _outline(tree: ContextualMemoryTree) -> dict[str, int]:
    """Return numbers that tell, at no cost, whether two trees that have been through the same changes are the same."""
    state = tree._state
    if state is None:
        return {"n_memories": 0, "next_id": 0, "trees": zlib.crc32(tree._streams.astype("<u8").tobytes())}
    numbers = np.concatenate([state.streams.astype("<u8"), state.counters[:, _TELLING].astype("<u8").reshape(-1)])
    totals = state.keys.totals
    return {
        "n_memories": int(totals[N_MEMORIES]),
        "next_id": int(totals[NEXT_ID]),
        "trees": zlib.crc32(numbers.tobytes()),
    }


def _is_outline(tree: ContextualMemoryTree, after: dict[str, int]) -> bool:
    """Return whether a tree is as it was; raise ValueError if it does not even have the same memories."""
    outline = _outline(tree)
    for name in ("n_memories", "next_id"):
        if outline[name] != after.get(name):
            raise ValueError(f"it leads to {name} {outline[name]}, not {after.get(name)!r:.50}")
    return outline["trees"] == after.get("trees")

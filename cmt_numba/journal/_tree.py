"""``DurableTree``: a tree that is stored in a folder."""

from __future__ import annotations

import os
import warnings
from collections import deque
from contextlib import suppress
from functools import partial
from time import perf_counter
from typing import Any, Self

import numpy as np

from .._concurrency.rwlock import changes
from .._validation import check_ids, check_known
from ..persistence._container import Contents
from ..persistence._trees import VALUES
from ..tree import ContextualMemoryTree
from ._entries import Entry, plain_arguments
from ._errors import JournalError
from ._fingerprint import fingerprint, has_fingerprint
from ._in_folder import CLOSED, READ_ONLY, REMEDIES, InFolder
from ._journaling import journaled
from ._operations import Operation
from ._replay import recover, redo

_RETURN = "return"  # the operation that records the memories returned by queries


class DurableTree(InFolder, ContextualMemoryTree):
    """A tree that is stored in a folder and whose changes survive a crash.

    Each change (``insert``, ``update``, ``remove``, ...), and each block of ``learn``, is written to a journal on disk
    before the call returns. When the folder is opened again, the tree is bit-identical to the one after the last
    change. Otherwise it behaves like any other tree.

    Opening a folder maps the keys instead of reading them, so it takes little time. Damaged keys are therefore found by
    :meth:`check_invariants`, and before the next snapshot; all else that is damaged is refused at once.

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
        to ``sync_every - 1`` of the last changes; a crash of the process loses none. :meth:`sync` waits at once.
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

    _kind_of_snapshot = "ContextualMemoryTree"
    _unread = VALUES

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
        fresh = ContextualMemoryTree(**options)
        self._given = fresh, options
        self._under_way = False  # whether the thread that holds the lock is making a change
        self._notes_returned = True  # whether the current change records returned memories
        self._forgotten: list[np.ndarray] = []  # ids evicted by the current change
        self._to_forget: np.ndarray | None = None  # ids that a replayed change must evict
        self._returned: deque[np.ndarray] = deque()  # ids returned by queries during a change of another thread
        self._as_reopened = self._is_ambiguous = False  # see _replay.recover
        how = {"sync_every": sync_every, "snapshot_bytes": snapshot_bytes, "snapshot_seconds": snapshot_seconds}
        self._open_folder(path, read_only=bool(read_only), **how)  # type: ignore[arg-type]
        try:
            if self._folder.is_new:
                self._become_the_same(fresh)
                self._create()
            else:
                self._recover()
            if read_only:
                self._refusal = READ_ONLY
                if self._tables is None:
                    self._folder.close()
        except BaseException:
            self._folder.close()
            raise

    # Changes

    insert = journaled("insert", ContextualMemoryTree.insert)
    update = journaled("update", ContextualMemoryTree.update)
    teach = journaled("teach", ContextualMemoryTree.teach)
    remove = journaled("remove", ContextualMemoryTree.remove)
    replace = journaled("replace", ContextualMemoryTree.replace)
    reroute = journaled("reroute", ContextualMemoryTree.reroute)
    rebuild = journaled("rebuild", ContextualMemoryTree.rebuild)
    compact = journaled("compact", ContextualMemoryTree.compact)
    _set_scorer = journaled("scorer", ContextualMemoryTree._set_scorer)
    _draw_word = journaled("draw", ContextualMemoryTree._draw_word, synced=False)  # losing a draw does no harm
    _enter_returned = journaled(_RETURN, ContextualMemoryTree._enter_returned, synced=False)

    def _note_returned(self, ids: np.ndarray) -> None:
        if self._in_a_change():
            if self._notes_returned:
                super()._note_returned(ids)
        elif self._forest.eviction.minds_queries and self._refusal not in REMEDIES and not self._is_a_fork():
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
            check_known(chosen, self._forest.slots_of(chosen))
        self._forgotten.append(chosen)
        return chosen

    @changes
    def check_invariants(self) -> None:
        """Check all that :meth:`ContextualMemoryTree.check_invariants` does, and that the last snapshot is not damaged.

        When a folder is opened the keys in it are not read, but only what lies around them. So this may find damage.

        Raises
        ------
        cmt_numba.persistence.FileFormatError
            If the snapshot is damaged.
        InvariantError
            If an invariant is violated.
        OSError
            If the snapshot cannot be read.
        """
        if self._refusal != CLOSED:
            self._verify()
        super().check_invariants()

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
            work = partial(self._make_and_enter, name, operation, arguments, shown, synced)
            answer = self._lock.ahead(work) if synced else work()
            if not self._as_one:
                self._take_snapshot_if_due()
            return answer

    def _make_and_enter(
        self, name: str, operation: Operation, arguments: dict[str, Any], shown: dict[str, Any], synced: bool
    ) -> Any:
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
        return answer

    def _do(self, operation: Operation, arguments: dict[str, Any]) -> Any:
        self._under_way = True
        self._notes_returned = operation.notes_returned or self._as_reopened
        self._forgotten = []
        try:
            return operation.method(self, **arguments)
        finally:
            self._under_way = False

    # Opening

    def _recover(self) -> None:
        """Restore the tree from the snapshot and the changes since."""
        exact = recover(self, self._go_through)
        self._forest.has_warned = False
        if not exact:
            message = (
                f"{self.path}: replaying the changes since the last snapshot gave different trees than before, for "
                "example because of another processor or another version of a library; all memories are present"
            )
            warnings.warn(message, RuntimeWarning, stacklevel=4)

    def _fingerprint(self) -> dict[str, int]:
        return fingerprint(self)

    def _has_fingerprint(self, after: dict[str, int]) -> bool:
        return has_fingerprint(self, after)

    def _contents_of_snapshot(self) -> Contents:
        return Contents(self._kind_of_snapshot, *self._contents())

    def _made_of_snapshot(self, contents: Contents, *, values: bool = True) -> ContextualMemoryTree:
        return ContextualMemoryTree._made_of(contents.fields, contents.arrays, thorough=True, values=values)

    def _redo(self, entry: Entry, exact: bool) -> None:
        redo(self, entry, exact)

    def _begin_from(self, restored: ContextualMemoryTree) -> None:
        fresh, options = self._given
        given, kept = fresh._forest.options, restored._forest.options
        for name in options:
            if name in kept and given[name] != kept[name]:
                message = (
                    f"{name} must be {kept[name]!r}, as for the tree in {self.path}, or omitted, not {given[name]!r}"
                )
                raise ValueError(message)
        if "n_threads" in options:
            restored._forest.n_threads = fresh._forest.n_threads
        self._become_the_same(restored)
        self._forest.has_warned = True  # of what was done long ago, and is replayed now

    def _become_the_same(self, tree: ContextualMemoryTree) -> None:
        vars(self).update(vars(tree))

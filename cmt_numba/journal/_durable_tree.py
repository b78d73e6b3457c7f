"""``DurableTree``: a tree that is stored in a folder."""

from __future__ import annotations

import os
import zlib
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np

from .._change import ReadWriteLock
from .._engine import enter_returned, replace_rows, set_scorer
from .._forest import (
    COUNT,
    FREE_LEAF,
    FREE_NODE,
    LEAVES_END,
    N_MEMORIES,
    NEXT_ID,
    NODES_END,
    ROOT,
    Hits,
)
from .._validation import check_ids
from ..persistence import VALUES, Contents, FileFormatError
from ..tree import ContextualMemoryTree
from ._database import EntryDatabase, ExtraTables
from ._entries import CURRENT, Arguments, Entry, Operation, find_operation, plain_arguments
from ._files import JournalError
from ._journal import Durability, Journal

T = TypeVar("T")

_RETURN = "return"  # the operation that records the memories returned by queries
_MOST_NOTES = 1 << 16  # queries whose notes are kept while the journal cannot be written; older ones are dropped


def _draw_word(tree: ContextualMemoryTree) -> int:
    return tree._forest.draw_word()


def _enter_returned(tree: ContextualMemoryTree, ids: np.ndarray) -> None:
    enter_returned(tree._forest, ids)


def _set_scorer(tree: ContextualMemoryTree, weights: np.ndarray, squares: np.ndarray) -> None:
    set_scorer(tree._forest, weights, squares)


OPERATIONS: dict[tuple[str, int], Operation] = {
    ("insert", 2): Operation("insert", {"keys": "X"}),
    ("update", 2): Operation(
        "update",
        {"keys": "X", "hits": "hits", "rewards": "rewards", "rate": "key_learning_rate"},
        {"rate": 0.0},
    ),
    ("teach", 2): Operation("teach", {"keys": "X", "ids": "ids", "passes": "n_passes", "afresh": "afresh"}),
    ("remove", 2): Operation("remove", {"ids": "ids"}),
    ("replace", 2): Operation("replace", {"ids": "ids", "keys": "X"}),
    ("reroute", 2): Operation("reroute", {"number": "n"}),
    ("rebuild", 2): Operation("rebuild", {"ids": "ids", "groups": "groups"}),
    ("compact", 2): Operation("compact", {"copies": "copies"}),
    ("draw", 2): Operation(_draw_word, {}),
    ("return", 2): Operation(_enter_returned, {"ids": "ids"}),
    ("scorer", 2): Operation(_set_scorer, {"weights": "weights", "squares": "squares"}),
    # Version 1: replaced memories did not count as returned.
    ("insert", 1): Operation("insert", {"X": "X"}),
    ("update", 1): Operation("update", {"X": "X", "hits": "hits", "rewards": "rewards"}),
    ("teach", 1): Operation(
        "teach",
        {"X": "X", "ids": "ids", "n_passes": "n_passes", "afresh": "afresh"},
        {"n_passes": 1, "afresh": False},
    ),
    ("remove", 1): Operation("remove", {"ids": "ids"}),
    ("replace", 1): Operation("replace", {"ids": "ids", "X": "X"}, notes_returned=False),
    ("reroute", 1): Operation("reroute", {"n": "n"}),
    ("compact", 1): Operation("compact", {"copies": "copies"}, {"copies": True}),
    ("draw_word", 1): Operation(_draw_word, {}),
    ("enter_returned", 1): Operation(_enter_returned, {"ids": "ids"}),
}
"""The operations of a tree's entries, by name and version."""

_COMPARED = [ROOT, COUNT, NODES_END, FREE_NODE, LEAVES_END, FREE_LEAF]  # counters that differ between different trees


def fingerprint(tree: ContextualMemoryTree, *, with_draws: bool = True) -> dict[str, int]:
    """Return a fingerprint of a tree, which is cheap to compute, with or without the draws of queries."""
    forest, stop = tree._forest, None if with_draws else -1  # the last stream is that for queries
    state = forest.state
    if state is None:
        return {"n_memories": 0, "next_id": 0, "trees": zlib.crc32(forest.streams[:stop].astype("<u8").tobytes())}
    numbers = np.concatenate(
        [state.streams[:stop].astype("<u8"), state.counters[:, _COMPARED].astype("<u8").reshape(-1)]
    )
    totals = state.keys.totals
    return {
        "n_memories": int(totals[N_MEMORIES]),
        "next_id": int(totals[NEXT_ID]),
        "trees": zlib.crc32(numbers.tobytes()),
    }


class _TreeForm:
    """The form of a tree in a folder.

    Parameters
    ----------
    owner : DurableTree
        The tree of the user. It uses the forest of the current tree.
    options : dict of str to object
        The options that were given.
    with_defaults : callable
        Returns the options of a new tree.
    """

    kind = "ContextualMemoryTree"
    unread = VALUES

    def __init__(
        self,
        owner: DurableTree,
        options: dict[str, Any],
        with_defaults: Callable[[dict[str, Any]], dict[str, Any]] = dict,
    ) -> None:
        self._owner, self._options, self._given = owner, options, ContextualMemoryTree(**options)
        self.journal: Journal | None = None  # None until the folder is open
        self.returned: deque[np.ndarray] = deque(maxlen=_MOST_NOTES)  # ids returned by queries, to be journaled
        self._as_reopened = self._is_ambiguous = False  # see recover
        self._put(ContextualMemoryTree(**with_defaults(options)))

    def _put(self, tree: ContextualMemoryTree) -> None:
        tree._forest.journal = self
        self.tree, self._owner._forest = tree, tree._forest

    @property
    def lock(self) -> ReadWriteLock:
        return self.tree._lock

    # Changes

    def change(self, name: str, arguments: Arguments, *, counts: bool = True, **shown: Any) -> Any:
        """Call a method of the tree as a journaled change. ``shown`` are arguments that are not journaled."""
        assert self.journal is not None
        return self.journal.change(partial(self._make, name, arguments, shown), counts=counts)

    def _make(self, name: str, arguments: Arguments, shown: Arguments) -> tuple[Any, Entry]:
        assert self.journal is not None
        operation, arguments, tree = OPERATIONS[name, CURRENT], plain_arguments(arguments), self.tree
        forest = tree._forest
        forest.last_evicted = np.empty(0, np.int64)
        answer = operation.call(tree, arguments | shown)
        evicted = forest.last_evicted if forest.last_evicted.size > 0 else None
        return answer, Entry(name, operation.stored(arguments), fingerprint(tree), evicted, self.journal.identity)

    # Changes by queries

    def draw_word(self) -> int:
        """Return 64 bits of the random stream for queries. Losing a draw does no harm."""
        word: int = self.change("draw", {}, counts=False)
        return word

    def note_returned(self, ids: np.ndarray) -> None:
        """Journal which memories a query has returned, now or with the next change."""
        if self.journal is not None and self.journal.is_writable:
            self.returned.append(ids)
            with suppress(JournalError):  # queries work even if the journal cannot be written
                self.journal.try_alone(self.enter_notes)  # otherwise the thread that is making a change does it

    def enter_notes(self) -> None:
        while self.returned:
            self.change(_RETURN, {"ids": self.returned[0]}, counts=False)
            self.returned.popleft()  # removed only now, so that the next change retries after a failure

    def mark(self) -> Any:
        forest = self.tree._forest
        streams = forest.streams if forest.state is None else forest.state.streams
        return forest, forest.lock.n_steps, int(streams[-1])

    def is_changed(self, mark: Any, error: BaseException) -> bool:
        return bool(mark != self.mark())

    # Files

    def contents(self) -> Contents:
        return Contents(self.kind, *self.tree._contents())

    def made_of(self, contents: Contents, *, values: bool) -> ContextualMemoryTree:
        return ContextualMemoryTree._made_of(contents.fields, contents.arrays, thorough=True, values=values)

    def fingerprint(self, made: Any = None) -> dict[str, int]:
        return fingerprint(made or self.tree)

    def has_fingerprint(self, made: Any, after: dict[str, int]) -> bool:
        found = fingerprint(made)
        for name in ("n_memories", "next_id"):
            if found[name] != after.get(name):
                raise ValueError(f"it leads to {name}={found[name]}, not {after.get(name)!r:.50}")
        return found["trees"] == after.get("trees")

    def use(self, made: ContextualMemoryTree) -> None:
        given, forest = self._given._forest, made._forest
        for name in self._options:
            if name in forest.options and given.options[name] != forest.options[name]:
                wanted = f"{name} must be {forest.options[name]!r}, as for the tree in the folder, or omitted"
                raise ValueError(f"{wanted}, got {given.options[name]!r}")
        if "n_threads" in self._options:
            forest.n_threads = given.n_threads
        forest.has_warned = self.journal is not None and self.tree._forest.has_warned
        self._put(made)

    # Replaying

    def recover(self, replay_all: Callable[[], tuple[Any, bool]]) -> tuple[Any, bool]:
        """Replay the journal.

        Version 1 counted replaced memories as returned when it replayed a journal, but not when they were replaced. Its
        entries are therefore replayed as they were made and, if the result differs, as version 1 replayed them.
        """
        self._is_ambiguous, error = False, None
        try:
            made, exact = replay_all()
        except FileFormatError as raised:
            exact, error = False, raised
        if not exact and self._is_ambiguous:
            self._as_reopened = True
            try:
                return replay_all()
            except FileFormatError:
                if error is None:
                    return made, exact
            finally:
                self._as_reopened = False
        if error is not None:
            raise error
        return made, exact

    def replay(self, made: ContextualMemoryTree, entry: Entry, exact: bool) -> None:
        operation, forest = find_operation(OPERATIONS, entry.name, entry.version), made._forest
        arguments = operation.called(entry.arguments)
        is_silent = not operation.notes_returned and forest.eviction.minds_queries
        self._is_ambiguous |= is_silent
        if entry.version > 1:
            forest.evicts = np.empty(0, np.int64) if entry.forgotten is None else entry.forgotten
        forest.has_warned = True  # no warnings about earlier calls
        try:
            if is_silent and not self._as_reopened:
                replace_rows(forest, check_ids(arguments["ids"]), forest.check_rows(arguments["X"]))
            else:
                operation.call(made, arguments)
            if forest.evicts is not None and forest.evicts.size > 0:
                raise ValueError("it lists memories as evicted that were not")
        except (LookupError, TypeError, ValueError):
            # If the trees differ from those before, a node that a query explored may not exist. Such errors are
            # ignored; a missing memory is detected by the number of memories.
            if exact:
                raise
        finally:
            forest.evicts = None


class DurableTree(ContextualMemoryTree):
    """A tree that is stored in a folder and whose changes survive a crash.

    Each change (``insert``, ``update``, ``remove``, ...), and each block of ``learn``, is written to a journal on disk
    before the call returns. When the folder is opened again, the tree is bit-identical to the one after the last
    change. Otherwise it behaves like any other tree.

    Opening a folder maps the keys instead of reading them, so it takes little time. Damaged keys are therefore found
    only by :meth:`check_invariants` and before the next snapshot. Other damage raises an error at once.

    A change either succeeds or changes nothing. If one fails (out of memory, disk full) or is interrupted, the tree is
    restored from the folder to its state after the last change, which takes about as long as opening the folder.

    Changes from several threads are made one after another. A forked child of the process that opened the folder can
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
        durability = Durability(sync_every, snapshot_bytes, snapshot_seconds)
        self._open(path, _TreeForm(self, options), durability, bool(read_only))

    def _open(
        self,
        path: str | os.PathLike[str],
        form: _TreeForm,
        durability: Durability,
        read_only: bool,
        tables: ExtraTables | None = None,
    ) -> None:
        self._form = form
        self._journal = form.journal = Journal(path, form, durability, tables=tables, read_only=read_only)

    @classmethod
    def _with_tables(
        cls,
        path: str | os.PathLike[str],
        options: dict[str, Any],
        durability: Durability,
        *,
        read_only: bool,
        with_defaults: Callable[[dict[str, Any]], dict[str, Any]],
        tables: ExtraTables,
    ) -> Self:
        """Return a tree whose database has further tables; a new one has the options with defaults."""
        tree = cls.__new__(cls)
        tree._open(path, _TreeForm(tree, options, with_defaults), durability, read_only, tables)
        return tree

    # The folder

    @property
    def path(self) -> Path:
        """The folder."""
        return self._journal.path

    @property
    def sequence(self) -> int:
        """The number of changes since the tree was created. A draw of a random number counts as one."""
        return self._journal.sequence

    @property
    def synced_sequence(self) -> int:
        """The number of changes that are known to be on disk."""
        return self._journal.folder.synced

    def sync(self) -> None:
        """Write all changes to disk and wait for it.

        Raises
        ------
        JournalError
            If the tree is closed or could not be written.
        """
        self._journal.sync()

    def snapshot(self) -> None:
        """Replace the journal by a snapshot. This happens automatically when the journal gets long.

        Raises
        ------
        JournalError
            If the tree is closed or could not be written.
        OSError
            If the snapshot cannot be written. The journal is unchanged.
        """
        self._journal.snapshot()

    def close(self) -> None:
        """Write all changes to disk and close the folder. The tree can still be queried, but not changed.

        If it would take long to make the changes in the journal again, a snapshot replaces it.

        Raises
        ------
        JournalError
            If not all changes could be written; the folder is closed nevertheless.
        """
        self._journal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # For stores, which keep records in the same database

    @property
    def _database(self) -> EntryDatabase:
        """The database of the journal."""
        return self._journal.folder.database

    def _transaction(self, work: Callable[[], T]) -> T:
        """Make all changes of ``work``, including its writes to further tables, or none of them."""
        return self._journal.transaction(work)

    def check_invariants(self) -> None:
        """Check the invariants of :meth:`ContextualMemoryTree.check_invariants`, and the last snapshot for damage.

        Opening a folder does not read the keys in it, so this method may find new damage.

        Raises
        ------
        cmt_numba.persistence.FileFormatError
            If the snapshot is damaged.
        InvariantError
            If an invariant is violated.
        OSError
            If the snapshot cannot be read.
        """
        self._lock.change(self._journal.verify)
        super().check_invariants()

    # Changes

    def insert(self, X: Any, *, progress: bool = False) -> np.ndarray:
        """Insert memories and return their ids; see :meth:`ContextualMemoryTree.insert`."""
        ids: np.ndarray = self._form.change("insert", {"X": X}, progress=progress)
        return ids

    def update(
        self, X: Any, hits: Hits, rewards: Any, *, key_learning_rate: float = 0.0, progress: bool = False
    ) -> None:
        """Learn from the rewards of a query's answers; see :meth:`ContextualMemoryTree.update`."""
        arguments = {"X": X, "hits": hits, "rewards": rewards, "key_learning_rate": key_learning_rate}
        self._form.change("update", arguments, progress=progress)

    def teach(self, X: Any, ids: Any, *, n_passes: int = 1, afresh: bool = False, progress: bool = False) -> None:
        """Teach the routers which memory each row belongs to; see :meth:`ContextualMemoryTree.teach`."""
        arguments = {"X": X, "ids": ids, "n_passes": n_passes, "afresh": afresh}
        self._form.change("teach", arguments, progress=progress)

    def remove(self, ids: Any) -> None:
        """Remove memories; see :meth:`ContextualMemoryTree.remove`."""
        self._form.change("remove", {"ids": ids})

    def replace(self, ids: Any, X: Any, *, progress: bool = False) -> None:
        """Replace the keys of memories; see :meth:`ContextualMemoryTree.replace`."""
        self._form.change("replace", {"ids": ids, "X": X}, progress=progress)

    def reroute(self, n: int, *, progress: bool = False) -> None:
        """Reroute memories of each tree; see :meth:`ContextualMemoryTree.reroute`."""
        self._form.change("reroute", {"n": n}, progress=progress)

    def rebuild(self, ids: Any, groups: Any, *, progress: bool = False) -> None:
        """Rebuild the trees around groups; see :meth:`ContextualMemoryTree.rebuild`."""
        self._form.change("rebuild", {"ids": ids, "groups": groups}, progress=progress)

    def compact(self, *, copies: bool = True) -> None:
        """Store memories in the order in which searches read them; see :meth:`ContextualMemoryTree.compact`."""
        self._form.change("compact", {"copies": copies})

    # Copies are in memory

    @classmethod
    def load(cls, path: str | os.PathLike[str], mmap: bool = False) -> Self:
        """Not supported for durable trees: use ``ContextualMemoryTree.load`` or open a folder.

        Raises
        ------
        TypeError
            Always.
        """
        raise TypeError(
            "DurableTree cannot load a file: use ContextualMemoryTree.load, or DurableTree(path) for a folder"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return ContextualMemoryTree.__new__, (ContextualMemoryTree,), self.__getstate__()


def set_tree_scorer(tree: ContextualMemoryTree, weights: np.ndarray, squares: np.ndarray) -> None:
    """Replace the weights of a tree's scorer. In a folder this is journaled."""
    if isinstance(tree, DurableTree):
        tree._form.change("scorer", {"weights": weights, "squares": squares})
    else:
        _set_scorer(tree, weights, squares)

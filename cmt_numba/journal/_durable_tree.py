"""``DurableTree``, a tree that is stored in a folder."""

import os
import zlib
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np

from .. import _forest as forests
from .._change import Closeable
from .._engine import enter_returned
from .._forest import Hits
from ..persistence import VALUES, Contents
from ..tree import ContextualMemoryTree, forest_of
from ._entries import CURRENT, Arguments, Entry, Operation, find_operation, plain_arguments
from ._files import JournalError
from ._journal import Durability, DurableForm, Journal

T = TypeVar("T")

_RETURN = "return"  # the operation that records memories returned by queries
_MOST_NOTES = 1 << 16  # maximum number of queries whose returned ids wait to be journaled; the oldest are dropped


OPERATIONS: dict[tuple[str, int], Operation] = {
    ("insert", 1): Operation("insert", {"keys": "X"}),
    ("update", 1): Operation(
        "update", {"keys": "X", "hits": "hits", "rewards": "rewards", "rate": "key_learning_rate"}, {"rate": 0.0}
    ),
    ("teach", 1): Operation("teach", {"keys": "X", "ids": "ids", "passes": "n_passes", "afresh": "afresh"}),
    ("remove", 1): Operation("remove", {"ids": "ids"}),
    ("replace", 1): Operation("replace", {"ids": "ids", "keys": "X"}),
    ("reroute", 1): Operation("reroute", {"number": "n"}),
    ("rebuild", 1): Operation("rebuild", {"ids": "ids", "groups": "groups"}),
    ("compact", 1): Operation("compact", {}),
    ("draw", 1): Operation(lambda tree: forest_of(tree).draw_word(), {}),
    ("return", 1): Operation(lambda tree, ids: enter_returned(forest_of(tree), ids), {"ids": "ids"}),
}
"""The operations in a tree's entries, by name and version."""

_OF_OWNER = frozenset({"lock", "_lock", "journal", "has_warned"})  # attributes of a forest that a restored one keeps
# counters that differ if the trees differ
_COMPARED = [forests.ROOT, forests.COUNT, forests.NODES_END, forests.FREE_NODE, forests.LEAVES_END, forests.FREE_LEAF]


def fingerprint(tree: ContextualMemoryTree) -> dict[str, int]:
    """Return a fingerprint of a tree."""
    forest = forest_of(tree)
    state = forest.state
    if state is None:
        return {"n_memories": 0, "next_id": 0, "trees": zlib.crc32(forest.streams.astype("<u8").tobytes())}
    numbers = np.concatenate([state.streams.astype("<u8"), state.counters[:, _COMPARED].astype("<u8").reshape(-1)])
    totals = state.keys.totals
    return {
        "n_memories": int(totals[forests.N_MEMORIES]),
        "next_id": int(totals[forests.NEXT_ID]),
        "trees": zlib.crc32(numbers.tobytes()),
    }


class _TreeForm(DurableForm):
    """The :class:`DurableForm` of a tree. The user's tree ``owner`` shares the forest of ``tree``."""

    kind = "ContextualMemoryTree"
    unread = VALUES
    essential = "n_memories", "next_id"

    def __init__(self, owner: "DurableTree", options: dict[str, Any]) -> None:
        self._owner, self._options, self._given = owner, options, ContextualMemoryTree(**options)
        self.journal: Journal | None = None  # None until the folder is open
        self.returned: deque[np.ndarray] = deque(maxlen=_MOST_NOTES)  # ids of returned memories, not yet journaled
        self._put(ContextualMemoryTree(**options))

    def _put(self, tree: ContextualMemoryTree) -> None:
        forest = forest_of(tree)
        forest.journal = self
        self.tree, self._owner._forest, self.lock = tree, forest, forest.lock

    # Changes

    def change(self, name: str, arguments: Arguments, *, counts: bool = True, **shown: Any) -> Any:
        """Call a method of the tree as a journaled change. The arguments ``shown`` are not journaled."""
        assert self.journal is not None
        return self.journal.change(partial(self._make, name, arguments, shown, counts), counts=counts)

    def _make(self, name: str, arguments: Arguments, shown: Arguments, counts: bool) -> Any:
        assert self.journal is not None
        operation, arguments, tree = OPERATIONS[name, CURRENT], plain_arguments(arguments), self.tree
        forest = forest_of(tree)
        forest.last_evicted = np.empty(0, np.int64)
        answer = operation.call(tree, arguments | shown)
        evicted = forest.last_evicted if forest.last_evicted.size > 0 else None
        entry = Entry(name, operation.stored(arguments), fingerprint(tree), evicted)
        self.journal.append(entry, counts=counts)
        return answer

    # Changes by queries

    def draw_word(self) -> int:
        """Return 64 random bits from the stream for queries. A crash may undo the draw, which is harmless."""
        return self.change("draw", {}, counts=False)

    def note_returned(self, ids: np.ndarray) -> None:
        """Journal the ids of memories that a query has returned, now or with the next change."""
        if self.journal is not None and self.journal.is_writable:
            self.returned.append(ids)
            with suppress(JournalError):  # queries must work even if the journal cannot be written
                self.journal.try_alone(self.enter_notes)  # if a thread is making a change, it journals the ids

    def enter_notes(self) -> None:
        while self.returned:
            self.change(_RETURN, {"ids": self.returned[0]}, counts=False)
            self.returned.popleft()  # after a failure the ids remain, and the next change retries

    def mark(self) -> Any:
        forest = forest_of(self.tree)
        streams = forest.streams if forest.state is None else forest.state.streams
        return forest, forest.lock.n_steps, int(streams[-1])

    # Files

    def contents(self) -> Contents:
        return self.tree._contents()

    def made_of(self, contents: Contents, *, values: bool) -> ContextualMemoryTree:
        tree = ContextualMemoryTree._made_of(contents, thorough=False)
        tree._check(thorough=True, values=values)
        return tree

    def fingerprint(self, made: Any = None) -> dict[str, int]:
        return fingerprint(self.tree if made is None else made)  # an empty tree is false

    def use(self, made: ContextualMemoryTree) -> None:
        given, forest = forest_of(self._given), forest_of(made)
        for name in self._options:
            if name in forest.options and given.options[name] != forest.options[name]:
                wanted = f"{name} must be {forest.options[name]!r}, as for the tree in the folder, or omitted"
                raise ValueError(f"{wanted}, got {given.options[name]!r}")
        if "n_threads" in self._options:
            forest.n_threads = given.n_threads
        if self.journal is None:
            self._put(made)
        elif made is not self.tree:  # readers may hold the forest
            kept = vars(forest_of(self.tree))
            taken = {name: value for name, value in vars(forest).items() if name not in _OF_OWNER}
            self.lock.step(partial(kept.update, taken))

    # Replaying

    def twin(self) -> ContextualMemoryTree:
        return self.tree

    def follow(self, apply: Callable[[], None]) -> None:
        self.lock.step(apply)

    def replay(self, made: ContextualMemoryTree, entry: Entry, exact: bool) -> None:
        operation, forest = find_operation(OPERATIONS, entry.name, entry.version), forest_of(made)
        arguments = operation.called(entry.arguments)
        forest.evicts = np.empty(0, np.int64) if entry.forgotten is None else entry.forgotten
        has_warned, forest.has_warned = forest.has_warned, True  # the original call has already warned
        try:
            operation.call(made, arguments)
            if forest.evicts is not None and forest.evicts.size > 0:
                raise ValueError("it lists evicted memories that are still stored")
        except (LookupError, TypeError, ValueError):
            # If the replayed trees differ from the original ones, an explored node may not exist. Ignore these errors.
            # A missing memory changes the number of memories, which is compared.
            if exact:
                raise
        finally:
            forest.evicts, forest.has_warned = None, has_warned


class DurableTree(ContextualMemoryTree, Closeable):
    """A tree that is stored in a folder and whose changes survive a crash.

    Each change (``insert``, ``update``, ``remove``, ...), and each block of ``learn``, is written to a journal on disk
    before the call returns. Reopening the folder restores a tree that is bit-identical to the tree after its last
    change. In all other respects it behaves like any other tree.

    Opening a folder is fast because it maps the keys instead of reading them. Damaged keys are therefore detected only
    by :meth:`check_invariants` and before the next snapshot. Other damage raises an error immediately.

    A change either succeeds or changes nothing. If it fails (out of memory, disk full) or is interrupted, the tree is
    restored from the folder to its state after the last change. This takes about as long as opening the folder.

    Changes from several threads run one after another. A forked child of the process that opened the folder can query
    the tree, but not change it.

    Parameters
    ----------
    path : path-like
        An empty folder, or a folder that contains a tree. A missing folder is created with access only for its owner;
        its parent must exist.
    sync_every, snapshot_bytes, snapshot_seconds, refresh_every, timeout : optional
        When to wait for the disk, when a snapshot replaces the journal, when a read-only tree follows its writer, and
        how long to wait for another writer; see :meth:`~cmt_numba.CMTClassifier.open`.
    read_only : bool, default False
        Open an existing tree for queries, while this or another process may change it. Nothing is written, so the disk
        may be full or not writable. Changes, and queries with an ``epsilon`` above 0, raise an error.
    **options
        Options of :class:`~cmt_numba.ContextualMemoryTree` for a new tree. An existing tree keeps its options, and
        different values raise an error, with two exceptions: ``n_threads`` replaces the stored value, and
        ``random_state`` is ignored.

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
        refresh_every: float | None = None,
        timeout: float = 0.0,
        **options: Any,
    ) -> None:
        durability = Durability(sync_every, snapshot_bytes, snapshot_seconds, read_only, refresh_every, timeout)
        self._form = form = _TreeForm(self, options)
        self._journal = form.journal = Journal(path, form, durability)

    # The folder

    @property
    def path(self) -> Path:
        """The folder."""
        return self._journal.path

    @property
    def sequence(self) -> int:
        """The number of changes since the tree was created. Each draw of a random number is a change."""
        return self._journal.sequence

    @property
    def synced_sequence(self) -> int:
        """The number of changes that are known to be on disk."""
        return self._journal.folder.synced

    def refresh(self) -> bool:
        """Bring a read-only tree to the last change of its writer. Return whether it has changed."""
        return self._journal.refresh()

    def sync(self) -> None:
        """Write all changes to disk and wait until they are stored."""
        self._journal.sync()

    def snapshot(self) -> None:
        """Replace the journal with a snapshot. This happens automatically when the journal becomes long."""
        self._journal.snapshot()

    def close(self) -> None:
        """Write all changes to disk and close the folder, even if a change cannot be written (JournalError).

        The tree can still be queried, but not changed. If the journal takes long to replay, a snapshot replaces it.
        """
        self._journal.close()

    def check_invariants(self) -> None:
        """Check the tree's invariants and verify the keys in the last snapshot.

        Opening a folder does not read the keys, so this method may detect damage for the first time. See
        :meth:`ContextualMemoryTree.check_invariants` for the invariants.
        """
        self._lock.change(self._journal.verify)
        super().check_invariants()

    # Changes

    def insert(self, X: Any, *, progress: bool = False) -> np.ndarray:
        """Insert memories and return their ids; see :meth:`ContextualMemoryTree.insert`."""
        return self._form.change("insert", {"X": X}, progress=progress)

    def update(
        self, X: Any, hits: Hits, rewards: Any, *, key_learning_rate: float = 0.3, progress: bool = False
    ) -> None:
        """Learn from the rewards of a query's results; see :meth:`ContextualMemoryTree.update`."""
        arguments = {"X": X, "hits": hits, "rewards": rewards, "key_learning_rate": key_learning_rate}
        self._form.change("update", arguments, progress=progress)

    def teach(self, X: Any, ids: Any, *, n_passes: int = 1, afresh: bool = False, progress: bool = False) -> None:
        """Train the routers to find the given memory for each row; see :meth:`ContextualMemoryTree.teach`."""
        arguments = {"X": X, "ids": ids, "n_passes": n_passes, "afresh": afresh}
        self._form.change("teach", arguments, progress=progress)

    def remove(self, ids: Any) -> None:
        """Remove memories; see :meth:`ContextualMemoryTree.remove`."""
        self._form.change("remove", {"ids": ids})

    def replace(self, ids: Any, X: Any, *, progress: bool = False) -> None:
        """Replace the keys of memories; see :meth:`ContextualMemoryTree.replace`."""
        self._form.change("replace", {"ids": ids, "X": X}, progress=progress)

    def reroute(self, n: int, *, progress: bool = False) -> None:
        """Reroute random memories in each tree; see :meth:`ContextualMemoryTree.reroute`."""
        self._form.change("reroute", {"n": n}, progress=progress)

    def rebuild(self, ids: Any, groups: Any, *, progress: bool = False) -> None:
        """Rebuild the trees from groups of memories; see :meth:`ContextualMemoryTree.rebuild`."""
        self._form.change("rebuild", {"ids": ids, "groups": groups}, progress=progress)

    def compact(self) -> None:
        """Store memories in the order in which searches read them; see :meth:`ContextualMemoryTree.compact`."""
        self._form.change("compact", {})

    # Copies and pickles are trees in memory, without a folder.

    @classmethod
    def load(cls, path: str | os.PathLike[str], mmap: bool = False) -> Self:
        """Raise TypeError: use ``ContextualMemoryTree.load`` for a file, or ``DurableTree(path)`` for a folder."""
        raise TypeError(
            "DurableTree cannot load a file: use ContextualMemoryTree.load(path), or DurableTree(path) to open a folder"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return ContextualMemoryTree.__new__, (ContextualMemoryTree,), self.__getstate__()

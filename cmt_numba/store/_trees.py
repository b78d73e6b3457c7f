"""The trees of stores, in memory and in folders, and changes of a tree together with its records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from ..journal import DurableTree
from ..journal._journaling import as_one
from ..persistence import FileFormatError
from ..tree import ContextualMemoryTree
from ._records import TABLES, MemoryDatabase, Records
from ._search import are_stored


class _Recording(ContextualMemoryTree):
    """A tree that tells which memories an insert has evicted."""

    _evicted: list[np.ndarray] | None = None

    def _choose_to_forget(self, n: int) -> np.ndarray:
        chosen = super()._choose_to_forget(n)
        if self._evicted is not None:
            self._evicted.append(chosen)
        return chosen

    def insert_and_tell(self, X: Any) -> np.ndarray:
        """Insert memories, and return the ids of those that were evicted."""
        self._evicted = []
        try:
            self.insert(X)
            return np.concatenate([np.empty(0, np.int64), *self._evicted])
        finally:
            self._evicted = None


class MemoryTree(_Recording):
    """The tree of a store in memory."""


class FolderTree(_Recording, DurableTree):
    """The tree of a store in a folder. Its journal's database also holds the records."""

    _tables = TABLES


class Kept(NamedTuple):
    """A tree and its records."""

    tree: MemoryTree | FolderTree
    records: Records
    database: MemoryDatabase | None  # of a store in memory

    @contextmanager
    def change(self) -> Iterator[Callable[..., None]]:
        """Make changes of the tree and of its records together.

        Yields a function to call after each change of the tree, which is told whether there are more to come. In
        memory, changes so far stay whatever happens later; in a folder, all of them or none are there when it is opened
        again.
        """
        if isinstance(self.tree, FolderTree):
            try:
                with as_one(self.tree):
                    yield lambda more=False: None
            except BaseException:
                self.records.forget()
                raise
            return
        database = self.database
        assert database is not None

        database.execute("BEGIN")
        try:
            yield database.commit
            database.commit()
        except BaseException:
            database.roll_back()
            self.records.forget()
            self.reconcile()
            raise

    def reconcile(self) -> None:
        """Remove memories without a record and records without a memory, which a failure has left."""
        stored, recorded = self.tree.ids, self.records.ids()
        without_record, without_memory = np.setdiff1d(stored, recorded), np.setdiff1d(recorded, stored)
        if without_record.size > 0:
            self.tree.remove(without_record)
        if without_memory.size > 0:
            self.records.delete(without_memory)

    def agree(self, *, thorough: bool) -> bool:
        """Return whether there is one record for each memory; by numbers and sums only, unless ``thorough``."""
        ids = self.tree.ids
        if thorough and not (self.records.are_valid() and np.array_equal(np.sort(ids), self.records.ids())):
            return False
        return self.records.totals() == (ids.size, int(ids.sum()))


def new_in_memory(options: dict[str, Any]) -> Kept:
    """Return an empty store in memory."""
    database = MemoryDatabase()
    records = Records(database)
    records.keep_keys()
    return Kept(MemoryTree(**options), records, database)


def in_folder(path: Any, options: dict[str, Any], **how: Any) -> Kept:
    """Return the store in a folder, which is created if there is none.

    Raises
    ------
    AlreadyOpenError, FileFormatError, OSError
        As for :class:`~cmt_numba.DurableTree`.
    """
    tree = FolderTree(path, **how, **options)
    kept = Kept(tree, Records(tree._folder.database), None)
    try:
        if not kept.agree(thorough=False):
            raise FileFormatError(tree._folder.journal_path, "is damaged: its keys are not those of its memories")
    except BaseException:
        tree.close()
        raise
    return kept


def replace_keys(kept: Kept, ids: np.ndarray, keys: Any, commit: Callable[[], None]) -> None:
    """Replace the keys of memories, and commit. If this fails, commit if all memories have the new keys."""
    tree = kept.tree
    try:
        tree.replace(ids, keys)
    except BaseException:
        rows, state = tree._forest.check_rows(keys), tree._forest.allocated()
        if tree._lock.read(lambda: are_stored(state, tree._forest.slots_of(ids), rows)):
            commit()
        raise
    commit()

"""The trees of stores, in memory and in folders, and changes of a tree together with its records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from ..journal import DurableTree
from ..journal._journaling import as_one
from ..persistence._trees import refusing
from ..tree import ContextualMemoryTree
from ._metrics import KeySpace, space_of
from ._records import TABLES, MemoryDatabase, Records
from ._search import are_stored

VERSION = 2
"""The version of the facts. Stores of version 1 have no digits, and lengths only for the cosine."""

_NEW = {"n_reroutes": 1, "scorer_learning_rate": 0.01, "n_links": 24}  # options of a new tree, unless given
_TREES, _TREES_WITHOUT_LINKS = 2, 4  # with links trees only say where to begin: more of them find no more


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

    def _create(self) -> None:
        # Only now it is known that there is none, also if creating one was interrupted before.
        self._become_the_same(ContextualMemoryTree(**with_defaults(self._given[1])))
        super()._create()


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

    def check(self, *, thorough: bool) -> KeySpace:
        """Return the space of the keys of a store that is not empty, after checking what is read of it.

        That there is one record for each memory is told by numbers and sums only, unless ``thorough``.

        Raises
        ------
        ValueError
            If records, facts and tree are not those of a store.
        """
        facts = self.records.facts()
        if not isinstance(version := facts.get("version"), int) or not 1 <= version <= VERSION:
            raise ValueError(
                f"the store has version {version!r:.20}, but this version of cmt-numba reads 1 to {VERSION}"
            )
        space = space_of(facts, self.tree.n_features)
        ids = self.tree.ids
        found = self.records.summary()
        if (found.n, found.sum_of_ids) != (ids.size, int(ids.sum())):
            raise ValueError("its keys are not those of its memories")
        if thorough and not np.array_equal(np.sort(ids), self.records.ids()):
            raise ValueError("its keys are not those of its memories")
        if found.n_norms < found.n and (version > 1 or space.n_more == 0):
            raise ValueError("it has vectors whose lengths are not positive numbers")
        if found.least_norm is not None and not space.fits(found.least_norm, found.n):
            raise ValueError("the lengths of its vectors do not fit its bound")
        if thorough and not self.records.are_payloads_valid():
            raise ValueError("it has payloads that are not JSON")
        return space


def with_defaults(given: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a new tree."""
    options = _NEW | given
    return {"n_trees": _TREES_WITHOUT_LINKS if options["n_links"] == 0 else _TREES} | options


def new_in_memory(options: dict[str, Any]) -> Kept:
    """Return an empty store in memory."""
    database = MemoryDatabase()
    records = Records(database)
    records.keep_keys()
    return Kept(MemoryTree(**with_defaults(options)), records, database)


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
        if kept.records.facts() or len(tree) > 0:  # otherwise it was not finished
            with refusing(tree._folder.journal_path):
                kept.check(thorough=False)
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
        rows, state = tree._check_rows(keys), tree._allocated()
        if tree._lock.read(lambda: are_stored(state, tree._slots(ids), rows)):
            commit()
        raise
    commit()

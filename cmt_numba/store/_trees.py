"""The trees of stores, in memory and in folders, and changes of a tree together with its records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np

from .._change import uninterrupted
from ..journal import Durability, DurableTree, RecordedTree
from ..persistence._trees import refusing
from ._metrics import KeySpace, space_of
from ._records import TABLES, MemoryDatabase, Records
from ._search import are_stored

T = TypeVar("T")

VERSION = 2
"""The version of the facts. Stores of version 1 have no digits, and lengths only for the cosine."""

_NEW = {"n_reroutes": 1, "scorer_learning_rate": 0.01, "n_links": 24}  # options of a new tree, unless given
_TREES, _TREES_WITHOUT_LINKS = 2, 4  # with links trees only say where to begin: more of them find no more


class Kept(NamedTuple):
    """A tree and its records."""

    tree: RecordedTree | DurableTree
    records: Records
    database: MemoryDatabase | None  # of a store in memory

    def change(self, work: Callable[[Callable[..., None]], T]) -> T:
        """Make changes of the tree and of its records together.

        ``work`` receives a function to call after each change of the tree, which is told whether there are more to
        come. In memory, changes so far stay whatever happens later; in a folder, all of them or none are made.
        """
        if isinstance(self.tree, DurableTree):
            try:
                return self.tree._transaction(lambda: work(lambda more=False: None))
            except BaseException:
                self.records.forget()
                raise
        database = self.database
        assert database is not None

        def undo() -> None:
            database.roll_back()
            self.records.forget()
            self.reconcile()

        database.execute("BEGIN")
        try:
            answer = work(database.commit)
            database.commit()
            return answer
        except BaseException:
            uninterrupted(undo)
            raise

    def insert(self, X: Any) -> np.ndarray:
        """Insert memories, and return the ids of those that were evicted."""
        tree = self.tree
        if isinstance(tree, DurableTree):
            tree.insert(X)
            return tree._last_evicted
        tree.start_recording()
        tree.insert(X)
        return tree.evicted

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
    return Kept(RecordedTree(**with_defaults(options)), records, database)


def in_folder(path: Any, options: dict[str, Any], **how: Any) -> Kept:
    """Return the store in a folder, which is created if there is none.

    Raises
    ------
    AlreadyOpenError, FileFormatError, OSError
        As for :class:`~cmt_numba.DurableTree`.
    """
    how = dict(how)
    read_only = how.pop("read_only")
    tree = DurableTree._with_tables(
        path, options, Durability(**how), read_only=read_only, with_defaults=with_defaults, tables=TABLES
    )
    kept = Kept(tree, Records(tree._database), None)
    try:
        if kept.records.facts() or len(tree) > 0:  # otherwise it was not finished
            with refusing(tree.path / "journal.sqlite"):
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
        rows, state = tree._forest.check_rows(keys), tree._forest.allocated()
        if tree._lock.read(lambda: are_stored(state, tree._forest.slots_of(ids), rows)):
            commit()
        raise
    commit()

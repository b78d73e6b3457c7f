"""The parts of a store (tree, records and key space), changed together in memory, in a folder or in a file."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Self, TypeVar

import numpy as np
import scipy.sparse

from .._change import uninterrupted
from .._engine import enter_returned, insert_rows, remove_ids, replace_rows
from .._jit import switching_soon
from .._validation import OneOf, check_matrix
from ..journal import Durability, DurableTree, JournalError
from ..persistence import Contents, FileFormatError, read_object, refusing, take, write_object
from ..tree import ContextualMemoryTree
from ._metrics import METRICS, CosineSpace, KeySpace, as_rows, space_of
from ._query_map import QueryMap
from ._recall import Efforts
from ._records import TABLES, MemoryDatabase, Records
from ._results import UnreadPayloads
from ._search import NewKeys, StoreSearch

_EFFORTS = "efforts"  # the name of the fact that holds the measured efforts
_KIND = "MemoryStore"  # the kind of object, as recorded in files
_VERSION = 2  # the version of the facts; version 1 has no digits, and norms only for the cosine
_NEW = {"n_reroutes": 1, "scorer_learning_rate": 0.01, "n_links": 24}  # default options of a new tree
_TREES, _TREES_WITHOUT_LINKS = 1, 4  # with links, trees only provide entry points, so one is enough

T = TypeVar("T")


def with_defaults(given: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a new tree: the given ones, and defaults for the rest."""
    options = _NEW | given
    return {"n_trees": _TREES_WITHOUT_LINKS if options["n_links"] == 0 else _TREES} | options


class StoreContents:
    """The contents of a store. Each change is one transaction.

    Parameters
    ----------
    path : path-like or None
        The folder, or None for a store in memory.
    metric : str or None
        The metric. With None, a folder keeps its metric, and a new store uses the cosine.
    options : dict of str to object
        The tree options that the user has given.
    durability : Durability
        When to wait for the disk and when to take snapshots.
    read_only : bool
        Whether to open the folder for reading only.

    Attributes
    ----------
    search : StoreSearch
        The tree, the records and the key space, for searches.
    version : int
        Twice the number of changes so far; odd during a change.
    efforts : Efforts
        The measured search efforts.
    unread : UnreadPayloads
        The payloads of results that must be read before the next change.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None,
        metric: str | None,
        options: dict[str, Any],
        durability: Durability,
        read_only: bool,
    ) -> None:
        if metric is not None:
            OneOf(tuple(METRICS)).check("metric", metric)
        if path is None:
            durability.checked()
            database = MemoryDatabase()
            self._begin(ContextualMemoryTree(**with_defaults(options)), Records(database), database, metric)
            self.records.keep_keys()
        else:
            tree = DurableTree._with_tables(
                path, options, durability, read_only=read_only, with_defaults=with_defaults, tables=TABLES
            )
            self._begin(tree, Records(tree._database), None, metric, read_only=read_only)

    @classmethod
    def of_file(cls, path: str | os.PathLike[str], *, mmap: bool) -> Self:
        """Read a file into contents in memory.

        Raises
        ------
        FileFormatError
            If the file is damaged or does not contain a store.
        OSError
            If it cannot be read.
        """
        contents = read_object(path, (_KIND,), mmap=mmap)
        with refusing(path):
            return cls.read(contents, thorough=not mmap)

    @classmethod
    def read(cls, contents: Contents, *, thorough: bool) -> Self:
        """Return contents in memory from the return value of :meth:`written`.

        Raises
        ------
        InvariantError, TypeError, ValueError
            If ``contents`` are not valid contents of a store.
        """
        arrays = dict(contents.arrays)
        records = arrays.pop("records", None)
        if records is None or records.dtype != np.uint8 or records.ndim != 1:
            raise ValueError("the records are missing")
        take(contents.fields, "options", dict)
        tree = ContextualMemoryTree._made_of(contents.fields, arrays, thorough=thorough)
        database = MemoryDatabase(records.tobytes())
        self = cls.__new__(cls)
        self._begin(tree, Records(database), database, None, thorough=thorough)
        return self

    def _begin(
        self,
        tree: ContextualMemoryTree,
        records: Records,
        database: MemoryDatabase | None,
        metric: str | None,
        *,
        thorough: bool = False,
        read_only: bool = False,
    ) -> None:
        self.path = tree.path if isinstance(tree, DurableTree) else None
        self._database = database
        self.search = StoreSearch(tree, records, CosineSpace())
        self.version = 0
        self._is_sync_due = False  # whether to sync at the end of the current change
        self._n_rekeyed = 0  # odd while all keys are being recomputed
        self.unread = UnreadPayloads()
        self.efforts = Efforts()
        self._is_closed = False
        try:
            if records.facts() or len(tree) > 0:
                with refusing(self.path or "the store in memory"):
                    self._use(self.check(thorough=thorough))
                    self.efforts = Efforts(records.facts().get(_EFFORTS))
                if metric not in (None, self.metric):
                    message = f"metric must be {self.metric!r}, as for the store in {self.path}, got {metric!r}"
                    raise ValueError(message)
                if not records.has_digits and not read_only:
                    records.upgrade()
            else:
                self._use(METRICS[metric or CosineSpace.metric]())
                self.change(partial(records.set_facts, {"version": _VERSION} | self.space.facts()))
                self.sync()
        except BaseException:
            self.close()
            raise

    # Parts

    @property
    def tree(self) -> ContextualMemoryTree:
        """The tree."""
        return self.search.tree

    @property
    def records(self) -> Records:
        """The keys, payloads and digits of memories."""
        return self.search.records

    @property
    def space(self) -> KeySpace:
        """The key space."""
        return self.search.space

    @property
    def metric(self) -> str:
        """The metric."""
        return self.search.space.metric

    def check_open(self) -> None:
        """Raise JournalError if the store is closed."""
        if self._is_closed:
            raise JournalError(f"{self.path or 'the store in memory'}: the store is closed; open it again")
        tree = self.search.tree
        if isinstance(tree, DurableTree) and tree._journal.is_behind:
            tree._journal.catch_up()
            self._read_again()

    def read_consistently(self, work: Callable[[StoreSearch], T]) -> T:
        """Return the result of ``work``, run on tree keys that match the key space. ``work`` may run several times."""
        while True:
            self.check_open()
            before, search = self._n_rekeyed, self.search
            if before % 2 == 0:
                answer = work(search)
                if self._n_rekeyed == before:
                    return answer
            self.alone(lambda: None)  # waits until all keys are recomputed

    def check_form(self, X: Any) -> Any:
        """Return vectors or queries as float32, dense or sparse like the stored vectors. Values are not checked.

        A single vector becomes a row.
        """
        self.check_open()
        search = self.search
        state = search.tree._forest.state
        X = X if getattr(X, "ndim", 0) == 2 else as_rows(X)
        if state is None:
            return check_matrix(X)
        X = check_matrix(X, n_features=state.parameters.n_features - search.space.n_more)
        if state.parameters.sparse != isinstance(X, np.ndarray):
            return X
        return scipy.sparse.csr_array(X) if state.parameters.sparse else X.toarray()

    def check(self, *, thorough: bool) -> KeySpace:
        """Check that tree, records and facts belong together, and return the key space.

        A check that is not ``thorough`` compares only the number and the sum of ids in tree and records.

        Raises
        ------
        ValueError
            If tree, records and facts do not belong together.
        """
        tree, records = self.tree, self.records
        facts, ids, found = records.facts(), tree.ids, records.summary()
        if not isinstance(version := facts.get("version"), int) or not 1 <= version <= _VERSION:
            message = f"the store has version {version!r:.20}, but this version of cmt-numba reads 1 to {_VERSION}"
            raise ValueError(message)
        space = space_of(facts, tree.n_features)
        same = not thorough or np.array_equal(np.sort(ids), records.ids())
        if (found.n, found.sum_of_ids) != (ids.size, int(ids.sum())) or not same:
            raise ValueError("its keys do not match its memories")
        if found.n_norms < found.n and (version > 1 or space.n_more == 0):
            raise ValueError("the lengths of its vectors must be positive")
        if found.least_norm is not None and not space.fits(found.least_norm, found.n):
            raise ValueError("the lengths of its vectors exceed its bound")
        if thorough and not records.are_payloads_valid():
            raise ValueError("it has payloads that are not valid JSON")
        return space

    # Changes

    def alone(self, work: Callable[[], T]) -> T:
        """Run ``work`` while no other thread can change the store, and return its result."""
        tree = self.search.tree
        if isinstance(tree, DurableTree) and tree._journal.is_writable:
            return tree._journal.alone(work)
        return tree._lock.change(work)

    def change(self, work: Callable[[], T]) -> T:
        """Run ``work`` as one transaction on tree and records. A nested change is part of the outer one.

        In memory, the parts committed by :meth:`commit_part` remain even if the change fails later.

        Raises
        ------
        JournalError
            If the store is closed or read-only, or if the change cannot be written. Nothing has changed then.
        """
        return self.alone(partial(self._change, work))

    def _change(self, work: Callable[[], T]) -> T:
        self.check_open()
        if self.version % 2 == 1:  # within another change
            return work()
        tree, database, before = self.search.tree, self._database, self._mark()
        self.version += 1
        try:
            self.unread.read()
            noting = work if not self.efforts.are_new else partial(self._work_and_note, work)
            with switching_soon():
                if database is None:
                    answer: T = tree._transaction(noting)  # type: ignore[attr-defined]
                else:
                    database.execute("BEGIN")
                    answer = noting()
                    database.commit()
            if noting is not work:
                self.efforts.are_new = False
            return answer
        except BaseException as error:
            uninterrupted(self._recover, before)
            if database is None and isinstance(error, OSError | FileFormatError | JournalError):
                cause = error.__cause__ if isinstance(error, JournalError) and error.__cause__ else error
                raise JournalError(f"{self.path}: the change was not made: {cause}") from error
            raise
        finally:
            self.version += 1
            if self._is_sync_due:
                self._sync()

    def _work_and_note(self, work: Callable[[], T]) -> T:
        answer = work()
        self.records.set_facts({_EFFORTS: self.efforts.written()})
        return answer

    def _mark(self) -> tuple[Any, ...]:
        """Return a value that differs after every change."""
        tree = self.search.tree
        return tree._forest, tree._lock.n_steps, self.search.records.n_written()

    def commit_part(self) -> None:
        """Commit the finished part of a change to a store in memory, where replaced keys cannot be restored."""
        if self._database is not None:
            self._database.commit()
            self._database.execute("BEGIN")

    def _recover(self, before: tuple[Any, ...]) -> None:
        """Make records and tree consistent after a failed change. ``before`` is the mark from before the change."""
        if self._database is not None:
            changed = before != self._mark()
            self._database.roll_back()
            if not changed:
                return
            stored, recorded = self.tree.ids, self.records.ids()
            self.records.delete(np.setdiff1d(recorded, stored))
            if (without_record := np.setdiff1d(stored, recorded)).size > 0:
                self.tree.remove(without_record)
        elif before == self._mark():
            return
        self._read_again()

    def _read_again(self) -> None:
        """Drop cached records, and read the key space from the facts."""
        self.records.forget()
        with suppress(OSError, FileFormatError, ValueError):
            self._use(space_of(self.records.facts(), self.tree.n_features))

    def rekey(self, space: KeySpace) -> None:
        """Recompute all keys for another space, within a change."""
        self._n_rekeyed += 1
        try:
            ids = np.sort(self.tree.ids)
            vectors = self.search.read(ids)[0].rows if ids.size > 0 else None
            self.set_space(space)
            if vectors is not None:
                new = self.search.keys_of(vectors)
                self.records.update_vectors(ids, new.lost)
                self.replace(ids, new)
                self.commit_part()
        finally:
            self._n_rekeyed += 1

    def insert(self, new: NewKeys) -> np.ndarray:
        """Insert memories, within a change, and return the ids of evicted memories."""
        tree = self.tree
        if isinstance(tree, DurableTree):
            tree.insert(new.keys)
        else:
            insert_rows(tree._forest, new.rows)
        return tree._forest.last_evicted

    def replace(self, ids: np.ndarray, new: NewKeys) -> None:
        """Replace the keys of memories, within a change.

        If an error occurs after all keys have been replaced, the new keys remain.
        """
        tree = self.search.tree
        try:
            if isinstance(tree, DurableTree):
                tree.replace(ids, new.keys)
            else:
                replace_rows(tree._forest, ids, new.rows)
                enter_returned(tree._forest, ids[:, None])
        except BaseException:
            if self.search.has_keys(ids, new.rows):
                self.commit_part()
            raise

    def remove(self, ids: np.ndarray) -> None:
        """Remove memories, within a change."""
        if isinstance(self.tree, DurableTree):
            self.tree.remove(ids)
        else:
            remove_ids(self.tree._forest, ids)
        self.records.delete(ids)

    def set_query_map(self, query_map: QueryMap) -> None:
        """Store the learned map of queries, within a change."""
        self.records.set_facts({"query_map": query_map.written()})
        self._use(self.space.with_query_map(query_map))

    def set_space(self, space: KeySpace) -> None:
        """Store a key space that fits the existing keys, within a change."""
        self.records.set_facts(space.facts())
        self._use(space)

    def _use(self, space: KeySpace) -> None:
        self.search = StoreSearch(self.tree, self.records, space)

    # Files

    def sync(self) -> None:
        """Wait until all changes are on disk. A call within a change takes effect when the change ends."""
        self.alone(self._sync)

    def _sync(self) -> None:
        self.check_open()
        self._is_sync_due = self.version % 2 == 1
        if isinstance(self.tree, DurableTree) and not self._is_sync_due:
            self.tree.sync()

    def close(self) -> None:
        """Write all changes to disk, and close the files."""
        uninterrupted(self.alone, self._close)

    def _close(self) -> None:
        if self._is_closed:
            return
        if isinstance(self.tree, DurableTree) and self.tree._journal.is_writable and self.efforts.are_new:
            with suppress(JournalError):
                self._change(lambda: None)
        self.version += 1  # running queries now read payloads immediately
        with suppress(OSError, FileFormatError, JournalError):
            self.unread.read()
        self._is_closed = True
        if self._database is not None:
            self._database.close()
        if isinstance(self.tree, DurableTree):
            self.tree.close()

    def written(self) -> Contents:
        """Return the contents for a file."""
        fields, arrays = self.tree._contents()
        facts = {_EFFORTS: self.efforts.written()} if self.efforts.known() else {}
        records = np.frombuffer(self.records.packed(facts), np.uint8)
        return Contents(_KIND, fields, arrays | {"records": records})

    def copy(self) -> Contents:
        """Return copies of the contents for a file."""

        def copy() -> Contents:
            self.check_open()
            contents = self.tree._lock.change(self.written)
            return contents._replace(arrays={name: array.copy() for name, array in contents.arrays.items()})

        return self.alone(copy)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file."""

        def save() -> None:
            self.check_open()
            tree = self.tree
            tree._lock.change(lambda: write_object(path, self.written, lambda read: self.read(read, thorough=True)))

        self.alone(save)

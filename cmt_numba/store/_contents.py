"""What a store holds, in memory, in a folder and in files: a tree, records, and the space of its keys."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Self, TypeVar

import numpy as np

from .._change import uninterrupted
from .._engine import choose_evicted, insert_rows, remove_ids, replace_rows
from .._validation import OneOf
from ..journal import Durability, DurableTree, JournalError
from ..persistence import Contents, FileFormatError, read_object, refusing, take, write_object
from ..tree import ContextualMemoryTree
from ._metrics import METRICS, CosineSpace, KeySpace, space_of
from ._query_map import QueryMap
from ._records import TABLES, MemoryDatabase, Records
from ._results import UnreadPayloads
from ._search import NewKeys, StoreSearch

_KIND = "MemoryStore"  # of files
_VERSION = 2  # of the facts. Stores of version 1 have no digits, and lengths only for the cosine
_NEW = {"n_reroutes": 1, "scorer_learning_rate": 0.01, "n_links": 24}  # options of a new tree, unless given
_TREES, _TREES_WITHOUT_LINKS = 2, 4  # with links trees only say where to begin: more of them find no more

T = TypeVar("T")
Commit = Callable[..., None]
"""Commits a part of a change of a store in memory; takes whether there is more to come."""


def with_defaults(given: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a new tree."""
    options = _NEW | given
    return {"n_trees": _TREES_WITHOUT_LINKS if options["n_links"] == 0 else _TREES} | options


class StoreContents:
    """The contents of a store, which change together or not at all.

    Parameters
    ----------
    path : path-like or None
        The folder; None for a store in memory.
    metric : str or None
        The metric; None for that of the folder, or the cosine.
    options : dict of str to object
        Options of the tree that were given.
    durability : Durability
        When a folder waits for the disk, and when it takes snapshots.
    read_only : bool
        Whether a folder is only read.

    Attributes
    ----------
    search : StoreSearch
        The tree, the records and the space, as searches use them.
    writing : RLock
        The lock of all changes.
    version : int
        The number of changes that were begun and ended; odd while one is under way.
    unread : UnreadPayloads
        Payloads of results that must be read before they change.
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
        """Return the contents of a file, in memory.

        Raises
        ------
        FileFormatError
            If the file is damaged or not that of a store.
        OSError
            If it cannot be read.
        """
        contents = read_object(path, (_KIND,), mmap=mmap)
        with refusing(path):
            return cls.read(contents, thorough=not mmap)

    @classmethod
    def read(cls, contents: Contents, *, thorough: bool) -> Self:
        """Return what :meth:`written` has returned, in memory.

        Raises
        ------
        InvariantError, TypeError, ValueError
            If these are not the contents of a store.
        """
        arrays = dict(contents.arrays)
        records = arrays.pop("records", None)
        if records is None or records.dtype != np.uint8 or records.ndim != 1:
            raise ValueError("there are no records")
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
        self.writing = threading.RLock()
        self.version = 0
        self._n_rekeyed = 0  # odd while all memories get keys of another space
        self._notes: dict[str, Any] = {}  # facts to write with the next change
        self.unread = UnreadPayloads()
        self._is_closed = False
        try:
            if records.facts() or len(tree) > 0:
                with refusing(self.path or "the store in memory"):
                    self._use(self.check(thorough=thorough))
                if metric not in (None, self.metric):
                    message = f"metric must be {self.metric!r}, as for the store in {self.path}, not {metric!r}"
                    raise ValueError(message)
                if not records.has_digits and not read_only:
                    records.upgrade()
            else:
                self._use(METRICS[metric or CosineSpace.metric]())
                facts = {"version": _VERSION} | self.space.facts()
                self._transact(lambda commit: records.set_facts(facts))
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
        """Keys, payloads and digits."""
        return self.search.records

    @property
    def space(self) -> KeySpace:
        """The space of the keys."""
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
        """Return what ``work`` returns while the keys of the tree are those of the space."""
        while True:
            self.check_open()
            before, search = self._n_rekeyed, self.search
            if before % 2 == 0:
                answer = work(search)
                if self._n_rekeyed == before:
                    return answer
            with self.writing:
                pass  # wait until all memories have their keys

    def check(self, *, thorough: bool) -> KeySpace:
        """Return the space that the facts describe, after checking that tree, records and facts belong together.

        That there is one record for each memory is told by numbers and sums only, unless ``thorough``.

        Raises
        ------
        ValueError
            If they do not.
        """
        tree, records = self.tree, self.records
        facts, ids, found = records.facts(), tree.ids, records.summary()
        if not isinstance(version := facts.get("version"), int) or not 1 <= version <= _VERSION:
            message = f"the store has version {version!r:.20}, but this version of cmt-numba reads 1 to {_VERSION}"
            raise ValueError(message)
        space = space_of(facts, tree.n_features)
        same = not thorough or np.array_equal(np.sort(ids), records.ids())
        if (found.n, found.sum_of_ids) != (ids.size, int(ids.sum())) or not same:
            raise ValueError("its keys are not those of its memories")
        if found.n_norms < found.n and (version > 1 or space.n_more == 0):
            raise ValueError("it has vectors whose lengths are not positive numbers")
        if found.least_norm is not None and not space.fits(found.least_norm, found.n):
            raise ValueError("the lengths of its vectors do not fit its bound")
        if thorough and not records.are_payloads_valid():
            raise ValueError("it has payloads that are not JSON")
        return space

    # Changes

    def change(self, work: Callable[[Commit], T]) -> T:
        """Make a change of the tree and the records.

        In memory, parts that ``work`` has committed stay whatever happens later; in a folder, all of the change or
        nothing is there when it is opened again.

        Raises
        ------
        JournalError
            If the store is closed or read-only, or the change could not be written; nothing has changed then.
        """
        with self.writing:
            self.check_open()
            self.version += 1
            try:
                self.unread.read()
                return self._transact(partial(self._make, work))
            except (OSError, FileFormatError, JournalError) as error:
                cause = error.__cause__ if isinstance(error, JournalError) and error.__cause__ else error
                raise JournalError(f"{self.path}: the change was not made: {cause}") from error
            finally:
                self.version += 1

    def _make(self, work: Callable[[Commit], T], commit: Commit) -> T:
        answer = work(commit)
        if self._notes:
            self.records.set_facts(self._notes)
        return answer

    def _transact(self, work: Callable[[Commit], T]) -> T:
        """Change the tree and the records together; if this fails, read again what is known of them."""
        tree, database = self.tree, self._database
        try:
            if isinstance(tree, DurableTree):
                return tree._transaction(lambda: work(lambda more=False: None))
            assert database is not None
            database.execute("BEGIN")
            answer = tree._lock.change(partial(work, database.commit))
            database.commit()
            return answer
        except BaseException:
            uninterrupted(self._recover)
            raise

    def _recover(self) -> None:
        """Make the records those of the tree after a failure, and read them again when they are needed."""
        if self._database is not None:
            self._database.roll_back()
            stored, recorded = self.tree.ids, self.records.ids()
            self.records.delete(np.setdiff1d(recorded, stored))
            if (without_record := np.setdiff1d(stored, recorded)).size > 0:
                self.tree.remove(without_record)
        self._read_again()

    def _read_again(self) -> None:
        """Forget what was read of the records and of the space, which a failure has undone."""
        self.records.forget()
        with suppress(OSError, FileFormatError, ValueError):
            self._use(space_of(self.records.facts(), self.tree.n_features))

    @contextmanager
    def noting(self, facts: dict[str, Any]) -> Iterator[None]:
        """Write facts together with each change that is made meanwhile: all of it is there in the end, or nothing."""
        with self.writing:
            self._notes = facts
            try:
                yield
            finally:
                self._notes = {}

    def set_space(self, space: KeySpace) -> None:
        """Write another space for the same keys."""
        self.change(lambda commit: self._write_space(space))

    def rekey(self, space: KeySpace) -> None:
        """Give all memories keys of another space."""

        def rekey(commit: Commit) -> None:
            ids = np.sort(self.tree.ids)
            vectors = self.search.read(ids)[0].rows if ids.size > 0 else None
            self._write_space(space)
            if vectors is not None:
                new = self.search.keys_of(vectors)
                self.records.update_vectors(ids, new.lost)
                self.replace(ids, new, commit)

        with self.writing:
            self._n_rekeyed += 1
            try:
                notes, self._notes = self._notes, {}  # which are of the change that needs other keys
                self.change(rekey)
            finally:
                self._notes = notes
                self._n_rekeyed += 1

    def insert(self, new: NewKeys) -> np.ndarray:
        """Insert memories, within a change; return the ids of those that were evicted."""
        tree, evicted = self.tree, [np.empty(0, np.int64)]
        if isinstance(tree, DurableTree):
            tree.insert(new.keys)
            return tree._last_evicted

        def choose(n: int) -> np.ndarray:
            evicted.append(choose_evicted(tree._forest, n))
            return evicted[-1]

        insert_rows(tree._forest, new.rows, choose=choose)
        return np.concatenate(evicted)

    def replace(self, ids: np.ndarray, new: NewKeys, commit: Commit) -> None:
        """Replace the keys of memories, and commit. If this fails, commit if all memories have the new keys."""
        tree = self.tree
        try:
            if isinstance(tree, DurableTree):
                tree.replace(ids, new.keys)
            else:
                replace_rows(tree._forest, ids, new.rows)
                tree._note_returned(ids[:, None])
        except BaseException:
            if self.search.has_keys(ids, new.rows):
                commit()
            raise
        commit()

    def remove(self, ids: np.ndarray) -> None:
        """Remove memories, within a change."""
        if isinstance(self.tree, DurableTree):
            self.tree.remove(ids)
        else:
            remove_ids(self.tree._forest, ids)
        self.records.delete(ids)

    def set_query_map(self, query_map: QueryMap) -> None:
        """Write what was learned of queries, within a change."""
        self.records.set_facts({"query_map": query_map.written()})
        self._use(self.space.with_query_map(query_map))

    def _write_space(self, space: KeySpace) -> None:
        self.records.set_facts(space.facts())
        self._use(space)

    def _use(self, space: KeySpace) -> None:
        self.search = StoreSearch(self.tree, self.records, space)

    # Files

    def sync(self) -> None:
        """Write all changes to disk and wait for it; nothing in memory."""
        if isinstance(self.tree, DurableTree):
            self.tree.sync()

    def close(self) -> None:
        """Write all changes to disk, and close the files."""
        with self.writing:
            if self._is_closed:
                return
            self.version += 1  # as if a change went on for ever: queries under way read payloads at once
            with suppress(OSError, FileFormatError, JournalError):
                self.unread.read()
            self._is_closed = True
            if self._database is not None:
                self._database.close()
            if isinstance(self.tree, DurableTree):
                self.tree.close()

    def written(self) -> Contents:
        """Return the contents of a file."""
        fields, arrays = self.tree._contents()
        records = np.frombuffer(self.records.packed(), np.uint8)
        return Contents(_KIND, fields, arrays | {"records": records})

    def copy(self) -> Contents:
        """Return the contents of a file, in arrays of their own."""
        with self.writing:
            self.check_open()
            contents = self.tree._lock.change(self.written)
            return contents._replace(arrays={name: array.copy() for name, array in contents.arrays.items()})

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file."""
        with self.writing:
            self.check_open()
            tree = self.tree
            tree._lock.change(lambda: write_object(path, self.written, lambda read: self.read(read, thorough=True)))

"""What a store holds, in memory, in a folder and in files: a tree, records, and the space of its keys."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np

from .._change import undone_by
from .._validation import OneOf
from ..journal import Durability, DurableTree, JournalError, RecordedTree
from ..persistence import Contents, FileFormatError, read_object, refusing, take, write_object
from ._metrics import METRICS, CosineSpace, KeySpace, space_of
from ._query_map import QueryMap
from ._records import MemoryDatabase, Records
from ._results import UnreadPayloads
from ._search import StoreSearch
from ._trees import StoreTree, tree_in_folder, with_defaults

_KIND = "MemoryStore"  # of files
_VERSION = 2  # of the facts. Stores of version 1 have no digits, and lengths only for the cosine

T = TypeVar("T")
Commit = Callable[..., None]
"""Commits a part of a change of a store in memory; takes whether there is more to come."""


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
    how : dict of str to object
        How to keep it in a folder: parameters of :class:`~cmt_numba.DurableTree`.

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
        self, path: str | os.PathLike[str] | None, metric: str | None, options: dict[str, Any], how: dict[str, Any]
    ) -> None:
        if metric is not None:
            OneOf(tuple(METRICS)).check("metric", metric)
        self.path, self._is_read_only = None if path is None else Path(path), how["read_only"]
        durability = Durability(**{name: value for name, value in how.items() if name != "read_only"}).checked()
        if self.path is None:
            database = MemoryDatabase()
            self._begin(RecordedTree(**with_defaults(options)), Records(database), database, metric)
            self.records.keep_keys()
        else:
            tree = tree_in_folder(self.path, options, durability, read_only=self._is_read_only)
            self._begin(tree, Records(tree._database), None, metric)

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
        tree = RecordedTree._made_of(contents.fields, arrays, thorough=thorough)
        database = MemoryDatabase(records.tobytes())
        self = cls.__new__(cls)
        self.path, self._is_read_only = None, False
        self._begin(tree, Records(database), database, None, thorough=thorough)
        return self

    def _begin(
        self,
        tree: StoreTree,
        records: Records,
        database: MemoryDatabase | None,
        metric: str | None,
        *,
        thorough: bool = False,
    ) -> None:
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
                if not records.has_digits and not self._is_read_only:
                    records.upgrade()
            else:
                self._use(METRICS[metric or CosineSpace.metric]())
                self._transaction(lambda commit: records.set_facts({"version": _VERSION} | self.space.facts()))
                self.sync()
        except BaseException:
            self.close()
            raise

    # Parts

    @property
    def tree(self) -> StoreTree:
        """The tree."""
        return self.search.tree  # type: ignore[return-value]

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
        tree = self.tree
        if isinstance(tree, DurableTree) and tree._journal.is_behind:
            tree._journal.catch_up()
            self._read_space_again()

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

    def ahead(self, work: Callable[[], T]) -> T:
        """Return what ``work`` returns, which makes a change; queries hold back for it, other changes wait."""
        with self.writing:
            self.check_open()
            return self.tree._lock.ahead(work)

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
                return self._make(work)
            finally:
                self.version += 1

    def _make(self, work: Callable[[Commit], T]) -> T:
        """Make a change, and restore what was there before if it fails."""

        def work_and_note(commit: Commit) -> T:
            answer = work(commit)
            if self._notes:
                self.records.set_facts(self._notes)
            return answer

        try:
            return self._transaction(work_and_note)
        except (OSError, FileFormatError, JournalError) as error:
            self._read_space_again()
            cause = error.__cause__ if isinstance(error, JournalError) and error.__cause__ else error
            raise JournalError(f"{self.path}: the change was not made: {cause}") from error
        except BaseException:
            self._read_space_again()
            raise

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
                keys, lost = self.search.keys_of(vectors)
                self.records.update_vectors(ids, lost)
                self.replace_keys(ids, keys, commit)

        with self.writing:
            self._n_rekeyed += 1
            try:
                notes, self._notes = self._notes, {}  # which are of the change that needs other keys
                self.change(rekey)
            finally:
                self._notes = notes
                self._n_rekeyed += 1

    def replace_keys(self, ids: np.ndarray, keys: Any, commit: Commit) -> None:
        """Replace the keys of memories, and commit. If this fails, commit if all memories have the new keys."""
        try:
            self.tree.replace(ids, keys)
        except BaseException:
            if self.search.has_keys(ids, keys):
                commit()
            raise
        commit()

    def set_query_map(self, query_map: QueryMap) -> None:
        """Write what was learned of queries, within a change."""
        self.records.set_facts({"query_map": query_map.written()})
        self._use(self.space.with_query_map(query_map))

    def _write_space(self, space: KeySpace) -> None:
        self.records.set_facts(space.facts())
        self._use(space)

    def _use(self, space: KeySpace) -> None:
        self.search = StoreSearch(self.tree, self.records, space)

    def _transaction(self, work: Callable[[Commit], T]) -> T:
        """Make changes of the tree and of the records together."""
        tree, database = self.tree, self._database
        if isinstance(tree, DurableTree):
            try:
                return tree._transaction(lambda: work(lambda more=False: None))
            except BaseException:
                self.records.forget()
                raise
        assert database is not None

        def undo() -> None:
            database.roll_back()
            self.records.forget()
            self._reconcile()

        with undone_by(undo):
            database.execute("BEGIN")
            answer = work(database.commit)
            database.commit()
            return answer

    def _reconcile(self) -> None:
        """Remove memories without a record and records without a memory, which a failure has left."""
        stored, recorded = self.tree.ids, self.records.ids()
        self.records.delete(np.setdiff1d(recorded, stored))
        if (without := np.setdiff1d(stored, recorded)).size > 0:
            self.tree.remove(without)

    def _read_space_again(self) -> None:
        with suppress(OSError, FileFormatError, ValueError):
            self._use(space_of(self.records.facts(), self.tree.n_features))

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

"""What a store keeps, opened, restored after failures, and in files."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial, wraps
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from .._validation import OneOf
from ..journal import Durability, DurableTree, JournalError, RecordedTree
from ..persistence import FileFormatError
from ..persistence._container import Contents
from ..persistence._trees import read_object, refusing, take, write_object
from ._metrics import METRICS, CosineSpace, KeySpace, space_of
from ._query_map import QueryMap
from ._records import MemoryDatabase, Records, packed
from ._results import Unread
from ._search import Search
from ._trees import VERSION, Kept, in_folder, new_in_memory

KIND = "MemoryStore"
"""The kind of object that files hold."""

T = TypeVar("T")
Method = TypeVar("Method", bound=Callable[..., Any])


class Keeper:
    """A tree, its records, and the space of its keys, which stay together whatever fails.

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
    """

    def __init__(self, path: Any, metric: str | None, options: dict[str, Any], how: dict[str, Any]) -> None:
        if metric is not None:
            OneOf(tuple(METRICS)).check("metric", metric)
        self.path = None if path is None else Path(path)
        self._how = how
        if self.path is None:
            Durability(**{name: value for name, value in how.items() if name != "read_only"}).checked()
            kept = new_in_memory(options)
        else:
            kept = in_folder(self.path, options, **how)
        self._begin(kept, metric)

    @classmethod
    def of(cls, kept: Kept) -> Keeper:
        """Return the keeper of a store in memory."""
        keeper = cls.__new__(cls)
        keeper.path, keeper._how = None, {}
        keeper._begin(kept, None)
        return keeper

    def _begin(self, kept: Kept, metric: str | None) -> None:
        self.kept = kept
        self.writing = threading.RLock()
        self.version = 0  # odd while a change is under way
        self.rekeyed = 0  # odd while all memories get keys of another space
        self._notes: dict[str, Any] = {}  # facts to write with the next change
        self.is_closed = False
        self.unread = Unread()
        try:
            self._use(self._read_space(metric))
        except BaseException:
            self.close()
            raise

    def _read_space(self, metric: str | None) -> KeySpace:
        records = self.kept.records
        if not records.facts() and len(self.kept.tree) == 0:
            space = METRICS[metric or CosineSpace.metric]()
            self.kept.change(lambda _: records.set_facts({"version": VERSION} | space.facts()))
            self.sync()
            return space
        with refusing(self.path or "the store in memory"):
            space = self.kept.check(thorough=False)
        if metric not in (None, space.metric):
            raise ValueError(f"metric must be {space.metric!r}, as for the store in {self.path}, not {metric!r}")
        if not records.has_digits and not self._how.get("read_only"):
            records.upgrade()
        return space

    def _use(self, space: KeySpace) -> None:
        self.search = Search(self.kept.tree, self.kept.records, space)

    @property
    def space(self) -> KeySpace:
        """The space of the keys."""
        return self.search.space

    # Changes

    def change(self, work: Callable[[Kept, Callable[[], None]], T]) -> T:
        """Make a change of the tree and the records.

        Raises
        ------
        JournalError
            If the store is closed or read-only, or the change could not be written; nothing has changed then.
        """

        def work_and_note(kept: Kept, commit: Callable[[], None]) -> T:
            answer = work(kept, commit)
            if self._notes:
                kept.records.set_facts(self._notes)
            return answer

        return self._change(work_and_note)

    @contextmanager
    def noting(self, facts: dict[str, Any]) -> Iterator[None]:
        """Write facts together with each change that is made meanwhile: all of it is there in the end, or nothing."""
        with self.writing:
            self._notes = facts
            try:
                yield
            finally:
                self._notes = {}

    def _change(self, work: Callable[[Kept, Callable[[], None]], T]) -> T:
        with self.writing:
            self.check_open()
            self.version += 1
            try:
                self.unread.read()
                return self._make(work)
            finally:
                self.version += 1

    def _make(self, work: Callable[[Kept, Callable[[], None]], T]) -> T:
        """Make a change, and restore what was there before if it fails."""
        try:
            return self.kept.change(partial(work, self.kept))
        except (OSError, FileFormatError, JournalError) as error:
            self._read_space_again()
            cause = error.__cause__ if isinstance(error, JournalError) and error.__cause__ else error
            raise JournalError(f"{self.path}: the change was not made: {cause}") from error
        except BaseException:
            self._read_space_again()
            raise

    def rekey(self, work: Callable[[Kept, Callable[[], None]], None]) -> None:
        """Make a change of the space and of the keys of all memories."""
        with self.writing:
            self.rekeyed += 1
            try:
                self._change(work)  # on its own: a change that needs other keys is made, and noted, afterwards
            finally:
                self.rekeyed += 1

    def _read_space_again(self) -> None:
        with suppress(OSError, FileFormatError, ValueError):
            self._use(space_of(self.kept.records.facts(), self.kept.tree.n_features))

    def set_space(self, space: KeySpace) -> None:
        """Write a space, within a change. Readers must not meet keys of another one."""
        self.kept.records.set_facts(space.facts())
        self._use(space)

    def set_query_map(self, query_map: QueryMap) -> None:
        """Write what was learned of queries, within a change."""
        self.kept.records.set_facts({"query_map": query_map.written()})
        self._use(self.space.with_query_map(query_map))

    def sync(self) -> None:
        """Write all changes to disk and wait for it; nothing in memory."""
        if isinstance(self.kept.tree, DurableTree):
            self.kept.tree.sync()

    def check_open(self) -> None:
        """Raise JournalError if the store is closed."""
        if self.is_closed:
            raise JournalError(f"{self.path or 'the store in memory'}: the store is closed; open it again")
        tree = self.kept.tree
        if isinstance(tree, DurableTree) and tree._journal.is_behind:
            tree._journal.catch_up()
            self._read_space_again()

    def close(self) -> None:
        """Write all changes to disk, and close the files."""
        with self.writing:
            if self.is_closed:
                return
            self.version += 1  # as if a change went on for ever: queries under way read payloads at once
            with suppress(OSError, FileFormatError, JournalError):
                self.unread.read()
            self.is_closed = True
            if self.kept.database is not None:
                self.kept.database.close()
            if isinstance(self.kept.tree, DurableTree):
                self.kept.tree.close()

    # Files

    def contents(self) -> Contents:
        """Return the contents of a file."""
        fields, arrays = self.kept.tree._contents()
        records = np.frombuffer(packed(self.kept.records), np.uint8)
        return Contents(KIND, fields, arrays | {"records": records})

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file."""
        with self.writing:
            self.check_open()
            self.kept.tree._lock.change(
                lambda: write_object(path, self.contents, lambda read: made_of(read, thorough=True))
            )


def changes(method: Method) -> Method:
    """Let a method of a store be a change: no other thread makes one meanwhile, and queries hold back for it."""

    @wraps(method)
    def changing(self: Any, *args: Any, **kwargs: Any) -> Any:
        keeper: Keeper = self._keeper
        with keeper.writing:
            return keeper.kept.tree._lock.ahead(partial(method, self, *args, **kwargs))

    return cast(Method, changing)


def made_of(contents: Contents, *, thorough: bool) -> Kept:
    """Return a store in memory with the contents of a file.

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
    kept = Kept(tree, Records(database), database)
    kept.check(thorough=thorough)
    kept.records.upgrade()
    return kept


def read_file(path: str | os.PathLike[str], *, mmap: bool) -> Kept:
    """Return the store in a file.

    Raises
    ------
    FileFormatError
        If the file is damaged or not that of a store.
    OSError
        If it cannot be read.
    """
    contents = read_object(path, (KIND,), mmap=mmap)
    with refusing(path):
        return made_of(contents, thorough=not mmap)

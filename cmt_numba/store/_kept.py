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
from ..journal import JournalError, check_durability
from ..journal._database import is_blank
from ..journal._in_folder import CLOSED, READ_ONLY
from ..persistence import FileFormatError
from ..persistence._container import Contents
from ..persistence._trees import read_object, refusing, take, write_object
from ._metrics import METRICS, Frame
from ._query_map import QueryMap
from ._records import MemoryDatabase, Records, packed
from ._results import Unread
from ._trees import FolderTree, Kept, MemoryTree, in_folder, new_in_memory

KIND = "MemoryStore"
"""The kind of object that files hold."""

_VERSION = 1  # of the facts
_NEW = {"n_reroutes": 1, "scorer_learning_rate": 0.01, "n_links": 24}  # options of a new tree, unless given
_TREES, _TREES_WITHOUT_LINKS = 2, 4  # with links trees only say where to begin: more of them find no more

T = TypeVar("T")
Method = TypeVar("Method", bound=Callable[..., Any])


class Keeper:
    """A tree, its records, and the frame of its keys, which stay together whatever fails.

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
            OneOf(METRICS).check("metric", metric)
        self.path = None if path is None else Path(path)
        self._how = how
        self._threads = {name: value for name, value in options.items() if name == "n_threads"}
        if self.path is None:
            check_durability(**{name: value for name, value in how.items() if name != "read_only"})
            kept = new_in_memory(_with_defaults(options))
        else:
            journal = self.path / "journal.sqlite"
            is_new = not journal.exists() or is_blank(journal)
            kept = in_folder(self.path, _with_defaults(options) if is_new else options, **how)
        self._begin(kept, metric)

    @classmethod
    def of(cls, kept: Kept) -> Keeper:
        """Return the keeper of a store in memory."""
        keeper = cls.__new__(cls)
        keeper.path, keeper._how, keeper._threads = None, {}, {}
        keeper._begin(kept, None)
        return keeper

    def _begin(self, kept: Kept, metric: str | None) -> None:
        self.kept = kept
        self.writing = threading.RLock()
        self.version = 0  # odd while a change is under way
        self.rekeyed = 0  # odd while all memories get keys of another frame
        self._notes: dict[str, Any] = {}  # facts to write with the next change
        self.is_closed = False
        self.unread = Unread()
        self._is_broken = self._is_unreadable = False  # whether a failure has left a tree to be opened again
        try:
            self.frame = self._read_frame(metric)
        except BaseException:
            self.close()
            raise

    def _read_frame(self, metric: str | None) -> Frame:
        facts = self.kept.records.facts()
        if not facts and len(self.kept.tree) == 0:
            frame = Frame(metric or "cosine")
            with self.kept.change():
                self.kept.records.set_facts({"version": _VERSION, "metric": frame.metric})
            self.sync()
            return frame
        with refusing(self.path or "the store in memory"):
            frame = frame_of(facts, self.kept.tree.n_features)
        if metric not in (None, frame.metric):
            raise ValueError(f"metric must be {frame.metric!r}, as for the store in {self.path}, not {metric!r}")
        return frame

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
                if self._is_broken:
                    self._reopen()
                return self._make(work)
            finally:
                self.version += 1

    def _make(self, work: Callable[[Kept, Callable[[], None]], T]) -> T:
        """Make a change, and restore what was there before if it fails."""
        try:
            with self.kept.change() as commit:
                return work(self.kept, commit)
        except (OSError, FileFormatError, JournalError) as error:
            self._restore()
            cause = error.__cause__ if isinstance(error, JournalError) and error.__cause__ else error
            raise JournalError(f"{self.path}: the change was not made: {cause}") from error
        except BaseException:
            self._restore()
            raise

    def rekey(self, work: Callable[[Kept, Callable[[], None]], None]) -> None:
        """Make a change of the frame and of the keys of all memories."""
        with self.writing:
            self.rekeyed += 1
            try:
                self._change(work)  # on its own: a change that needs other keys is made, and noted, afterwards
            finally:
                self.rekeyed += 1

    def _restore(self) -> None:
        """Open the folder again if the tree in memory may differ from the one on disk."""
        tree = self.kept.tree
        if isinstance(tree, FolderTree) and tree._refusal not in (None, CLOSED, READ_ONLY):
            self._is_broken = True
            with suppress(JournalError):
                self._reopen()
        self.frame = self._read_frame_again()

    def _reopen(self) -> None:
        """Open a folder again after a failure; for queries only, if it cannot be written.

        Raises
        ------
        JournalError
            If it cannot be written. The next change tries again.
        """
        with self.writing:
            self._is_unreadable = True
            with suppress(JournalError, FileFormatError, OSError):
                self._close_folder()
            try:
                self.kept = in_folder(self.path, self._threads, **self._how)
                self._is_broken = self._is_unreadable = False
            except (JournalError, FileFormatError, OSError) as error:
                with suppress(JournalError, FileFormatError, OSError):
                    self.kept = in_folder(self.path, self._threads, **(self._how | {"read_only": True}))
                    self._is_unreadable = False
                raise JournalError(f"{self.path}: the store cannot be written: {error}") from error
            finally:
                self.frame = self._read_frame_again()

    def _read_frame_again(self) -> Frame:
        with suppress(OSError, FileFormatError):
            return frame_of(self.kept.records.facts(), self.kept.tree.n_features)
        return self.frame

    def set_frame(self, frame: Frame) -> None:
        """Write a frame, within a change. Readers must not meet keys of another one."""
        centre = None if frame.centre is None else frame.centre.astype("<f4").tobytes()
        self.kept.records.set_facts({"bound": frame.bound, "centre": centre})
        self.frame = frame

    def set_query_map(self, query_map: QueryMap) -> None:
        """Write what was learned of queries, within a change."""
        self.kept.records.set_facts({"query_map": query_map.written()})
        self.frame = self.frame._replace(query_map=query_map)

    def sync(self) -> None:
        """Write all changes to disk and wait for it; nothing in memory."""
        if isinstance(self.kept.tree, FolderTree):
            self.kept.tree.sync()

    def check_open(self) -> None:
        """Raise JournalError if the store is closed."""
        if self.is_closed:
            raise JournalError(f"{self.path or 'the store in memory'}: the store is closed; open it again")
        if self._is_unreadable:
            try:
                self._reopen()
            except JournalError:
                if self._is_unreadable:
                    raise

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
            self._close_folder()

    def _close_folder(self) -> None:
        tree = self.kept.tree
        if isinstance(tree, FolderTree):
            try:
                tree.close()
            finally:
                if tree._refusal == READ_ONLY:
                    tree._folder.close()

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


def _with_defaults(given: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a new tree."""
    options = _NEW | given
    return {"n_trees": _TREES_WITHOUT_LINKS if options["n_links"] == 0 else _TREES} | options


def frame_of(facts: dict[str, Any], n_features: int | None) -> Frame:
    """Return the frame that facts describe, of a tree with keys of so many features.

    Raises
    ------
    ValueError
        If they describe none.
    """
    version, metric, bound, centre = (facts.get(name) for name in ("version", "metric", "bound", "centre"))
    if version != _VERSION:
        raise ValueError(f"the store has version {version!r:.20}, but this version of cmt-numba reads {_VERSION}")
    if metric not in METRICS:
        raise ValueError(f"the store has an unknown metric {metric!r:.50}")
    if bound is None:
        learned = facts.get("query_map")
        return Frame(metric, query_map=None if learned is None else QueryMap.read(learned, n_features))
    if not isinstance(bound, float) or not 0.0 < bound < np.inf or not isinstance(centre, bytes | None):
        raise ValueError("the store has no valid bound or centre")
    return Frame(metric, bound, None if centre is None else np.frombuffer(centre, "<f4").astype(np.float32))


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
    tree = MemoryTree._made_of(contents.fields, arrays, thorough=thorough)
    database = MemoryDatabase(records.tobytes())
    kept = Kept(tree, Records(database), database)
    frame = frame_of(kept.records.facts(), tree.n_features)
    if not kept.agree(thorough=thorough):
        raise ValueError("its keys are not those of its memories")
    n_features = tree.n_features
    if n_features is not None:
        without_bound = frame.n_more > 0 and frame.bound == 0.0
        width = n_features - frame.n_more
        if without_bound or width < 1 or (frame.centre is not None and frame.centre.shape != (width,)):
            raise ValueError("its metric does not fit its keys")
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

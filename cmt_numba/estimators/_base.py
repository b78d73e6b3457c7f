"""What all estimators share: whole changes, files, folders, copies, and checks.

An estimator has its parameters and, once it has learned, one model with all that it has learned. What is learned from
scratch, and what takes long while other threads may read, is learned by a new model or by a copy, and swapped in by one
assignment. A short change is made in place while nobody reads. If it fails, labels or memories that the model's own
tables do not name are removed again; a mark says that this is still to be done.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Sized
from functools import cache, partial, wraps
from operator import attrgetter, is_
from time import perf_counter
from typing import Any, ClassVar, Self, TypeVar, cast

from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from .._change import Lockable, ReadWriteLock, changes
from .._forest import writeable
from .._validation import MOST_PASSES, Checked, Constraint, Flag, Integer, Optional, check_jobs
from ..persistence._container import Contents
from ..persistence._trees import read_object, refusing, write_object
from ..tree import OPTIONS
from ._aside import queries_drawn, take_over_draws
from ._durable import JOURNAL, EstimatorJournal, journal_of
from ._files import check_model, estimator_contents, estimator_of, pickled_attributes, unpickled_attributes

Method = TypeVar("Method", bound=Callable[..., Any])
Make = Callable[[Any], Any]

_LOCK, _MARK, _CHECKED, _DURATIONS = "_own_lock", "_unfinished", "_checked_parameters", "_seconds_a_row"
_NOT_COPIED = frozenset({_LOCK, _MARK, _CHECKED, _DURATIONS, JOURNAL})
_LEARNED = frozenset({"n_features_in_", "feature_names_in_", "_model"})

_LONG = 0.02  # seconds: readers should not wait longer
_FEW = 4  # rows that are likely to be learned in a moment
_MOST_GROWTH = 1.5  # of the time that a change is expected to take: one may have waited for something else

PASSES = Integer(0, MOST_PASSES)

OF_ALL: dict[str, Constraint] = {
    "n_trees": Optional(OPTIONS["n_trees"]),
    "n_probes": Optional(Integer(1)),
    "alpha": OPTIONS["alpha"],
    "n_reroutes": OPTIONS["n_reroutes"],
    "n_jobs": Checked(check_jobs, "int"),
    "random_state": Checked(check_random_state, "int, numpy.random.RandomState or None"),
    "verbose": Flag(),
}
"""The constraints of the parameters of every estimator."""

FIT_ONLY = frozenset({"leaf_multiplier", "alpha", "n_reroutes", "n_jobs", "random_state"})
"""Parameters that take effect when a forest is made, and not later."""


class _UnfinishedError(Exception):
    """A change was interrupted, and must be rolled back first."""


def changes_at_once(method: Method) -> Method:
    """Run a method of an estimator as one change: other threads see all of it or nothing, and so does its journal."""

    @wraps(method)
    def changing(self: Any, *args: Any, **kwargs: Any) -> Any:
        n_rows = _length(args[0] if args else next(iter(kwargs.values()), None))

        def change(make: Make, look: Callable[[Any], None] = _see_nothing) -> Any:
            return self._lock.change(partial(_make_change, self, method.__name__, n_rows, make, look))

        journal = journal_of(self)
        if journal is not None:
            return journal.change(method, args, kwargs, change)
        return change(lambda target: method(target, *args, **kwargs))

    return cast(Method, changing)


def _make_change(estimator: Any, name: str, n_rows: int, make: Make, look: Callable[[Any], None]) -> Any:
    """Make a change in place or in a copy; ``look`` is called with what has been changed, before others can read it."""
    lock: ReadWriteLock = estimator._lock
    if _MARK in vars(estimator):
        lock.step(estimator._roll_back)
    twin = None if lock.is_stepping() else estimator._twin_for(name, n_rows)

    def make_timed(target: Any) -> Any:
        began = perf_counter()
        result = make(target)
        estimator._note_duration(name, n_rows, perf_counter() - began)
        return result

    def make_in_place() -> Any:
        vars(estimator)[_MARK] = True
        try:
            result = make_timed(estimator)
            look(estimator)
        except BaseException:
            estimator._roll_back()
            raise
        vars(estimator).pop(_MARK, None)
        return result

    if twin is None:
        return lock.step(make_in_place)
    model = vars(twin).get("_model")
    drawn = None if model is None or model is vars(estimator).get("_model") else queries_drawn(model.forest)

    def swap_in() -> None:
        look(twin)
        if drawn is not None:
            take_over_draws(estimator.forest_, twin.forest_, drawn)
        estimator._become(twin)

    lock.let_in()
    result = make_timed(twin)
    if hasattr(estimator, "forest_"):
        twin._model.prepare_like(estimator._model, twin)
    lock.step(swap_in)
    return estimator if result is twin else result


@cache
def _values_of(*names: str) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that returns attributes of an object, at least two."""
    return attrgetter(*names)


def _length(rows: Any) -> int:
    """Return the number of rows or ids, as far as an argument that has not been checked says it."""
    shape = getattr(rows, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) > 0 else 1
    return len(rows) if isinstance(rows, Sized) else 1


def _see_nothing(_target: Any) -> None:
    """Look at nothing."""


def reads(method: Method) -> Method:
    """Run a method of an estimator while no other thread changes it."""

    @wraps(method)
    def reading(self: Any, *args: Any, **kwargs: Any) -> Any:
        lock: ReadWriteLock = self._lock

        def work() -> Any:
            if _MARK in vars(self) and not lock.is_stepping():
                raise _UnfinishedError
            return method(self, *args, **kwargs)

        while True:
            try:
                return lock.read(work)
            except _UnfinishedError:
                lock.change(partial(lock.step, self._roll_back))

    return cast(Method, reading)


class MemoryEstimator(Lockable, BaseEstimator):
    """Base class of the estimators.

    Any number of threads may use an estimator at once. Changes are made one after the other. A query during a change is
    answered as before the change, or waits for some milliseconds for a short one. Setting parameters is not such a
    change: who does so while other threads use the estimator must expect either value to be used.
    """

    _kind: ClassVar[str]  # in files
    _constraints: ClassVar[dict[str, Constraint]]  # of each parameter
    _fit_only: ClassVar[frozenset[str]]  # parameters without effect once there is a forest
    _replacing: ClassVar[frozenset[str]] = frozenset({"fit"})  # methods that replace the model by a new one
    _model: Any  # what has been learned; missing before the first fit

    def _check_parameters(self) -> None:
        """Check all parameters, unless they are those that were checked last: to check them takes longer than a row.

        So no call accepts a parameter that a later one, or the replay of a journal, would refuse.
        """
        given = _values_of(*self._constraints)(self)
        if (checked := vars(self).get(_CHECKED)) is not None and all(map(is_, given, checked)):
            return
        for name, constraint in self._constraints.items():
            constraint.check(name, getattr(self, name))
        self._check_combinations()
        vars(self)[_CHECKED] = given

    def _check_combinations(self) -> None:
        """Raise ValueError if parameters contradict each other."""

    _check_all_parameters = _check_parameters

    def _twin_for(self, name: str, n_rows: int) -> Self | None:
        """Return a copy in which a method is to make a change, or None if the change is to be made in place.

        Nothing is copied if no other thread has read the estimator, or if the change replaces the whole model.
        """
        replaces = name in self._replacing or not hasattr(self, "forest_")
        if not replaces and (self._is_short(name, n_rows) or not self._lock.has_other_readers()):
            return None
        twin = self._like()
        if hasattr(self, "forest_"):
            vars(twin).update((name, value) for name, value in vars(self).items() if name in _LEARNED)
            if not replaces:
                twin._model = self._model.copied()
        return twin

    def _is_short(self, name: str, n_rows: int) -> bool:
        known = vars(self).get(_DURATIONS, {}).get(name)
        is_short = n_rows <= _FEW if known is None else n_rows * known <= _LONG
        return is_short and not self._model.has_much_due(n_rows, self)

    def _note_duration(self, name: str, n_rows: int, seconds: float) -> None:
        """Take note of how long a change took, for the next one by the same method."""
        of_methods, measured = vars(self).setdefault(_DURATIONS, {}), seconds / max(1, n_rows)
        of_methods[name] = min(measured, _MOST_GROWTH * of_methods.get(name, measured))

    def _roll_back(self) -> None:
        """Undo what an interrupted change has left, if there was one. This may itself be interrupted."""
        if _MARK in vars(self):
            if hasattr(self, "forest_"):
                self._model.roll_back()
            vars(self).pop(_MARK, None)

    def _like(self) -> Self:
        """Return an estimator with the same parameters that has learned nothing."""
        other = object.__new__(type(self))
        apart = _LEARNED | _NOT_COPIED
        vars(other).update((name, value) for name, value in vars(self).items() if name not in apart)
        return other

    def _become(self, other: Self) -> Self:
        """Take over what another estimator has learned, by one assignment; return the estimator. Parameters stay."""
        kept = {name: value for name, value in vars(self).items() if name not in _LEARNED and name != _MARK}
        self.__dict__ = kept | {name: value for name, value in vars(other).items() if name in _LEARNED}
        return self

    # Files and copies

    def _attributes(self) -> dict[str, Any]:
        """Return what has been learned, by the names of attributes in files and pickles."""
        if not hasattr(self, "_model"):
            return {}
        names = {name: getattr(self, name) for name in ("n_features_in_", "feature_names_in_") if hasattr(self, name)}
        return names | self._model.attributes()

    @reads
    def check_invariants(self) -> None:
        """Check everything that must hold of what the estimator has learned.

        Raises
        ------
        cmt_numba.InvariantError
            Saying what is wrong. Unless memory was overwritten from outside, this is a bug.
        sklearn.exceptions.NotFittedError
            If it has learned nothing.
        """
        check_is_fitted(self, "forest_")
        for some in (self.forest_, getattr(self, "examples_", None)):
            if hasattr(some, "check_invariants"):
                some.check_invariants()
        check_model(self, thorough=True)

    @changes  # nothing, but other changes must wait
    def __getstate__(self) -> dict[str, Any]:
        if _MARK in vars(self):
            self._lock.step(self._roll_back)
        state: Any = super().__getstate__()
        state = {name: value for name, value in state.items() if name not in _NOT_COPIED | _LEARNED}
        # Other threads may go on before the copy is pickled.
        return pickled_attributes(self._kind, copy.deepcopy(state | self._attributes()))

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = {name: writeable(value) for name, value in state.items()}
        state = unpickled_attributes(self, state)
        super().__setstate__(state)

    @changes  # nothing, but other changes must wait
    def _contents(self) -> Contents:
        """Return what the estimator is in a file."""
        if _MARK in vars(self):
            self._lock.step(self._roll_back)
        return estimator_contents(self)

    @changes  # nothing, but other changes must wait
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the estimator and all that it has learned to a file.

        A file that is there already is replaced at once, when the new one is complete: a crash leaves one or the other.
        See :mod:`cmt_numba.persistence` for what is in it. What :meth:`load` would refuse is not written.

        Parameters
        ----------
        path : path-like
            The file.

        Raises
        ------
        TypeError, ValueError
            If a parameter cannot be used; or if a parameter, a class or a value is of a type that cannot be saved: of
            all objects only those that JSON gives back as they were. Nothing has been written then.
        cmt_numba.InvariantError
            If what it has learned contradicts itself, which is a bug. Nothing has been written then.
        OSError
            If the file cannot be written.
        """
        write_object(path, self._contents, partial(estimator_of, type(self), thorough=True))

    @classmethod
    def load(cls, path: str | os.PathLike[str], mmap: bool = False) -> Self:
        """Return the estimator that :meth:`save` has written. It goes on exactly as the one saved would.

        Parameters
        ----------
        path : path-like
            The file.
        mmap : bool, default False
            Map the file instead of reading it, as :meth:`ContextualMemoryTree.load` does: only for files that you
            trust.

        Raises
        ------
        cmt_numba.persistence.FileFormatError
            If the file is not one of such an estimator, damaged, or of a later version; it says what is wrong.
        OSError
            If the file cannot be read.
        """
        contents = read_object(path, (cls._kind,), mmap=mmap)
        with refusing(path):
            estimator: Self = estimator_of(cls, contents, thorough=not mmap)
            return estimator

    # Folders

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        sync_every: int = 1,
        snapshot_bytes: int = 1 << 26,
        snapshot_seconds: float = 10.0,
        read_only: bool = False,
        **options: Any,
    ) -> Self:
        """Return the estimator in a folder, whose changes survive a crash.

        Every change is on disk before the call returns: ``fit``, ``partial_fit``, ``remove``, ``remove_classes``,
        ``calibrate``, ``feedback``, ``replace`` and ``set_values``, as far as the class has them. A change that fails
        half-way leaves an estimator that answers, but refuses further changes until it has been closed and opened
        again, which restores it before that change. It can be used in a ``with`` statement, and its copies are in
        memory. Values of a retriever must be such as ``save`` can write; others are refused, and nothing has changed
        then. Random numbers that its queries draw are on disk with the next change, and at the latest when it is
        closed.

        Parameters
        ----------
        path : path-like
            The folder: empty, or that of such an estimator. If it does not exist, it is created with access for its
            owner only; its parent must exist.
        sync_every : int, default 1
            The number of changes after which to wait for the disk. With more than 1, a crash of the machine may lose
            up to ``sync_every - 1`` of the last changes; a crash of the process loses none.
        snapshot_bytes : int, default 2**26
            The size of the journal, in bytes, above which a snapshot replaces it; at least the size of the last one.
        snapshot_seconds : float, default 10.0
            The total time of the changes in the journal, in seconds, above which a snapshot replaces it; at least 4
            times the time of the last one. Opening the folder takes about this long.
        read_only : bool, default False
            Open an existing estimator for answers and write nothing, for example if the disk is full or cannot be
            written. Changes are not possible. The folder is not locked: other processes may open it afterwards, and
            their changes are not seen. A folder that is open for changes cannot be opened.
        **options
            Options of the class. In an existing folder they replace those stored, like ``set_params``, and are stored
            with the next change. Those that only count when it first learns must be those stored or be omitted.
            ``random_state`` must be an int or None, for which a number is drawn once.

        Returns
        -------
        estimator
            The estimator.

        Raises
        ------
        cmt_numba.journal.AlreadyOpenError
            If the folder is already open in this or another process.
        cmt_numba.persistence.FileFormatError
            If the folder is damaged, of a later version, or not that of such an estimator.
        OSError
            If the folder cannot be read or written.
        TypeError, ValueError
            If an option cannot be used.

        Examples
        --------
        >>> import tempfile
        >>> import numpy as np
        >>> from cmt_numba import CMTClassifier
        >>> folder = tempfile.TemporaryDirectory()
        >>> with CMTClassifier.open(folder.name, random_state=0) as classifier:
        ...     _ = classifier.partial_fit(np.eye(3), ["a", "b", "c"]).remove_classes(["c"])
        >>> with CMTClassifier.open(folder.name) as classifier:
        ...     classifier.predict(np.eye(3)[:2]).tolist()
        ['a', 'b']
        >>> folder.cleanup()
        """
        how: dict[str, Any] = {"sync_every": sync_every, "snapshot_bytes": snapshot_bytes}
        how |= {"snapshot_seconds": snapshot_seconds, "read_only": bool(read_only)}
        journal = EstimatorJournal(path, cls, options, how)
        estimator: Self = journal.estimator
        vars(estimator)[JOURNAL] = journal
        return estimator

    def checkpoint(self) -> None:
        """Replace the journal by a snapshot, so that the folder opens faster.

        That happens by itself when the journal gets long. Take one before the folder is opened by another version of a
        library or on another kind of processor.

        Raises
        ------
        JournalError
            If the estimator is closed, or could not be written.
        ValueError
            If it is not in a folder.
        """
        journal = vars(self).get(JOURNAL)
        if journal is None:
            raise ValueError(f"there is no folder: make the estimator by {type(self).__name__}.open, or call save")
        journal.snapshot()

    def close(self) -> None:
        """Write all changes to disk and close the folder, if there is one. Then it still answers, but cannot change."""
        journal = vars(self).get(JOURNAL)
        if journal is not None:
            journal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

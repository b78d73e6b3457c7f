"""What all estimators have in common: whole changes, files, copies, and a check of everything that must hold.

A change of an estimator is made in an order that can be broken off at any place, by an error or an interrupt. What is
learned from scratch, and what takes long while other threads may read, is learned aside and put in place at once
(``_aside.py``). Otherwise one assignment to the estimator's own tables makes new memories or labels known, or lets old
ones be forgotten, and these tables say what must be there: what was inserted into a forest and is not in the tables is
surplus, and is taken out again. A mark says that a change is under way. The next use that finds it on an estimator that
no thread is changing removes the surplus first, so this may be interrupted as well.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Sized
from functools import cache, partial, wraps
from operator import attrgetter, is_
from time import perf_counter
from typing import Any, ClassVar, Self, TypeVar, cast
from weakref import WeakKeyDictionary

from sklearn.utils.validation import check_is_fitted

from .._concurrency.rwlock import Lockable, ReadWriteLock, changes
from .._forest.structures import writeable
from .._validation import Constraint
from ..persistence._container import Contents
from ..persistence._trees import read_object, refusing, write_object
from ._aside import note_duration, queries_drawn, take_over_draws, twin_of
from ._checks import check_parts
from ._durable import FORM, form_of
from ._files import LEARNED, estimator_contents, estimator_of, pickled_attributes, unpickled_attributes

Method = TypeVar("Method", bound=Callable[..., Any])
Make = Callable[[Any], Any]

_LOCK, _MARK = "_own_lock", "_unfinished"
_NOT_COPIED = frozenset({_LOCK, _MARK, FORM})
_CHECKED: WeakKeyDictionary[Any, tuple[Any, ...]] = WeakKeyDictionary()  # parameters checked last


class _UnfinishedError(Exception):
    """A change was interrupted, and must be rolled back first."""


def changes_at_once(method: Method) -> Method:
    """Let a method of an estimator be a change: at once for other threads, and valid wherever it is broken off."""

    @wraps(method)
    def changing(self: Any, *args: Any, **kwargs: Any) -> Any:
        n_rows = _length(args[0] if args else next(iter(kwargs.values()), None))

        def change(make: Make, look: Callable[[Any], None] = _see_nothing) -> Any:
            return self._lock.change(partial(_make_change, self, method.__name__, n_rows, make, look))

        form = form_of(self)
        if form is not None:
            return form.change(method, args, kwargs, change)
        return change(lambda target: method(target, *args, **kwargs))

    return cast(Method, changing)


def _make_change(estimator: Any, name: str, n_rows: int, make: Make, look: Callable[[Any], None]) -> Any:
    """Make a change in place or in a twin; ``look`` is called with what has been changed, before others can read it."""
    lock: ReadWriteLock = estimator._lock
    if _MARK in vars(estimator):
        lock.step(estimator._roll_back)
    twin = None if lock.is_stepping() else twin_of(estimator, _NOT_COPIED, name, n_rows, lock)

    def make_timed(target: Any) -> Any:
        began = perf_counter()
        result = make(target)
        note_duration(estimator, name, n_rows, perf_counter() - began)
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
    forest = vars(twin).get("forest_")
    drawn = None if forest is None or forest is estimator.forest_ else queries_drawn(forest)

    def put_in_place() -> None:
        look(twin)
        if drawn is not None:
            take_over_draws(estimator.forest_, twin.forest_, drawn)
        estimator._become(twin)

    lock.let_in()
    result = make_timed(twin)
    twin._get_ready(estimator)
    lock.step(put_in_place)
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
    """Let a method of an estimator read it, while no other thread changes it."""

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


class SavableEstimator(Lockable):
    """What estimators have in common that can be saved. Their attributes are listed in ``_files.py``.

    Any number of threads may use an estimator at once. Changes are made one after the other, and at once: what is asked
    meanwhile is answered as before the change, or waits for some milliseconds for a short one. To set parameters is no
    change in this sense: who does so while other threads use the estimator must expect either value to be used.
    """

    _kind: ClassVar[str]
    _constraints: ClassVar[dict[str, Constraint]]  # of each parameter
    _fit_only: ClassVar[frozenset[str]]  # parameters without effect once there is a forest

    def _check_parameters(self) -> None:
        """Check all parameters, unless they are those that were checked last: to check them takes longer than a row.

        So no call accepts a parameter that a later one, or the replay of a journal, would refuse.
        """
        given = _values_of(*self._constraints)(self)
        if (checked := _CHECKED.get(self)) is not None and all(map(is_, given, checked)):
            return
        for name, constraint in self._constraints.items():
            constraint.check(name, getattr(self, name))
        _CHECKED[self] = given

    def _check_all_parameters(self) -> None:
        self._check_parameters()

    def _roll_back(self) -> None:
        """Undo what an interrupted change has left, if there was one. This may itself be interrupted."""
        if _MARK in vars(self):
            if hasattr(self, "forest_"):
                self._recover()
            vars(self).pop(_MARK, None)

    def _recover(self) -> None:
        """Take out of the forest, and of all else, what the estimator's own tables do not know."""
        raise NotImplementedError

    def _begin_anew(self, learn: Callable[[Any], None]) -> Self:
        """Have ``learn`` make another estimator learn that has learned nothing, and take its place at once."""
        learned = LEARNED[self._kind] | _NOT_COPIED
        anew: Any = object.__new__(type(self))
        vars(anew).update((name, value) for name, value in vars(self).items() if name not in learned)
        learn(anew)
        self._become(anew)
        return self

    def _become(self, other: Any) -> None:
        """Have learned what another estimator has learned, by one assignment. Parameters stay."""
        learned = LEARNED[self._kind]
        kept = {name: value for name, value in vars(self).items() if name not in learned and name != _MARK}
        self.__dict__ = kept | {name: value for name, value in vars(other).items() if name in learned}

    def _get_ready(self, _former: Any) -> None:
        """Prepare what answers need, if the former estimator has, so that those who ask do not wait for it."""

    def _has_much_due(self, _n_rows: int) -> bool:
        """Return whether learning this number of rows entails much more work than the rows themselves."""
        return False

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
        trees: list[Any] = [getattr(self, name, None) for name in ("forest_", "examples_")]
        for some in trees:
            if hasattr(some, "check_invariants"):
                some.check_invariants()
        check_parts(self, thorough=True)

    @changes  # nothing, but other changes must wait
    def __getstate__(self) -> dict[str, Any]:
        if _MARK in vars(self):
            self._lock.step(self._roll_back)
        state: Any = super().__getstate__()
        # Other threads may go on before the copy is pickled.
        state = {name: copy.deepcopy(value) for name, value in state.items() if name not in _NOT_COPIED}
        return pickled_attributes(self._kind, state)

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = {name: writeable(value) for name, value in state.items()}
        super().__setstate__(unpickled_attributes(self._kind, state))  # type: ignore[misc]

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

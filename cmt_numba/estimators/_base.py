"""What all estimators share: parameters, changes of the model, files, folders, copies, and checks.

An estimator has its parameters and, once it has learned, one model with all that it has learned. A change validates its
arguments, learns, and is over: in the model itself if that takes a moment or no other thread reads, otherwise in a
copy that is swapped in by one assignment.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from functools import cache, partial, wraps
from operator import attrgetter, is_
from time import perf_counter
from typing import Any, ClassVar, Self, TypeVar, cast

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from .._change import Lockable, ReadWriteLock, changes, reads, undone_by
from .._forest import writeable
from .._validation import (
    MOST_PASSES,
    Checked,
    Constraint,
    Flag,
    Integer,
    Optional,
    check_jobs,
    is_plain,
    sound,
    unmasked,
)
from ..journal import Durability
from ..persistence import Contents, read_object, refusing, write_object
from ..tree import OPTIONS, ContextualMemoryTree
from ._draws import queries_drawn, take_over_draws
from ._durable import FOLDER, EstimatorFolder, folder_of
from ._files import LEARNED, check_model, estimator_contents, estimator_of, pickled_attributes, unpickled_attributes
from ._input import DTYPES

Method = TypeVar("Method", bound=Callable[..., Any])

_LOCK, _CHECKED, _DURATIONS = "_own_lock", "_checked_parameters", "_seconds_a_row"
_NO_TARGETS = object()
_PLAIN_TARGETS = "biuUS"  # kinds of NumPy's types whose values are all valid
_NOT_COPIED = frozenset({_LOCK, _CHECKED, _DURATIONS, FOLDER})

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


def changes_model(method: Method) -> Method:
    """Run a method of an estimator as a change, which is journaled if the estimator is in a folder."""

    @wraps(method)
    def changing(self: Any, *args: Any, **kwargs: Any) -> Any:
        folder = folder_of(self)
        if folder is not None:
            return folder.change(method, args, kwargs)
        return self._lock.change(partial(method, self, *args, **kwargs))

    return cast(Method, changing)


@cache
def _values_of(*names: str) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that returns attributes of an object, at least two."""
    return attrgetter(*names)


def trees_of(estimator: Any) -> ContextualMemoryTree | None:
    """Return the trees of an estimator; None if it has grown none, is not fitted, or comes from another library."""
    model = vars(estimator).get("_model")
    if model is None or not isinstance(estimator, MemoryEstimator):
        return None
    trees: ContextualMemoryTree | None = model.index.trees if hasattr(model, "index") else model.tree
    return trees if trees is not None and trees.n_memories > 0 else None


class MemoryEstimator(Lockable, BaseEstimator):
    """Base class of the estimators.

    Any number of threads may use an estimator at once. Changes are made one after the other. A query during a change is
    answered as before the change, or waits for some milliseconds for a short one. Setting parameters is not such a
    change: who does so while other threads use the estimator must expect either value to be used.
    """

    _kind: ClassVar[str]  # in files
    _constraints: ClassVar[dict[str, Constraint]]  # of each parameter
    _fit_only: ClassVar[frozenset[str]]  # parameters without effect once there is a forest
    _model: Any  # what has been learned; missing before the first fit
    n_features_in_: int

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
        self.__dict__[_CHECKED] = given

    def _check_combinations(self) -> None:
        """Raise ValueError if parameters contradict each other."""

    def _checked_matrix(self, X: Any) -> Any:
        """Return rows for a fitted estimator, of the width that it was fitted with, as ``check_rows`` takes them.

        Parameters are checked as well: they may have been set since.

        Raises
        ------
        NotFittedError
            If the estimator has not been fitted.
        TypeError, ValueError
            If the estimator cannot use ``X`` or a parameter.
        """
        if "_model" not in self.__dict__:
            check_is_fitted(self)
        X = self._validated(X)
        self._check_parameters()
        return X

    def _validated(self, X: Any, y: Any = _NO_TARGETS, *, reset: bool = False) -> Any:
        """Return what scikit-learn's ``validate_data`` returns of rows and targets, as ``check_rows`` takes them.

        Scikit-learn's checks for data frames, lists and names of features take longer than to learn a row or to answer
        it. Arrays that need none of them are only looked at; ``check_rows`` checks that their numbers are finite.

        Parameters
        ----------
        X : Any
            Rows.
        y : Any, optional
            One target for each row; left out, only ``X`` is returned.
        reset : bool, default False
            Note the width and the names of features instead of comparing them with those noted.
        """
        if not is_plain(X, None if reset else self.n_features_in_) or hasattr(self, "feature_names_in_"):
            targets = {} if y is _NO_TARGETS else {"y": unmasked("y", y)}
            return validate_data(self, sound(X), **targets, accept_sparse="csr", dtype=DTYPES, reset=reset)
        if reset:
            self.n_features_in_ = X.shape[1]
        if y is _NO_TARGETS:
            return X
        if not (type(y) is np.ndarray and y.shape == X.shape[:1] and y.dtype.kind in _PLAIN_TARGETS):
            y = validate_data(self, X="no_validation", y=unmasked("y", y))
            check_consistent_length(X, y)
        return X, y

    def __sklearn_is_fitted__(self) -> bool:
        return "_model" in vars(self)

    # Changes

    def _unfitted(self) -> Self:
        """Return an estimator with the same parameters that has learned nothing."""
        other = object.__new__(type(self))
        apart = LEARNED | _NOT_COPIED
        other.__dict__.update((name, value) for name, value in vars(self).items() if name not in apart)
        return other

    def _become(self, fitted: Self) -> Self:
        """Take over what another estimator has learned; return the estimator. Parameters stay."""
        if self.__sklearn_is_fitted__():
            fitted._model.prepare_like(self._model, self)
        folder, former = folder_of(self), vars(self).get("_model")

        def swap_in() -> None:
            kept = {name: value for name, value in vars(self).items() if name not in LEARNED}
            if folder is not None:
                folder.begin(former)
            self.__dict__ = kept | {name: value for name, value in vars(fitted).items() if name in LEARNED}
            if folder is not None:
                folder.note(self._model)

        self._lock.step(swap_in)
        return self

    def _change_model(self, method: str, n_rows: int, learn: Callable[[Any], Any], *, replaces: bool = False) -> Self:
        """Have ``learn`` change the model, or return another one; return the estimator.

        Parameters
        ----------
        method : str
            The public method that makes the change, for which durations are noted.
        n_rows : int
            How many rows or ids it learns.
        learn : callable
            Receives the model, or a copy of it, and returns it, or a new one.
        replaces : bool, default False
            Whether ``learn`` leaves the model that it receives as it is, and returns a new one.
        """
        lock: ReadWriteLock = self._lock
        folder, former = folder_of(self), self._model

        def learn_timed(model: Any) -> Any:
            began = perf_counter()
            learned = learn(model)
            self._note_duration(method, n_rows, perf_counter() - began)
            return learned

        def learn_in_place() -> None:
            if folder is not None:
                folder.begin(former)
            with undone_by(former.roll_back):
                self._model = learn_timed(former)
            if folder is not None:
                folder.note(self._model)

        def swap_in() -> None:
            take_over_draws(former.tree, learned.tree, drawn)
            self._model = learned
            if folder is not None:
                folder.note(learned)

        if not (replaces or self._takes_long(method, n_rows)):
            lock.step(learn_in_place)
            return self
        if folder is not None:
            folder.begin(former)
        lock.let_in()
        drawn = queries_drawn(former.tree)
        learned = learn_timed(former if replaces else former.copied())
        learned.prepare_like(former, self)
        lock.step(swap_in)
        return self

    def _takes_long(self, method: str, n_rows: int) -> bool:
        """Return whether a change would keep a reader of another thread waiting for long."""
        known = vars(self).get(_DURATIONS, {}).get(method)
        is_short = n_rows <= _FEW if known is None else n_rows * known <= _LONG
        if is_short and not self._model.has_much_due(n_rows, self):
            return False
        return self._lock.has_other_readers()

    def _note_duration(self, method: str, n_rows: int, seconds: float) -> None:
        """Note how long a change took, for the next one by the same method."""
        of_methods, measured = self.__dict__.setdefault(_DURATIONS, {}), seconds / max(1, n_rows)
        of_methods[method] = min(measured, _MOST_GROWTH * of_methods.get(method, measured))

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
        check_is_fitted(self)
        some: Any
        for some in (self.forest_, getattr(self, "examples_", None)):
            if hasattr(some, "check_invariants"):
                some.check_invariants()
        check_model(self, thorough=True)

    @changes  # nothing, but other changes must wait
    def __getstate__(self) -> dict[str, Any]:
        state: Any = super().__getstate__()
        state = {name: value for name, value in state.items() if name not in _NOT_COPIED | LEARNED}
        # Other threads may go on before the copy is pickled.
        return pickled_attributes(self._kind, copy.deepcopy(state | self._attributes()))

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = {name: writeable(value) for name, value in state.items()}
        super().__setstate__(unpickled_attributes(self._kind, state))

    @changes  # nothing, but other changes must wait
    def _contents(self) -> Contents:
        """Return what the estimator is in a file."""
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
        half-way or is interrupted changes nothing: what was learned is read again from the folder, which takes about
        as long as opening it. The estimator can be used in a ``with`` statement, and its copies are in memory. Values
        of a retriever must be such as ``save`` can write; others are refused, and nothing has changed then. Random
        numbers that its queries draw are on disk with the next change, and at the latest when it is closed.

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
        durability = Durability(sync_every, snapshot_bytes, snapshot_seconds)
        estimator: Self = EstimatorFolder(cls, options).open(path, durability, read_only=bool(read_only))
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
        folder = folder_of(self)
        if folder is None:
            raise ValueError(f"there is no folder: make the estimator by {type(self).__name__}.open, or call save")
        folder.journal.snapshot()

    def close(self) -> None:
        """Write all changes to disk and close the folder, if there is one. Then it still answers, but cannot change."""
        folder = folder_of(self)
        if folder is not None:
            folder.journal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

"""The base class of the estimators: parameters, changes of the model, files, folders, copies, and checks.

An estimator has parameters and, once fitted, a model. A change validates its arguments and then learns: in the model
itself if that is short or no other thread reads, otherwise in a copy that is swapped in atomically.
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
_PLAIN_TARGETS = "biuUS"  # kinds of NumPy types that have no invalid values
_NOT_COPIED = frozenset({_LOCK, _CHECKED, _DURATIONS, FOLDER})

_LONG = 0.02  # seconds that readers may wait
_FEW = 4  # this many rows are probably learned quickly
_MOST_GROWTH = 1.5  # limit on the growth of the estimate in one step; one slow call may be an outlier

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
"""Constraints of the parameters that all estimators have."""

FIT_ONLY = frozenset({"leaf_multiplier", "alpha", "n_reroutes", "n_jobs", "random_state"})
"""Parameters that take effect only when a forest is made."""


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
    """Return a function that returns two or more attributes of an object."""
    return attrgetter(*names)


def trees_of(estimator: Any) -> ContextualMemoryTree | None:
    """Return the trees of an estimator; None if it has none, is not fitted, or comes from another library."""
    model = vars(estimator).get("_model")
    if model is None or not isinstance(estimator, MemoryEstimator):
        return None
    trees: ContextualMemoryTree | None = model.index.trees if hasattr(model, "index") else model.tree
    return trees if trees is not None and trees.n_memories > 0 else None


class MemoryEstimator(Lockable, BaseEstimator):
    """Base class of the estimators.

    Any number of threads may use an estimator concurrently. Changes are made one after the other. A query during a
    change gets the answer from before the change, or waits a few milliseconds for a short one. ``set_params`` is not
    atomic in this sense: other threads may see the old or the new value.
    """

    _kind: ClassVar[str]  # in files
    _constraints: ClassVar[dict[str, Constraint]]  # of each parameter
    _fit_only: ClassVar[frozenset[str]]  # parameters that have no effect once there is a forest
    _model: Any  # the learned state; missing before the first fit
    n_features_in_: int

    def _check_parameters(self) -> None:
        """Check all parameters if one has changed since the last check. A check takes longer than predicting a row.

        All are checked, so that no call accepts a parameter that a later call or a replay would refuse.
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
        """Return rows for a fitted estimator as an argument for ``check_rows``.

        Parameters are checked as well, because they may have been set since the fit.

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
        """Validate rows and targets like scikit-learn's ``validate_data``; return arguments for ``check_rows``.

        Scikit-learn's checks of data frames, lists and feature names take longer than learning or predicting a row.
        Arrays that need none of them skip these checks; ``check_rows`` checks that their numbers are finite.

        Parameters
        ----------
        X : Any
            Rows.
        y : Any, optional
            One target for each row. If omitted, only ``X`` is returned.
        reset : bool, default False
            Store the number and the names of features, instead of comparing them with those stored.
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
        """Return an unfitted estimator with the same parameters."""
        other = object.__new__(type(self))
        apart = LEARNED | _NOT_COPIED
        other.__dict__.update((name, value) for name, value in vars(self).items() if name not in apart)
        return other

    def _become(self, fitted: Self) -> Self:
        """Take over the model of another estimator, but not its parameters; return this estimator."""
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
        """Change the model by ``learn``; return the estimator.

        Parameters
        ----------
        method : str
            The public method that makes the change. Its durations are recorded.
        n_rows : int
            The number of rows or ids.
        learn : callable
            Receives the model or a copy of it, and returns the changed or a new one.
        replaces : bool, default False
            Whether ``learn`` returns a new model and does not change the one that it receives.
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
        """Return whether a change would make readers in other threads wait for a long time."""
        known = vars(self).get(_DURATIONS, {}).get(method)
        is_short = n_rows <= _FEW if known is None else n_rows * known <= _LONG
        if is_short and not self._model.has_much_due(n_rows, self):
            return False
        return self._lock.has_other_readers()

    def _note_duration(self, method: str, n_rows: int, seconds: float) -> None:
        """Record the duration of a change, to estimate that of the next one by the same method."""
        of_methods, measured = self.__dict__.setdefault(_DURATIONS, {}), seconds / max(1, n_rows)
        of_methods[method] = min(measured, _MOST_GROWTH * of_methods.get(method, measured))

    # Files and copies

    def _attributes(self) -> dict[str, Any]:
        """Return the learned attributes for a file or pickle."""
        if not hasattr(self, "_model"):
            return {}
        names = {name: getattr(self, name) for name in ("n_features_in_", "feature_names_in_") if hasattr(self, name)}
        return names | self._model.attributes()

    @reads
    def check_invariants(self) -> None:
        """Check the invariants of the model.

        Raises
        ------
        cmt_numba.InvariantError
            If an invariant is violated. Unless memory was overwritten from outside, this is a bug.
        sklearn.exceptions.NotFittedError
            Before the first fit.
        """
        check_is_fitted(self)
        some: Any
        for some in (self.forest_, getattr(self, "examples_", None)):
            if hasattr(some, "check_invariants"):
                some.check_invariants()
        check_model(self, thorough=True)

    @changes  # read-only, but excludes other changes
    def __getstate__(self) -> dict[str, Any]:
        state: Any = super().__getstate__()
        state = {name: value for name, value in state.items() if name not in _NOT_COPIED | LEARNED}
        # Other threads may proceed before the copy is pickled.
        return pickled_attributes(self._kind, copy.deepcopy(state | self._attributes()))

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = {name: writeable(value) for name, value in state.items()}
        super().__setstate__(unpickled_attributes(self._kind, state))

    @changes  # read-only, but excludes other changes
    def _contents(self) -> Contents:
        """Return the contents of a file of the estimator."""
        return estimator_contents(self)

    @changes  # read-only, but excludes other changes
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the estimator and all that it has learned to a file.

        An existing file is replaced atomically when the new one is complete. See :mod:`cmt_numba.persistence` for the
        format. The file is written only if :meth:`load` can read it.

        Parameters
        ----------
        path : path-like
            The file.

        Raises
        ------
        TypeError, ValueError
            If a parameter is invalid, or a parameter, class or value has a type that cannot be saved. Objects can be
            saved only if JSON returns them unchanged. Nothing is written then.
        cmt_numba.InvariantError
            If the model is inconsistent, which is a bug. Nothing is written then.
        OSError
            If the file cannot be written.
        """
        write_object(path, self._contents, partial(estimator_of, type(self), thorough=True))

    @classmethod
    def load(cls, path: str | os.PathLike[str], mmap: bool = False) -> Self:
        """Return an estimator from a file written by :meth:`save`. It behaves exactly like the saved one.

        Parameters
        ----------
        path : path-like
            The file.
        mmap : bool, default False
            Whether to map the file instead of reading it, like :meth:`ContextualMemoryTree.load`. Only for trusted
            files.

        Raises
        ------
        cmt_numba.persistence.FileFormatError
            If the file is damaged, of a later version, or not of such an estimator.
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
        ``calibrate``, ``feedback``, ``replace`` and ``set_values``, where the class has them. A change that fails or is
        interrupted changes nothing: the model is read again from the folder, in about the time of opening it. The
        estimator is a context manager. Copies of it are in memory only. A retriever refuses values that ``save`` cannot
        write. The state of its random numbers is written with the next change, or when it is closed.

        Parameters
        ----------
        path : path-like
            A folder of an estimator of this class, or an empty folder. If it does not exist, it is created with
            access for its owner only; its parent must exist.
        sync_every : int, default 1
            Number of changes between waits for the disk. With more than 1, a crash of the machine may lose
            up to ``sync_every - 1`` of the last changes; a crash of the process loses none.
        snapshot_bytes : int, default 2**26
            The size of the journal, in bytes, above which a snapshot replaces it; at least the size of the last one.
        snapshot_seconds : float, default 10.0
            The total time of the changes in the journal, in seconds, above which a snapshot replaces it; at least 4
            times the time of the last snapshot. Opening the folder takes about this time.
        read_only : bool, default False
            Whether to open an existing estimator for queries only and write nothing, for example if the disk is full or
            read-only. The folder is not locked: other processes may open it afterwards, and their changes are not
            visible here. A folder that is open for changes cannot be opened.
        **options
            Parameters of the class. In an existing folder they replace the stored ones, like ``set_params``, and are
            stored with the next change. Parameters that take effect only at the first fit must equal the stored ones or
            be omitted. ``random_state`` must be an int, or None to draw one.

        Returns
        -------
        estimator
            The estimator.

        Raises
        ------
        cmt_numba.journal.AlreadyOpenError
            If the folder is already open in this or another process.
        cmt_numba.persistence.FileFormatError
            If the folder is damaged, of a later version, or not of such an estimator.
        OSError
            If the folder cannot be read or written.
        TypeError, ValueError
            If an option is invalid.

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

        This happens automatically when the journal gets long. Call this method before another version of a library, or
        another kind of processor, opens the folder.

        Raises
        ------
        JournalError
            If the estimator is closed, or could not be written.
        ValueError
            If the estimator is not in a folder.
        """
        folder = folder_of(self)
        if folder is None:
            raise ValueError(
                f"the estimator is not in a folder: create it with {type(self).__name__}.open, or call save"
            )
        folder.journal.snapshot()

    def close(self) -> None:
        """Write all changes to disk and close the folder, if there is one. Queries still work; changes do not."""
        folder = folder_of(self)
        if folder is not None:
            folder.journal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

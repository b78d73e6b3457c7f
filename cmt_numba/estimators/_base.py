"""Base class of the estimators, with parameter checks, model changes, files and folders.

An estimator has parameters and, once fitted, a model. A change first validates its arguments. A quick change then
updates the model in place without interruption. A long one trains a copy and swaps it in atomically.
"""

import copy
import os
from collections.abc import Callable
from functools import cache, partial
from operator import attrgetter, is_
from time import perf_counter
from types import SimpleNamespace
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from .. import _validation as checks
from .._change import Lockable, ReadWriteLock, changes, reads, uninterrupted
from .._jit import keeps_interpreter
from .._kernels import require, writeable
from ..journal import InFolder
from ..persistence import PickledArrays, Saved, object_of
from ._checks import check_model
from ._durable import CHECKED, EstimatorFolder
from ._fields import LEARNED_STATE
from ._input import DTYPES

Method = TypeVar("Method", bound=Callable[..., Any])

_LOCK, _FOLDER, _DURATIONS = "_own_lock", "_folder", "_seconds_a_row"
_NO_TARGETS = object()
_PLAIN_TARGETS = "biuUS"  # kinds of NumPy dtypes without NaN or other invalid values
_NOT_COPIED = frozenset({_LOCK, CHECKED, _DURATIONS, _FOLDER})

_LONG = 0.02  # maximum time that readers wait, in seconds
_LONGEST = 1.0  # maximum time that an interrupt waits, in seconds
_FEW = 4  # before the first timing, changes with at most this many rows count as quick
_MAX_GROWTH = 1.5  # limit on the growth of a time estimate per call, because one slow call may be an outlier

PASSES = checks.Integer(0, checks.MAX_PASSES)

SEED = checks.Checked(check_random_state, "int, numpy.random.RandomState or None")


def queries_model(method: Method) -> Method:
    """Run an estimator method as a read of the model, which keeps the interpreter lock if it has few rows."""
    return keeps_interpreter(reads(method))


_values_of = cache(attrgetter)


class MemoryEstimator(Lockable, InFolder, Saved, checks.Constrained, BaseEstimator):
    """Base class of the estimators.

    An estimator is thread-safe. Changes run one at a time. A query during a change uses the model from before the
    change, or waits a few milliseconds if the change is short. ``set_params`` takes no lock: other threads may see the
    old or the new value.
    """

    _form = EstimatorFolder
    _fit_only: ClassVar[frozenset[str]] = frozenset()  # parameters without effect after the first fit
    _model: Any  # the learned state; absent before the first fit
    n_features_in_: int

    def _check_parameters(self) -> None:
        """Check all parameters, unless none has changed since the last check, which takes longer than predicting a row.

        All are checked, so that no call accepts a value that a later call or a replay would reject.
        """
        given = _values_of(*self._constraints)(self)
        if (checked := vars(self).get(CHECKED)) is not None and all(map(is_, given, checked)):
            return
        for name, constraint in self._constraints.items():
            constraint.check(name, getattr(self, name))
        self._check_combinations()
        self.__dict__[CHECKED] = given

    def _check_combinations(self) -> None:
        """Raise ValueError if parameters contradict each other."""

    def _checked_matrix(self, X: Any) -> Any:
        """Validate ``X``, and the parameters, of a fitted estimator; return ``X`` for ``check_rows``."""
        if "_model" not in self.__dict__:
            check_is_fitted(self)
        X = self._validated(X)
        self._check_parameters()
        return X

    def _validated(self, X: Any, y: Any = _NO_TARGETS, *, reset: bool = False) -> Any:
        """Validate rows and targets like scikit-learn's ``validate_data``, and return arguments for ``check_rows``.

        Plain arrays skip checks that take longer than predicting a row. ``check_rows`` checks later that all numbers
        are finite. Without ``y``, only ``X`` is returned. ``reset`` says whether to store the number and names of the
        features.
        """
        if not checks.is_plain(X, None if reset else self.n_features_in_) or hasattr(self, "feature_names_in_"):
            targets = {} if y is _NO_TARGETS else {"y": checks.unmasked("y", y)}
            return validate_data(self, checks.sound(X), **targets, accept_sparse="csr", dtype=DTYPES, reset=reset)
        if reset:
            self.n_features_in_ = X.shape[1]
        if y is _NO_TARGETS:
            return X
        if not (type(y) is np.ndarray and y.shape == X.shape[:1] and y.dtype.kind in _PLAIN_TARGETS):
            y = validate_data(self, X="no_validation", y=checks.unmasked("y", y))
            check_consistent_length(X, y)
        return X, y

    def __sklearn_is_fitted__(self) -> bool:
        return "_model" in vars(self)

    # Changes

    def _unfitted(self) -> Self:
        other = object.__new__(type(self))
        left_out = LEARNED_STATE | _NOT_COPIED
        other.__dict__.update((name, value) for name, value in vars(self).items() if name not in left_out)
        return other

    def _become(self, fitted: Self) -> Self:
        """Adopt the model of ``fitted``, but not its parameters, and return this estimator."""
        if self.__sklearn_is_fitted__() and type(self._model) is type(fitted._model):
            fitted._model.prepare_like(self._model, self)
        self._lock.step(partial(self._take_over, fitted))
        return self

    def _take_over(self, fitted: Self, **parameters: Any) -> None:
        """Replace the learned attributes by those of ``fitted``, and set some parameters, at once."""
        kept = {name: value for name, value in vars(self).items() if name not in LEARNED_STATE}
        learned = {name: value for name, value in vars(fitted).items() if name in LEARNED_STATE}
        self.__dict__ = kept | parameters | learned

    def _change_model(self, method: str, n_rows: int, learn: Callable[[Any], Any], *, replaces: bool = False) -> Self:
        """Change the model with ``learn``, and return the estimator.

        - ``method``: name of the public method, under which the duration is recorded.
        - ``n_rows``: number of rows or ids in the change.
        - ``learn``: function that changes the model, or a copy of it. It may return a new model instead.
        - ``replaces``: whether ``learn`` returns a new model and leaves its argument unchanged.
        """
        lock: ReadWriteLock = self._lock
        former = self._model

        def learn_in_place() -> None:
            try:
                began = perf_counter()
                self._model = learn(former) or former
                self._note_duration(method, n_rows, perf_counter() - began)
            except BaseException:
                uninterrupted(former.roll_back)
                raise

        if not (replaces or self._takes_long(method, n_rows)):
            uninterrupted(lock.step, learn_in_place)
            return self
        lock.let_in()
        began = perf_counter()
        changing = former if replaces else former.copied()
        learned = learn(changing) or changing
        self._note_duration(method, n_rows, perf_counter() - began)
        learned.prepare_like(former, self)
        lock.step(partial(setattr, self, "_model", learned))
        return self

    def _takes_long(self, method: str, n_rows: int) -> bool:
        """Return whether a change would block readers in other threads, or an interrupt, for too long."""
        if self._model.has_much_due(n_rows, self):
            return True
        known = vars(self).get(_DURATIONS, {}).get(method)
        if known is None:
            return n_rows > _FEW and self._lock.has_other_readers()
        return n_rows * known > (_LONG if self._lock.has_other_readers() else _LONGEST)

    def _note_duration(self, method: str, n_rows: int, seconds: float) -> None:
        """Record the duration of a change, to estimate how long the method takes next time."""
        of_methods, measured = self.__dict__.setdefault(_DURATIONS, {}), seconds / max(1, n_rows)
        of_methods[method] = min(measured, _MAX_GROWTH * of_methods.get(method, measured))

    # Files and copies

    @reads
    def check_invariants(self) -> None:
        """Check the invariants of the model."""
        check_is_fitted(self)
        check_model(self, thorough=True)

    @changes  # only reads, but must not overlap with changes
    def __getstate__(self) -> dict[str, Any]:
        state: Any = super().__getstate__()
        # Copy, because other threads may change the arrays before they are pickled.
        state = copy.deepcopy({name: value for name, value in state.items() if name not in {*_NOT_COPIED, "_model"}})
        if self.__sklearn_is_fitted__():
            arrays = PickledArrays()
            fields = self.FIELDS.kind_of("_model").put("", self._model, arrays)
            state["_model"] = fields, {name: array.copy() for name, array in arrays.items()}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "_model" in state:
            fields, arrays = state["_model"]
            given = PickledArrays({name: writeable(array) for name, array in arrays.items()})
            state = state | {"_model": self.FIELDS.kind_of("_model").get("", fields, given, thorough=False)}
        super().__setstate__(state)

    _contents = changes(Saved._contents)  # only reads, but must not overlap with changes

    def _packed(self) -> Any:
        known = vars(self) if self.__sklearn_is_fitted__() else {}
        return SimpleNamespace(
            parameters=self.get_params(deep=False), **{name: known.get(name) for name in LEARNED_STATE}
        )

    @classmethod
    def _of_fields(cls, values: dict[str, Any]) -> Self:
        estimator = cls(**values.pop("parameters"))
        is_fitted = values["_model"] is not None
        require(is_fitted == (values["n_features_in_"] is not None), "a fitted estimator must have a feature count")
        estimator._check_parameters()
        estimator.__dict__.update({name: value for name, value in values.items() if value is not None})
        return estimator

    def _check(self, *, thorough: bool) -> None:
        if self.__sklearn_is_fitted__():
            check_model(self, thorough=thorough)

    save = changes(Saved.save)  # only reads, but must not overlap with changes

    @classmethod
    def load(cls, path: str | os.PathLike[str], mmap: bool = False) -> Self:
        """Read an estimator from a file written by :meth:`save`. It behaves exactly like the saved one.

        With ``mmap``, map the file, as :meth:`ContextualMemoryTree.load` does. Map only files that you trust.
        """
        return object_of((cls,), path, mmap=mmap, thorough=not mmap)

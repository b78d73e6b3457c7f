"""Changes that are made beside an estimator, in a twin that is put in its place at once.

A short change is made in place while nobody reads. A long one would keep readers waiting, and between its steps they
would meet scorers that are half trained. So it is made in a twin: readers have the answers from before until all is
done, and a failure leaves everything as it was. That takes time and memory for a copy of what is learned, so nothing is
copied as long as no other thread has read the estimator, or if a change replaces all that it changes.
"""

from __future__ import annotations

import copy
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from .._concurrency.rwlock import ReadWriteLock
from ..tree import ContextualMemoryTree
from ._values import DistinctVectors

_CHANGED_IN_PLACE = (
    *("forest_", "head_", "examples_", "_duals", "expectation_", "_distinct", "_orders"),
    *("_n_of_label", "_weight_of_label"),
)
_REPLACES_ALL = frozenset({("CMTClassifier", "remove"), ("CMTClassifier", "remove_classes")})
_LONG = 0.02  # seconds: readers are to wait no longer
_FEW = 4  # rows that are likely to be learned in a moment
_MOST_GROWTH = 1.5  # of the time that a change is expected to take: one may have waited for something else

_SECONDS_A_ROW: WeakKeyDictionary[Any, dict[str, float]] = WeakKeyDictionary()  # of changes by each method


def twin_of(estimator: Any, apart: frozenset[str], name: str, n_rows: int, lock: ReadWriteLock) -> Any:
    """Return a twin in which a change is to be made, or None if it is to be made in place.

    Parameters
    ----------
    estimator : SavableEstimator
        What is to be changed.
    apart : frozenset of str
        The attributes that the twin is not to have.
    name : str
        The method that makes the change.
    n_rows : int
        How many rows, or ids, it is given.
    lock : ReadWriteLock
        The lock of the estimator.
    """
    replaces_all = name == "fit" or not hasattr(estimator, "forest_") or (estimator._kind, name) in _REPLACES_ALL
    if not replaces_all and (_is_short(estimator, name, n_rows) or not lock.has_other_readers()):
        return None
    twin: Any = object.__new__(type(estimator))
    vars(twin).update((attribute, value) for attribute, value in vars(estimator).items() if attribute not in apart)
    for attribute in ("_orders",) if replaces_all else _CHANGED_IN_PLACE:
        if attribute in vars(twin):
            vars(twin)[attribute] = _copied(vars(twin)[attribute])
    return twin


def note_duration(estimator: Any, name: str, n_rows: int, seconds: float) -> None:
    """Take note of how long a change took, for the next one by the same method."""
    of_methods, measured = _SECONDS_A_ROW.setdefault(estimator, {}), seconds / max(1, n_rows)
    of_methods[name] = min(measured, _MOST_GROWTH * of_methods.get(name, measured))


def take_over_draws(old: Any, new: Any, drawn: int) -> None:
    """Let the queries of a forest go on where those of an older state have stopped, which were at ``drawn`` before."""
    further = (queries_drawn(old) - drawn) % 2**64
    if further > 0:
        streams = streams_of(new)
        streams[-1] = np.uint64((int(streams[-1]) + further) % 2**64)


def queries_drawn(forest: Any) -> int:
    """Return the state of the random stream for queries."""
    return int(streams_of(forest)[-1])


def streams_of(forest: Any) -> np.ndarray:
    """Return the random streams of a forest, the last of which is that for queries."""
    streams: np.ndarray = forest._forest.streams if forest._forest.state is None else forest._forest.state.streams
    return streams


def _is_short(estimator: Any, name: str, n_rows: int) -> bool:
    known = _SECONDS_A_ROW.get(estimator, {}).get(name)
    is_short = n_rows <= _FEW if known is None else n_rows * known <= _LONG
    return is_short and not estimator._has_much_due(n_rows)


def _copied(value: Any) -> Any:
    if isinstance(value, ContextualMemoryTree):
        return value._twin()
    return value.copied() if isinstance(value, DistinctVectors) else copy.deepcopy(value)

"""Filters, and a cache for filters that are used by several queries."""

from collections.abc import Callable
from typing import Any
from weakref import ref

import numpy as np

from .._forest import Restriction, State, restriction_to
from .._kernels import NONE
from .._validation import check_known

_MOST_REMEMBERED = 8  # maximum number of filters in an ``ArrayCache``
_SPARSE = 64  # ratio of slots to candidates above which sorting the candidates is faster than marking their slots


class Filter:
    """A filter that passes the memories with given ids.

    The filter caches the arrays that searches need until the forest changes. Call its methods only within a read of the
    forest, and call :meth:`slots` first in each read.

    - ``may_have_gone``: whether to ignore ids that are not stored. If False, they raise KeyError.
    """

    def __init__(self, ids: np.ndarray, may_have_gone: bool) -> None:
        self.ids = ids
        self._may_have_gone = may_have_gone
        self._found: tuple[int, np.ndarray] | None = None  # the forest's number of steps, and the slots after it
        # Cached arrays, each with the array of slots that it was made from.
        self._marked: tuple[np.ndarray, Restriction] | None = None

    def slots(self, find: Callable[[np.ndarray], np.ndarray], n_steps: int) -> np.ndarray:
        """Return the ascending slots that ``find`` gives for the candidates' ids, cached for ``n_steps``."""
        found = self._found
        if found is None or found[0] != n_steps:
            slots = find(self.ids)
            if not self._may_have_gone and slots.size > 0:
                check_known(self.ids, slots, "among")
            found = self._found = n_steps, _sorted(slots[slots != NONE])
        return found[1]

    def restriction(self, state: State) -> Restriction:
        """Return the filter as an argument for kernels."""
        assert self._found is not None
        slots, marked = self._found[1], self._marked
        sizes = (state.leaf_of.shape[1], state.nodes.shape, state.leaves.shape)
        if marked is not None and marked[0] is slots:
            restriction = marked[1]
            if (restriction.slots.size, restriction.nodes.shape, restriction.leaves.shape) == sizes:
                return restriction
        restriction = restriction_to(state, slots)
        self._marked = slots, restriction
        return restriction


def _sorted(slots: np.ndarray) -> np.ndarray:
    end = int(slots.max(initial=-1)) + 1
    if end > _SPARSE * slots.size:
        return np.unique(slots)
    marks = np.zeros(end, np.bool_)
    marks[slots] = True
    return np.flatnonzero(marks)


class ArrayCache:
    """A cache of filters that are made from arrays."""

    def __init__(self) -> None:
        # (weak reference to the array, copy of the array, filter), most recently made first
        self._made: tuple[tuple[Any, np.ndarray, Filter], ...] = ()

    def of(self, given: Any, make: Callable[[], Filter]) -> Filter:
        """Return the filter that ``make`` has made for an array, cached if it is a NumPy array."""
        if type(given) is not np.ndarray or given.dtype == object:
            return make()
        for kept in self._made:
            array, before, made = kept
            if array() is given:
                if given.dtype == before.dtype and np.array_equal(given, before):
                    return made
                break
        copy = given.copy()
        made = make()
        there = [(kept, kept[0]()) for kept in self._made]
        others = [kept for kept, array in there if array is not None and array is not given]
        self._made = ((ref(given), copy, made), *others[: _MOST_REMEMBERED - 1])
        return made

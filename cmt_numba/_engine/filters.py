"""Filters that several queries use, prepared once until the forest changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar
from weakref import ref

import numpy as np

from .._forest import NONE, Restriction, State, as_matrix, restriction_to, stored_rows
from .._validation import check_known
from .coded_candidates import CodedCandidates, coded_candidates

T = TypeVar("T")

_MOST_REMEMBERED = 8
MOST_GATHERED = 1024
"""Up to this many candidates, a product with a copy of their keys is faster than comparing codes."""

_SPARSE = 64  # with fewer marks per slot, sorting is faster than scanning the marks


class Filter:
    """The candidates of searches, given by their ids.

    Call the methods only while reading the forest.

    Parameters
    ----------
    ids : ndarray of int64, shape (n,)
        The ids.
    may_have_gone : bool, default True
        Whether ids of memories that are not stored are ignored. Otherwise they raise KeyError.
    """

    def __init__(self, ids: np.ndarray, may_have_gone: bool = True) -> None:
        self.ids = ids
        self._may_have_gone = may_have_gone
        self._found: tuple[int, np.ndarray] | None = None  # the number of steps then, and the slots
        self._marked: tuple[np.ndarray, Restriction] | None = None  # the slots, and the filter for kernels
        self._mask: tuple[np.ndarray, np.ndarray] | None = None  # the slots, and a mask of them
        self._coded: tuple[np.ndarray, CodedCandidates] | None = None  # the slots, and their codes
        self._gathered: tuple[np.ndarray, np.ndarray] | None = None  # the slots, and their keys

    def slots(self, find: Callable[[np.ndarray], np.ndarray], n_steps: int) -> np.ndarray:
        """Return the slots in ascending order.

        Parameters
        ----------
        find : callable
            Returns the slots of ids.
        n_steps : int
            The number of steps of the forest so far.

        Raises
        ------
        KeyError
            If an id is not stored, unless ``may_have_gone``.
        """
        found = self._found
        if found is None or found[0] != n_steps:
            slots = find(self.ids)
            if not self._may_have_gone and slots.size > 0:
                check_known(self.ids, slots, "among")
            found = self._found = n_steps, _sorted(slots[slots != NONE])
        return found[1]

    def mask(self, state: State) -> np.ndarray:
        """Return a mask of the candidates by slot. Call :meth:`slots` first, in the same read."""
        assert self._found is not None
        slots, kept, size = self._found[1], self._mask, state.leaf_of.shape[1]
        if kept is not None and kept[0] is slots and kept[1].size == size:
            return kept[1]
        mask = np.zeros(size, np.bool_)
        mask[slots] = True
        self._mask = slots, mask
        return mask

    @property
    def is_coded(self) -> bool:
        """Whether codes of the candidates were prepared."""
        return self._coded is not None

    def coded(self, state: State) -> CodedCandidates | None:
        """Return the codes of the candidates; None if it is faster to compare their keys.

        Call :meth:`slots` first, in the same read.
        """
        assert self._found is not None
        slots, coded = self._found[1], self._coded
        if coded is not None and coded[0] is slots:
            return coded[1]
        if slots.size <= MOST_GATHERED or state.parameters.sparse or state.parameters.coded:
            return None
        made = coded_candidates(state, slots)
        self._coded = slots, made
        return made

    def gathered(self, state: State) -> np.ndarray:
        """Return a copy of the dense keys of a few candidates. Call :meth:`slots` first, in the same read."""
        assert self._found is not None
        slots, gathered = self._found[1], self._gathered
        if gathered is None or gathered[0] is not slots:
            gathered = self._gathered = slots, as_matrix(stored_rows(state, slots))
        return gathered[1]

    def restriction(self, state: State) -> Restriction:
        """Return the filter for kernels. Call :meth:`slots` first, in the same read."""
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
    """Return the distinct slots in ascending order."""
    end = int(slots.max(initial=-1)) + 1
    if end > _SPARSE * slots.size:
        return np.unique(slots)
    marks = np.zeros(end, np.bool_)
    marks[slots] = True
    return np.flatnonzero(marks)


class ArrayCache(Generic[T]):
    """A cache of objects by their source arrays."""

    def __init__(self) -> None:
        self._made: tuple[tuple[Any, np.ndarray, object, T], ...] = ()  # the array, a copy, the version; the last first

    def of(self, given: Any, version: object, make: Callable[[], T]) -> T:
        """Return the cached object for an array and a version, or the result of ``make``.

        Parameters
        ----------
        given : object
            The array. Nothing is cached for other objects.
        version : object
            The version of everything else that the object depends on.
        make : callable
            Makes the object.
        """
        if type(given) is not np.ndarray or given.dtype == object:
            return make()
        for kept in self._made:
            array, before, as_of, made = kept
            if array() is given and as_of == version:
                if given.dtype == before.dtype and np.array_equal(given, before):
                    return made
                break
        copy = given.copy()
        made = make()
        there = [(kept, kept[0]()) for kept in self._made]
        others = [kept for kept, array in there if array is not None and array is not given]
        self._made = ((ref(given), copy, version, made), *others[: _MOST_REMEMBERED - 1])
        return made

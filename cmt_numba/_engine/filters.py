"""Filters that are used by several queries, and prepared once for as long as nothing changes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .._forest.filtering import Restriction, restriction_to
from .._forest.state import NONE, State


class Filter:
    """The memories with some ids, as candidates of searches. Ids that are not stored are no candidates.

    Its methods are called while the forest is read.

    Parameters
    ----------
    ids : ndarray of int64, shape (n,)
        The ids.
    """

    def __init__(self, ids: np.ndarray) -> None:
        self.ids = ids
        self._found: tuple[int, np.ndarray] | None = None  # the number of steps so far, and the slots
        self._marked: tuple[np.ndarray, Restriction] | None = None  # the slots, and all places above them

    def slots(self, find: Callable[[np.ndarray], np.ndarray], n_steps: int) -> np.ndarray:
        """Return the slots in rising order.

        Parameters
        ----------
        find : callable
            Returns the slots of ids.
        n_steps : int
            The number of steps by which the forest has changed so far.
        """
        found = self._found
        if found is None or found[0] != n_steps:
            slots = find(self.ids)
            found = self._found = n_steps, np.unique(slots[slots != NONE])
        return found[1]

    def restriction(self, state: State) -> Restriction:
        """Return the filter for kernels. :meth:`slots` must have been called since the last step."""
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

"""The links between the memories of a forest.

In a forest without links, :class:`Linkage` allocates no memory and compiles no kernels.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .columns import resized
from .invariants.errors import require
from .invariants.links import check_link_frame, check_links
from .key_store import find_slots
from .linking import link_slots, unlink_slots
from .state import N_MEMORIES, NONE, State

_BREADTH_PER_LINK = 4
"""The breadth of the search for memories to link, per link. A larger value is slower and hardly improves recall."""

MOST_LINKS = 512
"""Maximum value of ``n_links``."""

_NEAR = "links.near"  # name of the array in files


class Linkage:
    """The links of a forest.

    Parameters
    ----------
    n_links : int
        The maximum number of links of a memory; 0 for no links. Sparse keys are never linked, because they have no
        codes.
    """

    def __init__(self, n_links: int) -> None:
        # near[slot]: the slots of linked memories, padded with NONE. Without links the array has no rows.
        self.near = np.empty((0, n_links), np.int32)

    @property
    def are_there(self) -> bool:
        """Whether the memories of the forest are linked."""
        return self.near.size > 0

    @property
    def nbytes(self) -> int:
        """Number of bytes of the links."""
        return self.near.nbytes

    def make_room(self, state: State) -> None:
        """Allocate links for the capacity of the forest."""
        capacity = state.keys.ids.size
        if self.near.shape[1] > 0 and not state.parameters.sparse and self.near.shape[0] < capacity:
            self.near = resized(self.near, capacity, fill=NONE)

    def link(self, view: Any, slots: np.ndarray) -> None:
        """Link new memories, in slot order, or relink memories whose keys have changed."""
        link_slots(view, self.near, _BREADTH_PER_LINK * self.near.shape[1], slots)

    def unlink(self, view: Any, slots: np.ndarray) -> None:
        """Remove the links of memories that will be removed."""
        if self.are_there:
            unlink_slots(view, self.near, slots)

    def taken_back(self, first: int) -> None:
        """Remove the links of the memories in slots ``first`` and above, whose insert failed."""
        if self.are_there:
            rows = np.flatnonzero((self.near[:first] >= first).any(axis=1))
            some = self.near[rows]
            some[some >= first] = NONE
            self.near[rows] = np.take_along_axis(some, np.argsort(some == NONE, axis=1, kind="stable"), axis=1)
            self.near[first:] = NONE

    def moved(self, old: State, new: State) -> Linkage:
        """Return the links for ``new``, which has the memories of ``old`` in other slots."""
        linkage = Linkage(self.near.shape[1])
        if self.are_there:
            n = int(old.keys.totals[N_MEMORIES])
            before = np.empty(n, np.int64)
            find_slots(old.keys, new.keys.ids[:n], before)
            slots = np.full(n + 1, NONE, np.int32)
            slots[before] = np.arange(n, dtype=np.int32)
            linkage.make_room(new)
            linkage.near[:n] = slots[self.near[before]]  # slots[-1] is NONE, so NONE maps to itself
        return linkage

    def check(self, state: State) -> None:
        """Raise InvariantError unless the links match the forest."""
        self._check_frame(state)
        check_links(self.near, int(state.keys.totals[N_MEMORIES]))

    def _check_frame(self, state: State) -> None:
        enough = self.near.shape[0] >= int(state.keys.totals[N_MEMORIES])
        require(enough or self.near.shape[1] == 0 or state.parameters.sparse, "every memory must have links")

    def contents(self, state: State) -> dict[str, np.ndarray]:
        """Return the arrays to save in a file."""
        return {_NEAR: self.near[: int(state.keys.totals[N_MEMORIES])]} if self.are_there else {}

    def restore(self, arrays: dict[str, np.ndarray], state: State, *, thorough: bool, values: bool = True) -> None:
        """Restore the links from the arrays of a file.

        Parameters
        ----------
        arrays : dict of str to ndarray
            The arrays of the file.
        state : State
            The restored state.
        thorough : bool
            Whether to validate every link, rather than only the dtype and shape of the array.
        values : bool, default True
            If False, a thorough validation checks only that every link leads to a memory.

        Raises
        ------
        InvariantError
            If the arrays are invalid.
        """
        if self.near.shape[1] == 0 or state.parameters.sparse:
            require(_NEAR not in arrays, "a tree without links must not have an array of links")
            return
        near = arrays.get(_NEAR)
        wanted = state.keys.ids.size, self.near.shape[1]
        fits = near is not None and near.dtype == np.int32 and near.shape == wanted and near.flags.c_contiguous
        require(fits, f"links must be int32 of shape {wanted}")
        assert near is not None
        self.near = near
        if thorough and values:
            self.check(state)
        elif thorough:
            check_link_frame(near, int(state.keys.totals[N_MEMORIES]))

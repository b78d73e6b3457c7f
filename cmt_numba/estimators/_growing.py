"""Columns of tables that grow: further entries are written behind those in use, so that few of them cost little."""

from __future__ import annotations

import numpy as np

from .._forest.allocation import resized

_GROWTH = 1.25  # of the room, so that the copying for each entry is a constant


class Room:
    """Room for columns of one length. Tables that share it see the entries in use when they were made.

    Parameters
    ----------
    columns : tuple of ndarray
        What they hold at first, which is copied.
    capacity : int
        Entries that each has room for.
    """

    def __init__(self, columns: tuple[np.ndarray, ...], capacity: int) -> None:
        self._columns = [resized(column, capacity, 0) for column in columns]
        self._n_used = columns[0].size

    def takes(self, n: int, n_more: int) -> bool:
        """Return whether so many further entries can be written behind the first ``n``, and nothing is there yet."""
        return n == self._n_used and n + n_more <= self._columns[0].size

    def append(self, further: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
        """Write further entries of each column behind those in use; return all in use now, which share its memory."""
        first, stop = self._n_used, self._n_used + further[0].size
        for column, more in zip(self._columns, further, strict=True):
            column[first:stop] = more
        self._n_used = stop
        return tuple(column[:stop] for column in self._columns)


def appended(
    room: Room | None, columns: tuple[np.ndarray, ...], further: tuple[np.ndarray, ...]
) -> tuple[Room, tuple[np.ndarray, ...]]:
    """Return columns with further entries, and the room that they lie in.

    ``room`` is where the columns lie, None if they have none. If they are not the last that were made there, or it is
    full, they get another one. The columns given stay as they are.
    """
    n, n_more = columns[0].size, further[0].size
    if room is None or not room.takes(n, n_more):
        room = Room(columns, max(n + n_more, int(_GROWTH * n)))
    return room, room.append(further)

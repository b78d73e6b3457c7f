"""Arrays that grow: room for further entries, and columns to which entries are appended."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

SMALLEST = 16
"""The smallest capacity."""

GROWTH = 1.25
"""The smallest growth factor of a capacity: each entry is copied a constant number of times."""


def resized(array: np.ndarray, size: int, axis: int = 0, fill: Any = None) -> np.ndarray:
    """Return a copy of an array with ``size`` entries along an axis. New ones are ``fill``, or undefined by default."""
    shape = list(array.shape)
    before, n = (slice(None),) * axis, min(shape[axis], size)
    shape[axis] = size
    copy = np.empty(shape, array.dtype)
    copy[(*before, slice(n))] = array[(*before, slice(n))]
    if fill is not None:
        copy[(*before, slice(n, size))] = fill
    return copy


def larger_capacity(n: int, needed: int) -> int:
    """Return the new capacity of an array of ``n`` entries that must hold ``needed``."""
    return max(SMALLEST, needed, int(GROWTH * n))


def with_room(array: np.ndarray, n: int, n_more: int, fill: Any = None) -> np.ndarray:
    """Return an array with the first ``n`` entries of ``array`` and room for ``n_more`` after them.

    It is the same array if there is room, otherwise as :func:`resized` returns it.
    """
    if n + n_more <= array.shape[0]:
        return array
    return resized(array[:n], larger_capacity(n, n + n_more), fill=fill)


class GrowingColumns:
    """Columns of equal length to which entries are appended in amortised constant time.

    The length of an object never changes: :meth:`appended` returns a longer one, which shares memory with it. So
    threads that read an object do not notice that another thread appends entries, and a failed change has no effect.

    Parameters
    ----------
    *columns : ndarray
        The columns. They may be modified in place.
    """

    __slots__ = ("_room", "columns")

    def __init__(self, *columns: np.ndarray) -> None:
        self.columns = columns
        self._room: list[Any] = [len(columns[0]), columns]  # entries in use, and the arrays that begin with the columns

    def __len__(self) -> int:
        return len(self.columns[0])

    def appended(self, *further: np.ndarray) -> Self:
        """Return these columns followed by further entries.

        They are copied if there is no spare capacity, or if other entries were appended to them before.
        """
        n, (n_used, arrays) = len(self), self._room
        stop = n + len(further[0])
        room = self._room
        if n < n_used or stop > len(arrays[0]):
            arrays = tuple(with_room(column, n, stop - n) for column in self.columns)
            room = [n, arrays]
        for array, more in zip(arrays, further, strict=True):
            array[n:stop] = more
        room[0] = stop
        longer = type(self)(*(array[:stop] for array in arrays))
        longer._room = room
        return longer

    def __reduce__(self) -> Any:
        return type(self), self.columns  # without spare capacity

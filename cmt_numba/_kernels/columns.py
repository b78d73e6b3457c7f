"""Arrays that grow, and columns to which entries are appended."""

from typing import Any, Self

import numpy as np

SMALLEST = 16  # smallest capacity
GROWTH = 1.25  # minimum growth factor of a capacity. With a constant factor, an append takes amortised constant time.


def resized(array: np.ndarray, size: int, axis: int = 0, fill: Any = None) -> np.ndarray:
    """Return a copy of an array with ``size`` entries along an axis; new entries are ``fill``, or undefined if None."""
    shape = list(array.shape)
    before, n = (slice(None),) * axis, min(shape[axis], size)
    shape[axis] = size
    copy = np.empty(shape, array.dtype)
    copy[(*before, slice(n))] = array[(*before, slice(n))]
    if fill is not None:
        copy[(*before, slice(n, size))] = fill
    return copy


def larger_capacity(n: int, needed: int) -> int:
    """Return the new capacity of an array that has room for ``n`` entries and needs room for ``needed``."""
    return max(SMALLEST, needed, int(GROWTH * n))


def with_room(array: np.ndarray, n: int, n_more: int, fill: Any = None) -> np.ndarray:
    """Return ``array`` if it has room for ``n_more`` entries after the first ``n``, or else an enlarged copy."""
    if n + n_more <= array.shape[0]:
        return array
    return resized(array[:n], larger_capacity(n, n + n_more), fill=fill)


class GrowingColumns:
    """Columns of equal length to which entries are appended in amortised constant time.

    An object never changes its length: :meth:`appended` returns a longer object that shares its memory. Reader threads
    therefore do not notice an append in another thread, and a failed change has no effect.
    """

    __slots__ = ("_room", "columns")

    def __init__(self, *columns: np.ndarray) -> None:
        self.columns = columns
        # The number of entries in use, and the arrays with spare capacity. Objects that share memory share this list.
        self._room: list[Any] = [len(columns[0]), columns]

    def __len__(self) -> int:
        return len(self.columns[0])

    def appended(self, *further: np.ndarray) -> Self:
        """Return these columns and more entries, in the same memory unless that is full or used already."""
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
        return type(self), self.columns  # pickles omit the spare capacity

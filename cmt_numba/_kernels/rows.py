"""Unit-length rows of keys and queries as flat arrays for kernels."""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from .._jit import inner, inner_fastmath, kernel, quick_kernel

UNSCALED = np.float32(1.0)  # scale of a row that is not a code


class Rows(NamedTuple):
    """Unit-length rows. Row ``i`` has the cells ``offsets[i]:offsets[i + 1]`` of ``values`` and ``indices``."""

    values: np.ndarray  # float32 (n_cells,): the values of all cells
    indices: np.ndarray  # int32 (n_cells,): their features; empty if the rows are dense
    offsets: np.ndarray  # int64 (n_rows + 1,): the first cell of each row
    n_features: int
    sparse: bool

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.offsets.size - 1

    def between(self, first: int, stop: int) -> "Rows":
        """Return the rows ``first:stop`` as views of the arrays."""
        offsets = self.offsets[first : stop + 1]
        a, b = offsets[0], offsets[-1]
        return self._replace(values=self.values[a:b], indices=self.indices[a:b], offsets=offsets - a)

    def take(self, which: np.ndarray) -> "Rows":
        """Return copies of the rows selected by an array of positions or a mask."""
        if not self.sparse:
            values = self.values.reshape(self.n_rows, self.n_features)[which]
            offsets = np.arange(0, values.size + 1, self.n_features, dtype=np.int64)
            return self._replace(values=values.reshape(-1), offsets=offsets)
        offsets = np.concatenate([[0], np.cumsum(np.diff(self.offsets)[which])])
        cells = np.arange(offsets[-1]) + np.repeat(self.offsets[:-1][which] - offsets[:-1], np.diff(offsets))
        return self._replace(values=self.values[cells], indices=self.indices[cells], offsets=offsets)


def as_matrix(rows: Rows) -> Any:
    """Return rows as a two-dimensional array, or as a CSR array if they are sparse."""
    if rows.sparse:
        return scipy.sparse.csr_array((rows.values, rows.indices, rows.offsets), (rows.n_rows, rows.n_features))
    return rows.values.reshape(rows.n_rows, rows.n_features)


class Row(NamedTuple):
    """A key or a query, called ``x`` in kernels: the cells ``a:b`` of flat arrays, times ``scale``.

    Bounds are cheaper than a slice of the arrays, which needs a reference count.
    """

    values: np.ndarray  # float32, or int8 for a code
    indices: np.ndarray  # int32, empty if the row is dense
    a: int
    b: int
    scale: np.float32  # 1 unless the row is a code


@inner
def row_of(rows, row):
    return Row(rows.values, rows.indices, rows.offsets[row], rows.offsets[row + 1], UNSCALED)


@inner_fastmath
def _squared_length(values):
    total = np.float64(0.0)
    for i in range(values.size):
        total += np.float64(values[i]) * np.float64(values[i])
    return total


@kernel
def normalize_rows(values, offsets, first, stop, unit):
    """Write the rows ``first:stop``, scaled to Euclidean length 1, to ``unit``. Zero rows stay zero.

    Returns the first row with a NaN or an infinity, or -1 if all values are finite. Squares are summed in float64,
    where the square of a float32 neither overflows nor underflows.
    """
    for row in range(first, stop):
        given, scaled = values[offsets[row] : offsets[row + 1]], unit[offsets[row] : offsets[row + 1]]
        total = _squared_length(given)
        if not np.isfinite(total):
            return row
        scale = 1.0 / np.sqrt(total) if total > 0.0 else 1.0
        for i in range(given.size):  # loops over slices that start at 0 can be vectorised
            scaled[i] = given[i] * scale
    return -1


@inner_fastmath
def _squared_length_standardized(x, length, center, inverse):
    total = np.float64(0.0)
    for j in range(x.size):
        value = (np.float64(x[j]) * length - center[j]) * inverse[j]
        total += value * value
    return total


@kernel
def standardize_rows(given, lengths, center, inverse, to_unit, rows):
    """Write dense rows times their lengths, centered and scaled by feature, and a constant feature, to ``rows``.

    The constant is as large as all features of a usual row together. With ``to_unit``, rows are then scaled to length
    1. Returns the first row with a NaN or an infinity, or -1 if all values are finite.
    """
    constant = np.sqrt(np.float64(center.size))
    for row in range(given.shape[0]):
        x, standardized, length = given[row], rows[row], np.float64(lengths[row])
        if not np.isfinite(_squared_length(x)):
            return row
        scale = 1.0
        if to_unit:
            scale /= np.sqrt(_squared_length_standardized(x, length, center, inverse) + constant * constant)
        for j in range(x.size):
            standardized[j] = (np.float64(x[j]) * length - center[j]) * inverse[j] * scale
        standardized[x.size] = constant * scale
    return -1


INVALID_CELLS, UNSORTED_CELLS, SORTED_CELLS = range(3)
"""The results of :func:`check_cells`."""


@kernel
def check_cells(indices, offsets, width):
    """Return whether CSR rows are valid and sorted: INVALID_CELLS, UNSORTED_CELLS or SORTED_CELLS.

    Sorted rows have strictly ascending indices; unsorted rows may contain an index twice. ``offsets`` must not be
    empty.
    """
    end, form = np.int64(0), SORTED_CELLS
    if offsets[0] != 0 or offsets[offsets.size - 1] != indices.size:
        return INVALID_CELLS
    for row in range(offsets.size - 1):
        stop = np.int64(offsets[row + 1])
        if stop < end or stop > indices.size:
            return INVALID_CELLS
        last = np.int64(-1)
        for i in range(end, stop):
            index = np.int64(indices[i])
            if index < 0 or index >= width:
                return INVALID_CELLS
            if index <= last:
                form = UNSORTED_CELLS
            last = index
        end = stop
    return form


@kernel
def sort_cells(values, indices, offsets):
    """Sort the cells of each row by index in place; return whether all indices within a row are distinct."""
    for row in range(offsets.size - 1):
        first, n, gap = np.int64(offsets[row]), np.int64(offsets[row + 1] - offsets[row]), np.int64(1)
        while gap < n // 3:
            gap = 3 * gap + 1
        while gap > 0:  # Shellsort, which needs no scratch space
            for i in range(first + gap, first + n):
                index, value, j = indices[i], values[i], np.int64(i)
                while j >= first + gap and indices[j - gap] > index:
                    indices[j], values[j] = indices[j - gap], values[j - gap]
                    j -= gap
                indices[j], values[j] = index, value
            gap //= 3
        for i in range(first + 1, first + n):
            if indices[i] == indices[i - 1]:
                return False
    return True


@kernel
def measure_rows(values, offsets, lengths):
    """Write the Euclidean length of each row to ``lengths``, or 1 for a zero row."""
    for row in range(lengths.size):
        total = _squared_length(values[offsets[row] : offsets[row + 1]])
        lengths[row] = np.sqrt(total) if total > 0.0 else 1.0


def rescaled(rows: Rows) -> Rows:
    """Return rows scaled to unit length a second time, which can change the last bit of a value.

    Earlier versions scaled rows in the estimator and again in the forest. Scaling twice keeps the results for a given
    seed.
    """
    unit = np.empty_like(rows.values)
    normalize_rows(rows.values, rows.offsets, 0, rows.n_rows, unit)
    return rows._replace(values=unit)


@inner
def longest_row(rows, first, stop):
    """Return the largest number of cells of any of the rows ``first:stop``."""
    longest = 0
    for row in range(first, stop):
        longest = max(longest, rows.offsets[row + 1] - rows.offsets[row])
    return longest


@inner_fastmath
def dot(x, a, y, c, n):
    """Return the dot product of ``x[a : a + n]`` and ``y[c : c + n]``."""
    left, right = x[a : a + n], y[c : c + n]  # loops over slices that start at 0 can be vectorised
    total = np.float32(0.0)
    for i in range(n):
        total += np.float32(left[i]) * np.float32(right[i])
    return total


@quick_kernel
def square_of_row(X):
    """Return the sum of the squares of the first row of a float32 array."""
    x = X[0]
    return dot(x, 0, x, 0, x.size)


@inner
def squared_length(x):
    """Return the squared Euclidean length of a row."""
    return x.scale * x.scale * dot(x.values, x.a, x.values, x.a, x.b - x.a)

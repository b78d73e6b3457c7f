"""Kernels: distances between what lies in a space, sequences under an edit distance or rows under a plain one.

The edit distance of two sequences is the least sum of costs of substitutions, insertions and deletions that turn one
into the other (Wagner and Fischer, 1974). ``costs[i, j]`` is that of symbol ``j`` in place of symbol ``i``; the last
row holds costs of insertions, the last column those of deletions.
"""

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from .._jit import empty, inner, inner_allocating, inner_fastmath, kernel


class Kind(IntEnum):
    """What distances are."""

    EDIT = 0
    EUCLIDEAN = 1
    ANGULAR = 2  # of rows of length 1: the angle between them


_EDIT, _ANGULAR = Kind.EDIT.value, Kind.ANGULAR.value


class Space(NamedTuple):
    """Points: sequences, or dense rows. What a kind of points does not need has no entries."""

    kind: int
    longest: int  # symbols that any sequence has, at most
    symbols: np.ndarray  # int32
    offsets: np.ndarray  # int64 (points + 1,)
    costs: np.ndarray  # float32 (n_symbols + 1, n_symbols + 1)
    rows: np.ndarray  # float32 (points, n_features)


@inner
def _edits(x, y, costs, bound, row):
    """Return the cost of turning ``x`` into ``y``, or infinity as soon as it must be above ``bound``."""
    gap, n = costs.shape[0] - 1, y.size
    total = np.float32(0.0)
    row[0] = total
    for j in range(n):
        total += costs[gap, y[j]]
        row[j + 1] = total
    for i in range(x.size):
        of_symbol = costs[x[i]]
        deletion = of_symbol[gap]
        diagonal = row[0]
        left = diagonal + deletion
        row[0] = left
        least = left
        for j in range(n):
            substituted = diagonal + of_symbol[y[j]]
            diagonal = row[j + 1]
            best = min(substituted, diagonal + deletion)
            left = min(best, left + costs[gap, y[j]])
            row[j + 1] = left
            least = min(least, left)
        if least > bound:
            return np.float32(np.inf)
    return row[n]


@inner_fastmath
def _squared(x, y):
    total = np.float32(0.0)
    for i in range(x.size):
        total += (x[i] - y[i]) * (x[i] - y[i])
    return total


@inner
def distance(asked, i, stored, j, bound, row):
    """Return the distance of two points, or infinity where it is above ``bound`` and need not be known."""
    if asked.kind != _EDIT:
        length = np.sqrt(_squared(asked.rows[i], stored.rows[j]))
        if asked.kind == _ANGULAR:
            return np.float32(2.0) * np.arcsin(min(np.float32(1.0), np.float32(0.5) * length))
        return length
    x = asked.symbols[asked.offsets[i] : asked.offsets[i + 1]]
    y = stored.symbols[stored.offsets[j] : stored.offsets[j + 1]]
    return _edits(x, y, asked.costs, bound, row)


@inner_allocating
def row_for(asked, stored):
    """Return room for the alignment of any two points."""
    return empty(max(asked.longest, stored.longest) + 1, np.float32)


@kernel
def distances_of_pairs(asked, stored, of_asked, of_stored, bounds, distances):
    """Write the distance of each pair of points, float32, infinity where it is above its bound.

    ``of_asked`` and ``of_stored``, int64 of shape (pairs,), name the points.
    """
    row = row_for(asked, stored)
    for pair in range(distances.size):
        distances[pair] = distance(asked, of_asked[pair], stored, of_stored[pair], bounds[pair], row)


@inner
def offer(point, length, points, lengths):
    """Enter a point among the nearest found, which are in order; the last one goes. Of equally near ones the first."""
    i = points.size - 1
    while i > 0 and (lengths[i - 1] > length or (lengths[i - 1] == length and points[i - 1] > point)):
        lengths[i], points[i] = lengths[i - 1], points[i - 1]
        i -= 1
    lengths[i], points[i] = length, point


@inner
def comes_before(point, length, last_point, last_length):
    """Return whether a point is nearer than another, or as near and earlier; point -1 stands for none."""
    return length < last_length or (length == last_length and (last_point < 0 or point < last_point))


@kernel
def scan(asked, stored, excluded, points, lengths):
    """Write the nearest of all stored points for each point asked, the nearest first, and their distances.

    ``excluded``, int64 of shape (asked,), is a stored point that each must not find, -1 for none. ``points``, int64,
    and ``lengths``, float32, have a column for each point wanted, and hold -1 and infinity.
    """
    row = row_for(asked, stored)
    k = points.shape[1]
    n = max(stored.offsets.size - 1, stored.rows.shape[0])
    for i in range(points.shape[0]):
        for j in range(n):
            if j != excluded[i]:
                length = distance(asked, i, stored, j, lengths[i, k - 1], row)
                if comes_before(j, length, points[i, k - 1], lengths[i, k - 1]) and length < np.inf:
                    offer(np.int64(j), length, points[i], lengths[i])


@inner
def _fill(x, y, costs, table):
    """Write the costs of turning each beginning of ``x`` into each of ``y``."""
    gap = costs.shape[0] - 1
    table[0, 0] = 0.0
    for j in range(y.size):
        table[0, j + 1] = table[0, j] + costs[gap, y[j]]
    for i in range(x.size):
        table[i + 1, 0] = table[i, 0] + costs[x[i], gap]
        for j in range(y.size):
            substituted = table[i, j] + costs[x[i], y[j]]
            deleted, inserted = table[i, j + 1] + costs[x[i], gap], table[i + 1, j] + costs[gap, y[j]]
            table[i + 1, j + 1] = min(substituted, min(deleted, inserted))


@inner
def _trace(x, y, costs, table, weight, counts, steps):
    """Go back along a best alignment; add ``weight`` for each edit to ``counts``, or write the steps, last one first.

    A step names the places in ``x`` and ``y``, -1 for none. Returns how many there are.
    """
    gap = costs.shape[0] - 1
    i, j, n = x.size, y.size, 0
    while i > 0 or j > 0:
        if i > 0 and j > 0 and table[i, j] == table[i - 1, j - 1] + costs[x[i - 1], y[j - 1]]:
            source, target, i, j = x[i - 1], y[j - 1], i - 1, j - 1
            step = (i, j)
        elif i > 0 and table[i, j] == table[i - 1, j] + costs[x[i - 1], gap]:
            source, target, i = x[i - 1], gap, i - 1
            step = (i, -1)
        else:
            source, target, j = gap, y[j - 1], j - 1
            step = (-1, j)
        counts[source, target] += weight
        if n < steps.shape[0]:
            steps[n, 0], steps[n, 1] = step
        n += 1
    return n


@inner_allocating
def _table_for(asked, stored):
    return empty((asked.longest + 1, stored.longest + 1), np.float32)


@kernel
def count_edits(asked, stored, of_asked, of_stored, weights, counts, steps):
    """Add each pair's weight to ``counts``, once for each edit of a best alignment.

    ``weights``, float64 of shape (pairs,). ``counts``, float64, has the form of the costs. ``steps``, int64 of shape
    (most, 2), is given the steps of the last pair, the last one first. Returns how many steps that pair has.
    """
    table = _table_for(asked, stored)
    n_steps = 0
    for pair in range(of_asked.size):
        i, j = of_asked[pair], of_stored[pair]
        x = asked.symbols[asked.offsets[i] : asked.offsets[i + 1]]
        y = stored.symbols[stored.offsets[j] : stored.offsets[j + 1]]
        _fill(x, y, asked.costs, table)
        n_steps = _trace(x, y, asked.costs, table, weights[pair], counts, steps)
    return n_steps

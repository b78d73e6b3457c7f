"""Kernels: distances between what lies in a space, sequences under an edit distance or rows under a plain one.

The edit distance of two sequences is the least sum of costs of substitutions, insertions and deletions that turn one
into the other (Wagner and Fischer, 1974), and of exchanges of neighbours if there are costs of them; nothing else is
done to symbols that are exchanged (optimal string alignment). ``costs[i, j]`` is that of symbol ``j`` in place of
symbol ``i``. Each symbol of a sequence has a cost of its own, of its deletion where the sequence is asked for and of
its insertion where it is stored. The distance may also be the smaller of both directions.
"""

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from .._jit import empty, inner, inner_called, inner_fastmath, kernel, release


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
    gaps: np.ndarray  # float32, the cost of deleting or inserting each of ``symbols``
    turned_gaps: np.ndarray  # float32, the same in the other direction if ``both``; no entries otherwise
    both: bool  # whether the smaller distance of both directions counts
    costs: np.ndarray  # float32 (n_symbols + 1, n_symbols + 1), of substitutions
    swaps: np.ndarray  # float32 (n_symbols, n_symbols): of "ab" turned into "ba"; (0, 0) for none
    rows: np.ndarray  # float32 (points, n_features)


@inner
def _edits(x, y, x_gaps, y_gaps, costs, bound, row):
    """Return the cost of turning ``x`` into ``y``, or infinity as soon as it must be above ``bound``."""
    n = y.size
    total = np.float32(0.0)
    row[0] = total
    for j in range(n):
        total += y_gaps[j]
        row[j + 1] = total
    for i in range(x.size):
        of_symbol = costs[x[i]]
        deletion = x_gaps[i]
        diagonal = row[0]
        left = diagonal + deletion
        row[0] = left
        least = left
        for j in range(n):
            substituted = diagonal + of_symbol[y[j]]
            diagonal = row[j + 1]
            best = min(substituted, diagonal + deletion)
            left = min(best, left + y_gaps[j])
            row[j + 1] = left
            least = min(least, left)
        if least > bound:
            return np.float32(np.inf)
    return row[n]


@inner_called
def _edits_and_swaps(x, y, x_gaps, y_gaps, costs, swaps, bound, row):
    """Return the cost of turning ``x`` into ``y`` where neighbours may be exchanged, or infinity above ``bound``."""
    n = y.size
    half = row.size // 2
    row, earlier = row[:half], row[half:]  # costs of the symbol before, and of that before it
    total = np.float32(0.0)
    row[0] = total
    for j in range(n):
        total += y_gaps[j]
        row[j + 1] = total
    least_before = np.float32(0.0)
    for i in range(x.size):
        of_symbol = costs[x[i]]
        deletion = x_gaps[i]
        diagonal = row[0]
        second, first = np.float32(0.0), earlier[0]  # entries j - 1 and j of ``earlier``, which are overwritten
        earlier[0] = diagonal
        left = diagonal + deletion
        row[0] = left
        least = left
        for j in range(n):
            substituted = diagonal + of_symbol[y[j]]
            diagonal = row[j + 1]
            best = min(substituted, diagonal + deletion)
            left = min(best, left + y_gaps[j])
            if i > 0 and j > 0 and x[i] == y[j - 1] and x[i - 1] == y[j]:
                left = min(left, second + swaps[x[i - 1], x[i]])
            second, first = first, earlier[j + 1]
            earlier[j + 1] = diagonal
            row[j + 1] = left
            least = min(least, left)
        if min(least, least_before) > bound:
            return np.float32(np.inf)
        least_before = least
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
    first, stop = asked.offsets[i], asked.offsets[i + 1]
    x, x_gaps, x_turned = asked.symbols[first:stop], asked.gaps[first:stop], asked.turned_gaps[first:stop]
    first, stop = stored.offsets[j], stored.offsets[j + 1]
    y, y_gaps, y_turned = stored.symbols[first:stop], stored.gaps[first:stop], stored.turned_gaps[first:stop]
    least = np.float32(np.inf)
    for _ in range(2 if asked.both else 1):
        if asked.swaps.size > 0:
            least = min(least, _edits_and_swaps(x, y, x_gaps, y_gaps, asked.costs, asked.swaps, bound, row))
        else:
            least = min(least, _edits(x, y, x_gaps, y_gaps, asked.costs, bound, row))
        bound = min(bound, least)
        x, y, x_gaps, y_gaps = y, x, y_turned, x_turned
    return least


@inner
def cells_for(asked, stored):
    """Return how many float32 the alignment of any two points needs room for."""
    n_rows = 2 if asked.swaps.size > 0 else 1
    return n_rows * (max(asked.longest, stored.longest) + 1)


@kernel
def distances_of_pairs(asked, stored, of_asked, of_stored, bounds, distances):
    """Write the distance of each pair of points, float32, infinity where it is above its bound.

    ``of_asked`` and ``of_stored``, int64 of shape (pairs,), name the points.
    """
    row = empty(cells_for(asked, stored), np.float32)
    for pair in range(distances.size):
        distances[pair] = distance(asked, of_asked[pair], stored, of_stored[pair], bounds[pair], row)
    release(row)


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
    row = empty(cells_for(asked, stored), np.float32)
    k = points.shape[1]
    n = max(stored.offsets.size - 1, stored.rows.shape[0])
    for i in range(points.shape[0]):
        for j in range(n):
            if j != excluded[i]:
                length = distance(asked, i, stored, j, lengths[i, k - 1], row)
                if comes_before(j, length, points[i, k - 1], lengths[i, k - 1]) and length < np.inf:
                    offer(np.int64(j), length, points[i], lengths[i])
    release(row)


class Counts(NamedTuple):
    """How often each edit occurs, weighted: float64."""

    pairs: np.ndarray  # (n_symbols + 1, n_symbols + 1): substitutions
    of_asked: np.ndarray  # (symbols asked,): deletions of each
    of_stored: np.ndarray  # (symbols stored,): insertions of each
    swaps: np.ndarray  # as the costs of exchanges


@inner
def _exchanged(x, y, i, j, swaps):
    """Return whether the last two of the first ``i`` and ``j`` symbols are the same in the other order."""
    return swaps.size > 0 and i > 1 and j > 1 and x[i - 1] == y[j - 2] and x[i - 2] == y[j - 1]


@inner
def _fill(x, y, x_gaps, y_gaps, costs, swaps, table):
    """Write the costs of turning each beginning of ``x`` into each of ``y``."""
    table[0, 0] = 0.0
    for j in range(y.size):
        table[0, j + 1] = table[0, j] + y_gaps[j]
    for i in range(x.size):
        table[i + 1, 0] = table[i, 0] + x_gaps[i]
        for j in range(y.size):
            substituted = table[i, j] + costs[x[i], y[j]]
            least = min(substituted, min(table[i, j + 1] + x_gaps[i], table[i + 1, j] + y_gaps[j]))
            if _exchanged(x, y, i + 1, j + 1, swaps):
                least = min(least, table[i - 1, j - 1] + swaps[x[i - 1], x[i]])
            table[i + 1, j + 1] = least


@inner
def _add_step(steps, n, i, j):
    """Write a step if there is room for it, and return how many there are."""
    if n < steps.shape[0]:
        steps[n, 0], steps[n, 1] = i, j
    return n + 1


@kernel
def count_edits(asked, stored, of_asked, of_stored, weights, counts, steps):
    """Add each pair's weight to ``counts``, once for each edit of a best alignment.

    ``weights``, float64 of shape (pairs,). ``steps``, int64 of shape (most, 2), is given the steps of the last pair,
    the last one first: the places of symbols in either sequence, -1 for none. An exchange is two steps that cross.
    Returns how many steps that pair has.
    """
    table = empty((asked.longest + 1, stored.longest + 1), np.float32)
    n_steps = 0
    for pair in range(of_asked.size):
        start, stop = asked.offsets[of_asked[pair]], asked.offsets[of_asked[pair] + 1]
        x, x_gaps, x_counts = asked.symbols[start:stop], asked.gaps[start:stop], counts.of_asked[start:stop]
        start, stop = stored.offsets[of_stored[pair]], stored.offsets[of_stored[pair] + 1]
        y, y_gaps, y_counts = stored.symbols[start:stop], stored.gaps[start:stop], counts.of_stored[start:stop]
        _fill(x, y, x_gaps, y_gaps, asked.costs, asked.swaps, table)
        i, j, n_steps, weight = x.size, y.size, 0, weights[pair]
        while i > 0 or j > 0:
            if i > 0 and j > 0 and table[i, j] == table[i - 1, j - 1] + asked.costs[x[i - 1], y[j - 1]]:
                i, j = i - 1, j - 1
                counts.pairs[x[i], y[j]] += weight
                n_steps = _add_step(steps, n_steps, i, j)
            elif i > 0 and table[i, j] == table[i - 1, j] + x_gaps[i - 1]:
                i -= 1
                x_counts[i] += weight
                n_steps = _add_step(steps, n_steps, i, -1)
            elif (
                _exchanged(x, y, i, j, asked.swaps)
                and table[i, j] == table[i - 2, j - 2] + asked.swaps[x[i - 2], x[i - 1]]
            ):
                i, j = i - 2, j - 2
                counts.swaps[x[i], x[i + 1]] += weight
                n_steps = _add_step(steps, n_steps, i + 1, j)
                n_steps = _add_step(steps, n_steps, i, j + 1)
            else:
                j -= 1
                y_counts[j] += weight
                n_steps = _add_step(steps, n_steps, -1, j)
    release(table)
    return n_steps

"""Kernels: distances of points, which are sequences under an edit distance, or rows.

The distance of sequences may also be the smaller of both directions.
"""

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from .._jit import empty, inner, inner_allocating, inner_fastmath, kernel, release, zeros
from ._bits import (
    LANES,
    WORD,
    edits_of_lanes,
    edits_of_word,
    edits_of_words,
    fill_lanes,
    limit_of,
    new_lanes,
    set_bits,
)
from ._edits import N_ROWS, Edits, all_edits, plain_edits


class SpaceKind(IntEnum):
    """Kinds of distances."""

    EDIT = 0
    EUCLIDEAN = 1
    ANGULAR = 2  # of rows of length 1: the angle between them


_EDIT, _ANGULAR = SpaceKind.EDIT.value, SpaceKind.ANGULAR.value


class Space(NamedTuple):
    """Points: sequences, or dense rows. Arrays that a kind of points does not need are empty."""

    kind: int
    longest: int  # symbols that any sequence has, at most
    symbols: np.ndarray  # int32
    offsets: np.ndarray  # int64 (points + 1,)
    gaps: np.ndarray  # float32, the cost of deleting or inserting each of ``symbols``
    turned_gaps: np.ndarray  # float32, the same in the other direction if ``both``; no entries otherwise
    both: bool  # whether the smaller distance of both directions counts
    edits: Edits  # what edits cost
    rows: np.ndarray  # float32 (points, n_features)


@inner_fastmath
def _squared(x, y):
    """Return the squared distance of two rows in float64, which holds the squares of all float32 numbers."""
    total = 0.0
    for i in range(x.size):
        apart = np.float64(x[i]) - np.float64(y[i])
        total += apart * apart
    return total


class DistanceRoom(NamedTuple):
    """Working memory for distances, and the bits of the query."""

    row: np.ndarray  # float32
    masks: np.ndarray  # uint64 (n_symbols * words,): where each symbol is; no entries unless all edits cost the same
    columns: np.ndarray  # uint64 (4 * words,)


@inner
def _is_plain(edits):
    """Return whether there are substitutions, insertions and deletions alone, each with a cost of its own."""
    return edits.swaps.size == 0 and edits.openings.size == 0 and edits.ends.size == 0


@inner_allocating
def new_room(asked, stored):
    """Return room for the distances of any two points."""
    n_cells = (1 if _is_plain(asked.edits) else N_ROWS) * (max(asked.longest, stored.longest) + 2)
    n_words = np.int64(0)  # that have a bit for each symbol of a point
    if min(asked.edits.unit, stored.edits.unit) > 0.0:
        n_words = np.int64((asked.longest + WORD - 1) // WORD)
    n_masks = n_words * asked.edits.pairs.shape[0]
    return DistanceRoom(empty(n_cells, np.float32), zeros(n_masks, np.uint64), empty(4 * n_words, np.uint64))


@inner_allocating
def _lanes_for(asked, stored):
    """Return room for comparing a point with several others at once where all edits cost the same."""
    by_bits = min(asked.edits.unit, stored.edits.unit) > 0.0
    return new_lanes(np.int64(asked.edits.pairs.shape[0] if by_bits else 0))


@inner
def prepare(asked, i, before, room):
    """Make room for the distances of a point asked for; ``before`` is the one that it was made for, or -1."""
    n_words = room.columns.size // 4
    if n_words > 0 and i != before:
        if before >= 0:
            set_bits(asked.symbols[asked.offsets[before] : asked.offsets[before + 1]], room.masks, n_words, False)
        set_bits(asked.symbols[asked.offsets[i] : asked.offsets[i + 1]], room.masks, n_words, True)


@inner
def by_bits(asked, i, stored, j, bound, room):
    """Return the distance of two points where all edits cost the same, or infinity above a bound."""
    edits, n = asked.edits, asked.offsets[i + 1] - asked.offsets[i]
    y = stored.symbols[stored.offsets[j] : stored.offsets[j + 1]]
    limit, n_words, swapped = limit_of(bound, edits.unit), room.columns.size // 4, edits.swaps.size > 0
    if abs(n - y.size) > limit:
        return np.float32(np.inf)
    if n == 0:
        n_edits = np.int64(y.size)
    elif n <= WORD:
        n_edits = edits_of_word(n, y, room.masks, n_words, swapped, limit)
    else:
        n_edits = edits_of_words(n, y, room.masks, n_words, swapped, limit, room.columns)
    return np.float32(n_edits * edits.unit) if n_edits >= 0 else np.float32(np.inf)


@inner
def distance(asked, i, stored, j, bound, room):
    """Return the distance of two points, or infinity where it is above ``bound`` and need not be known.

    ``prepare`` has made the room for the point asked for.
    """
    if asked.kind != _EDIT:
        length = np.sqrt(_squared(asked.rows[i], stored.rows[j]))
        if asked.kind == _ANGULAR:
            return 2.0 * np.arcsin(min(1.0, 0.5 * length))
        return length
    if room.columns.size > 0:
        return np.float64(by_bits(asked, i, stored, j, bound, room))
    first, stop = asked.offsets[i], asked.offsets[i + 1]
    x, x_gaps, x_turned = asked.symbols[first:stop], asked.gaps[first:stop], asked.turned_gaps[first:stop]
    first, stop = stored.offsets[j], stored.offsets[j + 1]
    y, y_gaps, y_turned = stored.symbols[first:stop], stored.gaps[first:stop], stored.turned_gaps[first:stop]
    edits = asked.edits
    plain, least, bound = _is_plain(edits), np.inf, np.float64(bound)
    for _ in range(2 if asked.both else 1):
        if plain:
            least = min(least, plain_edits(x, y, x_gaps, y_gaps, edits, bound, room.row))
        else:
            least = min(least, all_edits(x, y, x_gaps, y_gaps, edits, bound, room.row))
        bound = min(bound, least)
        x, y, x_gaps, y_gaps = y, x, y_turned, x_turned
    return least


@kernel
def distances_of_pairs(asked, stored, of_asked, of_stored, bounds, distances):
    """Write the distance of each pair of points, float64, infinity where it is above its bound.

    ``of_asked`` and ``of_stored``, int64 of shape (pairs,), name the points.
    """
    room = new_room(asked, stored)
    before = np.int64(-1)
    for pair in range(distances.size):
        i = of_asked[pair]
        prepare(asked, i, before, room)
        before = i
        distances[pair] = distance(asked, i, stored, of_stored[pair], bounds[pair], room)
    release(room)


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
    room, lanes, edits = new_room(asked, stored), _lanes_for(asked, stored), asked.edits
    last, n, swapped = points.shape[1] - 1, stored.offsets.size - 1, edits.swaps.size > 0
    before = np.int64(-1)
    for first in range(0, n, LANES):
        n_lanes = np.int64(0)
        if lanes.n_edits.size > 0:
            n_lanes = fill_lanes(stored.symbols, stored.offsets, first, True, lanes)
        for i in range(points.shape[0]):
            if n_lanes > 0:
                x = asked.symbols[asked.offsets[i] : asked.offsets[i + 1]]
                edits_of_lanes(x, n_lanes, swapped, lanes)
            else:
                prepare(asked, i, before, room)
                before = np.int64(i)
            for j in range(first, min(first + LANES, n)):
                if n_lanes > 0:
                    length = np.float32(lanes.n_edits[j - first] * edits.unit)
                    if length > lengths[i, last]:
                        continue
                else:
                    length = distance(asked, i, stored, j, lengths[i, last], room)
                if j != excluded[i] and comes_before(j, length, points[i, last], lengths[i, last]) and length < np.inf:
                    offer(np.int64(j), length, points[i], lengths[i])
        if n_lanes > 0:
            fill_lanes(stored.symbols, stored.offsets, first, False, lanes)
    release((room, lanes))


@kernel
def distances_by_bits(asked, stored, distances):
    """Write the distance of each point from each other where all edits cost the same, float32 (asked, stored)."""
    room, lanes, edits = new_room(asked, stored), _lanes_for(asked, stored), asked.edits
    n, before, bound = stored.offsets.size - 1, np.int64(-1), np.float32(np.inf)
    for first in range(0, n, LANES):
        n_lanes = fill_lanes(stored.symbols, stored.offsets, first, True, lanes)
        for i in range(distances.shape[0]):
            if n_lanes > 0:
                x = asked.symbols[asked.offsets[i] : asked.offsets[i + 1]]
                edits_of_lanes(x, n_lanes, edits.swaps.size > 0, lanes)
                for lane in range(n_lanes):
                    distances[i, first + lane] = np.float32(lanes.n_edits[lane] * edits.unit)
            else:
                prepare(asked, i, before, room)
                before = np.int64(i)
                for j in range(first, min(first + LANES, n)):
                    distances[i, j] = by_bits(asked, i, stored, j, bound, room)
        if n_lanes > 0:
            fill_lanes(stored.symbols, stored.offsets, first, False, lanes)
    release((room, lanes))

"""Spaces of points: sequences with an edit distance, or dense rows."""

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from .._jit import empty, inner, inner_allocating, inner_fastmath, kernel, release, zeros
from .._words import WORD, edits_of_word, set_bits
from ._bits import edits_of_words, limit_of
from ._edits import N_ROWS, Edits, all_edits, plain_edits


class SpaceKind(IntEnum):
    """Distances that define a space."""

    EDIT = 0
    EUCLIDEAN = 1
    ANGULAR = 2  # the angle between rows of unit length


_ROUNDING = 1.0 + 1e-6  # tolerance for the rounding error of a product
_EDIT, _ANGULAR = SpaceKind.EDIT.value, SpaceKind.ANGULAR.value


class Space(NamedTuple):
    """Points of a space: either sequences or dense rows. Unused arrays are empty."""

    kind: int
    longest: int  # length of the longest sequence
    symbols: np.ndarray  # int32, codes of all sequences
    offsets: np.ndarray  # int64 (points + 1,)
    gaps: np.ndarray  # float32, cost of deleting or inserting each entry of ``symbols``
    normalized: bool  # whether distances are divided by the length of the longer sequence
    edits: Edits
    rows: np.ndarray  # float32 (points, n_features)


@inner_fastmath
def _squared(x, y):
    total = 0.0
    for i in range(x.size):
        apart = np.float64(x[i]) - np.float64(y[i])
        total += apart * apart
    return total


class DistanceRoom(NamedTuple):
    """Scratch arrays for distances, with the position bits of the query."""

    row: np.ndarray  # float32, rows of a cost table
    masks: np.ndarray  # uint64 (n_symbols * words,), position bits of each symbol; empty unless all edits cost the same
    columns: np.ndarray  # uint64 (4 * words,)


@inner
def _is_plain(edits):
    """Return whether substitutions, insertions and deletions are the only edits."""
    return edits.swaps.size == 0 and edits.openings.size == 0 and edits.ends.size == 0


@inner_allocating
def new_room(queries, stored):
    """Return scratch arrays for the distances between points of two spaces."""
    n_cells = (1 if _is_plain(queries.edits) else N_ROWS) * (max(queries.longest, stored.longest) + 2)
    n_words = np.int64(0)  # words with a bit for each symbol of a query
    if min(queries.edits.unit, stored.edits.unit) > 0.0:
        n_words = np.int64((queries.longest + WORD - 1) // WORD)
    n_masks = n_words * queries.edits.pairs.shape[0]
    return DistanceRoom(empty(n_cells, np.float32), zeros(n_masks, np.uint64), empty(4 * n_words, np.uint64))


@inner
def prepare(queries, i, before, room):
    """Load the position bits of query ``i`` into ``room``. Clear those of query ``before`` first, unless it is -1."""
    n_words = room.columns.size // 4
    if n_words > 0 and i != before:
        if before >= 0:
            set_bits(queries.symbols[queries.offsets[before] : queries.offsets[before + 1]], room.masks, n_words, False)
        set_bits(queries.symbols[queries.offsets[i] : queries.offsets[i + 1]], room.masks, n_words, True)


@inner
def by_bits(queries, i, stored, j, bound, room):
    """Return the distance of two sequences if all edits cost the same, or infinity if it is above ``bound``."""
    edits, n = queries.edits, queries.offsets[i + 1] - queries.offsets[i]
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
def divisor(queries, m, n):
    """Return the divisor that normalizes the distance of sequences of ``m`` and ``n`` symbols."""
    if not queries.normalized:
        return 1.0
    return np.float64(max(m if queries.edits.ends.size > 0 else max(m, n), 1))


@inner
def distance(queries, i, stored, j, bound, room):
    """Return the distance of two points, ``i`` being prepared, or infinity if it is above ``bound``."""
    if queries.kind != _EDIT:
        length = np.sqrt(_squared(queries.rows[i], stored.rows[j]))
        if queries.kind == _ANGULAR:
            return 2.0 * np.arcsin(min(1.0, 0.5 * length))
        return length
    m, n = queries.offsets[i + 1] - queries.offsets[i], stored.offsets[j + 1] - stored.offsets[j]
    divided, bound = divisor(queries, m, n), np.float64(bound)
    if queries.normalized:
        bound *= divided * _ROUNDING
    if room.columns.size > 0:
        return np.float64(by_bits(queries, i, stored, j, bound, room)) / divided
    first, stop = queries.offsets[i], queries.offsets[i + 1]
    x, x_gaps = queries.symbols[first:stop], queries.gaps[first:stop]
    first, stop = stored.offsets[j], stored.offsets[j + 1]
    y, y_gaps = stored.symbols[first:stop], stored.gaps[first:stop]
    edits = queries.edits
    if _is_plain(edits):
        return plain_edits(x, y, x_gaps, y_gaps, edits, bound, room.row) / divided
    return all_edits(x, y, x_gaps, y_gaps, edits, bound, room.row) / divided


def distances_between(queries: Space, stored: Space, of_queries: np.ndarray, of_stored: np.ndarray) -> np.ndarray:
    """Return the distance of each pair of points: float64."""
    distances, bounds = np.empty(of_queries.size), np.full(of_queries.size, np.inf)
    distances_of_pairs(queries, stored, of_queries, of_stored, bounds, distances)
    return distances


@kernel
def distances_of_pairs(queries, stored, of_queries, of_stored, bounds, distances):
    """Write the distance of each pair of points, or infinity if it is above the pair's bound."""
    room = new_room(queries, stored)
    before = np.int64(-1)
    for pair in range(distances.size):
        i = of_queries[pair]
        prepare(queries, i, before, room)
        before = i
        distances[pair] = distance(queries, i, stored, of_stored[pair], bounds[pair], room)
    release(room)

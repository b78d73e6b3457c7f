"""Spaces of points: sequences with an edit distance, or dense rows."""

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from .._jit import empty, inner, inner_allocating, inner_fastmath, kernel, release, zeros
from ._bits import WORD, edits_of_word, edits_of_words, limit_of, set_bits
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
    turned_gaps: np.ndarray  # float32, ``gaps`` in the other direction if ``both``, otherwise empty
    both: bool  # whether distances are the minimum of both directions
    normalized: bool  # whether distances are divided by the length of the longer sequence
    edits: Edits
    rows: np.ndarray  # float32 (points, n_features)


@inner_fastmath
def _squared(x, y):
    """Return the squared Euclidean distance of two rows, in float64 to avoid overflow."""
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
def new_room(asked, stored):
    """Return scratch arrays for the distances between points of two spaces."""
    n_cells = (1 if _is_plain(asked.edits) else N_ROWS) * (max(asked.longest, stored.longest) + 2)
    n_words = np.int64(0)  # words with a bit for each symbol of a query
    if min(asked.edits.unit, stored.edits.unit) > 0.0:
        n_words = np.int64((asked.longest + WORD - 1) // WORD)
    n_masks = n_words * asked.edits.pairs.shape[0]
    return DistanceRoom(empty(n_cells, np.float32), zeros(n_masks, np.uint64), empty(4 * n_words, np.uint64))


@inner
def prepare(asked, i, before, room):
    """Load the position bits of query ``i`` into ``room``. Clear those of query ``before`` first, unless it is -1."""
    n_words = room.columns.size // 4
    if n_words > 0 and i != before:
        if before >= 0:
            set_bits(asked.symbols[asked.offsets[before] : asked.offsets[before + 1]], room.masks, n_words, False)
        set_bits(asked.symbols[asked.offsets[i] : asked.offsets[i + 1]], room.masks, n_words, True)


@inner
def by_bits(asked, i, stored, j, bound, room):
    """Return the distance of two sequences if all edits cost the same, or infinity if it is above ``bound``."""
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
def divisor(asked, m, n):
    """Return the divisor that normalizes the distance of sequences of ``m`` and ``n`` symbols."""
    if not asked.normalized:
        return 1.0
    return np.float64(max(m if asked.edits.ends.size > 0 else max(m, n), 1))


@inner
def distance(asked, i, stored, j, bound, room):
    """Return the distance of two points, or infinity if it is above ``bound``.

    Call ``prepare`` for point ``i`` first.
    """
    if asked.kind != _EDIT:
        length = np.sqrt(_squared(asked.rows[i], stored.rows[j]))
        if asked.kind == _ANGULAR:
            return 2.0 * np.arcsin(min(1.0, 0.5 * length))
        return length
    m, n = asked.offsets[i + 1] - asked.offsets[i], stored.offsets[j + 1] - stored.offsets[j]
    divided, bound = divisor(asked, m, n), np.float64(bound)
    if asked.normalized:
        bound *= divided * _ROUNDING
    if room.columns.size > 0:
        return np.float64(by_bits(asked, i, stored, j, bound, room)) / divided
    first, stop = asked.offsets[i], asked.offsets[i + 1]
    x, x_gaps, x_turned = asked.symbols[first:stop], asked.gaps[first:stop], asked.turned_gaps[first:stop]
    first, stop = stored.offsets[j], stored.offsets[j + 1]
    y, y_gaps, y_turned = stored.symbols[first:stop], stored.gaps[first:stop], stored.turned_gaps[first:stop]
    edits = asked.edits
    plain, least = _is_plain(edits), np.inf
    for _ in range(2 if asked.both else 1):
        if plain:
            least = min(least, plain_edits(x, y, x_gaps, y_gaps, edits, bound, room.row))
        else:
            least = min(least, all_edits(x, y, x_gaps, y_gaps, edits, bound, room.row))
        bound = min(bound, least)
        x, y, x_gaps, y_gaps = y, x, y_turned, x_turned
    return least / divided


@kernel
def distances_of_pairs(asked, stored, of_asked, of_stored, bounds, distances):
    """Write the distance of each pair of points, or infinity if it is above the pair's bound: float64.

    ``of_asked`` and ``of_stored``, int64 of shape (pairs,), contain the positions of the points.
    """
    room = new_room(asked, stored)
    before = np.int64(-1)
    for pair in range(distances.size):
        i = of_asked[pair]
        prepare(asked, i, before, room)
        before = i
        distances[pair] = distance(asked, i, stored, of_stored[pair], bounds[pair], room)
    release(room)

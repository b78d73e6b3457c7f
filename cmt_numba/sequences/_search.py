"""Search for the nearest of all stored sequences, and distances of all pairs.

Bit-parallel kernels count the edits between a query and blocks of sequences. If all edits have the same cost, the
number of edits determines the distance. Otherwise distances are computed in ascending order of the number of edits.
Sequences with too many edits are skipped, because a distance is at least the number of edits times the smallest cost.
"""

from typing import NamedTuple

import numpy as np

from .._jit import empty, inner, kernel, release
from .._words import WORD
from ._bits import LANES, NARROW, Blocks, Lanes, edits_of_block, fill_blocks, new_lanes_room
from ._spaces import Space, distance, divisor, new_room, prepare

_MOST_CLASSES = 64  # maximum number of symbol classes; blocks treat symbols of the same class as equal
_LEVELS = 256  # size of the histogram of edits, whose last entry includes all larger numbers
_SLACK = 1.0 + 1e-5  # tolerance for rounding errors in bounds


def blocks_of(space: Space) -> Blocks:
    """Return the sequences of a space, arranged in blocks."""
    lengths = np.diff(space.offsets)
    order = np.argsort(lengths, kind="stable")
    lengths = lengths[order]
    n_short, n_word = np.searchsorted(lengths, [NARROW, WORD], side="right").tolist()
    n_narrow = n_short // LANES if n_short < n_word else -(-n_short // LANES)
    n_wide = max(0, -(-n_word // LANES) - n_narrow)
    n_classes = min(space.edits.pairs.shape[0] - 1, _MOST_CLASSES)
    narrow, wide = (
        Lanes(np.zeros((n, n_classes, LANES), dtype), np.zeros((n, LANES), dtype))
        for n, dtype in ((n_narrow, np.uint16), (n_wide, np.uint64))
    )
    blocks = Blocks(order, lengths, narrow, wide, n_word)
    fill_blocks(space.symbols, space.offsets, blocks)
    return blocks


class Neighbors(NamedTuple):
    """Nearest points of each query, sorted by distance."""

    ids: np.ndarray  # int64 (n, k), ids or positions, padded with -1
    distances: np.ndarray  # (n, k), float32 for sequences or float64 for rows, padded with infinity
    n_computed: np.ndarray  # int64 (n,), number of computed distances


def nothing_found(n: int, k: int, dtype: type = np.float32) -> Neighbors:
    """Return empty results for the ``k`` nearest points of ``n`` queries."""
    return Neighbors(np.full((n, k), -1, np.int64), np.full((n, k), np.inf, dtype), np.zeros(n, np.int64))


@inner
def offer(point, length, points, lengths):
    """Insert a point into a sorted list of nearest points and drop the last point. Ties go to the smaller index."""
    i = points.size - 1
    while i > 0 and (lengths[i - 1] > length or (lengths[i - 1] == length and points[i - 1] > point)):
        lengths[i], points[i] = lengths[i - 1], points[i - 1]
        i -= 1
    lengths[i], points[i] = length, point


@inner
def comes_before(point, length, last_point, last_length):
    """Return whether a point is nearer than the last point, or equally near with a smaller index."""
    return length < last_length or (length == last_length and (last_point < 0 or point < last_point))


@inner
def _offer_form(owner, length, points, lengths):
    """Insert the owner of a sequence into a sorted list of nearest owners, in which each owner occurs at most once."""
    last = points.size - 1
    if not length < np.inf or not comes_before(owner, length, points[last], lengths[last]):
        return
    for i in range(points.size):
        if points[i] == owner:
            if length < lengths[i]:
                offer(owner, length, points[: i + 1], lengths[: i + 1])
            return
    offer(owner, length, points, lengths)


@inner
def _nearest_block(blocks, m, low, high, in_part):
    """Return the next block, up to ``low`` or from ``high`` on, or -1, and its least difference in length."""
    n_blocks = blocks.narrow.inside.shape[0] + blocks.wide.inside.shape[0]
    below = above = np.int64(2**62)
    if low >= 0:
        below = max(m - blocks.lengths[min(LANES * (low + 1), blocks.n) - 1], np.int64(0))
    if high < n_blocks:
        above = np.int64(0) if in_part else max(blocks.lengths[LANES * high] - m, np.int64(0))
    if low < 0 and high >= n_blocks:
        return np.int64(-1), np.int64(0)
    return (low, below) if below <= above else (high, above)


@inner
def _first_block(blocks, m):
    """Return the first block with a sequence of at least ``m`` symbols."""
    n_blocks = blocks.narrow.inside.shape[0] + blocks.wide.inside.shape[0]
    block = np.int64(0)
    while block < n_blocks and blocks.lengths[min(LANES * (block + 1), blocks.n) - 1] < m:
        block += 1
    return block


@inner
def _is_counted(queries, blocks):
    """Return whether the distance is the number of edits times a common cost."""
    return queries.edits.unit > 0.0 and blocks.narrow.masks.shape[1] == queries.edits.pairs.shape[0] - 1


@kernel
def search(queries, stored, blocks, owners, excluded, n_candidates, found):
    """Write the owners of the nearest stored sequences of each query to ``found``, nearest first.

    ``owners[j]`` is the owner of stored sequence ``j``, or -1 to skip the sequence. Each owner is found at most once,
    with its nearest sequence. ``excluded[i]`` is the owner to skip for query ``i``, or -1. If ``n_candidates`` is 0,
    the result is exact. Otherwise distances are computed only for the ``n_candidates`` sequences with the fewest edits.
    Ties go to the smaller owner.
    """
    points, lengths, n_computed = found
    room, lanes, edits = new_room(queries, stored), new_lanes_room(), queries.edits
    in_part, swapped, counted = edits.ends.size > 0, edits.swaps.size > 0, _is_counted(queries, blocks)
    exact, wanted = n_candidates == 0, max(n_candidates, 2 * points.shape[1])
    least = np.float64(edits.least) / _SLACK
    last, n_sequences = points.shape[1] - 1, blocks.order.size
    n_edits, near = empty(blocks.n, np.int64), empty(blocks.n, np.int64)
    counts, seen = empty(_LEVELS, np.int64), empty(blocks.n // LANES + 2, np.int64)
    for i in range(points.shape[0]):
        x = queries.symbols[queries.offsets[i] : queries.offsets[i + 1]]
        prepare(queries, i, np.int64(i - 1), room)
        counts[:] = 0
        cutoff, n_near, n_within, n_seen = np.int64(_LEVELS - 1), np.int64(0), np.int64(0), np.int64(0)
        high = _first_block(blocks, x.size)
        low = high - 1
        while True:
            block, apart = _nearest_block(blocks, x.size, low, high, in_part)
            if block < 0 or apart > cutoff:
                break
            low, high = (low - 1, high) if block == low else (low, high + 1)
            first = edits_of_block(x, blocks, block, swapped, in_part, lanes)
            seen[n_seen] = block
            n_seen += 1
            for lane in range(min(LANES, blocks.n - first)):
                n = min(lanes.n_edits[lane], np.int64(_LEVELS - 1))
                n_edits[first + lane] = n
                if n > cutoff:
                    continue
                owner = owners[blocks.order[first + lane]]
                if owner < 0 or owner == excluded[i]:
                    continue
                near[n_near] = first + lane
                n_near += 1
                counts[n] += 1
                n_within += 1
                while n_within - counts[cutoff] >= wanted:
                    n_within -= counts[cutoff]
                    cutoff -= 1
        n_left = n_within if exact or counted else n_candidates
        for level in range(cutoff + 1):
            for candidate in range(n_near):
                position = near[candidate]
                if n_edits[position] != level or n_left == 0:
                    continue
                point = blocks.order[position]
                if counted:
                    length = np.float32(level * edits.unit / divisor(queries, x.size, blocks.lengths[position]))
                else:
                    length = np.float32(distance(queries, i, stored, point, lengths[i, last], room))
                n_left -= 1
                n_computed[i] += 1
                _offer_form(owners[point], length, points[i], lengths[i])
        if exact and (not counted or queries.normalized):
            for number in range(n_seen):
                first = seen[number] * LANES
                for position in range(first, min(first + LANES, blocks.n)):
                    bound = lengths[i, last] * divisor(queries, x.size, blocks.lengths[position])
                    if n_edits[position] > cutoff and least * n_edits[position] <= bound:
                        _compare_with(queries, i, stored, blocks.order[position], owners, excluded[i], room, found)
            while True:
                block, apart = _nearest_block(blocks, x.size, low, high, in_part)
                if block < 0:
                    break
                low, high = (low - 1, high) if block == low else (low, high + 1)
                stop = min(LANES * (block + 1), blocks.n)
                if least * apart > lengths[i, last] * divisor(queries, x.size, blocks.lengths[stop - 1]):
                    continue
                first = edits_of_block(x, blocks, block, swapped, in_part, lanes)
                for position in range(first, stop):
                    bound = lengths[i, last] * divisor(queries, x.size, blocks.lengths[position])
                    if least * lanes.n_edits[position - first] <= bound:
                        _compare_with(queries, i, stored, blocks.order[position], owners, excluded[i], room, found)
        for position in range(blocks.n, n_sequences):
            _compare_with(queries, i, stored, blocks.order[position], owners, excluded[i], room, found)
    release((room, lanes, n_edits, near, counts, seen))


@inner
def _compare_with(queries, i, stored, point, owners, excluded, room, found):
    """Compute a distance, and insert the owner of the sequence if the distance is small enough."""
    owner, last = owners[point], found.ids.shape[1] - 1
    if owner < 0 or owner == excluded:
        return
    length = np.float32(distance(queries, i, stored, point, found.distances[i, last], room))
    found.n_computed[i] += 1
    _offer_form(owner, length, found.ids[i], found.distances[i])


@kernel
def all_distances(queries, stored, blocks, distances):
    """Write the distance between each query and each stored sequence: float32, shape (queries, stored)."""
    room, lanes, edits = new_room(queries, stored), new_lanes_room(), queries.edits
    n_counted = blocks.n if _is_counted(queries, blocks) else np.int64(0)
    for i in range(distances.shape[0]):
        x = queries.symbols[queries.offsets[i] : queries.offsets[i + 1]]
        prepare(queries, i, np.int64(i - 1), room)
        for start in range(0, n_counted, LANES):
            first = edits_of_block(x, blocks, np.int64(start // LANES), edits.swaps.size > 0, False, lanes)
            for position in range(first, min(first + LANES, blocks.n)):
                divided = divisor(queries, x.size, blocks.lengths[position])
                distances[i, blocks.order[position]] = np.float32(
                    lanes.n_edits[position - first] * edits.unit / divided
                )
        for position in range(n_counted, blocks.order.size):
            j = blocks.order[position]
            distances[i, j] = distance(queries, i, stored, j, np.inf, room)
    release((room, lanes))

"""Kernels for edit distances with any costs, by dynamic programming.

Edits are substitutions, insertions and deletions (Wagner and Fischer, 1974). Optional edits are

- exchanges of neighbours, which take part in no other edit (optimal string alignment),
- the opening of a gap, which is a run of insertions or of deletions (Gotoh, An improved algorithm for matching
  biological sequences, 1982),
- leaving out symbols at the ends of the first sequence, while those of the second one are free: the local alignment of
  Smith and Waterman (Identification of common molecular subsequences, 1981), where a matched symbol scores the cost of
  leaving it out.

Cells of the table that need too many gaps for a bound are skipped (Ukkonen, Algorithms for approximate string matching,
1985).
"""

from typing import NamedTuple

import numpy as np

from .._jit import inner, inner_called

N_ROWS = 3
"""Rows of the table of costs that ``all_edits`` works in."""

_ROUNDING = 1.0 + 1e-5  # tolerance for the rounding of sums of costs


class Edits(NamedTuple):
    """The costs of edits. Arrays of edits that are not allowed are empty."""

    pairs: np.ndarray  # float32 (n_symbols + 1, n_symbols + 1): cost of replacing symbol ``i`` by ``j``; gaps are last
    swaps: np.ndarray  # float32 (n_symbols, n_symbols): cost of exchanging neighbours
    openings: np.ndarray  # float32 (2,): cost of opening a run of deletions, and a run of insertions
    ends: np.ndarray  # float32 (1,): cost of leaving out a symbol at an end of the first sequence
    least_gap: float  # the least cost of an insertion or deletion
    least: float  # the least cost of any edit
    unit: float  # the cost of all edits if it is the same and its sums are exact; 0 otherwise


@inner
def band_of(m, n, least_gap, bound):
    """Return how many of ``m`` symbols can be deleted, and how many of ``n`` inserted, at a cost up to ``bound``.

    Both are negative if the difference in length alone costs more.
    """
    n_gaps = np.float64(bound) / np.float64(least_gap) * _ROUNDING + 1e-9
    most = np.int64(n_gaps) if n_gaps < m + n else np.int64(m + n)
    if abs(m - n) > most:
        return np.int64(-1), np.int64(-1)
    return (most + m - n) // 2, (most + n - m) // 2


@inner
def _start(y_gaps, n_inserted, opening, row):
    """Write the costs of inserting each prefix of a sequence, infinity beyond ``n_inserted`` symbols."""
    total = opening
    row[0] = np.float32(0.0)
    for j in range(y_gaps.size):
        total = total + y_gaps[j] if j < n_inserted else np.float32(np.inf)
        row[j + 1] = total


@inner
def _plain_row(y, y_gaps, of_symbol, deletion, diagonal, left, row):
    """Write a row of costs, and return the least. ``diagonal`` and ``left`` are the cells above left and left of it."""
    least = left
    for j in range(y.size):
        substituted = diagonal + of_symbol[y[j]]
        diagonal = row[j]
        best = min(substituted, diagonal + deletion)
        left = min(best, left + y_gaps[j])
        row[j] = left
        least = min(least, left)
    return least


@inner
def plain_edits(x, y, x_gaps, y_gaps, edits, bound, row):
    """Return the cost of turning ``x`` into ``y``, or infinity if it is above ``bound``.

    ``x_gaps`` and ``y_gaps``, float32, are the costs of deleting and inserting each symbol. ``row`` has room for one
    more number than ``y`` has symbols.
    """
    m, n = x.size, y.size
    n_deleted, n_inserted = band_of(m, n, edits.least_gap, bound)
    if n_deleted < 0:
        return np.float32(np.inf)
    _start(y_gaps, n_inserted, np.float32(0.0), row)
    whole, inside = n_deleted >= m and n_inserted >= n, row[1:]
    for i in range(m):
        of_symbol, deletion = edits.pairs[x[i]], x_gaps[i]
        first, stop = max(i - n_deleted, 0), min(i + 1 + n_inserted, n)
        diagonal, left = row[first], np.float32(np.inf)
        if first == 0:
            row[0] = left = diagonal + deletion
        if whole:
            least = _plain_row(y, y_gaps, of_symbol, deletion, diagonal, left, inside)
        else:
            part, gaps, cells = y[first:stop], y_gaps[first:stop], inside[first:stop]
            least = _plain_row(part, gaps, of_symbol, deletion, diagonal, left, cells)
        if least > bound:
            return np.float32(np.inf)
    return row[n]


class _Step(NamedTuple):
    """A symbol of the first sequence, and the costs of its edits."""

    symbol: np.int32
    before: np.int32  # the symbol before it, -1 for none
    deletion: np.float32
    opening: np.float32  # opening a gap and deleting the symbol
    of_insertions: np.float32
    skipped: np.float32  # leaving out all symbols up to it; infinity if they cannot be


@inner
def _row(y, y_gaps, y_before, step, edits, diagonal, left, rows):
    """Write a row of costs for edits of all kinds, and return the least.

    ``diagonal`` and ``left`` are the cells above left and left of it. ``y_before`` is the symbol before the first of
    ``y``, -1 for none. ``rows`` are the last row, the row before it, shifted by an entry, and the least costs of
    alignments that end with a deletion.
    """
    row, earlier, deleted = rows
    of_symbol, swapped, opened = edits.pairs[step.symbol], edits.swaps.size > 0, edits.openings.size > 0
    least, inserted, second = left, np.float32(np.inf), earlier[0]
    for j in range(y.size):
        symbol = y[j]
        best = min(diagonal + of_symbol[symbol], step.skipped)
        if swapped:
            if step.symbol == y_before and step.before == symbol:
                best = min(best, second + edits.swaps[step.before, step.symbol])
            second = earlier[j + 1]
            earlier[j + 1] = diagonal
            y_before = symbol
        diagonal = row[j]
        deleted_now, inserted_now = diagonal + step.opening, left + (step.of_insertions + y_gaps[j])
        if opened:
            deleted[j] = deleted_now = min(deleted_now, deleted[j] + step.deletion)
            inserted = inserted_now = min(inserted_now, inserted + y_gaps[j])
        left = min(min(best, deleted_now), inserted_now)
        row[j] = left
        least = min(least, left)
    return least


@inner_called
def all_edits(x, y, x_gaps, y_gaps, edits, bound, room):
    """Return the cost of turning ``x`` into ``y`` by edits of all kinds, or infinity if it is above ``bound``.

    ``room`` has ``N_ROWS`` rows, each with at least two more numbers than ``y`` has symbols.
    """
    m, n, width, infinity = x.size, y.size, room.size // N_ROWS, np.float32(np.inf)
    local = edits.ends.size > 0
    row, earlier = room[:width], room[width : 2 * width]  # the last row, and the row before it shifted by one
    deleted = room[2 * width :]  # the least costs of alignments that end with a deletion
    of_deletions, of_insertions, end = np.float32(0.0), np.float32(0.0), np.float32(0.0)
    n_deleted, n_inserted = m, n
    if edits.openings.size > 0:
        of_deletions, of_insertions = edits.openings[0], edits.openings[1]
    if local:
        end = edits.ends[0]
    else:
        n_deleted, n_inserted = band_of(m, n, edits.least_gap, bound)
        if n_deleted < 0:
            return infinity
    _start(y_gaps, n_inserted, of_insertions, row)
    for j in range(n + 1):
        earlier[j], deleted[j] = infinity, infinity
        if local:
            row[j] = np.float32(0.0)
    earlier[n + 1] = infinity
    answer = end * np.float32(m)  # the whole query is skipped
    least_before, before, whole = np.float32(0.0), np.int32(-1), n_deleted >= m and n_inserted >= n
    all_rows = row[1:], earlier, deleted[1:]
    for i in range(m):
        deletion = x_gaps[i]
        skipped = end * np.float32(i + 1) if local else infinity
        step = _Step(x[i], before, deletion, of_deletions + deletion, of_insertions, skipped)
        first, stop = max(i - n_deleted, 0), min(i + 1 + n_inserted, n)
        diagonal, left = row[first], infinity
        if first == 0:
            deleted[0] = min(diagonal + step.opening, deleted[0] + deletion)
            row[0] = left = min(deleted[0], skipped)
        if whole:
            least = _row(y, y_gaps, np.int32(-1), step, edits, diagonal, left, all_rows)
        else:
            y_before = y[first - 1] if first > 0 else np.int32(-1)
            rows = row[first + 1 : stop + 1], earlier[first : stop + 1], deleted[first + 1 : stop + 1]
            least = _row(y[first:stop], y_gaps[first:stop], y_before, step, edits, diagonal, left, rows)
        if local:
            answer = min(answer, least + end * np.float32(m - 1 - i))
        if min(least, least_before) > bound:
            return answer if local else infinity
        least_before = least if edits.swaps.size > 0 else infinity
        before = x[i]
    return answer if local else row[n]

"""Kernels for edit distances with arbitrary costs, by dynamic programming.

The basic edits are substitutions, insertions and deletions (Wagner and Fischer, 1974). Optional edits are

- exchanges of neighbours, whose symbols take part in no other edit (optimal string alignment),
- opening a gap, which is a run of insertions or deletions (Gotoh, An improved algorithm for matching biological
  sequences, 1982),
- skipping symbols at the ends of the first sequence. Symbols at the ends of the second sequence are then free. This is
  the local alignment of Smith and Waterman (Identification of common molecular subsequences, 1981), where a matched
  symbol scores the cost of skipping it.

Table cells that require too many gaps for a given bound are skipped (Ukkonen, Algorithms for approximate string
matching, 1985).
"""

from typing import NamedTuple

import numpy as np

from .._jit import inner, inner_called

N_ROWS = 3  # number of table rows in the scratch memory of ``all_edits``
_ROUNDING = 1.0 + 1e-5  # tolerance for rounding errors in sums of costs


class Edits(NamedTuple):
    """Costs of edits. Arrays of edits that are not allowed are empty."""

    pairs: np.ndarray  # float32 (n_symbols + 1, n_symbols + 1), costs of replacing symbol i by j; index -1 is the gap
    swaps: np.ndarray  # float32 (n_symbols, n_symbols), costs of exchanging neighbours
    openings: np.ndarray  # float32 (2,), costs of opening a run of deletions or insertions
    ends: np.ndarray  # float32 (1,), cost of skipping a symbol at an end of the first sequence
    min_gap: float  # smallest cost of an insertion or deletion
    least: float  # smallest cost of an edit
    unit: float  # common cost of all edits, or 0 if costs differ or their sums are not exact


@inner
def band_of(m, n, min_gap, bound):
    """Return the most deletions and insertions between ``m`` and ``n`` symbols at a cost of ``bound``, or -1."""
    n_gaps = np.float64(bound) / np.float64(min_gap) * _ROUNDING + 1e-9
    most = np.int64(n_gaps) if n_gaps < m + n else np.int64(m + n)
    if abs(m - n) > most:
        return np.int64(-1), np.int64(-1)
    return (most + m - n) // 2, (most + n - m) // 2


@inner
def _start(y_gaps, n_inserted, opening, row):
    """Write the cost of inserting each prefix of a sequence, or infinity beyond ``n_inserted`` symbols."""
    total = opening
    row[0] = np.float32(0.0)
    for j in range(y_gaps.size):
        total = total + y_gaps[j] if j < n_inserted else np.float32(np.inf)
        row[j + 1] = total


@inner
def _plain_row(y, y_gaps, of_symbol, deletion, diagonal, left, row):
    """Write a table row, given the neighbours of its first cell, and return its smallest cost."""
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

    ``x_gaps`` and ``y_gaps`` are the costs of deleting the symbols of ``x`` and inserting the symbols of ``y``. ``row``
    has at least ``y.size + 1`` entries.
    """
    m, n = x.size, y.size
    n_deleted, n_inserted = band_of(m, n, edits.min_gap, bound)
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
    """A symbol of the first sequence and the costs of its edits."""

    symbol: np.int32
    before: np.int32  # previous symbol, or -1
    deletion: np.float32
    opening: np.float32  # cost of opening a gap and deleting the symbol
    of_insertions: np.float32  # cost of opening a run of insertions
    skipped: np.float32  # cost of skipping all symbols up to this one, or infinity if skipping is not allowed


@inner
def _row(y, y_gaps, y_before, step, edits, diagonal, left, rows):
    """Write a table row for all kinds of edits and return its smallest cost.

    ``diagonal`` and ``left`` are the upper left and left neighbours of the first cell. ``y_before`` is the symbol
    before ``y[0]``, or -1. ``rows`` contains the previous row, the row before it (shifted by one entry), and the
    smallest costs of alignments that end with a deletion.
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
    """Return the cost of turning ``x`` into ``y`` by all kinds of edits, or infinity if it is above ``bound``.

    ``room`` has ``N_ROWS`` rows of at least ``y.size + 2`` entries.
    """
    m, n, width, infinity = x.size, y.size, room.size // N_ROWS, np.float32(np.inf)
    local = edits.ends.size > 0
    row, earlier = room[:width], room[width : 2 * width]  # the previous row, and the row before it (shifted by one)
    deleted = room[2 * width :]  # smallest costs of alignments that end with a deletion
    of_deletions, of_insertions, end = np.float32(0.0), np.float32(0.0), np.float32(0.0)
    n_deleted, n_inserted = m, n
    if edits.openings.size > 0:
        of_deletions, of_insertions = edits.openings[0], edits.openings[1]
    if local:
        end = edits.ends[0]
    else:
        n_deleted, n_inserted = band_of(m, n, edits.min_gap, bound)
        if n_deleted < 0:
            return infinity
    _start(y_gaps, n_inserted, of_insertions, row)
    for j in range(n + 1):
        earlier[j], deleted[j] = infinity, infinity
        if local:
            row[j] = np.float32(0.0)
    earlier[n + 1] = infinity
    answer = end * np.float32(m)  # cost of skipping the whole query
    min_before, before, whole = np.float32(0.0), np.int32(-1), n_deleted >= m and n_inserted >= n
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
        if min(least, min_before) > bound:
            return answer if local else infinity
        min_before = least if edits.swaps.size > 0 else infinity
        before = x[i]
    return answer if local else row[n]

"""Kernel that counts the edits in optimal alignments.

The kernel fills a table with the costs of all pairs of prefixes. If opening a gap has a cost, two more tables contain
the costs of alignments that end with a deletion or an insertion (Gotoh, 1982). ``_edits.py`` computes distances without
complete tables.
"""

from typing import NamedTuple

import numpy as np

from .._jit import empty, inner, kernel, release


class Counts(NamedTuple):
    """Weighted numbers of edits, in float64."""

    pairs: np.ndarray  # (n_symbols + 1, n_symbols + 1), substitutions
    of_queries: np.ndarray  # (query symbols,), deletions of each symbol
    of_stored: np.ndarray  # (stored symbols,), insertions of each symbol
    swaps: np.ndarray  # exchanges, with the shape of ``Costs.swaps``
    openings: np.ndarray  # gap openings, with the shape of ``Costs.openings``
    ends: np.ndarray  # symbols skipped at the ends, with the shape of ``Costs.ends``


_ANYHOW, _DELETED, _INSERTED = 0, 1, 2


@inner
def _exchanged(x, y, i, j, swaps):
    """Return whether ``x[:i]`` and ``y[:j]`` end with the same two symbols in opposite order."""
    return swaps.size > 0 and i > 1 and j > 1 and x[i - 1] == y[j - 2] and x[i - 2] == y[j - 1]


@inner
def _skipped(edits, i):
    """Return the cost of skipping ``i`` symbols at an end, or infinity if skipping is not allowed."""
    return edits.ends[0] * np.float32(i) if edits.ends.size > 0 else np.float32(np.inf)


@inner
def _fill(x, y, x_gaps, y_gaps, edits, table):
    """Write the cost of turning each prefix of ``x`` into each prefix of ``y``."""
    opened = edits.openings.size > 0
    of_deletions, of_insertions = np.float32(0.0), np.float32(0.0)
    if opened:
        of_deletions, of_insertions = edits.openings[0], edits.openings[1]
    for i in range(x.size + 1):
        skipped = _skipped(edits, i)
        for j in range(y.size + 1):
            deleted, inserted = np.float32(np.inf), np.float32(np.inf)
            if i > 0:
                deleted = table[_ANYHOW, i - 1, j] + (of_deletions + x_gaps[i - 1])
            if j > 0:
                inserted = table[_ANYHOW, i, j - 1] + (of_insertions + y_gaps[j - 1])
            if opened:
                if i > 0:
                    deleted = min(deleted, table[_DELETED, i - 1, j] + x_gaps[i - 1])
                if j > 0:
                    inserted = min(inserted, table[_INSERTED, i, j - 1] + y_gaps[j - 1])
                table[_DELETED, i, j], table[_INSERTED, i, j] = deleted, inserted
            least = min(min(deleted, inserted), skipped) if i + j > 0 else np.float32(0.0)
            if i > 0 and j > 0:
                least = min(least, table[_ANYHOW, i - 1, j - 1] + edits.pairs[x[i - 1], y[j - 1]])
            if _exchanged(x, y, i, j, edits.swaps):
                least = min(least, table[_ANYHOW, i - 2, j - 2] + edits.swaps[x[i - 2], x[i - 1]])
            table[_ANYHOW, i, j] = least


@inner
def _add_step(steps, n, i, j):
    """Write a step if there is room. Return the new number of steps."""
    if n < steps.shape[0]:
        steps[n, 0], steps[n, 1] = i, j
    return n + 1


@inner
def _add_rest(steps, n, x, y, min_i, min_j):
    """Write the steps of skipped symbols in reverse order. Return the new number of steps."""
    for j in range(y - 1, min_j - 1, -1):
        n = _add_step(steps, n, -1, j)
    for i in range(x - 1, min_i - 1, -1):
        n = _add_step(steps, n, i, -1)
    return n


@inner
def _end_of(table, m, n, edits):
    """Return the lengths of the two prefixes with which the best local alignment ends."""
    best, i, j = np.float32(np.inf), np.int64(0), np.int64(0)
    for row in range(m + 1):
        for column in range(n + 1):
            total = table[_ANYHOW, row, column] + _skipped(edits, m - row)
            if total < best:
                best, i, j = total, np.int64(row), np.int64(column)
    return i, j


@kernel
def count_edits(queries, stored, of_queries, of_stored, weights, counts, steps):
    """Count the edits in the optimal alignment of each pair, multiplied by the weight of the pair.

    ``steps``, int64 of shape (most, 2), receives the steps of the last pair in reverse order. A step is the position of
    a symbol in each sequence, or -1 for a gap. An exchange of neighbours is two steps. Return the number of steps.
    """
    edits = queries.edits
    opened, local = edits.openings.size > 0, edits.ends.size > 0
    table = empty((3 if opened else 1, queries.longest + 1, stored.longest + 1), np.float32)
    n_steps = np.int64(0)
    for pair in range(of_queries.size):
        start, stop = queries.offsets[of_queries[pair]], queries.offsets[of_queries[pair] + 1]
        x, x_gaps, x_counts = queries.symbols[start:stop], queries.gaps[start:stop], counts.of_queries[start:stop]
        start, stop = stored.offsets[of_stored[pair]], stored.offsets[of_stored[pair] + 1]
        y, y_gaps, y_counts = stored.symbols[start:stop], stored.gaps[start:stop], counts.of_stored[start:stop]
        _fill(x, y, x_gaps, y_gaps, edits, table)
        i, j, n_steps, weight, ending = np.int64(x.size), np.int64(y.size), np.int64(0), weights[pair], _ANYHOW
        if local:
            i, j = _end_of(table, x.size, y.size, edits)
            counts.ends[0] += weight * (x.size - i)
            n_steps = _add_rest(steps, n_steps, x.size, y.size, i, j)
        while i > 0 or j > 0:
            total = table[ending, i, j]
            if ending == _ANYHOW and local and total == _skipped(edits, i):
                counts.ends[0] += weight * i
                n_steps = _add_rest(steps, n_steps, i, j, 0, 0)
                break
            if ending == _ANYHOW:
                if i > 0 and j > 0 and total == table[_ANYHOW, i - 1, j - 1] + edits.pairs[x[i - 1], y[j - 1]]:
                    i, j = i - 1, j - 1
                    counts.pairs[x[i], y[j]] += weight
                    n_steps = _add_step(steps, n_steps, i, j)
                    continue
                deleted = np.float32(np.inf)
                if i > 0:
                    deleted = table[_DELETED, i, j] if opened else table[_ANYHOW, i - 1, j] + x_gaps[i - 1]
                if total == deleted:
                    ending = _DELETED
                elif (
                    _exchanged(x, y, i, j, edits.swaps)
                    and total == table[_ANYHOW, i - 2, j - 2] + edits.swaps[x[i - 2], x[i - 1]]
                ):
                    i, j = i - 2, j - 2
                    counts.swaps[x[i], x[i + 1]] += weight
                    n_steps = _add_step(steps, n_steps, i + 1, j)
                    n_steps = _add_step(steps, n_steps, i, j + 1)
                    continue
                else:
                    ending = _INSERTED
            if ending == _DELETED:
                i -= 1
                x_counts[i] += weight
                n_steps = _add_step(steps, n_steps, i, -1)
                if not opened:
                    ending = _ANYHOW
                elif total == table[_ANYHOW, i, j] + (edits.openings[0] + x_gaps[i]):
                    counts.openings[0] += weight
                    ending = _ANYHOW
            else:
                j -= 1
                y_counts[j] += weight
                n_steps = _add_step(steps, n_steps, -1, j)
                if not opened:
                    ending = _ANYHOW
                elif total == table[_ANYHOW, i, j] + (edits.openings[1] + y_gaps[j]):
                    counts.openings[1] += weight
                    ending = _ANYHOW
    release(table)
    return n_steps

"""Comparing rows with all candidates by matrix products: see :mod:`.forest`."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from .._forest.hits import Hits, unexplored
from .._forest.key_store import stored_rows
from .._forest.rows import Rows, as_matrix
from .._forest.state import N_MEMORIES, NONE
from .filters import Filter

_ROWS_IN_A_BLOCK, _MEMORIES_IN_A_BLOCK = 64, 8192  # of a matrix product; changes wait while a block of rows is answered


def scan_dense(forest: Any, rows: Rows, k: int, among: Filter | None) -> Hits:
    """Return the best ``k`` of all memories of a forest, or of those in ``among``, for dense rows.

    Changes of the forest may come between blocks of rows.
    """
    hits = unexplored(rows.n_rows, k)
    for first in range(0, rows.n_rows, _ROWS_IN_A_BLOCK):
        stop = min(first + _ROWS_IN_A_BLOCK, rows.n_rows)
        forest._lock.read(partial(_scan_block, forest, rows.between(first, stop), among, hits.between(first, stop)))
    return hits


def _scan_block(forest: Any, rows: Rows, among: Filter | None, hits: Hits) -> None:
    """Write the best of all candidates for some rows."""
    state = forest._fitting_state(rows)
    if state is None:
        return
    n = int(state.keys.totals[N_MEMORIES])
    slots = None if among is None else among.slots(forest._slots, forest._lock.n_steps)
    n = n if slots is None else slots.size
    asked = rows.values[rows.offsets[0] : rows.offsets[-1]].reshape(rows.n_rows, -1)
    theta, k = state.scorer.theta, hits.ids.shape[1]
    if theta.size > 0:
        asked = asked * (np.float32(1.0) + theta)
    best_slots = np.full((rows.n_rows, k), NONE, np.int64)
    best_scores = np.full((rows.n_rows, k), -np.inf, np.float32)
    for start in range(0, n, _MEMORIES_IN_A_BLOCK):
        stop = min(start + _MEMORIES_IN_A_BLOCK, n)
        here = np.arange(start, stop) if slots is None else slots[start:stop]
        scores = asked @ as_matrix(stored_rows(state, slice(start, stop) if slots is None else here)).T
        better = np.flatnonzero((scores > best_scores[:, -1:]).any(axis=0))  # few, but in the first block
        scores, here = scores[:, better], here[better]
        if here.size > k:  # the best of the block
            columns = np.argpartition(scores, here.size - k, axis=1)[:, here.size - k :]
            scores, some = np.take_along_axis(scores, columns, axis=1), here[columns]
        else:
            some = np.broadcast_to(here, scores.shape)
        scores, some = np.concatenate([best_scores, scores], axis=1), np.concatenate([best_slots, some], axis=1)
        order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        best_scores, best_slots = np.take_along_axis(scores, order, axis=1), np.take_along_axis(some, order, axis=1)
    there = best_slots != NONE
    hits.ids[:] = np.where(there, state.keys.ids[np.where(there, best_slots, 0)], NONE)
    hits.scores[:] = best_scores

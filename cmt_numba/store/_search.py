"""Searches for validated rows: through the trees, or of all candidates by matrix products."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from .._engine.filters import Filter
from .._forest.filtering import WORTH_A_LEAF
from .._forest.hits import unexplored
from .._forest.key_store import stored_rows
from .._forest.rows import Rows, as_matrix
from .._forest.state import N_MEMORIES, NONE, State
from ..tree import ContextualMemoryTree
from ._metrics import Frame, blocks, lengths

_ROWS_IN_A_BLOCK, _MEMORIES_IN_A_BLOCK = 64, 8192  # of a matrix product; changes wait while a block of rows is answered


class Found(NamedTuple):
    """Memories found for rows, the best first."""

    ids: np.ndarray  # int64 (n, k), -1 where there is none
    scores: np.ndarray  # float32 or float64 (n, k), -inf where there is none


def search(
    tree: ContextualMemoryTree, rows: Rows, k: int, n_leaves: int, among: Filter | None, breadth: int = 0
) -> Found:
    """Return the best memories in so many leaves or, with a breadth, of those that links lead to from there."""
    hits = unexplored(rows.n_rows, k)
    if among is None:
        tree._answer(rows, n_leaves, 0.0, np.uint64(0), False, hits, breadth)
    else:
        tree._lock.read(partial(tree._answer_among, rows, n_leaves, among, False, hits, breadth))
    return Found(hits.ids, hits.scores)


def scan(tree: ContextualMemoryTree, rows: Rows, k: int, among: Filter | None) -> Found:
    """Return the best of all candidates."""
    if rows.sparse:  # so many leaves that all candidates are scored instead
        n = tree.n_memories if among is None else among.ids.size
        return search(tree, rows, k, n // WORTH_A_LEAF + 1, Filter(tree.ids) if among is None else among)
    found = Found(np.full((rows.n_rows, k), NONE, np.int64), np.full((rows.n_rows, k), -np.inf, np.float32))
    for first in range(0, rows.n_rows, _ROWS_IN_A_BLOCK):
        stop = min(first + _ROWS_IN_A_BLOCK, rows.n_rows)
        tree._lock.read(partial(_scan_block, tree, rows.between(first, stop), among, found, first))
    return found


def _scan_block(tree: ContextualMemoryTree, rows: Rows, among: Filter | None, found: Found, first: int) -> None:
    """Write the best of all candidates for some dense rows, which begin at row ``first`` of the answers."""
    state = tree._fitting_state(rows)
    if state is None:
        return
    n = int(state.keys.totals[N_MEMORIES])
    slots = None if among is None else among.slots(tree._slots, tree._lock.n_steps)
    n = n if slots is None else slots.size
    asked = rows.values[rows.offsets[0] : rows.offsets[-1]].reshape(rows.n_rows, -1)
    theta, k = state.scorer.theta, found.ids.shape[1]
    if theta.size > 0:
        asked = asked * (np.float32(1.0) + theta)
    best_slots = np.full((rows.n_rows, k), NONE, np.int64)
    best_scores = np.full((rows.n_rows, k), -np.inf, np.float32)
    for start in range(0, n, _MEMORIES_IN_A_BLOCK):
        stop = min(start + _MEMORIES_IN_A_BLOCK, n)
        here = np.arange(start, stop) if slots is None else slots[start:stop]
        scores = asked @ stored_units(state, slice(start, stop) if slots is None else here).T
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
    written = slice(first, first + rows.n_rows)
    found.ids[written] = np.where(there, state.keys.ids[np.where(there, best_slots, 0)], NONE)
    found.scores[written] = best_scores


def stored_units(state: State, slots: Any) -> Any:
    """Return the keys of unit length in some slots, while the tree is read; of dense keys also those of a slice."""
    return as_matrix(stored_rows(state, slots))


def are_stored(state: State, slots: np.ndarray, rows: Rows) -> bool:
    """Return whether the keys in some slots are what rows of unit length are stored as, while the tree is read."""
    units = as_matrix(rows)
    if rows.sparse:
        return int((units != stored_units(state, slots)).nnz) == 0
    if not state.parameters.coded:
        return bool(np.array_equal(units, stored_units(state, slots)))
    largest = np.abs(units).max(axis=1, keepdims=True) / np.float32(127.0)
    codes = np.rint(units * (np.float32(1.0) / np.where(largest > 0.0, largest, np.float32(1.0))))
    return bool(np.array_equal(codes, state.codes.values.reshape(-1, rows.n_features)[slots]))


def best_by_metric(tree: ContextualMemoryTree, frame: Frame, X: Any, found: Found, k: int) -> Found:
    """Return the best ``k`` of what was found for queries by the scores of the metric."""
    n, wanted = found.ids.shape[0], min(k, found.ids.shape[1])
    best = Found(np.empty((n, wanted), np.int64), np.empty((n, wanted)))
    for first, stop in blocks(n, found.ids.shape[1] * X.shape[1]):
        ids = found.ids[first:stop]
        scores = _metric_scores(tree, frame, X[first:stop], ids)
        order = np.argsort(-scores, axis=1, kind="stable")[:, :wanted]
        best.scores[first:stop] = np.take_along_axis(scores, order, axis=1)
        best.ids[first:stop] = np.take_along_axis(ids, order, axis=1)
    best.ids[np.isneginf(best.scores)] = NONE
    return best


def _metric_scores(tree: ContextualMemoryTree, frame: Frame, X: Any, ids: np.ndarray) -> np.ndarray:
    """Return the scores of memories for queries, -inf for those that are not stored any more."""
    scores = np.full(ids.shape, -np.inf)
    asked = frame.queries(X)
    rows = tree._check_rows(asked)

    def read() -> None:
        state = tree._fitting_state(rows)
        slots = tree._slots(ids.reshape(-1)).reshape(ids.shape)
        row, column = np.nonzero(slots != NONE)
        if state is None or row.size == 0:
            return
        units = stored_units(state, slots[row, column])
        learned = _learned(state, as_matrix(rows)[row], units)
        vectors = frame.vectors(units, np.empty(0))
        scores[row, column] = frame.scores(X[row], vectors, lengths(asked)[row], learned)

    tree._lock.read(read)
    return scores


def _learned(state: State, asked: Any, units: Any) -> np.ndarray:
    """Return what the scorer has learned to add to the cosine of each query and the key of the same row."""
    theta = state.scorer.theta
    if theta.size == 0:
        return np.zeros(units.shape[0])
    if scipy.sparse.issparse(units):
        return np.asarray(asked.multiply(units).dot(theta.astype(np.float64))).reshape(-1)
    return np.asarray(np.einsum("ij,ij,j->i", asked, units, theta, dtype=np.float64))

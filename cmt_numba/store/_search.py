"""Searches for validated rows: through the trees, or of all candidates by matrix products."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from .._engine import Filter, Reach, scan_dense, search_among
from .._engine import search as search_trees
from .._forest.filtering import WORTH_A_LEAF
from .._forest.hits import unexplored
from .._forest.key_store import stored_rows
from .._forest.rows import Rows, as_matrix
from .._forest.state import NONE, State
from ..tree import ContextualMemoryTree
from ._metrics import Frame, blocks, lengths


class Found(NamedTuple):
    """Memories found for rows, the best first."""

    ids: np.ndarray  # int64 (n, k), -1 where there is none
    scores: np.ndarray  # float32 or float64 (n, k), -inf where there is none


def search(
    tree: ContextualMemoryTree,
    rows: Rows,
    k: int,
    n_leaves: int,
    among: Filter | None,
    breadth: int = 0,
    left_out: np.ndarray | None = None,
) -> Found:
    """Return the best memories in so many leaves or, with a breadth, of those that links lead to from there.

    Along links, the search for each row does not go to the memory whose id is in ``left_out``.
    """
    hits, reach = unexplored(rows.n_rows, k), Reach(n_leaves, breadth, left_out)
    if among is None:
        search_trees(tree._forest, rows, reach, hits)
    else:
        tree._lock.read(partial(search_among, tree._forest, rows, reach, among, hits))
    return Found(hits.ids, hits.scores)


def scan(tree: ContextualMemoryTree, rows: Rows, k: int, among: Filter | None) -> Found:
    """Return the best of all candidates."""
    if rows.sparse:  # so many leaves that all candidates are scored instead
        n = tree.n_memories if among is None else among.ids.size
        return search(tree, rows, k, n // WORTH_A_LEAF + 1, Filter(tree.ids) if among is None else among)
    return Found(*scan_dense(tree._forest, rows, k, among)[:2])


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
    rows = tree._forest.check_rows(asked)

    def read() -> None:
        state = tree._forest.fitting_state(rows)
        slots = tree._forest.slots_of(ids.reshape(-1)).reshape(ids.shape)
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

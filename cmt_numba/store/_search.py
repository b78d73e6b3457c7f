"""Searches for queries: candidates are found by keys, through trees or in all, and ranked by vectors."""

from __future__ import annotations

import math
from functools import partial
from itertools import pairwise
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
from ._digits import LostDigits, lost_digits, restore
from ._metrics import CosineSpace, KeySpace, blocks
from ._records import Record, Records

_NO_SEED = np.uint64(0)  # nothing is drawn
_MORE = 8  # candidates than wanted, so that those that keys rank otherwise than vectors are among them
_WIDER = 16  # how many times as many are tried if these may not be enough
_PER_FEATURE = 2.0**-23  # error of a float32 product of unit vectors, for the square root of the number of features
_TOLERATED = 1e-4  # relative errors of scores that are computed from keys
_PAIRS_AT_ONCE = 1 << 22  # of queries and vectors
_NO_ROWS = np.empty(0, np.int64)
_MOST_TRIES = 3  # to read vectors that change meanwhile


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


class Vectors(NamedTuple):
    """Vectors as they were given, in the order of their ids."""

    ids: np.ndarray  # int64 (n,), rising
    rows: Any  # float32 (n, n_features), dense or CSR
    units: Any  # their keys of unit length


class Search:
    """Searches of the memories of a store by its metric.

    Queries ``Q`` are those that the space has mapped, and ``rows`` the queries of the tree for them.

    Parameters
    ----------
    tree : ContextualMemoryTree
        The tree of the store.
    records : Records
        What the keys of the tree do not say of the vectors.
    space : KeySpace
        The space of the keys.
    """

    def __init__(self, tree: ContextualMemoryTree, records: Records, space: KeySpace) -> None:
        self.tree, self.records, self.space = tree, records, space
        self._all: tuple[int, Vectors] | None = None  # the number of steps of the tree, and all vectors after these

    def rows_of(self, Q: Any) -> Rows:
        """Return queries of the tree."""
        return self.tree._forest.unit_rows(self.space.queries(Q))

    def near(
        self,
        Q: Any,
        rows: Rows,
        k: int,
        n_leaves: int,
        among: Filter | None,
        breadth: int = 0,
        left_out: np.ndarray | None = None,
    ) -> Found:
        """Return the best ``k`` of the memories that a search of the tree finds: see :func:`search`."""
        wanted = k
        if not isinstance(self.space, CosineSpace):
            wanted = max(k, min(self.tree.n_memories if among is None else among.ids.size, k + _MORE))
        return self._ranked(Q, rows, search(self.tree, rows, wanted, n_leaves, among, breadth, left_out), k)

    def nearest(self, Q: Any, rows: Rows, k: int, among: Filter | None) -> Found:
        """Return the best ``k`` of all candidates.

        Candidates are compared by their keys first. Where others than those found may be better, as far as the keys can
        tell, all are compared by their vectors.
        """
        n = self.tree.n_memories if among is None else among.ids.size
        ids, scores = np.full((rows.n_rows, k), NONE, np.int64), np.full((rows.n_rows, k), -np.inf)
        left = np.arange(rows.n_rows)
        for more in (_MORE, _WIDER * (k + _MORE)):
            some = rows if left.size == rows.n_rows else rows.take(left)
            wanted = max(k, min(n, k + more))
            found = scan(self.tree, some, wanted, among)
            ids[left], scores[left] = ranked = self._ranked(Q[left], some, found, k)
            if wanted >= n or self.is_coded():
                return Found(ids, scores)
            last = found.scores[:, -1]
            limits = self.space.limits(Q[left], last[:, None], self._margin(some))[:, 0]
            left = left[~(limits < ranked.scores[:, -1]) & (last > -np.inf)]
            if left.size == 0:
                return Found(ids, scores)
        ids[left], scores[left] = self._compared(Q[left], rows.take(left), k, among)
        return Found(ids, scores)

    def read(self, ids: np.ndarray) -> tuple[Vectors, list[Record], bool]:
        """Return the vectors of those ids that are stored, their records, and whether all are exactly as given.

        Vectors that change meanwhile may not be. Ids must rise.
        """
        for _ in range(_MOST_TRIES):
            records = self.records.of(ids)
            there, units = self.tree._lock.read(partial(self._units, ids))
            if len(records) < ids.size or not there.all():  # some were deleted
                recorded = np.array([memory_id in records for memory_id in ids.tolist()], np.bool_)
                ids, units = ids[there & recorded], units[recorded[there]]
            found = [records[memory_id] for memory_id in ids.tolist()]
            length = self.space.length()
            norms = np.array([length if record.norm is None else record.norm for record in found])
            rows = self.space.vectors(units, norms)
            exact = restore(rows, [record.digits for record in found])
            if exact:
                break
        return Vectors(ids, rows, units), found, exact

    def _units(self, ids: np.ndarray) -> tuple[np.ndarray, Any]:
        """Return which ids are stored, and their keys, while the tree is read."""
        slots = self.tree._forest.slots_of(ids)
        there = slots != NONE
        return there, stored_units(self.tree._forest.allocated(), slots[there])

    def is_coded(self) -> bool:
        """Return whether nothing is kept of vectors but codes. Then these are what is searched for."""
        state = self.tree._forest.state
        return state is not None and bool(state.parameters.coded)

    def _margin(self, rows: Rows) -> float:
        """Return by how much products of keys and queries may differ from exact ones."""
        theta = self._weights()
        margin = _PER_FEATURE * math.sqrt(rows.n_features)
        return margin if theta.size == 0 else margin * (1.0 + float(np.abs(theta).max()))

    def _weights(self) -> np.ndarray:
        """Return the weights of features that were learned from rewards; none if nothing was."""
        state = self.tree._forest.state
        return np.empty(0, np.float32) if state is None else state.scorer.theta

    def _ranked(self, Q: Any, rows: Rows, found: Found, k: int) -> Found:
        """Return the best ``k`` of what was found, by the scores of the metric."""
        if not isinstance(self.space, CosineSpace):
            return self._by_keys(Q, rows, found.ids, k)
        ids, scores = found if found.ids.shape[1] == k else Found(found.ids[:, :k], found.scores[:, :k])
        close = _NO_ROWS if self.is_coded() else _close_rows(found.scores, k, 2.0 * self._margin(rows))
        if close.size > 0:
            ids[close], scores[close] = self._by_keys(Q[close], rows.take(close), found.ids[close], k)
        return Found(ids, scores)

    def _by_keys(self, Q: Any, rows: Rows, ids: np.ndarray, k: int) -> Found:
        """Return the best ``k`` of some memories by their keys, where these are exact enough."""
        scores, errors = self._scores(Q, rows, ids)
        order = np.argsort(-scores, axis=1, kind="stable")
        ids, scores, errors = (np.take_along_axis(part, order, axis=1) for part in (ids, scores, errors))
        ids[np.isneginf(scores)] = NONE
        doubtful = _NO_ROWS if self.is_coded() else _doubtful_rows(scores, errors, k)
        if doubtful.size > 0:
            ids[doubtful], scores[doubtful] = self._exactly(Q[doubtful], rows.take(doubtful), ids[doubtful])
        return Found(ids[:, :k], scores[:, :k])

    def _scores(self, Q: Any, rows: Rows, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the scores of memories as their keys have it, -inf for those that are not stored, and their errors."""
        scores, errors = np.full(ids.shape, -np.inf), np.zeros(ids.shape)
        asked, factors = as_matrix(rows), self.space.factors(Q)

        def read(first: int, stop: int) -> None:
            state = self.tree._forest.fitting_state(rows)
            slots = self.tree._forest.slots_of(ids[first:stop].reshape(-1)).reshape(-1, ids.shape[1])
            row, column = np.nonzero(slots != NONE)
            if state is None or row.size == 0:
                return
            units, row = stored_units(state, slots[row, column]), row + first
            vectors = self.space.vectors(units, np.full(row.size, self.space.length()))
            learned = _learned(state.scorer.theta, asked[row], units) * factors[row]
            scores[row, column] = self.space.scores(Q[row], vectors, learned)
            errors[row, column] = self.space.errors(Q[row], vectors)

        for first, stop in blocks(rows.n_rows, ids.shape[1] * rows.n_features):
            self.tree._lock.read(partial(read, first, stop))
        return scores, errors

    def _exactly(self, Q: Any, rows: Rows, ids: np.ndarray) -> Found:
        """Return memories in the order of the scores of their vectors."""
        vectors = self.read(np.unique(ids[ids != NONE]))[0]
        scores, asked, factors = np.full(ids.shape, -np.inf), as_matrix(rows), self.space.factors(Q)
        for first, stop in blocks(rows.n_rows, ids.shape[1] * rows.n_features):
            at = vectors.ids.searchsorted(ids[first:stop])
            row, column = np.nonzero(np.append(vectors.ids, NONE - 1)[at] == ids[first:stop])
            at, row = at[row, column], row + first
            learned = _learned(self._weights(), asked[row], vectors.units[at]) * factors[row]
            scores[row, column] = self.space.scores(Q[row], vectors.rows[at], learned)
        order = np.lexsort((ids, -scores), axis=1)
        ids, scores = np.take_along_axis(ids, order, axis=1), np.take_along_axis(scores, order, axis=1)
        return Found(np.where(np.isneginf(scores), NONE, ids), scores)

    def _compared(self, Q: Any, rows: Rows, k: int, among: Filter | None) -> Found:
        """Return the best ``k`` of all candidates after comparing their vectors."""
        vectors = self._every() if among is None else self.read(np.unique(among.ids))[0]
        n, theta = vectors.ids.size, self._weights()
        ids, scores = np.full((rows.n_rows, k), NONE, np.int64), np.full((rows.n_rows, k), -np.inf)
        if n == 0:
            return Found(ids, scores)
        k = min(k, n)
        asked, factors = as_matrix(rows), self.space.factors(Q)
        size = max(1, _PAIRS_AT_ONCE // n)
        for first in range(0, rows.n_rows, size):
            some = slice(first, first + size)
            learned: Any = np.zeros((asked[some].shape[0], n))
            if theta.size > 0:
                products = (asked[some] * theta[None]) @ vectors.units.T
                products = products.toarray() if scipy.sparse.issparse(products) else products
                learned = products * factors[some, None]
            lower, upper = self.space.score_bounds(Q[some], vectors.rows, learned)
            least = np.partition(lower, n - k, axis=1)[:, n - k]
            for row in range(len(lower)):
                candidates = np.flatnonzero(upper[row] >= least[row])
                same = np.full(candidates.size, first + row)
                exact = self.space.scores(Q[same], vectors.rows[candidates], learned[row, candidates])
                best = np.lexsort((vectors.ids[candidates], -exact))[:k]
                ids[first + row, :k], scores[first + row, :k] = vectors.ids[candidates[best]], exact[best]
        return Found(ids, scores)

    def _every(self) -> Vectors:
        """Return all vectors, which are kept until the tree changes."""
        n_steps = self.tree._lock.n_steps
        if self._all is None or self._all[0] != n_steps:
            self._all = n_steps, self.read(np.sort(self.tree.ids))[0]
        return self._all[1]


def scan(tree: ContextualMemoryTree, rows: Rows, k: int, among: Filter | None) -> Found:
    """Return the best of all candidates."""
    if rows.sparse:  # so many leaves that all candidates are scored instead
        n = tree.n_memories if among is None else among.ids.size
        return search(tree, rows, k, n // WORTH_A_LEAF + 1, Filter(tree.ids) if among is None else among)
    return Found(*scan_dense(tree._forest, rows, k, among)[:2])


def keys_of(tree: ContextualMemoryTree, space: KeySpace, X: Any) -> tuple[Any, LostDigits]:
    """Return the keys of vectors that are to be stored, and what these lose."""
    keys, norms = space.keys(X)
    if tree._forest.options["keep"] == "codes" and isinstance(X, np.ndarray):
        return keys, LostDigits(norms, None)
    units = as_matrix(tree._forest.unit_rows(keys))
    return keys, LostDigits(norms, lost_digits(X, space.vectors(units, norms)))


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


def _close_rows(scores: np.ndarray, k: int, margin: float) -> np.ndarray:
    """Return the rows in which two of the best ``k`` and the next are so close that their order is not certain."""
    best = scores[:, : k + 1]
    if len(best) == 1:  # in a quarter of the time
        certain = all(one - other > margin for one, other in pairwise(best[0].tolist()))
        return _NO_ROWS if certain else np.zeros(1, np.int64)
    with np.errstate(invalid="ignore"):
        return np.flatnonzero(~(best[:, :-1] - best[:, 1:] > margin).all(axis=1))


def _doubtful_rows(scores: np.ndarray, errors: np.ndarray, k: int) -> np.ndarray:
    """Return the rows in which errors may have changed the order of the best ``k``, or their scores by much."""
    in_order = (scores - errors)[:, :k][:, : scores.shape[1] - 1] > (scores + errors)[:, 1 : k + 1]
    are_small = errors[:, :k] <= _TOLERATED * np.abs(scores[:, :k])
    return np.flatnonzero(~(in_order.all(axis=1) & are_small.all(axis=1)))


def _learned(theta: np.ndarray, asked: Any, units: Any) -> np.ndarray:
    """Return what the scorer has learned to add to the product of each query and the key of the same row."""
    if theta.size == 0:
        return np.zeros(units.shape[0])
    if scipy.sparse.issparse(units):
        return np.asarray(asked.multiply(units).dot(theta.astype(np.float64))).reshape(-1)
    return np.asarray(np.einsum("ij,ij,j->i", asked, units, theta, dtype=np.float64))

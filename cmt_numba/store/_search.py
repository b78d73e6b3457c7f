"""Searches of a store. Trees, cluster lists or a scan find candidates by their keys; the vectors then rank them."""

from __future__ import annotations

from functools import partial
from operator import sub
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from .._engine import MOST_GATHERED, Filter, Reach, has_lists, scan_dense, search_among
from .._engine import search as search_trees
from .._forest import NONE, WORTH_A_CANDIDATE, WORTH_A_LEAF, Rows, State, as_matrix, stored_rows, unexplored
from ..tree import ContextualMemoryTree
from ._digits import LostDigits, lost_digits, restore
from ._metrics import KeySpace, blocks, check_directions
from ._records import Record, Records

_FASTER = 4  # speed-up of matrix products over single comparisons, from _MANY_ROWS dense rows on
_MANY_ROWS = 16
_MEMORIES_FOR_A_ROW = 256  # break-even point: comparing a row by codes saves the time to prepare this many codes
_MOST_CELLS_OF_SHARE = 1 << 20  # maximum of the candidates' cells times their fraction of the memories
_MOST_CELLS_COMPARED = 6 << 20  # maximum number of the candidates' cells
_MORE = 8  # extra candidates, because keys and vectors rank slightly differently
_MORE_BY_COSINE = 2  # extra candidates for the cosine, where only nearly equal scores may rank differently
_WIDER = 16  # factor by which the number of candidates grows in a second attempt
_SCAN_ERROR = 2.0**-19  # error of matrix products of unit vectors, four times the largest measured one
_SEARCH_ERROR = 2.0**-22  # error of products computed by kernels, twice the largest measured one
_TOLERATED = 1e-4  # maximum relative error of scores computed from keys
_PAIRS_AT_ONCE = 1 << 22  # maximum number of query-vector pairs in one comparison
_NO_ROWS = np.empty(0, np.int64)
_MOST_TRIES = 3  # number of attempts to read vectors that are changing


class Effort(NamedTuple):
    """The search effort that reaches a recall.

    Attributes
    ----------
    k : int
        The number of nearest vectors.
    share : float
        The fraction of memories that are candidates, rounded to a power of two; 1 without a filter.
    target_recall : float
        The target.
    n_probes : int or None
        The number of leaves to search, or None to compare all memories.
    recall : float
        The measured recall of searches for stored vectors, not counting the vectors themselves. With links it is a
        weighted mean of two searches: with and without visiting the vector itself. The second one has more weight.
    n_memories : int
        The number of memories at the time of the measurement.
    breadth : int
        The number of candidates to keep while following links, or 0 if no links are followed.
    gap : float or None
        The largest difference between the scores of the nearest centre and of the centre of a searched cluster list.
        None if cluster lists are not faster.
    n_rows_listed : int
        The minimum number of rows in a batch for which cluster lists are searched.
    """

    k: int
    share: float
    target_recall: float
    n_probes: int | None
    recall: float
    n_memories: int
    breadth: int = 0
    gap: float | None = None
    n_rows_listed: int = 0

    def gap_for(self, n_rows: int) -> float | None:
        """Return the gap for a batch of ``n_rows``, or None if it does not search cluster lists."""
        return self.gap if n_rows >= self.n_rows_listed else None

    def compares_all(self, n_candidates: int, n_rows: int, *, sparse: bool) -> bool:
        """Return whether it is faster to compare the rows with all candidates than to search."""
        if self.n_probes is None:
            return True
        faster = _FASTER if n_rows >= _MANY_ROWS and not sparse else 1
        return n_candidates <= faster * (WORTH_A_LEAF * self.n_probes + WORTH_A_CANDIDATE * self.breadth)


class NearestMemories(NamedTuple):
    """The memories found for each row, best first."""

    ids: np.ndarray  # int64 (n, k), -1 where there is none
    scores: np.ndarray  # float32 or float64 (n, k), -inf where there is none


class GivenVectors(NamedTuple):
    """Original vectors in the order of their ids."""

    ids: np.ndarray  # int64 (n,), ascending
    rows: Any  # float32 (n, n_features), dense or CSR
    units: Any  # the vectors as unit-length tree keys


class NewKeys(NamedTuple):
    """Keys of vectors to be stored."""

    keys: Any  # float32 (n, n_features + n_more), dense or CSR
    rows: Rows  # the keys scaled to length 1
    lost: LostDigits

    def of(self, some: np.ndarray) -> NewKeys:
        """Return the keys of some rows."""
        if some.size == self.rows.n_rows:
            return self
        return NewKeys(self.keys[some], self.rows.take(some), self.lost.of(some))


class StoreSearch:
    """Searches for memories of a store by its metric.

    In all methods, ``Q`` are queries after the learned map, and ``rows`` are the same queries converted for the tree.

    Parameters
    ----------
    tree : ContextualMemoryTree
        The tree of the store.
    records : Records
        Norms and digits, which convert tree keys back to the original vectors.
    space : KeySpace
        The key space.
    """

    def __init__(self, tree: ContextualMemoryTree, records: Records, space: KeySpace) -> None:
        self.tree, self.records, self.space = tree, records, space
        # The tree's number of steps, the number of rows compared with all memories at this state, and a filter of all
        # memories.
        self._compared_with_all: tuple[int, int, Filter | None] = (-1, 0, None)
        self._all: tuple[int, GivenVectors] | None = None  # the number of steps of the tree, and all vectors

    def prepared(self, X: Any) -> tuple[Any, Rows]:
        """Return queries transformed by the learned map, and the same queries converted for the tree.

        Raises
        ------
        ValueError
            If a query is not finite or, with the cosine, has no direction.
        """
        space = self.space
        Q = X if space.query_map is None else space.mapped(X)
        rows = self.tree._forest.unit_rows(Q if space.n_more == 0 else space.queries(Q))
        if space.n_more == 0:
            _check_directions(rows)
        return Q, rows

    def find(self, Q: Any, rows: Rows, k: int, n: int, among: Filter | None, effort: Effort | int) -> NearestMemories:
        """Return the best ``k`` of ``n`` candidates. If ``effort`` is an int, search this many leaves."""
        n_rows = rows.offsets.size - 1
        if k == 0:
            return NearestMemories(np.empty((n_rows, 0), np.int64), np.empty((n_rows, 0), np.float32))
        gap = None
        if isinstance(effort, int):
            n_leaves, breadth = effort, 0
        elif among is None and (gap := effort.gap_for(n_rows)) is not None and has_lists(self.tree._forest):
            n_leaves, breadth = effort.n_probes or 1, effort.breadth
        elif effort.compares_all(n, n_rows, sparse=rows.sparse):
            return self.nearest(Q, rows, k, among)
        else:
            n_leaves, breadth, gap = effort.n_probes or 1, effort.breadth, None
        found = self.near(Q, rows, k, n_leaves, among, breadth, gap=gap)
        if n_rows == 1 and found.ids.item(k - 1) != NONE:  # ten times as fast as the general case below
            return found
        short = np.flatnonzero(found.ids[:, k - 1] == NONE)
        if short.size > 0:
            found.ids[short], found.scores[short] = self.nearest(Q[short], rows.take(short), k, among)
        return found

    def near(
        self,
        Q: Any,
        rows: Rows,
        k: int,
        n_leaves: int,
        among: Filter | None,
        breadth: int = 0,
        left_out: np.ndarray | None = None,
        gap: float | None = None,
    ) -> NearestMemories:
        """Return the best ``k`` memories in ``n_leaves`` leaves and, with a ``breadth``, along links from there.

        Along links, the search for row ``i`` does not visit the memory ``left_out[i]``. If ``gap`` is given and cluster
        lists exist, they are searched instead.
        """
        wanted, tree = k, self.tree
        if self.space.n_more > 0:
            wanted = max(k, min(tree.n_memories if among is None else among.ids.size, k + _MORE))
        hits, reach = unexplored(rows.offsets.size - 1, wanted), Reach(n_leaves, breadth, left_out, gap)
        if among is None:
            search_trees(tree._forest, rows, reach, hits)
        else:
            tree._lock.read(partial(search_among, tree._forest, rows, reach, among, hits))
        found = NearestMemories(hits.ids, hits.scores)
        return self._ranked(Q, rows, found, k, _SCAN_ERROR if rows.sparse else _SEARCH_ERROR)[0]

    def nearest(self, Q: Any, rows: Rows, k: int, among: Filter | None) -> NearestMemories:
        """Return the best ``k`` of all candidates.

        Candidates are compared by their keys first. If rounding errors in the keys may hide better candidates, all
        candidates are compared by their vectors.
        """
        n = self.tree._forest.n_memories if among is None else among.ids.size
        more = _MORE if self.space.n_more > 0 else _MORE_BY_COSINE
        best, left = self._nearest_by_keys(Q, rows, k, n, more, among)
        if left.size > 0 and self._cached() is None:  # comparing all cached vectors is faster
            some = self._nearest_by_keys(Q[left], rows.take(left), k, n, _WIDER * (k + _MORE), among)
            best.ids[left], best.scores[left] = some[0]
            left = left[some[1]]
        if left.size > 0:
            best.ids[left], best.scores[left] = self._compared(Q[left], rows.take(left), k, among)
        return best

    def _nearest_by_keys(
        self, Q: Any, rows: Rows, k: int, n: int, more: int, among: Filter | None
    ) -> tuple[NearestMemories, np.ndarray]:
        """Rank the best ``k + more`` by keys again; return the best ``k``, and the rows that may lack better ones."""
        wanted = max(k, min(n, k + more))
        found, error = self._scan(rows, wanted, among)
        best, close = self._ranked(Q, rows, found, k, error)
        if close.size == 0 or wanted >= n or self.is_coded():
            return best, _NO_ROWS
        last = found.scores[close, -1]
        limits = self.space.limits(Q[close], last[:, None], self._with_weights(error))[:, 0]
        return best, close[~(limits < best.scores[close, -1]) & (last > -np.inf)]

    def read(self, ids: np.ndarray) -> tuple[GivenVectors, list[Record], bool]:
        """Return vectors and records of those ``ids`` that are stored, and whether all vectors are exact.

        Vectors that change during the call may be inexact. ``ids`` must ascend.
        """
        for _ in range(_MOST_TRIES):
            records = self.records.of(ids)
            there, units = self.tree._lock.read(partial(self._units, ids))
            if len(records) < ids.size or not there.all():  # some have been deleted
                recorded = np.array([memory_id in records for memory_id in ids.tolist()], np.bool_)
                ids, units = ids[there & recorded], units[recorded[there]]
            found = [records[memory_id] for memory_id in ids.tolist()]
            length = self.space.length()
            norms = np.array([length if record.norm is None else record.norm for record in found])
            rows = self.space.vectors(units, norms)
            exact = restore(rows, [record.digits for record in found])
            if exact:
                break
        return GivenVectors(ids, rows, units), found, exact

    def keys_of(self, X: Any, norms: np.ndarray | None = None) -> NewKeys:
        """Return the keys and lost digits of vectors to be stored. ``norms`` are their lengths, if known."""
        space, forest = self.space, self.tree._forest
        keys = X
        if space.n_more > 0 or norms is None:
            keys, norms = space.keys(X)
        rows = forest.unit_rows(keys)
        if forest.options["keep"] == "codes" and not rows.sparse:
            return NewKeys(keys, rows, LostDigits(norms, None))
        return NewKeys(keys, rows, LostDigits(norms, lost_digits(X, space.vectors(as_matrix(rows), norms))))

    def has_keys(self, ids: np.ndarray, rows: Rows) -> bool:
        """Return whether memories are stored with the keys ``rows``."""
        units = as_matrix(rows)
        there, stored = self.tree._lock.read(partial(self._units, ids))
        if not there.all():
            return False
        if scipy.sparse.issparse(units):
            return bool((units != stored).nnz == 0)
        if not self.is_coded():
            return bool(np.array_equal(units, stored))
        largest = np.abs(units).max(axis=1, keepdims=True) / np.float32(127.0)
        codes = np.rint(units * (np.float32(1.0) / np.where(largest > 0.0, largest, np.float32(1.0))))
        return bool(np.array_equal(codes, np.rint(stored / np.where(largest > 0.0, largest, np.float32(1.0)))))

    def _units(self, ids: np.ndarray) -> tuple[np.ndarray, Any]:
        """Return which ids are stored, and their keys. The caller must hold the read lock of the tree."""
        slots = self.tree._forest.slots_of(ids)
        there = slots != NONE
        return there, stored_units(self.tree._forest.allocated(), slots[there])

    def are_few(self, n_candidates: int, share: float = 0.0) -> bool:
        """Return whether comparing all candidates of a filter is faster than a search along links.

        The larger the fraction ``share`` of memories that are candidates, the faster a search along links.
        """
        state = self.tree._forest.state
        if state is None or state.parameters.sparse or state.parameters.coded:
            return False
        n_cells = n_candidates * state.parameters.n_features
        return n_cells <= _MOST_CELLS_COMPARED and n_cells * share <= _MOST_CELLS_OF_SHARE

    def is_coded(self) -> bool:
        """Return whether only codes are stored. Searches then use decoded vectors."""
        state = self.tree._forest.state
        return state is not None and bool(state.parameters.coded)

    def _with_weights(self, error: float) -> float:
        """Return the error bound of products of keys and queries, enlarged for learned feature weights."""
        state = self.tree._forest.state
        if state is None or (theta := state.scorer.theta).size == 0:
            return error
        return error * (1.0 + float(np.abs(theta).max()))

    def _weights(self) -> np.ndarray:
        """Return the weights of features learned from rewards, or an empty array if there are none."""
        state = self.tree._forest.state
        return np.empty(0, np.float32) if state is None else state.scorer.theta

    def _ranked(
        self, Q: Any, rows: Rows, found: NearestMemories, k: int, error: float
    ) -> tuple[NearestMemories, np.ndarray]:
        """Rank the memories found by the metric, and return the best ``k``.

        Also return the rows for which keys alone do not determine the best memories.
        """
        if self.space.n_more > 0:
            return self._by_keys(Q, rows, found.ids, k), np.arange(rows.n_rows)
        close = _close_rows(found.scores, k, 2.0 * self._with_weights(error))
        if close.size == 0 and found.ids.shape[1] == k:
            return found, close
        ids, scores = found.ids[:, :k], found.scores[:, :k]
        if close.size > 0 and not self.is_coded():
            ids[close], scores[close] = self._by_keys(Q[close], rows.take(close), found.ids[close], k)
        return NearestMemories(ids, scores), close

    def _by_keys(self, Q: Any, rows: Rows, ids: np.ndarray, k: int) -> NearestMemories:
        """Return the best ``k`` of some memories, by keys or, where these are not exact enough, by vectors."""
        scores, errors = self._scores(Q, rows, ids)
        order = np.argsort(-scores, axis=1, kind="stable")
        ids, scores, errors = (np.take_along_axis(part, order, axis=1) for part in (ids, scores, errors))
        ids[np.isneginf(scores)] = NONE
        doubtful = _NO_ROWS if self.is_coded() else _doubtful_rows(scores, errors, k)
        if doubtful.size > 0:
            ids[doubtful], scores[doubtful] = self._exactly(Q[doubtful], rows.take(doubtful), ids[doubtful])
        return NearestMemories(ids[:, :k], scores[:, :k])

    def _scores(self, Q: Any, rows: Rows, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return scores computed from keys (-inf for memories that are not stored), and the errors of the scores."""
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

    def _exactly(self, Q: Any, rows: Rows, ids: np.ndarray) -> NearestMemories:
        """Rank memories by the exact scores of their vectors."""
        vectors = self._cached() or self.read(np.unique(ids[ids != NONE]))[0]
        scores, asked, factors = np.full(ids.shape, -np.inf), as_matrix(rows), self.space.factors(Q)
        for first, stop in blocks(rows.n_rows, ids.shape[1] * rows.n_features):
            at = vectors.ids.searchsorted(ids[first:stop])
            row, column = np.nonzero(np.append(vectors.ids, NONE - 1)[at] == ids[first:stop])
            at, row = at[row, column], row + first
            learned = _learned(self._weights(), asked[row], vectors.units[at]) * factors[row]
            scores[row, column] = self.space.scores(Q[row], vectors.rows[at], learned)
        order = np.lexsort((ids, -scores), axis=1)
        ids, scores = np.take_along_axis(ids, order, axis=1), np.take_along_axis(scores, order, axis=1)
        return NearestMemories(np.where(np.isneginf(scores), NONE, ids), scores)

    def _compared(self, Q: Any, rows: Rows, k: int, among: Filter | None) -> NearestMemories:
        """Return the best ``k`` of all candidates, by comparing all vectors."""
        vectors = self._every() if among is None else self.read(np.unique(among.ids))[0]
        n, theta = vectors.ids.size, self._weights()
        ids, scores = np.full((rows.n_rows, k), NONE, np.int64), np.full((rows.n_rows, k), -np.inf)
        if n == 0:
            return NearestMemories(ids, scores)
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
        return NearestMemories(ids, scores)

    def _scan(self, rows: Rows, k: int, among: Filter | None) -> tuple[NearestMemories, float]:
        """Return the best ``k`` of all candidates by keys, and the maximum error of their scores."""
        tree, n = self.tree, self.tree._forest.n_memories
        if not rows.sparse:
            if among is None and n > MOST_GATHERED and self.are_few(n):
                among = self._every_candidate(rows.offsets.size - 1)
            found = NearestMemories(*scan_dense(tree._forest, rows, k, among, ties_matter=False)[:2])
            return found, _SCAN_ERROR if among is None or not among.is_coded else _SEARCH_ERROR
        hits = unexplored(rows.n_rows, k)
        # With this many leaves, the search compares all candidates.
        n_leaves = (n if among is None else among.ids.size) // WORTH_A_LEAF + 1
        every = Filter(tree.ids) if among is None else among
        tree._lock.read(partial(search_among, tree._forest, rows, Reach(n_leaves), every, hits))
        return NearestMemories(hits.ids, hits.scores), _SCAN_ERROR

    def _every_candidate(self, n_rows: int) -> Filter | None:
        """Return a filter of all memories if enough rows were compared since the last change, else None."""
        forest = self.tree._forest
        n_steps, n_before, every = self._compared_with_all
        if n_steps != forest.lock.n_steps:
            n_steps, n_before, every = forest.lock.n_steps, 0, None
        n_compared = n_before + n_rows
        if every is None and n_compared >= forest.n_memories // _MEMORIES_FOR_A_ROW:
            every = Filter(forest.ids())
        self._compared_with_all = n_steps, n_compared, every
        return every

    def _every(self) -> GivenVectors:
        """Return all vectors. They are cached until the tree changes."""
        vectors = self._cached()
        if vectors is None:
            n_steps = self.tree._lock.n_steps
            vectors = self.read(np.sort(self.tree.ids))[0]
            self._all = n_steps, vectors
        return vectors

    def _cached(self) -> GivenVectors | None:
        """Return all vectors if they are cached, else None."""
        cached = self._all
        return cached[1] if cached is not None and cached[0] == self.tree._lock.n_steps else None


def stored_units(state: State, slots: Any) -> Any:
    """Return the unit keys in some slots (or a slice, if dense). The caller must hold the read lock."""
    return as_matrix(stored_rows(state, slots))


def _close_rows(scores: np.ndarray, k: int, margin: float) -> np.ndarray:
    """Return the rows in which two of the best ``k + 1`` scores are too close to rank reliably."""
    best = scores[:, : k + 1]
    if len(best) == 1:  # four times as fast as with arrays
        row = best[0].tolist()
        return _NO_ROWS if min(map(sub, row, row[1:]), default=np.inf) > margin else np.zeros(1, np.int64)
    with np.errstate(invalid="ignore"):
        return np.flatnonzero(~(best[:, :-1] - best[:, 1:] > margin).all(axis=1))


def _doubtful_rows(scores: np.ndarray, errors: np.ndarray, k: int) -> np.ndarray:
    """Return the rows whose errors are large or may change the order of the best ``k``."""
    in_order = (scores - errors)[:, :k][:, : scores.shape[1] - 1] > (scores + errors)[:, 1 : k + 1]
    are_small = errors[:, :k] <= _TOLERATED * np.abs(scores[:, :k])
    return np.flatnonzero(~(in_order.all(axis=1) & are_small.all(axis=1)))


def _learned(theta: np.ndarray, asked: Any, units: Any) -> np.ndarray:
    """Return the effect of learned weights on the product of each query with the key in the same row."""
    if theta.size == 0:
        return np.zeros(units.shape[0])
    if scipy.sparse.issparse(units):
        return np.asarray(asked.multiply(units).dot(theta.astype(np.float64))).reshape(-1)
    return np.asarray(np.einsum("ij,ij,j->i", asked, units, theta, dtype=np.float64))


def _check_directions(rows: Rows) -> None:
    """Raise ValueError if a row is zero."""
    if rows.sparse:
        check_directions(np.diff(rows.offsets) > 0)
    elif rows.n_rows == 1 and rows.values.item(0) != 0.0:
        return
    elif np.count_nonzero(rows.values[:: rows.n_features]) < rows.n_rows:  # rare
        check_directions(np.asarray(rows.values.reshape(rows.n_rows, -1).any(axis=1)))

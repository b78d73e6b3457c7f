"""``SparseIndex``: stores sparse vectors and finds the nearest ones to queries, exactly.

Most vectors are in an inverted index, which is searched with bounds (:func:`~cmt_numba._heads.rank_listed`). Vectors
that were added later are compared with every query, until there are enough of them to build the inverted index again.
Removed vectors are excluded from searches and dropped at the next build.
"""

from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse

from . import _heads as heads
from ._arrays import SlotTable, squares_of_rows
from ._change import share_rows
from ._forest import NONE, Rows, aim_probe, keep_best, new_probe, require, row_of, sort_best_first, top_k, value_of
from ._index import COSINE, EUCLIDEAN, METRICS
from ._jit import inner, kernel, release

_MOST_RECENT = 512  # number of vectors compared with every query before they are indexed,
_RECENT_SHARE = 1 / 8  # or their fraction of the indexed vectors, if that is more
_MOST_RANKED = 128  # maximum number of results for which the inverted index is searched
_MORE = 8  # extra candidates, because float32 and float64 scores rank slightly differently
_ROUNDING = 1e-5  # bound on the error of float32 scores, relative to the largest score
_LARGEST = 1e15  # products of values up to this number are finite in float32
_FEW = 1024  # up to this many allowed vectors are compared with every query
_PAIRS_AT_ONCE = 1 << 22
_TINY = 1e-300  # the cosine of a zero vector is 0
_LAST_FEATURE = np.int32(2**31 - 1)  # above all features
_NO_IDS = np.empty(0, np.int64)


class _Postings(NamedTuple):
    """An inverted index of the vectors in the first slots, with features numbered consecutively.

    Scores must be sums of products of which most are not negative. A feature with values of both signs therefore counts
    as two, one for each sign: the feature with code ``2 * f`` has the positive values of feature ``f``, and the one
    with code ``2 * f + 1`` has the negative values with the opposite sign.
    """

    codes: np.ndarray  # int64: the codes of the features in use, in ascending order
    is_signed: bool  # whether some values are negative
    postings: Any
    digest: Any
    bounds: Any

    @property
    def n(self) -> int:
        """The number of vectors."""
        return int(self.bounds.biases.size)


class SparseVectors(NamedTuple):
    """Vectors or queries: row ``i`` has the cells ``offsets[i]:offsets[i + 1]``."""

    offsets: np.ndarray
    features: np.ndarray
    values: np.ndarray
    squares: np.ndarray  # squared lengths
    ids: np.ndarray


class AllowedRows(NamedTuple):
    """The result of :meth:`SparseIndex.allow`."""

    slots: np.ndarray  # int64, ascending
    is_allowed: np.ndarray  # bool, one entry per slot
    n: int


class SparseIndex:
    """An index of sparse vectors, which can be added, replaced and removed at any time.

    It has the methods of :class:`~cmt_numba._index.DenseIndex`, but every search is exact. The caller provides the
    lock: changes need exclusive access, and searches may run concurrently.

    - ``n_features``: number of features of each vector.
    - ``metric`` ("cosine", "inner_product", "euclidean"): the score of a vector for a query.
    - ``random_state``: not used.
    """

    def __init__(self, n_features: int, metric: str = "cosine", random_state: int = 0) -> None:
        self.n_features, self.metric = n_features, metric
        self.next_id = self._n_slots = self._n_cells = self._n_gone = 0
        self._offsets = np.zeros(1, np.int64)  # of the vector in each slot, with room for more
        self._features, self._values = np.empty(0, np.int32), np.empty(0, np.float32)
        self._squares = np.empty(0)  # float64: the squared length of each vector
        self._ids = np.empty(0, np.int64)  # the id of each slot, -1 if its vector was removed
        self._slots = SlotTable()
        self._postings: _Postings | None = None

    def __len__(self) -> int:
        return self._n_slots - self._n_gone

    @property
    def ids(self) -> np.ndarray:
        """The ids of all vectors, in no particular order."""
        ids = self._ids[: self._n_slots]
        return ids[ids != NONE]

    @property
    def nbytes(self) -> int:
        """The size in bytes of all arrays."""
        arrays: list[Any] = [self._offsets, self._features, self._values, self._squares, self._ids, self._slots]
        if self._postings is not None:
            arrays += [self._postings.codes, *self._postings.postings[:3], *self._postings.digest[:3]]
        return sum(array.nbytes for array in arrays)

    def contains(self, ids: np.ndarray) -> np.ndarray:
        """Return whether each id is stored."""
        return self._slots.find(ids) != NONE

    def vectors(self, ids: np.ndarray) -> Any:
        """Return stored vectors as they were given, as a CSR array of float32."""
        return self._rows(self._slots.find(ids))

    def _rows(self, slots: np.ndarray) -> Any:
        first = self._offsets[slots]
        lengths = self._offsets[slots + 1] - first
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        cells = np.arange(offsets[-1]) + np.repeat(first - offsets[:-1], lengths)
        shape = slots.size, self.n_features
        return scipy.sparse.csr_array((self._values[cells], self._features[cells], offsets), shape)

    # Changes

    def insert(self, X: Any, ids: np.ndarray | None = None) -> np.ndarray:
        """Store the rows of a canonical CSR array of float32, and return their ids, by default new consecutive ones."""
        ids = np.arange(self.next_id, self.next_id + X.shape[0]) if ids is None else ids
        self.next_id = max(self.next_id, int(ids.max(initial=-1)) + 1)
        self._append(ids, X)
        return ids

    def replace(self, ids: np.ndarray, X: Any) -> None:
        """Replace stored vectors. Ids must be distinct."""
        self._drop(ids)
        self._append(ids, X)

    def remove(self, ids: np.ndarray) -> None:
        """Remove stored vectors. Ids must be distinct."""
        self._drop(ids)
        self._build_if_due()

    def _drop(self, ids: np.ndarray) -> None:
        slots = self._slots.find(ids)
        self._ids[slots] = NONE
        self._slots.set(ids, NONE)
        self._n_gone += ids.size
        if self._postings is not None:
            excluded = self._postings.bounds.excluded
            excluded = excluded.copy() if excluded.size > 0 else np.zeros(self._postings.n, np.bool_)
            excluded[slots[slots < excluded.size]] = True
            self._postings = self._postings._replace(bounds=self._postings.bounds._replace(excluded=excluded))

    def _append(self, ids: np.ndarray, X: Any) -> None:
        n, n_cells = self._n_slots, self._n_cells
        stop, cells = n + ids.size, n_cells + X.data.size
        self._offsets, self._ids = _with_room(self._offsets, stop + 1), _with_room(self._ids, stop)
        self._squares = _with_room(self._squares, stop)
        self._features, self._values = _with_room(self._features, cells), _with_room(self._values, cells)
        self._offsets[n : stop + 1] = n_cells + X.indptr.astype(np.int64)
        self._features[n_cells:cells], self._values[n_cells:cells] = X.indices, X.data
        self._squares[n:stop] = squares_of_rows(X)
        self._ids[n:stop] = ids
        self._slots.set(ids, np.arange(n, stop))
        self._n_slots, self._n_cells = stop, cells
        self._build_if_due()

    def _build_if_due(self) -> None:
        """Drop removed vectors and build the inverted index if too many vectors are not in it."""
        n_indexed = 0 if self._postings is None else self._postings.n
        n_recent = self._n_slots - n_indexed
        if n_recent > max(_MOST_RECENT, _RECENT_SHARE * n_indexed) or 2 * self._n_gone > self._n_slots > _MOST_RECENT:
            if self._n_gone > 0:
                self._compact()
            is_short = np.abs(self._values[: self._n_cells]).max(initial=0.0) <= _LARGEST
            self._postings = self._built() if is_short or self.metric == "cosine" else None

    def _compact(self) -> None:
        kept = np.flatnonzero(self._ids[: self._n_slots] != NONE)
        X = self._rows(kept)
        self._offsets, self._values = X.indptr.astype(np.int64), X.data
        self._features = X.indices.astype(np.int32, copy=False)  # SciPy may choose int64
        self._squares, self._ids = self._squares[kept], self._ids[kept]
        self._slots.keep(self._ids, np.arange(kept.size))
        self._n_slots, self._n_cells, self._n_gone = kept.size, X.data.size, 0

    def _built(self) -> _Postings:
        offsets, values = self._offsets[: self._n_slots + 1], self._values[: self._n_cells]
        features = 2 * self._features[: self._n_cells].astype(np.int64) + (values < 0.0)
        codes, numbers = np.unique(features, return_inverse=True)
        weights, biases = np.abs(values), np.zeros(self._n_slots, np.float32)
        squares = self._squares[: self._n_slots]
        if self.metric == "cosine":
            weights = (weights / np.repeat(np.sqrt(squares), np.diff(offsets))).astype(np.float32)
        elif self.metric == "euclidean":  # ranks vectors like the product minus half of the squared length
            biases = (-squares / 2).astype(np.float32)
        digest = heads.Digest(offsets.copy(), numbers.astype(np.int32), weights)
        postings = heads.list_by_feature(digest, weights > 0.0, max(1, codes.size))
        return _Postings(codes, bool((values < 0.0).any()), postings, digest, heads.label_bounds(postings, biases))

    # Searches

    def allow(self, ids: np.ndarray) -> AllowedRows:
        """Return the set of stored vectors that a search may return, until the next change. Ignore unknown ids."""
        is_allowed = np.zeros(self._n_slots, np.bool_)
        is_allowed[self._slots.find(ids[self.contains(ids)])] = True
        slots = np.flatnonzero(is_allowed)
        return AllowedRows(slots, is_allowed, slots.size)

    def allows(self, among: AllowedRows, ids: np.ndarray) -> np.ndarray:
        """Return whether a search may return each id. Other ids than those of stored vectors are not allowed."""
        there = self.contains(ids)
        there[there] = among.is_allowed[self._slots.find(ids[there])]
        return there

    def search(
        self, Q: Any, k: int, target_recall: float = 1.0, among: AllowedRows | None = None, n_threads: int = 1
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids and the float64 scores of the ``k`` best vectors for each row of a CSR array.

        Equal scores are sorted by id. Ids are -1 if there are fewer vectors.
        """
        n_rows, n = Q.shape[0], len(self) if among is None else among.n
        ids, scores = np.full((n_rows, k), NONE), np.full((n_rows, k), -np.inf)
        k, built = min(k, n), self._postings
        if k == 0:
            return ids, scores
        missed = np.arange(n_rows)
        is_listed = built is not None and k <= _MOST_RANKED and (among is None or n > _FEW)
        if is_listed and np.abs(Q.data).max(initial=0.0) <= _LARGEST:
            assert built is not None
            slots, found = self._rank(built, Q, k, among, n_threads)
            ids[:, :k], scores[:, :k], missed = self._sorted(Q, slots, found, k, built.bounds.highest)
        if missed.size > 0:
            ids[missed, :k], scores[missed, :k] = self._compare(Q[missed], k, among)
        return ids, scores

    def scores(self, Q: Any, ids: np.ndarray) -> np.ndarray:
        """Return the float64 scores of stored vectors for each query, arrays of shape (n, m)."""
        scores = np.empty(ids.shape)
        score_vectors(*self._compared(Q), self._slots.find(ids), METRICS[self.metric], scores)
        return scores

    def cosines(self, Q: Any, ids: np.ndarray) -> np.ndarray:
        """Return the cosines of queries and vectors, arrays of shape (n, m); 0 for an id that is not stored."""
        cosines = np.empty(ids.shape)
        score_vectors(*self._compared(Q), self._slots.find(ids), COSINE, cosines)
        return cosines

    def recall(self, Q: Any, k: int, target_recall: float) -> float:
        """Return 1, because searches are exact."""
        return 1.0

    def _rank(
        self, built: _Postings, Q: Any, k: int, among: AllowedRows | None, n_threads: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the slots of the best candidates for each query, -1 if there are fewer, and their float32 scores."""
        bounds = built.bounds
        if among is not None:
            bounds = bounds._replace(excluded=~among.is_allowed[: built.n])
        rows, n_rows, wanted = self._as_rows(built, Q), Q.shape[0], k + _MORE
        slots, scores = np.full((n_rows, wanted), NONE), np.full((n_rows, wanted), -np.inf, np.float32)
        counts = np.empty((2, n_rows), np.int64)
        answers = heads.LabelAnswers(slots, scores, counts[0], counts[1])

        def rank(first: int, stop: int) -> None:
            heads.rank_listed(built.postings, built.digest, bounds, heads.Questions(rows, first, stop), answers)

        share_rows(rank, n_rows, n_threads)
        recent = np.arange(built.n, self._n_slots)
        recent = recent[(self._ids[recent] != NONE) if among is None else among.is_allowed[recent]]
        if recent.size > 0:
            slots = np.concatenate([slots, np.broadcast_to(recent, (n_rows, recent.size))], axis=1)
            scores = np.concatenate([scores, self._products(Q, recent)], axis=1)
            best, scores = top_k(scores, wanted)
            slots = np.where(best == NONE, NONE, slots[np.arange(n_rows)[:, None], best])
        return slots, scores

    def _as_rows(self, built: _Postings, Q: Any) -> Rows:
        """Return queries with the features of the inverted index, scaled to length 1 for the cosine."""
        values, codes, lengths = Q.data, 2 * Q.indices.astype(np.int64), np.diff(Q.indptr)
        if built.is_signed:
            codes, lengths = np.stack([codes, codes + 1], axis=1).reshape(-1), 2 * lengths
            values = np.stack([values, -values], axis=1).reshape(-1)
        row = np.repeat(np.arange(Q.shape[0]), lengths)
        if self.metric == "cosine":
            values = (values / self._lengths(Q)[row]).astype(np.float32)
        at = built.codes.searchsorted(codes)
        known = np.append(built.codes, -1)[at] == codes
        offsets = np.zeros(Q.shape[0] + 1, np.int64)
        np.cumsum(np.bincount(row[known], minlength=Q.shape[0]), out=offsets[1:])
        return Rows(values[known], at[known].astype(np.int32), offsets, max(1, built.codes.size), True)

    @staticmethod
    def _lengths(Q: Any) -> np.ndarray:
        return np.sqrt(squares_of_rows(Q))

    def _products(self, Q: Any, slots: np.ndarray) -> np.ndarray:
        """Return the scores by which :func:`rank_listed` ranks, for each query and slot, as float64."""
        products = np.empty((Q.shape[0], slots.size))
        rows = Rows(Q.data, Q.indices.astype(np.int32), Q.indptr.astype(np.int64), self.n_features, True)
        multiply_sparse(self._offsets, self._features, self._values, rows, slots, products)
        if self.metric == "cosine":
            products /= np.maximum(self._lengths(Q)[:, None] * np.sqrt(self._squares[slots]), _TINY)
        elif self.metric == "euclidean":
            products -= self._squares[slots] / 2
        return products

    def _sorted(
        self, Q: Any, slots: np.ndarray, found: np.ndarray, k: int, highest: float
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the ids and exact scores of the best ``k`` candidates, and the rows that may lack better ones.

        ``found`` are float32 scores, and ``highest`` bounds the scores of vectors without a feature of the query.
        """
        ordered = -np.sort(-found, axis=1)
        error = _ROUNDING * np.maximum(np.abs(ordered).max(axis=1, where=np.isfinite(ordered), initial=0.0), 1e-30)
        lowest = ordered[:, k - 1]
        safe = (lowest > highest + error) & (lowest > ordered[:, -1] + 2 * error)
        ids, scores = self._best(Q, slots, k)
        return ids, scores, np.flatnonzero(~safe)

    def _best(self, Q: Any, slots: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids and exact scores of the best ``k`` of some slots for each query; -1 stands for no vector."""
        ids, scores = np.full((Q.shape[0], k), NONE), np.full((Q.shape[0], k), -np.inf)
        rank_vectors(*self._compared(Q), slots, METRICS[self.metric], ids, scores)
        return ids, scores

    def _compared(self, Q: Any) -> tuple[SparseVectors, SparseVectors]:
        """Return the stored vectors and the queries."""
        vectors = SparseVectors(self._offsets, self._features, self._values, self._squares, self._ids)
        queries = Q.indptr.astype(np.int64), Q.indices.astype(np.int32), Q.data, np.square(self._lengths(Q))
        return vectors, SparseVectors(*queries, _NO_IDS)

    def _compare(self, Q: Any, k: int, among: AllowedRows | None) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids and exact scores of the best ``k`` of all candidates for each query."""
        every = np.flatnonzero(self._ids[: self._n_slots] != NONE) if among is None else among.slots
        ids, scores = np.empty((Q.shape[0], k), np.int64), np.empty((Q.shape[0], k))
        size = max(1, _PAIRS_AT_ONCE // every.size)
        for first in range(0, Q.shape[0], size):
            some = Q[first : first + size]
            found = self._products(some, every)
            error = _ROUNDING * np.maximum(np.abs(found).max(axis=1), 1e-30)
            least = np.partition(found, every.size - k, axis=1)[:, every.size - k] - 2 * error
            for row in range(some.shape[0]):
                slots = every[found[row] >= least[row]]
                ids[first + row], scores[first + row] = self._best(some[row : row + 1], slots[None], k)
        return ids, scores

    # Files

    def arrays(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return the persistent state: arrays, and scalars that JSON can express."""
        kept = np.flatnonzero(self._ids[: self._n_slots] != NONE)
        X = self._rows(kept)
        arrays = {"offsets": X.indptr.astype(np.int64), "features": X.indices.astype(np.int32), "values": X.data}
        facts = {"n_features": self.n_features, "metric": self.metric, "next_id": self.next_id}
        return arrays | {"ids": self._ids[kept]}, facts

    @classmethod
    def of_arrays(cls, arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> Self:
        """Return the index with this state. Raise InvariantError if the state is invalid."""
        index = cls(facts["n_features"], facts["metric"])
        offsets, features, values, ids = (arrays[name] for name in ("offsets", "features", "values", "ids"))
        dtypes = [array.dtype for array in (offsets, features, values, ids)]
        require(dtypes == [np.int64, np.int32, np.float32, np.int64], "the arrays must have their dtypes")
        n, next_id = ids.size, facts["next_id"]
        require(offsets.shape == (n + 1,) and offsets[0] == 0 and offsets[-1] == values.size, "offsets must fit")
        require((np.diff(offsets) >= 0).all() and features.size == values.size, "offsets must ascend")
        require(features.size == 0 or 0 <= features.min() <= features.max() < index.n_features, "features must exist")
        require(np.unique(ids).size == n and (n == 0 or 0 <= ids.min() <= ids.max() < next_id), "ids must be distinct")
        index.next_id = next_id
        X = scipy.sparse.csr_array((values, features, offsets), (n, index.n_features))
        require(X.has_sorted_indices, "features must ascend")
        index._append(ids, X)
        index.check_invariants()
        return index

    def copy(self) -> Self:
        """Return an independent copy."""
        return type(self).of_arrays(*self.arrays())

    def check_invariants(self) -> None:
        """Raise InvariantError if the arrays contradict each other."""
        stored = np.flatnonzero(self._ids[: self._n_slots] != NONE)
        require((self._slots.find(self._ids[stored]) == stored).all(), "each id must be stored once")
        require(stored.size == len(self) == self._slots.count(), "counts must match")
        require(np.isfinite(self._squares[stored]).all(), "vectors must be finite")


def _with_room(array: np.ndarray, size: int) -> np.ndarray:
    n_more = max(size - array.size, array.size)
    return array if size <= array.size else np.append(array, np.full(n_more, NONE, array.dtype))


@kernel
def multiply_sparse(offsets, features, values, queries, slots, products):
    """Write the product of each query with the vector in each slot."""
    probe = new_probe(queries, 0, queries.offsets.size - 1)
    for row in range(queries.offsets.size - 1):
        aim_probe(probe, row_of(queries, row))
        for column in range(slots.size):
            total = np.float64(0.0)
            for cell in range(offsets[slots[column]], offsets[slots[column] + 1]):
                total += np.float64(value_of(probe, np.int64(features[cell]))) * np.float64(values[cell])
            products[row, column] = total
    release(probe)


@inner
def _compare_vectors(one, i, other, j, are_distances):
    """Return the product, or the squared distance, of two vectors in float64."""
    a, b, c, d = one.offsets[i], one.offsets[i + 1], other.offsets[j], other.offsets[j + 1]
    total = np.float64(0.0)
    while a < b or c < d:
        x = y = np.float64(0.0)
        f = one.features[a] if a < b else _LAST_FEATURE
        g = other.features[c] if c < d else _LAST_FEATURE
        if f <= g:
            x = np.float64(one.values[a])
            a += 1
        if g <= f:
            y = np.float64(other.values[c])
            c += 1
        total += (x - y) * (x - y) if are_distances else x * y
    return total


@inner
def _score(queries, row, vectors, slot, metric):
    score = _compare_vectors(queries, row, vectors, slot, metric == EUCLIDEAN)
    if metric == COSINE:
        score /= max(np.sqrt(queries.squares[row] * vectors.squares[slot]), _TINY)
    elif metric == EUCLIDEAN:
        score = -np.sqrt(score)
    return score


@kernel
def score_vectors(vectors, queries, slots, metric, scores):
    """Write the scores of vectors for each query, arrays of shape (n, m); 0 for a slot of -1."""
    for row in range(slots.shape[0]):
        for column in range(slots.shape[1]):
            slot = slots[row, column]
            scores[row, column] = _score(queries, row, vectors, slot, metric) if slot >= 0 else 0.0


@kernel
def rank_vectors(vectors, queries, slots, metric, ids, scores):
    """Write the best of the vectors in ``slots`` for each query. ``ids`` and ``scores`` must hold -1 and -inf."""
    for row in range(slots.shape[0]):
        for column in range(slots.shape[1]):
            slot = slots[row, column]
            if slot >= 0:
                keep_best(scores[row], ids[row], _score(queries, row, vectors, slot, metric), vectors.ids[slot])
        sort_best_first(scores[row], ids[row])

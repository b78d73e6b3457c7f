"""``SparseIndex``: stores sparse vectors and finds the nearest ones to queries, exactly.

The inverted index is searched with bounds (:func:`~cmt_numba._postings.rank_listed`).
"""

from typing import Any, NamedTuple, Self

import numpy as np

from .._arrays import squares_of_rows
from .._change import share_rows
from .._index import COSINE, EUCLIDEAN, METRICS
from .._jit import inner, kernel, release
from .._kernels import NONE, Rows, aim_probe, keep_best, new_probe, require, row_of, sort_best_first, top_k, value_of
from .list_search import LabelAnswers, LabelBounds, Questions, label_bounds, rank_listed
from .lists import Digest, Postings, list_by_feature
from .rows import AllowedRows, RowIndex, StoredRows

_MOST_RANKED = 128  # maximum number of results for which the inverted index is searched
_MORE = 8  # extra candidates, because float32 and float64 scores rank slightly differently
_ROUNDING = 1e-5  # bound on the error of float32 scores, relative to the largest score
_LARGEST = 1e15  # products of values up to this number are finite in float32
_FEW = 1024  # up to this many allowed vectors are compared with every query
_PAIRS_AT_ONCE = 1 << 22
_TINY = 1e-300  # the cosine of a zero vector is 0
_LAST_FEATURE = np.int32(2**31 - 1)  # above all features
_NO_IDS = np.empty(0, np.int64)


class _ListedVectors(NamedTuple):
    """An inverted index of the vectors in the first slots, with features numbered consecutively.

    Scores must be sums of products of which most are not negative. A feature with values of both signs therefore counts
    as two, one for each sign: the feature with code ``2 * f`` has the positive values of feature ``f``, and the one
    with code ``2 * f + 1`` has the negative values with the opposite sign.
    """

    codes: np.ndarray  # int64: the codes of the features in use, in ascending order
    is_signed: bool  # whether some values are negative
    lists: Postings
    digest: Digest
    bounds: LabelBounds


class SparseIndex(RowIndex):
    """An index of sparse vectors, which can be added, replaced and removed at any time.

    It has the methods of :class:`~cmt_numba._index.DenseIndex`, but every search is exact.

    - ``n_features``: number of features of each vector.
    - ``metric`` ("cosine", "inner_product", "euclidean"): the score of a vector for a query.
    - ``random_state``: not used.
    """

    _most_recent, _recent_share = 512, 1 / 8

    def __init__(self, n_features: int, metric: str = "cosine", random_state: int = 0) -> None:
        super().__init__(n_features, np.float64)
        self.metric, self.next_id = metric, 0
        self._postings: _ListedVectors | None = None

    @property
    def nbytes(self) -> int:
        """The size in bytes of all arrays."""
        arrays: list[Any] = [*self._stored, self._slots]
        if self._postings is not None:
            arrays += [self._postings.codes, *self._postings.lists[:3], *self._postings.digest[:3]]
        return sum(array.nbytes for array in arrays)

    # Changes

    def insert(self, X: Any, ids: np.ndarray | None = None) -> np.ndarray:
        """Store the rows of a canonical CSR array of float32, and return their ids, by default new consecutive ones."""
        ids = np.arange(self.next_id, self.next_id + X.shape[0]) if ids is None else ids
        self.next_id = max(self.next_id, int(ids.max(initial=-1)) + 1)
        self._store(ids, X)
        return ids

    def replace(self, ids: np.ndarray, X: Any) -> None:
        """Replace stored vectors. Ids must be distinct."""
        self._drop(self._slots.find(ids))
        self._store(ids, X)

    def remove(self, ids: np.ndarray) -> None:
        """Remove stored vectors. Ids must be distinct."""
        self._drop(self._slots.find(ids))
        self._list_if_due()

    def _drop(self, slots: np.ndarray) -> None:
        super()._drop(slots)
        if self._postings is not None:
            excluded = self._postings.bounds.excluded
            excluded = excluded.copy() if excluded.size > 0 else np.zeros(self._n_listed, np.bool_)
            excluded[slots[slots < excluded.size]] = True
            self._postings = self._postings._replace(bounds=self._postings.bounds._replace(excluded=excluded))

    def _store(self, ids: np.ndarray, X: Any) -> None:
        self._append(ids, X.indptr[1:], X.indices, X.data, squares_of_rows(X))
        self._list_if_due()

    def _build(self) -> None:
        offsets, n_cells = self._stored.offsets[: self._n_slots + 1], self._stored.offsets[self._n_slots]
        features, values = self._stored.features[:n_cells], self._stored.values[:n_cells]
        if np.abs(values).max(initial=0.0) > _LARGEST and self.metric != "cosine":
            self._postings = None
            return
        codes, numbers = np.unique(2 * features.astype(np.int64) + (values < 0.0), return_inverse=True)
        weights, biases = np.abs(values), np.zeros(self._n_slots, np.float32)
        squares = self._stored.sizes[: self._n_slots]
        if self.metric == "cosine":
            weights = (weights / np.repeat(np.sqrt(squares), np.diff(offsets))).astype(np.float32)
        elif self.metric == "euclidean":  # ranks vectors like the product minus half of the squared length
            biases = (-squares / 2).astype(np.float32)
        digest = Digest(offsets.copy(), numbers.astype(np.int32), weights)
        lists = list_by_feature(digest, weights > 0.0, max(1, codes.size))
        is_signed = bool((values < 0.0).any())
        self._postings = _ListedVectors(codes, is_signed, lists, digest, label_bounds(lists, biases))

    # Searches

    def search(
        self, Q: Any, k: int, target_recall: float = 1.0, among: AllowedRows | None = None, n_threads: int = 1
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids and the float64 scores of the ``k`` best vectors for each row of a CSR array.

        Equal scores are sorted by id. Ids are -1 if there are fewer vectors.
        """
        n_rows, n = Q.shape[0], len(self) if among is None else among.slots.size
        ids, scores = np.full((n_rows, k), NONE), np.full((n_rows, k), -np.inf)
        k, built = min(k, n), self._postings
        if k == 0:
            return ids, scores
        missed = np.arange(n_rows)
        is_listed = built is not None and k <= _MOST_RANKED and (among is None or n > _FEW)
        if is_listed and np.abs(Q.data).max(initial=0.0) <= _LARGEST:
            assert built is not None
            slots, found = self._rank(built, Q, k, among, n_threads)
            ids[:, :k], scores[:, :k], missed = self._sorted(Q, slots, found, k, float(built.bounds.highest))
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
        self, built: _ListedVectors, Q: Any, k: int, among: AllowedRows | None, n_threads: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the slots of the best candidates for each query, -1 if there are fewer, and their float32 scores."""
        bounds = built.bounds
        if among is not None:
            bounds = bounds._replace(excluded=~among.mask[: self._n_listed])
        rows, n_rows, wanted = self._as_rows(built, Q), Q.shape[0], k + _MORE
        slots, scores = np.full((n_rows, wanted), NONE), np.full((n_rows, wanted), -np.inf, np.float32)
        counts = np.empty((2, n_rows), np.int64)
        answers = LabelAnswers(slots, scores, counts[0], counts[1])

        def rank(first: int, stop: int) -> None:
            rank_listed(built.lists, built.digest, bounds, Questions(rows, first, stop), answers)

        share_rows(rank, n_rows, n_threads)
        recent = np.arange(self._n_listed, self._n_slots)
        recent = recent[(self._stored.ids[recent] != NONE) if among is None else among.mask[recent]]
        if recent.size > 0:
            slots = np.concatenate([slots, np.broadcast_to(recent, (n_rows, recent.size))], axis=1)
            scores = np.concatenate([scores, self._products(Q, recent)], axis=1)
            best, scores = top_k(scores, wanted)
            slots = np.where(best == NONE, NONE, slots[np.arange(n_rows)[:, None], best])
        return slots, scores

    def _as_rows(self, built: _ListedVectors, Q: Any) -> Rows:
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
        multiply_sparse(self._stored, rows, slots, products)
        if self.metric == "cosine":
            products /= np.maximum(self._lengths(Q)[:, None] * np.sqrt(self._stored.sizes[slots]), _TINY)
        elif self.metric == "euclidean":
            products -= self._stored.sizes[slots] / 2
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

    def _compared(self, Q: Any) -> tuple[StoredRows, StoredRows]:
        """Return the stored vectors and the queries."""
        queries = Q.indptr.astype(np.int64), Q.indices.astype(np.int32), Q.data, np.square(self._lengths(Q))
        return self._stored, StoredRows(*queries, _NO_IDS)

    def _compare(self, Q: Any, k: int, among: AllowedRows | None) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids and exact scores of the best ``k`` of all candidates for each query."""
        every = self._kept() if among is None else among.slots
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
        facts = {"n_features": self.n_features, "metric": self.metric, "next_id": self.next_id}
        return super().arrays()[0], facts

    @classmethod
    def of_arrays(cls, arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> Self:
        """Return the index with this state. Raise InvariantError if the state is invalid."""
        index = cls(facts["n_features"], facts["metric"])
        ids, X = index._checked_rows(arrays)
        require(int(ids.max(initial=-1)) < facts["next_id"], "ids must be below the next id")
        index.next_id = facts["next_id"]
        index._store(ids, X)
        index.check_invariants()
        return index

    def copy(self) -> Self:
        """Return an independent copy."""
        return type(self).of_arrays(*self.arrays())

    def check_invariants(self) -> None:
        """Raise InvariantError if the arrays contradict each other."""
        super().check_invariants()
        require(np.isfinite(self._stored.sizes[self._kept()]).all(), "vectors must be finite")


@kernel
def multiply_sparse(vectors, queries, slots, products):
    """Write the product of each query with the vector in each slot."""
    probe = new_probe(queries, 0, queries.offsets.size - 1)
    for row in range(queries.offsets.size - 1):
        aim_probe(probe, row_of(queries, row))
        for column in range(slots.size):
            total = np.float64(0.0)
            for cell in range(vectors.offsets[slots[column]], vectors.offsets[slots[column] + 1]):
                value = value_of(probe, np.int64(vectors.features[cell]))
                total += np.float64(value) * np.float64(vectors.values[cell])
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
        score /= max(np.sqrt(queries.sizes[row] * vectors.sizes[slot]), _TINY)
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

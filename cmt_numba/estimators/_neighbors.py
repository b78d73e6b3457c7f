"""Nearest neighbors among stored examples, by Euclidean distance or cosine, and their votes.

One matrix product gives all distances of a block of rows, and a kernel selects the nearest examples. Products of dense
rows are in float32, so a few additional examples are selected and then ranked by distances in float64.

If many rows are compared with many dense examples, an index takes less time than the products.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from .._index import DenseIndex
from .._kernels import NONE, Rows, as_matrix, measure_rows, top_k
from ._input import Factors

NEIGHBOR_METRICS = ("euclidean", "seuclidean", "cosine")

_SCORES_AT_ONCE = 1 << 21  # maximum number of scores in a block of rows: 8 MB
_VALUES_AT_ONCE = 1 << 20  # maximum number of values in a block of pairs that are compared in float64
_LOWEST, _LONGEST = np.finfo(np.float32).min, np.finfo(np.float32).max
_FURTHER = 8  # examples selected in addition to those wanted
_FEW_EXAMPLES = 8192  # products with so few examples take little more time than a search of an index
_PAIRS_WORTH_AN_INDEX = 1 << 26  # products of so many pairs take about as long as building an index
_MAX_INDEXED = 256  # maximum number of neighbors to find through an index
_RECALL = 0.99
_ROUNDING = 2.0**-20  # tolerance for ties of squared distances, relative to the sum of squared lengths
_UNIT = 1e-6  # tolerance for the length of rows scaled to unit length in float32

_KERNELS = ("gaussian", "laplacian")
VOTES = ("uniform", "distance", "score", "cosine", *_KERNELS)  # valid values of ``weights``
_MIN_VOTE = 1e-6  # minimum weight of a vote, so that every neighbor counts
_CELLS_AT_ONCE = 1 << 20


def row_lengths(X: Any) -> np.ndarray:
    """Return the Euclidean length of each row of a dense or CSR matrix as float32, or 1 for a row of zeros."""
    if not isinstance(X, np.ndarray):
        lengths = np.empty(X.shape[0], np.float32)
        measure_rows(X.data.astype(np.float32, copy=False), X.indptr.astype(np.int64), lengths)
        return np.minimum(lengths, _LONGEST)
    squares = np.einsum("ij,ij->i", X, X, dtype=np.float64)
    return np.minimum(np.sqrt(np.where(squares > 0.0, squares, 1.0)), _LONGEST).astype(np.float32)


def lengths_unless_unit(X: Any) -> np.ndarray | None:
    """Return the length of each row, or None if all are 1."""
    lengths = row_lengths(X)
    return None if np.all(np.abs(lengths - 1.0) < _UNIT) else lengths


class NeighborSearch:
    """The nearest examples of rows: exact, or 99 % of them through an index after comparisons of many pairs.

    ``stored`` are examples of unit length, and ``lengths`` their lengths before scaling; None stands for 1.
    """

    def __init__(self, stored: Rows, lengths: Factors, metric: str) -> None:
        self.metric, self.n_examples = metric, stored.n_rows
        self._center: np.ndarray | None = None  # float32 (n_features,): mean subtracted from dense keys
        self._factors: np.ndarray | None = None  # float32 (n_features,): factors of features for standardised distances
        keys, squares = as_matrix(stored), np.ones(stored.n_rows, np.float32)
        if metric != "cosine":
            keys = _scaled(keys, lengths)
            if not stored.sparse:
                self._center = keys.mean(axis=0, dtype=np.float64).astype(np.float32)
            if metric == "seuclidean":
                self._factors = _inverse_deviations(keys)
            keys = self._transformed(keys)
            squares = np.asarray((keys * keys).sum(axis=1), np.float32).ravel()
        self._keys = keys  # float32 (n, n_features), dense or CSR: of unit length for cosines, otherwise transformed
        self._columns = keys.T.tocsr() if stored.sparse else keys.T  # for products
        self._squares = squares  # float32 (n,): squared lengths of keys
        is_large = not stored.sparse and stored.n_rows > _FEW_EXAMPLES
        self._can_be_indexed = is_large and bool(np.isfinite(squares).all())
        self._index: DenseIndex | None = None
        self._n_pairs = 0

    def nearest(self, rows: Rows, lengths: np.ndarray, k: int, n_threads: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the nearest examples of each row like :meth:`compared`."""
        self._n_pairs += rows.n_rows * self.n_examples
        if not self._can_be_indexed or self._n_pairs < _PAIRS_WORTH_AN_INDEX or k > _MAX_INDEXED:
            return self.compared(rows, lengths, k)
        if self._index is None:
            index = DenseIndex(self._keys.shape[1], "euclidean")
            index.insert(np.ascontiguousarray(self._keys))
            self._index = index
        queries = np.ascontiguousarray(self._queries_of(rows, lengths))
        if not np.isfinite(queries).all():
            return self.compared(rows, lengths, k)
        positions, scores = self._index.search(queries, k, _RECALL, n_threads=n_threads)
        return positions, 0.5 * scores**2 if self.metric == "cosine" else -scores

    def compared(self, rows: Rows, lengths: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the positions of the ``k`` nearest examples of each row, and their distances, nearest first.

        All examples are compared. Ties are ordered by position. Rows have unit length, and had ``lengths`` before
        scaling. Missing examples have the position NONE and an infinite distance: Euclidean, or 1 minus the cosine.
        """
        n_rows, n_found = rows.n_rows, min(k, self.n_examples)
        positions, distances = np.full((n_rows, k), NONE), np.full((n_rows, k), np.inf)
        queries = self._queries_of(rows, lengths)
        n_picked = min(n_found + _FURTHER, self.n_examples)
        for first, scores in self._blocks(queries):
            span = slice(first, first + scores.shape[0])
            picked, values = top_k(scores, n_picked)
            squared, rounding = self._squared_distances(queries[span], picked, values)
            order = np.lexsort((picked, np.round(squared / rounding)), axis=1)[:, :n_found]
            found = np.take_along_axis(squared, order, axis=1)
            if rows.sparse:
                found = np.where(found < rounding, 0.0, found)  # distances between equal rows are exactly 0
            positions[span, :n_found] = np.take_along_axis(picked, order, axis=1)
            distances[span, :n_found] = found / 2.0 if self.metric == "cosine" else np.sqrt(found)
        return positions, distances

    def _queries_of(self, rows: Rows, lengths: np.ndarray) -> Any:
        if self.metric == "cosine":
            return as_matrix(rows)
        return self._transformed(_scaled(as_matrix(rows), lengths))

    def _transformed(self, keys: Any) -> Any:
        keys = keys if self._center is None else keys - self._center
        if self._factors is None:
            return keys
        return keys * self._factors if isinstance(keys, np.ndarray) else keys.multiply(self._factors[None]).tocsr()

    def _blocks(self, queries: Any) -> Iterator[tuple[int, np.ndarray]]:
        """Yield the first row of each block, and the scores of all examples, higher for nearer ones."""
        length = max(1, _SCORES_AT_ONCE // max(1, self.n_examples))
        for first in range(0, queries.shape[0], length):
            with np.errstate(over="ignore", invalid="ignore"):  # squares of very long rows overflow
                products = queries[first : first + length] @ self._columns
                scores = products if isinstance(products, np.ndarray) else products.toarray()
                if self.metric != "cosine":
                    scores -= 0.5 * self._squares
            if not np.isfinite(self._squares).all():  # NaN would leave positions unset
                np.nan_to_num(scores, copy=False, nan=float(_LOWEST), neginf=float(_LOWEST))
            yield first, np.ascontiguousarray(scores)

    def _squared_distances(self, queries: Any, picked: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the squared distances of rows to their selected examples, and an error bound for each row."""
        of_picked = self._squares[picked]
        if not isinstance(queries, np.ndarray):
            squares = np.asarray(queries.multiply(queries).sum(axis=1), np.float64).reshape(-1, 1)
            products = values if self.metric == "cosine" else values + 0.5 * of_picked
            squared = np.maximum(squares + of_picked - 2.0 * products, 0.0)
            return squared, _ROUNDING * (squares + of_picked.max(axis=1, keepdims=True))
        squares = np.einsum("ij,ij->i", queries, queries, dtype=np.float64)[:, None]
        squared = np.empty(picked.shape)
        length = max(1, _VALUES_AT_ONCE // max(1, picked.shape[1] * queries.shape[1]))
        for first in range(0, picked.shape[0], length):
            span = slice(first, first + length)
            gaps = self._keys[picked[span]].astype(np.float64) - queries[span, None, :]
            squared[span] = np.einsum("ijk,ijk->ij", gaps, gaps)
        return squared, _ROUNDING * (squares + of_picked.max(axis=1, keepdims=True))


def _inverse_deviations(keys: Any) -> np.ndarray:
    if isinstance(keys, np.ndarray):
        variances = keys.var(axis=0, dtype=np.float64)
    else:
        means, squares = (np.asarray(part.mean(axis=0), np.float64).ravel() for part in (keys, keys.multiply(keys)))
        variances = np.maximum(squares - means**2, 0.0)
    variances *= keys.shape[0] / max(1, keys.shape[0] - 1)
    varies = variances > _ROUNDING * variances.max(initial=0.0) * _ROUNDING
    return np.divide(1.0, np.sqrt(variances), out=np.zeros_like(variances), where=varies).astype(np.float32)


def _scaled(matrix: Any, lengths: Factors) -> Any:
    if lengths is None or np.all(lengths == 1.0):
        return matrix
    return matrix * lengths[:, None] if isinstance(matrix, np.ndarray) else matrix.multiply(lengths[:, None]).tocsr()


def weights_of_votes(kind: str, scores: np.ndarray, rows: Rows, stored: Rows, slots: np.ndarray) -> np.ndarray:
    """Return the weight of each neighbor's vote: float64, shape (n_rows, k); 0 for a missing neighbor.

    ``scores`` are 1 minus the distances. ``slots`` are positions in ``stored``, the examples of unit length; negative
    if missing.
    """
    there = slots >= 0
    weights = np.ones(slots.shape)
    if kind == "score":
        weights = scores.astype(np.float64)
    elif kind == "distance":
        return _inverse(1.0 - scores.astype(np.float64))
    elif kind != "uniform":
        weights = np.zeros(slots.shape)
        weights[there] = _compared(kind, rows, stored, np.nonzero(there)[0], slots[there])
    if kind in _KERNELS:
        weights = _kernel(kind, np.where(there, weights, np.inf))
    return np.where(there, np.maximum(weights, _MIN_VOTE), 0.0)


def count_votes(classes: np.ndarray, weights: np.ndarray, n_classes: int) -> np.ndarray:
    """Return the votes for each class: float64, shape (n_rows, n_classes). Votes for NONE are ignored."""
    votes = np.zeros((classes.shape[0], n_classes))
    row, rank = np.nonzero(classes != NONE)
    np.add.at(votes, (row, classes[row, rank]), weights[row, rank])
    return votes


def _inverse(distances: np.ndarray) -> np.ndarray:
    """Return inverse distances. If a row has distances of 0, return 1 for these and 0 for all others."""
    with np.errstate(divide="ignore"):
        weights = 1.0 / distances
    is_same = np.isinf(weights)
    return np.where(is_same.any(axis=1, keepdims=True), is_same.astype(np.float64), weights)


def _compared(kind: str, rows: Rows, stored: Rows, of_rows: np.ndarray, slots: np.ndarray) -> np.ndarray:
    """Return the cosine of each pair or, for kernels, the Euclidean distance (city block for "laplacian")."""
    step = max(1, _CELLS_AT_ONCE // max(1, rows.n_features if not rows.sparse else 256))
    found = [np.empty(0)]
    for first in range(0, slots.size, step):
        pairs = slice(first, first + step)
        asked, keys = as_matrix(rows.take(of_rows[pairs])), as_matrix(stored.take(slots[pairs]))
        if kind == "laplacian":
            found.append(np.asarray(abs(asked - keys).sum(axis=1), np.float64).ravel())
            continue
        cosines = np.asarray((asked * keys).sum(axis=1), np.float64).ravel()
        found.append(cosines if kind == "cosine" else np.sqrt(np.maximum(2.0 - 2.0 * cosines, 0.0)))
    return np.concatenate(found)


def _kernel(kind: str, distances: np.ndarray) -> np.ndarray:
    """Return kernel values of distances, which may be infinite. The bandwidth is the row's median distance."""
    n_found = np.isfinite(distances).sum(axis=1)
    middle = np.take_along_axis(np.sort(distances, axis=1), np.maximum(n_found - 1, 0)[:, None] // 2, axis=1)
    bandwidth = np.where(np.isfinite(middle) & (middle > 0.0), middle, 1.0)
    scaled = distances / bandwidth
    return np.exp(-0.5 * scaled**2 if kind == "gaussian" else -scaled)

"""Metrics, and the keys of a tree by whose cosine they can be searched.

A tree compares directions. So that it also ranks by inner products or Euclidean distances, keys get one or two features
more, by which all have the same length (Bachrach et al., 2014; Neyshabur and Srebro, 2015):

- ``inner_product``: ``x`` becomes ``(x, sqrt(m^2 - |x|^2))``, of length ``m``; a query ``q`` becomes ``(q, 0)``.
- ``euclidean``: ``y = x - c`` becomes ``(y, (|y|^2 - m^2 / 2) / m, ...)``, of length ``sqrt(1.25) m``; a query becomes
  ``(q - c, -m / 2, 0)``, and the inner product of both is ``-|q - x|^2 / 2`` but for a constant of the query.

``m`` is a bound on the lengths of the vectors. A vector that is longer needs a larger bound, and so other keys for all.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from ._query_map import QueryMap

METRICS = ("cosine", "inner_product", "euclidean")
_ROOM = 1.25  # ratio of a bound to the longest vector: the next ones are often a little longer
_CELLS_AT_ONCE = 1 << 22  # of vectors that are compared one by one


class Frame(NamedTuple):
    """How vectors become keys of a tree."""

    metric: str
    bound: float = 0.0  # on the lengths of vectors less the centre; unused by the cosine
    centre: np.ndarray | None = None  # float32 (n_features,); of dense vectors and Euclidean distances
    query_map: QueryMap | None = None  # learned from rewards; of dense vectors and the cosine

    @property
    def n_more(self) -> int:
        """The number of features that keys have beyond those of vectors."""
        return METRICS.index(self.metric)

    def holds(self, X: Any) -> bool:
        """Return whether vectors can become keys without a larger bound."""
        return self.n_more == 0 or bool(lengths(self._moved(X)).max() <= self.bound)

    def keys(self, X: Any) -> Any:
        """Return the keys of vectors, which :meth:`holds`."""
        if self.n_more == 0:
            return X
        moved = self._moved(X)
        squares, bound = lengths(moved) ** 2, self.bound
        if self.metric == "inner_product":
            return _with_columns(moved, np.sqrt(np.maximum(bound**2 - squares, 0.0)))
        first = (squares - bound**2 / 2) / bound
        return _with_columns(moved, first, np.sqrt(np.maximum(1.25 * bound**2 - squares - first**2, 0.0)))

    def queries(self, X: Any) -> Any:
        """Return queries of a tree for queries of a store."""
        if self.metric == "cosine":
            return X if self.query_map is None else self.query_map.mapped(X)
        zeros = np.zeros(X.shape[0])
        if self.metric == "inner_product":
            return _with_columns(X, zeros)
        return _with_columns(self._moved(X), zeros - self.bound / 2, zeros)

    def vectors(self, units: Any, norms: np.ndarray) -> Any:
        """Return the vectors that belong to keys of unit length, up to rounding.

        Parameters
        ----------
        units : ndarray or csr_array of float32, shape (n, n_features + n_more)
            The keys.
        norms : ndarray of float64, shape (n,)
            Lengths of the vectors, which only the cosine needs.
        """
        n_features = units.shape[1] - self.n_more
        if self.metric != "cosine":
            norms = np.full(units.shape[0], self.bound * (1.0 if self.metric == "inner_product" else np.sqrt(1.25)))
        if scipy.sparse.issparse(units):
            cut = units[:, :n_features]
            data = cut.data * np.repeat(norms, np.diff(cut.indptr))
            return scipy.sparse.csr_array((data.astype(np.float32), cut.indices, cut.indptr), cut.shape)
        scaled = (units[:, :n_features] * norms[:, None]).astype(np.float32)
        return scaled if self.centre is None else scaled + self.centre

    def scores(self, X: Any, vectors: Any, norms: np.ndarray, learned: np.ndarray) -> np.ndarray:
        """Return the scores of stored vectors for the queries of the same rows: float64, larger is better.

        Parameters
        ----------
        X, vectors : ndarray or csr_array, shape (n, n_features)
            Queries and vectors.
        norms : ndarray of float64, shape (n,)
            Lengths of the queries of the tree.
        learned : ndarray of float64, shape (n,)
            What the tree has learned to add to the cosines of its queries and keys.
        """
        if self.metric == "inner_product":
            products: np.ndarray = _products(X, vectors) + learned * norms * self.bound
            return products
        if scipy.sparse.issparse(X):
            squares = lengths(X) ** 2 + lengths(vectors) ** 2 - 2.0 * _products(X, vectors)
        else:
            squares = _square_sums(X.astype(np.float64) - vectors)
        squares = np.maximum(squares, 0.0) - 2.0 * learned * norms * np.sqrt(1.25) * self.bound
        distances: np.ndarray = np.sign(squares) * np.sqrt(np.abs(squares))
        return -distances

    def _moved(self, X: Any) -> Any:
        return X if self.centre is None else X - self.centre


def frame_for(metric: str, X: Any) -> Frame:
    """Return a frame with room for vectors."""
    if metric == "cosine":
        return Frame(metric)
    centre = None
    if metric == "euclidean" and not scipy.sparse.issparse(X):
        centre = X.mean(axis=0, dtype=np.float64).astype(np.float32)
    longest = float(lengths(X if centre is None else X - centre).max())
    return Frame(metric, _ROOM * longest if longest > 0.0 else 1.0, centre)


def lengths(X: Any) -> np.ndarray:
    """Return the Euclidean lengths of rows: float64."""
    if isinstance(X, np.ndarray):
        squares = _square_sums(X)
    else:
        row = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
        squares = np.bincount(row, np.square(X.data.astype(np.float64)), X.shape[0])
    norms: np.ndarray = np.sqrt(squares)
    return norms


def check_lengths(X: Any, metric: str) -> np.ndarray:
    """Return the lengths of vectors. Raise ValueError if a row is not finite or, for the cosine, has no direction."""
    norms = lengths(X)
    if norms.size == 1 and 0.0 < norms.item(0) < math.inf:
        return norms
    if not np.isfinite(norms.sum()):
        row = int(np.flatnonzero(~np.isfinite(norms))[0])
        raise ValueError(f"X must be finite in float32: row {row} holds NaN, infinity or a value too large")
    if metric == "cosine" and np.count_nonzero(norms) < norms.size:
        check_directions(norms > 0.0)
    return norms


def check_directions(are_there: np.ndarray) -> None:
    """Raise ValueError unless all rows have a direction."""
    if not are_there.all():
        row = int(np.flatnonzero(~are_there)[0])
        why = "has no direction that a cosine could be taken of; use another metric or leave it out"
        raise ValueError(f"X must have no rows of zeros: row {row} {why}")


def _square_sums(X: np.ndarray) -> np.ndarray:
    if len(X) == 1:  # in a third of the time
        row = X[0].astype(np.float64)
        return np.array([row.dot(row)])
    return np.asarray(np.einsum("ij,ij->i", X, X, dtype=np.float64))


def _products(X: Any, vectors: Any) -> np.ndarray:
    if scipy.sparse.issparse(X):
        return np.asarray(X.astype(np.float64).multiply(vectors).sum(axis=1)).reshape(-1)
    return np.asarray(np.einsum("ij,ij->i", X, vectors, dtype=np.float64))


def _with_columns(X: Any, *columns: np.ndarray) -> Any:
    more = np.column_stack(columns).astype(np.float32)
    if scipy.sparse.issparse(X):
        return scipy.sparse.csr_array(scipy.sparse.hstack([X, scipy.sparse.csr_array(more)], format="csr"))
    return np.concatenate([X, more], axis=1)


def blocks(n_rows: int, n_cells_of_each: int) -> list[tuple[int, int]]:
    """Return spans of rows whose vectors are compared together."""
    size = max(1, _CELLS_AT_ONCE // max(1, n_cells_of_each))
    return [(first, min(first + size, n_rows)) for first in range(0, n_rows, size)]

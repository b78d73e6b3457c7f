"""Metrics: conversion of vectors to tree keys, and scores of vectors for queries.

A tree compares directions. For inner products and Euclidean distances, one or two extra features give all keys the same
length (Bachrach et al., 2014; Neyshabur and Srebro, 2015):

- ``inner_product``: ``x`` becomes ``(x, sqrt(m^2 - |x|^2))``, of length ``m``; a query ``q`` becomes ``(q, 0)``.
- ``euclidean``: ``y = x - c`` becomes ``(y, (|y|^2 - m^2 / 2) / m, ...)``, of length ``sqrt(1.25) m``; a query becomes
  ``(q - c, -m / 2, 0)``. The inner product of the two is ``-|q - x|^2 / 2`` plus a constant that depends only on the
  query.

``m`` is a bound on the lengths of vectors, the ``bound`` of a :class:`KeySpace`. Keys only decide where to search:
candidates are ranked by :meth:`KeySpace.scores`, in float64 and from the original vectors. To add a metric, write a
subclass of :class:`KeySpace` and add it to ``METRICS``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse

from ._query_map import QueryMap

_ROOM = 1.25  # ratio of a bound to the longest vector; later vectors are often a little longer
_WITHIN = 0.99  # fraction of the vectors within a new Euclidean bound
_MOST_OUTSIDE = 0.05  # maximum fraction of the vectors outside the ball
_CENTRED = 0.5  # a centre costs precision, so it must reduce the lengths of vectors to this fraction
_DIGITS = 2.0**-22  # relative error of a vector that is computed from its key
_DOUBLE = 2.0**-42  # upper bound on the relative error of float64 products
_CELLS_AT_ONCE = 1 << 22  # maximum number of cells in the arrays of one comparison


class KeySpace(ABC):
    """The space of tree keys for one metric. Instances are immutable.

    Parameters
    ----------
    bound : float
        A bound on the lengths of vectors after subtracting the centre; 0 if there are no vectors or for the cosine.
    centre : ndarray of float32, shape (n_features,), optional
        A point that Euclidean spaces subtract from dense vectors.
    n_outside : int
        The number of added vectors longer than the bound.
    query_map : QueryMap, optional
        The learned map of dense queries. Only the cosine has one.
    """

    metric: ClassVar[str]
    n_more: ClassVar[int] = 0  # number of extra features of keys

    def __init__(
        self,
        bound: float = 0.0,
        centre: np.ndarray | None = None,
        n_outside: int = 0,
        query_map: QueryMap | None = None,
    ) -> None:
        self.bound, self.centre, self.n_outside, self.query_map = bound, centre, n_outside, query_map

    @classmethod
    @abstractmethod
    def fitted(cls, X: Any) -> Self:
        """Return a space whose bound suits these vectors."""

    @abstractmethod
    def admits(self, X: Any, n: int) -> KeySpace | None:
        """Return a space for ``n`` existing vectors and new ones, or None if all keys must be recomputed."""

    @abstractmethod
    def keys(self, X: Any) -> tuple[Any, np.ndarray]:
        """Return the keys of vectors, and the factors that turn unit keys back into vectors."""

    @abstractmethod
    def queries(self, X: Any) -> Any:
        """Return the tree queries for mapped queries."""

    @abstractmethod
    def scores(self, X: Any, V: Any, learned: np.ndarray | float = 0.0) -> np.ndarray:
        """Return the float64 score of each row of ``V`` for the query in the same row of ``X``.

        ``learned`` is the effect of rewards on the products of unit keys and unit queries, times :meth:`factors`.
        """

    @abstractmethod
    def score_bounds(self, X: Any, V: Any, learned: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
        """Return lower and upper bounds on the scores of all vectors for all queries: arrays (len(X), len(V))."""

    @abstractmethod
    def errors(self, X: Any, V: Any) -> np.ndarray:
        """Return the largest error of each score if its vector was computed from its key."""

    @abstractmethod
    def limits(self, X: Any, similarities: np.ndarray, slack: float) -> np.ndarray:
        """Return upper bounds on the scores of keys, given upper bounds on their similarities to tree queries."""

    def length(self) -> float:
        """Return the length of most keys, or 1 if scores do not depend on it."""
        return 1.0

    def factors(self, X: Any) -> np.ndarray:
        """Return the factors that convert products of unit keys and unit queries to the scale of scores."""
        return np.ones(X.shape[0])

    def mapped(self, X: Any) -> Any:
        """Return queries after the learned map, ready to be compared with vectors."""
        return X

    def vectors(self, units: Any, norms: np.ndarray) -> Any:
        """Return the vectors from which unit-length keys were computed, up to rounding.

        Parameters
        ----------
        units : ndarray or csr_array of float32, shape (n, n_features + n_more)
            The keys.
        norms : ndarray of float64, shape (n,)
            The factors that :meth:`keys` returned.
        """
        n_features = units.shape[1] - self.n_more
        with np.errstate(over="ignore"):
            if scipy.sparse.issparse(units):
                cut = units[:, :n_features] if self.n_more > 0 else units
                data = cut.data * np.repeat(norms, np.diff(cut.indptr))
                return scipy.sparse.csr_array((data.astype(np.float32), cut.indices, cut.indptr), cut.shape)
            scaled = units[:, :n_features] * norms[:, None]
            return (scaled if self.centre is None else scaled + self.centre).astype(np.float32)

    def fits(self, norm: float, n: int) -> bool:
        """Return whether ``norm`` can be the smallest factor of ``n`` keys in this space."""
        length = self.length()
        few_inside = n <= self.n_outside
        return self.n_more == 0 or (0.9999 * length < norm and (norm < 1.0001 * length or few_inside))

    def facts(self) -> dict[str, Any]:
        """Return the facts from which :func:`space_of` restores the space."""
        if self.bound == 0.0:
            return {"metric": self.metric}
        centre = None if self.centre is None else self.centre.astype("<f4").tobytes()
        return {"metric": self.metric, "bound": self.bound, "centre": centre, "n_outside": self.n_outside}

    def with_query_map(self, query_map: QueryMap) -> Self:
        """Return the space with a learned map of queries."""
        return type(self)(self.bound, self.centre, self.n_outside, query_map)

    def _scaled(self, X: Any, *columns: np.ndarray) -> Any:
        """Append columns to vectors, and multiply all by the power of 2 that brings the bound near 1."""
        exponent = -math.frexp(self.bound)[1]
        more = np.ldexp(np.column_stack(columns), exponent).astype(np.float32)
        if scipy.sparse.issparse(X):
            scaled = scipy.sparse.csr_array((np.ldexp(X.data, exponent), X.indices, X.indptr), X.shape)
            return scipy.sparse.csr_array(scipy.sparse.hstack([scaled, scipy.sparse.csr_array(more)], format="csr"))
        return np.concatenate([np.ldexp(X, exponent), more], axis=1)

    def _unscaled(self, found: np.ndarray) -> np.ndarray:
        unscaled: np.ndarray = np.ldexp(found, math.frexp(self.bound)[1])
        return unscaled

    def _with_outside(self, n_outside: int) -> Self:
        return type(self)(self.bound, self.centre, n_outside, self.query_map)


class CosineSpace(KeySpace):
    """A space for cosines: keys are the vectors themselves."""

    metric = "cosine"

    @classmethod
    def fitted(cls, X: Any) -> Self:
        """Return the space for cosines, which suits all vectors."""
        return cls()

    def admits(self, X: Any, n: int) -> KeySpace | None:
        """Return this space."""
        return self

    def keys(self, X: Any) -> tuple[Any, np.ndarray]:
        """Return the vectors and their lengths."""
        return X, lengths(X)

    def mapped(self, X: Any) -> Any:
        """Return queries after the learned map, if there is one."""
        return X if self.query_map is None else self.query_map.mapped(X)

    def queries(self, X: Any) -> Any:
        """Return the queries unchanged."""
        return X

    def scores(self, X: Any, V: Any, learned: np.ndarray | float = 0.0) -> np.ndarray:
        """Return cosines."""
        scores: np.ndarray = _products(X, V) / (lengths(X) * lengths(V)) + learned
        return scores

    def score_bounds(self, X: Any, V: Any, learned: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
        """Return bounds on cosines."""
        cosines = _all_products(X, V) / lengths(X)[:, None] / lengths(V) + learned
        return cosines - _DOUBLE, cosines + _DOUBLE

    def errors(self, X: Any, V: Any) -> np.ndarray:
        """Return the maximum errors of cosines."""
        return np.full(V.shape[0], _DIGITS)

    def limits(self, X: Any, similarities: np.ndarray, slack: float) -> np.ndarray:
        """Return the similarities, which are cosines, plus ``slack``."""
        return similarities.astype(np.float64) + slack


class InnerProductSpace(KeySpace):
    """A space for inner products: keys have one extra feature and equal lengths."""

    metric = "inner_product"
    n_more = 1

    @classmethod
    def fitted(cls, X: Any) -> Self:
        """Return a space for vectors up to 1.25 times as long as these."""
        return cls(_bound_for(float(lengths(X).max())))

    def admits(self, X: Any, n: int) -> KeySpace | None:
        """Return this space if no vector is longer than the bound."""
        return self if lengths(X).max() <= self.bound else None

    def length(self) -> float:
        """Return the bound, the length of all keys."""
        return self.bound

    def factors(self, X: Any) -> np.ndarray:
        """Return the products of the lengths of queries and keys."""
        factors: np.ndarray = lengths(X) * self.bound
        return factors

    def keys(self, X: Any) -> tuple[Any, np.ndarray]:
        """Return vectors with an extra feature that makes their lengths equal, and the factors."""
        keys = self._scaled(X, np.sqrt(np.maximum(self.bound**2 - lengths(X) ** 2, 0.0)))
        return keys, self._unscaled(lengths(keys))

    def queries(self, X: Any) -> Any:
        """Return queries with an extra feature of 0."""
        return self._scaled(X, np.zeros(X.shape[0]))

    def scores(self, X: Any, V: Any, learned: np.ndarray | float = 0.0) -> np.ndarray:
        """Return inner products."""
        scores: np.ndarray = _products(X, V) + learned
        return scores

    def score_bounds(self, X: Any, V: Any, learned: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
        """Return bounds on inner products."""
        products = _all_products(X, V) + learned
        errors = _DOUBLE * (np.outer(lengths(X), lengths(V)) + np.abs(learned))
        return products - errors, products + errors

    def errors(self, X: Any, V: Any) -> np.ndarray:
        """Return the maximum errors of inner products."""
        errors: np.ndarray = _DIGITS * lengths(X) * lengths(V)
        return errors

    def limits(self, X: Any, similarities: np.ndarray, slack: float) -> np.ndarray:
        """Return the inner products at these similarities."""
        limits: np.ndarray = (similarities.astype(np.float64) + slack) * self.factors(X)[:, None]
        return limits


class EuclideanSpace(KeySpace):
    """A space for Euclidean distances: keys have two extra features and equal lengths.

    A vector outside the ball around the centre has the key of the nearest point in the ball, so an outlier does not
    affect the keys of other vectors. Moving two points to the nearest points of a ball never increases their distance,
    so distances between keys are lower bounds.
    """

    metric = "euclidean"
    n_more = 2

    @classmethod
    def fitted(cls, X: Any) -> Self:
        """Return a space whose ball contains nearly all of the vectors."""
        centre, found = None, lengths(X)
        if isinstance(X, np.ndarray):
            mean = X.mean(axis=0, dtype=np.float64).astype(np.float32)
            centred = lengths(_difference(X, mean))
            if np.quantile(centred, _WITHIN) < _CENTRED * np.quantile(found, _WITHIN):
                centre, found = mean, centred
        bound = _bound_for(float(np.quantile(found, _WITHIN)))
        return cls(bound, centre, int(np.count_nonzero(found > bound)))

    def admits(self, X: Any, n: int) -> KeySpace | None:
        """Return the space with the new number of vectors outside the ball, or None if there are too many."""
        n_outside = self.n_outside + int(np.count_nonzero(lengths(self._moved(X)) > self.bound))
        if n_outside == self.n_outside:
            return self
        return self._with_outside(n_outside) if n_outside <= _MOST_OUTSIDE * (n + X.shape[0]) else None

    def length(self) -> float:
        """Return the length of keys of vectors inside the ball."""
        return math.sqrt(1.25) * self.bound

    def factors(self, X: Any) -> np.ndarray:
        """Return the products of the lengths of queries and keys."""
        factors: np.ndarray = np.sqrt(lengths(self._inside(X)[0]) ** 2 + self.bound**2 / 4) * self.length()
        return factors

    def keys(self, X: Any) -> tuple[Any, np.ndarray]:
        """Return vectors with two extra features that make their lengths equal, and the factors."""
        inside, shares = self._inside(X)
        squares, bound = lengths(inside) ** 2, self.bound
        first = (squares - bound**2 / 2) / bound
        keys = self._scaled(inside, first, np.sqrt(np.maximum(1.25 * bound**2 - squares - first**2, 0.0)))
        return keys, self._unscaled(lengths(keys)) / shares

    def queries(self, X: Any) -> Any:
        """Return queries with two extra features."""
        inside, _ = self._inside(X)
        zeros = np.zeros(X.shape[0])
        return self._scaled(inside, zeros - self.bound / 2, zeros)

    def scores(self, X: Any, V: Any, learned: np.ndarray | float = 0.0) -> np.ndarray:
        """Return negative distances."""
        if scipy.sparse.issparse(X):
            difference = X.astype(np.float64) - V
            squares = difference.multiply(difference).sum(axis=1)
        else:
            squares = _square_sums(X.astype(np.float64) - V)
        return _distances(squares - 2.0 * learned)

    def score_bounds(self, X: Any, V: Any, learned: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
        """Return bounds on negative distances."""
        sums = lengths(X)[:, None] ** 2 + lengths(V) ** 2
        squares = sums - 2.0 * _all_products(X, V) - 2.0 * learned
        errors = _DOUBLE * (sums + np.abs(learned))
        return _distances(squares + errors), _distances(squares - errors)

    def errors(self, X: Any, V: Any) -> np.ndarray:
        """Return the maximum errors of distances."""
        centre = 0.0 if self.centre is None else float(lengths(self.centre[None])[0])
        found = lengths(self._moved(V))
        return np.where(found < (1.0 - 1e-5) * self.bound, _DIGITS * (found + centre), np.inf)

    def limits(self, X: Any, similarities: np.ndarray, slack: float) -> np.ndarray:
        """Return the negative distances at these similarities."""
        squares = lengths(self._inside(X)[0]) ** 2
        products = (similarities.astype(np.float64) + slack) * self.factors(X)[:, None]
        return _distances(squares[:, None] + self.bound**2 / 2 - 2.0 * products)

    def _moved(self, X: Any) -> Any:
        return X if self.centre is None else _difference(X, self.centre)

    def _inside(self, X: Any) -> tuple[Any, np.ndarray]:
        """Return the nearest points in the ball, relative to its centre, and the factors that shortened the vectors."""
        moved = self._moved(X)
        shares = np.minimum(1.0, self.bound / np.maximum(lengths(moved), np.finfo(np.float64).tiny))
        if np.count_nonzero(shares < 1.0) == 0:
            return moved, shares
        if scipy.sparse.issparse(moved):
            data = moved.data * np.repeat(shares, np.diff(moved.indptr))
            return scipy.sparse.csr_array((data.astype(np.float32), moved.indices, moved.indptr), moved.shape), shares
        return (moved * shares[:, None]).astype(np.float32), shares


METRICS: dict[str, type[KeySpace]] = {space.metric: space for space in (CosineSpace, InnerProductSpace, EuclideanSpace)}
"""The key space of each metric."""


def space_of(facts: dict[str, Any], n_features: int | None) -> KeySpace:
    """Return the space that the facts of a store describe.

    ``n_features`` is the width of tree keys, None if the tree is empty.

    Raises
    ------
    ValueError
        If the facts are invalid.
    """
    metric, bound, centre, n_outside = (facts.get(name) for name in ("metric", "bound", "centre", "n_outside"))
    if metric not in METRICS:
        raise ValueError(f"its metric {metric!r:.50} is unknown")
    space = METRICS[metric]
    if space.n_more == 0:
        if bound is not None or centre is not None:
            raise ValueError(f"the store has a bound or a centre, which the metric {metric!r} does not use")
        learned = facts.get("query_map")
        return space(query_map=None if learned is None else QueryMap.read(learned, n_features))
    if bound is None:
        if n_features is not None or centre is not None:
            raise ValueError("the store has vectors but no bound on their lengths")
        return space()
    if not isinstance(bound, float) or not 0.0 < bound < np.inf or not isinstance(centre, bytes | None):
        raise ValueError("the store has no valid bound or centre")
    if not isinstance(n_outside, int | None) or (n_outside or 0) < 0:
        raise ValueError(f"the store's number of vectors beyond its bound is invalid: {n_outside!r:.50}")
    if centre is not None:
        if metric != EuclideanSpace.metric or n_features is None or len(centre) != 4 * (n_features - space.n_more):
            raise ValueError("the centre of the store does not match its metric and its vectors")
        centre = np.frombuffer(centre, "<f4").astype(np.float32)
        if not np.isfinite(centre).all():
            raise ValueError("the centre of the store is not finite")
    if n_features is not None and n_features <= space.n_more:
        raise ValueError(f"the vectors of the store do not match its metric {metric!r}")
    return space(bound, centre, n_outside or 0)


def as_rows(X: Any) -> Any:
    """Return a one-dimensional array or list as a single row, and anything else unchanged."""
    if isinstance(X, np.ndarray):
        return X[None] if X.ndim == 1 else X
    is_vector = isinstance(X, list | tuple) and len(X) > 0 and isinstance(X[0], int | float | np.number)
    return [X] if is_vector else X


def lengths(X: Any) -> np.ndarray:
    """Return the Euclidean length of each row as float64."""
    if isinstance(X, np.ndarray):
        squares = _square_sums(X)
    else:
        row = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
        squares = np.bincount(row, np.square(X.data.astype(np.float64)), X.shape[0])
    norms: np.ndarray = np.sqrt(squares)
    return norms


def check_lengths(X: Any, metric: str) -> np.ndarray:
    """Return the lengths of vectors. Raise ValueError if a row is not finite or, for the cosine, zero."""
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
    """Raise ValueError unless every row has a direction."""
    if not are_there.all():
        row = int(np.flatnonzero(~are_there)[0])
        why = "has no cosine; remove the row, or use another metric"
        raise ValueError(f"X must have no rows of zeros: row {row} {why}")


def blocks(n_rows: int, n_cells_of_each: int) -> list[tuple[int, int]]:
    """Return spans of rows with a limited number of cells each."""
    size = max(1, _CELLS_AT_ONCE // max(1, n_cells_of_each))
    return [(first, min(first + size, n_rows)) for first in range(0, n_rows, size)]


def _bound_for(length: float) -> float:
    """Return a bound that also covers slightly longer vectors."""
    return _ROOM * length if length > 0.0 else float(np.finfo(np.float32).tiny)


def _difference(X: np.ndarray, centre: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        difference: np.ndarray = np.clip(X - centre, -np.finfo(np.float32).max, np.finfo(np.float32).max)
    return difference


def _distances(squares: np.ndarray) -> np.ndarray:
    """Return negative square roots. If rewards have made a square negative, the score is positive."""
    scores: np.ndarray = -np.sign(squares) * np.sqrt(np.abs(squares))
    return scores


def _square_sums(X: np.ndarray) -> np.ndarray:
    return np.asarray(np.einsum("ij,ij->i", X, X, dtype=np.float64))


def _products(X: Any, V: Any) -> np.ndarray:
    """Return the inner product of each row of ``X`` with the same row of ``V``."""
    if scipy.sparse.issparse(X):
        return np.asarray(X.astype(np.float64).multiply(V).sum(axis=1)).reshape(-1)
    return np.asarray(np.einsum("ij,ij->i", X, V, dtype=np.float64))


def _all_products(X: Any, V: Any) -> np.ndarray:
    """Return the inner products of each row of ``X`` with each row of ``V``."""
    products = X.astype(np.float64) @ V.astype(np.float64).T
    return np.asarray(products.toarray() if scipy.sparse.issparse(products) else products)

"""Values of memories: vectors, or objects of any type."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from sklearn.preprocessing import normalize
from sklearn.utils.extmath import randomized_svd

from .._kernels import GrowingColumns
from .._validation import unmasked
from ._labels import are_kept, exactly


def as_values(y: Any, n_rows: int, *, objects: bool = False) -> Any:
    """Convert ``n_rows`` values to a matrix if they are vectors and not ``objects``, else to an array of objects."""
    unmasked("y", y)
    values = scipy.sparse.csr_array(y) if scipy.sparse.issparse(y) else _as_array(y, objects)
    if values.shape[:1] != (n_rows,):
        n_values = values.shape[0] if values.ndim else 1
        raise ValueError(f"y must have one entry for each of the {n_rows} rows of X, got {n_values}")
    if values.ndim == 2 and not np.all(np.isfinite(values.data if scipy.sparse.issparse(values) else values)):
        raise ValueError("y must be finite, but contains NaN or infinity")
    return values


def _as_array(y: Any, objects: bool) -> np.ndarray:
    try:
        values = np.asarray(y)
    except ValueError:
        values = None  # sequences of different lengths
    if values is not None and not hasattr(y, "dtype") and not are_kept(y, values):
        values = None  # the conversion changes values, such as numbers in a list with strings
    if values is not None and (values.ndim == 1 or (values.ndim == 2 and values.dtype.kind in "fiub" and not objects)):
        return values
    if not isinstance(y, Sequence | np.ndarray):
        raise ValueError(f"y must be a matrix of numbers or a sequence of objects, got {type(y).__name__}")
    kept = np.empty(len(y), object)
    for i, value in enumerate(y):  # NumPy would turn sequences of equal length into a matrix
        kept[i] = value
    return kept


class ValueStore:
    """An immutable store of values, indexed by position."""

    def __init__(self, values: Any) -> None:
        self._dense = None if scipy.sparse.issparse(values) else GrowingColumns(values)
        self._sparse = [values] if self._dense is None else []  # joined when they are first read
        self.n_values = int(values.shape[0])

    @property
    def _some(self) -> Any:
        """A sample of the values, with the dtype and width of all values."""
        return self._sparse[0] if self._dense is None else self._dense.columns[0]

    @property
    def are_vectors(self) -> bool:
        return bool(self._some.ndim == 2)

    def accept(self, y: Any, n_rows: int) -> Any:
        """Check ``n_rows`` additional values, and return them like :func:`as_values`."""
        more = as_values(y, n_rows, objects=not self.are_vectors and not hasattr(y, "ndim"))
        if self._some.ndim != more.ndim or self._some.shape[1:] != more.shape[1:]:
            known = f"vectors of {self.width} numbers" if self.are_vectors else "objects"
            raise ValueError(f"y must contain {known} like the stored values, got an array of shape {more.shape}")
        return more

    def with_more(self, more: Any) -> ValueStore:
        """Return a store with additional values at the next positions. It may share memory with this store."""
        store = copy.copy(self)
        store.n_values += more.shape[0]
        if self._dense is None:
            store._sparse = [*self._sparse, scipy.sparse.csr_array(more)]
            return store
        values, more = self._in_one_type(more.toarray() if scipy.sparse.issparse(more) else more)
        dense = self._dense if values is self._some else GrowingColumns(values)
        store._dense = dense.appended(more)
        return store

    def _in_one_type(self, more: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Convert stored and new values to one type: objects if no other type represents all values exactly."""
        values: np.ndarray = self._some
        if values.dtype == more.dtype:
            return values, more
        if self.are_vectors:
            dtype = np.result_type(values, more)
        else:
            of_one_kind = values.dtype.kind == more.dtype.kind or {values.dtype.kind, more.dtype.kind} <= set("iuf")
            converted = exactly(values, more) if of_one_kind else None
            dtype = np.dtype(object) if converted is None else converted[0].dtype
        return values.astype(dtype, copy=False), more.astype(dtype, copy=False)

    @property
    def width(self) -> int:
        return int(self._some.shape[1])

    def all(self) -> Any:
        """Return all values: an array, or a sparse matrix."""
        parts = self._sparse
        if len(parts) > 1:  # thread-safe: all threads compute the same result
            self._sparse = [scipy.sparse.csr_array(scipy.sparse.vstack(parts))]
        return self._some

    def take(self, places: np.ndarray) -> Any:
        """Return the values at ``places``: an array, or a sparse matrix."""
        return self.all()[places]


def cosines(values: Any, others: Any) -> np.ndarray:
    """Return the cosine of each pair of rows, or 0 if it is negative: float64, shape (n,)."""
    left, right = normalize(_as_floats(values)), normalize(_as_floats(others))
    products = left.multiply(right) if scipy.sparse.issparse(left) else left * right
    return np.clip(np.asarray(products.sum(axis=1), np.float64).ravel(), 0.0, 1.0)


def equalities(values: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return 1 for each pair of equal values, otherwise 0: float64, shape (n,)."""
    return np.array([bool(one == other) for one, other in zip(values, others, strict=True)], np.float64)


def _as_floats(values: Any) -> Any:
    return values.astype(np.float64 if values.dtype == np.float64 else np.float32)


_VALUES_LOOKED_AT = 5000  # sample size for a basis


class Components(NamedTuple):
    """A subspace of the values, and the projection onto it."""

    basis: np.ndarray | None  # float32 (width, n_components), orthonormal; None for the identity
    n_components: int

    @classmethod
    def of(cls, values: Any, n_components: int, seed: int) -> Components:
        """Return the leading singular vectors of up to 5,000 values and, if they are too few, random vectors.

        At most as many vectors as the values' width are used.
        """
        width = values.shape[1]
        if width <= n_components:
            return cls(None, width)
        generator = np.random.default_rng(seed)
        if values.shape[0] > _VALUES_LOOKED_AT:
            values = values[generator.choice(values.shape[0], _VALUES_LOOKED_AT, replace=False)]
        n_known = min(n_components, max(1, min(values.shape) - 1))
        _, _, vectors = randomized_svd(normalize(_as_floats(values)), n_known, random_state=seed)
        others = generator.normal(size=(width, n_components - n_known))
        return cls(np.linalg.qr(np.hstack([vectors.T, others]))[0].astype(np.float32), n_components)

    def reduced(self, values: Any) -> np.ndarray:
        """Return the components of values scaled to length 1: float32, shape (n, n_components + 1)."""
        unit = normalize(_as_floats(values))
        parts = unit if self.basis is None else unit @ self.basis
        parts = np.asarray(parts.toarray() if scipy.sparse.issparse(parts) else parts, np.float32)
        rest = np.sqrt(np.maximum(0.0, 1.0 - np.sum(parts * parts, axis=1, keepdims=True)))
        return np.hstack([parts, rest.astype(np.float32)])

"""What memories stand for: vectors, or objects of any kind."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.preprocessing import normalize
from sklearn.utils.extmath import randomized_svd

from ._growth import resized
from ._validation import unmasked


def as_values(y: Any, n_rows: int, *, objects: bool = False) -> Any:
    """Return values, one for each of ``n_rows`` rows: a matrix if they are vectors, else an array of objects.

    With ``objects`` sequences of one length are not taken for vectors.

    Raises
    ------
    ValueError
        If they are not one for each row, or vectors that are not finite.
    """
    unmasked("y", y)
    values = scipy.sparse.csr_array(y) if scipy.sparse.issparse(y) else _as_array(y, objects)
    if values.shape[:1] != (n_rows,):
        n_values = values.shape[0] if values.ndim else 1
        raise ValueError(f"y must hold one value for each of the {n_rows} rows of X, not {n_values}")
    if values.ndim == 2 and not np.all(np.isfinite(values.data if scipy.sparse.issparse(values) else values)):
        raise ValueError("y must be finite: it holds NaN or infinity")
    return values


def _as_array(y: Any, objects: bool) -> np.ndarray:
    try:
        values = np.asarray(y)
    except ValueError:
        values = None  # sequences of several lengths
    if values is not None and (values.ndim == 1 or (values.ndim == 2 and values.dtype.kind in "fiub" and not objects)):
        return values
    if not isinstance(y, Sequence | np.ndarray):
        raise ValueError(f"y must be a matrix of numbers or a sequence of objects, not {type(y).__name__}")
    kept = np.empty(len(y), object)
    for i, value in enumerate(y):  # an assignment at once would take sequences of one length for a matrix
        kept[i] = value
    return kept


class ValueStore:
    """The values of memories, by memory id.

    Parameters
    ----------
    values : ndarray or sparse matrix
        Those of the first memories.
    """

    def __init__(self, values: Any) -> None:
        self._parts = [values]  # sparse vectors that came later are not joined yet
        self.n_values = values.shape[0]

    def __getstate__(self) -> dict[str, Any]:
        return {"values": self.all()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        ValueStore.__init__(self, state["values"])

    @property
    def are_vectors(self) -> bool:
        """Whether values are vectors."""
        return bool(self._parts[0].ndim == 2)

    def accept(self, y: Any, n_rows: int) -> Any:
        """Return further values, one for each of ``n_rows`` rows, as :func:`as_values` does.

        Raises
        ------
        ValueError
            If they are not of the same kind and width.
        """
        more = as_values(y, n_rows, objects=not self.are_vectors and not hasattr(y, "ndim"))
        if self._parts[0].ndim != more.ndim or self._parts[0].shape[1:] != more.shape[1:]:
            known = f"vectors of {self.width} numbers" if self.are_vectors else "objects"
            raise ValueError(f"y must hold {known} like the values before, not an array of shape {more.shape}")
        return more

    def append(self, more: Any) -> None:
        """Store the values of the memories that come next."""
        needed = self.n_values + more.shape[0]
        if scipy.sparse.issparse(self._parts[0]):
            self._parts.append(scipy.sparse.csr_array(more))
        else:
            more = self._made_room_for(more)
            values = self._parts[0]
            if needed > values.shape[0]:
                values = resized(values, max(needed, 2 * self.n_values), 0)
            values[self.n_values : needed] = more
            self._parts = [values]
        self.n_values = needed

    def replace(self, ids: np.ndarray, values: Any) -> None:
        """Store other values for some memories."""
        if scipy.sparse.issparse(self._parts[0]):
            rows = np.arange(self.n_values)
            rows[ids] = self.n_values + np.arange(ids.size)
            both = scipy.sparse.vstack([self.all(), scipy.sparse.csr_array(values)])
            self._parts = [scipy.sparse.csr_array(both)[rows]]
        else:
            values = self._made_room_for(values)
            self._parts[0][ids] = values

    def _made_room_for(self, more: Any) -> np.ndarray:
        """Return values as they are stored here, where there is room for what they hold now."""
        values: np.ndarray = more.toarray() if scipy.sparse.issparse(more) else more
        dtype = np.result_type(self._parts[0], values)
        if dtype != self._parts[0].dtype:  # longer strings, for example
            self._parts = [self._parts[0].astype(dtype)]
        return values

    @property
    def width(self) -> int:
        """Numbers in a value that is a vector."""
        return int(self._parts[0].shape[1])

    def all(self) -> Any:
        """Return all values: an array, or a sparse matrix."""
        parts = self._parts
        if len(parts) > 1:  # several threads may do this at once, and to the same end
            parts = self._parts = [scipy.sparse.csr_array(scipy.sparse.vstack(parts))]
        return parts[0][: self.n_values]

    def take(self, ids: np.ndarray) -> Any:
        """Return the values of memories: an array, or a sparse matrix."""
        return self.all()[ids]


def cosines(values: Any, others: Any) -> np.ndarray:
    """Return the cosine of each value with the other one of its row, 0 where it is negative: float64, shape (n,)."""
    left, right = normalize(_as_floats(values)), normalize(_as_floats(others))
    products = left.multiply(right) if scipy.sparse.issparse(left) else left * right
    return np.clip(np.asarray(products.sum(axis=1), np.float64).ravel(), 0.0, 1.0)


def equalities(values: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return 1 for each value that equals the other one of its row, else 0: float64, shape (n,)."""
    return np.array([bool(one == other) for one, other in zip(values, others, strict=True)], np.float64)


def _as_floats(values: Any) -> Any:
    return values.astype(np.float64 if values.dtype == np.float64 else np.float32)


_VALUES_LOOKED_AT = 5000  # for a basis


class Components:
    """An orthonormal basis of the space that values lie in, and values in its terms.

    Values are scaled to length 1. What the components leave out of a value is kept as one number more, so that the
    result is of length 1 again.

    Parameters
    ----------
    values : ndarray or sparse matrix, shape (n, width)
        The basis is made of the first singular vectors of some thousands of them, drawn at random, and of random
        vectors where these are too few.
    n_components : int
        Vectors wanted; as many as ``width`` at most.
    seed : int
        Of everything random.
    """

    def __init__(self, values: Any, n_components: int, seed: int) -> None:
        width = values.shape[1]
        self.basis: np.ndarray | None = None  # of all space
        self.n_components = min(width, n_components)
        if width > n_components:
            generator = np.random.default_rng(seed)
            if values.shape[0] > _VALUES_LOOKED_AT:
                values = values[generator.choice(values.shape[0], _VALUES_LOOKED_AT, replace=False)]
            n_known = min(n_components, max(1, min(values.shape) - 1))
            _, _, vectors = randomized_svd(normalize(_as_floats(values)), n_known, random_state=seed)
            others = generator.normal(size=(width, n_components - n_known))
            self.basis = np.linalg.qr(np.hstack([vectors.T, others]))[0].astype(np.float32)

    @classmethod
    def of(cls, basis: np.ndarray | None, n_components: int) -> Components:
        """Return values' components in terms of a basis that there is already: float32, (width, n_components)."""
        components = cls.__new__(cls)
        components.basis, components.n_components = basis, n_components
        return components

    def reduced(self, values: Any) -> np.ndarray:
        """Return values of length 1 in terms of the basis: float32, shape (n, n_components + 1)."""
        unit = normalize(_as_floats(values))
        parts = unit if self.basis is None else unit @ self.basis
        parts = np.asarray(parts.toarray() if scipy.sparse.issparse(parts) else parts, np.float32)
        rest = np.sqrt(np.maximum(0.0, 1.0 - np.sum(parts * parts, axis=1, keepdims=True)))
        return np.hstack([parts, rest.astype(np.float32)])


_DIGEST_SIZE = 16  # bytes


class DistinctVectors:
    """Numbers for vectors, the same for equal ones."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self._digests: dict[int, bytes] = {}

    @classmethod
    def of(cls, numbers: np.ndarray, digests: np.ndarray) -> DistinctVectors:
        """Return what :meth:`as_arrays` has taken apart.

        Raises
        ------
        ValueError
            If two vectors have one number, or one vector has two.
        """
        if digests.shape != (numbers.size, _DIGEST_SIZE):
            raise ValueError(f"vectors must have digests of {_DIGEST_SIZE} bytes each")
        distinct = cls()
        distinct._digests = dict(zip(numbers.tolist(), map(bytes, digests), strict=True))
        distinct._numbers = {digest: number for number, digest in distinct._digests.items()}
        if len(distinct._numbers) < numbers.size:
            raise ValueError("vectors must be distinct, and have distinct numbers")
        return distinct

    def as_arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the numbers of all vectors, int64 (n,), and what tells vectors apart, uint8 (n, 16)."""
        numbers = np.array(list(self._digests), np.int64)
        digests = np.frombuffer(b"".join(self._digests.values()), np.uint8).reshape(-1, _DIGEST_SIZE)
        return numbers, digests

    def number(self, vectors: np.ndarray, first: int) -> np.ndarray:
        """Return the numbers of vectors, which for new ones are those from ``first`` on: int64, shape (n,)."""
        numbers = np.empty(len(vectors), np.int64)
        for i, vector in enumerate(vectors):
            digest = blake2b(vector.tobytes(), digest_size=_DIGEST_SIZE).digest()
            if digest not in self._numbers:
                self._numbers[digest], self._digests[first] = first, digest
                first += 1
            numbers[i] = self._numbers[digest]
        return numbers

    def forget(self, numbers: np.ndarray) -> None:
        """Let vectors be new when they come again."""
        for number in numbers:
            del self._numbers[self._digests.pop(int(number))]

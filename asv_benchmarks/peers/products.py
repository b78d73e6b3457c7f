"""Exact search by a product of two matrices, with BLAS or with scipy."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import scipy.sparse

from .contract import Peer

_BLOCK = 256


class _Product(Peer):
    exact: ClassVar[bool] = True

    def ask(self, queries: Any, k: int) -> np.ndarray:
        k = min(k, self.shape.n_rows)
        blocks = range(0, queries.shape[0], _BLOCK)
        return np.concatenate([_highest(self._similar(queries[i : i + _BLOCK]), k) for i in blocks])

    def _similar(self, queries: Any) -> np.ndarray:
        raise NotImplementedError


class DenseProduct(_Product):
    """A product of dense matrices by BLAS."""

    name = "numpy product"
    package = "numpy"

    def build(self, **options: Any) -> None:
        self._columns = self.X.T  # BLAS reads either order

    def _similar(self, queries: Any) -> np.ndarray:
        return queries @ self._columns


class SparseProduct(_Product):
    """A product of sparse matrices by scipy."""

    name = "scipy product"
    package = "scipy"
    dense = False
    sparse = True

    def build(self, **options: Any) -> None:
        self._columns = scipy.sparse.csr_matrix(self.X.T)

    def _similar(self, queries: Any) -> np.ndarray:
        return (queries @ self._columns).toarray()


def _highest(similar: np.ndarray, k: int) -> np.ndarray:
    """Return the places of the ``k`` highest values of each row, the highest first."""
    if k == 1:
        return similar.argmax(axis=1)[:, None]
    places = np.argpartition(similar, similar.shape[1] - k, axis=1)[:, -k:]
    order = np.argsort(-np.take_along_axis(similar, places, axis=1), axis=1, kind="stable")
    return np.take_along_axis(places, order, axis=1)

"""What a memory is worth to a query: the rewards of the paper's three applications, for ``ContextualMemoryTree.learn``.

Each is made from what is known of the memories and of the rows to learn from, and is called with the positions of some
rows and with the ids of the memories that were retrieved for them. A function of your own that takes and returns the
same will do as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ._forest.rows import Rows
from ._forest.state import NONE
from ._jit import kernel
from ._validation import check_rows, unmasked

Reward = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Takes positions of rows, int64 (n,), and ids, int64 (n, k), -1 for none; returns rewards in [0, 1], (n, k)."""


class LabelEquality:
    """1 where a memory has the row's label, else 0: classification (section 4.1 of the paper).

    Parameters
    ----------
    of_memories : array-like, shape (n_ids,)
        Labels of any type, that of memory ``id`` at place ``id``.
    of_rows : array-like, shape (n_rows,)
        Labels of the rows to learn from.

    Raises
    ------
    ValueError
        If either has not one dimension.
    """

    def __init__(self, of_memories: Any, of_rows: Any) -> None:
        self.of_memories = np.asarray(unmasked("of_memories", of_memories))
        self.of_rows = np.asarray(unmasked("of_rows", of_rows))
        if self.of_memories.ndim != 1 or self.of_rows.ndim != 1:
            raise ValueError("of_memories and of_rows must have one dimension: a label for each memory and each row")

    def __call__(self, rows: np.ndarray, ids: np.ndarray) -> np.ndarray:
        """Return the rewards of the memories ``ids``, shape (n, k), for the rows at these positions, shape (n,)."""
        _check_reach(rows, ids, self.of_rows.shape[0], self.of_memories.shape[0])
        equal = self.of_memories[ids] == self.of_rows[rows][:, None]
        return np.where(ids == NONE, 0.0, equal)


class LabelF1:
    """The F1 score of a memory's set of labels against the row's: multi-label classification (section 4.2).

    Parameters
    ----------
    of_memories : array-like or sparse matrix, shape (n_ids, n_labels)
        Not 0 where a memory has a label.
    of_rows : array-like or sparse matrix, shape (n_rows, n_labels)
        Not 0 where a row to learn from has a label.

    Raises
    ------
    TypeError, ValueError
        If these are not two matrices of numbers of one width.
    """

    def __init__(self, of_memories: Any, of_rows: Any) -> None:
        self.of_memories = _indicators("of_memories", of_memories)
        self.of_rows = _indicators("of_rows", of_rows)
        _check_widths(self.of_memories, self.of_rows)

    def __call__(self, rows: np.ndarray, ids: np.ndarray) -> np.ndarray:
        """Return the rewards of the memories ``ids``, shape (n, k), for the rows at these positions, shape (n,)."""
        n_common = _products(self.of_memories, self.of_rows, rows, ids)
        n_labels = np.diff(self.of_memories.offsets)[ids] + np.diff(self.of_rows.offsets)[rows][:, None]
        scores = np.where(n_labels > 0, 2.0 * n_common / np.maximum(n_labels, 1), 1.0)  # two empty sets are equal
        return np.where(ids == NONE, 0.0, scores)


class ValueCosine:
    """The cosine of a memory's value and the row's, 0 where it is negative: retrieval (section 4.3).

    Parameters
    ----------
    of_memories : array-like or sparse matrix, shape (n_ids, n_values)
        The value of each memory, a vector.
    of_rows : array-like or sparse matrix, shape (n_rows, n_values)
        The value of each row to learn from.

    Raises
    ------
    TypeError, ValueError
        If these are not two matrices of finite numbers of one width.
    """

    def __init__(self, of_memories: Any, of_rows: Any) -> None:
        self.of_memories = _vectors("of_memories", of_memories, sparse=None)
        self.of_rows = _vectors("of_rows", of_rows, sparse=self.of_memories.sparse)
        _check_widths(self.of_memories, self.of_rows)

    def __call__(self, rows: np.ndarray, ids: np.ndarray) -> np.ndarray:
        """Return the rewards of the memories ``ids``, shape (n, k), for the rows at these positions, shape (n,)."""
        return np.clip(_products(self.of_memories, self.of_rows, rows, ids), 0.0, 1.0)


def _vectors(name: str, vectors: Any, sparse: bool | None) -> Rows:
    """Return vectors as unit rows, those of sparse ones sorted."""
    try:
        return check_rows(vectors, sparse=sparse)
    except (TypeError, ValueError) as error:
        raise type(error)(str(error).replace("X", name, 1)) from error


def _indicators(name: str, labels: Any) -> Rows:
    """Return sets of labels as sparse rows of ones."""
    rows = _vectors(name, labels, sparse=True)
    return rows._replace(values=np.ones_like(rows.values))


def _check_widths(of_memories: Rows, of_rows: Rows) -> None:
    if of_memories.n_features != of_rows.n_features:
        raise ValueError(
            f"of_memories and of_rows must be of one width, not {of_memories.n_features} and {of_rows.n_features}"
        )


def _check_reach(rows: np.ndarray, ids: np.ndarray, n_rows: int, n_ids: int) -> None:
    if rows.size and rows.max() >= n_rows:
        raise ValueError(f"of_rows must have an entry for row {rows.max()}, but has {n_rows}")
    if ids.size and ids.max() >= n_ids:
        raise ValueError(f"of_memories must have an entry for the memory of id {ids.max()}, but has {n_ids}")


def _products(of_memories: Rows, of_rows: Rows, rows: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Return the dot products of what the memories and the rows have, 0 where there is no memory."""
    _check_reach(rows, ids, of_rows.n_rows, of_memories.n_rows)
    products = np.zeros(ids.shape, np.float32)
    multiply_rows(of_memories, of_rows, rows, ids, products)
    return products


@kernel
def multiply_rows(of_memories, of_rows, rows, ids, products):
    """Write the dot products of pairs of rows, dense or sorted and sparse."""
    for i in range(rows.size):
        a, b = of_rows.offsets[rows[i]], of_rows.offsets[rows[i] + 1]
        for j in range(ids.shape[1]):
            if ids[i, j] == NONE:
                continue
            c, d = of_memories.offsets[ids[i, j]], of_memories.offsets[ids[i, j] + 1]
            total = np.float32(0.0)
            if of_rows.sparse:
                left, right = a, c
                while left < b and right < d:
                    difference = np.int64(of_rows.indices[left]) - np.int64(of_memories.indices[right])
                    if difference == 0:
                        total += of_rows.values[left] * of_memories.values[right]
                    left += difference <= 0
                    right += difference >= 0
            else:
                for k in range(b - a):
                    total += of_rows.values[a + k] * of_memories.values[c + k]
            products[i, j] = total

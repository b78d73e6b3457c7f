"""Rewards of the paper's three applications, for ``ContextualMemoryTree.learn``.

A reward object holds the labels or values of all memories and training rows. Call it with row positions and memory ids
to compute rewards. Any function with the same signature can be used instead.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from ._jit import kernel
from ._kernels import NONE, Rows
from ._validation import check_rows, label_array

Reward = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""A function from row positions, int64 (n,), and ids padded with -1, int64 (n, k), to rewards, shape (n, k)."""


class LabelEquality:
    """Reward for classification: 1 if memory and row have the same label, else 0 (section 4.1 of the paper).

    Parameters
    ----------
    of_memories : array-like, shape (n_ids,)
        The label of each memory, of any type, indexed by id.
    of_rows : array-like, shape (n_rows,)
        The label of each training row.
    """

    def __init__(self, of_memories: Any, of_rows: Any) -> None:
        self.of_memories = label_array("of_memories", of_memories)
        self.of_rows = label_array("of_rows", of_rows)
        if self.of_memories.ndim != 1 or self.of_rows.ndim != 1:
            raise ValueError("of_memories and of_rows must be one-dimensional, with one label for each memory or row")

    def __call__(self, rows: np.ndarray, ids: np.ndarray) -> np.ndarray:
        """Return the reward of each memory ``ids[i, j]`` for row ``rows[i]``, shape (n, k)."""
        _check_reach(rows, ids, self.of_rows.shape[0], self.of_memories.shape[0])
        equal = self.of_memories[ids] == self.of_rows[rows][:, None]
        return np.where(ids == NONE, 0.0, equal)


class LabelF1:
    """Reward for multi-label classification: F1 of the label sets of memory and row (section 4.2 of the paper).

    Parameters
    ----------
    of_memories : array-like or sparse matrix, shape (n_ids, n_labels)
        Indicator matrix of the memories' labels, indexed by id. Nonzero entries are labels.
    of_rows : array-like or sparse matrix, shape (n_rows, n_labels)
        Indicator matrix of the training rows' labels.
    """

    def __init__(self, of_memories: Any, of_rows: Any) -> None:
        self.of_memories = _indicators("of_memories", of_memories)
        self.of_rows = _indicators("of_rows", of_rows)
        _check_widths(self.of_memories, self.of_rows)

    def __call__(self, rows: np.ndarray, ids: np.ndarray) -> np.ndarray:
        """Return the reward of each memory ``ids[i, j]`` for row ``rows[i]``, shape (n, k)."""
        n_common = _products(self.of_memories, self.of_rows, rows, ids)
        n_labels = np.diff(self.of_memories.offsets)[ids] + np.diff(self.of_rows.offsets)[rows][:, None]
        scores = np.where(n_labels > 0, 2.0 * n_common / np.maximum(n_labels, 1), 1.0)  # two empty sets are equal
        return np.where(ids == NONE, 0.0, scores)


class ValueCosine:
    """Reward for retrieval: cosine similarity of the memory's and the row's value (section 4.3 of the paper).

    Negative similarities have a reward of 0.

    Parameters
    ----------
    of_memories : array-like or sparse matrix, shape (n_ids, n_values)
        The value of each memory, indexed by id.
    of_rows : array-like or sparse matrix, shape (n_rows, n_values)
        The value of each training row.
    """

    def __init__(self, of_memories: Any, of_rows: Any) -> None:
        self.of_memories = _vectors("of_memories", of_memories, sparse=None)
        self.of_rows = _vectors("of_rows", of_rows, sparse=self.of_memories.sparse)
        _check_widths(self.of_memories, self.of_rows)

    def __call__(self, rows: np.ndarray, ids: np.ndarray) -> np.ndarray:
        """Return the reward of each memory ``ids[i, j]`` for row ``rows[i]``, shape (n, k)."""
        return np.clip(_products(self.of_memories, self.of_rows, rows, ids), 0.0, 1.0)


def _vectors(name: str, vectors: Any, sparse: bool | None) -> Rows:
    """Convert vectors to unit-length rows, with sorted indices if they are sparse."""
    try:
        return check_rows(vectors, sparse=sparse)
    except (TypeError, ValueError) as error:
        raise type(error)(str(error).replace("X", name, 1)) from error


def _indicators(name: str, labels: Any) -> Rows:
    rows = _vectors(name, labels, sparse=True)
    return rows._replace(values=np.ones_like(rows.values))


def _check_widths(of_memories: Rows, of_rows: Rows) -> None:
    if of_memories.n_features != of_rows.n_features:
        raise ValueError(
            f"of_memories and of_rows must have the same number of columns, got {of_memories.n_features} and "
            f"{of_rows.n_features}"
        )


def _check_reach(rows: np.ndarray, ids: np.ndarray, n_rows: int, n_ids: int) -> None:
    if rows.size and rows.min() < 0:
        raise ValueError(f"rows must not be negative, got {rows.min()}")
    if ids.size and ids.min() < NONE:
        raise ValueError(f"ids must be ids of memories, or {NONE} for no memory, got {ids.min()}")
    if rows.size and rows.max() >= n_rows:
        raise ValueError(f"of_rows must have an entry for row {rows.max()}, but has only {n_rows} entries")
    if ids.size and ids.max() >= n_ids:
        raise ValueError(f"of_memories must have an entry for the memory {ids.max()}, but has {n_ids} entries")


def _products(of_memories: Rows, of_rows: Rows, rows: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Return the dot product of row ``rows[i]`` and memory ``ids[i, j]``, shape (n, k), or 0 where the id is -1."""
    _check_reach(rows, ids, of_rows.n_rows, of_memories.n_rows)
    products = np.zeros(ids.shape, np.float32)
    multiply_rows(of_memories, of_rows, rows, ids, products)
    return products


@kernel
def multiply_rows(of_memories, of_rows, rows, ids, products):
    """Write the dot product of row ``rows[i]`` and memory ``ids[i, j]`` to ``products[i, j]``, unless the id is -1."""
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

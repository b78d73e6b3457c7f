"""A set of labelled rows and queries as all peers get it, and the true neighbours to judge their answers by."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from .contract import NONE, Shape

RECALL_AT = (1, 10)

_BLOCK = 256  # queries compared with all rows at a time
_ROUNDING = 1e-5  # two cosines that differ by less are equal


class Task(NamedTuple):
    """Rows of unit length with labels 0, 1, 2, ..., and queries with the right answers, -1 where no row has it."""

    X: Any
    y: np.ndarray
    queries: Any
    answers: np.ndarray

    @property
    def shape(self) -> Shape:
        """What peers know when they name their settings."""
        n_rows, n_features = self.X.shape
        return Shape(n_rows, n_features, int(self.y.max()) + 1, scipy.sparse.issparse(self.X))


def make_task(X: Any, y: np.ndarray, queries: Any, answers: np.ndarray, most_queries: int | None = None) -> Task:
    """Return a task, with numbers for labels, float32 rows, and the queries in random order."""
    classes, codes = np.unique(y, return_inverse=True)
    places = np.searchsorted(classes, answers).clip(max=classes.size - 1)
    right = np.where(classes[places] == answers, places, NONE)
    order = np.random.default_rng(0).permutation(right.size)[:most_queries]
    return Task(_as_rows(X), codes.astype(np.int64), _as_rows(queries[order]), right[order].astype(np.int64))


def _as_rows(X: Any) -> Any:
    if not scipy.sparse.issparse(X):
        return np.ascontiguousarray(X, np.float32)
    rows = scipy.sparse.csr_matrix(X, dtype=np.float32)  # of its index type all peers can read
    rows.sort_indices()
    return rows


def save_task(task: Task, folder: Path) -> None:
    """Write a task to a folder."""
    np.savez(folder / "labels.npz", y=task.y, answers=task.answers)
    for name, rows in (("X", task.X), ("queries", task.queries)):
        if scipy.sparse.issparse(rows):
            scipy.sparse.save_npz(folder / f"{name}.npz", rows, compressed=False)
        else:
            np.save(folder / f"{name}.npy", rows)


def load_task(folder: Path) -> Task:
    """Return the task in a folder."""

    def rows(name: str) -> Any:
        dense = folder / f"{name}.npy"
        return np.load(dense) if dense.exists() else scipy.sparse.load_npz(folder / f"{name}.npz")

    labels = np.load(folder / "labels.npz")
    return Task(rows("X"), labels["y"], rows("queries"), labels["answers"])


class Judge:
    """Knows how near the nearest rows of each query are.

    An answer counts as one of the ``k`` nearest if it is as near as the ``k``-th, so that rows which are equally near
    are equally good.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        deepest = min(max(RECALL_AT), task.y.size)
        nearest = []
        for block in _blocks(task.queries):
            similar = _similarities(block, task.X)
            best = np.partition(similar, similar.shape[1] - deepest, axis=1)[:, -deepest:]
            nearest.append(-np.sort(-best, axis=1))
        self._nearest = np.concatenate(nearest)

    def error(self, labels: np.ndarray) -> float:
        """Return the share of wrong labels among those of the first queries."""
        return float(np.mean(labels != self.task.answers[: labels.size]))

    def recall(self, ids: np.ndarray) -> float:
        """Return the share of the nearest rows that is among the answers to the first queries, shape (n, k)."""
        n, k = ids.shape
        wanted = min(k, self._nearest.shape[1])
        least = self._nearest[:n, wanted - 1] - _ROUNDING
        found = np.zeros(n)
        ids = np.sort(ids, axis=1)
        for column in range(k):
            new = ids[:, column] != NONE
            if column:
                new &= ids[:, column] != ids[:, column - 1]
            found += new & (self._similarity_to(ids[:, column]) >= least)
        return float(np.minimum(found, wanted).sum() / (n * wanted))

    def _similarity_to(self, ids: np.ndarray) -> np.ndarray:
        rows, queries = self.task.X[ids], self.task.queries[: ids.size]
        if scipy.sparse.issparse(rows):
            return np.asarray(rows.multiply(queries).sum(axis=1)).ravel()
        return np.einsum("ij,ij->i", rows, queries)


def _blocks(rows: Any) -> list[Any]:
    return [rows[first : first + _BLOCK] for first in range(0, rows.shape[0], _BLOCK)]


def _similarities(queries: Any, X: Any) -> np.ndarray:
    product = queries @ X.T
    return product.toarray() if scipy.sparse.issparse(product) else product

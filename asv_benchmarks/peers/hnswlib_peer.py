"""hnswlib: a hierarchical navigable small world graph."""

from __future__ import annotations

from typing import Any

import numpy as np

from .graphs import Graph


class Hnswlib(Graph):
    """A hierarchical navigable small world graph, by distance, which orders unit rows as the cosine does."""

    name = "hnswlib"
    package = "hnswlib"

    def build(self, **options: Any) -> None:
        import hnswlib

        self._index = hnswlib.Index(space="l2", dim=self.shape.n_features)  # the same order on unit rows
        self._index.init_index(self.y.size, options["ef_construction"], options["M"], random_seed=0)
        self._index.add_items(self.X, num_threads=self.n_threads)

    def set(self, **options: Any) -> None:
        self._index.set_ef(options["ef"])

    def ask(self, queries: Any, k: int) -> np.ndarray:
        k = min(k, self.y.size)
        return self._index.knn_query(queries, k, num_threads=self.n_threads)[0].astype(np.int64)

    def insert(self, rows: Any) -> None:
        X, y = rows
        n = self.y.size + y.size
        if n > self._index.get_max_elements():
            self._index.resize_index(max(n, 2 * self._index.get_max_elements()))
        self._index.add_items(X, np.arange(self.y.size, n), num_threads=self.n_threads)
        self.y = np.concatenate([self.y, y])

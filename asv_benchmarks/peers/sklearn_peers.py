"""scikit-learn: brute force, and a k-d tree."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from .contract import Peer


class _Neighbors(Peer):
    package = "sklearn"
    exact: ClassVar[bool] = True

    algorithm: ClassVar[str]

    def build(self, **options: Any) -> None:
        from sklearn.neighbors import NearestNeighbors

        # On rows of unit length distances order as cosines do, and are what scikit-learn has its fast paths for.
        self._neighbors = NearestNeighbors(algorithm=self.algorithm, n_jobs=self.n_threads).fit(self.X)

    def ask(self, queries: Any, k: int) -> np.ndarray:
        return self._neighbors.kneighbors(queries, min(k, self.shape.n_rows), return_distance=False)


class BruteForce(_Neighbors):
    """All distances."""

    name = "sklearn brute"
    sparse = True
    algorithm = "brute"


class KDTree(_Neighbors):
    """A k-d tree."""

    name = "sklearn KDTree"
    algorithm = "kd_tree"

"""faiss: exact search, an inverted file, and a navigable small world graph."""

from __future__ import annotations

from typing import Any

import numpy as np

from .contract import Options, Peer, Shape
from .graphs import Graph

_FEWEST_FOR_BLAS = {True: 20, False: 10**9}


def _use_blas(wanted: bool) -> None:
    """Let batches be compared with all rows, or all centres, by matrix products or one query at a time.

    Which is faster depends on the sizes; by default recent versions take products only for very large batches.
    """
    import faiss

    faiss.cvar.distance_compute_blas_threshold = _FEWEST_FOR_BLAS[wanted]


class _Faiss(Peer):
    package = "faiss"

    def build(self, **options: Any) -> None:
        import faiss

        faiss.omp_set_num_threads(self.n_threads)
        _use_blas(True)
        self._index = self._new_index(**options)
        self._index.add(self.X)

    def _new_index(self, **options: Any) -> Any:
        raise NotImplementedError

    def ask(self, queries: Any, k: int) -> np.ndarray:
        return self._index.search(queries, k)[1]

    def insert(self, rows: Any) -> None:
        X, y = rows
        self._index.add(X)
        self.y = np.concatenate([self.y, y])


class FaissFlat(_Faiss):
    """All rows, compared by inner product."""

    name = "faiss flat"
    exact = True

    def settings(self, build: Options, quick: bool) -> list[Options]:
        return [{"blas": True}, {"blas": False}]

    def set(self, **options: Any) -> None:
        _use_blas(options["blas"])

    @classmethod
    def streams(cls, shape: Shape) -> list[tuple[Options, Options]]:
        return [({}, {"blas": True})]

    def _new_index(self, **options: Any) -> Any:
        import faiss

        return faiss.IndexFlatIP(self.shape.n_features)


class FaissIVF(_Faiss):
    """Cells around the centres of k-means; the ``nprobe`` nearest are searched."""

    name = "faiss IVF"

    @classmethod
    def builds(cls, shape: Shape, quick: bool) -> list[Options]:
        root = shape.n_rows**0.5
        sizes = [root] if quick else [root / 2, root, 2 * root, 4 * root]
        return [{"nlist": n} for n in sorted({int(min(max(4, size), shape.n_rows / 8)) for size in sizes})]

    def settings(self, build: Options, quick: bool) -> list[Options]:
        probes = (1, 8) if quick else (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128)
        return [{"nprobe": n} for n in probes if n <= build["nlist"]]

    @classmethod
    def streams(cls, shape: Shape) -> list[tuple[Options, Options]]:
        return [(build, {"nprobe": 8}) for build in cls.builds(shape, quick=True)]

    def _new_index(self, **options: Any) -> Any:
        import faiss

        self._centres = faiss.IndexFlatIP(self.shape.n_features)  # the index does not keep it alive
        index = faiss.IndexIVFFlat(self._centres, self.shape.n_features, options["nlist"], faiss.METRIC_INNER_PRODUCT)
        index.cp.min_points_per_centroid = 1  # or it warns of few rows
        index.train(self.X)
        return index

    def set(self, **options: Any) -> None:
        self._index.nprobe = options["nprobe"]


class FaissHNSW(Graph, _Faiss):
    """A hierarchical navigable small world graph."""

    name = "faiss HNSW"

    def _new_index(self, **options: Any) -> Any:
        import faiss

        index = faiss.IndexHNSWFlat(self.shape.n_features, options["M"])  # by distance: the same order on unit rows
        index.hnsw.efConstruction = options["ef_construction"]
        return index

    def set(self, **options: Any) -> None:
        self._index.hnsw.efSearch = options["ef"]

"""nmslib: a navigable small world graph over sparse rows, and an inverted index."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from .contract import NONE, Options, Peer, Shape


class _Nmslib(Peer):
    package = "nmslib"
    dense: ClassVar[bool] = False
    sparse: ClassVar[bool] = True

    method: ClassVar[str]

    def _index_over(self, space: str, parameters: Options) -> None:
        import nmslib

        self._index = nmslib.init(method=self.method, space=space, data_type=nmslib.DataType.SPARSE_VECTOR)
        self._index.addDataPointBatch(self.X)
        self._index.createIndex(parameters)

    def ask(self, queries: Any, k: int) -> np.ndarray:
        k = min(k, self.shape.n_rows)
        found = self._index.knnQueryBatch(queries, k=k, num_threads=self.n_threads)
        ids = np.full((len(found), k), NONE, np.int64)
        for row, (some, _) in enumerate(found):
            ids[row, : some.size] = some
        return ids


class NmslibHNSW(_Nmslib):
    """A hierarchical navigable small world graph."""

    name = "nmslib HNSW"
    method = "hnsw"

    @classmethod
    def builds(cls, shape: Shape, quick: bool) -> list[Options]:
        spaces = ("cosinesimil_sparse_fast", "negdotprod_sparse_fast")
        graphs = ({"M": 8, "efConstruction": 50}, {"M": 16, "efConstruction": 200})
        builds = [{"space": space, **graph} for space in spaces for graph in graphs]
        return builds[:1] if quick else builds

    def settings(self, build: Options, quick: bool) -> list[Options]:
        return [{"ef": ef} for ef in ((10, 50) if quick else (2, 5, 10, 20, 50, 100, 200, 400))]

    def build(self, **options: Any) -> None:
        parameters = {"M": options["M"], "efConstruction": options["efConstruction"]}
        self._index_over(options["space"], {**parameters, "indexThreadQty": self.n_threads, "post": 0})

    def set(self, **options: Any) -> None:
        self._index.setQueryTimeParams({"ef": options["ef"]})


class NmslibInverted(_Nmslib):
    """An inverted index, which is exact."""

    name = "nmslib inverted"
    method = "simple_invindx"
    exact = True

    def build(self, **options: Any) -> None:
        self._index_over("negdotprod_sparse_fast", {})

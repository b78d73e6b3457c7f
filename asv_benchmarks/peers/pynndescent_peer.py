"""pynndescent: a graph of nearest neighbours, found by descent and searched greedily."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from .contract import Options, Peer, Shape


class PyNNDescent(Peer):
    """A graph of nearest neighbours by cosine."""

    name = "pynndescent"
    package = "pynndescent"
    sparse = True
    compiles = True

    @classmethod
    def builds(cls, shape: Shape, quick: bool) -> list[Options]:
        return [{"n_neighbors": n} for n in ((15,) if quick else (15, 30))]

    def settings(self, build: Options, quick: bool) -> list[Options]:
        slacks = (0.1,) if quick else (0.0, 0.05, 0.1, 0.2, 0.3, 0.4)
        return [{"epsilon": epsilon, "at_least": n} for n in (1, 10) for epsilon in slacks]

    @classmethod
    def streams(cls, shape: Shape) -> list[tuple[Options, Options]]:
        return (
            [] if shape.sparse else [({"n_neighbors": 15}, {"epsilon": 0.1, "at_least": 10})]
        )  # it updates dense rows only

    def build(self, **options: Any) -> None:
        from pynndescent import NNDescent

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of few rows
            self._index = NNDescent(
                self.X, metric="cosine", n_jobs=self.n_threads, random_state=0, n_neighbors=options["n_neighbors"]
            )
            self._index.prepare()

    def set(self, **options: Any) -> None:
        self._epsilon, self._at_least = options["epsilon"], options["at_least"]

    def ask(self, queries: Any, k: int) -> np.ndarray:
        searched = min(max(k, self._at_least), self.y.size)  # it finds the nearest row better among several
        return self._index.query(queries, k=searched, epsilon=self._epsilon)[0][:, :k].astype(np.int64)

    def insert(self, rows: Any) -> None:
        X, y = rows
        self._index.update(xs_fresh=X)  # computes the whole graph anew, from the one there is
        self._index.prepare()
        self.y = np.concatenate([self.y, y])

"""``MemoryStore`` as a method of the benchmark VIBE (vector-index-bench), and the same kind of run on sets at hand.

To add the store to VIBE, copy this file's class to ``vibe/algorithms/cmt_numba/module.py``, let it inherit ``BaseANN``,
and use ``@metric`` as ``base_args``, no ``args``, and ``target_recall: [0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.999]``
as ``query_args``.
"""

from shared.commands import DATA, Commands, argument, timed  # before libraries that read the number of threads

# isort: split
import argparse
from typing import Any

import numpy as np
from shared.vectors import graph_of, made_sets, recall
from tabulate import tabulate

from cmt_numba import MemoryStore

commands = Commands(__doc__)

METRICS = {"cosine": "cosine", "normalized": "cosine", "ip": "inner_product", "euclidean": "euclidean"}
TARGETS = (0.8, 0.9, 0.95, 0.99)


class CMTStore:
    """A ``MemoryStore`` with the methods that VIBE calls."""

    def __init__(self, metric: str) -> None:
        self.metric, self.target_recall = METRICS[metric], 0.95

    def fit(self, X: np.ndarray) -> None:
        """Store all vectors, in one thread."""
        self.store = MemoryStore(metric=self.metric, random_state=0, n_threads=1)
        self.store.add(range(len(X)), X)

    def set_query_arguments(self, target_recall: float) -> None:
        """Set the effort of queries."""
        self.target_recall = target_recall

    def query(self, vector: np.ndarray, n: int) -> np.ndarray:
        """Return the positions of the ``n`` vectors nearest to a vector."""
        return np.asarray(self.store.query(vector[None], n, target_recall=self.target_recall).keys[0], np.int64)

    def batch_query(self, X: np.ndarray, n: int) -> None:
        """Keep the positions of the ``n`` vectors nearest to each row for :meth:`get_batch_results`."""
        self.results = np.asarray(self.store.query(X, n, target_recall=self.target_recall).keys, np.int64)

    def get_batch_results(self) -> np.ndarray:
        """Return the results of the last batch."""
        return self.results

    def __str__(self) -> str:
        return f"CMTStore(target_recall={self.target_recall})"


@commands.add(
    DATA,
    argument("--n", type=int, default=20_000, help="vectors of each set"),
    argument("--k", type=int, default=100, help="results of each query"),
    argument("--sets", nargs="+", default=["clusters", "low rank", "scattered", "texts"]),
)
def singles(options: argparse.Namespace) -> None:
    """Print recall and queries per second of single queries in one thread, as VIBE measures them.

    Needs tabulate; hnswlib is optional.
    """
    k, sets = options.k, made_sets(options.n, 256, options.data)
    rows: list[list[Any]] = []
    for name in options.sets:
        data = sets[name]()
        asked = data.asked[:500]
        true = np.argpartition(asked @ data.stored.T, -k, axis=1)[:, -k:]

        def note(method: Any, label: str, name: str = name, asked: Any = asked, true: Any = true) -> None:
            method(asked[0])  # compile
            found, seconds = timed(lambda: [method(row) for row in asked])
            rows.append([name, label, recall(np.array(found), true), len(asked) / seconds])

        method = CMTStore("normalized")
        method.fit(data.stored)
        for target in TARGETS:
            method.set_query_arguments(target)
            note(lambda row, method=method: method.query(row, k), str(method))
        try:
            graph = graph_of(data.stored)[0]
        except ModuleNotFoundError:
            continue
        for ef in (100, 150, 250, 500):
            graph.set_ef(ef)
            note(lambda row, graph=graph: graph.knn_query(row, k, num_threads=1)[0][0], f"hnswlib(ef={ef})")
    print(tabulate(rows, ["set", "method", f"recall at {k}", "queries/s"], floatfmt=("", "", ".3f", ",.0f")))

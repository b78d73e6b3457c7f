"""Measure what shards cost: a store in memory against the same memories in 1, 2 and 4 shards on this machine.

::

    python asv_benchmarks/measure_shards.py
    python asv_benchmarks/measure_shards.py --n 100000 --shards 1 2 4 --repeats 5

Prints the microseconds of a query in batches of several sizes (the median of the repeats), memories that are added a
second, and the megabytes of a shard without any vectors. Vectors are random, in clusters. First it checks that
all stores give the same keys and scores when everything is compared. Linux only; needs tabulate and the extra ``ray``.
"""

import argparse
import gzip
import json
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from tabulate import tabulate

from cmt_numba import MemoryStore
from cmt_numba.distributed import ShardedStore, start

_BLOCK = 10_000  # vectors added at once
_CHECKED = 200  # queries
_TIE = 1e-5  # the difference of scores, up to which they count as equal
_N_CLUSTERS = 100


def of_texts(path: str, n: int, n_queries: int) -> tuple[Any, Any]:
    """Return the tf-idf of distinct texts, and of half the words of some of them."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        texts = sorted({json.loads(line)["summary"] for line in lines})
    draws = np.random.default_rng(0)
    chosen = [texts[i] for i in draws.permutation(len(texts))[:n]]
    vectorizer = TfidfVectorizer(sublinear_tf=True, dtype=np.float32)
    X = vectorizer.fit_transform(chosen)
    there = np.flatnonzero(X.getnnz(axis=1))
    chosen, X = [chosen[i] for i in there], X[there]
    asked = [
        " ".join(word for word in chosen[i].split() if draws.random() < 0.5) for i in range(min(n_queries, len(chosen)))
    ]
    Q = vectorizer.transform(asked)
    return X, Q[np.flatnonzero(Q.getnnz(axis=1))]


def clustered(n: int, n_features: int, draws: np.random.Generator, noise: float = 0.7) -> np.ndarray:
    """Return vectors around the same centres."""
    centres = np.random.default_rng(0).normal(size=(_N_CLUSTERS, n_features))
    around = noise * draws.normal(size=(n, n_features))
    return (centres[draws.integers(0, _N_CLUSTERS, n)] + around).astype(np.float32)


def megabytes(process: int) -> float:
    """Return the private memory of a process."""
    lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) / 1024


def add_all(store: Any, X: np.ndarray) -> float:
    """Add vectors in blocks; return how many a second."""
    started = time.perf_counter()
    for first in range(0, X.shape[0], _BLOCK):
        block = X[first : first + _BLOCK]
        store.add(range(first, first + block.shape[0]), block)
    return X.shape[0] / (time.perf_counter() - started)


def microseconds(store: Any, Q: np.ndarray, batch: int, repeats: int) -> float:
    """Return the microseconds of a query in batches of a size."""
    store.query(Q[:batch], 10)
    seconds = []
    for number in range(max(repeats, 100 // batch)):
        first = number * batch % max(1, Q.shape[0] - batch + 1)
        started = time.perf_counter()
        store.query(Q[first : first + batch], 10)
        seconds.append(time.perf_counter() - started)
    return 1e6 * statistics.median(seconds) / batch


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Measure what shards cost.")
    parser.add_argument("--n", type=float, default=1e5)
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--shards", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 100, 10_000])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--data", help="a file of JSON lines, compressed by gzip, with the field summary")
    given = parser.parse_args()
    start()
    draws = np.random.default_rng(1)
    X, Q = clustered(int(given.n), given.features, draws), clustered(10_000, given.features, draws)
    if given.data is not None:
        X, Q = of_texts(given.data, int(given.n), 11_000)
    one = MemoryStore(random_state=0, n_threads=1)
    stores: dict[str, Any] = {"one store": one}
    rows: list[list[Any]] = [["one store", add_all(one, X), None]]
    exact = one.query(Q[:_CHECKED], 11, target_recall=1.0)  # of ten, where the last is not as good as the next
    clear = exact.scores[:, 9] - exact.scores[:, 10] > _TIE
    exact = one.query(Q[:_CHECKED], 10, target_recall=1.0)
    for n_shards in given.shards:
        store = ShardedStore(n_shards, random_state=0, timeout=600.0)
        empty = statistics.median(map(megabytes, store._ask_all("process")))
        rows.append([f"{n_shards} shards", add_all(store, X), empty])
        found = store.query(Q[:_CHECKED], 10, target_recall=1.0)
        for keys, right in zip(found.keys[clear], exact.keys[clear], strict=True):
            assert set(keys) == set(right)  # equal scores may come in another order
        np.testing.assert_allclose(found.scores, exact.scores, rtol=1e-5, atol=1e-6)
        stores[rows[-1][0]] = store
    for row in rows:
        found = stores[row[0]].query(Q[:_CHECKED], 10).scores
        row.append(np.mean(found > exact.scores[:, -1:] - _TIE))  # memories with equal scores are as good
        row += [microseconds(stores[row[0]], Q, batch, given.repeats) for batch in given.batches]
    headers = ["", "adds a second", "MB empty", "recall", *(f"us, batches of {batch:,}" for batch in given.batches)]
    print(f"{X.shape[0]:,} vectors of {X.shape[1]:,} features")
    print(f"the same answers to {clear.sum()} of {clear.size} queries when all is compared; the rest have equal scores")
    print(tabulate(rows, headers, floatfmt=("", ",.0f", ".0f", ".3f", ",.0f", ",.0f", ",.0f")))
    for store in list(stores.values())[1:]:
        store.close()


if __name__ == "__main__":
    main()

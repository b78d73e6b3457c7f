"""Compare queries of ``MemoryStore`` from several threads, alone and beside a thread that changes it, with hnswlib's.

    python asv_benchmarks/compare_store_threads.py --seconds 1

Single queries of clustered vectors from 1 to 32 threads at once: alone, beside a thread that replaces vectors, and
beside one that replaces or adds to a store in a folder, which grows and takes snapshots. What changes is measured alone
too. Times are by the clock. Needs tabulate; without hnswlib its rows are left out.
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_variable] = "1"  # before any library reads them

import argparse
import tempfile
import threading
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from store_data import N_ASKED, K, clustered, graph_of
from tabulate import tabulate

from cmt_numba import MemoryStore

N_THREADS = 1, 2, 8, 32


def asked_and_changed(
    ask: Callable[[int], Any], n_threads: int, change: Callable[[int], Any] | None, seconds: float
) -> list[float]:
    """Return queries a second of some threads and changes a second of another one, and quantiles of their times."""
    times: list[list[float]] = [[] for _ in range(n_threads + 1)]
    together, end = threading.Barrier(n_threads + 2), [0.0]

    def work(own: list[float], order: np.ndarray, do: Callable[[int], Any] | None) -> None:
        together.wait()  # a thread may be kept from beginning for as long as all others together
        i = 0
        while do is not None and perf_counter() < end[0]:
            begun = perf_counter()
            do(int(order[i % order.size]))
            own.append(perf_counter() - begun)
            i += 1

    for do in (ask, change):
        if do is not None:
            do(0)  # has kernels compiled
    orders = [np.random.default_rng(i).permutation(N_ASKED) for i in range(n_threads)]
    given = [(own, order, ask) for own, order in zip(times, orders, strict=False)]
    threads = [
        threading.Thread(target=work, args=args) for args in (*given, (times[-1], np.arange(1, 1 << 20), change))
    ]
    for thread in threads:
        thread.start()
    end[0] = perf_counter() + seconds
    together.wait()
    for thread in threads:
        thread.join()
    shown: list[float] = []
    for spent in (np.array([time for own in times[:-1] for time in own]), np.array(times[-1])):
        quantiles = (*np.quantile(spent, [0.5, 0.99]), spent.max()) if spent.size > 0 else [float("nan")] * 3
        shown += [spent.size / seconds, *(1e3 * float(value) for value in quantiles)]
    return shown


def compare_threads(n: int, n_features: int, seconds: float) -> None:
    """Print queries a second from several threads beside a thread that changes, and quantiles of times."""
    data, others = clustered(n, n_features), clustered(n, n_features, seed=1).stored
    rows: list[list[Any]] = []
    store = MemoryStore(random_state=0, n_threads=1)
    store.add(range(n), data.stored)

    def replace(some: int, i: int) -> None:
        first = some * i % (n - some)
        store.upsert(range(first, first + some), others[first : first + some])

    with (
        tempfile.TemporaryDirectory() as folder,
        MemoryStore(Path(folder) / "store", random_state=0, n_threads=1, snapshot_seconds=1.0) as durable,
    ):
        durable.add(range(n // 4), data.stored[: n // 4])

        def replace_durably(i: int) -> None:
            durable.upsert([i % (n // 4)], others[i % n : i % n + 1])

        def add(i: int) -> None:
            first = n // 4 + 100 * i
            durable.upsert(range(first, first + 100), others[100 * i % (n - 100) :][:100])

        changes: dict[str, tuple[MemoryStore, Callable[[int], Any] | None]] = {
            "none": (store, None),
            "one replaced": (store, partial(replace, 1)),
            "ten replaced": (store, partial(replace, 10)),
            "one replaced, in a folder": (durable, replace_durably),
            "100 added, in a folder": (durable, add),
        }
        for how, (asked, change) in changes.items():
            ask = lambda i: asked.query(data.asked[i : i + 1], K)  # noqa: B023, E731
            for n_threads in N_THREADS if change is None else (0, *N_THREADS):
                rows.append([how, n_threads, *asked_and_changed(ask, n_threads, change, seconds)])
    if find_spec("hnswlib"):  # whose queries must not meet changes
        graph = graph_of(data.stored)[0]
        graph.set_ef(20)
        ask = lambda i: graph.knn_query(data.asked[i : i + 1], K, num_threads=1)  # noqa: E731
        rows += [
            ["hnswlib, none", n_threads, *asked_and_changed(ask, n_threads, None, seconds)] for n_threads in N_THREADS
        ]
    print(f"\nthreads, {n} x {n_features}\n")
    headers = ["changes", "readers", "queries a second", "p50 ms", "p99", "longest", "changes a second"]
    print(
        tabulate(
            rows, [*headers, "p50 ms", "p99", "longest"], floatfmt=("", "", ".0f", *[".2f"] * 3, ".0f", *[".2f"] * 3)
        )
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Compare queries of MemoryStore from several threads with hnswlib's.")
    parser.add_argument("--n", type=int, default=20_000, help="clustered vectors")
    parser.add_argument("--features", type=int, default=128)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each number of threads")
    given = parser.parse_args()
    compare_threads(given.n, given.features, given.seconds)

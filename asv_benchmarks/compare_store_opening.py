"""Measure how long it takes to close and open a ``MemoryStore``, and to answer the first queries.

    python asv_benchmarks/compare_store_opening.py --n 1000000 --features 128

Clustered vectors; a folder that was closed, one whose process was killed after changes, and a file. Times are by the
clock. Needs tabulate.
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_variable] = "1"  # before any library reads them

import argparse
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from store_data import N_ASKED, K, clustered
from tabulate import tabulate

from cmt_numba import MemoryStore


def seconds_a_key(store: MemoryStore, n: int) -> tuple[float, float]:
    """Return how long it takes to look up the key of a memory in the database, and to read one with all others."""
    records, ids = store._records(), np.random.default_rng(0).permutation(n)[: 100 * K].reshape(-1, 1, K)
    begun = perf_counter()
    for some in ids:
        records._look_up(some)
    looked_up = (perf_counter() - begun) / ids.size
    begun = perf_counter()
    records.keep_keys()
    return looked_up, (perf_counter() - begun) / n


def compare_opening(n: int, n_features: int) -> None:
    """Print how long it takes to open a store, from a folder and from a file, and to answer the first queries."""
    data = clustered(n, n_features)
    warm = MemoryStore(random_state=0)
    warm.add(range(300), data.stored[:300])  # has kernels compiled
    warm.upsert(0, data.stored[:1])
    warm.query(data.asked, K, n_probes=4)
    rows: list[list[Any]] = []

    def note(how: str, open_it: Callable[[], MemoryStore]) -> None:
        begun = perf_counter()
        opened = open_it()
        rows.append([how, perf_counter() - begun])
        for row in data.asked[:2]:
            begun = perf_counter()
            opened.query(row[None], K, n_probes=4)
            rows[-1].append(perf_counter() - begun)
        opened.close()

    with tempfile.TemporaryDirectory() as folder:
        path, killed, file = (Path(folder) / name for name in ("store", "killed", "file"))
        with MemoryStore(path, random_state=0) as store:
            store.add(range(n), data.stored)
        note("folder, closed", lambda: MemoryStore(path))
        store = MemoryStore(path)
        looked_up, read = seconds_a_key(store, n)
        begun = perf_counter()
        for i in range(N_ASKED):
            store.upsert(i, data.asked[i : i + 1])
        changed = perf_counter() - begun
        shutil.copytree(path, killed)
        store.save(file)
        begun = perf_counter()
        store.close()
        closed = perf_counter() - begun
        note(f"folder, killed after {N_ASKED} upserts", lambda: MemoryStore(killed))
        note("file, read", lambda: MemoryStore.load(file))
        note("file, mapped", lambda: MemoryStore.load(file, mmap=True))
    print(f"\nopening, {n} x {n_features}: seconds\n")
    print(f"to look up a key takes {1e6 * looked_up:.1f} us, to read one with all {1e6 * read:.1f} us")
    print(f"{N_ASKED} upserts took {changed:.2f} s, and to close the store then {closed:.2f} s\n")
    print(tabulate(rows, ["", "open", "first query", "second query"], floatfmt=".4f"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Measure how long it takes to close and open a MemoryStore.")
    parser.add_argument("--n", type=int, default=200_000, help="clustered vectors")
    parser.add_argument("--features", type=int, default=128)
    given = parser.parse_args()
    compare_opening(given.n, given.features)

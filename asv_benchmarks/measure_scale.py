"""Measure how the cost of an insert grows with the number of memories: random dense keys, one call for all.

::

    python asv_benchmarks/measure_scale.py

Each size is a tree of its own, so the microseconds are means over the life of a tree of that size. The column "to
the fit" divides the time by what a + b log2(n), fitted to all sizes, says. Needs tabulate.
"""

import argparse
import statistics
import time

import numpy as np
from tabulate import tabulate

from cmt_numba import ContextualMemoryTree


def insert_seconds(X: np.ndarray) -> tuple[float, ContextualMemoryTree]:
    """Return how long it takes to insert rows into an empty tree, and the tree."""
    tree = ContextualMemoryTree(random_state=0)
    start = time.perf_counter()
    tree.insert(X)
    return time.perf_counter() - start, tree


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Measure how the cost of an insert grows with the number of memories.")
    parser.add_argument("--sizes", type=float, nargs="+", default=[1e4, 3e4, 1e5, 3e5, 1e6])
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3, help="times are medians of so many runs, interleaved")
    options = parser.parse_args()
    sizes = [int(size) for size in options.sizes]

    X = np.random.default_rng(0).normal(size=(max(sizes), options.features)).astype(np.float32)
    insert_seconds(X[:500])  # compiles, or loads from the cache on disk
    times: dict[int, list[float]] = {n: [] for n in sizes}
    facts = {}
    for _ in range(options.repeats):
        for n in sizes:
            taken, tree = insert_seconds(X[:n])
            times[n].append(1e6 * taken / n)
            facts[n] = (tree.nbytes / n - X[0].nbytes, tree.depth)
            tree.check_invariants()
            del tree

    microseconds = np.array([statistics.median(times[n]) for n in sizes])
    slope, start = np.polyfit(np.log2(sizes), microseconds, 1)
    table = []
    for n, mean in zip(sizes, microseconds, strict=True):
        to_first, log_to_first = mean / microseconds[0], np.log(n) / np.log(sizes[0])
        to_fit = mean / (start + slope * np.log2(n))
        row = [f"{value:.2f}" for value in (mean, to_first, log_to_first, facts[n][0], to_fit)]
        table.append([f"{n:,}", *row, facts[n][1]])
    headers = [
        "memories",
        "us per\ninsert",
        "to the\nfirst",
        "log n to\nthe first",
        "bytes each\nbeyond key",
        "to the\nfit",
    ]
    print(tabulate(table, [*headers, "to the\nfit", "depth"], disable_numparse=True))
    print(f"\nFit: {start:.2f} + {slope:.3f} log2(n) microseconds. The invariants held at every size.")


if __name__ == "__main__":
    main()

"""Measure how time and memory grow with the number of memories of a tree, and of vectors in a store."""

from shared.commands import Commands, argument, fastest, print_table, timed  # before other libraries

# isort: split
import argparse
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
from shared.vectors import low_rank

from cmt_numba import ContextualMemoryTree, MemoryStore

commands = Commands(__doc__)

_BLOCK = 100_000  # keys per generated and inserted block


def random_keys(n: int, n_features: int) -> Iterator[np.ndarray]:
    """Yield reproducible keys in blocks, since a tree of ten million needs the memory."""
    for first in range(0, n, _BLOCK):
        yield np.random.default_rng(first).standard_normal((min(_BLOCK, n - first), n_features), dtype=np.float32)


def print_growth(quantity: str, sizes: list[int], values: list[float]) -> None:
    """Print a quantity by size, its least squares fit by a + b log2(n), and its growth relative to that of log n."""
    slope, start = np.polyfit(np.log2(sizes), values, 1)
    rows = [
        [f"{n:,}", value, start + slope * np.log2(n), value / values[0] / np.log(n) * np.log(sizes[0])]
        for n, value in zip(sizes, values, strict=True)
    ]
    title = f"{quantity}: {start:.2f} + {slope:.3f} log2(n)"
    print_table(["memories", "us", "fit", "growth relative to log n"], rows, title, ".2f")


@commands.add(
    argument("--sizes", type=float, nargs="+", default=[1e4, 3e4, 1e5, 3e5, 1e6]),
    argument("--features", type=int, default=64),
    argument("--trees", type=int, default=1),
    argument("--sure-margin", type=float, default=0.75, help="0: never search the other side of a router"),
    argument("--repeats", type=int, default=3, help="trees grown per size; the median is printed"),
    argument("--queries", type=int, default=4000),
)
def growth(options: argparse.Namespace) -> None:
    """Measure how the costs of an insert and of a query grow with the number of memories.

    Keys are random, and queries are noisy copies of keys, in one batch. Trees are compacted before they are queried.
    Keys of 64 features take 0.4 GB per million. ``docs/measurements/scale.md`` estimates from such measurements what a
    billion memories would need.
    """
    sizes, rows = sorted(int(size) for size in options.sizes), list[list[float]]()
    for n in sizes:
        inserts = []
        for _ in range(options.repeats):
            tree = ContextualMemoryTree(options.trees, sure_margin=options.sure_margin, n_threads=1, random_state=0)
            seconds = [timed(tree.insert, block)[1] for block in random_keys(n, options.features)]
            inserts.append(1e6 * sum(seconds) / n)
        tree.compact()
        keys = next(random_keys(n, options.features))
        rng = np.random.default_rng(1)
        queries = keys[rng.integers(len(keys), size=options.queries)]
        queries += 0.4 * rng.standard_normal(queries.shape, dtype=np.float32)
        query = fastest(tree.query, queries, n_runs=7, n_rows=options.queries)[1]
        tree.check_invariants()
        rows.append([float(np.median(inserts)), query, tree.nbytes / n, tree.depth])
    table = [[f"{n:,}", *row[2:]] for n, row in zip(sizes, rows, strict=True)]
    print_table(["memories", "bytes/memory, key included", "depth"], table, digits=".1f")
    for i, name in enumerate(("insert, mean over the tree's life", "query")):
        print_growth(name, sizes, [row[i] for row in rows])
    print("\nThe invariants held at every size.")


@commands.add(
    argument("--sizes", type=float, nargs="+", default=[1e5, 3e5, 1e6]),
    argument("--features", type=int, default=64),
    argument("--folder", type=Path, help="new folder of the store, which then maps the vectors into memory"),
)
def vectors(options: argparse.Namespace) -> None:
    """Measure how the costs of an added row and of a query grow with the number of vectors in a store.

    Vectors depend on 20 numbers, apart from noise. A single store grows to each size in turn. Times are CPU time on one
    thread, in microseconds per row: the minimum of five rounds for queries. The recall is that of 200 queries.
    """
    sizes, rows = sorted(int(size) for size in options.sizes), list[list[float]]()
    data = low_rank(sizes[-1], options.features)
    store = MemoryStore(options.folder, random_state=0, n_threads=1)
    ones = np.split(data.asked[:200], 200)
    for before, n in pairwise([0, *sizes]):
        added = 0.0
        for first in range(before, n, _BLOCK):
            stop = min(first + _BLOCK, n)
            added += timed(store.add, range(first, stop), data.stored[first:stop])[1]
        batch = fastest(store.query, data.asked, n_runs=5, n_rows=len(data.asked))[1]
        single = fastest(lambda: [store.query(one) for one in ones], n_runs=5, n_rows=200)[1]
        rows.append([1e6 * added / (n - before), batch, single, store.recall(data.asked[:200])])
    table = [[f"{n:,}", *row] for n, row in zip(sizes, rows, strict=True)]
    print_table(["vectors", "us/row added", "us/query, batch", "us/query, single row", "recall at 10"], table)
    for i, name in ((1, "batch"), (2, "single row")):
        print_growth(f"query, {name}", sizes, [row[i] for row in rows])


main = commands.main

if __name__ == "__main__":
    main()

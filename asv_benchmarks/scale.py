"""Measure how time and memory grow with the number of memories of a tree, or of a store."""

from shared.commands import Commands, argument, fastest, print_table, timed

import argparse
import itertools
import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import numpy as np
from shared.vectors import N_ASKED, low_rank, scattered

from cmt_numba import ContextualMemoryTree, MemoryStore
from cmt_numba._index import DenseIndex

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


@commands.add(
    argument("--sizes", type=float, nargs="+", default=[1e4, 4e4, 1.6e5]),
    argument("--features", type=int, default=64),
)
def lists(options: argparse.Namespace) -> None:
    """Show why the time of a query grows with the number of vectors: the lists that searches for 10 vectors reach.

    Vectors are those of ``vectors``, or normally distributed. The metric is the cosine, and the target recall 0.95.
    """
    for name, make in (("20 numbers", low_rank), ("normal", scattered)):
        sizes, rows = sorted(int(size) for size in options.sizes), list[list[Any]]()
        data = make(sizes[-1], options.features)
        index, queries = DenseIndex(options.features), data.asked[:300]
        for before, n in pairwise([0, *sizes]):
            for some in np.array_split(data.stored[before:n], max(1, (n - before) // 10_000)):
                index.insert(some)
            centers, effort = index.list_means(), index._gaps.effort(0.95)
            effort = getattr(effort, "target", effort)
            gap = float(effort.gaps[np.searchsorted(effort.ranks, 10)])
            near = queries @ centers.T - 0.25 * np.square(centers).sum(axis=1)
            n_reached = float((near >= near.max(axis=1, keepdims=True) - gap).sum(axis=1).mean())
            rows.append([f"{n:,}", len(centers), gap, n_reached, f"{100 * n_reached / len(centers):.1f} %"])
        print_table(["vectors", "lists", "gap", "lists reached", "share"], rows, name, ".3g")


_WORDS = np.array([f"word{i}" for i in range(5000)])


def add_memories(store: MemoryStore, X: np.ndarray) -> float:
    """Add memories with a text of twelve words and a payload of about 100 bytes each, and return the seconds."""
    seconds = 0.0
    for first in range(0, len(X), _BLOCK // 10):
        rows = range(first, min(first + _BLOCK // 10, len(X)))
        words = _WORDS[np.random.default_rng(first).zipf(1.3, (len(rows), 12)).clip(max=len(_WORDS)) - 1]
        payloads = [{"n": i, "group": i % 100, "note": "x" * 70} for i in rows]
        texts = [" ".join(own) for own in words.tolist()]
        seconds += timed(store.add, rows, X[rows.start : rows.stop], payloads, texts, clock=perf_counter)[1]
    return seconds


@commands.add(
    argument("--sizes", type=float, nargs="+", default=[2e4, 2e5]),
    argument("--features", type=int, default=64),
    argument("--folder", type=Path, required=True, help="existing folder, in which a store is made for each size"),
)
def folders(options: argparse.Namespace) -> None:
    """Measure what a store in a folder does with memories that have vectors, texts and payloads.

    Prints milliseconds of wall time: medians for changes and for repeated reads. Snapshots are taken while one thread
    upserts and another one queries. The reader is in the same process.
    """
    add_memories(MemoryStore(n_threads=1), next(random_keys(5000, options.features)))  # compiles
    columns = [of_folder(options.folder / f"{int(n)}", int(n), options.features) for n in options.sizes]
    rows = [[name, *(column[name] for column in columns)] for name in columns[0]]
    print_table(["", *(f"{int(n):,}" for n in options.sizes)], rows, digits=".2f")


def of_folder(path: Path, n: int, n_features: int) -> dict[str, float]:
    """Return the measures of a store of ``n`` memories."""
    data, found = low_rank(n, n_features), dict[str, float]()
    numbers = np.random.default_rng(0).permutation(n).tolist()

    def upsert(store: MemoryStore, i: int) -> None:
        store.upsert(numbers[i % n], data.stored[i % n], [{"n": i, "group": 0}], "word1 word2 new")

    def measure(name: str, work: Callable[[int], Any], n_runs: int = 20) -> None:
        found[name] = 1e3 * float(np.median([timed(work, i, clock=perf_counter)[1] for i in range(n_runs)]))

    with MemoryStore(path, random_state=0, n_threads=1) as store:
        found["add, per memory"] = 1e3 * add_memories(store, data.stored) / n
        store.query(data.asked[:1], texts="word1")  # compiles
        upsert(store, 0)
    measure("open and close", lambda _: MemoryStore(path, n_threads=1).close(), 3)
    with MemoryStore(path, n_threads=1) as store:
        measure("first query with payloads", lambda i: store.query(data.asked[i]).payloads, 1)
        measure("query with payloads", lambda i: store.query(data.asked[i]).payloads, 200)
        measure("query with texts", lambda i: store.query(data.asked[i], texts="word1 word3 word77").payloads)
        measure("upsert", lambda i: upsert(store, i), 200)
        measure("list 100 by time of insertion", lambda _: store.get(limit=100, order_by="-$added"))
        measure("list 100 by a field", lambda i: store.get(limit=100, order_by="n", offset=i), 3)
        measure("a page of 1,000 of all", lambda _: next(store.pages()))
        measure("filter on a field", lambda i: store.count({"group": i}), 3)
        store.create_index("group")
        measure("filter on an indexed field", lambda i: store.count({"group": 50 + i}))
        with MemoryStore(path, read_only=True, n_threads=1) as reader:
            measure("open a reader", lambda _: MemoryStore(path, read_only=True).close(), 3)
            refreshes = []
            for i in range(100):
                upsert(store, i)
                refreshes.append(timed(reader.refresh, clock=perf_counter)[1])
            found["refresh after an upsert"] = 1e3 * float(np.median(refreshes))
            measure("query a reader, with payloads", lambda i: reader.query(data.asked[i]).payloads, 200)
        for name, spent in during_snapshots(store, lambda i: upsert(store, i), lambda i: store.query(data.asked[i])):
            found |= {f"{name} during snapshots, p99": 1e3 * float(np.quantile(spent, 0.99))}
            found |= {f"{name} during snapshots, longest": 1e3 * max(spent)}
        measure("snapshot", lambda i: (upsert(store, i), store._contents.journal.snapshot()), 3)  # type: ignore[union-attr]
    found["bytes on disk per memory"] = sum(file.stat().st_size for file in path.iterdir()) / n
    return found


def during_snapshots(
    store: MemoryStore, upsert: Callable[[int], None], query: Callable[[int], Any]
) -> Iterator[tuple[str, list[float]]]:
    """Yield the seconds of upserts and of queries in two threads while three snapshots are taken, a second apart."""
    is_over, times = threading.Event(), {"upsert": list[float](), "query": list[float]()}

    def repeat(work: Callable[[int], Any], spent: list[float]) -> None:
        for i in itertools.count():
            if is_over.is_set():
                return
            spent.append(timed(work, i % N_ASKED, clock=perf_counter)[1])

    threads = [threading.Thread(target=repeat, args=(upsert, times["upsert"]))]
    threads.append(threading.Thread(target=repeat, args=(query, times["query"])))
    for thread in threads:
        thread.start()
    for _ in range(3):
        sleep(1.0)
        store._contents.journal.snapshot()  # type: ignore[union-attr]
    is_over.set()
    for thread in threads:
        thread.join()
    yield from times.items()


if __name__ == "__main__":
    commands.main()

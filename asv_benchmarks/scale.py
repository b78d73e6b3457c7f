"""Measure how time and memory grow with the number of memories and shards, and how long large files take to write."""

from shared.commands import Commands, argument, timed  # before libraries that read the number of threads

# isort: split
import argparse
import math
import multiprocessing
import resource
import statistics
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from benchmarks.keys import noisy
from shared.vectors import low_rank
from tabulate import tabulate
from topics import shards
from tqdm import tqdm

from cmt_numba import ContextualMemoryTree, MemoryStore

commands = Commands(__doc__)

_BLOCK = 100_000  # keys per generated and inserted block
_MOST_NEXT = 1000  # keys per insert into a full tree
_ASKED_AFTER_LOADING = 1000  # queries of a mapped tree


class Line(NamedTuple):
    """The fit a + b log2(n)."""

    start: float
    slope: float

    def at(self, n: float) -> float:
        """Return the value of the fit for ``n`` memories."""
        return self.start + self.slope * math.log2(n)

    def __str__(self) -> str:
        sign = "+" if self.slope >= 0.0 else "-"
        return f"{self.start:.2f} {sign} {abs(self.slope):.3f} log2(n)"


def fit_logarithm(sizes: list[int], values: list[float]) -> Line:
    """Return the least squares fit of values by a + b log2(n)."""
    slope, start = np.polyfit(np.log2(sizes), values, 1)
    return Line(float(start), float(slope))


class Source(NamedTuple):
    """An endless source of reproducible keys."""

    n_features: int

    def block(self, *seed: int, n: int = _BLOCK) -> np.ndarray:
        """Return the keys of a seed."""
        return np.random.default_rng(seed).standard_normal((n, self.n_features), dtype=np.float32)

    def keys(self, n: int) -> Iterator[np.ndarray]:
        """Yield the first ``n`` keys in blocks."""
        for first in range(0, n, _BLOCK):
            yield self.block(0, first // _BLOCK)[: n - first]

    def queries(self, n_keys: int, n_queries: int) -> np.ndarray:
        """Return noisy copies of some of the first keys."""
        rng = np.random.default_rng([1, n_keys])
        answers = np.sort(rng.integers(n_keys, size=n_queries))
        asked = [self.block(0, i)[answers[answers // _BLOCK == i] % _BLOCK] for i in np.unique(answers // _BLOCK)]
        return noisy(rng.permutation(np.concatenate(asked)), rng, 0.4)


class Size(NamedTuple):
    """The measurements of trees of one size. Times are in microseconds."""

    n: int
    insert: float  # mean over all inserts of the tree
    next_insert: float  # into a full tree
    query: float
    key_bytes: float
    other_bytes: float
    depth: int


def grow(source: Source, n: int, options: argparse.Namespace) -> tuple[float, ContextualMemoryTree]:
    """Return a tree of ``n`` memories, and the microseconds per insert."""
    tree = ContextualMemoryTree(options.trees, sure_margin=options.sure_margin, n_threads=1, random_state=0)
    taken = 0.0
    for block in source.keys(n):
        taken += timed(tree.insert, block, clock=time.perf_counter)[1]
    return 1e6 * taken / n, tree


def measure(source: Source, sizes: list[int], options: argparse.Namespace) -> list[Size]:
    """Grow a tree of each size, and query the trees in turns."""
    _, tree = grow(source, 1000, options)  # compiles, or loads from the cache on disk
    tree.query(source.queries(1000, 10))
    inserts: dict[int, list[float]] = {n: [] for n in sizes}
    trees: dict[int, ContextualMemoryTree] = {}
    for _ in range(options.repeats):
        for n in sizes:
            trees.pop(n, None)
            taken, trees[n] = grow(source, n, options)
            inserts[n].append(taken)
            print(f"{n:,} inserted: {taken:.2f} us per memory", flush=True)

    for n, tree in trees.items():
        _, seconds = timed(tree.compact, clock=time.perf_counter)
        print(f"{n:,} compacted: {1e6 * seconds / n:.2f} us per memory")
    queries = {n: source.queries(n, options.queries) for n in sizes}
    facts = {n: describe(trees[n]) for n in sizes}
    next_inserts: dict[int, list[float]] = {n: [] for n in sizes}
    asked: dict[int, list[float]] = {n: [] for n in sizes}
    for _ in range(options.query_repeats):
        for n, tree in trees.items():
            _, seconds = timed(tree.query, queries[n], clock=time.perf_counter)
            asked[n].append(1e6 * seconds / options.queries)
    for repeat in range(options.query_repeats):
        for n, tree in trees.items():
            n_next = min(_MOST_NEXT, max(1, n // 20))
            block = source.block(2, repeat, n=n_next)
            _, seconds = timed(tree.insert, block, clock=time.perf_counter)
            next_inserts[n].append(1e6 * seconds / n_next)
    for tree in trees.values():
        tree.check_invariants()
    medians = [[statistics.median(times[n]) for times in (inserts, next_inserts, asked)] for n in sizes]
    return [Size(n, *times, *facts[n]) for n, times in zip(sizes, medians, strict=True)]


def describe(tree: ContextualMemoryTree) -> tuple[float, float, int]:
    """Return the bytes per key, the other bytes per memory, and the depth."""
    keys = tree._forest.allocated().keys
    key_bytes = (keys.values.nbytes + keys.indices.nbytes + keys.spans.nbytes) / tree.n_memories
    return key_bytes, tree.nbytes / tree.n_memories - key_bytes, tree.depth


def growth_table(sizes: list[int], values: list[float], fit: Line) -> str:
    """Return a table of how values grow with the size, compared with log n and with a fit."""
    table = []
    for n, value in zip(sizes, values, strict=True):
        growth, log_growth = value / values[0], np.log(n) / np.log(sizes[0])
        residual = value - fit.at(n)
        numbers = [value, fit.at(n), residual, growth, log_growth, growth / log_growth]
        table.append([f"{n:,}", *[f"{number:.2f}" for number in numbers], f"{100 * residual / fit.at(n):+.0f}"])
    headers = ["memories", "us", "fit", "residual", "growth", "growth\nof log n", "growth relative\nto log n"]
    headers.append("residual\nin %")
    return tabulate(table, headers, disable_numparse=True)


@commands.add(
    argument("--sizes", type=float, nargs="+", default=[1e4, 3e4, 1e5, 3e5, 1e6]),
    argument("--features", type=int, default=64),
    argument("--trees", type=int, default=1),
    argument(
        "--sure-margin",
        type=float,
        default=0.75,
        help="margin above which the other side is not searched; 0: never search it",
    ),
    argument("--repeats", type=int, default=3, help="trees grown per size; the median is printed"),
    argument("--queries", type=int, default=4000),
    argument("--query-repeats", type=int, default=7, help="batches of queries per tree; the median is printed"),
)
def growth(options: argparse.Namespace) -> None:
    """Measure how the costs of an insert and of a query grow with the number of memories.

    Keys are random, and queries are noisy copies of keys, in one batch. Keys are generated and inserted in blocks, so
    only the tree holds all of them. Each size has a tree of its own. The trees are compacted and kept in memory, and
    queried in turns. Keys of 64 features take 0.4 GB per million. Uses one thread. ``docs/measurements/scale.md``
    estimates from such measurements what a billion memories would need.
    """
    sizes = sorted(int(size) for size in options.sizes)
    source = Source(options.features)
    found = measure(source, sizes, options)
    table = [[f"{size.n:,}", size.key_bytes, size.other_bytes, size.depth] for size in found]
    print(tabulate(table, ["memories", "key bytes/memory", "other bytes/memory", "depth"], floatfmt=".1f"))
    names = {"insert": "insert, mean over the tree's life", "next_insert": "next insert", "query": "query"}
    for field, name in names.items():
        values = [getattr(size, field) for size in found]
        fit = fit_logarithm(sizes, values)
        print(f"\n{name}: {fit} microseconds")
        print(growth_table(sizes, values, fit))
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
    for before, n in pairwise([0, *sizes]):
        added = 0.0
        for first in range(before, n, _BLOCK):
            stop = min(first + _BLOCK, n)
            added += timed(lambda: store.add(range(first, stop), data.stored[first:stop]))[1]  # noqa: B023
        batch = min(timed(lambda: store.query(data.asked))[1] for _ in range(5)) / len(data.asked)
        ones = np.split(data.asked[:200], 200)
        single = min(timed(lambda: [store.query(one) for one in ones])[1] for _ in range(5)) / len(ones)  # noqa: B023
        rows.append([added / (n - before), batch, single, store.recall(data.asked[:200])])
    table = [[f"{n:,}", *(1e6 * value for value in row[:3]), row[3]] for n, row in zip(sizes, rows, strict=True)]
    headers = ["vectors", "us/row added", "us/query, batch", "us/query, single row", "recall at 10"]
    print(tabulate(table, headers, floatfmt=("", ".1f", ".1f", ".1f", ".3f")))
    for i, name in ((1, "batch"), (2, "single row")):
        values = [1e6 * row[i] for row in rows]
        print(f"\nquery, {name}: {fit_logarithm(sizes, values)} microseconds")
        print(growth_table(sizes, values, fit_logarithm(sizes, values)))


ROWS_AT_ONCE = 10_000
OWN_WORDS = 40
"""Words of each class."""


def lines(n_rows: int, n_classes: int, n_features: int, n_words: int, n_own: int, seed: int) -> Iterator[str]:
    """Yield the lines of a file, ``ROWS_AT_ONCE`` at a time."""
    rng = np.random.default_rng(seed)
    commonness = np.cumsum(1.0 / np.arange(1, n_features + 1))
    commonness /= commonness[-1]
    own = rng.integers(n_features // 50, n_features, (n_classes, OWN_WORDS))
    for first in range(0, n_rows, ROWS_AT_ONCE):
        n = min(ROWS_AT_ONCE, n_rows - first)
        classes = rng.integers(0, n_classes, n)
        words = np.searchsorted(commonness, rng.random((n, n_words)))
        words[:, :n_own] = own[classes[:, None], rng.integers(0, OWN_WORDS, (n, n_own))]
        yield "".join(map(_line, classes.tolist(), np.sort(words, axis=1)))


def _line(label: int, words: np.ndarray) -> str:
    features, counts = np.unique(words, return_counts=True)
    values = 1.0 + np.log(counts)
    pairs = " ".join(f"{word}:{value:.4g}" for word, value in zip(features.tolist(), values.tolist(), strict=True))
    return f"{label} {pairs}\n"


@commands.add(
    argument("path", type=Path, help="file to write"),
    argument("--rows", type=int, default=1_000_000),
    argument("--classes", type=int, default=1000),
    argument("--features", type=int, default=50_000),
    argument("--words", type=int, default=30, help="words per row"),
    argument("--own", type=int, default=8, help="words per row that belong to its class"),
    argument("--seed", type=int, default=0),
)
def svmlight(options: argparse.Namespace) -> None:
    """Write a large svmlight file of synthetic texts, to measure how files larger than memory are read and learned.

        cmt-numba evaluate texts.svm --progressive

    Every class has its own words, which it shares with some other classes. A row has some of these words. Its other
    words are distributed like those of a language. Values are 1 plus the logarithm of a word's count, as in tf-idf.
    """
    sizes = (options.rows, options.classes, options.features, options.words, options.own)
    with options.path.open("w") as file, tqdm(total=options.rows, unit="row", unit_scale=True) as bar:
        for text in lines(*sizes, options.seed):
            file.write(text)
            bar.update(text.count("\n"))


def resident_megabytes() -> float:
    """Return the resident memory of this process. Linux only."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def save_tree(path: Path, n: int, n_features: int) -> None:
    """Save a tree of random keys to a file, and its results for some queries to another file."""
    tree, rng = ContextualMemoryTree(n_reroutes=0, random_state=0), np.random.default_rng(0)
    blocks = []
    for first in tqdm(range(0, n, _BLOCK), unit_scale=_BLOCK, unit="memory"):
        rows = rng.standard_normal((min(_BLOCK, n - first), n_features), dtype=np.float32)
        tree.insert(rows)
        blocks.append(rows[:: max(1, n // _ASKED_AFTER_LOADING)])
    keys = np.concatenate(blocks)
    hits = tree.query(keys, k=5)
    tree.save(path)
    np.savez(path.with_suffix(".npz"), keys=keys, ids=hits.ids, scores=hits.scores)


@commands.add(
    argument("path", type=Path, help="file to write; it is not deleted"),
    argument("--memories", type=int, default=2**21),
    argument("--features", type=int, default=1024),
)
def mapped(options: argparse.Namespace) -> None:
    """Save a tree to a file of several gigabytes, map it into another process, and compare the results."""
    child = multiprocessing.get_context("spawn").Process(
        target=save_tree, args=(options.path, options.memories, options.features)
    )
    child.start()
    child.join()
    if child.exitcode != 0:
        sys.exit("the file could not be written")
    saved = np.load(options.path.with_suffix(".npz"))
    before = resident_megabytes()
    tree, opening = timed(ContextualMemoryTree.load, options.path, mmap=True, clock=time.perf_counter)
    opened = resident_megabytes()
    hits, first = timed(tree.query, saved["keys"], k=5, clock=time.perf_counter)
    _, second = timed(tree.query, saved["keys"], k=5, clock=time.perf_counter)
    same = np.array_equal(hits.ids, saved["ids"]) and np.array_equal(hits.scores, saved["scores"])
    print(f"file {options.path.stat().st_size / 1e9:.2f} GB, opened in {opening:.2f} s")
    print(f"resident memory: {opened - before:+.0f} MB to open, {resident_megabytes() - opened:+.0f} MB to answer")
    print(f"{len(saved['keys'])} queries: {first:.2f} s including loading of kernels, then {second:.3f} s")
    print(f"answers {'are the same' if same else 'DIFFER'} after loading")
    sys.exit(not same)


commands.include(shards.commands)
main = commands.main

if __name__ == "__main__":
    main()

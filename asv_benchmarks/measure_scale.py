"""Measure how the costs of an insert and of a query grow with the number of memories.

::

    python asv_benchmarks/measure_scale.py
    python asv_benchmarks/measure_scale.py --sizes 1e4 1e5 1e6 1e7 --repeats 1 --plot scale.png
    python asv_benchmarks/measure_scale.py --form text --repeats 1

Dense keys are random; texts are words of a vocabulary. Queries are damaged copies of keys, asked in one batch. Keys
are made and inserted in blocks, so that they are in memory once. Each size has a tree of its own; all are kept, made
compact, and asked in turns: dense keys of 64 features take up 0.4 GB for each million. One thread; needs tabulate, and
matplotlib to draw the plot. ``docs/scale.md`` reckons from such figures what a billion memories would need.
"""

import argparse
import math
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from benchmarks.floor import Visit, count_lines, list_reads
from benchmarks.keys import FORMS, Matrix, draw_words, noisy, reworded, rows_of_words
from tabulate import tabulate

from cmt_numba import ContextualMemoryTree
from cmt_numba._validation import check_rows

_BLOCK = 100_000  # keys made and inserted at once
_MOST_NEXT = 1000  # keys inserted at once into a tree that has all its memories
_ASKED_FOR_LINES = 500  # queries whose cache lines are counted


class Line(NamedTuple):
    """A fit a + b log2(n)."""

    start: float
    slope: float

    def at(self, n: float) -> float:
        """Return what the fit says of ``n`` memories."""
        return self.start + self.slope * math.log2(n)

    def __str__(self) -> str:
        sign = "+" if self.slope >= 0.0 else "-"
        return f"{self.start:.2f} {sign} {abs(self.slope):.3f} log2(n)"


def fit_logarithm(sizes: list[int], values: list[float]) -> Line:
    """Return the least squares fit of values by a + b log2(n)."""
    slope, start = np.polyfit(np.log2(sizes), values, 1)
    return Line(float(start), float(slope))


class Source:
    """Keys without end, any of which can be made again."""

    def __init__(self, form: str, n_features: int) -> None:
        self.form = form
        self._n_features = n_features

    def _draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        if self.form == "dense":
            return rng.standard_normal((n, self._n_features), dtype=np.float32)
        return draw_words(rng, n)

    def _block(self, i: int) -> np.ndarray:
        return self._draw(np.random.default_rng([0, i]), _BLOCK)

    def _rows(self, block: np.ndarray) -> Matrix:
        return block if self.form == "dense" else rows_of_words(block)

    def keys(self, first: int, stop: int) -> Iterator[Matrix]:
        """Return the keys ``first .. stop`` in blocks."""
        for i in range(first // _BLOCK, -(-stop // _BLOCK)):
            yield self._rows(self._block(i)[max(0, first - i * _BLOCK) : stop - i * _BLOCK])

    def others(self, i: int, n: int) -> Matrix:
        """Return the ``i``-th ``n`` keys that are none of those."""
        return self._rows(self._draw(np.random.default_rng([2, i]), n))

    def queries(self, n_keys: int, n_queries: int) -> Matrix:
        """Return damaged copies of some of the first keys."""
        rng = np.random.default_rng([1, n_keys])
        answers = np.sort(rng.integers(n_keys, size=n_queries))
        asked = [self._block(i)[answers[answers // _BLOCK == i] % _BLOCK] for i in np.unique(answers // _BLOCK)]
        rows = rng.permutation(np.concatenate(asked))
        return self._rows(noisy(rows, rng, 0.4) if self.form == "dense" else reworded(rows, rng, 0.3))


class Size(NamedTuple):
    """What is known of the trees of one size; times in microseconds."""

    n: int
    insert: float  # mean over the life of the tree
    next_insert: float  # into a tree that has all its memories
    query: float
    key_bytes: float
    other_bytes: float
    depth: int
    visit: Visit


def grow(source: Source, n: int, options: argparse.Namespace) -> tuple[float, ContextualMemoryTree]:
    """Return a tree of ``n`` memories, and the microseconds per insert."""
    tree = ContextualMemoryTree(options.trees, sure_margin=options.sure_margin, n_threads=1, random_state=0)
    taken = 0.0
    for block in source.keys(0, n):
        start = time.perf_counter()
        tree.insert(block)
        taken += time.perf_counter() - start
    return 1e6 * taken / n, tree


def measure(source: Source, sizes: list[int], options: argparse.Namespace) -> list[Size]:
    """Grow a tree of each size, and ask all of them in turns."""
    _, tree = grow(source, 1000, options)  # compiles, or loads from the cache on disk
    tree.query(source.queries(1000, 10))
    inserts: dict[int, list[float]] = {n: [] for n in sizes}
    trees: dict[int, ContextualMemoryTree] = {}
    for _ in range(options.repeats):
        for n in sizes:
            trees.pop(n, None)
            taken, trees[n] = grow(source, n, options)
            inserts[n].append(taken)
            print(f"{n:,} inserted: {taken:.2f} us each", flush=True)

    if not options.as_inserted:
        for n, tree in trees.items():
            start = time.perf_counter()
            tree.compact()
            print(f"{n:,} laid out in the order of leaves: {1e6 * (time.perf_counter() - start) / n:.2f} us each")
    queries = {n: source.queries(n, options.queries) for n in sizes}
    facts = {n: describe(trees[n], queries[n]) for n in sizes}
    next_inserts: dict[int, list[float]] = {n: [] for n in sizes}
    asked: dict[int, list[float]] = {n: [] for n in sizes}
    for _ in range(options.query_repeats):
        for n, tree in trees.items():
            start = time.perf_counter()
            tree.query(queries[n])
            asked[n].append(1e6 * (time.perf_counter() - start) / options.queries)
    for repeat in range(options.query_repeats):
        for n, tree in trees.items():
            n_next = min(_MOST_NEXT, max(1, n // 20))
            block = source.others(repeat, n_next)
            start = time.perf_counter()
            tree.insert(block)
            next_inserts[n].append(1e6 * (time.perf_counter() - start) / n_next)
    for tree in trees.values():
        tree.check_invariants()
    medians = [[statistics.median(times[n]) for times in (inserts, next_inserts, asked)] for n in sizes]
    return [Size(n, *times, *facts[n]) for n, times in zip(sizes, medians, strict=True)]


def describe(tree: ContextualMemoryTree, queries: Matrix) -> tuple[float, float, int, Visit]:
    """Return the bytes of a key and those beyond it, the depth, and what a query reads."""
    state = tree._forest.state
    assert state is not None
    keys, parameters = state.keys, state.parameters
    key_bytes = (keys.values.nbytes + keys.indices.nbytes + keys.spans.nbytes) / tree.n_memories
    rows = check_rows(queries[:_ASKED_FOR_LINES], sparse=parameters.sparse, n_features=parameters.n_features)
    visit = count_lines(state, rows, list_reads(state, rows, parameters.n_trees))
    return key_bytes, tree.nbytes / tree.n_memories - key_bytes, tree.depth, visit


def growth_table(sizes: list[int], values: list[float], fit: Line) -> str:
    """Return how values grow with the size, against log n and against a fit."""
    table = []
    for n, value in zip(sizes, values, strict=True):
        growth, log_growth = value / values[0], np.log(n) / np.log(sizes[0])
        residual = value - fit.at(n)
        numbers = [value, fit.at(n), residual, growth, log_growth, growth / log_growth]
        table.append([f"{n:,}", *[f"{number:.2f}" for number in numbers], f"{residual / fit.at(n):+.0%}"])
    headers = ["memories", "us", "fit", "residual", "growth", "growth of\nlog n", "growth to\nthat of log n"]
    headers.append("residual\nto the fit")
    return tabulate(table, headers, disable_numparse=True)


def save_plot(path: Path, sizes: list[int], costs: dict[str, tuple[list[float], Line]], title: str) -> None:
    """Draw all costs against the size, each with its fit."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    curve = np.geomspace(sizes[0], sizes[-1], 50)
    for i, (name, (values, fit)) in enumerate(costs.items()):
        axes.plot(sizes, values, "o", color=f"C{i}", label=f"{name}: {fit}")
        axes.plot(curve, [fit.at(n) for n in curve], "-", color=f"C{i}")
    axes.set(xscale="log", xlabel="memories", ylabel="microseconds", title=title)
    axes.set_ylim(bottom=0.0)
    axes.legend()
    figure.savefig(path)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Measure how costs grow with the number of memories.")
    parser.add_argument("--form", choices=FORMS, default="dense")
    parser.add_argument("--sizes", type=float, nargs="+", default=[1e4, 3e4, 1e5, 3e5, 1e6])
    parser.add_argument("--features", type=int, default=64, help="of dense keys")
    parser.add_argument("--trees", type=int, default=1)
    parser.add_argument("--sure-margin", type=float, default=0.75, help="with 0 a search never turns back")
    parser.add_argument("--repeats", type=int, default=3, help="trees grown of each size; their median counts")
    parser.add_argument("--queries", type=int, default=4000)
    parser.add_argument("--query-repeats", type=int, default=7, help="batches asked of each tree; their median counts")
    parser.add_argument("--as-inserted", action="store_true", help="do not compact the trees before they are asked")
    parser.add_argument("--plot", type=Path, help="file to draw the figures in")
    options = parser.parse_args()
    sizes = sorted(int(size) for size in options.sizes)

    source = Source(options.form, options.features)
    found = measure(source, sizes, options)
    table = []
    for size in found:
        facts = [size.key_bytes, size.other_bytes, size.depth, *size.visit]
        table.append([f"{size.n:,}", *[f"{fact:.1f}" for fact in facts]])
    headers = ["memories", "bytes of\na key", "bytes\nbeyond", "depth", "routers\na query", "keys\na query"]
    headers += ["lines of\nrouters", "all cache\nlines"]
    print(tabulate(table, headers, disable_numparse=True))

    names = {"insert": "insert, mean over the tree's life", "next_insert": "next insert", "query": "query"}
    costs = {}
    for field, name in names.items():
        values = [getattr(size, field) for size in found]
        fit = fit_logarithm(sizes, values)
        costs[name] = values, fit
        print(f"\n{name}: {fit} microseconds")
        print(growth_table(sizes, values, fit))
    print("\nThe invariants held at every size.")

    if options.plot:
        save_plot(options.plot, sizes, costs, f"{options.form} keys, {options.trees} trees, one thread")


if __name__ == "__main__":
    main()

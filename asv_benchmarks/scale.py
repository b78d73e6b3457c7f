"""Measure how costs and memory grow, whether memory stays bounded, and write large files."""

from shared.commands import Commands, argument, timed  # before libraries that read the number of threads

# isort: split
import argparse
import gc
import itertools
import math
import multiprocessing
import pickle
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from benchmarks.floor import Visit, compare, count_lines, list_reads
from benchmarks.keys import FORMS, Matrix, draw_words, make_data, noisy, reworded, rows_of_words
from shared.labelled_sets import read_lines
from sklearn.feature_extraction.text import TfidfVectorizer
from tabulate import tabulate
from tqdm import tqdm

from cmt_numba import CMTClassifier, CMTMultilabelClassifier, CMTRetriever, ContextualMemoryTree
from cmt_numba._validation import check_rows
from cmt_numba.sizing import predict_nbytes

commands = Commands(__doc__)

_BLOCK = 100_000  # keys generated and inserted at once
_MOST_NEXT = 1000  # keys inserted at once into a full tree
_ASKED_AFTER_LOADING = 1000  # queries of a mapped tree
_ASKED_FOR_LINES = 500  # queries whose cache lines are counted


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


class Source:
    """An endless source of reproducible keys."""

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
        """Yield the keys ``first .. stop`` in blocks."""
        for i in range(first // _BLOCK, -(-stop // _BLOCK)):
            yield self._rows(self._block(i)[max(0, first - i * _BLOCK) : stop - i * _BLOCK])

    def others(self, i: int, n: int) -> Matrix:
        """Return the ``i``-th block of ``n`` keys that are not among those."""
        return self._rows(self._draw(np.random.default_rng([2, i]), n))

    def queries(self, n_keys: int, n_queries: int) -> Matrix:
        """Return noisy copies of some of the first keys."""
        rng = np.random.default_rng([1, n_keys])
        answers = np.sort(rng.integers(n_keys, size=n_queries))
        asked = [self._block(i)[answers[answers // _BLOCK == i] % _BLOCK] for i in np.unique(answers // _BLOCK)]
        rows = rng.permutation(np.concatenate(asked))
        return self._rows(noisy(rows, rng, 0.4) if self.form == "dense" else reworded(rows, rng, 0.3))


class Size(NamedTuple):
    """The measurements of trees of one size. Times are in microseconds."""

    n: int
    insert: float  # mean over all inserts of the tree
    next_insert: float  # into a full tree
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
    """Return the bytes per key, the other bytes per memory, the depth, and what a query reads."""
    state = tree._forest.state
    assert state is not None
    keys, parameters = state.keys, state.parameters
    key_bytes = (keys.values.nbytes + keys.indices.nbytes + keys.spans.nbytes) / tree.n_memories
    rows = check_rows(queries[:_ASKED_FOR_LINES], sparse=parameters.sparse, n_features=parameters.n_features)
    visit = count_lines(state, rows, list_reads(state, rows, parameters.n_trees))
    return key_bytes, tree.nbytes / tree.n_memories - key_bytes, tree.depth, visit


def growth_table(sizes: list[int], values: list[float], fit: Line) -> str:
    """Return a table of how values grow with the size, compared with log n and with a fit."""
    table = []
    for n, value in zip(sizes, values, strict=True):
        growth, log_growth = value / values[0], np.log(n) / np.log(sizes[0])
        residual = value - fit.at(n)
        numbers = [value, fit.at(n), residual, growth, log_growth, growth / log_growth]
        table.append([f"{n:,}", *[f"{number:.2f}" for number in numbers], f"{residual / fit.at(n):+.0%}"])
    headers = ["memories", "us", "fit", "residual", "growth", "growth of\nlog n", "growth to\nthat of log n"]
    headers.append("residual\nto the fit")
    return tabulate(table, headers, disable_numparse=True)


@commands.add(
    argument("--form", choices=FORMS, default="dense"),
    argument("--sizes", type=float, nargs="+", default=[1e4, 3e4, 1e5, 3e5, 1e6]),
    argument("--features", type=int, default=64, help="of dense keys"),
    argument("--trees", type=int, default=1),
    argument("--sure-margin", type=float, default=0.75, help="with 0 a search never turns back"),
    argument("--repeats", type=int, default=3, help="trees grown of each size; their median counts"),
    argument("--queries", type=int, default=4000),
    argument("--query-repeats", type=int, default=7, help="batches asked of each tree; their median counts"),
    argument("--as-inserted", action="store_true", help="do not compact the trees before they are asked"),
)
def growth(options: argparse.Namespace) -> None:
    """Measure how the costs of an insert and of a query grow with the number of memories.

    Dense keys are random; texts are words of a vocabulary. Queries are noisy copies of keys, in one batch. Keys are
    generated and inserted in blocks, so only the tree holds all of them. Each size has a tree of its own. The trees are
    compacted and kept in memory, and queried in turns. Dense keys of 64 features take 0.4 GB per million. Uses one
    thread. Needs tabulate, and matplotlib to draw the plot. ``docs/measurements/scale.md`` estimates from such
    measurements what a billion memories would need.
    """
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


_SAMPLE = 2000
_SMALL_BATCH = 0.002  # share of all keys


class Configuration(NamedTuple):
    """A set of keys and a forest."""

    name: str
    n: int
    n_features: int  # or where the features come from
    cells: int  # of a sparse key
    n_trees: int
    leaf_multiplier: float
    copies: bool = False


_CONFIGURATIONS = [
    Configuration("dense", 1_000, 16, 0, 1, 4.0),
    Configuration("dense", 1_000, 512, 0, 16, 4.0),
    Configuration("dense", 10_000, 64, 0, 16, 1.0),
    Configuration("dense", 30_000, 128, 0, 4, 4.0, copies=True),
    Configuration("dense", 60_000, 32, 0, 8, 2.0, copies=True),
    Configuration("dense", 100_000, 16, 0, 4, 10.0),
    Configuration("dense", 200_000, 16, 0, 1, 1.0),
    Configuration("dense", 200_000, 64, 0, 2, 4.0),
    Configuration("uniform", 1_000, 500, 10, 1, 4.0),
    Configuration("uniform", 20_000, 5_000, 20, 4, 4.0),
    Configuration("uniform", 20_000, 1_000_000, 20, 1, 10.0),
    Configuration("words", 5_000, 20_000, 12, 16, 1.0),
    Configuration("words", 50_000, 50_000, 12, 2, 4.0),
    Configuration("words", 200_000, 100_000, 12, 1, 4.0),
]
_OF_TEXTS = [
    Configuration("clinc150", 0, 0, 0, 1, 1.0),
    Configuration("clinc150", 0, 0, 0, 4, 4.0),
    Configuration("bible", 0, 0, 0, 1, 4.0),
    Configuration("bible", 0, 0, 0, 8, 10.0),
    Configuration("wikipara1k", 0, 0, 0, 1, 4.0),
    Configuration("wikipara1k", 0, 0, 0, 4, 10.0),
]


def draw_sparse(configuration: Configuration, rng: np.random.Generator) -> scipy.sparse.csr_array:
    """Return sparse keys whose features are all equally frequent, or as frequent as words."""
    n, d, cells = configuration.n, configuration.n_features, configuration.cells
    common = np.arange(1.0, d + 1) ** -1.0 if configuration.name == "words" else np.ones(d)
    features = rng.choice(d, size=(n, cells), p=common / common.sum())
    rows = np.repeat(np.arange(n), cells)
    keys = scipy.sparse.csr_array((np.ones(n * cells, np.float32), (rows, features.reshape(-1))), shape=(n, d))
    keys.sum_duplicates()
    keys.data *= (1.0 - np.log(common))[keys.indices].astype(np.float32)
    return keys


def read_texts(folder: Path, name: str) -> list[str]:
    """Return the texts that a set stores."""
    if name == "bible":
        return [line["text"]["KJV"] for line in read_lines(folder / "bible/verses.jsonl.gz") if "KJV" in line["text"]]
    return [line["text"] for line in read_lines(folder / name / "train.jsonl.gz")]


def sets_of_keys(most: float, data: Path | None) -> Iterator[tuple[Configuration, Any]]:
    """Yield the configurations of up to ``most`` memories and those of texts, with the keys in random order."""
    rng = np.random.default_rng(0)
    for configuration in _CONFIGURATIONS:
        if configuration.n > most:
            continue
        if configuration.name == "dense":
            yield configuration, rng.standard_normal((configuration.n, configuration.n_features), dtype=np.float32)
        else:
            yield configuration, draw_sparse(configuration, rng)
    for configuration in _OF_TEXTS if data else []:
        texts = read_texts(data, configuration.name)
        keys = scipy.sparse.csr_array(TfidfVectorizer(sublinear_tf=True, dtype=np.float32).fit_transform(texts))
        keys = keys[rng.permutation(keys.shape[0])]
        yield configuration._replace(n=keys.shape[0], n_features=keys.shape[1]), keys


def grown(configuration: Configuration, keys: Any, n_batches: int) -> int:
    """Return the bytes of a forest that was grown in ``n_batches`` batches."""
    tree = ContextualMemoryTree(
        configuration.n_trees, leaf_multiplier=configuration.leaf_multiplier, n_threads=1, random_state=0
    )
    for batch in np.array_split(np.arange(keys.shape[0]), min(n_batches, keys.shape[0])):
        tree.insert(keys[batch[0] : batch[-1] + 1])
    if configuration.copies:
        tree.compact()
    return tree.nbytes


@commands.add(
    argument("--data", type=Path, help="folder of public data"),
    argument("--most-memories", type=float, default=1e6, help="leave out larger sets that are not of texts"),
)
def memory(options: argparse.Namespace) -> None:
    """Compare the memory of forests with the prediction of ``cmt_numba.sizing.predict_nbytes``.

    Dense keys are random. Sparse keys have features drawn uniformly, or with the frequencies of words. With ``--data``,
    texts of public data are measured too (see ``shared/labelled_sets.py``); the sample for their prediction has 2,000
    texts. Each set is inserted at once, and then again in small batches, which leaves more spare room in the arrays.
    """
    table = []
    for configuration, keys in sets_of_keys(options.most_memories, options.data):
        how = {name: getattr(configuration, name) for name in ("n_trees", "leaf_multiplier", "copies")}
        n, d = keys.shape
        foretold, by_number = [predict_nbytes(n, d, **how)] * 2
        cells = float(d)
        if scipy.sparse.issparse(keys):
            cells = keys.nnz / n
            foretold = predict_nbytes(n, sample=keys[:_SAMPLE], **how)
            by_number = predict_nbytes(n, d, cells_per_key=cells, **how)
        taken, of_batches = (grown(configuration, keys, n_batches) for n_batches in (1, int(1 / _SMALL_BATCH)))
        row = [configuration.name, f"{n:,}", f"{d:,}", f"{cells:.1f}", *how.values(), f"{taken / 1e6:.2f}"]
        row += [f"{foretold / taken - 1:+.1%}", f"{by_number / taken - 1:+.1%}", f"{of_batches / taken:.2f}"]
        print(*row, flush=True)
        table.append(row)
    headers = [
        "keys",
        "memories",
        "features",
        "cells",
        "trees",
        "c",
        "copies",
        "MB",
        "error",
        "error without\na sample",
    ]
    print(tabulate(table, [*headers, "in batches,\ntimes as much"], disable_numparse=True))


DRAWN = 200_000
WORDS = 12
VOCABULARY = 50_000
FEATURES = 16


def make_pool(sparse: bool, rng: np.random.Generator) -> np.ndarray | scipy.sparse.csr_array:
    """Return keys to draw from."""
    if not sparse:
        return rng.normal(size=(DRAWN, FEATURES)).astype(np.float32)
    frequency = 1.0 / np.arange(1, VOCABULARY + 1)
    words = rng.choice(VOCABULARY, size=DRAWN * WORDS, p=frequency / frequency.sum())
    rows = np.repeat(np.arange(DRAWN), WORDS)
    return scipy.sparse.csr_array((np.ones(words.size, np.float32), (rows, words)), shape=(DRAWN, VOCABULARY))


@commands.add(
    argument("--memories", type=float, default=1e5),
    argument("--steps", type=float, default=1e6),
    argument("--trees", type=int, default=1),
    argument("--sparse", action="store_true"),
)
def turnover(options: argparse.Namespace) -> None:
    """Measure whether memory stays bounded while each step removes one memory and inserts another.

    ``churn`` does the same for estimators and bounded trees. Sparse keys are drawn like texts: 12 words of a vocabulary
    of 50,000, with frequent and rare words.
    """
    n, steps = int(options.memories), int(options.steps)
    rng = np.random.default_rng(0)
    pool = make_pool(options.sparse, rng)
    tree = ContextualMemoryTree(options.trees, random_state=0)
    ids = tree.insert(pool[rng.integers(DRAWN, size=n)])
    given_out = set(ids.tolist())
    bytes_before = tree.nbytes
    start = time.perf_counter()
    for step in range(1, steps + 1):
        i = rng.integers(n)
        tree.remove(ids[i])
        ids[i] = tree.insert(pool[[rng.integers(DRAWN)]])[0]
        given_out.add(int(ids[i]))
        if step % max(1, steps // 10) == 0:
            microseconds = 1e6 * (time.perf_counter() - start) / step
            print(f"{step:>9,} steps: {tree.nbytes / bytes_before:.3f} times the memory, {microseconds:.0f} us a step")
    tree.check_invariants()
    assert set(tree.ids.tolist()) == set(ids.tolist())
    print(f"{len(given_out):,} different ids for {n + steps:,} inserts; the invariants hold.")


POOL = 5000
Step = Callable[[int], Any]


def cases(n: int, n_features: int) -> dict[str, Callable[[], tuple[Any, Step]]]:
    """Return objects with about ``n`` memories by name, and a function that makes one step of changes to each.

    Sparse keys have ``n_features`` features, 10 of them in each row.
    """
    random = np.random.default_rng(0)
    rows = random.normal(size=(POOL, 16)).astype(np.float32)
    density = min(1.0, 10 / n_features)
    words = scipy.sparse.random_array(
        (POOL, n_features), density=density, random_state=random, format="csr", dtype=np.float32
    )
    vectors = random.normal(size=(POOL, 64)).astype(np.float32)
    names = [f"object {i}" for i in range(POOL)]

    def tree(X: Any, **options: Any) -> tuple[Any, Step]:
        grown = ContextualMemoryTree(random_state=0, **options)
        grown.insert(X[:n])
        if options:
            return grown, lambda i: grown.insert(X[[i % POOL]])
        return grown, lambda i: (grown.remove(grown.ids[:1]), grown.insert(X[[i % POOL]]))

    def retriever(X: Any, values: Any, *, feedback: bool = False) -> tuple[Any, Step]:
        found = CMTRetriever(random_state=0, n_value_passes=1).fit(X[:n], values[:n])

        def step(i: int) -> None:
            found.remove(i)
            at = (n + i) % POOL
            found.partial_fit(X[at : at + 1], values[at : at + 1])
            if feedback:
                found.feedback(X[:1], [i + 2], [1.0])

        return found, step

    def classifier(X: Any, kind: Any, y: Any) -> tuple[Any, Step]:
        learner = kind(random_state=0, store_examples=False, n_trees=2).fit(X[:n], y[:n])
        return learner, lambda i: learner.partial_fit(X[i % n : i % n + 1], y[i % n : i % n + 1])

    several = (random.random((POOL, 50)) < 0.05).astype(int)
    one = np.arange(POOL) % 50
    return {
        "tree": lambda: tree(rows),
        "sparse tree": lambda: tree(words),
        "bounded tree": lambda: tree(rows, max_memories=n),
        "bounded sparse tree": lambda: tree(words, max_memories=n, eviction="oldest"),
        "retriever by key": lambda: retriever(rows, names),
        "sparse retriever by key, with feedback": lambda: retriever(words, names, feedback=True),
        "retriever by value": lambda: retriever(words, vectors),
        "retriever by sparse value": lambda: retriever(rows, words),
        "classifier": lambda: classifier(rows, CMTClassifier, one),
        "sparse classifier": lambda: classifier(words, CMTClassifier, one),
        "multilabel classifier": lambda: classifier(words, CMTMultilabelClassifier, several),
    }


def measure_steps(name: str, make: Callable[[], tuple[Any, Step]], steps: int) -> None:
    """Print the size of an object after several numbers of steps."""
    thing, step = make()
    began, shown, before = time.perf_counter(), [], 0.0
    first = min(steps // 5, 2000)
    for i in range(steps):
        if i == first:
            pickle.dumps(thing)
            began, before = time.perf_counter(), _peak()
        step(i)
        if i + 1 > first and (i + 1) % (steps // 4) == 0:
            gc.collect()
            shown.append(f"{len(pickle.dumps(thing)) / 1e3:.0f} kB, {_peak() - before:+.1f} MB")
    seconds = (time.perf_counter() - began) / (steps - first)
    thing.check_invariants()
    print(f"{name}: {' | '.join(shown)}; {1e6 * seconds:.0f} us a step", flush=True)


def _peak() -> float:
    """Return the peak memory of this process, in MB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1e6 if sys.platform == "darwin" else 1e3)  # in bytes on macOS, in kilobytes elsewhere


@commands.add(
    argument("--memories", type=float, default=500),
    argument("--steps", type=float, default=1e5),
    argument("--features", type=float, default=2000, help="of sparse keys"),
    argument("--only", default="", help="part of the name of what is measured"),
)
def churn(options: argparse.Namespace) -> None:
    """Measure whether estimators, bounded trees and their files stay small while memories come and go.

    Each step adds a memory and removes one. Classifiers never forget a label, so they learn an example of a known class
    without storing it. As the steps go on, prints the size of the pickled object, and the growth of the peak memory of
    the process since the first steps. POSIX only.

    A router of sparse keys holds a weight for each feature that it has seen. So trees of sparse keys grow until their
    oldest routers have seen all features: soon with ``--features 200``, slowly with 2,000.
    """
    for name, make in cases(int(options.memories), int(options.features)).items():
        if options.only in name:
            measure_steps(name, make, int(options.steps))


@commands.add(
    argument("--keys", nargs="+", default=["dense 64", "dense 128", "text"], help="forms, and features"),
    argument("--sizes", type=float, nargs="+", default=[1e4, 1e5, 1e6]),
    argument("--trees", type=int, nargs="+", default=[1, 8]),
    argument("--probes", type=int, nargs="+", default=[1], help="leaves of each tree"),
    argument("--queries", type=int, default=4000),
    argument("--repeats", type=int, default=7, help="number of interleaved runs; times are medians"),
)
def floor(options: argparse.Namespace) -> None:
    """Compare the time of queries with a lower bound: a bare loop over the same memory.

    The bare loop reads the same router weights and keys and computes the same dot products, and does nothing else; see
    ``benchmarks/floor.py``. Uses one thread, which takes ten minutes to insert a million texts into eight trees. Needs
    tabulate.
    """
    table = []
    for keys, size, n_trees in itertools.product(options.keys, options.sizes, options.trees):
        form, _, n_features = keys.partition(" ")
        data = make_data(form, int(size), options.queries, int(n_features or 0))
        tree = ContextualMemoryTree(n_trees, n_threads=1, random_state=0)
        tree.insert(data.keys)
        rows = check_rows(data.queries, sparse=form == "text")
        for layout in ("as inserted", "compact"):
            if layout == "compact":
                tree.compact()
            for n_leaves in options.probes:
                n_probes = n_trees * n_leaves
                visit = count_lines(tree._forest.state, rows, list_reads(tree._forest.state, rows, n_probes))
                times = compare(tree, data.queries, n_probes, options.repeats)
                to_codes = f"{times.query / times.codes:.2f}" if np.isfinite(times.codes) else ""
                row = [f"{value:.0f}" for value in visit] + [f"{value:.2f}" for value in (times.query, times.floor)]
                row += [f"{times.query / times.floor:.2f}", to_codes]
                table.append([keys, f"{int(size):,}", layout, n_trees, n_leaves, *row])
                print(*table[-1], flush=True)
        del tree
    headers = [
        "keys",
        "memories",
        "layout",
        "trees",
        "leaves of\neach tree",
        "routers\nmet",
        "keys\nscored",
        "lines of\nrouters",
        "all cache\nlines",
    ]
    headers += ["query,\nus", "bare loop,\nus", "query to\nbare loop", "query to loop\nover codes"]
    print(tabulate(table, headers, disable_numparse=True))


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
    argument("--words", type=int, default=30, help="words of a row"),
    argument("--own", type=int, default=8, help="how many of them are of the row's class"),
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
    """Write a tree of random keys to a file, and its answers to a few of them to another one."""
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
    argument("path", type=Path, help="file to write; it stays"),
    argument("--memories", type=int, default=2**21),
    argument("--features", type=int, default=1024),
)
def mapped(options: argparse.Namespace) -> None:
    """Write a tree to a file of some gigabytes, map it in another process, and compare the answers."""
    child = multiprocessing.get_context("spawn").Process(
        target=save_tree, args=(options.path, options.memories, options.features)
    )
    child.start()
    child.join()
    if child.exitcode != 0:
        sys.exit("the file could not be written")
    saved = np.load(options.path.with_suffix(".npz"))
    before = resident_megabytes()
    tree, opening = timed(lambda: ContextualMemoryTree.load(options.path, mmap=True), time.perf_counter)
    opened = resident_megabytes()
    hits, first = timed(lambda: tree.query(saved["keys"], k=5), time.perf_counter)
    _, second = timed(lambda: tree.query(saved["keys"], k=5), time.perf_counter)
    same = np.array_equal(hits.ids, saved["ids"]) and np.array_equal(hits.scores, saved["scores"])
    print(f"file {options.path.stat().st_size / 1e9:.2f} GB, opened in {opening:.2f} s")
    print(f"resident memory: {opened - before:+.0f} MB to open, {resident_megabytes() - opened:+.0f} MB to answer")
    print(f"{len(saved['keys'])} queries: {first:.2f} s with compilation or loading of kernels, then {second:.3f} s")
    print(f"answers {'as before' if same else 'DIFFERENT from before'}")
    sys.exit(not same)


main = commands.main

if __name__ == "__main__":
    main()

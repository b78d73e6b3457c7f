"""Compare ``MemoryStore`` with other vector indexes: time, recall, changes, threads and filters."""

from shared.commands import DATA, Commands, argument, print_table, timed

import argparse
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from shared.products import best_columns
from shared.vector_rivals import Measured, measured, of_store, rivals_of
from shared.vectors import (
    N_ASKED,
    K,
    Vectors,
    clustered,
    features,
    file_of,
    graph_of,
    made_sets,
    recall,
    unit,
)

from cmt_numba import MemoryStore

commands = Commands(__doc__)

N_CHANGED = 500


@commands.add(
    argument("--n", type=int, default=20_000, help="number of clustered vectors"),
    argument("--features", type=int, default=128),
)
def changes(options: argparse.Namespace) -> None:
    """Measure single changes in microseconds of CPU time on one thread. hnswlib is optional."""
    n, n_features = options.n, options.features
    data, others = clustered(n, n_features), clustered(n, n_features, seed=1).stored[:N_CHANGED]
    changed = np.random.default_rng(2).permutation(n)[:N_CHANGED].tolist()
    rows: list[list[Any]] = []

    def note(name: str, *changes: Callable[[int], Any]) -> None:
        rows.append([name])
        for change in changes:
            rows[-1].append(1e6 * float(np.median([timed(change, i)[1] for i in range(N_CHANGED)][50:])))

    def fill(store: MemoryStore) -> tuple[Callable[[int], Any], ...]:
        store.add(range(n), data.stored)
        return (
            lambda i: store.upsert(changed[i], others[i : i + 1]),
            lambda i: store.add(n + i, others[i : i + 1]),
            lambda i: store.delete(n + i),
        )

    with tempfile.TemporaryDirectory() as folder:
        note("store in memory", *fill(MemoryStore(random_state=0, n_threads=1)))
        with MemoryStore(Path(folder) / "store", random_state=0, n_threads=1, sync_every=1000) as durable:
            note("store in a folder, without waiting for the disk", *fill(durable))
    if find_spec("hnswlib"):
        import hnswlib

        graph = hnswlib.Index("cosine", n_features)
        graph.init_index(n + N_CHANGED, M=16, ef_construction=100, random_seed=0, allow_replace_deleted=True)
        graph.add_items(data.stored, np.arange(n), num_threads=1)

        def replace(i: int) -> None:
            graph.mark_deleted(changed[i])
            graph.add_items(others[i : i + 1], changed[i : i + 1], num_threads=1, replace_deleted=True)

        def add(i: int) -> None:
            graph.add_items(others[i : i + 1], [n + i], num_threads=1)

        note("hnswlib", replace, add, lambda i: graph.mark_deleted(n + i))
    print_table(["index", "upsert", "add", "delete"], rows, f"single changes, {n} x {n_features}: median in us", ".0f")


N_THREADS = 1, 2, 8, 32


def asked_and_changed(
    ask: Callable[[int], Any], n_threads: int, change: Callable[[int], Any] | None, seconds: float
) -> list[float]:
    """Return the queries per second of reader threads, the changes per second of a writer, and latency quantiles."""
    times: list[list[float]] = [[] for _ in range(n_threads + 1)]
    together, end = threading.Barrier(n_threads + 2), [0.0]

    def work(own: list[float], order: np.ndarray, do: Callable[[int], Any] | None) -> None:
        together.wait()  # start all threads at the same time
        i = 0
        while do is not None and perf_counter() < end[0]:
            own.append(timed(do, int(order[i % order.size]), clock=perf_counter)[1])
            i += 1

    for do in (ask, change):
        if do is not None:
            do(0)  # compile all kernels
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


@commands.add(
    argument("--n", type=int, default=20_000, help="number of clustered vectors"),
    argument("--features", type=int, default=128),
    argument("--seconds", type=float, default=2.0, help="time per number of threads"),
)
def threads(options: argparse.Namespace) -> None:
    """Compare queries from several threads with hnswlib's, alone and while another thread changes the store.

    Queries clustered vectors from 1 to 32 threads, one row per call: without changes, while another thread replaces
    vectors in memory, and in a folder. Also measures changes without queries. Times are wall times. hnswlib is skipped
    unless installed.
    """
    n, n_features, seconds = options.n, options.features, options.seconds
    data, others = clustered(n, n_features), clustered(n, n_features, seed=1).stored
    rows: list[list[Any]] = []
    store = MemoryStore(random_state=0, n_threads=1)
    store.add(range(n), data.stored)

    def replace(i: int) -> None:
        store.upsert([i % n], others[i % n : i % n + 1])

    with (
        tempfile.TemporaryDirectory() as folder,
        MemoryStore(Path(folder) / "store", random_state=0, n_threads=1, snapshot_seconds=1.0) as durable,
    ):
        durable.add(range(n // 4), data.stored[: n // 4])

        def replace_durably(i: int) -> None:
            durable.upsert([i % (n // 4)], others[i % n : i % n + 1])

        changes: dict[str, tuple[MemoryStore, Callable[[int], Any] | None]] = {
            "none": (store, None),
            "one replaced": (store, replace),
            "one replaced, in a folder": (durable, replace_durably),
        }
        for how, (asked, change) in changes.items():
            ask = lambda i: asked.query(data.asked[i : i + 1], K)  # noqa: B023, E731
            for n_threads in N_THREADS if change is None else (0, *N_THREADS):
                rows.append([how, n_threads, *asked_and_changed(ask, n_threads, change, seconds)])
    if find_spec("hnswlib"):  # its queries must not run during changes
        graph = graph_of(data.stored)[0]
        graph.set_ef(20)
        ask = lambda i: graph.knn_query(data.asked[i : i + 1], K, num_threads=1)  # noqa: E731
        rows += [
            ["hnswlib, none", n_threads, *asked_and_changed(ask, n_threads, None, seconds)] for n_threads in N_THREADS
        ]
    headers = ["changes", "readers", "queries/s", "p50 ms", "p99", "longest", "changes/s", "p50 ms", "p99", "longest"]
    print_table(headers, rows, f"threads, {n} x {n_features}", ".2f")


@commands.add(
    DATA,
    argument("--n", type=int, default=20_000, help="vectors of each set, if there are as many"),
    argument("--features", type=int, default=256, help="features of clusters, vectors of low rank and texts"),
    argument("--sets", nargs="+", default=["clusters", "low rank", "scattered", "pictures", "texts"]),
    argument("--vectors", type=Path, metavar="FILE", help='array for the set "given", for example of sentence vectors'),
)
def rivals(options: argparse.Namespace) -> None:
    """Compare the time to reach a recall with a NumPy product, faiss, hnswlib and ScaNN, on one thread.

    Times are interpolated between settings of a library to the same recall, for a batch of 1,000 rows and for single
    rows. The ratio after each time is that of the store's time to it.
    """
    n = options.n
    sets = made_sets(n, options.features, options.data)
    sets |= {"pictures": lambda: features(options.data, "flickr8k"), "given": lambda: given(options.vectors, n)}
    headers = ["", "built in s", *(f"{what} {goal}" for goal in GOALS for what in ("batch", "single row"))]
    for name in options.sets:
        data = sets[name]()
        rows, times = list[list[str]](), np.empty(0)
        for library, seconds, results in compared(data):
            own = times_at_goals(results)
            times = own if times.size == 0 else times
            cells = [f"{a:.0f} ({b / a:.2f})" if np.isfinite(a) else "" for a, b in zip(own, times, strict=True)]
            rows.append([library, f"{seconds:.1f}", *cells])
        print_table(headers, rows, f"{name}: {data.stored.shape[0]} x {data.stored.shape[1]}")


GOALS = (0.95, 0.99)


def times_at_goals(results: list[Measured]) -> np.ndarray:
    """Return the times in a batch and for single rows at each goal, interpolated; NaN if no setting reaches it."""
    ordered = np.array(sorted(results))
    times = [np.interp(goal, ordered[:, 0], ordered[:, i], right=np.nan) for goal in GOALS for i in (1, 2)]
    return np.array(times)


def given(file: Path, n: int) -> Vectors:
    """Return some rows of an array, scaled to unit length."""
    rows = np.load(file, mmap_mode="r")
    some = np.random.default_rng(0).permutation(len(rows))[: n + N_ASKED]
    rows = unit(rows[np.sort(some)][np.argsort(np.argsort(some))])
    return Vectors(rows[:-N_ASKED], rows[-N_ASKED:])


def compared(data: Vectors) -> Iterator[tuple[str, float, list[Measured]]]:
    """Yield the seconds to build each index, and what is measured with its settings. The first is the store."""
    product = lambda some: np.argpartition(some @ data.stored.T, -K, axis=1)[:, -K:]  # noqa: E731
    true = product(data.asked)
    yield "store", *of_store(data, true)
    for rival in rivals_of(data.stored):
        results: list[Measured] = []
        for _, search in rival.searches:
            if recall(np.asarray(search(data.asked)), true) >= min(GOALS) - 0.05:
                results.append(measured(search, data.asked, true))
            if len(results) > 1 and results[-1].recall >= max(GOALS):
                break
        if results:
            yield rival.name, rival.seconds, results
    yield "product", 0.0, [measured(product, data.asked, true)]


SHARES = (0.5, 0.1, 0.05, 0.01, 0.005, 0.001)
N_TIMED, N_REPEATED = 200, 20  # queries of a batch, and repetitions


@commands.add(
    argument("--n", type=int, default=60_000, help="clustered vectors"), argument("--features", type=int, default=384)
)
def filters(options: argparse.Namespace) -> None:
    """Compare filtered queries with NumPy and with faiss's ID selectors: recall at 10, in a batch and one at a time.

    NumPy copies the candidates and computes a product. faiss scans 16 lists of an IVF index with ``IDSelectorBitmap``.
    Times are microseconds of CPU time per query: the first quartile over repetitions, in which the methods take turns.
    faiss is skipped unless installed.
    """
    data, rng = clustered(options.n, options.features), np.random.default_rng(1)
    store, rows = MemoryStore(random_state=0, n_threads=1), list[list[Any]]()
    store.add(range(options.n), data.stored)
    index = file_of(data.stored)[0] if find_spec("faiss") else None
    for share in SHARES:
        chosen = np.sort(rng.choice(options.n, max(K, int(share * options.n)), replace=False))
        searches: dict[str, Callable[[np.ndarray], Any]] = {
            "store": partial(store.query, k=K, where=store.filter(keys=chosen)),
            "NumPy": lambda asked: chosen[best_columns(asked @ data.stored[chosen].T, K)],  # noqa: B023
        }
        if index is not None:
            searches["faiss IVF"] = selected(index, chosen, options.n)
        some, true = data.asked[:N_TIMED], searches["NumPy"](data.asked[:N_TIMED])
        singles = {name: partial(one_by_one, search, some[:50]) for name, search in searches.items()}
        batches = {name: partial(search, some) for name, search in searches.items()}
        times = quartiles(batches, N_TIMED), quartiles(singles, 50)
        for name, search in searches.items():
            found = search(some)
            recalled = recall(getattr(found, "keys", found), true)
            rows.append([f"{100 * share:g} %", name, recalled, times[0][name], times[1][name]])
    headers = ["candidates", "search", "recall", "us/query", "us, single row"]
    print_table(headers, rows, f"filters, {options.n} x {options.features}")


def selected(index: Any, chosen: np.ndarray, n: int) -> Callable[[np.ndarray], Any]:
    """Return a search of faiss among some vectors."""
    import faiss

    bits = np.packbits(np.isin(np.arange(n), chosen), bitorder="little")
    how = faiss.SearchParametersIVF(sel=faiss.IDSelectorBitmap(bits), nprobe=16)
    return lambda asked: index.search(asked, K, params=how)[1]


def one_by_one(search: Callable[[np.ndarray], Any], asked: np.ndarray) -> None:
    """Search for the rows one at a time."""
    for i in range(len(asked)):
        search(asked[i : i + 1])


def quartiles(works: Mapping[str, Callable[[], Any]], n: int) -> dict[str, float]:
    """Return the first quartile over rounds of each function's microseconds per query. A call makes ``n`` queries."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for i in range(N_REPEATED + 2):
        for name, work in works.items():
            work()  # fills the processor's caches
            seconds = timed(work)[1]
            if i >= 2:  # the first calls compile
                times[name].append(seconds)
    return {name: 1e6 * float(np.quantile(spent, 0.25)) / n for name, spent in times.items()}


if __name__ == "__main__":
    commands.main()

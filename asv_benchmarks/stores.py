"""Compare ``MemoryStore`` with other vector indexes and with other learners from rewards, and measure its speed."""

from shared.commands import DATA, Commands, argument, timed  # before libraries that read the number of threads

# isort: split
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
from shared.products import best_by_product, best_columns
from shared.reward_tasks import Task, tasks_of
from shared.store_times import Measured, measured, of_other_version, of_store
from shared.texts import packages
from shared.vector_rivals import rivals_of
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
from tabulate import tabulate
from topics import hybrid, rewards, vibe

from cmt_numba import MemoryStore
from cmt_numba.text import BM25Vectorizer

commands = Commands(__doc__)

N_CHANGED = 500
PARTS = "recall", "single", "sparse"


def compare_sparse(folder: Path, n: int) -> None:
    """Print recall and times of searches for sparse vectors."""
    texts, vectorizer = packages(folder, n, n_queries=N_ASKED), BM25Vectorizer()
    keys = vectorizer.fit_transform(texts.stored)
    asked = vectorizer.transform(texts.queries)
    asked = asked[np.diff(asked.indptr) > 0]
    store = MemoryStore(random_state=0)
    _, built = timed(lambda: store.add(range(n), keys))
    rows: list[list[Any]] = []
    scores, true = np.empty(0), np.empty(0, np.int64)

    def score(found: np.ndarray) -> np.ndarray:
        """Return the scores of the results for each row; memories with equal scores are interchangeable."""
        row = np.repeat(np.arange(asked.shape[0]), K)
        return np.asarray(asked[row].multiply(keys[found.reshape(-1)]).sum(axis=1)).reshape(found.shape)

    def note(name: str, search: Callable[[Any], Any]) -> None:
        search(asked[:1])  # compile
        found, seconds = timed(lambda: search(asked))
        _, single = timed(lambda: [search(asked[i : i + 1]) for i in range(200)])
        least = scores[:, -1:] * (1.0 - 1e-5)
        share = float((score(np.asarray(found, np.int64)) >= least).mean())
        rows.append([name, share, 1e6 * seconds / asked.shape[0], 1e6 * single / 200])

    asked = asked.tocsr()
    true = best_by_product(asked, keys, K)
    scores = score(true)
    note("product", lambda some: best_by_product(some, keys, K))
    note("store", lambda some: store.query(some, K).keys)
    if find_spec("nmslib"):
        import nmslib  # type: ignore[import-not-found]

        graph = nmslib.init(method="hnsw", space="cosinesimil_sparse_fast", data_type=nmslib.DataType.SPARSE_VECTOR)
        graph.addDataPointBatch(keys)
        how = {"M": 16, "efConstruction": 100, "indexThreadQty": 1}
        _, of_graph = timed(lambda: graph.createIndex(how, print_progress=False))
        print(f"nmslib: built in {of_graph:.1f} s")

        def along(some: Any) -> np.ndarray:
            found = [ids for ids, _ in graph.knnQueryBatch(some, K, num_threads=1)]
            return np.array([np.resize(ids, K) for ids in found])

        for ef in (20, 100, 400):
            graph.setQueryTimeParams({"efSearch": ef})
            note(f"nmslib, ef {ef}", along)
    print(f"\nsparse: {n} x {keys.shape[1]}, store built in {built:.1f} s\n")
    print(tabulate(rows, ["search", "recall", "us/query", "us, single row"], floatfmt=".3f"))


def compare_changes(n: int, n_features: int) -> None:
    """Print recall before and after every vector has been replaced and half of them have been deleted."""
    data, others = clustered(n, n_features), clustered(n, n_features, seed=1)
    halves = np.random.default_rng(2).permutation(n)
    kept = np.sort(halves[n // 2 :])
    store = MemoryStore(random_state=0)
    store.add(range(n), data.stored)
    graph = graph_of(data.stored)[0] if find_spec("hnswlib") else None
    rows: list[list[Any]] = []

    def note(when: str) -> None:
        true = store.query(data.asked, K, target_recall=1.0).keys
        found = store.query(data.asked, K).keys
        rows.append([when, recall(found, true), float("nan")])
        if graph is not None:
            graph.set_ef(20)
            rows[-1][2] = recall(graph.knn_query(data.asked, K, num_threads=1)[0], true)

    note("new")
    for some in np.array_split(np.random.default_rng(3).permutation(n), 100):
        store.upsert(some.tolist(), others.stored[some])
        if graph is not None:
            graph.add_items(others.stored[some], some, num_threads=1)
    note("every vector replaced")
    for some in np.array_split(halves[: n // 2], 100):
        store.delete(some.tolist())
        for i in some.tolist() if graph is not None else ():
            graph.mark_deleted(i)
    assert np.isin(store.query(data.asked, K).keys, kept).all()
    note("half deleted")
    print(f"\nchanges, {n} x {n_features}: recall with target 0.95; hnswlib with ef 20\n")
    print(tabulate(rows, ["after", "store", "hnswlib"], floatfmt=".3f"))


def compare_single_changes(n: int, n_features: int) -> None:
    """Print the times of changes of single vectors."""
    data, others = clustered(n, n_features), clustered(n, n_features, seed=1).stored[:N_CHANGED]
    changed = np.random.default_rng(2).permutation(n)[:N_CHANGED].tolist()
    rows: list[list[Any]] = []

    def note(name: str, *changes: Callable[[int], Any]) -> None:
        rows.append([name])
        for change in changes:
            times = []
            for i in range(N_CHANGED):
                times.append(timed(change, i)[1])
            rows[-1].append(1e6 * float(np.median(times[50:])))

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
    print(f"\nsingle changes, {n} x {n_features}: median in us\n")
    print(tabulate(rows, ["index", "upsert", "add", "delete"], floatfmt=".0f"))


@commands.add(
    DATA,
    argument("--n", type=int, default=50_000, help="number of clustered vectors"),
    argument("--features", type=int, default=128),
    argument("--packages", type=int, default=30_000),
    argument("--parts", nargs="+", choices=PARTS, default=PARTS),
)
def changes(options: argparse.Namespace) -> None:
    """Measure changes of ``MemoryStore``, and searches of sparse vectors.

    - Recall: recall at 10 after every vector has been replaced and half of them have been deleted.
    - Single: changes of one vector at a time.
    - Sparse: package summaries as BM25 vectors, compared with nmslib's graph and a sparse product.

    Times are microseconds of CPU time on one thread. Needs tabulate; hnswlib and nmslib are optional.
    """
    if "recall" in options.parts:
        compare_changes(options.n, options.features)
    if "single" in options.parts:
        compare_single_changes(options.n, options.features)
    if "sparse" in options.parts:
        compare_sparse(options.data, options.packages)


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
    vectors in memory, and while another thread replaces or adds vectors in a folder. Also measures changes without
    queries. Times are wall times. hnswlib is skipped unless installed.
    """
    n, n_features, seconds = options.n, options.features, options.seconds
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
    if find_spec("hnswlib"):  # its queries must not run during changes
        graph = graph_of(data.stored)[0]
        graph.set_ef(20)
        ask = lambda i: graph.knn_query(data.asked[i : i + 1], K, num_threads=1)  # noqa: E731
        rows += [
            ["hnswlib, none", n_threads, *asked_and_changed(ask, n_threads, None, seconds)] for n_threads in N_THREADS
        ]
    print(f"\nthreads, {n} x {n_features}\n")
    headers = ["changes", "readers", "queries/s", "p50 ms", "p99", "longest", "changes/s"]
    print(
        tabulate(
            rows, [*headers, "p50 ms", "p99", "longest"], floatfmt=("", "", ".0f", *[".2f"] * 3, ".0f", *[".2f"] * 3)
        )
    )


@commands.add(
    DATA,
    argument("--n", type=int, default=20_000, help="vectors of each set, if there are as many"),
    argument("--features", type=int, default=256, help="features of clusters, vectors of low rank and texts"),
    argument("--sets", nargs="+", default=["clusters", "low rank", "scattered", "pictures", "texts"]),
    argument("--vectors", type=Path, metavar="FILE", help='array for the set "given", for example of sentence vectors'),
    argument("--other", type=Path, metavar="FOLDER", help="sources of another version, whose store is measured, too"),
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
        print(f"\n{name}: {data.stored.shape[0]} x {data.stored.shape[1]}\n", flush=True)
        rows, times = list[list[str]](), np.empty(0)
        for library, seconds, results in compared(data, options.other):
            own = times_at_goals(results)
            times = own if times.size == 0 else times
            cells = [f"{a:.0f} ({b / a:.2f})" if np.isfinite(a) else "" for a, b in zip(own, times, strict=True)]
            rows.append([library, f"{seconds:.1f}", *cells])
        print(tabulate(rows, headers), flush=True)


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


def compared(data: Vectors, other: Path | None) -> Iterator[tuple[str, float, list[Measured]]]:
    """Yield the seconds to build each index, and what is measured with its settings. The first is the store."""
    product = lambda some: np.argpartition(some @ data.stored.T, -K, axis=1)[:, -K:]  # noqa: E731
    true = product(data.asked)
    yield "store", *of_store(data, true)
    if other is not None:
        yield f"store of {other.name}", *of_other_version(other, data, true)
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

    NumPy copies the candidates and computes a product; "at hand" uses a copy made in advance. faiss scans 16 lists of
    an IVF index, or all vectors, with ``IDSelectorBitmap``. Times are microseconds of CPU time per query: the first
    quartile over repetitions, in which the methods take turns. faiss is skipped unless installed.
    """
    data, rng = clustered(options.n, options.features), np.random.default_rng(1)
    store, rows, indexes = MemoryStore(random_state=0, n_threads=1), list[list[Any]](), dict[str, Any]()
    store.add(range(options.n), data.stored)
    if find_spec("faiss"):
        indexes = {f"faiss {kind}": file_of(data.stored, lists=kind == "IVF")[0] for kind in ("IVF", "Flat")}
    for share in SHARES:
        chosen = np.sort(rng.choice(options.n, max(K, int(share * options.n)), replace=False))
        prepared, at_hand = store.filter(keys=chosen), data.stored[chosen]
        searches: dict[str, Callable[[np.ndarray], Any]] = {
            "store": partial(store.query, k=K, where=prepared),
            "NumPy": lambda asked: best_of_gathered(asked, data.stored, chosen),  # noqa: B023
            "at hand": lambda asked: chosen[best_of_gathered(asked, at_hand, slice(None))],  # noqa: B023
        }
        searches |= {name: selected(index, chosen, options.n) for name, index in indexes.items()}
        some, true = data.asked[:N_TIMED], searches["NumPy"](data.asked[:N_TIMED])
        singles = {name: partial(one_by_one, search, some[:50]) for name, search in searches.items()}
        batches = {name: partial(search, some) for name, search in searches.items()}
        times = quartiles(batches, N_TIMED), quartiles(singles, 50)
        for name, search in searches.items():
            found = search(some)
            recalled = recall(getattr(found, "keys", found), true)
            rows.append([f"{100 * share:g} %", name, recalled, times[0][name], times[1][name]])
    print(f"\nfilters, {options.n} x {options.features}\n")
    print(tabulate(rows, ["candidates", "search", "recall", "us/query", "us, single row"], floatfmt=".3f"))


@commands.add(DATA, argument("--k", type=int, default=3), argument("--seeds", type=int, nargs="+", default=[0, 1]))
def eviction(options: argparse.Namespace) -> None:
    """Compare policies of eviction: a store has room for 30 % of the memories, and the others arrive during a stream.

    Tasks are those of ``stream``. The table has the mean expected reward of the first result in the last quarter.
    """
    rows = []
    for name, make in tasks_of(options.data).items():
        policies = {
            policy: np.mean([last_rewards(make(seed), policy, options.k, seed) for seed in options.seeds])
            for policy in ("least_useful", "least_recently_returned", "oldest")
        }
        rows.append([name, *policies.values()])
    print(tabulate(rows, ["task", *policies], floatfmt=".3f"))


def last_rewards(task: Task, policy: str, k: int, seed: int, n_at_a_time: int = 20) -> float:
    """Return the mean expected reward of the first result in the last quarter of a stream."""
    rng, n, n_rows = np.random.default_rng(seed), task.keys.shape[0], task.stream.wanted.size
    order, room = rng.permutation(n), int(0.3 * n)
    store = MemoryStore(max_items=room, eviction=policy, random_state=0)
    store.add(order[:room].tolist(), task.keys[order[:room]])
    expected = []
    for start in range(0, n_rows, n_at_a_time):
        rows = slice(start, start + n_at_a_time)
        shares = np.array([start, min(start + n_at_a_time, n_rows)]) / n_rows
        if (new := order[slice(*(room + shares * (n - room)).astype(int))]).size:
            store.add(new.tolist(), task.keys[new])
        shown = store.query(task.stream.rows[rows], k).keys
        ids = np.where(shown == None, -1, shown).astype(np.int64)  # noqa: E711
        chances = task.expected(task.stream.wanted[rows], ids, is_late=2 * start >= n_rows)
        store.feedback(task.stream.rows[rows], shown, (rng.random(ids.shape) < chances).astype(float))
        expected.append(chances[:, 0].mean())
    return float(np.mean(expected[-len(expected) // 4 :]))


def selected(index: Any, chosen: np.ndarray, n: int) -> Callable[[np.ndarray], Any]:
    """Return a search of faiss among some vectors."""
    import faiss

    bits = np.packbits(np.isin(np.arange(n), chosen), bitorder="little")
    selector = faiss.IDSelectorBitmap(bits)
    how = faiss.SearchParameters(sel=selector)
    if hasattr(index, "nlist"):
        how = faiss.SearchParametersIVF(sel=selector, nprobe=16)
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


def best_of_gathered(asked: np.ndarray, stored: np.ndarray, chosen: Any) -> Any:
    """Return the positions of the best of the chosen rows for each query, by a product with a copy of these rows."""
    positions = best_columns(asked @ stored[chosen].T, K)
    return positions if isinstance(chosen, slice) else chosen[positions]


commands.include(hybrid.commands)
commands.include(rewards.commands)
commands.include(vibe.commands)
main = commands.main

if __name__ == "__main__":
    main()

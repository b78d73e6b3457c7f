"""Compare ``MemoryStore`` with hnswlib and faiss: recall at 10 against time, changes, filters, and rewards.

    python asv_benchmarks/compare_store.py --data path/to/folder
    python asv_benchmarks/compare_store.py --data path/to/folder --n 20000 --features 96 --parts recall filters

Expects ``omniglot_background/hog.npz`` as ``compare_peers.py`` does, ``packages/summaries.jsonl.gz`` as
``compare_text.py`` does, ``flickr8k/images.jsonl.gz`` as ``compare_rerankers.py`` does, and ``coil100/mobilenet.npz``
and ``flickr8k/mobilenet.npz`` with features ``X``. Recall and filters: clustered vectors, and features of pictures of
which every tenth is asked. Sparse: package summaries as vectors of BM25, beside nmslib's graph and a sparse product.
Codes: clustered vectors that are kept in full, and as 8-bit codes alone. Changes: recall after every vector has been
replaced and half of them have been deleted. Single: changes of one vector at a time. Rewards: package summaries, and
captions of pictures; 2,000 queries are rewarded, and others are asked, which an index answers as before.
Times are of the processor, on one thread, in microseconds for each query of a batch. Needs tabulate; without hnswlib or
faiss their rows are left out. Threads and opening have scripts of their own.
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_variable] = "1"  # before any library reads them

import argparse
import tempfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from store_data import (
    FEATURES,
    N_ASKED,
    K,
    Vectors,
    bytes_of,
    clustered,
    features,
    file_of,
    graph_of,
    recall,
    timed,
    unit,
)
from tabulate import tabulate

from cmt_numba import MemoryStore

N_REWARDED = 2000
TARGETS, EFFORTS = (0.9, 0.95, 0.98, 0.995), (10, 20, 30, 50, 100, 200)
PROBED = 4, 16, 64  # lists of faiss's inverted file
N_CHANGED = 500
SHARES = (0.5, 0.01, 0.0001)
PARTS = "recall", "filters", "codes", "changes", "single", *FEATURES, "sparse", "rewards"


def compare_searches(name: str, data: Vectors, parts: list[str]) -> None:
    """Print recall and times of searches with and without filters."""
    n, stored = len(data.stored), MemoryStore(random_state=0)
    warm = MemoryStore(random_state=0)
    warm.add(range(300), data.stored[:300])  # has kernels compiled
    warm.query(data.asked, K, n_probes=2)
    _, seconds = timed(lambda: stored.add(range(n), data.stored))
    timed(stored.compact)
    print(f"\n{name}: {n} x {data.stored.shape[1]}")
    print(f"store: built in {seconds:.1f} s, {stored._keeper.kept.tree.nbytes / n:.0f} bytes a vector")
    graph, lists = None, None
    if find_spec("hnswlib"):
        graph, seconds = graph_of(data.stored)
        print(f"hnswlib: built in {seconds:.1f} s, {bytes_of(graph, n):.0f} bytes a vector")
    if find_spec("faiss") and "recall" in parts:
        lists, seconds = file_of(data.stored)
        print(f"faiss IVF: built in {seconds:.1f} s")
    print()
    if "recall" in parts:
        rows = [list(row) for row in searches(stored, graph, lists, data)]
        print(tabulate(rows, ["", "recall", "us a query", "us a single row"], floatfmt=".3f"))
    if "filters" in parts:
        rows = [list(row) for row in filtered(stored, graph, data)]
        print(tabulate(rows, ["filter", "recall", "us", "hnswlib's recall", "us"], floatfmt=".3f"))


def searches(store: MemoryStore, graph: Any, lists: Any, data: Vectors) -> Iterator[tuple[str, float, float, float]]:
    """Yield what is searched, its recall, and the times of queries in a batch and one by one."""
    true, seconds = timed(lambda: store.query(data.asked, K, target_recall=1.0).keys)
    yield "store, exact", 1.0, 1e6 * seconds / len(true), float("nan")
    some = data.asked[:200]
    for target in TARGETS:
        store.query(data.asked[:1], K, target_recall=target)  # measures what it takes
        found, seconds = timed(lambda: store.query(data.asked, K, target_recall=target).keys)  # noqa: B023
        _, single = timed(lambda: [store.query(row[None], K, target_recall=target) for row in some])  # noqa: B023
        effort = store.recall[-1]
        how = f"breadth {effort.breadth}" if effort.breadth else f"{effort.n_probes} leaves"
        label = f"store, {target} ({how}, measured {effort.recall:.3f})"
        yield label, recall(found, true), 1e6 * seconds / len(true), 1e6 * single / len(some)
    for ef in EFFORTS if graph is not None else ():
        graph.set_ef(ef)
        found, seconds = timed(lambda: graph.knn_query(data.asked, K, num_threads=1)[0])
        _, single = timed(lambda: [graph.knn_query(row, K, num_threads=1) for row in some])
        yield f"hnswlib, ef {ef}", recall(found, true), 1e6 * seconds / len(true), 1e6 * single / len(some)
    for n_probes in PROBED if lists is not None else ():
        lists.nprobe = n_probes
        found, seconds = timed(lambda: lists.search(data.asked, K)[1])
        _, single = timed(lambda: [lists.search(row[None], K) for row in some])
        yield f"faiss IVF, {n_probes} lists", recall(found, true), 1e6 * seconds / len(true), 1e6 * single / len(some)


def compare_codes(n: int, n_features: int) -> None:
    """Print recall, bytes and times of vectors that are kept in full and as 8-bit codes."""
    data = clustered(n, n_features)
    true = np.argsort(-(data.asked @ data.stored.T), axis=1)[:, :K]
    rows: list[list[Any]] = []

    def note(name: str, size: float, built: float, search: Callable[[], Any]) -> None:
        search()  # measures what it takes
        found, seconds = timed(search)
        rows.append([name, recall(found, true), size, 1e6 * seconds / len(true), built])

    for keep in ("all", "codes"):
        warm, store = (MemoryStore(random_state=0, keep=keep) for _ in range(2))
        warm.add(range(300), data.stored[:300])  # has kernels compiled
        warm.compact()
        _, seconds = timed(lambda: (store.add(range(n), data.stored), store.compact()))  # noqa: B023
        size = store._keeper.kept.tree.nbytes / n
        for target in (0.95, 0.995, 1.0):
            search = lambda: store.query(data.asked, K, target_recall=target).keys  # noqa: B023, E731
            note(f'store, keep="{keep}", {target}', size, seconds, search)
    if find_spec("hnswlib"):
        graph, seconds = graph_of(data.stored)
        for ef in (20, 50):
            graph.set_ef(ef)
            search = lambda: graph.knn_query(data.asked, K, num_threads=1)[0]  # noqa: E731
            note(f"hnswlib, ef {ef}", bytes_of(graph, n), seconds, search)
    product = f"PQ{n_features // 2}x4fs"
    for kind, n_probes in (
        (("Flat", 4), ("SQ8", 4), ("SQ8", 0), ("SQ4", 4), (product, 16)) if find_spec("faiss") else ()
    ):
        import faiss

        index, seconds = file_of(data.stored, kind, lists=n_probes > 0)
        if n_probes > 0:
            index.nprobe = n_probes
        name = f"faiss IVF {kind}, {n_probes} lists" if n_probes > 0 else f"faiss {kind}"
        search = lambda: index.search(data.asked, K)[1]  # noqa: B023, E731
        note(name, faiss.serialize_index(index).size / n, seconds, search)
    print(f"\nwhat is kept of vectors, {n} x {n_features}\n")
    print(tabulate(rows, ["", "recall", "bytes a vector", "us a query", "built in s"], floatfmt=".3f"))


def compare_sparse(folder: Path, n: int) -> None:
    """Print recall and times of searches for sparse vectors."""
    from compare_text import packages

    from cmt_numba.text import BM25Vectorizer

    texts, vectorizer = packages(folder, n, n_queries=N_ASKED), BM25Vectorizer()
    keys = vectorizer.fit_transform(texts.stored)
    asked = vectorizer.transform(texts.queries)
    asked = asked[np.diff(asked.indptr) > 0]
    store = MemoryStore(random_state=0)
    _, built = timed(lambda: store.add(range(n), keys))
    rows: list[list[Any]] = []
    scores, true = np.empty(0), np.empty(0, np.int64)

    def best(block: Any) -> np.ndarray:
        products = (block @ keys.T).toarray()
        found = np.argpartition(products, n - K, axis=1)[:, n - K :]
        order: np.ndarray = np.argsort(-np.take_along_axis(products, found, axis=1), axis=1)
        return np.take_along_axis(found, order, axis=1)

    def by_product(asked: Any) -> np.ndarray:
        return np.concatenate([best(asked[first : first + 100]) for first in range(0, asked.shape[0], 100)])

    def score(found: np.ndarray) -> np.ndarray:
        """Return the scores of what was found for each row: of equal ones any counts."""
        row = np.repeat(np.arange(asked.shape[0]), K)
        return np.asarray(asked[row].multiply(keys[found.reshape(-1)]).sum(axis=1)).reshape(found.shape)

    def note(name: str, search: Callable[[Any], Any]) -> None:
        search(asked[:1])  # measures what it takes
        found, seconds = timed(lambda: search(asked))
        _, single = timed(lambda: [search(asked[i : i + 1]) for i in range(200)])
        least = scores[:, -1:] * (1.0 - 1e-5)
        share = float((score(np.asarray(found, np.int64)) >= least).mean())
        rows.append([name, share, 1e6 * seconds / asked.shape[0], 1e6 * single / 200])

    asked = asked.tocsr()
    true = by_product(asked)
    scores = score(true)
    note("product", by_product)
    for target in (0.9, 0.95, 0.98, 1.0):
        note(f"store, {target}", lambda some: store.query(some, K, target_recall=target).keys)  # noqa: B023
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
    print(tabulate(rows, ["", "recall", "us a query", "us a single row"], floatfmt=".3f"))


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
        rows.append([when, recall(found, true), float("nan"), store.recall[-1].breadth])
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
    print(f"\nchanges, {n} x {n_features}: recall, with a target of 0.95, and hnswlib's with ef 20\n")
    print(tabulate(rows, ["", "store", "hnswlib", "breadth"], floatfmt=".3f"))


def compare_single_changes(n: int, n_features: int) -> None:
    """Print what changes of single vectors take."""
    data, others = clustered(n, n_features), clustered(n, n_features, seed=1).stored[:N_CHANGED]
    changed = np.random.default_rng(2).permutation(n)[:N_CHANGED].tolist()
    rows: list[list[Any]] = []

    def note(name: str, *changes: Callable[[int], Any]) -> None:
        rows.append([name])
        for change in changes:
            times = []
            for i in range(N_CHANGED):
                begun = process_time()
                change(i)
                times.append(process_time() - begun)
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
    print(f"\nsingle changes, {n} x {n_features}: median us\n")
    print(tabulate(rows, ["", "upsert", "add", "delete"], floatfmt=".0f"))


def filtered(store: MemoryStore, graph: Any, data: Vectors) -> Iterator[tuple[float, float, float, float, float]]:
    """Yield shares of the memories that filters leave, and recall and times of both."""
    rng = np.random.default_rng(1)
    some = data.asked[:200]
    for share in SHARES:
        chosen = rng.choice(len(data.stored), max(K, int(share * len(data.stored))), replace=False)
        true = store.query(some, K, where=chosen, target_recall=1.0).keys
        store.query(some[:1], K, where=chosen)
        found, seconds = timed(lambda: store.query(some, K, where=chosen).keys)  # noqa: B023
        row = [share, recall(found, true), 1e6 * seconds / len(some), float("nan"), float("nan")]
        if graph is not None:
            allowed = set(chosen.tolist())
            graph.set_ef(100)
            try:
                found, seconds = timed(
                    lambda: graph.knn_query(some, K, num_threads=1, filter=lambda i: i in allowed)[0]  # noqa: B023
                )
                row[3:] = [recall(found, true), 1e6 * seconds / len(some)]
            except RuntimeError:  # it has found fewer than ten
                row[3:] = [0.0, float("nan")]
        yield tuple(row)  # type: ignore[misc]


def rewarded(folder: Path, n: int) -> Iterator[tuple[str, Any, np.ndarray, Any, np.ndarray]]:
    """Yield names, vectors to store and what they belong to, and queries and what they ask for."""
    from compare_text import packages
    from labelled_sets import read_lines
    from sklearn.decomposition import TruncatedSVD

    from cmt_numba.text import BM25Vectorizer

    texts = packages(folder, n, n_queries=N_REWARDED + N_ASKED)
    captions = [line["captions"] for line in read_lines(folder / "flickr8k/images.jsonl.gz")][: N_REWARDED + N_ASKED]
    pictures = np.arange(len(captions))
    described = [caption for some in captions for caption in some[:4]]
    sets = (
        ("packages", texts.stored, np.arange(n), texts.queries, np.asarray(texts.answers)),
        ("flickr8k", described, np.repeat(pictures, 4), [some[4] for some in captions], pictures),
    )
    for name, stored, owners, queries, answers in sets:
        vectorizer = BM25Vectorizer()
        keys = vectorizer.fit_transform(stored)
        asked = vectorizer.transform(queries)
        yield f"{name}, BM25", keys, owners, asked, answers
        reduced = TruncatedSVD(128, random_state=0).fit(keys)
        yield (
            f"{name}, 128 components",
            unit(reduced.transform(keys)),
            owners,
            unit(reduced.transform(asked)),
            answers,
        )


def compare_rewards(folder: Path, n: int, rate: float | None) -> None:
    """Print shares of right first answers before and after feedback on other queries."""
    rows = []
    for name, keys, owners, queries, answers in rewarded(folder, n):
        there = np.flatnonzero(np.asarray(abs(keys).sum(axis=1)).reshape(-1) > 0)
        usable = np.flatnonzero(np.asarray(abs(queries).sum(axis=1)).reshape(-1) > 0)
        taught, asked = usable[usable < N_REWARDED], usable[usable >= N_REWARDED]
        store = MemoryStore(random_state=0, learning_rate=rate)
        store.add(range(there.size), keys[there])
        owner_of = owners[there]

        def right(store: MemoryStore = store, data: Any = (owner_of, queries, answers, asked)) -> float:
            owner_of, queries, answers, asked = data
            first = store.query(queries[asked], 1).keys[:, 0].astype(int)
            return float(np.mean(owner_of[first] == answers[asked]))

        shares, spent = [right()], 0.0
        for n_passes in (1, 4):
            for _ in range(n_passes):
                for some in np.array_split(taught, 8):
                    shown = store.query(queries[some], K).keys
                    rewards = (owner_of[shown.astype(int)] == answers[some][:, None]).astype(float)
                    spent += timed(lambda: store.feedback(queries[some], shown, rewards))[1]  # noqa: B023
            shares.append(right())
        rows.append([name, len(there), *shares, 1e6 * spent / (5 * len(taught))])
    print("\nright first answers of unseen queries\n")
    print(tabulate(rows, ["vectors", "stored", "before", "after feedback", "five times", "us a row"], floatfmt=".3f"))


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Compare MemoryStore with hnswlib.")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--n", type=int, default=200_000, help="clustered vectors")
    parser.add_argument("--features", type=int, default=384)
    parser.add_argument("--packages", type=int, default=30_000)
    parser.add_argument("--learning-rate", type=float)
    parser.add_argument("--parts", nargs="+", choices=PARTS)
    given = parser.parse_args()
    parts = given.parts or list(PARTS)
    if "recall" in parts or "filters" in parts:
        compare_searches("clustered", clustered(given.n, given.features), parts)
    if "codes" in parts:
        compare_codes(given.n, given.features)
    if "changes" in parts:
        compare_changes(given.n, given.features)
    if "single" in parts:
        compare_single_changes(given.n, given.features)
    for name in FEATURES:
        if name in parts:
            compare_searches(name, features(given.data, name), ["recall", "filters"])
    if "sparse" in parts:
        compare_sparse(given.data, given.packages)
    if "rewards" in parts:
        compare_rewards(given.data, given.packages, given.learning_rate)


if __name__ == "__main__":
    main()

"""Compare sharded stores and classifiers with single ones, and time evaluation on Ray."""

from shared.commands import Commands, argument, timed  # before libraries that read the number of threads

# isort: split
import argparse
import os
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
from shared.labelled_sets import SETS, LabelledSet, read_lines, synthetic
from sklearn.feature_extraction.text import TfidfVectorizer
from tabulate import tabulate

from cmt_numba import CMTClassifier, MemoryStore
from cmt_numba.distributed import ShardedClassifier, ShardedStore, evaluate, start
from cmt_numba.evaluation import batch_evaluation

commands = Commands(__doc__)

_BLOCK = 10_000  # vectors per call of ``add``
_CHECKED = 200  # queries
_TIE = 1e-5  # scores count as equal up to this difference
_N_CLUSTERS = 100


def of_texts(path: str, n: int, n_queries: int) -> tuple[Any, Any]:
    """Return the tf-idf vectors of distinct texts, and of half the words of some of them."""
    texts = sorted({line["summary"] for line in read_lines(Path(path))})
    draws = np.random.default_rng(0)
    chosen = [texts[i] for i in draws.permutation(len(texts))[:n]]
    vectorizer = TfidfVectorizer(sublinear_tf=True, dtype=np.float32)
    X = vectorizer.fit_transform(chosen)
    there = np.flatnonzero(X.getnnz(axis=1))
    chosen, X = [chosen[i] for i in there], X[there]
    asked = [
        " ".join(word for word in chosen[i].split() if draws.random() < 0.5) for i in range(min(n_queries, len(chosen)))
    ]
    Q = vectorizer.transform(asked)
    return X, Q[np.flatnonzero(Q.getnnz(axis=1))]


def clustered(n: int, n_features: int, draws: np.random.Generator, noise: float = 0.7) -> np.ndarray:
    """Return vectors around the same centers."""
    centers = np.random.default_rng(0).normal(size=(_N_CLUSTERS, n_features))
    around = noise * draws.normal(size=(n, n_features))
    return (centers[draws.integers(0, _N_CLUSTERS, n)] + around).astype(np.float32)


def megabytes(process: int) -> float:
    """Return the private memory of a process."""
    lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) / 1024


def add_all(store: Any, X: np.ndarray) -> float:
    """Add vectors in blocks; return the vectors per second."""
    started = time.perf_counter()
    for first in range(0, X.shape[0], _BLOCK):
        block = X[first : first + _BLOCK]
        store.add(range(first, first + block.shape[0]), block)
    return X.shape[0] / (time.perf_counter() - started)


def microseconds(store: Any, Q: np.ndarray, batch: int, repeats: int) -> float:
    """Return the microseconds per query, in batches of a given size."""
    store.query(Q[:batch], 10)
    seconds = []
    for number in range(max(repeats, 100 // batch)):
        first = number * batch % max(1, Q.shape[0] - batch + 1)
        seconds.append(timed(store.query, Q[first : first + batch], 10, clock=time.perf_counter)[1])
    return 1e6 * statistics.median(seconds) / batch


@commands.add(
    argument("--n", type=float, default=1e5),
    argument("--features", type=int, default=64),
    argument("--shards", type=int, nargs="+", default=[1, 2, 4]),
    argument("--batches", type=int, nargs="+", default=[1, 100, 10_000]),
    argument("--repeats", type=int, default=3),
    argument("--data", help="gzip-compressed file of JSON lines with the field summary"),
)
def stores(options: argparse.Namespace) -> None:
    """Compare a store in memory with the same memories in 1, 2 and 4 shards on this machine.

    Prints the microseconds per query in batches of several sizes (the median of the repeats), memories added per
    second, and the megabytes of an empty shard. Vectors are random, in clusters. First checks that exact searches of
    all stores give the same keys and scores. Linux only; needs tabulate and the extra ``ray``.
    """
    start()
    draws = np.random.default_rng(1)
    X, Q = clustered(int(options.n), options.features, draws), clustered(10_000, options.features, draws)
    if options.data is not None:
        X, Q = of_texts(options.data, int(options.n), 11_000)
    one = MemoryStore(random_state=0, n_threads=1)
    stores: dict[str, Any] = {"one store": one}
    rows: list[list[Any]] = [["one store", add_all(one, X), None]]
    exact = one.query(Q[:_CHECKED], 11, target_recall=1.0)  # k = 11 shows ties for the tenth place
    clear = exact.scores[:, 9] - exact.scores[:, 10] > _TIE
    exact = one.query(Q[:_CHECKED], 10, target_recall=1.0)
    for n_shards in options.shards:
        store = ShardedStore(n_shards, random_state=0, timeout=600.0)
        processes = store._client.actors.ask("process", dict.fromkeys(store.shards, ())).values.values()
        empty = statistics.median(map(megabytes, processes))
        rows.append([f"{n_shards} shards", add_all(store, X), empty])
        found = store.query(Q[:_CHECKED], 10, target_recall=1.0)
        for keys, right in zip(found.keys[clear], exact.keys[clear], strict=True):
            assert set(keys) == set(right)  # ties may have another order
        np.testing.assert_allclose(found.scores, exact.scores, rtol=1e-5, atol=1e-6)
        stores[rows[-1][0]] = store
    for row in rows:
        found = stores[row[0]].query(Q[:_CHECKED], 10).scores
        row.append(np.mean(found > exact.scores[:, -1:] - _TIE))  # memories with equal scores count as found
        row += [microseconds(stores[row[0]], Q, batch, options.repeats) for batch in options.batches]
    headers = [
        "store",
        "adds/s",
        "MB when empty",
        "recall",
        *(f"us/query, batches of {batch:,}" for batch in options.batches),
    ]
    print(f"{X.shape[0]:,} vectors of {X.shape[1]:,} features")
    print(f"exact search: same answers to {clear.sum()} of {clear.size} queries; the others have tied scores")
    print(tabulate(rows, headers, floatfmt=("", ",.0f", ".0f", ".3f", ",.0f", ",.0f", ",.0f")))
    for store in list(stores.values())[1:]:
        store.close()


_SETS = ("clinc150, 5 shots", "wikipara1k, 3 shots", "synthetic, 20 shots")
_BATCHES = 10


def read_set(name: str, folder: Path | None) -> LabelledSet:
    """Return a set by its name."""
    if name == "synthetic, 20 shots":
        return synthetic(n_shots=20)
    if folder is None:
        raise SystemExit(f"{name} needs --data FOLDER")
    return SETS[name](folder)


def error_of(classifier: Any, data: LabelledSet) -> float:
    """Return the fraction of wrong predictions."""
    return float(np.mean(classifier.predict(data.queries) != data.answers))


def error_online(classifier: Any, data: LabelledSet) -> float:
    """Return the error after one fit on half of the examples and batches of the others."""
    half = data.y.size // 2
    classifier.fit(data.X[:half], data.y[:half])
    for rows in np.array_split(np.arange(half, data.y.size), _BATCHES):
        classifier.partial_fit(data.X[rows], data.y[rows])
    return error_of(classifier, data)


def without_exchange(sharded: ShardedClassifier, data: LabelledSet) -> float:
    """Return the error of classifiers that each learn from the classes of one shard only."""
    best = np.full(data.answers.size, -np.inf)
    answers = np.empty(data.answers.size, data.y.dtype)
    for facts in sharded._ask_all("facts"):
        own = np.isin(data.y, facts.classes)
        alone = CMTClassifier(random_state=0).fit(data.X[own], data.y[own])
        positions, scores = alone.top_classes(data.queries, 1)
        better = scores[:, 0] > best
        best[better] = scores[better, 0]
        answers[better] = alone.classes_[positions[better, 0]]
    return float(np.mean(answers != data.answers))


def measure_classifier(classifier: Any, data: LabelledSet) -> list[Any]:
    """Return the errors, the seconds to fit and the microseconds per query."""
    online = error_online(classifier, data)
    _, fitted = timed(classifier.fit, data.X, data.y, clock=time.perf_counter)
    classifier.predict(data.queries)
    error, asked = timed(error_of, classifier, data, clock=time.perf_counter)
    return [error, online, fitted, 1e6 * asked / data.answers.size]


@commands.add(
    argument("--data", type=Path),
    argument("--sets", nargs="+", default=_SETS),
    argument("--shards", type=int, nargs="+", default=[2, 4]),
)
def classifiers(options: argparse.Namespace) -> None:
    """Compare a sharded classifier with one in a single process: error, learned examples, and time.

    The sets are those of ``shared/labelled_sets.py``; "synthetic, 20 shots" needs no folder. For each number of shards,
    prints the error of ``fit``, the error of ``fit`` on half of the examples and ``partial_fit`` on the rest in ten
    batches, the classes of the largest shard, the examples held by all shards as a multiple of the examples given,
    seconds to fit, and microseconds per query in one batch (wall time: the shards share the processors). "without
    exchange" is the error when each shard learns from its own classes only. Needs tabulate and the extra ``ray``.
    """
    start()
    for name in options.sets:
        data = read_set(name, options.data)
        rows = [["one classifier", *measure_classifier(CMTClassifier(random_state=0), data), None, None, None]]
        for n_shards in options.shards:
            with ShardedClassifier(n_shards, random_state=0, timeout=600.0) as sharded:
                measured = measure_classifier(sharded, data)
                facts = sharded._ask_all("facts")
                held = sum(sharded._ask_all("n_examples")) / data.y.size
                largest = max(fact.classes.size for fact in facts)
                rows.append([f"{n_shards} shards", *measured, largest, held, without_exchange(sharded, data)])
        headers = ["shards", "error", "error online", "fit, s", "us/query"]
        headers += ["most classes", "examples held", "without exchange"]
        print(f"\n{name}: {data.y.size:,} examples, {np.unique(data.y).size:,} classes")
        print(tabulate(rows, headers, floatfmt=("", ".4f", ".4f", ".1f", ".0f", ".0f", ".2f", ".4f")), flush=True)


@commands.add(
    argument("--settings", type=float, nargs="+", default=[0.3, 1.0, 3.0, 10.0], help="values of aggressiveness"),
    argument("--seeds", type=int, default=3),
    argument("--classes", type=int, default=1000),
    argument("--shots", type=int, default=20),
    argument("--processes", type=int, default=os.cpu_count()),
)
def evaluation(options: argparse.Namespace) -> None:
    """Measure the time of an evaluation in one process and on Ray, and check that both give the same results.

    Evaluates four settings of a classifier, each with three seeds, on synthetic examples. Prints the wall time of both,
    after a first run that compiles kernels and starts the processes. Needs tabulate and the extra ``ray``.
    """
    start(num_cpus=options.processes)
    data = synthetic(options.classes, options.shots)
    settings = {f"C {c:g}": CMTClassifier(aggressiveness=c) for c in options.settings}
    how: dict[str, Any] = {"seeds": range(options.seeds), "probes": ()}
    few = {name: settings[name] for name in list(settings)[:1]}
    evaluate(few, data.X, data.y, seeds=range(options.processes), probes=())
    batch_evaluation(few.popitem()[1], data.X[:1000], data.y[:1000], seeds=(0,), probes=())
    alone, seconds_alone = timed(
        lambda: {name: batch_evaluation(one, data.X, data.y, **how) for name, one in settings.items()}
    )
    on_ray, seconds_on_ray = timed(lambda: evaluate(settings, data.X, data.y, **how))
    rows = [[name, *alone[name].metrics["error"], on_ray[name].per_seed == alone[name].per_seed] for name in settings]
    print(tabulate(rows, ["setting", "error", "standard deviation", "same on Ray"], floatfmt=".4f"))
    print(f"{len(settings) * options.seeds} runs: {seconds_alone:.1f} s in one process, {seconds_on_ray:.1f} s on Ray")

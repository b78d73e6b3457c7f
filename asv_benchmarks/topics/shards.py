"""Compare sharded stores and classifiers with single ones, time evaluation on Ray, and simulate a cluster."""

from shared.commands import Commands, argument, timed  # before libraries that read the number of threads

# isort: split
import argparse
import gzip
import json
import os
import statistics
import time
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from shared.labelled_sets import SETS, LabelledSet, synthetic
from sklearn.feature_extraction.text import TfidfVectorizer
from tabulate import tabulate

from cmt_numba import CMTClassifier, ContextualMemoryTree, MemoryStore
from cmt_numba.distributed import ShardedClassifier, ShardedStore, evaluate, start
from cmt_numba.distributed._partition import divided, sums_of
from cmt_numba.evaluation import batch_evaluation

commands = Commands(__doc__)

_BLOCK = 10_000  # vectors per call of ``add``
_CHECKED = 200  # queries
_TIE = 1e-5  # scores count as equal up to this difference
_N_CLUSTERS = 100


def of_texts(path: str, n: int, n_queries: int) -> tuple[Any, Any]:
    """Return the tf-idf vectors of distinct texts, and of half the words of some of them."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        texts = sorted({json.loads(line)["summary"] for line in lines})
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
        started = time.perf_counter()
        store.query(Q[first : first + batch], 10)
        seconds.append(time.perf_counter() - started)
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
        empty = statistics.median(map(megabytes, store._ask_all("process")))
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
    started = time.perf_counter()
    classifier.fit(data.X, data.y)
    fitted = time.perf_counter() - started
    classifier.predict(data.queries)
    started = time.perf_counter()
    error = error_of(classifier, data)
    return [error, online, fitted, 1e6 * (time.perf_counter() - started) / data.answers.size]


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


_BUSY = 0.6  # utilisation of the busiest resource
_WARM_UP = 0.1  # fraction of batches excluded from the results
_RECALL_AT = 10


class Costs(NamedTuple):
    """The costs of calls, in seconds."""

    call: float  # shard time per call
    query: float  # shard time per query of a batch
    send: float  # client time per called shard
    network: float  # round trip
    stragglers: float = 0.0  # fraction of the calls that are slow
    least_slow: float = 5.0  # smallest slowdown factor of a slow call
    shape: float = 2.0  # shape of the Pareto distribution of the factor

    def of_shard(self, batch: int) -> float:
        """Return the time of a shard for a batch, without stragglers."""
        return self.call + self.query * batch

    def mean_of_shard(self, batch: int) -> float:
        """Return the mean time of a shard for a batch."""
        slow = self.least_slow * self.shape / (self.shape - 1.0)
        return self.of_shard(batch) * (1.0 + self.stragglers * (slow - 1.0))


class Cluster(NamedTuple):
    """Shards, each with its copies (itself and its replicas) on machines of their own."""

    n_shards: int
    n_copies: int
    n_asked: int  # number of shards that each batch queries
    n_clients: int
    least_loaded: bool = True  # True: query the copy that is free first; False: a random copy


def fitted(measured: dict[int, float], two_shards: float, n_measured: float, n: float) -> tuple[float, float, float]:
    """Return the costs of a call, a query and sending for ``n`` memories, fitted to measured microseconds per query."""
    batches = np.array(sorted(measured), float)
    totals = np.array([measured[int(batch)] for batch in batches]) * batches
    terms = np.stack([np.ones_like(batches), batches], axis=1) / totals[:, None]  # minimise errors relative to the sum
    call, query = np.linalg.lstsq(terms, np.ones_like(batches), rcond=None)[0]
    send = max(0.0, two_shards - measured[int(batches[0])])
    return 1e-6 * call, 1e-6 * query * max(1.0, np.log2(n) / np.log2(n_measured)), 1e-6 * send


def batches_a_second(cluster: Cluster, costs: Costs, batch: int) -> float:
    """Return the largest number of batches per second that shards and clients can sustain."""
    of_shards = cluster.n_shards * cluster.n_copies / (cluster.n_asked * costs.mean_of_shard(batch))
    of_clients = cluster.n_clients / (cluster.n_asked * costs.send) if costs.send > 0.0 else np.inf
    return float(min(of_shards, of_clients))


def answer_seconds(
    cluster: Cluster, times: np.ndarray, costs: Costs, draws: np.random.Generator, services: np.ndarray
) -> np.ndarray:
    """Return the response time of each batch.

    Parameters
    ----------
    cluster : Cluster
        The shards.
    times : ndarray of float, shape (n,)
        When the batches arrive, in order.
    costs : Costs
        Costs of sending.
    draws : numpy.random.Generator
        Chooses shards and, unless the least loaded copies are queried, copies.
    services : ndarray of float, shape (n, n_asked)
        Service time of each queried shard for each batch.
    """
    clients = np.zeros(cluster.n_clients)  # when each client is free
    free = np.zeros((cluster.n_shards, cluster.n_copies))  # when each copy is free
    every, seconds = np.arange(cluster.n_shards), np.empty(times.size)
    sending = costs.send * cluster.n_asked
    for number, came in enumerate(times):
        client = clients.argmin()
        sent = max(came, clients[client]) + sending
        clients[client] = sent
        asked = every if cluster.n_asked == every.size else draws.permutation(every)[: cluster.n_asked]
        copies = free[asked].argmin(axis=1) if cluster.least_loaded else draws.integers(0, cluster.n_copies, asked.size)
        done = np.maximum(free[asked, copies], sent) + services[number]
        free[asked, copies] = done
        seconds[number] = done.max() + costs.network - came
    return seconds


def simulated(cluster: Cluster, costs: Costs, batch: int, rate: float, n: int, seed: int = 0) -> np.ndarray:
    """Return the response times of ``n`` batches that arrive at a rate of ``rate`` per second, without the warm-up."""
    draws = np.random.default_rng(seed)
    times = np.cumsum(draws.exponential(1.0 / rate, n))
    services = np.full((n, cluster.n_asked), costs.of_shard(batch))
    slow = draws.random(services.shape) < costs.stragglers
    services[slow] *= costs.least_slow * (1.0 + draws.pareto(costs.shape, int(slow.sum())))
    return answer_seconds(cluster, times, costs, draws, services)[int(_WARM_UP * n) :]


def recalls(n_asked: list[int], n_shards: int, n: int, noise: float) -> list[float]:
    """Return the recall of the ten nearest when only the shards nearest to a query are searched, exactly."""
    draws = np.random.default_rng(1)
    X, Q = clustered(n, 64, draws, noise), clustered(500, 64, draws, noise)
    X, Q = (part / np.linalg.norm(part, axis=1, keepdims=True) for part in (X, Q))
    owners = divided(X, n_shards, np.random.default_rng(0))
    centers = sums_of(X, owners, n_shards)
    order = np.argsort(-Q @ (centers / np.linalg.norm(centers, axis=1, keepdims=True)).T, axis=1)
    nearest = np.argpartition(-Q @ X.T, _RECALL_AT, axis=1)[:, :_RECALL_AT]
    rank_of_shard = np.argsort(order, axis=1)
    ranks = np.take_along_axis(rank_of_shard, owners[nearest], axis=1)
    return [float(np.mean(ranks < asked)) for asked in n_asked]


def simulated_rows(given: argparse.Namespace) -> list[list[object]]:
    """Return the rows of the table of copies and queried shards."""
    rows: list[list[object]] = []
    for batch in given.batches:
        for n_copies in (1, 2):
            n_shards = given.machines // n_copies
            n_each = given.memories / n_shards
            costs = costs_of(given, n_each)
            for n_asked in sorted({n_shards, max(1, n_shards // 10)}, reverse=True):
                for least_loaded in (True, False) if n_copies > 1 else (True,):
                    cluster = Cluster(n_shards, n_copies, n_asked, given.clients or given.machines, least_loaded)
                    rate = _BUSY * batches_a_second(cluster, costs, batch)
                    seconds = simulated(cluster, costs, batch, rate, given.n)
                    which = "" if n_copies == 1 else "least loaded" if least_loaded else "any"
                    median, slowest = 1e3 * np.quantile(seconds, (0.5, 0.99))
                    found = gigabytes(n_each, given), rate * batch, median, slowest
                    rows.append([batch, n_shards, n_copies, which, n_asked, *found])
    return rows


def costs_of(given: argparse.Namespace, n_each: float) -> Costs:
    """Return the costs of shards with ``n_each`` memories."""
    fit = fitted(given.measured, given.two_shards, given.n_measured, n_each)
    return Costs(*fit, 1e-6 * given.network, given.stragglers)


@cache
def bytes_of_memory(n_features: int) -> float:
    """Return the measured bytes of a memory in a tree."""
    n_memories = 1 << 14
    tree = ContextualMemoryTree(random_state=0)
    tree.insert(np.random.default_rng(0).normal(size=(n_memories, n_features)))
    return tree.nbytes / n_memories


def gigabytes(n_memories: float, given: argparse.Namespace) -> float:
    """Return the memory that a shard takes."""
    each = bytes_of_memory(given.features) + given.payload_bytes
    return (each * n_memories + 1e6 * given.megabytes_of_process) / 1e9


def sizing_rows(given: argparse.Namespace) -> list[list[object]]:
    """Return the rows of the table of sizes: the smallest number of machines if 80 % of their memory is used."""
    rows: list[list[object]] = []
    batch = max(given.batches)
    for n in given.sizes:
        for memory in given.gigabytes:
            n_shards = 1
            while gigabytes(n / n_shards, given) > 0.8 * memory:
                n_shards += 1
            costs = costs_of(given, n / n_shards)
            cluster = Cluster(n_shards, 1, n_shards, n_shards)
            rate = _BUSY * batches_a_second(cluster, costs, batch)
            n_simulated = min(given.n, 5000)
            slowest = 1e3 * np.quantile(simulated(cluster, costs, batch, rate, n_simulated), 0.99)
            rows.append([f"{n:,.0f}", memory, n_shards, gigabytes(n / n_shards, given), rate * batch, slowest])
    return rows


def pairs(text: str) -> tuple[int, float]:
    """Return the two numbers of ``batch:microseconds``."""
    batch, microseconds = text.split(":")
    return int(batch), float(microseconds)


@commands.add(
    argument("--memories", type=float, default=1e9),
    argument("--machines", type=int, default=100),
    argument("--clients", type=int, help="default: the number of machines"),
    argument("--features", type=int, default=64),
    argument("--payload-bytes", type=float, default=0.0, help="payload bytes per memory"),
    argument("--megabytes-of-process", type=float, default=93.0),
    argument("--measured", type=pairs, nargs="+", default=[(1, 4474.0), (100, 151.0), (10_000, 42.0)]),
    argument("--two-shards", type=float, default=6055.0),
    argument("--n-measured", type=float, default=20_000, help="number of memories of these measurements"),
    argument("--network", type=float, default=50.0, help="round-trip time in microseconds"),
    argument("--stragglers", type=float, default=0.01),
    argument("--batches", type=int, nargs="+", default=[1, 100]),
    argument("--n", type=int, default=20_000, help="number of simulated batches"),
    argument("--sizes", type=float, nargs="+", default=[1e6, 1e7, 1e8, 1e9]),
    argument("--gigabytes", type=float, nargs="+", default=[16.0, 64.0], help="memory per machine"),
)
def simulate(options: argparse.Namespace) -> None:
    """Simulate a sharded store on many machines: memory, queries per second, and response times.

    Batches of a fixed size arrive at random (a Poisson process). A client sends a batch to the shards one by one, which
    takes some time per shard. One copy of each shard, the shard itself or a replica, answers; batches queue at each
    copy. A batch is complete when its last shard has answered. The costs come from the output of ``stores``:
    ``--measured`` gives microseconds per query by batch size with one shard, and ``--two-shards`` those of a single
    query with two shards, which determine the client's cost per shard. The time per query grows with the logarithm of
    the number of memories in a shard. Some calls are slow (``--stragglers``): a Pareto-distributed factor multiplies
    their time.

    Prints the gigabytes per machine, the queries per second when the busiest resource is in use 60 % of the time, and
    the median and 99th percentile of the response times, for several numbers of copies and of queried shards. Then
    prints the recall if only the shards with the nearest centers are queried, measured on a small case, and a table of
    sizes from a laptop to a cluster. The simulation ignores mixed batch sizes, changes, failures, and network time
    other than ``--network``. Needs tabulate.
    """
    options.measured = dict(options.measured)
    print(f"{options.memories:,.0f} memories on {options.machines} machines, {options.stragglers:.0%} stragglers")
    headers = ["batch", "shards", "copies", "copy used", "shards queried"]
    headers += ["GB/machine", "queries/s", "p50 ms", "p99 ms"]
    print(tabulate(simulated_rows(options), headers, floatfmt=("", "", "", "", "", ".1f", ",.0f", ",.1f", ",.1f")))
    n_asked = [1, 2, 5, 10, 20, options.machines]
    found = [["clear", *recalls(n_asked, options.machines, 20_000, 0.7)]]
    found.append(["blurred", *recalls(n_asked, options.machines, 20_000, 2.0)])
    found.append(["by hashes", *(asked / options.machines for asked in n_asked)])
    print(f"\nRecall at 10, 20,000 vectors in {options.machines} shards, by number of shards queried")
    print(tabulate(found, ["clusters", *n_asked], floatfmt=".3f"))
    print(f"\nMinimum number of machines; all shards are queried, in batches of {max(options.batches)}")
    headers = ["memories", "GB/machine", "machines", "GB used", "queries/s", "p99 ms"]
    print(tabulate(sizing_rows(options), headers, floatfmt=("", ".0f", "", ".1f", ",.0f", ",.0f")))

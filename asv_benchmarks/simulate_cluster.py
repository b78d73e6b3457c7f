"""Simulate a store in shards on many machines: bytes, queries a second, and how long queries take.

::

    python asv_benchmarks/simulate_cluster.py
    python asv_benchmarks/simulate_cluster.py --memories 1e9 --machines 100 --measured 1:4474 100:151 10000:42

Queries come at random (a Poisson process), in batches of a size. A batch is sent by one of the clients, which spends
time on every shard that it asks, one after the other. A shard or one of its replicas answers: one of its copies, where
batches wait in line; the batch is answered when the last shard has. The costs are those that ``measure_shards.py``
prints: ``--measured`` are the microseconds of a query by the size of the batch with one shard, and ``--two-shards``
those of a single query with two, which says what a further shard costs the client. Time per query is taken to grow with
the logarithm of the memories of a shard. Some calls are slow (``--stragglers``): their time is multiplied by a number
with a Pareto distribution.

Prints, for numbers of copies and of shards asked, the gigabytes of a machine, queries a second when the busiest part is
busy 60 % of the time, and the median and the 99th percentile of the answers; then, measured on a small case, the recall
when only the shards are asked whose centres are nearest to the query; and a table of sizes from a laptop to a cluster.
What it leaves out: batches of different sizes, changes, failures, and the time of the network but for ``--network``.
Needs tabulate.
"""

import argparse
from typing import NamedTuple

import numpy as np
from measure_shards import clustered
from tabulate import tabulate

from cmt_numba.distributed._partition import divided, sums_of
from cmt_numba.sizing import predict_nbytes

_BUSY = 0.6  # of the time is the busiest part at work
_WARM_UP = 0.1  # of the batches, which are not counted
_RECALL_AT = 10


class Costs(NamedTuple):
    """What calls cost, in seconds."""

    call: float  # of a shard, for any number of queries
    query: float  # of a shard, for each query of a batch
    send: float  # of a client, for each shard that it asks
    network: float  # there and back
    stragglers: float = 0.0  # share of the calls that are slow
    least_slow: float = 5.0  # by which their time is multiplied at least
    shape: float = 2.0  # of the Pareto distribution of this number

    def of_shard(self, batch: int) -> float:
        """Return the time of a shard for a batch, without stragglers."""
        return self.call + self.query * batch

    def mean_of_shard(self, batch: int) -> float:
        """Return the mean time of a shard for a batch."""
        slow = self.least_slow * self.shape / (self.shape - 1.0)
        return self.of_shard(batch) * (1.0 + self.stragglers * (slow - 1.0))


class Cluster(NamedTuple):
    """Shards, each on as many machines as there are copies of it: itself and its replicas."""

    n_shards: int
    n_copies: int
    n_asked: int  # shards, for each batch
    n_clients: int
    least_loaded: bool = True  # whether the copy is asked that is free first, or any


def fitted(measured: dict[int, float], two_shards: float, n_measured: float, n: float) -> tuple[float, float, float]:
    """Return the costs of a call, of a query and of sending that explain measured microseconds per query, for ``n``."""
    batches = np.array(sorted(measured), float)
    totals = np.array([measured[int(batch)] for batch in batches]) * batches
    terms = np.stack([np.ones_like(batches), batches], axis=1) / totals[:, None]  # all errors count relative to the sum
    call, query = np.linalg.lstsq(terms, np.ones_like(batches), rcond=None)[0]
    send = max(0.0, two_shards - measured[int(batches[0])])
    return 1e-6 * call, 1e-6 * query * max(1.0, np.log2(n) / np.log2(n_measured)), 1e-6 * send


def batches_a_second(cluster: Cluster, costs: Costs, batch: int) -> float:
    """Return the largest number of batches a second that neither shards nor clients fall behind with."""
    of_shards = cluster.n_shards * cluster.n_copies / (cluster.n_asked * costs.mean_of_shard(batch))
    of_clients = cluster.n_clients / (cluster.n_asked * costs.send) if costs.send > 0.0 else np.inf
    return float(min(of_shards, of_clients))


def answer_seconds(
    cluster: Cluster, times: np.ndarray, costs: Costs, draws: np.random.Generator, services: np.ndarray
) -> np.ndarray:
    """Return how long batches take.

    Parameters
    ----------
    cluster : Cluster
        Which shards there are.
    times : ndarray of float, shape (n,)
        When the batches come, in order.
    costs : Costs
        Costs of sending.
    draws : numpy.random.Generator
        Chooses shards and, unless the least loaded are asked, copies.
    services : ndarray of float, shape (n, n_asked)
        How long each shard that is asked works on each batch.
    """
    clients = np.zeros(cluster.n_clients)  # when each is free
    free = np.zeros((cluster.n_shards, cluster.n_copies))  # when each copy is
    every, seconds = np.arange(cluster.n_shards), np.empty(times.size)
    sending = costs.send * cluster.n_asked
    for number, time in enumerate(times):
        client = clients.argmin()
        sent = max(time, clients[client]) + sending
        clients[client] = sent
        asked = every if cluster.n_asked == every.size else draws.permutation(every)[: cluster.n_asked]
        copies = free[asked].argmin(axis=1) if cluster.least_loaded else draws.integers(0, cluster.n_copies, asked.size)
        done = np.maximum(free[asked, copies], sent) + services[number]
        free[asked, copies] = done
        seconds[number] = done.max() + costs.network - time
    return seconds


def simulated(cluster: Cluster, costs: Costs, batch: int, rate: float, n: int, seed: int = 0) -> np.ndarray:
    """Return how long ``n`` batches take that come ``rate`` times a second, but for the first of them."""
    draws = np.random.default_rng(seed)
    times = np.cumsum(draws.exponential(1.0 / rate, n))
    services = np.full((n, cluster.n_asked), costs.of_shard(batch))
    slow = draws.random(services.shape) < costs.stragglers
    services[slow] *= costs.least_slow * (1.0 + draws.pareto(costs.shape, int(slow.sum())))
    return answer_seconds(cluster, times, costs, draws, services)[int(_WARM_UP * n) :]


def recalls(n_asked: list[int], n_shards: int, n: int, noise: float) -> list[float]:
    """Return the recall of the ten nearest when the shards nearest to a query are asked, which compare everything."""
    draws = np.random.default_rng(1)
    X, Q = clustered(n, 64, draws, noise), clustered(500, 64, draws, noise)
    X, Q = (part / np.linalg.norm(part, axis=1, keepdims=True) for part in (X, Q))
    owners = divided(X, n_shards, np.random.default_rng(0))
    centres = sums_of(X, owners, n_shards)
    order = np.argsort(-Q @ (centres / np.linalg.norm(centres, axis=1, keepdims=True)).T, axis=1)
    nearest = np.argpartition(-Q @ X.T, _RECALL_AT, axis=1)[:, :_RECALL_AT]
    rank_of_shard = np.argsort(order, axis=1)
    ranks = np.take_along_axis(rank_of_shard, owners[nearest], axis=1)
    return [float(np.mean(ranks < asked)) for asked in n_asked]


def simulated_rows(given: argparse.Namespace) -> list[list[object]]:
    """Return rows of the table of copies and shards asked."""
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
    """Return the costs of shards of so many memories."""
    fit = fitted(given.measured, given.two_shards, given.n_measured, n_each)
    return Costs(*fit, 1e-6 * given.network, given.stragglers)


def gigabytes(n_memories: float, given: argparse.Namespace) -> float:
    """Return the memory that a shard takes."""
    of_payloads = given.payload_bytes * n_memories
    return (predict_nbytes(int(n_memories), given.features) + of_payloads + 1e6 * given.megabytes_of_process) / 1e9


def sizing_rows(given: argparse.Namespace) -> list[list[object]]:
    """Return rows of the table of sizes: the fewest machines of some memory, of which 80 % is used."""
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


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Simulate a store in shards on many machines.")
    parser.add_argument("--memories", type=float, default=1e9)
    parser.add_argument("--machines", type=int, default=100)
    parser.add_argument("--clients", type=int, help="by default as many as machines")
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--payload-bytes", type=float, default=0.0, help="of a memory")
    parser.add_argument("--megabytes-of-process", type=float, default=93.0)
    parser.add_argument("--measured", type=pairs, nargs="+", default=[(1, 4474.0), (100, 151.0), (10_000, 42.0)])
    parser.add_argument("--two-shards", type=float, default=6055.0)
    parser.add_argument("--n-measured", type=float, default=20_000, help="memories that this was measured with")
    parser.add_argument("--network", type=float, default=50.0, help="microseconds there and back")
    parser.add_argument("--stragglers", type=float, default=0.01)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 100])
    parser.add_argument("--n", type=int, default=20_000, help="batches that are simulated")
    parser.add_argument("--sizes", type=float, nargs="+", default=[1e6, 1e7, 1e8, 1e9])
    parser.add_argument("--gigabytes", type=float, nargs="+", default=[16.0, 64.0], help="of a machine")
    given = parser.parse_args()
    given.measured = dict(given.measured)
    print(f"{given.memories:,.0f} memories on {given.machines} machines, {given.stragglers:.0%} stragglers")
    headers = ["batch", "shards", "copies", "which", "asked", "GB each", "queries a second", "p50 ms", "p99 ms"]
    print(tabulate(simulated_rows(given), headers, floatfmt=("", "", "", "", "", ".1f", ",.0f", ",.1f", ",.1f")))
    n_asked = [1, 2, 5, 10, 20, given.machines]
    found = [["clear", *recalls(n_asked, given.machines, 20_000, 0.7)]]
    found.append(["blurred", *recalls(n_asked, given.machines, 20_000, 2.0)])
    found.append(["by hashes", *(asked / given.machines for asked in n_asked)])
    print(f"\nRecall of the ten nearest of 20,000 vectors in {given.machines} shards, if only some are asked")
    print(tabulate(found, ["clusters", *n_asked], floatfmt=".3f"))
    print(f"\nThe fewest machines; all shards are asked, in batches of {max(given.batches)}")
    headers = ["memories", "GB of a machine", "machines", "GB used", "queries a second", "p99 ms"]
    print(tabulate(sizing_rows(given), headers, floatfmt=("", ".0f", "", ".1f", ",.0f", ",.0f")))


if __name__ == "__main__":
    main()

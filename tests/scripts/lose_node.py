"""Remove a machine from a sharded store and add one, on a simulated cluster of two nodes on this machine.

The store has a folder that both nodes can read. When the second node is killed, its shards restart on the first node
and open their folders. When a new node has joined, a shard is added. Meanwhile a client changes and queries the store,
and must find each memory that it has stored exactly once. Linux only; needs the extra ``ray``.

    python tests/scripts/lose_node.py --seed 1
"""

import argparse
import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from cmt_numba.distributed import ShardedStore, start
from cmt_numba.distributed._cluster import ray

_FEATURES = 8


def nodes_of(store: ShardedStore) -> list[int]:
    """Return the process of the node on which each shard runs."""
    parents = [Path(f"/proc/{process}/stat").read_text().rpartition(")")[2] for process in store._ask_all("process")]
    return [int(fields.split()[1]) for fields in parents]


def work(store: ShardedStore, seed: int, stop: Path) -> tuple[int, float]:
    """Change and query a store until the stop file exists; return the number of rounds and the longest, in seconds."""
    random, vectors = np.random.default_rng(seed), dict[int, np.ndarray]()
    n_rounds, longest = 0, 0.0
    while not stop.exists():
        started = time.monotonic()
        new = range(10 * n_rounds, 10 * n_rounds + 10)
        X = random.normal(size=(10, _FEATURES)).astype(np.float32)
        store.add(new, X)
        vectors |= dict(zip(new, X, strict=True))
        replaced = random.choice(sorted(vectors), 5, replace=False).tolist()
        X = random.normal(size=(5, _FEATURES)).astype(np.float32)
        store.upsert(replaced, X)
        vectors |= dict(zip(replaced, X, strict=True))
        deleted = random.choice(sorted(vectors), 3, replace=False).tolist()
        store.delete(deleted)
        for key in deleted:
            del vectors[key]
        found = store.query(np.stack(list(vectors.values())), 2, target_recall=1.0)
        assert not found.missing_shards
        assert found.keys[:, 0].tolist() == list(vectors), "a query has not found what was acknowledged"
        assert not np.any(found.keys[:, 0] == found.keys[:, 1]), "a query has found a memory twice"
        n_rounds, longest = n_rounds + 1, max(longest, time.monotonic() - started)
    assert sorted(store) == sorted(vectors)
    assert len(store) == len(vectors)
    return n_rounds, longest


def lose_node(seed: int, seconds: float, n_replicas: int) -> tuple[int, float]:
    """Kill a node and add another; return the client's number of rounds and the longest, in seconds."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    cluster: Any = import_module("ray.cluster_utils").Cluster(
        initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False}
    )
    node = cluster.add_node(num_cpus=2)
    start(cluster.address)
    try:
        with tempfile.TemporaryDirectory() as folder:
            path, stop = Path(folder) / "store", Path(folder) / "stop"
            how: dict[str, Any] = {"n_replicas": n_replicas, "timeout": 300.0, "random_state": seed}
            with ShardedStore(4, path, **how) as store, ThreadPoolExecutor(1) as executor:
                before = nodes_of(store)
                assert len(set(before)) == 2, "the shards are not on both nodes"
                done = executor.submit(work, store, seed, stop)
                try:
                    time.sleep(seconds)
                    cluster.remove_node(node, allow_graceful=False)
                    time.sleep(seconds)
                    assert len(set(nodes_of(store))) == 1
                    cluster.add_node(num_cpus=2)
                    store.add_shard()
                    time.sleep(seconds)
                finally:
                    stop.touch()
                return done.result()
    finally:
        ray().shutdown()
        cluster.shutdown()


def main() -> int:
    """Run the command line; an assertion fails if a change was lost or made twice."""
    parser = argparse.ArgumentParser(description="Remove a node from a sharded store and add it again.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="seconds before, without, and again with the second node"
    )
    parser.add_argument("--replicas", type=int, default=0, help="replicas per shard")
    given = parser.parse_args()
    n_rounds, longest = lose_node(given.seed, given.seconds, given.replicas)
    print(f"{n_rounds} rounds of changes and queries, nothing lost or doubled; the longest took {longest:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())

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

sys.path.append(str(Path(__file__).parents[1] / "helpers"))

from internals import client_of, distributed_cluster
from kill_shards import Told, work

from cmt_numba.distributed import ShardedStore, start


def nodes_of(store: ShardedStore) -> list[int]:
    """Return the process of the node on which each shard runs."""
    processes = client_of(store).actors.ask("process", dict.fromkeys(store.shards, ())).values.values()
    return [int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1]) for process in processes]


def lose_node(seed: int, seconds: float, n_replicas: int) -> Told:
    """Kill a node, add another one, and return the changes that the client has made."""
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
                done = executor.submit(work, store, 0, seed, str(stop))
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
                told = done.result()
                assert set(store) == told.memories.keys()
                assert len(store) == len(told.memories)
                return told
    finally:
        distributed_cluster.ray().shutdown()
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
    told = lose_node(given.seed, given.seconds, given.replicas)
    print(
        f"{told.n_changes} changes, {told.n_queries} queries, nothing lost or doubled; longest query "
        f"{told.longest_query:.1f} s, longest change {told.longest_change:.1f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Kill processes of a sharded store while clients change and query it, and check its contents afterwards.

With ``--resize``, shards are added and removed continually, so that memories move while processes are killed.

Clients in processes of their own add, upsert, delete, get and query memories and give feedback, each with its own keys,
and record the acknowledged changes. Most memories have a text, and queries are by vectors, by texts or by both.
Meanwhile shards are killed (SIGKILL) at random moments, and Ray restarts them. In the end the store must hold exactly
what the clients have recorded. A change that is made twice shows as an error: the added key already exists, or the
deleted one does not. Linux only; needs the extra ``ray``.

A kill takes 10 to 30 seconds on two cores, because the next process imports the library and loads its kernels.

    python tests/scripts/kill_shards.py 20 --seed 1
"""

import argparse
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.append(str(Path(__file__).parents[1] / "helpers"))

from internals import distributed_cluster

from cmt_numba import MemoryStore
from cmt_numba.distributed import ShardedStore, start

_FEATURES = 8
_OPTIONS: dict[str, Any] = {"random_state": 7}

Memories = dict[str, tuple[np.ndarray, Any, str | None]]  # vectors, payloads and texts


class Told(NamedTuple):
    """The results of one client."""

    memories: Memories  # the expected memories of the store
    n_changes: int
    n_queries: int
    longest_query: float  # seconds
    longest_change: float


def new_memories(keys: list[str], change: int, client: int, random: np.random.Generator) -> Memories:
    """Return random contents of memories. Every fourth has no text; each text has a word of its own."""
    X = random.normal(size=(len(keys), _FEATURES)).astype(np.float32)
    payload = {"n": change, "client": client}
    texts = [None if i % 4 == 3 else f"note of client{client} {key.replace('.', 'x')}" for i, key in enumerate(keys)]
    return dict(zip(keys, zip(X, [payload] * len(keys), texts, strict=True), strict=True))


def put(method: Callable[..., object], new: Memories) -> None:
    """Add or upsert memories."""
    X, payloads, texts = zip(*new.values(), strict=True)
    method(list(new), np.stack(X), list(payloads), list(texts))


def check_queries(store: ShardedStore, chosen: list[str], memories: Memories, client: int) -> None:
    """Query memories by vectors, by texts and by both, and compare their contents with what was acknowledged."""
    X, where = np.stack([memories[key][0] for key in chosen]), {"client": client}
    with_texts = [key for key in chosen if memories[key][2] is not None]
    texts, own = [memories[key][2] for key in with_texts], np.isin(chosen, with_texts)
    found = [(chosen, store.query(X, 3, target_recall=1.0, where=where))]
    if with_texts:
        found.append((with_texts, store.query(None, 3, texts=texts, where=where)))
        found.append((with_texts, store.query(X[own], 3, texts=texts, target_recall=1.0, where=where)))
    for expected, results in found:
        assert not results.missing_shards
        assert results.keys[:, 0].tolist() == expected, "a query has not found what was acknowledged"
        for keys in results.keys.tolist():
            assert len(set(keys) - {None}) == len(keys) - keys.count(None), "a query has found a memory twice"
    items = store.get(chosen)
    np.testing.assert_allclose(items.vectors, X, rtol=1e-5, atol=1e-6)
    assert items.payloads == [memories[key][1] for key in chosen]
    assert items.texts == [memories[key][2] for key in chosen]


def work(store: ShardedStore, client: int, seed: int, stop: str) -> Told:
    """Change and query a store until the stop file exists, and return the expected contents."""
    random, memories = np.random.default_rng([seed, client]), Memories()
    n_changes, n_queries, longest = 0, 0, {"query": 0.0, "change": 0.0}
    while not os.path.exists(stop):
        started, draw = time.monotonic(), random.random()
        chosen = [str(key) for key in random.choice(sorted(memories), 5, replace=False)] if len(memories) >= 10 else []
        what = "query" if chosen and draw < 0.5 else "change"
        if not chosen or 0.5 <= draw < 0.7:
            keys = [f"{client}.{n_changes}.{i}" for i in range(int(random.integers(1, 12)))]
            new = new_memories(keys, n_changes, client, random)
            put(store.add, new)
            memories |= new
        elif draw < 0.5:
            check_queries(store, chosen, memories, client)
        elif draw < 0.8:
            new = new_memories(chosen, n_changes, client, random)
            put(store.upsert, new)
            memories |= new
        elif draw < 0.95:
            store.delete(chosen)
            for key in chosen:
                del memories[key]
        else:
            store.feedback(np.stack([memories[key][0] for key in chosen]), chosen, np.ones(len(chosen)))
        longest[what] = max(longest[what], time.monotonic() - started)
        n_changes, n_queries = n_changes + (what == "change"), n_queries + (what == "query")
    return Told(memories, n_changes, n_queries, longest["query"], longest["change"])


def shard_processes() -> list[int]:
    """Return the processes of shards and replicas that this process has started through Ray."""
    parents: dict[int, int] = {}
    shards: list[int] = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(path.name)] = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            if (path / "cmdline").read_bytes().startswith((b"ray::Shard", b"ray::Replica")):
                shards.append(int(path.name))
        except OSError:  # the process has ended
            continue

    def is_ours(process: int) -> bool:
        return process == os.getpid() or (process in parents and is_ours(parents[process]))

    return sorted(filter(is_ours, shards))


def check_folders(path: Path, names: tuple[str, ...], memories: Memories) -> None:
    """Open the folder of each shard by itself, and compare the contents of all shards with the expected memories."""
    found: Memories = {}
    for name in names:
        with MemoryStore(path / name, **_OPTIONS | {"random_state": None}) as store:
            store.check_invariants()
            items = store.get(list(store))
            contents = zip(items.vectors, items.payloads, items.texts, strict=True)
            of_shard = dict(zip(items.keys, contents, strict=True))
        assert not of_shard.keys() & found.keys(), "two shards hold the same key"
        found |= of_shard  # type: ignore[arg-type]
    lost, more = memories.keys() - found.keys(), found.keys() - memories.keys()
    assert not lost, f"{len(lost)} acknowledged memories are lost, such as {min(lost)}"
    assert not more, f"{len(more)} memories should not be there, such as {min(more)}"
    for key, (vector, *others) in memories.items():
        np.testing.assert_allclose(found[key][0], vector, rtol=1e-5, atol=1e-6)
        assert list(found[key][1:]) == others, key


def resize(store: ShardedStore, n_shards: int, stop: Path, numbers: list[int]) -> None:
    """Add and remove shards until the stop file exists, and append the number of shards after each change."""
    while not stop.exists():
        if len(store.shards) > n_shards:
            store.remove_shard(store.shards[len(numbers) % len(store.shards)])
        else:
            store.add_shard()
        numbers.append(len(store.shards))


def kill_shards(
    n: int,
    seed: int,
    n_clients: int = 4,
    n_shards: int = 3,
    mean_seconds: float = 1.0,
    *,
    n_replicas: int = 0,
    resizing: bool = False,
) -> tuple[list[Told], int]:
    """Kill ``n`` processes of shards and check the contents of the store.

    Returns what each client has done, and how often a shard was added or removed.
    """
    numbers: list[int] = []
    random = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as folder:
        path, stop = Path(folder) / "store", Path(folder) / "stop"
        how: dict[str, Any] = {"n_replicas": n_replicas, "timeout": 300.0, "snapshot_seconds": 0.2}
        with ShardedStore(n_shards, path, **how, **_OPTIONS) as store:
            if __name__ != "__main__":  # Ray's processes cannot import this script by its name
                distributed_cluster.ray().cloudpickle.register_pickle_by_value(sys.modules[__name__])
            task = distributed_cluster.ray().remote(work).options(num_cpus=0, max_retries=0)
            given = distributed_cluster.ray().put(store)
            told = [task.remote(given, client, seed, str(stop)) for client in range(n_clients)]
            while len(store) < 10 * n_clients:  # wait until all clients have started and kernels are compiled
                distributed_cluster.ray().get(
                    distributed_cluster.ray().wait(told, timeout=0.1)[0]
                )  # raises the errors of clients
            if resizing:
                resizer = ThreadPoolExecutor(1).submit(resize, store, n_shards, stop, numbers)
            for _ in range(n):
                time.sleep(random.exponential(mean_seconds))
                while not (processes := shard_processes()):
                    time.sleep(0.05)
                os.kill(int(random.choice(processes)), signal.SIGKILL)
                if random.random() < 0.8:  # sometimes the next process dies before this one has restarted
                    len(store)
            stop.touch()
            if resizing:
                resizer.result()
            done: list[Told] = distributed_cluster.ray().get(told)
            memories = {key: memory for one in done for key, memory in one.memories.items()}
            assert len(store) == len(memories)
            assert set(store) == memories.keys()
            names = store.shards
        check_folders(path, names, memories)
    return done, len(numbers)


def main() -> int:
    """Run the command line; an assertion fails if a change was lost or made twice."""
    parser = argparse.ArgumentParser(description="Kill shards of a store while clients change and query it.")
    parser.add_argument("number", type=int, help="number of kills")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--shards", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="mean seconds of work between two kills")
    parser.add_argument("--replicas", type=int, default=0, help="replicas per shard, which are also killed")
    parser.add_argument("--resize", action="store_true", help="also add and remove shards")
    given = parser.parse_args()
    start(num_cpus=2)
    done, n_moves = kill_shards(
        given.number,
        given.seed,
        given.clients,
        given.shards,
        given.seconds,
        n_replicas=given.replicas,
        resizing=given.resize,
    )
    n_changes, n_queries = sum(one.n_changes for one in done), sum(one.n_queries for one in done)
    longest = max(one.longest_query for one in done), max(one.longest_change for one in done)
    n_left = sum(len(one.memories) for one in done)
    print(
        f"{given.number} killed, {n_moves} shards added or removed, {n_changes} changes, {n_queries} queries; "
        f"{n_left} memories, nothing lost or doubled; longest query {longest[0]:.1f} s, "
        f"longest change {longest[1]:.1f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())

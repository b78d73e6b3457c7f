"""Measure the first calls of a dense store with an empty kernel cache: compilation, and what a process loads later."""

from shared.commands import Commands, argument, print_table

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from time import process_time, thread_time
from typing import Any

commands = Commands(__doc__)

FEATURES = argument("--features", type=int, default=64)


def count_compiled(events: list[tuple[float, Any]]) -> Counter[tuple[str, str, str]]:
    """Return how often Numba compiled each function for each tuple of types."""
    started = [event.data for _, event in events if event.is_start]
    functions = [(data["dispatcher"].py_func, str(data["args"])) for data in started]
    return Counter((function.__module__, function.__qualname__, types) for function, types in functions)


@commands.add(FEATURES)
def as_json(options: argparse.Namespace) -> None:
    """Print the CPU seconds and the numbers of compiled functions of the first calls of this process as JSON."""
    stages: list[tuple[str, float, int, int]] = []
    start = process_time()
    import numpy as np
    from numba.core import event

    from cmt_numba import MemoryStore

    recorder = event.RecordingListener()
    event.register("numba:compile", recorder)

    def note(name: str, call: Callable[[], Any] = lambda: None) -> None:
        nonlocal start
        call()
        end, counts = process_time(), count_compiled(recorder.buffer)
        stages.append((name, end - start, len(counts), counts.total() - len(counts)))
        start = process_time()

    note("import")
    X = np.random.default_rng(0).normal(size=(5000, options.features)).astype(np.float32)
    store = MemoryStore(random_state=0, n_threads=1)
    note("first add, 3 vectors", lambda: store.add(range(3), X[:3]))
    note("first query", lambda: store.query(X[4000:4001], 2))
    note("add up to 2,000 vectors", lambda: store.add(range(3, 2000), X[3:2000]))
    note("query of one row", lambda: store.query(X[4000:4001], 10))
    note("query of 1,000 rows", lambda: store.query(X[4000:], 10))
    note("first feedback", lambda: store.feedback(X[4000:4001], [[1, 2]], [[1.0, 0.0]]))
    note("query after feedback", lambda: store.query(X[4001:4002], 10))
    note("delete", lambda: store.delete([5]))
    note("upsert", lambda: store.upsert([6], X[3000:3001]))
    for (_, name, types), n in count_compiled(recorder.buffer).items():
        if n > 1:
            print(n, name, types, file=sys.stderr)
    print(json.dumps(stages))


@commands.add(FEATURES)
def store(options: argparse.Namespace) -> None:
    """Print CPU seconds of the first calls of a process, with an empty cache, and of the same calls of the next one.

    Also prints how many functions are compiled, and how often one is compiled again for equal types.
    """
    with tempfile.TemporaryDirectory() as cache:
        command = [sys.executable, __file__, "as-json", "--features", str(options.features)]
        environment = os.environ | {"NUMBA_CACHE_DIR": cache}
        runs = [
            json.loads(subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout)
            for _ in range(2)
        ]
    n_before = n_again_before = 0
    rows: list[list[Any]] = []
    for (name, seconds, n, n_again), (_, later, *_) in zip(*runs, strict=True):
        rows.append([name, seconds, later, n - n_before, n_again - n_again_before])
        n_before, n_again_before = n, n_again
    rows.append(["all", *(sum(row[i] for row in rows) for i in range(1, 5))])
    headers = ["call", "CPU s, empty cache", "next process", "functions", "compiled again"]
    print_table(headers, rows, f"First use of a store, {options.features} features", ".2f")


N_QUERIES, N_CHANGES = 2_000, 200


@commands.add(argument("--n", type=int, default=100_000, help="number of memories"), FEATURES)
def loaded(options: argparse.Namespace) -> None:
    """Print the CPU times of the first calls of a store in a folder that was closed and opened again.

    Memories have a vector and a payload. Kernels are compiled by another store before.
    """
    import numpy as np

    from cmt_numba import MemoryStore

    n, rng = options.n, np.random.default_rng(0)
    centers = rng.normal(size=(100, options.features))

    def vectors(n: int) -> np.ndarray:
        drawn = centers[rng.integers(100, size=n)] + 0.5 * rng.normal(size=(n, options.features))
        return drawn.astype(np.float32)

    def call_all(store: MemoryStore, first: int, n_queries: int) -> dict[str, np.ndarray]:
        X, payload = vectors(n_queries), {"a": 1}
        calls: dict[str, Callable[[int], Any]] = {
            "query": lambda i: store.query(X[i : i + 1], 10),
            "add": lambda i: store.add([first + i], X[i : i + 1], [payload]),
            "upsert": lambda i: store.upsert([i], X[i : i + 1], [payload]),
            "delete": lambda i: store.delete([i + N_CHANGES]),
        }
        times = {}
        for name, call in calls.items():
            spent = []
            for i in range(n_queries if name == "query" else N_CHANGES):
                before = thread_time()
                call(i)
                spent.append(thread_time() - before)
            times[name] = np.array(spent)
        return times

    with tempfile.TemporaryDirectory() as folder:
        for size, path in ((3_000, Path(folder) / "small"), (n, Path(folder) / "store")):
            with MemoryStore(path, random_state=0, n_threads=1, sync_every=1000) as store:
                for part in np.array_split(np.arange(size), -(-size // 10_000)):
                    store.add(part.tolist(), vectors(part.size), [{"a": 1}] * part.size)
            start = process_time()
            with MemoryStore(path, n_threads=1, sync_every=1000) as store:
                opened = process_time() - start
                times = call_all(store, size, N_QUERIES)
    rows = [[name, 1e6 * np.median(t[:100]), 1e6 * np.median(t[-100:]), 1e3 * t.max()] for name, t in times.items()]
    title = f"First calls after loading {n} memories, which takes {1e3 * opened:.0f} ms"
    print_table(["call", "us, first 100", "us, last 100", "longest, ms"], rows, title, ".1f")


if __name__ == "__main__":
    commands.main()

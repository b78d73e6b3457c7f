"""Measure the first calls of a dense store with an empty kernel cache: compilation, and what a process loads later."""

from shared.commands import Commands, argument, print_table  # before other libraries

# isort: split
import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from time import process_time
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


main = commands.main

if __name__ == "__main__":
    main()

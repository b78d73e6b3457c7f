"""Let several processes read a folder while one process writes it and is killed again and again. POSIX only.

Every answer of a reader must be one of the writer's states, none may be older than the interval, and no state may be
earlier than one that the reader has seen before. Prints the latencies of queries with and without a refresh.

    python tests/scripts/follow_writer.py 600 --kind store
"""

import argparse
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from cmt_numba import DurableTree, MemoryStore
from cmt_numba.text import TextClassifier

INTERVAL = 0.2  # seconds that a reader may be behind
ROWS = 3  # in each change
X = np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32)


def rows_of(i: int) -> np.ndarray:
    return np.random.default_rng(i).normal(size=(ROWS, 8)).astype(np.float32)


def change(thing: Any, i: int) -> None:
    """Make change number ``i``, which makes the number of memories ``ROWS * (i + 1)``."""
    if isinstance(thing, MemoryStore):
        thing.add([f"{i} {j}" for j in range(ROWS)], rows_of(i), [{"change": i}] * ROWS)
    elif isinstance(thing, DurableTree):
        thing.insert(rows_of(i))
    else:
        thing.partial_fit([f"text {i} {j} {i % 7}" for j in range(ROWS)], ["a", "b", "a"])


def seen_by(thing: Any) -> int:
    """Query a thing, and return the number of changes in the answer."""
    if isinstance(thing, MemoryStore):
        found = thing.query(X[:1], 2 * len(thing) + 1000, target_recall=1.0)
        n = sum(key is not None for key in found.keys[0])
        numbers = [payload["change"] for payload in found.payloads[0] if payload is not None]
        assert len(numbers) == n, "a memory without its payload"
        assert sorted(numbers) == sorted([*range(n // ROWS)] * ROWS), "a part of a change"
    elif isinstance(thing, DurableTree):
        ids = thing.query(X[:1], 2 * len(thing) + 1000, n_probes=10**6).ids[0]
        n = int((ids >= 0).sum())
        assert n % ROWS == 0, "a part of a change"
    else:
        thing.predict(["text 1"])
        n = thing.n_texts_
    return n // ROWS


KINDS = {"store": MemoryStore, "tree": DurableTree, "texts": TextClassifier.open}


def write(kind: str, path: Path, made: Any) -> None:
    """Make changes for ever. ``made`` holds the number of acknowledged changes and the time of the last one."""
    with KINDS[kind](path, snapshot_bytes=200_000, timeout=60.0) as thing:
        done = thing.n_texts_ if kind == "texts" else len(thing)
        for i in range(done // ROWS, 10**9):
            change(thing, i)
            made[1 + i % (len(made) - 1)] = time.monotonic()
            made[0] = i + 1
            time.sleep(0.02)


def read(kind: str, path: Path, made: Any, results: Any, until: float) -> None:
    last, latencies, n_refreshed, oldest = 0, [], 0, 0.0
    try:
        with KINDS[kind](path, read_only=True, refresh_every=INTERVAL) as thing:
            while time.monotonic() < until:
                before, began = int(made[0]), time.monotonic()
                found = seen_by(thing)
                latencies.append(time.monotonic() - began)
                if found < last:
                    raise AssertionError(f"went back from {last} to {found}")
                n_refreshed += found > last
                last = found
                # ``before`` changes were acknowledged; those of more than the interval ago must be seen
                if found < before and (age := began - made[1 + found % (len(made) - 1)]) > INTERVAL:
                    oldest = max(oldest, age)
                time.sleep(0.001)
        assert latencies, "the time was over before the first query"
        results.put((len(latencies), n_refreshed, oldest, *np.quantile(latencies, [0.5, 0.99, 1.0]).tolist(), ""))
    except BaseException as error:
        results.put((len(latencies), n_refreshed, oldest, 0.0, 0.0, 0.0, f"{type(error).__name__}: {error}"))


def main() -> int:
    """Run the command line; print a line for each reader."""
    parser = argparse.ArgumentParser(description="Follow a writer that is killed.")
    parser.add_argument("seconds", type=float)
    parser.add_argument("--kind", choices=list(KINDS), default="store")
    parser.add_argument("--readers", type=int, default=4)
    given = parser.parse_args()
    context, n_kills, n_wrong = multiprocessing.get_context("spawn"), 0, 0
    with tempfile.TemporaryDirectory() as folder:
        path, until = Path(folder) / "thing", time.monotonic() + given.seconds
        made, results = context.Array("d", 1 + (1 << 16)), context.Queue()
        with KINDS[given.kind](path) as thing:
            change(thing, 0)
        made[0] = 1
        readers = [
            context.Process(target=read, args=(given.kind, path, made, results, until)) for _ in range(given.readers)
        ]
        for reader in readers:
            reader.start()
        random = np.random.default_rng(0)
        while time.monotonic() < until:
            writer = context.Process(target=write, args=(given.kind, path, made))
            writer.start()
            writer.join(min(max(0.0, until - time.monotonic()), 15.0 + 15.0 * random.random()))
            if writer.exitcode is not None:
                print("the writer has failed")
                n_wrong += 1
            elif writer.pid is not None:
                os.kill(writer.pid, signal.SIGKILL)
                n_kills += 1
            writer.join()
        for _ in readers:
            n, n_refreshed, oldest, median, late, latest, error = results.get(timeout=120)
            n_wrong += error != "" or oldest > 0.0
            print(
                f"{n} queries, {n_refreshed} with changes, {1e3 * median:.2f} ms median, {1e3 * late:.2f} ms 99 %, "
                f"{1e3 * latest:.1f} ms at most, older than the interval by {oldest:.3f} s; {error or 'no error'}"
            )
        with KINDS[given.kind](path) as thing:
            print(f"{n_kills} kills, {int(made[0])} changes acknowledged, {seen_by(thing)} in the folder")
            n_wrong += seen_by(thing) < made[0]
    return int(n_wrong > 0)


if __name__ == "__main__":
    sys.exit(main())

"""Serve queries from eight threads while one thread learns; then kill the process and compare its answers.

    python tests/scripts/load.py store --minutes 60
    python tests/scripts/load.py classifier --minutes 60
    python tests/scripts/load.py shards --minutes 60      # needs the extra ``ray``

The size of the served object stays nearly constant, so its memory must not grow. The script prints the resident memory
and the latencies once a minute. In the end the process answers a fixed set of queries and is killed (SIGKILL). The
folder, opened again, must give the same answers. Linux only.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cmt_numba import CMTClassifier, MemoryStore
from cmt_numba.distributed import ShardedStore, start

_FEATURES = 64
_THREADS = 8
_CLASSES = 200
_MEMORIES = 20_000
_BATCH = 10


def vectors(n: int, seed: int) -> np.ndarray:
    """Return random rows."""
    return np.random.default_rng(seed).normal(size=(n, _FEATURES)).astype(np.float32)


class ServedStore:
    """A store or sharded store whose memories are replaced continually."""

    def __init__(self, store: Any) -> None:
        self.store, self.n_changes = store, 0

    def prepare(self) -> None:
        """Fill the store."""
        self.store.add([f"k{i}" for i in range(_MEMORIES)], vectors(_MEMORIES, 0))

    def change(self) -> None:
        """Replace some memories."""
        self.n_changes += 1
        keys = [f"k{i % _MEMORIES}" for i in range(_BATCH * self.n_changes, _BATCH * (self.n_changes + 1))]
        self.store.upsert(keys, vectors(_BATCH, self.n_changes))

    def query(self, row: np.ndarray) -> None:
        """Answer a query with one row."""
        self.store.query(row, 5)

    def answers(self) -> list[Any]:
        """Return the answers to fixed queries."""
        answers: list[Any] = self.store.query(vectors(50, 1), 5, target_recall=1.0).keys.tolist()
        return answers


class ServedClassifier:
    """A classifier that learns examples and forgets the oldest ones."""

    def __init__(self, classifier: CMTClassifier) -> None:
        self.classifier, self.n_changes = classifier, 0
        self.centers = vectors(_CLASSES, 2)

    def _examples(self, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        y = np.random.default_rng(seed).integers(_CLASSES, size=n)
        return self.centers[y] + vectors(n, seed), y

    def prepare(self) -> None:
        """Learn many examples at once."""
        self.classifier.fit(*self._examples(5_000, 0))

    def change(self) -> None:
        """Learn some examples."""
        self.n_changes += 1
        self.classifier.partial_fit(*self._examples(_BATCH, self.n_changes))

    def query(self, row: np.ndarray) -> None:
        """Answer a query with one row."""
        self.classifier.predict(row)

    def answers(self) -> list[Any]:
        """Return the answers to fixed queries."""
        answers: list[Any] = self.classifier.predict_proba(vectors(50, 1)).tolist()
        return answers


def open_served(kind: str, folder: Path) -> Any:
    """Open the folder of the served object."""
    if kind == "classifier":
        return ServedClassifier(CMTClassifier.open(folder, max_examples=6_000, random_state=0))
    if kind == "shards":
        start()
        return ServedStore(ShardedStore(2, path=folder, random_state=0))
    return ServedStore(MemoryStore(folder, random_state=0))


def resident_megabytes() -> float:
    """Return the resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def serve(kind: str, folder: Path, minutes: float) -> None:
    """Serve for some minutes, print measurements and answers, and wait to be killed."""
    served = open_served(kind, folder)
    served.prepare()
    served.query(vectors(1, 3))
    stopped, errors = threading.Event(), []
    latencies: dict[str, list[float]] = {"query": [], "change": []}

    def loop(name: str, work: Callable[[], None]) -> None:
        try:
            while not stopped.is_set():
                started = time.perf_counter()
                work()
                latencies[name].append(time.perf_counter() - started)
        except BaseException as error:
            errors.append(error)
            stopped.set()

    rows = vectors(_THREADS, 10)
    threads = [
        threading.Thread(target=loop, args=("query", partial(served.query, rows[i : i + 1]))) for i in range(_THREADS)
    ]
    threads.append(threading.Thread(target=loop, args=("change", served.change)))
    for thread in threads:
        thread.start()
    ends = time.monotonic() + 60 * minutes
    print("minute   MB   queries  median us  99 %  99.9 %  longest ms   changes  median ms  longest ms", flush=True)
    while not stopped.is_set() and time.monotonic() < ends:
        stopped.wait(min(60.0, max(0.1, ends - time.monotonic())))
        shown = {name: np.array(times) for name, times in latencies.items()}
        for times in latencies.values():
            times.clear()
        queries, changes = shown["query"], shown["change"]
        if queries.size and changes.size:
            half, most, nearly = np.percentile(queries, [50, 99, 99.9]) * 1e6
            minute = minutes - (ends - time.monotonic()) / 60
            print(
                f"{minute:6.1f} {resident_megabytes():5.0f} {queries.size:9,} {half:10.0f}"
                f" {most:6.0f} {nearly:7.0f} {1e3 * queries.max():10.1f} {changes.size:9,}"
                f" {1e3 * np.median(changes):10.2f} {1e3 * changes.max():10.1f}",
                flush=True,
            )
    stopped.set()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    print(json.dumps(served.answers()), flush=True)
    threading.Event().wait()


def main() -> None:
    """Serve in a process of its own, kill it, and compare the answers with those of its folder."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("kind", choices=("store", "classifier", "shards"))
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve is not None:
        serve(given.kind, given.serve, given.minutes)
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / given.kind
        command = [sys.executable, __file__, given.kind, "--minutes", str(given.minutes), "--serve", str(folder)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("["):
                break
            print(line, end="", flush=True)
        else:
            sys.exit("the process has failed")
        process.send_signal(signal.SIGKILL)
        process.wait()
        same = open_served(given.kind, folder).answers() == json.loads(line)
        print(f"after SIGKILL the folder answers {'as before' if same else 'DIFFERENTLY'}")
        sys.exit(not same)


if __name__ == "__main__":
    main()

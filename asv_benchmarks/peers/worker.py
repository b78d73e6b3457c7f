"""The process of one peer with one build, which executes commands and measures times."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from . import memory
from .contract import Options, Peer, labels_of
from .registry import find_peer
from .task import RECALL_AT, Task, load_task

FEW_ROWS = 400
"""Rows to try a peer on that compiles what it needs."""

BLOCK = 256
"""Rows inserted, and then queries asked, at a time."""

CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}
"""What can be measured: time that passes, or time that all threads of the process are at work."""

_PROBE = 32  # queries that show how many can be asked in the time there is
_FEWEST_QUERIES = 64
_SINGLE_QUERIES = 100
_LEAST_SECONDS = 0.1  # a shorter call is repeated until all have taken so long


class Built(NamedTuple):
    """What a build took."""

    seconds: float
    n_cpus: float  # at work, on average: more than one means several threads, less that others had them
    peak_mb: float  # the most memory on top of the data
    kept_mb: float  # what is still in use on top of the data


class Asked(NamedTuple):
    """What the queries of one setting took, and their answers.

    Times are microseconds a query: of all queries in one call, and of single ones one after the other.
    """

    n_queries: int
    us: float
    single_us: float
    labels: np.ndarray
    us_at: dict[int, float]  # for each k
    ids_at: dict[int, np.ndarray]


class Streamed(NamedTuple):
    """What it took to insert rows into a build of half of them, with as many queries in between."""

    n_inserted: int
    inserts_per_second: float
    us_a_query: float
    error: float


class Worker:
    """One peer, and the data."""

    def __init__(self, name: str, folder: Path, n_threads: int, clock: str = "wall") -> None:
        self._class, self._folder, self._n_threads = find_peer(name), folder, n_threads
        self._now = CLOCKS[clock]
        self._task = load_task(folder)
        if self._class.compiles:
            self._try(self._task)
        self._peer = self._new_peer(self._task)

    def _new_peer(self, task: Task) -> Peer:
        peer = self._class(task.shape, self._n_threads, self._folder)
        peer.prepare(task.X, task.y)
        return peer

    def _try(self, task: Task) -> None:
        few = task._replace(X=task.X[:FEW_ROWS], y=task.y[:FEW_ROWS])
        builds = self._class.builds(few.shape, quick=True)
        streams = self._class.streams(few.shape)
        builds += [build for build, _ in streams[:1]]
        for build in builds:
            peer = self._new_peer(few)
            peer.build(**build)
            peer.set(**peer.settings(build, quick=True)[-1])
            queries = peer.ready(task.queries[:8])
            for k in RECALL_AT if peer.finds_rows else ():
                peer.ask(queries, k)
            peer.classify(queries)
            if streams:
                peer.insert(peer.ready_rows(few.X[:8], few.y[:8]))
            peer.close()

    def build(self, build: Options) -> Built:
        """Build afresh."""
        self._peer.close()
        self._peer = self._new_peer(self._task)
        memory.forget_peak()
        before = memory.resident()
        starts = {name: now() for name, now in CLOCKS.items()}
        start = self._now()
        self._peer.build(**build)
        seconds = self._now() - start
        taken = {name: now() - starts[name] for name, now in CLOCKS.items()}
        return Built(seconds, taken["cpu"] / taken["wall"], memory.peak() - before, memory.resident() - before)

    def measure(self, setting: Options, limit: float) -> Asked:
        """Ask the build with a setting of the queries; as many queries as fit into the limit, in seconds."""
        peer, queries = self._peer, self._task.queries
        peer.set(**setting)
        probe = peer.ready(queries[:_PROBE])
        peer.classify(probe)
        start = self._now()
        peer.classify(probe)
        expected = (self._now() - start) / min(_PROBE, queries.shape[0])
        n = int(min(queries.shape[0], max(_FEWEST_QUERIES, limit / expected)))
        asked = peer.ready(queries[:n])
        us_at, ids_at = {}, {}
        for k in RECALL_AT if peer.finds_rows else ():
            taken, ids = best_time(lambda: peer.ask(asked, k), limit, self._now)  # noqa: B023
            us_at[k], ids_at[k] = 1e6 * taken / n, ids
        if peer.classifies:
            seconds, labels = best_time(lambda: peer.classify(asked), limit, self._now)
            us = 1e6 * seconds / n
        else:
            us, labels = us_at[1], labels_of(peer.y, ids_at[1][:, 0])
        n_single = int(min(n, _SINGLE_QUERIES, max(10, limit / expected)))
        single = [peer.ready(queries[i : i + 1]) for i in range(n_single)]
        start = self._now()
        for query in single:
            peer.classify(query)
        single_us = 1e6 * (self._now() - start) / n_single
        return Asked(n, us, single_us, labels, us_at, ids_at)

    def stream(self, build: Options, setting: Options, limit: float) -> Streamed:
        """Build over half of the rows; then insert a block, and ask a block, until all are in or time is up."""
        task = self._task
        half = task.y.size // 2
        self._peer.close()
        self._peer = peer = self._new_peer(task._replace(X=task.X[:half], y=task.y[:half]))
        peer.build(**build)
        peer.set(**setting)
        inserting = asking = 0.0
        n_inserted = n_asked = n_wrong = 0
        for first in range(half, task.y.size, BLOCK):
            rows = peer.ready_rows(task.X[first : first + BLOCK], task.y[first : first + BLOCK])
            at = n_asked % task.answers.size
            answers = task.answers[at : at + BLOCK]
            queries = peer.ready(task.queries[at : at + BLOCK])
            start = self._now()
            peer.insert(rows)
            between = self._now()
            labels = peer.classify(queries)
            inserting, asking = inserting + between - start, asking + self._now() - between
            n_inserted += min(BLOCK, task.y.size - first)
            n_asked, n_wrong = n_asked + answers.size, n_wrong + int(np.sum(labels != answers))
            if inserting + asking > limit:
                break
        return Streamed(n_inserted, n_inserted / inserting, 1e6 * asking / n_asked, n_wrong / n_asked)

    def close(self) -> None:
        """Leave nothing behind."""
        self._peer.close()


def best_time(work: Callable[[], Any], limit: float, now: Callable[[], float]) -> tuple[float, Any]:
    """Return the least seconds that some work takes, and its result.

    It is done twice at least, unless once takes half of the limit, and until all has taken a moment.
    """
    times: list[float] = []
    result = None
    while len(times) < 2 or sum(times) < _LEAST_SECONDS:
        start = now()
        result = work()
        times.append(now() - start)
        if sum(times) > limit / 2:
            break
    return min(times), result


def serve(connection: Connection, name: str, folder: Path, n_threads: int, clock: str) -> None:
    """Do what comes over a connection, a method of ``Worker`` and its arguments, until None comes.

    Each answer is a pair of a problem in words and the result, one of which is None.
    """
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)  # some libraries talk
    try:
        worker = Worker(name, folder, n_threads, clock)
        connection.send((None, None))
    except Exception:
        connection.send((traceback.format_exc(limit=-2), None))
        return
    while (message := connection.recv()) is not None:
        method, arguments = message
        try:
            connection.send((None, getattr(worker, method)(*arguments)))
        except Exception:
            connection.send((traceback.format_exc(limit=-2), None))
    worker.close()

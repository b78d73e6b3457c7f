"""The process of one peer with one build: it does what it is told, and times itself."""

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
from .contract import Options, Peer
from .registry import find_peer
from .task import RECALL_AT, Task, load_task

FEW_ROWS = 400
"""Rows to try a peer on that compiles what it needs."""

BLOCK = 256
"""Rows inserted, and then queries asked, at a time."""

_PROBE = 32  # queries that show how many can be asked in the time there is
_FEWEST_QUERIES = 64
_SINGLE_QUERIES = 100
_LEAST_SECONDS = 0.1  # a shorter call is repeated until all have taken so long


class Built(NamedTuple):
    """What a build took."""

    seconds: float
    cpu_seconds: float  # of all threads; much more than ``seconds`` means that there were several
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

    def __init__(self, name: str, folder: Path, n_threads: int) -> None:
        self._class, self._folder, self._n_threads = find_peer(name), folder, n_threads
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
        if self._class.can_insert:
            builds.append(self._class.streams(few.shape)[0][0])
        for build in builds:
            peer = self._new_peer(few)
            peer.build(**build)
            peer.set(**peer.settings(build, quick=True)[-1])
            queries = peer.ready(task.queries[:8])
            for k in RECALL_AT if peer.finds_rows else ():
                peer.ask(queries, k)
            peer.classify(queries)
            if peer.can_insert:
                peer.insert(peer.ready_rows(few.X[:8], few.y[:8]))
            peer.close()

    def build(self, build: Options) -> Built:
        """Build afresh."""
        self._peer.close()
        self._peer = self._new_peer(self._task)
        memory.forget_peak()
        before = memory.resident()
        cpu, start = time.process_time(), time.perf_counter()
        self._peer.build(**build)
        seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu
        return Built(seconds, cpu_seconds, memory.peak() - before, memory.resident() - before)

    def measure(self, setting: Options, limit: float, with_rows: bool) -> Asked:
        """Ask the build with a setting of the queries; as many queries as fit into the limit, in seconds.

        With ``with_rows`` the nearest rows are asked for too, so that recall can be told.
        """
        peer, queries = self._peer, self._task.queries
        peer.set(**setting)
        probe = peer.ready(queries[:_PROBE])
        peer.classify(probe)
        start = time.perf_counter()
        peer.classify(probe)
        expected = (time.perf_counter() - start) / min(_PROBE, queries.shape[0])
        n = int(min(queries.shape[0], max(_FEWEST_QUERIES, limit / expected)))
        asked = peer.ready(queries[:n])
        seconds, labels = best_time(lambda: peer.classify(asked), limit)
        n_single = int(min(n, _SINGLE_QUERIES, max(10, limit / expected)))
        single = [peer.ready(queries[i : i + 1]) for i in range(n_single)]
        start = time.perf_counter()
        for query in single:
            peer.classify(query)
        single_us = 1e6 * (time.perf_counter() - start) / n_single
        us_at, ids_at = {}, {}
        if with_rows and peer.finds_rows:
            for k in RECALL_AT:
                taken, ids = best_time(lambda: peer.ask(asked, k), limit)  # noqa: B023
                us_at[k], ids_at[k] = 1e6 * taken / n, ids
        return Asked(n, 1e6 * seconds / n, single_us, labels, us_at, ids_at)

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
            start = time.perf_counter()
            peer.insert(rows)
            between = time.perf_counter()
            labels = peer.classify(queries)
            inserting, asking = inserting + between - start, asking + time.perf_counter() - between
            n_inserted += min(BLOCK, task.y.size - first)
            n_asked, n_wrong = n_asked + answers.size, n_wrong + int(np.sum(labels != answers))
            if inserting + asking > limit:
                break
        return Streamed(n_inserted, n_inserted / inserting, 1e6 * asking / n_asked, n_wrong / n_asked)

    def close(self) -> None:
        """Leave nothing behind."""
        self._peer.close()


def best_time(work: Callable[[], Any], limit: float) -> tuple[float, Any]:
    """Return the least seconds that some work takes, and its result.

    It is done twice at least, unless once takes half of the limit, and until all has taken a moment.
    """
    times: list[float] = []
    result = None
    while len(times) < 2 or sum(times) < _LEAST_SECONDS:
        start = time.perf_counter()
        result = work()
        times.append(time.perf_counter() - start)
        if sum(times) > limit / 2:
            break
    return min(times), result


def serve(connection: Connection, name: str, folder: Path, n_threads: int) -> None:
    """Do what comes over a connection, a method of ``Worker`` and its arguments, until None comes.

    Each answer is a pair of a problem in words and the result, one of which is None.
    """
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)  # some libraries talk
    try:
        worker = Worker(name, folder, n_threads)
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

"""What a billion memories over many machines would need: a paper calculation from what was measured on one.

Everything that is assumed, and not measured, is a constant of this module and is said in what it prints.
"""

import math
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numba import njit
from tabulate import tabulate

MEMORIES = 10**9

_GIGABYTE = 10**9
_MACHINES = (4, 16, 64, 256)  # gigabytes of memory
_SHARE_USED = 0.8  # of a machine's memory; the rest is for the system, for growth and for requests under way
_CORES = 2  # of a machine, as here
_REPLICAS = 2  # of each machine, so that one may fail
_ROUND_TRIP = 50.0  # microseconds from a machine to another and back, within a data centre
_BANDWIDTH = 10 / 8 * 1000  # bytes a microsecond: 10 gigabits a second
_ANSWER = 64  # bytes
_LINE = 64  # bytes of a cache line
_SAMPLE = 1 << 29  # bytes that waits are measured on: many times what caches hold


class Line(NamedTuple):
    """A fit a + b log2(n)."""

    start: float
    slope: float

    def at(self, n: float) -> float:
        """Return what the fit says of ``n`` memories."""
        return self.start + self.slope * math.log2(n)

    def __str__(self) -> str:
        sign = "+" if self.slope >= 0.0 else "-"
        return f"{self.start:.2f} {sign} {abs(self.slope):.3f} log2(n)"


class Measured(NamedTuple):
    """What was measured on trees of one machine."""

    largest: int  # memories
    bytes_each: float  # in the largest tree, keys and spare room included
    key_bytes: float
    router_bytes: float  # of a router near the root
    router_lines: float  # cache lines that a search reads of a router
    insert: Line  # microseconds
    query: Line  # microseconds
    lines: Line  # cache lines that a query reads


class Waits(NamedTuple):
    """Nanoseconds for a cache line that is in no cache."""

    one_by_one: float  # where the next address is in the line before
    at_once: float  # where all addresses are known


def fit_logarithm(sizes: Sequence[int], values: Sequence[float]) -> Line:
    """Return the least squares fit of values by a + b log2(n)."""
    slope, start = np.polyfit(np.log2(sizes), values, 1)
    return Line(float(start), float(slope))


@njit
def _follow(following, n):
    i = 0
    for _ in range(n):
        i = following[i]
    return i


@njit
def _gather(values, order):
    total = 0
    for i in order:
        total += values[i]
    return total


def measure_waits() -> Waits:
    """Return how long this machine waits for memory."""
    step = _LINE // 8  # of int64
    n = _SAMPLE // _LINE
    order = np.random.default_rng(0).permutation(n) * step
    following = np.zeros(n * step, np.int64)
    following[order] = np.roll(order, -1)  # one round through all lines
    steps = n // 4
    _follow(following, 1)
    _gather(following, order[:1])
    start = time.perf_counter()
    _follow(following, steps)
    followed = time.perf_counter()
    _gather(following, order[-steps:])
    gathered = time.perf_counter()
    return Waits(1e9 * (followed - start) / steps, 1e9 * (gathered - followed) / steps)


def describe_billion(measured: Measured, waits: Waits) -> str:
    """Return the calculation as text."""
    total = MEMORIES * measured.bytes_each
    columns = [_divide(measured, waits, gigabytes) for gigabytes in _MACHINES]
    table = [[name, *[column[name] for column in columns]] for name in columns[0]]
    needed = f"{MEMORIES:,} memories take {total / _GIGABYTE:,.0f} GB, with replicas {_REPLICAS} times that."
    known = f"""
Measured: {measured.bytes_each:.0f} bytes a memory in a tree of {measured.largest:,}, of which its key takes
{measured.key_bytes:.0f}. With n memories an insert takes {measured.insert} us, a query {measured.query} us,
and it reads {measured.lines} cache lines. A line that is in no cache takes {waits.one_by_one:.0f} ns
where its address must be read first, {waits.at_once:.1f} ns where many are asked for at once.

Assumed: the fits hold beyond {measured.largest:,} memories, and so do the bytes a memory. Machines are like this
one, with {_CORES} cores, and {_SHARE_USED:.0%} of their memory is used. There are {_REPLICAS} of each: they share the
queries, and all take the inserts. A message takes {_ROUND_TRIP:.0f} us there and back, and 10 gigabits a second. No
request waits for another.

One asked: a front machine has the topmost routers of a single tree, one fewer than machines, and names the machine
that has the leaf. Errors are those of one large tree. None of these routers is taken to lie in a cache.
All asked: memories are divided at random. Every machine searches a leaf of a tree of its own, and the best answer
counts: fewer errors, and as much more work as there are machines.
"""
    return "\n".join([needed, tabulate(table, disable_numparse=True), known.strip()])


def _divide(measured: Measured, waits: Waits, gigabytes: int) -> dict[str, str]:
    """Return what follows from machines of so much memory."""
    n_machines = math.ceil(MEMORIES * measured.bytes_each / (gigabytes * _GIGABYTE * _SHARE_USED))
    n = MEMORIES / n_machines
    query, insert, lines = (line.at(n) for line in (measured.query, measured.insert, measured.lines))
    front = math.log2(n_machines) * measured.router_lines * waits.one_by_one / 1e3
    network = _ROUND_TRIP + (measured.key_bytes + _ANSWER) / _BANDWIDTH
    queries_a_second = _REPLICAS * _CORES * 1e6 / query  # of a machine and its replicas
    return {
        "gigabytes of a machine": f"{gigabytes}",
        "machines, replicas not counted": f"{n_machines:,}",
        "memories of a machine": f"{n:,.0f}",
        "cache lines a query": f"{lines:,.0f}",
        "us if no line is in a cache, all at once": f"{lines * waits.at_once / 1e3:.1f}",
        "us if no line is in a cache, one by one": f"{lines * waits.one_by_one / 1e3:.1f}",
        "us a query by the fit": f"{query:.1f}",
        "kB of routers in front": f"{(n_machines - 1) * measured.router_bytes / 1e3:,.1f}",
        "us to descend through them": f"{front:.1f}",
        "us to answer, one asked": f"{front + network + query:.0f}",
        "us to answer, all asked": f"{network + query:.0f}",
        "queries a second, one asked": f"{n_machines * queries_a_second:,.0f}",
        "queries a second, all asked": f"{queries_a_second:,.0f}",
        "minutes to insert all, a thread a machine": f"{insert * n / 60e6:,.0f}",
    }

"""Running kernels over many rows or trees: in several threads, step by step, with progress.

Kernels release the global interpreter lock and share nothing that they write, so plain Python threads run them side
by side. Unlike numba's own parallel loops these threads may be started from any thread, survive a fork, and need no
second compilation.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from time import perf_counter
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

_FIRST_STEP = 64  # rows
_SECONDS_OF_A_STEP = 0.004
_MOST_GROWTH = 4.0  # of a step from one to the next


class Workers(Protocol):
    """Threads that work out a function of each of some items."""

    def __call__(self, function: Callable[[Any], T], items: Sequence[Any]) -> list[T]:
        """Return the function of each item; an error of one is raised when all have come to an end, and is the last."""


@contextmanager
def workers(n_threads: int) -> Iterator[Workers]:
    """Give up to ``n_threads`` threads for as long as the context lasts, or none but the caller's own."""
    if n_threads <= 1:
        yield _in_own_thread
        return
    with ThreadPoolExecutor(n_threads) as pool:

        def run(function: Callable[[Any], T], items: Sequence[Any]) -> list[T]:
            if len(items) == 1:
                return _in_own_thread(function, items)
            try:
                return [future.result() for future in [pool.submit(function, item) for item in items]]
            except BaseException:
                pool.shutdown()  # waits for what has begun, also where this was broken off before it was noted
                raise

        yield run


def _in_own_thread(function: Callable[[Any], T], items: Sequence[Any]) -> list[T]:
    return [function(item) for item in items]


def map_threads(function: Callable[[Any], T], items: Sequence[Any], n_threads: int) -> list[T]:
    """Return ``function`` of each item, worked out in up to ``n_threads`` threads."""
    n_threads = min(n_threads, len(items))
    if n_threads <= 1:
        return _in_own_thread(function, items)
    with workers(n_threads) as run:
        return run(function, items)


def spans(n: int, length: int) -> list[tuple[int, int]]:
    """Divide ``0 .. n`` into spans of at most ``length``."""
    return [(first, min(first + length, n)) for first in range(0, n, length)]


def share_rows(work: Callable[[int, int], Any], n_rows: int, n_threads: int) -> None:
    """Have ``work`` done on all rows, in equal spans ``first .. stop``, one for each thread."""
    map_threads(lambda span: work(*span), spans(n_rows, -(-n_rows // n_threads)), n_threads)


class Steps:
    """The rows ``first .. stop`` in spans that take some milliseconds each, going by how long earlier ones have taken.

    A thread that has others wait while it works on a span does not keep them waiting for long.
    """

    def __init__(self, first: int, stop: int) -> None:
        self._first, self._stop = first, stop
        self._length = _FIRST_STEP

    def __iter__(self) -> Iterator[tuple[int, int]]:
        first = self._first
        while first < self._stop:
            stop = min(first + self._length, self._stop)
            yield first, stop
            first = stop

    def take(self, work: Callable[[int, int], T], first: int, stop: int) -> T:
        """Return what ``work`` on a span returns, and note how long it takes if there are spans to come."""
        if stop == self._stop:
            return work(first, stop)
        began = perf_counter()
        result = work(first, stop)
        wanted = (stop - first) * _SECONDS_OF_A_STEP / max(perf_counter() - began, 1e-9)
        self._length = max(1, int(min(wanted, _MOST_GROWTH * self._length)))
        return result


@contextmanager
def progress_bar(n: int | None, unit: str, shown: bool) -> Iterator[Callable[[int], Any]]:
    """Give a function that reports work done, shown as a tqdm bar or not at all; ``n`` is None if nobody knows it."""
    if not shown:
        yield lambda amount: None
        return
    from tqdm.auto import tqdm  # only who looks at a bar pays for its import

    with tqdm(total=n, unit=unit) as bar:
        yield bar.update

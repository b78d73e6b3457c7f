"""Worker threads that run kernels over many rows or trees, in steps and with a progress bar.

Kernels release the global interpreter lock and share nothing that they write, so Python threads run them in parallel.
Unlike Numba's parallel loops, these threads can be started from any thread, survive a fork, and need no second
compilation.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from time import perf_counter
from typing import Any, NamedTuple, Protocol, TypeVar

from .interrupts import end_step

T = TypeVar("T")

_MOST_GROWTH = 4.0  # largest ratio of the lengths of successive steps


class Pace(NamedTuple):
    """The length of steps."""

    first: int = 16  # rows of the first step
    seconds: float = 0.004  # target time of each further step


class Workers(Protocol):
    """A callable that applies a function to items in parallel."""

    def __call__(self, function: Callable[[Any], T], items: Sequence[Any]) -> list[T]:
        """Return the function's result for each item. If calls fail, raise an error after all calls have ended."""


@contextmanager
def workers(n_threads: int) -> Iterator[Workers]:
    """Yield workers with up to ``n_threads`` threads; with one, the calling thread does the work."""
    if n_threads <= 1:
        yield in_own_thread
        return
    with ThreadPoolExecutor(n_threads) as pool:

        def run(function: Callable[[Any], T], items: Sequence[Any]) -> list[T]:
            if len(items) == 1:
                return in_own_thread(function, items)
            try:
                return [future.result() for future in [pool.submit(function, item) for item in items]]
            except BaseException:
                pool.shutdown()  # waits for all running calls, also after an interrupt during submission
                raise

        yield run


def in_own_thread(function: Callable[[Any], T], items: Sequence[Any]) -> list[T]:
    """Return the function's result for each item, computed in the calling thread."""
    return list(map(function, items))


def map_threads(function: Callable[[Any], T], items: Sequence[Any], n_threads: int) -> list[T]:
    """Return the function's result for each item, computed in up to ``n_threads`` threads."""
    n_threads = min(n_threads, len(items))
    if n_threads <= 1:
        return in_own_thread(function, items)
    with workers(n_threads) as run:
        return run(function, items)


def spans(n: int, length: int) -> list[tuple[int, int]]:
    """Divide the range from 0 to ``n`` into spans of at most ``length``."""
    return [(first, min(first + length, n)) for first in range(0, n, length)]


def share_rows(work: Callable[[int, int], Any], n_rows: int, n_threads: int) -> None:
    """Call ``work(first, stop)`` for equal spans of all rows, one per thread."""
    if n_threads <= 1:
        work(0, n_rows)
        return
    map_threads(lambda span: work(*span), spans(n_rows, -(-n_rows // n_threads)), n_threads)


class TimedSteps:
    """The rows from ``first`` to ``stop`` in spans that take a few milliseconds each.

    The length of a span is derived from the time of earlier spans, so threads never wait long for a span to end.
    """

    def __init__(self, first: int, stop: int, pace: Pace) -> None:
        self._first, self._stop = first, stop
        self._length, self._seconds = pace

    def __iter__(self) -> Iterator[tuple[int, int]]:
        first = self._first
        while first < self._stop:
            stop = min(first + self._length, self._stop)
            yield first, stop
            first = stop

    def take(self, work: Callable[[int, int], T], first: int, stop: int) -> T:
        """Call ``work`` on a span and return its result. Set the length of the next span from the time taken."""
        if stop == self._stop:
            return work(first, stop)
        began = perf_counter()
        result = work(first, stop)
        wanted = (stop - first) * self._seconds / max(perf_counter() - began, 1e-9)
        self._length = max(1, int(min(wanted, _MOST_GROWTH * self._length)))
        return result


def progress_bar(n: int | None, unit: str, shown: bool) -> AbstractContextManager[Callable[[int], Any]]:
    """Return a context with a function that reports completed work to a tqdm bar, if ``shown``; ``n`` is the total."""
    return _bar(n, unit) if shown else _NO_BAR


def with_progress(steps: Sequence[T], unit: str, shown: bool) -> Iterator[T]:
    """Yield the steps, with a progress bar if ``shown``.

    A deferred interrupt is raised between steps.
    """
    with progress_bar(len(steps), unit, shown) as report:
        for step in steps:
            yield step
            report(1)
            end_step()


@contextmanager
def _bar(n: int | None, unit: str) -> Iterator[Callable[[int], Any]]:
    from tqdm.auto import tqdm  # imported only if a bar is shown

    with tqdm(total=n, unit=unit) as bar:
        yield bar.update


def _report_nothing(_amount: int) -> None:
    """Ignore completed work: no bar is shown."""


_NO_BAR = nullcontext(_report_nothing)

"""Worker threads for kernels over many rows or trees, timed steps, and progress bars.

Kernels release the global interpreter lock and write to separate memory, so Python threads run them in parallel.
Unlike Numba's parallel loops, Python threads can be started from any thread, work after a fork, and need no second
compilation.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from time import perf_counter
from typing import Any, NamedTuple, TypeVar

from .lock import end_step, uninterrupted

T = TypeVar("T")

_MAX_GROWTH = 4.0  # largest ratio of a step's length to that of the previous step


class Pace(NamedTuple):
    """The target length of steps."""

    first: int = 16  # number of rows in the first step
    seconds: float = 0.004  # target duration of later steps


Workers = Callable[[Callable[[Any], Any], Sequence[Any]], list[Any]]
"""A function of a function and items, which returns the result for each item, computed in parallel.

If a call fails, its error is raised after all calls have ended.
"""


@contextmanager
def workers(n_threads: int) -> Iterator[Workers]:
    """Yield workers with up to ``n_threads`` threads. If ``n_threads`` is 1, the calling thread does the work."""
    if n_threads <= 1:
        yield in_own_thread
        return
    pool = ThreadPoolExecutor(n_threads)

    def submit_all(function: Callable[[Any], T], items: Sequence[Any]) -> list[Future[T]]:
        futures = [pool.submit(function, item) for item in items]
        wait(futures)
        return futures

    def run(function: Callable[[Any], T], items: Sequence[Any]) -> list[T]:
        if len(items) == 1:
            return in_own_thread(function, items)
        return [future.result() for future in uninterrupted(submit_all, function, items)]

    # Interrupts are deferred while threads start, work and end: Python's own waits for threads, when interrupted, can
    # fail with another error, or leave a lock closed.
    try:
        yield run
    finally:
        uninterrupted(pool.shutdown)


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
    """Return consecutive spans ``(first, stop)`` of at most ``length`` that cover ``range(n)``."""
    return [(first, min(first + length, n)) for first in range(0, n, length)]


def share_rows(work: Callable[[int, int], Any], n_rows: int, n_threads: int) -> None:
    """Call ``work(first, stop)`` for one span of rows per thread. The spans have equal length and cover all rows."""
    if n_threads <= 1:
        work(0, n_rows)
        return
    map_threads(lambda span: work(*span), spans(n_rows, -(-n_rows // n_threads)), n_threads)


class TimedSteps:
    """Consecutive spans of the rows ``first:stop``, each of which takes a few milliseconds.

    The length of a span is derived from the duration of the span before it.
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
        """Return ``work(first, stop)``, and set the length of the next span from the duration of the call."""
        if stop == self._stop:
            return work(first, stop)
        began = perf_counter()
        result = work(first, stop)
        wanted = (stop - first) * self._seconds / max(perf_counter() - began, 1e-9)
        self._length = max(1, int(min(wanted, _MAX_GROWTH * self._length)))
        return result


def progress_bar(n: int | None, unit: str, shown: bool) -> AbstractContextManager[Callable[[int], Any]]:
    """Return a context that yields a function to advance a tqdm bar. The function does nothing unless ``shown``."""
    return _bar(n, unit) if shown else _NO_BAR


def with_progress(steps: Sequence[T], unit: str, shown: bool) -> Iterator[T]:
    """Yield the steps, with a progress bar if ``shown``, and raise deferred interrupts between steps."""
    with progress_bar(len(steps), unit, shown) as report:
        for step in steps:
            yield step
            report(1)
            end_step()


@contextmanager
def _bar(n: int | None, unit: str) -> Iterator[Callable[[int], Any]]:
    from tqdm.auto import tqdm  # slow to import

    with tqdm(total=n, unit=unit) as bar:
        yield bar.update


_NO_BAR = nullcontext(lambda _amount: None)

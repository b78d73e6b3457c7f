"""Running kernels over many rows or trees: in several threads, with progress.

Kernels release the global interpreter lock and share nothing that they write, so plain Python threads run them side
by side. Unlike numba's own parallel loops these threads may be started from any thread, survive a fork, and need no
second compilation.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")

_STEPS_OF_PROGRESS = 100


def map_threads(function: Callable[[Any], T], items: Sequence[Any], n_threads: int) -> list[T]:
    """Return ``function`` of each item, worked out in up to ``n_threads`` threads."""
    n_threads = min(n_threads, len(items))
    if n_threads <= 1:
        return [function(item) for item in items]
    with ThreadPoolExecutor(n_threads) as pool:
        return list(pool.map(function, items))


def spans(n: int, length: int) -> list[tuple[int, int]]:
    """Divide ``0 .. n`` into spans of at most ``length``."""
    return [(first, min(first + length, n)) for first in range(0, n, length)]


def length_of_step(n: int, progress: bool) -> int:
    """Return how many of ``n`` rows to hand to a kernel at once."""
    return max(1, -(-n // _STEPS_OF_PROGRESS) if progress else n)


@contextmanager
def progress_bar(n: int | None, unit: str, shown: bool) -> Iterator[Callable[[int], Any]]:
    """Give a function that reports work done, shown as a tqdm bar or not at all; ``n`` is None if nobody knows it."""
    if not shown:
        yield lambda amount: None
        return
    from tqdm.auto import tqdm  # only who looks at a bar pays for its import

    with tqdm(total=n, unit=unit) as bar:
        yield bar.update

"""Iteration over the batches of a file, with a progress bar."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tqdm import tqdm

from ..formats import Batch, ReadOptions, Source


class Stream:
    """The batches of a file, with a progress bar that shows the position in the file."""

    def __init__(self, source: Source, size: int | Callable[[int], int], bar: Any) -> None:
        self._source, self._size, self._bar = source, size, bar
        self.n_rows = 0
        self._measures: dict[str, str] = {}

    def __iter__(self) -> Iterator[Batch]:
        """Yield the batches. Requesting the next batch counts the rows of the previous one."""
        for batch in self._source.batches(self._size):
            yield batch
            self.n_rows += batch.X.shape[0]
            seconds = max(self._bar.format_dict["elapsed"], 1e-9)
            rows = {"rows": f"{self.n_rows:,}", "rows/s": f"{self.n_rows / seconds:,.0f}"}
            self._bar.set_postfix({**self._measures, **rows})

    def note(self, metrics: dict[str, float]) -> None:
        """Show the first metric next to the progress bar."""
        name = next(name for name in metrics if name != "n_examples")
        self._measures = {name: f"{metrics[name]:.4f}"}

    def pairs(self) -> Iterator[tuple[Any, Any]]:
        """Yield the rows and labels of each batch."""
        for batch in self:
            yield batch.X, batch.y


@contextmanager
def stream(source: Source, size: int | Callable[[int], int], name: str, progress: bool | None) -> Iterator[Stream]:
    """Yield the batches of a file, with a progress bar; by default only on a terminal."""
    with _bar(source, name, progress) as bar:
        yield Stream(source, size, bar)


def look_through(source: Source, progress: bool | None) -> ReadOptions:
    """Resolve the options of a source, with a progress bar, and return them."""
    with _bar(source, "scanning", progress, leave=False):
        return source.resolved()


def read_all(source: Source, progress: bool | None) -> Batch:
    """Read all rows of a source, with a progress bar, and return them."""
    with _bar(source, "reading", progress, leave=False):
        return source.read()


def _bar(source: Source, name: str, progress: bool | None, *, leave: bool = True) -> Any:
    """Return a progress bar that shows the position in a file."""
    hidden = None if progress is None else not progress  # with None, tqdm shows the bar only on a terminal
    options = {"unit": "B", "unit_scale": True, "disable": hidden, "leave": leave, "file": sys.stderr}
    bar = tqdm(total=source.extent, desc=name, **options)
    source.watch = lambda position: bar.update(position - bar.n)
    return bar

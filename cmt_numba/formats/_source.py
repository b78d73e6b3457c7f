"""Batches of rows, and the base class of the readers."""

import sys
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse

from ._files import FormatError, files_of, open_text
from ._labels import LabelScan, convert_labels
from ._options import ReadOptions


class Batch(NamedTuple):
    """Consecutive rows of a file."""

    X: Any
    """The features of the rows. For text columns, an array of str objects, shape (n,). With ``kinds``, a pandas data
    frame. Type: ndarray or scipy.sparse.csr_array of float32, shape (n, n_features)."""
    y: Any
    """The classes (int64 or text), or an indicator matrix of labels. Later batches may have a larger ``n_labels``. None
    if labels are not read. Type: ndarray of shape (n,), scipy.sparse.csr_array of int8, shape (n, n_labels), or
    None."""

    def part(self, start: int, stop: int) -> "Batch":
        """Return the rows from ``start`` to ``stop``."""
        return Batch(self.X[start:stop], None if self.y is None else self.y[start:stop])


class Source(ABC):
    """A data file, and the options for reading it.

    - ``extent``: its size in bytes.
    - ``watch``: a function that is called repeatedly while the file is read, with the position in bytes.
    """

    format: ClassVar[str]
    suffixes: ClassVar[tuple[str, ...]]
    """The suffixes of files with this format."""
    _unit: ClassVar[str] = "line"
    """How errors name a row: "line" or "row"."""
    block_bytes = 1 << 20
    """The approximate size of the blocks of lines that are parsed at once."""
    rows_in_a_frame = 4096
    """The maximum number of rows of a table that are read at once."""
    _n_labels = 0
    """The number of labels that the file states. Indicator matrices have at least as many columns."""
    _max_labels = 2**31 - 1

    def __init__(self, path: Path, options: ReadOptions) -> None:
        self.path = path
        self.options = options
        self.extent = sum(file.stat().st_size for file in files_of(path))
        self.watch: Callable[[int], Any] = lambda position: None
        self._resolved: ReadOptions | None = None

    def resolved(self) -> ReadOptions:
        """Return the options, completed with values detected from the file. The first call may read the whole file.

        With the completed options, another file yields rows compatible with the rows of this file.
        """
        if self._resolved is None:
            self._resolved = replace(self._scanned(), format=self.format)
        return self._resolved

    @abstractmethod
    def _scanned(self) -> ReadOptions:
        """Return the options completed with the task, the number of features and the type of labels."""

    @abstractmethod
    def _blocks(self, options: ReadOptions) -> Iterator[tuple[Sequence[int], Any]]:
        """Yield the rows in blocks of bounded size, such as lists of lines, each with the numbers of its rows."""

    @abstractmethod
    def _features(self, rows: Any, options: ReadOptions) -> Any:
        """Convert a block of rows to features. Raise ValueError if a row is invalid."""

    @abstractmethod
    def _labels(self, rows: Any, options: ReadOptions) -> Sequence[Any]:
        """Return the labels of a block of rows, one cell per row: text, a number, a tuple of them, or None."""

    def _converted(self, convert: Callable[[Any], Any], numbers: Sequence[int], rows: Any) -> Any:
        """Return ``convert(rows)``. If it fails, raise FormatError with the number of the first invalid row."""
        try:
            return convert(rows)
        except (ValueError, OverflowError) as error:
            reasons = {len(rows): str(error)}

        def fails(n_rows: int) -> bool:
            try:
                convert(rows[:n_rows])
            except (ValueError, OverflowError) as error:
                reasons[n_rows] = str(error)
            return n_rows in reasons

        n_rows = bisect_left(range(len(rows)), True, lo=1, key=fails)
        raise FormatError(self.path, " ".join(reasons[n_rows].split()), **{self._unit: numbers[n_rows - 1]})

    def _with_scanned_labels(self, options: ReadOptions, *, keeps_text: bool) -> ReadOptions:
        """Return options with the task, the type of labels and their names, if labels are read."""
        if not options.with_labels:
            return options
        labels = LabelScan(keeps_text=keeps_text)
        for numbers, rows in self._blocks(options):
            labels.look_at(self._converted(partial(self._labels, options=options), numbers, rows))
        return labels.completed(options)

    def _chunks(self, options: ReadOptions) -> Iterator[Batch]:
        """Yield the rows in chunks of bounded size."""
        n_labels = self._n_labels
        for numbers, rows in self._blocks(options):
            batch = self._converted(partial(self._batch, options, n_labels), numbers, rows)
            n_labels = batch.y.shape[1] if scipy.sparse.issparse(batch.y) else 0
            yield batch
        self.watch(self.extent)

    def _batch(self, options: ReadOptions, n_labels: int, rows: Any) -> Batch:
        X, y = self._features(rows, options), None
        if options.with_labels:
            y = convert_labels(self._labels(rows, options), options, n_labels, self._max_labels)
        return Batch(X, y)

    def _lines(
        self, is_row: Callable[[bytes], Any] = bytes.strip, n_headers: int = 0
    ) -> Iterator[tuple[Sequence[int], Sequence[bytes]]]:
        """Yield the lines of a text file that are rows (by default, not blank) in blocks, with their numbers."""
        with open_text(self.path) as (file, stored):
            number = 1
            while lines := file.readlines(self.block_bytes):
                self.watch(stored.tell())
                kept = [(n, line) for n, line in enumerate(lines, number) if n > n_headers and is_row(line)]
                number += len(lines)
                if kept:
                    numbers, lines = zip(*kept, strict=True)
                    yield numbers, lines

    def batches(self, size: int | Callable[[int], int] = 1000) -> Iterator[Batch]:
        """Yield the rows in order. At most one batch and one chunk are in memory.

        ``size`` is the number of rows per batch, or a function that returns it from the number of rows yielded so far.
        If the file cannot be read, batches before the error are yielded first.
        """
        size_of = size if callable(size) else lambda seen: size
        held: list[Batch] = []
        n_held = seen = 0
        for chunk in self._chunks(self.resolved()):
            held.append(chunk)
            n_held += chunk.X.shape[0]
            if n_held < size_of(seen):
                continue
            rows, start = _concatenate(held), 0
            while n_held >= (n := size_of(seen)):
                yield rows.part(start, start + n)
                start, n_held, seen = start + n, n_held - n, seen + n
            held = [rows.part(start, start + n_held)]
        if n_held > 0:
            yield _concatenate(held)
        elif seen == 0:
            raise FormatError(self.path, "has no rows")

    def read(self) -> Batch:
        """Return all rows of the file."""
        return next(self.batches(sys.maxsize))


def _concatenate(batches: list[Batch]) -> Batch:
    X, y = ([batch[i] for batch in batches] for i in range(2))
    if scipy.sparse.issparse(y[0]):
        n_labels = max(one.shape[1] for one in y)
        for one in y:
            one.resize(one.shape[0], n_labels)
    return Batch(_stacked(X), None if y[0] is None else _stacked(y))


def _stacked(parts: list[Any]) -> Any:
    if len(parts) == 1:
        return parts[0]
    if scipy.sparse.issparse(parts[0]):
        return scipy.sparse.vstack(parts, format="csr")
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    from pandas import concat

    return concat(parts, ignore_index=True)

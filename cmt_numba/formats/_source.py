"""The base class of the readers, their options, and batches of rows."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse

from ._text import BLOCK_BYTES, FormatError

TASKS = ("multiclass", "multilabel")


class Batch(NamedTuple):
    """Consecutive rows of a file."""

    X: Any
    """The features of the rows. With the option ``as_text``, an array of str objects, shape (n,). With ``kinds``, a
    pandas data frame. Type: ndarray or scipy.sparse.csr_array of float32, shape (n, n_features)."""
    y: Any
    """The classes (int64 or text), or an indicator matrix of labels. Later batches may have a larger ``n_labels``. None
    if labels are not read. Type: ndarray of shape (n,), scipy.sparse.csr_array of int8, shape (n, n_labels), or
    None."""
    position: int
    """The position in the file after these rows, in the unit of ``Source.extent``."""


@dataclass(frozen=True)
class ReadOptions:
    """Options for reading a file."""

    format: str | None = None
    """A key of :data:`cmt_numba.formats.FORMATS`. By default, detected from the file's suffix or first line."""
    task: str | None = None
    """Whether each row has one class or any number of labels. By default, detected from the labels. Type:
    {"multiclass", "multilabel"}, optional."""
    n_features: int | None = None
    """The number of features of sparse rows. By default, read from the file's header or counted in a pass over the
    file."""
    named_labels: bool | None = None
    """Whether classes or labels are text rather than integers. By default, detected from the labels."""
    label_names: tuple[str, ...] = ()
    """The names of labels 0, 1, 2, ..., if each row has any number of named labels. New names are appended."""
    n_bits: int = 18
    """Words and feature names are hashed into ``2**n_bits`` features."""
    label: str | None = "label"
    """The label column of a table. If None, the column "label" or, if the table has no such column, the last one."""
    text: tuple[str, ...] = ()
    """Columns of a table whose words are the features. If empty, all columns except ``label`` and ``ignore`` are
    features."""
    ignore: tuple[str, ...] = ()
    """Columns of a table to ignore."""
    columns: tuple[str, ...] | None = None
    """The feature columns of a table, in order. By default, all columns except ``label`` and ``ignore``."""
    kinds: tuple[str, ...] | None = None
    """Kinds of a table's columns, such as ``("age=number", "city=category", "body=text")``. The kinds of other columns
    are detected from their values, and identifiers of rows are ignored. Rows are then read as data frames, with NaN for
    missing numbers and an empty string for missing categories and texts. By default, and in tables with lists of
    numbers, rows are read as arrays of numbers."""
    labels_file: str | None = None
    """A second file, with the labels of a SciPy sparse matrix."""
    with_labels: bool = True
    """Whether to read labels."""
    as_text: bool = False
    """Whether to return the text of the columns ``text``, as an array of str objects of shape (n,), instead of
    features."""


def features_of(options: ReadOptions) -> str:
    """Return a description of the features. Files with different descriptions have incompatible features."""
    if options.format == "vw":
        return f"hashed feature names ({options.n_bits} bits)"
    if options.format in ("csv", "jsonl", "parquet") and (options.kinds or options.text):
        return "columns of a table"
    return "numbered or numeric features"


def form_of(options: ReadOptions) -> str:
    """Return a description of a file's columns and format, such as ``column 'text' of csv``."""
    if not options.columns:
        return str(options.format)
    shown = ", ".join(map(repr, options.columns[:5])) + (" and others" if len(options.columns) > 5 else "")
    return f"column{'s' if len(options.columns) > 1 else ''} {shown} of {options.format}"


class Source(ABC):
    """A data file, and the options for reading it. ``extent`` is its size in ``unit``, for progress bars."""

    format: ClassVar[str]
    suffixes: ClassVar[tuple[str, ...]]
    """The suffixes of files with this format."""
    unit: str = "B"
    """The unit of ``extent`` and ``Batch.position``: "B" for bytes, or "row"."""
    block_bytes: int = BLOCK_BYTES
    """The approximate size in bytes of the blocks in which text files are parsed."""
    rows_in_a_chunk: int = 4096
    """The maximum number of rows of a table or an array to read at once."""

    def __init__(self, path: Path, options: ReadOptions) -> None:
        self.path = path
        self.options = options
        self.extent = path.stat().st_size
        self._resolved: ReadOptions | None = None
        self._watch: Callable[[int], Any] = lambda position: None

    def resolved(self, watch: Callable[[int], Any] | None = None) -> ReadOptions:
        """Return the options, completed with values detected from the file. The first call may read the whole file.

        With the completed options, another file yields rows compatible with the rows of this file. ``watch`` is called
        repeatedly with the position in the file, in the unit of ``extent``.
        """
        if self._resolved is None:
            if watch is not None:
                self._watch = watch
            self._resolved = replace(self._scanned(), format=self.format)
        return self._resolved

    @abstractmethod
    def _scanned(self) -> ReadOptions:
        """Return the options completed with the task, the number of features and the type of labels."""

    @abstractmethod
    def _chunks(self, options: ReadOptions) -> Iterator[Batch]:
        """Yield the rows in chunks of bounded size."""

    def batches(self, size: int | Callable[[int], int] = 1000) -> Iterator[Batch]:
        """Yield the rows in order. At most one batch and one chunk are in memory.

        ``size`` is the number of rows per batch, or a function that returns it from the number of rows yielded so far.
        If the file cannot be read, batches before the error are yielded first.
        """
        size_of = size if callable(size) else lambda seen: size
        seen = 0
        for batch in _in_sizes(self._chunks(self.resolved()), size_of):
            seen += batch.X.shape[0]
            yield batch
        if seen == 0:
            raise FormatError(self.path, "has no rows")

    def read(self, watch: Callable[[int], Any] | None = None) -> Batch:
        """Return all rows of the file. ``watch`` is called as by :meth:`resolved`."""
        chunks = []
        for chunk in self._chunks(self.resolved()):
            if chunk.X.shape[0] > 0:
                chunks.append(chunk)
            if watch is not None:
                watch(chunk.position)
        if not chunks:
            raise FormatError(self.path, "has no rows")
        return joined(chunks)


def joined(batches: list[Batch]) -> Batch:
    """Concatenate one or more batches."""
    if len(batches) == 1:
        return batches[0]
    X = [batch.X for batch in batches]
    y = [batch.y for batch in batches]
    if scipy.sparse.issparse(y[0]):
        n_labels = max(one.shape[1] for one in y)
        for one in y:
            one.resize(one.shape[0], n_labels)
        labels: Any = scipy.sparse.vstack(y, format="csr")
    else:
        labels = None if y[0] is None else np.concatenate(y)
    if scipy.sparse.issparse(X[0]):
        rows = scipy.sparse.vstack(X, format="csr")
    elif isinstance(X[0], np.ndarray):
        rows = np.concatenate(X)
    else:
        rows = import_module("pandas").concat(X, ignore_index=True)
    return Batch(rows, labels, batches[-1].position)


def _rows(batch: Batch, first: int, stop: int, start: int) -> Batch:
    """Return the rows ``first:stop`` of a batch that begins at ``start``, with an interpolated position."""
    n_rows = batch.X.shape[0]
    if first == 0 and stop == n_rows:
        return batch
    position = start + (batch.position - start) * stop // n_rows
    return Batch(batch.X[first:stop], None if batch.y is None else batch.y[first:stop], position)


def _in_sizes(chunks: Iterator[Batch], size_of: Callable[[int], int]) -> Iterator[Batch]:
    """Regroup the rows of chunks into batches of the requested sizes. The last batch may be smaller."""
    held: list[Batch] = []
    n_held = seen = start = 0
    wanted = size_of(0)
    for chunk in chunks:
        first, n_rows = 0, chunk.X.shape[0]
        while n_held + n_rows - first >= wanted:
            stop = first + wanted - n_held
            yield joined([*held, _rows(chunk, first, stop, start)])
            held, n_held, first = [], 0, stop
            seen += wanted
            wanted = size_of(seen)
        if first < n_rows:
            held.append(_rows(chunk, first, n_rows, start))
            n_held += n_rows - first
        start = chunk.position
    if held:
        yield joined(held)

"""The base class of all readers: options, and the grouping of rows into batches."""

from __future__ import annotations

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
    """Consecutive rows of a file.

    Attributes
    ----------
    X : ndarray of float32 or scipy.sparse.csr_array of float32, shape (n, n_features)
        Examples; with ``as_text`` an array of str objects, shape (n,); with ``kinds`` a data frame.
    y : ndarray of shape (n,), scipy.sparse.csr_array of int8, shape (n, n_labels), or None
        Classes (int64 or text), or an indicator matrix of labels; None if labels are not read. Later batches may have
        more columns than earlier ones.
    position : int
        The position in the file after these rows, in the units of ``Source.extent``.
    """

    X: Any
    y: Any
    position: int


@dataclass(frozen=True)
class ReadOptions:
    """Options for reading a file. Options that are None are determined from the file.

    Attributes
    ----------
    format : str, optional
        One of :data:`cmt_numba.formats.FORMATS`; by default determined from the file's name or its first line.
    task : {"multiclass", "multilabel"}, optional
        Whether rows have one class each, or any number of labels.
    n_features : int, optional
        The number of features of sparse examples. Unless a header states it, determining it takes a pass over the file.
    named_labels : bool, optional
        Whether classes are text rather than integers.
    n_bits : int, default 18
        Words and names of features are hashed into ``2**n_bits`` features.
    label : str or None, default "label"
        The column of a table with the labels; None for the column "label" or, if there is none, the last one.
    text : tuple of str, default ()
        Columns of a table whose words are the features. If empty, all other columns are features.
    ignore : tuple of str, default ()
        Columns of a table to ignore.
    columns : tuple of str, optional
        The columns of a table that are features, in order.
    kinds : tuple of str, optional
        Kinds of columns of a table, such as ``("age=number", "city=category", "body=text")``; those of the other
        columns are determined from their values, unless they hold lists. Examples are then data frames, in which
        missing numbers are NaN and missing categories and texts empty. By default all columns are numbers, and
        examples are arrays.
    labels_file : str, optional
        A second file with the labels of a SciPy sparse matrix.
    with_labels : bool, default True
        Whether to read labels.
    as_text : bool, default False
        Whether examples are the texts of the columns ``text``, in an array of objects of shape (n,), and not features.
    """

    format: str | None = None
    task: str | None = None
    n_features: int | None = None
    named_labels: bool | None = None
    n_bits: int = 18
    label: str | None = "label"
    text: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    columns: tuple[str, ...] | None = None
    kinds: tuple[str, ...] | None = None
    labels_file: str | None = None
    with_labels: bool = True
    as_text: bool = False


def features_of(options: ReadOptions) -> str:
    """Return a description of the features. Files with different descriptions have incompatible rows."""
    if options.format == "vw":
        return f"hashed names of features ({options.n_bits} bits)"
    if options.format in ("csv", "jsonl", "parquet") and (options.kinds or options.text):
        return "columns of a table"
    return "numbered or numeric features"


def form_of(options: ReadOptions) -> str:
    """Return a description of the columns read from a file, such as ``column 'text' of csv``."""
    if not options.columns:
        return str(options.format)
    shown = ", ".join(map(repr, options.columns[:5])) + (" and others" if len(options.columns) > 5 else "")
    return f"column{'s' if len(options.columns) > 1 else ''} {shown} of {options.format}"


class Source(ABC):
    """A data file.

    Parameters
    ----------
    path : Path
        The file.
    options : ReadOptions
        Options for reading it.

    Attributes
    ----------
    extent : int
        The size of the file in ``unit``, for progress bars.
    unit : {"B", "row"}
        The unit of ``extent`` and of the positions of batches.
    block_bytes : int
        Approximate number of bytes of text that are read and parsed at a time.
    rows_in_a_chunk : int
        Largest number of rows of a table or an array that are read at a time.
    """

    format: ClassVar[str]
    unit: str = "B"
    block_bytes: int = BLOCK_BYTES
    rows_in_a_chunk: int = 4096

    def __init__(self, path: Path, options: ReadOptions) -> None:
        self.path = path
        self.options = options
        self.extent = path.stat().st_size
        self._resolved: ReadOptions | None = None
        self._watch: Callable[[int], Any] = lambda position: None

    def resolved(self, watch: Callable[[int], Any] | None = None) -> ReadOptions:
        """Return the options with all values determined. Reading another file with them gives compatible rows.

        The first call may take a pass over the file.

        Parameters
        ----------
        watch : callable, optional
            Called repeatedly with the position in the file, in the units of ``extent``.

        Raises
        ------
        FormatError
            If the file cannot be read.
        """
        if self._resolved is None:
            if watch is not None:
                self._watch = watch
            self._resolved = replace(self._scanned(), format=self.format)
        return self._resolved

    @abstractmethod
    def _scanned(self) -> ReadOptions:
        """Return the options with task, number of features and type of labels, reading as little as possible."""

    @abstractmethod
    def _chunks(self, options: ReadOptions) -> Iterator[Batch]:
        """Yield the rows in chunks of convenient, bounded size."""

    def batches(self, size: int | Callable[[int], int] = 1000) -> Iterator[Batch]:
        """Yield the rows in order, holding at most one batch and one chunk in memory.

        Parameters
        ----------
        size : int or callable, default 1000
            The number of rows of a batch, or a function of the number of rows so far that returns it.

        Yields
        ------
        Batch

        Raises
        ------
        FormatError
            If the file cannot be read. Batches before the error have been yielded by then.
        """
        size_of = size if callable(size) else lambda seen: size
        seen = 0
        for batch in _in_sizes(self._chunks(self.resolved()), size_of):
            seen += batch.X.shape[0]
            yield batch
        if seen == 0:
            raise FormatError(self.path, "has no rows")

    def read(self, watch: Callable[[int], Any] | None = None) -> Batch:
        """Return all rows.

        Parameters
        ----------
        watch : callable, optional
            Called repeatedly with the position in the file, in the units of ``extent``.

        Raises
        ------
        FormatError
            If the file cannot be read.
        """
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
    """Return the concatenation of one or more batches."""
    if len(batches) == 1:
        return batches[0]
    X = [batch.X for batch in batches]
    y = [batch.y for batch in batches]
    if scipy.sparse.issparse(y[0]):
        n_labels = max(one.shape[1] for one in y)
        labels: Any = scipy.sparse.vstack([widened(one, n_labels) for one in y], format="csr")
    else:
        labels = None if y[0] is None else np.concatenate(y)
    if scipy.sparse.issparse(X[0]):
        rows = scipy.sparse.vstack(X, format="csr")
    elif isinstance(X[0], np.ndarray):
        rows = np.concatenate(X)
    else:
        rows = import_module("pandas").concat(X, ignore_index=True)
    return Batch(rows, labels, batches[-1].position)


def widened(Y: scipy.sparse.csr_array, n_labels: int) -> scipy.sparse.csr_array:
    """Return an indicator matrix with at least ``n_labels`` columns."""
    if Y.shape[1] >= n_labels:
        return Y
    return scipy.sparse.csr_array((Y.data, Y.indices, Y.indptr), (Y.shape[0], n_labels))


def _rows(batch: Batch, first: int, stop: int, start: int) -> Batch:
    """Return rows of a batch that starts at the position ``start``, with an interpolated end position."""
    n_rows = batch.X.shape[0]
    if first == 0 and stop == n_rows:
        return batch
    position = start + (batch.position - start) * stop // n_rows
    return Batch(batch.X[first:stop], None if batch.y is None else batch.y[first:stop], position)


def _in_sizes(chunks: Iterator[Batch], size_of: Callable[[int], int]) -> Iterator[Batch]:
    """Yield the rows of chunks in batches of the requested sizes; the last one may be smaller."""
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

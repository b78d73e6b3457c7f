"""Options for reading a data file, batches of its rows, and the base class of the readers."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse

from ._files import FormatError, files_of, open_text


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


@dataclass(frozen=True)
class ReadOptions:
    """Options for reading a file."""

    format: str | None = None
    """A key of :data:`cmt_numba.formats.FORMATS`. By default, detected from the file's suffix or first line."""
    task: str | None = None
    """"multiclass" (one class per row) or "multilabel". By default, detected from the labels."""
    n_features: int | None = None
    """The number of features of sparse rows. By default, read from the header or counted in a pass over the file."""
    named_labels: bool | None = None
    """Whether classes or labels are text rather than integers. By default, detected from the labels."""
    label_names: tuple[str, ...] = ()
    """The names of labels 0, 1, 2, ..., if each row has any number of named labels. New names are appended."""
    label: str | None = "label"
    """The label column of a table. If None, the column "label" or, if the table has no such column, the last one."""
    text: tuple[str, ...] = ()
    """Columns of a table to read as text, one text per row. If empty, all other columns are features."""
    n_bits: int | None = None
    """Hash words of text columns, or feature names of Vowpal Wabbit, into ``2**n_bits`` features. By default, rows of
    text columns are texts, and feature names are hashed with 18 bits."""
    ignore: tuple[str, ...] = ()
    """Columns of a table to ignore."""
    columns: tuple[str, ...] | None = None
    """The feature columns of a table, in order. By default, all columns except ``label`` and ``ignore``."""
    kinds: tuple[str, ...] | None = None
    """Kinds of a table's columns, such as ``("age=number", "city=category", "body=text")``. The kinds of other columns
    are detected, and identifiers of rows are ignored. Rows are then data frames, with NaN for missing numbers and an
    empty string for other missing values. By default, and in tables with lists of numbers, rows are arrays."""
    labels_file: str | None = None
    """A second file, with the labels of a SciPy sparse matrix."""
    with_labels: bool = True
    """Whether to read labels."""


class Source(ABC):
    """A data file, and the options for reading it.

    - ``extent``: its size in bytes.
    - ``watch``: a function that is called repeatedly while the file is read, with the position in bytes.
    """

    format: ClassVar[str]
    suffixes: ClassVar[tuple[str, ...]]
    """The suffixes of files with this format."""
    block_bytes = 1 << 20
    """The approximate size of the blocks of lines that are parsed at once."""
    rows_in_a_frame = 4096
    """The maximum number of rows of a table that are read at once."""

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
    def _chunks(self, options: ReadOptions) -> Iterator[Batch]:
        """Yield the rows in chunks of bounded size."""

    def _open(self) -> Any:
        return open_text(self.path, self.watch)

    def _blocks(self) -> Iterator[tuple[int, list[bytes]]]:
        """Yield the lines of the file in blocks, each with the number of its first line, from 1."""
        with self._open() as file:
            number = 1
            while lines := file.readlines(self.block_bytes):
                yield number, lines
                number += len(lines)

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
        chunks = list(self._chunks(self.resolved()))
        if not any(chunk.X.shape[0] for chunk in chunks):
            raise FormatError(self.path, "has no rows")
        return _concatenate(chunks)


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

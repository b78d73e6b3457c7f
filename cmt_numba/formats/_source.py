"""Data files: their checks and decompression, the options for reading them, and the base class of the readers."""

import gzip
import io
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, NamedTuple

import numpy as np
import scipy.sparse

TASKS = ("multiclass", "multilabel")

_MAX_BYTES_OF_A_LINE = 1 << 20
_BUFFER_BYTES = 1 << 16
_GZIP_MAGIC = b"\x1f\x8b"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # some programs write it at the start of UTF-8 files


class FormatError(ValueError):
    """A data file cannot be read: it is missing, empty, truncated or malformed.

    The message names the file and, if known, the line, or the row of a table, not counting the header. Both start at 1.
    """

    def __init__(
        self, path: str | PathLike[str], reason: str, *, line: int | None = None, row: int | None = None
    ) -> None:
        place = f", line {line}" if line is not None else f", row {row}" if row is not None else ""
        super().__init__(f"{path}{place}: {reason}")


class CellError(ValueError):
    """A cell of a column has an invalid value. ``position`` is its place in the column, from 0."""

    def __init__(self, position: Any, reason: str) -> None:
        super().__init__(reason)
        self.position = int(position)


def check_file(path: Path) -> None:
    """Raise FormatError if the file is missing, empty or not a regular file."""
    if not path.exists():
        raise FormatError(path, "does not exist")
    if path.is_dir():
        raise FormatError(path, "is a directory, not a file")
    if not path.is_file():
        raise FormatError(path, "is a pipe or a device, which cannot be read twice; write the data to a file")
    if path.stat().st_size == 0:
        raise FormatError(path, "is empty")


class _WatchedFile(io.FileIO):
    """A file that reports its position after each reading."""

    watch: Callable[[int], Any] = staticmethod(lambda position: None)

    def readinto(self, buffer: Any) -> int | None:
        n_bytes = super().readinto(buffer)
        self.watch(self.tell())
        return n_bytes


@contextmanager
def open_text(path: Path, watch: Callable[[int], Any] | None = None) -> Iterator[BinaryIO]:
    """Open a plain or gzip-compressed file. Errors while reading raise FormatError.

    ``watch`` is called repeatedly with the position in the (compressed) file.
    """
    try:
        with _WatchedFile(path) as raw, io.BufferedReader(raw, _BUFFER_BYTES) as stored:
            raw.watch = watch or raw.watch
            is_compressed = stored.peek(2).startswith(_GZIP_MAGIC)
            file: Any = gzip.GzipFile(fileobj=stored) if is_compressed else stored
            if file.peek(3).startswith(_BYTE_ORDER_MARK):
                file.read(3)
            yield file
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise FormatError(path, "is damaged or truncated: gzip cannot decompress it; use a complete copy") from error
    except OSError as error:
        raise FormatError(path, f"cannot be read: {error.strerror or error}") from error


def first_line(path: Path, *, comments: bool = False) -> bytes:
    """Return the first non-blank line of a file, up to a megabyte; with ``comments``, skip lines that start with #."""
    with open_text(path) as file:
        while line := file.readline(_MAX_BYTES_OF_A_LINE):
            if line.strip() and not (comments and line.lstrip().startswith(b"#")):
                return line
    return b""


class Batch(NamedTuple):
    """Consecutive rows of a file."""

    X: Any
    """The features of the rows. With the option ``as_text``, an array of str objects, shape (n,). With ``kinds``, a
    pandas data frame. Type: ndarray or scipy.sparse.csr_array of float32, shape (n, n_features)."""
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
    n_bits: int = 18
    """Words and feature names are hashed into ``2**n_bits`` features."""
    label: str | None = "label"
    """The label column of a table. If None, the column "label" or, if the table has no such column, the last one."""
    text: tuple[str, ...] = ()
    """Columns of a table whose words are the features. If empty, all other columns are features."""
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
    as_text: bool = False
    """Whether to return the text of the columns ``text``, an array of str objects, instead of hashed words."""


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

    def _finds_labels(self) -> bool:
        """Return whether the labels must be scanned for the task, the type of labels, or new names."""
        options = self.options
        is_known = options.task == "multiclass" or options.named_labels is False
        return options.with_labels and (options.task is None or options.named_labels is None or not is_known)

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
            rows, start = concatenate(held), 0
            while n_held >= (n := size_of(seen)):
                yield rows.part(start, start + n)
                start, n_held, seen = start + n, n_held - n, seen + n
            held = [rows.part(start, start + n_held)]
        if n_held > 0:
            yield concatenate(held)
        elif seen == 0:
            raise FormatError(self.path, "has no rows")

    def read(self) -> Batch:
        """Return all rows of the file."""
        rows = concatenate(list(self._chunks(self.resolved())))
        if rows.X.shape[0] == 0:
            raise FormatError(self.path, "has no rows")
        return rows


def files_of(path: Path) -> list[Path]:
    """Return the Parquet files in a folder, in alphabetical order. For a file, return a list of this file."""
    return sorted([*path.glob("*.parquet"), *path.glob("*.pq")]) if path.is_dir() else [path]


def concatenate(batches: list[Batch]) -> Batch:
    """Concatenate batches."""
    if len(batches) <= 1:
        return batches[0] if batches else Batch(np.empty((0, 0), np.float32), None)
    X, y = ([batch[i] for batch in batches] for i in range(2))
    if scipy.sparse.issparse(y[0]):
        n_labels = max(one.shape[1] for one in y)
        for one in y:
            one.resize(one.shape[0], n_labels)
    return Batch(_stacked(X), None if y[0] is None else _stacked(y))


def _stacked(parts: list[Any]) -> Any:
    if scipy.sparse.issparse(parts[0]):
        return scipy.sparse.vstack(parts, format="csr")
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    from pandas import concat

    return concat(parts, ignore_index=True)

"""Shared by formats of text files: blocks of lines, numbers and labels."""

import gzip
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import scipy.sparse

BLOCK_BYTES = 1 << 20

_GZIP_MAGIC = b"\x1f\x8b"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # some programs write it at the start of UTF-8 files


class FormatError(ValueError):
    """A data file cannot be read: it is missing, empty, truncated or malformed.

    ``line`` is the number of a line from 1, and ``row`` that of a row of a table, not counting the header.
    """

    def __init__(
        self, path: str | PathLike[str], reason: str, *, line: int | None = None, row: int | None = None
    ) -> None:
        place = f", line {line}" if line is not None else f", row {row}" if row is not None else ""
        super().__init__(f"{path}{place}: {reason}")
        self.path = path
        self.line = line
        self.row = row


class LineBlock(NamedTuple):
    """Consecutive whole lines of a file."""

    data: bytes
    first_line: int  # number of the first line, from 1
    position: int  # byte position in the (compressed) file after these lines


class OpenText(NamedTuple):
    """A file of decompressed lines, and the stored file, whose ``tell`` returns the reading position."""

    lines: BinaryIO
    stored: BinaryIO


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


@contextmanager
def open_text(path: Path) -> Iterator[OpenText]:
    """Open a plain or gzip-compressed file. Errors while reading raise FormatError."""
    try:
        with path.open("rb") as stored:
            compressed = stored.read(2) == _GZIP_MAGIC
            stored.seek(0)
            if compressed:
                with gzip.GzipFile(fileobj=stored) as lines:
                    _skip_mark(lines)  # type: ignore[arg-type]
                    yield OpenText(lines, stored)  # type: ignore[arg-type]
            else:
                _skip_mark(stored)
                yield OpenText(stored, stored)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise FormatError(path, "is damaged or truncated: gzip cannot decompress it; use a complete copy") from error
    except OSError as error:
        raise FormatError(path, f"cannot be read: {error.strerror or error}") from error


def _skip_mark(lines: BinaryIO) -> None:
    if lines.read(len(_BYTE_ORDER_MARK)) != _BYTE_ORDER_MARK:
        lines.seek(0)


def read_blocks(path: Path, block_bytes: int = BLOCK_BYTES) -> Iterator[LineBlock]:
    """Yield the lines of a file in blocks of about ``block_bytes``. A longer line is a block of its own."""
    with open_text(path) as file:
        first_line = 1
        unfinished: list[bytes] = []  # the pieces of an incomplete line
        while piece := file.lines.read(block_bytes):
            end = piece.rfind(b"\n") + 1
            if end == 0:
                unfinished.append(piece)
                continue
            data = b"".join([*unfinished, piece[:end]])
            unfinished = [piece[end:]] if end < len(piece) else []
            yield LineBlock(data, first_line, file.stored.tell())
            first_line += data.count(b"\n")
        if unfinished:
            yield LineBlock(b"".join(unfinished), first_line, file.stored.tell())


def first_line(path: Path, *, comments: bool = False) -> bytes:
    """Return the first non-blank line of a file, up to a block; with ``comments``, skip lines that start with #."""
    with open_text(path) as file:
        while line := file.lines.readline(BLOCK_BYTES):
            if line.strip() and not (comments and line.lstrip().startswith(b"#")):
                return line
    return b""


MOST_LABELS = 2**31 - 1

_END_OF_CLASSES = 2**53  # float64 represents all smaller integers exactly


def whole_number(text: str) -> int | None:
    """Parse an integer such as "7" or "7.0". Return None if the text is not an integer below 2**53."""
    if is_name(text):
        return None
    try:
        number: float = int(text)
    except ValueError:
        number = float(text)
    return int(number) if number % 1 == 0 and abs(number) < _END_OF_CLASSES else None


def is_written_number(text: str) -> bool:
    """Return whether a label in a table of text is an integer: as a number, it is written in the same way."""
    number = whole_number(text)
    return number is not None and str(number) == text


def is_name(text: str) -> bool:
    """Return whether a label is a name rather than a number. Python would read "1_0" as the number 10."""
    try:
        float(text)
    except ValueError:
        return True
    return "_" in text


def label_list(text: str) -> list[int] | None:
    """Parse labels such as "3,1,4". Return None if the text is not a list of integers."""
    if not text.strip():
        return []
    numbers = [whole_number(part) for part in text.split(",")]
    return None if None in numbers else [number for number in numbers if number is not None]


def check_labels(labels: Sequence[int], n_labels: int | None = None) -> None:
    """Raise ValueError unless the labels of a row are numbered from 0."""
    end = MOST_LABELS if n_labels is None else n_labels
    for label in labels:
        if label < 0:
            raise ValueError(f"label {label} is negative: multilabel labels must be numbered from 0")
        if label >= end:
            raise ValueError(f"label {label} is too large: labels must be between 0 and {end - 1}")


def indicator(lists: Sequence[Sequence[int]], n_labels: int) -> scipy.sparse.csr_array:
    """Return the int8 indicator matrix of the label lists, with at least ``max(n_labels, 1)`` columns."""
    indices = np.fromiter(chain.from_iterable(lists), np.int64)
    offsets = np.concatenate([[0], np.cumsum([len(labels) for labels in lists], dtype=np.int64)])
    width = max(n_labels, int(indices.max(initial=0)) + 1)
    matrix = scipy.sparse.csr_array((np.ones(indices.size, np.int8), indices, offsets), (len(lists), width))
    matrix.sum_duplicates()
    matrix.data[:] = 1  # sums of duplicate labels exceed 1
    return matrix

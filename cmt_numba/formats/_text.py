"""Text files, plain or compressed by gzip, in blocks of whole lines."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import BinaryIO, NamedTuple

BLOCK_BYTES = 1 << 20

_GZIP_MAGIC = b"\x1f\x8b"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # written by some programs at the start of UTF-8 text


class FormatError(ValueError):
    """A data file cannot be read: it is missing, empty, truncated, or does not follow its format.

    Parameters
    ----------
    path : path-like
        The file.
    reason : str
        The problem.
    line : int, optional
        The line of a text file, counted from 1.
    row : int, optional
        The row of a table, counted from 1, without the header.
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
    """Consecutive whole lines.

    Attributes
    ----------
    data : bytes
        The lines.
    first_line : int
        The number of the first, counted from 1.
    position : int
        The position in the (compressed) file after these lines, in bytes.
    """

    data: bytes
    first_line: int
    position: int


class OpenText(NamedTuple):
    """A file to read lines from, and the underlying (compressed) file, whose ``tell`` returns the position."""

    lines: BinaryIO
    stored: BinaryIO


def check_file(path: Path) -> None:
    """Raise FormatError unless the file exists and is not empty."""
    if not path.exists():
        raise FormatError(path, "does not exist")
    if path.is_dir():
        raise FormatError(path, "is a directory, not a file")
    if path.is_file() and path.stat().st_size == 0:
        raise FormatError(path, "is empty")


@contextmanager
def open_text(path: Path) -> Iterator[OpenText]:
    """Open a file, decompress it if necessary, and turn errors of reading into FormatError."""
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
    """Skip the byte order mark, if the file starts with one."""
    if lines.read(len(_BYTE_ORDER_MARK)) != _BYTE_ORDER_MARK:
        lines.seek(0)


def read_blocks(path: Path, block_bytes: int = BLOCK_BYTES) -> Iterator[LineBlock]:
    """Yield the lines of a file in blocks of about ``block_bytes``, or of one line if it is longer.

    Raises
    ------
    FormatError
        If the file cannot be read.
    """
    with open_text(path) as file:
        first_line = 1
        unfinished: list[bytes] = []  # pieces of an incomplete line
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
    """Return the first line of a file that is not blank and, with ``comments``, does not start with ``#``.

    A line longer than a block is truncated.
    """
    with open_text(path) as file:
        while line := file.lines.readline(BLOCK_BYTES):
            if line.strip() and not (comments and line.lstrip().startswith(b"#")):
                return line
    return b""

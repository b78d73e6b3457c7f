"""Data files: errors, checks before reading, and decompression."""

import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

_MAX_BYTES_OF_A_LINE = 1 << 20
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


def files_of(path: Path) -> list[Path]:
    """Return the Parquet files in a folder, in alphabetical order. For a file, return a list of this file."""
    return sorted([*path.glob("*.parquet"), *path.glob("*.pq")]) if path.is_dir() else [path]


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
        with _WatchedFile(path) as raw, io.BufferedReader(raw, 1 << 16) as stored:
            raw.watch = watch or raw.watch
            file: Any = gzip.GzipFile(fileobj=stored) if stored.peek(2).startswith(_GZIP_MAGIC) else stored
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

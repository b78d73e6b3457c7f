"""Data files: errors, checks before reading, and decompression."""

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

_MAX_BYTES_OF_A_LINE = 1 << 20
_GZIP_MAGIC = b"\x1f\x8b"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # some programs write it at the start of UTF-8 files


class FormatError(ValueError):
    """A data file cannot be read: it is missing, empty, truncated or malformed.

    The message names the file and, if known, the line, or the row of a CSV file, a Parquet file or an array, not
    counting the header. Both start at 1.
    """

    def __init__(
        self, path: str | PathLike[str], reason: str, *, line: int | None = None, row: int | None = None
    ) -> None:
        place = f", line {line}" if line is not None else f", row {row}" if row is not None else ""
        super().__init__(f"{path}{place}: {reason}")


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


@contextmanager
def open_text(path: Path) -> Iterator[tuple[Any, BinaryIO]]:
    """Open a plain or gzip-compressed file. Yield its decompressed and its stored bytes, for example for ``tell``.

    Errors while reading raise FormatError.
    """
    try:
        with path.open("rb") as stored:
            file: Any = gzip.GzipFile(fileobj=stored) if stored.peek(2).startswith(_GZIP_MAGIC) else stored
            if file.peek(3).startswith(_BYTE_ORDER_MARK):
                file.read(3)
            yield file, stored
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise FormatError(path, "is damaged or truncated: gzip cannot decompress it; use a complete copy") from error
    except OSError as error:
        raise FormatError(path, f"cannot be read: {error.strerror or error}") from error


def first_line(path: Path) -> bytes:
    """Return the first line of a file that is neither blank nor a comment (#), up to a megabyte."""
    with open_text(path) as (file, _):
        while line := file.readline(_MAX_BYTES_OF_A_LINE):
            if line.strip() and not line.lstrip().startswith(b"#"):
                return line
    return b""

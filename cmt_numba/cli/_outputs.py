"""The files that commands write to."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO


def check_output(path: Path | None) -> None:
    """Raise OSError if an output file cannot be created, before the work starts."""
    if path is None or path == Path("-"):
        return
    if path.is_dir() or not path.absolute().parent.is_dir():
        number = errno.EISDIR if path.is_dir() else errno.ENOENT
        raise OSError(number, os.strerror(number), str(path))


@contextmanager
def open_output(path: Path) -> Iterator[TextIO]:
    """Yield a file opened for writing, or the standard output for ``-``."""
    if path == Path("-"):
        yield sys.stdout
        return
    with path.open("w", encoding="utf-8", newline="") as file:
        yield file

"""Faults during a block of code: at one of its calls or writes, or on a full disk. POSIX only."""

import errno
import os
import resource
import signal
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np


class Countdown:
    """Run a function at one of the calls or writes that a block makes, counted from 0.

    A write is a call of the operating system or of SQLite. The function runs before the call or after it returns.
    """

    WRITES = frozenset(
        {"execute", "executemany", "commit", "write", "fsync", "fdatasync", "replace", "rename", "truncate"}
    )

    def __init__(self, number: int, strike: Callable[[], None], *, writes: bool) -> None:
        self.left, self.seen, self.struck = number, 0, False
        self._strike, self._writes = strike, writes

    def _note(self, frame: Any, event: str, function: Any) -> None:
        if self._writes and not (event.startswith("c_") and getattr(function, "__name__", "") in self.WRITES):
            return
        self.seen += 1
        if self.seen > self.left and not self.struck:
            self.struck = True
            sys.setprofile(None)
            self._strike()

    def __enter__(self) -> "Countdown":
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)


def fail_to_write() -> None:
    """Raise the error that the operating system or SQLite raises on a broken disk."""
    frame = sys._getframe(2)
    raise (
        sqlite3.OperationalError("disk I/O error")
        if "sql" in frame.f_code.co_filename
        else OSError(errno.EIO, "broken")
    )


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def n_bytes(path: Path) -> int:
    """Return the size of the largest file in a folder."""
    return max((file.stat().st_size for file in path.rglob("*") if file.is_file()), default=0)


@contextmanager
def full_disk(path: Path, random: np.random.Generator) -> Iterator[None]:
    """Keep files from becoming much larger than the largest one is now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes(path) + int(random.integers(20_000)), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

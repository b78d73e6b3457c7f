"""Faults that strike within a block of code: at one of its calls or writes, or on a disk that is full. POSIX only."""

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
    """Calls a function at one of the calls that a block makes, or at one of its writes, counted from 0.

    A write is a call into the system or into SQLite, before it or when it has returned.
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
    """Fail as a call into the system or into SQLite does on a broken disk."""
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
    """Let no file become much larger than the largest one is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes(path) + int(random.integers(20_000)), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

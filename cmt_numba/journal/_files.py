"""Safe opening of a folder's files, and the file that locks it and counts acknowledged changes."""

import errno
import os
import stat
import struct
import sys
import time
import weakref
import zlib
from pathlib import Path

from ..persistence import FileFormatError

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

_NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)  # named pipes must not block
_ALWAYS = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_NUMBER = struct.Struct("<Q")
_CHECKSUM = struct.Struct("<I")
_LENGTH = _NUMBER.size + 16 + _CHECKSUM.size  # the identity has 16 bytes
_AFTER_THE_END = 1 << 30  # the locked byte on Windows, where other processes cannot read a locked range
_SECONDS_BETWEEN_ATTEMPTS = 0.02
_MOST_ATTEMPTS = 3


class JournalError(RuntimeError):
    """A durable object cannot be changed: it is closed or read-only, or the journal cannot be written."""


class AlreadyOpenError(JournalError):
    """The folder of a durable object is already open in this or another process."""


def open_file(path: Path, flags: int) -> int:
    """Open a regular file and return its descriptor."""
    check_regular(path)  # some systems lack O_NOFOLLOW
    try:
        descriptor = os.open(path, flags | _NO_LINK | _ALWAYS, 0o600)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK):
            raise FileFormatError(path, "is a symbolic link; replace it with a regular file") from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileFormatError(path, "is not a regular file")
    return descriptor


def check_regular(path: Path) -> bool:
    """Return whether a regular file exists."""
    try:
        kind = os.lstat(path).st_mode
    except FileNotFoundError:
        return False
    if stat.S_ISLNK(kind):
        raise FileFormatError(path, "is a symbolic link; replace it with a regular file")
    if not stat.S_ISREG(kind):
        raise FileFormatError(path, "is not a regular file")
    return True


class Acknowledged:
    """The file with the number of the last change known to be on disk. Its lock is the lock of the folder.

    The file is written in place, without waiting for the disk. After a crash of the machine it may contain an earlier
    number, but never a later one. A journal that ends before this number has therefore lost changes.

    - ``path``: the file. Unless ``read_only``, a missing file is created.
    - ``read_only``: whether to read the file once, without locking it.
    - ``timeout``: the time to wait for the lock, in seconds.
    - ``sequence``: the number of the last change known to be on disk.
    - ``identity``: the identity of the journal, or None if the file is empty.
    """

    _process: int | None = None  # the process that has opened the file, or None if it is not open

    def __init__(self, path: Path, *, read_only: bool = False, timeout: float = 0.0) -> None:
        self.path = path
        try:
            self._descriptor = open_file(path, os.O_RDONLY if read_only else os.O_RDWR | os.O_CREAT)
        except FileNotFoundError as error:
            raise FileFormatError(path, "is missing; restore it from a copy") from error
        self._process = os.getpid()
        _open.add(self)
        try:
            if not read_only:
                self._lock(timeout)
            for _ in range(_MOST_ATTEMPTS):  # a writer may be writing the file
                os.lseek(self._descriptor, 0, os.SEEK_SET)
                contents = os.read(self._descriptor, 100)
                if not contents or contents == _with_checksum(contents[: -_CHECKSUM.size]):
                    break
            if contents and (len(contents) != _LENGTH or contents != _with_checksum(contents[: -_CHECKSUM.size])):
                raise FileFormatError(path, "is damaged; restore it from a copy")
            self.sequence: int = _NUMBER.unpack_from(contents)[0] if contents else 0
            self.identity = contents[_NUMBER.size : -_CHECKSUM.size].hex() or None
        except BaseException:
            self.close()
            raise
        if read_only:
            self.close()

    def _lock(self, timeout: float) -> None:
        last = time.monotonic() + timeout
        while not try_to_lock(self._descriptor):
            if time.monotonic() >= last:
                message = f"{self.path.parent} is already open in this or another process; "
                raise AlreadyOpenError(message + "close it there, wait with timeout=, or open it with read_only=True")
            time.sleep(_SECONDS_BETWEEN_ATTEMPTS)

    def begin(self, identity: str) -> None:
        """Write the identity of a new journal, and sync the file to disk."""
        self.identity = identity
        self.set(0)
        os.fsync(self._descriptor)

    def set(self, sequence: int) -> None:
        """Write the number of a change."""
        assert self.identity is not None
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        os.write(self._descriptor, _with_checksum(_NUMBER.pack(sequence) + bytes.fromhex(self.identity)))
        self.sequence = sequence

    def close(self) -> None:
        """Close the file and release the lock. In a forked child the parent keeps its lock."""
        if self._process is not None:
            self._process = None
            _open.discard(self)
            os.close(self._descriptor)

    def __del__(self) -> None:
        self.close()  # an object that was dropped without ``close`` must not keep its folder locked


_open: weakref.WeakSet[Acknowledged] = weakref.WeakSet()


def _close_in_child() -> None:
    """Close the files in a forked child, which would keep the locks if the parent ended."""
    for acknowledged in list(_open):
        acknowledged.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)


def try_to_lock(descriptor: int) -> bool:
    """Lock a file until it is closed. Return False if another descriptor has locked it."""
    try:
        if sys.platform == "win32":
            os.lseek(descriptor, _AFTER_THE_END, os.SEEK_SET)
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
            os.lseek(descriptor, 0, os.SEEK_SET)
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN, errno.EDEADLK):
            return False
        raise
    return True


def _with_checksum(body: bytes) -> bytes:
    return body + _CHECKSUM.pack(zlib.crc32(body))

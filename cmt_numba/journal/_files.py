"""Safe opening of a folder's files, and the file with the number of the last acknowledged change."""

from __future__ import annotations

import errno
import os
import secrets
import stat
import struct
import zlib
from contextlib import suppress
from pathlib import Path

from ..persistence import FileFormatError, bring_to_disk

_NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)  # named pipes must not block
_ALWAYS = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_NUMBER = struct.Struct("<Q")
_CHECKSUM = struct.Struct("<I")
_IDENTITY = 16  # bytes of the identity, which version 1 lacks


class JournalError(RuntimeError):
    """A durable object cannot be changed: it is closed or read-only, or the journal cannot be written."""


class AlreadyOpenError(JournalError):
    """The folder of a durable object is already open in this or another process."""


def open_file(path: Path, flags: int, mode: int = 0o600) -> int:
    """Open a regular file and return its descriptor.

    Raises
    ------
    FileFormatError
        If the path is a symbolic link or not a regular file.
    OSError
        If the file cannot be opened.
    """
    check_regular(path)  # some systems lack O_NOFOLLOW
    try:
        descriptor = os.open(path, flags | _NO_LINK | _ALWAYS, mode)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK):
            raise FileFormatError(path, "is a symbolic link; replace it with a regular file") from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileFormatError(path, "is not a regular file")
    return descriptor


def check_regular(path: Path) -> bool:
    """Return whether a regular file exists.

    Raises
    ------
    FileFormatError
        If the path is a symbolic link or not a regular file.
    """
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
    """The file with the number of the last change known to be on disk.

    The file is written in place, without waiting for the disk. After a crash of the machine it may contain an earlier
    number, but never a later one. A journal that ends before this number has therefore lost changes.

    Parameters
    ----------
    path : Path
        The file, which must exist.
    read_only : bool, default False
        Whether to read the file once and close it.

    Attributes
    ----------
    sequence : int
        The number of the last change known to be on disk.
    identity : str or None
        The identity of the journal, or None if the file contains none (version 1).

    Raises
    ------
    FileFormatError
        If the file is missing or damaged.
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path = path
        try:
            descriptor = open_file(path, os.O_RDONLY if read_only else os.O_RDWR)
        except FileNotFoundError as error:
            raise FileFormatError(path, "is missing; restore it from a copy") from error
        self._file = open(descriptor, "rb" if read_only else "r+b", buffering=0)  # noqa: SIM115
        contents = self._file.read(100)
        if read_only:
            self._file.close()
        body = contents[: -_CHECKSUM.size]
        if len(body) not in (_NUMBER.size, _NUMBER.size + _IDENTITY) or contents != _with_checksum(body):
            self._file.close()
            raise FileFormatError(path, "is damaged; restore it from a copy")
        self.sequence: int = _NUMBER.unpack_from(body)[0]
        self.identity = body[_NUMBER.size :].hex() or None

    @classmethod
    def create(cls, path: Path, identity: str, sequence: int, mode: int) -> Acknowledged:
        """Create the file, sync it to disk, and open it. An existing file is replaced atomically."""
        unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
        descriptor = open_file(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        try:
            with open(descriptor, "wb") as file:
                file.write(_with_checksum(_NUMBER.pack(sequence) + bytes.fromhex(identity)))
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(path)
        except BaseException:
            with suppress(OSError):
                unfinished.unlink()
            raise
        bring_to_disk(path.parent)
        return cls(path)

    def set(self, sequence: int) -> None:
        """Write the number of a change."""
        self._file.seek(0)
        self._file.write(_with_checksum(_NUMBER.pack(sequence) + bytes.fromhex(self.identity or "")))
        self.sequence = sequence

    def close(self) -> None:
        self._file.close()


def _with_checksum(body: bytes) -> bytes:
    return body + _CHECKSUM.pack(zlib.crc32(body))

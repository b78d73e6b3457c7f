"""The files of a folder apart from the database: opened without following links, and the last acknowledged number."""

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

_NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)  # do not block on a named pipe
_ALWAYS = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_NUMBER = struct.Struct("<Q")
_CHECKSUM = struct.Struct("<I")
_IDENTITY = 16  # bytes; absent in version 1


class JournalError(RuntimeError):
    """A durable tree cannot be changed: it is closed or read-only, or a change could not be written."""


class AlreadyOpenError(JournalError):
    """The folder of a durable tree is already open, in this or another process."""


def open_file(path: Path, flags: int, mode: int = 0o600) -> int:
    """Return a descriptor of a regular file.

    Raises
    ------
    FileFormatError
        If it is a symbolic link or not a regular file.
    OSError
        If it cannot be opened.
    """
    check_regular(path)  # some systems lack O_NOFOLLOW
    try:
        descriptor = os.open(path, flags | _NO_LINK | _ALWAYS, mode)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK):
            raise FileFormatError(path, "is a symbolic link, which is not followed") from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileFormatError(path, "is not a regular file")
    return descriptor


def check_regular(path: Path) -> bool:
    """Return whether a file exists, without opening it.

    Raises
    ------
    FileFormatError
        If it is a symbolic link or not a regular file.
    """
    try:
        kind = os.lstat(path).st_mode
    except FileNotFoundError:
        return False
    if stat.S_ISLNK(kind):
        raise FileFormatError(path, "is a symbolic link, which is not followed")
    if not stat.S_ISREG(kind):
        raise FileFormatError(path, "is not a regular file")
    return True


class Acknowledged:
    """The file with the number of the last change known to be on disk.

    It is written in place, without waiting for the disk. After a crash of the machine it may hold an earlier number,
    but never a later one: a journal that ends before this number has lost changes.

    Parameters
    ----------
    path : Path
        The file, which must exist.
    read_only : bool, default False
        Whether to read it once and close it.

    Attributes
    ----------
    sequence : int
        The number.
    identity : str or None
        The identity of the journal, if the file has one.

    Raises
    ------
    FileFormatError
        If it is missing or damaged.
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
        told = contents[: -_CHECKSUM.size]
        if len(told) not in (_NUMBER.size, _NUMBER.size + _IDENTITY) or contents != _sealed(told):
            self._file.close()
            raise FileFormatError(path, "is damaged; restore it from a copy")
        self.sequence: int = _NUMBER.unpack_from(told)[0]
        self.identity = told[_NUMBER.size :].hex() or None

    @classmethod
    def create(cls, path: Path, identity: str, sequence: int, mode: int) -> Acknowledged:
        """Create a file, sync it to disk, and return it. An existing file is replaced atomically."""
        unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
        descriptor = open_file(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        try:
            with open(descriptor, "wb") as file:
                file.write(_sealed(_NUMBER.pack(sequence) + bytes.fromhex(identity)))
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
        self._file.write(_sealed(_NUMBER.pack(sequence) + bytes.fromhex(self.identity or "")))
        self.sequence = sequence

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _sealed(told: bytes) -> bytes:
    return told + _CHECKSUM.pack(zlib.crc32(told))

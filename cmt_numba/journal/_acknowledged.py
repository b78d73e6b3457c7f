"""The file with the number of the last change known to be on disk.

It is written in place after each change, without waiting for the disk. After a crash of the machine it may hold an
earlier number, but never a later one: a journal that ends before this number has lost changes.
"""

from __future__ import annotations

import os
import secrets
import struct
import zlib
from contextlib import suppress
from pathlib import Path

from ..persistence import FileFormatError
from ..persistence._container import bring_to_disk
from ._links import open_file

_NUMBER = struct.Struct("<Q")
_CHECKSUM = struct.Struct("<I")
_IDENTITY = 16  # bytes; absent in version 1


class Acknowledged:
    """The open file.

    Parameters
    ----------
    path : Path
        The file, which must exist.
    read_only : bool, default False
        Whether to open it for reading only.

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

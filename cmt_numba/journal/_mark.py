"""The number of the last change known to be on the disk, in a small file of its own.

It is written after each change, in place and without waiting for the disk: after a crash of the machine it may be an
earlier number, but never a later one. So a journal that ends before it has lost something.
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
_IDENTITY = 16  # bytes; files of journals of version 1 have none


class Mark:
    """The file.

    Parameters
    ----------
    path : Path
        The file, which must be there.
    read_only : bool, default False
        Whether it shall not be written to.

    Attributes
    ----------
    sequence : int
        The number.
    identity : str or None
        That of the journal, if the file says it.

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
            raise FileFormatError(path, "is missing") from error
        self._file = open(descriptor, "rb" if read_only else "r+b", buffering=0)  # noqa: SIM115
        contents = self._file.read(100)
        told = contents[: -_CHECKSUM.size]
        if len(told) not in (_NUMBER.size, _NUMBER.size + _IDENTITY) or contents != _sealed(told):
            self._file.close()
            raise FileFormatError(path, "is damaged")
        self.sequence: int = _NUMBER.unpack_from(told)[0]
        self.identity = told[_NUMBER.size :].hex() or None

    @classmethod
    def create(cls, path: Path, identity: str, sequence: int, mode: int) -> Mark:
        """Return a new file, on the disk; it takes the place of one before when it is complete."""
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

"""The number of the last change known to be on the disk, in a small file of its own.

It is written after each change, in place and without waiting for the disk: after a crash of the machine it may be an
earlier number, but never a later one. So a journal that ends before it has lost something.
"""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path

from ..persistence import FileFormatError

_NUMBER = struct.Struct("<Q")
_CHECKSUM = struct.Struct("<I")


class Mark:
    """The file, open for writing.

    Parameters
    ----------
    path : Path
        The file, which must be there.

    Raises
    ------
    FileFormatError
        If it is missing or damaged.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._file = path.open("r+b", buffering=0)
        except FileNotFoundError as error:
            raise FileFormatError(path, "is missing") from error
        contents = self._file.read()
        if len(contents) != _NUMBER.size + _CHECKSUM.size or contents != _sealed(contents[: _NUMBER.size]):
            self._file.close()
            raise FileFormatError(path, "is damaged")
        self.sequence: int = _NUMBER.unpack_from(contents)[0]

    @classmethod
    def create(cls, path: Path) -> Mark:
        """Return a file, on the disk, that says that there has been no change; it takes the place of one before."""
        with path.open("wb") as file:
            file.write(_sealed(_NUMBER.pack(0)))
            file.flush()
            os.fsync(file.fileno())
        return cls(path)

    def set(self, sequence: int) -> None:
        """Write the number of a change."""
        self._file.seek(0)
        self._file.write(_sealed(_NUMBER.pack(sequence)))
        self.sequence = sequence

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _sealed(number: bytes) -> bytes:
    return number + _CHECKSUM.pack(zlib.crc32(number))

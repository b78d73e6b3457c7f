"""Opening of files without following symbolic links, so that only files in the folder are read and written."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from ..persistence import FileFormatError

_NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)  # do not block on a named pipe
_ALWAYS = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


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

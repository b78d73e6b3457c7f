"""Reading of SQLite's write-ahead log without SQLite: committed pages that are not yet in the database file.

SQLite itself needs write access to read a log. The format is specified in SQLite's documentation of its file format.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np

_HEADER = struct.Struct(">IIIIIIII")  # magic, version, page size, checkpoint, salts, checksums
_FRAME = struct.Struct(">IIIIII")  # page, pages of the database after a commit, salts, checksums
_MAGIC = 0x377F0682  # plus 1 if checksums use big-endian numbers
_VERSION = 3_007_000
_PAGE_SIZES = {1 << i for i in range(9, 17)}


class Log(NamedTuple):
    """The committed contents of a log."""

    page_size: int
    n_pages: int  # of the database
    pages: dict[int, bytes]  # pages newer than in the database file, numbered from 1


def read_log(log: bytes) -> Log | None:
    """Return the committed contents of a log, or None if there are none."""
    if len(log) < _HEADER.size:
        return None
    magic, version, page_size, _, *salts, first, second = _HEADER.unpack_from(log)
    if magic & ~1 != _MAGIC or version != _VERSION or page_size not in _PAGE_SIZES:
        return None
    order = ">u4" if magic & 1 else "<u4"
    if _checksums(np.frombuffer(log, order, 6)[None], (0, 0)) != [(first, second)]:
        return None
    size = _FRAME.size + page_size
    frames = np.frombuffer(log, np.uint8, (len(log) - _HEADER.size) // size * size, _HEADER.size).reshape(-1, size)
    summed = np.concatenate([frames[:, :8], frames[:, _FRAME.size :]], axis=1).view(order)
    pages: dict[int, bytes] = {}
    written: dict[int, bytes] = {}
    n_pages = 0
    for frame, checksums in zip(frames, _checksums(summed, (first, second)), strict=True):
        page, n_after, *others = _FRAME.unpack(frame[: _FRAME.size].tobytes())
        if page == 0 or others != [*salts, *checksums]:
            break
        written[page] = frame[_FRAME.size :].tobytes()
        if n_after > 0:
            n_pages, pages, written = n_after, pages | written, {}
    return Log(page_size, n_pages, pages) if n_pages > 0 else None


def with_log(database: bytes, log: Log | None) -> bytes:
    """Return a database file with the pages of its log merged, marked as a file without a log."""
    merged = bytearray(database)
    if log is not None:
        size = log.n_pages * log.page_size
        merged = bytearray(merged[:size].ljust(size, b"\0"))
        for page, contents in log.pages.items():
            if page <= log.n_pages:
                merged[(page - 1) * log.page_size : page * log.page_size] = contents
    merged[18:20] = b"\x01\x01"
    return bytes(merged)


def _checksums(numbers: np.ndarray, before: tuple[int, int]) -> list[tuple[int, int]]:
    """Return the checksums after each row of numbers, shape (n, 2 * m).

    Each pair of numbers ``a, b`` changes the two sums ``s, t`` to ``s + t + a`` and ``s + 2 t + a + b``, modulo 2**32.
    The contribution of a pair to the result is therefore multiplied by a matrix power, which is equal for all rows.
    """
    n_pairs = numbers.shape[1] // 2
    powers = np.empty((n_pairs + 1, 2, 2), np.uint32)
    power = ((1, 0), (0, 1))
    for i in range(n_pairs + 1):
        powers[i] = power
        (a, b), (c, d) = power
        power = ((a + b) % 2**32, (a + 2 * b) % 2**32), ((c + d) % 2**32, (c + 2 * d) % 2**32)
    left = numbers[:, ::2].astype(np.uint32)
    both = left + numbers[:, 1::2].astype(np.uint32)
    counts = powers[n_pairs - 1 :: -1]
    added = [left @ counts[:, i, 0] + both @ counts[:, i, 1] for i in (0, 1)]
    whole, sums, (s, t) = powers[n_pairs].tolist(), [], before
    for s_added, t_added in zip(added[0].tolist(), added[1].tolist(), strict=True):
        s, t = (
            (whole[0][0] * s + whole[0][1] * t + s_added) % 2**32,
            (whole[1][0] * s + whole[1][1] * t + t_added) % 2**32,
        )
        sums.append((s, t))
    return sums

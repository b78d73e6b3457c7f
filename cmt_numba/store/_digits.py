"""The digits that vectors lose as keys: what to keep so that a vector is returned bit for bit as it was given.

A key is a vector scaled to length 1. Scaled back, most values are those that were given, or differ from them by one in
the last place. These differences, of the bit patterns of float32 values, are stored with as few bits for each as the
largest in the row needs, after one byte that says how many, and a checksum of the vector.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

_WIDTHS = (0, 2, 4, 8, 16, 32)  # bits for each value
_HEAD = struct.Struct("<BI")


class LostDigits(NamedTuple):
    """What keys of length 1 do not say of their vectors."""

    norms: np.ndarray  # float64: the lengths of the keys
    digits: list[bytes] | None  # None where only codes are kept

    def of(self, rows: np.ndarray) -> LostDigits:
        """Return those of some rows."""
        digits = None if self.digits is None else [self.digits[row] for row in rows]
        return LostDigits(self.norms[rows], digits)


def lost_digits(given: Any, computed: Any) -> list[bytes]:
    """Return for each row what :func:`restore` needs to turn computed vectors into those that were given.

    Both are arrays of float32, or CSR arrays with the same cells.
    """
    rows, differences = _values(given), []
    for row, other in zip(rows, _values(computed), strict=True):
        bits = row.view(np.int32) - other.view(np.int32)
        differences.append((bits << 1) ^ (bits >> 31))
    return [_packed(row, coded.view(np.uint32)) for row, coded in zip(rows, differences, strict=True)]


def restore(computed: Any, lost: list[bytes | None]) -> np.ndarray:
    """Turn computed vectors into those that were given, in place; return for which rows this has succeeded.

    It fails if the key of a memory and its digits are not of the same vector. Rows without digits stay as they are.
    """
    succeeded = np.ones(len(lost), np.bool_)
    for i, (row, contents) in enumerate(zip(_values(computed), lost, strict=True)):
        if contents is not None:
            succeeded[i] = _restore_row(row, contents)
    return succeeded


def _values(X: Any) -> list[np.ndarray]:
    if scipy.sparse.issparse(X):
        return [X.data[first:stop] for first, stop in zip(X.indptr[:-1], X.indptr[1:], strict=True)]
    return list(X)


def _packed(row: np.ndarray, coded: np.ndarray) -> bytes:
    largest = int(coded.max(initial=0))
    width = next(width for width in _WIDTHS if largest >> width == 0)
    head = _HEAD.pack(width, zlib.crc32(row.tobytes()))
    if width == 0:
        return head
    if width >= 8:
        return head + coded.astype(f"<u{width // 8}").tobytes()
    in_a_byte = 8 // width
    parts = np.zeros((-(-coded.size // in_a_byte), in_a_byte), np.uint8)
    parts.reshape(-1)[: coded.size] = coded
    return head + np.bitwise_or.reduce(parts << _shifts(width), axis=1).tobytes()


def _restore_row(row: np.ndarray, contents: bytes) -> bool:
    width, checksum = _HEAD.unpack_from(contents)
    given = row
    if width > 0:
        coded = np.frombuffer(contents, f"<u{max(1, width // 8)}", offset=_HEAD.size)
        if width < 8:
            coded = (coded[:, None] >> _shifts(width) & ((1 << width) - 1)).reshape(-1)[: row.size]
        if coded.size != row.size:
            return False
        coded = coded.astype(np.uint32)
        given = (row.view(np.uint32) + ((coded >> 1) ^ -(coded & 1))).view(np.float32)
    if zlib.crc32(given.tobytes()) != checksum:
        return False
    row[:] = given
    return True


def _shifts(width: int) -> np.ndarray:
    return np.arange(0, 8, width, dtype=np.uint8)

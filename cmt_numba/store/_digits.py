"""The digits that vectors lose as keys: what to keep so that a vector is returned bit for bit as it was given.

A key is a vector scaled to length 1. Scaled back, most values are those that were given, or differ from them by one in
the last place. These differences, of the bit patterns of float32 values, are stored with as many bits for each as the
largest in the row needs, after one byte that says how many, and a checksum of the vector.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

_HEAD = struct.Struct("<BI")
_CELLS_AT_ONCE = 1 << 17


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
    if scipy.sparse.issparse(given):
        pairs = zip(_rows(given), _rows(computed), strict=True)
        return [lost_digits(one[None], other[None])[0] for one, other in pairs]
    size = max(1, _CELLS_AT_ONCE // given.shape[1])
    if len(given) > size:  # what fits into the caches of a processor takes a ninth of the time
        parts = [lost_digits(given[i : i + size], computed[i : i + size]) for i in range(0, len(given), size)]
        return [digits for part in parts for digits in part]
    bits = given.view(np.int32) - computed.view(np.int32)
    differences = ((bits << 1) ^ (bits >> 31)).view(np.uint32)  # small numbers for small ones of either sign
    widths = np.frexp(differences.max(axis=1, initial=0).astype(np.float64))[1]
    packed: list[bytes] = [b""] * len(given)
    for width in set(widths.tolist()):
        rows = np.flatnonzero(widths == width)
        planes = (differences[rows, None] >> np.arange(width, dtype=np.uint32)[:, None] & 1).astype(np.uint8)
        for row, contents in zip(rows.tolist(), np.packbits(planes, axis=2), strict=True):
            packed[row] = _HEAD.pack(width, zlib.crc32(given[row].tobytes())) + contents.tobytes()
    return packed


def restore(computed: Any, digits: list[bytes | None]) -> bool:
    """Turn computed vectors into those that were given, in place; return whether this has succeeded for all.

    It fails if a key and digits are not those of the same vector. Rows without digits stay as they are.
    """
    pairs = zip(_rows(computed), digits, strict=True)
    succeeded = [contents is None or _restore_row(row, contents) for row, contents in pairs]
    return all(succeeded)


def _rows(X: Any) -> list[np.ndarray]:
    if scipy.sparse.issparse(X):
        return [X.data[first:stop] for first, stop in zip(X.indptr[:-1], X.indptr[1:], strict=True)]
    return list(X)


def _restore_row(row: np.ndarray, contents: bytes) -> bool:
    width, checksum = _HEAD.unpack_from(contents)
    given, size = row, -(-row.size // 8)
    if len(contents) != _HEAD.size + width * size or width > 32:
        return False
    if width > 0:
        planes = np.frombuffer(contents, np.uint8, offset=_HEAD.size).reshape(width, size)
        bits = np.unpackbits(planes, axis=1, count=row.size).astype(np.uint32)
        differences = np.bitwise_or.reduce(bits << np.arange(width, dtype=np.uint32)[:, None], axis=0)
        given = (row.view(np.uint32) + ((differences >> 1) ^ -(differences & 1))).view(np.float32)
    if zlib.crc32(given.tobytes()) != checksum:
        return False
    row[:] = given
    return True

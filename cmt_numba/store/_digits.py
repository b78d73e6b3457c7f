"""The low bits that vectors lose in the conversion to tree keys. A store keeps them to return vectors bit for bit.

A tree key is a vector scaled to length 1. After scaling back, most values equal the original or differ by one in the
last place. The digits of a vector are a byte with the number of bits per difference, a checksum of the vector, and the
differences between the float32 bit patterns. All differences of a vector have the width of the largest one.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from .._jit import kernel

_HEAD = struct.Struct("<BI")
_CELLS_AT_ONCE = 1 << 17


class LostDigits(NamedTuple):
    """Data that restores vectors from their tree keys."""

    norms: np.ndarray  # float64 (n,): the lengths of the vectors before scaling
    digits: list[bytes] | None  # None if only codes are kept

    def of(self, rows: np.ndarray) -> LostDigits:
        """Return the entries of some rows."""
        digits = None if self.digits is None else [self.digits[row] for row in rows]
        return LostDigits(self.norms[rows], digits)


@kernel
def _pack_differences(given, computed, offsets, differences, widths, packed):
    """Write the differences between bit patterns as bit planes into ``packed``, and the planes per row into ``widths``.

    The planes of row ``i`` begin at ``4 * offsets[i] + 28 * i``, so that each row can have 32 planes.
    """
    for row in range(widths.size):
        first, n = offsets[row], offsets[row + 1] - offsets[row]
        together = np.int64(0)
        for i in range(n):
            difference = (np.int64(given[first + i]) - np.int64(computed[first + i])) & 0xFFFFFFFF
            folded = (difference << 1) & 0xFFFFFFFF  # small numbers for small differences of either sign
            differences[i] = folded if difference < 0x80000000 else folded ^ 0xFFFFFFFF
            together |= differences[i]
        width = 0
        while together >> width != 0:
            width += 1
        widths[row] = width
        at = 4 * offsets[row] + 28 * row
        for plane in range(width):
            for start in range(0, n, 8):
                byte = 0
                for i in range(start, min(start + 8, n)):
                    byte |= ((differences[i] >> plane) & 1) << (7 - i + start)
                packed[at] = byte
                at += 1


def lost_digits(given: Any, computed: Any) -> list[bytes]:
    """Return the digits from which :func:`restore` computes the given vectors exactly.

    Both arguments are float32 arrays, or CSR arrays with the same cells.
    """
    if isinstance(given, np.ndarray):
        n_rows, width = given.shape
        offsets, given, computed = np.arange(0, (n_rows + 1) * width, width), given.reshape(-1), computed.reshape(-1)
    else:
        offsets, given, computed = given.indptr.astype(np.int64), given.data, computed.data
    if given.size <= _CELLS_AT_ONCE:
        return _digits_of_block(given, computed, offsets)
    digits: list[bytes] = []
    first, n_rows = 0, offsets.size - 1
    while first < n_rows:
        stop = max(first + 1, int(offsets.searchsorted(offsets[first] + _CELLS_AT_ONCE, "right")) - 1)
        a, b = offsets[first], offsets[stop]
        digits += _digits_of_block(given[a:b], computed[a:b], offsets[first : stop + 1] - a)
        first = stop
    return digits


def _digits_of_block(given: np.ndarray, computed: np.ndarray, offsets: np.ndarray) -> list[bytes]:
    n_rows = offsets.size - 1
    differences, widths = np.empty(given.size, np.int64), np.empty(n_rows, np.int64)
    packed = np.empty(4 * given.size + 28 * n_rows, np.uint8)
    _pack_differences(given.view(np.uint32), computed.view(np.uint32), offsets, differences, widths, packed)
    ends, digits, view = offsets.tolist(), [], packed.data
    for row, width in enumerate(widths.tolist()):
        a, b = ends[row], ends[row + 1]
        start = 4 * a + 28 * row
        head = _HEAD.pack(width, zlib.crc32(given[a:b].data))
        digits.append(head + view[start : start + width * -(-(b - a) // 8)])
    return digits


def restore(computed: Any, digits: list[bytes | None]) -> bool:
    """Turn computed vectors into the given ones, in place. Return whether all rows were restored.

    A row whose checksum does not match stays unchanged, and so does a row without digits.
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

"""Checks of arrays: the exception that they raise, layouts, values and hash tables.

Kernels are compiled for exactly the dtypes and memory layouts in the annotations of fields. Axes with the same name
must have the same length.
"""

from typing import Any

import numpy as np

from ..._change import spans
from ..._jit import as_python
from ..hash_table import hash_feature, hash_number
from ..state import NONE
from ..structures import ArrayKind, arrays_of, layout_of


class InvariantError(AssertionError):
    """Raised if an invariant is violated. The message states the invariant."""


def require(holds: bool | np.bool_, message: str) -> None:
    """Raise InvariantError with ``message`` unless the condition ``holds``."""
    if not holds:
        raise InvariantError(message)


_AT_ONCE = 1 << 20


def all_finite(numbers: np.ndarray) -> bool:
    """Return whether all numbers are finite."""
    return all(bool(np.isfinite(part).all()) for part in _parts(numbers))


def all_small(numbers: np.ndarray, most: float) -> bool:
    """Return whether all absolute values are at most ``most``; False if there is a NaN."""
    return all(bool((np.abs(part) <= most).all()) for part in _parts(numbers))


def all_within(numbers: np.ndarray, least: int, most: int) -> bool:
    """Return whether all numbers are between ``least`` and ``most``, inclusive."""
    return numbers.size == 0 or bool(numbers.min() >= least and numbers.max() <= most)


def are_offsets(offsets: np.ndarray, n_entries: int) -> bool:
    """Return whether offsets increase, not necessarily strictly, from 0 to ``n_entries``."""
    rising = bool(offsets.size > 0 and offsets[0] == 0 and offsets[-1] == n_entries)
    return rising and bool(np.all(offsets[1:] >= offsets[:-1]))


def rise(numbers: np.ndarray, firsts: np.ndarray) -> bool:
    """Return whether numbers strictly increase within each segment. Segments begin at ``firsts``."""
    begins = np.zeros(numbers.size + 1, np.bool_)
    begins[firsts] = True
    return bool(np.all((numbers[1:] > numbers[:-1]) | begins[1:-1])) if numbers.size else True


def _parts(numbers: np.ndarray) -> list[np.ndarray]:
    flat = numbers.reshape(-1)
    return [flat[first:stop] for first, stop in spans(flat.size, _AT_ONCE)]


home_of_feature = as_python(hash_feature)
"""Return the homes of an array of features."""

home_of_number = as_python(hash_number)
"""Return the homes of an array of numbers."""


def check_runs(occupied: np.ndarray, homes: np.ndarray, what: str) -> None:
    """Raise InvariantError unless lookups in tables (one per row) end and find every entry from its home."""
    size = occupied.shape[1]
    cells = np.arange(size, dtype=np.int32 if size < 2**31 else np.int64)
    last_empty = np.where(occupied, np.array(-1, cells.dtype), cells)
    np.maximum.accumulate(last_empty, axis=1, out=last_empty)
    end = last_empty[:, -1:].copy()
    require(np.all(end >= 0), f"{what} has no empty cell to end a search")
    np.copyto(
        last_empty, end - np.array(size, cells.dtype), where=last_empty < 0
    )  # runs continue from the last cell to the first
    walked = (cells - homes) & (size - 1)
    found = walked < cells - last_empty
    found |= ~occupied
    require(found.all(), f"{what} has an entry that searches cannot find")


def check_number_table(table: np.ndarray, keys: np.ndarray, what: str, *, features: bool = False) -> None:
    """Raise InvariantError unless lookups in ``table`` find the place of every key, hashed as id or feature."""
    n, size = keys.size, table.size
    require(size > 0 and size & (size - 1) == 0, f"the size of {what} is not a power of two")
    occupied = table != NONE
    places = table[occupied]
    require(places.size == n, f"{what} must have {n} entries, but has {places.size}")
    require(n == 0 or (places.min() >= 0 and places.max() < n), f"{what} refers to an entry that does not exist")
    require(np.all(np.bincount(places, minlength=n) == 1), f"{what} refers to an entry more than once")
    ordered = np.sort(keys)
    require(np.all(ordered[1:] != ordered[:-1]), f"{what} has two entries for one key")
    homes = np.zeros(size, np.int32 if size < 2**31 else np.int64)
    its_keys = keys[places].astype(np.int64)
    homes[occupied] = home_of_feature(its_keys, size.bit_length() - 1) if features else home_of_number(its_keys, size)
    check_runs(occupied[None], homes[None], what)


def check_layout(structure: Any, lengths: dict[str, int] | None = None) -> None:
    """Raise InvariantError unless arrays match their annotations, with the known ``lengths`` of named axes."""
    kind: type[tuple[Any, ...]] = type(structure)
    layout = layout_of(kind)
    known = dict(lengths or {})
    arrays = arrays_of(structure)
    require(arrays.keys() == layout.keys(), f"the arrays must be {', '.join(layout)}")
    for name, array in arrays.items():
        fault = _fault_of(array, layout[name], known)
        require(fault is None, f"{name} must {fault}")


def _fault_of(array: np.ndarray, kind: ArrayKind, known: dict[str, int]) -> str | None:
    """Return what is wrong with an array, or None, and add the lengths of new axes to ``known``."""
    if array.dtype != kind.dtype:
        return f"be of dtype {kind.dtype}, not {array.dtype}"
    if array.ndim != len(kind.axes):
        return f"have {len(kind.axes)} dimensions, not {array.ndim}"
    for axis, length in zip(kind.axes, array.shape, strict=True):
        wanted = axis if isinstance(axis, int) else known.setdefault(axis, length)
        if length != wanted:
            what = "an axis" if isinstance(axis, int) else f"an axis ({axis})"
            return f"have {what} of length {wanted}, not {length}"
    return None if array.flags.c_contiguous and array.flags.aligned else "be contiguous and aligned"

"""Checks of arrays and key stores that kernels rely on.

Kernels have no bounds checks. These checks use only NumPy and validate every value before they use it, so they are safe
for arrays from a damaged file.

Kernels are compiled for exactly the dtypes and memory layouts in the annotations of fields. Axes with the same name
must have the same length.
"""

from typing import Any

import numpy as np

from .._change import spans
from .._jit import as_python
from .constants import MAX_MEMORIES, MOST_FEATURES, NONE
from .hash_table import hash_number
from .key_store import LONGEST, N_MEMORIES, NEXT_ID, VALUES_END, VALUES_LIVE, KeyArrays
from .structures import ArrayKind, arrays_of, layout_of

_AT_ONCE = 1 << 20
_MAX_IDS = 2**62
_LONGEST_VALUE = 1.001  # upper bound on the values of a unit-length key after rounding
_home_of_number = as_python(hash_number)  # for arrays


class InvariantError(AssertionError):
    """Raised if an invariant is violated. The message states the invariant."""


def require(holds: bool | np.bool_, message: str) -> None:
    """Raise InvariantError with ``message`` unless the condition ``holds``."""
    if not holds:
        raise InvariantError(message)


def all_finite(numbers: np.ndarray) -> bool:
    """Return whether all numbers are finite."""
    return all(bool(np.isfinite(part).all()) for part in _parts(numbers))


def _all_small(numbers: np.ndarray, most: float) -> bool:
    """Return whether all absolute values are at most ``most``; False if there is a NaN."""
    return all(bool((np.abs(part) <= most).all()) for part in _parts(numbers))


def all_within(numbers: np.ndarray, least: int, most: int) -> bool:
    """Return whether all numbers are between ``least`` and ``most``, inclusive."""
    return numbers.size == 0 or bool(numbers.min() >= least and numbers.max() <= most)


def are_offsets(offsets: np.ndarray, n_entries: int) -> bool:
    """Return whether offsets increase, not necessarily strictly, from 0 to ``n_entries``."""
    rising = bool(offsets.size > 0 and offsets[0] == 0 and offsets[-1] == n_entries)
    return rising and bool(np.all(offsets[1:] >= offsets[:-1]))


def _rise(numbers: np.ndarray, firsts: np.ndarray) -> bool:
    """Return whether numbers strictly increase within each segment. Segments begin at ``firsts``."""
    begins = np.zeros(numbers.size + 1, np.bool_)
    begins[firsts] = True
    return bool(np.all((numbers[1:] > numbers[:-1]) | begins[1:-1])) if numbers.size else True


def _parts(numbers: np.ndarray) -> list[np.ndarray]:
    flat = numbers.reshape(-1)
    return [flat[first:stop] for first, stop in spans(flat.size, _AT_ONCE)]


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


def _check_number_table(table: np.ndarray, keys: np.ndarray, what: str) -> None:
    """Raise InvariantError unless lookups in ``table`` find the place of every key."""
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
    homes[occupied] = _home_of_number(its_keys, size)
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


# Keys and the scorer


def check_key_frame(parameters: Any, keys: KeyArrays) -> None:
    """Raise InvariantError unless the arrays of a key store have the expected lengths. Call :func:`check_layout` first.

    The check reads no array except ``totals``.
    """
    n, next_id, end, live, longest = (
        int(keys.totals[i]) for i in (N_MEMORIES, NEXT_ID, VALUES_END, VALUES_LIVE, LONGEST)
    )
    capacity, d = keys.ids.size, parameters.n_features
    require(1 <= d <= MOST_FEATURES, f"keys must have 1 to {MOST_FEATURES} features, got {d}")
    require(
        0 <= n <= min(capacity, MAX_MEMORIES),
        f"the number of memories, {n}, is not between 0 and {min(capacity, MAX_MEMORIES)}",
    )
    require(n <= next_id <= _MAX_IDS, f"the next id is invalid: {next_id}")
    require(0 <= longest <= d, f"the longest key has an invalid number of cells: {longest}")
    require(n < keys.slot_table.size, "the slot table is too small")
    if parameters.sparse:
        require(keys.indices.size == keys.values.size, "every cell of a key must have a feature")
        require(keys.spans.shape[0] == capacity, "every key must have a span")
        require(0 <= live <= end <= keys.values.size, "the key store has overflowed")
    else:
        require(keys.values.size >= capacity * d, "the key store is too small")


def check_keys(parameters: Any, keys: KeyArrays, *, values: bool = True) -> None:
    """Raise InvariantError if a key store is invalid. Call :func:`check_key_frame` first.

    If ``values`` is False, skip the values of keys, for example because only codes are stored.
    """
    n = int(keys.totals[N_MEMORIES])
    ids = keys.ids[:n]
    require(all_within(ids, 0, int(keys.totals[NEXT_ID]) - 1), "an id is out of range")
    _check_number_table(keys.slot_table, ids, "the slot table")
    if parameters.sparse:
        _check_sparse(parameters, keys, n, values)
    elif values:
        require(_all_small(keys.values[: n * parameters.n_features], _LONGEST_VALUE), "a key is not of length 1")


def _check_sparse(parameters: Any, keys: KeyArrays, n: int, with_values: bool) -> None:
    start, stop = keys.spans[:n, 0], keys.spans[:n, 1]
    end = int(keys.totals[VALUES_END])
    require(np.all(start <= stop), "a key ends before it starts")
    require(all_within(start, 0, end) and all_within(stop, 0, end), "a key lies outside the key store")
    lengths = stop - start
    require(int(lengths.sum()) == keys.totals[VALUES_LIVE], "the number of key cells is wrong")
    require(all_within(lengths, 0, int(keys.totals[LONGEST])), "a key has more cells than the recorded longest key")
    order = np.argsort(start[lengths > 0], kind="stable")
    start, stop = start[lengths > 0][order], stop[lengths > 0][order]
    require(np.all(stop[:-1] <= start[1:]), "two keys share a cell")
    indices, values = keys.indices[:end], keys.values[:end]
    if int(lengths.sum()) < end:  # skip the cells of removed keys
        edges = np.zeros(end + 1, np.int8)
        edges[start] += 1
        edges[stop] -= 1
        live = np.cumsum(edges[:-1], dtype=np.int8).view(np.bool_)
        indices, values = indices[live], values[live]
    firsts = np.cumsum(stop - start) - (stop - start)
    require(all_within(indices, 0, parameters.n_features - 1), "a key has a feature that does not exist")
    require(_rise(indices, firsts), "the features of a key are not in ascending order")
    require(not with_values or _all_small(values, _LONGEST_VALUE), "a key is not of length 1")

"""Checks that lookups in open-addressing tables terminate and find every entry."""

import numpy as np

from ..._jit import as_python
from ..hash_table import hash_feature, hash_number
from ..state import NONE
from .errors import require

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

"""Kernels: which labels or memories a search has met, where several trees may lead it to the same ones."""

import numpy as np

from ._jit import inner, inner_allocating
from ._keys import hash_number
from ._state import NONE


@inner_allocating
def new_seen(most):
    """Return an empty set that one search after another may use, each for up to ``most`` numbers."""
    size = 1
    while size < 2 * most:
        size *= 2
    return np.full(size, NONE, np.int64)


@inner
def is_new(seen, search, number):
    """Return whether this search has not met the number yet, and remember it.

    An entry is made of both, so those of earlier searches count as empty, and the set is never cleared. Searches are
    numbered, no two alike.
    """
    mask = seen.size - 1
    entry = (np.int64(search) << 32) | number
    cell = hash_number(number, seen.size)
    while (seen[cell] >> 32) == search:
        if seen[cell] == entry:
            return False
        cell = (cell + 1) & mask
    seen[cell] = entry
    return True

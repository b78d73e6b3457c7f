"""Search in sorted arrays."""

from .._jit import inner


@inner
def lower_bound(ascending, first, stop, value):
    """Return the first position from ``first`` to ``stop`` whose value is at least ``value``."""
    while first < stop:
        middle = (first + stop) >> 1
        if ascending[middle] < value:
            first = middle + 1
        else:
            stop = middle
    return first

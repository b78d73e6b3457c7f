"""Checks of large arrays of numbers in blocks, which limits temporary memory."""

import numpy as np

from ..._change import spans

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

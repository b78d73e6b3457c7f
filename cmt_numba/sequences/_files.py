"""Conversion of alphabets, costs and sequences to and from the arrays of a file."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from ..persistence import document, read_array, read_document
from ._costs import Costs
from ._encoding import Alphabet, Sequences

Arrays = dict[str, np.ndarray]
_SCALARS = (bool, int, float, str, type(None))


def alphabet_arrays(alphabet: Alphabet) -> Arrays:
    """Return an alphabet as arrays to save."""
    for symbol in alphabet.symbols:
        _check(symbol)
    return {"alphabet": document(alphabet.symbols)}


def _check(symbol: Hashable) -> None:
    if isinstance(symbol, tuple):
        for part in symbol:
            _check(part)
    elif type(symbol) not in _SCALARS:
        kind = type(symbol).__name__
        raise TypeError(f"symbols must be strings, numbers, None or tuples of these to be saved, got {kind}")


def read_alphabet(arrays: Arrays) -> Alphabet:
    """Return the alphabet saved in ``arrays``."""
    symbols = read_document(arrays, "alphabet")
    if type(symbols) is not list:
        raise ValueError("alphabet must be a list")
    try:
        return Alphabet(_hashable(symbols))
    except TypeError as error:
        raise ValueError(str(error)) from error


def _hashable(value: Any) -> Any:
    """Convert lists in a JSON value to tuples, which are hashable."""
    return tuple(_hashable(part) for part in value) if type(value) is list else value


def read_costs(arrays: Arrays, n: int, both: bool, normalized: bool) -> Costs:
    """Return the costs saved in ``arrays``, for an alphabet of ``n`` symbols."""
    pairs, swaps = (read_array(name, arrays, np.float32, n_axes=2) for name in ("pairs", "swaps"))
    factors = read_array("factors", arrays, np.float32, n_axes=3)
    if pairs.shape != (n + 1, n + 1) or swaps.shape not in ((n, n), (0, 0)):
        raise ValueError("pairs and swaps must have one row for each symbol")
    if factors.shape not in ((2, n + 1, n), (2, n + 1, 0)):
        raise ValueError("factors must have one column for each symbol")
    openings, ends = (read_array(name, arrays, np.float32) for name in ("openings", "ends"))
    if openings.size not in (0, 2) or ends.size not in (0, 1):
        raise ValueError("openings must have 0 or 2 costs, and ends must have 0 or 1")
    if not all(
        np.isfinite(costs).all() and costs.min(initial=0.0) >= 0.0 for costs in (pairs, swaps, factors, openings, ends)
    ):
        raise ValueError("pairs, swaps, factors, openings and ends must be finite and non-negative")
    if pairs.diagonal().any():
        raise ValueError("pairs must be 0 on the diagonal")
    return Costs.of(pairs, swaps, factors, both, openings, ends, normalized)


def read_ids(arrays: Arrays, next_id: int) -> np.ndarray:
    """Return the ids saved in ``arrays``. Raise ValueError unless the ids ascend."""
    ids = read_array("ids", arrays, np.int64)
    if (ids < 0).any() or (ids >= next_id).any() or (ids[1:] <= ids[:-1]).any():
        raise ValueError(f"ids must be in ascending order and between 0 and {next_id - 1}")
    return ids


def read_sequences(arrays: Arrays, n_symbols: int) -> Sequences:
    """Return the sequences saved in ``arrays``. Raise ValueError unless all symbols are below ``n_symbols``."""
    symbols, offsets = read_array("symbols", arrays, np.int32), read_array("offsets", arrays, np.int64)
    if offsets.size == 0 or offsets[0] != 0 or offsets[-1] != symbols.size or (np.diff(offsets) < 0).any():
        raise ValueError("offsets must be in ascending order from 0 to the number of symbols")
    if symbols.size and (symbols.min() < 0 or symbols.max() >= n_symbols):
        raise ValueError("symbols must be in the alphabet")
    return Sequences(symbols, offsets)

"""Kinds of fields of alphabets, costs and sequences in files."""

from collections.abc import Hashable
from typing import Any

import numpy as np

from .. import persistence as files
from ._costs import Costs
from ._encoding import Alphabet, Sequences

_SCALARS = (bool, int, float, str, type(None))
_LARGEST = float(np.finfo(np.float32).max)


class AlphabetField(files.DocumentField):
    """An alphabet."""

    def put(self, name: str, value: Alphabet, arrays: files.Arrays) -> Any:
        for symbol in value.symbols:
            _check(symbol)
        return super().put(name, value.symbols, arrays)

    def get(self, name: str, field: Any, arrays: files.Arrays, *, thorough: bool) -> Alphabet:
        symbols = super().get(name, field, arrays, thorough=thorough)
        if type(symbols) is not list:
            raise ValueError(f"{name} must be a list")
        return Alphabet(_hashable(symbols))


def _check(symbol: Hashable) -> None:
    if isinstance(symbol, tuple):
        for part in symbol:
            _check(part)
    elif type(symbol) not in _SCALARS:
        kind = type(symbol).__name__
        raise TypeError(f"symbols must be strings, numbers, None or tuples of these to be saved, got {kind}")


def _hashable(value: Any) -> Any:
    """Convert lists in a JSON value to tuples, which are hashable."""
    return tuple(_hashable(part) for part in value) if type(value) is list else value


def _costs(n_axes: int) -> files.ArrayField:
    return files.ArrayField(np.float32, n_axes=n_axes, bounds=(0, _LARGEST))


COSTS = files.TupleField(
    Costs, pairs=_costs(2), swaps=_costs(2), openings=_costs(1), ends=_costs(1), normalized=files.FlagField()
)
SEQUENCES = files.TupleField(Sequences, symbols=files.ArrayField(np.int32), offsets=files.ArrayField(np.int64))


def checked_costs(costs: Costs, n: int, *, normalized: bool) -> Costs:
    """Return costs from a file. Raise ValueError unless they fit a distance and its alphabet of ``n`` symbols."""
    if costs.normalized != normalized:
        raise ValueError("costs must have the parameters of the distance")
    if costs.pairs.shape != (n + 1, n + 1) or costs.swaps.shape not in ((n, n), (0, 0)):
        raise ValueError("pairs and swaps must have one row for each symbol")
    if costs.openings.size not in (0, 2) or costs.ends.size not in (0, 1):
        raise ValueError("openings must have 0 or 2 costs, and ends must have 0 or 1")
    if costs.pairs.diagonal().any():
        raise ValueError("pairs must be 0 on the diagonal")
    return Costs.of(*costs[:-1])


def check_saved(sequences: Sequences, n_symbols: int) -> None:
    """Raise ValueError unless all symbols of sequences from a file are below ``n_symbols``."""
    symbols, offsets = sequences
    if offsets.size == 0 or offsets[0] != 0 or offsets[-1] != symbols.size or (np.diff(offsets) < 0).any():
        raise ValueError("offsets must be in ascending order from 0 to the number of symbols")
    if symbols.size and (symbols.min() < 0 or symbols.max() >= n_symbols):
        raise ValueError("symbols must be in the alphabet")

"""Alphabets, and sequences encoded as integers in one array."""

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from .. import persistence as files

MAX_SYMBOLS = 4096  # maximum size of an alphabet. The costs of all pairs of symbols then take 64 MB.
Symbols = str | Sequence[Hashable]
_SCALARS = (bool, int, float, str, type(None))


class Sequences(NamedTuple):
    """Encoded sequences. Sequence ``i`` is ``symbols[offsets[i]:offsets[i + 1]]``."""

    symbols: np.ndarray  # int32, codes of symbols
    offsets: np.ndarray  # int64 (n + 1,)

    @property
    def n(self) -> int:
        """Number of sequences."""
        return self.offsets.size - 1

    def take(self, positions: np.ndarray) -> "Sequences":
        """Return the sequences at the given positions."""
        offsets = np.concatenate([[0], np.cumsum(np.diff(self.offsets)[positions])])
        return Sequences(self.symbols[self.entries(positions)], offsets)

    def entries(self, positions: np.ndarray) -> np.ndarray:
        """Return the indices in ``symbols`` of the sequences at the given positions."""
        lengths = np.diff(self.offsets)[positions]
        starts = np.cumsum(lengths) - lengths
        return np.arange(lengths.sum()) + np.repeat(self.offsets[:-1][positions] - starts, lengths)


def check_sequences(name: str, sequences: Any) -> list[Symbols]:
    """Convert sequences to a list and validate each sequence."""
    listed = as_list(name, sequences)
    for i, sequence in enumerate(listed):
        if isinstance(sequence, np.ndarray) and sequence.ndim == 1:
            listed[i] = sequence.tolist()
        elif not isinstance(sequence, Sequence) or isinstance(sequence, bytes):
            raise TypeError(f"{name}[{i}] must be a string or a sequence of symbols, got {type(sequence).__name__}")
    return listed


def as_list(name: str, sequences: Any) -> list[Any]:
    """Convert sequences to a list without validating its entries."""
    if isinstance(sequences, str | bytes) or not isinstance(sequences, Iterable):
        raise TypeError(f"{name} must be a list of sequences, got {type(sequences).__name__}; pass [sequence] for one")
    listed = list(sequences)
    if not listed:
        raise ValueError(f"{name} must contain at least one sequence")
    return listed


class Alphabet:
    """Symbols with the codes 0, 1, 2, ..."""

    def __init__(self, symbols: Iterable[Hashable]) -> None:
        self.symbols = tuple(symbols)
        try:
            self.codes = {symbol: code for code, symbol in enumerate(self.symbols)}
        except TypeError as error:
            raise TypeError(f"alphabet must contain hashable symbols: {error}") from error
        if len(self.codes) < len(self.symbols):
            raise ValueError("alphabet must contain each symbol only once")
        if not 0 < len(self.symbols) <= MAX_SYMBOLS:
            raise ValueError(f"alphabet must have 1 to {MAX_SYMBOLS} symbols, got {len(self.symbols)}")
        self._characters: np.ndarray | None = None  # code of each code point, or -1; the last entry is -1

    @classmethod
    def of(cls, *lists: list[Symbols]) -> "Alphabet":
        """Return the alphabet of all symbols in lists of sequences, in order of first appearance."""
        return cls(dict.fromkeys(symbol for sequences in lists for sequence in sequences for symbol in sequence))

    def _encode_strings(self, strings: list[Any]) -> Sequences | None:
        """Encode strings. Return None if an entry is not a string or has a character outside the alphabet."""
        if self._characters is None:
            points = {
                ord(symbol): code for symbol, code in self.codes.items() if type(symbol) is str and len(symbol) == 1
            }
            self._characters = np.full(max(points, default=-1) + 2, -1, np.int32)
            self._characters[list(points)] = list(points.values())
        try:
            text = "".join(strings)
        except TypeError:
            return None
        points_of_text = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
        encoded = self._characters.take(points_of_text, mode="clip")
        if encoded.min(initial=0) < 0:
            return None
        offsets = np.zeros(len(strings) + 1, np.int64)
        np.cumsum(np.fromiter(map(len, strings), np.int64, len(strings)), out=offsets[1:])
        return Sequences(encoded, offsets)

    def encode(self, name: str, sequences: list[Any]) -> Sequences:
        """Convert sequences to codes."""
        encoded = self._encode_strings(sequences)
        if encoded is not None:
            return encoded
        codes, sequences = self.codes, check_sequences(name, sequences)
        offsets = np.zeros(len(sequences) + 1, np.int64)
        np.cumsum([len(sequence) for sequence in sequences], out=offsets[1:])
        try:
            entries = (codes[symbol] for sequence in sequences for symbol in sequence)
            return Sequences(np.fromiter(entries, np.int32, int(offsets[-1])), offsets)
        except (KeyError, TypeError):
            for i, sequence in enumerate(sequences):
                for symbol in sequence:
                    if not isinstance(symbol, Hashable) or symbol not in codes:
                        message = f"{name}[{i}] has the symbol {symbol!r:.40}, which is not in the alphabet"
                        raise ValueError(f"{message}; pass an alphabet that contains it") from None
            raise


# Files


class AlphabetField(files.DocumentField):
    """An alphabet in a file."""

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


SEQUENCES = files.TupleField(Sequences, symbols=files.ArrayField(np.int32), offsets=files.ArrayField(np.int64))


def check_saved(sequences: Sequences, n_symbols: int) -> None:
    """Raise ValueError unless all symbols of sequences from a file are below ``n_symbols``."""
    symbols, offsets = sequences
    if offsets.size == 0 or offsets[0] != 0 or offsets[-1] != symbols.size or (np.diff(offsets) < 0).any():
        raise ValueError("offsets must be in ascending order from 0 to the number of symbols")
    if symbols.size and (symbols.min() < 0 or symbols.max() >= n_symbols):
        raise ValueError("symbols must be in the alphabet")

"""Sequences of symbols as numbers in one array."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

MOST_SYMBOLS = 4096
"""Bound of the symbols of an alphabet. The costs of all pairs of so many take 64 MB."""

Symbols = str | Sequence[Hashable]


class Sequences(NamedTuple):
    """Sequences of codes: sequence ``i`` has the entries ``offsets[i] .. offsets[i + 1]``."""

    symbols: np.ndarray  # int32
    offsets: np.ndarray  # int64 (n + 1,)

    @property
    def n(self) -> int:
        """How many sequences there are."""
        return self.offsets.size - 1

    def take(self, positions: np.ndarray) -> Sequences:
        """Return some sequences, in this order."""
        offsets = np.concatenate([[0], np.cumsum(np.diff(self.offsets)[positions])])
        return Sequences(self.symbols[self.entries(positions)], offsets)

    def entries(self, positions: np.ndarray) -> np.ndarray:
        """Return where the symbols of some sequences are."""
        lengths = np.diff(self.offsets)[positions]
        starts = np.cumsum(lengths) - lengths
        return np.arange(lengths.sum()) + np.repeat(self.offsets[:-1][positions] - starts, lengths)

    def followed_by(self, others: Sequences) -> Sequences:
        """Return these sequences and then the others."""
        offsets = np.concatenate([self.offsets, self.offsets[-1] + others.offsets[1:]])
        return Sequences(np.concatenate([self.symbols, others.symbols]), offsets)


NO_SEQUENCES = Sequences(np.empty(0, np.int32), np.zeros(1, np.int64))


def check_sequences(name: str, sequences: Any) -> list[Symbols]:
    """Return sequences as a list.

    Raises
    ------
    TypeError
        If they are a single string, or one of them is no sequence.
    ValueError
        If there are none.
    """
    if isinstance(sequences, str | bytes) or not isinstance(sequences, Iterable):
        raise TypeError(
            f"{name} must be a list of sequences, not {type(sequences).__name__}; put a single one in a list"
        )
    given: list[Any] = list(sequences)
    listed: list[Symbols] = []
    if given and _all_strings(given):
        return given
    for i, sequence in enumerate(given):
        if isinstance(sequence, str):
            listed.append(sequence)
        elif isinstance(sequence, np.ndarray) and sequence.ndim == 1:
            listed.append(sequence.tolist())
        elif isinstance(sequence, Sequence) and not isinstance(sequence, bytes):
            listed.append(sequence)
        else:
            raise TypeError(f"{name}[{i}] must be a string or a sequence of symbols, not {type(sequence).__name__}")
    if not listed:
        raise ValueError(f"{name} must hold at least one sequence")
    return listed


def _all_strings(sequences: list[Any]) -> bool:
    """Return whether all sequences are strings."""
    return set(map(type, sequences)) == {str}


class Alphabet:
    """The symbols that sequences may have, with their codes 0, 1, 2, ..."""

    def __init__(self, symbols: Iterable[Hashable]) -> None:
        self.symbols = tuple(symbols)
        try:
            self.codes = {symbol: code for code, symbol in enumerate(self.symbols)}
        except TypeError as error:
            raise TypeError(f"alphabet must hold symbols that can be hashed: {error}") from error
        if len(self.codes) < len(self.symbols):
            raise ValueError("alphabet must name each symbol once")
        if not 0 < len(self.symbols) <= MOST_SYMBOLS:
            raise ValueError(f"alphabet must hold 1 to {MOST_SYMBOLS} symbols, not {len(self.symbols)}")
        self._characters: np.ndarray | None = None  # codes by code points, -1 for others, of which the last one is

    @classmethod
    def of(cls, *lists: list[Symbols]) -> Alphabet:
        """Return the alphabet of the symbols in some lists of sequences, in the order of their first appearance."""
        return cls(dict.fromkeys(symbol for sequences in lists for sequence in sequences for symbol in sequence))

    def _encode_strings(self, text: str) -> np.ndarray | None:
        """Return the codes of characters: int32; None if one is not in the alphabet."""
        if self._characters is None:
            points = {
                ord(symbol): code for symbol, code in self.codes.items() if type(symbol) is str and len(symbol) == 1
            }
            self._characters = np.full(max(points, default=-1) + 2, -1, np.int32)
            self._characters[list(points)] = list(points.values())
        points_of_text = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
        encoded = self._characters[np.minimum(points_of_text, self._characters.size - 1)]
        return None if (encoded < 0).any() else encoded

    def encode(self, name: str, sequences: list[Symbols]) -> Sequences:
        """Return sequences as codes.

        Raises
        ------
        ValueError
            If a sequence has a symbol that is not in the alphabet.
        """
        if _all_strings(sequences):
            encoded = self._encode_strings("".join(sequences))  # type: ignore[arg-type]
            if encoded is not None:
                offsets = np.fromiter(map(len, sequences), np.int64, len(sequences))
                return Sequences(encoded, np.concatenate([[0], np.cumsum(offsets)]))
        codes = self.codes
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
                        raise ValueError(f"{message}; pass an alphabet that has it") from None
            raise

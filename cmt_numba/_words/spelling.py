"""Correction of misspelt words by the nearest of many words."""

import re
from collections.abc import Iterable

import numpy as np

from .._kernels import GrowingColumns
from .edits import WORD, count_edits
from .terms import is_alone

_SHORTEST, _LONG = 3, 6  # letters of a word that may have one edit, or two
_DIGIT = re.compile(r"\d")


def may_be_corrected(word: str) -> bool:
    """Return whether a word can be misspelt: not if it is short or has digits, or if its script has no spaces."""
    return _SHORTEST <= len(word) <= WORD and not _DIGIT.search(word) and not is_alone(word)


def _symbols_of(word: str) -> bytes:
    """Return the low byte of each character. Letters of one alphabet have different ones, with few exceptions."""
    return word.encode("utf-32-le")[::4]


def _signature_of(symbols: bytes) -> int:
    """Return 64 bits, of which an edit changes at most two: the letters that occur, and that occur more than once."""
    once = twice = 0
    for symbol in symbols:
        bit = 1 << (symbol & 31)
        twice |= once & bit
        once |= bit
    return once | twice << 32


class WordList:
    """Words, of which the nearest ones are found by edit distance.

    All signatures are compared with that of the misspelt word, and edits are counted for those with few differences.
    """

    def __init__(self) -> None:
        self._words: list[str] = []
        self._known: set[str] = set()
        self._signatures = GrowingColumns(np.empty(0, np.uint64), np.empty(0, np.int64))  # and the ends of words
        self._symbols = GrowingColumns(np.empty(0, np.uint8))

    def add(self, words: Iterable[str]) -> None:
        """Add words, unless they are known or cannot be misspelt."""
        new = [word for word in dict.fromkeys(words) if word not in self._known and may_be_corrected(word)]
        symbols = [_symbols_of(word) for word in new]
        signatures = np.array([_signature_of(own) for own in symbols], np.uint64)
        stops = len(self._symbols) + np.cumsum([len(own) for own in symbols], dtype=np.int64)
        self._signatures = self._signatures.appended(signatures, stops)
        self._symbols = self._symbols.appended(np.frombuffer(b"".join(symbols), np.uint8))
        self._words += new
        self._known.update(new)

    def near(self, word: str) -> list[tuple[int, str]]:
        """Return the words that a misspelt word may be, with the number of edits: up to 1, or 2 for a long word."""
        if not may_be_corrected(word):
            return []
        symbols, limit = _symbols_of(word), 1 if len(word) < _LONG else 2
        signatures, stops = self._signatures.columns
        differences = np.bitwise_count(signatures ^ np.uint64(_signature_of(symbols)))
        candidates = np.flatnonzero(differences <= 2 * limit)
        edits = np.empty(candidates.size, np.int64)
        count_edits(np.frombuffer(symbols, np.uint8), *self._symbols.columns, stops, candidates, limit, edits)
        near = np.flatnonzero(edits >= 0)
        return [(n, self._words[i]) for n, i in zip(edits[near].tolist(), candidates[near].tolist(), strict=True)]

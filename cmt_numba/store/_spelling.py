"""Correction of misspelt words in queries by the words of stored texts."""

from collections import Counter
from collections.abc import Callable
from itertools import chain
from threading import Lock
from typing import Any

import numpy as np

from .._change import uninterrupted
from .._postings import TextIndex
from .._words import Tokenizer, WordList, hash_term, hash_whole_words, whole_words_of

_AT_ONCE = 10_000  # texts to read

NearWords = dict[str, dict[str, tuple[int, int]]]
"""The near words of each word that no text has, with the number of edits and the number of texts."""


class Spelling:
    """The words of the texts in an index. It reads texts at the first query after they were stored.

    - ``unread``: the ids of these texts.
    """

    def __init__(self, ids: np.ndarray) -> None:
        self.unread = [ids]
        self._words, self._lock = WordList(), Lock()  # queries run concurrently

    def near(self, words: list[str], index: TextIndex, records: Any, tokenizer: Tokenizer | None) -> NearWords:
        """Return the words of texts that are near to each word that no text has."""
        with self._lock:
            self._read(records, tokenizer)
            known = zip(words, _frequencies(words, index).tolist(), strict=True)
            return {word: self._near(word, index) for word, n in known if n == 0}

    def _read(self, records: Any, tokenizer: Tokenizer | None) -> None:
        while self.unread:
            for first in range(0, self.unread[-1].size, _AT_ONCE):
                texts = records.texts(self.unread[-1][first : first + _AT_ONCE].tolist()).values()
                words = [word for text in texts for word in whole_words_of(text, tokenizer)]
                uninterrupted(self._words.add, words)
            self.unread.pop()

    def _near(self, word: str, index: TextIndex) -> dict[str, tuple[int, int]]:
        near = self._words.near(word)
        frequencies = _frequencies([other for _, other in near], index).tolist()
        return {other: (edits, n) for (edits, other), n in zip(near, frequencies, strict=True) if n > 0}


def _frequencies(words: list[str], index: TextIndex) -> np.ndarray:
    """Return the number of texts with each word."""
    return np.array([index.frequency(hash_term(word)) for word in words], np.int64)


def correct_words(
    texts: list[Any], tokenizer: Tokenizer | None, find_near: Callable[[list[str]], list[NearWords]]
) -> list[Counter[int]]:
    """Return the hashed words of queries. Words that no text has are replaced by the nearest word of texts.

    Of equally near words, the one in most texts is chosen. Words without a near word remain. ``find_near`` returns the
    result of :meth:`Spelling.near` for each part of the texts.
    """
    words = [whole_words_of(text, tokenizer) for text in texts]
    parts = find_near(list(dict.fromkeys(chain.from_iterable(words))))
    unknown = set.intersection(*map(set, parts)) if parts else ()
    nearest = {word: _nearest(word, [part[word] for part in parts]) for word in unknown}
    return [hash_whole_words([nearest.get(word, word) for word in own], tokenizer) for own in words]


def _nearest(word: str, parts: list[dict[str, tuple[int, int]]]) -> str:
    """Return the nearest of the words in parts of the texts."""
    edits = {other: n for part in parts for other, (n, _) in part.items()}
    frequencies = {other: sum(part[other][1] for part in parts if other in part) for other in edits}
    return min(edits, key=lambda other: (edits[other], -frequencies[other], other), default=word)

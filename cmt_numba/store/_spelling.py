"""Correction of misspelt words in queries by the words of stored texts."""

from collections import Counter
from threading import Lock
from typing import Any

import numpy as np

from .._change import uninterrupted
from .._postings import TextIndex
from .._words import Tokenizer, WordList, hash_term, hash_whole_words, whole_words_of

_AT_ONCE = 10_000  # texts to read


class Spelling:
    """The words of the texts in an index. It reads texts at the first query after they were stored.

    - ``unread``: the ids of these texts.
    """

    def __init__(self, ids: np.ndarray) -> None:
        self.unread = [ids]
        self._words, self._lock = WordList(), Lock()  # queries run concurrently

    def correct(self, text: str, index: TextIndex, records: Any, tokenizer: Tokenizer | None) -> Counter[int]:
        """Return the hashed words of a query. Words that no text has are replaced by the nearest word of texts.

        Of equally near words, the one in most texts is chosen. Words without a near word remain.
        """
        words = whole_words_of(text, tokenizer)
        with self._lock:
            self._read(records, tokenizer)
            return hash_whole_words([self._nearest(word, index) for word in words], tokenizer)

    def _read(self, records: Any, tokenizer: Tokenizer | None) -> None:
        while self.unread:
            for first in range(0, self.unread[-1].size, _AT_ONCE):
                texts = records.texts(self.unread[-1][first : first + _AT_ONCE].tolist()).values()
                words = [word for text in texts for word in whole_words_of(text, tokenizer)]
                uninterrupted(self._words.add, words)
            self.unread.pop()

    def _nearest(self, word: str, index: TextIndex) -> str:
        if index.frequency(hash_term(word)) > 0:
            return word
        near = ((edits, -index.frequency(hash_term(other)), other) for edits, other in self._words.near(word))
        return min((one for one in near if one[1] < 0), default=(0, 0, word))[2]

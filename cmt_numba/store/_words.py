"""Words of texts, hashed to 31 bits, so that a vocabulary need not be kept."""

from __future__ import annotations

import re
from collections import Counter
from typing import NamedTuple
from zlib import crc32

import numpy as np

_ALONE = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2600-\u27bf\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_ALONE += "\U0001f000-\U0001faff\U00020000-\U0003ffff"  # emoji and characters of scripts without spaces: words
_WORD = re.compile(f"[{_ALONE}]|(?:[^\\W_{_ALONE}]|[\u0300-\u036f\u0900-\u0dff])+")
_MASK = 2**31 - 1


class WordCounts(NamedTuple):
    """The words of texts: row ``i`` has the cells ``offsets[i]:offsets[i + 1]``."""

    offsets: np.ndarray  # int64
    words: np.ndarray  # int32, ascending in each row
    counts: np.ndarray  # float32


def hash_words(text: str) -> Counter[int]:
    """Return the hash of each word of a text, with the number of its occurrences."""
    return Counter([crc32(word.encode()) & _MASK for word in _WORD.findall(text.lower())])


def count_words(texts: list[str | None]) -> WordCounts:
    """Return the words of texts. None has no words."""
    words: list[int] = []
    counts: list[int] = []
    offsets = np.zeros(len(texts) + 1, np.int64)
    for i, text in enumerate(texts):
        if text is not None:
            found = hash_words(text)
            words += sorted(found)
            counts += [found[word] for word in words[offsets[i] :]]
        offsets[i + 1] = len(words)
    return WordCounts(offsets, np.array(words, np.int32), np.array(counts, np.float32))

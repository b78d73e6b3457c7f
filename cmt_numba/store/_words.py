"""Words of texts, hashed to 31 bits, so that a vocabulary need not be kept."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any
from zlib import crc32

import numpy as np
import scipy.sparse

from .._forest import require

_ALONE = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2600-\u27bf\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_ALONE += "\U0001f000-\U0001faff\U00020000-\U0003ffff"  # emoji and characters of scripts without spaces: words
_WORD = re.compile(f"[{_ALONE}]|(?:[^\\W_{_ALONE}]|[\u0300-\u036f\u0900-\u0dff])+")

_ASCII_WORD = re.compile("[a-z0-9]+")  # what _WORD finds in lower-case ASCII, three times as fast
N_WORDS = 2**31 - 1  # number of hashes


def has_words(text: str) -> bool:
    """Return whether a text contains a word."""
    return _WORD.search(text) is not None


def hash_words(text: str) -> Counter[int]:
    """Return the hash of each word of a text, with the number of its occurrences."""
    words = (_ASCII_WORD if text.isascii() else _WORD).findall(text.lower())
    return Counter([crc32(word.encode()) % N_WORDS for word in words])


def count_words(texts: Sequence[str | None]) -> Any:
    """Return the words of texts, with their numbers: a canonical CSR array of float32. None has no words."""
    words: list[int] = []
    counts: list[int] = []
    offsets = np.zeros(len(texts) + 1, np.int32)
    for i, text in enumerate(texts):
        if text is not None:
            found = hash_words(text)
            own = sorted(found)
            words += own
            counts += [found[word] for word in own]
        offsets[i + 1] = len(words)
    return words_of(offsets, np.array(words, np.int32), np.array(counts, np.float32))


def words_of(offsets: np.ndarray, words: np.ndarray, counts: np.ndarray) -> Any:
    """Return words as a CSR array."""
    return scipy.sparse.csr_array((counts, words, offsets), (offsets.size - 1, N_WORDS))


def check_words(words: Any, n: int) -> None:
    """Raise InvariantError unless these are the words of ``n`` texts."""
    is_csr = scipy.sparse.issparse(words) and words.format == "csr" and words.shape == (n, N_WORDS)
    require(is_csr and words.dtype == np.float32, "there must be words for each text")
    row = np.repeat(np.arange(n), np.diff(words.indptr))
    ascends = (np.diff(words.indices.astype(np.int64)) > 0) | (np.diff(row) > 0)
    require(ascends.all() and (words.indices >= 0).all(), "words must ascend")
    counts = words.data
    require(((counts >= 1.0) & (counts < 2.0**24) & (counts == np.floor(counts))).all(), "counts must be whole")

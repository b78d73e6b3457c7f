"""Words of texts as rows of hashes, so that a vocabulary need not be kept."""

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import scipy.sparse

from .._kernels import require
from .plain import number_plain_terms
from .splitting import split_words
from .terms import N_WORDS, hash_term, hashes_of, hashes_of_texts
from .tokenizers import Tokenizer, words_by

_TEXTS_AT_ONCE = 256
_MANY = 32  # number of texts from which on a kernel for plain ones is worth its compilation


def _hashes_of(text: str, tokenizer: Tokenizer | None) -> list[int]:
    return hashes_of(split_words(text)) if tokenizer is None else list(map(hash_term, words_by(tokenizer, text)))


def hash_words(text: str, tokenizer: Tokenizer | None = None) -> Counter[int]:
    """Return the hash of each term of a text, with the number of its occurrences.

    The terms are those of :func:`terms_of`, or the words of a tokenizer.
    """
    return Counter(_hashes_of(text, tokenizer))


def hash_whole_words(words: list[str], tokenizer: Tokenizer | None = None) -> Counter[int]:
    """Return the result of :func:`hash_words` for a text with these :func:`whole_words_of`."""
    return Counter(hashes_of(list(filter(None, words))) if tokenizer is None else map(hash_term, words))


def count_words(texts: Sequence[str | None], tokenizer: Tokenizer | None = None) -> Any:
    """Return the words of texts, with their numbers: a canonical CSR array of float32. None has no words."""
    numbers = [np.empty(0, np.int64)]  # those of texts, followed by the hashes of their words
    for first in range(0, len(texts), _TEXTS_AT_ONCE):
        some = texts[first : first + _TEXTS_AT_ONCE]
        if tokenizer is None:
            found = _number_terms(some)
        else:
            hashes = [[] if text is None else _hashes_of(text, tokenizer) for text in some]
            row = np.repeat(np.arange(len(some)), list(map(len, hashes)))
            found = [row << 32 | np.array(list(chain.from_iterable(hashes)), np.int64)]
        numbers += [(first << 32) + some_numbers for some_numbers in found]
    ordered = np.sort(np.concatenate(numbers))
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    cells, counts = ordered[starts], np.diff(starts, append=ordered.size)
    offsets = cells.searchsorted(np.arange(len(texts) + 1) << 32).astype(np.int32)
    return rows_of_hashes(offsets, cells.astype(np.uint32).astype(np.int32), counts.astype(np.float32))


def _number_terms(texts: Sequence[str | None]) -> list[np.ndarray]:
    """Return the position of a text, shifted by 32 bits, and the hash of each term as numbers, in parts."""
    found, rest = [], list(range(len(texts)))
    if len(texts) >= _MANY:
        numbers, are_plain = number_plain_terms(["" if text is None else text for text in texts])
        found, rest = [numbers], np.flatnonzero(~are_plain).tolist()
    row, words = hashes_of_texts([split_words(texts[i] or "") for i in rest])
    return [*found, np.array(rest, np.int64)[row] << 32 | words]


def rows_of_hashes(offsets: np.ndarray, words: np.ndarray, counts: np.ndarray) -> Any:
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

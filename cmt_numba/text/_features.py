"""Texts as features that have vectors: words, the n-grams of their characters, and n-grams of words."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.utils import murmurhash3_32

from ._vocabulary import Corpus, Vocabulary

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)


class TextFeatures:
    """The features that have come in training, and their rows.

    Parameters
    ----------
    vocabulary : Vocabulary
        The words, and parts of words.
    length : int
        Greatest number of words of an n-gram; 1 for none.
    n_buckets : int
        Number of values of the hash of n-grams of words.
    """

    def __init__(self, vocabulary: Vocabulary, length: int, n_buckets: int) -> None:
        self.vocabulary, self.length, self.n_buckets = vocabulary, length, n_buckets
        self.grams = np.zeros(0, np.int64)  # values of the hash that have a row, in ascending order

    @property
    def n_rows(self) -> int:
        """How many features there are: parts of words, and then n-grams of words."""
        return self.vocabulary.n_parts + self.grams.size

    def learn(self, corpus: Corpus, min_count: int) -> None:
        """Give rows to the features of texts: words that come ``min_count`` times, and n-grams of words."""
        known, counts = self.vocabulary, corpus.counts()
        often = [(-count, word) for word, count in zip(corpus.id_of, counts.tolist(), strict=True)]
        known.add([word for n, word in sorted(often) if -n >= min_count and word not in known.id_of], 0)
        if self.length > 1:
            self.grams = np.unique(self._grams(corpus)[0])

    def counts(self, corpus: Corpus) -> Any:
        """Return how often each text has each feature, without those that have no row: CSR of float32."""
        tokens, starts = corpus.encoded(corpus.id_of)
        of_words = [self.vocabulary.rows_of(word).tolist() for word in corpus.id_of]
        sizes = np.array([len(rows) for rows in of_words], np.int64)
        flat = np.fromiter(chain.from_iterable(of_words), np.int32, int(sizes.sum()))
        parts = _ones(flat, np.concatenate([[0], np.cumsum(sizes)]), (sizes.size, self.n_rows))
        words = _ones(tokens, starts, (starts.size - 1, sizes.size))
        words.sum_duplicates()
        grams, texts = self._grams(corpus)
        at = np.searchsorted(self.grams, grams)
        there = at < self.grams.size
        there[there] = self.grams[at[there]] == grams[there]
        pairs = (texts[there], self.vocabulary.n_parts + at[there])
        counts = words @ parts
        if there.any():
            counts += scipy.sparse.csr_array((np.ones(pairs[0].size, np.float32), pairs), counts.shape)
        return counts

    def idf(self, counts: Any) -> np.ndarray:
        """Return the inverse document frequency of each feature, from how often texts have it."""
        n_texts = np.bincount(counts.indices, minlength=self.n_rows)
        idf: np.ndarray = np.log((1.0 + counts.shape[0]) / (1.0 + n_texts)) + 1.0
        return idf.astype(np.float32)

    def _grams(self, corpus: Corpus) -> tuple[np.ndarray, np.ndarray]:
        """Return the hash of each n-gram of words, and its text."""
        tokens, starts = corpus.encoded(corpus.id_of)
        texts = np.repeat(np.arange(starts.size - 1), np.diff(starts))
        hashes = np.array([murmurhash3_32(word, positive=True) for word in corpus.id_of], np.uint64)
        of_token = hashes[tokens] if tokens.size else np.zeros(0, np.uint64)
        grams, owners, hashed = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], of_token
        for n in range(2, min(self.length, tokens.size) + 1):
            mixed = hashed[:-1] * _MULTIPLIER
            hashed = (mixed ^ (mixed >> _SHIFT)) + of_token[n - 1 :]
            inside = texts[: hashed.size] == texts[n - 1 :]
            final = hashed[inside] * _MULTIPLIER
            grams.append(((final ^ (final >> _SHIFT)) % np.uint64(self.n_buckets)).astype(np.int64))
            owners.append(texts[n - 1 :][inside])
        return np.concatenate(grams), np.concatenate(owners)


def _ones(indices: np.ndarray, starts: np.ndarray, shape: tuple[int, int]) -> Any:
    return scipy.sparse.csr_array((np.ones(indices.size, np.float32), indices, starts), shape)

"""Words, how often they come, and the parts that their vectors are made of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from sklearn.utils import murmurhash3_32

from ._skipgram import Words

_SMOOTHED = 0.5  # exponent of the frequencies that negatives are drawn by


class Vocabulary:
    """The words that have vectors, in the order in which they came to have them, and the parts of words.

    Parameters
    ----------
    lengths : tuple of int
        Least and greatest number of characters of an n-gram; none are used if the greatest is 0.
    n_buckets : int
        Number of values of the hash of n-grams. Those with the same value share a vector.
    """

    def __init__(self, lengths: tuple[int, int], n_buckets: int) -> None:
        self.lengths, self.n_buckets = lengths, n_buckets
        self.words: list[str] = []
        self.id_of: dict[str, int] = {}
        self.counts = np.zeros(0, np.int64)
        self.n_parts = 0
        self.row_of_bucket: dict[int, int] = {}
        self.word_rows: list[int] = []  # of words themselves
        self.starts = np.zeros(1, np.int64)
        self.parts = np.zeros(0, np.int32)

    def __len__(self) -> int:
        return len(self.words)

    def add(self, words: list[str], n_whole: int) -> None:
        """Add words, of which the first ``n_whole`` have no n-grams. Their counts are 0 still."""
        lists: list[list[int]] = []
        for place, word in enumerate(words):
            self.id_of[word] = len(self.words)
            self.words.append(word)
            self.word_rows.append(self.n_parts)
            rows = [self.n_parts]
            self.n_parts += 1
            for bucket in () if place < n_whole else self.buckets(word):
                row = self.row_of_bucket.setdefault(bucket, self.n_parts)
                self.n_parts += row == self.n_parts
                rows.append(row)
            lists.append(rows)
        sizes = np.array([len(rows) for rows in lists], np.int64)
        self.starts = np.concatenate([self.starts, self.starts[-1] + np.cumsum(sizes)])
        self.parts = np.concatenate([self.parts, *(np.array(rows, np.int32) for rows in lists)])
        self.counts = np.concatenate([self.counts, np.zeros(len(words), np.int64)])

    def buckets(self, word: str) -> Iterator[int]:
        """Yield the hash of each n-gram of a word, with marks of its beginning and end.

        A word short enough is one of its own n-grams, so that what is its own counts for more.
        """
        least, greatest = self.lengths
        marked = f"<{word}>"
        for length in range(least, min(greatest, len(marked)) + 1):
            for first in range(len(marked) - length + 1):
                yield murmurhash3_32(marked[first : first + length], positive=True) % self.n_buckets

    def rows_of(self, word: str) -> np.ndarray:
        """Return the rows of the parts of any word; of one without a vector those n-grams that are known."""
        known = self.id_of.get(word)
        if known is not None:
            return self.parts[self.starts[known] : self.starts[known + 1]]
        rows = (self.row_of_bucket.get(bucket) for bucket in self.buckets(word))
        return np.array([row for row in rows if row is not None], np.int32)

    def for_kernels(self, subsample: float) -> Words:
        """Return what kernels read. Words are kept by the square root of ``subsample`` over their frequency."""
        shares, aliases = alias_table(self.counts**_SMOOTHED)
        frequencies = self.counts / max(1, self.counts.sum())
        with np.errstate(divide="ignore"):
            ratio = subsample / frequencies if subsample > 0.0 else np.full(len(self), np.inf)
        kept = np.where(np.isfinite(ratio), np.sqrt(ratio) + ratio, 1.0).astype(np.float32)
        return Words(self.starts, self.parts, kept, shares, aliases)


def alias_table(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the probabilities and aliases by which cells drawn uniformly become indices drawn by weight."""
    n = weights.size
    scaled = (weights * (n / weights.sum())).tolist() if n and weights.sum() > 0 else [1.0] * n
    aliases = list(range(n))
    small = [i for i in range(n) if scaled[i] < 1.0]
    large = [i for i in range(n) if scaled[i] >= 1.0]
    while small and large:
        less, more = small.pop(), large[-1]
        aliases[less] = more
        scaled[more] -= 1.0 - scaled[less]
        if scaled[more] < 1.0:
            small.append(large.pop())
    for i in (*small, *large):  # what is left differs from 1 by rounding only
        scaled[i] = 1.0
    return np.array(scaled, np.float32), np.array(aliases, np.int32)


class Corpus:
    """Texts as numbers of words, in the order in which words first came."""

    def __init__(self) -> None:
        self.id_of: dict[str, int] = {}
        self._blocks: list[np.ndarray] = []
        self._sizes: list[int] = []

    def add(self, texts: Iterable[list[str]]) -> None:
        """Add texts, as lists of words."""
        ids: list[int] = []
        id_of = self.id_of
        for words in texts:
            ids.extend([id_of.setdefault(word, len(id_of)) for word in words])
            self._sizes.append(len(words))
            if len(ids) > 1_000_000:
                self._blocks.append(np.array(ids, np.int32))
                ids = []
        self._blocks.append(np.array(ids, np.int32))

    def counts(self) -> np.ndarray:
        """Return how often each word comes."""
        return np.bincount(self._tokens(), minlength=len(self.id_of))

    def _tokens(self) -> np.ndarray:
        self._blocks = [np.concatenate(self._blocks)] if self._blocks else [np.zeros(0, np.int32)]
        return self._blocks[0]

    def encoded(self, id_of: dict[str, int]) -> tuple[np.ndarray, np.ndarray]:
        """Return the texts in other numbers, without words that have none: int32 tokens, and where texts begin."""
        new = np.array([id_of.get(word, -1) for word in self.id_of], np.int32)
        tokens = self._tokens()
        tokens = new[tokens] if tokens.size else tokens
        ends = np.cumsum(np.concatenate([[0], self._sizes])).astype(np.int64)
        there = tokens >= 0
        starts = np.concatenate([[0], np.cumsum(there)])[ends]
        return tokens[there], starts

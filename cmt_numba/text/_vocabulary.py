"""Vocabularies of words and n-grams, and the text features that have vectors."""

from collections.abc import Iterable, Iterator
from itertools import chain
from types import SimpleNamespace
from typing import Any, Self

import numpy as np
import scipy.sparse
from sklearn.utils import murmurhash3_32

from .. import persistence as files
from .._kernels import require
from ._base import MOST
from ._skipgram import Words

_MOST_PARTS = 2**31 - 1
_MULTIPLIER, _SHIFT = np.uint64(0x9E3779B97F4A7C15), np.uint64(29)  # of the hash of word n-grams
_SMOOTHED = 0.5  # negatives are drawn in proportion to word counts raised to this power


class Vocabulary(files.WithFields):
    """Words and character n-grams, and the rows of their vectors.

    The *parts* of a word are the word itself and its n-grams. Words are numbered in order of arrival.

    - ``lengths``: minimum and maximum length of an n-gram, in characters. If the maximum is 0, there are no n-grams.
    - ``n_buckets``: number of hash buckets. N-grams in the same bucket share a vector.
    """

    FIELDS = files.FieldTable(
        **dict.fromkeys(("min_n", "max_n"), files.NumberField(0, 100)),
        n_buckets=files.NumberField(1, _MOST_PARTS),
        words=files.TextsField(are_distinct=True),
        counts=files.ArrayField(np.int64, bounds=(0, MOST)),
        n_parts=files.NumberField(0, _MOST_PARTS),
        **dict.fromkeys(("buckets", "bucket_rows", "starts"), files.ArrayField(np.int64)),
        parts=files.ArrayField(np.int32),
    )

    def __init__(self, lengths: tuple[int, int], n_buckets: int) -> None:
        self.lengths, self.n_buckets = lengths, n_buckets
        self.words: list[str] = []
        self.id_of: dict[str, int] = {}
        self.counts = np.zeros(0, np.int64)
        self.n_parts = 0
        self.row_of_bucket: dict[int, int] = {}
        self.starts = np.zeros(1, np.int64)
        self.parts = np.zeros(0, np.int32)

    def __len__(self) -> int:
        return len(self.words)

    def add(self, words: list[str], n_whole: int) -> None:
        """Add words with counts of 0. The first ``n_whole`` have no n-grams."""
        lists: list[list[int]] = []
        for place, word in enumerate(words):
            self.id_of[word] = len(self.words)
            self.words.append(word)
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
        """Yield the bucket of each n-gram of a word. The word is enclosed in ``<`` and ``>`` first."""
        least, greatest = self.lengths
        marked = f"<{word}>"
        for length in range(least, min(greatest, len(marked)) + 1):
            for first in range(len(marked) - length + 1):
                yield murmurhash3_32(marked[first : first + length], positive=True) % self.n_buckets

    def rows_of(self, word: str) -> np.ndarray:
        """Return the rows for a word and its n-grams or, if the word is unknown, for its known n-grams."""
        place = self.id_of.get(word)
        if place is not None:
            return self.parts[self.starts[place] : self.starts[place + 1]]
        rows = (self.row_of_bucket.get(bucket) for bucket in self.buckets(word))
        return np.array([row for row in rows if row is not None], np.int32)

    def for_kernels(self, subsample: float) -> Words:
        """Return the arrays that kernels read. Words more frequent than ``subsample`` are skipped at random."""
        shares, aliases = alias_table(self.counts**_SMOOTHED)
        frequencies = self.counts / max(1, self.counts.sum())
        with np.errstate(divide="ignore"):
            ratio = subsample / frequencies if subsample > 0.0 else np.full(len(self), np.inf)
        kept = np.where(np.isfinite(ratio), np.sqrt(ratio) + ratio, 1.0).astype(np.float32)
        return Words(self.starts, self.parts, kept, shares, aliases)

    # Files

    def _packed(self) -> Any:
        least, greatest = self.lengths
        rows = {"buckets": list(self.row_of_bucket), "bucket_rows": list(self.row_of_bucket.values())}
        return SimpleNamespace(**vars(self), **rows, min_n=least, max_n=greatest)

    @classmethod
    def _of_fields(cls, values: dict[str, Any]) -> Self:
        vocabulary = cls((values.pop("min_n"), values.pop("max_n")), values["n_buckets"])
        buckets, bucket_rows = values.pop("buckets"), values.pop("bucket_rows")
        vars(vocabulary).update(values)
        n, starts, parts = len(vocabulary), vocabulary.starts, vocabulary.parts
        require(vocabulary.counts.shape == (n,), "each word must have a count")
        sound = starts.shape == (n + 1,) and starts[0] == 0 and starts[-1] == parts.size
        require(sound and np.all(np.diff(starts) > 0), "each word must have parts")
        require(buckets.size == bucket_rows.size == np.unique(buckets).size, "buckets must be distinct")
        for rows in (bucket_rows, parts):
            require(np.all((rows >= 0) & (rows < vocabulary.n_parts)), "all parts must have vectors")
        vocabulary.id_of = {word: i for i, word in enumerate(vocabulary.words)}
        vocabulary.row_of_bucket = dict(zip(buckets.tolist(), bucket_rows.tolist(), strict=True))
        return vocabulary


def alias_table(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Build an alias table, which draws indices in proportion to their weights (Walker, 1977)."""
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
    for i in (*small, *large):  # these differ from 1 only by rounding errors
        scaled[i] = 1.0
    return np.array(scaled, np.float32), np.array(aliases, np.int32)


class Corpus:
    """Texts as sequences of word ids. Ids follow the order of first occurrence."""

    def __init__(self) -> None:
        self.id_of: dict[str, int] = {}
        self._blocks: list[np.ndarray] = []
        self._sizes: list[int] = []

    def add(self, texts: Iterable[list[str]]) -> None:
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
        """Return the number of occurrences of each word."""
        return np.bincount(self._tokens(), minlength=len(self.id_of))

    def _tokens(self) -> np.ndarray:
        self._blocks = [np.concatenate(self._blocks)] if self._blocks else [np.zeros(0, np.int32)]
        return self._blocks[0]

    def encoded(self, id_of: dict[str, int]) -> tuple[np.ndarray, np.ndarray]:
        """Return the word ids in another numbering, without unknown words, and the bounds of the texts."""
        new = np.array([id_of.get(word, -1) for word in self.id_of], np.int32)
        tokens = self._tokens()
        tokens = new[tokens] if tokens.size else tokens
        ends = np.cumsum(np.concatenate([[0], self._sizes])).astype(np.int64)
        there = tokens >= 0
        starts = np.concatenate([[0], np.cumsum(there)])[ends]
        return tokens[there], starts


class TextFeatures(files.WithFields):
    """The features of texts (words, character n-grams and word n-grams), with the row of each feature's vector."""

    FIELDS = files.FieldTable(
        vocabulary=files.PartField(Vocabulary),  # words and character n-grams
        length=files.NumberField(0, 100),  # maximum number of words in a word n-gram; 1 for no word n-grams
        n_buckets=files.NumberField(1, _MOST_PARTS),  # number of hash buckets for word n-grams
        grams=files.ArrayField(np.int64),
    )

    def __init__(self, vocabulary: Vocabulary, length: int, n_buckets: int) -> None:
        self.vocabulary, self.length, self.n_buckets = vocabulary, length, n_buckets
        self.grams = np.zeros(0, np.int64)  # hash buckets that have a row, ascending

    @property
    def n_rows(self) -> int:
        """Number of rows: word parts, followed by word n-grams."""
        return self.vocabulary.n_parts + self.grams.size

    def learn(self, corpus: Corpus, min_count: int) -> None:
        """Assign rows to the features of texts. A word needs ``min_count`` occurrences to get a row."""
        vocabulary, counts = self.vocabulary, corpus.counts()
        often = [(-count, word) for word, count in zip(corpus.id_of, counts.tolist(), strict=True)]
        vocabulary.add([word for n, word in sorted(often) if -n >= min_count and word not in vocabulary.id_of], 0)
        if self.length > 1:
            self.grams = np.unique(self._grams(corpus)[0])

    def counts(self, corpus: Corpus) -> Any:
        """Count the known features in each text: CSR of float32, shape (n_texts, n_rows)."""
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
        """Return the inverse document frequency of each feature."""
        n_texts = np.bincount(counts.indices, minlength=self.n_rows)
        idf: np.ndarray = np.log((1.0 + counts.shape[0]) / (1.0 + n_texts)) + 1.0
        return idf.astype(np.float32)

    def _grams(self, corpus: Corpus) -> tuple[np.ndarray, np.ndarray]:
        """Return the hash of each word n-gram, and the position of its text."""
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

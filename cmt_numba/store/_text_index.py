"""``TextIndex``: stores the words of texts and finds those that match queries best, by BM25, exactly.

Most texts are in an inverted index. Texts that were added later are compared with every query, until there are enough
of them to build the inverted index again. Removed texts are skipped, and dropped at a later build. Document frequencies
and the mean length are those of the stored texts at the time of the query.
"""

from collections import Counter
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple, Self

import numpy as np

from .._arrays import SlotTable
from .._change import share_rows
from .._forest import NONE, require, resized
from .._jit import held
from .._words import check_words, idf_of, query_weight, rows_of_hashes, saturation_of
from ..persistence import ArrayField, FieldTable, WithFields
from ._text_search import StoredWords, WeighedWords, WordPostings, score_texts, search_texts

_MOST_RECENT = 256  # number of texts compared with every query before they are in the inverted index,
_RECENT_SHARE = 1 / 16  # or their fraction of the other texts, if that is more
_FEW = 1 / 64  # up to this fraction of the texts, allowed texts are compared
_NO_MASK = np.empty(0, np.bool_)


class WordStatistics(NamedTuple):
    """The statistics of texts by which BM25 weighs words."""

    n_texts: int
    length: float  # total number of words
    frequencies: Mapping[int, int]  # the number of texts with each word

    def of(self, words: list[int]) -> "WordStatistics":
        """Return the statistics with the frequencies of these words only."""
        return self._replace(frequencies={word: self.frequencies.get(word, 0) for word in words})

    def __or__(self, other: "WordStatistics") -> "WordStatistics":
        """Return the statistics of these texts and of other texts, for the same words."""
        frequencies = {word: n + other.frequencies[word] for word, n in self.frequencies.items()}
        return WordStatistics(self.n_texts + other.n_texts, self.length + other.length, frequencies)


class AllowedTexts(NamedTuple):
    """The result of :meth:`TextIndex.allow`."""

    slots: np.ndarray  # int64, ascending
    mask: np.ndarray  # bool, one entry per slot


class TextIndex(WithFields):
    """An index of texts by id. The caller provides the lock: searches may run concurrently, changes may not."""

    FIELDS = FieldTable(
        offsets=ArrayField(np.int64),
        words=ArrayField(np.int32),
        counts=ArrayField(np.float32),
        ids=ArrayField(np.int64),
    )

    def __init__(self) -> None:
        self.n_texts = self._n_slots = self._n_gone = self._n_listed = 0
        empty = np.empty(0, np.float32)
        self._stored = StoredWords(np.zeros(1, np.int64), np.empty(0, np.int32), empty, empty, np.empty(0, np.int64))
        self._slots = SlotTable()
        self._frequencies: dict[int, int] = {}  # the number of texts with each word
        self._length = 0.0  # the total length of all texts
        self.spelling: Any = None  # the words of texts, after the first query that corrects words
        self._hold(
            WordPostings(np.empty(0, np.int32), np.zeros(1, np.int64), np.empty(0, np.int32), empty, empty, empty)
        )

    def _hold(self, postings: WordPostings) -> None:
        self._postings = postings
        self._held = held(self._stored), held(postings)

    @property
    def ids(self) -> np.ndarray:
        """The ids of all texts, in no particular order."""
        ids = self._stored.ids[: self._n_slots]
        return ids[ids != NONE]

    def contains(self, ids: np.ndarray) -> np.ndarray:
        """Return whether each id has a text."""
        return self._slots.find(ids) != NONE

    def words(self, ids: np.ndarray) -> Any:
        """Return the words of texts as a CSR array. An id without a text has none."""
        return self._words(self._slots.find(ids))

    def _words(self, slots: np.ndarray) -> Any:
        stored, there = self._stored, slots != NONE
        first = np.where(there, stored.offsets[slots], 0)
        sizes = np.where(there, stored.offsets[slots + 1], 0) - first
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        cells = np.arange(offsets[-1]) + np.repeat(first - offsets[:-1], sizes)
        return rows_of_hashes(offsets, stored.words[cells], stored.counts[cells])

    # Changes

    def insert(self, ids: np.ndarray, words: Any) -> None:
        """Store the rows of a CSR array. Rows without words are ignored; the ids of the others must not have a text."""
        sizes = np.diff(words.indptr)
        if words.data.size == 0:
            return
        n, stop = self._n_slots, self._n_slots + int(np.count_nonzero(sizes))
        n_cells = int(self._stored.offsets[n])
        lengths = np.add.reduceat(words.data, words.indptr[:-1][sizes > 0])
        columns = [words.indices, words.data, lengths, ids[sizes > 0]]
        grown = [_extended(self._stored.offsets, n + 1, n_cells + words.indptr[1:][sizes > 0])]
        for array, used, new in zip(self._stored[1:], (n_cells, n_cells, n, n), columns, strict=True):
            grown.append(_extended(array, used, new))
        self._count(words.indices, 1, lengths)
        self._slots.set(columns[3], np.arange(n, stop))
        self._stored, self._n_slots = StoredWords(*grown), stop
        if self.spelling is not None:
            self.spelling.unread.append(columns[3])
        self._hold(self._postings)
        self._build_if_due()

    def remove(self, ids: np.ndarray) -> None:
        """Remove the texts of distinct ids. Ids without a text are ignored."""
        ids = ids[self.contains(ids)]
        if ids.size == 0:
            return
        slots = self._slots.find(ids)
        self._count(self._words(slots).indices, -1, self._stored.lengths[slots])
        self._stored.ids[slots] = NONE
        self._slots.set(ids, NONE)
        self._n_gone += ids.size
        self._build_if_due()

    def _count(self, words: np.ndarray, sign: int, lengths: np.ndarray) -> None:
        self.n_texts += sign * lengths.size
        self._length = max(0.0, self._length + sign * float(lengths.sum(dtype=np.float64)))
        frequencies = self._frequencies
        for word, n in Counter(words.tolist()).items():
            now = frequencies.get(word, 0) + sign * n
            if now > 0:
                frequencies[word] = now
            else:
                del frequencies[word]

    def _build_if_due(self) -> None:
        """Drop removed texts and build the inverted index if too many texts are not in it."""
        n_recent = self._n_slots - self._n_listed
        is_sparse = 2 * self._n_gone > self._n_slots > _MOST_RECENT
        if n_recent <= max(_MOST_RECENT, _RECENT_SHARE * self._n_listed) and not is_sparse:
            return
        if self._n_gone > 0:
            kept = np.flatnonzero(self._stored.ids[: self._n_slots] != NONE)
            X, lengths, ids = self._words(kept), self._stored.lengths[kept], self._stored.ids[kept]
            words = X.indices.astype(np.int32, copy=False)  # SciPy may choose int64
            self._stored = StoredWords(X.indptr.astype(np.int64), words, X.data, lengths, ids)
            self._slots.keep(self._stored.ids, np.arange(kept.size))
            self._n_slots, self._n_gone = kept.size, 0
        offsets = self._stored.offsets[: self._n_slots + 1]
        words = self._stored.words[: offsets[-1]]
        order = np.argsort(words, kind="stable")
        slots = np.repeat(np.arange(self._n_slots, dtype=np.int32), np.diff(offsets))[order]
        ordered = words[order]
        starts = np.concatenate([[0], np.flatnonzero(np.diff(ordered)) + 1])
        self._n_listed = self._n_slots
        if order.size == 0:
            self._hold(TextIndex()._postings)
            return
        counts = self._stored.counts[order]
        bounds = np.maximum.reduceat(counts, starts), np.minimum.reduceat(self._stored.lengths[slots], starts)
        self._hold(WordPostings(ordered[starts], np.append(starts, order.size), slots, counts, *bounds))

    # Searches

    def allow(self, ids: np.ndarray) -> AllowedTexts:
        """Return the set of texts that a search may return, until the next change. Ids without a text are ignored."""
        slots, mask = self._slots.find(ids), np.zeros(self._n_slots, np.bool_)
        slots = np.sort(slots[slots != NONE])
        mask[slots] = True
        return AllowedTexts(slots, mask)

    def allows(self, among: AllowedTexts, ids: np.ndarray) -> np.ndarray:
        """Return whether a search may return each id. Ids without a text are not allowed."""
        slots = self._slots.find(ids)
        return (slots != NONE) & among.mask[slots]

    def frequency(self, word: int) -> int:
        """Return the number of texts with a word."""
        return self._frequencies.get(word, 0)

    @property
    def statistics(self) -> WordStatistics:
        """The statistics of all texts, valid until the next change."""
        return WordStatistics(self.n_texts, self._length, self._frequencies)

    def weigh(self, words: Counter[int], statistics: WordStatistics | None = None) -> WeighedWords:
        """Return the words of a query with their weights, by the statistics of these texts or of a larger set."""
        n, length, known = statistics or self.statistics
        ordered = sorted((known.get(word, 0), word, repeats) for word, repeats in words.items())
        weights = [idf_of(n, frequency) * query_weight(repeats) for frequency, _, repeats in ordered]
        found = np.array([word for _, word, _ in ordered], np.int32)
        return WeighedWords(found, np.array(weights, np.float32), np.array(saturation_of(n, length), np.float32))

    def search(
        self, queries: list[WeighedWords], k: int, among: AllowedTexts | None = None, n_threads: int = 1
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids and the float64 scores of the ``k`` best texts that share a word with each query.

        Equal scores are sorted by id. Ids are -1 and scores minus infinity if there are fewer texts.
        """
        ids, scores = np.empty((len(queries), k), np.int64), np.empty((len(queries), k))
        stored, postings = self._held
        n_listed, mask = self._n_listed, _NO_MASK if among is None else among.mask

        def search(first: int, stop: int) -> None:
            for row in range(first, stop):
                if among is not None and among.slots.size <= _FEW * self._n_slots:
                    found = np.empty(among.slots.size)
                    score_texts(stored, queries[row], among.slots, found)
                    ids[row], scores[row] = _best(found, self._stored.ids[among.slots], k)
                else:
                    arguments = n_listed, queries[row], mask, ids[row], scores[row]
                    search_texts(stored, self._n_slots, postings, *arguments)

        share_rows(search, len(queries), n_threads)
        return ids, scores

    def scores(self, queries: list[WeighedWords], ids: np.ndarray) -> np.ndarray:
        """Return the float64 scores of ids for each query, arrays of shape (n, m); 0 for an id without a text."""
        scores = np.empty(ids.shape)
        for row, query in enumerate(queries):
            score_texts(self._held[0], query, self._slots.find(ids[row]), scores[row])
        return scores

    # Files

    def _packed(self) -> Any:
        kept = np.flatnonzero(self._stored.ids[: self._n_slots] != NONE)
        X = self._words(kept)
        return SimpleNamespace(offsets=X.indptr, words=X.indices, counts=X.data, ids=self._stored.ids[kept])

    @classmethod
    def _of_fields(cls, values: dict[str, Any]) -> Self:
        offsets, words, counts, ids = (values[name] for name in ("offsets", "words", "counts", "ids"))
        require(offsets.shape == (ids.size + 1,) and words.size == counts.size, "there must be words for each text")
        require(offsets[0] == 0 and offsets[-1] == words.size, "offsets must fit")
        require((np.diff(offsets) > 0).all(), "each text must have words")
        words = rows_of_hashes(offsets, words, counts)
        check_words(words, ids.size)
        require(np.unique(ids).size == ids.size and (ids >= 0).all(), "ids must be distinct")
        index = cls()
        index.insert(ids, words)
        return index

    def check_invariants(self) -> None:
        """Raise InvariantError if the arrays contradict each other."""
        stored = np.flatnonzero(self._stored.ids[: self._n_slots] != NONE)
        require((self._slots.find(self._stored.ids[stored]) == stored).all(), "each id must be stored once")
        require(stored.size == self.n_texts == self._slots.count(), "counts must match")
        words = self._words(stored)
        require(dict(Counter(words.indices.tolist())) == self._frequencies, "frequencies must be those of texts")
        require(abs(self._length - words.data.sum(dtype=np.float64)) < 0.5, "the length must be that of the texts")


def _extended(array: np.ndarray, n: int, new: np.ndarray) -> np.ndarray:
    """Return an array with ``new`` after its first ``n`` entries."""
    stop = n + new.size
    array = array if stop <= array.size else resized(array, max(stop, 2 * array.size), fill=NONE)
    array[n:stop] = new
    return array


def _best(scores: np.ndarray, ids: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    best = np.lexsort((ids, -scores))[:k]
    best = best[scores[best] > 0.0]
    padding = k - best.size
    return (
        np.concatenate([ids[best], np.full(padding, NONE)]),
        np.concatenate([scores[best], np.full(padding, -np.inf)]),
    )

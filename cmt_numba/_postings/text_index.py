"""``TextIndex``: stores the words of texts and finds those that match queries best, by BM25, exactly.

Document frequencies and the mean length are those of the stored texts at the time of the query.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np

from .._change import share_rows
from .._jit import held
from .._kernels import NONE, GrowingColumns, require
from .._words import N_WORDS, check_words, idf_of, query_weight, saturation_of
from .rows import AllowedRows, RowIndex
from .text_search import RUN, TextRoom, WeighedWords, WordPostings, score_texts, search_texts

_FEW = 1 / 64  # up to this fraction of the texts, allowed texts are compared
_NO_MASK = np.empty(0, np.bool_)
_KINDS = (np.int32, np.float32, np.float32, np.float32, np.float32, np.int64)
_NO_POSTINGS = WordPostings(np.empty(0, np.int32), np.zeros(1, np.int64), *(np.empty(0, kind) for kind in _KINDS))


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


class TextIndex(RowIndex):
    """An index of texts by id. The rows are words with their numbers."""

    _most_recent, _recent_share = 64, 1 / 32

    def __init__(self) -> None:
        super().__init__(N_WORDS, np.float32)
        self._frequencies: dict[int, int] = {}  # the number of texts with each word
        self._length = 0.0  # the total length of all texts
        self.spelling: Any = None  # the words of texts, after the first query that corrects words
        self._rooms: list[Any] = []  # unused buffers for searches
        self._removed = GrowingColumns(np.empty(0, np.int64))
        self._set_postings(_NO_POSTINGS)

    def _set_postings(self, postings: WordPostings) -> None:
        self._postings = postings
        self._held: tuple[Any, Any] | None = None  # until the first search after a change

    def _held_arrays(self) -> tuple[Any, Any]:
        found = self._held
        if found is None:
            found = self._held = held(self._stored), held(self._postings)
        return found

    # Changes

    def insert(self, ids: np.ndarray, words: Any) -> None:
        """Store the rows of a CSR array. Rows without words are ignored; the ids of the others must not have a text."""
        if words.data.size == 0:
            return
        has_words = np.diff(words.indptr) > 0
        ids, lengths = ids[has_words], np.add.reduceat(words.data, words.indptr[:-1][has_words])
        self._count(words.indices, 1, lengths)
        self._append(ids, words.indptr[1:][has_words], words.indices, words.data, lengths)
        self._set_postings(self._postings)
        if self.spelling is not None:
            self.spelling.unread.append(ids)
        self._list_if_due()

    def remove(self, ids: np.ndarray) -> None:
        """Remove the texts of distinct ids. Ids without a text are ignored."""
        slots = self._slots.find(ids)
        slots = slots[slots != NONE]
        if slots.size > 0:
            self._count(self._stored.features[self._cells(slots)[1]], -1, self._stored.sizes[slots])
            self._drop(slots)
            self._removed = self._removed.appended(slots[slots < self._n_listed])
            self._set_postings(self._postings._replace(removed=self._removed.columns[0]))
            self._list_if_due()

    def _count(self, words: np.ndarray, sign: int, lengths: np.ndarray) -> None:
        """Count the words of texts, or with a ``sign`` of -1 of texts that are removed. Each text has a word once."""
        self._length = max(0.0, self._length + sign * float(lengths.sum(dtype=np.float64)))
        frequencies, counts = self._frequencies, np.ones(words.size, np.int64)
        if lengths.size > 1:
            words, counts = np.unique(words, return_counts=True)
        for word, n in zip(words.tolist(), counts.tolist(), strict=True):
            now = frequencies.get(word, 0) + sign * n
            if now > 0:
                frequencies[word] = now
            else:
                del frequencies[word]

    def _build(self) -> None:
        self._rooms.clear()
        self._removed = GrowingColumns(np.empty(0, np.int64))
        offsets = self._stored.offsets[: self._n_slots + 1]
        words = self._stored.features[: offsets[-1]]
        if words.size == 0:
            self._set_postings(_NO_POSTINGS)
            return
        cells = np.sort(words.astype(np.int64) << 32 | np.arange(words.size))  # faster than a stable argsort
        order = cells & 0xFFFFFFFF
        slots = np.repeat(np.arange(self._n_slots, dtype=np.int32), np.diff(offsets))[order]
        ordered, counts, lengths = words[order], self._stored.values[order], self._stored.sizes[slots]
        starts = np.concatenate([[0], np.flatnonzero(np.diff(ordered)) + 1])
        most, least = np.maximum.reduceat(counts, starts), np.minimum.reduceat(lengths, starts)
        lists = ordered[starts], np.append(starts, order.size), slots, counts, lengths, most, least
        self._set_postings(WordPostings(*lists, self._removed.columns[0]))

    # Searches

    def frequency(self, word: int) -> int:
        """Return the number of texts with a word."""
        return self._frequencies.get(word, 0)

    @property
    def statistics(self) -> WordStatistics:
        """The statistics of all texts, valid until the next change."""
        return WordStatistics(len(self), self._length, self._frequencies)

    def weigh(self, words: Counter[int], statistics: WordStatistics | None = None) -> WeighedWords:
        """Return the words of a query with their weights, by the statistics of these texts or of a larger set."""
        n, length, known = statistics or self.statistics
        ordered = sorted(zip([known.get(word, 0) for word in words], words, words.values(), strict=True))
        weights = [idf_of(n, frequency) * query_weight(repeats) for frequency, _, repeats in ordered]
        found = np.array([word for _, word, _ in ordered], np.int32)
        return WeighedWords(found, np.array(weights, np.float32), np.array(saturation_of(n, length), np.float32))

    def search(
        self, queries: list[WeighedWords], k: int, among: AllowedRows | None = None, n_threads: int = 1
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids and the float64 scores of the ``k`` best texts that share a word with each query.

        Equal scores are sorted by id. Ids are -1 and scores minus infinity if there are fewer texts.
        """
        ids, scores = np.empty((len(queries), k), np.int64), np.empty((len(queries), k))
        stored, postings = self._held_arrays()
        mask = _NO_MASK if among is None else among.mask

        def search(first: int, stop: int) -> None:
            room = self._rooms.pop() if self._rooms else self._new_room()
            for row in range(first, stop):
                if among is not None and among.slots.size <= _FEW * self._n_slots:
                    found = np.empty(among.slots.size)
                    score_texts(stored, queries[row], among.slots, found)
                    ids[row], scores[row] = _best(found, self._stored.ids[among.slots], k)
                else:
                    search_texts(stored, self._n_slots, postings, queries[row], mask, room, ids[row], scores[row])
            self._rooms.append(room)

        share_rows(search, len(queries), n_threads)
        return ids, scores

    def _new_room(self) -> Any:
        n = self._n_listed
        return held(TextRoom(np.zeros(n, np.float32), np.empty(n + 1, np.int32), np.empty(RUN, np.float32)))

    def scores(self, queries: list[WeighedWords], ids: np.ndarray) -> np.ndarray:
        """Return the float64 scores of ids for each query, arrays of shape (n, m); 0 for an id without a text."""
        scores = np.empty(ids.shape)
        for row, query in enumerate(queries):
            score_texts(self._held_arrays()[0], query, self._slots.find(ids[row]), scores[row])
        return scores

    # Files

    @classmethod
    def of_arrays(cls, arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> Self:
        """Return the index with this state. Raise InvariantError if the state is invalid."""
        index = cls()
        ids, words = index._checked_rows(arrays)
        check_words(words, ids.size)
        require((np.diff(words.indptr) > 0).all(), "each text must have words")
        index.insert(ids, words)
        return index

    def check_invariants(self) -> None:
        """Raise InvariantError if the arrays contradict each other."""
        super().check_invariants()
        words = self._rows(self._kept())
        require(dict(Counter(words.indices.tolist())) == self._frequencies, "frequencies must be those of texts")
        require(abs(self._length - words.data.sum(dtype=np.float64)) < 0.5, "the length must be that of the texts")


def _best(scores: np.ndarray, ids: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    best = np.lexsort((ids, -scores))[:k]
    best = best[scores[best] > 0.0]
    padding = k - best.size
    return (
        np.concatenate([ids[best], np.full(padding, NONE)]),
        np.concatenate([scores[best], np.full(padding, -np.inf)]),
    )

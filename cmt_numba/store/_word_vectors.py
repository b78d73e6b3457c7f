"""``WordVectors``: texts as sparse vectors, from whose inner products with queries a feedback model learns."""

from typing import Any

import numpy as np

from .._postings import AllowedRows, TextIndex, WeighedWords
from .._words import K1, N_WORDS, rows_of_hashes, saturation_of, text_weights


def full_scores(queries: list[WeighedWords]) -> np.ndarray:
    """Return the score of a text of mean length with each word of a query once: shape (n, 1)."""
    return np.array([[max(float(query.weights.sum()) / (K1 + 1.0), 1e-30)] for query in queries])


def rows_of_words(queries: list[WeighedWords]) -> Any:
    """Return queries as a CSR array, whose products with :class:`WordVectors` are scores relative to full ones."""
    offsets = np.cumsum([0, *(query.words.size for query in queries)], dtype=np.int32)
    words = np.concatenate([np.empty(0, np.int32), *(query.words for query in queries)])
    weights = np.concatenate([np.empty(0, np.float32), *(query.weights for query in queries)])
    full = np.repeat(full_scores(queries)[:, 0], np.diff(offsets))
    rows = rows_of_hashes(offsets, words, (weights / full).astype(np.float32))
    rows.sort_indices()  # SciPy multiplies other rows in arrays with an entry for each column
    return rows


class WordVectors:
    """A view of a text index with the methods of an index of sparse vectors, without those that change it."""

    n_features, metric = N_WORDS, "words"

    def __init__(self, texts: TextIndex) -> None:
        self._texts = texts
        statistics = texts.statistics
        self._saturation = saturation_of(statistics.n_texts, statistics.length)

    @property
    def ids(self) -> np.ndarray:
        """The ids of all texts, in no particular order."""
        return self._texts.ids

    def contains(self, ids: np.ndarray) -> np.ndarray:
        """Return whether each id has a text."""
        return self._texts.contains(ids)

    def vectors(self, ids: np.ndarray) -> Any:
        """Return the vectors of texts as a CSR array."""
        return self.of_words(self._texts.vectors(ids))

    def of_words(self, words: Any) -> Any:
        """Return the vectors of other texts with these words."""
        weights = text_weights(words, self._saturation).astype(np.float32)
        return rows_of_hashes(words.indptr, words.indices, weights)

    def allows(self, among: AllowedRows, ids: np.ndarray) -> np.ndarray:
        """Return whether a search may return each id."""
        return self._texts.allows(among, ids)

    def search(
        self, Q: Any, k: int, target_recall: float = 1.0, among: AllowedRows | None = None, n_threads: int = 1
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids and scores of the ``k`` best texts that share a word with each query."""
        return self._texts.search(self._weighed(Q), k, among, n_threads)

    def scores(self, Q: Any, ids: np.ndarray) -> np.ndarray:
        """Return the scores of ids for each query, arrays of shape (n, m)."""
        return self._texts.scores(self._weighed(Q), ids)

    def _weighed(self, Q: Any) -> list[WeighedWords]:
        queries, saturation = [], np.array(self._saturation, np.float32)
        for first, stop in zip(Q.indptr[:-1].tolist(), Q.indptr[1:].tolist(), strict=True):
            order = first + np.argsort(-Q.data[first:stop], kind="stable")
            queries.append(WeighedWords(Q.indices[order], Q.data[order], saturation))
        return queries

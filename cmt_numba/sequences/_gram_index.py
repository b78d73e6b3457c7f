"""An index of n-grams, which finds candidates among many or long sequences."""

from typing import Any

import numpy as np
import scipy.sparse

from ..estimators import CMTRetriever
from ._encoding import Sequences

_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # multiplier of Fibonacci hashing
_SHIFT = np.uint64(64)


class GramIndex:
    """A retriever over hashed n-grams. ``ids[i]`` is the sequence of memory ``i``, or -1 after a failed insert."""

    def __init__(self, retriever: CMTRetriever, longest_run: int, n_bits: int, ids: Any = ()) -> None:
        self.retriever, self.ids = retriever, np.asarray(ids, np.int64)
        self._longest_run, self._n_bits = longest_run, n_bits

    def insert(self, sequences: Sequences, ids: np.ndarray) -> None:
        """Insert sequences. Their ids must ascend and exceed all earlier ids."""
        self.retriever.partial_fit(self._keys(sequences))
        known = np.full(self.retriever._model.memories.next_id - ids.size, -1, np.int64)
        known[: self.ids.size] = np.where(self.ids < ids[0], self.ids, -1)  # larger ids are from failed insertions
        self.ids = np.append(known, ids)

    def remove(self, ids: np.ndarray) -> None:
        """Remove sequences by id."""
        self.retriever.remove(self._memories(ids))

    def feedback(self, queries: Sequences, shown: np.ndarray, rewards: Any) -> None:
        """Learn the rewards of sequence ids ``shown``, which are padded with -1."""
        memories = np.where(shown >= 0, self._memories(shown), -1)
        self.retriever.feedback(self._keys(queries), memories, rewards)

    def candidates(self, queries: Sequences, n: int) -> np.ndarray:
        """Return candidate ids for each query, padded with -1: int64, shape (queries, n)."""
        found = self.retriever.query(self._keys(queries), n).ids
        return np.where((found >= 0) & (found < self.ids.size), self.ids[np.minimum(found, self.ids.size - 1)], -1)

    def _memories(self, ids: np.ndarray) -> np.ndarray:
        """Return the retriever's memory of each sequence id."""
        known = np.flatnonzero(self.ids >= 0)
        places = np.searchsorted(self.ids[known], ids)
        return known[np.minimum(places, known.size - 1)]

    def _keys(self, sequences: Sequences) -> scipy.sparse.csr_array:
        return ngram_keys(sequences, self._longest_run, self._n_bits)


def ngram_keys(sequences: Sequences, longest: int, n_bits: int) -> scipy.sparse.csr_array:
    """Return the weighted counts of n-grams of up to ``longest`` symbols.

    An n-gram of ``n`` symbols has weight ``sqrt(n)``. Special symbols mark the ends of sequences. N-grams are hashed to
    ``2**n_bits`` columns of a CSR array.
    """
    lengths = np.diff(sequences.offsets) + 2
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    symbols = np.full(offsets[-1], 1, np.uint64)  # symbol 1 marks the ends of sequences
    inner = np.ones(offsets[-1], bool)
    inner[offsets[:-1]] = inner[offsets[1:] - 1] = False
    symbols[inner] = sequences.symbols.astype(np.uint64) + np.uint64(2)
    owners = np.repeat(np.arange(sequences.n), lengths)
    hashes, rows, columns, weights = np.zeros(offsets[-1], np.uint64), [], [], []
    for n in range(1, longest + 1):
        n_runs = max(0, symbols.size - n + 1)
        hashes = (hashes[:n_runs] + symbols[n - 1 :]) * _FACTOR
        hashes ^= hashes >> np.uint64(29)
        whole = owners[:n_runs] == owners[n - 1 :]
        rows.append(owners[:n_runs][whole])
        columns.append((hashes[whole] >> (_SHIFT - np.uint64(n_bits))).astype(np.int64))
        weights.append(np.full(rows[-1].size, np.sqrt(n), np.float32))
    cells = np.concatenate(weights), (np.concatenate(rows), np.concatenate(columns))
    keys = scipy.sparse.coo_array(cells, (sequences.n, 1 << n_bits)).tocsr()
    keys.sum_duplicates()
    return keys

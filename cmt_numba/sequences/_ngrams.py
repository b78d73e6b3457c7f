"""Sequences as sparse keys: hashed runs of symbols."""

from __future__ import annotations

import numpy as np
import scipy.sparse

from ._encoding import Sequences

_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # of the golden ratio: products of it spread over all bits
_SHIFT = np.uint64(64)


def ngram_keys(sequences: Sequences, longest: int, n_bits: int) -> scipy.sparse.csr_array:
    """Return how often each sequence has each run of 1 to ``longest`` symbols, weighted by the root of its length.

    A symbol before the first and one after the last mark the ends. Runs are hashed to ``2**n_bits`` columns.

    Returns
    -------
    scipy.sparse.csr_array of float32, shape (n, 2**n_bits)
    """
    lengths = np.diff(sequences.offsets) + 2
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    symbols = np.full(offsets[-1], 1, np.uint64)  # the ends
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

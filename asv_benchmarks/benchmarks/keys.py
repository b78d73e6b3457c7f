"""Keys and queries for the benchmarks, drawn anew from fixed seeds: dense ones, and sparse ones like short texts."""

from typing import NamedTuple

import numpy as np
import scipy.sparse

FORMS = ("dense", "text")

_FEATURES = 64
_WORDS = 20
_VOCABULARY = 30_000


class Data(NamedTuple):
    """Keys, and queries that are damaged copies of keys: query ``i`` should find key ``answers[i]``."""

    keys: np.ndarray | scipy.sparse.csr_array
    queries: np.ndarray | scipy.sparse.csr_array
    answers: np.ndarray


def make_data(form: str, n_keys: int, n_queries: int = 1000) -> Data:
    """Return data of one of the ``FORMS``."""
    rng = np.random.default_rng(0)
    answers = rng.integers(n_keys, size=n_queries)
    if form == "dense":
        keys = rng.normal(size=(n_keys, _FEATURES)).astype(np.float32)
        noise = rng.normal(size=(n_queries, _FEATURES)).astype(np.float32)
        return Data(keys, keys[answers] + 0.4 * noise, answers)
    frequency = 1.0 / np.arange(10, _VOCABULARY + 10)
    words = rng.choice(_VOCABULARY, size=(n_keys, _WORDS), p=frequency / frequency.sum())
    asked = words[answers]
    lost = rng.random(asked.shape) < 0.3
    asked[lost] = rng.choice(_VOCABULARY, size=np.count_nonzero(lost), p=frequency / frequency.sum())
    rarity = -np.log(frequency / frequency.sum())
    return Data(_rows_of_words(words, rarity), _rows_of_words(asked, rarity), answers)


def _rows_of_words(words: np.ndarray, rarity: np.ndarray) -> scipy.sparse.csr_array:
    n = words.shape[0]
    values = rarity[words].astype(np.float32).reshape(-1)
    rows = scipy.sparse.csr_array(
        (values, words.reshape(-1), np.arange(0, words.size + 1, words.shape[1])), shape=(n, _VOCABULARY)
    )
    rows.sum_duplicates()
    return rows

"""Keys and queries for the benchmarks, drawn from fixed seeds: dense keys, and sparse keys like short texts."""

from typing import NamedTuple

import numpy as np
import scipy.sparse

FORMS = ("dense", "text")

_WORDS = 20
_VOCABULARY = 30_000
_FREQUENCY = 1.0 / np.arange(10, _VOCABULARY + 10)
_PROBABILITY = _FREQUENCY / _FREQUENCY.sum()
_RARITY = -np.log(_PROBABILITY)

Matrix = np.ndarray | scipy.sparse.csr_array


class Data(NamedTuple):
    """Keys, and queries that are noisy copies of keys: query ``i`` should find key ``answers[i]``."""

    keys: Matrix
    queries: Matrix
    answers: np.ndarray


class Labelled(NamedTuple):
    """Labelled examples, and queries that are other examples of the same labels."""

    examples: Matrix
    labels: np.ndarray
    queries: Matrix
    answers: np.ndarray


def make_data(form: str, n_keys: int, n_queries: int = 1000, n_features: int = 64) -> Data:
    """Return data of one of the ``FORMS``. Sparse keys are words of a vocabulary and ignore ``n_features``."""
    rng = np.random.default_rng(0)
    answers = rng.integers(n_keys, size=n_queries)
    if form == "dense":
        keys = rng.standard_normal((n_keys, n_features), dtype=np.float32)
        return Data(keys, noisy(keys[answers], rng, 0.4), answers)
    words = draw_words(rng, n_keys)
    return Data(rows_of_words(words), rows_of_words(reworded(words[answers], rng, 0.3)), answers)


def make_clustered(n_keys: int, n_queries: int, n_features: int) -> Data:
    """Return vectors around random centers, 100 for each, and queries near some of them."""
    rng = np.random.default_rng(0)
    centers = rng.standard_normal((n_keys // 100, n_features), dtype=np.float32)
    keys = noisy(centers[rng.integers(centers.shape[0], size=n_keys)], rng, 0.7)
    answers = rng.integers(n_keys, size=n_queries)
    return Data(keys, noisy(keys[answers], rng, 0.7), answers)


def make_questions(keys: np.ndarray, n_popular: int, n_queries: int) -> tuple[np.ndarray, np.ndarray]:
    """Return queries for a few popular keys, and the position of the right key of each.

    Each popular key is asked for in its own way: all its queries have the same offset from it.
    """
    rng = np.random.default_rng(1)
    popular = rng.choice(keys.shape[0], n_popular, replace=False)
    offsets = 3.0 * rng.standard_normal((n_popular, keys.shape[1]), dtype=np.float32)
    chosen = rng.integers(n_popular, size=n_queries)
    return noisy(keys[popular[chosen]] + offsets[chosen], rng, 0.7), popular[chosen]


def make_labelled(form: str, n_labels: int, n_shots: int, n_queries: int = 1000) -> Labelled:
    """Return ``n_shots`` noisy examples of each label, in random order: copies of a vector, or of a text."""
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.repeat(np.arange(n_labels), n_shots))
    answers = rng.integers(n_labels, size=n_queries)
    if form == "dense":
        objects = rng.standard_normal((n_labels, 64), dtype=np.float32)
        return Labelled(noisy(objects[labels], rng, 1.0), labels, noisy(objects[answers], rng, 1.0), answers)
    texts = draw_words(rng, n_labels)
    examples, queries = (rows_of_words(reworded(texts[chosen], rng, 0.6)) for chosen in (labels, answers))
    return Labelled(examples, labels, queries, answers)


def draw_words(rng: np.random.Generator, n: int) -> np.ndarray:
    """Return the words of ``n`` texts."""
    return rng.choice(_VOCABULARY, size=(n, _WORDS), p=_PROBABILITY).astype(np.int32)


def noisy(keys: np.ndarray, rng: np.random.Generator, amount: float) -> np.ndarray:
    """Return dense keys plus noise of ``amount`` times their length."""
    return keys + np.float32(amount) * rng.standard_normal(keys.shape, dtype=np.float32)


def reworded(words: np.ndarray, rng: np.random.Generator, share: float) -> np.ndarray:
    """Return texts with a fraction of their words replaced."""
    return np.where(rng.random(words.shape) < share, draw_words(rng, words.shape[0]), words)


def rows_of_words(words: np.ndarray) -> scipy.sparse.csr_array:
    """Return texts as rows of a sparse matrix in which rare words weigh more."""
    rows = scipy.sparse.csr_array(
        (
            _RARITY[words].astype(np.float32).reshape(-1),
            words.reshape(-1),
            np.arange(0, words.size + 1, words.shape[1]),
        ),
        shape=(words.shape[0], _VOCABULARY),
    )
    rows.sum_duplicates()
    return rows


def exact_neighbours(keys: Matrix, queries: Matrix, k: int) -> np.ndarray:
    """Return the positions of the ``k`` keys with the highest cosines for each query, best first."""
    keys, queries = _unit(keys), _unit(queries)
    found = np.empty((queries.shape[0], k), np.int64)
    for i in range(queries.shape[0]):
        products = keys @ (queries[i] if isinstance(queries, np.ndarray) else queries[[i]].toarray()[0])
        best = np.argpartition(products, keys.shape[0] - k)[-k:]
        found[i] = best[np.argsort(-products[best])]
    return found


def _unit(rows: Matrix) -> Matrix:
    if isinstance(rows, np.ndarray):
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)
    lengths = np.sqrt(rows.multiply(rows).sum(axis=1))
    scaled = rows.copy()
    scaled.data /= np.repeat(lengths, np.diff(rows.indptr)).astype(np.float32)
    return scaled

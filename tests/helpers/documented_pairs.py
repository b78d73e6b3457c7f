"""Each pair of vectorizer and estimator in the docs, on texts and vectors that are made here, with its stored error.

The tests fail if an error rises by more than ``ROOM``. After an intended change, ``python
tests/helpers/documented_pairs.py`` stores the new errors.
"""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfVectorizer

from cmt_numba import CMTClassifier, CMTMultilabelClassifier, CMTRetriever, ContextualMemoryTree, MemoryStore
from cmt_numba.neighbors import LandmarkClassifier
from cmt_numba.text import BM25Vectorizer, FastTextClassifier, TextClassifier

ROOM = 0.01
"""The largest accepted rise of an error, because libraries and processors round differently."""

WORDS = np.array([f"w{number}" for number in range(1200)])
FREQUENCY = 1.0 / np.arange(1, WORDS.size + 1)
FREQUENCY /= FREQUENCY.sum()


STORED = Path(__file__).with_suffix(".json")
"""The file with the stored errors."""


class Rows(NamedTuple):
    """Texts or vectors to learn, and others to predict."""

    learned: Any
    y: Any
    asked: Any
    y_asked: Any


def joined(words: np.ndarray) -> str:
    return " ".join(WORDS[words])


@cache
def verses() -> Rows:
    """Texts that are each a class, to be found by a translation: half of the words are others, and some are missing."""
    rng = np.random.default_rng(0)
    known = [rng.choice(WORDS.size, rng.integers(6, 30), p=FREQUENCY) for _ in range(600)]
    asked = []
    for words in known:
        others = rng.choice(WORDS.size, words.size, p=FREQUENCY)
        translated = np.where(rng.random(words.size) < 0.5, words, others)
        asked.append(joined(translated[rng.random(words.size) < 0.8]))
    return Rows(list(map(joined, known)), np.arange(600), asked, np.arange(600))


@cache
def topics() -> Rows:
    """Texts of 20 classes, each with one to three words of its class, spelled alike, among frequent words."""
    rng = np.random.default_rng(1)
    letters = np.array(list("abcdefghijklmnop"))
    stems = ["".join(rng.choice(letters, 3)) for _ in range(20)]
    y = np.repeat(np.arange(20), 45)
    texts = []
    for label in y:
        frequent = WORDS[rng.choice(WORDS.size, 16, p=FREQUENCY)]
        own = [stems[label] + letters[number] for number in rng.integers(8, size=rng.integers(1, 4))]
        texts.append(" ".join(rng.permutation([*frequent, *own])))
    is_learned = np.arange(y.size) % 3 == 0
    learned, asked = (np.flatnonzero(part) for part in (is_learned, ~is_learned))
    return Rows([texts[i] for i in learned], y[learned], [texts[i] for i in asked], y[asked])


@cache
def tagged() -> Rows:
    """Texts with sets of 1 to 3 of 12 tags, and two words of each tag among frequent words."""
    rng = np.random.default_rng(2)
    own = rng.choice(np.arange(20, WORDS.size), (12, 40))
    Y = np.zeros((900, 12), np.int64)
    texts = []
    for row in Y:
        tags = rng.choice(12, rng.integers(1, 4), replace=False)
        row[tags] = 1
        words = [rng.choice(WORDS.size, 10, p=FREQUENCY), *(rng.choice(own[tag], 2) for tag in tags)]
        texts.append(joined(rng.permutation(np.concatenate(words))))
    return Rows(texts[:600], Y[:600], texts[600:], Y[600:])


@cache
def points() -> Rows:
    """Vectors of 60 classes, each a center with noise, among features that differ in scale."""
    rng = np.random.default_rng(3)
    scales = np.geomspace(0.3, 3.0, 24)
    centers = rng.normal(size=(60, 24))
    y = np.repeat(np.arange(60), 14)
    X = ((centers[y] + 0.8 * rng.normal(size=(y.size, 24))) * scales).astype(np.float32)
    is_learned = np.arange(y.size) % 14 < 5
    return Rows(X[is_learned], y[is_learned], X[~is_learned], y[~is_learned])


@cache
def tagged_points() -> Rows:
    """Vectors that are the sum of the centers of their 1 to 3 of 20 tags, with noise."""
    rng = np.random.default_rng(4)
    centers = rng.normal(size=(20, 24))
    Y = np.zeros((900, 20), np.int64)
    for row in Y:
        row[rng.choice(20, rng.integers(1, 4), replace=False)] = 1
    X = (Y @ centers + 2.5 * rng.normal(size=(900, 24))).astype(np.float32)
    return Rows(X[:600], Y[:600], X[600:], Y[600:])


@cache
def copies() -> Rows:
    """Vectors that are each a class, to be found by a noisy copy."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(2000, 24)).astype(np.float32)
    return Rows(X, np.arange(2000), X[:600] + 0.7 * rng.normal(size=(600, 24)).astype(np.float32), np.arange(600))


def keys(vectorizer: Any, rows: Rows) -> tuple[Any, Any]:
    if vectorizer is None:
        return rows.learned, rows.asked
    y = rows.y if np.ndim(rows.y) == 1 else None
    return vectorizer.fit_transform(rows.learned, y), vectorizer.transform(rows.asked)


def classify(vectorizer: Any, rows: Rows) -> np.ndarray:
    X, X_asked = keys(vectorizer, rows)
    return CMTClassifier(random_state=0).fit(X, rows.y).predict(X_asked)


def vote(vectorizer: Any, rows: Rows) -> np.ndarray:
    X, X_asked = keys(vectorizer, rows)
    return LandmarkClassifier(metric="cosine", random_state=0).fit(X, rows.y).predict(X_asked)


def classify_texts(classifier: Any, rows: Rows) -> np.ndarray:
    found: np.ndarray = classifier.fit(rows.learned, rows.y).predict(rows.asked)
    return found


def tag(vectorizer: Any, rows: Rows) -> np.ndarray:
    """Return the best label of each row."""
    X, X_asked = keys(vectorizer, rows)
    return CMTMultilabelClassifier(random_state=0).fit(X, rows.y).top_labels(X_asked, 1)[0][:, 0]


def retrieve(vectorizer: Any, rows: Rows) -> np.ndarray:
    X, X_asked = keys(vectorizer, rows)
    return CMTRetriever(random_state=0).fit(X, rows.y).predict(X_asked)


def search_store(vectorizer: Any, rows: Rows) -> np.ndarray:
    X, X_asked = keys(vectorizer, rows)
    with MemoryStore(random_state=0) as store:
        store.add([str(label) for label in rows.y], X)
        found = store.query(X_asked, k=1).keys[:, 0]
    return np.array([-1 if key is None else int(key) for key in found])


def search_tree(vectorizer: Any, rows: Rows) -> np.ndarray:
    X, X_asked = keys(vectorizer, rows)
    tree = ContextualMemoryTree(random_state=0)
    ids = tree.insert(X)
    order = np.argsort(ids)
    return order[np.searchsorted(ids[order], tree.query(X_asked, k=1, n_probes=20).ids[:, 0])]


class Pair(NamedTuple):
    """How to predict, what to predict with, and the maker of the data."""

    predict: Callable[[Any, Rows], np.ndarray]
    make: Callable[[], Any]
    rows: Callable[[], Rows]


def nothing() -> None:
    """Return no vectorizer, because the rows are vectors."""


PAIRS = {
    "BM25, classifier": Pair(classify, BM25Vectorizer, verses),
    "BM25 of length 1, classifier": Pair(classify, lambda: BM25Vectorizer(norm="l2"), verses),
    "BM25 with all idf in queries, classifier": Pair(classify, lambda: BM25Vectorizer(query_idf=1.0), verses),
    "tf-idf, classifier of verses": Pair(classify, lambda: TfidfVectorizer(sublinear_tf=True), verses),
    "counts, classifier of verses": Pair(classify, CountVectorizer, verses),
    "BM25, store": Pair(search_store, BM25Vectorizer, verses),
    "BM25, tree": Pair(search_tree, BM25Vectorizer, verses),
    "BM25, retriever": Pair(retrieve, BM25Vectorizer, verses),
    "hashed counts, classifier": Pair(classify, lambda: HashingVectorizer(n_features=2**18), topics),
    "counts, classifier": Pair(classify, CountVectorizer, topics),
    "tf-idf, classifier": Pair(classify, lambda: TfidfVectorizer(sublinear_tf=True), topics),
    "BM25, classifier of topics": Pair(classify, lambda: BM25Vectorizer(norm="l2"), topics),
    "BM25, labels": Pair(tag, BM25Vectorizer, tagged),
    "tf-idf, labels": Pair(tag, lambda: TfidfVectorizer(sublinear_tf=True), tagged),
    "text classifier": Pair(classify_texts, lambda: TextClassifier(random_state=0), topics),
    "fastText": Pair(classify_texts, lambda: FastTextClassifier(random_state=0), topics),
    "vectors, classifier": Pair(classify, nothing, points),
    "vectors, landmarks": Pair(vote, nothing, points),
    "vectors, labels": Pair(tag, nothing, tagged_points),
    "vectors, store": Pair(search_store, nothing, copies),
    "vectors, tree": Pair(search_tree, nothing, copies),
    "vectors, retriever": Pair(retrieve, nothing, copies),
}


def predictions_of(name: str) -> np.ndarray:
    """Return the predictions of a pair."""
    pair = PAIRS[name]
    return pair.predict(pair.make(), pair.rows())


def error_of(name: str, predictions: np.ndarray) -> float:
    """Return the fraction of wrong predictions. A label is right if it is one of several."""
    answers = PAIRS[name].rows().y_asked
    if answers.ndim == 2:
        return float(np.mean(answers[np.arange(answers.shape[0]), predictions] == 0))
    return float(np.mean(predictions != answers))


def stored() -> dict[str, float]:
    """Return the stored error of each pair."""
    errors: dict[str, float] = json.loads(STORED.read_text(encoding="utf-8"))
    return errors


def store_results() -> None:
    """Store the errors of this version."""
    results = {name: round(error_of(name, predictions_of(name)), 4) for name in PAIRS}
    STORED.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    store_results()

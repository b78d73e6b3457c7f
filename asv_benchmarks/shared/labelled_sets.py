"""The data sets for comparing classifiers: how each is read, and split into examples and queries.

The folder of public data may hold these sets; commands need only the sets that they use:

- ``bible/verses.jsonl.gz``: a line for each of 31,102 verses, ``{"text": {"KJV": ..., "ASV": ..., "YLT": ..., "Darby":
  ..., "BBE": ...}}``. The translations are in the public domain, for example from
  github.com/scrollmapper/bible_databases.
- ``wikipara1k/{train,test}.jsonl.gz`` and ``clinc150/{train,test}.jsonl.gz``: a line for each text, ``{"text": ...,
  "label": ...}``. Paragraphs of 1,259 Wikipedia articles (github.com/NikulinVs/inv_index_lab), and 150 intents of
  requests to an assistant (github.com/clinc/oos-eval).
- ``omniglot_background/hog.npz``: handwritten characters (github.com/brendenlake/omniglot) as histograms of oriented
  gradients, with ``X`` (19280, 1152), ``y``, and ``drawer`` from 0 to 19.
- ``coil100/mobilenet.npz``: 100 objects seen from 72 angles (Columbia, for research use) as features of a MobileNet,
  with ``X`` (7168, 1024), ``y``, and ``angle`` in degrees.
- ``bibtex``, ``delicious``, ``debtags``, ``debian_depends``: multi-label sets, each with ``X_train.npz``,
  ``X_test.npz``, ``Y_train.npz`` and ``Y_test.npz``, sparse matrices in the format of SciPy, with the features and the
  label indicators.

Texts become tf-idf words, or keys of ``BM25Vectorizer`` (:func:`with_bm25_keys`). All other rows have unit length.
Splits use fixed seeds.
"""

import gzip
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import normalize

from cmt_numba.text import BM25Vectorizer

TRANSLATIONS = ("KJV", "YLT", "Darby", "ASV", "BBE")
MOST_QUERIES = 4000


class LabelledSet(NamedTuple):
    """Examples and queries of a classification task."""

    X: Any
    y: np.ndarray
    queries: Any
    answers: np.ndarray
    texts: tuple[list[str], list[str]] | None = None  # of the examples and of the queries, if they are texts

    @property
    def n_classes(self) -> int:
        """The number of classes of the examples."""
        return np.unique(self.y).size


class MultilabelSet(NamedTuple):
    """Examples and queries (rows of features of unit length), and their label indicators."""

    X: Any
    Y: Any
    queries: Any
    answers: Any


def calibration_error(classifier: Any, queries: Any, answers: np.ndarray, n_bins: int = 15) -> float:
    """Return the expected calibration error of the highest probability, in bins of equal width."""
    proba = classifier.predict_proba(queries)
    sure, right = proba.max(axis=1), classifier.classes_[proba.argmax(axis=1)] == answers
    bins = np.minimum((n_bins * sure).astype(int), n_bins - 1)
    return float(sum(abs((sure - right)[bins == b].sum()) for b in range(n_bins)) / sure.size)


def read_multilabel(folder: Path) -> MultilabelSet:
    """Return the four matrices of a multi-label set."""
    parts = (f"{part}.npz" for part in ("X_train", "Y_train", "X_test", "Y_test"))
    X, Y, queries, answers = (scipy.sparse.csr_array(scipy.sparse.load_npz(folder / part)) for part in parts)
    return MultilabelSet(
        normalize(X.astype(np.float32)), Y != 0, normalize(queries.astype(np.float32)), (answers != 0).tocsr()
    )


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a file of JSON lines, which may be compressed."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def few_of_each(labels: np.ndarray, n_shots: int) -> np.ndarray:
    """Return up to ``n_shots`` positions of each label, in random order."""
    order = np.random.RandomState(0).permutation(labels.size)
    taken: dict[Any, int] = {}
    kept = []
    for i in order:
        taken[labels[i]] = taken.get(labels[i], 0) + 1
        if taken[labels[i]] <= n_shots:
            kept.append(i)
    return np.array(kept)


def _texts(texts: list[str], y: np.ndarray, queries: list[str], answers: np.ndarray) -> LabelledSet:
    words = TfidfVectorizer(sublinear_tf=True, dtype=np.float32)
    return LabelledSet(words.fit_transform(texts), y, words.transform(queries), answers, (texts, queries))


def with_bm25_keys(data: LabelledSet, norm: str = "append") -> LabelledSet | None:
    """Return a set of texts with BM25 weights instead of tf-idf, or None if the set does not consist of texts."""
    if data.texts is None:
        return None
    vectorizer = BM25Vectorizer(norm=norm)
    return data._replace(X=vectorizer.fit_transform(data.texts[0]), queries=vectorizer.transform(data.texts[1]))


def bible(folder: Path, n_shots: int, asked: str) -> LabelledSet:
    """Return verses in ``n_shots`` translations, with queries from another one."""
    verses = [line["text"] for line in read_lines(folder / "bible/verses.jsonl.gz")]
    stored = [name for name in TRANSLATIONS if name != asked][:n_shots]
    texts = [(verse[name], i) for name in stored for i, verse in enumerate(verses) if verse.get(name)]
    queries = [(verse[asked], i) for i, verse in enumerate(verses) if verse.get(asked)]
    queries = [queries[i] for i in np.random.RandomState(0).permutation(len(queries))[:MOST_QUERIES]]
    return _texts(
        [text for text, _ in texts],
        np.array([i for _, i in texts]),
        [text for text, _ in queries],
        np.array([i for _, i in queries]),
    )


def texts_with_labels(folder: Path, name: str, n_shots: int) -> LabelledSet:
    """Return ``n_shots`` texts of each label, and all texts of the test part."""
    train, test = (read_lines(folder / name / f"{part}.jsonl.gz") for part in ("train", "test"))
    labels, answers = (np.array([line["label"] for line in part]) for part in (train, test))
    kept = few_of_each(labels, n_shots)
    return _texts([train[i]["text"] for i in kept], labels[kept], [line["text"] for line in test], answers)


def omniglot(folder: Path, n_drawers: int) -> LabelledSet:
    """Return characters by the first drawers as examples, and those by the drawers from the tenth on as queries."""
    data = np.load(folder / "omniglot_background/hog.npz")
    X, drawer = normalize(data["X"].astype(np.float32)), data["drawer"]
    kept = np.random.RandomState(0).permutation(np.flatnonzero(drawer < n_drawers))
    return LabelledSet(X[kept], data["y"][kept], X[drawer >= 10], data["y"][drawer >= 10])


def coil(folder: Path, n_views: int) -> LabelledSet:
    """Return ``n_views`` views of each object, and all other views as queries."""
    data = np.load(folder / "coil100/mobilenet.npz")
    X, seen = normalize(data["X"].astype(np.float32)), data["angle"] % (360 // n_views) == 0
    kept = np.random.RandomState(0).permutation(np.flatnonzero(seen))
    return LabelledSet(X[kept], data["y"][kept], X[~seen], data["y"][~seen])


def synthetic(n_classes: int = 1000, n_shots: int = 100) -> LabelledSet:
    """Return noisy dense keys of 128 features, distributed like views of many objects.

    The center of each class is a sparse mixture of 40 shared prototypes plus a small part of its own. Each example
    moves along two directions of its class, gets multiplicative noise, and loses its small values. With more than
    100,000 classes, each class has one query.
    """
    n_asked, n_features = 10 if n_classes <= 100_000 else 1, 128
    r = np.random.RandomState(1)
    prototypes = r.gamma(0.35, 1.0, (40, n_features)) * (r.rand(40, n_features) < 0.35)
    own = 0.05 * r.gamma(0.3, 1.0, (n_classes, n_features))  # in place, since it takes 1 GB for a million classes
    own *= r.rand(n_classes, n_features) < 0.15
    own += r.dirichlet(np.full(40, 0.08), n_classes) @ prototypes
    center = normalize(own, copy=False)
    direction = r.randn(n_classes, 2, n_features)
    direction *= center[:, None, :] > 0.02
    n = n_shots + n_asked
    X = np.empty((n_classes, n, n_features), np.float32)
    for k in range(n_classes):
        angle = r.rand(n, 1) * 2 * np.pi
        x = center[k] * (0.6 + 0.8 * r.rand(n, 1))
        x = x + 0.10 * (np.cos(angle) * direction[k, 0] + np.sin(angle) * direction[k, 1])
        x = x * np.exp(0.65 * r.randn(n, n_features)) + 0.02 * r.randn(n, n_features)
        x[x < 0.04] = 0
        X[k] = normalize(x)
    shuffled = np.random.RandomState(0)
    kept, asked = shuffled.permutation(n_classes * n_shots), shuffled.permutation(n_classes * n_asked)[:MOST_QUERIES]
    y = np.arange(n_classes)
    return LabelledSet(
        X[:, :n_shots].reshape(-1, n_features)[kept],
        np.repeat(y, n_shots)[kept],
        X[:, n_shots:].reshape(-1, n_features)[asked],
        np.repeat(y, n_asked)[asked],
    )


SETS: dict[str, Callable[[Path], LabelledSet]] = {
    **{
        f"bible, {shots}, {asked}": partial(bible, n_shots=int(shots[0]), asked=asked)
        for shots in ("1 shot", "3 shots", "4 shots")
        for asked in ("ASV", "BBE")
    },
    "wikipara1k, 1 shot": lambda folder: texts_with_labels(folder, "wikipara1k", 1),
    "wikipara1k, 3 shots": lambda folder: texts_with_labels(folder, "wikipara1k", 3),
    "wikipara1k, 20 shots": lambda folder: texts_with_labels(folder, "wikipara1k", 20),
    "clinc150, 5 shots": lambda folder: texts_with_labels(folder, "clinc150", 5),
    "clinc150, 100 shots": lambda folder: texts_with_labels(folder, "clinc150", 100),
    "omniglot, 1 drawer": lambda folder: omniglot(folder, 1),
    "omniglot, 5 drawers": lambda folder: omniglot(folder, 5),
    "omniglot, 10 drawers": lambda folder: omniglot(folder, 10),
    "coil100, 4 views": lambda folder: coil(folder, 4),
    "coil100, 18 views": lambda folder: coil(folder, 18),
    "synthetic, 20 shots": lambda folder: synthetic(n_shots=20),
    "synthetic, 100 shots": lambda folder: synthetic(),
    **{f"many, {n:,} classes": lambda folder, n=n: synthetic(n, 5) for n in (10_000, 30_000)},
    **{f"many, {n:,} classes, 1 shot": lambda folder, n=n: synthetic(n, 1) for n in (100_000, 1_000_000)},
}

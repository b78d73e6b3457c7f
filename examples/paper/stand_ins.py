"""Substitutes for the paper's data sets, which are large or no longer available.

The folder given by ``--data`` may contain:

``wikipara1k/{train,test}.jsonl.gz``, for WikiPara
    A line for each paragraph: ``{"text": ..., "label": ...}``. 1,259 Wikipedia articles
    (github.com/NikulinVs/inv_index_lab).
``omniglot_background/hog.npz``, ``coil100/mobilenet.npz``, for ImageNet and ALOI
    964 handwritten characters (github.com/brendenlake/omniglot) as histograms of oriented gradients: ``X``, ``y``, and
    ``drawer`` 0 to 19. 100 objects seen from 72 angles (Columbia) as features of a MobileNet: ``X``, ``y``, ``angle``.
``bible/verses.jsonl.gz``, for WikiPara with one shot
    A line for each of 31,102 verses: ``{"text": {"KJV": ..., "ASV": ..., "YLT": ..., "Darby": ..., "BBE": ...}}``
    (github.com/scrollmapper/bible_databases).
``debtags``, ``debian_depends``, ``bibtex``, ``delicious``, for RCV1-1K, AmazonCat-13K and Wiki10-31K
    ``X_train.npz``, ``Y_train.npz``, ``X_test.npz`` and ``Y_test.npz``, as scipy saves sparse matrices.
``flickr8k/{images.jsonl.gz,mobilenet.npz}``
    A line for each image: ``{"row": ..., "split": "train" or "test" ..., "captions": [...]}``, and ``X`` with the
    features of image ``i`` in row ``i``. The paper used this set as well.

``public_data.py`` downloads to the same folder. Texts are converted to tf-idf vectors, all rows have unit length, and
random samples have fixed seeds.

``asv_benchmarks/shared/labelled_sets.py`` reads the same folder for the benchmarks. It shares no code with this module,
so changes to the experiments do not affect the benchmarks.
"""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import public_data
import scipy.sparse
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import normalize

MOST_QUERIES = 4000


class LabelledSet(NamedTuple):
    """Training examples and test queries with labels, which are indicator matrices in multi-label sets."""

    X: Any
    y: Any
    queries: Any
    answers: Any


class CaptionedImages(NamedTuple):
    """Captions to store and captions as queries, each with the features of its image."""

    captions: Any
    images: np.ndarray
    queries: Any
    answers: np.ndarray


def read_lines(path: Path) -> list[Any]:
    """Return the objects of a compressed file of JSON lines."""
    with gzip.open(path, "rt") as file:
        return [json.loads(line) for line in file]


def few_of_each(labels: np.ndarray, n_shots: int) -> np.ndarray:
    """Return up to ``n_shots`` positions of each label, all in random order."""
    order = np.random.default_rng(0).permutation(labels.size)
    by_label = order[np.argsort(labels[order], kind="stable")]
    _, first, counts = np.unique(labels[by_label], return_index=True, return_counts=True)
    place_among_its_own = np.arange(labels.size) - np.repeat(first, counts)
    kept = np.zeros(labels.size, bool)
    kept[by_label[place_among_its_own < n_shots]] = True
    return order[kept[order]]


def tfidf_words(texts: list[str], queries: list[str]) -> tuple[Any, Any]:
    """Return two lists of texts as tf-idf vectors; the first determines document frequencies."""
    words = TfidfVectorizer(sublinear_tf=True, dtype=np.float32)
    return words.fit_transform(texts), words.transform(queries)


def wikipara(folder: Path, n_shots: int) -> LabelledSet:
    """Return ``n_shots`` paragraphs of each article, and all test paragraphs as queries."""
    train, test = (read_lines(folder / f"wikipara1k/{part}.jsonl.gz") for part in ("train", "test"))
    labels, answers = (np.array([line["label"] for line in part]) for part in (train, test))
    kept = few_of_each(labels, n_shots)
    X, queries = tfidf_words([train[i]["text"] for i in kept], [line["text"] for line in test])
    return LabelledSet(X, labels[kept], queries, answers)


def bible(folder: Path) -> LabelledSet:
    """Return the verses of the King James Version, with queries from the American Standard Version."""
    texts = [line["text"] for line in read_lines(folder / "bible/verses.jsonl.gz")]
    asked = [i for i, text in enumerate(texts) if text.get("ASV")]
    asked = np.random.default_rng(0).permutation(asked)[:MOST_QUERIES].tolist()
    X, queries = tfidf_words([text["KJV"] for text in texts], [texts[i]["ASV"] for i in asked])
    return LabelledSet(X, np.arange(len(texts)), queries, np.array(asked))


def _some_to_learn(X: Any, y: np.ndarray, learned: np.ndarray, asked: np.ndarray) -> LabelledSet:
    X = normalize(X.astype(np.float32))
    kept = np.random.default_rng(0).permutation(np.flatnonzero(learned))
    return LabelledSet(X[kept], y[kept], X[asked], y[asked])


def omniglot(folder: Path, n_drawers: int) -> LabelledSet:
    """Return characters by the first ``n_drawers`` drawers, and as queries those from the tenth drawer on."""
    data = np.load(folder / "omniglot_background/hog.npz")
    return _some_to_learn(data["X"], data["y"], data["drawer"] < n_drawers, data["drawer"] >= 10)


def coil(folder: Path, n_views: int) -> LabelledSet:
    """Return ``n_views`` views of each object, and all other views as queries."""
    data = np.load(folder / "coil100/mobilenet.npz")
    seen = data["angle"] % (360 // n_views) == 0
    return _some_to_learn(data["X"], data["y"], seen, ~seen)


def aloi(folder: Path, n_shots: int) -> LabelledSet:
    """Return ``n_shots`` views of each of ALOI's 1,000 objects (the paper's set), and up to ten others as queries."""
    X, y = public_data.aloi(folder)
    kept = few_of_each(y, y.size)
    shots = few_of_each(y[kept], min(n_shots, 98))
    others = np.setdiff1d(np.arange(y.size), shots)
    asked = others[few_of_each(y[kept][others], 10)][:MOST_QUERIES]
    return LabelledSet(X[kept[shots]], y[kept[shots]], X[kept[asked]], y[kept[asked]])


def synthetic(n_classes: int = 1000, n_shots: int = 100) -> LabelledSet:
    """Return synthetic examples with the shape of ALOI: dense rows of 128 features, like noisy views of objects.

    The center of a class is a sparse mixture of 40 shared prototypes plus a small individual part. An example lies on
    an ellipse around the center, is multiplied by noise, and loses small values.
    """
    n_asked, n_features, n_prototypes = 10, 128, 40
    rng = np.random.default_rng(1)

    def sparse_gamma(shape: float, size: tuple[int, int], share: float) -> np.ndarray:
        return rng.gamma(shape, 1.0, size) * (rng.random(size) < share)

    prototypes = sparse_gamma(0.35, (n_prototypes, n_features), 0.35)
    mixtures = rng.dirichlet(np.full(n_prototypes, 0.08), n_classes)
    centers = normalize(mixtures @ prototypes + 0.05 * sparse_gamma(0.3, (n_classes, n_features), 0.15))
    X, y = [], np.repeat(np.arange(n_classes), n_shots + n_asked)
    for center in centers:
        axes = 0.1 * rng.normal(size=(2, n_features)) * (center > 0.02)
        angle = 2 * np.pi * rng.random((n_shots + n_asked, 1))
        views = center * rng.uniform(0.6, 1.4, angle.shape) + np.cos(angle) * axes[0] + np.sin(angle) * axes[1]
        views = views * np.exp(0.65 * rng.normal(size=views.shape)) + 0.02 * rng.normal(size=views.shape)
        X.append(normalize(np.where(views < 0.04, 0.0, views)).astype(np.float32))
    place = np.tile(np.arange(n_shots + n_asked), n_classes)
    kept, asked = rng.permutation(np.flatnonzero(place < n_shots)), rng.permutation(np.flatnonzero(place >= n_shots))
    asked, examples = asked[:MOST_QUERIES], np.concatenate(X)
    return LabelledSet(examples[kept], y[kept], examples[asked], y[asked])


def multilabel(folder: Path, name: str) -> LabelledSet:
    """Return a multi-label set from files saved by SciPy or downloaded."""
    if name in public_data.MULTILABEL:
        return LabelledSet(*public_data.multilabel(folder, name))
    parts = (
        scipy.sparse.load_npz(folder / name / f"{part}.npz") for part in ("X_train", "Y_train", "X_test", "Y_test")
    )
    X, Y, queries, answers = (scipy.sparse.csr_array(part) for part in parts)
    unit = [normalize(part.astype(np.float32)) for part in (X, queries)]
    return LabelledSet(unit[0], Y != 0, unit[1], answers != 0)


def flickr(folder: Path, n_images: int | None = None) -> CaptionedImages:
    """Return the training captions with their images, and half of the test captions as queries."""
    lines = read_lines(folder / "flickr8k/images.jsonl.gz")
    features = normalize(np.load(folder / "flickr8k/mobilenet.npz")["X"].astype(np.float32))

    def part(split: str, every: int) -> tuple[list[str], np.ndarray]:
        of_split = [line for line in lines if line["split"] == split][:n_images]
        pairs = [(caption, line["row"]) for line in of_split for caption in line["captions"]][::every]
        return [caption for caption, _ in pairs], features[[row for _, row in pairs]]

    (captions, images), (asked, answers) = part("train", 1), part("test", 2)
    return CaptionedImages(*_interleave(tfidf_words(captions, asked), (images, answers)))


def _interleave(keys: tuple[Any, Any], values: tuple[np.ndarray, np.ndarray]) -> tuple[Any, ...]:
    return keys[0], values[0], keys[1], values[1]


SETS: dict[str, Callable[[Path], LabelledSet]] = {
    "wikipara1k, 1 shot": lambda folder: wikipara(folder, 1),
    "wikipara1k, 2 shots": lambda folder: wikipara(folder, 2),
    "wikipara1k, 3 shots": lambda folder: wikipara(folder, 3),
    "omniglot, 1 drawer": lambda folder: omniglot(folder, 1),
    "omniglot, 5 drawers": lambda folder: omniglot(folder, 5),
    "coil100, 4 views": lambda folder: coil(folder, 4),
    "bible, 1 shot": bible,
    "synthetic, 100 shots": lambda folder: synthetic(),
    "aloi, 98 shots": lambda folder: aloi(folder, 98),
}
"""Functions that read the labelled sets from the data folder, by name."""


def labelled(folder: Path | None, name: str) -> LabelledSet:
    """Return a labelled data set by name.

    Raises
    ------
    FileNotFoundError
        If it is not in the folder.
    """
    if folder is None and not name.startswith("synthetic"):
        raise FileNotFoundError(f"{name} is read from the data folder; set it with --data")
    return SETS[name](folder or Path())

"""The cases that ``classifiers.py sensitivity`` runs: small sets, and an estimator with its defaults for each."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from sklearn.datasets import load_digits
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import normalize

from cmt_numba import CMTClassifier, CMTMultilabelClassifier, CMTRetriever, ContextualMemoryTree
from cmt_numba.metrics import ndcg_at
from cmt_numba.rewards import LabelEquality

from .labelled_sets import (
    RANKS,
    LabelledSet,
    MultilabelSet,
    bible,
    coil,
    omniglot,
    read_lines,
    read_multilabel,
    synthetic,
    texts_with_labels,
)

MOST_QUERIES = 2000


class Outcome(NamedTuple):
    """The outcome of one run."""

    error: float
    train_seconds: float  # of CPU time
    query_microseconds: float  # of CPU time
    candidates: float = float("nan")  # labels scored per row


Case = Callable[[int], Outcome]


def _case(
    train: Callable[[int], Any],
    answer: Callable[[Any], Any],
    error: Callable[[Any], Any],
    count: Callable[[Any], Any] | None = None,
) -> Case:
    """Return a function that trains with a seed, times two runs of all queries, and scores the answers.

    ``count`` returns the number of labels that a trained model scores for each query.
    """

    def run(seed: int) -> Outcome:
        start = time.process_time()
        learner = train(seed)
        trained = time.process_time() - start
        took = []
        for _ in range(2):
            begun = time.process_time()
            answers = answer(learner)
            took.append(time.process_time() - begun)
        candidates = float("nan") if count is None else float(np.mean(count(learner)))
        return Outcome(float(error(answers)), trained, min(took) / len(answers) * 1e6, candidates)

    return run


def _fewer(data: LabelledSet) -> LabelledSet:
    kept = np.random.RandomState(0).permutation(data.answers.size)[:MOST_QUERIES]
    return LabelledSet(data.X, data.y, data.queries[kept], data.answers[kept])


def _of_classes(data: LabelledSet, n: int) -> LabelledSet:
    """Return the examples and queries of ``n`` of the classes."""
    kept = np.random.RandomState(0).permutation(np.unique(data.y))[:n]
    rows, asked = np.isin(data.y, kept), np.isin(data.answers, kept)
    return LabelledSet(data.X[rows], data.y[rows], data.queries[asked], data.answers[asked])


def _classified(data: LabelledSet, n_batches: int = 1, **options: Any) -> Case:
    data = _fewer(data)
    parts = np.array_split(np.arange(data.y.size), n_batches)

    def train(seed: int) -> CMTClassifier:
        learner = CMTClassifier(random_state=seed, **options)
        if n_batches == 1:
            return learner.fit(data.X, data.y)
        for part in parts:
            learner.partial_fit(data.X[part], data.y[part])
        return learner

    return _case(
        train,
        lambda learner: learner.predict(data.queries),
        lambda answers: np.mean(answers != data.answers),
        lambda learner: learner.count_candidates(data.queries),
    )


def _wrong_label(data: LabelledSet) -> Callable[[np.ndarray], Any]:
    """Return a function that gives the fraction of queries whose found examples have another label."""
    return lambda ids: np.mean(data.y[ids] != data.answers)


def _first_neighbours(data: LabelledSet) -> Case:
    data = _fewer(data)
    return _case(
        lambda seed: CMTClassifier(random_state=seed).fit(data.X, data.y),
        lambda learner: learner.kneighbors(data.queries, 1, return_distance=False)[:, 0],
        _wrong_label(data),
    )


def _labelled(data: MultilabelSet, n_rows: int) -> Case:
    rows = np.random.RandomState(0).permutation(data.X.shape[0])[:n_rows]
    asked = np.random.RandomState(1).permutation(data.queries.shape[0])[:MOST_QUERIES]
    X, Y = data.X[rows], data.Y.tocsr()[rows]
    known = np.flatnonzero(np.asarray(Y.sum(axis=0)).ravel())
    Y, queries, answers = Y[:, known].astype(np.int8), data.queries[asked], data.answers[asked][:, known].tocsr()
    return _case(
        lambda seed: CMTMultilabelClassifier(random_state=seed).fit(X, Y),
        lambda learner: learner.top_labels(queries, 5)[0],
        lambda best: 1.0 - ndcg_at(answers, best, RANKS[-1]),
        lambda learner: learner.count_candidates(queries),
    )


def _captions(folder: Path, n_images: int) -> tuple[Any, Any, Any, Any]:
    """Return captions of some images with the images' features, and captions of other images with theirs."""
    features = normalize(np.load(folder / "flickr8k/mobilenet.npz")["X"].astype(np.float32))
    lines = read_lines(folder / "flickr8k/images.jsonl.gz")
    stored = [line for line in lines if line["split"] == "train"][:n_images]
    asked = [line for line in lines if line["split"] == "test"][: n_images // 3]
    words = TfidfVectorizer(sublinear_tf=True, dtype=np.float32)
    X = words.fit_transform([caption for line in stored for caption in line["captions"]])
    queries = words.transform([line["captions"][i] for line in asked for i in (0, 2, 4)])
    rows = [line["row"] for line in stored for _ in line["captions"]]
    return X, features[rows], queries, features[[line["row"] for line in asked for _ in range(3)]]


def _retrieved(folder: Path, search: str) -> Case:
    X, images, queries, meant = _captions(folder, 1500)
    return _case(
        lambda seed: CMTRetriever(search, random_state=seed).fit(X, images),
        lambda learner: learner.kneighbors(queries, 1, return_distance=False)[:, 0],
        lambda ids: 1.0 - np.mean(np.sum(images[ids] * meant, axis=1)),
    )


def _fed_back(folder: Path) -> Case:
    """Store images by one caption, learn from other captions of the same images, and query with the remaining ones."""
    X, images, *_ = _captions(folder, 1500)
    first, of_image = np.arange(0, X.shape[0], 5), np.arange(X.shape[0]) // 5

    def train(seed: int) -> CMTRetriever:
        learner = CMTRetriever("key", random_state=seed).fit(X[first], [str(i) for i in range(first.size)])
        for nth in (1, 2):
            ids = learner.kneighbors(X[first + nth], 5, return_distance=False)
            cosines = np.einsum("ij,ikj->ik", images[first], images[first][ids])
            learner.feedback(X[first + nth], ids, np.where(ids >= 0, np.clip(cosines, 0.0, 1.0) ** 2, 0.0))
        return learner

    asked = np.concatenate([first + 3, first + 4])
    return _case(
        train,
        lambda learner: learner.kneighbors(X[asked], 1, return_distance=False)[:, 0],
        lambda ids: np.mean(ids != of_image[asked]),
    )


def _grown(data: LabelledSet, seed: int, **options: Any) -> tuple[ContextualMemoryTree, np.ndarray]:
    """Return a forest of four trees with all examples, and their ids."""
    tree = ContextualMemoryTree(4, n_threads=1, random_state=seed, **options)
    return tree, tree.insert(data.X)


def _best_rows(queries: Any, X: Any) -> np.ndarray:
    """Return the row with the largest product for each query."""
    products = [queries[i : i + 200] @ X.T for i in range(0, queries.shape[0], 200)]
    return np.concatenate([np.asarray((p.toarray() if scipy.sparse.issparse(p) else p).argmax(1)) for p in products])


def _found(data: LabelledSet) -> Case:
    """Query a tree for the key that is most similar to each query."""
    data = _fewer(data)
    best = _best_rows(data.queries, data.X)
    return _case(
        lambda seed: _grown(data, seed)[0],
        lambda tree: tree.query(data.queries, n_probes=16).ids[:, 0],
        lambda ids: np.mean(ids != best),
    )


def _bounded(data: LabelledSet) -> Case:
    """Query a tree that may hold only half of the keys for the class of each query."""
    data = _fewer(data)
    return _case(
        lambda seed: _grown(data, seed, max_memories=data.y.size // 2, eviction="oldest")[0],
        lambda tree: tree.query(data.queries).ids[:, 0],
        _wrong_label(data),
    )


def _among(data: LabelledSet) -> Case:
    """Query a tree for the best of a tenth of its memories."""
    data = _fewer(data)
    some = np.random.RandomState(0).permutation(data.y.size)[: data.y.size // 10]
    best = some[_best_rows(data.queries, data.X[some])]
    return _case(
        lambda seed: _grown(data, seed)[0],
        lambda tree: tree.query(data.queries, among=some).ids[:, 0],
        lambda ids: np.mean(ids != best),
    )


def _taught(data: LabelledSet, loss: str) -> Case:
    """Train a tree with rewards for memories that have the class of the query."""
    data = _fewer(data)

    def train(seed: int) -> ContextualMemoryTree:
        tree, ids = _grown(data, seed, scorer_loss=loss)
        tree.learn(data.X, LabelEquality(data.y, data.y), own_ids=ids, k=5, n_passes=3)
        return tree

    return _case(train, lambda tree: tree.query(data.queries).ids[:, 0], _wrong_label(data))


def _articles(folder: Path) -> LabelledSet:
    return _of_classes(texts_with_labels(folder, "wikipara1k", 3), 400)


def _sentences(folder: Path, name: str) -> LabelledSet:
    """Return the words of sentences, four fifths of them as examples."""
    lines = read_lines(folder / f"sentclass/{name}.jsonl.gz")
    labels = np.array([line["label_fine" if name == "trec" else "label"] for line in lines])
    return _split(TfidfVectorizer(sublinear_tf=True), [line["text"] for line in lines], labels, 0.2)


def _misspellings(folder: Path) -> LabelledSet:
    """Return misspelt words as rows of letters, whose labels are the intended words."""
    lines = read_lines(folder / "misspellings/codespell_single.jsonl.gz")
    words, n_of_word = np.unique([line["word"] for line in lines], return_counts=True)
    kept = set(np.random.RandomState(0).permutation(words[n_of_word >= 4])[:2000].tolist())
    lines = [line for line in lines if line["word"] in kept]
    letters = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), sublinear_tf=True)
    return _split(letters, [line["typo"] for line in lines], np.array([line["word"] for line in lines]), 0.25)


def _split(vectorizer: TfidfVectorizer, texts: list[str], labels: np.ndarray, share: float) -> LabelledSet:
    kept, asked, y, answers = train_test_split(texts, labels, test_size=share, random_state=0)
    return LabelledSet(vectorizer.fit_transform(kept), y, vectorizer.transform(asked), answers)


def _digits() -> LabelledSet:
    """Return scikit-learn's digits, with 20 examples of each as training data."""
    X, y = load_digits(return_X_y=True)
    kept, asked, *labels = train_test_split(X, y, train_size=200, stratify=y, random_state=0)
    return LabelledSet(kept, labels[0], asked, labels[1])


CASES: dict[str, Callable[[Any], Case]] = {
    "synthetic": lambda folder: _classified(synthetic(300, 30)),
    "coil100": lambda folder: _classified(coil(folder, 4)),
    "coil100, 18 views": lambda folder: _classified(coil(folder, 18)),
    "omniglot": lambda folder: _classified(_of_classes(omniglot(folder, 5), 300)),
    "omniglot, all classes": lambda folder: _classified(omniglot(folder, 5)),
    "clinc150, 5 shots": lambda folder: _classified(texts_with_labels(folder, "clinc150", 5)),
    "clinc150, 30 shots": lambda folder: _classified(texts_with_labels(folder, "clinc150", 30)),
    "wikipara1k": lambda folder: _classified(_articles(folder)),
    "wikipara1k, online": lambda folder: _classified(_articles(folder), n_batches=20),
    "bible": lambda folder: _classified(bible(folder, 1, "BBE")),
    "clinc150, softmax": lambda folder: _classified(texts_with_labels(folder, "clinc150", 5), loss="softmax"),
    "omniglot, softmax": lambda folder: _classified(_of_classes(omniglot(folder, 5), 300), loss="softmax"),
    "coil100, neighbours": lambda folder: _first_neighbours(coil(folder, 4)),
    "wikipara1k, neighbours": lambda folder: _first_neighbours(_articles(folder)),
    **{
        name: lambda folder, name=name: _classified(_sentences(folder, name))
        for name in ("mr", "subj", "cr", "mpqa", "trec")
    },
    "misspellings": lambda folder: _classified(_misspellings(folder)),
    "digits": lambda folder: _classified(_digits()),
    "bibtex": lambda folder: _labelled(read_multilabel(folder / "bibtex"), 2000),
    "delicious": lambda folder: _labelled(read_multilabel(folder / "delicious"), 1000),
    "debian_depends": lambda folder: _labelled(read_multilabel(folder / "debian_depends"), 3000),
    "flickr8k": lambda folder: _retrieved(folder, "value"),
    "flickr8k, by key": lambda folder: _retrieved(folder, "key"),
    "flickr8k, feedback": _fed_back,
    "tree, dense": lambda folder: _found(synthetic(300, 20)),
    "tree, sparse": lambda folder: _found(_articles(folder)),
    "tree, bounded": lambda folder: _bounded(synthetic(300, 20)),
    "tree, among": lambda folder: _among(synthetic(300, 20)),
    "tree, rewards": lambda folder: _taught(texts_with_labels(folder, "clinc150", 5), "contrast"),
    "tree, rewards, dense": lambda folder: _taught(synthetic(300, 10), "contrast"),
    "tree, ranking": lambda folder: _taught(texts_with_labels(folder, "clinc150", 5), "ranking"),
    "tree, mira": lambda folder: _taught(texts_with_labels(folder, "clinc150", 5), "mira"),
}
"""A function for each set that reads it from the folder of data, by name."""

NEED_DATA = frozenset(CASES) - {
    "synthetic",
    "digits",
    "tree, dense",
    "tree, bounded",
    "tree, among",
    "tree, rewards, dense",
}

SLOW = frozenset({"bible", "debian_depends"})

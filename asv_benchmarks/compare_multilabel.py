"""Compare multi-label classifiers: ours, linear one against all, and Vowpal Wabbit's memory tree, on one thread.

    python asv_benchmarks/compare_multilabel.py --data path/to/folder --sets bibtex debtags

A set is a folder with ``X_train.npz``, ``X_test.npz``, ``Y_train.npz`` and ``Y_test.npz``: sparse matrices as scipy
saves them, features and indicators of labels. Prints for each learner the wrong labels a query (the Hamming loss times
the number of labels), precision and nDCG at 1, 3 and 5, the share of the labels that were looked at for a query,
seconds to train and microseconds a query to predict.

One against all is scikit-learn's LinearSVC for each label, and answers with one matrix product for a batch of queries.
Where there are more than ``--most-labels``, it is left out, unless ``--sample-labels`` sets the number of labels drawn
at random: their times are scaled up to all labels, and nothing is said of their quality. The memory tree with its
one-against-some head (``--memory_tree --oas``) gives out no labels, only how many of a query's it got wrong. Needs
scikit-learn, tabulate and, for Vowpal Wabbit, the package vowpalwabbit.
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_variable] = "1"  # before any library reads them

import argparse
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from sklearn.preprocessing import normalize
from sklearn.svm import LinearSVC
from tabulate import tabulate

from cmt_numba import CMTMultilabelClassifier

PARTS = ("X_train", "Y_train", "X_test", "Y_test")
RANKS = (1, 3, 5)
BATCH = 256

VW_OPTIONS = [
    (4, "--alpha 0.1 --leaf_example_multiplier 4 --dream_repeats 3 --learn_at_leaf -l 0.5"),
    (4, "--alpha 0.1 --leaf_example_multiplier 40 --dream_repeats 3 --learn_at_leaf --dream_at_update 1 -l 1"),
]
"""Passes and options of Vowpal Wabbit's memory tree; alpha, in its convention, is the paper's."""


class LabelledSet(NamedTuple):
    """Examples and queries, rows of features of unit length, and indicators of their labels."""

    X: Any
    Y: Any
    queries: Any
    answers: Any


class Outcome(NamedTuple):
    """What one learner did on one set; NaN where it does not say."""

    learner: str
    wrong: float  # labels a query
    precision: list[float]  # at each of the ranks
    gain: list[float]  # nDCG at each of the ranks
    share: float  # of the labels looked at
    train_seconds: float
    query_microseconds: float


UNKNOWN = [float("nan")] * len(RANKS)


def read_set(folder: Path) -> LabelledSet:
    """Return the four matrices of a set."""
    X, Y, queries, answers = (scipy.sparse.csr_array(scipy.sparse.load_npz(folder / f"{part}.npz")) for part in PARTS)
    return LabelledSet(
        normalize(X.astype(np.float32)), Y != 0, normalize(queries.astype(np.float32)), (answers != 0).tocsr()
    )


def ranking_quality(best: np.ndarray, answers: Any) -> tuple[list[float], list[float]]:
    """Return precision and nDCG at each of the ranks of the best labels, -1 for none.

    As is usual in extreme classification, nDCG is 0 for a query that has no label, and precision counts it too.
    """
    right = np.zeros(best.shape)
    row, rank = np.nonzero(best >= 0)
    right[row, rank] = np.asarray(answers[row, best[row, rank]]).ravel()
    discount = 1.0 / np.log2(np.arange(2, best.shape[1] + 2))
    n_right = np.diff(answers.indptr)
    precision, gain = [], []
    for k in RANKS:
        ideal = np.concatenate([[0.0], np.cumsum(discount[:k])])[np.minimum(n_right, k)]
        precision.append(float(right[:, :k].mean()))
        gain.append(float(np.mean(right[:, :k] @ discount[:k] / np.maximum(ideal, 1e-9))))
    return precision, gain


def ours(data: LabelledSet, options: argparse.Namespace) -> Iterator[Outcome]:
    """Return the classifier of this package with its defaults."""
    few = CMTMultilabelClassifier(random_state=0).fit(data.X[:50], data.Y[:50])  # lets numba compile
    few.predict(data.queries[:5])
    start = time.perf_counter()
    learner = CMTMultilabelClassifier(random_state=0).fit(data.X, data.Y)
    trained = time.perf_counter()
    predicted = learner.predict(data.queries) != 0
    done = time.perf_counter()
    n = data.answers.shape[0]
    best, _ = learner.top_labels(data.queries, RANKS[-1])
    share = float(learner.count_candidates(data.queries).mean()) / data.Y.shape[1]
    wrong = (predicted != data.answers).nnz / n
    quality = ranking_quality(best, data.answers)
    yield Outcome("CMTMultilabelClassifier", wrong, *quality, share, trained - start, (done - trained) / n * 1e6)


def _solve_labels(data: LabelledSet, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Return the weights, the biases and the seconds it took of the support vector machines of some labels."""
    weights = np.zeros((data.X.shape[1], labels.size), np.float32)
    biases = np.full(labels.size, -1.0, np.float32)
    columns = data.Y.tocsc()
    seconds = 0.0
    for i, label in enumerate(labels):
        has = columns[:, [label]].toarray().ravel()
        if not has.any() or has.all():
            biases[i] = 1.0 if has.all() else -1.0
            continue
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            learner = LinearSVC().fit(data.X, has)
        seconds += time.perf_counter() - start
        weights[:, i], biases[i] = learner.coef_[0], learner.intercept_[0]
    return weights, biases, seconds


def one_against_all(data: LabelledSet, options: argparse.Namespace) -> Iterator[Outcome]:
    """Return a linear support vector machine for each label."""
    n_labels, n = data.Y.shape[1], data.answers.shape[0]
    labels = np.arange(n_labels)
    sampled = n_labels > options.most_labels
    if sampled:
        if not options.sample_labels:
            return
        labels = np.sort(np.random.default_rng(0).permutation(n_labels)[: options.sample_labels])
    weights, biases, training = _solve_labels(data, labels)
    best = np.full((n, RANKS[-1]), -1)
    wrong, predicting = 0, 0.0
    for first in range(0, n, BATCH):
        start = time.perf_counter()
        scores = data.queries[first : first + BATCH] @ weights + biases
        predicted = scores > 0.0
        predicting += time.perf_counter() - start
        asked = data.answers[first : first + BATCH]
        wrong += int((predicted != asked[:, labels].toarray()).sum())
        highest = np.argsort(-scores, axis=1, kind="stable")[:, : RANKS[-1]]
        best[first : first + BATCH, : highest.shape[1]] = highest
    scale = n_labels / labels.size
    training, microseconds = training * scale, predicting * scale / n * 1e6
    if sampled:
        name = f"LinearSVC, one against all, times from {labels.size} labels"
        yield Outcome(name, float("nan"), UNKNOWN, UNKNOWN, 1.0, training, microseconds)
    else:
        quality = ranking_quality(best, data.answers)
        yield Outcome("LinearSVC, one against all", wrong / n, *quality, 1.0, training, microseconds)


def _vw_lines(X: Any, Y: Any) -> list[str]:
    X, Y = scipy.sparse.csr_array(X), scipy.sparse.csr_array(Y)
    return [
        ",".join(map(str, Y.indices[Y.indptr[i] : Y.indptr[i + 1]]))
        + " | "
        + " ".join(f"{feature}:{value:.5g}" for feature, value in zip(X.indices[a:b], X.data[a:b], strict=True))
        for i, (a, b) in enumerate(zip(X.indptr[:-1], X.indptr[1:], strict=True))
    ]


def vw_memory_tree(data: LabelledSet, options: argparse.Namespace) -> Iterator[Outcome]:
    """Return Vowpal Wabbit's Contextual Memory Tree with a one-against-some head."""
    from vowpalwabbit import Workspace

    n_rows, n_labels, n = data.X.shape[0], data.Y.shape[1], data.answers.shape[0]
    if n_labels > options.most_labels:
        return
    asked = _vw_lines(data.queries, data.answers)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "examples.txt"
        path.write_text("\n".join(_vw_lines(data.X, data.Y)) + "\n")
        for run, (n_passes, settings) in enumerate(VW_OPTIONS):
            tree = f"--memory_tree {n_rows} --max_number_of_labels {n_labels} --oas -b 24 {settings}"
            start = time.perf_counter()
            cache = f"--cache_file {path}.{run} -k --passes {n_passes} --holdout_off"
            workspace = Workspace(f"{tree} -d {path} {cache} --quiet")
            workspace.run_parser()
            trained = time.perf_counter()
            parsed = [workspace.parse(line) for line in asked]
            begun = time.perf_counter()
            wrong = 0.0
            for example in parsed:
                workspace.predict(example)
                wrong += example.get_loss()
            done = time.perf_counter()
            name = f"Vowpal Wabbit, memory tree, {n_passes} passes, {settings}"
            training, microseconds = trained - start, (done - begun) / n * 1e6
            yield Outcome(name, wrong / n, UNKNOWN, UNKNOWN, float("nan"), training, microseconds)


LEARNERS: dict[str, Callable[[LabelledSet, argparse.Namespace], Iterator[Outcome]]] = {
    "ours": ours,
    "one_against_all": one_against_all,
    "vw": vw_memory_tree,
}


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Compare multi-label classifiers.")
    parser.add_argument("--data", type=Path, required=True, help="folder of sets")
    parser.add_argument("--sets", nargs="+", default=["bibtex", "delicious", "debtags", "debian_depends"])
    parser.add_argument("--learners", nargs="+", choices=list(LEARNERS), default=list(LEARNERS))
    parser.add_argument("--most-labels", type=int, default=1000, help="of a set that all learners are trained on")
    parser.add_argument("--sample-labels", type=int, default=0, help="to time one against all by, where there are more")
    options = parser.parse_args()
    headers = ["learner", "wrong labels", *(f"P@{k}" for k in RANKS), *(f"nDCG@{k}" for k in RANKS)]
    headers += ["share", "train s", "us a query"]
    formats = ("", ".4f", *(6 * [".4f"]), ".3f", ".2f", ".1f")
    for name in options.sets:
        data = read_set(options.data / name)
        rows = [
            [o.learner, o.wrong, *o.precision, *o.gain, o.share, o.train_seconds, o.query_microseconds]
            for learner in options.learners
            for o in LEARNERS[learner](data, options)
        ]
        n_asked = data.answers.nnz / data.answers.shape[0]
        print(f"\n{name}: {data.X.shape[0]} examples, {data.Y.shape[1]} labels, {n_asked:.2f} a query")
        print(tabulate(rows, headers, floatfmt=formats), flush=True)


if __name__ == "__main__":
    main()

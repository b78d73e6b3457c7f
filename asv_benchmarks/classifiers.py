"""Compare classifiers over many classes, with several labels, on tables, and after forgetting."""

from shared.commands import DATA, Commands, argument, fastest, print_table, timed

import argparse
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from shared.extreme_learners import LEARNERS as EXTREME_LEARNERS
from shared.extreme_learners import apart, is_installed, read_part
from shared.labelled_sets import (
    SETS,
    LabelledSet,
    calibration_error,
    coil,
    omniglot,
    read_multilabel,
    texts_with_labels,
    with_bm25_keys,
)
from shared.products import best_by_product
from shared.texts import bm25s_search, bm25s_tokens
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, load_wine, make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.model_selection import cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, normalize
from sklearn.svm import LinearSVC

from cmt_numba import CMTClassifier, CMTMultilabelClassifier
from cmt_numba.metrics import inverse_propensities, ndcg_at, precision_at

commands = Commands(__doc__)

Predict = Callable[[Any], np.ndarray]
Learner = Callable[[LabelledSet], Predict]

MOST_WORK_AGAINST_ALL = 2e9  # feature values of all examples, times the number of classes
BATCH = 256  # rows whose scores of all classes are computed together


def exact(data: LabelledSet) -> Predict:
    """Return a search for the class of the nearest example by cosine."""
    return lambda queries: data.y[best_by_product(queries, data.X, 1)[:, 0]]


def class_means(data: LabelledSet) -> Predict:
    """Return a search for the class with the nearest mean by cosine."""
    classes, y = np.unique(data.y, return_inverse=True)
    members = scipy.sparse.csr_array((np.ones(y.size, np.float32), (y, np.arange(y.size))), (classes.size, y.size))
    means = normalize(members @ data.X)
    return lambda queries: classes[best_by_product(queries, means, 1)[:, 0]]


def linear(data: LabelledSet) -> Predict:
    """Fit a linear support vector machine, one against all, unless it would take many minutes."""
    if data.X.size * data.n_classes > MOST_WORK_AGAINST_ALL:
        raise NotImplementedError
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a target with many classes looks like regression
        return LinearSVC().fit(data.X, data.y).predict


def bm25(data: LabelledSet) -> Predict:
    """Index texts with bm25s. The answer is the class of the most similar text."""
    if data.texts is None:
        raise NotImplementedError
    search = bm25s_search(data.texts[0])
    asked = {n: bm25s_tokens(data.texts[1][:n]) for n in (10, len(data.texts[1]))}
    return lambda queries: data.y[search(asked[queries.shape[0]], 1)[:, 0]]


def ours(data: LabelledSet) -> Predict:
    """Fit ``CMTClassifier``."""
    return CMTClassifier(random_state=0).fit(data.X, data.y).predict


def all_scores(data: LabelledSet) -> Predict:
    """Fit ``CMTClassifier``, and score all classes for each query."""
    classifier = CMTClassifier(random_state=0).fit(data.X, data.y)

    def predict(queries: Any) -> np.ndarray:
        parts = [queries[first : first + BATCH] for first in range(0, queries.shape[0], BATCH)]
        return classifier.classes_[np.concatenate([classifier.decision_function(p).argmax(axis=1) for p in parts])]

    return predict if classifier.classes_.size > 2 else classifier.predict


LEARNERS: dict[str, Learner] = {
    "exact": exact,
    "means": class_means,
    "linear": linear,
    "BM25": bm25,
    "all": all_scores,
    "ours": ours,
}
APART = ("plt", "xr_linear")  # learners of labels that run in processes of their own
Outcome = tuple[float, float, float]  # error, microseconds per query, and seconds to train


def measured(data: LabelledSet, learner: Learner) -> Outcome | None:
    """Return the results of a learner, or None if it cannot learn the set or is not installed."""
    few = data._replace(X=data.X[:3000], y=data.y[:3000], texts=data.texts and (data.texts[0][:3000], data.texts[1]))
    try:
        learner(few)(data.queries[:10])  # compile all kernels
        predict, seconds = timed(learner, data)
    except (ImportError, NotImplementedError):
        return None
    found, microseconds = fastest(predict, data.queries, n_rows=data.answers.size)
    return float(np.mean(found != data.answers)), microseconds, seconds


def measured_apart(data: LabelledSet, name: str, python: str) -> Outcome:
    """Return the results of a multi-label learner that runs in a process of its own."""
    classes, y = np.unique(data.y, return_inverse=True)
    labels = scipy.sparse.csr_matrix((np.ones(y.size), (np.arange(y.size), y)), (y.size, classes.size))
    with tempfile.TemporaryDirectory() as folder:
        for part, matrix in (("X_train", data.X), ("Y_train", labels), ("X_test", data.queries)):
            scipy.sparse.save_npz(Path(folder) / f"{part}.npz", scipy.sparse.csr_matrix(matrix), compressed=False)
        run = apart(name, Path(folder), 1, python)
    error = float(np.mean((run.best[:, 0] < 0) | (classes[run.best[:, 0]] != data.answers)))
    return error, run.query_microseconds, run.train_seconds


def keyed(name: str, folder: Path, keys: list[str]) -> Iterator[tuple[str, LabelledSet]]:
    """Yield the names and versions of a set: one for each kind of keys if it consists of texts."""
    data = SETS[name](folder)
    if "tfidf" in keys or data.texts is None:
        yield name, data
    for key, norm, title in (("bm25", "append", "BM25 keys"), ("bm25_l2", "l2", "BM25 keys of length 1")):
        with_terms = with_bm25_keys(data, norm) if key in keys else None
        if with_terms is not None:
            yield f"{name}, {title}", with_terms


PYTHON = argument("--python", nargs="*", default=[], metavar="LEARNER=PATH", help="interpreter for a learner")


@commands.add(
    DATA,
    argument("--sets", nargs="+", default=["coil", "clinc", "omni", "wiki", "bible, 1"], help="beginnings of names"),
    argument("--learners", nargs="+", choices=[*LEARNERS, *APART], default=list(LEARNERS)),
    argument("--keys", nargs="+", choices=("tfidf", "bm25", "bm25_l2"), default=["tfidf"], help="kinds of text keys"),
    PYTHON,
)
def compare(options: argparse.Namespace) -> None:
    """Compare ``CMTClassifier`` with exact search, class means, linear models, BM25 and label trees.

    "all" scores all classes with the scorers of ``CMTClassifier``, and BM25 returns the class of the most similar text.
    PLT (napkinXC) and XR-Linear (PECOS) run in processes of their own; ``shared/extreme_learners.py`` lists the
    packages to install. Learners that are not installed are skipped.

    Prints a table of errors, of microseconds of CPU time per query (all queries in one batch), and of seconds of CPU
    time to train, with a row for each set. Vectorising texts is not timed.
    """
    interpreters = dict.fromkeys(APART, sys.executable) | dict(pair.split("=", 1) for pair in options.python)
    chosen = [name for name in options.learners if name not in APART or is_installed(name, interpreters[name])]
    everything: dict[str, list[Outcome | None]] = {}
    names = [name for name in SETS if name.startswith(tuple(options.sets))]
    for name, data in chain.from_iterable(keyed(of_set, options.data, options.keys) for of_set in names):
        title = f"{name}: {data.y.size:,} / {data.n_classes:,}"
        everything[title] = []
        for learner in chosen:
            of_learner = partial(measured_apart, data, learner) if learner in APART else None
            outcome = of_learner(interpreters[learner]) if of_learner else measured(data, LEARNERS[learner])
            everything[title].append(outcome)
            print(title, learner, outcome, file=sys.stderr, flush=True)
    for i, (title, digits) in enumerate((("error", ".3f"), ("us/query", ",.1f"), ("seconds to train", ".1f"))):
        rows = [[name, *(outcome and outcome[i] for outcome in of_set)] for name, of_set in everything.items()]
        print_table(["set: examples / classes", *chosen], rows, title, digits)


@commands.add(
    DATA,
    argument("--sets", nargs="+", default=["bibtex", "delicious", "debtags", "debian_depends"]),
    argument("--learners", nargs="+", choices=list(EXTREME_LEARNERS), default=list(EXTREME_LEARNERS)),
    PYTHON,
)
def multilabel(options: argparse.Namespace) -> None:
    """Compare ``CMTMultilabelClassifier`` with napkinXC's PLT and PECOS's XR-Linear, on one thread.

    A set is a folder with ``X_train.npz``, ``X_test.npz``, ``Y_train.npz`` and ``Y_test.npz``: sparse matrices in the
    format of SciPy, with the features and the label indicators. Each learner runs in a process of its own, with its own
    interpreter; ``shared/extreme_learners.py`` says what to install. Learners that are not installed are skipped.

    Prints precision at 1 and 5, nDCG at 5, propensity-scored precision at 5, seconds of CPU time to train,
    microseconds per query (the minimum of several rounds), the peak memory of the whole process, data included, and the
    size of the model in a file.
    """
    interpreters = dict.fromkeys(options.learners, sys.executable) | dict(pair.split("=", 1) for pair in options.python)
    learners, table = [name for name in options.learners if is_installed(name, interpreters[name])], []
    for name in options.sets:
        labels, answers = (read_part(options.data / name, part) for part in ("Y_train", "Y_test"))
        for learner in learners:
            run = apart(learner, options.data / name, 5, interpreters[learner])
            scored = precision_at(answers, run.best, 5, inverse_propensities=inverse_propensities(labels))
            quality = [precision_at(answers, run.best, 1), precision_at(answers, run.best, 5)]
            costs = [run.train_seconds, run.query_microseconds, run.peak / 1e3, run.model / 1e3]
            table.append([f"{name}, {labels.shape[1]} labels", learner, *quality, ndcg_at(answers, run.best, 5)])
            table[-1] += [scored, *costs]
            print(table[-1], file=sys.stderr, flush=True)
    headers = ["set", "learner", "P@1", "P@5", "nDCG@5", "PSP@5", "train, s", "us/query", "peak GB", "model GB"]
    print_table(headers, table)


def tuned_machines(X: Any, Y: Any) -> tuple[Any, float]:
    """Return support vector machines, one for each label, with the C and threshold that suit held-out examples."""
    order, tried = np.random.default_rng(0).permutation(X.shape[0]), []
    held, learned = np.split(order, [min(2000, order.size // 5)])
    for C in (0.1, 0.3, 1.0, 3.0):
        scores = OneVsRestClassifier(LinearSVC(C=C)).fit(X[learned], Y[learned]).decision_function(X[held])
        for threshold in np.linspace(-0.9, 0.3, 25):
            tried.append((f1_score(Y[held], scores > threshold, average="micro", zero_division=0), C, threshold))
    _, C, threshold = max(tried)
    return OneVsRestClassifier(LinearSVC(C=C)).fit(X, Y), threshold


@commands.add(DATA, argument("--sets", nargs="+", default=["bibtex", "delicious", "debtags"]))
def thresholds(options: argparse.Namespace) -> None:
    """Measure label sets by default, with the threshold 0, and of tuned linear support vector machines.

    Prints the precision at 1, three means of F1 (of all pairs, of labels and of queries), the fraction of queries
    without a predicted label, and the number of predicted labels. The machines have the C and the threshold that are
    best on held-out examples.
    """
    warnings.simplefilter("ignore")  # labels without examples, and convergence
    rows: list[list[Any]] = []
    for name in options.sets:
        data = read_multilabel(options.data / name)
        given, zero = (CMTMultilabelClassifier(threshold=t, random_state=0).fit(data.X, data.Y) for t in ("f1", 0.0))
        machines, threshold = tuned_machines(data.X, data.Y.astype(int))
        learners = ("default", given, given.threshold_), ("0", zero, 0.0), ("SVM", machines, threshold)
        for title, learner, least in learners:
            scores = learner.decision_function(data.queries)
            found = scipy.sparse.csr_array(scores > least)
            best = np.asarray(data.answers[np.arange(scores.shape[0]), scores.argmax(axis=1)]).ravel()
            means = [f1_score(data.answers, found, average=a, zero_division=0) for a in ("micro", "macro", "samples")]
            n_found = np.diff(found.indptr)
            rows.append([name, title, np.mean(best > 0), *means, np.mean(n_found == 0), n_found.mean()])
    print_table(["set", "threshold", "P@1", "micro F1", "macro F1", "mean F1", "none", "labels"], rows)


def small_tables() -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Yield names of small tables of numbers with features of different scales, their rows and their classes."""
    for load in (load_iris, load_wine, load_breast_cancer):
        yield load.__name__[5:], *load(return_X_y=True)
    for seed in range(3):
        X, y = make_classification(2000, 12, n_informative=6, weights=[0.9], class_sep=1.2, random_state=seed)
        yield f"10 % in one class, {seed}", X * np.random.default_rng(seed).lognormal(0, 2, 12), y
    for load in (load_iris, load_wine):
        X, y = load(return_X_y=True)
        yield f"{load.__name__[5:]}, columns + 100", X + 100.0, y
    X, progress = load_diabetes(return_X_y=True, scaled=False)
    yield "diabetes, halves", X, (progress > np.median(progress)).astype(int)
    yield "digits", *load_digits(return_X_y=True)
    for seed in range(4):
        X, y = make_classification(3000, 20, n_informative=8, n_classes=5, n_clusters_per_class=2, random_state=seed)
        yield f"5 classes of 2 clusters, {seed}", X, y


@commands.add()
def tables(_options: argparse.Namespace) -> None:
    """Compare ``CMTClassifier`` by default with linear models and neighbors on small tables of numbers.

    Prints errors of cross-validation in five folds. "auto" is ``CMTClassifier(method="auto")``, and "not standardised"
    ``CMTClassifier(feature_weights="none")``. The models of scikit-learn follow a ``StandardScaler``.
    """
    learners: dict[str, Any] = {
        "default": CMTClassifier(random_state=0),
        "auto": CMTClassifier(method="auto", random_state=0),
        "LogisticRegression": make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000)),
        "LinearSVC": make_pipeline(StandardScaler(), LinearSVC()),
        "KNeighborsClassifier": make_pipeline(StandardScaler(), KNeighborsClassifier()),
        "not standardised": CMTClassifier(feature_weights="none", random_state=0),
    }
    rows = [
        [name, *(1.0 - cross_val_score(one, X, y).mean() for one in learners.values())] for name, X, y in small_tables()
    ]
    print_table(["table", *learners], rows)


def forgotten(labelled: LabelledSet, share: float) -> list[float]:
    """Return errors and agreement of a classifier that forgot a tenth of its classes and some rows, and of a refit."""
    rng, X, y = np.random.default_rng(0), labelled.X, labelled.y
    gone = rng.choice(np.unique(y), labelled.n_classes // 10, replace=False)
    left = np.flatnonzero(~np.isin(y, gone))
    ids = rng.choice(left, int(share * left.size), replace=False)
    classifier = CMTClassifier(random_state=0).fit(X, y).remove_classes(gone)
    if ids.size > 0:
        classifier.remove(ids)
    rest = np.setdiff1d(left, ids)
    refit = CMTClassifier(random_state=0).fit(X[rest], y[rest])
    asked = np.isin(labelled.answers, refit.classes_)
    found, expected = (one.predict(labelled.queries[asked]) for one in (classifier, refit))
    right = labelled.answers[asked]
    return [np.mean(found != right), np.mean(expected != right), np.mean(found == expected)]


@commands.add(DATA)
def forgetting(options: argparse.Namespace) -> None:
    """Compare ``CMTClassifier`` after forgetting with a classifier that never learned the removed examples.

    From each set a tenth of the classes is removed, and then a fraction of the remaining examples. Prints the errors of
    both on queries of the remaining classes, and the fraction of equal answers.
    """
    folder = options.data
    sets = {
        "clinc150, 20 shots": texts_with_labels(folder, "clinc150", 20),
        "clinc150, all": texts_with_labels(folder, "clinc150", 1000),
        "coil100, 18 views": coil(folder, 18),
        "omniglot, 10 drawers": omniglot(folder, 10),
    }
    rows = [[name, share, *forgotten(data, share)] for name, data in sets.items() for share in (0.0, 0.1, 0.3)]
    print_table(["set", "examples removed", "error", "error of a refit", "agreement"], rows)


@commands.add(DATA)
def calibration(options: argparse.Namespace) -> None:
    """Measure the calibration of the probabilities of ``CMTClassifier``.

    Prints for each set the error, and the expected calibration error with the fixed scale of scores that is used if no
    examples are stored, with the scale that is learned from held-out examples, and with the best one for the queries.
    """
    folder, rows = options.data, list[list[Any]]()
    sets = {"clinc150, 5": texts_with_labels(folder, "clinc150", 5)}
    sets["clinc150, all"] = texts_with_labels(folder, "clinc150", 1000)
    sets |= {f"wikipara1k, {n}": texts_with_labels(folder, "wikipara1k", n) for n in (3, 20)}
    sets |= {f"coil100, {n}": coil(folder, n) for n in (4, 18)}
    sets |= {f"Omniglot, {n} drawers": omniglot(folder, n) for n in (5, 10)}
    for name, data in sets.items():
        classifier = CMTClassifier(random_state=0).fit(data.X, data.y)
        fixed = CMTClassifier(store_examples=False, random_state=0).fit(data.X, data.y)
        errors = [calibration_error(one, data.queries, data.answers) for one in (fixed, classifier.calibrate())]
        best = calibration_error(classifier.calibrate(data.queries, data.answers), data.queries, data.answers)
        rows.append([name, 1.0 - classifier.score(data.queries, data.answers), *errors, best])
    print_table(["set, examples per class", "error", "fixed", "learned", "best"], rows)


if __name__ == "__main__":
    commands.main()

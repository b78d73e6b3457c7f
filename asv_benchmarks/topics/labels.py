"""Compare sources of candidates, search plans for dense rows, and multi-label classifiers."""

from shared.commands import DATA, Commands, argument, timed  # before libraries that read the number of threads

# isort: split
import argparse
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import scipy.sparse
from shared.extreme_learners import LEARNERS as EXTREME_LEARNERS
from shared.extreme_learners import apart, is_installed, read_part, resident_peak
from shared.labelled_sets import (
    RANKS,
    SETS,
    LabelledSet,
    MultilabelSet,
    coil,
    omniglot,
    read_multilabel,
    synthetic,
    vw_lines,
    with_bm25_keys,
)
from shared.products import product_of_all
from shared.texts import packages as stored_packages
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import f1_score
from sklearn.preprocessing import normalize
from sklearn.svm import LinearSVC
from tabulate import tabulate

from cmt_numba import CMTClassifier, CMTMultilabelClassifier
from cmt_numba._heads import SearchEffort
from cmt_numba._heads.products import all_scorers
from cmt_numba._validation import check_rows
from cmt_numba.estimators._calibration import best_threshold, f1_by_threshold
from cmt_numba.estimators._label_index import LabelIndex
from cmt_numba.metrics import f1, inverse_propensities, ndcg_at, precision_at

commands = Commands(__doc__)

QUICK = ("clinc150", "coil100", "omniglot", "wikipara1k, 3", "bible, 1", "packages, 30,000", "bibtex", "curve, 1,000")
SEVERAL = ("bibtex", "debtags", "delicious", "debian_depends")
N_WARMING = 300  # examples used to compile kernels


def _effort(**replaced: Any) -> Any:
    usual = LabelIndex.effort

    def effort(index: LabelIndex, options: Any, *, training: bool = False) -> SearchEffort:
        return usual(index, options, training=training)._replace(leaves_last=False, **replaced)

    return effort


SEARCHING: dict[str, Any] = {
    "all_scorers": lambda *_, **__: None,
    "dense_index": lambda *_: None,
    "lists_best": lambda *_: False,
    "effort": _effort(),
}
SOURCES: dict[str, dict[str, Any]] = {
    "default": {},
    "index only": SEARCHING | {"effort": _effort(n_leaves=0), "teach_routers": lambda *_, **__: None},
    "trees only": SEARCHING | {"lightest_listed": np.inf},
    "both": SEARCHING,
}
"""Replacements of methods of the index, which make it search trees or posting lists for any number of labels."""


def packages(folder: Path, n_stored: int) -> LabelledSet:
    """Return packages as tf-idf words of their names and summaries, and queries of some of their words, misspelt."""
    texts = stored_packages(folder, n_stored)
    words = TfidfVectorizer(sublinear_tf=True, dtype=np.float32)
    X, queries, both = words.fit_transform(texts.stored), words.transform(texts.queries), (texts.stored, texts.queries)
    return LabelledSet(X, np.arange(n_stored), queries, texts.answers, both)


def readers() -> dict[str, Callable[[Path], Any]]:
    """Return a function that reads each set."""
    sets: dict[str, Callable[[Path], Any]] = dict(SETS)
    for n_stored in (30_000, 300_000):
        sets[f"packages, {n_stored:,}"] = lambda folder, n=n_stored: packages(folder, n)
    for name in SEVERAL:
        sets[name] = lambda folder, name=name: read_multilabel(folder / name)
    return sets


def quality(data: Any, best: np.ndarray) -> list[float]:
    """Return the error of class predictions, or the precision of the best labels at each of the ranks."""
    if isinstance(data, LabelledSet):
        return [float(np.mean(best != data.answers))]
    return [precision_at(data.answers, best, k) for k in RANKS]


def ask(learner: Any, queries: Any) -> np.ndarray:
    """Return the class of each query, or its best labels."""
    best: np.ndarray = (
        learner.predict(queries) if isinstance(learner, CMTClassifier) else learner.top_labels(queries, RANKS[-1])[0]
    )
    return best


def outcomes(data: Any, sources: list[str], wider: int) -> Iterator[list[Any]]:
    """Yield the name of each configuration, its quality, the numbers of labels scored and met, and its times."""
    several = not isinstance(data, LabelledSet)
    answers, scale = (data.Y if several else data.y), 1e6 / data.queries.shape[0]

    def row(name: str, learner: Any, fit: float | None) -> list[Any]:
        ask(learner, data.queries[:2])
        best, query = timed(lambda: ask(learner, data.queries))
        k = RANKS[-1] if several else 1
        found = learner._model.index.best_labels(check_rows(data.queries), k, learner)
        return [name, *quality(data, best), found.n_scored.mean(), found.n_met.mean(), scale * query, fit]

    for source in sources:
        if source in ("index only", "both") and not scipy.sparse.issparse(data.X):
            continue  # dense rows have no index
        make = CMTMultilabelClassifier if several else CMTClassifier
        with patch.multiple(LabelIndex, **SOURCES[source]) if SOURCES[source] else nullcontext():
            few = make(store_examples=False, random_state=0).fit(data.X[:N_WARMING], answers[:N_WARMING])
            ask(few, data.queries[:2])
            learner = make(store_examples=False, random_state=0)
            _, fit = timed(lambda: learner.fit(data.X, answers))  # noqa: B023
            yield row(source, learner, fit)
        if source != "default":
            continue
        n_labels, n_common = learner.forest_.n_memories, learner._model.index.head.common.labels.size
        n_scored = float(learner.count_candidates(data.queries).mean())
        if learner._model.index.head.digest.n_labels or not learner._model.index.head.parameters.sparse:
            of_all = product_of_all(learner)
            best, query = timed(lambda: of_all(data.queries))  # noqa: B023
            yield ["all labels", *quality(data, best), n_labels, n_labels, scale * query, None]
        if wider and n_scored < n_labels:
            learner.set_params(n_candidates=max(1, int(wider * n_scored) - n_common))
            yield row(f"default, {wider} times as many", learner, None)


def summary(everything: dict[str, list[list[Any]]]) -> str:
    """Return a table with a row for each set: the first quality measure, labels scored, and microseconds."""
    sources = [
        source
        for source in (*SOURCES, "all labels")
        if any(row[0] == source for rows in everything.values() for row in rows)
    ]
    table = []
    for name, rows in everything.items():
        cells = {row[0]: f"{row[1]:.3f}, {row[-4]:,.0f}, {row[-2]:,.{1 if row[-2] < 9.95 else 0}f} us" for row in rows}
        wider = [f"{row[1] - rows[0][1]:+.3f}, {row[-4]:,.0f}" for row in rows if row[0].startswith("default, ")]
        table.append([name, *(cells.get(source, "") for source in sources), *wider])
    return tabulate(table, ["set", *sources, "more labels"], tablefmt="pipe", disable_numparse=True)


@commands.add(
    DATA,
    argument("--sets", nargs="+", default=QUICK, help="only sets whose names start with one of these"),
    argument("--sources", nargs="+", choices=list(SOURCES), default=list(SOURCES)),
    argument("--keys", choices=["tfidf", "bm25"], default="tfidf", help="kind of text keys"),
    argument("--wider", type=int, default=5, help="factor for an additional row with more candidates; 0: no such row"),
)
def candidates(options: argparse.Namespace) -> None:
    """Compare sources of candidate labels: the inverted index alone, trees alone, both, and all labels.

    The sets are those of ``shared/labelled_sets.py``, multi-label sets, and ``packages`` of several sizes (the folder
    holds ``packages/summaries.jsonl.gz`` as ``shared/texts.py`` describes it). By default only sets that take at most a
    minute are run. Texts become tf-idf words or, with ``--keys bm25``, keys of ``BM25Vectorizer``.

    Each source of candidates is used in training and for queries. *default* is the classifier with its defaults. *both*
    searches trees and index; the default skips this search where it can score all labels, or where the index alone
    finds the best labels. *all labels* scores all labels with the model of the default, by one matrix product.

    Prints:

    - the error, or for multi-label sets precision at 1, 3 and 5;
    - the labels that are scored per query with all their weights;
    - the labels that are met per query: those in leaves, those in posting lists whose entries are added up, and the
      common labels;
    - CPU time per query in one batch, and CPU time to fit.

    With ``--wider 5`` (the default), another row has the default with ``n_candidates`` set to five times the number of
    labels that it scores. Finally prints a table with a row for each set: error or precision at 1, labels scored, and
    microseconds.
    """
    everything = {}
    for name, read in readers().items():
        if not name.startswith(tuple(options.sets)):
            continue
        data = read(options.data)
        several = not isinstance(data, LabelledSet)
        if not several and options.keys == "bm25":
            data = with_bm25_keys(data) or data
        headers = ["candidates", *([f"P@{k}" for k in RANKS] if several else ["error"])]
        headers += ["labels scored", "labels met", "us/query", "fit, s"]
        print(f"\n{name}: {data.X.shape[0]} examples")
        formats = ("", *([".4f"] * (len(headers) - 5)), ".0f", ".0f", ".1f", ".1f")
        everything[name] = list(outcomes(data, options.sources, options.wider))
        print(tabulate(everything[name], headers, floatfmt=formats), flush=True)
    print(f"\n{summary(everything)}")


BATCHES = (1, 1000, None)
ROWS_AT_ONCE, CLASSES_AT_ONCE = 1000, 10_000  # block size of a product: 40 MB
Method = Callable[[np.ndarray], np.ndarray]


def product(weights: np.ndarray, classes: np.ndarray) -> Method:
    """Return the class whose vector has the largest product with each row, computed in blocks that suit BLAS."""
    scores = np.empty((ROWS_AT_ONCE, CLASSES_AT_ONCE), np.float32)

    def best(X: np.ndarray) -> np.ndarray:
        found, largest = np.empty(len(X), np.int64), np.full(len(X), -np.inf, np.float32)
        for i in range(0, len(X), ROWS_AT_ONCE):
            for j in range(0, len(weights), CLASSES_AT_ONCE):
                some, rows = weights[j : j + CLASSES_AT_ONCE], X[i : i + ROWS_AT_ONCE]
                block = np.matmul(rows, some.T, out=scores[: len(rows), : len(some)])
                at = block.argmax(axis=1)
                value = np.take_along_axis(block, at[:, None], axis=1)[:, 0]
                better = np.flatnonzero(value > largest[i : i + ROWS_AT_ONCE])
                found[i + better], largest[i + better] = j + at[better], value[better]
        return classes[found]

    return best


def methods(data: LabelledSet) -> Iterator[tuple[str, float, Method]]:
    """Yield the methods to compare: the name, the seconds to prepare it, and the function that answers queries."""
    before, began = resident_peak() / 1024, time.process_time()
    classifier = CMTClassifier(random_state=0).fit(data.X, data.y)
    fitted, after_fit = time.process_time() - began, resident_peak() / 1024
    classifier.predict(data.queries[:1])
    print(f"fit: {fitted:.1f} s; peak memory: {before:.2f} GB before, {after_fit:.2f} GB after", end="")
    print(f", {resident_peak() / 1024:.2f} GB when ready for queries")
    yield "CMTClassifier", time.process_time() - began, classifier.predict
    classes, positions = np.unique(data.y, return_inverse=True)
    means = np.zeros((classes.size, data.X.shape[1]), np.float32)
    np.add.at(means, positions, data.X)
    yield "product with class means", 0.0, product(normalize(means), classes)
    scorers = all_scorers(classifier._model.index.head)
    assert scorers is not None
    weights, of_label = np.ascontiguousarray(scorers.weights.T), classes[classifier._model.class_of_label]
    yield "product with scorers", 0.0, product(weights, of_label)


def compare(data: LabelledSet, repeats: int, product_queries: int) -> list[list[float | str]]:
    """Return the error, the seconds to prepare, and the microseconds per row of each method.

    Matrix products answer only the first ``product_queries`` queries. All errors are measured on these.
    """
    everything = list(methods(data))
    queries = np.ascontiguousarray(data.queries, np.float32)
    least = np.full((len(everything), len(BATCHES)), np.inf)
    for i, batch in enumerate(BATCHES):
        n_calls = 50 if batch == 1 else 1
        for _ in range(repeats):
            for j, (name, _, method) in enumerate(everything):
                n_rows = min(batch or len(queries), asked_of(name, queries, product_queries))
                began = time.process_time()
                for call in range(n_calls):
                    method(queries[call : call + n_rows])
                least[j, i] = min(least[j, i], 1e6 * (time.process_time() - began) / n_calls / n_rows)
    asked, answers = queries[:product_queries], data.answers[:product_queries]
    errors = [float(np.mean(method(asked) != answers)) for _, _, method in everything]
    return [[name, errors[j], seconds, *least[j]] for j, (name, seconds, _) in enumerate(everything)]


def asked_of(name: str, queries: np.ndarray, product_queries: int) -> int:
    """Return the number of queries that a method answers."""
    return min(len(queries), product_queries) if name.startswith("product") else len(queries)


@commands.add(
    argument("--data", type=Path, help="folder of data; default: only synthetic sets"),
    argument(
        "--classes",
        type=int,
        nargs="*",
        default=[1000, 5000, 10_000, 50_000],
        help="numbers of classes of the synthetic sets",
    ),
    argument("--shots", type=int, default=5, help="examples per class of the synthetic sets"),
    argument("--repeats", type=int, default=5),
    argument(
        "--product-queries", type=int, default=4000, help="maximum number of queries for matrix products and for errors"
    ),
)
def plans(options: argparse.Namespace) -> None:
    """Compare the search plans of CMTClassifier for dense rows with matrix products, on one thread.

    Prints the error and microseconds of CPU time per row, in batches of 1, of 1,000 and of all rows, on coil100,
    Omniglot and the synthetic set of ``shared/labelled_sets.py`` with several numbers of classes.

    The baselines are a product with the class means, and a product with the classifier's own scorers. The methods take
    turns, and each time is the minimum of several runs.
    """
    sets: dict[str, Callable[[], LabelledSet]] = {}
    if options.data is not None:
        sets["coil100, 4 views"] = lambda: coil(options.data, 4)
        sets["omniglot, 10 drawers"] = lambda: omniglot(options.data, 10)
    for n_classes in options.classes:
        sets[f"synthetic, {n_classes} classes"] = lambda n_classes=n_classes: synthetic(n_classes, options.shots)
    for name, read in sets.items():
        data = read()
        print(f"\n{name}: {data.X.shape[0]} examples of {np.unique(data.y).size} classes, {data.X.shape[1]} features")
        headers = ["method", "error", "ready, s", "us/row: batch of 1", "1,000", f"{len(data.answers):,}"]
        print(
            tabulate(
                compare(data, options.repeats, options.product_queries),
                headers,
                floatfmt=("", ".4f", ".2f", ".1f", ".1f", ".1f"),
            ),
            flush=True,
        )


BATCH = 256

VW_OPTIONS = [
    (4, "--alpha 0.1 --leaf_example_multiplier 4 --dream_repeats 3 --learn_at_leaf -l 0.5"),
    (4, "--alpha 0.1 --leaf_example_multiplier 40 --dream_repeats 3 --learn_at_leaf --dream_at_update 1 -l 1"),
]
"""Passes and options of Vowpal Wabbit's memory tree. Its alpha is 1 minus the paper's."""


class MultilabelOutcome(NamedTuple):
    """The results of one learner on one set. A value that the learner does not report is NaN."""

    learner: str
    wrong: float  # labels per query
    precision: list[float]  # at each of the ranks
    gain: list[float]  # nDCG at each of the ranks
    share: float  # of the labels scored
    train_seconds: float
    query_microseconds: float


UNKNOWN = [float("nan")] * len(RANKS)


def ranking_quality(best: np.ndarray, answers: Any) -> tuple[list[float], list[float]]:
    """Return precision and nDCG of the best labels at each of the ranks; -1 stands for no label."""
    return [precision_at(answers, best, k) for k in RANKS], [ndcg_at(answers, best, k) for k in RANKS]


def ours_of_labels(data: MultilabelSet, options: argparse.Namespace) -> Iterator[MultilabelOutcome]:
    """Measure ``CMTMultilabelClassifier`` with the threshold of the other learners."""
    few = CMTMultilabelClassifier(threshold=0.0, random_state=0).fit(data.X[:50], data.Y[:50])  # compile all kernels
    few.predict(data.queries[:5])
    start = time.perf_counter()
    learner = CMTMultilabelClassifier(threshold=0.0, random_state=0).fit(data.X, data.Y)
    trained = time.perf_counter()
    predicted = learner.predict(data.queries) != 0
    done = time.perf_counter()
    n = data.answers.shape[0]
    best, _ = learner.top_labels(data.queries, RANKS[-1])
    share = float(learner.count_candidates(data.queries).mean()) / data.Y.shape[1]
    wrong = (predicted != data.answers).nnz / n
    quality = ranking_quality(best, data.answers)
    yield MultilabelOutcome(
        "CMTMultilabelClassifier", wrong, *quality, share, trained - start, (done - trained) / n * 1e6
    )


def _solve_labels(data: MultilabelSet, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Return the weights and biases of the support vector machines of some labels, and the seconds to train them."""
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


def one_against_all(data: MultilabelSet, options: argparse.Namespace) -> Iterator[MultilabelOutcome]:
    """Measure a linear support vector machine for each label."""
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
        yield MultilabelOutcome(name, float("nan"), UNKNOWN, UNKNOWN, 1.0, training, microseconds)
    else:
        quality = ranking_quality(best, data.answers)
        yield MultilabelOutcome("LinearSVC, one against all", wrong / n, *quality, 1.0, training, microseconds)


def vw_memory_tree(data: MultilabelSet, options: argparse.Namespace) -> Iterator[MultilabelOutcome]:
    """Measure Vowpal Wabbit's Contextual Memory Tree with a one-against-some head."""
    from vowpalwabbit import Workspace

    n_rows, n_labels, n = data.X.shape[0], data.Y.shape[1], data.answers.shape[0]
    if n_labels > options.most_labels:
        return
    asked = vw_lines(data.queries, data.answers.tolil().rows)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "examples.txt"
        path.write_text("\n".join(vw_lines(data.X, data.Y.tolil().rows)) + "\n")
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
            yield MultilabelOutcome(name, wrong / n, UNKNOWN, UNKNOWN, float("nan"), training, microseconds)


LEARNERS: dict[str, Callable[[MultilabelSet, argparse.Namespace], Iterator[MultilabelOutcome]]] = {
    "ours": ours_of_labels,
    "one_against_all": one_against_all,
    "vw": vw_memory_tree,
}


@commands.add(
    DATA,
    argument("--sets", nargs="+", default=["bibtex", "delicious", "debtags", "debian_depends"]),
    argument("--learners", nargs="+", choices=list(LEARNERS), default=list(LEARNERS)),
    argument(
        "--most-labels", type=int, default=1000, help="train one against all only on sets with at most this many labels"
    ),
    argument("--sample-labels", type=int, default=0, help="time one against all on this many labels of larger sets"),
)
def multilabel(options: argparse.Namespace) -> None:
    """Compare ``CMTMultilabelClassifier`` with linear one against all and Vowpal Wabbit's memory tree, on one thread.

    A set is a folder with ``X_train.npz``, ``X_test.npz``, ``Y_train.npz`` and ``Y_test.npz``: sparse matrices in the
    format of SciPy, with the features and the label indicators. Prints for each learner the wrong labels per query (the
    Hamming loss times the number of labels), precision and nDCG at 1, 3 and 5, the fraction of the labels that are
    scored per query, seconds to train, and microseconds per query.

    One against all is scikit-learn's LinearSVC for each label, and answers a batch of queries with one matrix product.
    It is skipped for sets with more than ``--most-labels`` labels, unless ``--sample-labels`` is given: then that many
    random labels are trained, the times are extrapolated to all labels, and no quality is reported. The memory tree
    with its one-against-some head (``--memory_tree --oas``) reports no labels, only the number of wrong labels per
    query. Needs scikit-learn, tabulate and, for Vowpal Wabbit, the package vowpalwabbit.
    """
    headers = ["learner", "wrong labels", *(f"P@{k}" for k in RANKS), *(f"nDCG@{k}" for k in RANKS)]
    headers += ["share scored", "train, s", "us/query"]
    formats = ("", ".4f", *(6 * [".4f"]), ".3f", ".2f", ".1f")
    for name in options.sets:
        data = read_multilabel(options.data / name)
        rows = [
            [o.learner, o.wrong, *o.precision, *o.gain, o.share, o.train_seconds, o.query_microseconds]
            for learner in options.learners
            for o in LEARNERS[learner](data, options)
        ]
        n_asked = data.answers.nnz / data.answers.shape[0]
        print(f"\n{name}: {data.X.shape[0]} examples, {data.Y.shape[1]} labels, {n_asked:.2f} per query")
        print(tabulate(rows, headers, floatfmt=formats), flush=True)


@commands.add(
    DATA,
    argument("--sets", nargs="+", default=["bibtex", "delicious", "debtags", "debian_depends"]),
    argument("--learners", nargs="+", choices=list(EXTREME_LEARNERS), default=list(EXTREME_LEARNERS)),
    argument("--python", nargs="*", default=[], metavar="LEARNER=PATH", help="interpreter for a learner"),
)
def extreme(options: argparse.Namespace) -> None:
    """Compare ``CMTMultilabelClassifier`` with napkinXC's PLT and PECOS's XR-Linear, on one thread.

    A set is a folder with ``X_train.npz``, ``X_test.npz``, ``Y_train.npz`` and ``Y_test.npz``: sparse matrices in the
    format of SciPy, with the features and the label indicators. Each learner runs in a process of its own, with its own
    interpreter; ``shared/extreme_learners.py`` says what to install. Learners that are not installed are skipped.

    Prints precision and nDCG at 1, 3 and 5, propensity-scored precision at 5, seconds of CPU time to train,
    microseconds per query (the minimum of several rounds), the peak memory of the whole process, data included, and the
    size of the model in a file.
    """
    interpreters = dict.fromkeys(options.learners, sys.executable) | dict(pair.split("=", 1) for pair in options.python)
    learners = [name for name in options.learners if is_installed(name, interpreters[name])]
    headers = ["learner", *(f"P@{k}" for k in RANKS), *(f"nDCG@{k}" for k in RANKS), "PSP@5"]
    headers += ["train, s", "us/query", "peak GB", "model GB"]
    for name in options.sets:
        labels, answers = (read_part(options.data / name, part) for part in ("Y_train", "Y_test"))
        table = []
        for learner in learners:
            run = apart(learner, options.data / name, RANKS[-1], interpreters[learner])
            costs = [run.train_seconds, run.query_microseconds, run.peak / 1e3, run.model / 1e3]
            precision, gain = ranking_quality(run.best, answers)
            scored = precision_at(answers, run.best, RANKS[-1], inverse_propensities=inverse_propensities(labels))
            table.append([learner, *precision, *gain, scored, *costs])
        print(f"\n{name}: {labels.shape[0]} examples, {labels.shape[1]} labels")
        print(tabulate(table, headers, floatfmt=("", *(7 * [".4f"]), ".1f", ".0f", ".2f", ".3f")), flush=True)


def scores_of_all(C: float, X: Any, Y: Any, queries: Any) -> np.ndarray:
    """Return the scores of a linear support vector machine for each label."""
    Y, scores = scipy.sparse.csc_array(Y), np.full((queries.shape[0], Y.shape[1]), -1.0, np.float32)
    for label in range(Y.shape[1]):
        has = np.zeros(X.shape[0], np.int64)
        has[Y.indices[Y.indptr[label] : Y.indptr[label + 1]]] = 1
        if 0 < has.sum() < has.size:
            machine = LinearSVC(C=C, dual=True, max_iter=200, random_state=0).fit(X, has)
            scores[:, label] = machine.decision_function(queries)
    return scores


def tuned_machines(data: MultilabelSet) -> tuple[str, np.ndarray, Any]:
    """Return the scores and predictions of support vector machines with C and threshold tuned on held-out examples."""
    X, Y = scipy.sparse.csr_array(data.X), scipy.sparse.csr_array(data.Y)
    order = np.random.default_rng(0).permutation(X.shape[0])
    n, tried = min(2000, X.shape[0] // 5), []
    wanted = Y[order[:n]].astype(bool)
    for C in (0.1, 0.3, 1.0, 3.0):
        held = scores_of_all(C, X[order[n:]], Y[order[n:]], X[order[:n]])
        row, _ = (places.ravel() for places in np.indices(held.shape))
        of_pairs = row, held.ravel(), wanted.toarray().ravel()
        threshold = best_threshold(f1_by_threshold(*of_pairs, np.diff(wanted.indptr), np.ones(n, np.float32)))
        tried.append((f1(wanted, held > threshold, "micro"), C, threshold))
    _, C, threshold = max(tried)
    scores = scores_of_all(C, X, Y, data.queries)
    return f"LinearSVC(C={C}), threshold {threshold:.2f}", scores, scipy.sparse.csr_array(scores > threshold)


def ours_with_threshold(data: MultilabelSet, threshold: float | str) -> tuple[str, np.ndarray, Any]:
    """Return the scores and predictions of ``CMTMultilabelClassifier``."""
    classifier, took = timed(lambda: CMTMultilabelClassifier(threshold=threshold, random_state=0).fit(data.X, data.Y))
    chosen = f"f1: {classifier.threshold_:.2f}" if threshold == "f1" else "0"
    name = f"ours, threshold {chosen} ({took:.1f} s to fit)"
    return name, classifier.decision_function(data.queries), classifier.predict(data.queries)


@commands.add(
    DATA,
    argument("--sets", nargs="+", default=["bibtex", "delicious", "debtags"]),
    argument("--labels", type=int, default=1000, help="the most frequent labels of each set"),
)
def thresholds(options: argparse.Namespace) -> None:
    """Measure label sets by default, with the threshold 0, and of tuned linear support vector machines.

    Prints the precision at 1, three means of F1 (of all pairs, of labels and of queries), the fraction of queries
    without a predicted label, and the number of predicted labels. The machines, one for each label, have the C and the
    threshold that are best on held-out examples.

    ``shared/labelled_sets.py`` describes the folder of data.
    """
    warnings.simplefilter("ignore")  # convergence warnings of support vector machines
    for name in options.sets:
        data = most_frequent(read_multilabel(options.data / name), options.labels)
        wanted = scipy.sparse.csr_array(data.answers)
        lines = []
        for learner, scores, found in (
            ours_with_threshold(data, "f1"),
            ours_with_threshold(data, 0.0),
            tuned_machines(data),
        ):
            best = np.asarray(wanted[np.arange(wanted.shape[0]), scores.argmax(axis=1)]).ravel()
            n_found = np.asarray(scipy.sparse.csr_array(found).sum(axis=1)).ravel()
            means = [
                f1_score(data.answers, found, average=kind, zero_division=0) for kind in ("micro", "macro", "samples")
            ]
            lines.append([learner, np.mean(best > 0), *means, np.mean(n_found == 0), n_found.mean()])
        print(f"{name}: {wanted.shape[1]} labels, {wanted.nnz / wanted.shape[0]:.2f} per query")
        headers = ["learner", "P@1", "micro F1", "macro F1", "mean F1", "none", "labels"]
        print(tabulate(lines, headers, "github", floatfmt=".3f"), flush=True)


def most_frequent(data: MultilabelSet, n_labels: int) -> MultilabelSet:
    """Return a set with its most frequent labels only, and the examples and queries that have one of them."""
    Y, answers = scipy.sparse.csr_array(data.Y), scipy.sparse.csr_array(data.answers)
    kept = np.sort(np.argsort(-np.asarray(Y.sum(axis=0)).ravel(), kind="stable")[:n_labels])
    Y, answers = Y[:, kept], answers[:, kept]
    rows, asked = (np.flatnonzero(np.diff(part.indptr)) for part in (Y, answers))
    return data._replace(X=data.X[rows], Y=Y[rows], queries=data.queries[asked], answers=answers[asked])

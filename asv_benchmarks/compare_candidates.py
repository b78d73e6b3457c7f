"""Compare where candidate labels come from: the inverted index alone, trees alone, both, and all labels.

    python asv_benchmarks/compare_candidates.py --data path/to/folder
    python asv_benchmarks/compare_candidates.py --data path/to/folder --sets "bible, 3" debian_depends
    python asv_benchmarks/compare_candidates.py --data path/to/folder --sets "bible, 1" --keys bm25

The sets are those of ``labelled_sets.py``, ``packages`` with a number of packages (the folder holds
``packages/summaries.jsonl.gz`` as ``compare_text.py`` describes it), and sets of several labels an example as
``compare_multilabel.py`` describes them. By default those that take a minute or less. Texts become tf-idf words, or
with ``--keys bm25`` keys of ``BM25Vectorizer``.

Each source of candidates is used in training and for queries. *default* is the classifier as it comes; *both* is the
search of trees and index, which the default leaves out where it can score all labels or the index finds the best ones
by itself. *all labels* scores all labels with what the default has learned, by one matrix product. Prints the error, or
for several labels precision at 1, 3 and 5; how many labels are scored for a query, with all their weights, and how many
are met: those found in leaves and in lists of the index, where an entry of a list is added up, and the common ones;
processor time of a query in one batch, and to fit. With ``--wider 5``, which is the default, another row has the
default with ``n_candidates`` five times what it scores. In the end a table with a line for each set: error, or
precision at 1, labels scored, and microseconds.
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_variable] = "1"  # before any library reads them

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import compare_multilabel
import compare_text
import numpy as np
import scipy.sparse
from labelled_sets import SETS, LabelledSet, with_bm25_keys
from sklearn.feature_extraction.text import TfidfVectorizer
from tabulate import tabulate

from cmt_numba import CMTClassifier, CMTMultilabelClassifier
from cmt_numba._heads.candidates import Effort
from cmt_numba.estimators._label_forest import LabelForest
from cmt_numba.metrics import precision_at

RANKS = (1, 3, 5)
QUICK = ("clinc150", "coil100", "omniglot", "wikipara1k, 3", "bible, 1", "packages, 30,000", "bibtex", "curve, 1,000")
SEVERAL = ("bibtex", "debtags", "delicious", "debian_depends")
N_WARMING = 300  # examples that kernels are compiled with
PRODUCTS_AT_ONCE = 1 << 24


class Searching(LabelForest):
    """A classifier that searches trees and index whatever the number of labels."""

    _trees_add_to_index = True

    def _all_scorers(self, n_rows: int = 0) -> None:
        return None

    def _lists(self) -> None:
        return None

    def _lists_best(self, k: int) -> bool:
        return False


class IndexOnly(Searching):
    """A classifier that reaches no leaf."""

    def _effort(self, *, training: bool = False) -> Effort:
        return super()._effort(training=training)._replace(n_leaves=0)

    def _teach_routers(self, *arguments: Any, **options: Any) -> None:
        pass


class TreesOnly(Searching):
    """A classifier whose index lists nothing."""

    _lightest_listed = np.inf


class _IndexOfClasses(IndexOnly, CMTClassifier): ...


class _TreesOfClasses(TreesOnly, CMTClassifier): ...


class _BothOfClasses(Searching, CMTClassifier): ...


class _IndexOfLabels(IndexOnly, CMTMultilabelClassifier): ...


class _TreesOfLabels(TreesOnly, CMTMultilabelClassifier): ...


class _BothOfLabels(Searching, CMTMultilabelClassifier): ...


KINDS: dict[str, tuple[type[CMTClassifier], type[CMTMultilabelClassifier]]] = {
    "default": (CMTClassifier, CMTMultilabelClassifier),
    "index only": (_IndexOfClasses, _IndexOfLabels),
    "trees only": (_TreesOfClasses, _TreesOfLabels),
    "both": (_BothOfClasses, _BothOfLabels),
}


def packages(folder: Path, n_stored: int) -> LabelledSet:
    """Return packages as tf-idf words of their names and summaries, and queries of some of their words, misspelt."""
    texts = compare_text.packages(folder, n_stored)
    words = TfidfVectorizer(sublinear_tf=True, dtype=np.float32)
    X, queries, both = words.fit_transform(texts.stored), words.transform(texts.queries), (texts.stored, texts.queries)
    return LabelledSet(X, np.arange(n_stored), queries, texts.answers, both)


def readers() -> dict[str, Callable[[Path], Any]]:
    """Return what reads each set."""
    sets: dict[str, Callable[[Path], Any]] = dict(SETS)
    for n_stored in (30_000, 300_000):
        sets[f"packages, {n_stored:,}"] = lambda folder, n=n_stored: packages(folder, n)
    for name in SEVERAL:
        sets[name] = lambda folder, name=name: compare_multilabel.read_set(folder / name)
    return sets


def quality(data: Any, best: np.ndarray) -> list[float]:
    """Return the error of classes, or precision of the best columns at each of the ranks."""
    if isinstance(data, LabelledSet):
        return [float(np.mean(best != data.answers))]
    return [precision_at(data.answers, best, k) for k in RANKS]


def ask(learner: Any, queries: Any) -> np.ndarray:
    """Return the class of each query, or its best columns."""
    best: np.ndarray = (
        learner.predict(queries) if isinstance(learner, CMTClassifier) else learner.top_labels(queries, RANKS[-1])[0]
    )
    return best


def product_of_all(learner: Any) -> Callable[[Any], np.ndarray]:
    """Return what answers like :func:`ask` by products of rows and the scorers of all labels."""
    head, n_labels, d = learner.head_, learner.forest_.n_memories, learner.head_.parameters.n_features
    if head.parameters.sparse:
        digest = head.digest
        weights = scipy.sparse.csr_array((digest.weights, digest.features, digest.offsets), (n_labels, d)).T.tocsr()
    else:
        by_label = head.routers.weights[0, : n_labels * 2 * d].reshape(n_labels, 2 * d)
        weights = np.ascontiguousarray(by_label[:, :d].T)
    several = isinstance(learner, CMTMultilabelClassifier)
    k = RANKS[-1] if several else 1
    biases, length = head.nodes["bias"][0, :n_labels], max(1, PRODUCTS_AT_ONCE // n_labels)

    def best(queries: Any) -> np.ndarray:
        found = np.empty((queries.shape[0], k), np.int64)
        for first in range(0, queries.shape[0], length):
            scores = queries[first : first + length] @ weights
            scores = (scores.toarray() if scipy.sparse.issparse(scores) else scores) + biases
            highest = scores.argmax(axis=1)[:, None] if k == 1 else np.argpartition(-scores, k - 1, axis=1)[:, :k]
            order = np.argsort(-np.take_along_axis(scores, highest, 1), axis=1, kind="stable")
            found[first : first + length] = np.take_along_axis(highest, order, 1)
        return learner._column_of_label[found] if several else learner.classes_[learner._class_of_label[found[:, 0]]]

    return best


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """Return what some work returns, and the seconds of processor time that it took."""
    start = time.process_time()
    value = work()
    return value, time.process_time() - start


def outcomes(data: Any, ways: list[str], wider: int) -> Iterator[list[Any]]:
    """Yield for each way its name, quality, labels scored and met, and times."""
    several = not isinstance(data, LabelledSet)
    answers, scale = (data.Y if several else data.y), 1e6 / data.queries.shape[0]

    def row(name: str, learner: Any, fit: float | None) -> list[Any]:
        ask(learner, data.queries[:2])
        best, query = timed(lambda: ask(learner, data.queries))
        found = learner._best_labels(learner._checked(data.queries), RANKS[-1] if several else 1)
        return [name, *quality(data, best), found.n_scored.mean(), found.n_met.mean(), scale * query, fit]

    for way in ways:
        if way in ("index only", "both") and not scipy.sparse.issparse(data.X):
            continue  # dense rows have no index
        make = KINDS[way][several]
        few = make(store_examples=False, random_state=0).fit(data.X[:N_WARMING], answers[:N_WARMING])
        ask(few, data.queries[:2])
        learner = make(store_examples=False, random_state=0)
        _, fit = timed(lambda: learner.fit(data.X, answers))  # noqa: B023
        yield row(way, learner, fit)
        if way != "default":
            continue
        n_labels, n_common = learner.forest_.n_memories, learner.head_.common.labels.size
        n_scored = float(learner.count_candidates(data.queries).mean())
        if learner.head_.digest.n_labels or not learner.head_.parameters.sparse:
            of_all = product_of_all(learner)
            best, query = timed(lambda: of_all(data.queries))  # noqa: B023
            yield ["all labels", *quality(data, best), n_labels, n_labels, scale * query, None]
        if wider and n_scored < n_labels:
            learner.set_params(n_candidates=max(1, int(wider * n_scored) - n_common))
            yield row(f"default, {wider} times as many", learner, None)


def summary(everything: dict[str, list[list[Any]]]) -> str:
    """Return a table with a line for each set: the first measure of quality, labels scored, and microseconds."""
    ways = [way for way in (*KINDS, "all labels") if any(row[0] == way for rows in everything.values() for row in rows)]
    table = []
    for name, rows in everything.items():
        cells = {row[0]: f"{row[1]:.3f}, {row[-4]:,.0f}, {row[-2]:,.{1 if row[-2] < 9.95 else 0}f} us" for row in rows}
        wider = [f"{row[1] - rows[0][1]:+.3f}, {row[-4]:,.0f}" for row in rows if row[0].startswith("default, ")]
        table.append([name, *(cells.get(way, "") for way in ways), *wider])
    return tabulate(table, ["set", *ways, "more labels"], tablefmt="pipe", disable_numparse=True)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Compare sources of candidate labels.")
    parser.add_argument("--data", type=Path, required=True, help="folder of data")
    parser.add_argument("--sets", nargs="+", default=QUICK, help="only sets whose names start with one of these")
    parser.add_argument("--ways", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--keys", choices=["tfidf", "bm25"], default="tfidf", help="keys of texts")
    parser.add_argument("--wider", type=int, default=5, help="times as many candidates; 0 for none")
    options = parser.parse_args()
    everything = {}
    for name, read in readers().items():
        if not name.startswith(tuple(options.sets)):
            continue
        data = read(options.data)
        several = not isinstance(data, LabelledSet)
        if not several and options.keys == "bm25":
            data = with_bm25_keys(data) or data
        headers = ["candidates", *([f"P@{k}" for k in RANKS] if several else ["error"])]
        headers += ["scored", "met", "us a query", "s to fit"]
        print(f"\n{name}: {data.X.shape[0]} examples")
        formats = ("", *([".4f"] * (len(headers) - 5)), ".0f", ".0f", ".1f", ".1f")
        everything[name] = list(outcomes(data, options.ways, options.wider))
        print(tabulate(everything[name], headers, floatfmt=formats), flush=True)
    print(f"\n{summary(everything)}")


if __name__ == "__main__":
    main()

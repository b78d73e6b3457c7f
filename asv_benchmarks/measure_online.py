"""Measure how near learning in batches comes to one fit, and whether classes fade that get no new examples.

    python asv_benchmarks/measure_online.py --data path/to/folder

Expects ``clinc150``, ``wikipara1k``, ``omniglot_background`` and ``coil100`` in the folder, as ``labelled_sets.py``
describes them, and ``debtags``, as ``compare_multilabel.py`` does, of which each row gets the rarest tag that 20 rows
have. Other dense sets are synthetic. Prints the error of ``fit`` and of ``partial_fit`` in batches of several sizes,
with seconds; and the accuracy for two thirds of the classes before and after the others came, a tenth of these at a
time, by ``partial_fit`` alone, as the mean over several divisions of the classes. That there are more classes costs
something by itself, and one fit on all loses it too: so its accuracy stands beside, and how much more than it
``partial_fit`` has lost. Each is also measured without stored examples, of which none can be learned again. A third
table is what a ``partial_fit`` of few rows takes beside more and more that is stored. Needs tabulate.
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_variable] = "1"  # before any library reads them

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import scipy.sparse
from labelled_sets import LabelledSet, coil, omniglot, synthetic, texts_with_labels
from tabulate import tabulate

from cmt_numba import CMTClassifier, CMTRetriever

BATCHES = (100, 1000)
BATCHES_OF_NEW, DIVISIONS = 10, 3
STORED, FEW = (10_000, 100_000, 1_000_000), {1: 40, 100: 12}  # rows in a batch, and how many batches are timed


def learned(batches: list[np.ndarray], examples: LabelledSet, store: bool) -> tuple[CMTClassifier, float]:
    """Return a classifier that has learned batches of examples, and the seconds of processor time that it took."""
    classifier = CMTClassifier(store_examples=store, random_state=0)
    start = process_time()
    for batch in batches:
        classifier.partial_fit(examples.X[batch], examples.y[batch])
    return classifier, process_time() - start


def online_rows(examples: LabelledSet) -> Iterator[list[Any]]:
    """Yield a row of the first table for each way to learn."""
    n = examples.y.size
    learned([np.arange(200), np.arange(200, 300)], examples, True)  # compiles
    start = process_time()
    fitted = CMTClassifier(random_state=0).fit(examples.X, examples.y)
    yield ["fit", "", 1.0 - fitted.score(examples.queries, examples.answers), process_time() - start]
    for size in BATCHES:
        for store in (True, False):
            batches = np.array_split(np.arange(n), -(-n // size))
            classifier, seconds = learned(batches, examples, store)
            yield [f"batches of {size}", store, 1.0 - classifier.score(examples.queries, examples.answers), seconds]


def rarest_tags(folder: Path) -> LabelledSet:
    """Return 10,000 descriptions of packages with one tag each."""
    X, Y, queries, answers = (
        scipy.sparse.csr_array(scipy.sparse.load_npz(folder / "debtags" / f"{part}.npz"))
        for part in ("X_train", "Y_train", "X_test", "Y_test")
    )
    n_of_tag = np.asarray((Y != 0).sum(axis=0)).ravel()
    rarity = np.where(n_of_tag >= 20, 1.0 / np.maximum(n_of_tag, 1), 0.0)
    tagged = [(Y != 0).multiply(rarity).tocsr(), (answers != 0).multiply(rarity).tocsr()]
    y, right = (np.asarray(each.argmax(axis=1)).ravel() for each in tagged)
    has, asked = (np.flatnonzero(each.max(axis=1).toarray().ravel() > 0.0) for each in tagged)
    kept = np.random.RandomState(0).permutation(has)[:10_000]
    asked = asked[np.isin(right[asked], y[kept])]
    return LabelledSet(X[kept].astype(np.float32), y[kept], queries[asked].astype(np.float32), right[asked])


def fading_rows(name: str, examples: LabelledSet) -> Iterator[list[Any]]:
    """Yield the rows of the second table for a set."""
    fitted = CMTClassifier(random_state=0).fit(examples.X, examples.y)
    for store in (True, False):
        accuracies = []
        for seed in range(DIVISIONS):
            classes = np.random.RandomState(seed).permutation(np.unique(examples.y))
            old, new = np.split(classes, [round(2 * classes.size / 3)])
            asked = np.isin(examples.answers, old)
            queries, answers = examples.queries[asked], examples.answers[asked]
            first = np.flatnonzero(np.isin(examples.y, old))
            later = [np.flatnonzero(np.isin(examples.y, some)) for some in np.array_split(new, BATCHES_OF_NEW)]
            before, _ = learned([first], examples, store)
            after, _ = learned([first, *later], examples, store)
            accuracies.append([each.score(queries, answers) for each in (before, after, fitted)])
        before_all, after_all, fitted_all = np.mean(accuracies, axis=0)
        yield [name, store, before_all, after_all, fitted_all, fitted_all - after_all]


def milliseconds(estimator: Any, X: Any, y: np.ndarray, n: int) -> list[float]:
    """Return the median time, in milliseconds of processor time, that batches of each size take beside ``n`` rows.

    They are too few for all to be learned again.
    """
    estimator.fit(X[:n], y[:n])
    at, medians = n, []
    for size, n_batches in FEW.items():
        times = []
        for _ in range(1 + n_batches):
            start = process_time()
            estimator.partial_fit(X[at : at + size], y[at : at + size])
            times.append(process_time() - start)
            at += size
        medians.append(1e3 * float(np.median(times[1:])))  # the first one may compile
    return medians


def work_row(n: int) -> list[Any]:
    """Return a row of the third table: beside ``n`` rows that are stored."""
    rng, few = np.random.default_rng(0), {"n_head_passes": 1, "n_router_passes": 1, "random_state": 0}
    n_all = n + sum(size * (1 + n_batches) for size, n_batches in FEW.items())
    y = rng.integers(1000, size=n_all)
    X = rng.normal(size=(1000, 16)).astype(np.float32)[y] + 0.7 * rng.normal(size=(n_all, 16)).astype(np.float32)
    own = np.where(np.arange(n_all) < n, np.arange(n_all), rng.integers(n, size=n_all))
    words = rng.integers(20_000, size=(1000, 20))[y[:, None], rng.integers(20, size=(n_all, 5))]
    words = np.hstack([words, rng.integers(20_000, size=(n_all, 3))])
    texts = scipy.sparse.csr_array((np.ones(words.size, np.float32), words.ravel(), np.arange(0, words.size + 1, 8)))
    texts.sum_duplicates()
    return [
        n,
        *milliseconds(CMTClassifier(n_trees=1, **few), X, y, n),
        *milliseconds(CMTClassifier(**few), texts, y, n),
        *milliseconds(CMTClassifier(n_trees=1, **few), X, own, n),
        *milliseconds(CMTRetriever("key", n_trees=1, n_reward_passes=0, random_state=0), X, y, n),
    ]


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--parts", nargs="+", choices=("online", "fading", "work"), default=["online", "fading"])
    arguments = parser.parse_args()
    folder = arguments.data
    if "online" in arguments.parts:
        headers = ["", "examples stored", "error", "seconds"]
        print(tabulate(online_rows(synthetic(1000, 10)), headers, "github", floatfmt=".4g"), flush=True)
    if "work" in arguments.parts:
        kinds = ("1,000 dense classes", "1,000 sparse classes", "a dense class each", "retriever")
        headers = ["stored", *(f"{kind}: {size}" for kind in kinds for size in FEW)]
        print(f"\n{tabulate(map(work_row, STORED), headers, 'github', floatfmt='.3g')}", flush=True)
    if "fading" not in arguments.parts:
        return
    sets: dict[str, Callable[[], LabelledSet]] = {
        "clinc150, 100 shots": lambda: texts_with_labels(folder, "clinc150", 100),
        "wikipara1k, 10 shots": lambda: texts_with_labels(folder, "wikipara1k", 10),
        "debtags": lambda: rarest_tags(folder),
        "omniglot, 5 drawers": lambda: omniglot(folder, 5),
        "coil100, 9 views": lambda: coil(folder, 9),
        "synthetic, 300 classes, 20 shots": lambda: synthetic(300, 20),
    }
    lines = []
    for name, read in sets.items():
        for line in fading_rows(name, read()):
            lines.append(line)
            print(*line, file=sys.stderr, flush=True)
    headers = ["set", "examples stored", "old classes alone", "after new ones", "one fit on all", "lost beyond it"]
    print(f"\n{tabulate(lines, headers, 'github', floatfmt='.4f')}")


if __name__ == "__main__":
    main()

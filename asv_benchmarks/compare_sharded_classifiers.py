"""Compare a classifier in shards with one in a single process: error, learned examples, and time.

::

    python asv_benchmarks/compare_sharded_classifiers.py --data path/to/folder
    python asv_benchmarks/compare_sharded_classifiers.py --data path/to/folder --sets "clinc150, 5 shots" --shards 2 4

The sets are those of ``labelled_sets.py``; "synthetic, 20 shots" needs no folder. For each number of shards: the error
of ``fit``, that of ``fit`` on half of the examples and ``partial_fit`` on the rest in ten batches, classes of the
largest shard, examples that all shards hold together, as a multiple of those given, seconds to fit, and microseconds a
query in one batch (wall time: the shards share the processors). "without exchange" is what the shards err when each
learns its own classes only. Needs tabulate and the extra ``ray``.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
from labelled_sets import SETS, LabelledSet, synthetic
from tabulate import tabulate

from cmt_numba import CMTClassifier
from cmt_numba.distributed import ShardedClassifier, start

_SETS = ("clinc150, 5 shots", "wikipara1k, 3 shots", "synthetic, 20 shots")
_BATCHES = 10


def read_set(name: str, folder: Path | None) -> LabelledSet:
    """Return a set by its name."""
    if name == "synthetic, 20 shots":
        return synthetic(n_shots=20)
    if folder is None:
        raise SystemExit(f"{name} needs --data FOLDER")
    return SETS[name](folder)


def error_of(classifier: Any, data: LabelledSet) -> float:
    """Return the share of the queries that are answered wrongly."""
    return float(np.mean(classifier.predict(data.queries) != data.answers))


def error_online(classifier: Any, data: LabelledSet) -> float:
    """Return the error after half of the examples at once and the others in batches."""
    half = data.y.size // 2
    classifier.fit(data.X[:half], data.y[:half])
    for rows in np.array_split(np.arange(half, data.y.size), _BATCHES):
        classifier.partial_fit(data.X[rows], data.y[rows])
    return error_of(classifier, data)


def without_exchange(sharded: ShardedClassifier, data: LabelledSet) -> float:
    """Return the error of classifiers of the same shards' classes that have seen no others."""
    best = np.full(data.answers.size, -np.inf)
    answers = np.empty(data.answers.size, data.y.dtype)
    for facts in sharded._ask_all("facts"):
        own = np.isin(data.y, facts.classes)
        alone = CMTClassifier(random_state=0).fit(data.X[own], data.y[own])
        positions, scores = alone.top_classes(data.queries, 1)
        better = scores[:, 0] > best
        best[better] = scores[better, 0]
        answers[better] = alone.classes_[positions[better, 0]]
    return float(np.mean(answers != data.answers))


def measure(classifier: Any, data: LabelledSet) -> list[Any]:
    """Return the errors, the seconds to fit and the microseconds a query."""
    online = error_online(classifier, data)
    started = time.perf_counter()
    classifier.fit(data.X, data.y)
    fitted = time.perf_counter() - started
    classifier.predict(data.queries)
    started = time.perf_counter()
    error = error_of(classifier, data)
    return [error, online, fitted, 1e6 * (time.perf_counter() - started) / data.answers.size]


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Compare a classifier in shards with one in a single process.")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--sets", nargs="+", default=_SETS)
    parser.add_argument("--shards", type=int, nargs="+", default=[2, 4])
    given = parser.parse_args()
    start()
    for name in given.sets:
        data = read_set(name, given.data)
        rows = [["one classifier", *measure(CMTClassifier(random_state=0), data), None, None, None]]
        for n_shards in given.shards:
            with ShardedClassifier(n_shards, random_state=0, timeout=600.0) as sharded:
                measured = measure(sharded, data)
                facts = sharded._ask_all("facts")
                held = sum(sharded._ask_all("n_examples")) / data.y.size
                largest = max(fact.classes.size for fact in facts)
                rows.append([f"{n_shards} shards", *measured, largest, held, without_exchange(sharded, data)])
        headers = ["", "error", "error online", "s to fit", "us a query", "most classes", "held", "no exchange"]
        print(f"\n{name}: {data.y.size:,} examples, {np.unique(data.y).size:,} classes")
        print(tabulate(rows, headers, floatfmt=("", ".4f", ".4f", ".1f", ".0f", ".0f", ".2f", ".4f")), flush=True)


if __name__ == "__main__":
    main()

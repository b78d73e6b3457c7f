"""Measure how long ``predict`` in other threads waits while an estimator learns.

    python asv_benchmarks/measure_waits.py --data path/to/folder

Expects ``wikipara1k/train.jsonl.gz`` as ``compare_classifiers.py`` does. An estimator learns some paragraphs, and then
many more at once and one at a time, while threads ask for one row after the other. "Longest" is the longest answer, and
"alone" the longest while nothing is learned: in both a thread also waits for the others to give it the interpreter.
"Answers" counts those given between the beginning and the end of the change. Times are by the clock.
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_variable] = "1"  # before any library reads them

import argparse
import threading
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from labelled_sets import read_lines
from sklearn.decomposition import TruncatedSVD
from tabulate import tabulate

from cmt_numba import CMTClassifier, CMTMultilabelClassifier, CMTRetriever
from cmt_numba.text import BM25Vectorizer

N_FIRST, N_SINGLE = 2000, 50


def asked_meanwhile(estimator: Any, rows: Any, n_threads: int, work: Callable[[], Any]) -> tuple[float, np.ndarray]:
    """Return the seconds that some work takes, and those of each answer that threads get meanwhile."""
    is_over, begun = threading.Event(), threading.Barrier(n_threads + 1)
    times: list[list[float]] = [[] for _ in range(n_threads)]

    def ask(own: list[float], first: int) -> None:
        estimator.predict(rows[:1])  # one that has asked before: a first answer may wait for the change under way
        begun.wait()
        i = first
        while not is_over.is_set():
            start = perf_counter()
            estimator.predict(rows[i % rows.shape[0] : i % rows.shape[0] + 1])
            own.append(perf_counter() - start)
            i += 1

    threads = [threading.Thread(target=ask, args=(own, 17 * i)) for i, own in enumerate(times)]
    for thread in threads:
        thread.start()
    begun.wait()
    start = perf_counter()
    work()
    seconds = perf_counter() - start
    is_over.set()
    for thread in threads:
        thread.join()
    return seconds, np.concatenate(times)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Measure how long answers wait while an estimator learns.")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--n", type=int, default=20_000, help="rows that are learned at once")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", default="", help="part of the names of what is learned")
    given = parser.parse_args()
    lines = read_lines(given.data / "wikipara1k/train.jsonl.gz")
    order = np.random.default_rng(0).permutation(len(lines))[: N_FIRST + given.n]
    sparse = BM25Vectorizer().fit_transform([lines[i]["text"] for i in order])
    dense = TruncatedSVD(128, random_state=0).fit_transform(sparse).astype(np.float32)
    y = np.unique([lines[i]["label"] for i in order], return_inverse=True)[1]
    Y = np.eye(y.max() + 1, dtype=np.int8)[y]
    estimators = {
        "classifier, sparse": (CMTClassifier(random_state=0), sparse, y),
        "classifier, dense": (CMTClassifier(random_state=0), dense, y),
        "multi-label classifier, sparse": (CMTMultilabelClassifier(random_state=0), sparse, Y),
        "retriever, dense": (CMTRetriever("key", random_state=0), dense, y),
    }
    table: list[list[Any]] = []
    for name, (estimator, X, labels) in estimators.items():
        if given.only not in name:
            continue
        estimator.fit(X[:N_FIRST], labels[:N_FIRST])
        estimator.predict(X[:1])
        last = slice(N_FIRST, N_FIRST + given.n - N_SINGLE)
        singles = range(N_FIRST + given.n - N_SINGLE, N_FIRST + given.n)
        works: dict[str, Callable[[], Any]] = {
            "nothing": lambda: threading.Event().wait(2.0),
            f"{last.stop - last.start} rows": lambda: estimator.partial_fit(X[last], labels[last]),  # noqa: B023
            f"{N_SINGLE} single rows": lambda: [
                estimator.partial_fit(X[i : i + 1], labels[i : i + 1])  # noqa: B023
                for i in singles  # noqa: B023
            ],
        }
        if hasattr(estimator, "replace"):
            works["2000 replaced"] = lambda: estimator.replace(np.arange(2000), X[-2000:])  # noqa: B023
            works["2000 rewarded"] = lambda: estimator.feedback(X[:2000], np.arange(2000), np.ones(2000))  # noqa: B023
        for what, work in works.items():
            seconds, times = asked_meanwhile(estimator, X, given.threads, work)
            shown = [1e3 * float(value) for value in (*np.quantile(times, [0.5, 0.99]), times.max())]
            table.append([name, what, seconds, times.size, *shown])
            print(table[-1], flush=True)
    headers = ["", "learned meanwhile", "seconds", "answers", "p50 ms", "p99", "longest"]
    print(tabulate(table, headers, floatfmt=".2f"))


if __name__ == "__main__":
    main()

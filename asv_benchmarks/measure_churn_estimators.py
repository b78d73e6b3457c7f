"""Measure whether estimators, bounded trees and their files stay small while memories come and go.

::

    python asv_benchmarks/measure_churn_estimators.py --steps 1e5
    python asv_benchmarks/measure_churn_estimators.py --only "retriever by key" --steps 1e4
    python asv_benchmarks/measure_churn_estimators.py --only feedback --features 200

Each step adds a memory and removes one; classifiers, which forget no label, learn an example of one of their classes,
without storing it. Printed are, as the steps go on, the size of a pickle of the object, and how much more memory than
after the first steps the process has ever taken. ``measure_churn.py`` does the same for trees without a bound, and
larger ones. POSIX only.

A router of sparse keys holds a weight for each feature that has come by since it was made. So trees of sparse keys grow
until their oldest routers have met all features: soon with ``--features 200``, slowly with 2,000.
"""

import argparse
import gc
import pickle
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse

from cmt_numba import CMTClassifier, CMTMultilabelClassifier, CMTRetriever, ContextualMemoryTree

POOL = 5000
Step = Callable[[int], Any]


def cases(n: int, n_features: int) -> dict[str, Callable[[], tuple[Any, Step]]]:
    """Return objects that hold about ``n`` memories, and what a step does to them, by name.

    Sparse keys have ``n_features`` features, 10 of them in each row.
    """
    random = np.random.default_rng(0)
    rows = random.normal(size=(POOL, 16)).astype(np.float32)
    density = min(1.0, 10 / n_features)
    words = scipy.sparse.random_array(
        (POOL, n_features), density=density, random_state=random, format="csr", dtype=np.float32
    )
    vectors = random.normal(size=(POOL, 64)).astype(np.float32)
    names = [f"object {i}" for i in range(POOL)]

    def tree(X: Any, **options: Any) -> tuple[Any, Step]:
        grown = ContextualMemoryTree(random_state=0, **options)
        grown.insert(X[:n])
        if options:
            return grown, lambda i: grown.insert(X[[i % POOL]])
        return grown, lambda i: (grown.remove(grown.ids[:1]), grown.insert(X[[i % POOL]]))

    def retriever(X: Any, values: Any, *, feedback: bool = False) -> tuple[Any, Step]:
        found = CMTRetriever(random_state=0, n_value_passes=1).fit(X[:n], values[:n])

        def step(i: int) -> None:
            found.remove(i)
            at = (n + i) % POOL
            found.partial_fit(X[at : at + 1], values[at : at + 1])
            if feedback:
                found.feedback(X[:1], [i + 2], [1.0])

        return found, step

    def classifier(X: Any, kind: Any, y: Any) -> tuple[Any, Step]:
        learner = kind(random_state=0, store_examples=False, n_trees=2).fit(X[:n], y[:n])
        return learner, lambda i: learner.partial_fit(X[i % n : i % n + 1], y[i % n : i % n + 1])

    several = (random.random((POOL, 50)) < 0.05).astype(int)
    one = np.arange(POOL) % 50
    return {
        "tree": lambda: tree(rows),
        "sparse tree": lambda: tree(words),
        "bounded tree": lambda: tree(rows, max_memories=n),
        "bounded sparse tree": lambda: tree(words, max_memories=n, eviction="oldest"),
        "retriever by key": lambda: retriever(rows, names),
        "sparse retriever by key, with feedback": lambda: retriever(words, names, feedback=True),
        "retriever by value": lambda: retriever(words, vectors),
        "retriever by sparse value": lambda: retriever(rows, words),
        "classifier": lambda: classifier(rows, CMTClassifier, one),
        "sparse classifier": lambda: classifier(words, CMTClassifier, one),
        "multilabel classifier": lambda: classifier(words, CMTMultilabelClassifier, several),
    }


def measure(name: str, make: Callable[[], tuple[Any, Step]], steps: int) -> None:
    """Print how large an object is as it goes on."""
    thing, step = make()
    began, shown, before = time.perf_counter(), [], 0.0
    first = min(steps // 5, 2000)
    for i in range(steps):
        if i == first:
            pickle.dumps(thing)
            began, before = time.perf_counter(), _peak()
        step(i)
        if i + 1 > first and (i + 1) % (steps // 4) == 0:
            gc.collect()
            shown.append(f"{len(pickle.dumps(thing)) / 1e3:.0f} kB, {_peak() - before:+.1f} MB")
    seconds = (time.perf_counter() - began) / (steps - first)
    thing.check_invariants()
    print(f"{name}: {' | '.join(shown)}; {1e6 * seconds:.0f} us a step", flush=True)


def _peak() -> float:
    """Return the most memory that this process has ever taken, in MB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1e6 if sys.platform == "darwin" else 1e3)  # bytes there, kilobytes elsewhere


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Measure whether memory stays bounded while memories come and go.")
    parser.add_argument("--memories", type=float, default=500)
    parser.add_argument("--steps", type=float, default=1e5)
    parser.add_argument("--features", type=float, default=2000, help="of sparse keys")
    parser.add_argument("--only", default="", help="part of the name of what is measured")
    options = parser.parse_args()
    for name, make in cases(int(options.memories), int(options.features)).items():
        if options.only in name:
            measure(name, make, int(options.steps))


if __name__ == "__main__":
    main()

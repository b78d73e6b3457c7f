"""Measure start-up: the imports, and the first call of each kind, with and without compiled kernels.

::

    python asv_benchmarks/measure_start.py
    python asv_benchmarks/measure_start.py --kinds tree classifier --forms dense --repeats 3
    python asv_benchmarks/measure_start.py --json start.json

Every run is a new process that makes the calls of one class in turn. So each call compiles only what the earlier calls
have not compiled. "Cold" runs start with an empty cache on disk, "warm" runs with all compiled kernels. Prints medians
of the CPU time of all threads and of the wall time, in seconds.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Step = tuple[str, Callable[[], Any]]


def imports(_X: Any) -> Iterator[Step]:
    """Yield the import of the dependencies, and the import of the package."""
    from importlib import import_module

    yield "dependencies", lambda: [import_module(name) for name in ("numba", "numpy", "scipy.sparse")]
    yield "package", lambda: import_module("cmt_numba.tree")
    yield "estimators", lambda: import_module("cmt_numba.estimators")


def tree(X: Any) -> Iterator[Step]:
    """Yield the calls of a tree."""
    import numpy as np

    from cmt_numba import ContextualMemoryTree

    tree = ContextualMemoryTree(random_state=0)
    yield "insert", lambda: tree.insert(X)
    yield "query", lambda: tree.query(X)
    ids = tree.ids
    yield "query, exploring", lambda: tree.query(X, 3, epsilon=0.5)
    hits = tree.query(X, 3, epsilon=0.5)
    yield "update", lambda: tree.update(X, hits, np.ones(hits.ids.shape))
    yield "query among many", lambda: tree.query(X, among=ids[:-5])
    yield "query among few", lambda: tree.query(X, among=ids[:5])
    yield "replace", lambda: tree.replace(ids[:3], X[:3])
    yield "remove", lambda: tree.remove(ids[:3])
    yield "teach", lambda: tree.teach(X[5:], ids[5:])
    yield "reroute", lambda: tree.reroute(3)
    yield "compact", tree.compact


def classifier(X: Any) -> Iterator[Step]:
    """Yield the calls of a classifier."""
    from cmt_numba import CMTClassifier

    y = [i % 10 for i in range(X.shape[0])]
    learner = CMTClassifier(random_state=0)
    yield "fit", lambda: learner.fit(X, y)
    yield "predict", lambda: learner.predict(X)
    yield "partial_fit", lambda: learner.partial_fit(X, y)
    yield "kneighbors", lambda: learner.kneighbors(X)


def multilabel(X: Any) -> Iterator[Step]:
    """Yield the calls of a multi-label classifier."""
    import numpy as np

    from cmt_numba import CMTMultilabelClassifier

    Y = np.random.default_rng(0).random((X.shape[0], 10)) < 0.3
    learner = CMTMultilabelClassifier(random_state=0)
    yield "fit", lambda: learner.fit(X, Y)
    yield "predict", lambda: learner.predict(X)
    yield "top_labels", lambda: learner.top_labels(X)
    yield "partial_fit", lambda: learner.partial_fit(X, Y)


def retriever(X: Any) -> Iterator[Step]:
    """Yield the calls of a retriever whose values are vectors."""
    import numpy as np

    from cmt_numba import CMTRetriever

    values = np.random.default_rng(0).normal(size=(X.shape[0], 8))
    learner = CMTRetriever(random_state=0)
    yield "fit", lambda: learner.fit(X, values)
    yield "predict", lambda: learner.predict(X)
    yield "kneighbors", lambda: learner.kneighbors(X)
    ids = learner.kneighbors(X, return_distance=False)
    yield "feedback", lambda: learner.feedback(X, ids, np.full(ids.shape, 0.5))
    yield "remove", lambda: learner.remove([0, 1])
    yield "partial_fit", lambda: learner.partial_fit(X, values)


KINDS = {"imports": imports, "tree": tree, "classifier": classifier, "multilabel": multilabel, "retriever": retriever}
FORMS = ("dense", "sparse")


def time_steps(kind: str, form: str) -> dict[str, tuple[float, float]]:
    """Return the CPU time and the wall time in seconds of each call, made in this process."""
    X: Any = None
    if kind != "imports":
        import numpy as np
        import scipy.sparse

        X = np.random.default_rng(0).normal(size=(200, 16))
        if form == "sparse":
            X = scipy.sparse.csr_array(np.where(np.abs(X) < 0.7, X, 0.0))
    taken = {}
    for name, call in KINDS[kind](X):
        processor, clock = time.process_time(), time.perf_counter()
        call()
        taken[name] = (time.process_time() - processor, time.perf_counter() - clock)
    return taken


def time_process(kind: str, form: str, cache: str) -> dict[str, tuple[float, float]]:
    """Return the result of :func:`time_steps` in a new process that uses a cache folder."""
    run = subprocess.run(
        [sys.executable, __file__, "--process", kind, form],
        env={**os.environ, "NUMBA_CACHE_DIR": cache},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return {name: tuple(seconds) for name, seconds in json.loads(run.stdout).items()}


def measure(kind: str, form: str, repeats: int) -> list[dict[str, Any]]:
    """Return the median times of each call of a class."""
    runs: dict[str, list[dict[str, tuple[float, float]]]] = {"cold": [], "warm": []}
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as cache:
            for found in runs:  # the cold run fills the cache for the warm one
                runs[found].append(time_process(kind, form, cache))
    return [
        {
            "kind": kind,
            "form": form,
            "call": call,
            **{
                f"{found}_{what}": statistics.median(run[call][i] for run in runs[found])
                for found in runs
                for i, what in enumerate(("cpu", "wall"))
            },
        }
        for call in runs["cold"][0]
    ]


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Measure the time to import the package and to run first calls.")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), help="what to measure")
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=list(FORMS), help="forms of rows")
    parser.add_argument("--repeats", type=int, default=3, help="number of runs; medians are printed")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--process", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.process is not None:
        print(json.dumps(time_steps(*options.process)))
        return

    figures: list[dict[str, Any]] = []
    print(f"{'':40s}{'cold: CPU':>10s}{'wall':>8s}{'warm: CPU':>12s}{'wall':>8s}   seconds")
    for kind in options.kinds:
        for form in options.forms if kind != "imports" else options.forms[:1]:
            for row in measure(kind, form, options.repeats):
                name = kind if kind == "imports" else f"{kind}, {form}"
                seconds = "{cold_cpu:10.2f}{cold_wall:8.2f}{warm_cpu:12.2f}{warm_wall:8.2f}".format_map(row)
                print(f"{name + ': ' + row['call']:40s}{seconds}", flush=True)
                figures.append(row)
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

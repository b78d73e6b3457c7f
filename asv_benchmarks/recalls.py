"""Print the recall of ``MemoryStore`` for many distributions of vectors, and its time beside another version's."""

from shared.commands import Commands, argument, print_table

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import thread_time

import numpy as np
from shared.distributions import DISTRIBUTIONS, N_QUERIES

from cmt_numba import MemoryStore

commands = Commands(__doc__)

METRICS = "cosine", "inner_product", "euclidean"
WANTED = [(k, target) for k in (1, 10, 100) for target in (0.95, 0.99)]
N_PARTS, N_ALONE = 40, 1000

Line = tuple[str, list[float], list[float]]


def measure(name: str, n: int) -> list[Line]:
    """Return for each metric the recall and microseconds of batches and single rows, with ``n`` vectors."""
    return [measure_metric(name, metric, n) for metric in METRICS]


def measure_metric(name: str, metric: str, n: int) -> Line:
    """Return the name, and the recall and microseconds per query of batches and of single rows for all ``WANTED``."""
    X = DISTRIBUTIONS[name](np.random.default_rng(0), n + N_QUERIES).astype(np.float32)
    stored, queries = X[:-N_QUERIES], X[-N_QUERIES:]
    store = MemoryStore(metric=metric, random_state=0)
    for part in np.array_split(np.arange(len(stored)), N_PARTS):
        store.add(part.tolist(), stored[part])
    true = store.query(queries, 100, target_recall=1.0).scores
    recalls, times = [], []
    for rows in ([queries], queries[:N_ALONE, None]):
        for k, target in WANTED:
            store.query(rows[0], k, target_recall=target)  # compile
            before = thread_time()
            found = np.concatenate([store.query(some, k, target_recall=target).scores for some in rows])
            times.append(1e6 * (thread_time() - before) / len(found))
            recalls.append(float((found >= true[: len(found), k - 1 : k]).mean()))  # equal scores are interchangeable
    return f"{name}, {metric}", recalls, times


def lowest(names: list[str], lines: list[Line]) -> list[list[str]]:
    """Return for each distribution and metric the lowest recall with each target."""
    least = [f"{min(recalls[0::2]):.3f}, {min(recalls[1::2]):.3f}" for _, recalls, _ in lines]
    return [[name, *least[3 * i : 3 * i + 3]] for i, name in enumerate(names)]


def measure_older(sources: Path, name: str, n: int, cache: str) -> list[Line]:
    """Measure the version in a folder, in a separate process, and return its figures."""
    environment = os.environ | {"PYTHONPATH": str(sources), "NUMBA_CACHE_DIR": cache}
    command = [sys.executable, __file__, "as-json", "--names", name, "--n", str(n)]
    shown = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout
    return [(name, recalls, times) for name, recalls, times in json.loads(shown)]


NAMES = argument("--names", nargs="+", default=list(DISTRIBUTIONS), choices=DISTRIBUTIONS, metavar="NAME")

SIZE = argument("--n", type=int, default=20_000, help="number of vectors")


@commands.add(NAMES, SIZE)
def as_json(given: argparse.Namespace) -> None:
    """Print recall and times as JSON."""
    print(json.dumps([line for name in given.names for line in measure(name, given.n)]))


@commands.add(NAMES, SIZE, argument("--older", type=Path, metavar="FOLDER", help="the sources of another version"))
def table(given: argparse.Namespace) -> None:
    """Print recall, and with an older version also its recall and the ratio of times."""
    lines: list[Line] = []
    older: list[Line] = []
    with tempfile.TemporaryDirectory() as cache:
        for name in given.names:  # one after the other, because the speed of a machine changes
            lines += measure(name, given.n)
            if given.older:
                older += measure_older(given.older, name, given.n, cache)
    heads = [f"{kind}, k={k}, {target}" for kind in ("batch", "single") for k, target in WANTED]
    print_table(["vectors", *heads], [[name, *recalls] for name, recalls, _ in lines], "Recall")
    print_table(["vectors", *METRICS], lowest(given.names, lines), "Lowest recall with the targets 0.95 and 0.99")
    if given.older:
        print_table(["vectors", *heads], [[name, *recalls] for name, recalls, _ in older], "Recall, other version")
        ratios = [np.divide(line[2], other[2]) for line, other in zip(lines, older, strict=True)]
        rows = [[line[0], *times] for line, times in zip(lines, ratios, strict=True)]
        print_table(["vectors", *heads], rows, "Time, divided by that of the other version", ".2f")


if __name__ == "__main__":
    commands.main()

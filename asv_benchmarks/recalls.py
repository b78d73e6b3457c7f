"""Print the recall of ``MemoryStore`` for many distributions of vectors."""

from shared.commands import Commands, argument, print_table

import argparse
from typing import Any

import numpy as np
from shared.distributions import DISTRIBUTIONS, N_QUERIES

from cmt_numba import MemoryStore

commands = Commands(__doc__)

METRICS = "cosine", "inner_product", "euclidean"
WANTED = [(k, target) for k in (1, 10, 100) for target in (0.95, 0.99)]
N_PARTS, N_ALONE = 40, 1000


def measure_metric(name: str, metric: str, n: int) -> list[Any]:
    """Return the name, and the recall of batches and of single rows for all ``WANTED``."""
    X = DISTRIBUTIONS[name](np.random.default_rng(0), n + N_QUERIES).astype(np.float32)
    stored, queries = X[:-N_QUERIES], X[-N_QUERIES:]
    store = MemoryStore(metric=metric, random_state=0)
    for part in np.array_split(np.arange(len(stored)), N_PARTS):
        store.add(part.tolist(), stored[part])
    true = store.query(queries, 100, target_recall=1.0).scores
    recalls = []
    for rows in ([queries], queries[:N_ALONE, None]):
        for k, target in WANTED:
            found = np.concatenate([store.query(some, k, target_recall=target).scores for some in rows])
            recalls.append(float((found >= true[: len(found), k - 1 : k]).mean()))  # equal scores are interchangeable
    return [f"{name}, {metric}", *recalls]


def lowest(names: list[str], lines: list[list[Any]]) -> list[list[str]]:
    """Return for each distribution and metric the lowest recall with each target."""
    least = [f"{min(recalls[0::2]):.3f}, {min(recalls[1::2]):.3f}" for _, *recalls in lines]
    return [[name, *least[3 * i : 3 * i + 3]] for i, name in enumerate(names)]


NAMES = argument("--names", nargs="+", default=list(DISTRIBUTIONS), choices=DISTRIBUTIONS, metavar="NAME")

SIZE = argument("--n", type=int, default=20_000, help="number of vectors")


@commands.add(NAMES, SIZE)
def table(given: argparse.Namespace) -> None:
    """Print the recall of batches and of single rows, and the lowest for each distribution and metric."""
    lines = [measure_metric(name, metric, given.n) for name in given.names for metric in METRICS]
    heads = [f"{kind}, k={k}, {target}" for kind in ("batch", "single") for k, target in WANTED]
    print_table(["vectors", *heads], lines, "Recall")
    print_table(["vectors", *METRICS], lowest(given.names, lines), "Lowest recall with the targets 0.95 and 0.99")


if __name__ == "__main__":
    commands.main()

"""Measure what trees learn from rewards alone: their error after passes of query, reward and update.

    python asv_benchmarks/measure_rewards.py --data path/to/folder --sets "clinc150, 5 shots" --trees 1 8

Expects the sets of ``labelled_sets.py``. Examples are stored as memories; then ``ContextualMemoryTree.learn`` asks for
them again, their own memories left out, and is told for each memory found whether it has the same label. Queries that
were not stored search one leaf of each tree, with the label of the best memory as the answer. Prints the error before
and after each pass, the error of an exact search before, and seconds of processor time for a pass. Needs tabulate.
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_variable] = "1"  # before any library reads them

import argparse
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from labelled_sets import SETS, LabelledSet, synthetic
from tabulate import tabulate

from cmt_numba import ContextualMemoryTree
from cmt_numba.rewards import LabelEquality

DEFAULT = ("clinc150, 5 shots", "wikipara1k, 3 shots", "omniglot, 5 drawers", "synthetic, 10 shots")
ALL = {**SETS, "synthetic, 10 shots": lambda folder: synthetic(1000, 10)}
MOST_ASKED, MANY_LEAVES = 2000, 10**6


def error(tree: ContextualMemoryTree, examples: LabelledSet, n_probes: int | None = None) -> float:
    """Return the share of the queries whose best memory has another label."""
    queries, answers = examples.queries[:MOST_ASKED], examples.answers[:MOST_ASKED]
    ids = tree.query(queries, n_probes=n_probes).ids[:, 0]
    return float(np.mean((examples.y[ids] != answers) | (ids < 0)))


def measured(name: str, examples: LabelledSet, n_trees: int, n_passes: int) -> list[Any]:
    """Return a row of the table."""
    tree = ContextualMemoryTree(n_trees, random_state=0)
    ids, reward = tree.insert(examples.X), LabelEquality(examples.y, examples.y)
    exact, errors, seconds = error(tree, examples, MANY_LEAVES), [error(tree, examples)], []
    for _ in range(n_passes):
        start = process_time()
        tree.learn(examples.X, reward, own_ids=ids)
        seconds.append(process_time() - start)
        errors.append(error(tree, examples))
    return [name, n_trees, exact, *errors, f"{1.0 - errors[-1] / errors[0]:.3f}", f"{np.median(seconds):.1f}"]


def main() -> None:
    """Print the table, a row when it is there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", choices=ALL, default=DEFAULT)
    parser.add_argument("--trees", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--passes", type=int, default=5)
    arguments = parser.parse_args()
    headers = ["set", "trees", "exact", *range(arguments.passes + 1), "lower by", "seconds a pass"]
    for name in arguments.sets:
        examples = ALL[name](arguments.data)
        rows = [measured(name, examples, n_trees, arguments.passes) for n_trees in arguments.trees]
        print(tabulate(rows, headers, "github", floatfmt=".4f"), flush=True)


if __name__ == "__main__":
    main()

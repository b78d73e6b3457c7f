"""Compare multi-label classifiers over very many labels: ours, napkinXC's PLT and PECOS's XR-Linear, on one thread.

    python asv_benchmarks/compare_extreme.py --data path/to/folder --sets debian_depends \
        --learners ours plt xr_linear --python plt=plt/bin/python xr_linear=xr/bin/python

A set is a folder with ``X_train.npz``, ``X_test.npz``, ``Y_train.npz`` and ``Y_test.npz``: sparse matrices as scipy
saves them, features and indicators of labels. Each learner runs in a process of its own, with the interpreter named for
it: ``extreme_learners.py`` says what to install. Those that are not installed are left out. Prints precision and nDCG
at 1, 3 and 5, propensity-scored precision at 5, seconds of the processor to train, microseconds a query (the least of
several rounds), the peak of memory of the whole process, data included, and the size of the model in a file.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
from extreme_learners import LEARNERS, apart, is_installed, read_part
from tabulate import tabulate

from cmt_numba.metrics import inverse_propensities, ndcg_at, precision_at

RANKS = (1, 3, 5)


def measured(best: np.ndarray, labels: Any, answers: Any) -> list[float]:
    """Return precision and nDCG at each rank, and propensity-scored precision at the last."""
    scored = precision_at(answers, best, RANKS[-1], inverse_propensities=inverse_propensities(labels))
    return [*(precision_at(answers, best, k) for k in RANKS), *(ndcg_at(answers, best, k) for k in RANKS), scored]


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Compare multi-label classifiers over very many labels.")
    parser.add_argument("--data", type=Path, required=True, help="folder of sets")
    parser.add_argument("--sets", nargs="+", default=["bibtex", "delicious", "debtags", "debian_depends"])
    parser.add_argument("--learners", nargs="+", choices=list(LEARNERS), default=list(LEARNERS))
    parser.add_argument("--python", nargs="*", default=[], metavar="LEARNER=PATH", help="interpreters of learners")
    options = parser.parse_args()
    interpreters = dict.fromkeys(options.learners, sys.executable) | dict(pair.split("=", 1) for pair in options.python)
    learners = [name for name in options.learners if is_installed(name, interpreters[name])]
    headers = ["learner", *(f"P@{k}" for k in RANKS), *(f"nDCG@{k}" for k in RANKS), "PSP@5"]
    headers += ["train s", "us a query", "peak GB", "model GB"]
    for name in options.sets:
        labels, answers = (read_part(options.data / name, part) for part in ("Y_train", "Y_test"))
        table = []
        for learner in learners:
            run = apart(learner, options.data / name, RANKS[-1], interpreters[learner])
            costs = [run.train_seconds, run.query_microseconds, run.peak / 1e3, run.model / 1e3]
            table.append([learner, *measured(run.best, labels, answers), *costs])
        print(f"\n{name}: {labels.shape[0]} examples, {labels.shape[1]} labels")
        print(tabulate(table, headers, floatfmt=("", *(7 * [".4f"]), ".1f", ".0f", ".2f", ".3f")), flush=True)


if __name__ == "__main__":
    main()

"""Compare what is learned online, example by example: the classifier with linear ones against all, on one thread.

    python asv_benchmarks/compare_online.py --data path/to/folder --sets "synthetic, 100 shots"

The sets and where they come from: ``labelled_sets.py``. Their training examples come in random order, in batches of 1 %
of what has come before; each batch is asked about and then learned (progressive validation, section 4.1 of the paper).
Prints, for numbers of examples, the entropy reduction over the constant predictor in bits, over all examples so far and
over those since the row above; the error by how many examples of its class had been learned when an example came; and
microseconds for each example to predict and to learn. One against all is scikit-learn's ``SGDClassifier`` of logistic
loss, ``Perceptron``, and ``SGDClassifier`` by passive-aggressive steps. Needs tabulate.
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_variable] = "1"  # before any library reads them

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from labelled_sets import SETS
from sklearn.linear_model import Perceptron, SGDClassifier
from tabulate import tabulate

from cmt_numba import CMTClassifier
from cmt_numba.evaluation import ProgressiveResult, growing_batches, progressive_validation

N_POINTS = 8
MOST_SHOTS = 10

LEARNERS: dict[str, Callable[[], Any]] = {
    "ours": lambda: CMTClassifier(random_state=0),
    "logistic": lambda: SGDClassifier(loss="log_loss", random_state=0),
    "perceptron": lambda: Perceptron(random_state=0),
    "passive-aggressive": lambda: SGDClassifier(
        loss="hinge", penalty=None, learning_rate="pa1", eta0=1.0, random_state=0
    ),
}


def measure(X: Any, y: np.ndarray, learner: str, most_rows: int | None = None) -> ProgressiveResult:
    """Return how a learner does on the examples in their order."""
    X, y = X[:most_rows], y[:most_rows]
    classes = None if learner == "ours" else np.unique(y)
    return progressive_validation(LEARNERS[learner](), growing_batches(X, y), classes=classes)


def curve_table(results: dict[str, ProgressiveResult]) -> str:
    """Return the entropy reductions at a few points of the curves as a table."""
    curves = {name: result.curve for name, result in results.items()}
    n_examples = np.array(next(iter(curves.values()))["n_examples"])
    wanted = np.geomspace(max(10, n_examples[-1] / 300), n_examples[-1], N_POINTS)
    points = np.unique(np.searchsorted(n_examples, wanted * 0.9999))
    rows = []
    for point, before in zip(points, [-1, *points[:-1]], strict=True):
        row: list[Any] = [n_examples[point]]
        for curve in curves.values():
            n_right = np.array([0, *(np.array(curve["accuracy"]) * n_examples)])
            recent = (n_right[point + 1] - n_right[before + 1]) / (
                n_examples[point] - (n_examples[before] if before >= 0 else 0)
            )
            row += [
                curve["entropy_reduction"][point],
                np.log2(recent / curve["constant_accuracy"][point]) if recent else -np.inf,
            ]
        rows.append(row)
    heads = [head for name in curves for head in (name, "recent")]
    return tabulate(rows, ["examples", *heads], floatfmt=".2f")


def shots_table(results: dict[str, ProgressiveResult]) -> str:
    """Return errors by the number of examples of a class that had been learned."""
    shots = [
        dict(zip(result.by_shots["n_shots"], result.by_shots["error"], strict=True)) for result in results.values()
    ]
    rows = [[n, *(errors.get(n) for errors in shots)] for n in range(1, MOST_SHOTS + 1) if n in shots[0]]
    return tabulate(rows, ["shots", *results], floatfmt=".3f")


def cost_table(results: dict[str, ProgressiveResult]) -> str:
    """Return errors over all examples, and what each example took."""
    rows = [
        [name, result.metrics["error"], result.us_per_query, 1e6 * result.seconds["learn"] / result.n_examples]
        for name, result in results.items()
    ]
    return tabulate(rows, ["learner", "error", "us to predict", "us to learn"], floatfmt=(".3f", ".3f", ".0f", ".0f"))


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=["synthetic, 100 shots", "wikipara1k, 3 shots"], choices=SETS)
    parser.add_argument("--learners", nargs="+", default=list(LEARNERS), choices=LEARNERS)
    parser.add_argument("--most-rows", type=int)
    parser.add_argument("--json", type=Path, help="a file for all results")
    arguments = parser.parse_args()
    everything = {}
    for name in arguments.sets:
        data = SETS[name](arguments.data)
        order = np.random.default_rng(0).permutation(data.y.size)
        X, y = data.X[order], data.y[order]
        results = {learner: measure(X, y, learner, arguments.most_rows) for learner in arguments.learners}
        print(f"{name}\n\n{curve_table(results)}\n\n{shots_table(results)}\n\n{cost_table(results)}\n", flush=True)
        everything[name] = {learner: result.as_dict() for learner, result in results.items()}
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(everything))


if __name__ == "__main__":
    main()

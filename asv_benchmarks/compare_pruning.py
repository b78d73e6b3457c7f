"""Compare learning for accuracy with learning for efficiency, too: error and share of targets that a tree leaves out.

    python asv_benchmarks/compare_pruning.py --folds 10

The domain is made after that of Parker, Fern and Tadepalli (ICML 2007): 2,000 targets of 10 symbols, each a pair of one
of 10 and one of 30 numbers, drawn at random, and 300 queries, which are noisy forms of targets. Three rules make the
noise, for each symbol by itself:

1. the first number goes up or down by one, with probability 0.9;
2. the second number becomes any other of its third of the range, with probability 0.9;
3. a symbol whose second number is below 3 is left out with probability 0.5, and before each symbol one such symbol is
   put in with probability 0.1.

Costs are learned with ``featured=True`` from nine tenths of the queries, once in 60 rounds of the accuracy alone and
once in 30 and 30 more with the efficiency. The remaining tenth is asked. Prints the error by round on the examples,
and for each tolerance of :class:`VPTree` the error and the share of targets whose distances were not computed, means
over the folds. "all" compares with all targets. "from the rules" has costs that know the rules instead of learning: 1
for what they do, and 20 for all else. ``--only-rules`` prints these alone. Needs tabulate.
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_variable] = "1"  # before any library reads them

import argparse
from typing import Any

import numpy as np
from tabulate import tabulate

from cmt_numba.sequences import EditDistance, VPTree

Symbol = tuple[int, int]
FIRST, SECOND, LENGTH = 10, 30, 10
TOLERANCES = (None, 0.0, 0.001, 0.01, 0.03, 0.1)
PLANS: dict[str, dict[str, Any]] = {
    "accuracy, 60": {"n_rounds": 60},
    "accuracy, 30 + efficiency, 30": {"n_rounds": 30, "n_efficient_rounds": 30},
}


def noisy(target: list[Symbol], rng: np.random.Generator) -> list[Symbol]:
    """Return a query that means a target."""
    query = []
    for first, second in target:
        if rng.random() < 0.1:
            query.append((int(rng.integers(FIRST)), int(rng.integers(3))))
        if second < 3 and rng.random() < 0.5:
            continue
        if rng.random() < 0.9:
            first = int(np.clip(first + rng.choice((-1, 1)), 0, FIRST - 1))
        if rng.random() < 0.9:
            second = SECOND // 3 * (second // (SECOND // 3)) + int(rng.integers(SECOND // 3))
        query.append((first, second))
    return query


def domain(rng: np.random.Generator, n_targets: int, n_queries: int) -> tuple[list[Any], list[Any], np.ndarray]:
    """Return targets, queries and the positions of the targets that they mean."""
    firsts, seconds = (rng.integers(n, size=(n_targets, LENGTH)).tolist() for n in (FIRST, SECOND))
    targets = [list(zip(*symbols, strict=True)) for symbols in zip(firsts, seconds, strict=True)]
    answers = rng.integers(n_targets, size=n_queries)
    return targets, [noisy(targets[answer], rng) for answer in answers], answers


def ruled(alphabet: list[Symbol]) -> EditDistance:
    """Return a distance whose costs are those of the rules, without learning."""
    first, second = np.array(alphabet).T
    steps = np.abs(first[:, None] - first)
    likely = second[:, None] // (SECOND // 3) == second // (SECOND // 3)
    pairs = np.where(likely, np.maximum(steps, 1), 20)
    gaps = np.append(np.where(second < 3, 2, 20), 0)
    distance = EditDistance(alphabet)
    costs = np.vstack([np.hstack([pairs, gaps[:-1, None]]), gaps])
    np.fill_diagonal(costs, 0)
    distance.costs_ = costs
    return distance


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Measure what learning for efficiency is worth.")
    parser.add_argument("--folds", type=int, default=10, help="of the ten, those that are run")
    parser.add_argument("--targets", type=int, default=2000)
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--efficiency", type=float, default=0.5)
    parser.add_argument("--only-rules", action="store_true")
    options = parser.parse_args()
    targets, queries, answers = domain(np.random.default_rng(0), options.targets, options.queries)
    alphabet = [(first, second) for first in range(FIRST) for second in range(SECOND)]
    plans = {} if options.only_rules else PLANS
    folds = np.arange(len(queries)) % 10
    errors: dict[str, list[Any]] = {}
    cells: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for fold in range(options.folds):
        known, asked = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        distances = {"from the rules": ruled(alphabet)}
        for plan, rounds in plans.items():
            distances[plan] = EditDistance(
                alphabet, featured=True, efficiency=options.efficiency, random_state=fold, **rounds
            ).fit(targets, [queries[i] for i in known], answers[known])
            errors.setdefault(plan, []).append(distances[plan].errors_)
        wanted = [queries[i] for i in asked]
        for plan, distance in distances.items():
            found = distance.nearest(wanted, targets)[0][:, 0]
            cells.setdefault((plan, "all"), []).append((np.mean(found != answers[asked]), 0.0))
            for tolerance in TOLERANCES:
                tree = VPTree(distance, tolerance=tolerance, random_state=0)
                tree.insert(targets)
                answer = tree.query(wanted)
                error = np.mean(answer.ids[:, 0] != answers[asked])
                pruned = 1.0 - answer.n_computed.mean() / len(targets)
                cells.setdefault((plan, f"{tolerance}"), []).append((error, pruned))
        print(f"fold {fold}", flush=True)
    shown = (0, 1, 2, 5, 10, 20, 29, 30, 40, 50, 59)
    table = [(plan, *np.mean(of_folds, axis=0)[list(shown)]) for plan, of_folds in errors.items()]
    if table:
        print(tabulate(table, ("errors on the examples in round", *shown), floatfmt=".3f"))
    rows = [(*key, *np.mean(of_folds, axis=0)) for key, of_folds in cells.items()]
    print(tabulate(rows, ("rounds", "tolerance", "error", "pruned"), floatfmt=".3f"))


if __name__ == "__main__":
    main()

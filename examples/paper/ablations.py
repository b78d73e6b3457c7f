"""Figure 5: effects of reroutes, update passes, leaf size and number of examples.

    python examples/paper/ablations.py --data path/to/folder
    python examples/paper/ablations.py --panels c d

There are four panels (section 4.5):

a. Self-consistency error by ``d``, the number of reroutes per insertion. The paper's error is near 0 at ``d = 10``; the
   threshold here is 0.01. Each class has one example. The first of four passes inserts the examples, the others only
   reroute.
b. Training error by number of update passes. The paper's error is nearly 0; the threshold here is 0.02.
c. Query time and error by leaf multiplier ``c``, with a straight line fitted to the times.
d. Query time by number of shots at ``c = 4``, with a straight line fitted to the times against the logarithm.

Panels a and b use two types of router. The package's routers take large steps and route nearly every memory correctly
from the start. "Slow routers" take small steps on the logistic loss, so rerouting and updates have errors to repair, as
in the paper.

Panels c and d measure two times. "Cold" times use each query once, so large trees wait for memory. "Warm" times repeat
a few queries. The scripts also count the memories scored in leaves and the routers on the paths.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from learners import memory_tree, update
from reporting import Line, fit_line, make_parser, measuring, new_figure, print_table, save, seconds, verdict
from stand_ins import SETS, LabelledSet, few_of_each, labelled, synthetic

from cmt_numba import ContextualMemoryTree

REROUTES = (0, 1, 2, 3, 5, 7, 10, 15)
UPDATE_PASSES = 5
LEAF_MULTIPLIERS = (1, 2, 4, 8, 16, 24, 32, 48, 64)
SHOTS = (1, 2, 3, 5, 10, 20, 30, 50, 70, 100)

ROUTERS: dict[str, dict[str, Any]] = {
    "default routers": {},
    "slow routers": {"router_loss": "logistic", "router_learning_rate": 0.1, "sure_margin": 0.0},
}

TIMINGS = 7
"""Number of timings per tree, of which the fastest is reported."""

FEW, OFTEN = 16, 100
"""Number of queries and of repetitions for warm times."""


class Trial(NamedTuple):
    """Results of one tree of panels c and d."""

    x: float  # the leaf multiplier, or the number of shots
    unsupervised_error: float
    supervised_error: float
    n_scanned: float  # mean number of memories scored per query
    n_routers: float  # mean number of routers on the path to a memory
    cold_microseconds: float
    warm_microseconds: float


def unique_rows(X: Any) -> np.ndarray:
    """Return the positions of rows without duplicates, because duplicates may find each other."""
    weights = np.random.default_rng(0).normal(size=(X.shape[1], 2))
    _, place, counts = np.unique(np.round(X @ weights, 5), axis=0, return_inverse=True, return_counts=True)
    unique: np.ndarray = counts[place.ravel()] == 1
    return unique


def inconsistency(tree: ContextualMemoryTree, X: Any, ids: np.ndarray, unique: np.ndarray) -> float:
    """Return the fraction of memories with unique keys that do not find themselves."""
    return float(np.mean(tree.query(X).ids[:, 0][unique] != ids[unique]))


def error_by_reroutes(
    X: Any,
    router: dict[str, Any],
    reroutes: Sequence[int] = REROUTES,
    n_passes: int = 4,
    seeds: Sequence[int] = (0, 1, 2),
) -> list[float]:
    """Return the mean self-consistency error over seeds for each ``d`` (panel a)."""
    unique = unique_rows(X)
    errors = []
    for d in reroutes:
        of_seeds = []
        for seed in seeds:
            tree = ContextualMemoryTree(n_reroutes=d, n_threads=1, random_state=seed, **router)
            ids = tree.insert(X)
            tree.reroute((n_passes - 1) * d * ids.size)
            of_seeds.append(inconsistency(tree, X, ids, unique))
        errors.append(float(np.mean(of_seeds)))
    return errors


def error_by_passes(
    data: LabelledSet,
    router: dict[str, Any],
    n_passes: int = UPDATE_PASSES,
    n_reroutes: int = 1,
    seeds: Sequence[int] = (0, 1, 2),
) -> list[float]:
    """Return the mean training error over seeds after inserting and after each update pass (panel b)."""
    unique, errors = unique_rows(data.X), np.zeros((len(seeds), n_passes + 1))
    for of_seed, seed in zip(errors, seeds, strict=True):
        classifier = memory_tree(0, seed, n_reroutes=n_reroutes, **router).fit(data.X, data.y)
        for i in range(n_passes + 1):
            if i > 0:
                update(classifier, data.X, data.y)
            of_seed[i] = np.mean((classifier.predict(data.X) != data.y)[unique])
    return [float(error) for error in errors.mean(axis=0)]


def _trials(sets: dict[float, tuple[LabelledSet, float]]) -> list[Trial]:
    """Train a tree for each ``x``, and time them in turns to spread disturbances evenly.

    ``sets`` maps each ``x`` to the training data and the leaf multiplier.
    """
    trees, results = [], []
    for x, (data, c) in sets.items():
        classifier = memory_tree(0, leaf_multiplier=c).fit(data.X, data.y)
        unsupervised = float(np.mean(classifier.predict(data.queries) != data.answers))
        for _ in range(2):
            update(classifier, data.X, data.y)
        supervised = float(np.mean(classifier.predict(data.queries) != data.answers))
        leaves = classifier.tree_.leaves()
        found = classifier.tree_.query(data.queries[:1000], k=int(leaves.size.max()))
        scanned = float((found.ids >= 0).sum(axis=1).mean())
        depth = float(np.average(leaves.depth, weights=leaves.size))
        results.append(Trial(x, unsupervised, supervised, scanned, depth, math.inf, math.inf))
        trees.append((classifier.tree_, data.queries, np.tile(data.queries[:FEW], (OFTEN, 1))))
    for _ in range(TIMINGS):
        for i, (tree, cold, warm) in enumerate(trees):
            results[i] = results[i]._replace(
                cold_microseconds=min(results[i].cold_microseconds, _microseconds(tree, cold)),
                warm_microseconds=min(results[i].warm_microseconds, _microseconds(tree, warm)),
            )
    return results


def _microseconds(tree: ContextualMemoryTree, queries: Any) -> float:
    took, _ = seconds(lambda: tree.query(queries))
    return took / queries.shape[0] * 1e6


def trials_by_leaf_multiplier(data: LabelledSet, multipliers: Sequence[float] = LEAF_MULTIPLIERS) -> list[Trial]:
    """Return error, work and time for each ``c`` (panel c)."""
    return _trials({c: (data, c) for c in multipliers})


def trials_by_shots(data: LabelledSet, shots: Sequence[int] = SHOTS) -> list[Trial]:
    """Return error, work and time by number of examples per class at ``c = 4`` (panel d)."""
    sets = {}
    for n_shots in shots:
        kept = few_of_each(data.y, n_shots)
        sets[float(n_shots)] = (data._replace(X=data.X[kept], y=data.y[kept]), 4.0)
    return _trials(sets)


def lines(trials: Sequence[Trial], logarithmic: bool) -> dict[str, Line]:
    """Fit straight lines to time and work against ``x`` or its logarithm."""
    x = [math.log(trial.x) if logarithmic else trial.x for trial in trials]
    return {
        "microseconds per query, cold": fit_line(x, [trial.cold_microseconds for trial in trials]),
        "microseconds per query, warm": fit_line(x, [trial.warm_microseconds for trial in trials]),
        "memories looked at": fit_line(x, [trial.n_scanned for trial in trials]),
        "routers passed": fit_line(x, [trial.n_routers for trial in trials]),
    }


def print_a(errors: dict[str, list[float]], reroutes: Sequence[int], name: str) -> None:
    """Print panel a and whether the error is below the threshold."""
    print_table(
        f"(a) {name}: self-consistency error by reroutes for each insertion; a mean over seeds",
        list(zip(reroutes, *errors.values(), strict=True)),
        ["d", *errors],
        ("", *[".4f"] * len(errors)),
    )
    print("\nPaper: falls rapidly with d, asymptoting at 10.")
    for router, of_router in errors.items():
        at_ten = of_router[max(i for i, d in enumerate(reroutes) if d <= 10)]
        falls = "it is 0 without any" if of_router[0] == 0.0 else "yes" if of_router[-1] < of_router[0] else "no"
        print(f"Ours, {router}: {at_ten:.4f} by d = 10, below 0.01 {verdict(at_ten < 0.01)}; falls with d: {falls}")


def print_b(errors: dict[str, list[float]], name: str) -> None:
    """Print panel b and whether the error is below the threshold."""
    n_passes = len(next(iter(errors.values())))
    print_table(
        f"(b) {name}: training error by update passes after the one that inserts; a mean over seeds",
        list(zip(range(n_passes), *errors.values(), strict=True)),
        ["passes", *errors],
        ("", *[".4f"] * len(errors)),
    )
    print("\nPaper: update passes drive the training error to nearly zero.")
    for router, of_router in errors.items():
        print(f"Ours, {router}: {of_router[0]:.4f} to {of_router[-1]:.4f}, below 0.02 {verdict(of_router[-1] < 0.02)}")


def print_trials(title: str, x: str, trials: Sequence[Trial], logarithmic: bool, paper: str) -> None:
    """Print panel c or d with the straight lines."""
    headers = [x, "error, unsupervised", "error, supervised", "memories", "routers", "us cold", "us warm"]
    print_table(title, trials, headers, ("g", ".4f", ".4f", ".1f", ".1f", ".2f", ".2f"))
    print(f"\nPaper: {paper}")
    for what, line in lines(trials, logarithmic).items():
        of = f"log {x}" if logarithmic else x
        print(f"Ours: {what} = {line.intercept:.2f} + {line.slope:.3f} {of}, R^2 = {line.r_squared:.3f}")


def plot(panels: dict[str, Any], folder: Path) -> Path:
    """Save the panels side by side; ``panels`` maps each panel to its results."""
    figure, axes = new_figure(len(panels))
    for ax, (panel, result) in zip(axes, panels.items(), strict=True):
        if panel in ("a", "b"):
            x, curves = result
            for router, errors in curves.items():
                ax.plot(x, errors, marker="o", label=router)
            ax.set_xlabel("reroutes for each insertion (d)" if panel == "a" else "update passes")
            ax.set_ylabel("self-consistency error" if panel == "a" else "training error")
            ax.legend()
        else:
            ax.plot([trial.x for trial in result], [trial.supervised_error for trial in result], "C0o-")
            ax.set_ylabel("test error, supervised", color="C0")
            ax.set_xlabel("leaf multiplier (c)" if panel == "c" else "examples of each class (S)")
            beside = ax.twinx()
            beside.plot(
                [trial.x for trial in result], [trial.cold_microseconds for trial in result], "C1s--", label="cold"
            )
            beside.plot(
                [trial.x for trial in result], [trial.warm_microseconds for trial in result], "C1^:", label="warm"
            )
            beside.set_ylabel("microseconds per query", color="C1")
            beside.legend()
            if panel == "d":
                ax.set_xscale("log")
        ax.set_title(f"({panel})")
    return save(figure, folder, "ablations")


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the command line; return the results by panel."""
    parser = make_parser(__doc__)
    parser.add_argument(
        "--panels", nargs="+", choices=list("abcd"), default=list("abcd"), help="panels to draw; default: all"
    )
    parser.add_argument("--one-shot", default="wikipara1k, 1 shot", choices=SETS, help="data set of panels a and b")
    parser.add_argument("--many-shots", default="synthetic, 100 shots", choices=SETS, help="data set of panels c and d")
    parser.add_argument(
        "--classes", type=int, default=1000, help="number of classes of the synthetic set (default: 1000)"
    )
    parser.add_argument("--shots", type=int, default=100, help="examples per class of the synthetic set (default: 100)")
    parser.add_argument("--seeds", type=int, default=3, help="number of runs for panels a and b (default: 3)")
    options = parser.parse_args(arguments)
    seeds, results = range(options.seeds), dict[str, Any]()
    with measuring(parser):
        if {"a", "b"} & set(options.panels):
            name = options.one_shot
            data = labelled(options.data, name)
            if "a" in options.panels:
                errors = {kind: error_by_reroutes(data.X, router, seeds=seeds) for kind, router in ROUTERS.items()}
                print_a(errors, REROUTES, name)
                results["a"] = REROUTES, errors
            if "b" in options.panels:
                errors = {kind: error_by_passes(data, router, seeds=seeds) for kind, router in ROUTERS.items()}
                print_b(errors, name)
                results["b"] = range(UPDATE_PASSES + 1), errors
        if {"c", "d"} & set(options.panels):
            made = options.many_shots.startswith("synthetic")
            many = synthetic(options.classes, options.shots) if made else labelled(options.data, options.many_shots)
            if "c" in options.panels:
                results["c"] = trials_by_leaf_multiplier(many)
                paper = "error falls and query time grows linearly with c."
                print_trials(f"(c) {options.many_shots}", "c", results["c"], False, paper)
            if "d" in options.panels:
                results["d"] = trials_by_shots(many, [n for n in SHOTS if n <= options.shots])
                paper = "error drops quickly, and query time grows logarithmically, with the number of shots."
                print_trials(f"(d) {options.many_shots}, c = 4", "S", results["d"], True, paper)
    plot(results, options.output)
    return results


if __name__ == "__main__":
    main()

"""Figure 4: progressive validation of online learners.

    python examples/paper/progressive.py --data path/to/folder

The script measures the entropy reduction over the constant predictor (section 4.1). In the paper, with few examples per
class, the tree is far better than one against all and than trees without memories, on ALOI and on WikiPara with three
shots. This script compares the paper's tree, a forest of eight such trees, ``CMTClassifier``, and one against all with
scikit-learn's ``SGDClassifier``, which receives all classes in advance. Examples come in batches of at most ``--share``
of the earlier examples, because a call of one against all takes as long for one example as for a hundred.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from learners import memory_tree
from reporting import make_parser, measuring, new_figure, print_table, save
from sklearn.linear_model import SGDClassifier
from stand_ins import SETS, LabelledSet, labelled, synthetic

from cmt_numba import CMTClassifier
from cmt_numba.evaluation import ProgressiveResult, growing_batches, progressive_validation

SYNTHETIC, AGAINST_ALL = "synthetic, 100 shots", "one against all"
EARLY = 3
"""Numbers of first examples per class for which errors are printed."""


def learners() -> dict[str, Any]:
    """Return the learners to compare, by name."""
    return {
        "CMT": memory_tree(),
        "CMT, 8 trees": memory_tree(n_trees=8),
        "CMTClassifier": CMTClassifier(random_state=0),
        AGAINST_ALL: SGDClassifier(loss="log_loss", alpha=1e-6, random_state=0),
    }


def validate(data: LabelledSet, share: float = 0.05) -> dict[str, ProgressiveResult]:
    """Return the progressive validation of each learner on the examples of a data set, in order."""
    results = {}
    for name, learner in learners().items():
        classes = np.unique(data.y) if isinstance(learner, SGDClassifier) else None
        results[name] = progressive_validation(
            learner, growing_batches(data.X, data.y, share=share, max_rows=5000), classes=classes
        )
    return results


def ahead_up_to(result: ProgressiveResult, other: ProgressiveResult) -> int:
    """Return the last number of examples at which the cumulative result of one learner exceeds another's."""
    errors = np.interp(result.curve["n_examples"], other.curve["n_examples"], other.curve["error"])
    ahead = np.flatnonzero(np.array(result.curve["error"]) < errors)
    return int(result.curve["n_examples"][ahead[-1]]) if ahead.size else 0


def print_results(title: str, results: dict[str, ProgressiveResult]) -> None:
    """Print the results on all examples, and the errors on the first examples of each class."""
    rows = []
    for name, result in results.items():
        early = dict(zip(result.by_shots["n_shots"], result.by_shots["error"], strict=True))
        rows.append(
            [
                name,
                result.metrics["error"],
                result.metrics["entropy_reduction"],
                *(early.get(n) for n in range(1, EARLY + 1)),
                result.seconds["learn"],
                result.us_per_query,
            ]
        )
    headers = ["learner", "error", "entropy reduction", *(f"error after {n}" for n in range(1, EARLY + 1))]
    print_table(title, rows, [*headers, "learning s", "us a query"], ("", *[".4f"] * 5, ".1f", ".1f"))
    for name, result in results.items():
        if name != AGAINST_ALL:
            n = ahead_up_to(result, results[AGAINST_ALL])
            print(f"{name} is ahead of one against all up to example {n:,} of {result.n_examples:,}.")


def plot(results: dict[str, dict[str, ProgressiveResult]], folder: Path) -> Path:
    """Save a plot of the curves for each data set."""
    figure, axes = new_figure(len(results))
    for ax, (name, of_set) in zip(axes, results.items(), strict=True):
        for learner, result in of_set.items():
            reduction = np.array(result.curve["entropy_reduction"], float)
            ax.plot(result.curve["n_examples"], np.where(np.isfinite(reduction), reduction, np.nan), label=learner)
        ax.set_xscale("log")
        ax.set_xlabel("examples")
        ax.set_ylabel("progressive entropy reduction, bits")
        ax.set_title(name)
        ax.legend()
    return save(figure, folder, "progressive")


def main(arguments: Sequence[str] | None = None) -> dict[str, dict[str, ProgressiveResult]]:
    """Run the command line and return the results by data set and learner."""
    parser = make_parser(__doc__, SETS, [SYNTHETIC, "wikipara1k, 3 shots"])
    parser.add_argument(
        "--classes", type=int, default=1000, help="number of classes of the synthetic set (default: 1000)"
    )
    parser.add_argument("--shots", type=int, default=100, help="examples per class of the synthetic set (default: 100)")
    parser.add_argument(
        "--share",
        type=float,
        default=0.05,
        help="size of a batch as a fraction of the examples before it (default: 0.05)",
    )
    options = parser.parse_args(arguments)
    results = {}
    with measuring(parser):
        for name in options.sets:
            made = name == SYNTHETIC
            data = synthetic(options.classes, options.shots) if made else labelled(options.data, name)
            results[name] = validate(data, options.share)
            print_results(f"{name}: {data.X.shape[0]} examples, each predicted before it is learned", results[name])
    print("\nPaper: its tree is far better than one against all and the logarithmic-time trees while there are few")
    print("examples of each class.")
    plot(results, options.output)
    return results


if __name__ == "__main__":
    main()

"""Figure 1: entropy reduction of classifiers with few examples of each class.

    python examples/paper/few_shot.py --data path/to/folder

In the paper (section 4.2), with one example per class, even the unsupervised tree has a lower error than other
classifiers with logarithmic time. The difference decreases with more examples. On ALOI with all examples, the errors
are 26.3 % (supervised tree), 75.8 % (unsupervised tree), 28.8 % (Recall Tree) and 66.7 % (LOMTree). ``--vowpal-wabbit``
adds Vowpal Wabbit's Recall Tree and memory tree, with three passes each. No package contains LOMTree.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from learners import ExactNeighbour, OneAgainstAll, VowpalWabbit, memory_tree
from reporting import bars, make_parser, measuring, new_figure, print_table, save, seconds
from stand_ins import SETS, LabelledSet, labelled

from cmt_numba import CMTClassifier
from cmt_numba.metrics import constant_accuracy, entropy_reduction

DEFAULT_SETS = [name for name in SETS if name.startswith(("wikipara1k", "omniglot", "coil100"))]
MOST_WORK_AGAINST_ALL = 2e9
"""Maximum of feature values times classes for one against all, which would otherwise take minutes."""

UNSUPERVISED, SUPERVISED, RECALL_TREE = "CMT, unsupervised", "CMT, supervised", "Vowpal Wabbit, recall tree"

PAPER_ALOI = {UNSUPERVISED: 0.758, SUPERVISED: 0.263, RECALL_TREE: 0.288}
"""The paper's errors on ALOI, printed with the results on ALOI and on the synthetic set."""

VOWPAL_WABBIT = {
    RECALL_TREE: "--recall_tree {n_classes} -b 24",
    "Vowpal Wabbit, memory tree": (
        "--memory_tree {n_examples} --max_number_of_labels {n_classes} -b 22"
        " --alpha 0.1 --leaf_example_multiplier 10 --dream_repeats 3 --dream_at_update 1"
    ),
}


class Outcome(NamedTuple):
    """Results of one learner on one data set."""

    learner: str
    error: float
    entropy_reduction: float  # bits, relative to the constant predictor
    train_seconds: float
    query_microseconds: float
    paper_error: float | None


def learners(data: LabelledSet, vowpal_wabbit: bool = False) -> dict[str, Any]:
    """Return the learners to compare on a data set, by name."""
    compared: dict[str, Any] = {
        UNSUPERVISED: memory_tree(n_passes=0),
        SUPERVISED: memory_tree(),
        "CMT, supervised, 8 trees": memory_tree(n_trees=8),
        "CMTClassifier": CMTClassifier(random_state=0),
        "exact nearest neighbour": ExactNeighbour(),
    }
    n_values = data.X.nnz if scipy.sparse.issparse(data.X) else data.X.size
    if n_values * np.unique(data.y).size <= MOST_WORK_AGAINST_ALL:
        compared["one against all"] = OneAgainstAll()
    if vowpal_wabbit:
        compared |= {name: VowpalWabbit(reduction) for name, reduction in VOWPAL_WABBIT.items()}
    return compared


def compare(name: str, data: LabelledSet, vowpal_wabbit: bool = False) -> list[Outcome]:
    """Return the results of all learners on a data set."""
    constant = constant_accuracy(data.answers)
    like_aloi = name.startswith(("aloi", "synthetic"))
    outcomes = []
    for learner, estimator in learners(data, vowpal_wabbit).items():
        if learner.startswith("CMT"):
            estimator.fit(data.X[:100], data.y[:100]).predict(data.queries[:5])  # compile all kernels
        train_seconds, _ = seconds(lambda: estimator.fit(data.X, data.y))  # noqa: B023
        query_seconds, answers = seconds(lambda: estimator.predict(data.queries))  # noqa: B023
        accuracy = float(np.mean(answers == data.answers))
        outcomes.append(
            Outcome(
                learner,
                1.0 - accuracy,
                entropy_reduction(accuracy, constant),
                train_seconds,
                query_seconds / data.answers.size * 1e6,
                PAPER_ALOI.get(learner) if like_aloi else None,
            )
        )
    return outcomes


def plot(outcomes: dict[str, list[Outcome]], folder: Path) -> Path:
    """Save a bar plot of the entropy reductions."""
    figure, (axes,) = new_figure()
    figure.set_size_inches(9.0, 4.5)
    values = {name: {one.learner: one.entropy_reduction for one in of_set} for name, of_set in outcomes.items()}
    bars(axes, values, "entropy reduction over the constant predictor, bits")
    axes.set_title("Few examples of each class (the paper's Figure 1)")
    return save(figure, folder, "few_shot")


def main(arguments: Sequence[str] | None = None) -> dict[str, list[Outcome]]:
    """Run the command line; return the outcomes by set."""
    parser = make_parser(__doc__, SETS, DEFAULT_SETS)
    parser.add_argument("--vowpal-wabbit", action="store_true", help="also compare with Vowpal Wabbit's trees")
    options = parser.parse_args(arguments)
    outcomes = {}
    with measuring(parser):
        for name in options.sets:
            data = labelled(options.data, name)
            outcomes[name] = compare(name, data, options.vowpal_wabbit)
            title = f"{name}: {data.X.shape[0]} examples of {np.unique(data.y).size} classes"
            headers = ["learner", "error", "entropy reduction", "train s", "us a query", "paper's error on ALOI"]
            print_table(title, outcomes[name], headers, ("", ".4f", ".3f", ".2f", ".1f", ".3f"))
    print(
        "\nPaper: its unsupervised tree beats the other logarithmic-time classifiers with one example of a class; being"
    )
    print("taught helps; the lead becomes smaller with more examples.")
    plot(outcomes, options.output)
    return outcomes


if __name__ == "__main__":
    main()

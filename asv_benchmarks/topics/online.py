"""Measure online learning from rewards and batches, forgetting, calibration, and single-row calls."""

from shared.commands import DATA, Commands, argument, timed  # before libraries that read the number of threads

# isort: split
import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import scipy.sparse
from shared import single_rows
from shared.labelled_sets import SETS, LabelledSet, coil, omniglot, synthetic, texts_with_labels
from sklearn.linear_model import Perceptron, SGDClassifier
from tabulate import tabulate

from cmt_numba import CMTClassifier, ContextualMemoryTree
from cmt_numba.evaluation import ProgressiveResult, growing_batches, progressive_validation
from cmt_numba.rewards import LabelEquality

commands = Commands(__doc__)

ROOT = Path(__file__).resolve().parents[2]

N_POINTS = 8
MOST_SHOTS = 10

LEARNERS: dict[str, Callable[[], Any]] = {
    "ours": lambda: CMTClassifier(random_state=0),
    "logistic": lambda: SGDClassifier(loss="log_loss", random_state=0),
    "perceptron": lambda: Perceptron(random_state=0),
}


def progressive_result(X: Any, y: np.ndarray, learner: str, most_rows: int | None = None) -> ProgressiveResult:
    """Return the result of a learner on the examples in their order."""
    X, y = X[:most_rows], y[:most_rows]
    classes = None if learner == "ours" else np.unique(y)
    return progressive_validation(LEARNERS[learner](), growing_batches(X, y), classes=classes)


def curve_table(results: dict[str, ProgressiveResult]) -> str:
    """Return a table of the entropy reductions at a few points of the curves."""
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
    """Return a table of errors by the number of earlier examples of the class."""
    shots = [
        dict(zip(result.by_shots["n_shots"], result.by_shots["error"], strict=True)) for result in results.values()
    ]
    rows = [[n, *(errors.get(n) for errors in shots)] for n in range(1, MOST_SHOTS + 1) if n in shots[0]]
    return tabulate(rows, ["shots", *results], floatfmt=".3f")


def cost_table(results: dict[str, ProgressiveResult]) -> str:
    """Return a table of errors over all examples, and of the time per example."""
    rows = [
        [name, result.metrics["error"], result.us_per_query, 1e6 * result.seconds["learn"] / result.n_examples]
        for name, result in results.items()
    ]
    return tabulate(rows, ["learner", "error", "predict, us", "learn, us"], floatfmt=(".3f", ".3f", ".0f", ".0f"))


@commands.add(
    DATA,
    argument("--sets", nargs="+", default=["synthetic, 100 shots", "wikipara1k, 3 shots"], choices=SETS),
    argument("--learners", nargs="+", default=list(LEARNERS), choices=LEARNERS),
    argument("--most-rows", type=int),
)
def progressive(options: argparse.Namespace) -> None:
    """Compare online learning of ``CMTClassifier`` and linear one-against-all models, on one thread.

    ``shared/labelled_sets.py`` describes the data sets and their sources. The training examples come in random order,
    in batches of 1 % of the examples so far. Each batch is first predicted and then learned (progressive validation,
    section 4.1 of the paper).

    Prints, for several numbers of examples, the entropy reduction over the constant predictor in bits, over all
    examples so far and over those since the previous row. Then prints the error by the number of earlier examples of
    the class, and the microseconds per example to predict and to learn. The one-against-all models are scikit-learn's
    ``SGDClassifier`` with logistic loss, and ``Perceptron``. Needs tabulate.
    """
    for name in options.sets:
        data = SETS[name](options.data)
        order = np.random.default_rng(0).permutation(data.y.size)
        X, y = data.X[order], data.y[order]
        results = {learner: progressive_result(X, y, learner, options.most_rows) for learner in options.learners}
        print(f"{name}\n\n{curve_table(results)}\n\n{shots_table(results)}\n\n{cost_table(results)}\n", flush=True)


BATCHES = (100, 1000)
BATCHES_OF_NEW, DIVISIONS = 10, 3


def learned(batches: list[np.ndarray], examples: LabelledSet, store: bool) -> tuple[CMTClassifier, float]:
    """Return a classifier that has learned the batches, and the CPU time in seconds."""
    classifier = CMTClassifier(store_examples=store, random_state=0)
    start = process_time()
    for batch in batches:
        classifier.partial_fit(examples.X[batch], examples.y[batch])
    return classifier, process_time() - start


def online_rows(examples: LabelledSet) -> Iterator[list[Any]]:
    """Yield a row of the first table for each way of splitting the examples into batches."""
    n = examples.y.size
    learned([np.arange(200), np.arange(200, 300)], examples, True)  # compile
    fitted, seconds = timed(CMTClassifier(random_state=0).fit, examples.X, examples.y)
    yield ["fit", "", 1.0 - fitted.score(examples.queries, examples.answers), seconds]
    for size in BATCHES:
        for store in (True, False):
            batches = np.array_split(np.arange(n), -(-n // size))
            classifier, seconds = learned(batches, examples, store)
            yield [f"batches of {size}", store, 1.0 - classifier.score(examples.queries, examples.answers), seconds]


def rarest_tags(folder: Path) -> LabelledSet:
    """Return 10,000 package descriptions, each with its rarest tag."""
    X, Y, queries, answers = (
        scipy.sparse.csr_array(scipy.sparse.load_npz(folder / "debtags" / f"{part}.npz"))
        for part in ("X_train", "Y_train", "X_test", "Y_test")
    )
    n_of_tag = np.asarray((Y != 0).sum(axis=0)).ravel()
    rarity = np.where(n_of_tag >= 20, 1.0 / np.maximum(n_of_tag, 1), 0.0)
    tagged = [(Y != 0).multiply(rarity).tocsr(), (answers != 0).multiply(rarity).tocsr()]
    y, right = (np.asarray(each.argmax(axis=1)).ravel() for each in tagged)
    has, asked = (np.flatnonzero(each.max(axis=1).toarray().ravel() > 0.0) for each in tagged)
    kept = np.random.RandomState(0).permutation(has)[:10_000]
    asked = asked[np.isin(right[asked], y[kept])]
    return LabelledSet(X[kept].astype(np.float32), y[kept], queries[asked].astype(np.float32), right[asked])


def fading_rows(name: str, examples: LabelledSet) -> Iterator[list[Any]]:
    """Yield the rows of the second table for a set."""
    fitted = CMTClassifier(random_state=0).fit(examples.X, examples.y)
    for store in (True, False):
        accuracies = []
        for seed in range(DIVISIONS):
            classes = np.random.RandomState(seed).permutation(np.unique(examples.y))
            old, new = np.split(classes, [round(2 * classes.size / 3)])
            asked = np.isin(examples.answers, old)
            queries, answers = examples.queries[asked], examples.answers[asked]
            first = np.flatnonzero(np.isin(examples.y, old))
            later = [np.flatnonzero(np.isin(examples.y, some)) for some in np.array_split(new, BATCHES_OF_NEW)]
            before, _ = learned([first], examples, store)
            after, _ = learned([first, *later], examples, store)
            accuracies.append([each.score(queries, answers) for each in (before, after, fitted)])
        before_all, after_all, fitted_all = np.mean(accuracies, axis=0)
        yield [name, store, before_all, after_all, fitted_all, fitted_all - after_all]


@commands.add(DATA, argument("--parts", nargs="+", choices=("online", "fading"), default=["online", "fading"]))
def batches(options: argparse.Namespace) -> None:
    """Compare learning in batches with a single fit, and measure forgetting of classes without new examples.

    Expects ``clinc150``, ``wikipara1k``, ``omniglot_background`` and ``coil100`` in the folder, as
    ``shared/labelled_sets.py`` describes them, and ``debtags``, where each row gets the rarest of its tags that at
    least 20 rows have. Other dense sets are synthetic.

    The first table has the error of ``fit`` and of ``partial_fit`` in batches of several sizes, with seconds.

    The second table has the accuracy on two thirds of the classes before and after the other classes were added, a
    tenth of these at a time, by ``partial_fit`` alone. It is averaged over several divisions of the classes. More
    classes lower the accuracy of any classifier, so the table also has the accuracy of one fit on all examples, and the
    additional loss of ``partial_fit``. Each is measured with and without stored examples; without them no old example
    can be learned again. Needs tabulate.
    """
    folder = options.data
    if "online" in options.parts:
        headers = ["learner", "examples stored", "error", "seconds"]
        print(tabulate(online_rows(synthetic(1000, 10)), headers, "github", floatfmt=".4g"), flush=True)
    if "fading" not in options.parts:
        return
    sets: dict[str, Callable[[], LabelledSet]] = {
        "clinc150, 100 shots": lambda: texts_with_labels(folder, "clinc150", 100),
        "wikipara1k, 10 shots": lambda: texts_with_labels(folder, "wikipara1k", 10),
        "debtags": lambda: rarest_tags(folder),
        "omniglot, 5 drawers": lambda: omniglot(folder, 5),
        "coil100, 9 views": lambda: coil(folder, 9),
        "synthetic, 300 classes, 20 shots": lambda: synthetic(300, 20),
    }
    lines = []
    for name, read in sets.items():
        for line in fading_rows(name, read()):
            lines.append(line)
            print(*line, file=sys.stderr, flush=True)
    headers = ["set", "examples stored", "old classes only", "after new classes", "one fit on all", "additional error"]
    print(f"\n{tabulate(lines, headers, 'github', floatfmt='.4f')}")


DEFAULT = ("clinc150, 5 shots", "wikipara1k, 3 shots", "omniglot, 5 drawers", "synthetic, 10 shots")
ALL = {**SETS, "synthetic, 10 shots": lambda folder: synthetic(1000, 10)}
MOST_ASKED, MANY_LEAVES = 2000, 10**6


def error(tree: ContextualMemoryTree, examples: LabelledSet, n_probes: int | None = None) -> float:
    """Return the fraction of the queries whose best memory has another label."""
    queries, answers = examples.queries[:MOST_ASKED], examples.answers[:MOST_ASKED]
    ids = tree.query(queries, n_probes=n_probes).ids[:, 0]
    return float(np.mean((examples.y[ids] != answers) | (ids < 0)))


def reward_row(name: str, examples: LabelledSet, n_trees: int, n_passes: int) -> list[Any]:
    """Return a row of the table."""
    tree = ContextualMemoryTree(n_trees, random_state=0)
    ids, reward = tree.insert(examples.X), LabelEquality(examples.y, examples.y)
    exact, errors, seconds = error(tree, examples, MANY_LEAVES), [error(tree, examples)], []
    for _ in range(n_passes):
        seconds.append(timed(tree.learn, examples.X, reward, own_ids=ids)[1])
        errors.append(error(tree, examples))
    return [name, n_trees, exact, *errors, f"{1.0 - errors[-1] / errors[0]:.3f}", f"{np.median(seconds):.1f}"]


@commands.add(
    DATA,
    argument("--sets", nargs="+", choices=ALL, default=DEFAULT),
    argument("--trees", nargs="+", type=int, default=[1, 8]),
    argument("--passes", type=int, default=5),
)
def rewards(options: argparse.Namespace) -> None:
    """Measure the error of trees after passes of query, reward and update.

    Expects the sets of ``shared/labelled_sets.py``. Examples are stored as memories. ``ContextualMemoryTree.learn``
    then queries each example, excluding its own memory, and rewards each memory found if it has the same label. Unseen
    queries search one leaf of each tree, and the label of the best memory is the answer. Prints the error before
    training and after each pass, the error of an exact search before training, and seconds of CPU time per pass. Needs
    tabulate.
    """
    headers = ["set", "trees", "exact", *range(options.passes + 1), "improvement", "s/pass"]
    for name in options.sets:
        examples = ALL[name](options.data)
        rows = [reward_row(name, examples, n_trees, options.passes) for n_trees in options.trees]
        print(tabulate(rows, headers, "github", floatfmt=".4f"), flush=True)


MOST_COMPARED = 1000


def forgetting_row(labelled: LabelledSet, share: float) -> list[float]:
    """Return the results of a classifier that forgets a tenth of its classes and a fraction of the other examples."""
    X, y, queries, answers = labelled[:4]
    generator = np.random.default_rng(0)
    classes = np.unique(y)
    gone = generator.choice(classes, classes.size // 10, replace=False)
    classifier = CMTClassifier(random_state=0).fit(X, y)
    classifier.predict(queries[:1])
    left = np.flatnonzero(~np.isin(y, gone))
    ids = generator.choice(left, int(share * left.size), replace=False)
    start = process_time()
    classifier.remove_classes(gone)
    if ids.size > 0:
        classifier.remove(ids)
    took = process_time() - start
    with tempfile.TemporaryDirectory() as folder:
        classifier.save(Path(folder) / "classifier.cmt")
        classifier = CMTClassifier.load(Path(folder) / "classifier.cmt")
    rest = np.setdiff1d(left, ids)
    other = CMTClassifier(random_state=0).fit(X[rest], y[rest])
    asked = np.flatnonzero(np.isin(answers, classifier.classes_))
    asked = np.sort(generator.permutation(asked)[:MOST_COMPARED])
    found, expected, right = classifier.predict(queries[asked]), other.predict(queries[asked]), answers[asked]
    all_found = classifier.predict(queries)
    return [
        float(np.mean(found != right)),
        float(np.mean(expected != right)),
        float(np.mean(found == expected)),
        int(np.isin(all_found, np.setdiff1d(y, y[rest])).sum()),
        took,
    ]


@commands.add(DATA)
def forgetting(options: argparse.Namespace) -> None:
    """Compare ``CMTClassifier`` after forgetting with a classifier that never learned the removed examples.

    From each set a tenth of the classes is removed, and then a fraction of the remaining examples. The reference
    classifier is fitted on the rest alone. Prints the errors of both on queries of the remaining classes, the fraction
    of equal answers, the number of answers that name a removed class, and the seconds that the removals took.

    ``shared/labelled_sets.py`` describes the folder of data.
    """
    folder = options.data
    sets = {
        "clinc150, 20": texts_with_labels(folder, "clinc150", 20),
        "clinc150, all": texts_with_labels(folder, "clinc150", 1000),
        "coil100, 18": coil(folder, 18),
        "omniglot, 10": omniglot(folder, 10),
    }
    lines = []
    for name, labelled in sets.items():
        for share in (0.0, 0.1, 0.3):
            lines.append([name, share, *forgetting_row(labelled, share)])
            print(lines[-1], flush=True)
    header = ["set", "examples removed", "error", "error without them", "agreement", "removed classes", "remove, s"]
    print(tabulate(lines, header, floatfmt=("", ".1f", ".4f", ".4f", ".4f", ".0f", ".3f"), tablefmt="github"))


N_BINS = 15


def calibration_error(confidence: np.ndarray, right: np.ndarray) -> float:
    """Return the expected calibration error: the mean distance between confidence and accuracy over the bins."""
    bins = np.minimum((confidence * N_BINS).astype(int), N_BINS - 1)
    errors = [abs(confidence[bins == b].mean() - right[bins == b].mean()) * np.mean(bins == b) for b in np.unique(bins)]
    return float(np.sum(errors))


def errors_of(classifier: Any, labelled: LabelledSet) -> tuple[float, float]:
    """Return the error and the calibration error of a classifier."""
    proba = classifier.predict_proba(labelled.queries)
    right = classifier.classes_[proba.argmax(axis=1)] == labelled.answers
    return 1.0 - float(right.mean()), calibration_error(proba.max(axis=1), right)


@commands.add(DATA)
def calibration(options: argparse.Namespace) -> None:
    """Measure the calibration of the probabilities of ``CMTClassifier``.

    Prints for each set the error, and the expected calibration error (15 bins of equal width, over the probability of
    the answer) with the default calibration, with a calibration learned from held-out examples, and with the best
    calibration for the queries themselves. Also prints the seconds to fit and to calibrate.

    If ``clinc150/oos.jsonl.gz`` exists, also prints how well the highest probability separates rows of known classes
    from others, as the area under the receiver operating characteristic. ``shared/labelled_sets.py`` describes the
    folder of data.
    """
    folder = options.data
    sets = {
        "clinc150, 5": lambda: texts_with_labels(folder, "clinc150", 5),
        "clinc150, all": lambda: texts_with_labels(folder, "clinc150", 1000),
        "wikipara1k, 3": lambda: texts_with_labels(folder, "wikipara1k", 3),
        "wikipara1k, 20": lambda: texts_with_labels(folder, "wikipara1k", 20),
        "coil100, 4": lambda: coil(folder, 4),
        "coil100, 18": lambda: coil(folder, 18),
        "omniglot, 5": lambda: omniglot(folder, 5),
        "omniglot, 10": lambda: omniglot(folder, 10),
        "synthetic, 20": lambda: synthetic(1000, 20),
    }
    lines = []
    for name, make in sets.items():
        labelled = make()
        classifier, fitted = timed(CMTClassifier(random_state=0).fit, labelled.X, labelled.y)
        classifier._model.calibration[0] = 4.0
        error, by_default = errors_of(classifier, labelled)
        _, took = timed(classifier.calibrate)
        learned = errors_of(classifier, labelled)[1]
        best = errors_of(classifier.calibrate(labelled.queries, labelled.answers), labelled)[1]
        lines.append([name, error, by_default, learned, best, fitted, took])
        print(lines[-1], flush=True)
    header = ["set, examples per class", "error", "default", "learned", "best", "fit, s", "calibrate, s"]
    print(tabulate(lines, header, floatfmt=("", ".4f", ".3f", ".3f", ".3f", ".2f", ".2f"), tablefmt="github"))


def in_a_process(options: argparse.Namespace, *, rivals: bool) -> dict[str, Any]:
    """Measure single rows in a process of its own, with the package or with its rivals."""
    script = ROOT / "asv_benchmarks/classifiers.py"
    command = [sys.executable, str(script), "rows", "--worker", "--data", str(options.data), "--calls", *options.calls]
    command += ["--stalls", str(options.stalls), "--n", str(options.n), "--seconds", str(options.seconds)]
    command += ["--rivals"] if rivals else []
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, text=True)
    found: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return found


def figures_of_rows(options: argparse.Namespace) -> dict[str, Any]:
    """Return the measurements of this process. Skip calls that the package or the machine does not support."""
    rows, found = single_rows.intents(options.data), {}
    for name in options.calls:
        make = single_rows.RIVALS.get(name, ("", None))[1] if options.rivals else single_rows.OURS[name]
        try:
            if make is not None:
                found[name] = single_rows.measured(make(rows), options.n, options.seconds)
        except (ImportError, AttributeError, TypeError) as error:
            print(f"{name}: {error!r}", file=sys.stderr)
    if options.stalls > 0 and not options.rivals:
        found |= {form: single_rows.stalls(rows, form, options.stalls) for form in ("sparse", "dense")}
    return found


@commands.add(
    DATA,
    argument("--calls", nargs="+", default=list(single_rows.OURS), choices=single_rows.OURS),
    argument("--n", type=int, default=3000, help="maximum number of calls"),
    argument("--seconds", type=float, default=3.0, help="maximum time per call and setting, in seconds"),
    argument("--stalls", type=int, default=20_000, help="rows to learn one by one; 0: none"),
    argument("--worker", action="store_true", help=argparse.SUPPRESS),
    argument("--rivals", action="store_true", help=argparse.SUPPRESS),
)
def rows(options: argparse.Namespace) -> None:
    """Measure calls with a single row: alone, next to three threads that are busy in Python, and learning row by row.

    The package and its rivals run in a process each. Expects ``clinc150`` in the folder of
    ``shared/labelled_sets.py``. Prints microseconds of CPU time per call, medians and 99th percentiles of the wall time
    alone and next to busy threads, and the quantiles of learning rows one by one in milliseconds. Rivals that are not
    installed are skipped. Needs tabulate.
    """
    if options.worker:
        print(json.dumps(figures_of_rows(options)))
        return
    versions = ("ours", "rival")
    found = {version: in_a_process(options, rivals=version == "rival") for version in versions}
    costs, waits, learned = [], [], []
    for name in options.calls:
        costs.append([name, *(found[version].get(name, {}).get("cpu") for version in versions)])
        costs[-1].append(single_rows.RIVALS.get(name, ("",))[0])
        for version in versions:
            of_call = found[version].get(name)
            if of_call is not None:
                figures = [of_call[key] for key in ("alone 50", "busy 50", "alone 99", "busy 99")]
                waits.append([name, version, *figures[:2], figures[1] / figures[0], *figures[2:]])
    for form in ("sparse", "dense") if options.stalls > 0 else ():
        of_row = found["ours"][form]
        learned.append([form, *(of_row[key] for key in ("50", "99", "100", "mean")), of_row["mean"] / of_row["50"]])
    print(tabulate(costs, ["CPU time, us", *versions, "rival"], "github", floatfmt=".0f"), "\n")
    head = ["wall time, us", "version", "median alone", "busy", "ratio", "99 % alone", "busy"]
    print(tabulate(waits, head, "github", floatfmt=("", "", ".0f", ".0f", ".1f", ".0f", ".0f")), "\n")
    head = ["ms/row learned", "median", "99 %", "maximum", "mean", "mean / median"]
    print(tabulate(learned, head, "github", floatfmt=".2f"))

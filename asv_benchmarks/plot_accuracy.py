"""Plot the error of classifiers against time and memory, and the recall of a store against time.

    python asv_benchmarks/plot_accuracy.py --data path/to/folder
    python asv_benchmarks/plot_accuracy.py --data path/to/folder --figures store --images build

Writes one SVG for each figure to ``docs/images`` (or to ``--images``) and prints what it shows:

``clinc150``, ``omniglot``
    ``CMTClassifier`` with its defaults and with several values of ``n_candidates``, ``n_trees``, ``n_head_passes`` and
    ``store_examples``, beside the exact search, class means and linear model of ``compare_classifiers.py``.
``store``
    ``MemoryStore`` with several values of ``target_recall`` over features of characters, beside hnswlib if it is
    installed.

Data are those of ``labelled_sets.py``. Times are of the processor, on one thread, in microseconds for each query of a
batch: the least of several. Memory is the size of the pickled model. Needs matplotlib and tabulate.
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_variable] = "1"  # before any library reads them

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from compare_classifiers import class_means, exact, linear, measured
from labelled_sets import SETS, LabelledSet
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator
from store_data import K, Vectors, features, graph_of, recall, timed

from cmt_numba import CMTClassifier, MemoryStore

FIGURES = {"clinc150": "clinc150, 100 shots", "omniglot": "omniglot, 5 drawers"}
IMAGES = Path(__file__).parents[1] / "docs/images"
TARGETS, EFFORTS = (0.9, 0.95, 0.98, 0.995), (10, 20, 40, 80, 160)
CANDIDATES = {"clinc150": (2, 4, 8, 16, 32), "omniglot": (5, 10, 25, 50, 100, 190)}
TREES = {"clinc150": (1, 2, 4), "omniglot": (1, 2, 4, 8)}
PASSES = (0, 1)
DEFAULTS, WITHOUT_EXAMPLES = "CMTClassifier, defaults", "store_examples=False"

GREY = "#808080"  # is read on white and on black
STYLES = {
    DEFAULTS: ("#d9582b", "*"),
    "n_candidates": ("#d9582b", "o"),
    "n_trees": ("#b07d1a", "s"),
    "n_head_passes": ("#c0508f", "^"),
    WITHOUT_EXAMPLES: ("#d9582b", "P"),
    "MemoryStore, target_recall": ("#d9582b", "o"),
    "exact search": ("#3f88c5", "D"),
    "class means": ("#2e9e6b", "v"),
    "linear model": ("#8a6fd1", "X"),
    "hnswlib, ef": ("#3f88c5", "D"),
}


class Dot(NamedTuple):
    """What one setting gives: an error or a recall, microseconds for a query, and megabytes."""

    series: str
    value: str
    quality: float
    us: float
    megabytes: float


def asked(series: str, value: Any, data: LabelledSet, train: Callable[[], Any]) -> Dot:
    """Return the error, time and memory of a classifier of this package."""
    outcome = measured(series, data, train, lambda classifier: classifier.predict(data.queries))[0]
    return Dot(series, str(value), outcome.error, outcome.query_microseconds, outcome.model_megabytes)


def rivals(data: LabelledSet) -> Iterator[Dot]:
    """Yield what exact search, class means and a linear model give."""
    for name, learner in (("exact search", exact), ("class means", class_means), ("linear model", linear)):
        for outcome in learner(data):
            yield Dot(name, "", outcome.error, outcome.query_microseconds, outcome.model_megabytes)


def ours(name: str, data: LabelledSet) -> Iterator[Dot]:
    """Yield what the classifier of this package gives, with its defaults and with one parameter or two changed."""

    def learned(**parameters: Any) -> CMTClassifier:
        return CMTClassifier(**parameters, random_state=0).fit(data.X, data.y)

    classifier = learned()
    classifier.set_params(n_candidates=5).predict(data.queries[:10])  # has kernels compiled
    yield asked(DEFAULTS, "", data, lambda: classifier.set_params(n_candidates=None))
    for n in CANDIDATES[name]:
        yield asked("n_candidates", n, data, lambda: classifier.set_params(n_candidates=n))  # noqa: B023
    for n in TREES[name]:
        yield asked("n_trees", n, data, lambda: learned(n_trees=n, n_candidates=CANDIDATES[name][-2]))  # noqa: B023
    for n in PASSES:  # the default is 5
        yield asked("n_head_passes", n, data, lambda: learned(n_head_passes=n))  # noqa: B023
    yield asked(WITHOUT_EXAMPLES, "", data, lambda: learned(store_examples=False))


def searches(data: Vectors) -> Iterator[Dot]:
    """Yield the recall and time of a store, and of hnswlib if it is installed."""
    store = MemoryStore(random_state=0)
    store.add(range(len(data.stored)), data.stored)
    store.compact()
    true = store.query(data.asked, K, target_recall=1.0).keys

    def dot(series: str, value: float, search: Callable[[], Any]) -> Dot:
        runs = [timed(search) for _ in range(3)]
        us = min(seconds for _, seconds in runs) / len(true) * 1e6
        return Dot(series, str(value), recall(runs[0][0], true), us, float("nan"))

    for target in TARGETS:
        store.query(data.asked[:1], K, target_recall=target)  # measures what it takes
        search = partial(store.query, data.asked, K, target_recall=target)
        yield dot("MemoryStore, target_recall", target, lambda: search().keys)  # noqa: B023
    if find_spec("hnswlib"):
        graph = graph_of(data.stored)[0]
        for ef in EFFORTS:
            graph.set_ef(ef)
            yield dot("hnswlib, ef", ef, lambda: graph.knn_query(data.asked, K, num_threads=1)[0])


def panel(axis: Any, dots: list[Dot], cost: str, label: str) -> None:
    """Draw quality against a cost: a line for each parameter, with its values, and a single dot for other models."""
    for series in dict.fromkeys(dot.series for dot in dots):
        colour, marker = STYLES[series]
        own = [dot for dot in dots if dot.series == series]
        costs = [getattr(dot, cost) for dot in own]
        line = {"marker": marker, "markersize": 11 if series == DEFAULTS else 5, "lw": 1.3 if len(own) > 1 else 0}
        axis.plot(costs, [dot.quality for dot in own], color=colour, label=series, **line)
        place = (3, -9) if series == "n_trees" else (3, 3)
        for dot, x in zip(own, costs, strict=True):
            axis.annotate(dot.value, (x, dot.quality), place, textcoords="offset points", fontsize=7, color=colour)
    axis.set_xlabel(label)
    if cost == "us":
        axis.set_xscale("log")
        axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
        axis.xaxis.set_minor_formatter(lambda x, _: "")
    else:
        axis.set_xlim(left=0)
    axis.grid(True, color=GREY, alpha=0.25, linewidth=0.6)
    axis.spines[["top", "right"]].set_visible(False)


def draw(path: Path, dots: list[Dot], *, quality: str) -> None:
    """Write a figure: error against time and against memory, or recall against time alone."""
    colours = dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), GREY)
    fixed = {"svg.fonttype": "none", "svg.hashsalt": path.name, "font.family": "sans-serif", "font.size": 9}
    with rc_context({**colours, **fixed}):
        figure = Figure(figsize=(8, 3.6) if quality == "error" else (5.6, 3.4), layout="constrained")
        axes = figure.subplots(1, 2 if quality == "error" else 1, sharey=True, squeeze=False)[0]
        panel(axes[0], dots, "us", "microseconds for a query")
        if quality == "error":
            once = [dot for dot in dots if dot.series != "n_candidates"]  # does not change what is stored
            panel(axes[1], once, "megabytes", "megabytes of the model")
        axes[0].set_ylabel(quality)
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, transparent=True, metadata={"Date": None, "Creator": None})


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Plot accuracy against time and memory.")
    parser.add_argument("--data", type=Path, required=True, help="folder of data")
    parser.add_argument("--figures", nargs="+", choices=(*FIGURES, "store"), default=[*FIGURES, "store"])
    parser.add_argument("--images", type=Path, default=IMAGES, help="folder to write to")
    options = parser.parse_args()
    for name in options.figures:
        if name == "store":
            dots = list(searches(features(options.data, "omniglot")))
        else:
            data = SETS[FIGURES[name]](options.data)
            dots = [*ours(name, data), *rivals(data)]
        print(f"\n{name}")
        for dot in dots:
            print(
                f"{dot.series:26} {dot.value:>6} {dot.quality:.4f} {dot.us:9.1f} us {dot.megabytes:8.1f} MB", flush=True
            )
        draw(options.images / f"accuracy_{name}.svg", dots, quality="recall at 10" if name == "store" else "error")


if __name__ == "__main__":
    main()

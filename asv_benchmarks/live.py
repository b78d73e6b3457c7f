"""Compare what is learned live with one fit on everything, with linear models and with the nearest text."""

from __future__ import annotations

from shared.commands import DATA, Commands, argument, print_table, timed

import argparse
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import sem
from shared.labelled_sets import MOST_QUERIES, MultilabelSet, read_lines, read_multilabel
from shared.patterned_intents import natural_intents, patterned_intents
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import f1_score
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline, make_union
from sklearn.svm import LinearSVC

from cmt_numba import CMTMultilabelClassifier
from cmt_numba.text import TextClassifier

commands = Commands(__doc__)

N_SHOTS = 20  # texts of each class that is there from the start
MOST_OLD = 500  # test texts of these classes: maximum
QUARTER, N_POINTS = 0.25, 5
N_CORRECTED = 200
WRONG = 0.2
HARDNESS = (0.03, 0.1, 0.3, 1.0, 3.0)  # values of C
BATCH = 50


class Lines(NamedTuple):
    """Texts with classes: object and label arrays."""

    texts: np.ndarray
    labels: np.ndarray

    def at(self, chosen: Any) -> Lines:
        """Return the chosen texts."""
        return Lines(self.texts[chosen], self.labels[chosen])

    def and_then(self, others: Lines) -> Lines:
        """Return these texts and others."""
        return Lines(*map(np.concatenate, zip(self, others, strict=True)))


def lines_of(path: Path) -> Lines:
    """Read texts with labels."""
    lines = read_lines(path)
    return Lines(np.array([line["text"] for line in lines], object), np.array([line["label"] for line in lines]))


def parts_of(path: Path) -> Iterator[Lines]:
    """Yield the training and the test texts of a folder or of a file, in random order.

    The lines of a file may have a ``split``. Otherwise, a quarter of them, drawn at random, are test texts.
    """
    if path.is_dir():
        parts = [lines_of(path / f"{part}.jsonl.gz") for part in ("train", "test")]
    else:
        every, splits = lines_of(path), np.array([line["split"] for line in read_lines(path)], object)
        is_test = splits == "test" if splits.any() else np.random.default_rng(0).random(splits.size) < QUARTER
        parts = [every.at(splits == "train" if splits.any() else ~is_test), every.at(is_test)]
    for part in parts:
        yield part.at(np.random.default_rng(0).permutation(part.labels.size))


def ours(seed: int = 0) -> Any:
    """Return a new classifier."""
    return TextClassifier(random_state=seed)


def features() -> Any:
    """Return the features of the rivals: words, pairs of words, and n-grams of characters."""
    words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
    return make_union(words, TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), sublinear_tf=True))


RIVALS: dict[str, Callable[[], Any]] = {
    "LinearSVC": lambda: make_pipeline(features(), LinearSVC()),
    "1-NN": lambda: make_pipeline(features(), KNeighborsClassifier(1, metric="cosine")),
}
WAYS = {"in one call": lambda n: [slice(0, n)], "one by one": lambda n: [slice(i, i + 1) for i in range(n)]}
WAYS["in two calls"] = lambda n: [slice(0, n // 2), slice(n // 2, n)]


def learned_live(base: Any, more: Lines, way: str) -> Any:
    """Return a copy of a classifier that has learned more texts."""
    live = deepcopy(base)
    for part in WAYS[way](len(more.texts)):
        if more.labels[part].size:
            live.partial_fit(*more.at(part))
    return live


def answers_of(first: Lines, more: Lines, base: Any) -> Iterator[tuple[str, Any]]:
    """Yield each learner of all texts by its name."""
    for way in WAYS:
        yield way, learned_live(base, more, way)
    both = first.and_then(more)
    for name, rival in {"fit": ours, **RIVALS}.items():
        yield name, rival().fit(*both)


def error(learner: Any, lines: Lines) -> float:
    """Return which fraction of texts does not get its class."""
    return float(np.mean(learner.predict(lines.texts) != lines.labels))


def with_errors(found: dict[str, list[float]]) -> list[str]:
    """Return each learner's mean, and if it learned live, the standard error of its difference from ``fit``."""
    cells = {name: f"{np.mean(each):.3f}" for name, each in found.items()}
    for way in WAYS:
        cells[way] += f" ± {sem(np.subtract(found[way], found['fit'])):.3f}"
    return list(cells.values())


def added_classes(train: Lines, test: Lines, n_new: int, shots: Sequence[int], draws: int) -> Iterator[list[Any]]:
    """Yield rows: which fraction of texts of new classes is found, and the accuracy on the other texts."""
    order = np.random.default_rng(0).permutation(np.unique(train.labels))
    old, new = order[30:], order[:30]

    def some(labels: np.ndarray, n: int, generator: np.random.Generator) -> Lines:
        chosen = [generator.permutation(np.flatnonzero(train.labels == label))[:n] for label in labels]
        return train.at(generator.permutation(np.concatenate(chosen)))

    first = some(old, N_SHOTS, np.random.default_rng(1))
    asked = test.at(np.flatnonzero(np.isin(test.labels, old))[:MOST_OLD])
    base = ours().fit(*first)
    groups = [new[[i % new.size]] for i in range(draws)] if n_new == 1 else [new[:n_new]]
    for n in shots:
        found, kept, generator = defaultdict(list), defaultdict(list), np.random.default_rng(n)
        for group in groups:
            for name, learner in answers_of(first, some(group, n, generator), base):
                found[name] += [1.0 - error(learner, test.at(test.labels == label)) for label in group]
                kept[name].append(1.0 - error(learner, asked))
        yield [n_new, n, "found", *with_errors(found)]
        yield [n_new, n, "old classes", *(f"{np.mean(each):.3f}" for each in kept.values())]


def added_to_patterns(n: int, draws: int) -> list[Any]:
    """Return a row: which fraction of texts of 8 new classes is found."""
    found = defaultdict(list)
    more, asked = (Lines(*part) for part in natural_intents(n))
    for seed in range(1, draws + 1):
        first = Lines(*patterned_intents(5, seed))
        for name, learner in answers_of(first, more, ours().fit(*first)):
            found[name].append(1.0 - error(learner, asked))
    return [8, n, "found", *with_errors(found)]


@commands.add(
    argument("folder", type=Path, help="a folder with train.jsonl.gz and test.jsonl.gz and more than 30 classes"),
    argument("--shots", type=int, nargs="+", default=[1, 3, 5, 7, 10, 20]),
    argument("--new", type=int, nargs="+", default=[1, 30], help="numbers of new classes"),
    argument("--draws", type=int, default=20, help="repetitions with one new class"),
    argument("--patterns", type=int, default=10, help="repetitions with classes whose texts are made of patterns"),
)
def new_classes(options: argparse.Namespace) -> None:
    """Compare ways to learn classes that come later, next to classes with 20 texts each.

    Prints which fraction of the test texts of new classes is found, and the accuracy on 500 texts of other classes.
    The number after ± is the standard error of the difference from ``fit``, over repetitions or over 30 classes. The
    last table adds natural sentences of 8 intents to 96 intents whose texts are made of patterns.
    """
    train, test = (lines_of(options.folder / f"{part}.jsonl.gz") for part in ("train", "test"))
    head = ["new classes", "texts each", "accuracy", *WAYS, "fit", *RIVALS]
    for n_new in options.new:
        print_table(head, added_classes(train, test, n_new, options.shots, options.draws), options.folder.name)
    print_table(head, [added_to_patterns(n, options.patterns) for n in (1, 2, 3)], "patterns")


def corrected(train: Lines, test: Lines) -> list[Any]:
    """Correct wrong answers. Return the errors on other texts, the fraction that sticks, and ms for each correction."""
    live = ours().fit(*train)
    wrong = np.flatnonzero(live.predict(test.texts) != test.labels)
    wrong = wrong[: min(N_CORRECTED, 2 * wrong.size // 3)]
    asked = test.at(np.setdiff1d(np.arange(test.labels.size), wrong))
    seconds = [timed(live.partial_fit, *test.at([i]))[1] for i in wrong]
    sticks = np.mean(live.predict(test.texts[wrong]) == test.labels[wrong])
    fitted = ours().fit(*train.and_then(test.at(wrong)))
    errors = [error(one, asked) for one in (live, fitted)]
    return [wrong.size, *errors, sticks, 1e3 * float(np.mean(seconds))]


def grown(train: Lines, test: Lines, draw: int) -> list[float]:
    """Learn a quarter more texts one by one. Return how far the error exceeds that of one fit, at each point."""
    order = np.random.default_rng(draw).permutation(train.labels.size)
    n = int(order.size / (1.0 + QUARTER))
    live, excess = ours(draw).fit(*train.at(order[:n])), []
    for part in np.array_split(order[n:], N_POINTS):
        for i in part:
            live.partial_fit(*train.at([i]))
        n += part.size
        errors = [error(one, test) for one in (live, ours(draw).fit(*train.at(order[:n])))]
        excess.append(errors[0] - errors[1])
    return excess


def with_wrong_labels(train: Lines, test: Lines, draw: int) -> list[float]:
    """Return the errors of ours and of LinearSVC with tuned C after 20 % of the labels were exchanged."""
    generator, labels = np.random.default_rng(draw), train.labels.copy()
    wrong = generator.permutation(labels.size)[: int(WRONG * labels.size)]
    labels[wrong] = generator.permutation(train.labels)[: wrong.size]
    tuned = make_pipeline(features(), GridSearchCV(LinearSVC(), {"C": HARDNESS}, cv=3))
    return [error(one.fit(train.texts, labels), test) for one in (ours(draw), tuned)]


def largest(differences: Any) -> str:
    """Average the differences at each point over draws. Return the largest mean with its standard error."""
    means = np.mean(differences, axis=0)
    return f"{means.max():.3f} ± {sem(differences)[means.argmax()]:.3f}"


@commands.add(
    argument("paths", type=Path, nargs="+"),
    argument("--most", type=int, default=2000, help="texts"),
    argument("--draws", type=int, default=5, help="repetitions with other orders and other wrong labels"),
)
def live(options: argparse.Namespace) -> None:
    """Compare live learning with one fit: corrections, a quarter more texts, and wrong labels.

    Folders have ``train.jsonl.gz`` and ``test.jsonl.gz`` with lines ``{"text": ..., "label": ...}``, and lines of files
    also have a ``split``. *Corrections* learns two thirds of the wrong answers one by one. *A quarter more* adds texts
    one by one and prints the largest mean excess error of five points. *Wrong labels* exchanges 20 % of the labels
    before one fit. The number after ± is the standard error of the difference over draws.
    """
    rows = []
    for path in options.paths:
        parts = zip(parts_of(path), (options.most, MOST_QUERIES), strict=True)
        train, test = (part.at(slice(most)) for part, most in parts)
        excess = largest([grown(train, test, draw) for draw in range(options.draws)])
        errors = np.array([with_wrong_labels(train, test, draw) for draw in range(options.draws)])
        found = [excess, *errors.mean(axis=0), largest(errors[:, :1] - errors[:, 1:])]
        rows.append([path.name.split(".")[0], *corrected(train, test), *found])
        print(rows[-1], flush=True)
    head = ["set", "corrections", "error, live", "fit", "stick", "ms each", "a quarter more: excess"]
    print_table([*head, "wrong labels: error", "LinearSVC", "excess"], rows)


def set_scores(learner: Any, data: MultilabelSet) -> list[float]:
    """Return the micro F1 and the precision at 1."""
    best = learner.top_labels(data.queries, 1)[0][:, 0]
    right = np.asarray(data.answers[np.arange(best.size), best]).ravel()
    return [f1_score(data.answers, learner.predict(data.queries), average="micro"), float(np.mean(right))]


@commands.add(DATA, argument("--sets", nargs="+", default=["bibtex", "debtags"]), argument("--most", type=int))
def label_sets(options: argparse.Namespace) -> None:
    """Compare a ``CMTMultilabelClassifier`` that learns label sets in batches of 50 with one fit."""
    rows = []
    for name in options.sets:
        data = read_multilabel(options.data / name)
        order = np.random.default_rng(0).permutation(data.X.shape[0])[: options.most]
        live, Y = CMTMultilabelClassifier(random_state=0), data.Y.tocsr()
        for first in range(0, order.size, BATCH):
            rows_of_batch = order[first : first + BATCH]
            live.partial_fit(data.X[rows_of_batch], Y[rows_of_batch])
        fitted = CMTMultilabelClassifier(random_state=0).fit(data.X[order], Y[order])
        rows.append([name, order.size, *set_scores(live, data), *set_scores(fitted, data)])
    print_table(["set", "rows", "live: micro F1", "P@1", "fit: micro F1", "P@1"], rows)


if __name__ == "__main__":
    commands.main()

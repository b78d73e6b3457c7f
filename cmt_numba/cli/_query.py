"""Predictions for the rows of a file, written batch by batch, and training of a model on more rows."""

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple, TextIO

import numpy as np

from .._kernels import NONE
from .._words import words_of
from ..formats import Source, TableSource, open_data
from ..text import TextExplanation
from ._data import read_batches, scan
from ._features import texts_of
from ._models import Model, load_model, save_model
from ._options import Options
from ._output import check_files, open_output, print_note, printable, to_json_text


class Answer(NamedTuple):
    """The prediction for a row."""

    row: int
    labels: list[Any]  # the best label first
    scores: list[float]


class ModelRows:
    """The rows of a file, as features for a model. Counts the words that the model does not know."""

    def __init__(self, model: Model, source: Source, given: Options) -> None:
        self.model = model
        self._source, self._given = source, given
        self._n_words = self._n_unknown = 0

    def __iter__(self) -> Iterator[Any]:
        for batch in read_batches(self._source, self._given.batch_size, "predicting", self._given.progress):
            for text in texts_of(batch.X, self.model.options) or ():
                words = words_of(text)
                self._n_words += len(words)
                self._n_unknown += sum(word not in self.model.words for word in words)
            yield self.model.rows(batch.X)
        if self._n_unknown > 0:
            share = f"{self._n_unknown:,} of {self._n_words:,} words ({self._n_unknown / self._n_words:.1%})"
            print_note(f"{share} do not occur in the training texts.")


@contextmanager
def open_rows(given: Options) -> Iterator[tuple[ModelRows, TextIO]]:
    """Load a model, open its data and output files, and yield the rows and the output file."""
    check_files(inputs=(given.data, given.model), outputs=(given.output,))
    model = load_model(given.model)
    source = _source_for(model, given, with_labels=False)
    scan(source, given.progress)
    with open_output(given.output) as file:
        yield ModelRows(model, source, given), file


def _source_for(model: Model, given: Options, *, with_labels: bool) -> Source:
    """Open a data file with the options of a model's training data."""
    known = model.options
    found = open_data(given.data, format=given.format)
    hashes_names = "vw" in (known.format, found.format) and known.format != found.format
    if hashes_names or ((known.kinds or known.text) and not isinstance(found, TableSource)):
        names = ", ".join(map(repr, (known.columns or ())[:5]))
        required = f"columns {names} of {known.format}" if names else f"the format {known.format}"
        raise ValueError(f"the model {given.model} requires {required}, but {given.data} has the format {found.format}")
    # Without kinds, the features are numbers.
    options = replace(known, format=found.format, kinds=known.kinds or None, with_labels=with_labels, labels_file=None)
    return open_data(given.data, options)


def learn_more(given: Options) -> int:
    """Train a model further on the rows of a data file, save it, and return the number of rows."""
    check_files(inputs=(given.data,), outputs=(given.model,))
    model = load_model(given.model)
    source = _source_for(model, given, with_labels=True)
    reading = replace(model.options, label_names=scan(source, given.progress).label_names)
    n_rows = 0
    for batch in read_batches(source, given.batch_size, "learning", given.progress):
        model = model.train_further(batch, reading)
        n_rows += batch.X.shape[0]
    save_model(given.model, model)
    return n_rows


def answers(rows: ModelRows, k: int | None) -> Iterator[Answer]:
    """Yield each row's prediction: its ``k`` best labels or, by default, its class or all predicted labels."""
    estimator, names = rows.model.estimator, rows.model.label_names()
    row = 0
    for X in rows:
        if rows.model.options.task != "multilabel":
            labels, scores = estimator.top_classes(X, k or 1)
        elif k is not None:
            labels, scores = estimator.top_labels(X, k)
        else:
            n_predicted = np.diff(estimator.predict(X).indptr)
            labels, scores = estimator.top_labels(X, max(1, int(n_predicted.max())))
            labels = np.where(np.arange(labels.shape[1]) < n_predicted[:, None], labels, NONE)
        for places, values in zip(labels, scores.tolist(), strict=True):
            n_found = int(np.count_nonzero(places != NONE))  # found labels precede the entries NONE
            yield Answer(row, names[places[:n_found]].tolist(), values[:n_found])
            row += 1


def write_labels(rows: ModelRows, file: TextIO) -> None:
    """Write a line for each row, with its class or with its labels separated by commas. Escape control characters."""
    names = rows.model.label_names()
    for X in rows:
        lines = found = rows.model.estimator.predict(X)
        if rows.model.options.task == "multilabel":
            lines = [",".join(map(str, row)) for row in np.split(names[found.indices], found.indptr[1:-1])]
        file.writelines(f"{printable(line)}\n" for line in lines)


def write_classes(rows: ModelRows, file: TextIO, given: Options) -> None:
    """Write each row's class, empty or -1 if rejected, and after tabs its probability and the features that decided."""
    model = rows.model
    if model.options.task == "multilabel":
        raise ValueError("--probabilities, --reject-below and --explain require a model with one class per row")
    names = None if model.features is None else model.features.get_feature_names_out()
    for X in rows:
        parts: list[list[Any]] = [model.estimator.predict(X, reject_below=given.reject_below).tolist()]
        if given.probabilities:
            parts.append([f"{chance:.4f}" for chance in model.estimator.predict_proba(X).max(axis=1)])
        if given.explain:
            parts.append([_reasons(explanation, names) for explanation in model.estimator.explain(X)])
        file.writelines("\t".join(map(printable, row)) + "\n" for row in zip(*parts, strict=True))


def _reasons(explanation: Any, names: np.ndarray | None) -> str:
    """Return the words or features that support a class, with their contributions."""
    if isinstance(explanation, TextExplanation):
        pairs: Any = explanation.words
    else:
        pairs = [(feature if names is None else names[feature], size) for feature, size in explanation.features]
    return ", ".join(f"{name} {size:+.3f}" for name, size in pairs)


def write_lines(found: Iterator[Answer], file: TextIO) -> None:
    """Write a line for each row: its labels and scores, separated by tabs. Escape control characters."""
    for answer in found:
        pairs = zip(answer.labels, answer.scores, strict=True)
        file.write("\t".join(f"{printable(label)}\t{score:.6g}" for label, score in pairs) + "\n")


def write_json(found: Iterator[Answer], file: TextIO) -> None:
    """Write a JSON object for each row, one per line."""
    file.writelines(to_json_text(answer._asdict()) + "\n" for answer in found)


def write_csv(found: Iterator[Answer], file: TextIO) -> None:
    """Write a CSV table with a line for each label of each row. Escape control characters."""
    table = csv.writer(file, lineterminator="\n")
    table.writerow(["row", "rank", "label", "score"])
    for answer in found:
        for rank, (label, score) in enumerate(zip(answer.labels, answer.scores, strict=True), 1):
            table.writerow([answer.row, rank, printable(label), f"{score:.6g}"])

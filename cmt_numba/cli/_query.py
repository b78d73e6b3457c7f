"""Predictions for the rows of a file, written batch by batch, and training of a model on more rows."""

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np

from .._kernels import NONE
from .._words import words_of
from ..formats import Source, features_of, open_data
from ..text import TextExplanation
from ._features import texts_of
from ._models import Model, load_model, save_model
from ._options import ModelOptions, PredictionOptions, PredictOptions, UpdateOptions
from ._output import check_files, open_output, print_note, printable, read_batches, scan, to_json_text


class Answer(NamedTuple):
    """The prediction for a row."""

    row: int
    labels: list[Any]  # the best label first
    scores: list[float]


class ModelRows:
    """The rows of a file, as features for a model. Counts the words that the model does not know."""

    def __init__(self, model: Model, source: Source, options: PredictionOptions) -> None:
        self.model = model
        self._source, self._options = source, options
        self._n_words = self._n_unknown = 0

    def __iter__(self) -> Iterator[Any]:
        for batch in read_batches(self._source, self._options.batch_size, "predicting", self._options.progress):
            for text in texts_of(batch.X, self.model.options) or ():
                words = words_of(text)
                self._n_words += len(words)
                self._n_unknown += sum(word not in self.model.words for word in words)
            yield self.model.rows(batch.X)
        if self._n_unknown > 0:
            share = f"{self._n_unknown:,} of {self._n_words:,} words ({self._n_unknown / self._n_words:.1%})"
            print_note(f"{share} do not occur in the training texts.")


@contextmanager
def open_rows(data: Path, options: PredictionOptions) -> Iterator[tuple[ModelRows, TextIO]]:
    """Load a model, open its data and output files, and yield the rows and the output file."""
    check_files(inputs=(data, options.model), outputs=(options.output,))
    model = load_model(options.model)
    source = _source_for(model, data, options, with_labels=False)
    scan(source, options.progress)
    with open_output(options.output) as file:
        yield ModelRows(model, source, options), file


def _source_for(model: Model, data: Path, given: ModelOptions, *, with_labels: bool) -> Source:
    """Open a data file with the options of a model's training data."""
    found = open_data(data, format=given.format).format
    if features_of(replace(model.options, format=found)) != features_of(model.options):
        names = ", ".join(map(repr, (model.options.columns or ())[:5]))
        required = f"columns {names} of {model.options.format}" if names else model.options.format
        raise ValueError(f"the model {given.model} requires {required}, but {data} has the format {found}")
    kinds = model.options.kinds or None  # without kinds, the features are numbers
    options = replace(model.options, format=found, kinds=kinds, with_labels=with_labels, labels_file=None)
    return open_data(data, options)


def learn_more(data: Path, options: UpdateOptions) -> int:
    """Train a model further on the rows of a data file, save it, and return the number of rows."""
    check_files(inputs=(data,), outputs=(options.model,))
    model = load_model(options.model)
    source = _source_for(model, data, options, with_labels=True)
    reading = replace(model.options, label_names=scan(source, options.progress).label_names)
    n_rows = 0
    for batch in read_batches(source, options.batch_size, "learning", options.progress):
        model = model.train_further(batch, reading)
        n_rows += batch.X.shape[0]
    save_model(options.model, model)
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


def write_classes(rows: ModelRows, file: TextIO, options: PredictOptions) -> None:
    """Write each row's class, empty or -1 if rejected, and after tabs its probability and the features that decided."""
    model = rows.model
    if model.options.task == "multilabel":
        raise ValueError("--probabilities, --reject-below and --explain require a model with one class per row")
    names = None if model.vectorizer is None else model.vectorizer.get_feature_names_out()
    for X in rows:
        parts: list[list[Any]] = [model.estimator.predict(X, reject_below=options.reject_below).tolist()]
        if options.probabilities:
            parts.append([f"{chance:.4f}" for chance in model.estimator.predict_proba(X).max(axis=1)])
        if options.explain:
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

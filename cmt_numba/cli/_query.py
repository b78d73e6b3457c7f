"""Predictions for the rows of a file, written batch by batch."""

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np

from .._forest import NONE
from ..formats import Source, features_of, open_data
from ..text import TextExplanation
from ._model_files import Model, load_model, save_model
from ._outputs import check_files, open_output, printable, to_json_text
from ._streams import Stream, look_through, stream


class Answer(NamedTuple):
    """The prediction for a row."""

    row: int
    labels: list[Any]  # the best label first
    scores: list[float]


@contextmanager
def ask(
    path: Path, data: Path, data_format: str | None, output: Path, batch_size: int, progress: bool | None
) -> Iterator[tuple[Model, Stream, TextIO]]:
    """Load a model, open its data and output files, and yield the model, the data batches and the output file."""
    check_files(inputs=(data, path), outputs=(output,))
    model = load_model(path)
    source = _source_for(model, path, data, data_format, with_labels=False)
    look_through(source, progress)
    with stream(source, batch_size, "predicting", progress) as batches, open_output(output) as file:
        yield model, batches, file


def _source_for(model: Model, path: Path, data: Path, data_format: str | None, *, with_labels: bool) -> Source:
    """Open a data file with the options of a model's training data."""
    found = open_data(data, format=data_format).format
    if features_of(replace(model.options, format=found)) != features_of(model.options):
        names = ", ".join(map(repr, (model.options.columns or ())[:5]))
        required = f"columns {names} of {model.options.format}" if names else model.options.format
        raise ValueError(f"the model {path} requires {required}, but {data} has the format {found}")
    kinds = model.options.kinds or None  # without kinds, the features are numbers
    options = replace(model.options, format=found, kinds=kinds, with_labels=with_labels, labels_file=None)
    return open_data(data, options)


def learn_more(path: Path, data: Path, data_format: str | None, batch_size: int, progress: bool | None) -> int:
    """Train a model further on the rows of a data file, save it, and return the number of rows."""
    check_files(inputs=(data,), outputs=(path,))
    model = load_model(path)
    source = _source_for(model, path, data, data_format, with_labels=True)
    look_through(source, progress)
    with stream(source, batch_size, "learning", progress) as batches:
        for X, y in batches.pairs():
            model.estimator.partial_fit(model.rows(X), y)
    options = replace(model.options, label_names=source.resolved().label_names)
    save_model(path, model._replace(options=options))
    return batches.n_rows


def answers(model: Model, batches: Stream, k: int | None) -> Iterator[Answer]:
    """Yield each row's prediction: its ``k`` best labels or, by default, its class or all predicted labels."""
    estimator, several = model.estimator, model.options.task == "multilabel"
    row = 0
    for batch in batches:
        X = model.rows(batch.X)
        if several and k is None:
            n_predicted = np.diff(estimator.predict(X).indptr)
            labels, scores = estimator.top_labels(X, max(1, int(n_predicted.max())))
            labels = np.where(np.arange(labels.shape[1]) < n_predicted[:, None], labels, NONE)
        elif several:
            labels, scores = estimator.top_labels(X, k)
        else:
            labels, scores = estimator.top_classes(X, k or 1)
        names = model.label_names()
        for places, values in zip(labels, scores.tolist(), strict=True):
            n_found = int(np.count_nonzero(places != NONE))  # found labels precede the entries NONE
            yield Answer(row, names[places[:n_found]].tolist(), values[:n_found])
            row += 1


def write_labels(model: Model, batches: Stream, file: TextIO) -> None:
    """Write a line for each row, with its class or with its labels separated by commas. Escape control characters."""
    estimator = model.estimator
    for batch in batches:
        found = estimator.predict(model.rows(batch.X))
        if model.options.task == "multilabel":
            names = model.label_names()[found.indices]
            lines = [",".join(map(str, row)) for row in np.split(names, found.indptr[1:-1])]
        else:
            lines = found.tolist()
        file.writelines(f"{printable(line)}\n" for line in lines)


def write_classes(
    model: Model, batches: Stream, file: TextIO, *, reject_below: float | None, probabilities: bool, explain: bool
) -> None:
    """Write each row's class, empty or -1 if rejected, and after tabs its probability and the features that decided."""
    if model.options.task == "multilabel":
        raise ValueError("--probabilities, --reject-below and --explain require a model with one class per row")
    names = None if model.vectorizer is None else model.vectorizer.get_feature_names_out()
    for batch in batches:
        X = model.rows(batch.X)
        parts: list[list[Any]] = [model.estimator.predict(X, reject_below=reject_below).tolist()]
        if probabilities:
            parts.append([f"{chance:.4f}" for chance in model.estimator.predict_proba(X).max(axis=1)])
        if explain:
            parts.append([_reasons(explanation, names) for explanation in model.estimator.explain(X)])
        file.writelines("\t".join(map(printable, row)) + "\n" for row in zip(*parts, strict=True))


def _reasons(explanation: Any, names: np.ndarray | None) -> str:
    """Return the words or features that support a class, with their contributions."""
    if isinstance(explanation, TextExplanation):
        return ", ".join(f"{word} {size:+.3f}" for word, size in explanation.words)
    features = [(feature if names is None else names[feature], size) for feature, size in explanation.features]
    return ", ".join(f"{feature} {size:+.3f}" for feature, size in features)


def write_lines(found: Iterator[Answer], file: TextIO) -> None:
    """Write a line for each row: its labels and scores, separated by tabs. Escape control characters."""
    for answer in found:
        pairs = zip(answer.labels, answer.scores, strict=True)
        file.write("\t".join(f"{printable(label)}\t{score:.6g}" for label, score in pairs) + "\n")


def write_json(found: Iterator[Answer], file: TextIO) -> None:
    """Write a JSON object for each row, one per line."""
    for answer in found:
        file.write(to_json_text(answer._asdict()) + "\n")


def write_csv(found: Iterator[Answer], file: TextIO) -> None:
    """Write a CSV table with a line for each label of each row. Escape control characters."""
    table = csv.writer(file, lineterminator="\n")
    table.writerow(["row", "rank", "label", "score"])
    for answer in found:
        for rank, (label, score) in enumerate(zip(answer.labels, answer.scores, strict=True), 1):
            table.writerow([answer.row, rank, printable(label), f"{score:.6g}"])

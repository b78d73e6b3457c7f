"""Predictions for the rows of a file, written batch by batch, and training of a model on more rows."""

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
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


@contextmanager
def open_rows(given: Options) -> Iterator[tuple[Model, Iterator[Any], TextIO]]:
    """Load a model, open its data and output files, and yield the model, batches of features, and the output file."""
    check_files(inputs=(given.data, given.model), outputs=(given.output,))
    model = load_model(given.model)
    source = _source_for(model, given, with_labels=False)
    scan(source, given.progress)
    with open_output(given.output) as file:
        yield model, _read_features(model, source, given), file


def _read_features(model: Model, source: Source, given: Options) -> Iterator[Any]:
    """Yield batches of features. After the last one, print how many words the model does not know."""
    n_words = n_unknown = 0
    for batch in read_batches(source, given.batch_size, "predicting", given.progress):
        for text in texts_of(batch.X, model.options) or ():
            words = words_of(text)
            n_words += len(words)
            n_unknown += sum(word not in model.words for word in words)
        yield model.rows(batch.X)
    if n_unknown > 0:
        share = f"{n_unknown:,} of {n_words:,} words ({n_unknown / n_words:.1%})"
        print_note(f"{share} do not occur in the training texts.")


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


def answers(model: Model, rows: Iterator[Any], k: int | None) -> Iterator[Answer]:
    """Yield each row's prediction: its ``k`` best labels or, by default, its class or all predicted labels."""
    estimator, names = model.estimator, model.label_names()
    row = 0
    for X in rows:
        if model.options.task != "multilabel":
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


def write_answers(found: Iterator[Answer], file: TextIO, given: Options) -> None:
    """Write the labels and scores of each row: as JSON, as lines of a CSV table, or separated by tabs."""
    table = csv.writer(file, lineterminator="\n")
    if given.csv:
        table.writerow(["row", "rank", "label", "score"])
    for answer in found:
        if given.json:
            file.write(to_json_text(answer._asdict()) + "\n")
            continue
        pairs = [(printable(label), f"{score:.6g}") for label, score in zip(answer.labels, answer.scores, strict=True)]
        if given.csv:
            table.writerows([answer.row, rank, *pair] for rank, pair in enumerate(pairs, 1))
        else:
            file.write("\t".join(chain.from_iterable(pairs)) + "\n")


def write_predictions(model: Model, rows: Iterator[Any], file: TextIO, given: Options) -> None:
    """Write the labels of each row, separated by commas, or its class, empty or -1 if rejected.

    After tabs, write the probability of the class and the features that support it. Escape control characters.
    """
    estimator, names = model.estimator, model.label_names()
    several = model.options.task == "multilabel"
    if several and (given.probabilities or given.explain or given.reject_below is not None):
        raise ValueError("--probabilities, --reject-below and --explain require a model with one class per row")
    features = None if model.features is None else model.features.get_feature_names_out()
    for X in rows:
        if several:
            found = estimator.predict(X)
            columns = [[",".join(map(str, row)) for row in np.split(names[found.indices], found.indptr[1:-1])]]
        else:
            columns = [estimator.predict(X, reject_below=given.reject_below).tolist()]
        if given.probabilities:
            columns.append([f"{chance:.4f}" for chance in estimator.predict_proba(X).max(axis=1)])
        if given.explain:
            columns.append([_reasons(explanation, features) for explanation in estimator.explain(X)])
        file.writelines("\t".join(map(printable, row)) + "\n" for row in zip(*columns, strict=True))


def _reasons(explanation: Any, names: np.ndarray | None) -> str:
    """Return the words or features that support a class, with their contributions."""
    if isinstance(explanation, TextExplanation):
        pairs: Any = explanation.words
    else:
        pairs = [(feature if names is None else names[feature], size) for feature, size in explanation.features]
    return ", ".join(f"{name} {size:+.3f}" for name, size in pairs)

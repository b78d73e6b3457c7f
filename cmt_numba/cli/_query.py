"""Predictions for the rows of a file, written row by row."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from typing import Any, NamedTuple, TextIO

import numpy as np

from .._forest.state import NONE
from ._model_files import Model
from ._printing import printable
from ._streams import Stream


class Answer(NamedTuple):
    """The prediction for a row: labels, best first, and their scores."""

    row: int
    labels: list[Any]
    scores: list[float]


def answers(model: Model, batches: Stream, k: int | None) -> Iterator[Answer]:
    """Yield the prediction for each row: ``k`` labels or, if ``k`` is None, one class or all predicted labels."""
    estimator, several = model.estimator, model.options.task == "multilabel"
    row = 0
    for batch in batches:
        X = model.rows(batch.X)
        if several and k is None:
            most = int(np.asarray(estimator.predict(X).sum(axis=1)).max())
            labels, scores = estimator.top_labels(X, max(1, most))
            labels = np.where(scores > 0.0, labels, NONE)
        elif several:
            labels, scores = estimator.top_labels(X, k)
        else:
            labels, scores = estimator.top_classes(X, k or 1)
        names = estimator.classes_
        for places, values in zip(labels, scores.tolist(), strict=True):
            n_found = int(np.count_nonzero(places != NONE))  # the best come first
            yield Answer(row, names[places[:n_found]].tolist(), values[:n_found])
            row += 1


def write_lines(found: Iterator[Answer], file: TextIO) -> None:
    """Write a line for each row: label, score, label, score ..., separated by tabs. Control characters are escaped."""
    for answer in found:
        pairs = zip(answer.labels, answer.scores, strict=True)
        file.write("\t".join(f"{printable(label)}\t{score:.6g}" for label, score in pairs) + "\n")


def write_json(found: Iterator[Answer], file: TextIO) -> None:
    """Write a line with a JSON object for each row."""
    for answer in found:
        file.write(json.dumps(answer._asdict(), ensure_ascii=False) + "\n")


def write_csv(found: Iterator[Answer], file: TextIO) -> None:
    """Write a table with a line for each label of each row."""
    table = csv.writer(file, lineterminator="\n")
    table.writerow(["row", "rank", "label", "score"])
    for answer in found:
        for rank, (label, score) in enumerate(zip(answer.labels, answer.scores, strict=True), 1):
            table.writerow([answer.row, rank, label, f"{score:.6g}"])

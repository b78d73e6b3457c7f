"""Analysis of predictions: the most confused classes, and the calibration of probabilities."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .._validation import label_array
from ._tasks import n_rows_of, slice_rows

_MAX_CONFUSIONS = 10
_EXAMPLES = 3
_LENGTH = 80  # maximum length of a printed text
_BINS = 10
_MOST_CELLS = 2**24  # maximum size of a block of probabilities


class Confusion(NamedTuple):
    """A pair of classes that an estimator confused."""

    label: Any
    """The true class."""
    predicted: Any
    """The predicted class."""
    n: int
    """Number of examples of class ``label`` that were predicted as ``predicted``."""
    examples: list[Any]
    """Some of these examples, as texts if texts were passed and otherwise as positions."""


def most_confused(y: Any, answers: Any, positions: np.ndarray, texts: Sequence[str] | None) -> list[Confusion]:
    """Return the most frequent pairs of a true class and a wrong prediction, most frequent first."""
    y, answers = label_array("y", y), np.asarray(answers)
    wrong = np.flatnonzero(answers != y)
    if wrong.size == 0:
        return []
    labels, of_label = np.unique(y[wrong], return_inverse=True)
    others, of_other = np.unique(answers[wrong], return_inverse=True)
    pairs, of_pair, counts = np.unique(of_label * others.size + of_other, return_inverse=True, return_counts=True)
    found = []
    for pair in np.argsort(-counts, kind="stable")[:_MAX_CONFUSIONS]:
        rows = wrong[of_pair == pair][:_EXAMPLES]
        examples = [int(positions[row]) if texts is None else _shortened(texts[row]) for row in rows]
        label, other = labels[pairs[pair] // others.size], others[pairs[pair] % others.size]
        found.append(Confusion(_plain(label), _plain(other), int(counts[pair]), examples))
    return found


def calibration_of(estimator: Any, X: Any, y: Any, answers: Any) -> dict[str, list[float]]:
    """Return the mean probability and the accuracy of predictions in ten bins of probability, without empty bins.

    The keys are ``"probability"``, ``"accuracy"`` and ``"n_examples"``; none if the estimator has no ``predict_proba``.
    """
    if not hasattr(estimator, "predict_proba"):
        return {}
    n = n_rows_of(X)
    step = max(1, _MOST_CELLS // len(estimator.classes_))
    blocks = (slice_rows(X, first, min(n, first + step)) for first in range(0, n, step))
    certainty = np.concatenate([np.asarray(estimator.predict_proba(block)).max(axis=1) for block in blocks])
    right = np.asarray(answers) == label_array("y", y)
    place = np.clip((certainty * _BINS).astype(np.int64), 0, _BINS - 1)
    counts = np.bincount(place, minlength=_BINS)
    filled = counts > 0
    sums = (np.bincount(place, of, _BINS)[filled] / counts[filled] for of in (certainty, right))
    probability, accuracy = (values.tolist() for values in sums)
    return {"probability": probability, "accuracy": accuracy, "n_examples": counts[filled].tolist()}


def calibration_error(calibration: dict[str, list[float]]) -> float:
    """Return the expected calibration error: the mean absolute difference between probability and accuracy."""
    probability, accuracy, n = (np.array(calibration[name]) for name in ("probability", "accuracy", "n_examples"))
    return float(np.average(np.abs(probability - accuracy), weights=n))


def _plain(label: Any) -> Any:
    return label.item() if isinstance(label, np.generic) else label


def _shortened(text: str) -> str:
    text = " ".join(str(text).split())
    return text if len(text) <= _LENGTH else text[: _LENGTH - 3] + "..."

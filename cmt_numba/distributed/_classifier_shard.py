"""The actor of one shard of a classifier."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .._forest import NONE, as_matrix
from ..estimators import CMTClassifier, classified_examples, means_of
from ..persistence import FileFormatError
from ._shard import open_when_free

_SECONDS_TO_OPEN = 10.0  # time to wait while the previous process still holds the lock of the folder

RANKED = 15
"""Number of classes of other shards that may outrank a shard's own class in its results."""


class ClassPlan(NamedTuple):
    """How to open the classifier of a shard."""

    name: str
    path: str | None  # the folder; None for a classifier in memory
    is_new: bool  # whether the folder may be created
    options: dict[str, Any]  # parameters of the CMTClassifier


class ClassFacts(NamedTuple):
    """Classes of a shard and statistics of its examples."""

    classes: np.ndarray | None  # classes of the shard; None before the first
    centre: np.ndarray | None  # the sum of their means: float32, shape (n_features,)
    next_number: int  # one above the largest number of an example


class ExampleShare(NamedTuple):
    """The part of the examples that one shard learns."""

    rows: np.ndarray  # their positions: int64, shape (n,)
    are_own: np.ndarray  # whether their classes belong to the shard: bool, shape (n,)


class ClassifierShard:
    """The classifier of a shard. An actor of this class runs several calls concurrently.

    The classifier learns the shard's own classes, and the examples of other shards' classes that are hard to
    distinguish from its own. Example number ``n`` has the id ``2 * n``, or ``2 * n + 1`` if its class belongs to
    another shard. So the stored ids show which classes are the shard's own and which examples have been learned.
    """

    def __init__(self, plan: ClassPlan) -> None:
        self._plan = plan
        self._opening = threading.Lock()
        self._opened: CMTClassifier | None = None
        self._own: tuple[int, np.ndarray] | None = None  # a step, and the cached result of ``_are_own`` at this step

    def _model(self) -> CMTClassifier:
        with self._opening:
            if self._opened is None:
                self._opened = self._open_model()
            return self._opened

    def _open_model(self) -> CMTClassifier:
        path, options = self._plan.path, self._plan.options
        if path is None:
            return CMTClassifier(**options)
        if not self._plan.is_new and not Path(path).is_dir():
            raise FileFormatError(path, "is missing; restore it from a copy")
        return open_when_free(lambda: CMTClassifier.open(path, **options), _SECONDS_TO_OPEN)

    # Learning

    def fit(self, X: Any, y: np.ndarray, given: ExampleShare) -> None:
        """Learn from these examples, forgetting all others. Repeating the call changes nothing."""
        self._model().fit(X[given.rows], y[given.rows], example_ids=_ids(given, 0))

    def learn(self, X: Any, y: np.ndarray, given: ExampleShare, first_number: int) -> None:
        """Learn from further examples, unless an interrupted call has already done so."""
        model, ids = self._model(), _ids(given, first_number)
        stored = classified_examples(model)
        if stored is None or stored.next_id <= ids.max():
            model.partial_fit(X[given.rows], y[given.rows], example_ids=ids)

    def rivals_of_means(self, X: Any, y: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return the similarity of each example to the nearest other class mean, from the examples at ``rows``.

        Float32, shape (n,); minus infinity where there is no other class.
        """
        options = self._plan.options | {"n_head_passes": 0, "n_router_passes": 0, "max_examples": None}
        model = CMTClassifier(**options).fit(X[rows], y[rows])
        every = np.ones(model.classes_.size, np.bool_)
        return _best_other(*_own_answers(model, every, X, 2), y)

    def rivals(self, X: Any, y: np.ndarray) -> np.ndarray:
        """Return the similarity of each example to the nearest other class of the shard: float32, shape (n,)."""
        model = self._model()
        if classified_examples(model) is None:
            return np.full(X.shape[0], -np.inf, np.float32)
        return _best_other(*model._lock.read(lambda: _own_answers(model, self._are_own(model), X, 2)), y)

    # Reading

    def best(self, X: Any, k: int) -> tuple[np.ndarray, np.ndarray] | None:
        """Return the shard's ``k`` best classes for each row, and their scores; None before the first example."""
        model = self._model()
        if classified_examples(model) is None:
            return None
        return model._lock.read(lambda: _own_answers(model, self._are_own(model), X, k))

    def facts(self) -> ClassFacts:
        """Return the classes of the shard and statistics of its examples."""
        model = self._model()
        if classified_examples(model) is None:
            return ClassFacts(None, None, 0)
        return model._lock.read(lambda: self._facts(model))

    def _facts(self, model: Any) -> ClassFacts:
        are_own, stored = self._are_own(model), classified_examples(model)
        assert stored is not None
        every = np.arange(stored.classes.size)
        means = as_matrix(means_of(stored.rows, stored.classes, every, model.classes_.size)[0])
        centre = np.asarray(means[np.flatnonzero(are_own)].sum(axis=0), np.float32).reshape(-1)
        return ClassFacts(model.classes_[are_own], centre, stored.next_id // 2 + 1)

    def n_examples(self) -> int:
        """Return the number of examples that the shard has learned, including examples of other shards' classes."""
        stored = classified_examples(self._model())
        return 0 if stored is None else stored.ids.size

    def _are_own(self, model: Any) -> np.ndarray:
        """Return which classes of the classifier belong to the shard: bool, shape (n_classes,)."""
        step = model._lock.n_steps
        if self._own is None or self._own[0] != step:
            stored, are_own = classified_examples(model), np.zeros(model.classes_.size, np.bool_)
            assert stored is not None
            are_own[stored.classes[stored.ids % 2 == 0]] = True
            self._own = step, are_own
        return self._own[1]

    def close(self) -> None:
        """Close the classifier."""
        with self._opening:
            if self._opened is not None:
                self._opened.close()

    def process(self) -> int:
        """Return the process id."""
        return os.getpid()


def _ids(given: ExampleShare, first_number: int) -> np.ndarray:
    ids: np.ndarray = 2 * (first_number + given.rows) + ~given.are_own
    return ids


def _own_answers(model: CMTClassifier, are_own: np.ndarray, X: Any, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the best of the shard's own classes for each row, best first, and their scores.

    If fewer than ``k`` are found, the remaining scores are minus infinity and their classes arbitrary.
    """
    positions, scores = model.top_classes(X, k + RANKED)
    found = (positions != NONE) & are_own[positions]
    order = np.argsort(~found, axis=1, kind="stable")[:, :k]
    found, positions, scores = (np.take_along_axis(part, order, axis=1) for part in (found, positions, scores))
    positions = np.where(found, positions, are_own.argmax())
    return model.classes_[positions], np.where(found, scores, np.float32(-np.inf))


def _best_other(classes: np.ndarray, scores: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the better of two scores that does not belong to the row's own class."""
    best: np.ndarray = np.where(classes == y[:, None], np.float32(-np.inf), scores).max(axis=1)
    return best

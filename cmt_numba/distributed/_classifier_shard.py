"""The actor of a classifier's shard."""

import os
import threading
from typing import Any, NamedTuple

import numpy as np

from .._kernels import NONE, as_matrix
from ..estimators import CMTClassifier, classified_examples, fixed_scales_of, means_of
from ._shard import open_folder

RANKED = 15  # number of additional classes that a shard ranks, because other shards' classes may outrank its own


class ClassPlan(NamedTuple):
    """The arguments with which an actor opens a shard's classifier."""

    name: str
    path: str | None  # the shard's folder, or None for a classifier in memory
    is_new: bool  # True if the folder may be created
    options: dict[str, Any]  # parameters of the CMTClassifier


class ClassFacts(NamedTuple):
    """The classes of a shard, and statistics of its examples."""

    classes: np.ndarray | None  # the shard's own classes, or None before the first example
    center: np.ndarray | None  # the sum of the mean examples of ``classes``: float32, shape (n_features,)
    next_number: int  # the largest example number plus 1
    scales: np.ndarray | None = None  # means and standard deviations that standardise the rows of all shards


class ExampleShare(NamedTuple):
    """The examples that one shard learns."""

    rows: np.ndarray  # rows of the examples: int64, shape (n,)
    are_own: np.ndarray  # True for examples whose class belongs to the shard: bool, shape (n,)
    scales: np.ndarray | None = None  # means and standard deviations of features, the same for all shards


class ClassifierShard:
    """The Ray actor that owns a shard's classifier. It runs several calls concurrently.

    The classifier learns the examples of the shard's own classes, and the examples of other shards' classes that are
    hard to distinguish from them. Example number ``n`` has the id ``2 * n`` or, if its class belongs to another shard,
    ``2 * n + 1``. The stored ids therefore show which classes the shard owns and which examples it has learned.
    """

    def __init__(self, plan: ClassPlan) -> None:
        self._plan = plan
        self._opening = threading.Lock()
        self._opened: CMTClassifier | None = None
        self._own: tuple[int, np.ndarray] | None = None  # a step number, and the result of ``_are_own`` at that step

    def _model(self) -> CMTClassifier:
        with self._opening:
            if self._opened is None:
                self._opened = self._open_model()
            return self._opened

    def _open_model(self) -> CMTClassifier:
        path, options = self._plan.path, self._plan.options
        if path is None:
            return CMTClassifier(**options)
        return open_folder(path, self._plan.is_new, lambda: CMTClassifier.open(path, **options))

    # Learning

    def _model_for(self, X: Any) -> CMTClassifier:
        """Return the model. It measures no scales of dense rows, because scores of different scales do not compare."""
        model = self._model()
        if isinstance(X, np.ndarray):
            model.set_params(feature_weights="none")
        return model

    def fit(self, X: Any, y: np.ndarray, given: ExampleShare) -> None:
        """Learn from the given examples and forget all others. A repeated call has no effect."""
        self._model_for(X).fit(X[given.rows], y[given.rows], example_ids=_ids(given, 0), scales=given.scales)

    def learn(self, X: Any, y: np.ndarray, given: ExampleShare, first_number: int) -> None:
        """Learn from additional examples. A repeated call has no effect."""
        model, ids = self._model_for(X), _ids(given, first_number)
        stored = classified_examples(model)
        if stored is None or stored.next_id <= ids.max():
            scales = given.scales if stored is None else None
            model.partial_fit(X[given.rows], y[given.rows], example_ids=ids, scales=scales)

    def rivals_of_means(self, X: Any, y: np.ndarray, given: ExampleShare) -> np.ndarray:
        """Return each example's similarity to the nearest other mean of the given examples, or -inf."""
        options = self._plan.options | {"n_head_passes": 0, "max_examples": None}
        if isinstance(X, np.ndarray):
            options["feature_weights"] = "none"
        model = CMTClassifier(**options).fit(X[given.rows], y[given.rows], scales=given.scales)
        every = np.ones(model.classes_.size, np.bool_)
        return _best_other(*_own_answers(model, every, X, 2), y)

    def rivals(self, X: Any, y: np.ndarray) -> np.ndarray:
        """Return the score of the shard's best wrong class for each example: float32, shape (n,)."""
        model = self._model()
        if classified_examples(model) is None:
            return np.full(X.shape[0], -np.inf, np.float32)
        return _best_other(*model._lock.read(lambda: _own_answers(model, self._are_own(model), X, 2)), y)

    # Reading

    def best(self, X: Any, k: int) -> tuple[np.ndarray, np.ndarray] | None:
        """Return the shard's ``k`` best classes for each row and their scores, or None before the first example."""
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
        center = np.asarray(means[np.flatnonzero(are_own)].sum(axis=0), np.float32).reshape(-1)
        return ClassFacts(model.classes_[are_own], center, stored.next_id // 2 + 1, fixed_scales_of(model))

    def n_examples(self) -> int:
        """Return the number of examples learned by the shard, including examples of other shards' classes."""
        stored = classified_examples(self._model())
        return 0 if stored is None else stored.ids.size

    def _are_own(self, model: Any) -> np.ndarray:
        """Return a mask of the shard's own classes: bool, shape (n_classes,)."""
        step = model._lock.n_steps
        if self._own is None or self._own[0] != step:
            stored, are_own = classified_examples(model), np.zeros(model.classes_.size, np.bool_)
            assert stored is not None
            are_own[stored.classes[stored.ids % 2 == 0]] = True
            self._own = step, are_own
        return self._own[1]

    def close(self) -> None:
        with self._opening:
            if self._opened is not None:
                self._opened.close()

    def process(self) -> int:
        return os.getpid()


def _ids(given: ExampleShare, first_number: int) -> np.ndarray:
    return 2 * (first_number + given.rows) + ~given.are_own


def _own_answers(model: CMTClassifier, are_own: np.ndarray, X: Any, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the shard's ``k`` best own classes of each row, and their scores (-inf if there are fewer)."""
    positions, scores = model.top_classes(X, k + RANKED)
    found = (positions != NONE) & are_own[positions]
    order = np.argsort(~found, axis=1, kind="stable")[:, :k]
    found, positions, scores = (np.take_along_axis(part, order, axis=1) for part in (found, positions, scores))
    positions = np.where(found, positions, are_own.argmax())
    return model.classes_[positions], np.where(found, scores, np.float32(-np.inf))


def _best_other(classes: np.ndarray, scores: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return each row's highest score among the classes that differ from ``y``."""
    return np.where(classes == y[:, None], np.float32(-np.inf), scores).max(axis=1)

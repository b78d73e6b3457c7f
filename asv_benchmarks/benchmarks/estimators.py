"""Fit and query estimators on synthetic data: time, memory and error."""

import pickle
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from cmt_numba import CMTClassifier, CMTMultilabelClassifier, CMTRetriever

from .keys import Matrix, draw_words, make_labelled, reworded, rows_of_words

LABELS = 1000
_SHOTS = 10
LABELS_OF_SEVERAL = 1500  # too many to compare every query with every example
_SHOTS_OF_SEVERAL = 4
_FEW = 50  # examples that trigger all compilation
_SINGLE = 100  # rows predicted or learned one at a time


class Task(NamedTuple):
    """Examples to learn from, and queries."""

    examples: Matrix
    targets: Any
    queries: Matrix
    answers: Any


def _make_classes(form: str) -> Task:
    """Return 10 examples of each of 1,000 classes."""
    return Task(*make_labelled(form, LABELS, _SHOTS))


def _make_pairs(form: str) -> Task:
    """Return 3,000 examples, each the sum of two objects, labelled with both."""
    data = make_labelled(form, LABELS_OF_SEVERAL, _SHOTS_OF_SEVERAL, n_queries=2000)
    half, n = data.labels.size // 2, data.answers.size // 2
    return Task(
        data.examples[:half] + data.examples[half:],
        _indicators(data.labels[:half], data.labels[half:]),
        data.queries[:n] + data.queries[n:],
        _indicators(data.answers[:n], data.answers[n:]),
    )


def _indicators(first: np.ndarray, second: np.ndarray) -> scipy.sparse.csr_array:
    rows, labels = np.tile(np.arange(first.size), 2), np.concatenate([first, second])
    marks = scipy.sparse.csr_array((np.ones(rows.size), (rows, labels)), (first.size, LABELS_OF_SEVERAL))
    return (marks > 0).astype(np.int8)


def _make_values() -> Task:
    """Return 10,000 vectors stored under noisy texts, and other texts for the same vectors."""
    rng = np.random.default_rng(0)
    words, vectors = draw_words(rng, LABELS), rng.standard_normal((LABELS, 32), dtype=np.float32)
    stored, asked = rng.integers(LABELS, size=_SHOTS * LABELS), rng.integers(LABELS, size=1000)
    keys, queries = (rows_of_words(reworded(words[chosen], rng, 0.5)) for chosen in (stored, asked))
    return Task(keys, vectors[stored], queries, vectors[asked])


def make_task(kind: str) -> Task:
    """Return the task for one kind of estimator."""
    name, _, variant = kind.partition(", ")
    if name == "retriever":
        return _make_values()
    return _make_classes(variant) if name == "classifier" else _make_pairs(variant)


def fit(kind: str, task: Task, n: int | None = None) -> Any:
    """Return an estimator fitted on all examples of a task, or on the first ``n``."""
    name, _, variant = kind.partition(", ")
    estimator: Any
    if name == "retriever":
        estimator = CMTRetriever(variant, random_state=0)
    else:
        estimator = {"classifier": CMTClassifier, "multilabel": CMTMultilabelClassifier}[name](random_state=0)
    return estimator.fit(task.examples[:n], task.targets[:n])


def error(kind: str, fitted: Any, task: Task) -> float:
    """Return the error of an estimator on the queries.

    For classes it is the fraction of wrong answers; for several labels, the number of wrong or missing labels per row;
    for values, 1 minus the cosine between the answer and the target.
    """
    if kind.startswith("retriever"):
        return 1.0 - float(fitted.score(task.queries, task.answers))
    wrong = fitted.predict(task.queries) != task.answers
    return float(wrong.sum()) / task.queries.shape[0]


class Estimator:
    """Fit and query the estimators with default parameters, on one thread."""

    params = (
        [
            "classifier, dense",
            "classifier, text",
            "multilabel, dense",
            "multilabel, text",
            "retriever, key",
            "retriever, value",
        ],
    )
    param_names = ("kind",)
    number = 1
    timer = process_time
    timeout = 600

    def setup_cache(self) -> None:
        """Make a folder that all benchmarks share. The first one of each kind fits its estimator."""

    def setup(self, kind: str) -> None:
        """Make the examples, compile all kernels, and load the fitted estimator."""
        self.task = make_task(kind)
        fit(kind, self.task, _FEW).partial_fit(self.task.queries[:1], self.task.answers[:1])
        path = Path(f"{kind}.pickle")
        if not path.exists():
            path.write_bytes(pickle.dumps(fit(kind, self.task), pickle.HIGHEST_PROTOCOL))
        self.fitted = pickle.loads(path.read_bytes())
        self.fitted.predict(self.task.queries[:1])

    def time_fit(self, kind: str) -> None:
        """Fit on all examples."""
        fit(kind, self.task)

    def time_predict_1000(self, kind: str) -> None:
        """Predict all queries in one batch."""
        self.fitted.predict(self.task.queries)

    def time_predict_100_single_rows(self, kind: str) -> None:
        """Predict one query at a time."""
        for i in range(_SINGLE):
            self.fitted.predict(self.task.queries[[i]])

    def time_partial_fit_100_single_rows(self, kind: str) -> None:
        """Learn one example at a time."""
        for i in range(_SINGLE):
            self.fitted.partial_fit(self.task.queries[[i]], self.task.answers[[i]])

    def peakmem_fit(self, kind: str) -> None:
        """Fit on all examples. The previously fitted estimator is also in memory."""
        fit(kind, self.task)

    def track_error(self, kind: str) -> float:
        """Return the error on unseen examples."""
        return error(kind, self.fitted, self.task)

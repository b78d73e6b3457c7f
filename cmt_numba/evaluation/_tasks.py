"""Predictions and measures for the evaluation tasks: classes, labels and retrieval."""

import math
from typing import Any

import numpy as np
import scipy.sparse

from .. import metrics
from .._kernels import NONE
from .._validation import label_array

RANKED = (1, 3, 5)  # numbers of top labels for which ranking measures are computed
MAIN_METRIC = {"multiclass": "error", "multilabel": "hamming", "retrieval": "reward"}


def to_json(value: Any) -> Any:
    """Convert a result to dicts, lists and Python numbers. Numbers that are not finite become None."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, dict):
        return {str(key): to_json(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [to_json(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def task_of(estimator: Any, y: Any) -> str:
    """Return the task of an estimator with targets ``y``."""
    if hasattr(estimator, "reward"):
        return "retrieval"
    return "multilabel" if scipy.sparse.issparse(y) or np.ndim(y) == 2 else "multiclass"


def n_rows_of(X: Any) -> int:
    """Return the number of rows of a matrix, a data frame or a list."""
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


def slice_rows(X: Any, first: int, stop: int) -> Any:
    """Return rows ``first:stop`` of a matrix, a data frame or a list."""
    return X.iloc[first:stop] if hasattr(X, "iloc") else X[first:stop]


def answer(task: str, estimator: Any, X: Any, y: Any) -> Any:
    """Return predicted classes, an indicator matrix of predicted labels, or the rewards of retrieval."""
    return estimator.reward(X, y) if task == "retrieval" else estimator.predict(X)


def rank_labels(estimator: Any, X: Any, predicted: Any) -> np.ndarray:
    """Return the best labels of each row, best first, padded with -1: int64, shape (n, max(RANKED)).

    Labels are ranked by the estimator's ``top_labels`` or, without this method, by its scores. If the estimator has no
    scores either, the predicted labels are returned in ascending order.
    """
    k = max(RANKED)
    if hasattr(estimator, "top_labels"):
        return np.asarray(estimator.top_labels(X, k)[0])
    scores: Any = None
    for method in ("decision_function", "predict_proba"):
        if scores is None and hasattr(estimator, method):
            scores = getattr(estimator, method)(X)
    if not isinstance(scores, np.ndarray) or scores.ndim != 2:  # some estimators return a list of arrays, one per label
        scores = metrics.indicators("predicted", predicted).toarray().astype(np.float64)
        scores[scores == 0] = -np.inf
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    order = np.where(np.take_along_axis(scores, order, axis=1) == -np.inf, NONE, order)
    return np.pad(order, ((0, 0), (0, k - order.shape[1])), constant_values=NONE)


def label_metrics(Y: Any, predicted: Any, ranked: np.ndarray, inverse_propensities: Any = None) -> dict[str, float]:
    """Return measures of label sets and label rankings. All measures are means over rows."""
    result = {"hamming": metrics.hamming(Y, predicted)}
    for k in RANKED:
        result[f"precision@{k}"] = metrics.precision_at(Y, ranked, k)
        result[f"ndcg@{k}"] = metrics.ndcg_at(Y, ranked, k)
    if inverse_propensities is not None:
        for k in RANKED:
            result[f"psp@{k}"] = metrics.precision_at(Y, ranked, k, inverse_propensities=inverse_propensities)
    result["f1_samples"] = metrics.f1(Y, predicted, "samples")
    return result


def alike(Y: Any, predicted: Any) -> tuple[scipy.sparse.csr_array, scipy.sparse.csr_array]:
    """Return two indicator matrices of equal width. The narrower matrix is padded with empty columns."""
    Y, predicted = metrics.indicators("Y", Y), metrics.indicators("predicted", predicted)
    width = max(Y.shape[1], predicted.shape[1])
    for lists in (Y, predicted):
        lists.resize((lists.shape[0], width))
    return Y, predicted


def held_out_metrics(task: str, estimator: Any, X: Any, y: Any, answers: Any, y_train: Any) -> dict[str, float]:
    """Return all measures of predictions on held-out rows."""
    if task == "retrieval":
        return {"reward": float(np.mean(answers))}
    if task == "multilabel":
        Y, predicted = alike(y, answers)
        worth = metrics.inverse_propensities(alike(y_train, Y)[0])
        result = label_metrics(Y, predicted, rank_labels(estimator, X, answers), worth)
        return {**result, "f1": metrics.f1(Y, predicted)}
    accuracy = float(np.mean(np.asarray(answers) == label_array("y", y)))
    constant = metrics.constant_accuracy(y)
    return _of_accuracy(accuracy, constant)


def _of_accuracy(accuracy: float, constant: float) -> dict[str, float]:
    """Return measures of accuracy, also relative to the accuracy of a constant prediction."""
    bits = metrics.entropy_reduction(accuracy, constant)
    return {"error": 1.0 - accuracy, "accuracy": accuracy, "entropy_reduction": bits, "constant_accuracy": constant}


class MulticlassTally:
    """Running counts of correct predictions of an estimator and of the most frequent class."""

    def __init__(self) -> None:
        self._number_of: dict[Any, int] = {}  # index of each known class
        self._n_of = np.zeros(0, np.int64)  # number of examples of each class
        self._n_by_shots = np.zeros(0, np.int64)
        self._errors_by_shots = np.zeros(0)

    def sums(self, estimator: Any, X: Any, y: Any, answers: Any) -> np.ndarray:
        """Return counts of examples, correct predictions, and examples of the previously most frequent class."""
        y = label_array("y", y)
        right = np.zeros(y.size, np.bool_) if answers is None else np.asarray(answers) == y
        names, place = np.unique(y, return_inverse=True)
        numbers = np.array([self._number_of.setdefault(name, len(self._number_of)) for name in names.tolist()])[place]
        n_before = self._n_of
        self._n_of = np.pad(n_before, (0, len(self._number_of) - n_before.size))
        shots = self._n_of[numbers]
        self._count_shots(shots, right)
        n_majority = np.count_nonzero(numbers == n_before.argmax()) if n_before.size else 0
        self._n_of += np.bincount(numbers, minlength=self._n_of.size)
        return np.array([y.size, right.sum(), n_majority], np.float64)

    def _count_shots(self, shots: np.ndarray, right: np.ndarray) -> None:
        n_longer = max(0, int(shots.max()) + 1 - self._n_by_shots.size)
        self._n_by_shots = np.pad(self._n_by_shots, (0, n_longer))
        self._errors_by_shots = np.pad(self._errors_by_shots, (0, n_longer))
        np.add.at(self._n_by_shots, shots, 1)
        np.add.at(self._errors_by_shots, shots, ~right)

    def by_shots(self) -> dict[str, list[float]]:
        """Return the mean error for each number of earlier examples of the class."""
        came = np.flatnonzero(self._n_by_shots)
        n = self._n_by_shots[came]
        return {"n_shots": came.tolist(), "error": (self._errors_by_shots[came] / n).tolist(), "n_examples": n.tolist()}

    def metrics(self, sums: np.ndarray) -> dict[str, float]:
        """Convert sums of counts to measures, relative to the most frequent class so far."""
        n, n_right, n_majority = sums
        constant = float(self._n_of.max() / self._n_of.sum())
        accuracy, majority = float(n_right / n), float(n_majority / n)
        return _of_accuracy(accuracy, constant) | {
            "entropy_reduction_over_majority": metrics.entropy_reduction(accuracy, majority),
            "majority_accuracy": majority,
        }


class MultilabelTally:
    """Running sums of measures of label sets and label rankings."""

    def __init__(self) -> None:
        self._names: list[str] = []

    def sums(self, estimator: Any, X: Any, y: Any, answers: Any) -> np.ndarray:
        """Return sums over a batch: rows, measures of rows, and the numerator and denominator of the overall F1."""
        known = answers is not None
        Y, predicted = alike(y, answers if known else scipy.sparse.csr_array(np.shape(y), dtype=np.int64))
        ranked = rank_labels(estimator, X, answers) if known else np.full((Y.shape[0], max(RANKED)), NONE)
        values = label_metrics(Y, predicted, ranked)
        self._names = list(values)
        n = Y.shape[0]
        overall = (2 * Y.multiply(predicted).nnz, Y.nnz + predicted.nnz)
        return np.array([n, *(n * value for value in values.values()), *overall])

    def metrics(self, sums: np.ndarray) -> dict[str, float]:
        n, *means, common, either = (float(value) for value in sums)
        result = {name: value / n for name, value in zip(self._names, means, strict=True)}
        return {**result, "f1": common / either if either > 0.0 else 1.0}


class RetrievalTally:
    """Running sum of the rewards of retrieved memories."""

    def sums(self, estimator: Any, X: Any, y: Any, answers: Any) -> np.ndarray:
        """Return the number of rows and the sum of rewards in a batch."""
        return np.array([n_rows_of(X), 0.0 if answers is None else np.sum(answers)], np.float64)

    def metrics(self, sums: np.ndarray) -> dict[str, float]:
        """Convert sums over batches to the mean reward."""
        return {"reward": float(sums[1] / sums[0])}


Tally = MulticlassTally | MultilabelTally | RetrievalTally

TALLIES: dict[str, type[Tally]] = {
    "multiclass": MulticlassTally,
    "multilabel": MultilabelTally,
    "retrieval": RetrievalTally,
}

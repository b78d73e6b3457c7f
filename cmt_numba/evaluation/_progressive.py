"""Progressive validation: every example is predicted before it is learned (section 4.1; Blum et al., 1999)."""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from sklearn.exceptions import NotFittedError

from .._change import progress_bar
from .._validation import check_entries, check_integer, check_real
from ._tasks import TALLIES, MulticlassTally, Tally, answer, n_rows_of, slice_rows, task_of, to_json

_RATIO_OF_POINTS = 1.15  # ratio of the numbers of examples at successive points of a curve: 16 points per decade
_BATCHES_OF_COMPILING = 2  # batches that may compile kernels; predictions start with the second batch


def next_batch_size(n_seen: int, *, share: float = 0.01, max_rows: int = 1000) -> int:
    """Return the size of the next batch after ``n_seen`` examples: ``share * n_seen``, between 1 and ``max_rows``."""
    return max(1, min(max_rows, int(share * n_seen)))


def growing_batches(X: Any, y: Any, *, share: float = 0.01, max_rows: int = 1000) -> Iterator[tuple[Any, Any]]:
    """Yield batches of up to ``max_rows`` examples, each a small ``share`` of the examples before it."""
    share, max_rows = check_real("share", share, 0.0, 1.0), check_integer("max_rows", max_rows, 1)
    n = n_rows_of(X)
    check_entries("y", n_rows_of(y), n)
    X, y = (part.tocsr() if scipy.sparse.issparse(part) else part for part in (X, y))
    return _batches(X, y, n, share, max_rows)


def _batches(X: Any, y: Any, n: int, share: float, max_rows: int) -> Iterator[tuple[Any, Any]]:
    first = 0
    while first < n:
        stop = min(n, first + next_batch_size(first, share=share, max_rows=max_rows))
        yield slice_rows(X, first, stop), slice_rows(y, first, stop)
        first = stop


class ProgressiveResult(NamedTuple):
    """Result of :func:`progressive_validation`."""

    task: str
    """The task of the estimator ({"multiclass", "multilabel", "retrieval"})."""
    n_examples: int
    """Number of examples."""
    metrics: dict[str, float]
    """Measures over all examples."""
    curve: dict[str, list[float]]
    """Learning curves: ``"n_examples"`` and two lists for each measure. ``"<name>"`` contains the measure over all
    examples so far, and ``"<name>_recent"`` the measure over the examples since the last point. Points are about evenly
    spaced on a logarithmic scale."""
    seconds: dict[str, float]
    """Total time to ``"predict"`` and to ``"learn"``, in seconds, including compilation."""
    us_per_query: float
    """Microseconds per prediction, without the first two batches, which may compile kernels."""
    by_shots: dict[str, list[float]]
    """For classes only: mean ``"error"`` and ``"n_examples"`` for each number of earlier examples of the class
    (``"n_shots"``)."""

    def as_dict(self) -> dict[str, Any]:
        """Return the result as JSON-compatible Python objects. Numbers that are not finite become None."""
        return to_json(self)


def progressive_validation(
    estimator: Any,
    batches: Iterable[tuple[Any, Any]],
    *,
    classes: Any = None,
    n_rows: int | None = None,
    progress: bool = False,
    callback: Callable[[dict[str, float]], Any] | None = None,
) -> ProgressiveResult:
    """Predict each batch of examples, score the predictions, then train on the batch.

    Only one batch is in memory at a time, so the examples may exceed the memory. Classifiers of this package need
    ``store_examples=False`` in this case.

    Parameters
    ----------
    estimator : estimator
        Any classifier with ``partial_fit``, or a retriever with ``reward``. The estimator is modified by training.
        Predictions of an unfitted estimator count as wrong.
    batches : iterable of (X, y)
        Batches, for example from :func:`growing_batches`. ``y`` contains classes if it is one-dimensional, and is an
        indicator matrix of labels if it is two-dimensional.
    classes : array-like, optional
        All classes, for classifiers that require them in the first call of ``partial_fit``.
    n_rows : int, optional
        Number of examples, for the progress bar.
    progress : bool, default False
        Whether to show a progress bar.
    callback : callable, optional
        Function that receives the current measures, including ``"n_examples"``, at each point of the curve.

    Returns
    -------
    ProgressiveResult
        Measures for classes: ``error`` and ``accuracy``; ``entropy_reduction``, in bits relative to
        ``constant_accuracy``, the accuracy of always predicting the most frequent class of all examples;
        ``entropy_reduction_over_majority``, in bits relative to ``majority_accuracy``, the accuracy of predicting the
        most frequent class before each batch. For labels: ``hamming``, ``precision@1``, ``@3``, ``@5``,
        ``ndcg@1``, ``@3``, ``@5``, ``f1`` (of all labels of all rows) and ``f1_samples`` (of each row). For retrieval:
        ``reward``.
    """
    if not hasattr(estimator, "partial_fit"):
        raise TypeError(f"estimator must have a partial_fit method, but {type(estimator).__name__} has none")
    run = _Progressive(estimator, classes, callback)
    with progress_bar(n_rows, "example", progress) as report:
        for X, y in batches:
            report(run.step(X, y))
            del X, y  # free the memory before the next batch is read
    return run.result()


class _Progressive:
    """State of a progressive validation."""

    def __init__(self, estimator: Any, classes: Any, callback: Callable[[dict[str, float]], Any] | None) -> None:
        self._estimator, self._callback = estimator, callback
        self._options = {} if classes is None else {"classes": classes}
        self._task = ""
        self._tally: Tally | None = None
        self._n_rows: list[int] = []  # number of rows in each batch
        self._predicting: list[float] = []
        self._learning: list[float] = []
        self._sums = self._sums_before = np.zeros(1)  # sums over all batches, now and at the last point of the curve
        self._curve: dict[str, list[float]] = {"n_examples": []}
        self._next_point = 1.0

    def step(self, X: Any, y: Any) -> int:
        """Predict, score and learn a batch. Return its number of rows."""
        if n_rows_of(X) == 0:
            raise ValueError("batches must have at least one row each")
        if self._tally is None:
            self._task = task_of(self._estimator, y)
            self._tally = TALLIES[self._task]()
        start = time.perf_counter()
        answers = self._ask(X, y)
        self._predicting.append(time.perf_counter() - start)
        self._sums = self._sums + self._tally.sums(self._estimator, X, y, answers)
        start = time.perf_counter()
        self._estimator.partial_fit(X, y, **self._options)
        self._learning.append(time.perf_counter() - start)
        self._options = {}
        self._n_rows.append(n_rows_of(X))
        if self._sums[0] >= self._next_point:
            self._add_point()
        return self._n_rows[-1]

    def _ask(self, X: Any, y: Any) -> Any:
        try:
            return answer(self._task, self._estimator, X, y)
        except NotFittedError:
            if self._n_rows:
                raise
            return None

    def _add_point(self) -> None:
        assert self._tally is not None
        n = int(self._sums[0])
        so_far, recent = (self._tally.metrics(sums) for sums in (self._sums, self._sums - self._sums_before))
        self._curve["n_examples"].append(n)
        for name, value in so_far.items():
            self._curve.setdefault(name, []).append(value)
            self._curve.setdefault(f"{name}_recent", []).append(recent[name])
        self._sums_before = self._sums
        self._next_point = max(n + 1, n * _RATIO_OF_POINTS)
        if self._callback is not None:
            self._callback({"n_examples": n, **so_far})

    def result(self) -> ProgressiveResult:
        """Return the measures and curves of all batches."""
        if self._tally is None:
            raise ValueError("batches must contain at least one batch")
        if self._sums[0] > self._curve["n_examples"][-1]:
            self._add_point()
        timed = _BATCHES_OF_COMPILING if len(self._n_rows) > _BATCHES_OF_COMPILING else 0
        return ProgressiveResult(
            task=self._task,
            n_examples=sum(self._n_rows),
            metrics=self._tally.metrics(self._sums),
            curve=self._curve,
            seconds={"predict": sum(self._predicting), "learn": sum(self._learning)},
            us_per_query=1e6 * sum(self._predicting[timed:]) / sum(self._n_rows[timed:]),
            by_shots=self._tally.by_shots() if isinstance(self._tally, MulticlassTally) else {},
        )

"""Progressive validation: every example is a question before it is a lesson (section 4.1; Blum et al., 1999)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from sklearn.exceptions import NotFittedError

from .._concurrency.workers import progress_bar
from .._validation import check_integer, check_real
from ._plain import as_plain
from ._tasks import TALLIES, MulticlassTally, Tally, answer, n_rows_of, slice_rows, task_of

_RATIO_OF_POINTS = 1.15  # between numbers of examples at which a curve has a point: 16 points for ten times as many
_BATCHES_OF_COMPILING = 2  # nothing is learned before the first, and the second is the first to be answered


def next_batch_size(n_seen: int, *, share: float = 0.01, most: int = 1000) -> int:
    """Return how many examples to learn at once after ``n_seen``: a share of these, but one at least."""
    return max(1, min(most, int(share * n_seen)))


def growing_batches(X: Any, y: Any, *, share: float = 0.01, most: int = 1000) -> Iterator[tuple[Any, Any]]:
    """Cut examples into batches that are a small share of what has come before.

    An online learner that is given such batches has learned nearly all that one given single examples has, and is
    much faster.

    Parameters
    ----------
    X : array-like, sparse matrix or data frame, shape (n, n_features)
        Examples, in the order in which they are to come.
    y : array-like, sparse matrix or data frame, of ``n`` rows
        What belongs to them.
    share : float, default 0.01
        A batch has at most this share of the examples before it, or one example.
    most : int, default 1000
        And never more than so many.

    Yields
    ------
    X_batch, y_batch
        Of the same types as ``X`` and ``y``.

    Raises
    ------
    TypeError, ValueError
        If an argument cannot be used.
    """
    share, most = check_real("share", share, 0.0, 1.0), check_integer("most", most, 1)
    n = n_rows_of(X)
    if n_rows_of(y) != n:
        raise ValueError(f"y must have one row for each of the {n} rows of X, not {n_rows_of(y)}")
    X, y = (part.tocsr() if scipy.sparse.issparse(part) else part for part in (X, y))
    return _batches(X, y, n, share, most)


def _batches(X: Any, y: Any, n: int, share: float, most: int) -> Iterator[tuple[Any, Any]]:
    first = 0
    while first < n:
        stop = min(n, first + next_batch_size(first, share=share, most=most))
        yield slice_rows(X, first, stop), slice_rows(y, first, stop)
        first = stop


class ProgressiveResult(NamedTuple):
    """What :func:`progressive_validation` has measured.

    Attributes
    ----------
    task : {"multiclass", "multilabel", "retrieval"}
        What kind of answers the estimator gave.
    n_examples : int
        How many examples came.
    metrics : dict of str to float
        The measures over all examples.
    curve : dict of str to list
        How they developed: ``"n_examples"`` and, for each measure, its value over all examples so far under its name,
        and over those since the last point under ``"<name>_recent"``. The points are evenly spaced on a logarithmic
        scale, as far as batches allow.
    seconds : dict of str to float
        Spent to ``"predict"`` and to ``"learn"``, with whatever Numba had to compile.
    us_per_query : float
        Microseconds for each example to predict, without the first two batches, for which kernels may be compiled.
    by_shots : dict of str to list
        Multiclass only: ``"n_shots"``, of how many examples of its class the estimator had learned before an example
        came; ``"error"`` and ``"n_examples"``, the mean error of such examples and their number.
    """

    task: str
    n_examples: int
    metrics: dict[str, float]
    curve: dict[str, list[float]]
    seconds: dict[str, float]
    us_per_query: float
    by_shots: dict[str, list[float]]

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain Python for JSON; None stands for what is not finite."""
        plain: dict[str, Any] = as_plain(self)
        return plain


def progressive_validation(
    estimator: Any,
    batches: Iterable[tuple[Any, Any]],
    *,
    classes: Any = None,
    n_rows: int | None = None,
    progress: bool = False,
    callback: Callable[[dict[str, float]], Any] | None = None,
) -> ProgressiveResult:
    """Ask an estimator about each batch of examples, score its answers, then let it learn from the batch.

    No more than one batch is held at a time, so the examples may be more than fit into memory. Classifiers of this
    library need ``store_examples=False`` then.

    Parameters
    ----------
    estimator : estimator
        Any classifier with ``partial_fit``, or a retriever with ``reward``. It learns itself, no copy, and goes on from
        what it knows. As long as it knows nothing its answers are wrong.
    batches : iterable of (X, y)
        As of :func:`growing_batches`. One-dimensional ``y`` are classes, two-dimensional ones indicators of labels.
    classes : array-like, optional
        For the first call of ``partial_fit`` of classifiers that must know all classes beforehand.
    n_rows : int, optional
        How many examples there are, for the progress bar.
    progress : bool, default False
        Show a progress bar.
    callback : callable, optional
        Called with the measures so far, ``"n_examples"`` among them, at each point of the curve.

    Returns
    -------
    ProgressiveResult
        Its measures for classes: ``error`` and ``accuracy``; ``entropy_reduction``, in bits over
        ``constant_accuracy``, that of always answering the class that is the most frequent among the examples so far;
        ``entropy_reduction_over_majority``, over ``majority_accuracy``, that of answering with the class that was the
        most frequent before the batch came. For labels: ``hamming``, ``precision@1``, ``@3``, ``@5``, ``ndcg@1``,
        ``@3``, ``@5``, ``f1`` (of all labels of all rows) and ``f1_samples`` (of each row). For retrieval: ``reward``.

    Raises
    ------
    TypeError
        If the estimator cannot learn in batches.
    ValueError
        If there are no batches, or one has no rows.
    """
    if not hasattr(estimator, "partial_fit"):
        raise TypeError(f"estimator must have partial_fit to learn online, which {type(estimator).__name__} has not")
    run = _Progressive(estimator, classes, callback)
    with progress_bar(n_rows, "example", progress) as report:
        for X, y in batches:
            report(run.step(X, y))
            del X, y  # before the next batch comes
    return run.result()


class _Progressive:
    """A progressive validation under way."""

    def __init__(self, estimator: Any, classes: Any, callback: Callable[[dict[str, float]], Any] | None) -> None:
        self._estimator, self._callback = estimator, callback
        self._options = {} if classes is None else {"classes": classes}
        self._task = ""
        self._tally: Tally | None = None
        self._n_rows: list[int] = []  # of each batch, like the seconds
        self._predicting: list[float] = []
        self._learning: list[float] = []
        self._sums = self._sums_before = np.zeros(1)  # over all batches, and as of the last point of the curve
        self._curve: dict[str, list[float]] = {"n_examples": []}
        self._next_point = 1.0

    def step(self, X: Any, y: Any) -> int:
        """Ask, score and learn a batch; return how many rows it has."""
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
        """Return the estimator's answers, None if it has not learned anything yet."""
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
        """Return all that was measured."""
        if self._tally is None:
            raise ValueError("batches must hold at least one batch")
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

"""How well estimators learn and answer: online, example by example, and in batches (sections 4.1 and 4.2 of the paper).

Online, every example is a question before it is a lesson (progressive validation, Blum et al., 1999). In batches an
estimator learns from all examples at once and is asked about others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import train_test_split
from sklearn.utils import shuffle

from ._parallel import progress_bar
from ._plain import as_plain
from ._profiles import TreeProfile, profile, recall_against_exact, self_consistency
from ._tasks import (
    MAIN_METRIC,
    TALLIES,
    MulticlassTally,
    Tally,
    answer,
    held_out_metrics,
    n_rows_of,
    slice_rows,
    task_of,
)
from ._validation import check_integer, check_real

__all__ = [
    "BatchResult",
    "ProgressiveResult",
    "TreeProfile",
    "batch_evaluation",
    "growing_batches",
    "profile",
    "progressive_validation",
    "recall_against_exact",
    "self_consistency",
]

_RATIO_OF_POINTS = 1.15  # between numbers of examples at which a curve has a point: 16 points for ten times as many
_BATCHES_OF_COMPILING = 2  # nothing is learned before the first, and the second is the first to be answered


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
        stop = min(n, first + max(1, min(most, int(share * first))))
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

    No more than one batch is held at a time, so the examples may be more than fit into memory; give
    :class:`CMTClassifier` ``store_examples=False`` then.

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


class BatchResult(NamedTuple):
    """What :func:`batch_evaluation` has measured.

    Attributes
    ----------
    task : {"multiclass", "multilabel", "retrieval"}
        What kind of answers the estimator gave.
    n_train, n_test : int
        How many examples it learned from, and was asked about.
    metrics : dict of str to (float, float)
        Mean and standard deviation of each measure over the seeds.
    per_seed : list of dict of str to float
        The measures for each seed.
    seconds_fit : float
        To learn from the training examples, the median over the seeds.
    us_per_query : float
        Microseconds for each example to predict, the median over the seeds.
    by_probes : dict of str to list
        How answers get better and slower as more leaves are searched: ``"n_probes"``; the task's main measure
        (``"error"``, ``"hamming"`` or ``"reward"``), its mean over the seeds; and ``"us_per_query"``, the median. Empty
        for estimators without ``n_probes``.
    profile : TreeProfile or None
        Of the last seed's trees, if it has any.
    """

    task: str
    n_train: int
    n_test: int
    metrics: dict[str, tuple[float, float]]
    per_seed: list[dict[str, float]]
    seconds_fit: float
    us_per_query: float
    by_probes: dict[str, list[float]]
    profile: TreeProfile | None

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain Python for JSON; None stands for what is not finite."""
        plain: dict[str, Any] = as_plain(self)
        return plain


def batch_evaluation(
    estimator: Any,
    X: Any,
    y: Any,
    X_test: Any = None,
    y_test: Any = None,
    *,
    holdout: float = 0.2,
    seeds: Sequence[int] = (0, 1, 2),
    n_passes: int | None = None,
    probes: Sequence[int] = (1, 2, 4, 8, 16, 32, 64),
    progress: bool = False,
) -> BatchResult:
    """Fit clones of an estimator with several seeds, and ask each about examples held out.

    Parameters
    ----------
    estimator : estimator
        Any classifier, or a retriever with ``reward``. It is left as it is.
    X : array-like, sparse matrix or data frame, shape (n, n_features)
        Examples to learn from, and to hold some out of if there are none to test on.
    y : array-like, sparse matrix or data frame, of ``n`` rows
        Classes if one-dimensional, indicators of labels if two-dimensional, values for a retriever.
    X_test, y_test : optional
        Examples to test on. By default a random share of ``X`` and ``y`` is held out, another one for each seed.
    holdout : float in (0, 1), default 0.2
        This share.
    seeds : sequence of int, default (0, 1, 2)
        Each is the ``random_state`` of the examples held out and, if it has one, of the estimator.
    n_passes : int, optional
        How often to go through the training examples; by default as the estimator's own parameters say. For those of
        this library that is ``n_router_passes`` and ``n_head_passes``, which remember from pass to pass what each
        example has changed. Others learn again by ``partial_fit``, each time in another order.
    probes : sequence of int, default (1, 2, 4, 8, 16, 32, 64)
        Numbers of leaves to search, for the relation of error and time.
    progress : bool, default False
        Show a progress bar.

    Returns
    -------
    BatchResult
        Its measures for classes: ``error``, ``accuracy``, and ``entropy_reduction`` in bits over ``constant_accuracy``,
        that of always answering the most frequent class of the test examples. For labels: ``hamming``,
        ``precision@1``, ``@3``, ``@5``, ``ndcg@1``, ``@3``, ``@5``, the propensity-scored precisions ``psp@1``, ``@3``,
        ``@5``, ``f1`` and ``f1_samples``. For retrieval: ``reward``.

    Raises
    ------
    TypeError, ValueError
        If an argument cannot be used.
    """
    holdout = check_real("holdout", holdout, 0.0, 1.0, above=True)
    seeds = [check_integer("seeds", seed, 0, 2**32 - 1) for seed in seeds]
    probes = [check_integer("probes", n_probes, 1) for n_probes in probes]
    if not seeds:
        raise ValueError("seeds must hold at least one seed")
    if (X_test is None) != (y_test is None):
        raise ValueError("X_test and y_test must be given both or neither")
    if n_passes is not None:
        check_integer("n_passes", n_passes, 1)
        if not hasattr(estimator, "n_head_passes") and not hasattr(estimator, "partial_fit"):
            raise TypeError(f"estimator must have partial_fit for n_passes, which {type(estimator).__name__} has not")
    task = task_of(estimator, y)
    runs = []
    with progress_bar(len(seeds), "seed", progress) as report:
        for seed in seeds:
            held_out = X_test is None
            parts = train_test_split(X, y, test_size=holdout, random_state=seed) if held_out else (X, X_test, y, y_test)
            runs.append(_run_seed(task, _seeded(estimator, seed), parts, n_passes, seed, probes))
            report(1)
    per_seed = [run.metrics for run in runs]
    return BatchResult(
        task=task,
        n_train=n_rows_of(parts[0]),
        n_test=n_rows_of(parts[1]),
        metrics={name: _mean_and_deviation([one[name] for one in per_seed]) for name in per_seed[0]},
        per_seed=per_seed,
        seconds_fit=float(np.median([run.seconds_fit for run in runs])),
        us_per_query=float(np.median([run.us_per_query for run in runs])),
        by_probes=_over_seeds(task, probes, [run.by_probes for run in runs]),
        profile=runs[-1].profile,
    )


class _SeedRun(NamedTuple):
    """What one seed has given."""

    metrics: dict[str, float]
    seconds_fit: float
    us_per_query: float
    by_probes: list[tuple[float, float]]  # the main measure and the microseconds a query for each number of leaves
    profile: TreeProfile | None


def _seeded(estimator: Any, seed: int) -> Any:
    estimator = clone(estimator)
    return estimator.set_params(random_state=seed) if "random_state" in estimator.get_params() else estimator


def _run_seed(
    task: str, estimator: Any, parts: Sequence[Any], n_passes: int | None, seed: int, probes: Sequence[int]
) -> _SeedRun:
    X, X_test, y, y_test = parts
    start = time.perf_counter()
    _fit_in_passes(estimator, X, y, n_passes, seed)
    seconds_fit = time.perf_counter() - start
    measured, us_per_query = _ask_about(task, estimator, X_test, y_test, y)
    by_probes = []
    if "n_probes" in estimator.get_params():
        usual = estimator.get_params()["n_probes"]
        for n_probes in probes:
            values, us = _ask_about(task, estimator.set_params(n_probes=n_probes), X_test, y_test, y)
            by_probes.append((values[MAIN_METRIC[task]], us))
        estimator.set_params(n_probes=usual)
    shape = profile(estimator) if hasattr(estimator, "forest_") else None
    return _SeedRun(measured, seconds_fit, us_per_query, by_probes, shape)


def _fit_in_passes(estimator: Any, X: Any, y: Any, n_passes: int | None, seed: int) -> None:
    if n_passes is None:
        estimator.fit(X, y)
    elif hasattr(estimator, "n_head_passes"):
        estimator.set_params(n_router_passes=n_passes, n_head_passes=n_passes).fit(X, y)
    else:
        estimator.fit(X, y)
        for n_pass in range(1, n_passes):
            estimator.partial_fit(*shuffle(X, y, random_state=seed + n_pass))


def _ask_about(task: str, estimator: Any, X: Any, y: Any, y_train: Any) -> tuple[dict[str, float], float]:
    """Return all measures of an estimator's answers, and the microseconds that it takes for each."""
    answer(task, estimator, slice_rows(X, 0, 1), slice_rows(y, 0, 1))  # lets numba compile
    start = time.perf_counter()
    answers = answer(task, estimator, X, y)
    seconds = time.perf_counter() - start
    return held_out_metrics(task, estimator, X, y, answers, y_train), 1e6 * seconds / n_rows_of(X)


def _mean_and_deviation(values: list[float]) -> tuple[float, float]:
    with np.errstate(invalid="ignore"):  # the entropy reduction of a seed may be infinite
        return float(np.mean(values)), float(np.std(values))


def _over_seeds(task: str, probes: Sequence[int], runs: list[list[tuple[float, float]]]) -> dict[str, list[float]]:
    if not runs[0]:
        return {}
    values, microseconds = np.moveaxis(np.array(runs), 2, 0)
    return {
        "n_probes": list(probes),
        MAIN_METRIC[task]: values.mean(axis=0).tolist(),
        "us_per_query": np.median(microseconds, axis=0).tolist(),
    }

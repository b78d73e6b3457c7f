"""Batch evaluation: training on all examples and testing on held-out examples (section 4.2 of the paper)."""

import math
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import KFold, train_test_split
from sklearn.utils import _safe_indexing, indexable

from .._change import progress_bar
from .._validation import check_integer, check_real
from ._answers import Confusion, calibration_of, most_confused
from ._rivals import Rival, Split, check_rivals, measure_rival
from ._tasks import MAIN_METRIC, answer, held_out_metrics, n_rows_of, slice_rows, task_of, to_json


class BatchResult(NamedTuple):
    """Result of :func:`batch_evaluation`."""

    task: str
    """The task of the estimator ({"multiclass", "multilabel", "retrieval"})."""
    n_train: int
    """Number of training examples."""
    n_test: int
    """Number of test examples."""
    metrics: dict[str, tuple[float, float]]
    """Mean and standard deviation of each measure over all runs. There is one run for each seed or, with ``folds``, for
    each seed and fold."""
    per_seed: list[dict[str, float]]
    """Measures of each run."""
    seconds_fit: float
    """Median training time of the runs, in seconds."""
    us_per_query: float
    """Median time per prediction, in microseconds."""
    rivals: list[Rival] = []  # noqa: RUF012 (the default is never modified)
    """Results of the estimator and its rivals on the examples of the last run. Empty unless ``rivals`` are
    requested."""
    confused: list[Confusion] = []  # noqa: RUF012
    """The most frequent confusions of the last run. Empty unless ``details`` are requested."""
    calibration: dict[str, list[float]] = {}  # noqa: RUF012
    """Mean ``"probability"``, ``"accuracy"`` and ``"n_examples"`` of the last run in ten bins of probability. Empty
    unless ``details`` are requested and the estimator has ``predict_proba``."""

    def as_dict(self) -> dict[str, Any]:
        """Return the result as JSON-compatible Python objects. Numbers that are not finite become None."""
        return to_json(self)


def batch_evaluation(
    estimator: Any,
    X: Any,
    y: Any,
    X_test: Any = None,
    y_test: Any = None,
    *,
    holdout: float = 0.2,
    folds: int | None = None,
    seeds: Sequence[int] = (0, 1, 2),
    rivals: Sequence[str] = (),
    texts: Sequence[str] | None = None,
    texts_test: Sequence[str] | None = None,
    details: bool = False,
    progress: bool = False,
) -> BatchResult:
    """Fit clones of an estimator with several seeds, and test each on held-out examples.

    Parameters
    ----------
    estimator : estimator
        Any classifier, or a retriever with ``reward``. It is not modified.
    X : array-like, sparse matrix or data frame, shape (n, n_features)
        Training examples. Without ``X_test``, some of these examples are held out.
    y : array-like, sparse matrix or data frame, of ``n`` rows
        Classes (one-dimensional), an indicator matrix of labels (two-dimensional), or the values of a retriever.
    X_test, y_test : optional
        Test examples. By default, a different random part of ``X`` and ``y`` is held out for each seed.
    holdout : float in (0, 1), default 0.2
        Fraction of examples to hold out.
    folds : int, optional
        Number of folds for cross-validation instead of ``holdout``. For each seed, every fold is held out once.
    seeds : sequence of int, default (0, 1, 2)
        Values of ``random_state`` for the split and, if the estimator has this parameter, for the estimator.
    rivals : sequence of {"majority", "exact", "means", "linear", "bm25"}, default ()
        Simple models to compare on the examples of the last run, as described in :class:`Rival`. For large data, exact
        search and BM25 are measured on fewer examples, and slow linear models are skipped.
    texts : sequence of str, optional
        Texts of the rows of ``X``, for the rival ``"bm25"`` and as examples of confused classes.
    texts_test : sequence of str, optional
        Texts of the rows of ``X_test``.
    details : bool, default False
        Whether to compute the most frequent confusions and the calibration of probabilities.
    progress : bool, default False
        Whether to show a progress bar.

    Returns
    -------
    BatchResult
        Measures for classes: ``error``, ``accuracy``, and ``entropy_reduction`` in bits relative to
        ``constant_accuracy``, the accuracy of always predicting the most frequent class of the test examples. For
        labels: ``hamming``, ``precision@1``, ``@3``, ``@5``, ``ndcg@1``, ``@3``, ``@5``, the propensity-scored
        precisions ``psp@1``, ``@3``, ``@5``, ``f1`` and ``f1_samples``. For retrieval: ``reward``.
    """
    plan = plan_of(estimator, y, holdout, folds, seeds, details)
    data = checked_data(Split(X, X_test, y, y_test, texts, texts_test), plan)
    rivals = check_rivals(rivals, plan.task, texts)
    runs = []
    with progress_bar(len(plan.splits), "run", progress) as report:
        for number in range(len(plan.splits)):
            runs.append(run_of(plan, data, number))
            report(1)
    return result_of(plan, data, runs, rivals, progress=progress)


class Plan(NamedTuple):
    """Validated arguments of a batch evaluation."""

    estimator: Any
    task: str
    holdout: float
    folds: int | None
    splits: list[tuple[int, int]]  # seed and held-out fold of each run
    details: bool


class Run(NamedTuple):
    """The result of one run."""

    metrics: dict[str, float]
    seconds_fit: float
    us_per_query: float
    answers: Any  # predictions of the last run, if details are requested
    calibration: dict[str, list[float]]


def plan_of(
    estimator: Any,
    y: Any,
    holdout: float = 0.2,
    folds: int | None = None,
    seeds: Sequence[int] = (0, 1, 2),
    details: bool = False,
) -> Plan:
    """Validate the arguments of a batch evaluation."""
    holdout = check_real("holdout", holdout, 0.0, 1.0, above=True)
    seeds = [check_integer("seeds", seed, 0, 2**32 - 1) for seed in seeds]
    if not seeds:
        raise ValueError("seeds must contain at least one seed")
    if folds is not None:
        check_integer("folds", folds, 2)
    task = task_of(estimator, y)
    splits = [(seed, fold) for seed in seeds for fold in range(folds or 1)]
    return Plan(estimator, task, holdout, folds, splits, details and task == "multiclass")


def checked_data(data: Split, plan: Plan) -> Split:
    """Return validated examples. Raise ValueError if their shapes do not match."""
    X, X_test, y, y_test, texts, texts_test = data
    if (X_test is None) != (y_test is None):
        raise ValueError("X_test and y_test must both be given, or both be omitted")
    if plan.folds is not None and X_test is not None:
        raise ValueError("folds and X_test cannot be combined: omit folds, or X_test and y_test")
    if plan.folds is not None and plan.folds > n_rows_of(X):
        raise ValueError(f"folds must be at most the number of examples, {n_rows_of(X)}, got {plan.folds}")
    if plan.folds is None and X_test is None and math.ceil(plan.holdout * n_rows_of(X)) == n_rows_of(X):
        of_all = f"{n_rows_of(X)} example{'s' if n_rows_of(X) > 1 else ''}"
        raise ValueError(
            f"holdout={plan.holdout:g} of {of_all} leaves none for training: pass more examples, or test examples"
        )
    if (texts_test is None) != (texts is None or X_test is None):
        raise ValueError("texts_test must be given if and only if both texts and X_test are given")
    for name, of_texts, rows in (("texts", texts, X), ("texts_test", texts_test, X_test)):
        if of_texts is not None and len(of_texts) != n_rows_of(rows):
            raise ValueError(f"{name} must have one entry for each of the {n_rows_of(rows)} rows, got {len(of_texts)}")
    X, y = indexable(X, y)
    return data._replace(X=X, y=y)


def run_of(plan: Plan, data: Split, number: int) -> Run:
    """Fit and test an estimator on one split of a plan."""
    (seed, _), (split, _), task = plan.splits[number], _split(plan, data, number), plan.task
    estimator, (X, X_test, y, y_test, *_) = seeded(plan.estimator, seed), split
    start = time.perf_counter()
    estimator.fit(X, y)
    seconds_fit = time.perf_counter() - start
    measured, us_per_query, answers = _measure_answers(task, estimator, X_test, y_test, y)
    run = Run(measured, seconds_fit, us_per_query, None, {})
    if not plan.details or number < len(plan.splits) - 1:
        return run
    return run._replace(answers=answers, calibration=calibration_of(estimator, X_test, y_test, answers))


def result_of(plan: Plan, data: Split, runs: list[Run], rivals: Sequence[str], *, progress: bool) -> BatchResult:
    """Combine the results of all runs of a plan, and measure rivals on the examples of the last run."""
    per_seed, found = [run.metrics for run in runs], runs[-1]
    split, positions = _split(plan, data, len(runs) - 1)
    rows = []
    if rivals:
        main = found.metrics[MAIN_METRIC[plan.task]]
        rows.append(Rival("estimator", main, found.seconds_fit, found.us_per_query))
        with progress_bar(len(rivals), "rival", progress) as report:
            for name in rivals:
                rows.append(measure_rival(name, plan.task, split, plan.splits[-1][0]))
                report(1)
    return BatchResult(
        task=plan.task,
        n_train=n_rows_of(split.X),
        n_test=n_rows_of(split.X_test),
        metrics={name: mean_and_deviation([one[name] for one in per_seed]) for name in per_seed[0]},
        per_seed=per_seed,
        seconds_fit=float(np.median([run.seconds_fit for run in runs])),
        us_per_query=float(np.median([run.us_per_query for run in runs])),
        rivals=rows,
        confused=most_confused(split.y_test, found.answers, positions, split.texts_test) if plan.details else [],
        calibration=found.calibration,
    )


def _split(plan: Plan, data: Split, number: int) -> tuple[Split, np.ndarray]:
    """Return the examples of a run, and the positions of its test examples."""
    X, X_test, y, _, texts, _ = data
    if X_test is not None:
        return data, np.arange(n_rows_of(X_test))
    (seed, fold), n = plan.splits[number], n_rows_of(X)
    if plan.folds is None:
        kept, positions = train_test_split(np.arange(n), test_size=plan.holdout, random_state=seed)
    else:
        kept, positions = list(KFold(plan.folds, shuffle=True, random_state=seed).split(np.arange(n)))[fold]
    parts = [_safe_indexing(part, rows) for part in (X, y) for rows in (kept, positions)]
    of_texts = [None if texts is None else _safe_indexing(list(texts), rows) for rows in (kept, positions)]
    return Split(*parts, *of_texts), positions


def seeded(estimator: Any, seed: int) -> Any:
    """Return a clone of an estimator, seeded by ``random_state`` if the estimator has this parameter."""
    estimator = clone(estimator)
    return estimator.set_params(random_state=seed) if "random_state" in estimator.get_params() else estimator


def _measure_answers(task: str, estimator: Any, X: Any, y: Any, y_train: Any) -> tuple[dict[str, float], float, Any]:
    """Return the measures of an estimator's predictions, the microseconds per prediction, and the predictions."""
    answer(task, estimator, slice_rows(X, 0, 1), slice_rows(y, 0, 1))  # compiles the kernels
    start = time.perf_counter()
    answers = answer(task, estimator, X, y)
    seconds = time.perf_counter() - start
    return held_out_metrics(task, estimator, X, y, answers, y_train), 1e6 * seconds / n_rows_of(X), answers


def mean_and_deviation(values: list[float]) -> tuple[float, float]:
    """Return the mean and the standard deviation of a measure."""
    with np.errstate(invalid="ignore"):  # the entropy reduction of a seed may be infinite
        return float(np.mean(values)), float(np.std(values))

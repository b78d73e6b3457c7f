"""Evaluation of estimators in Ray tasks, one for each run."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from .. import evaluation
from .._change import progress_bar
from .._validation import check_integer, check_real
from ..estimators import trees_of
from ..formats import ReadOptions, open_data
from ._cluster import running, start


def evaluate(
    estimators: Mapping[str, Any],
    X: Any,
    y: Any,
    X_test: Any = None,
    y_test: Any = None,
    *,
    holdout: float = 0.2,
    folds: int | None = None,
    seeds: Sequence[int] = (0, 1, 2),
    n_passes: int | None = None,
    probes: Sequence[int] = (1, 2, 4, 8, 16, 32, 64),
    rivals: Sequence[str] = (),
    texts: Sequence[str] | None = None,
    texts_test: Sequence[str] | None = None,
    details: bool = False,
    progress: bool = False,
    address: str | None = None,
    task_options: dict[str, Any] | None = None,
) -> dict[str, evaluation.BatchResult]:
    """Evaluate several estimators, or several settings of an estimator, in parallel Ray tasks.

    Each combination of an estimator, a seed and a fold is a task. The metrics are bit-identical to the results of
    :func:`cmt_numba.evaluation.batch_evaluation`, because a run depends only on its seed. Times are measured while
    tasks share the machine.

    Parameters
    ----------
    estimators : mapping of str to estimator
        The estimators, with names of your choice.
    X, y, X_test, y_test
        The data, as for :func:`~cmt_numba.evaluation.batch_evaluation`. They are copied to Ray's object store once.
    holdout, folds, seeds, n_passes, probes, rivals, texts, texts_test, details
        Parameters of :func:`~cmt_numba.evaluation.batch_evaluation`. Rivals are evaluated in this process.
    progress : bool, default False
        Whether to show a progress bar for all runs.
    address : str, optional
        The address of a cluster, passed to :func:`start` unless this process is already connected to Ray.
    task_options : dict, optional
        Ray options for the tasks, such as ``{"num_cpus": 2, "memory": 4e9}``.

    Returns
    -------
    dict of str to BatchResult
        The result of each estimator, by name.

    Examples
    --------
    >>> settings = {str(c): CMTClassifier(aggressiveness=c) for c in (0.3, 1.0)}  # doctest: +SKIP
    >>> evaluate(settings, X, y)["0.3"].metrics["error"]  # doctest: +SKIP
    (0.182, 0.004)
    """
    if not estimators:
        raise ValueError("estimators must contain at least one estimator")
    given: dict[str, Any] = {"holdout": holdout, "folds": folds, "seeds": seeds, "n_passes": n_passes}
    given |= {"probes": probes, "details": details}
    plans = {name: evaluation.plan_of(estimator, y, **given) for name, estimator in estimators.items()}
    data = evaluation.Split(X, X_test, y, y_test, texts, texts_test)
    for plan in plans.values():
        data = evaluation.checked_data(data, plan)
        rivals = evaluation.check_rivals(rivals, plan.task, texts)
    start(address)
    shared = running().put(data)
    calls = {(name, i): (plan, shared, i) for name, plan in plans.items() for i in range(len(plan.splits))}
    runs = _answers(evaluation.run_of, calls, task_options, progress)
    return {
        name: evaluation.result_of(
            plan, data, [runs[name, i] for i in range(len(plan.splits))], rivals, progress=progress
        )
        for name, plan in plans.items()
    }


def evaluate_files(
    estimators: Mapping[str, Any],
    path: str | os.PathLike[str],
    *,
    holdout: float = 0.2,
    seeds: Sequence[int] = (0, 1, 2),
    block_rows: int = 10_000,
    progress: bool = False,
    address: str | None = None,
    task_options: dict[str, Any] | None = None,
    **reading: Any,
) -> dict[str, evaluation.BatchResult]:
    """Evaluate classifiers in Ray tasks on data that may be larger than memory.

    Each combination of a classifier and a seed is a task, which reads the rows twice, in blocks. In the first pass the
    classifier learns the training rows by ``partial_fit``, and in the second pass it predicts the held-out rows. The
    seed determines which rows are held out.

    Parameters
    ----------
    estimators : mapping of str to estimator
        Classifiers with ``partial_fit``, with names of your choice.
    path : path-like
        A file, or a folder of Parquet files, that :func:`cmt_numba.formats.open_data` can read. Every machine must find
        it under this path.
    holdout : float in (0, 1), default 0.2
        The fraction of the rows to hold out.
    seeds : sequence of int, default (0, 1, 2)
        The seeds of the runs.
    block_rows : int, default 10_000
        The number of rows per block.
    progress, address, task_options
        The parameters of :func:`evaluate`.
    **reading
        Fields of :class:`~cmt_numba.formats.ReadOptions`, such as ``label="topic"``.

    Returns
    -------
    dict of str to BatchResult
        The result of each classifier, by name. Results by number of leaves, rivals and details are not included.
    """
    holdout = check_real("holdout", holdout, 0.0, 1.0, above=True)
    seeds = [check_integer("seeds", seed, 0, 2**32 - 1) for seed in seeds]
    if not seeds:
        raise ValueError("seeds must contain at least one seed")
    options = _options_for(estimators, path, block_rows, reading)
    if options.task != "multiclass":
        raise ValueError(
            "evaluate_files requires one label per row; use validate_files, or evaluate if the rows fit in memory"
        )
    start(address)
    calls = {
        (name, seed): (estimator, str(path), options, block_rows, holdout, seed)
        for name, estimator in estimators.items()
        for seed in seeds
    }
    runs = _answers(_run_on_blocks, calls, task_options, progress)
    return {name: _result_of_blocks([runs[name, seed] for seed in seeds]) for name in estimators}


def validate_files(
    estimators: Mapping[str, Any],
    path: str | os.PathLike[str],
    *,
    most: int = 1000,
    progress: bool = False,
    address: str | None = None,
    task_options: dict[str, Any] | None = None,
    **reading: Any,
) -> dict[str, evaluation.ProgressiveResult]:
    """Validate estimators progressively in Ray tasks on data that may be larger than memory.

    Each task evaluates one estimator. It reads the rows once, in order and in growing batches, and predicts each batch
    before the estimator learns it. See :func:`cmt_numba.evaluation.progressive_validation` for the metrics.

    Parameters
    ----------
    estimators : mapping of str to estimator
        Estimators with ``partial_fit``, with names of your choice.
    path : path-like
        A file, or a folder of Parquet files, that :func:`cmt_numba.formats.open_data` can read. Every machine must find
        it under this path.
    most : int, default 1000
        The maximum number of rows in a batch.
    progress, address, task_options
        The parameters of :func:`evaluate`.
    **reading
        Fields of :class:`~cmt_numba.formats.ReadOptions`, such as ``label="topic"``.

    Returns
    -------
    dict of str to ProgressiveResult
        The result of each estimator, by name.
    """
    options = _options_for(estimators, path, most, reading)
    start(address)
    calls = {name: (estimator, str(path), options, most) for name, estimator in estimators.items()}
    return _answers(_validate_on_blocks, calls, task_options, progress)


def _options_for(estimators: Mapping[str, Any], path: Any, block_rows: int, reading: dict[str, Any]) -> ReadOptions:
    """Return the complete reading options, which make all tasks read a file in the same way."""
    check_integer("block_rows", block_rows, 1)
    if not estimators:
        raise ValueError("estimators must contain at least one estimator")
    for name, estimator in estimators.items():
        if not hasattr(estimator, "partial_fit"):
            raise TypeError(f"estimator {name!r} must have a partial_fit method to learn one block at a time")
    return open_data(path, **reading).resolved()


def _validate_on_blocks(estimator: Any, path: str, options: ReadOptions, most: int) -> evaluation.ProgressiveResult:
    batches = open_data(path, options).batches(partial(evaluation.next_batch_size, most=most))
    return evaluation.progressive_validation(clone(estimator), ((batch.X, batch.y) for batch in batches))


class _BlocksRun(NamedTuple):
    metrics: dict[str, float]
    n_train: int
    n_test: int
    seconds_fit: float
    us_per_query: float
    profile: evaluation.TreeProfile | None


def _run_on_blocks(
    estimator: Any, path: str, options: ReadOptions, block_rows: int, holdout: float, seed: int
) -> _BlocksRun:
    """Train an estimator on a file's training rows, then evaluate it on the held-out rows."""
    estimator, seconds, answers, right, n_train = evaluation.seeded(estimator, seed), [0.0, 0.0], [], [], 0
    for learning in (True, False):
        draws = np.random.default_rng(seed)  # both passes draw the same held-out rows
        for batch in open_data(path, options).batches(block_rows):
            chosen = (draws.random(batch.X.shape[0]) < holdout) != learning
            if not chosen.any():
                continue
            X, y = batch.X[np.flatnonzero(chosen)], batch.y[chosen]
            started = time.perf_counter()
            if learning:
                estimator.partial_fit(X, y)
                n_train += y.size
            else:
                answers.append(estimator.predict(X))
                right.append(y)
            seconds[learning] += time.perf_counter() - started
    if not right or n_train == 0:
        raise ValueError(
            f"holdout={holdout} leaves no training rows or no test rows; change holdout, or pass more rows"
        )
    n_test = sum(y.size for y in right)
    metrics = evaluation.held_out_metrics(
        "multiclass", estimator, None, np.concatenate(right), np.concatenate(answers), None
    )
    shape = None if trees_of(estimator) is None else evaluation.profile(estimator)
    return _BlocksRun(metrics, n_train, n_test, seconds[True], 1e6 * seconds[False] / n_test, shape)


def _result_of_blocks(runs: list[_BlocksRun]) -> evaluation.BatchResult:
    last, per_seed = runs[-1], [run.metrics for run in runs]
    return evaluation.BatchResult(
        task="multiclass",
        n_train=last.n_train,
        n_test=last.n_test,
        metrics={name: evaluation.mean_and_deviation([one[name] for one in per_seed]) for name in per_seed[0]},
        per_seed=per_seed,
        seconds_fit=float(np.median([run.seconds_fit for run in runs])),
        us_per_query=float(np.median([run.us_per_query for run in runs])),
        by_probes={},
        profile=last.profile,
    )


def _answers(
    function: Callable[..., Any], calls: dict[Any, tuple[Any, ...]], options: dict[str, Any] | None, progress: bool
) -> dict[Any, Any]:
    """Run ``function`` in a Ray task for each entry of ``calls``, and return the results by key."""
    module = running()
    task = module.remote(function)
    if options:
        task = task.options(**options)
    waiting = {task.remote(*arguments): key for key, arguments in calls.items()}
    answers = {}
    try:
        with progress_bar(len(waiting), "run", progress) as report:
            while waiting:
                for ref in module.wait(list(waiting), num_returns=1)[0]:
                    answers[waiting.pop(ref)] = _value(ref)
                    report(1)
    finally:
        for ref in waiting:  # tasks remain only after an error or an interrupt
            module.cancel(ref, force=True)
    return answers


def _value(ref: Any) -> Any:
    """Return the result of a task, or raise its error."""
    module = running()
    try:
        return module.get(ref)
    except module.exceptions.RayTaskError as error:
        if isinstance(error.cause, Exception):
            raise error.cause from error
        raise

"""Evaluation on Ray: every run of every setting is a task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .._concurrency.workers import progress_bar
from ..evaluation import BatchResult
from ..evaluation._batch import Run, checked_data, plan_of, result_of, run_of
from ..evaluation._rivals import Split, check_rivals
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
) -> dict[str, BatchResult]:
    """Evaluate several estimators, or settings of one, with several seeds and folds, as tasks of Ray.

    The measures are those of :func:`cmt_numba.evaluation.batch_evaluation` for each of them, bit for bit: a run depends
    on its seed alone, wherever it is. Times are those of processes that share the machine.

    Parameters
    ----------
    estimators : mapping of str to estimator
        What to evaluate, by names of your choice.
    X, y, X_test, y_test
        As for :func:`~cmt_numba.evaluation.batch_evaluation`. They are put into Ray's object store once.
    holdout, folds, seeds, n_passes, probes, rivals, texts, texts_test, details
        As for :func:`~cmt_numba.evaluation.batch_evaluation`. Rivals are measured in this process.
    progress : bool, default False
        Show one progress bar for the runs of all estimators.
    address : str, optional
        The address of a cluster; see :func:`start`, which is called if Ray is not running in this process.
    task_options : dict, optional
        Options of Ray for the tasks, such as ``{"num_cpus": 2, "memory": 4e9}``.

    Returns
    -------
    dict of str to BatchResult
        The results, by the names of the estimators.

    Raises
    ------
    ImportError
        If Ray is not installed.
    TypeError, ValueError
        If an argument is invalid; or what an estimator has raised.
    ClusterError
        If this process has lost its connection to the cluster.

    Examples
    --------
    >>> settings = {str(c): CMTClassifier(aggressiveness=c) for c in (0.3, 1.0)}  # doctest: +SKIP
    >>> evaluate(settings, X, y)["0.3"].metrics["error"]  # doctest: +SKIP
    (0.182, 0.004)
    """
    if not estimators:
        raise ValueError("estimators must hold at least one estimator")
    given: dict[str, Any] = {"holdout": holdout, "folds": folds, "seeds": seeds, "n_passes": n_passes}
    given |= {"probes": probes, "details": details}
    plans = {name: plan_of(estimator, y, **given) for name, estimator in estimators.items()}
    data = Split(X, X_test, y, y_test, texts, texts_test)
    for plan in plans.values():
        data = checked_data(data, plan)
        rivals = check_rivals(rivals, plan.task, texts)
    start(address)
    module = running()
    task, shared = module.remote(run_of), module.put(data)
    if task_options:
        task = task.options(**task_options)
    runs: dict[str, list[Run | None]] = {name: [None] * len(plan.splits) for name, plan in plans.items()}
    waiting = {
        task.remote(plan, shared, number): (name, number)
        for name, plan in plans.items()
        for number in range(len(plan.splits))
    }
    try:
        with progress_bar(len(waiting), "run", progress) as report:
            while waiting:
                for ref in module.wait(list(waiting), num_returns=1)[0]:
                    name, number = waiting.pop(ref)
                    runs[name][number] = _value(ref)
                    report(1)
    finally:
        for ref in waiting:  # after an error or an interrupt
            module.cancel(ref, force=True)
    return {
        name: result_of(plan, data, [run for run in runs[name] if run is not None], rivals, progress=progress)
        for name, plan in plans.items()
    }


def _value(ref: Any) -> Any:
    """Return the answer of a task; raise what it has raised."""
    module = running()
    try:
        return module.get(ref)
    except module.exceptions.RayTaskError as error:
        if isinstance(error.cause, Exception):
            raise error.cause from error
        raise

"""Evaluation of estimators in Ray tasks, one for each run."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .. import evaluation
from .._change import progress_bar
from ._cluster import running, start


def evaluate(
    estimators: Mapping[str, Any],
    X: Any,
    y: Any,
    X_test: Any = None,
    y_test: Any = None,
    *,
    rivals: Sequence[str] = (),
    texts: Sequence[str] | None = None,
    texts_test: Sequence[str] | None = None,
    progress: bool = False,
    address: str | None = None,
    task_options: dict[str, Any] | None = None,
    **options: Any,
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
    rivals, texts, texts_test
        Parameters of :func:`~cmt_numba.evaluation.batch_evaluation`. Rivals are evaluated in this process.
    progress : bool, default False
        Whether to show a progress bar for all runs.
    address : str, optional
        The address of a cluster, passed to :func:`start` unless this process is already connected to Ray.
    task_options : dict, optional
        Ray options for the tasks, such as ``{"num_cpus": 2, "memory": 4e9}``.
    **options
        Other parameters of :func:`~cmt_numba.evaluation.batch_evaluation`, such as ``folds`` and ``seeds``.

    Examples
    --------
    >>> settings = {str(c): CMTClassifier(aggressiveness=c) for c in (0.3, 1.0)}  # doctest: +SKIP
    >>> evaluate(settings, X, y)["0.3"].metrics["error"]  # doctest: +SKIP
    (0.182, 0.004)
    """
    if not estimators:
        raise ValueError("estimators must contain at least one estimator")
    plans = {name: evaluation.plan_of(estimator, y, **options) for name, estimator in estimators.items()}
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
    module = running()
    try:
        return module.get(ref)
    except module.exceptions.RayTaskError as error:
        if isinstance(error.cause, Exception):
            raise error.cause from error
        raise

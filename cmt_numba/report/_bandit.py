"""Reports of off-policy evaluations."""

from functools import partial
from os import PathLike
from typing import Any

import numpy as np

from .._display import ResultTable
from ..bandits.evaluation import Evaluation, PolicyComparison
from ._page import FIRST, SECOND, Drawing, new_axes, write_page


def intervals_of(
    result: Evaluation, method: str = "bootstrap", confidence: float = 0.95, random_state: Any = 0
) -> list[dict[str, Any]]:
    """Return each estimate with the bounds of an interval, by bootstrap if it does not support ``method``."""
    rows = []
    for name, found in result.estimates.items():
        used = method if found.has_interval(method) else "bootstrap"
        low, high = found.interval(used, confidence=confidence, random_state=random_state)
        rows.append({"estimator": name, "value": found.value, "low": low, "high": high, "interval": used})
    return rows


def bandit_tables(result: Evaluation, intervals: list[dict[str, Any]]) -> list[ResultTable]:
    """Return the tables of an off-policy evaluation and of its intervals (see :func:`intervals_of`)."""
    summary = (
        ("rows", result.n_rows),
        ("mean reward of the log", f"{result.logged:.4f}"),
        ("effective sample size", f"{result.effective_sample_size:,.1f}"),
        ("mean weight", f"{result.mean_weight:.4f}"),
        ("share of rows with propensities below tau", f"{result.clipped:.1%}"),
    )
    rows = [row | {name: f"{row[name]:.4f}" for name in ("value", "low", "high")} for row in intervals]
    tables = [ResultTable.of_records("Mean reward of the policy", rows), ResultTable.of_pairs("Log", summary)]
    if result.advice:
        tables.append(ResultTable("Advice", [[advice] for advice in result.advice]))
    return tables


def write_bandit_report(
    path: str | PathLike[str],
    result: Evaluation,
    *,
    interval: str = "bootstrap",
    confidence: float = 0.95,
    title: str = "Off-policy evaluation",
    command: str | None = None,
    random_state: Any = 0,
) -> None:
    """Write an off-policy evaluation as an HTML page. Requires matplotlib and jinja2 (the extra ``cli``).

    Parameters
    ----------
    path : path-like
        The file to write.
    result : Evaluation
        The result of :func:`cmt_numba.bandits.evaluation.evaluate` for one policy.
    interval : {"betting", "bernstein", "chernoff", "bootstrap", "normal"}, default "bootstrap"
        The type of confidence interval. Estimators that do not support it get a bootstrap interval.
    confidence : float, default 0.95
        The confidence level of the intervals.
    title : str, default "Off-policy evaluation"
        The heading, such as the names of the policy and the log.
    command : str, optional
        The command that produced the result, to show on the page.
    random_state : int, default 0
        The seed of the bootstrap.
    """
    if isinstance(result, PolicyComparison):
        name = next(iter(result.evaluations))
        raise TypeError(f"result must be the evaluation of one policy, but it contains several: pass result[{name!r}]")
    rows = intervals_of(result, interval, confidence, random_state)
    best = next((row for row in rows if row["estimator"] == "snips"), rows[0])
    write_page(
        path,
        result,
        title=title,
        kind="Off-policy evaluation: the mean reward of a policy, estimated from the log of another policy.",
        headline=f"Mean reward {best['value']:.4f} ({best['low']:.4f} to {best['high']:.4f}, {best['estimator']}); "
        f"the mean reward of the log is {result.logged:.4f}.",
        figures=[partial(_estimates, rows, confidence), _weights],
        tables=bandit_tables(result, rows),
        command=command,
    )


def _estimates(rows: list[dict[str, Any]], confidence: float, result: Evaluation) -> Drawing:
    axes = new_axes()
    places = np.arange(len(rows))
    for place, row in zip(places, rows, strict=True):
        axes.plot([row["low"], row["high"]], [place, place], color=FIRST, linewidth=2)
        axes.plot([row["value"]], [place], color=FIRST, marker="o")
    axes.axvline(result.logged, color=SECOND, linestyle="--", linewidth=1.2, label="mean reward of the log")
    axes.set_yticks(places, [row["estimator"] for row in rows])
    axes.invert_yaxis()
    axes.set(xlabel="mean reward")
    axes.legend()
    caption = (
        f"Estimates of the policy's mean reward with {confidence:.0%} intervals. The dashed line is the mean reward of "
        f"the log, {result.logged:.4f}."
    )
    return Drawing("estimates", "Estimates of the mean reward", caption, axes)


def _weights(result: Evaluation) -> Drawing:
    """Plot the cumulative share of the importance weights, in descending order."""
    weights = np.sort(result.estimates["ips"].weights)[::-1]
    total = float(weights.sum()) or 1.0
    shares = np.concatenate([[0.0], np.cumsum(weights) / total])
    kept = np.unique(np.linspace(0, weights.size, 201).astype(int))

    axes = new_axes()
    axes.plot(kept / weights.size, shares[kept], color=FIRST, linewidth=2)
    axes.plot([0, 1], [0, 1], color=SECOND, linestyle="--", linewidth=1.2, label="equal weights")
    axes.set(xlabel="share of rows, by descending weight", ylabel="share of the total weight")
    axes.set_ylim(0.0, 1.02)
    axes.legend(loc="lower right")
    caption = (
        f"Share of the total importance weight by share of rows. The {result.n_rows:,} rows are worth "
        f"{result.effective_sample_size:,.0f} rows logged by the policy itself. The largest weight is {weights[0]:.3g}."
    )
    return Drawing("weights", "Importance weights", caption, axes)

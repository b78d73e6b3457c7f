"""Reports of off-policy evaluations."""

from __future__ import annotations

from os import PathLike
from typing import Any

import numpy as np

from ..bandits.evaluation import Evaluation
from ._figures import FIRST, SECOND, Drawing, drawing
from ._page import PageTable, require_libraries, write_page


def intervals_of(
    result: Evaluation, method: str = "bootstrap", confidence: float = 0.95, random_state: Any = 0
) -> list[dict[str, Any]]:
    """Return the estimates of an evaluation with their intervals, using the bootstrap if a bound does not hold.

    Parameters
    ----------
    result : Evaluation
        The evaluation.
    method : {"betting", "bernstein", "chernoff", "bootstrap", "normal"}, default "bootstrap"
        See :meth:`~cmt_numba.bandits.evaluation.Estimate.interval`.
    confidence : float, default 0.95
        Confidence level of the intervals.
    random_state : int, default 0
        Seed of the bootstrap.

    Returns
    -------
    list of dict
        With ``estimator``, ``value``, ``low``, ``high`` and ``interval``, the method.
    """
    rows = []
    for name, found in result.estimates.items():
        used = method if found.has_interval(method) else "bootstrap"
        low, high = found.interval(used, confidence=confidence, random_state=random_state)
        rows.append({"estimator": name, "value": found.value, "low": low, "high": high, "interval": used})
    return rows


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
        The return value of :func:`cmt_numba.bandits.evaluation.evaluate`.
    interval : {"bernstein", "chernoff", "bootstrap", "normal"}, default "bootstrap"
        Kind of intervals; the bootstrap is used if a bound does not hold.
    confidence : float, default 0.95
        Confidence level of the intervals.
    title : str, default "Off-policy evaluation"
        Heading, such as the name of the policy and of the log.
    command : str, optional
        The command that produced the result, shown on the page.
    random_state : int, default 0
        Seed of the bootstrap.

    Raises
    ------
    ImportError
        If matplotlib or jinja2 is missing.
    OSError
        If the file cannot be written.
    TypeError, ValueError
        If an argument cannot be used.
    """
    rows = intervals_of(result, interval, confidence, random_state)
    require_libraries()
    summary = (
        ("rows", f"{result.n_rows:,}"),
        ("mean reward of the log", f"{result.logged:.4f}"),
        ("effective sample size", f"{result.effective_sample_size:,.1f}"),
        ("mean weight", f"{result.mean_weight:.4f}"),
        ("share of rows with propensities below tau", f"{result.clipped:.1%}"),
    )
    estimates = [
        [str(row["estimator"]), *(f"{row[name]:.4f}" for name in ("value", "low", "high")), str(row["interval"])]
        for row in rows
    ]
    tables = [
        PageTable("Mean reward of the policy", estimates, ("estimator", "value", "low", "high", "interval")),
        PageTable("Log", summary),
    ]
    if result.advice:
        tables.append(PageTable("Advice", [[advice] for advice in result.advice]))
    best = next((row for row in rows if row["estimator"] == "snips"), rows[0])
    write_page(
        path,
        title=title,
        kind="Off-policy evaluation: what a policy would have earned, from the log of another one.",
        headline=f"Mean reward {best['value']:.4f} ({best['low']:.4f} to {best['high']:.4f}, {best['estimator']}); "
        f"the log has {result.logged:.4f}.",
        figures=[_estimates(result, rows, confidence), _weights(result)],
        tables=tables,
        command=command,
    )


def _estimates(result: Evaluation, rows: list[dict[str, Any]], confidence: float) -> Drawing:
    """Draw the estimates with their intervals, and the mean reward of the log."""

    def draw(axes: Any) -> None:
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
        f"Estimates of the mean reward of the policy with {confidence:.0%} intervals. The dashed line is what the log "
        f"earned, {result.logged:.4f}."
    )
    return drawing("estimates", "Estimates of the mean reward", caption, draw)


def _weights(result: Evaluation) -> Drawing:
    """Draw the share of the total weight that the rows with the largest weights have."""
    weights = np.sort(result.estimates["ips"].weights)[::-1]
    total = float(weights.sum()) or 1.0
    shares = np.concatenate([[0.0], np.cumsum(weights) / total])
    kept = np.unique(np.linspace(0, weights.size, 201).astype(int))

    def draw(axes: Any) -> None:
        axes.plot(kept / weights.size, shares[kept], color=FIRST, linewidth=2)
        axes.plot([0, 1], [0, 1], color=SECOND, linestyle="--", linewidth=1.2, label="all rows weigh the same")
        axes.set(xlabel="share of the rows, the largest weights first", ylabel="share of all weight")
        axes.set_ylim(0.0, 1.02)
        axes.legend(loc="lower right")

    caption = (
        f"Share of the importance weight by share of the rows. The {result.n_rows:,} rows tell as much as "
        f"{result.effective_sample_size:,.0f} rows of the policy itself; the largest weight is {weights[0]:.3g}."
    )
    return drawing("weights", "Importance weights", caption, draw)

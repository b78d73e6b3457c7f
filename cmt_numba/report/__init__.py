"""Reports of evaluations as self-contained HTML files with tables and plots, but without scripts."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Any

from .._display import format_value
from ..evaluation import BatchResult, ProgressiveResult, TreeProfile
from . import _figures
from ._bandit import intervals_of, write_bandit_report
from ._display import (
    METRICS,
    confused_rows,
    metric_pairs,
    probe_columns,
    profile_pairs,
    result_pairs,
    rival_rows,
    shown_profile,
)
from ._figures import Drawing
from ._page import PageTable, require_libraries, write_page

__all__ = ["write_bandit_report", "write_report"]

_MOST_OF_MEASURES = 20.0
_COLUMNS = {"us_per_query": "microseconds per query", "n_examples": "examples"}

COMPARISON, MISTAKES, LEAVES = "Comparison", "Most frequent mistakes", "By number of leaves searched"
"""The titles of tables."""


def write_report(
    path: str | PathLike[str],
    result: ProgressiveResult | BatchResult,
    *,
    title: str = "Evaluation",
    command: str | None = None,
    profile: TreeProfile | None = None,
) -> None:
    """Write the result of an evaluation as an HTML page. Requires matplotlib and jinja2 (the extra ``cli``).

    Parameters
    ----------
    path : path-like
        The file to write.
    result : ProgressiveResult or BatchResult
        The result.
    title : str, default "Evaluation"
        The heading, such as the name of the data.
    command : str, optional
        The command that produced the result, to show on the page.
    profile : TreeProfile, optional
        The shape of the trees (default: ``result.profile``, if the result has one). Small trees are not shown.
    """
    if profile is None and isinstance(result, BatchResult):
        profile = result.profile
    profile = shown_profile(profile)
    require_libraries()
    write_page(
        path,
        title=title,
        kind=_kind(result),
        headline=_headline(result),
        figures=_drawings(result, profile),
        tables=_tables(result, profile),
        command=command,
    )


def _kind(result: ProgressiveResult | BatchResult) -> str:
    if isinstance(result, ProgressiveResult):
        return f"Progressive validation, {result.task}: each example is predicted before it is learned."
    runs = "one run" if len(result.per_seed) == 1 else f"means over {len(result.per_seed)} runs with different seeds"
    return f"Batch evaluation, {result.task}, on held-out examples; {runs}."


def _headline(result: ProgressiveResult | BatchResult) -> str:
    name, value = next(iter(result.metrics.items()))
    measure = METRICS.get(name, name)
    measure = measure[:1].upper() + measure[1:]
    if isinstance(value, tuple):
        value = value[0]
    n = result.n_examples if isinstance(result, ProgressiveResult) else result.n_test
    return f"{measure} {value:.4f} on {n:,} examples, {result.us_per_query:.3g} microseconds per query."


def _drawings(result: ProgressiveResult | BatchResult, profile: TreeProfile | None) -> list[Drawing]:
    drawings = []
    if isinstance(result, ProgressiveResult):
        drawings.append(_figures.learning_curve(result))
        if result.by_shots:
            drawings.append(_figures.error_by_shots(result))
    else:
        if probe_columns(result):
            drawings.append(_figures.error_by_time(result))
        if result.calibration:
            drawings.append(_figures.calibration(result.calibration))
    if profile is not None:
        drawings += [_figures.leaf_depths(profile), _figures.leaf_sizes(profile)]
    return drawings


def _tables(result: ProgressiveResult | BatchResult, profile: TreeProfile | None) -> list[PageTable]:
    tables = [PageTable("Quality", metric_pairs(result)), PageTable("Size and time", _formatted(result_pairs(result)))]
    if profile is not None:
        tables.append(PageTable("Trees", _formatted(profile_pairs(profile))))
    if isinstance(result, BatchResult):
        for caption, rows in ((COMPARISON, rival_rows(result)), (MISTAKES, confused_rows(result))):
            if rows:
                tables.append(
                    PageTable(caption, [list(map(format_value, row.values())) for row in rows], list(rows[0]))
                )
        if columns := probe_columns(result):
            tables.append(_columns(LEAVES, columns))
        seeds = {name: [one[name] for one in result.per_seed] for name in result.per_seed[0]}
        tables.append(_columns("Each run", {"run": list(range(1, len(result.per_seed) + 1)), **seeds}))
    else:
        name = next(iter(result.metrics))
        shown = ("n_examples", name, f"{name}_recent")
        tables.append(_columns("Learning curve", {key: result.curve[key][::-1][::6][::-1] for key in shown}))
    return tables


def _columns(caption: str, columns: dict[str, list[Any]]) -> PageTable:
    rows = zip(*columns.values(), strict=True)
    header = [_COLUMNS.get(name, name.replace("_recent", ", recent").replace("_", " ")) for name in columns]
    return PageTable(caption, [[_cell(value) for value in row] for row in rows], header)


def _cell(value: float) -> str:
    """Format a number for a table column. Metrics have 4 decimals."""
    return f"{value:.4f}" if isinstance(value, float) and abs(value) < _MOST_OF_MEASURES else format_value(value)


def _formatted(pairs: Sequence[tuple[str, Any]]) -> list[tuple[str, str]]:
    return [(name, format_value(value)) for name, value in pairs]

"""Results as tables on the terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..evaluation import BatchResult, ProgressiveResult, TreeProfile
from ..evaluation._display import confused_rows, format_value, metric_pairs, profile_pairs, result_pairs, rival_rows
from ..formats import ReadOptions
from ..formats._kinds import kinds_of
from ._outputs import printable


def show_pairs(console: Console, title: str, pairs: Iterable[tuple[str, Any]]) -> None:
    """Print a table of names and values."""
    table = Table(show_header=False)
    for name, value in pairs:
        table.add_row(name, Text(printable(format_value(value))))
    _print(console, title, table)


def _print(console: Console, title: str, table: Table) -> None:
    console.print(printable(title), style="bold", highlight=False, markup=False, soft_wrap=True)
    console.print(table)


def show_kinds(options: ReadOptions, console: Console) -> None:
    """Print the kinds of the columns of a table, if they have some."""
    if options.kinds:
        text = f"Columns: {listed_kinds(options)}. --kind COLUMN=KIND chooses another kind."
        console.print(printable(text), highlight=False, markup=False, soft_wrap=True)


def listed_kinds(options: ReadOptions) -> str:
    """Return the columns of a table with their kinds, in one line."""
    kinds = [f"{name} ({kind})" for name, kind in kinds_of(options.kinds or ()).items()]
    return ", ".join([*kinds, f"{options.label} (label)"])


def show_table(console: Console, title: str, rows: list[dict[str, Any]]) -> None:
    """Print a table with a column for each name."""
    table = Table(*rows[0])
    for row in rows:
        table.add_row(*(Text(printable(format_value(value))) for value in row.values()))
    _print(console, title, table)


def show_result(console: Console, result: ProgressiveResult | BatchResult, profile: TreeProfile | None) -> None:
    """Print the tables of an evaluation."""
    show_pairs(console, "Quality", metric_pairs(result))
    show_pairs(console, "Work", result_pairs(result))
    if isinstance(result, BatchResult):
        for title, rows in (("Rivals", rival_rows(result)), ("Most confused", confused_rows(result))):
            if rows:
                show_table(console, title, rows)
    if isinstance(result, BatchResult) and result.by_probes:
        table = Table(*result.by_probes)
        for row in zip(*result.by_probes.values(), strict=True):
            table.add_row(*map(format_value, row))
        _print(console, "By number of leaves searched", table)
    if isinstance(result, ProgressiveResult):
        _show_curve(console, result)
    if profile is not None:
        show_pairs(console, "Trees", profile_pairs(profile))


def _show_curve(console: Console, result: ProgressiveResult) -> None:
    name = next(iter(result.metrics))
    table = Table("examples", f"{name} so far", f"{name} recent")
    points = list(zip(result.curve["n_examples"], result.curve[name], result.curve[f"{name}_recent"], strict=True))
    step = max(1, len(points) // 8)
    for n, so_far, recent in points[::-1][::step][::-1]:
        table.add_row(f"{n:,}", f"{so_far:.4f}", f"{recent:.4f}")
    _print(console, "Learning curve", table)

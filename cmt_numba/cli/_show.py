"""Tables of models and results for the terminal."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .._display import format_value
from ..estimators import trees_of
from ..evaluation import BatchResult, ProgressiveResult, TreeProfile, profile
from ..report import (
    COMPARISON,
    LEAVES,
    MISTAKES,
    confused_rows,
    metric_pairs,
    probe_columns,
    profile_pairs,
    result_pairs,
    rival_rows,
    shown_profile,
)
from ._model_files import Model
from ._outputs import printable
from ._tables import print_table, show_pairs


def show_table(console: Console, title: str, rows: list[dict[str, Any]]) -> None:
    """Print rows as a table. The keys of the first row are the column names."""
    table = Table(*rows[0])
    for row in rows:
        table.add_row(*(Text(printable(format_value(value))) for value in row.values()))
    print_table(console, title, table)


def show_result(console: Console, result: ProgressiveResult | BatchResult, shape: TreeProfile | None) -> None:
    """Print the tables of an evaluation."""
    show_pairs(console, "Quality", metric_pairs(result))
    show_pairs(console, "Size and time", result_pairs(result))
    if isinstance(result, BatchResult):
        for title, rows in ((COMPARISON, rival_rows(result)), (MISTAKES, confused_rows(result))):
            if rows:
                show_table(console, title, rows)
        if columns := probe_columns(result):
            table = Table(*columns)
            for row in zip(*columns.values(), strict=True):
                table.add_row(*map(format_value, row))
            print_table(console, LEAVES, table)
    if isinstance(result, ProgressiveResult):
        _show_curve(console, result)
    if (shown := shown_profile(shape)) is not None:
        show_pairs(console, "Trees", profile_pairs(shown))


def _show_curve(console: Console, result: ProgressiveResult) -> None:
    name = next(iter(result.metrics))
    table = Table("examples", f"{name} so far", f"recent {name}")
    points = list(zip(result.curve["n_examples"], result.curve[name], result.curve[f"{name}_recent"], strict=True))
    step = max(1, len(points) // 8)
    for n, so_far, recent in points[::-1][::step][::-1]:
        table.add_row(f"{n:,}", f"{so_far:.4f}", f"{recent:.4f}")
    print_table(console, "Learning curve", table)


def show_model(console: Console, name: str, model: Model) -> None:
    """Print a description of a model, its non-default parameters and, for large trees, their shape."""
    described = describe_model(model)
    show_pairs(console, f"{name}: model", described["model"].items())
    usual = type(model.estimator)().get_params()
    changed = {name: value for name, value in described["parameters"].items() if value != usual.get(name)}
    if changed:
        show_pairs(console, "Non-default parameters", changed.items())
    shape = shown_profile(None if trees_of(model.estimator) is None else profile(model.estimator))
    if shape is not None:
        show_pairs(console, "Trees", profile_pairs(shape))


def describe_model(model: Model) -> dict[str, dict[str, Any]]:
    """Return a description of a model, its parameters, and the shape of its trees."""
    estimator = model.estimator
    return {
        "model": {
            "estimator": type(estimator).__name__,
            "version": model.version,
            "task": model.options.task,
            "data format": model.options.format,
            **({} if model.vectorizer is None else {"keys": type(model.vectorizer).__name__}),
            **({"features": int(estimator.n_features_in_)} if hasattr(estimator, "n_features_in_") else {}),
            "classes": int(estimator.classes_.size),
        },
        "parameters": estimator.get_params(),
        "trees": {} if trees_of(estimator) is None else profile(estimator).as_dict(),
    }

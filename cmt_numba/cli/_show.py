"""Descriptions of data, models and results, as tables on the terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import scipy.sparse
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..evaluation import BatchResult, ProgressiveResult, TreeProfile, profile
from ..formats import Batch, ReadOptions, kinds_of
from ..report import confused_rows, format_value, metric_pairs, profile_pairs, result_pairs, rival_rows
from ._model_files import Model
from ._outputs import printable
from ._streams import Stream


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


def show_result(console: Console, result: ProgressiveResult | BatchResult, shape: TreeProfile | None) -> None:
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
    if shape is not None:
        show_pairs(console, "Trees", profile_pairs(shape))


def _show_curve(console: Console, result: ProgressiveResult) -> None:
    name = next(iter(result.metrics))
    table = Table("examples", f"{name} so far", f"{name} recent")
    points = list(zip(result.curve["n_examples"], result.curve[name], result.curve[f"{name}_recent"], strict=True))
    step = max(1, len(points) // 8)
    for n, so_far, recent in points[::-1][::step][::-1]:
        table.add_row(f"{n:,}", f"{so_far:.4f}", f"{recent:.4f}")
    _print(console, "Learning curve", table)


def describe_data(batches: Stream, task: str | None) -> dict[str, Any]:
    """Return statistics of the rows and labels of a file, from a single pass."""
    n_cells = 0
    counts: dict[Any, int] = {}
    n_features, sparse, n_empty = 0, False, 0
    for batch in batches:
        n_features, sparse = batch.X.shape[1], scipy.sparse.issparse(batch.X)
        n_cells += batch.X.count_nonzero() if sparse else int(np.count_nonzero(batch.X))
        n_empty += _count_labels(batch, counts)
    n_labelled = sum(counts.values())
    most = max(counts, key=lambda label: counts[label]) if counts else None
    described = {
        "task": task,
        "rows": batches.n_rows,
        "features": n_features,
        "sparse": sparse,
        "features a row": n_cells / batches.n_rows,
        "density": n_cells / (batches.n_rows * n_features),
        "labels" if task == "multilabel" else "classes": len(counts),
        "examples of each, mean": n_labelled / len(counts) if counts else None,
        "examples of each, median": float(np.median(list(counts.values()))) if counts else None,
        "most frequent": None if most is None else str(most),
        "examples of the most frequent": None if most is None else counts[most],
    }
    if task == "multilabel":
        described |= {"labels a row": n_labelled / batches.n_rows, "rows without labels": n_empty}
    return described


def _count_labels(batch: Batch, counts: dict[Any, int]) -> int:
    """Add the labels of a batch to the counts, and return the number of rows without labels."""
    if batch.y is None:
        return 0
    sparse = scipy.sparse.issparse(batch.y)
    labels, n = np.unique(batch.y.indices if sparse else batch.y, return_counts=True)
    for label, count in zip(labels.tolist(), n.tolist(), strict=True):
        counts[label] = counts.get(label, 0) + count
    return int(np.count_nonzero(np.diff(batch.y.indptr) == 0)) if sparse else 0


def describe_model(model: Model) -> dict[str, dict[str, Any]]:
    """Return the type of a model, its parameters, and the shape of its trees."""
    estimator = model.estimator
    grown = estimator.forest_.n_memories > 0  # false if no example had a label
    return {
        "model": {
            "estimator": type(estimator).__name__,
            "version": model.version,
            "task": model.options.task,
            "format of the data": model.options.format,
            **({} if model.vectorizer is None else {"keys": type(model.vectorizer).__name__}),
            "features": int(estimator.n_features_in_),
            "classes": int(estimator.classes_.size),
        },
        "parameters": estimator.get_params(),
        "trees": profile(estimator).as_dict() if grown else {},
    }

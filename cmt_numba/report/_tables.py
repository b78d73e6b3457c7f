"""Tables of results for the terminal and for reports."""

import math
from collections.abc import Mapping
from typing import Any

from .._display import ResultTable, format_value
from ..evaluation import MAIN_METRIC, BatchResult, ProgressiveResult

MEASURES = {
    "error": "error",
    "accuracy": "accuracy",
    "constant_accuracy": "accuracy of always predicting the most frequent class",
    "entropy_reduction": "entropy reduction over the most frequent class, bits",
    "majority_accuracy": "accuracy of predicting the most frequent class so far",
    "entropy_reduction_over_majority": "entropy reduction over the most frequent class so far, bits",
    "hamming": "wrong labels per row",
    "f1": "F1 of all labels",
    "f1_samples": "mean F1 of rows",
    "reward": "reward",
}
"""Descriptions of metrics. Other metrics are shown by name."""

_ROWS_OF_CURVE = 8

_RIVALS = {
    "estimator": "this model, last run",
    "majority": "most frequent class",
    "exact": "nearest example",
    "means": "nearest class mean",
    "linear": "linear model",
    "bm25": "BM25",
}


def headline_of(result: ProgressiveResult | BatchResult) -> str:
    """Return a sentence with the main metric of an evaluation and the time of a query."""
    metrics: dict[str, Any] = result.metrics
    name, value = next(iter(metrics.items()))
    value, n = (value[0], result.n_test) if isinstance(result, BatchResult) else (value, result.n_examples)
    measure = MEASURES.get(name, name)
    measure = measure[:1].upper() + measure[1:]
    return f"{measure} {value:.4f} on {n:,} examples, {result.us_per_query:.3g} microseconds per query."


def result_tables(result: ProgressiveResult | BatchResult) -> list[ResultTable]:
    """Return the tables of an evaluation."""
    tables = [
        ResultTable.of_pairs("Quality", _metric_pairs(result)),
        ResultTable.of_pairs("Size and time", _size_pairs(result)),
    ]
    if isinstance(result, ProgressiveResult):
        return [*tables, _learning_curve(result)]
    if result.rivals:
        tables.append(ResultTable.of_records("Comparison", _rival_records(result)))
    if result.confused:
        tables.append(ResultTable.of_records("Most frequent mistakes", _confused_records(result)))
    if len(result.per_seed) > 1:
        runs = [{"run": i, **_rounded(metrics)} for i, metrics in enumerate(result.per_seed, 1)]
        tables.append(ResultTable.of_records("Each run", runs))
    return tables


def _learning_curve(result: ProgressiveResult) -> ResultTable:
    name = next(iter(result.metrics))
    columns = (result.curve["n_examples"], result.curve[name], result.curve[f"{name}_recent"])
    points = list(zip(*columns, strict=True))[:: -max(1, len(columns[0]) // _ROWS_OF_CURVE)][::-1]
    rows = [{"examples": n, **_rounded({name: so_far, f"{name}, recent": recent})} for n, so_far, recent in points]
    return ResultTable.of_records("Learning curve", rows)


def _rounded(metrics: Mapping[str, float]) -> dict[str, str]:
    return {name.replace("_", " "): f"{value:.4f}" for name, value in metrics.items()}


def _metric_pairs(result: ProgressiveResult | BatchResult) -> list[tuple[str, str]]:
    """Return the names and formatted values of a result's metrics, with standard deviations over several runs."""
    order = dict.fromkeys([*(name for name in MEASURES if name in result.metrics), *result.metrics])
    return [(MEASURES.get(name, name), _format_metric(result, result.metrics[name])) for name in order]


def _format_metric(result: ProgressiveResult | BatchResult, value: Any) -> str:
    mean, deviation = value if isinstance(result, BatchResult) else (value, 0.0)
    if mean == -math.inf:
        return "-inf (a run had no correct prediction)"
    has_runs = isinstance(result, BatchResult) and len(result.per_seed) > 1
    return f"{mean:.4f} ± {deviation:.4f}" if has_runs else f"{mean:.4f}"


def _format_time(value: float | None) -> str:
    """Format a time with three digits, or as "below 0.001" if it is shorter."""
    if value is None or value >= 100.0:
        return format_value(None if value is None else round(value))
    return f"{value:.3g}" if value >= 0.001 else "below 0.001"


def _size_pairs(result: ProgressiveResult | BatchResult) -> list[tuple[str, Any]]:
    """Return the names and values of a result's example counts and times."""
    if isinstance(result, ProgressiveResult):
        times = {"learn": result.seconds["learn"], "predict": result.seconds["predict"]}
        counts = [("examples", result.n_examples)]
    else:
        times = {"learn": result.seconds_fit}
        counts = [("training examples", result.n_train), ("test examples", result.n_test)]
        counts.append(("runs with different seeds", len(result.per_seed)))
    seconds = [(f"seconds to {name}", _format_time(value)) for name, value in times.items()]
    return [*counts, *seconds, ("microseconds per query", _format_time(result.us_per_query))]


def _rival_records(result: BatchResult) -> list[dict[str, Any]]:
    """Return the rows of the table that compares the model with its rivals. Omit the notes if no rival has one."""
    name = MEASURES.get(MAIN_METRIC[result.task], MAIN_METRIC[result.task])
    has_notes = any(one.note for one in result.rivals)
    return [
        {
            "classifier": _RIVALS[one.name],
            name: None if one.value is None else f"{one.value:.4f}",
            "seconds to learn": _format_time(one.seconds_fit),
            "microseconds per query": _format_time(one.us_per_query),
            **({"note": one.note} if has_notes else {}),
        }
        for one in result.rivals
    ]


def _confused_records(result: BatchResult) -> list[dict[str, Any]]:
    return [
        {
            "class": str(one.label),
            "predicted as": str(one.predicted),
            "count": one.n,
            "examples": "; ".join(row if isinstance(row, str) else f"row {row}" for row in one.examples),
        }
        for one in result.confused
    ]

"""Names and formats of results for the terminal and for reports."""

from __future__ import annotations

from typing import Any

from .._display import format_value
from ..evaluation import MAIN_METRIC, BatchResult, ProgressiveResult, TreeProfile

METRICS = {
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

_PROBES = {"n_probes": "leaves", "us_per_query": "microseconds per query"}

_FEWEST_MEMORIES = 1000  # minimum number of memories in trees whose shape is shown

_RIVALS = {
    "estimator": "this model, last run",
    "majority": "most frequent class",
    "exact": "nearest example",
    "means": "nearest class mean",
    "linear": "linear model",
    "bm25": "BM25",
}


def metric_pairs(result: ProgressiveResult | BatchResult) -> list[tuple[str, str]]:
    """Return the names and formatted values of a result's metrics, with standard deviations over several runs."""
    pairs = []
    order = [name for name in METRICS if name in result.metrics]
    for name in [*order, *(name for name in result.metrics if name not in METRICS)]:
        pairs.append((METRICS.get(name, name), _with_spread(result, result.metrics[name])))
    return pairs


def _with_spread(result: ProgressiveResult | BatchResult, value: Any) -> str:
    if not isinstance(result, BatchResult):
        return f"{value:.4f}"
    mean, deviation = value
    return f"{mean:.4f} ± {deviation:.4f}" if len(result.per_seed) > 1 else f"{mean:.4f}"


def format_time(value: float | None) -> str:
    """Format a time with three digits, or as "below 0.001" if it is shorter."""
    if value is None or value >= 100.0:
        return format_value(None if value is None else round(value))
    return f"{value:.3g}" if value >= 0.001 else "below 0.001"


def result_pairs(result: ProgressiveResult | BatchResult) -> list[tuple[str, Any]]:
    """Return the names and values of a result's example counts and times."""
    if isinstance(result, BatchResult):
        return [
            ("training examples", result.n_train),
            ("test examples", result.n_test),
            ("runs with different seeds", len(result.per_seed)),
            ("seconds to learn", format_time(result.seconds_fit)),
            ("microseconds per query", format_time(result.us_per_query)),
        ]
    return [
        ("examples", result.n_examples),
        ("seconds to learn", format_time(result.seconds["learn"])),
        ("seconds to predict", format_time(result.seconds["predict"])),
        ("microseconds per query", format_time(result.us_per_query)),
    ]


def rival_rows(result: BatchResult) -> list[dict[str, Any]]:
    """Return the rows of the table that compares the model with its rivals. Omit the notes if no rival has one."""
    name = METRICS.get(MAIN_METRIC[result.task], MAIN_METRIC[result.task])
    has_notes = any(one.note for one in result.rivals)
    return [
        {
            "classifier": _RIVALS[one.name],
            name: None if one.value is None else f"{one.value:.4f}",
            "seconds to learn": format_time(one.seconds_fit),
            "microseconds per query": format_time(one.us_per_query),
            **({"note": one.note} if has_notes else {}),
        }
        for one in result.rivals
    ]


def confused_rows(result: BatchResult) -> list[dict[str, Any]]:
    """Return the rows of the table of confused classes."""
    return [
        {
            "class": str(one.label),
            "predicted as": str(one.predicted),
            "count": one.n,
            "examples": "; ".join(row if isinstance(row, str) else f"row {row}" for row in one.examples),
        }
        for one in result.confused
    ]


def probe_columns(result: BatchResult) -> dict[str, list[Any]]:
    """Return the columns of the table of results by number of leaves searched.

    Return an empty dictionary if the number of leaves does not affect the result.
    """
    columns = {_PROBES.get(name, METRICS.get(name, name)): values for name, values in result.by_probes.items()}
    error = columns.get(METRICS.get(MAIN_METRIC[result.task], MAIN_METRIC[result.task]), [])
    return columns if len(set(error)) > 1 else {}


def shown_profile(profile: TreeProfile | None) -> TreeProfile | None:
    """Return the profile of trees if they are large enough for their shape to matter, or else None."""
    return profile if profile is not None and profile.n_memories >= _FEWEST_MEMORIES else None


def profile_pairs(profile: TreeProfile) -> list[tuple[str, Any]]:
    """Return the names and values of tree statistics."""
    return [
        ("memories", profile.n_memories),
        ("trees", profile.n_trees),
        ("depth", profile.depth),
        ("balance, from 0 to 1 (perfectly balanced)", profile.balance),
        ("size of the trees, bytes", profile.nbytes),
        ("largest leaf", len(profile.leaf_sizes) - 1),
    ]

"""Reports of evaluations as self-contained HTML files with tables and plots, but without scripts."""

from collections.abc import Sequence
from os import PathLike
from typing import Any

from .._display import ResultTable
from .._feedback import ExplainedResult, LearnedSummary
from ..evaluation import BatchResult, ProgressiveResult
from . import _figures
from ._bandit import bandit_tables, intervals_of, write_bandit_report
from ._figures import FIRST, Drawing, drawing
from ._page import require_libraries, write_page
from ._tables import MEASURES, result_tables

__all__ = ["write_bandit_report", "write_report"]


def write_report(
    path: str | PathLike[str],
    result: ProgressiveResult | BatchResult | LearnedSummary,
    *,
    title: str | None = None,
    command: str | None = None,
    explained: Sequence[ExplainedResult] = (),
) -> None:
    """Write the result of an evaluation, or what a memory has learned from rewards, as an HTML page.

    Requires matplotlib and jinja2 (the extra ``cli``).

    Parameters
    ----------
    path : path-like
        The file to write.
    result : ProgressiveResult, BatchResult or LearnedSummary
        The result, or the return value of ``learned`` of a store or a retriever.
    title : str, optional
        The heading, such as the name of the data.
    command : str, optional
        The command that produced the result, to show on the page.
    explained : list of ExplainedResult, optional
        The return value of ``explain`` of the memory, to show with a LearnedSummary.
    """
    require_libraries()
    if isinstance(result, LearnedSummary):
        _write_learned_report(path, result, explained, title or "Learned from rewards", command)
        return
    write_page(
        path,
        title=title or "Evaluation",
        kind=_kind(result),
        headline=_headline(result),
        figures=_drawings(result),
        tables=result_tables(result),
        command=command,
    )


def _kind(result: ProgressiveResult | BatchResult) -> str:
    if isinstance(result, ProgressiveResult):
        return f"Progressive validation, {result.task}: each example is predicted before it is learned."
    runs = "one run" if len(result.per_seed) == 1 else f"means over {len(result.per_seed)} runs with different seeds"
    return f"Batch evaluation, {result.task}, on held-out examples; {runs}."


def _headline(result: ProgressiveResult | BatchResult) -> str:
    metrics: dict[str, Any] = result.metrics
    name, value = next(iter(metrics.items()))
    value, n = (value[0], result.n_test) if isinstance(result, BatchResult) else (value, result.n_examples)
    measure = MEASURES.get(name, name)
    measure = measure[:1].upper() + measure[1:]
    return f"{measure} {value:.4f} on {n:,} examples, {result.us_per_query:.3g} microseconds per query."


def _drawings(result: ProgressiveResult | BatchResult) -> list[Drawing]:
    if isinstance(result, ProgressiveResult):
        return [_figures.learning_curve(result), *([_figures.error_by_shots(result)] if result.by_shots else [])]
    return [_figures.calibration(result.calibration)] if result.calibration else []


def _write_learned_report(
    path: str | PathLike[str],
    learned: LearnedSummary,
    explained: Sequence[ExplainedResult],
    title: str,
    command: str | None,
) -> None:
    """Write what a memory has learned from rewards as an HTML page, with the results of a query."""
    low, high = learned.interval
    weights = [[part.name, f"{part.weight:.3f}"] for part in learned.parts]
    tables = [ResultTable("Weights of the parts of a score", weights)]
    if explained:
        names = list(dict.fromkeys(name for result in explained for name in result.parts))
        rows = [
            [str(result.key), f"{result.score:.3f}", *(f"{result.parts.get(name, 0.0):.3f}" for name in names)]
            for result in explained
        ]
        tables.append(ResultTable("Results of a query", rows, ["memory", "score", *names]))
    write_page(
        path,
        title=title,
        kind="The parts of the scores of memories, weighted by how well they have predicted rewards.",
        headline=f"The first result earns {learned.gain:+.3f} more reward than the most similar memory ({low:+.3f} to "
        f"{high:+.3f}, {learned.n_rewards:.0f} queries with rewards). The model ranks {learned.share:.0%} of queries: "
        f"{learned.reason}.",
        figures=[_weights(learned)],
        tables=tables,
        command=command,
    )


def _weights(learned: LearnedSummary) -> Drawing:
    parts = [part for part in learned.parts if part.name != "constant"]

    def draw(axes: Any) -> None:
        axes.barh([part.name for part in parts], [part.weight for part in parts], color=FIRST)
        axes.invert_yaxis()
        axes.set(xlabel="weight")

    caption = "The weight of each part in the expected reward."
    return drawing("weights", "Weights of the parts", caption, draw)

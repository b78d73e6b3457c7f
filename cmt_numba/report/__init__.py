"""Reports of evaluations as self-contained HTML files with tables and plots, but without scripts."""

from collections.abc import Sequence
from os import PathLike
from typing import Any

from .._display import ResultTable
from .._feedback import ExplainedResult, LearnedSummary
from ..evaluation import BatchResult, ProgressiveResult
from . import _figures
from ._bandit import bandit_tables, intervals_of, write_bandit_report
from ._page import write_page
from ._tables import headline_of, result_tables

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
    if isinstance(result, LearnedSummary):
        page = _learned_page(result, explained)
    elif isinstance(result, ProgressiveResult):
        page = {
            "title": "Evaluation",
            "kind": f"Progressive validation, {result.task}: each example is predicted before it is learned.",
            "headline": headline_of(result),
            "figures": [_figures.learning_curve, *([_figures.error_by_shots] if result.by_shots else [])],
            "tables": result_tables(result),
        }
    else:
        n_runs = len(result.per_seed)
        runs = "one run" if n_runs == 1 else f"means over {n_runs} runs with different seeds"
        page = {
            "title": "Evaluation",
            "kind": f"Batch evaluation, {result.task}, on held-out examples; {runs}.",
            "headline": headline_of(result),
            "figures": [_figures.calibration] if result.calibration else [],
            "tables": result_tables(result),
        }
    page["title"] = title or page["title"]
    write_page(path, result, command=command, **page)


def _learned_page(learned: LearnedSummary, explained: Sequence[ExplainedResult]) -> dict[str, Any]:
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
    return {
        "title": "Learned from rewards",
        "kind": "The parts of the scores of memories, weighted by how well they have predicted rewards.",
        "headline": f"The first result earns {learned.gain:+.3f} more reward than the most similar memory ({low:+.3f} "
        f"to {high:+.3f}, {learned.n_rewards:.0f} queries with rewards). The model ranks {learned.share:.0%} of "
        f"queries: {learned.reason}.",
        "figures": [_figures.weights_of_parts],
        "tables": tables,
    }

"""The report of what a memory has learned from rewards."""

from collections.abc import Sequence
from os import PathLike

from .._display import ResultTable
from .._feedback import ExplainedResult, LearnedSummary
from ._figures import FIRST, Drawing, drawing
from ._page import require_libraries, write_page


def write_learned_report(
    path: str | PathLike[str],
    learned: LearnedSummary,
    explained: Sequence[ExplainedResult],
    title: str,
    command: str | None,
) -> None:
    """Write what a memory has learned from rewards as an HTML page, with the results of a query."""
    require_libraries()
    low, high = learned.interval
    tables = [
        ResultTable("Weights of the parts of a score", [[part.name, f"{part.weight:.3f}"] for part in learned.parts])
    ]
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
        f"{high:+.3f}, {learned.n_rewards:.0f} queries with rewards).",
        figures=[_weights(learned)],
        tables=tables,
        command=command,
    )


def _weights(learned: LearnedSummary) -> Drawing:
    """Plot the weights of the parts."""
    parts = [part for part in learned.parts if part.name != "constant"]

    def draw(axes: object) -> None:
        axes.barh([part.name for part in parts], [part.weight for part in parts], color=FIRST)  # type: ignore[attr-defined]
        axes.invert_yaxis()  # type: ignore[attr-defined]
        axes.set(xlabel="weight")  # type: ignore[attr-defined]

    caption = "The weight of each part of a score, in log-odds of a reward."
    return drawing("weights", "Weights of the parts", caption, draw)

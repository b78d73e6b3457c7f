"""Plots of error and of recall against time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from .curves import Dot, error_dots, frontier, recall_dots
from .results import Entrant, Results, SetResult
from .tables import by_peer

OURS = ("#c1272d", "#e8743b", "#8c1d40")
OTHERS = ("#1f4e79", "#2e8b9a", "#6b8e23", "#7a5195", "#7f7f7f", "#b8860b", "#4682b4", "#556b2f", "#a0527d", "#20639b")
MARKERS = "osD^vP<>Xd*"

PANELS: tuple[tuple[str, Callable[[list[Entrant]], list[Dot]]], ...] = (
    ("error", error_dots),
    ("recall@1", lambda entrants: recall_dots(entrants, 1)),
    ("recall@10", lambda entrants: recall_dots(entrants, 10)),
)


def plot_results(results: Results, path: Path) -> None:
    """Write a plot with a row for each set: error, and recall of the nearest and of the ten nearest, against time."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    n_sets = max(1, len(results.sets))
    figure = Figure(figsize=(15, 4.4 * n_sets), layout="constrained")
    FigureCanvasAgg(figure)
    rows = figure.subplots(n_sets, len(PANELS), squeeze=False)
    styles = _styles(results)
    for axes, (name, result) in zip(rows, results.sets.items(), strict=False):
        for axis, (label, view) in zip(axes, PANELS, strict=True):
            _plot(axis, result, label, view, styles)
        axes[0].set_title(name, loc="left", fontweight="bold")
    handles = {line.get_label(): line for axis in rows.flat for line in axis.get_lines()}
    if handles:
        figure.legend(handles.values(), handles, loc="outside lower center", ncols=6, frameon=False)
    figure.savefig(path, dpi=130)


def _styles(results: Results) -> dict[str, dict[str, Any]]:
    """Return how each peer is drawn, the same on all sets: ours in warm colours and thick lines."""
    is_ours = {entrant.peer: entrant.ours for result in results.sets.values() for entrant in result.entrants}
    styles: dict[str, dict[str, Any]] = {}
    for colours, wanted, width in ((OURS, True, 2.4), (OTHERS, False, 1.3)):
        for place, peer in enumerate(peer for peer, ours in is_ours.items() if ours is wanted):
            styles[peer] = {
                "color": colours[place % len(colours)],
                "marker": MARKERS[place % len(MARKERS)],
                "linewidth": width,
                "markersize": 6 if wanted else 4.5,
                "zorder": 3 if wanted else 2,
            }
    return styles


def _plot(axis: Any, result: SetResult, label: str, view: Callable[[list[Entrant]], list[Dot]], styles: Any) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    is_error = label == "error"
    for peer, entrants in by_peer(result).items():
        if dots := view(entrants):
            best = frontier(dots)
            colour = styles[peer]["color"]
            values = [dot.missed if is_error else 1.0 - dot.missed for dot in dots]
            axis.scatter([dot.us for dot in dots], values, s=8, color=colour, alpha=0.25, linewidths=0)
            values = [dot.missed if is_error else 1.0 - dot.missed for dot in best]
            axis.plot([dot.us for dot in best], values, label=peer, **styles[peer])
    axis.set_xscale("log")
    axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda us, _: f"{us:g}"))
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.set_xlabel("microseconds a query")
    axis.set_ylabel(label)
    axis.grid(True, which="major", color="#dddddd", linewidth=0.7)
    axis.grid(True, which="minor", axis="x", color="#eeeeee", linewidth=0.4)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)

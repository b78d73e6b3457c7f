"""Plots of results as SVG images that inherit the colours and font of the page."""

import io
import re
from collections.abc import Callable
from html import escape
from typing import Any, NamedTuple

import numpy as np

from .._feedback import LearnedSummary
from ..evaluation import BatchResult, ProgressiveResult, calibration_error
from ._tables import MEASURES

# Matplotlib cannot refer to the page's colours. It draws in these unique colours, which are replaced afterwards.
_INK, _GRID, FIRST, SECOND, THIRD = "#010203", "#010204", "#010205", "#010206", "#010207"
_ON_THE_PAGE = {_INK: "currentColor", _GRID: "var(--line)"}
_ON_THE_PAGE |= {FIRST: "var(--first)", SECOND: "var(--second)", THIRD: "var(--third)"}
_SIZE = (4.1, 2.9)  # inches
_WIDE = (10.0, 3.9)


class Drawing(NamedTuple):
    """A figure of a report."""

    name: str  # unique name, which is the prefix of all ids in the SVG
    title: str  # short description for screen readers
    caption: str
    svg: str  # image, as an SVG element
    wide: bool = False  # whether the figure takes the full width of the page


def learning_curve(result: ProgressiveResult) -> Drawing:
    """Plot the main metric against the number of examples."""
    name = next(iter(result.metrics))
    n, so_far, recent = result.curve["n_examples"], result.curve[name], result.curve[f"{name}_recent"]
    measure = MEASURES.get(name, name)

    def draw(axes: Any) -> None:
        axes.plot(n, so_far, color=FIRST, linewidth=2, label="all examples so far")
        axes.plot(n, recent, color=SECOND, linewidth=1.5, linestyle="--", label="since the last point")
        if result.task == "multiclass":
            majority = 1.0 - np.array(result.curve["majority_accuracy"])
            axes.plot(n, majority, color=THIRD, linewidth=1.2, linestyle=":", label="most frequent class so far")
        axes.set(xscale="log", xlabel="examples", ylabel=measure)
        axes.xaxis.set_major_formatter(_whole)
        axes.set_ylim(bottom=0.0)
        axes.legend()

    caption = (
        f"{_sentence(measure)} by number of examples, each predicted before it is learned: {so_far[-1]:.4f} over all "
        f"{n[-1]:,} examples and {recent[-1]:.4f} over the last {n[-1] - (n[-2] if len(n) > 1 else 0):,} examples."
    )
    return drawing("curve", f"{_sentence(measure)} by number of examples", caption, draw, wide=True)


def error_by_shots(result: ProgressiveResult) -> Drawing:
    """Plot the error against the number of earlier examples of the class."""
    shots, error, n = (np.array(result.by_shots[name], np.float64) for name in ("n_shots", "error", "n_examples"))
    # Few examples have any one large number of shots, so a point there covers a range of numbers.
    bins = np.unique(np.geomspace(1, shots.max() + 2, 40).astype(np.int64)) - 1
    place = np.searchsorted(bins, shots, side="right") - 1
    weight = np.bincount(place, n)
    filled = weight > 0
    center, mean = (np.bincount(place, values * n)[filled] / weight[filled] for values in (shots, error))

    def draw(axes: Any) -> None:
        axes.plot(center, mean, color=FIRST, linewidth=2, marker="o", markersize=3.5)
        axes.set_xscale("symlog", linthresh=1.0)
        axes.set(xlabel="earlier examples of the class", ylabel="error", ylim=(0.0, 1.05))
        axes.xaxis.set_major_formatter(_whole)
        axes.set_xlim(left=-0.1)

    caption = f"Error by number of earlier examples of the class: {error[0]:.3f} for the first example."
    return drawing("shots", "Error by number of earlier examples of the class", caption, draw)


def calibration(result: BatchResult) -> Drawing:
    """Plot accuracy against predicted probability."""
    found = result.calibration
    probability, accuracy = np.array(found["probability"]), np.array(found["accuracy"])

    def draw(axes: Any) -> None:
        axes.plot([0, 1], [0, 1], color=THIRD, linewidth=1.2, linestyle=":")
        axes.plot(probability, accuracy, color=FIRST, linewidth=2, marker="o", markersize=4)
        axes.set(xlabel="predicted probability", ylabel="accuracy", xlim=(0, 1.02), ylim=(0, 1.02))

    caption = (
        "Accuracy of predictions by their probability, in ten bins. The dotted line is perfect calibration. The mean "
        f"distance from it (expected calibration error) is {calibration_error(found):.3f}."
    )
    return drawing("calibration", "Accuracy by predicted probability", caption, draw)


def weights_of_parts(learned: LearnedSummary) -> Drawing:
    """Plot the weights of the parts of scores."""
    parts = [part for part in learned.parts if part.name != "constant"]

    def draw(axes: Any) -> None:
        axes.barh([part.name for part in parts], [part.weight for part in parts], color=FIRST)
        axes.invert_yaxis()
        axes.set(xlabel="weight")

    return drawing("weights", "Weights of the parts", "The weight of each part in the expected reward.", draw)


def _whole(value: float, _: int) -> str:
    return f"{value:,.0f}"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def drawing(name: str, title: str, caption: str, draw: Callable[[Any], None], *, wide: bool = False) -> Drawing:
    """Return a figure that the function ``draw`` draws on the given axes."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    style: Any = {
        "svg.fonttype": "none",  # keep text as text
        "svg.hashsalt": name,  # make ids reproducible
        "font.size": 11,
        **dict.fromkeys(["text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"], _INK),
        **dict.fromkeys(["axes.spines.top", "axes.spines.right", "legend.frameon"], False),
        **dict.fromkeys(["axes.grid", "axes.axisbelow"], True),
        **dict.fromkeys(["axes.linewidth", "grid.linewidth"], 0.8),
        "grid.color": _GRID,
    }
    with rc_context(style):
        figure = Figure(figsize=_WIDE if wide else _SIZE, layout="constrained")
        FigureCanvasSVG(figure)
        draw(figure.add_subplot())
        file = io.StringIO()
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    return Drawing(name, title, caption, _for_the_page(file.getvalue(), name, title, caption), wide)


def _for_the_page(svg: str, name: str, title: str, caption: str) -> str:
    """Convert an SVG document to an element of the page, with the page's colours, unique ids and a description."""
    svg = re.sub(r"(?s)^.*?(?=<svg)|<metadata>.*?</metadata>\s*|<title>.*?</title>\s*", "", svg)
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", svg)
    for drawn, shown in _ON_THE_PAGE.items():
        svg = svg.replace(drawn, shown)
    svg = re.sub(r' (width|height)="[\d.]+pt"', "", svg, count=2)
    words = f'<title id="{name}-title">{escape(title)}</title><desc id="{name}-text">{escape(caption)}</desc>'
    start = f'<svg role="img" aria-labelledby="{name}-title {name}-text"'
    return re.sub(r"<svg([^>]*)>", lambda found: f"{start}{found[1]}>{words}", svg, count=1)

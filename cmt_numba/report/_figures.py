"""Plots of results as SVG images that inherit the colours and font of the page."""

import io
import re
from collections.abc import Callable
from html import escape
from typing import Any, NamedTuple

import numpy as np

from ..evaluation import BatchResult, ProgressiveResult, TreeProfile, calibration_error
from ._tables import MEASURES

# Matplotlib cannot refer to the page's colours. It draws in these unique colours, which are replaced afterwards.
_INK, _GRID, FIRST, SECOND, THIRD = "#010203", "#010204", "#010205", "#010206", "#010207"
_ON_THE_PAGE = {_INK: "currentColor", _GRID: "var(--line)"}
_ON_THE_PAGE |= {FIRST: "var(--first)", SECOND: "var(--second)", THIRD: "var(--third)"}
_SIZE = (4.1, 2.9)  # inches
_WIDE = (10.0, 3.9)
_BARS = 60  # maximum number of bars in a histogram; a bar may cover several values
_NEAR = 0.03  # minimum distance between labels, as a fraction of the axis
_LOGARITHMIC_FROM = 30  # minimum ratio of the largest to the smallest value for a logarithmic axis


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
    center = np.bincount(place, shots * n)[filled] / weight[filled]
    mean = np.bincount(place, error * n)[filled] / weight[filled]

    def draw(axes: Any) -> None:
        axes.plot(center, mean, color=FIRST, linewidth=2, marker="o", markersize=3.5)
        axes.set_xscale("symlog", linthresh=1.0)
        axes.set(xlabel="earlier examples of the class", ylabel="error")
        axes.xaxis.set_major_formatter(_whole)
        axes.set_ylim(0.0, 1.05)
        axes.set_xlim(left=-0.1)

    known = error[shots == 1]
    second = f", {known[0]:.3f} for the second" if known.size > 0 else ""
    caption = f"Error by number of earlier examples of the class: {error[0]:.3f} for the first example{second}."
    return drawing("shots", "Error by number of earlier examples of the class", caption, draw)


def error_by_time(result: BatchResult) -> Drawing:
    """Plot the main metric against the time per query, by number of leaves and for the rivals."""
    name = next(name for name in result.by_probes if name not in ("n_probes", "us_per_query"))
    probes, values, us = (np.array(result.by_probes[key]) for key in ("n_probes", name, "us_per_query"))
    measure = MEASURES.get(name, name)
    best = frontier(us, values, higher_is_better=name == "reward")
    shown = [one for one in result.rivals if one.value is not None and one.name != "majority"]
    as_set, rivals = ([one for one in shown if (one.name == "estimator") == own] for own in (True, False))

    def draw(axes: Any) -> None:
        axes.plot(us[best], values[best], color=FIRST, linewidth=1.5, marker="o", markersize=5, label="leaves searched")
        others = np.setdiff1d(np.arange(us.size), best)
        axes.plot(us[others], values[others], color=FIRST, linestyle="none", marker="o", markersize=5, fillstyle="none")
        all_us = np.concatenate([us, [one.us_per_query for one in [*as_set, *rivals]]])
        if all_us.min() > 0 and all_us.max() > _LOGARITHMIC_FROM * all_us.min():
            axes.set_xscale("log")
        axes.set(xlabel="microseconds per query", ylabel=measure)
        axes.set_ylim(0.0, 1.15 * max([*values, *(one.value for one in shown)]) or 1.0)
        for one in as_set:
            style = {"color": FIRST, "linestyle": "none", "marker": "D", "markersize": 7}
            axes.plot([one.us_per_query], [one.value], label="model with its own settings", **style)
        if rivals:
            theirs = {"color": SECOND, "linestyle": "none", "marker": "s", "markersize": 5, "label": "rivals"}
            axes.plot([one.us_per_query for one in rivals], [one.value for one in rivals], **theirs)
            axes.legend()
        for one in rivals:
            axes.annotate(one.name, (one.us_per_query, one.value), (5, 4), textcoords="offset points", color=_INK)
        labelled: list[float] = []
        for n_probes, place, x, y in zip(probes, _places(axes, us), us, values, strict=True):
            if all(abs(place - other) > _NEAR for other in labelled):  # labels must not overlap
                axes.annotate(f"{n_probes:.0f}", (x, y), (3, 5), textcoords="offset points", color=_INK, fontsize=9)
                labelled.append(place)

    first, last = best[0], best[-1]
    caption = (
        f"{_sentence(measure)} against time per query, for the numbers of leaves shown at the points: from "
        f"{values[first]:.4f} in {us[first]:.3g} microseconds with {probes[first]:.0f} to {values[last]:.4f} in "
        f"{us[last]:.3g} microseconds with {probes[last]:.0f}. The line connects the points that no other point beats "
        "in both."
    )
    return drawing("time", f"{_sentence(measure)} by time per query", caption, draw, wide=True)


def frontier(us: np.ndarray, values: np.ndarray, *, higher_is_better: bool = False) -> np.ndarray:
    """Return the positions of points that no other point beats in both time and quality, in order of time."""
    losses = -values if higher_is_better else values
    order = np.lexsort((losses, us))
    least = np.minimum.accumulate(losses[order])
    return order[np.r_[True, least[1:] < least[:-1]]]


def calibration(found: dict[str, list[float]]) -> Drawing:
    """Plot accuracy against predicted probability."""
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


def leaf_depths(profile: TreeProfile) -> Drawing:
    """Plot the number of leaves at each depth."""
    caption = (
        f"Depth of the leaves of {_trees(profile)}. The maximum depth is {profile.depth}, and the balance is "
        f"{profile.balance:.3f} (perfect: 1)."
    )
    return _histogram("depths", "Number of leaves by depth", caption, profile.leaf_depths, "depth")


def leaf_sizes(profile: TreeProfile) -> Drawing:
    """Plot the number of leaves of each size."""
    sizes = np.asarray(profile.leaf_sizes)
    mean = float(sizes @ np.arange(sizes.size) / sizes.sum())
    caption = f"Memories per leaf of {_trees(profile)}: {mean:.1f} on average, at most {sizes.size - 1}."
    return _histogram("sizes", "Number of leaves by size", caption, sizes, "memories in a leaf")


def _trees(profile: TreeProfile) -> str:
    return "one tree" if profile.n_trees == 1 else f"{profile.n_trees} trees"


def _histogram(name: str, title: str, caption: str, counts: Any, xlabel: str) -> Drawing:
    counts = np.asarray(counts)
    first = int(np.flatnonzero(counts)[0])
    width = -(-(counts.size - first) // _BARS)
    starts = np.arange(first, counts.size, width)
    heights = np.add.reduceat(counts, starts)

    def draw(axes: Any) -> None:
        axes.bar(starts + (width - 1) / 2, heights, width=0.85 * width, color=FIRST)
        axes.set(xlabel=xlabel, ylabel="leaves")
        axes.set_xlim(starts[0] - width, starts[-1] + 2 * width - 1)
        for axis in (axes.xaxis, axes.yaxis):
            axis.get_major_locator().set_params(integer=True, min_n_ticks=1)
        axes.grid(visible=False, axis="x")

    return drawing(name, title, caption, draw)


def _places(axes: Any, values: np.ndarray) -> np.ndarray:
    """Return the positions of values along the horizontal axis, as fractions of its length."""
    points = axes.transData.transform(np.column_stack([values, np.ones(values.size)]))
    return axes.transAxes.inverted().transform(points)[:, 0]


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
        "text.color": _INK,
        "axes.labelcolor": _INK,
        "axes.edgecolor": _INK,
        "axes.linewidth": 0.8,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": _GRID,
        "grid.linewidth": 0.7,
        "xtick.color": _INK,
        "ytick.color": _INK,
        "legend.frameon": False,
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
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<title>.*?</title>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'href="#', f'href="#{name}-', svg)
    svg = re.sub(r"url\(#", f"url(#{name}-", svg)
    for drawn, shown in _ON_THE_PAGE.items():
        svg = svg.replace(drawn, shown)
    svg = re.sub(r' (width|height)="[\d.]+pt"', "", svg, count=2)
    words = f'<title id="{name}-title">{escape(title)}</title><desc id="{name}-text">{escape(caption)}</desc>'
    start = f'<svg role="img" aria-labelledby="{name}-title {name}-text"'
    return re.sub(r"<svg([^>]*)>", lambda found: f"{start}{found[1]}>{words}", svg, count=1)

"""Shared functions of the scripts: options, timing, line fits, tables and plots."""

import argparse
import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
import scipy.stats
from matplotlib.figure import Figure
from tabulate import tabulate
from threadpoolctl import threadpool_limits

matplotlib.use("Agg")  # a backend that needs no display


class Line(NamedTuple):
    """A least-squares line and its coefficient of determination."""

    intercept: float
    slope: float
    r_squared: float


def make_parser(description: str, sets: dict[str, Any] | Sequence[str] = (), default: Sequence[str] = ()) -> Any:
    """Return a parser with the common options, and ``--sets`` if there are data sets to choose from."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--data", type=Path, help="data folder; see stand_ins.py for its contents")
    parser.add_argument("--output", type=Path, default=Path(), help="folder for the plot (default: the current one)")
    if sets:
        parser.add_argument(
            "--sets", nargs="+", choices=list(sets), default=list(default), metavar="NAME", help=", ".join(sets)
        )
    return parser


@contextlib.contextmanager
def measuring(parser: argparse.ArgumentParser) -> Iterator[None]:
    """Limit numerical libraries to one thread, and exit with a message if data is missing."""
    with threadpool_limits(1):
        try:
            yield
        except FileNotFoundError as error:
            parser.error(f"{error}; see examples/paper/README.md for the data")


def seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the CPU time of a call in seconds, and its result."""
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


def fit_line(x: Sequence[float], y: Sequence[float]) -> Line:
    """Return the least-squares line through points."""
    fit = scipy.stats.linregress(x, y)
    return Line(float(fit.intercept), float(fit.slope), float(fit.rvalue**2))


def verdict(holds: bool) -> str:
    """Return "reached" or "NOT reached" for printing."""
    return "reached" if holds else "NOT reached"


def print_table(title: str, rows: Sequence[Sequence[Any]], headers: Sequence[str], floats: str | Sequence[str]) -> None:
    """Print a titled table."""
    print(f"\n{title}\n")
    print(tabulate(rows, headers, floatfmt=floats, missingval=""), flush=True)


def new_figure(n_panels: int = 1) -> tuple[Figure, list[Any]]:
    """Return a figure with panels side by side."""
    figure = Figure(figsize=(5.5 * n_panels, 4.0), layout="constrained")
    return figure, list(np.atleast_1d(figure.subplots(1, n_panels)))


def save(figure: Figure, folder: Path, name: str) -> Path:
    """Save a figure and print its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.png"
    figure.savefig(path, dpi=120)
    print(f"\nPlot: {path}")
    return path


def bars(axes: Any, values: dict[str, dict[str, float]], label: str) -> None:
    """Draw groups of bars: ``values[group][bar]``."""
    groups, names = list(values), list(dict.fromkeys(name for group in values.values() for name in group))
    width = 0.8 / len(names)
    for i, name in enumerate(names):
        heights = [values[group].get(name, np.nan) for group in groups]
        axes.bar(np.arange(len(groups)) + (i - (len(names) - 1) / 2) * width, heights, width, label=name)
    axes.set_xticks(np.arange(len(groups)), groups, rotation=20, ha="right")
    axes.set_ylabel(label)
    axes.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1.0, 1.0))

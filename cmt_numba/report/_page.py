"""HTML pages with a headline, figures and tables, each in one file.

Figures are SVG images that inherit the colours and font of the page.
"""

import io
import platform
import re
from collections.abc import Callable, Sequence
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from .._display import ResultTable
from .._version import __version__

_LIBRARIES = ("numba", "numpy", "scipy", "scikit-learn")
# Matplotlib cannot refer to the page's colours. It draws in these unique colours, which are replaced afterwards.
_INK, _GRID, FIRST, SECOND, THIRD = "#010203", "#010204", "#010205", "#010206", "#010207"
_ON_THE_PAGE = {_INK: "currentColor", _GRID: "var(--line)"}
_ON_THE_PAGE |= {FIRST: "var(--first)", SECOND: "var(--second)", THIRD: "var(--third)"}
_STYLE: Any = {
    "svg.fonttype": "none",  # keep text as text
    "svg.hashsalt": "cmt-numba",  # make ids reproducible
    "font.size": 11,
    **dict.fromkeys(["text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"], _INK),
    **dict.fromkeys(["axes.spines.top", "axes.spines.right", "legend.frameon"], False),
    **dict.fromkeys(["axes.grid", "axes.axisbelow"], True),
    **dict.fromkeys(["axes.linewidth", "grid.linewidth"], 0.8),
    "grid.color": _GRID,
}


class Drawing(NamedTuple):
    """A figure of a report."""

    name: str  # unique name, which is the prefix of all ids in the SVG
    title: str  # short description for screen readers
    caption: str
    axes: Any
    wide: bool = False  # whether the figure takes the full width of the page

    def svg(self) -> dict[str, str]:
        """Return the view box and the elements of the image, with the page's colours and unique ids."""
        file = io.StringIO()
        self.axes.figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
        found = re.search(r'(?s)viewBox="([^"]*)"[^>]*>(.*)</svg>', file.getvalue())
        assert found is not None
        elements = re.sub(r"(?s)<metadata>.*?</metadata>\s*", "", found[2])
        elements = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{self.name}-", elements)
        for drawn, shown in _ON_THE_PAGE.items():
            elements = elements.replace(drawn, shown)
        return {"view_box": found[1], "elements": elements}


def new_axes(*, wide: bool = False) -> Any:
    """Return empty axes for a figure of the page."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.0, 3.9) if wide else (4.1, 2.9), layout="constrained")
    FigureCanvasSVG(figure)
    return figure.add_subplot()


def write_page(
    path: str | PathLike[str],
    result: Any,
    *,
    figures: Sequence[Callable[[Any], Drawing]],
    tables: Sequence[ResultTable],
    **texts: str | None,
) -> None:
    """Write a result as an HTML page. The figures are functions that draw the result."""
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
        from matplotlib import rc_context
    except ImportError as error:
        raise ImportError(f"a report needs {error.name}: pip install 'cmt-numba[cli]'") from error

    environment = Environment(
        loader=PackageLoader("cmt_numba.report"), autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True
    )
    libraries = [f"{library} {version(library)}" for library in _LIBRARIES]
    versions = [f"cmt_numba {__version__}", *libraries, f"Python {platform.python_version()}", platform.platform()]
    with rc_context(_STYLE):
        page = environment.get_template("report.html").render(
            figures=[draw(result) for draw in figures],
            tables=[(table, list(map(_is_wordy, zip(*table.rows, strict=True)))) for table in tables],
            versions=", ".join(versions),
            **texts,
        )
    Path(path).write_text(page, encoding="utf-8")


def _is_wordy(column: Sequence[str]) -> bool:
    """Return whether any cell of a column is neither empty nor a number."""
    try:
        for cell in column:
            float(cell.replace(",", "") or 0)
    except ValueError:
        return True
    return False

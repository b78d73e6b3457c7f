"""HTML pages with a headline, figures and tables, each in one file."""

import platform
from collections.abc import Callable, Sequence
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from typing import Any

from .._display import ResultTable
from .._version import __version__
from ._figures import Drawing

_LIBRARIES = ("numba", "numpy", "scipy", "scikit-learn")


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
        import matplotlib  # noqa: F401
        from jinja2 import Environment, PackageLoader, StrictUndefined
        from markupsafe import Markup
    except ImportError as error:
        raise ImportError(f"a report needs {error.name}: pip install 'cmt-numba[cli]'") from error

    environment = Environment(
        loader=PackageLoader("cmt_numba.report"), autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True
    )
    drawings = [draw(result) for draw in figures]
    libraries = [f"{library} {version(library)}" for library in _LIBRARIES]
    versions = [f"cmt_numba {__version__}", *libraries, f"Python {platform.python_version()}", platform.platform()]
    page = environment.get_template("report.html").render(
        figures=[drawing._replace(svg=Markup(drawing.svg)) for drawing in drawings],
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

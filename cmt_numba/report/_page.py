"""HTML pages with a headline, figures and tables, each in one file."""

import platform
from collections.abc import Sequence
from importlib.metadata import version
from os import PathLike
from pathlib import Path

from .._display import ResultTable
from .._version import __version__
from ._figures import Drawing

_LIBRARIES = ("numba", "numpy", "scipy", "scikit-learn")


def require_libraries() -> None:
    """Raise ImportError if jinja2 or matplotlib is missing."""
    try:
        import jinja2  # noqa: F401
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError(f"a report needs {error.name}: pip install 'cmt-numba[cli]'") from error


def write_page(
    path: str | PathLike[str],
    *,
    title: str,
    kind: str,
    headline: str,
    figures: Sequence[Drawing],
    tables: Sequence[ResultTable],
    command: str | None,
) -> None:
    """Write an HTML page to a file."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("cmt_numba.report"), autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True
    )
    page = environment.get_template("report.html").render(
        title=title,
        kind=kind,
        headline=headline,
        figures=[drawing._replace(svg=Markup(drawing.svg)) for drawing in figures],
        tables=[(table, list(map(_is_wordy, zip(*table.rows, strict=True)))) for table in tables],
        command=command,
        versions=_versions(),
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


def _versions() -> str:
    libraries = [f"{library} {version(library)}" for library in _LIBRARIES]
    parts = [f"cmt_numba {__version__}", *libraries, f"Python {platform.python_version()}", platform.platform()]
    return ", ".join(parts)

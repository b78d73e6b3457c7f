"""HTML pages with a headline, figures and tables, each in one file."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from os import PathLike
from pathlib import Path
from typing import NamedTuple

from .._version import __version__
from ._figures import Drawing

_LIBRARIES = ("numba", "numpy", "scipy", "scikit-learn")


class PageTable(NamedTuple):
    """A table of a page. ``header`` contains the column names, if any."""

    caption: str
    rows: Sequence[Sequence[str]]
    header: Sequence[str] = ()

    @property
    def wordy(self) -> list[bool]:
        """For each column, whether any of its cells is not a number."""
        return [not all(map(_is_number, column)) for column in zip(*self.rows, strict=True)]


def _is_number(cell: str) -> bool:
    """Return whether a cell is empty or a number."""
    try:
        float(cell.replace(",", "") or 0)
    except ValueError:
        return False
    return True


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
    tables: Sequence[PageTable],
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
        tables=tables,
        command=command,
        versions=_versions(),
    )
    Path(path).write_text(page, encoding="utf-8")


def _versions() -> str:
    libraries = [f"{library} {_version_of(library)}" for library in _LIBRARIES]
    parts = [f"cmt_numba {__version__}", *libraries, f"Python {platform.python_version()}", platform.platform()]
    return ", ".join(parts)


def _version_of(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return "(unknown version)"

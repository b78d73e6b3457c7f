"""Tables and values for the terminal and for reports, and warnings."""

import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from types import FrameType
from typing import Any, NamedTuple, Self


def format_value(value: Any) -> str:
    """Format a value for display."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "-"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


class ResultTable(NamedTuple):
    """A table of formatted values. ``header`` contains the column names, if any."""

    caption: str
    rows: list[list[str]]
    header: Sequence[str] = ()

    @classmethod
    def of_pairs(cls, caption: str, pairs: Iterable[tuple[str, Any]]) -> Self:
        """Return a table of names and values."""
        return cls(caption, [[name, format_value(value)] for name, value in pairs])

    @classmethod
    def of_records(cls, caption: str, records: Sequence[Mapping[str, Any]]) -> Self:
        """Return a table with a row for each of the records, whose keys are the column names."""
        return cls(caption, [list(map(format_value, record.values())) for record in records], list(records[0]))


def warn(message: str, category: type[Warning]) -> None:
    """Issue a warning that points to the line of the user's code that called the package."""
    package, level = __name__.split(".")[0], 1
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] == package:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)

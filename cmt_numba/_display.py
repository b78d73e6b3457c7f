"""Formatting of values for the terminal and for reports, and warnings."""

import sys
import warnings
from types import FrameType
from typing import Any


def format_value(value: Any) -> str:
    """Format a value for display."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "-"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def warn(message: str, category: type[Warning]) -> None:
    """Issue a warning that points to the line of the user's code that called the package."""
    package, level = __name__.split(".")[0], 1
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] == package:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)

"""Values as text for people, on the terminal and in reports."""

from typing import Any


def format_value(value: Any) -> str:
    """Return a value as text for display."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "-"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)

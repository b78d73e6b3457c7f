"""Conversion of results to JSON-compatible Python objects."""

import math
from typing import Any

import numpy as np


def to_json(value: Any) -> Any:
    """Convert a result to dicts, lists and Python numbers. Numbers that are not finite become None."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, dict):
        return {str(key): to_json(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [to_json(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value

"""Checks of the dtypes and shapes of arrays against the annotations of their fields.

Axes with the same name must have the same length. Kernels are compiled for exactly these dtypes and memory layouts.
"""

from typing import Any

import numpy as np

from ..structures import ArrayKind, arrays_of, layout_of
from .errors import require


def check_layout(structure: Any, lengths: dict[str, int] | None = None) -> None:
    """Raise InvariantError unless arrays match their annotations, with the known ``lengths`` of named axes."""
    kind: type[tuple[Any, ...]] = type(structure)
    layout = layout_of(kind)
    known = dict(lengths or {})
    arrays = arrays_of(structure)
    require(arrays.keys() == layout.keys(), f"the arrays must be {', '.join(layout)}")
    for name, array in arrays.items():
        fault = _fault_of(array, layout[name], known)
        require(fault is None, f"{name} must {fault}")


def _fault_of(array: np.ndarray, kind: ArrayKind, known: dict[str, int]) -> str | None:
    """Return what is wrong with an array, or None, and add the lengths of new axes to ``known``."""
    if array.dtype != kind.dtype:
        return f"be of dtype {kind.dtype}, not {array.dtype}"
    if array.ndim != len(kind.axes):
        return f"have {len(kind.axes)} dimensions, not {array.ndim}"
    for axis, length in zip(kind.axes, array.shape, strict=True):
        wanted = axis if isinstance(axis, int) else known.setdefault(axis, length)
        if length != wanted:
            what = "an axis" if isinstance(axis, int) else f"an axis ({axis})"
            return f"have {what} of length {wanted}, not {length}"
    return None if array.flags.c_contiguous and array.flags.aligned else "be contiguous and aligned"

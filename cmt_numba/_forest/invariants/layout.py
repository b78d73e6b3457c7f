"""Whether arrays are of the kinds that the fields of their structures are annotated with.

Axes of the same name are of the same length. Kernels are compiled for arrays like these and no others.
"""

from typing import Any

from ..structures import arrays_of, layout_of
from .errors import require


def check_layout(structure: Any, lengths: dict[str, int] | None = None) -> None:
    """Raise InvariantError unless the arrays of a structure are of their kinds, with axes of the lengths given."""
    layout = layout_of(type(structure))
    known = dict(lengths or {})
    arrays = arrays_of(structure)
    require(arrays.keys() == layout.keys(), f"the arrays must be {', '.join(layout)}")
    for name, array in arrays.items():
        kind = layout[name]
        require(array.dtype == kind.dtype, f"{name} must be of dtype {kind.dtype}, not {array.dtype}")
        require(array.ndim == len(kind.axes), f"{name} must have {len(kind.axes)} axes, not {array.ndim}")
        for axis, length in zip(kind.axes, array.shape, strict=True):
            wanted = axis if isinstance(axis, int) else known.setdefault(axis, length)
            what = "an axis" if isinstance(axis, int) else f"an axis ({axis})"
            require(length == wanted, f"{name} must have {what} of length {wanted}, not {length}")
        laid_out = array.flags.c_contiguous and array.flags.aligned
        require(laid_out, f"{name} must be contiguous and aligned")

"""What kind of array each one is: its dtype and its axes, one line an array.

Axes of the same name are of the same length. Kernels are compiled for arrays like these and no others.
"""

from typing import Any, NamedTuple

import numpy as np

from ..lru_list import N_TOTALS as N_TOTALS_OF_RECENCY
from ..state import CODE_MARKS, LEAF, N_COUNTERS, N_TOTALS, NODE, WEIGHT_CELL
from ..structures import arrays_of
from .errors import require


class ArrayKind(NamedTuple):
    """The dtype and the axes of an array: lengths, or names of lengths."""

    dtype: np.dtype
    axes: tuple[str | int, ...]


def kind_of(dtype: Any, *axes: str | int) -> ArrayKind:
    return ArrayKind(np.dtype(dtype), axes)


KEYS = {
    "keys.values": kind_of(np.float32, "cells"),
    "keys.indices": kind_of(np.int32, "cells of sparse keys"),
    "keys.spans": kind_of(np.int64, "sparse keys", 2),
    "keys.ids": kind_of(np.int64, "keys"),
    "keys.slot_table": kind_of(np.int32, "cells of the slot table"),
    "keys.totals": kind_of(np.int64, N_TOTALS),
}
SCORER = {
    "scorer.theta": kind_of(np.float32, "weights of the scorer"),
    "scorer.squares": kind_of(np.float32, "weights of the scorer"),
}
ROUTERS = {
    "routers.weights": kind_of(np.float32, "trees", "cells of dense models"),
    "routers.table": kind_of(WEIGHT_CELL, "trees", "cells of sparse models"),
    "counters": kind_of(np.int64, "trees", N_COUNTERS),
}

STATE = {
    **KEYS,
    "codes.values": kind_of(np.int8, "cells of codes"),
    "codes.marks": kind_of(CODE_MARKS, "codes"),
    "packed.values": kind_of(np.int8, "further trees", "cells of packed codes"),
    "packed.marks": kind_of(CODE_MARKS, "further trees", "packed codes"),
    "nodes": kind_of(NODE, "trees", "nodes"),
    "leaves": kind_of(LEAF, "trees", "leaves"),
    "members": kind_of(np.int32, "trees", "leaves", "members of a leaf"),
    "leaf_of": kind_of(np.int32, "trees", "places of keys"),
    **ROUTERS,
    **SCORER,
    "streams": kind_of(np.uint64, "streams"),
}
"""Of a :class:`~cmt_numba._forest.state.State`."""

RECENCY = {
    "before": kind_of(np.int32, "places"),
    "after": kind_of(np.int32, "places"),
    "totals": kind_of(np.int64, N_TOTALS_OF_RECENCY),
}
"""Of a :class:`~cmt_numba._forest.lru_list.Recency`."""


def check_layout(structure: Any, layout: dict[str, ArrayKind], lengths: dict[str, int] | None = None) -> None:
    """Raise InvariantError unless the arrays of a structure are of these kinds, with axes of the lengths given."""
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

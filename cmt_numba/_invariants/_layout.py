"""What kind of array each one is: its dtype and its axes, one line an array.

Axes of the same name are of the same length. Kernels are compiled for arrays like these and no others.
"""

from typing import Any, NamedTuple

import numpy as np

from .._recency import N_TOTALS as N_TOTALS_OF_RECENCY
from .._state import CODE_MARKS, LEAF, N_COUNTERS, N_TOTALS, NODE, WEIGHT_CELL
from .._structures import arrays_of
from ._errors import require


class ArrayKind(NamedTuple):
    """The dtype and the axes of an array: lengths, or names of lengths."""

    dtype: np.dtype
    axes: tuple[str | int, ...]


def _kind(dtype: Any, *axes: str | int) -> ArrayKind:
    return ArrayKind(np.dtype(dtype), axes)


_KEYS = {
    "keys.values": _kind(np.float32, "cells"),
    "keys.indices": _kind(np.int32, "cells of sparse keys"),
    "keys.spans": _kind(np.int64, "sparse keys", 2),
    "keys.ids": _kind(np.int64, "keys"),
    "keys.slot_table": _kind(np.int32, "cells of the slot table"),
    "keys.totals": _kind(np.int64, N_TOTALS),
}
_SCORER = {
    "scorer.theta": _kind(np.float32, "weights of the scorer"),
    "scorer.squares": _kind(np.float32, "weights of the scorer"),
}
_ROUTERS = {
    "routers.weights": _kind(np.float32, "trees", "cells of dense models"),
    "routers.table": _kind(WEIGHT_CELL, "trees", "cells of sparse models"),
    "counters": _kind(np.int64, "trees", N_COUNTERS),
}

STATE = {
    **_KEYS,
    "codes.values": _kind(np.int8, "cells of codes"),
    "codes.marks": _kind(CODE_MARKS, "codes"),
    "packed.values": _kind(np.int8, "further trees", "cells of packed codes"),
    "packed.marks": _kind(CODE_MARKS, "further trees", "packed codes"),
    "nodes": _kind(NODE, "trees", "nodes"),
    "leaves": _kind(LEAF, "trees", "leaves"),
    "members": _kind(np.int32, "trees", "leaves", "members of a leaf"),
    "leaf_of": _kind(np.int32, "trees", "places of keys"),
    **_ROUTERS,
    **_SCORER,
    "streams": _kind(np.uint64, "streams"),
}
"""Of a :class:`~cmt_numba._state.State`."""

RECENCY = {
    "before": _kind(np.int32, "places"),
    "after": _kind(np.int32, "places"),
    "totals": _kind(np.int64, N_TOTALS_OF_RECENCY),
}
"""Of a :class:`~cmt_numba._recency.Recency`."""

HEAD = {
    "nodes": _kind(NODE, "trees", "labels"),
    **_ROUTERS,
    "digest.offsets": _kind(np.int64, "offsets of the digest"),
    "digest.features": _kind(np.int32, "entries of the digest"),
    "digest.weights": _kind(np.float32, "entries of the digest"),
    "digest.halves": _kind(np.uint16, "labels of the dense digest", "features of the dense digest"),
    "postings.offsets": _kind(np.int64, "offsets of the index"),
    "postings.labels": _kind(np.int32, "entries of the index"),
    "postings.weights": _kind(np.float32, "entries of the index"),
    "common.labels": _kind(np.int64, "common labels"),
    "common.offsets": _kind(np.int64, "offsets of common labels"),
    "common.places": _kind(np.int32, "entries of common labels"),
    "common.weights": _kind(np.float32, "entries of common labels"),
    "gaps": _kind(np.float64, 2),
}
"""Of a :class:`~cmt_numba._head.Head`."""

EXAMPLES = {
    **_KEYS,
    **_SCORER,
    "label_of": _kind(np.int32, "places of keys"),
    "next_of": _kind(np.int32, "places of keys"),
    "first_of": _kind(np.int32, "labels"),
}
"""Of :class:`~cmt_numba._examples.Examples`."""

EXPECTATION = {
    "weights": _kind(np.float32, "places", "components"),
    "bias": _kind(np.float32, "components"),
    "table": _kind(np.int32, "cells of the table"),
    "features": _kind(np.int32, "features"),
    "n_places": _kind(np.int64, 1),
}
"""Of an :class:`~cmt_numba._expectation.Expectation`."""


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

"""What kind of array each array of a head is: its dtype and its axes."""

import numpy as np

from ..._forest.invariants.layout import KEYS, ROUTERS, SCORER, kind_of
from ..._forest.state import NODE

HEAD = {
    "nodes": kind_of(NODE, "trees", "labels"),
    **ROUTERS,
    "digest.offsets": kind_of(np.int64, "offsets of the digest"),
    "digest.features": kind_of(np.int32, "entries of the digest"),
    "digest.weights": kind_of(np.float32, "entries of the digest"),
    "digest.halves": kind_of(np.uint16, "labels of the dense digest", "features of the dense digest"),
    "postings.offsets": kind_of(np.int64, "offsets of the index"),
    "postings.labels": kind_of(np.int32, "entries of the index"),
    "postings.weights": kind_of(np.float32, "entries of the index"),
    "common.labels": kind_of(np.int64, "common labels"),
    "common.offsets": kind_of(np.int64, "offsets of common labels"),
    "common.places": kind_of(np.int32, "entries of common labels"),
    "common.weights": kind_of(np.float32, "entries of common labels"),
    "gaps": kind_of(np.float64, 2),
}
"""Of a :class:`~cmt_numba._heads.label_scorers.Head`."""

EXAMPLES = {
    **KEYS,
    **SCORER,
    "label_of": kind_of(np.int32, "places of keys"),
    "next_of": kind_of(np.int32, "places of keys"),
    "first_of": kind_of(np.int32, "labels"),
}
"""Of :class:`~cmt_numba._heads.examples.Examples`."""

EXPECTATION = {
    "weights": kind_of(np.float32, "places", "components"),
    "bias": kind_of(np.float32, "components"),
    "table": kind_of(np.int32, "cells of the table"),
    "features": kind_of(np.int32, "features"),
    "n_places": kind_of(np.int64, 1),
}
"""Of an :class:`~cmt_numba._heads.ridge.Expectation`."""

"""Checks of the links between memories."""

import numpy as np

from ..state import NONE
from .errors import require
from .numbers import all_within


def check_link_frame(near: np.ndarray, n: int) -> None:
    """Raise InvariantError if one of the first ``n`` memories has a link to a slot without a memory."""
    require(all_within(near[:n], int(NONE), n - 1), "a link refers to a memory that does not exist")


def check_links(near: np.ndarray, n: int) -> None:
    """Raise InvariantError unless the links of ``n`` memories are valid, distinct and symmetric."""
    check_link_frame(near, n)
    here, there = near[:n], near[:n] != NONE
    require(bool(np.all(near[n:] == NONE)), "an unused slot has links")
    require(bool(np.all(there[:, :-1] >= there[:, 1:])), "the links of a memory must be contiguous")
    slots, others = np.nonzero(there)[0], here[there].astype(np.int64)
    require(bool(np.all(slots != others)), "a memory is linked with itself")
    pairs, mirrored = np.sort(slots * n + others), np.sort(others * n + slots)
    require(bool(np.all(pairs[1:] > pairs[:-1])), "a memory has two links to the same memory")
    require(np.array_equal(pairs, mirrored), "a link is stored with only one of its two memories")

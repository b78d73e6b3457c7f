"""Checks of the list of memories in the order in which queries last returned them."""

from typing import Any

import numpy as np

from ..lru_list import FIRST, LENGTH, Recency, list_first, new_recency
from .arrays import all_within, check_layout, require


def check_recency(recency: Recency, n: int) -> None:
    """Raise InvariantError unless the list contains each slot below ``n`` once, and no other slots."""
    check_layout(recency)
    require(recency.totals[LENGTH] == n <= recency.before.size, "the order of memories does not list every memory")
    inside = all_within(recency.after[:n], -1, n - 1) and all_within(recency.totals[FIRST : FIRST + 1], -1, n - 1)
    require(inside, "the order of memories refers to a memory that does not exist")
    order = np.empty(n, np.int64)
    list_first(recency, order)
    require(np.array_equal(np.sort(order), np.arange(n)), "the order of memories does not list every memory")
    again = new_recency(order, recency.before.size)
    same = all(np.array_equal(one, other) for one, other in zip(again, recency, strict=True))
    require(same, "the order of memories is inconsistent between its two directions")


def check_order(order: Any, n: int) -> np.ndarray:
    """Return an order of ``n`` memories as int64. Raises InvariantError unless it is an int32 permutation."""
    there = isinstance(order, np.ndarray) and order.dtype == np.int32 and order.shape == (n,)
    require(there, f"the order must list {n} memories")
    require(np.array_equal(np.sort(order), np.arange(n)), "the order of memories does not list every memory")
    return np.asarray(order, np.int64)

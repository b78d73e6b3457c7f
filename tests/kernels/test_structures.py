"""Structures of arrays are put together from their parts."""

from typing import Any, NamedTuple

import numpy as np
import pytest

from cmt_numba._forest.structures import arrays_of, put_together


class Inner(NamedTuple):
    values: np.ndarray | None  # any annotation that is neither a number nor a class of tuples says that it is an array


class Outer(NamedTuple):
    inner: Inner
    numbers: Any
    factor: float


def test_annotations_of_arrays_need_be_no_classes():
    made = Outer(Inner(np.arange(3)), np.eye(2), 0.5)
    again = put_together(Outer, arrays_of(made), {"factor": 0.5})
    assert again.inner.values is made.inner.values
    assert again.numbers is made.numbers
    assert again.factor == 0.5
    with pytest.raises(ValueError, match=r"the array 'inner\.values' is missing"):
        put_together(Outer, {"numbers": made.numbers}, {"factor": 0.5})

"""Durable retrievers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cmt_numba import CMTRetriever

X = np.eye(4)


@pytest.mark.parametrize(
    "values",
    [None, ["a", "b", "c", "d"], [1, "two", None, [3.0]], [[1, 2], [3], [], [4]], np.eye(4, 2), np.arange(4) * 10**12],
    ids=["positions", "strings", "objects", "lists", "vectors", "numbers"],
)
def test_values_of_many_kinds(values: Any, tmp_path: Path):
    with CMTRetriever.open(tmp_path / "folder", random_state=0) as retriever:
        retriever.fit(X, values).partial_fit(X[:2], values if values is None else values[:2])
        wanted = retriever.values(np.arange(6))
    with CMTRetriever.open(tmp_path / "folder") as again:
        found = again.values(np.arange(6))
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)


def test_values_that_cannot_be_saved_are_refused(tmp_path: Path):
    with CMTRetriever.open(tmp_path / "folder", random_state=0) as retriever:
        retriever.fit(X, ["a", "b", "c", "d"])
        for bad in ([(1, 2)], [object()]):
            with pytest.raises((TypeError, ValueError)):
                retriever.partial_fit(X[:1], bad)
        with pytest.raises(KeyError):
            retriever.remove([9])
        retriever.set_values([3], [{"any": ["thing", None]}])
    with CMTRetriever.open(tmp_path / "folder") as again:
        assert again.predict(X).tolist() == ["a", "b", "c", {"any": ["thing", None]}]

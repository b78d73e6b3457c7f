"""Durable retrievers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cmt_numba import CMTRetriever
from cmt_numba.journal import JournalError

SEARCHES = pytest.mark.parametrize("search", ["key", "value"])
X = np.eye(4)


@SEARCHES
def test_random_numbers_of_queries_are_kept(search: str, tmp_path: Path):
    twin = CMTRetriever(search=search, random_state=3).fit(X, X)
    with CMTRetriever.open(tmp_path / "folder", search=search, random_state=3) as retriever:
        retriever.fit(X, X)
        for each in (retriever, twin):
            each.query(X, epsilon=1.0)
    with CMTRetriever.open(tmp_path / "folder", read_only=True) as again:
        np.testing.assert_array_equal(again.query(X, 2, epsilon=1.0).ids, twin.query(X, 2, epsilon=1.0).ids)
        with pytest.raises(JournalError, match="read-only"):
            again.remove([0])


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

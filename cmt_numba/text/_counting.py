"""Counts of terms in texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import repeat
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.utils import murmurhash3_32

MOST = 1e15
"""Largest magnitude of a learned number. Products and sums of such numbers are finite in float32."""


def are_moderate(*arrays: np.ndarray) -> bool:
    """Return whether learned numbers are finite, and so small that what is computed from them is finite as well."""
    return all(bool(np.all(np.abs(array) <= MOST)) for array in arrays)


class HashedColumns(dict[str, int]):
    """The columns of terms that have been looked up: each term's hash, computed once."""

    def __init__(self, n_columns: int) -> None:
        super().__init__()
        self._n_columns = n_columns

    def __missing__(self, term: str) -> int:
        column = self[term] = murmurhash3_32(term, positive=True) % self._n_columns
        return int(column)


class NewColumns(dict[str, int]):
    """The columns of terms in the order in which they were first looked up."""

    def __missing__(self, term: str) -> int:
        column = self[term] = len(self)
        return column


def check_texts(name: str, texts: Any, *, of_any_type: bool = False, or_none: bool = False) -> list[Any]:
    """Return texts as a list.

    Raises
    ------
    TypeError
        If they are a single text, or one is not a string although not texts ``of_any_type`` are accepted.
    ValueError
        If there are none, unless ``or_none``.
    """
    if isinstance(texts, str | bytes) or not isinstance(texts, Iterable):
        raise TypeError(f"{name} must be an iterable of texts, not {type(texts).__name__}; pass [text] for one")
    n_dimensions = getattr(texts, "ndim", 1)
    if n_dimensions != 1:
        raise ValueError(f"{name} must have one dimension, not {n_dimensions}: pass one text for each row")
    listed = list(texts)
    if not listed and not or_none:
        raise ValueError(f"{name} must hold at least one text")
    if not of_any_type:
        for i, text in enumerate(listed):
            if not isinstance(text, str):
                raise TypeError(f"{name} must hold strings, but number {i} is {type(text).__name__}: convert it first")
    return listed


def count_terms(texts: list[Any], analyze: Callable[[Any], Iterable[str]], columns: dict[str, int]) -> Any:
    """Return how often each text has each term: CSR of float32 with sorted indices, as wide as is needed.

    Terms without a column are left out, unless ``columns`` gives them one.
    """
    complete = hasattr(columns, "__missing__")
    indices: list[int] = []
    ends = np.zeros(len(texts) + 1, np.int64)
    for i, text in enumerate(texts):
        terms = analyze(text)
        indices.extend(map(columns.__getitem__, terms) if complete else map(columns.get, terms, repeat(-1)))
        ends[i + 1] = len(indices)
    there = np.array(indices, np.int64)
    if not complete:
        ends = np.concatenate([[0], np.cumsum(there >= 0)])[ends]
        there = there[there >= 0]
    width = max(1, int(there.max(initial=0)) + 1)
    dtype = np.int32 if max(width, there.size) < 2**31 else np.int64
    cells = (np.ones(there.size, np.float32), there.astype(dtype), ends.astype(dtype))
    counts = scipy.sparse.csr_array(cells, (len(texts), width))
    counts.sum_duplicates()
    return counts

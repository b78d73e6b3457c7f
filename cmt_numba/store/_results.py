"""What queries of a store answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple, overload

import numpy as np

from ._checks import Key, are_none


class Result(NamedTuple):
    """One memory found.

    Attributes
    ----------
    key : str or int
        Its key.
    score : float
        Its score; larger is better.
    payload : object
        Its payload; None if it has none.
    """

    key: Key
    score: float
    payload: Any


class Items(NamedTuple):
    """Memories of a store.

    Attributes
    ----------
    keys : list of str or int, length n
        The keys.
    vectors : ndarray or csr_array of float32, shape (n, n_features)
        The vectors, up to rounding in the last digits.
    payloads : list, length n
        The payloads; None for memories without one.
    """

    keys: list[Key]
    vectors: Any
    payloads: list[Any]


class Results:
    """The answers to queries: for each row the memories found, the best first.

    ``results[i]`` is the list of the :class:`Result` of a row. A slice, a mask or an array of positions gives the
    results of these rows. Iterating goes through the rows.

    Attributes
    ----------
    keys : ndarray, shape (n, k)
        The keys, None where fewer than ``k`` memories were found: of int64 if all are integers and none is missing,
        of objects otherwise.
    scores : ndarray of float32 or float64, shape (n, k)
        The cosines, the inner products, or the Euclidean distances times -1, and what was learned from rewards;
        ``-inf`` where there is no memory.
    """

    def __init__(self, keys: np.ndarray, scores: np.ndarray, payloads: np.ndarray) -> None:
        self.keys = keys
        self.scores = scores
        self._payloads = payloads  # JSON

    @property
    def payloads(self) -> list[list[Any]]:
        """The payloads: a list of ``k`` for each row; None where a memory has none or there is no memory."""
        return [[read_payload(payload) for payload in row] for row in self._payloads]

    def __len__(self) -> int:
        return len(self.keys)

    @overload
    def __getitem__(self, rows: int) -> list[Result]: ...

    @overload
    def __getitem__(self, rows: Any) -> Results: ...

    def __getitem__(self, rows: Any) -> list[Result] | Results:
        if isinstance(rows, int | np.integer) and not isinstance(rows, bool):
            of_row = zip(self.keys[rows].tolist(), self.scores[rows].tolist(), self._payloads[rows], strict=True)
            return [Result(key, score, read_payload(payload)) for key, score, payload in of_row if key is not None]
        if isinstance(rows, tuple):
            raise TypeError("results are selected by rows: write results[rows]")
        if not isinstance(rows, slice):
            rows = np.asarray(rows)
            if rows.size == 0:
                rows = rows.astype(np.int64)
        return Results(self.keys[rows], self.scores[rows], self._payloads[rows])

    def __iter__(self) -> Iterator[list[Result]]:
        return (self[row] for row in range(len(self)))

    def __repr__(self) -> str:
        n, k = self.keys.shape
        return f"Results({n} rows of at most {k} memories)"

    def _columns(self) -> dict[str, list[Any]]:
        row, column = np.nonzero(~are_none(self.keys))
        return {
            "row": row.tolist(),
            "rank": column.tolist(),
            "key": self.keys[row, column].tolist(),
            "score": self.scores[row, column].tolist(),
            "payload": [read_payload(payload) for payload in self._payloads[row, column]],
        }

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame with one row for each memory found: row, rank, key, score, payload."""
        import pandas as pd  # type: ignore[import-untyped]

        return pd.DataFrame(self._columns())

    def to_polars(self) -> Any:
        """Return a polars DataFrame with one row for each memory found.

        Its columns are row, rank, key, score and payload. Payloads are JSON, for a column has one type.
        """
        import polars as pl

        row, column = np.nonzero(~are_none(self.keys))
        return pl.DataFrame(self._columns() | {"payload": self._payloads[row, column].tolist()}, strict=False)


def read_payload(payload: str | None) -> Any:
    """Return the payload that is stored as JSON."""
    return None if payload is None else json.loads(payload)

"""Results of queries, and items read by key."""

import json
import sqlite3
import threading
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, NamedTuple, overload
from weakref import WeakSet

import numpy as np

from ._checks import Key, are_none


class Result(NamedTuple):
    """One memory that a query found."""

    key: Key
    """The key."""
    score: float
    """The score; larger is better."""
    payload: Any
    """The payload; None if there is none."""
    text: str | None = None
    """The text; None if there is none."""


class Items(NamedTuple):
    """Memories of a store."""

    keys: list[Key]
    """The keys."""
    vectors: Any
    """The vectors as they were added, with NaN (zeros, if sparse) for memories without one; None if there are none
    (ndarray or csr_array of float32, shape (n, n_features), or None)."""
    payloads: list[Any]
    """The payloads; None for memories without one."""
    texts: list[str | None]
    """The texts; None for memories without one."""
    expires: list[datetime | None] | None = None
    """The times at which the memories expire, None for those that do not; None if no memory of the store does."""

    def first(self) -> "Item":
        """Return the first memory."""
        vector = self.vectors
        if vector is not None:
            vector = vector[0] if isinstance(vector, np.ndarray) else vector[:1]
        return Item(self.keys[0], vector, self.payloads[0], self.texts[0], self.expires[0] if self.expires else None)


class Item(NamedTuple):
    """One memory of a store."""

    key: Key
    """The key."""
    vector: Any
    """The vector (ndarray of float32, shape (n_features,), or csr_array, shape (1, n_features))."""
    payload: Any
    """The payload; None if there is none."""
    text: str | None
    """The text; None if there is none."""
    expires: datetime | None = None
    """The time at which the memory expires; None if it does not."""


class Results:
    """Results of queries: the memories found for each row, best first.

    ``results[i]`` is the list of :class:`Result` of row ``i``. A slice, a mask or an array of positions selects several
    rows, as new results. Iteration yields the list of each row. Payloads and texts are as they were at the time of the
    query.

    Attributes
    ----------
    keys : ndarray, shape (n, k)
        The keys, None where fewer than ``k`` memories were found. The dtype is int64 if all keys are integers and none
        is missing, otherwise object.
    scores : ndarray of float32 or float64, shape (n, k)
        Cosines, inner products or negative Euclidean distances, plus the learned effect of rewards; ``-inf`` where
        there is no memory. For queries with texts, see :meth:`MemoryStore.query`.
    """

    def __init__(self, keys: np.ndarray, scores: np.ndarray, payloads: "Column" = None, texts: "Column" = None) -> None:
        self.keys = keys
        self.scores = scores
        self._found, self._found_texts = payloads, texts  # payloads are JSON texts

    @property
    def _payloads(self) -> np.ndarray:
        self._found = _read(self._found, self.keys.shape)
        return self._found

    @property
    def _texts(self) -> np.ndarray:
        self._found_texts = _read(self._found_texts, self.keys.shape)
        return self._found_texts

    def __getstate__(self) -> dict[str, Any]:
        return {"keys": self.keys, "scores": self.scores, "_found": self._payloads, "_found_texts": self._texts}

    @property
    def payloads(self) -> list[list[Any]]:
        """A list of ``k`` payloads for each row, with None where there is no payload or no memory."""
        return [[read_payload(payload) for payload in row] for row in self._payloads]

    @property
    def texts(self) -> list[list[str | None]]:
        """A list of ``k`` texts for each row, with None where there is no text or no memory."""
        return self._texts.tolist()

    def __len__(self) -> int:
        return len(self.keys)

    @overload
    def __getitem__(self, rows: int) -> list[Result]: ...

    @overload
    def __getitem__(self, rows: Any) -> "Results": ...

    def __getitem__(self, rows: Any) -> "list[Result] | Results":
        if isinstance(rows, int | np.integer) and not isinstance(rows, bool):
            columns = self.keys[rows].tolist(), self.scores[rows].tolist(), self._payloads[rows], self._texts[rows]
            return [
                Result(key, score, read_payload(payload), text)
                for key, score, payload, text in zip(*columns, strict=True)
                if key is not None
            ]
        if isinstance(rows, tuple):
            raise TypeError(f"results can be indexed only by row: use results[rows], got {rows!r:.50}")
        if not isinstance(rows, slice):
            rows = np.asarray(rows)
            if rows.size == 0:
                rows = rows.astype(np.int64)
        payloads = None if self._found is None else self._payloads[rows]
        texts = None if self._found_texts is None else self._texts[rows]
        return Results(self.keys[rows], self.scores[rows], payloads, texts)

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
            "text": self._texts[row, column].tolist(),
        }

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame with one row for each memory found: row, rank, key, score, payload, text."""
        import pandas as pd  # type: ignore[import-untyped]

        return pd.DataFrame(self._columns())

    def to_polars(self) -> Any:
        """Return a polars DataFrame with one row for each memory found.

        Its columns are row, rank, key, score, payload and text. Payloads are JSON text, because a column has one type.
        """
        import polars as pl

        row, column = np.nonzero(~are_none(self.keys))
        return pl.DataFrame(self._columns() | {"payload": self._payloads[row, column].tolist()}, strict=False)


class Unread:
    """Payloads or texts of results. They are read on first access, or just before the store changes.

    - ``find``: returns a dict of payloads or texts by id for a list of ids.
    - ``ids`` (int64 (n, k)): the ids, -1 where there is no memory.
    """

    def __init__(self, find: Callable[[list[int]], dict[int, str]], ids: np.ndarray) -> None:
        self._find: Callable[[list[int]], dict[int, str]] | None = find
        self._ids = ids
        self._texts: np.ndarray = np.empty((0, 0), object)

    def read(self) -> np.ndarray:
        """Return an object array of shape (n, k), with None where there is none."""
        find = self._find
        if find is not None:
            ids = self._ids.reshape(-1).tolist()
            try:
                by_id = find(ids if len(self._ids) == 1 else list(set(ids)))
            except sqlite3.ProgrammingError:  # the database was closed after another thread has read them
                if self._find is not None:
                    raise
                return self._texts
            texts = np.empty(len(ids), object)
            texts[:] = [by_id.get(memory_id) for memory_id in ids]
            if self._find is not None:  # otherwise another thread has read them, perhaps before a change
                self._texts = texts.reshape(self._ids.shape)
                self._find = None
        return self._texts


Column = np.ndarray | Unread | None
"""Payloads or texts of results; None if no result has any."""


def _read(column: Column, shape: tuple[int, ...]) -> np.ndarray:
    if column is None:
        return np.full(shape, None, object)
    return column.read() if isinstance(column, Unread) else column


class UnreadColumns:
    """Payloads and texts of results that must be read before the store changes.

    - ``is_changing``: returns whether a change is in progress. Every change begins with :meth:`read`.
    """

    def __init__(self, is_changing: Callable[[], bool]) -> None:
        self._is_changing = is_changing
        self._noting = threading.Lock()
        self.waiting: WeakSet[Unread] = WeakSet()  # results that have not been read

    def add(self, find: Callable[[list[int]], dict[int, str]], ids: np.ndarray) -> Unread:
        """Return a new column. If a change is in progress, it is read now."""
        column = Unread(find, ids)
        with self._noting:
            if not self._is_changing():
                self.waiting.add(column)
                return column
        column.read()
        return column

    def read(self) -> None:
        """Read all columns that are still in use."""
        with self._noting:
            waiting, self.waiting = list(self.waiting), WeakSet()
        for column in waiting:
            column.read()


def read_payload(payload: str | None) -> Any:
    """Return a payload from its JSON text."""
    return None if payload is None else json.loads(payload)

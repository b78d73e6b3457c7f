"""The keys of memories by their ids, in arrays: what every query looks up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ._checks import Key

_GONE, _WITHOUT, _WITH = 0, 1, 2  # of a record: deleted, without a payload, with one
_ROOM = 1.5  # ratio of the room of arrays that grow to what they hold


class Named(NamedTuple):
    """What was looked up for some ids."""

    keys: np.ndarray  # int64 or object
    are_there: np.ndarray  # bool: whether the id has a record
    has_payload: np.ndarray  # bool


class _Columns(NamedTuple):
    """Records in the order of their ids: the first ``n``, and room for more."""

    n: int
    ids: np.ndarray  # int64
    keys: np.ndarray  # int64, or object for strings
    kinds: np.ndarray  # int8


class KeyTable:
    """Keys by ids, and which memories have payloads.

    Any thread may read while one changes the table: columns are put in place at once, and what readers may hold is only
    marked or appended to. A memory takes 17 bytes, and its string if its key is one.

    Parameters
    ----------
    ids : ndarray of int64, shape (n,)
        Ids in rising order.
    keys : sequence of str or of int, length n
        Their keys, all of one type.
    has_payload : ndarray of bool, shape (n,)
        Which have payloads.
    """

    def __init__(self, ids: np.ndarray, keys: Sequence[Key], has_payload: np.ndarray) -> None:
        self._columns = _Columns(ids.size, ids, as_array(keys), np.where(has_payload, _WITH, _WITHOUT).astype(np.int8))
        self._n_gone = 0

    @property
    def kind(self) -> type | None:
        """The type of the keys; None if there are none."""
        if self._columns.n == self._n_gone:
            return None
        return str if self._columns.keys.dtype == object else int

    def find(self, ids: np.ndarray) -> Named:
        """Return the keys of memories, in an array of any shape; where there is no record they are arbitrary."""
        n, all_ids, keys, kinds = self._columns
        if n == 0:
            nothing = np.zeros(ids.shape, np.bool_)
            return Named(np.full(ids.shape, None, object), nothing, nothing)
        first = all_ids.item(0)
        if all_ids.item(n - 1) - first < n:  # none is left out: a search would take longer than all else
            at = ids if first == 0 else ids - first
            are_there = all_ids[:n].take(at, mode="clip") == ids
        else:
            at = all_ids[:n].searchsorted(ids)
            at = np.minimum(at, n - 1)
            are_there = all_ids[at] == ids
        kind = kinds[:n].take(at, mode="clip")
        return Named(keys[:n].take(at, mode="clip"), are_there & (kind != _GONE), kind == _WITH)

    def append(self, ids: np.ndarray, keys: Sequence[Key], has_payload: np.ndarray) -> None:
        """Add records with ids above all others."""
        old, more = self._columns, KeyTable(ids, keys, has_payload)._columns
        if old.n == self._n_gone:  # others may have keys of another type
            self._columns, self._n_gone = more, 0
            return
        n = old.n + more.n
        columns = old._replace(n=n)
        if n > old.ids.size:
            columns = _Columns(n, *(_with_room(column[: old.n], int(n * _ROOM)) for column in old[1:]))
        for column, new in zip(columns[1:], more[1:], strict=True):
            column[old.n : n] = new
        self._columns = columns

    def mark(self, ids: np.ndarray, has_payload: np.ndarray) -> None:
        """Note which of some memories have payloads from now on."""
        n, all_ids, _, kinds = self._columns
        kinds[all_ids[:n].searchsorted(ids)] = np.where(has_payload, _WITH, _WITHOUT)

    def delete(self, ids: np.ndarray) -> None:
        """Delete records."""
        n, all_ids, keys, kinds = self._columns
        if n == 0 or ids.size == 0:
            return
        at = np.minimum(all_ids[:n].searchsorted(ids), n - 1)
        at = at[(all_ids[at] == ids) & (kinds[at] != _GONE)]
        kinds[at] = _GONE
        self._n_gone += at.size
        if 2 * self._n_gone > n:
            left = np.flatnonzero(kinds[:n] != _GONE)
            self._columns, self._n_gone = _Columns(left.size, all_ids[left], keys[left], kinds[left]), 0


def as_array(keys: Sequence[Key | None]) -> np.ndarray:
    """Return keys of one type as an array: int64, or object for strings."""
    if len(keys) > 0 and isinstance(keys[0], int):
        return np.array(keys, np.int64)
    array = np.empty(len(keys), object)
    array[:] = keys
    return array


def _with_room(column: np.ndarray, size: int) -> np.ndarray:
    larger = np.zeros(size, column.dtype)
    larger[: column.size] = column
    return larger

"""The keys of memories by their ids, in arrays: what every query looks up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ._checks import Key

GONE, WITHOUT, WITH = 0, 1, 2
"""Kinds of records: deleted, without a payload, with one."""

_ROOM = 1.5  # ratio of the room of arrays that grow to what they hold


class Named(NamedTuple):
    """What was looked up for some ids: arrays of the same shape, with the record found for each."""

    ids: np.ndarray  # int64
    keys: np.ndarray  # int64 or object: arbitrary where there is no record
    ids_found: np.ndarray  # int64: others where there is no record
    kinds: np.ndarray  # int8: GONE, WITHOUT or WITH

    @property
    def are_there(self) -> np.ndarray:
        """Whether each id has a record: bool."""
        there: np.ndarray = (self.ids_found == self.ids) & (self.kinds != GONE)
        return there

    # Of a single query the next two are asked, and comparing bytes takes a fraction of comparing arrays.

    def are_all_there(self) -> bool:
        """Return whether all ids have records."""
        return self.ids_found.tobytes() == self.ids.tobytes() and GONE not in self.kinds.tobytes()

    def may_have_payloads(self) -> bool:
        """Return False if no record has a payload."""
        return WITH in self.kinds.tobytes()


class _Columns(NamedTuple):
    """Records in the order of their ids."""

    ids: np.ndarray  # int64
    keys: np.ndarray  # int64, or object for strings
    kinds: np.ndarray  # int8: GONE, WITHOUT or WITH


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
        self._columns = _Columns(ids, as_array(keys), np.where(has_payload, WITH, WITHOUT).astype(np.int8))
        self._rooms = self._columns  # the arrays of which the columns are the beginning
        self._n_gone = 0

    @property
    def kind(self) -> type | None:
        """The type of the keys; None if there are none."""
        if self._columns.ids.size == self._n_gone:
            return None
        return str if self._columns.keys.dtype == object else int

    def find(self, ids: np.ndarray) -> Named:
        """Return the keys of memories, in an array of any shape; where there is no record they are arbitrary."""
        all_ids, keys, kinds = self._columns
        n = all_ids.size
        if n == 0:
            nothing = np.full(ids.shape, None, object)
            return Named(ids, nothing, ids, np.full(ids.shape, GONE, np.int8))
        first, at = all_ids.item(0), ids
        if all_ids.item(n - 1) - first >= n:  # otherwise none is left out, and a search would take longer than all else
            at = all_ids.searchsorted(ids)
        elif first > 0:
            at = ids - first
        return Named(ids, keys.take(at, mode="clip"), all_ids.take(at, mode="clip"), kinds.take(at, mode="clip"))

    def append(self, ids: np.ndarray, keys: Sequence[Key], has_payload: np.ndarray) -> None:
        """Add records with ids above all others."""
        old, more = self._columns, KeyTable(ids, keys, has_payload)._columns
        if old.ids.size == self._n_gone:  # others may have keys of another type
            self._columns, self._rooms, self._n_gone = more, more, 0
            return
        before, n = old.ids.size, old.ids.size + more.ids.size
        if n > self._rooms.ids.size:
            self._rooms = _Columns(*(_with_room(column, int(n * _ROOM)) for column in old))
        for room, new in zip(self._rooms, more, strict=True):
            room[before:n] = new
        self._columns = _Columns(*(room[:n] for room in self._rooms))

    def mark(self, ids: np.ndarray, has_payload: np.ndarray) -> None:
        """Note which of some memories have payloads from now on."""
        all_ids, _, kinds = self._columns
        kinds[all_ids.searchsorted(ids)] = np.where(has_payload, WITH, WITHOUT)

    def delete(self, ids: np.ndarray) -> None:
        """Delete records."""
        all_ids, keys, kinds = self._columns
        n = all_ids.size
        if n == 0 or ids.size == 0:
            return
        at = np.minimum(all_ids.searchsorted(ids), n - 1)
        at = at[(all_ids[at] == ids) & (kinds[at] != GONE)]
        kinds[at] = GONE
        self._n_gone += at.size
        if 2 * self._n_gone > n:
            left = np.flatnonzero(kinds != GONE)
            self._columns = self._rooms = _Columns(all_ids[left], keys[left], kinds[left])
            self._n_gone = 0


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

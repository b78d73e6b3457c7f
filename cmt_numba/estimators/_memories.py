"""The tables of a retriever: which memories there are, what they stand for, and what in the forest leads to them.

Tables are not changed: each change makes new ones, which share with the old ones what stays, so one assignment makes a
change visible. Further memories are written behind the existing ones, in memory that both tables share. Tables hold
nothing of what has been removed, except that values stay where they are until half of them belong to no memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from .._engine import Filter
from .._forest import NONE, resized
from ._values import ValueStore

OWN, FURTHER = 0, 1

_FEW = 16  # values that no memory has any more, and that may stay in the store
_GROWTH = 1.25  # of the room behind columns, so that each entry is copied a constant number of times

_FIRST = np.array([6.0, -3.0])  # slope and intercept before any evidence: the same for own and further keys
_VARIANCES = np.array([4.0, 4.0])
_KEPT = 0.999  # of the evidence, when further evidence comes: further keys become more
_FLATTEST = 0.5  # slope


class GrowingColumns:
    """Room for columns of one length. Tables that share it see the entries in use when they were made.

    Parameters
    ----------
    columns : tuple of ndarray
        What they hold at first, which is copied.
    capacity : int
        Entries that each has room for.
    """

    def __init__(self, columns: tuple[np.ndarray, ...], capacity: int) -> None:
        self._columns = [resized(column, capacity, 0) for column in columns]
        self._n_used = len(columns[0])

    def takes(self, n: int, n_more: int) -> bool:
        """Return whether so many further entries can be written behind the first ``n``, and nothing is there yet."""
        return n == self._n_used and n + n_more <= len(self._columns[0])

    def append(self, further: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
        """Write further entries of each column behind those in use; return all in use now, which share its memory."""
        first, stop = self._n_used, self._n_used + len(further[0])
        for column, more in zip(self._columns, further, strict=True):
            column[first:stop] = more
        self._n_used = stop
        return tuple(column[:stop] for column in self._columns)


def appended(
    room: GrowingColumns | None, columns: tuple[np.ndarray, ...], further: tuple[np.ndarray, ...]
) -> tuple[GrowingColumns, tuple[np.ndarray, ...]]:
    """Return columns with further entries, and the room that they lie in.

    ``room`` is where the columns lie, None if they have none. If they are not the last that were made there, or it is
    full, they get another one. The columns given stay as they are.
    """
    n, n_more = len(columns[0]), len(further[0])
    if room is None or not room.takes(n, n_more):
        room = GrowingColumns(columns, max(n + n_more, int(_GROWTH * n)))
    return room, room.append(further)


@dataclass(frozen=True)
class Memories:
    """All memories of a retriever.

    Attributes
    ----------
    ids : ndarray of int64, shape (n_memories,)
        Ids, rising.
    places : ndarray of int64, shape (n_memories,)
        Where their values are in the store.
    entries : ndarray of int64, shape (n_memories,)
        What each is in the forest: its key or, searched by value, its value, which others may have too.
    keys : ndarray of int64, shape (n_keys,)
        What there is in the forest, rising: the entries of all memories, and their further keys.
    owners : ndarray of int64, shape (n_keys,)
        The id of the memory that each leads to.
    next_id : int
        The id of the next memory: ids are not used again.
    values : ValueStore
        The values.
    room_of_memories, room_of_keys : GrowingColumns, optional
        Where the columns of memories and those of keys lie, if there is room behind them.
    """

    ids: np.ndarray
    places: np.ndarray
    entries: np.ndarray
    keys: np.ndarray
    owners: np.ndarray
    next_id: int
    values: ValueStore
    room_of_memories: GrowingColumns | None = None
    room_of_keys: GrowingColumns | None = None

    @classmethod
    def none(cls, values: ValueStore) -> Memories:
        """Return the tables of no memories, whose values will be like those of a store."""
        empty = np.empty(0, np.int64)
        return cls(empty, empty, empty, empty, empty, 0, values)

    def __deepcopy__(self, memo: Any) -> Memories:
        # Copies are made for other processes and for files: nothing that was removed goes there.
        packed = self.packed()
        arrays = {name: getattr(packed, name).copy() for name in ("ids", "places", "entries", "keys", "owners")}
        return Memories(next_id=packed.next_id, values=packed.values.copied(memo), **arrays)

    def rows_of(self, ids: np.ndarray) -> np.ndarray:
        """Return where memories are in the tables.

        Raises
        ------
        KeyError
            If there is no such memory.
        """
        rows = _positions(self.ids, ids)
        if np.any(rows == NONE):
            raise KeyError(f"ids must be ids of stored memories: there is no {ids[rows == NONE][0]}")
        return rows

    @cached_property
    def own_entries(self) -> Filter:
        """The filter that leaves of the forest what memories are there themselves."""
        return Filter(np.sort(self.entries))

    def entries_of(self, ids: np.ndarray) -> np.ndarray:
        """Return what memories are in the forest; NONE for NONE."""
        return _looked_up(self.entries, _positions(self.ids, ids))

    def owners_of(self, keys: np.ndarray) -> np.ndarray:
        """Return the memories that what was found in the forest leads to; NONE for NONE."""
        return _looked_up(self.owners, _positions(self.keys, keys))

    def values_of(self, ids: np.ndarray) -> Any:
        """Return the values of memories, or raise KeyError."""
        return self.values.take(self.places[self.rows_of(ids)])

    def with_more(self, values: Any, entries: np.ndarray) -> Memories:
        """Return tables with further memories; what is new of their entries leads to them."""
        ids = np.arange(self.next_id, self.next_id + entries.size)
        places = np.arange(self.values.n_values, self.values.n_values + entries.size)
        room, columns = appended(self.room_of_memories, (self.ids, self.places, self.entries), (ids, places, entries))
        more = replace(
            self,
            ids=columns[0],
            places=columns[1],
            entries=columns[2],
            next_id=self.next_id + entries.size,
            values=self.values.with_more(values),
            room_of_memories=room,
        )
        return more.with_keys(entries, ids)

    def with_keys(self, keys: np.ndarray, owners: np.ndarray) -> Memories:
        """Return tables where those of some keys that are new lead to memories, the first of equal ones."""
        keys, first = np.unique(keys, return_index=True)
        new = _positions(self.keys, keys) == NONE
        keys, owners = keys[new], owners[first[new]]
        if keys.size == 0:
            return self
        if self.keys.size > 0 and keys[0] < self.keys[-1]:
            places = np.searchsorted(self.keys, keys)
            return self._with(keys=np.insert(self.keys, places, keys), owners=np.insert(self.owners, places, owners))
        room, columns = appended(self.room_of_keys, (self.keys, self.owners), (keys, owners))
        return replace(self, keys=columns[0], owners=columns[1], room_of_keys=room)

    def without(self, ids: np.ndarray, *, shared: bool) -> Memories:
        """Return tables without some memories, and without what leads to them alone.

        Entries may be ``shared`` by memories; otherwise all that leads to one goes with it.
        """
        gone = np.zeros(self.ids.size, np.bool_)
        gone[self.rows_of(ids)] = True
        less = self._with(ids=self.ids[~gone], places=self.places[~gone], entries=self.entries[~gone])
        if shared:
            return less._led_to_by_entries()._economical()
        kept = ~np.isin(self.owners, ids)
        return less._with(keys=self.keys[kept], owners=self.owners[kept])._economical()

    def with_values(self, ids: np.ndarray, values: Any, entries: np.ndarray | None = None) -> Memories:
        """Return tables where some memories have other values and, if these are searched, other entries."""
        rows, places, stored = self.rows_of(ids), self.places.copy(), self.values.with_more(values)
        places[rows] = np.arange(self.values.n_values, stored.n_values)
        other = self._with(places=places, values=stored)
        if entries is not None:
            entries_of = self.entries.copy()
            entries_of[rows] = entries
            other = other._with(entries=entries_of).with_keys(entries, ids)._led_to_by_entries()
        return other._economical()

    def packed(self) -> Memories:
        """Return tables whose store holds the values of the memories in their order, and no others."""
        if self.values.n_values == self.ids.size and np.array_equal(self.places, np.arange(self.ids.size)):
            return self
        return self._with(places=np.arange(self.ids.size), values=self.values.only(self.places))

    def _with(self, **changed: Any) -> Memories:
        """Return tables with other columns, which have no room behind them."""
        return replace(self, room_of_memories=None, room_of_keys=None, **changed)

    def _led_to_by_entries(self) -> Memories:
        """Return tables where all that is some memory's entry leads to one that has it, and nothing else is left."""
        rows = _positions(self.keys, self.entries)
        owners = self.owners.copy()
        lost = _positions(self.ids, owners) == NONE
        lost[~lost] = self.entries[_positions(self.ids, owners[~lost])] != self.keys[~lost]
        heirs = np.flatnonzero(lost[rows])
        owners[rows[heirs]] = self.ids[heirs]
        kept = np.zeros(self.keys.size, np.bool_)
        kept[rows] = True
        return self._with(keys=self.keys[kept], owners=owners[kept])

    def _economical(self) -> Memories:
        """Return tables whose store holds no more values of no memory than it must for changes to be fast."""
        if self.values.n_values > 2 * self.ids.size + _FEW:
            return self.packed()
        return self


def _positions(ids: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """Return where ids are among others, which rise, and NONE for those that are not: int64, like ``asked``."""
    if ids.size == 0:
        return np.full(np.shape(asked), NONE, np.int64)
    rows = np.minimum(np.searchsorted(ids, asked), ids.size - 1)
    return np.where(ids[rows] == asked, rows, NONE)


def _looked_up(table: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return the entries of a table, NONE for NONE."""
    return np.where(rows == NONE, NONE, table[rows]) if table.size > 0 else rows


class FurtherKeyWorth(NamedTuple):
    """For own and for further keys, how probable it is that the nearest is right: logistic in its similarity.

    Further keys are queries that were rewarded. Queries may be more like each other than like what they ask for, so the
    nearest of former queries says less than the nearest of the keys, and how much less depends on the data. A
    similarity to a further key counts as the similarity to an own key that is right as often.

    Learned one observation at a time, by the normal approximation of the posterior (Spiegelhalter and Lauritzen, 1990).
    """

    means: np.ndarray  # float64 (2, 2): slope and intercept of each
    precisions: np.ndarray  # float64 (2, 2, 2)

    @classmethod
    def first(cls) -> FurtherKeyWorth:
        """Return what is believed before any evidence: both are worth the same."""
        return cls(np.tile(_FIRST, (2, 1)), np.tile(np.diag(1.0 / _VARIANCES), (2, 1, 1)))

    def seen(self, kind: int, similarities: np.ndarray, right: np.ndarray) -> FurtherKeyWorth:
        """Return what is believed when the nearest keys of a kind have been seen to be right or wrong."""
        means, precisions = self.means.copy(), self.precisions.copy()
        mean, precision = means[kind], precisions[kind]
        for similarity, is_right in zip(similarities.tolist(), right.tolist(), strict=True):
            x = np.array([similarity, 1.0])
            p = 1.0 / (1.0 + np.exp(-np.clip(mean @ x, -30.0, 30.0)))
            precision *= _KEPT
            precision += p * (1.0 - p) * np.outer(x, x) + (1.0 - _KEPT) * np.diag(1.0 / _VARIANCES)
            mean += np.linalg.solve(precision, x) * (is_right - p)
        return FurtherKeyWorth(means, precisions)

    def in_terms_of_own(self, similarities: np.ndarray) -> np.ndarray:
        """Return the similarities to own keys that are worth as much as these to further ones: at most 1, float32."""
        own, further = self.means[OWN], self.means[FURTHER]
        slope = max(own[0], _FLATTEST)
        worth = (max(further[0], _FLATTEST) * similarities + further[1] - own[1]) / slope
        return np.minimum(worth, 1.0).astype(np.float32)

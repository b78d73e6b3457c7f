"""The tables of a retriever: which memories there are, what they stand for, and what in the forest leads to them.

Tables are not changed: each change makes new ones, which share with the old ones what stays, so one assignment puts a
change in place. Further memories are written behind those there are, in memory that both tables share
(``_growing.py``). Tables hold what there is and nothing of what has been removed, except that values are left where
they lie until half of them are no memory's any more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from .._engine import Filter
from .._forest.state import NONE
from ._growing import Room, appended
from ._values import ValueStore

_FEW = 16  # values that no memory has any more and that may lie about


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
    room_of_memories, room_of_keys : Room, optional
        Where the columns of memories and those of keys lie, if there is room behind them.
    """

    ids: np.ndarray
    places: np.ndarray
    entries: np.ndarray
    keys: np.ndarray
    owners: np.ndarray
    next_id: int
    values: ValueStore
    room_of_memories: Room | None = None
    room_of_keys: Room | None = None

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

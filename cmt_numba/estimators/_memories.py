"""Tables of a retriever: memories, their values, and their keys in the forest.

Tables are immutable. A change makes new tables, which share unchanged columns with the old ones and are swapped in
atomically. New memories are appended to spare capacity that old and new tables share. Removed memories leave the tables
immediately. Their values stay in the store until half of the stored values are unused.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._forest import NONE, GrowingColumns
from ._labels import looked_up, places_in
from ._values import ValueStore

_COLUMNS = ("ids", "places", "entries", "keys", "owners")
_FEW = 16  # up to this many unused values, tables are never packed


@dataclass(frozen=True)
class Memories:
    """All memories of a retriever."""

    memories: GrowingColumns  # columns ``ids``, ``places`` and ``entries``, with one row for each memory
    in_forest: GrowingColumns  # columns ``keys`` and ``owners``, with one row for each key in the forest
    next_id: int  # id of the next memory. Ids are never reused.
    values: ValueStore  # store of values

    @classmethod
    def of(cls, next_id: int, values: ValueStore, **columns: np.ndarray) -> Memories:
        """Return tables with all ``_COLUMNS``."""
        ids, places, entries, keys, owners = (columns[name] for name in _COLUMNS)
        return cls(GrowingColumns(ids, places, entries), GrowingColumns(keys, owners), next_id, values)

    @classmethod
    def none(cls, values: ValueStore) -> Memories:
        """Return empty tables for values like those of a store."""
        return cls.of(0, values, **dict.fromkeys(_COLUMNS, np.empty(0, np.int64)))

    @property
    def ids(self) -> np.ndarray:
        """Ids, in ascending order: int64, shape (n_memories,)."""
        return self.memories.columns[0]

    @property
    def places(self) -> np.ndarray:
        """The position of each memory's value in the store: int64, shape (n_memories,)."""
        return self.memories.columns[1]

    @property
    def entries(self) -> np.ndarray:
        """The forest id of each memory's key or, in a search by value, of its value, which may be shared."""
        return self.memories.columns[2]

    @property
    def keys(self) -> np.ndarray:
        """All forest ids, in ascending order: int64, shape (n_keys,)."""
        return self.in_forest.columns[0]

    @property
    def owners(self) -> np.ndarray:
        """The id of the memory that owns each key: int64, shape (n_keys,)."""
        return self.in_forest.columns[1]

    def __deepcopy__(self, memo: Any) -> Memories:
        # Copies go to other processes and to files, which must not receive removed values.
        packed = self.packed()
        arrays = {name: getattr(packed, name).copy() for name in _COLUMNS}
        return Memories.of(packed.next_id, packed.values.copied(memo), **arrays)

    def rows_of(self, ids: np.ndarray) -> np.ndarray:
        rows = places_in(self.ids, ids)
        if np.any(rows == NONE):
            raise KeyError(f"ids must refer to stored memories, but no memory has id {ids[rows == NONE][0]}")
        return rows

    def entries_of(self, ids: np.ndarray) -> np.ndarray:
        """Return the forest entry of each memory, and NONE for NONE."""
        return looked_up(self.entries, places_in(self.ids, ids))

    def owners_of(self, keys: np.ndarray) -> np.ndarray:
        """Return the id of the memory that owns each key, and NONE for NONE."""
        return looked_up(self.owners, places_in(self.keys, keys))

    def values_of(self, ids: np.ndarray) -> Any:
        """Return the values of memories, or raise KeyError if an id is not stored."""
        return self.values.take(self.places[self.rows_of(ids)])

    def with_more(self, values: Any, entries: np.ndarray) -> Memories:
        """Return tables with additional memories, which own their new entries."""
        ids = np.arange(self.next_id, self.next_id + entries.size)
        places = np.arange(self.values.n_values, self.values.n_values + entries.size)
        more = replace(
            self,
            memories=self.memories.appended(ids, places, entries),
            next_id=self.next_id + entries.size,
            values=self.values.with_more(values),
        )
        return more.with_keys(entries, ids)

    def with_keys(self, keys: np.ndarray, owners: np.ndarray) -> Memories:
        """Return tables with additional keys. Known keys are ignored. Of equal keys, only the first is added."""
        keys, first = np.unique(keys, return_index=True)
        new = places_in(self.keys, keys) == NONE
        keys, owners = keys[new], owners[first[new]]
        if keys.size == 0:
            return self
        if self.keys.size > 0 and keys[0] < self.keys[-1]:
            places = np.searchsorted(self.keys, keys)
            return self._with(keys=np.insert(self.keys, places, keys), owners=np.insert(self.owners, places, owners))
        return replace(self, in_forest=self.in_forest.appended(keys, owners))

    def without(self, ids: np.ndarray, *, shared: bool) -> Memories:
        """Return tables without memories, and without entries that only they own if memories may share entries."""
        gone = np.zeros(self.ids.size, np.bool_)
        gone[self.rows_of(ids)] = True
        less = self._with(ids=self.ids[~gone], places=self.places[~gone], entries=self.entries[~gone])
        if shared:
            return less._led_to_by_entries()._economical()
        kept = ~np.isin(self.owners, ids)
        return less._with(keys=self.keys[kept], owners=self.owners[kept])._economical()

    def with_values(self, ids: np.ndarray, values: Any, entries: np.ndarray | None = None) -> Memories:
        """Return tables with new values for some memories and, in a search by value, new entries."""
        rows, places, stored = self.rows_of(ids), self.places.copy(), self.values.with_more(values)
        places[rows] = np.arange(self.values.n_values, stored.n_values)
        other = self._with(places=places, values=stored)
        if entries is not None:
            entries_of = self.entries.copy()
            entries_of[rows] = entries
            other = other._with(entries=entries_of).with_keys(entries, ids)._led_to_by_entries()
        return other._economical()

    def packed(self) -> Memories:
        """Return tables without unused values, in which value ``i`` belongs to memory ``i``."""
        if self.values.n_values == self.ids.size and np.array_equal(self.places, np.arange(self.ids.size)):
            return self
        return self._with(places=np.arange(self.ids.size), values=self.values.only(self.places))

    def _with(self, **changed: Any) -> Memories:
        kept = {name: getattr(self, name) for name in (*_COLUMNS, "next_id", "values")}
        return Memories.of(**kept | changed)

    def _led_to_by_entries(self) -> Memories:
        """Return tables whose keys are exactly the entries of memories, each owned by a memory with that entry."""
        rows = places_in(self.keys, self.entries)
        owners = self.owners.copy()
        lost = places_in(self.ids, owners) == NONE
        lost[~lost] = self.entries[places_in(self.ids, owners[~lost])] != self.keys[~lost]
        heirs = np.flatnonzero(lost[rows])
        owners[rows[heirs]] = self.ids[heirs]
        kept = np.zeros(self.keys.size, np.bool_)
        kept[rows] = True
        return self._with(keys=self.keys[kept], owners=owners[kept])

    def _economical(self) -> Memories:
        """Return these tables, packed if more than about half of the stored values are unused."""
        if self.values.n_values > 2 * self.ids.size + _FEW:
            return self.packed()
        return self

"""Tables of a retriever: memories, their values, and the entries of the index.

Tables are immutable. A change makes new tables, which share unchanged columns with the old ones and are swapped in
atomically. Values of removed memories stay in the store until half of the stored values are unused.
"""

from types import SimpleNamespace
from typing import Any, Self

import numpy as np

from .. import persistence as files
from .._kernels import NONE, GrowingColumns, require
from ._fields import ValuesField
from ._labels import looked_up, places_in
from ._values import ValueStore

_FEW = 16  # up to this many unused values, tables are never packed


class Memories(files.WithFields):
    """All memories of a retriever. Several may share an entry of the index, which then finds the first of them."""

    FIELDS = files.FieldTable(
        ids=files.ArrayField(np.int64),
        entries=files.ArrayField(np.int64),
        digests=files.ArrayField(np.uint8, n_axes=2),
        values=ValuesField(),
        next_id=files.NumberField(),
    )

    def __init__(self, memories: GrowingColumns, index: GrowingColumns, values: ValueStore, next_id: int) -> None:
        self.memories = memories  # columns ``ids``, ``places`` and ``entries``, with one row for each memory
        self.index = index  # columns ``keys``, ``owners`` and ``digests``, with one row for each entry of the index
        self.values, self.next_id = values, next_id  # ids are never reused

    @classmethod
    def none(cls, values: ValueStore, digest_size: int) -> Self:
        """Return empty tables for values like those of a store."""
        none, digests = np.empty(0, np.int64), np.empty((0, digest_size), np.uint8)
        return cls(GrowingColumns(none, none, none), GrowingColumns(none, none, digests), values, 0)

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
        """The entry of each memory's key or, in a search by value, of its value."""
        return self.memories.columns[2]

    @property
    def keys(self) -> np.ndarray:
        """All entries of the index, in ascending order: int64, shape (n_keys,)."""
        return self.index.columns[0]

    def numbered(self) -> dict[bytes, int]:
        """Return the entry of each digest of a value."""
        _, _, digests = self.index.columns
        return dict(zip(map(bytes, digests), self.keys.tolist(), strict=True)) if digests.shape[1] > 0 else {}

    def rows_of(self, ids: np.ndarray) -> np.ndarray:
        rows = places_in(self.ids, ids)
        if np.any(rows == NONE):
            raise KeyError(f"ids must refer to stored memories, but no memory has id {ids[rows == NONE][0]}")
        return rows

    def entries_of(self, ids: np.ndarray) -> np.ndarray:
        """Return the entry of each memory, and NONE for NONE."""
        return looked_up(self.entries, places_in(self.ids, ids))

    def owners_of(self, keys: np.ndarray) -> np.ndarray:
        """Return the id of the first memory with each entry, and NONE for NONE."""
        return looked_up(self.index.columns[1], places_in(self.keys, keys))

    def values_of(self, ids: np.ndarray) -> Any:
        """Return the values of memories, or raise KeyError if an id is not stored."""
        return self.values.take(self.places[self.rows_of(ids)])

    def with_more(self, values: Any, entries: np.ndarray, digests: np.ndarray) -> Self:
        """Return tables with additional memories. Their new entries exceed all others."""
        ids = np.arange(self.next_id, self.next_id + entries.size)
        places = self.values.n_values + np.arange(entries.size)
        more, index = self.memories.appended(ids, places, entries), self._index_with(ids, entries, digests)
        return type(self)(more, index, self.values.with_more(values), self.next_id + entries.size)

    def without(self, ids: np.ndarray) -> Self:
        """Return tables without memories."""
        kept = np.ones(self.ids.size, np.bool_)
        kept[self.rows_of(ids)] = False
        return self._with([column[kept] for column in self.memories.columns], self.values, self.index)

    def with_values(self, ids: np.ndarray, values: Any, entries: np.ndarray, digests: np.ndarray) -> Self:
        """Return tables with other values of some memories. Their new entries exceed all others."""
        rows, changed = self.rows_of(ids), [column.copy() for column in self.memories.columns]
        changed[1][rows], changed[2][rows] = self.values.n_values + np.arange(ids.size), entries
        return self._with(changed, self.values.with_more(values), self._index_with(ids, entries, digests))

    def _index_with(self, ids: np.ndarray, entries: np.ndarray, digests: np.ndarray) -> GrowingColumns:
        new, first = np.unique(entries, return_index=True)
        first = first[new > (self.keys[-1] if self.keys.size > 0 else NONE)]
        return self.index.appended(entries[first], ids[first], digests[first])

    def _with(self, memories: list[np.ndarray], values: ValueStore, index: GrowingColumns) -> Self:
        ids, places, entries = memories
        keys, first = np.unique(entries, return_index=True)
        digests = index.columns[2][np.searchsorted(index.columns[0], keys)]
        if values.n_values > 2 * ids.size + _FEW:
            values, places = ValueStore(values.take(places)), np.arange(ids.size)
        columns = GrowingColumns(ids, places, entries), GrowingColumns(keys, ids[first], digests)
        return type(self)(*columns, values, self.next_id)

    # Files

    def _packed(self) -> Any:
        """Return the columns of files, in which value ``i`` belongs to memory ``i``."""
        is_packed = self.values.n_values == self.ids.size and np.array_equal(self.places, np.arange(self.ids.size))
        values = self.values if is_packed else ValueStore(self.values.take(self.places))
        own = {"values": values, "next_id": self.next_id, "digests": self.index.columns[2]}
        return SimpleNamespace(ids=self.ids, entries=self.entries, **own)

    @classmethod
    def _of_fields(cls, values: dict[str, Any]) -> Self:
        ids, entries, digests = values["ids"], values["entries"], values["digests"]
        keys, first = np.unique(entries, return_index=True)
        require(entries.size == ids.size, "every memory must have an entry in the index")
        require(len(digests) == keys.size, "every entry of the index must have a digest")
        memories = GrowingColumns(ids, np.arange(ids.size), entries)
        return cls(memories, GrowingColumns(keys, ids[first], digests), values["values"], values["next_id"])

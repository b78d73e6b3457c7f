"""``RowIndex``: what the indexes of sparse vectors and of texts share. It stores sparse rows by id."""

from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse

from .._arrays import SlotTable
from .._kernels import NONE, require, resized


class StoredRows(NamedTuple):
    """Sparse rows: that in slot ``i`` has the cells ``offsets[i]:offsets[i + 1]``. Arrays may have unused room."""

    offsets: np.ndarray  # int64
    features: np.ndarray  # int32, ascending in each row
    values: np.ndarray  # float32
    sizes: np.ndarray  # float64 squared lengths of vectors, or float32 numbers of words
    ids: np.ndarray  # int64: the id of each row, -1 if it was removed


class AllowedRows(NamedTuple):
    """The result of :meth:`RowIndex.allow`."""

    slots: np.ndarray  # int64, ascending
    mask: np.ndarray  # bool, one entry per slot


class RowIndex:
    """Sparse rows by id, most of which an inverted index lists.

    Rows that were added later are compared with every query, until there are enough of them to build the inverted index
    again. Searches skip removed rows, and a later build drops them. The caller provides the lock: changes need
    exclusive access, and searches may run concurrently.
    """

    _most_recent: ClassVar[int]  # number of rows compared with every query before they are listed,
    _recent_share: ClassVar[float]  # or their fraction of the listed rows, if that is more

    def __init__(self, n_features: int, kind_of_sizes: type) -> None:
        self.n_features = n_features
        self._n_slots = self._n_gone = self._n_listed = 0  # the first slots are listed
        kinds: tuple[type, ...] = np.int64, np.int32, np.float32, kind_of_sizes, np.int64
        self._stored = StoredRows(*(np.zeros(int(i == 0), kind) for i, kind in enumerate(kinds)))
        self._slots = SlotTable()

    def _build(self) -> None:
        """Build the inverted index of all slots, none of which is removed. Each kind of index has its own."""

    def __len__(self) -> int:
        return self._n_slots - self._n_gone

    @property
    def ids(self) -> np.ndarray:
        """The ids of all rows, in no particular order."""
        ids = self._stored.ids[: self._n_slots]
        return ids[ids != NONE]

    def contains(self, ids: np.ndarray) -> np.ndarray:
        """Return whether each id is stored."""
        return self._slots.find(ids) != NONE

    def vectors(self, ids: np.ndarray) -> Any:
        """Return rows as they were given, as a CSR array of float32. An id that is not stored has an empty row."""
        return self._rows(self._slots.find(ids))

    def _rows(self, slots: np.ndarray) -> Any:
        offsets, cells = self._cells(slots)
        rows = self._stored.values[cells], self._stored.features[cells], offsets
        return scipy.sparse.csr_array(rows, (slots.size, self.n_features))

    def _cells(self, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the offsets of rows and the positions of their cells. The slot NONE has no cells."""
        offsets, there = self._stored.offsets, slots != NONE
        first = np.where(there, offsets[slots], 0)
        sizes = np.where(there, offsets[slots + 1], 0) - first
        ends = np.concatenate([[0], np.cumsum(sizes)])
        return ends, np.arange(ends[-1]) + np.repeat(first - ends[:-1], sizes)

    # Changes

    def _append(
        self, ids: np.ndarray, ends: np.ndarray, features: np.ndarray, values: np.ndarray, sizes: np.ndarray
    ) -> None:
        """Store rows, of which ``ends`` are the ends of the cells."""
        n, stop, n_cells = self._n_slots, self._n_slots + ids.size, int(self._stored.offsets[self._n_slots])
        columns = (n + 1, n_cells + ends.astype(np.int64)), (n_cells, features), (n_cells, values), (n, sizes), (n, ids)
        stored = [_extended(array, *column) for array, column in zip(self._stored, columns, strict=True)]
        self._slots.set(ids, np.arange(n, stop))
        self._stored, self._n_slots = StoredRows(*stored), stop

    def _drop(self, slots: np.ndarray) -> None:
        self._slots.set(self._stored.ids[slots], NONE)
        self._stored.ids[slots] = NONE
        self._n_gone += slots.size

    def _list_if_due(self) -> None:
        n_recent = self._n_slots - self._n_listed
        is_sparse = 2 * self._n_gone > self._n_slots > self._most_recent
        if n_recent > max(self._most_recent, self._recent_share * self._n_listed) or is_sparse:
            self._list_all()

    def _list_all(self) -> None:
        """Drop removed rows, and build the inverted index of the others."""
        if self._n_gone > 0:
            kept = self._kept()
            X, sizes, ids = self._rows(kept), self._stored.sizes[kept], self._stored.ids[kept]
            features = X.indices.astype(np.int32, copy=False)  # SciPy may choose int64
            self._stored = StoredRows(X.indptr.astype(np.int64), features, X.data, sizes, ids)
            self._slots.keep(ids, np.arange(kept.size))
            self._n_slots, self._n_gone = kept.size, 0
        self._n_listed = self._n_slots
        self._build()

    def _kept(self) -> np.ndarray:
        """Return the slots whose rows were not removed."""
        return np.flatnonzero(self._stored.ids[: self._n_slots] != NONE)

    # Searches

    def allow(self, ids: np.ndarray) -> AllowedRows:
        """Return the set of rows that a search may return, until the next change. Unknown ids are ignored."""
        slots, mask = self._slots.find(ids), np.zeros(self._n_slots, np.bool_)
        mask[slots[slots != NONE]] = True
        return AllowedRows(np.flatnonzero(mask), mask)

    def allows(self, among: AllowedRows, ids: np.ndarray) -> np.ndarray:
        """Return whether a search may return each id. Ids that are not stored are not allowed."""
        slots = self._slots.find(ids)
        return (slots != NONE) & among.mask[slots]

    # Files

    def arrays(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return the persistent state: arrays, and scalars that JSON can express."""
        kept = self._kept()
        X = self._rows(kept)
        arrays = {"offsets": X.indptr.astype(np.int64), "features": X.indices.astype(np.int32), "values": X.data}
        return arrays | {"ids": self._stored.ids[kept]}, {}

    def _checked_rows(self, arrays: dict[str, np.ndarray]) -> tuple[np.ndarray, Any]:
        """Return the ids and the rows in a file. Raise InvariantError if they are invalid."""
        offsets, features, values, ids = (arrays[name] for name in ("offsets", "features", "values", "ids"))
        dtypes = [array.dtype for array in (offsets, features, values, ids)]
        require(dtypes == [np.int64, np.int32, np.float32, np.int64], "the arrays must have their dtypes")
        require(all(array.ndim == 1 for array in (offsets, features, values, ids)), "the arrays must have one axis")
        require(offsets.size == ids.size + 1 and offsets[0] == 0 and offsets[-1] == values.size, "offsets must fit")
        require((np.diff(offsets) >= 0).all() and features.size == values.size, "offsets must ascend")
        require(features.size == 0 or 0 <= features.min() <= features.max() < self.n_features, "features must exist")
        require(bool((np.diff(np.sort(ids), prepend=NONE) > 0).all()), "ids must be distinct")
        X = scipy.sparse.csr_array((values, features, offsets), (ids.size, self.n_features))
        require(X.has_canonical_format, "features must ascend")
        return ids, X

    def check_invariants(self) -> None:
        """Raise InvariantError if the arrays contradict each other."""
        stored = self._kept()
        require((self._slots.find(self._stored.ids[stored]) == stored).all(), "each id must be stored once")
        require(stored.size == len(self) == self._slots.count(), "counts must match")


def _extended(array: np.ndarray, n: int, new: np.ndarray) -> np.ndarray:
    """Return an array with ``new`` after its first ``n`` entries."""
    stop = n + new.size
    array = array if stop <= array.size else resized(array, max(stop, 2 * array.size), fill=NONE)
    array[n:stop] = new
    return array

"""Conversions and sums of array-likes for modules that must not import Numba."""

from typing import Any

import numpy as np
import scipy.sparse


class WeightedRows(scipy.sparse.csr_array):  # type: ignore[misc]
    """Sparse rows of a vectorizer that has already weighted their features. Slices have the same type."""


def unmasked(name: str, value: Any) -> Any:
    """Return an array-like unchanged if it has no masked entries."""
    if type(value) is not np.ndarray and np.ma.is_masked(value):
        raise ValueError(f"{name} must not have masked entries: fill them in or remove them")
    return value


def squares_of_rows(X: Any) -> np.ndarray:
    """Return the sum of the squares of each row of an array or a CSR array: float64."""
    if isinstance(X, np.ndarray):
        return np.einsum("ij,ij->i", X, X, dtype=np.float64)
    row = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    return np.bincount(row, np.square(X.data.astype(np.float64)), X.shape[0])


def label_array(name: str, labels: Any) -> np.ndarray:
    """Return labels as an array that preserves every label.

    NumPy's string arrays drop trailing NUL characters. Lists that contain strings with trailing NULs therefore become
    arrays of objects, like strings of NumPy's ``StringDType``, which scikit-learn does not know.
    """
    array = np.asarray(unmasked(name, labels))
    if array.dtype.kind == "T":
        return array.astype(object)
    if array.dtype.kind == "U" and not hasattr(labels, "dtype"):
        objects = np.asarray(labels, object)
        ends_in_nul = (isinstance(label, str) and label.endswith("\0") for label in objects.flat)
        if objects.shape == array.shape and any(ends_in_nul):
            return objects
    return array


class SlotTable:
    """The slot of each id. Most new ids exceed all others, so they are appended to a sorted array.

    Memory is proportional to the ids, unlike that of an array indexed by id.
    """

    def __init__(self) -> None:
        self._ids = self._slots = np.empty(0, np.int64)
        self._n = 0

    @property
    def nbytes(self) -> int:
        """The size in bytes."""
        return self._ids.nbytes + self._slots.nbytes

    def count(self) -> int:
        """Return the number of ids with a slot."""
        return int(np.count_nonzero(self._slots[: self._n] != -1))

    def find(self, ids: np.ndarray) -> np.ndarray:
        """Return the slot of each id, an array of the same shape; -1 for ids that have none."""
        known = self._ids[: self._n]
        if known.size == 0:
            return np.full(ids.shape, -1)
        at = np.minimum(known.searchsorted(ids), known.size - 1)
        return np.where(known[at] == ids, self._slots[at], -1)

    def set(self, ids: np.ndarray, slots: Any) -> None:
        """Set the slots of distinct ids, -1 for removed ones."""
        known, n = self._ids[: self._n], self._n
        at = known.searchsorted(ids)
        is_known = at < n
        is_known[is_known] = known[at[is_known]] == ids[is_known]
        slots = np.broadcast_to(slots, ids.shape)
        self._slots[at[is_known]] = slots[is_known]
        if is_known.all():
            return
        order = np.argsort(ids[~is_known])
        new, of_new, places = ids[~is_known][order], slots[~is_known][order], at[~is_known][order]
        if places[0] < n:  # ids between known ones
            self._ids, self._slots = np.insert(known, places, new), np.insert(self._slots[:n], places, of_new)
        else:
            if n + new.size > self._ids.size:
                room = np.zeros(max(new.size, n), np.int64)
                self._ids, self._slots = np.append(known, room), np.append(self._slots[:n], room)
            self._ids[n : n + new.size], self._slots[n : n + new.size] = new, of_new
        self._n += new.size

    def keep(self, ids: np.ndarray, slots: np.ndarray) -> None:
        """Replace all ids, dropping those that were removed."""
        order = np.argsort(ids)
        self._ids, self._slots, self._n = ids[order], slots[order], ids.size

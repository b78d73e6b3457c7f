"""String ids of stored examples."""

import copy
from collections.abc import Sequence

import numpy as np

from .._forest import NONE


class ExampleNames:
    """Mapping between the distinct string ids ``names`` and the integer ``ids`` of stored examples."""

    def __init__(self, names: Sequence[str] = (), ids: Sequence[int] = ()) -> None:
        self._ids = dict(zip(names, ids, strict=True))
        self._names = dict(zip(ids, names, strict=True))

    def add(self, names: Sequence[str], first_id: int) -> None:
        """Add names for the examples with consecutive ids from ``first_id``."""
        ids = range(first_id, first_id + len(names))
        self._ids.update(zip(names, ids, strict=True))
        self._names.update(zip(ids, names, strict=True))

    def copied(self) -> "ExampleNames":
        """Return a copy that can change without changing this object."""
        other = copy.copy(self)
        other._ids, other._names = dict(self._ids), dict(self._names)
        return other

    def named(self, names: Sequence[str]) -> np.ndarray:
        """Return the integer id for each name, or NONE if the name is unknown."""
        return np.array([self._ids.get(name, NONE) for name in names], np.int64)

    def of_ids(self, ids: np.ndarray) -> np.ndarray:
        """Return an array with the name for each id, or an empty string for NONE."""
        found = [self._names.get(int(each), "") for each in ids.ravel()]
        return np.array(found, str).reshape(ids.shape)

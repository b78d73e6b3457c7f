"""Filters of a store as the ids of memories: found once, as long as nothing changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .._engine import ArrayCache, Filter
from ._checks import check_keys, check_stored
from ._contents import StoreContents
from ._results import read_payload
from ._where import condition_of

_MOST_KEPT = 64


class FilterCache:
    """The filters that queries of a store came with since the last change."""

    def __init__(self) -> None:
        self._version = -1  # of the store
        self._by_name: dict[Any, Filter] = {}
        self._of_arrays: ArrayCache[Filter] = ArrayCache()  # filters of arrays of keys

    def find(self, where: Any, contents: StoreContents) -> Filter | None:
        """Return the candidates that the parameter ``where`` of a query names; None for all."""
        if where is None:
            return None
        records, version = contents.records, contents.version
        if callable(where):
            return Filter(_ids_where(where, contents))
        if isinstance(where, dict):
            condition = condition_of(where)
            return self._cached(condition, lambda: records.ids(condition), contents)

        def of_keys() -> Filter:
            keys = check_keys(where, distinct=False)

            def find() -> np.ndarray:
                ids = records.find(keys)
                check_stored(keys, ids)
                return np.unique(ids)

            return self._cached(tuple(keys), find, contents)

        return of_keys() if version % 2 == 1 else self._of_arrays.of(where, version, of_keys)

    def _cached(self, name: Any, find: Callable[[], np.ndarray], contents: StoreContents) -> Filter:
        version, filters = contents.version, self._by_name
        if self._version != version or version % 2 == 1 or len(filters) >= _MOST_KEPT:
            filters = {}
        if name not in filters:
            filters[name] = Filter(find())
            if version == contents.version:
                self._version, self._by_name = version, filters
        return filters[name]


def _ids_where(where: Callable[[Any], Any], contents: StoreContents) -> np.ndarray:
    last, ids = -1, []
    while found := contents.records.after(last):
        ids += [memory_id for memory_id, _, payload in found if where(read_payload(payload))]
        last = found[-1][0]
    return np.array(ids, np.int64)

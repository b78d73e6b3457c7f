"""Evaluation of filters: the ids of matching memories, cached until the store changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import numpy as np

from .._display import warn
from .._engine import ArrayCache, Filter
from ._checks import Key, check_keys, check_one_of, check_stored
from ._contents import StoreContents
from ._records import Records
from ._results import read_payload
from ._where import Condition, condition_of

_MOST_KEPT, _MOST_LISTS = 64, 8


class PreparedFilter:
    """A checked filter, made by :meth:`MemoryStore.filter` for the ``where`` of queries to the same store.

    Memories deleted later are no longer candidates.
    """

    def __init__(self, condition: Condition | None, keys: list[Key], name: str = "") -> None:
        self.condition, self.keys = condition, keys
        self.name = name or uuid4().hex  # shared by copies in other processes
        self._found: tuple[int, Filter] | None = None  # the version of the store at the last evaluation, and its result

    def __reduce__(self) -> tuple[Any, ...]:
        return PreparedFilter, (self.condition, self.keys, self.name)

    def _ids(self, records: Records) -> np.ndarray:
        if self.condition is not None:
            return records.ids(self.condition)
        ids = records.find(self.keys)
        return np.unique(ids[ids >= 0])

    def find(self, contents: StoreContents) -> Filter:
        """Return the candidates."""
        version, found = contents.version, self._found
        if found is None or found[0] != version or version % 2 == 1:
            found = self._found = version, Filter(self._ids(contents.records))
        return found[1]

    def __repr__(self) -> str:
        what = "on fields" if self.condition is not None else f"of {len(self.keys)} keys"
        return f"PreparedFilter({what})"


class FilterCache:
    """The filters of recent queries of a store."""

    def __init__(self) -> None:
        self.warns = True  # whether to warn about fields that no payload has
        self._by_condition: dict[Condition, Filter] = {}
        self._version = -1  # the version of the store for which ``_by_condition`` is valid
        # Recent lists of keys, the latest first: the list, a copy, the version of the store, and the candidates.
        self._of_lists: list[tuple[Any, list[Any], int, Filter]] = []
        self._of_arrays: ArrayCache[Filter] = ArrayCache()
        self._prepared: dict[str, PreparedFilter] = {}  # by name, including filters from other processes

    def find(self, where: Any, contents: StoreContents) -> Filter | None:
        """Return the candidates for the ``where`` of a query, or None for all memories."""
        if where is None:
            return None
        if isinstance(where, PreparedFilter):
            return self._known(where).find(contents)
        if isinstance(where, dict):
            return self._of_condition(condition_of(where), contents)
        if callable(where):
            return Filter(_ids_where(where, contents))
        version = contents.version
        if version % 2 == 1:  # a change is in progress
            return _of_keys(where, contents)
        if type(where) is list:
            return self._of_list(where, version, contents)
        return self._of_arrays.of(where, version, lambda: _of_keys(where, contents))

    def _known(self, prepared: PreparedFilter) -> PreparedFilter:
        """Return the first filter used with the name of ``prepared``. It may have cached candidates."""
        if prepared.name not in self._prepared and len(self._prepared) >= _MOST_LISTS:
            self._prepared = {}
        return self._prepared.setdefault(prepared.name, prepared)

    def _of_condition(self, condition: Condition, contents: StoreContents) -> Filter:
        version, filters = contents.version, self._by_condition
        if self._version != version or version % 2 == 1 or len(filters) >= _MOST_KEPT:
            filters = {}
        if condition not in filters:
            ids = contents.records.ids(condition)
            if self.warns:
                _warn_if_mistaken(condition, ids.size == 0, contents.records)
            filters[condition] = Filter(ids)
            if version == contents.version:
                self._version, self._by_condition = version, filters
        return filters[condition]

    def _of_list(self, where: list[Any], version: int, contents: StoreContents) -> Filter:
        for known, copy, as_of, found in self._of_lists:
            if known is where and as_of == version and copy == where:
                return found
        copy, found = where[:], _of_keys(where, contents)
        others = [kept for kept in self._of_lists if kept[0] is not where and kept[2] == version]
        self._of_lists = [(where, copy, version, found), *others[: _MOST_LISTS - 1]]
        return found


def check_filter(where: Any, keys: Any) -> PreparedFilter:
    """Return a filter by fields or by keys. The keys need not be stored.

    Raises
    ------
    TypeError, ValueError
        If the filter is invalid.
    """
    check_one_of(where, keys)
    if keys is None:
        return PreparedFilter(condition_of(where), [])
    return PreparedFilter(None, check_keys(keys, distinct=False))


def prepare_filter(where: Any, keys: Any, contents: StoreContents) -> PreparedFilter:
    """Return a filter by fields or by keys. Raises KeyError if a key is not stored."""
    prepared = check_filter(where, keys)
    if prepared.condition is None:
        check_stored(prepared.keys, contents.records.find(prepared.keys))
    else:
        _warn_if_mistaken(prepared.condition, prepared.find(contents).ids.size == 0, contents.records)
    return prepared


def _of_keys(where: Any, contents: StoreContents) -> Filter:
    keys = check_keys(where, distinct=False)
    ids = contents.records.find(keys)
    check_stored(keys, ids)
    return Filter(np.unique(ids))


def _ids_where(where: Callable[[Any], Any], contents: StoreContents) -> np.ndarray:
    last, ids = -1, []
    while found := contents.records.after(last):
        ids += [memory_id for memory_id, _, payload in found if where(read_payload(payload))]
        last = found[-1][0]
    return np.array(ids, np.int64)


def _warn_if_mistaken(condition: Condition, finds_nothing: bool, records: Records) -> None:
    """Warn if no payload has a field of the condition.

    If nothing was found, also warn if a list is compared with a single value or a text with a number, or the reverse.
    """
    for path, is_list, value in condition.fields:
        name, kind = path[1:-1].replace('."', ".").replace('"', "").removeprefix("$."), records.kind_of_field(path)
        if kind is None:
            there = ", ".join(records.names_of_fields()) or "none"
            warn(f"no payload has the field {name!r}; known fields: {there}", UserWarning)
        elif not finds_nothing:
            continue
        elif kind == "array" and not is_list:
            warn(
                f"the field {name!r} contains lists: search for an element with {{{name!r}: {{'contains': ...}}}}",
                UserWarning,
            )
        elif kind != "array" and is_list:
            warn(f"the field {name!r} is of type {kind}, not a list: compare it with {{{name!r}: ...}}", UserWarning)
        elif kind != "array" and value is not None and (kind == "text") != isinstance(value, str):
            what = "text" if isinstance(value, str) else "number"
            warn(f"the field {name!r} is of type {kind}, but is compared with the {what} {value!r:.50}", UserWarning)

"""Evaluation of filters: the ids of matching memories, cached until the store changes."""

import pickle
import re
from collections.abc import Callable, Hashable
from operator import is_
from typing import Any
from uuid import uuid4

import numpy as np

from .._display import warn
from ._checks import Key, check_keys, check_one_of, check_stored
from ._contents import StoreContents
from ._records import Records
from ._results import read_payload
from ._where import Condition, condition_of

_MOST_KEPT, _MOST_LISTS = 64, 8
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d[\d:.]*(Z|[+-]\d\d:\d\d)?")


class PreparedFilter:
    """A checked filter, made by :meth:`MemoryStore.filter` for the ``where`` of queries.

    A filter of keys ignores keys that are not in the store.
    """

    def __init__(self, condition: Condition | None, keys: list[Key], name: str = "") -> None:
        self.condition, self.keys = condition, keys
        self.name = name or uuid4().hex  # shared by copies in other processes

    def ids(self, records: Records) -> np.ndarray:
        """Return the ids of the candidates."""
        if self.condition is not None:
            return records.ids(self.condition)
        ids = records.find(self.keys)
        return np.unique(ids[ids >= 0])

    def __repr__(self) -> str:
        what = "on fields" if self.condition is not None else f"of {len(self.keys)} keys"
        return f"PreparedFilter({what})"


class FilteredIds:
    """The memories that a filter, ``find``, selects from contents."""

    def __init__(self, find: Callable[[], np.ndarray], contents: StoreContents) -> None:
        self._stamp, self._expired = contents.stamp, contents.records.expired()
        self.ids = find()
        self._allowed: Any = None

    def is_current(self, contents: StoreContents) -> bool:
        """Return whether the filter would select the same memories again."""
        is_same = self._stamp is not None and self._stamp is contents.stamp
        return is_same and self._expired is contents.records.expired()

    def allowed(self, contents: StoreContents) -> Any:
        """Return the candidates for a search of the state. The caller must hold the lock of the contents."""
        if not self.is_current(contents):
            return contents.state.allow(self.ids)
        if self._allowed is None:
            self._allowed = contents.state.allow(self.ids)
        return self._allowed


class FilterCache:
    """The filters of recent queries of a store."""

    def __init__(self) -> None:
        self.warns = True  # whether to warn about fields that no payload has
        self._by_name: dict[Hashable, FilteredIds] = {}  # by pickled filter, condition, or name
        self._of_lists: list[tuple[Any, Any, FilteredIds]] = []  # recent lists or arrays of keys, and their copies

    def find(self, where: Any, contents: StoreContents) -> FilteredIds | None:
        """Return the candidates for the ``where`` of a query, or None for all memories."""
        if where is None:
            return self._cached("all", contents, contents.records.ids) if contents.records.expired().size > 0 else None
        if isinstance(where, PreparedFilter):
            return self._cached(where.name, contents, lambda: where.ids(contents.records))
        if isinstance(where, dict):
            return self._of_fields(where, contents)
        if callable(where):
            return FilteredIds(lambda: _ids_where(where, contents), contents)
        if isinstance(where, str):
            kinds = "a dict such as {'color': 'red'}, a function of a payload, a list of keys or a PreparedFilter"
            raise TypeError(f"where must be {kinds}, got {where!r:.50}")
        return self._of_keys(where, contents)

    def _cached(self, name: Hashable, contents: StoreContents, find: Callable[[], np.ndarray]) -> FilteredIds:
        found = self._by_name.get(name)
        if found is None or not found.is_current(contents):
            if len(self._by_name) >= _MOST_KEPT:
                self._by_name = {}
            found = self._by_name[name] = FilteredIds(find, contents)
        return found

    def _of_fields(self, where: dict[Any, Any], contents: StoreContents) -> FilteredIds:
        condition = None
        try:
            name: Hashable = pickle.dumps(where)  # takes a tenth of the time of condition_of
        except (pickle.PicklingError, AttributeError, TypeError, RecursionError):
            name = condition = condition_of(where)
        return self._cached(name, contents, lambda: self._ids(condition or condition_of(where), contents.records))

    def _ids(self, condition: Condition, records: Records) -> np.ndarray:
        ids = records.ids(condition)
        if self.warns:
            warn_if_mistaken(condition, ids.size == 0, records)
        return ids

    def _of_keys(self, where: Any, contents: StoreContents) -> FilteredIds:
        for given, copy, found in self._of_lists:
            if given is where and found.is_current(contents) and _are_equal(copy, where):
                return found
        keys = check_keys(where, distinct=False)

        def find() -> np.ndarray:
            ids = contents.records.find(keys)
            check_stored(keys, ids)
            return np.unique(ids)

        found = FilteredIds(find, contents)
        if isinstance(where, list | np.ndarray):
            others = [kept for kept in self._of_lists if kept[0] is not where]
            self._of_lists = [(where, where.copy(), found), *others[: _MOST_LISTS - 1]]
        return found


def _are_equal(copy: Any, where: Any) -> bool:
    """Return whether a list or an array still contains the same keys. True and 1 are equal, but True is not a key."""
    if isinstance(copy, np.ndarray):
        if copy.dtype != where.dtype or not np.array_equal(copy, where):
            return False
        return copy.dtype != object or _are_equal(copy.tolist(), where.tolist())
    return bool(copy == where) and all(map(is_, map(type, copy), map(type, where)))


def check_filter(where: Any, keys: Any) -> PreparedFilter:
    """Return a filter by fields or by keys. The keys need not be stored."""
    check_one_of(where, keys)
    if keys is None:
        return PreparedFilter(condition_of(where), [])
    return PreparedFilter(None, check_keys(keys, distinct=False))


def _ids_where(where: Callable[[Any], Any], contents: StoreContents) -> np.ndarray:
    last, ids = -1, []
    while found := contents.records.after(last):
        ids += [memory_id for memory_id, _, payload in found if where(read_payload(payload))]
        last = found[-1][0]
    return np.array(ids, np.int64)


def _has_offset(value: Any) -> bool | None:
    """Return whether a time as text has a UTC offset, or None if the value is not a time."""
    time = _TIME.fullmatch(value) if isinstance(value, str) else None
    return None if time is None else time[1] is not None


def warn_if_mistaken(condition: Condition, finds_nothing: bool, records: Records) -> None:
    """Warn if no payload has a field of the condition.

    If nothing was found, also warn if a list is compared with a single value or a text with a number, or the reverse.
    """
    for path, is_list, value, is_time in condition.fields:
        name, kind = path[1:-1].replace('."', ".").replace('"', "").removeprefix("$."), records.kind_of_field(path)
        if kind is None:
            there = ", ".join(records.names_of_fields()) or "none"
            warn(f"no payload has the field {name!r}; known fields: {there}", UserWarning)
        elif is_time and any(_has_offset(found) is (not _has_offset(value)) for found in records.ends_of_field(path)):
            with_or_without = ("without", "with") if _has_offset(value) else ("with", "without")
            warn(
                f"the field {name!r} contains times {with_or_without[0]} UTC offsets, but is compared with the time "
                f"{value} {with_or_without[1]} an offset: give all times of a field a tzinfo, or none",
                UserWarning,
            )
        elif not finds_nothing:
            continue
        elif kind == "array" and not is_list:
            warn(
                f"the field {name!r} contains lists: search for an element with {{{name!r}: {{'contains': ...}}}}",
                UserWarning,
            )
        elif kind not in ("array", "text") and is_list:
            warn(f"the field {name!r} is of type {kind}, not a list: compare it with {{{name!r}: ...}}", UserWarning)
        elif kind != "array" and value is not None and (kind == "text") != isinstance(value, str):
            what = "text" if isinstance(value, str) else "number"
            warn(f"the field {name!r} is of type {kind}, but is compared with the {what} {value!r:.50}", UserWarning)

"""Upgrades of contents from earlier format versions.

When the contents of files change, increase the format version, add a function to this module that upgrades the
previous version, and add files of the new version to the test fixtures. An upgrade adds a new array, for example, with
values that leave the new feature unused.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ._columns import column, read_array, read_column, read_sparse_matrix, sparse_matrix
from ._container import Contents


def _with_bound(contents: Contents) -> Contents:
    """Add the eviction options, without a memory limit, to trees and to the trees of estimators."""
    attributes = _mapping(contents.fields.get("attributes"))
    trees = [contents.fields, _mapping(attributes.get("forest_")), _mapping(attributes.get("examples_"))]
    for options in (_mapping(tree.get("options")) for tree in trees):
        if options:
            options |= {"max_memories": None, "eviction": "least_recently_returned"}
    return contents


def _mapping(value: Any) -> dict[str, Any]:
    """Return ``value`` if it is a dictionary, or else an empty dictionary."""
    return value if isinstance(value, dict) else {}


def _without_removed(contents: Contents) -> Contents:
    """Replace a retriever's arrays over all memories ever inserted with tables of its current memories."""
    attributes, arrays = _mapping(contents.fields.get("attributes")), contents.arrays
    if contents.kind != "CMTRetriever" or not attributes:
        return contents
    stored, entry_of, memory_of = (read_array(name, arrays, dtype) for name, dtype in _OF_ALL_MEMORIES.items())
    keys = np.sort(arrays["forest_.keys.ids"]) if "forest_.keys.ids" in arrays else np.empty(0, np.int64)
    if entry_of.size != stored.size or keys.ndim != 1 or not np.all((keys >= 0) & (keys < memory_of.size)):
        raise ValueError("every key of the forest must belong to a memory")
    ids, values = np.flatnonzero(stored), _mapping(attributes.get("_values"))
    tables = {"ids": ids, "entries": entry_of[ids], "keys": keys, "owners": memory_of[keys]}
    arrays = {name: array for name, array in arrays.items() if name not in _OF_ALL_MEMORIES}
    if ids.size < stored.size:
        arrays |= _values_of(ids, values, arrays, stored.size)
        values = values | ({"sparse": [int(ids.size), *values["sparse"][1:]]} if "sparse" in values else {})
    arrays |= {f"_memories.{name}": np.ascontiguousarray(table, np.int64) for name, table in tables.items()}
    if "_distinct" not in attributes:
        arrays |= {"_distinct.numbers": np.empty(0, np.int64), "_distinct.digests": np.empty((0, 16), np.uint8)}
    attributes |= {"_memories": {"next_id": int(stored.size), "values": values}, "_distinct": {}}
    return contents._replace(arrays=arrays)


_OF_ALL_MEMORIES = {"_stored": np.bool_, "_entry_of": np.int64, "_memory_of": np.int64}


def _values_of(ids: np.ndarray, how: dict[str, Any], arrays: dict[str, np.ndarray], n: int) -> dict[str, np.ndarray]:
    """Return the encoded values of the memories ``ids``, in the encoding of ``arrays``."""
    values: Any
    if "sparse" in how:
        values = read_sparse_matrix(how["sparse"], "_values", arrays, thorough=True)
    else:
        values = read_column(how.get("dense"), "_values", arrays)
    if values.shape[0] != n:
        raise ValueError("every memory must have a value")
    return (sparse_matrix if "sparse" in how else column)("_values", values[ids])[1]


def _as_they_are(contents: Contents) -> Contents:
    """Return contents of version 3 unchanged. Version 4 only makes earlier library versions reject newer files."""
    return contents


UPGRADES: dict[int, Callable[[Contents], Contents]] = {2: _with_bound, 3: _without_removed, 4: _as_they_are}
"""UPGRADES[version]: the function that upgrades contents from the preceding version."""


def upgraded(contents: Contents, upgrades: Mapping[int, Callable[[Contents], Contents]] = UPGRADES) -> Contents:
    """Return contents after applying the upgrades to all later versions."""
    for version in range(contents.version + 1, max(upgrades) + 1):
        contents = upgrades[version](contents)
    return contents

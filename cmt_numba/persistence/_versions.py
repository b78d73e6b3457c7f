"""How files of earlier versions of the format load.

Whenever what is in a file changes, the version of the format goes up by one, a function that makes the contents of a
file of the version before into that of the new one is entered here, and files of the new version become fixtures of the
tests. An array that is new, for example, is added with what it stands for where nobody has used it.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from . import _container
from ._columns import column, read_array, read_column, read_sparse_matrix, sparse_matrix
from ._container import Contents


def _with_bound(contents: Contents) -> Contents:
    """Give trees, and those of estimators, the options that say how many memories they may hold: any number."""
    attributes = _mapping(contents.fields.get("attributes"))
    trees = [contents.fields, _mapping(attributes.get("forest_")), _mapping(attributes.get("examples_"))]
    for options in (_mapping(tree.get("options")) for tree in trees):
        if options:
            options |= {"max_memories": None, "eviction": "least_recently_returned"}
    return contents


def _mapping(value: Any) -> dict[str, Any]:
    """Return what may be in a file's place for a mapping, or an empty one if it is anything else."""
    return value if isinstance(value, dict) else {}


def _without_removed(contents: Contents) -> Contents:
    """Give retrievers tables of the memories that there are, in place of arrays of all that ever were."""
    attributes, arrays = _mapping(contents.fields.get("attributes")), contents.arrays
    if contents.kind != "CMTRetriever" or not attributes:
        return contents
    stored, entry_of, memory_of = (read_array(name, arrays, dtype) for name, dtype in _OF_ALL_MEMORIES.items())
    keys = np.sort(arrays["forest_.keys.ids"]) if "forest_.keys.ids" in arrays else np.empty(0, np.int64)
    if entry_of.size != stored.size or keys.ndim != 1 or not np.all((keys >= 0) & (keys < memory_of.size)):
        raise ValueError("what is in the forest must lead to a memory each")
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
    """Return the values of some memories as the plain arrays of a file."""
    values: Any
    if "sparse" in how:
        values = read_sparse_matrix(how["sparse"], "_values", arrays, thorough=True)
    else:
        values = read_column(how.get("dense"), "_values", arrays)
    if values.shape[0] != n:
        raise ValueError("memories must have a value each")
    return (sparse_matrix if "sparse" in how else column)("_values", values[ids])[1]


UPGRADES: dict[int, Callable[[Contents], Contents]] = {2: _with_bound, 3: _without_removed}
"""By version, from 2 on: what a file of the version before would hold had this version written it."""


def upgraded(contents: Contents) -> Contents:
    """Return the contents of a file as this version would have written them."""
    for version in range(contents.version + 1, _container.FORMAT_VERSION + 1):
        contents = UPGRADES[version](contents)
    return contents

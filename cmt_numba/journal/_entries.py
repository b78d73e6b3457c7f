"""Journal entries, each of which stores an operation and its arguments as arrays and JSON.

The names and versions of operations, and the names of their arguments, are part of the format and never change their
meaning. If a method or a parameter is renamed, only the operation table of the class changes. If an
operation changes its meaning, it gets a new version, and the old version remains.
"""

import os
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from .. import persistence as files
from .._kernels import Hits, arrays_of, no_hits, put_together
from .._validation import as_rows, check_hits, check_matrix

CURRENT = 1  # default version of operations in new entries
Arguments = dict[str, Any]
Arrays = dict[str, np.ndarray]


class Operation(NamedTuple):
    """The method or function that an entry calls, and the names of its arguments in entries."""

    method: str | Callable[..., Any]  # the name of a method, or a function that takes the object first
    parameters: Mapping[str, str]  # parameters[name]: the parameter of the method for the argument ``name`` in entries

    def stored(self, arguments: Arguments) -> Arguments:
        """Return a method's arguments under their names in entries."""
        return {name: arguments[parameter] for name, parameter in self.parameters.items()}

    def called(self, stored: Arguments) -> Arguments:
        """Return an entry's arguments under the method's parameter names."""
        unknown = sorted(stored.keys() - self.parameters.keys())
        if unknown:
            raise ValueError(f"it has an unknown argument {unknown[0]!r:.50}")
        for name in self.parameters:
            if name not in stored:
                raise ValueError(f"it lacks the argument {name!r}")
        return {parameter: stored[name] for name, parameter in self.parameters.items()}

    def call(self, on: Any, arguments: Arguments) -> Any:
        """Call the operation on an object and return its result."""
        if isinstance(self.method, str):
            return getattr(on, self.method)(**arguments)
        return self.method(on, **arguments)


def find_operation(table: Mapping[Any, Operation], name: str, version: int, *of: str) -> Operation:
    """Return the operation ``(*of, name, version)`` from the table of a class."""
    operation = table.get((*of, name, version))
    if operation is None:
        raise ValueError(f"its operation {name!r:.50}, version {version}, is unknown")
    return operation


_HITS = "ids", *(f"exploration.{name}" for name in ("tree", "node", "generation", "side", "probability"))
"""The fields of :class:`Hits` that ``update`` uses, which are also their permanent names. Scores are not stored."""

_LIKE = arrays_of(no_hits(0, 1))  # arrays with the dtype and number of axes of each attribute
_NUMBERS = frozenset(files.NUMBERS.values())
_SCALARS = (bool, int, float, str, type(None))
_FORGOTTEN = "forgotten"  # an array of an entry that is not an argument


class Entry(NamedTuple):
    """A change or a snapshot, with a fingerprint of the resulting object."""

    name: str  # the name of the operation
    arguments: dict[str, Any]  # converted arguments, under their names in entries
    after: dict[str, int] | None  # the fingerprint of the object after the change; None if it is not compared
    forgotten: np.ndarray | None = None  # the ids of evicted memories; None if the entry does not list them
    journal: str = ""  # the identity of the journal, which sets it
    version: int = CURRENT


def plain_arguments(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return arguments converted for the journal. The change itself uses the same converted arguments."""
    return {name: _as_entry_value(name, value) for name, value in arguments.items()}


def _as_entry_value(name: str, value: Any) -> Any:
    if name == "X":
        return check_matrix(as_rows(value))
    if isinstance(value, Hits):
        hits = check_hits(value, next(iter(np.shape(value.ids)), 0), None)
        parts = {path: attrgetter(path)(hits) for path in _HITS}
        return _hits_of({path: np.asarray(part, _LIKE[path].dtype, order="C") for path, part in parts.items()})
    if isinstance(value, np.generic) and value.dtype.kind in "biuf":
        return {"b": bool, "i": int, "u": int, "f": float}[value.dtype.kind](value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be an array of numbers: {error}") from error
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name} must be numbers, got {array.dtype}")
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    return array if array.dtype in _NUMBERS else array.astype(np.float64)


def _hits_of(arrays: Arrays) -> Hits:
    return put_together(Hits, arrays | {"scores": np.zeros(arrays["ids"].shape, np.float32)}, {})


def pack_entry(sequence: int, entry: Entry) -> bytes:
    """Return an entry encoded as bytes."""
    return files.pack_contents(entry_contents(sequence, entry))


def entry_contents(sequence: int, entry: Entry) -> files.Contents:
    """Return the contents of the bytes of an entry."""
    described: dict[str, Any] = {}
    arrays: Arrays = {}
    for name, value in entry.arguments.items():
        described[name] = _put_argument(name, value, arrays)
    if entry.forgotten is not None:
        arrays[_FORGOTTEN] = entry.forgotten
    of_entry = {"sequence": sequence, "version": entry.version, "journal": entry.journal}
    return files.Contents(entry.name, of_entry | {"after": entry.after, "arguments": described}, arrays)


def _put_argument(name: str, value: Any, arrays: Arrays) -> list[Any]:
    if isinstance(value, np.ndarray):
        if value.dtype not in _NUMBERS:
            return ["column", files.put_column(name, value, arrays)]
        arrays[name] = value
        return ["array"]
    if isinstance(value, Hits):
        arrays |= {f"{name}.{path}": attrgetter(path)(value) for path in _HITS}
        return ["hits"]
    if scipy.sparse.issparse(value):
        return ["sparse", files.put_sparse_matrix(name, value, arrays)]
    return ["value", value]


def unpack_entry(path: str | os.PathLike[str], sequence: int, packed: bytes) -> Entry:
    """Return the entry in packed bytes."""
    contents = files.unpack_contents(path, f"entry {sequence}", packed)
    if files.take(contents.fields, "sequence", int) != sequence:
        raise ValueError(f"it has the number {contents.fields['sequence']}")
    described = files.take(contents.fields, "arguments", dict)
    arguments = {name: _read_argument(name, how, contents.arrays) for name, how in described.items()}
    after, version = files.take(contents.fields, "after", dict, type(None)), files.take(contents.fields, "version", int)
    forgotten = files.read_array(_FORGOTTEN, contents.arrays, np.int64) if _FORGOTTEN in contents.arrays else None
    return Entry(contents.kind, arguments, after, forgotten, files.take(contents.fields, "journal", str), version)


def _read_argument(name: str, how: Any, arrays: Arrays) -> Any:
    if type(how) is not list:
        raise ValueError(f"{name} has an unknown encoding")
    if how == ["hits"]:
        likes = ((path, _LIKE[path]) for path in _HITS)
        return _hits_of(
            {path: files.read_array(f"{name}.{path}", arrays, like.dtype, n_axes=like.ndim) for path, like in likes}
        )
    if how == ["array"]:
        return files.read_column("numbers", name, arrays)
    if len(how) == 2 and how[0] == "column":
        return files.read_column(how[1], name, arrays)
    if len(how) == 2 and how[0] == "sparse":
        return files.read_sparse_matrix(how[1], name, arrays, thorough=True)
    if len(how) == 2 and how[0] == "value" and type(how[1]) in _SCALARS:
        return how[1]
    raise ValueError(f"{name} has an unknown encoding")

"""Trees in files: the options, and the arrays of the state under their names."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from .._forest.invariants import InvariantError, check, check_frame
from .._forest.invariants.errors import require
from .._forest.state import CODE_MARKS, LEAF, NODE, WEIGHT_CELL, State
from .._forest.structures import arrays_of, put_together
from ._container import (
    NUMBERS,
    Contents,
    Dtypes,
    FileFormatError,
    file_to_write,
    read_contents,
    write_contents,
)
from ._trim import AT_REST, trim_state
from ._versions import upgraded

DTYPES: Dtypes = {**NUMBERS, "node": NODE, "leaf": LEAF, "code mark": CODE_MARKS, "weight cell": WEIGHT_CELL}
"""The dtypes of all arrays, by their names in files. The meaning of a name never changes."""

VALUES = frozenset({"keys.values", "codes.values", "packed.values", "routers.weights", "links.near"})
"""Arrays that are most of a forest's file. No kernel takes harm at what is in them, if links lead to memories."""

_STREAMS = "streams"


def write_object(
    path: str | os.PathLike[str],
    gather: Callable[[], Contents],
    made_of: Callable[[Contents], Any],
    mode: int = 0o666,
) -> None:
    """Write a tree or an estimator to a file, after checking that the file could be loaded.

    Parameters
    ----------
    path : path-like
        The file.
    gather : callable
        Returns the contents. It is called after the path has been checked.
    made_of : callable
        Creates an object from contents, and raises InvariantError, TypeError or ValueError if they are invalid.
    mode : int, default 0o666
        Permissions of a new file, before the umask.

    Raises
    ------
    InvariantError, TypeError, ValueError
        If no object can be created from the contents; nothing has been written.
    OSError
        If the file cannot be written, or the path names something other than a regular file.
    """
    file_to_write(path)
    contents = gather()
    arrays = {name: np.ascontiguousarray(array) for name, array in contents.arrays.items()}
    made_of(contents._replace(fields=json.loads(json.dumps(contents.fields, allow_nan=False)), arrays=arrays))
    write_contents(path, contents, DTYPES, mode)


def read_object(
    path: str | os.PathLike[str], kinds: tuple[str, ...], *, mmap: bool, unread: Collection[str] = ()
) -> Contents:
    """Return the contents of a file with an object of one of ``kinds``, upgraded to this version of the format.

    The arrays that are named in ``unread`` are mapped, and not verified.

    Raises
    ------
    FileFormatError
        If the file holds an object of another kind, or is damaged.
    OSError
        If the file cannot be read.
    """
    contents = read_contents(path, DTYPES, mmap=mmap, unread=unread)
    if contents.kind not in kinds:
        raise FileFormatError(path, f"holds an object of the kind {contents.kind!r}, not {' or '.join(kinds)}")
    with refusing(path):
        return upgraded(contents)


@contextmanager
def refusing(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn errors about the contents of a file into errors that name the file."""
    try:
        yield
    except (InvariantError, TypeError, ValueError) as error:
        raise FileFormatError(path, f"has invalid contents: {error}") from error


def take(fields: dict[str, Any], name: str, *kinds: type) -> Any:
    """Return a field, which must have one of the given types.

    Raises
    ------
    ValueError
        If it is missing or has another type.
    """
    value = fields.get(name)
    if type(value) not in kinds:
        raise ValueError(f"{name} must be of type {' or '.join(kind.__name__ for kind in kinds)}, not {value!r:.50}")
    return value


def tree_contents(
    options: dict[str, Any], n_threads: int | None, streams: np.ndarray, state: State | None
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the fields and the arrays of a tree for a file.

    Parameters
    ----------
    options : dict of str to object
        The options of the constructor.
    n_threads : int or None
        The parameter of the constructor.
    streams : ndarray of uint64, shape (n_trees + 1,)
        The initial random streams of the tree.
    state : State or None
        The state of the tree, or None before the first insert.
    """
    fields = {"options": options, "n_threads": n_threads, "n_features": None, "sparse": None}
    if state is None:
        return fields, {_STREAMS: streams}
    fields |= {"n_features": state.parameters.n_features, "sparse": bool(state.parameters.sparse)}
    return fields, arrays_of(trim_state(state))


def state_of(
    fields: dict[str, Any], arrays: dict[str, np.ndarray], options: dict[str, Any]
) -> tuple[np.ndarray, State | None]:
    """Return the initial random streams of a tree and its state, not yet validated.

    Parameters
    ----------
    fields, arrays : dict
        The contents of a file.
    options : dict of str to object
        The options of the tree, as kernels take them.
    """
    n_features = take(fields, "n_features", int, type(None))
    if n_features is None:
        streams = arrays.get(_STREAMS)
        require(streams is not None and streams.dtype == np.uint64, "there are no streams of random numbers")
        assert streams is not None
        require(streams.shape == (options["n_trees"] + 1,), "there must be a stream of random numbers for each tree")
        return streams, None
    sparse = take(fields, "sparse", bool)
    numbers = {f"parameters.{name}": value for name, value in options.items()}
    numbers |= {"parameters.n_features": n_features, "parameters.sparse": sparse}
    numbers["parameters.coded"] = options["coded"] and not sparse
    state = put_together(State, arrays, numbers)
    return state.streams, state


def check_state(state: State, *, thorough: bool, values: bool = True) -> None:
    """Raise InvariantError if a state from a file is invalid.

    The contents of large arrays are validated only if ``thorough``, those in :data:`VALUES` only with ``values``.
    """
    check_frame(state)
    check_at_rest(state.counters)
    if thorough:
        check(state, values=values)


def check_at_rest(counters: np.ndarray) -> None:
    """Raise InvariantError if the counters of a forest or a head were saved in the middle of a step."""
    for counter, value in AT_REST.items():
        require(bool(np.all(counters[:, counter] == value)), "a step is unfinished")

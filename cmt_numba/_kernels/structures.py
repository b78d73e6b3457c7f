"""Conversions between nested named tuples of arrays and flat dictionaries.

A field is an array, a number or another named tuple of arrays. The dictionaries identify it by its path, for example
``"keys.values"``.
"""

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar, get_args, get_type_hints

import numpy as np

Structure = TypeVar("Structure", bound=tuple[Any, ...])


class ArrayKind(NamedTuple):
    """The dtype and the axes of an array. An axis is a length or a name; axes with the same name have equal lengths."""

    dtype: np.dtype
    axes: tuple[str | int, ...]


def kind_of(dtype: Any, *axes: str | int) -> ArrayKind:
    """Return the kind of an array, to annotate a field."""
    return ArrayKind(np.dtype(dtype), axes)


@cache
def layout_of(kind: type[tuple[Any, ...]]) -> Mapping[str, ArrayKind]:
    """Return the kind of each array of a structure by path, in field order."""
    layout: dict[str, ArrayKind] = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        if get_args(hint):
            layout[name] = get_args(hint)[1]
        elif _is_structure(hint):
            layout |= {f"{name}.{path}": inside for path, inside in layout_of(hint).items()}
    return MappingProxyType(layout)


def arrays_of(structure: Any, prefix: str = "") -> dict[str, np.ndarray]:
    """Return all arrays of a structure by path, in field order."""
    arrays: dict[str, np.ndarray] = {}
    for name, value in structure._asdict().items():
        if isinstance(value, np.ndarray):
            arrays[prefix + name] = value
        elif isinstance(value, tuple):
            arrays |= arrays_of(value, f"{prefix}{name}.")
    return arrays


def numbers_of(structure: Any, prefix: str = "") -> dict[str, bool | int | float]:
    """Return all numbers of a structure by path, in field order."""
    numbers: dict[str, bool | int | float] = {}
    for name, value in structure._asdict().items():
        if isinstance(value, tuple):
            numbers |= numbers_of(value, f"{prefix}{name}.")
        elif not isinstance(value, np.ndarray):
            numbers[prefix + name] = value
    return numbers


def put_together(
    kind: type[Structure], arrays: dict[str, np.ndarray], numbers: dict[str, Any], prefix: str = ""
) -> Structure:
    """Build a structure from arrays and numbers by path."""
    values: dict[str, Any] = {}
    for name, hint in _hints_of(kind).items():
        path = prefix + name
        if _is_structure(hint):
            values[name] = put_together(hint, arrays, numbers, f"{path}.")
        elif hint in (bool, int, float):
            values[name] = _number(hint, numbers.get(path), path)
        elif path in arrays:
            values[name] = arrays[path]
        else:
            raise ValueError(f"the array {path!r} is missing")
    return kind(**values)


def _is_structure(hint: Any) -> bool:
    """Return whether a type is a named tuple. Since Python 3.12, ``NDArray`` is not a class."""
    return isinstance(hint, type) and issubclass(hint, tuple)


@cache
def _hints_of(kind: type[tuple[Any, ...]]) -> Mapping[str, Any]:
    return MappingProxyType(get_type_hints(kind))


def _number(kind: type, value: Any, path: str) -> Any:
    if kind is float and type(value) is int and abs(value) < 2**1023:
        value = float(value)
    if type(value) is not kind:
        raise ValueError(f"{path} must be of type {kind.__name__}, got {value!r}")
    return value


def writeable(value: Any) -> Any:
    """Return an array or a structure with read-only arrays replaced by copies, or any other value unchanged.

    Some unpicklers return read-only arrays, for which Numba would compile every kernel again.
    """
    if isinstance(value, np.ndarray) and not value.flags.writeable:
        return value.copy()
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return type(value)(*map(writeable, value))
    return value

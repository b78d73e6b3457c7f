"""Tables of fields. A class names each part of its state once, with the kind of field that writes, reads and checks it.

Files, snapshots and pickles are made from the same table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Protocol, Self

import numpy as np

from .._forest import N_COUNTERS, arrays_of, numbers_of, put_together
from ._columns import column, read_array, read_column
from ._objects import generator_fields, of_part, read_generator
from ._states import check_at_rest

Arrays = dict[str, np.ndarray]

MOST = 2**53
"""The largest number of a field."""


class PickledArrays(dict[str, Any]):
    """Arrays that will be pickled, so that they may hold any objects."""


class Field(Protocol):
    """The kind of a field, which converts a value to JSON and plain arrays, and back."""

    def put(self, name: str, value: Any, arrays: Arrays) -> Any:
        """Return a value as JSON, and add its arrays, whose names begin with ``name``, to ``arrays``."""

    def get(self, name: str, field: Any, arrays: Arrays, *, thorough: bool) -> Any:
        """Return the value. Raise InvariantError, TypeError or ValueError if it is invalid.

        Large arrays are read only if ``thorough``.
        """


class FieldTable:
    """The fields of a class. The table is the kind of a field that holds the values of all.

    Parameters
    ----------
    **fields : Field
        The kind of each field, by the name of the attribute.
    """

    def __init__(self, **fields: Field) -> None:
        self._fields = fields

    def put(self, name: str, value: Any, arrays: Arrays) -> dict[str, Any]:
        """Return the attributes of an object as JSON, and add their arrays to ``arrays``."""
        return {own: field.put(_joined(name, own), getattr(value, own), arrays) for own, field in self._fields.items()}

    def get(self, name: str, field: Any, arrays: Arrays, *, thorough: bool) -> dict[str, Any]:
        """Return the values of all fields by their names."""
        given = as_mapping(name, field)
        for own in self._fields.keys() - given.keys():
            raise ValueError(f"{_joined(name, own)} is missing")
        return {
            own: kind.get(_joined(name, own), given[own], arrays, thorough=thorough)
            for own, kind in self._fields.items()
        }


def _joined(name: str, own: str) -> str:
    return f"{name}.{own}" if name else own


def as_mapping(name: str, field: Any) -> dict[str, Any]:
    """Return a field that must be a JSON object."""
    if type(field) is not dict:
        raise ValueError(f"{name or 'the state'} must be a mapping")
    return field


class WithFields:
    """A class whose state is in the attributes that ``FIELDS`` names. All others have defaults in the class."""

    FIELDS: ClassVar[FieldTable]

    @classmethod
    def of_fields(cls, values: dict[str, Any]) -> Self:
        """Return an object with these attributes."""
        made = cls.__new__(cls)
        vars(made).update(values)
        return made


class PartField:
    """An object with fields of its own."""

    def __init__(self, kind: type[WithFields]) -> None:
        self._kind = kind

    def put(self, name: str, value: Any, arrays: Arrays) -> Any:
        return self._kind.FIELDS.put(name, value, arrays)

    def get(self, name: str, field: Any, arrays: Arrays, *, thorough: bool) -> Any:
        return self._kind.of_fields(self._kind.FIELDS.get(name, field, arrays, thorough=thorough))


class OptionalField:
    """None, or a value of another kind."""

    def __init__(self, field: Field) -> None:
        self._field = field

    def put(self, name: str, value: Any, arrays: Arrays) -> Any:
        return None if value is None else self._field.put(name, value, arrays)

    def get(self, name: str, field: Any, arrays: Arrays, *, thorough: bool) -> Any:
        return None if field is None else self._field.get(name, field, arrays, thorough=thorough)


class NumberField:
    """A nonnegative integer."""

    def put(self, name: str, value: Any, arrays: Arrays) -> int:
        return int(value)

    def get(self, name: str, field: Any, arrays: Arrays, *, thorough: bool) -> int:
        if type(field) is not int or not 0 <= field <= MOST:
            raise ValueError(f"{name} has an invalid value: {field!r:.50}")
        return field


class RealField:
    """A finite number."""

    def put(self, name: str, value: Any, arrays: Arrays) -> float:
        return float(value)

    def get(self, name: str, field: Any, arrays: Arrays, *, thorough: bool) -> float:
        if type(field) is not float or not np.isfinite(field):
            raise ValueError(f"{name} has an invalid value: {field!r:.50}")
        return field


class FlagField:
    """True or False."""

    def put(self, name: str, value: Any, arrays: Arrays) -> bool:
        return bool(value)

    def get(self, name: str, field: Any, arrays: Arrays, *, thorough: bool) -> bool:
        if type(field) is not bool:
            raise ValueError(f"{name} has an invalid value: {field!r:.50}")
        return field


class ArrayField:
    """An array.

    Parameters
    ----------
    dtype : dtype
        The type.
    trim : callable, optional
        A function that drops spare capacity.
    n_axes : int, default 1
        The number of axes.
    """

    def __init__(self, dtype: Any, trim: Callable[[Any], Any] = np.asarray, *, n_axes: int = 1) -> None:
        self._dtype, self._trim, self._n_axes = dtype, trim, n_axes

    def put(self, name: str, value: Any, arrays: Arrays) -> dict[str, Any]:
        arrays[name] = self._trim(np.asarray(value, self._dtype))
        return {}

    def get(self, name: str, field: Any, arrays: Arrays, *, thorough: bool) -> np.ndarray:
        return read_array(name, arrays, self._dtype, n_axes=self._n_axes)


class LabelsField:
    """A one-dimensional array of classes or names, of any type that files support."""

    def put(self, name: str, value: Any, arrays: Arrays) -> str:
        how, own = column(name, value)
        arrays |= own
        return how

    def get(self, name: str, field: Any, arrays: Arrays, *, thorough: bool) -> np.ndarray:
        labels = read_column(field, name, arrays)
        if labels.ndim != 1:
            raise ValueError(f"{name} must be one-dimensional, got shape {labels.shape}")
        return labels


class StructureField:
    """A named tuple of arrays, whose contents the owner checks.

    Parameters
    ----------
    kind : type
        The named tuple.
    trim : callable
        A function that drops spare capacity.
    """

    def __init__(self, kind: Any, trim: Callable[[Any], Any]) -> None:
        self._kind, self._trim = kind, trim

    def put(self, name: str, value: Any, arrays: Arrays) -> dict[str, Any]:
        value = self._trim(value)
        arrays |= {f"{name}.{path}": array for path, array in arrays_of(value).items()}
        return numbers_of(value)

    def get(self, name: str, field: Any, arrays: Arrays, *, thorough: bool) -> Any:
        value = put_together(self._kind, of_part(name, arrays), as_mapping(name, field))
        if hasattr(value, "counters") and value.counters.ndim == 2 and value.counters.shape[1] == N_COUNTERS:
            check_at_rest(value.counters)
        return value


class GeneratorField:
    """A random number generator of NumPy's default type."""

    def put(self, name: str, value: Any, arrays: Arrays) -> dict[str, int]:
        return generator_fields(value)

    def get(self, name: str, field: Any, arrays: Arrays, *, thorough: bool) -> np.random.Generator:
        return read_generator(name, field)

"""Tables of fields. A class names each part of its state once, with the kind of field that writes, reads and checks it.

Files, snapshots and pickles are made from the same table.
"""

import zlib
from collections.abc import Callable
from typing import Any, ClassVar, Protocol, Self

import numpy as np
import scipy.sparse

from .._kernels import InvariantError, arrays_of, numbers_of, put_together, require
from . import _columns as columns
from ._columns import Arrays
from ._container import Contents

MOST = 2**53  # largest integer of a field
LARGEST = 1.7976931348623157e308  # largest finite number


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

    - ``**fields``: the kind of each field, by the name of the attribute. Files omit underscores around names.
    """

    def __init__(self, **fields: Field) -> None:
        self._fields = {name.strip("_"): (name, field) for name, field in fields.items()}

    def extended(self, **fields: Field) -> Self:
        """Return the table of a subclass, which has more fields."""
        table = type(self)(**fields)
        table._fields = self._fields | table._fields
        return table

    def kind_of(self, attribute: str) -> Field:
        """Return the kind of one field."""
        return self._fields[attribute.strip("_")][1]

    def put(self, name: str, value: Any, arrays: Arrays) -> dict[str, Any]:
        """Return the attributes of an object as JSON, and add their arrays to ``arrays``."""
        return {
            own: kind.put(_joined(name, own), getattr(value, attribute), arrays)
            for own, (attribute, kind) in self._fields.items()
        }

    def get(self, name: str, field: Any, arrays: Arrays, *, thorough: bool) -> dict[str, Any]:
        """Return the values of all attributes by their names."""
        given = as_mapping(name, field)
        if (missing := next((own for own in self._fields if own not in given), None)) is not None:
            raise ValueError(f"{_joined(name, missing)} is missing")
        return {
            attribute: kind.get(_joined(name, own), given[own], arrays, thorough=thorough)
            for own, (attribute, kind) in self._fields.items()
        }


def _joined(name: str, own: str) -> str:
    return f"{name}.{own}" if name else own


def as_mapping(name: str, field: Any) -> dict[str, Any]:
    """Return a field that must be a JSON object."""
    if type(field) is not dict:
        raise ValueError(f"{name or 'the state'} must be a mapping")
    return field


class WithFields:
    """A class whose state is in the attributes that ``FIELDS`` names. All others have defaults in the class.

    A class that stores its state in another form overrides ``_packed`` and ``_of_fields``. A class whose fields depend
    on each other checks this in ``_of_fields``, or in ``_check`` if it has to read large arrays.
    """

    FIELDS: ClassVar[FieldTable]
    _kind: ClassVar[str] = ""  # name in files; by default the name of the class

    def _packed(self) -> Any:
        """Return an object with the attributes that ``FIELDS`` names."""
        return self

    @classmethod
    def _of_fields(cls, values: dict[str, Any]) -> Self:
        """Return an object with these attributes. Raise InvariantError, TypeError or ValueError if they conflict."""
        made = cls.__new__(cls)
        vars(made).update(values)
        return made

    def _check(self, *, thorough: bool) -> None:
        """Raise InvariantError if the object is inconsistent. Large arrays are read only if ``thorough``."""

    @classmethod
    def _name_in_files(cls) -> str:
        return cls._kind or cls.__name__

    def _contents(self) -> Contents:
        arrays: Arrays = {}
        return Contents(self._name_in_files(), self.FIELDS.put("", self._packed(), arrays), arrays)

    @classmethod
    def _made_of(cls, contents: Contents, *, thorough: bool = True) -> Self:
        return PartField(cls).get("", contents.fields, contents.arrays, thorough=thorough)


class PartField:
    """An object with fields of its own."""

    def __init__(self, kind: type[WithFields]) -> None:
        self._kind = kind

    def put(self, name: str, value: Any, arrays: Arrays) -> Any:
        return self._kind.FIELDS.put(name, value._packed(), arrays)

    def get(self, name: str, field: Any, arrays: Arrays, *, thorough: bool) -> Any:
        made = self._kind._of_fields(self._kind.FIELDS.get(name, field, arrays, thorough=thorough))
        made._check(thorough=thorough)
        return made


class VariantField:
    """An object of one of several classes, given by their names in files.

    ``arrays`` of an object returns its arrays and facts that JSON can express. ``of_arrays`` of its class checks them.
    """

    def __init__(self, **kinds: Any) -> None:
        self._kinds = kinds

    def put(self, name: str, value: Any, arrays: Arrays) -> Any:
        own, facts = value.arrays()
        arrays |= columns.as_part(name, own)
        return {"kind": next(own for own, kind in self._kinds.items() if type(value) is kind)} | facts

    def get(self, name: str, field: Any, arrays: Arrays, *, thorough: bool) -> Any:
        facts = as_mapping(name, field)
        kind = NameField(*self._kinds).get(f"the kind of {name}", facts.get("kind"), arrays, thorough=thorough)
        try:
            return self._kinds[kind].of_arrays(columns.of_part(name, arrays), facts)
        except KeyError as error:
            raise InvariantError(f"{name} lacks {error}") from error


class OptionalField:
    """None, or a value of another kind."""

    def __init__(self, field: Field) -> None:
        self._field = field

    def put(self, name: str, value: Any, arrays: Arrays) -> Any:
        return None if value is None else self._field.put(name, value, arrays)

    def get(self, name: str, field: Any, arrays: Arrays, *, thorough: bool) -> Any:
        return None if field is None else self._field.get(name, field, arrays, thorough=thorough)


class ScalarField:
    """A value of one type that JSON can express. ``what`` describes the valid values in errors."""

    def __init__(self, kind: type, what: str, is_valid: Callable[[Any], bool] = lambda value: True) -> None:
        self._kind, self._what, self._is_valid = kind, what, is_valid

    def put(self, name: str, value: Any, arrays: Arrays) -> Any:
        return self._kind(value)

    def get(self, name: str, field: Any, arrays: Arrays, *, thorough: bool) -> Any:
        if type(field) is not self._kind or not self._is_valid(field):
            raise ValueError(f"{name} must be {self._what}, got {field!r:.50}")
        return field


class NumberField(ScalarField):
    """An integer between two bounds."""

    def __init__(self, low: int = 0, high: int = MOST) -> None:
        super().__init__(int, f"an integer between {low} and {high}", lambda value: low <= value <= high)


class RealField(ScalarField):
    """A number between two bounds."""

    def __init__(self, low: float = -LARGEST, high: float = LARGEST) -> None:
        super().__init__(float, f"a number between {low:g} and {high:g}", lambda value: low <= value <= high)


class FlagField(ScalarField):
    """True or False."""

    def __init__(self) -> None:
        super().__init__(bool, "true or false")


class NameField(ScalarField):
    """A text that is one of the given names."""

    def __init__(self, *names: str) -> None:
        super().__init__(str, f"one of {', '.join(names)}", names.__contains__)


class TextField(ScalarField):
    """A short text."""

    def __init__(self) -> None:
        super().__init__(str, "text")


class ArrayField:
    """An array with entries within ``bounds``. The function ``trim`` drops spare capacity."""

    def __init__(
        self,
        dtype: Any,
        trim: Callable[[Any], Any] = np.asarray,
        *,
        n_axes: int = 1,
        bounds: tuple[float, float] | None = None,
    ) -> None:
        self._dtype, self._trim, self._n_axes, self._bounds = dtype, trim, n_axes, bounds

    def put(self, name: str, value: Any, arrays: Arrays) -> dict[str, Any]:
        arrays[name] = self._trim(np.asarray(value, self._dtype))
        return {}

    def get(self, name: str, field: Any, arrays: Arrays, *, thorough: bool) -> np.ndarray:
        array = columns.read_array(name, arrays, self._dtype, n_axes=self._n_axes)
        if self._bounds is not None and thorough:
            low, high = self._bounds
            require(np.all((array >= low) & (array <= high)), f"{name} must be between {low:g} and {high:g}")
        return array


class MatrixField:
    """A matrix of numbers of one dtype: an array or a CSR matrix."""

    def __init__(self, dtype: Any) -> None:
        self._dtype = dtype

    def put(self, name: str, value: Any, arrays: Arrays) -> list[int] | None:
        if not scipy.sparse.issparse(value):
            arrays[name] = value
            return None
        return columns.put_sparse_matrix(name, value, arrays)

    def get(self, name: str, field: Any, arrays: Arrays, *, thorough: bool) -> Any:
        if field is None:
            return columns.read_array(name, arrays, self._dtype, n_axes=2)
        matrix = columns.read_sparse_matrix(field, name, arrays, thorough=thorough)
        require(matrix.dtype == self._dtype, f"{name} must be {np.dtype(self._dtype).name}")
        return scipy.sparse.csr_matrix(matrix)


class NamedArraysField:
    """Arrays by their names, which the class checks."""

    def put(self, name: str, value: Any, arrays: Arrays) -> dict[str, Any]:
        arrays |= columns.as_part(name, value)
        return {}

    def get(self, name: str, field: Any, arrays: Arrays, *, thorough: bool) -> Arrays:
        return columns.of_part(name, arrays)


class SparseArrayField:
    """An array of at most ``most`` entries, few of them above 0."""

    def __init__(self, dtype: Any, most: int) -> None:
        self._dtype, self._length = dtype, NumberField(0, most)

    def put(self, name: str, value: Any, arrays: Arrays) -> int:
        places = np.flatnonzero(value)
        arrays |= {f"{name}.places": places, f"{name}.values": value[places]}
        return int(value.size)

    def get(self, name: str, field: Any, arrays: Arrays, *, thorough: bool) -> np.ndarray:
        length = self._length.get(f"the length of {name}", field, arrays, thorough=thorough)
        places = columns.read_array(f"{name}.places", arrays, np.int64)
        values = columns.read_array(f"{name}.values", arrays, self._dtype)
        require(places.shape == values.shape, f"each place of {name} must have a value")
        require(np.all((places >= 0) & (places < length)), f"places of {name} must be below {length}")
        require(np.all((values >= 0) & (values < np.inf)), f"{name} must be finite and not negative")
        array = np.zeros(length, self._dtype)
        array[places] = values
        return array


class TupleField:
    """A named tuple of type ``kind``, with a kind of field for each of its fields. ``check`` refuses invalid values."""

    def __init__(
        self, kind: Any, check: Callable[[str, Any], object] = lambda name, value: None, /, **fields: Field
    ) -> None:
        self._kind, self._check, self._table = kind, check, FieldTable(**fields)

    def put(self, name: str, value: Any, arrays: Arrays) -> Any:
        return self._table.put(name, value, arrays)

    def get(self, name: str, field: Any, arrays: Arrays, *, thorough: bool) -> Any:
        value = self._kind(**self._table.get(name, field, arrays, thorough=thorough))
        self._check(name, value)
        return value


class DocumentField:
    """A value that JSON can express, stored as an array because it may be large."""

    def put(self, name: str, value: Any, arrays: Arrays) -> dict[str, Any]:
        arrays[name] = columns.document(value)
        return {}

    def get(self, name: str, field: Any, arrays: Arrays, *, thorough: bool) -> Any:
        return columns.read_document(arrays, name)


class TextsField(DocumentField):
    """A list of texts."""

    def __init__(self, *, are_distinct: bool = False) -> None:
        self._are_distinct = are_distinct

    def get(self, name: str, field: Any, arrays: Arrays, *, thorough: bool) -> list[str]:
        texts = columns.read_document(arrays, name)
        require(type(texts) is list and all(type(text) is str for text in texts), f"{name} must be texts")
        require(not self._are_distinct or len(set(texts)) == len(texts), f"{name} must be distinct")
        return list(texts)


class OptionsField:
    """Options by their names: JSON values, which the class checks."""

    def put(self, name: str, value: Any, arrays: Arrays) -> dict[str, Any]:
        return {key: option.item() if isinstance(option, np.generic) else option for key, option in value.items()}

    def get(self, name: str, field: Any, arrays: Arrays, *, thorough: bool) -> dict[str, Any]:
        return dict(as_mapping(name, field))


class LabelsField:
    """A one-dimensional array of classes or names, of any type that files support."""

    def put(self, name: str, value: Any, arrays: Arrays) -> str:
        return columns.put_column(name, value, arrays)

    def get(self, name: str, field: Any, arrays: Arrays, *, thorough: bool) -> np.ndarray:
        labels = columns.read_column(field, name, arrays)
        if labels.ndim != 1:
            raise ValueError(f"{name} must be one-dimensional, got shape {labels.shape}")
        return labels


class StructureField:
    """A named tuple of arrays. ``trim`` drops spare capacity. ``check`` and the owner refuse invalid values."""

    def __init__(
        self,
        kind: Any,
        trim: Callable[[Any], Any] = lambda value: value,
        check: Callable[[Any], None] = lambda value: None,
    ) -> None:
        self._kind, self._trim, self._check = kind, trim, check

    def put(self, name: str, value: Any, arrays: Arrays) -> dict[str, Any]:
        value = self._trim(value)
        arrays |= columns.as_part(name, arrays_of(value))
        return numbers_of(value)

    def get(self, name: str, field: Any, arrays: Arrays, *, thorough: bool) -> Any:
        value = put_together(self._kind, columns.of_part(name, arrays), as_mapping(name, field))
        self._check(value)
        return value


class GeneratorField:
    """A random number generator of NumPy's default type."""

    _most: ClassVar = {"state": 2**128, "inc": 2**128, "has_uint32": 2, "uinteger": 2**32}

    def put(self, name: str, value: Any, arrays: Arrays) -> dict[str, int]:
        state = value.bit_generator.state
        numbers = state["state"] | {"has_uint32": state["has_uint32"], "uinteger": state["uinteger"]}
        return {key: int(numbers[key]) for key in self._most}

    def get(self, name: str, field: Any, arrays: Arrays, *, thorough: bool) -> np.random.Generator:
        fields = as_mapping(name, field)
        for key, most in self._most.items():
            if not 0 <= columns.take(fields, key, int) < most:
                raise ValueError(f"{name} is not the state of a random number generator")
        bits = np.random.PCG64(0)
        bits.state = {
            "bit_generator": "PCG64",
            "state": {"state": fields["state"], "inc": fields["inc"]},
            "has_uint32": fields["has_uint32"],
            "uinteger": fields["uinteger"],
        }
        return np.random.Generator(bits)


def generator_digest(generator: np.random.Generator) -> int:
    """Return a checksum of the state of a random number generator."""
    state = generator.bit_generator.state
    inner, word = state["state"], (state["has_uint32"], state["uinteger"])
    return zlib.crc32(f"{inner['state']} {inner['inc']} {word[0]} {word[1]}".encode())

"""Conversion between labels or values of various types and arrays that a file can store.

Python objects become a JSON document, stored as an array of bytes.
"""

import json
from typing import Any

import numpy as np
import scipy.sparse

from ._container import NUMBERS

_LAST_CHARACTER = 0x10FFFF
_JSON_SCALARS = (bool, int, float, str, type(None))

Arrays = dict[str, np.ndarray]


def document(value: Any) -> np.ndarray:
    """Return a value as a JSON document in an array of bytes."""
    return np.frombuffer(json.dumps(value).encode("ascii"), np.uint8)


def read_document(arrays: Arrays, name: str) -> Any:
    """Return the value of a JSON document in an array of bytes."""
    try:
        return json.loads(read_array(name, arrays, np.uint8).tobytes().decode("ascii"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{name} is not valid JSON: {error}") from error


def put_column(name: str, values: np.ndarray, arrays: Arrays) -> str:
    """Add an encoded array (1-D or 2-D) to ``arrays``, and return the name of the encoding."""
    what = name.rpartition(".")[-1]
    if values.dtype.kind == "O":
        for i, value in enumerate(values):
            _check_json(value, f"entry {i} of {what}")
        arrays[name] = document(values.tolist())
        return "objects"
    native = values.astype(values.dtype.newbyteorder("="), copy=False)
    if native.dtype.kind in "US":
        how, dtype = ("text", np.uint32) if native.dtype.kind == "U" else ("bytes", np.uint8)
        width = native.itemsize // np.dtype(dtype).itemsize
        arrays[name] = np.ascontiguousarray(native).view(dtype).reshape(len(native), width)
        return how
    if native.dtype not in NUMBERS.values():
        raise TypeError(f"{what} can be saved only as numbers, text or JSON values, got {values.dtype}")
    arrays[name] = native
    return "numbers"


def read_column(how: Any, name: str, arrays: Arrays) -> np.ndarray:
    """Return the array that :func:`put_column` has added."""
    if how == "objects":
        entries = read_document(arrays, name)
        if type(entries) is not list:
            raise ValueError(f"{name} must be a list")
        values = np.empty(len(entries), object)
        for i, entry in enumerate(entries):  # a single assignment turns lists of equal length into a matrix
            values[i] = entry
        return values
    if how == "text":
        characters = read_array(name, arrays, np.uint32, n_axes=2)
        if characters.size and characters.max() > _LAST_CHARACTER:
            raise ValueError(f"{name} contains a number that is not a Unicode character")
        return _joined(characters, "U")
    if how == "bytes":
        return _joined(read_array(name, arrays, np.uint8, n_axes=2), "S")
    if how == "numbers":
        if name not in arrays or arrays[name].dtype not in NUMBERS.values():
            raise ValueError(f"the array {name!r} must exist and be numeric")
        return arrays[name]
    raise ValueError(f"{name} has an unknown encoding: {how!r:.50}")


def _joined(characters: np.ndarray, kind: str) -> np.ndarray:
    n, width = characters.shape
    if width == 0:
        return np.zeros(n, f"{kind}1")
    return np.ascontiguousarray(characters).view(f"{kind}{width}").reshape(n)


def put_sparse_matrix(name: str, matrix: scipy.sparse.csr_array, arrays: Arrays) -> list[int]:
    """Add the three arrays of a sparse matrix to ``arrays``, and return its shape."""
    if matrix.data.dtype not in NUMBERS.values():
        raise TypeError(f"{name} can be saved only if it contains numbers, got {matrix.data.dtype}")
    arrays |= as_part(name, {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr})
    return list(matrix.shape)


def read_sparse_matrix(shape: Any, name: str, arrays: Arrays, *, thorough: bool) -> scipy.sparse.csr_array:
    """Return the matrix that :func:`put_sparse_matrix` has added."""
    if type(shape) is not list or len(shape) != 2 or any(type(n) is not int or not 0 <= n < 2**48 for n in shape):
        raise ValueError(f"the shape of {name} must be two non-negative integers, got {shape!r:.50}")
    data = read_column("numbers", f"{name}.data", arrays)
    indices, indptr = (read_array(f"{name}.{part}", arrays, np.int32, np.int64) for part in ("indices", "indptr"))
    if data.ndim != 1 or indices.size != data.size or indptr.size != shape[0] + 1 or indices.dtype != indptr.dtype:
        raise ValueError(f"the data, indices and indptr of {name} are inconsistent")
    if indptr[0] != 0 or indptr[-1] != data.size:
        raise ValueError(f"{name} is truncated")
    if thorough:
        if np.any(indptr[1:] < indptr[:-1]):
            raise ValueError(f"the rows of {name} overlap")
        if indices.size and (indices.min() < 0 or indices.max() >= shape[1]):
            raise ValueError(f"{name} has a column that does not exist")
    return scipy.sparse.csr_array((data, indices, indptr), tuple(shape))


def read_array(name: str, arrays: Arrays, *dtypes: Any, n_axes: int = 1) -> np.ndarray:
    """Return the array ``name``, which must have one of the dtypes."""
    array = arrays.get(name)
    if array is None or array.ndim != n_axes or array.dtype not in dtypes:
        wanted = " or ".join(np.dtype(dtype).name for dtype in dtypes)
        raise ValueError(
            f"the array {name!r} must exist and have dtype {wanted} and {n_axes} dimension{'s' if n_axes != 1 else ''}"
        )
    return array


def take(fields: dict[str, Any], name: str, *kinds: type) -> Any:
    """Return a field."""
    value = fields.get(name)
    if type(value) not in kinds:
        raise ValueError(f"{name} must be of type {' or '.join(kind.__name__ for kind in kinds)}, got {value!r:.50}")
    return value


def as_part(name: str, arrays: Arrays) -> Arrays:
    """Return the arrays of a part, with the prefix ``name.`` added to their names."""
    return {f"{name}.{key}": array for key, array in arrays.items()}


def of_part(name: str, arrays: Arrays) -> Arrays:
    """Return the arrays whose names have the prefix ``name.``, and remove the prefix."""
    return {key.removeprefix(f"{name}."): array for key, array in arrays.items() if key.startswith(f"{name}.")}


def _check_json(value: Any, what: str) -> None:
    """Raise TypeError if JSON cannot preserve a value exactly."""
    if type(value) in _JSON_SCALARS:
        return
    if type(value) is list:
        for entry in value:
            _check_json(entry, what)
    elif type(value) is dict and all(type(key) is str for key in value):
        for entry in value.values():
            _check_json(entry, what)
    else:
        kinds = "None, a bool, an int, a float, a str, or a list or dict of these"
        raise TypeError(f"{what} must be {kinds} to be saved, got {type(value).__name__} {value!r:.50}")

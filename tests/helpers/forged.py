"""Files with one wrong array or field but valid checksums, which no accident produces."""

import json
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from internals import persistence_container
from mutations import parsed, sealed

from cmt_numba.persistence import FileFormatError

NUMBERS = (0, 1, -1, 3, 2**31, 2**62, -(2**63), 10**400, 0.5, -0.5, 1e-320, 1e308)
OTHERS = (None, True, "", "key", [], {}, [0], {"a": 1}, [[]], ["", ""], [1e300, -5])


def forged_arrays(array: np.ndarray) -> Iterator[np.ndarray]:
    """Yield wrong versions of an array, with other values, shapes or dtypes."""
    is_real = array.dtype.kind == "f"
    if array.dtype.kind in "fiu":
        limits = np.finfo(array.dtype) if is_real else np.iinfo(array.dtype)
        values = [0, 1, limits.min, limits.max, *((np.nan, np.inf, -1.0, 1e30) if is_real else (limits.max // 2, 7))]
        for value in values:
            yield np.full_like(array, value)
            for place in (0, -1):
                one = array.copy()
                one.reshape(-1)[place : None if place else 1] = value
                yield one
        yield -array
        yield array.astype(np.int16 if is_real else np.float32)
    yield array[:-1]
    yield array[:0]
    yield np.concatenate([array, array])
    yield array[::-1]
    yield array.reshape(-1, 1)
    if array.ndim > 1:
        yield array[..., :-1]
        yield array[..., ::-1]


def forged_values(value: Any, apart: tuple[str, ...] = (), path: str = "") -> Iterator[Any]:
    """Yield versions of a JSON value, each with one of its parts replaced or left out.

    Parts whose paths, such as "tree.options", start with one of ``apart`` are unchanged.
    """
    if value == {}:  # stands for an array, whatever it is
        yield from (None, 1, {"a": 1})
        return
    yield from NUMBERS
    yield from OTHERS
    if isinstance(value, list):
        for i in sorted({0, len(value) - 1} & set(range(len(value)))):
            yield from ([*value[:i], part, *value[i + 1 :]] for part in forged_values(value[i], apart, path))
        yield value[:-1]
        yield value + value[:1]
    if isinstance(value, dict):
        for key in value:
            if f"{path}{key}".startswith(apart):
                continue
            yield from (value | {key: part} for part in forged_values(value[key], apart, f"{path}{key}."))
            yield {other: part for other, part in value.items() if other != key}


def forgeries(file: bytes, apart: tuple[str, ...] = ()) -> Iterator[tuple[str, dict[str, Any], list[bytes]]]:
    """Yield descriptions of errors, and headers and arrays of copies of a valid file that have only this error.

    Arrays and fields whose paths start with one of ``apart`` are unchanged.
    """
    described, arrays = parsed(file)
    for i, entry in enumerate(described["arrays"]):
        if entry["name"].startswith(apart):
            continue
        try:
            array = np.frombuffer(arrays[i], entry["dtype"]).reshape(entry["shape"])
        except TypeError:  # a structured array of a tree
            array = np.frombuffer(arrays[i], np.uint8).reshape(*entry["shape"], -1)
        for forged in _forged_documents(array) if array.dtype == np.uint8 and array.ndim == 1 else forged_arrays(array):
            header = described | {"arrays": [dict(one) for one in described["arrays"]]}
            if array.ndim == len(entry["shape"]):
                header["arrays"][i] |= {"shape": forged.shape, "dtype": forged.dtype.name}
            elif forged.shape[1:] == array.shape[1:]:
                header["arrays"][i]["shape"] = forged.shape[: len(entry["shape"])]
            contents = [*arrays[:i], np.ascontiguousarray(forged).tobytes(), *arrays[i + 1 :]]
            yield f"{entry['name']}: {forged!r:.300} {forged.dtype} {forged.shape}", header, contents
    for fields in forged_values(described["fields"], apart):
        header = described | {"arrays": [dict(one) for one in described["arrays"]], "fields": fields}
        yield f"fields: {fields!r}", header, arrays


def _forged_documents(array: np.ndarray) -> Iterator[np.ndarray]:
    """Yield wrong versions of an array that may hold a JSON document."""
    try:
        document = json.loads(array.tobytes())
    except ValueError:
        yield from forged_arrays(array)
        return
    for value in forged_values(document):
        yield np.frombuffer(json.dumps(value).encode(), np.uint8)


def check_forgeries(
    file: bytes,
    load: Callable[[Path], Any],
    use: Callable[[Any], None],
    path: Path,
    apart: tuple[str, ...] = (),
    step: int = 1,
) -> None:
    """Load every ``step``-th forgery of a file. Each must be refused or yield a usable object."""
    n_refused = 0
    with path.open("wb") as written:  # the same file again and again: new ones of some megabytes take much longer
        for description, header, arrays in islice(forgeries(file, apart), 0, None, step):
            written.seek(0)
            written.write(sealed(header, arrays))
            written.truncate()
            written.flush()
            try:
                try:
                    loaded = load(path)
                except FileFormatError:
                    n_refused += 1
                    continue
                use(loaded)
            except Exception as error:
                raise AssertionError(description) from error
    assert n_refused > 0


def with_array(file: bytes, name: str, change: Callable[[np.ndarray], Any]) -> bytes:
    """Return a file with a changed array, and correct checksums. The change is in place, or returns another array."""
    described, arrays = parsed(file)
    i = [entry["name"] for entry in described["arrays"]].index(name)
    entry = described["arrays"][i]
    array = np.frombuffer(bytearray(arrays[i]), persistence_container.DTYPES[entry["dtype"]]).reshape(entry["shape"])
    changed = change(array)
    if changed is not None:
        array = np.ascontiguousarray(changed)
        entry |= {"shape": array.shape, "dtype": array.dtype.name}
    arrays[i] = array.tobytes()
    return sealed(described, arrays)


def with_field(file: bytes, name: str, value: Any) -> bytes:
    """Return a file with another value in a field, whose path has dots, and correct checksums."""
    described, arrays = parsed(file)
    *path, last = name.split(".")
    fields = described["fields"]
    for part in path:
        fields = fields[part]
    fields[last] = value
    return sealed(described, arrays)

"""Reading and writing of files with arrays and JSON fields. The package docstring describes the layout."""

import errno
import json
import mmap as memory_map
import os
import secrets
import stat
import struct
import sys
import zlib
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from io import BytesIO
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from .._forest import LEAF, NODE
from .._linear import MODEL, WEIGHT_CELL
from .._version import MAGIC, __version__

FORMAT_VERSION = 6  # format version of files. Version 0.4 of the library started with version 6.
_PREAMBLE = struct.Struct("<16sIIQ")
_LONGEST_HEADER = 1 << 16
_IS_LITTLE = sys.byteorder == "little"
_ALIGNMENT = 64  # bytes in a cache line, enough for every vector instruction
_MAX_AXES = 4
_LONGEST_AXIS = 1 << 48
_LONGEST_NAME = 100
_LARGE = 1 << 24  # minimum size in bytes of files that are checked for holes
_MAX_HOLES = 1000  # maximum ratio of a file's size to its allocated bytes
_MAP_NORESERVE = 0x4000 if sys.platform == "linux" else 0  # mmap.MAP_NORESERVE requires Python 3.13

_NUMBERS = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64"),
)
NUMBERS = {name: np.dtype(name) for name in _NUMBERS}  # dtypes of numeric arrays, by their names in files
DTYPES = {**NUMBERS, "node": NODE, "leaf": LEAF, "model": MODEL, "weight cell": WEIGHT_CELL}
"""The dtypes of all arrays, by their names in files. A name never changes its meaning."""

_NAMES = {dtype: name for name, dtype in DTYPES.items()}


class FileFormatError(ValueError):
    """A file cannot be loaded: it holds another type of object, is damaged or forged, or has a later format version."""

    def __init__(self, path: str | os.PathLike[str], reason: str) -> None:
        super().__init__(f"{os.fspath(path)}: {reason}")
        self.path, self._reason = path, reason

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path, self._reason)  # by default, unpickling would pass only the message


class Contents(NamedTuple):
    """The contents of a file."""

    kind: str  # the class of the object
    fields: dict[str, Any]  # JSON values
    arrays: dict[str, np.ndarray]
    library: str = __version__  # the library version that wrote the file
    version: int = FORMAT_VERSION


class _Entry(NamedTuple):
    """An array, as described by the header."""

    name: str
    dtype: np.dtype
    shape: tuple[int, ...]
    offset: int
    n_bytes: int
    checksum: int


# Writing


def write_contents(path: str | os.PathLike[str], contents: Contents, mode: int = 0o666) -> None:
    """Write a file with permissions ``mode`` before the umask. An existing file is replaced atomically."""
    with replacing(file_to_write(path), mode) as file:
        _write(file, contents)


def file_to_write(path: str | os.PathLike[str]) -> Path:
    """Return a path with symbolic links resolved, after checking that a file can be written there."""
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fspath(path))
    if target.exists() and not target.is_file():
        reason = "is not a regular file and cannot be replaced; choose another path"
        raise OSError(errno.EINVAL, reason, os.fspath(path))
    return target


def pack_contents(contents: Contents) -> bytes:
    """Return the bytes that :func:`write_contents` writes."""
    packed = BytesIO()
    _write(packed, contents)
    return packed.getvalue()


def _write(file: BinaryIO, contents: Contents) -> None:
    described: list[dict[str, Any]] = []
    blocks = []
    for name, array in contents.arrays.items():
        block: Any = np.ascontiguousarray(array if _IS_LITTLE else array.astype(_little(array.dtype)))
        checksum = zlib.crc32(block)
        described.append({"name": name, "dtype": _NAMES[array.dtype], "shape": array.shape, "crc32": checksum})
        blocks.append(block)
    fields = {"kind": contents.kind, "library": contents.library, "fields": contents.fields, "arrays": described}
    header = json.dumps(fields, allow_nan=False).encode("ascii")
    if len(header) > _LONGEST_HEADER:
        raise ValueError(f"the saved parameters must take at most {_LONGEST_HEADER} bytes, got {len(header)}")
    file.write(_PREAMBLE.pack(MAGIC, FORMAT_VERSION, zlib.crc32(header), len(header)))
    file.write(header)
    for block in blocks:
        file.write(bytes(-file.tell() % _ALIGNMENT))
        file.write(block)


@contextmanager
def replacing(target: Path, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Yield a temporary file, which replaces ``target`` if the block succeeds."""
    unfinished = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    descriptor = os.open(unfinished, flags, mode)
    try:
        with open(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        with suppress(OSError):  # keep the permissions of an existing file
            unfinished.chmod(stat.S_IMODE(target.stat().st_mode))
        unfinished.replace(target)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    bring_to_disk(target.parent)


def bring_to_disk(folder: Path) -> None:
    """Sync a folder to disk, which makes renames in it survive a power failure."""
    if os.name != "posix":
        return  # Windows cannot open folders
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# Reading


def read_fields(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the fields of a file without reading its arrays."""
    with _opened(path) as (file, size):
        fields: dict[str, Any] = _read_header(file, size)[1]["fields"]
        return fields


def read_contents(path: str | os.PathLike[str], *, mmap: bool, unread: Collection[str] = ()) -> Contents:
    """Return the contents of a file.

    - ``mmap``: whether to map the arrays privately instead of reading them. Checksums of mapped arrays are not
      verified.
    - ``unread``: names of arrays to map even if ``mmap`` is False. Call :func:`verify_arrays` to verify their
      checksums.
    """
    with _opened(path) as (file, size):
        if not mmap and is_empty_space(file, size):
            raise FileFormatError(path, "is mostly empty (a sparse file); use a complete copy")
        return _read(file, size, lambda name: mmap or name in unread)


def verify_arrays(path: str | os.PathLike[str], names: Collection[str]) -> None:
    """Verify the checksums of the named arrays."""
    with _opened(path) as (file, size):
        _, described = _read_header(file, size)
        entries = [entry for entry in _entries(described, file.tell(), size) if entry.name in names]
        arrays = _mapped(file, entries) if entries else {}
        for entry in entries:
            _check_sum(entry, np.ascontiguousarray(arrays[entry.name], _little(entry.dtype)))


@contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[tuple[BinaryIO, int]]:
    """Open a regular file, and yield it with its size. Raise FileFormatError if it is damaged."""

    def without_waiting(name: str, flags: int) -> int:
        return os.open(name, flags | getattr(os, "O_NONBLOCK", 0))  # a named pipe would block until it has a writer

    with open(path, "rb", opener=without_waiting) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise FileFormatError(path, "is not a regular file")
        try:
            yield file, status.st_size
        except _DamagedError as error:
            raise FileFormatError(path, str(error)) from error
        except OSError as error:
            error.filename = error.filename or os.fspath(path)  # errors of reads do not name the file
            raise


def is_empty_space(file: BinaryIO, size: int, large: int = _LARGE) -> bool:
    """Return whether a large file occupies almost no disk space.

    Reading this file would fill memory with zeros. A copy of a valid file may store zeros as holes, but its keys, ids
    and links are not zeros.
    """
    if size < large or not hasattr(os, "SEEK_HOLE"):
        return False
    descriptor, end, n_bytes = file.fileno(), 0, 0
    try:
        while end < size and n_bytes * _MAX_HOLES < size:
            start = os.lseek(descriptor, end, os.SEEK_DATA)
            end = os.lseek(descriptor, start, os.SEEK_HOLE)
            n_bytes += end - start
    except OSError as error:  # ENXIO: the rest of the file is a hole; otherwise holes are not supported
        if error.errno != errno.ENXIO:
            return False
    finally:
        os.lseek(descriptor, 0, os.SEEK_SET)
    return n_bytes * _MAX_HOLES < size


def unpack_contents(path: str | os.PathLike[str], what: str, packed: bytes) -> Contents:
    """Return the contents that :func:`pack_contents` has packed; ``path`` is named in errors."""
    try:
        return _read(BytesIO(packed), len(packed), lambda _: False)
    except _DamagedError as error:
        raise FileFormatError(path, f"{what}: {error}") from error


_TRUNCATED = "is truncated; use a complete copy"


class _DamagedError(Exception):
    """A file is damaged. Callers add its path."""


def _read(file: BinaryIO, size: int, is_mapped: Callable[[str], bool]) -> Contents:
    version, described = _read_header(file, size)
    entries = _entries(described, file.tell(), size)
    mapped = [entry for entry in entries if is_mapped(entry.name)]
    found = _mapped(file, mapped) if mapped else {}
    arrays = {entry.name: found[entry.name] if entry.name in found else _read_array(file, entry) for entry in entries}
    return Contents(described["kind"], described["fields"], arrays, described["library"], version)


def _read_header(file: BinaryIO, size: int) -> tuple[int, dict[str, Any]]:
    preamble = file.read(_PREAMBLE.size)
    if preamble[: len(MAGIC)] != MAGIC[: len(preamble)] or not preamble:
        raise _DamagedError("is not a cmt-numba file")
    if len(preamble) < _PREAMBLE.size:
        raise _DamagedError(_TRUNCATED)
    _, version, checksum, length = _PREAMBLE.unpack(preamble)
    if version != FORMAT_VERSION:
        advice = "load it with a later version" if version > FORMAT_VERSION else "make the file again from its data"
        raise _DamagedError(
            f"has format version {version}, but cmt-numba {__version__} reads version {FORMAT_VERSION}; {advice}"
        )
    if length > _LONGEST_HEADER:
        raise _DamagedError(f"its header has an invalid length: {length}")
    if length > size - _PREAMBLE.size:
        raise _DamagedError(_TRUNCATED)
    header = file.read(length)
    if zlib.crc32(header) != checksum:
        raise _DamagedError("its header is damaged")
    try:
        described = json.loads(header.decode("ascii"), parse_constant=_refuse, object_pairs_hook=_without_doubles)
    except (ValueError, RecursionError) as error:
        raise _DamagedError(f"its header is not valid: {error}") from error
    _check_type(described, dict, "the header")
    for name, kind in (("kind", str), ("library", str), ("fields", dict), ("arrays", list)):
        _check_type(described.get(name), kind, f"{name!r} of the header")
    return version, described


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not a finite number")


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("two fields have the same name")
    return members


def _check_type(value: Any, kind: type, what: str) -> None:
    if type(value) is not kind:
        raise _DamagedError(f"{what} must be of type {kind.__name__}, got {type(value).__name__}")


def _check_count(value: Any, most: int, what: str) -> None:
    _check_type(value, int, what)
    if not 0 <= value <= most:
        raise _DamagedError(f"{what} must be between 0 and {most}, got {value}")


def _entries(described: dict[str, Any], end: int, size: int) -> list[_Entry]:
    """Return the descriptions of the arrays, after checking that they fill the file from ``end`` to ``size``."""
    entries: dict[str, _Entry] = {}
    for given in described["arrays"]:
        _check_type(given, dict, "an array of the header")
        entry = _entry(given, end + -end % _ALIGNMENT)
        if entry.name in entries:
            raise _DamagedError(f"two arrays have the name {entry.name!r}")
        end = entry.offset + entry.n_bytes
        entries[entry.name] = entry
    if end != size:
        raise _DamagedError(_TRUNCATED if end > size else "has data after its end")
    return list(entries.values())


def _entry(given: dict[str, Any], offset: int) -> _Entry:
    name: Any = given.get("name")
    dtype: Any = given.get("dtype")
    shape: Any = given.get("shape")
    _check_type(name, str, "the name of an array")
    if len(name) > _LONGEST_NAME:
        raise _DamagedError(f"the name of an array has {len(name)} characters, more than {_LONGEST_NAME}")
    _check_type(dtype, str, f"the dtype of array {name!r}")
    if dtype not in DTYPES:
        raise _DamagedError(f"array {name!r} has an unknown dtype: {dtype!r:.50}")
    _check_type(shape, list, f"the shape of array {name!r}")
    _check_count(len(shape), _MAX_AXES, f"the number of axes of array {name!r}")
    for length in shape:
        _check_count(length, _LONGEST_AXIS, f"the length of an axis of array {name!r}")
    _check_count(given.get("crc32"), 2**32 - 1, f"the checksum of array {name!r}")
    n_bytes = prod(shape) * DTYPES[dtype].itemsize
    return _Entry(name, DTYPES[dtype], tuple(shape), offset, n_bytes, given["crc32"])


def _read_array(file: BinaryIO, entry: _Entry) -> np.ndarray:
    array = np.empty(entry.shape, _little(entry.dtype))
    file.seek(entry.offset)
    if file.readinto(array) != entry.n_bytes:  # type: ignore[attr-defined]
        raise _DamagedError(_TRUNCATED)
    _check_sum(entry, array)
    return _native(array, entry.dtype)


def _check_sum(entry: _Entry, contents: Any) -> None:
    if zlib.crc32(contents) != entry.checksum:
        raise _DamagedError(f"array {entry.name!r} is damaged")


def _mapped(file: BinaryIO, entries: list[_Entry]) -> dict[str, np.ndarray]:
    """Return arrays mapped from the file with copy-on-write pages."""
    if hasattr(memory_map, "MAP_PRIVATE"):
        # Do not reserve swap space for copies of all pages: the file may be larger than memory.
        flags = memory_map.MAP_PRIVATE | _MAP_NORESERVE
        protection = memory_map.PROT_READ | memory_map.PROT_WRITE
        contents = memory_map.mmap(file.fileno(), 0, flags=flags, prot=protection)
    else:
        contents = memory_map.mmap(file.fileno(), 0, access=memory_map.ACCESS_COPY)
    arrays = {}
    for entry in entries:
        if entry.n_bytes == 0:
            array = np.empty(entry.shape, _little(entry.dtype))
        else:
            n = prod(entry.shape)
            array = np.frombuffer(contents, _little(entry.dtype), n, entry.offset).reshape(entry.shape)
        arrays[entry.name] = _native(array, entry.dtype)
    return arrays


# Helpers


def _little(dtype: np.dtype) -> np.dtype:
    """Return a dtype in little-endian byte order: ``dtype`` itself on little-endian machines."""
    return dtype if _IS_LITTLE else dtype.newbyteorder("<")


def _native(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    return array if _IS_LITTLE else array.astype(dtype)

"""Invalid files: damaged at random, or forged with correct checksums and sizes."""

import json
import struct
import zlib
from collections.abc import Callable
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from internals import persistence_container

from cmt_numba.persistence import FORMAT_VERSION

PREAMBLE = struct.Struct("<16sIIQ")
MAGIC = b"\x93cmt-numba\r\n\x1a\n\x00\x00"
ALIGNMENT = 64
_ROOM = 4096

NUMBERS = [0, 1, -1, 2, 3, 7, 15, 16, 17, 31, 32, 63, 64, 127, 255, 2**15, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**40]
NUMBERS += [-2, -(2**31), 2**62, 2**63 - 1, -(2**63)]
VALUES = [*NUMBERS, 2**64, 2**127, 10**400, 0.5, -0.5, 1e308, True, False, None]
VALUES += ["", "key", "value", "int64", [], {}, [0], {"a": 1}]
FOREIGN = [
    b"",
    b"PK\x03\x04" + bytes(26),
    b"\x80\x04\x95" + bytes(30),
    b"\x1f\x8b\x08" + bytes(20),
    b"\x93NUMPY\x01\x00",
    b"7 12:1\n",
]


def parsed(file: bytes) -> tuple[dict[str, Any], list[bytes]]:
    """Return the header of a valid file, and the bytes of its arrays."""
    _, _, _, length = PREAMBLE.unpack_from(file)
    described = json.loads(file[PREAMBLE.size : PREAMBLE.size + length])
    return described, [file[start:stop] for start, stop in places(described, length).values()]


def places(described: dict[str, Any], length: int) -> dict[str, tuple[int, int]]:
    """Return the start and the end of each array in a file with a header of this length."""
    found, stop = {}, PREAMBLE.size + length
    for entry in described["arrays"]:
        start = stop + -stop % ALIGNMENT
        stop = start + prod(entry["shape"]) * persistence_container.DTYPES[entry["dtype"]].itemsize
        found[entry["name"]] = start, stop
    return found


def start_of(file: bytes, name: str) -> int:
    """Return the place of the first byte of an array in a valid file."""
    return places(parsed(file)[0], PREAMBLE.unpack_from(file)[-1])[name][0]


@lru_cache(100)
def sum_of(array: bytes) -> int:
    """Return the checksum of an array, once for all files that contain it."""
    return zlib.crc32(array)


def sealed(described: Any, arrays: list[bytes], *, lie: bool = False, version: int = FORMAT_VERSION) -> bytes:
    """Return a file with this header and arrays, and correct checksums. ``lie`` keeps the checksums of the header."""
    entries = described.get("arrays") if isinstance(described, dict) else None
    entries = entries if isinstance(entries, list) and all(isinstance(entry, dict) for entry in entries) else []
    # This spare room keeps changes of the header from moving the arrays in most cases.
    end = -(-(PREAMBLE.size + len(json.dumps(described)) + 40 * len(arrays)) // _ROOM) * _ROOM
    room = end - PREAMBLE.size
    places = []
    for i, array in enumerate(arrays):
        places.append((end + 63) // ALIGNMENT * ALIGNMENT)
        end = places[-1] + len(array)
        if i < len(entries) and not lie:
            entries[i] |= {"crc32": sum_of(array)}
    header = json.dumps(described).encode("ascii").ljust(room)
    file = bytearray(PREAMBLE.pack(MAGIC, version, zlib.crc32(header), len(header)) + header)
    for place, array in zip(places, arrays, strict=True):
        file += bytes(max(0, place - len(file))) + array
    return bytes(file)


def mutated(rng: np.random.Generator, files: list[bytes]) -> bytes:
    """Return a random one of some valid files, with some mutations."""
    file = files[rng.integers(len(files))]
    return _WAYS[rng.choice(len(_WAYS), p=_SHARES)](rng, file, files)


# Damage that checksums detect


def _flip_bits(rng: np.random.Generator, file: bytes, files: list[bytes]) -> bytes:
    damaged = bytearray(file)
    for place in rng.integers(0, len(file), rng.integers(1, 9)):
        damaged[place] ^= 1 << int(rng.integers(8))
    return bytes(damaged)


def _damage_header(rng: np.random.Generator, file: bytes, files: list[bytes]) -> bytes:
    damaged = bytearray(file)
    for place in rng.integers(0, min(600, len(file)), rng.integers(1, 4)):
        damaged[place] = int(rng.integers(256))
    return bytes(damaged)


def _cut_off(rng: np.random.Generator, file: bytes, files: list[bytes]) -> bytes:
    return file[: rng.integers(0, len(file) if rng.random() < 0.5 else min(len(file), 200))]


def _extend(rng: np.random.Generator, file: bytes, files: list[bytes]) -> bytes:
    return file + rng.bytes(int(rng.integers(1, 200)))


def _overwrite(rng: np.random.Generator, file: bytes, files: list[bytes]) -> bytes:
    damaged = bytearray(file)
    first, n = int(rng.integers(len(file))), int(rng.integers(1, 4096))
    n = min(n, len(file) - first)
    damaged[first : first + n] = (bytes(n), b"\xff" * n, rng.bytes(n))[rng.integers(3)]
    return bytes(damaged)


def _mix(rng: np.random.Generator, file: bytes, files: list[bytes]) -> bytes:
    other = files[rng.integers(len(files))]
    cut = int(rng.integers(min(len(file), len(other))))
    return file[:cut] + other[cut:]


def _foreign(rng: np.random.Generator, file: bytes, files: list[bytes]) -> bytes:
    return FOREIGN[rng.integers(len(FOREIGN))] + rng.bytes(int(rng.integers(100)))


# Forgery that only validation of the contents detects


def _forge_preamble(rng: np.random.Generator, file: bytes, files: list[bytes]) -> bytes:
    magic, version, checksum, length = PREAMBLE.unpack_from(file)
    choice = rng.integers(3)
    if choice == 0:
        version = int(rng.choice([0, 1, 3, 7, 2**31, 2**32 - 1]))
    elif choice == 1:
        length = int(rng.choice([0, 1, 64, length - 1, length + 1, 2**16 + 1, 2**40, 2**63]))
    else:
        length = int(rng.integers(0, len(file)))
        checksum = zlib.crc32(file[PREAMBLE.size : PREAMBLE.size + length])
    return PREAMBLE.pack(magic, version, checksum, length) + file[PREAMBLE.size :]


def _forge_header(rng: np.random.Generator, file: bytes, files: list[bytes]) -> bytes:
    described, arrays = parsed(file)
    lie = rng.random() < 0.5
    if lie:
        sealed(described, arrays)  # the checksums are correct before the following change
    for _ in range(rng.integers(1, 3)):
        _forge_value(rng, described)
    return sealed(described, arrays, lie=lie)


def _forge_value(rng: np.random.Generator, described: Any) -> None:
    """Change a random value somewhere in the header."""
    place = described
    deeper = described.get(("fields", "arrays")[rng.integers(2)])
    if isinstance(deeper, dict | list) and len(deeper) > 0 and rng.random() < 0.9:
        place = deeper
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = keys[rng.integers(len(keys))]
        below = place[key]
        if isinstance(below, dict | list) and len(below) > 0 and rng.random() < 0.97:
            place = below
            continue
        choice = rng.random()
        if choice < 0.1:
            del place[key]
        elif choice < 0.2 and isinstance(place, list):
            place.append(place[key])
        elif choice < 0.3:
            other = keys[rng.integers(len(keys))]
            place[key], place[other] = place[other], place[key]
        elif choice < 0.6 and isinstance(below, int | float):
            place[key] = below + int(rng.choice([-1, 1, 2, -2]))
        else:
            place[key] = VALUES[rng.integers(len(VALUES))]
        return


def _forge_cells(rng: np.random.Generator, file: bytes, files: list[bytes]) -> bytes:
    described, arrays = parsed(file)
    for _ in range(rng.integers(1, 4)):
        filled = [i for i, array in enumerate(arrays) if array]
        if not filled:
            break
        i = filled[rng.integers(len(filled))]
        dtype = described["arrays"][i]["dtype"]
        width = {"node": 4, "leaf": 4, "model": 4, "weight cell": 4, "bool": 1}.get(dtype) or np.dtype(dtype).itemsize
        width = 8 if dtype == "node" and rng.random() < 0.2 else width
        cells = bytearray(arrays[i])
        n_cells = len(cells) // width
        for cell in rng.integers(0, n_cells, rng.integers(1, 5)):
            cells[cell * width : (cell + 1) * width] = _forged_cell(rng, bytes(cells), int(cell), width)
        arrays[i] = bytes(cells)
    return sealed(described, arrays)


def _forged_cell(rng: np.random.Generator, cells: bytes, cell: int, width: int) -> bytes:
    old = int.from_bytes(cells[cell * width : (cell + 1) * width], "little")
    choice = rng.random()
    if choice < 0.3:
        new = NUMBERS[rng.integers(len(NUMBERS))]
    elif choice < 0.5:
        new = old + int(rng.choice([-1, 1, 16, -16]))
    elif choice < 0.7:
        other = int(rng.integers(len(cells) // width))
        return cells[other * width : (other + 1) * width]
    elif choice < 0.8:
        floats = {2: "<e", 4: "<f", 8: "<d"}
        if width in floats:
            number = (float("nan"), float("inf"), -float("inf"), -1.0, 1.0)[rng.integers(5)]
            return struct.pack(floats[width], number)
        new = 0
    else:
        new = old ^ (1 << int(rng.integers(8 * width)))
    return (new % (1 << (8 * width))).to_bytes(width, "little")


def _swap_arrays(rng: np.random.Generator, file: bytes, files: list[bytes]) -> bytes:
    described, arrays = parsed(file)
    one, other = (int(i) for i in rng.integers(0, len(arrays), 2))
    if rng.random() < 0.5:
        arrays[one], arrays[other] = arrays[other], arrays[one]
        entries = described["arrays"]
        for key in ("shape", "dtype") if rng.random() < 0.5 else ("shape",):
            entries[one][key], entries[other][key] = entries[other][key], entries[one][key]
    else:
        names = [entry["name"] for entry in described["arrays"]]
        described["arrays"][one]["name"], described["arrays"][other]["name"] = names[other], names[one]
    return sealed(described, arrays)


def _resize_array(rng: np.random.Generator, file: bytes, files: list[bytes]) -> bytes:
    """Give an array more or fewer entries along an axis."""
    described, arrays = parsed(file)
    i = int(rng.integers(len(arrays)))
    entry = described["arrays"][i]
    axis = int(rng.integers(len(entry["shape"])))
    old = int(np.prod(entry["shape"], dtype=np.int64))
    entry["shape"][axis] = max(0, entry["shape"][axis] + int(rng.choice([-1, 1, -5, 5, 16])))
    new = int(np.prod(entry["shape"], dtype=np.int64))
    width = len(arrays[i]) // old if old else {"node": 64, "leaf": 8, "weight cell": 12}.get(entry["dtype"]) or 8
    arrays[i] = (arrays[i] + (bytes(new * width) if rng.random() < 0.5 else rng.bytes(new * width)))[: new * width]
    return sealed(described, arrays)


def _transplant(rng: np.random.Generator, file: bytes, files: list[bytes]) -> bytes:
    """Replace some arrays with those of another file."""
    described, arrays = parsed(file)
    other, others = parsed(files[rng.integers(len(files))])
    theirs = {entry["name"]: (entry, array) for entry, array in zip(other["arrays"], others, strict=True)}
    for i, entry in enumerate(described["arrays"]):
        if entry["name"] in theirs and rng.random() < 0.2:
            described["arrays"][i], arrays[i] = theirs[entry["name"]]
    return sealed(described, arrays)


_Way = Callable[[np.random.Generator, bytes, list[bytes]], bytes]
_WEIGHTS: dict[_Way, int] = {
    _flip_bits: 8,
    _damage_header: 4,
    _cut_off: 6,
    _extend: 1,
    _overwrite: 4,
    _mix: 2,
    _foreign: 1,
    _forge_preamble: 4,
    _forge_header: 20,
    _forge_cells: 40,
    _swap_arrays: 5,
    _resize_array: 5,
    _transplant: 5,
}
_WAYS = list(_WEIGHTS)
_SHARES = np.array(list(_WEIGHTS.values())) / sum(_WEIGHTS.values())

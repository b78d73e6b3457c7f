"""The arrays of a dense index, as named tuples that kernels receive.

A vector is in a *slot*; slots are contiguous. Each vector is a member of one *list*. Lists have rotated *centers*, and
codes of members describe the difference between a member and the center of its list.

The lists are the members of *groups*, which are lists one level up: their members are the centers of lists.

The members of a list are in a chain of *tiles* with 32 *places* each. Only the first tile of a chain may have free
places.
"""

from typing import NamedTuple

import numpy as np

from .._jit import BITS_OF_A_WORD, TILE
from .._kernels import NONE, fill_slot_table, require, resized, slot_table_size

# Metrics.
COSINE, INNER_PRODUCT, EUCLIDEAN = 0, 1, 2

# Positions in ``DenseState.totals``.
METRIC = 0
N_VECTORS = 1
N_FAR = 2  # number of vectors that are too long for codes
N_CHANGES = 3  # changes since a list was refreshed
N_REFRESHES = 4  # refreshed lists since a group was refreshed
N_LISTED = 5  # number of vectors in lists: all of them, or 0 while they are few
N_TOTALS = 6

# Positions in ``Lists.counts``.
N_LISTS = 0
N_TILES = 1  # tiles in use or on the free list
FREE_TILE = 2  # the first free tile, or NONE
NEXT_LIST = 3  # the next list to refresh
N_COUNTS = 4

# Positions in ``DenseState.numbers``.
SCALE = 0  # factor of vectors and queries
MASS = 1  # sum of ``lifts`` over all vectors
N_NUMBERS = 2

LIST_SIZE = 80
"""The wanted number of members of a list. A list with more than twice as many is split."""

MIN_SIZE = 20
"""A list with fewer members is dissolved."""

SPARE_TILES = 160
"""Number of free tiles of lists that a change of one vector needs at most."""

SPARE_TILES_OF_GROUPS = 256
"""Number of free tiles of groups that a change of one vector needs, with enough for the refresh of a group."""

SPARE_LISTS = 16
"""Number of free lists, or groups, that a change of one vector needs at most."""


class Vectors(NamedTuple):
    """Vectors as they were given. Those in the first slots may be in a memory map."""

    base: np.ndarray  # float32 (n_base, d)
    more: np.ndarray  # float32 (capacity - n_base, d)
    ids: np.ndarray  # int64 (capacity,)
    slot_table: np.ndarray  # int32: hash table from ids to slots


class Lists(NamedTuple):
    """Lists of vectors, or groups of lists."""

    centers: np.ndarray  # float32 (lists, width): rotated
    masses: np.ndarray  # float32 (lists,): sum of ``lifts`` of the members, for lists of vectors
    sizes: np.ndarray  # int64 (lists,)
    heads: np.ndarray  # int64 (lists,): the first tile, or NONE
    bits: np.ndarray  # uint64 (tiles * words * 32,): 1-bit codes of members
    factors: np.ndarray  # float32 (places,): factor of the sum of signs; 0 if the place is free
    added: np.ndarray  # float32 (places,): number added to the sum; minus infinity if the place is free
    codes: np.ndarray  # int8 (places, codes): 8-bit codes of vectors, which are rotated unless they have few features
    scales: np.ndarray  # float32 (places,): factor of 8-bit codes
    errors: np.ndarray  # float32 (places,): length of their rounding error; infinite if the vector is too long
    lifts: np.ndarray  # float32 (places,): half the squared length of a vector, or the lift of a list in searches
    slots: np.ndarray  # int32 (places,): the slot of the vector, or the list; NONE if the place is free
    nexts: np.ndarray  # int64 (tiles,): the next tile of the chain, or NONE
    list_of: np.ndarray  # int64 (tiles,)
    places: np.ndarray  # int32 (members,): the place of each member
    counts: np.ndarray  # int64


class DenseState(NamedTuple):
    """The whole state."""

    vectors: Vectors
    lists: Lists
    groups: Lists  # without 8-bit codes
    signs: np.ndarray  # float32 (4, width): the random signs of the rotation
    origin: np.ndarray  # float32 (d,): subtracted from vectors and queries
    totals: np.ndarray  # int64
    numbers: np.ndarray  # float64


def width_of(d: int) -> int:
    """Return the number of rotated features."""
    return -(-d // BITS_OF_A_WORD) * BITS_OF_A_WORD


def codes_of(d: int) -> int:
    """Return the number of 8-bit codes of a vector, which is rotated before unless it has few features."""
    return width_of(d) if d >= BITS_OF_A_WORD else d


_OF_LISTS = ("centers", "masses", "sizes", "heads")
_OF_PLACES = ("factors", "added", "codes", "scales", "errors", "lifts", "slots")
_OF_TILES = ("nexts", "list_of")


def _new_lists(width: int, n_codes: int) -> Lists:
    """Return one empty list, with room for more."""
    f4, i8 = np.float32, np.int64
    return Lists(
        centers=np.zeros((TILE, width), f4),
        masses=np.zeros(TILE, f4),
        sizes=np.zeros(TILE, i8),
        heads=np.full(TILE, NONE),
        bits=np.empty(0, np.uint64),
        **{name: np.empty(0, f4) for name in ("factors", "added", "scales", "errors", "lifts")},
        codes=np.empty((0, n_codes), np.int8),
        slots=np.empty(0, np.int32),
        **{name: np.empty(0, i8) for name in _OF_TILES},
        places=np.empty(0, np.int32),
        counts=np.array([1, 0, NONE, 0]),
    )


def new_state(d: int, metric: int, seed: int) -> DenseState:
    """Return the state of an index with one empty list in one group."""
    width, f4 = width_of(d), np.float32
    totals = np.zeros(N_TOTALS, np.int64)
    totals[METRIC] = metric
    numbers = np.zeros(N_NUMBERS)
    numbers[SCALE] = 1.0
    empty = np.empty((0, d), f4)
    groups = _with_tiles(_with_members(_new_lists(width, 0), TILE), SPARE_TILES_OF_GROUPS)
    groups.sizes[0], groups.heads[0], groups.counts[N_TILES], groups.nexts[0] = 1, 0, 1, NONE
    groups.slots[1:TILE], groups.added[1:TILE] = NONE, -np.inf
    return DenseState(
        Vectors(empty, empty, np.empty(0, np.int64), np.full(slot_table_size(0), NONE, np.int32)),
        _new_lists(width, codes_of(d)),
        groups,
        np.random.default_rng(seed).choice(np.array([-1, 1], f4), (4, width)),
        np.zeros(d, f4),
        totals,
        numbers,
    )


def _with_lists(lists: Lists) -> Lists:
    """Return lists with room for those that a change of one vector needs."""
    if lists.counts[N_LISTS] + SPARE_LISTS <= lists.sizes.size:
        return lists
    size = max(int(lists.counts[N_LISTS]) + SPARE_LISTS, 2 * lists.sizes.size)
    return lists._replace(**{name: resized(getattr(lists, name), size, fill=0) for name in _OF_LISTS})


def _sizes(lists: Lists, n_tiles: int) -> dict[str, int]:
    """Return the length of each array that has entries for places or tiles."""
    sizes = {"bits": n_tiles * lists.centers.shape[1] // BITS_OF_A_WORD * TILE}
    return sizes | dict.fromkeys(_OF_PLACES, n_tiles * TILE) | dict.fromkeys(_OF_TILES, n_tiles)


def _with_tiles(lists: Lists, n_spare: int) -> Lists:
    """Return lists with at least ``n_spare`` free tiles."""
    n = int(lists.counts[N_TILES])
    if n + n_spare <= lists.nexts.size:
        return lists
    sizes = _sizes(lists, max(n + n_spare, lists.nexts.size * 3 // 2))
    # new entries are zeros, so that files have no arbitrary values
    return lists._replace(**{name: resized(getattr(lists, name), size, fill=0) for name, size in sizes.items()})


def _with_members(lists: Lists, n: int) -> Lists:
    """Return lists with room for ``n`` members."""
    return lists if n <= lists.places.size else lists._replace(places=resized(lists.places, n, fill=0))


def with_room(state: DenseState, n_more: int) -> DenseState:
    """Return the state with room for ``n_more`` vectors, and for the lists that a change of one vector needs."""
    vectors, n = state.vectors, int(state.totals[N_VECTORS])
    if n + n_more > vectors.ids.size:
        size = max(n + n_more, 16, vectors.ids.size * 3 // 2)
        table = vectors.slot_table
        vectors = vectors._replace(more=resized(vectors.more, size - len(vectors.base)), ids=resized(vectors.ids, size))
        if slot_table_size(size) > table.size:
            vectors = vectors._replace(slot_table=np.full(slot_table_size(size), NONE, np.int32))
            fill_slot_table(vectors.slot_table, vectors.ids[:n])
    lists = _with_members(_with_tiles(_with_lists(state.lists), SPARE_TILES), vectors.ids.size)
    groups = _with_members(_with_tiles(_with_lists(state.groups), SPARE_TILES_OF_GROUPS), lists.sizes.size)
    if vectors is state.vectors and lists is state.lists and groups is state.groups:
        return state  # the same object, so that callers need not prepare it again
    return state._replace(vectors=vectors, lists=lists, groups=groups)


_DTYPES = {
    "centers": np.float32,
    "masses": np.float32,
    "sizes": np.int64,
    "heads": np.int64,
    "bits": np.uint64,
    "factors": np.float32,
    "added": np.float32,
    "codes": np.int8,
    "scales": np.float32,
    "errors": np.float32,
    "lifts": np.float32,
    "slots": np.int32,
    "nexts": np.int64,
    "list_of": np.int64,
    "counts": np.int64,
}
"""The dtype of each array of lists in a file."""

_OF_GROUPS = ("centers", "sizes", "heads", "lifts", "slots", "nexts", "list_of", "counts")
"""The arrays of groups in a file. The others follow from them and from the lists."""

_SAVED = {name: ("lists", name) for name in _DTYPES} | {f"group_{name}": ("groups", name) for name in _OF_GROUPS}
"""The part of the state and the field of each array of a file that describes lists or groups."""


def _used(lists: Lists, name: str) -> np.ndarray:
    """Return the part of an array that is in use."""
    array: np.ndarray = getattr(lists, name)
    if name in _OF_LISTS:
        return array[: lists.counts[N_LISTS]]
    return array if name == "counts" else array[: len(array) // max(lists.nexts.size, 1) * lists.counts[N_TILES]]


def used_arrays(state: DenseState) -> dict[str, np.ndarray]:
    """Return the arrays besides vectors from which :func:`restored` makes the same state, without spare room."""
    arrays = {name: _used(getattr(state, part), field) for name, (part, field) in _SAVED.items()}
    ids = state.vectors.ids[: state.totals[N_VECTORS]]
    return arrays | {"ids": ids, "origin": state.origin, "totals": state.totals, "numbers": state.numbers}


def used_vectors(state: DenseState) -> np.ndarray:
    """Return the vectors by slot, a view unless some of them are in a memory map and others are not."""
    n, (base, more) = int(state.totals[N_VECTORS]), state.vectors[:2]
    if n <= len(base):
        return base[:n]
    return np.concatenate([base, more[: n - len(base)]]) if len(base) > 0 else more[:n]


def _restored(lists: Lists, arrays: dict[str, np.ndarray], part: str, n: int) -> Lists:
    """Return ``lists`` of ``n`` members with saved arrays, and zeros in place of those that are not saved."""
    given = {field: np.array(arrays[name]) for name, (of, field) in _SAVED.items() if of == part}
    slots = given["slots"]
    is_taken = slots != NONE
    require(given["counts"].shape == (N_COUNTS,), f"counts must have {N_COUNTS} entries")
    require(bool(((slots[is_taken] >= 0) & (slots[is_taken] < n)).all()), "places must have stored members")
    places = np.full(n, NONE, np.int32)
    places[slots[is_taken]] = np.flatnonzero(is_taken)
    sizes = _sizes(lists, len(given["nexts"])) | {"masses": len(given["sizes"])}
    zeros = {name: resized(getattr(lists, name), n, fill=0) for name, n in sizes.items() if name not in given}
    return lists._replace(**(given | zeros), places=places)


def restored(state: DenseState, arrays: dict[str, np.ndarray]) -> DenseState:
    """Return a new state with saved arrays, of which the contents are not checked yet.

    Vectors are not copied unless they are read-only; all other arrays are. What follows from the arrays is missing:
    see :func:`cmt_numba._index.changes.derive`.
    """
    kinds = {"vectors": np.float32, "ids": np.int64, "origin": np.float32, "totals": np.int64, "numbers": np.float64}
    kinds |= {name: _DTYPES[field] for name, (_, field) in _SAVED.items()}
    for name, kind in kinds.items():
        require(name in arrays and arrays[name].dtype == kind, f"{name} must be of dtype {np.dtype(kind)}")
        n_axes = 2 if name in ("vectors", "centers", "codes", "group_centers") else 1
        require(arrays[name].ndim == n_axes, f"{name} must have {n_axes} axes")
    base, ids, totals = np.asarray(arrays["vectors"]), np.array(arrays["ids"]), np.array(arrays["totals"])
    require(base.ndim == 2 and base.shape[1] == state.origin.size, "vectors must have all features")
    require(base.flags.c_contiguous, "vectors must be C-contiguous")
    require(totals.shape == (N_TOTALS,), f"totals must have {N_TOTALS} entries")
    require(len(base) == len(ids) == totals[N_VECTORS], "there must be a vector for each id")
    table = np.full(slot_table_size(len(ids)), NONE, np.int32)
    return state._replace(
        vectors=Vectors(
            base if base.flags.writeable else base.copy(), np.empty((0, base.shape[1]), np.float32), ids, table
        ),
        lists=_restored(state.lists, arrays, "lists", len(ids)),
        groups=_restored(state.groups, arrays, "groups", len(arrays["sizes"])),
        origin=np.array(arrays["origin"]),
        totals=totals,
        numbers=np.array(arrays["numbers"]),
    )

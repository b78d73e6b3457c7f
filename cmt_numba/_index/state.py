"""The arrays of a dense index, as named tuples that kernels receive.

A vector is in a *slot*; slots are contiguous. Each vector belongs to one *list*, and the members of a list are in a
chain of *tiles* with 32 *places* each. Only the first tile of a chain may have free places.

Lists have rotated *centers*. Codes of members describe the difference between a member and the center of its list.
"""

from typing import NamedTuple

import numpy as np

from .._forest import NONE, fill_slot_table, require, resized, slot_table_size
from .._jit import BITS_OF_A_WORD, TILE

# Metrics.
COSINE, INNER_PRODUCT, EUCLIDEAN = 0, 1, 2

# Positions in ``DenseState.totals``.
METRIC = 0
N_VECTORS = 1
N_LISTS = 2
N_TILES = 3  # tiles in use or on the free list
FREE_TILE = 4  # the first free tile, or NONE
N_ROUTED = 5  # number of lists when the codes of centers were last computed from a new mean
NEXT_LIST = 6  # the next list to refresh
N_CHANGES = 7  # changes since a list was refreshed
N_FAR = 8  # number of vectors that are too long for codes
N_TOTALS = 9

# Positions in ``DenseState.numbers``.
SCALE = 0  # factor of vectors and queries
MASS = 1  # sum of ``lifts`` over all vectors
N_NUMBERS = 2

LIST_SIZE = 80
"""The wanted number of vectors in a list. A list with more than twice as many is split."""

LEAST_SIZE = 20
"""A list with fewer vectors is dissolved."""

SPARE_TILES = 160
"""Number of free tiles that a change of one vector needs at most."""

SPARE_LISTS = 4
"""Number of free lists that a change of one vector needs at most."""


class Vectors(NamedTuple):
    """Vectors as they were given. Those in the first slots may be in a memory map."""

    base: np.ndarray  # float32 (n_base, d)
    more: np.ndarray  # float32 (capacity - n_base, d)
    ids: np.ndarray  # int64 (capacity,)
    slot_table: np.ndarray  # int32: hash table from ids to slots
    places: np.ndarray  # int32 (capacity,): the place of each slot


class Clusters(NamedTuple):
    """Lists."""

    centers: np.ndarray  # float32 (lists, width): rotated
    added: np.ndarray  # float32 (lists,): added to the nearness of lists, not for distances
    masses: np.ndarray  # float32 (lists,): sum of ``lifts`` of the members
    sizes: np.ndarray  # int64 (lists,)
    heads: np.ndarray  # int64 (lists,): the first tile, or NONE


class Members(NamedTuple):
    """Places and tiles."""

    bits: np.ndarray  # uint64 (tiles * words * 32,): 1-bit codes
    factors: np.ndarray  # float32 (places,): factor of the sum of signs; 0 if the place is free
    added: np.ndarray  # float32 (places,): number added to the sum; minus infinity if the place is free
    codes: np.ndarray  # int8 (places, codes): 8-bit codes of vectors, which are rotated unless they have few features
    scales: np.ndarray  # float32 (places,): factor of 8-bit codes
    errors: np.ndarray  # float32 (places,): length of their rounding error; infinite if the vector is too long
    lifts: np.ndarray  # float32 (places,): half the squared length
    slots: np.ndarray  # int32 (places,)
    nexts: np.ndarray  # int64 (tiles,): the next tile of the chain, or NONE
    list_of: np.ndarray  # int64 (tiles,)


class Routes(NamedTuple):
    """1-bit codes of centers; list ``j`` has place ``j``."""

    bits: np.ndarray  # uint64
    factors: np.ndarray  # float32
    added: np.ndarray  # float32; minus infinity if there is no such list
    mean: np.ndarray  # float32 (width,): the center of the codes


class DenseState(NamedTuple):
    """The whole state."""

    vectors: Vectors
    clusters: Clusters
    members: Members
    routes: Routes
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


def _members(n_tiles: int, d: int) -> Members:
    words, places, f4 = width_of(d) // BITS_OF_A_WORD, n_tiles * TILE, np.float32
    return Members(
        np.zeros(places * words, np.uint64),
        np.zeros(places, f4),
        np.zeros(places, f4),
        np.zeros((places, codes_of(d)), np.int8),
        np.zeros(places, f4),
        np.zeros(places, f4),
        np.zeros(places, f4),
        np.zeros(places, np.int32),
        np.zeros(n_tiles, np.int64),
        np.zeros(n_tiles, np.int64),
    )


def new_state(d: int, metric: int, seed: int) -> DenseState:
    """Return the state of an index with one empty list."""
    width, f4 = width_of(d), np.float32
    words = width // BITS_OF_A_WORD
    totals = np.zeros(N_TOTALS, np.int64)
    totals[[METRIC, N_LISTS, FREE_TILE, N_ROUTED]] = metric, 1, NONE, 1
    numbers = np.zeros(N_NUMBERS)
    numbers[SCALE] = 1.0
    empty = np.empty((0, d), f4)
    return DenseState(
        Vectors(
            empty, empty, np.empty(0, np.int64), np.full(slot_table_size(0), NONE, np.int32), np.empty(0, np.int32)
        ),
        Clusters(
            np.zeros((TILE, width), f4),
            np.zeros(TILE, f4),
            np.zeros(TILE, f4),
            np.zeros(TILE, np.int64),
            np.full(TILE, NONE),
        ),
        _members(0, d),
        Routes(
            np.zeros(TILE * words, np.uint64),
            np.zeros(TILE, f4),
            np.where(np.arange(TILE) < 1, f4(0), f4(-np.inf)),
            np.zeros(width, f4),
        ),
        np.random.default_rng(seed).choice(np.array([-1, 1], f4), (4, width)),
        np.zeros(d, f4),
        totals,
        numbers,
    )


def with_room(state: DenseState, n_more: int) -> DenseState:
    """Return the state with room for ``n_more`` vectors, and for the lists that a change of one vector needs."""
    vectors, clusters, members, routes = state[:4]
    n, n_lists = int(state.totals[N_VECTORS]), int(state.totals[N_LISTS])
    if n + n_more > vectors.ids.size:
        size = max(n + n_more, 16, vectors.ids.size * 3 // 2)
        table, n_base = vectors.slot_table, len(vectors.base)
        vectors = Vectors(
            vectors.base,
            resized(vectors.more, size - n_base),
            resized(vectors.ids, size),
            table,
            resized(vectors.places, size),
        )
        if slot_table_size(size) > table.size:
            vectors = vectors._replace(slot_table=np.full(slot_table_size(size), NONE, np.int32))
            fill_slot_table(vectors.slot_table, vectors.ids[:n])
    if n_lists + SPARE_LISTS > clusters.sizes.size:
        size = 2 * clusters.sizes.size
        clusters = Clusters(*(resized(column, size, fill=0) for column in clusters))
    if n_lists + SPARE_LISTS > routes.factors.size:
        size = 2 * routes.factors.size
        words = state.signs.shape[1] // BITS_OF_A_WORD
        routes = Routes(
            resized(routes.bits, size * words, fill=0),
            resized(routes.factors, size, fill=0),
            resized(routes.added, size, fill=-np.inf),
            routes.mean,
        )
    n_tiles = int(state.totals[N_TILES])
    if n_tiles + SPARE_TILES > members.nexts.size:
        size = max(n_tiles + SPARE_TILES, members.nexts.size * 3 // 2)
        words = state.signs.shape[1] // BITS_OF_A_WORD
        members = Members(
            resized(members.bits, size * words * TILE, fill=0),  # so that files have no arbitrary values
            *(resized(column, size * TILE, fill=0) for column in members[1:-2]),
            *(resized(column, size, fill=0) for column in members[-2:]),
        )
    if vectors is state[0] and clusters is state[1] and members is state[2] and routes is state[3]:
        return state  # the same object, so that callers need not prepare it again
    return state._replace(vectors=vectors, clusters=clusters, members=members, routes=routes)


_SAVED = {
    "centers": ("clusters", np.float32),
    "masses": ("clusters", np.float32),
    "sizes": ("clusters", np.int64),
    "heads": ("clusters", np.int64),
    "bits": ("members", np.uint64),
    "factors": ("members", np.float32),
    "added": ("members", np.float32),
    "codes": ("members", np.int8),
    "scales": ("members", np.float32),
    "errors": ("members", np.float32),
    "lifts": ("members", np.float32),
    "slots": ("members", np.int32),
    "nexts": ("members", np.int64),
    "list_of": ("members", np.int64),
    "mean": ("routes", np.float32),
    "origin": ("", np.float32),
    "totals": ("", np.int64),
    "numbers": ("", np.float64),
}
"""The part of the state and the dtype of each array of a file, besides vectors and ids."""


def used_arrays(state: DenseState) -> dict[str, np.ndarray]:
    """Return the arrays besides vectors from which :func:`restored` makes the same state, without spare room."""
    n, n_lists, n_tiles = (int(state.totals[i]) for i in (N_VECTORS, N_LISTS, N_TILES))
    arrays = {"ids": state.vectors.ids[:n]}
    for name, (part, _) in _SAVED.items():
        array = getattr(getattr(state, part) if part else state, name)
        if part == "clusters":
            array = array[:n_lists]
        elif part == "members":
            array = array[: len(array) // max(len(state.members.nexts), 1) * n_tiles]
        arrays[name] = array
    return arrays


def used_vectors(state: DenseState) -> np.ndarray:
    """Return the vectors by slot, a view unless some of them are in a memory map and others are not."""
    n, (base, more) = int(state.totals[N_VECTORS]), state.vectors[:2]
    if n <= len(base):
        return base[:n]
    return np.concatenate([base, more[: n - len(base)]]) if len(base) > 0 else more[:n]


def restored(state: DenseState, arrays: dict[str, np.ndarray]) -> DenseState:
    """Return a new state with saved arrays, of which the contents are not checked yet.

    Vectors are not copied unless they are read-only; all other arrays are. What follows from the arrays is missing:
    see :func:`cmt_numba._index.changes.derive`.
    """
    kinds = {"vectors": np.float32, "ids": np.int64} | {name: kind for name, (_, kind) in _SAVED.items()}
    for name, kind in kinds.items():
        require(name in arrays and arrays[name].dtype == kind, f"{name} must be of dtype {np.dtype(kind)}")
        n_axes = 2 if name in ("vectors", "centers", "codes") else 1
        require(arrays[name].ndim == n_axes, f"{name} must have {n_axes} axes")
    given = {name: np.array(arrays[name]) for name in _SAVED}
    base, ids, totals, slots = np.asarray(arrays["vectors"]), np.array(arrays["ids"]), given["totals"], given["slots"]
    require(base.ndim == 2 and base.shape[1] == state.origin.size, "vectors must have all features")
    require(base.flags.c_contiguous, "vectors must be C-contiguous")
    require(totals.shape == (N_TOTALS,), f"totals must have {N_TOTALS} entries")
    n, n_lists = len(ids), len(given["sizes"])
    require(len(base) == n == totals[N_VECTORS], "there must be a vector for each id")
    require(n_lists == totals[N_LISTS] and n_lists > 0, "there must be a size for each list")
    is_taken = slots != NONE
    require(bool(((slots[is_taken] >= 0) & (slots[is_taken] < n)).all()), "places must have stored vectors")
    places = np.full(n, NONE, np.int32)
    places[slots[is_taken]] = np.flatnonzero(is_taken)
    size, width = -(-(n_lists + SPARE_LISTS) // TILE) * TILE, state.signs.shape[1]
    table, f4 = np.full(slot_table_size(n), NONE, np.int32), np.float32
    return state._replace(
        vectors=Vectors(
            base if base.flags.writeable else base.copy(), np.empty((0, base.shape[1]), f4), ids, table, places
        ),
        clusters=Clusters(
            resized(given["centers"], size, fill=0),
            np.zeros(size, f4),
            *(resized(given[name], size, fill=0) for name in ("masses", "sizes", "heads")),
        ),
        members=Members(*(given[name] for name in Members._fields)),
        routes=Routes(
            np.zeros(size * width // BITS_OF_A_WORD, np.uint64),
            np.zeros(size, f4),
            np.where(np.arange(size) < n_lists, f4(0), -f4(np.inf)),
            given["mean"],
        ),
        origin=given["origin"],
        totals=totals,
        numbers=given["numbers"],
    )

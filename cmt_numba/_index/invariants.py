"""Checks of everything that kernels rely on, using only NumPy, so that they are safe for arrays of a damaged file."""

import numpy as np

from .._jit import BITS_OF_A_WORD, TILE
from .._kernels import NONE, require
from .state import (
    COSINE,
    EUCLIDEAN,
    FREE_TILE,
    LIST_SIZE,
    METRIC,
    N_CHANGES,
    N_FAR,
    N_LISTED,
    N_LISTS,
    N_NUMBERS,
    N_REFRESHES,
    N_TILES,
    N_TOTALS,
    N_VECTORS,
    NEXT_LIST,
    SCALE,
    DenseState,
    Lists,
    codes_of,
    width_of,
)


def check_state(state: DenseState, next_id: int) -> None:
    """Raise InvariantError if the arrays of an index contradict each other."""
    d = state.origin.size
    require(state.totals.shape == (N_TOTALS,), f"totals must have {N_TOTALS} entries")
    require(state.numbers.shape == (N_NUMBERS,), f"numbers must have {N_NUMBERS} entries")
    require(bool(np.isfinite(state.numbers).all()) and state.numbers[SCALE] > 0, "numbers must be finite")
    totals, vectors, lists, groups = state.totals, state.vectors, state.lists, state.groups
    require(COSINE <= totals[METRIC] <= EUCLIDEAN, "the metric must be known")
    require(totals[N_CHANGES] >= 0 and totals[N_REFRESHES] >= 0, "numbers of changes must not be negative")
    n = int(totals[N_VECTORS])
    require(0 <= n <= vectors.ids.size, "there must be an id for each vector")
    _check_shape(vectors.base, (len(vectors.base), d))
    _check_shape(vectors.more, (vectors.ids.size - len(vectors.base), d))
    _check_shape(state.signs, (4, width_of(d)))
    ids = vectors.ids[:n]
    require(bool(((ids >= 0) & (ids < next_id)).all()), "ids must be from 0 to next_id")
    require((np.diff(np.sort(ids)) > 0).all(), "ids must be distinct")
    require(totals[N_LISTED] in (0, n), "all vectors must be in lists, or none")
    _check_lists(lists, int(totals[N_LISTED]), width_of(d), codes_of(d))
    _check_lists(groups, int(lists.counts[N_LISTS]), width_of(d), 0)
    n_places = int(lists.counts[N_TILES]) * TILE
    is_taken = lists.slots[:n_places] != NONE
    for numbers in (lists.factors, lists.scales, lists.lifts, lists.added):
        require(bool(np.isfinite(numbers[:n_places][is_taken]).all()), "numbers of members must be finite")
    lifts = groups.lifts[groups.places[: lists.counts[N_LISTS]]]
    require(bool(np.isfinite(lifts).all()), "lifts of lists must be finite")
    errors = lists.errors[:n_places][is_taken]
    require(bool((errors >= 0.0).all()), "errors of codes must not be negative")
    require(np.count_nonzero(np.isinf(errors)) == totals[N_FAR], "vectors without codes must be counted")
    in_chains = np.isin(np.arange(n_places // TILE), _tiles_of(lists)).repeat(TILE)
    added = lists.added[:n_places][in_chains & ~is_taken]
    require(bool((added == -np.inf).all()), "free places must have a score of minus infinity")


def _check_shape(array: np.ndarray, shape: tuple[int, ...]) -> None:
    require(array.shape == shape, f"an array must have the shape {shape}, not {array.shape}")


def _check_lists(lists: Lists, n: int, width: int, n_codes: int) -> None:
    """Check that each of ``n`` members has one place, and all numbers and shapes."""
    n_lists, n_tiles = lists.sizes.size, lists.nexts.size
    require(1 <= lists.counts[N_LISTS] <= n_lists, "there must be a size for each list")
    require(0 <= lists.counts[N_TILES] <= n_tiles, "there must be a next tile for each tile")
    require(NONE <= lists.counts[FREE_TILE] < lists.counts[N_TILES], "the first free tile must exist")
    require(lists.counts[NEXT_LIST] >= 0, "counts of lists must not be negative")
    _check_shape(lists.centers, (n_lists, width))
    for array in (lists.masses, lists.heads):
        _check_shape(array, (n_lists,))
    _check_shape(lists.bits, (n_tiles * TILE * width // BITS_OF_A_WORD,))
    _check_shape(lists.codes, (n_tiles * TILE, n_codes))
    for array in (lists.factors, lists.added, lists.scales, lists.errors, lists.lifts, lists.slots):
        _check_shape(array, (n_tiles * TILE,))
    _check_shape(lists.list_of, (n_tiles,))
    require(bool(np.isfinite(lists.centers[: lists.counts[N_LISTS]]).all()), "centers must be finite")
    slots, places = lists.slots[: lists.counts[N_TILES] * TILE], lists.places[:n]
    require(bool(((places >= 0) & (places < slots.size)).all()), "each member must have a place")
    require(np.array_equal(slots[places], np.arange(n)), "each member must be in its place")
    require(np.count_nonzero(slots != NONE) == n, "each place must be free or have one member")
    _check_chains(lists, slots)


def _tiles_of(lists: Lists) -> np.ndarray:
    """Return the tiles of all chains, the first tiles of all chains before the second ones."""
    heads = lists.heads[: lists.counts[N_LISTS]]
    found, tiles = [], heads[heads != NONE]
    for _ in range(lists.counts[N_TILES]):
        if tiles.size == 0:
            break
        found.append(tiles)
        tiles = lists.nexts[tiles]
        tiles = tiles[tiles != NONE]
    return np.concatenate([np.empty(0, np.int64), *found])


def _check_chains(lists: Lists, slots: np.ndarray) -> None:
    """Check that each tile is in one chain, that of a list or of the free tiles, and that full places come first."""
    n_lists, n_tiles = lists.counts[N_LISTS], lists.counts[N_TILES]
    heads, nexts, list_of = lists.heads[:n_lists], lists.nexts[:n_tiles], lists.list_of[:n_tiles]
    for tiles in (heads, nexts):
        require(bool(((tiles >= NONE) & (tiles < n_tiles)).all()), "chains must consist of tiles")
    free = int(lists.counts[FREE_TILE])
    following = np.concatenate([heads, nexts, [free]])
    following = following[following != NONE]
    require(len(np.unique(following)) == len(following) == n_tiles, "each tile must be in one chain")
    tiles = _tiles_of(lists)
    n_free, tile = 0, free
    while tile != NONE and n_free <= n_tiles:
        n_free, tile = n_free + 1, int(nexts[tile])
    require(len(tiles) + n_free == n_tiles, "chains must not be circles")
    require(bool(((list_of[tiles] >= 0) & (list_of[tiles] < n_lists)).all()), "tiles must belong to lists")
    has_tiles = heads != NONE
    require(np.array_equal(list_of[heads[has_tiles]], np.flatnonzero(has_tiles)), "the first tile must be of its list")
    inner = tiles[nexts[tiles] != NONE]
    require(np.array_equal(list_of[nexts[inner]], list_of[inner]), "a chain must be of one list")
    taken = (slots != NONE).reshape(n_tiles, TILE)
    counts = taken.sum(axis=1)
    require(bool((counts[nexts[inner]] == TILE).all()), "only the first tile of a list may have free places")
    require(bool((taken == (np.arange(TILE) < counts[:, None]))[tiles].all()), "free places must come last in a tile")
    sizes = np.bincount(list_of[tiles], counts[tiles], n_lists)
    require(np.array_equal(sizes, lists.sizes[:n_lists]), "sizes must count members")
    require(sizes.max() <= 2 * LIST_SIZE + 1, "a list must not have more members than can be divided")

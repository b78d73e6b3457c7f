"""Checks of everything that kernels rely on, using only NumPy, so that they are safe for arrays of a damaged file."""

import numpy as np

from .._forest import NONE, require
from .._jit import BITS_OF_A_WORD, TILE
from .state import (
    COSINE,
    EUCLIDEAN,
    FREE_TILE,
    METRIC,
    N_FAR,
    N_LISTS,
    N_NUMBERS,
    N_ROUTED,
    N_TILES,
    N_TOTALS,
    N_VECTORS,
    NEXT_LIST,
    SCALE,
    DenseState,
    codes_of,
    width_of,
)


def check_state(state: DenseState, next_id: int) -> None:
    """Raise InvariantError if the arrays of an index contradict each other."""
    _check_counts(state)
    n, n_lists, n_tiles = (int(state.totals[i]) for i in (N_VECTORS, N_LISTS, N_TILES))
    vectors, clusters, members, routes = state[:4]
    ids = vectors.ids[:n]
    require(bool(((ids >= 0) & (ids < next_id)).all()), "ids must be from 0 to next_id")
    require(len(np.unique(ids)) == n, "ids must be distinct")
    places = vectors.places[:n]
    require(bool(((places >= 0) & (places < n_tiles * TILE)).all()), "each vector must have a place")
    slots = members.slots[: n_tiles * TILE]
    require(np.array_equal(slots[places], np.arange(n)), "each vector must be in its place")
    require(np.count_nonzero(slots != NONE) == n, "each place must be free or have one vector")
    sizes, heads = clusters.sizes[:n_lists], clusters.heads[:n_lists]
    _check_chains(sizes, heads, members.nexts[:n_tiles], members.list_of[:n_tiles], slots, int(state.totals[FREE_TILE]))
    is_free = slots == NONE
    for numbers in (members.factors, members.scales, members.lifts):
        require(bool(np.isfinite(numbers[: n_tiles * TILE][~is_free]).all()), "numbers of members must be finite")
    errors = members.errors[: n_tiles * TILE][~is_free]
    require(bool((errors >= 0.0).all()), "errors of codes must not be negative")
    require(np.count_nonzero(np.isinf(errors)) == state.totals[N_FAR], "vectors without codes must be counted")
    added = members.added[: n_tiles * TILE]
    in_chains = np.isin(np.arange(n_tiles), _tiles_of(heads, members.nexts)).repeat(TILE)
    require(bool(np.isfinite(added[~is_free]).all()), "numbers of members must be finite")
    require(bool((added[is_free & in_chains] == -np.inf).all()), "free places must have a score of minus infinity")
    require(bool(np.isfinite(clusters.centers[:n_lists]).all()), "centers must be finite")
    n_routes = routes.factors.size
    require(bool(np.isfinite(routes.added[:n_lists]).all()), "each list must have a route")
    require(bool((routes.added[n_lists:n_routes] == -np.inf).all()), "only lists must have routes")


def _check_counts(state: DenseState) -> None:
    """Check the numbers of everything, and the shapes of all arrays."""
    d, width = state.origin.size, width_of(state.origin.size)
    words = width // BITS_OF_A_WORD
    require(state.totals.shape == (N_TOTALS,), f"totals must have {N_TOTALS} entries")
    require(state.numbers.shape == (N_NUMBERS,), f"numbers must have {N_NUMBERS} entries")
    require(bool(np.isfinite(state.numbers).all()) and state.numbers[SCALE] > 0, "numbers must be finite")
    totals = state.totals
    require(COSINE <= totals[METRIC] <= EUCLIDEAN, "the metric must be known")
    vectors, clusters, members, routes = state[:4]
    require(0 <= totals[N_VECTORS] <= vectors.ids.size, "there must be an id for each vector")
    require(1 <= totals[N_LISTS] <= clusters.sizes.size, "there must be a size for each list")
    require(0 <= totals[N_TILES] <= members.nexts.size, "there must be a next tile for each tile")
    require(NONE <= totals[FREE_TILE] < totals[N_TILES], "the first free tile must exist")
    require(totals[N_ROUTED] >= 1 and totals[NEXT_LIST] >= 0, "counts of lists must not be negative")
    n_places, n_lists, n_routes = members.nexts.size * TILE, clusters.sizes.size, routes.factors.size
    shapes = (
        (vectors.base, (len(vectors.base), d)),
        (vectors.more, (vectors.ids.size - len(vectors.base), d)),
        (vectors.places, (vectors.ids.size,)),
        (clusters.centers, (n_lists, width)),
        *((column, (n_lists,)) for column in clusters[1:]),
        (members.bits, (n_places * words,)),
        (members.codes, (n_places, codes_of(d))),
        *((members[i], (n_places,)) for i in (1, 2, 4, 5, 6, 7)),
        (members.list_of, (members.nexts.size,)),
        (routes.bits, (n_routes * words,)),
        (routes.added, (n_routes,)),
        (routes.mean, (width,)),
        (state.signs, (4, width)),
    )
    for array, shape in shapes:
        require(array.shape == shape, f"an array must have the shape {shape}, not {array.shape}")
    require(n_lists % TILE == 0 and n_routes % TILE == 0 and n_routes >= n_lists, "lists must be in whole tiles")


def _tiles_of(heads: np.ndarray, nexts: np.ndarray) -> np.ndarray:
    """Return the tiles of all chains, the first tiles of all chains before the second ones."""
    found, tiles = [], heads[heads != NONE]
    for _ in range(len(nexts)):
        if tiles.size == 0:
            break
        found.append(tiles)
        tiles = nexts[tiles]
        tiles = tiles[tiles != NONE]
    return np.concatenate([np.empty(0, np.int64), *found])


def _check_chains(
    sizes: np.ndarray, heads: np.ndarray, nexts: np.ndarray, list_of: np.ndarray, slots: np.ndarray, free: int
) -> None:
    """Check that each tile is in one chain, that of a list or of the free tiles, and that full places come first."""
    n_tiles = len(nexts)
    for tiles in (heads, nexts):
        require(bool(((tiles >= NONE) & (tiles < n_tiles)).all()), "chains must consist of tiles")
    following = np.concatenate([heads, nexts, [free]])
    following = following[following != NONE]
    require(len(np.unique(following)) == len(following) == n_tiles, "each tile must be in one chain")
    tiles = _tiles_of(heads, nexts)
    n_free, tile = 0, free
    while tile != NONE and n_free <= n_tiles:
        n_free, tile = n_free + 1, int(nexts[tile])
    require(len(tiles) + n_free == n_tiles, "chains must not be circles")
    require(bool(((list_of[tiles] >= 0) & (list_of[tiles] < len(heads))).all()), "tiles must belong to lists")
    has_tiles = heads != NONE
    require(np.array_equal(list_of[heads[has_tiles]], np.flatnonzero(has_tiles)), "the first tile must be of its list")
    inner = tiles[nexts[tiles] != NONE]
    require(np.array_equal(list_of[nexts[inner]], list_of[inner]), "a chain must be of one list")
    taken = (slots != NONE).reshape(n_tiles, TILE)
    counts = taken.sum(axis=1)
    require(bool((counts[nexts[inner]] == TILE).all()), "only the first tile of a list may have free places")
    require(bool((taken == (np.arange(TILE) < counts[:, None]))[tiles].all()), "free places must come last in a tile")
    require(np.array_equal(np.bincount(list_of[tiles], counts[tiles], len(heads)), sizes), "sizes must count members")

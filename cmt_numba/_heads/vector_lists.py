"""Cluster lists of stored unit-length vectors, which can be added and removed at any time.

A vector is in the list of its nearest center. A *place* is a position in a tile. Only the first tile of a list may have
free places. Vectors are identified by their slots, and tiles contain copies of their codes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .._forest import NONE, Codes, InvariantError, require
from .._jit import FEATURES_OF_A_WORD, TILE, Tiles, inner, kernel
from .coded_lists import CodedLists
from .landmarks import Centers
from .list_search import Landmarks

_BYTES = FEATURES_OF_A_WORD * TILE  # bytes of a group of features in a tile

# Positions in ``ListedVectors.totals``.
_N_TILES = 0  # number of tiles in use or on the free list
_FREE = 1  # the first free tile, or NONE


class ListedVectors(NamedTuple):
    """The members of cluster lists."""

    heads: np.ndarray  # int64 (n_lists,), as in :class:`CodedLists`
    nexts: np.ndarray  # int64 (n_tiles,), as in :class:`CodedLists`; for a free tile, the next free tile
    labels: np.ndarray  # int64 (32 * n_tiles,): the slot at each place, NONE if it is free
    tiles: Tiles
    sizes: np.ndarray  # int64 (n_lists,): number of vectors in each list
    list_of: np.ndarray  # int32 (n_tiles,): the list of each tile
    places: np.ndarray  # int32: the place of each slot, NONE if it is not listed
    totals: np.ndarray  # int64 (2,): see ``_N_TILES`` and ``_FREE``


@inner
def _write_code(vectors, codes, n_features, slot, place, zero):
    """Copy the code of a slot to a place."""
    n_groups = (n_features + FEATURES_OF_A_WORD - 1) // FEATURES_OF_A_WORD
    at = (place // TILE) * n_groups * _BYTES + (place % TILE) * FEATURES_OF_A_WORD
    total = np.int64(0)
    for f in range(n_features):
        code = codes.values[slot * n_features + f]
        vectors.tiles.codes[at + (f // FEATURES_OF_A_WORD) * _BYTES + f % FEATURES_OF_A_WORD] = code
        total += np.int64(code)
    vectors.tiles.starts[place] = np.int32(-zero * total)
    vectors.tiles.scales[place] = codes.marks[slot]["scale"]
    vectors.tiles.added[place] = codes.marks[slot]["error"]
    vectors.labels[place] = slot
    vectors.places[slot] = place


@kernel
def enter_slots(vectors, codes, n_features, slots, list_of, zero):
    """Add each slot to its list in ``list_of``. The slots must not be in any list. Writes ``vectors``."""
    for i in range(slots.size):
        j = list_of[i]
        free = vectors.sizes[j] % TILE
        if free == 0:
            tile = vectors.totals[_FREE]
            if tile == NONE:
                tile = vectors.totals[_N_TILES]
                vectors.totals[_N_TILES] = tile + 1
                for place in range(tile * TILE, (tile + 1) * TILE):
                    vectors.labels[place] = NONE
                    vectors.tiles.added[place] = -np.inf
            else:
                vectors.totals[_FREE] = vectors.nexts[tile]
            vectors.nexts[tile] = vectors.heads[j]
            vectors.list_of[tile] = j
            vectors.heads[j] = tile
        _write_code(vectors, codes, n_features, slots[i], vectors.heads[j] * TILE + free, zero)
        vectors.sizes[j] += 1


@inner
def _move(vectors, n_features, source, target):
    """Move a vector to another place."""
    n_groups = (n_features + FEATURES_OF_A_WORD - 1) // FEATURES_OF_A_WORD
    a = (source // TILE) * n_groups * _BYTES + (source % TILE) * FEATURES_OF_A_WORD
    b = (target // TILE) * n_groups * _BYTES + (target % TILE) * FEATURES_OF_A_WORD
    for group in range(n_groups):
        for i in range(FEATURES_OF_A_WORD):
            vectors.tiles.codes[b + group * _BYTES + i] = vectors.tiles.codes[a + group * _BYTES + i]
    vectors.tiles.starts[target] = vectors.tiles.starts[source]
    vectors.tiles.scales[target] = vectors.tiles.scales[source]
    vectors.tiles.added[target] = vectors.tiles.added[source]
    vectors.labels[target] = vectors.labels[source]
    vectors.places[vectors.labels[target]] = target


@kernel
def withdraw_slots(vectors, n_features, slots):
    """Remove slots from their lists. The last vector of a list fills the gap. Writes ``vectors``."""
    for i in range(slots.size):
        place = np.int64(vectors.places[slots[i]])
        if place == NONE:
            continue
        j = vectors.list_of[place // TILE]
        vectors.sizes[j] -= 1
        head = vectors.heads[j]
        last = head * TILE + vectors.sizes[j] % TILE
        if last != place:
            _move(vectors, n_features, last, place)
        vectors.labels[last] = NONE
        vectors.tiles.added[last] = -np.inf
        vectors.places[slots[i]] = NONE
        if vectors.sizes[j] % TILE == 0:
            vectors.heads[j] = vectors.nexts[head]
            vectors.nexts[head] = vectors.totals[_FREE]
            vectors.totals[_FREE] = head


class VectorLists:
    """Cluster lists of a forest's dense keys.

    Slots below ``n_listed`` are in lists. Searches may use the lists once ``is_complete`` is True. The lists count as
    full after about ``2 * n_memories`` insertions, because the centers no longer fit the vectors well.

    Parameters
    ----------
    centers : Centers
        The centers of the lists.
    n_memories : int
        The number of memories when the lists are built.
    zero : int
        The code for 0 in queries.
    """

    def __init__(self, centers: Centers, n_memories: int, zero: int) -> None:
        n_lists, d = centers.vectors.shape
        self.centers, self.n_features, self.n_built, self.zero = centers, d, n_memories, zero
        self.n_listed, self.n_entered, self.is_complete, self._longest = 0, 0, False, 1.0
        self.most = 2 * n_memories + TILE
        n_tiles = self.most // TILE + n_lists + 1
        n_bytes = -(-d // FEATURES_OF_A_WORD) * _BYTES
        numbers = [np.zeros(n_tiles * TILE, kind) for kind in (np.int32, np.float32, np.float32)]
        self._vectors = ListedVectors(
            np.full(n_lists, NONE),
            np.full(n_tiles, NONE),
            np.zeros(n_tiles * TILE, np.int64),
            Tiles(np.zeros(n_tiles * n_bytes, np.int8), *numbers),
            np.zeros(n_lists, np.int64),
            np.zeros(n_tiles, np.int32),
            np.full(self.most, NONE, np.int32),
            np.array([0, NONE]),
        )

    @property
    def nbytes(self) -> int:
        """The size in bytes of the used tiles and the centers."""
        n_bytes = 16 + FEATURES_OF_A_WORD + -(-self.n_features // FEATURES_OF_A_WORD) * FEATURES_OF_A_WORD
        used = int(self._vectors.totals[_N_TILES]) * TILE * n_bytes + 4 * self.n_listed
        return used + self.centers.nbytes

    @property
    def sizes(self) -> np.ndarray:
        """The number of vectors in each list."""
        return self._vectors.sizes

    def landmarks(self, gap: float) -> Landmarks:
        """Return the lists for a search with a gap."""
        heads, nexts, labels, tiles = self._vectors[:4]
        return Landmarks(self.centers.coded, CodedLists(heads, nexts, labels, tiles, self._longest, self.zero), gap)

    def has_room(self, n: int) -> bool:
        """Return whether ``n`` more vectors may be added before the lists must be rebuilt."""
        return self.n_entered + n <= self.most

    def list_of(self, slots: np.ndarray) -> np.ndarray:
        """Return the list of each slot. All slots must be in lists."""
        return self._vectors.list_of[self._vectors.places[slots] // TILE]

    def enter(self, codes: Codes, slots: np.ndarray, units: np.ndarray) -> None:
        """Add slots with the keys ``units`` to the lists. Slots that are already in a list are moved."""
        vectors = self._vectors
        self.withdraw(slots)
        self.n_entered += slots.size
        self._longest = max(self._longest, 1.0 + float(codes.marks["error"][slots].max(initial=0.0)))
        enter_slots(vectors, codes, self.n_features, slots, self.centers.nearest(units), self.zero)

    def withdraw(self, slots: np.ndarray) -> None:
        """Remove slots from the lists. Slots that are not listed are ignored."""
        withdraw_slots(self._vectors, self.n_features, slots)

    def moved(self, slots: np.ndarray) -> VectorLists:
        """Return lists in which slot ``i`` is renamed to ``slots[i]``. They share the codes with these lists."""
        twin = object.__new__(VectorLists)
        twin.__dict__.update(self.__dict__)
        labels, places = self._vectors.labels.copy(), np.full_like(self._vectors.places, NONE)
        there = self._occupied()
        labels[there] = slots[labels[there]]
        places[labels[there]] = there
        twin._vectors = self._vectors._replace(labels=labels, places=places)
        return twin

    def _occupied(self) -> np.ndarray:
        """Return the places that are not free."""
        vectors = self._vectors
        return np.flatnonzero(vectors.labels[: vectors.totals[_N_TILES] * TILE] != NONE)

    def copy(self) -> VectorLists:
        """Return an independent copy."""
        twin = object.__new__(VectorLists)
        twin.__dict__.update(self.__dict__)
        heads, nexts, labels, tiles, *others = self._vectors
        twin._vectors = ListedVectors(
            heads.copy(), nexts.copy(), labels.copy(), Tiles(*map(np.copy, tiles)), *map(np.copy, others)
        )
        return twin

    def check(self, n_memories: int) -> None:
        """Raise InvariantError unless the lists contain each listed slot exactly once."""
        vectors, n, there = self._vectors, min(self.n_listed, n_memories), self._occupied()
        listed = vectors.labels[there]
        require(
            np.array_equal(np.sort(listed), np.arange(n)),
            f"cluster lists must contain each slot from 0 to {n - 1} once",
        )
        require(np.array_equal(vectors.places[listed], there), "the position of a slot in the cluster lists is wrong")
        sizes = np.bincount(vectors.list_of[there // TILE], minlength=vectors.sizes.size)
        if not np.array_equal(sizes, vectors.sizes):
            raise InvariantError("the size of a cluster list is wrong")

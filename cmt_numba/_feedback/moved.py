"""Kernels: 1-bit codes of moved keys, by which the memories with the most similar ones are found.

The codes are those of :mod:`cmt_numba._index.codes`, with the origin as the center. They follow from the moved keys.
"""

from typing import NamedTuple

import numpy as np

from .. import _index as dense_index
from .._forest import NONE, keep_best, resized, sort_best_first
from .._index import code_rotated, encode_signs, new_queries, rotate, score_codes
from .._jit import BITS_OF_A_WORD, TILE, by_reference, empty, first_of, kernel, release, zeros

_SEED = 0
_NOTHING = np.float32(0.0)
_LEAST = np.float32(-3e38)


class MovedCodes(NamedTuple):
    """The codes of the moved keys of all rows, in tiles of 32."""

    bits: np.ndarray  # uint64 (tiles * words * 32,)
    factors: np.ndarray  # float32 (tiles * 32,)
    added: np.ndarray  # float32 (tiles * 32,); minus infinity if there is no such row
    signs: np.ndarray  # float32 (4, words * 64): the random signs of the rotation


def no_codes(width: int) -> MovedCodes:
    """Return codes of no rows."""
    signs = np.random.default_rng(_SEED).choice(np.array([-1, 1], np.float32), (4, dense_index.width_of(width)))
    return MovedCodes(np.empty(0, np.uint64), np.empty(0, np.float32), np.empty(0, np.float32), signs)


def with_rows(codes: MovedCodes, n: int) -> MovedCodes:
    """Return codes with room for at least ``n`` rows."""
    size = -(-n // TILE) * TILE
    return MovedCodes(
        resized(codes.bits, size * codes.signs.shape[1] // BITS_OF_A_WORD, fill=0),
        resized(codes.factors, size, fill=0),
        resized(codes.added, size, fill=-np.inf),
        codes.signs,
    )


@kernel
def code_moved(learned, codes, rows):
    """Write the codes of some rows."""
    learned = by_reference(learned)
    width = codes.signs.shape[1]
    rotated, center, rest = empty(width, np.float32), zeros(width, np.float32), empty(width, np.float32)
    for row in rows:
        rotate(codes.signs, learned.moved[row], rotated)
        at = row // TILE * TILE * (width // BITS_OF_A_WORD) + row % TILE
        codes.factors[row], codes.added[row] = encode_signs(rotated, center, rest, codes.bits, at)
    release((rotated, center, rest))


@kernel
def find_moved(learned, codes, n_rows, queries, estimates, ids):
    """Write the ids of the memories whose moved keys are estimated to be most similar to each query, or -1.

    Ids below -1 are not found.
    """
    learned = by_reference(learned)
    coded, upper = new_queries(1, queries.shape[1], codes.signs.shape[1]), empty(TILE, np.float32)
    for i in range(queries.shape[0]):
        best, found = estimates[i], ids[i]
        best[:], found[:] = _LEAST, NONE
        rotate(codes.signs, queries[i], coded.rotated[0])
        code_rotated(coded, 0)
        for tile in range((n_rows + TILE - 1) // TILE):
            marks = score_codes(codes, tile, coded, 0, _NOTHING, _NOTHING, best[0], upper, 0)
            while marks != 0:
                at = first_of(marks)
                marks &= marks - 1
                memory = learned.ids[tile * TILE + at]
                if memory >= 0:
                    keep_best(best, found, upper[at], memory)
        sort_best_first(best, found)
    release((coded, upper))

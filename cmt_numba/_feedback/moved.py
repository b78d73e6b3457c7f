"""Kernels: 1-bit codes of moved keys, by which the memories with the most similar ones are found.

The codes are those of :mod:`cmt_numba._index.codes`, with the origin as the center. They follow from the moved keys.
Only rewarded memories have codes: the keys of others have moved away from queries.
"""

from typing import NamedTuple

import numpy as np

from .. import _index as dense_index
from .._index import code_rotated, encode_signs, new_queries, rotate, score_codes
from .._jit import BITS_OF_A_WORD, TILE, by_reference, empty, first_of, inner, inner_allocating, kernel, release, zeros
from .._kernels import NONE, keep_best, resized, sort_best_first
from .query_map import map_query, new_terms, transform_query
from .rows import hash_of
from .state import REWARDED

_SEED = 0
_NOTHING = np.float32(0.0)
_LEAST = np.float32(-3e38)


class MovedCodes(NamedTuple):
    """The codes of the moved keys of rewarded memories, in tiles of 32."""

    bits: np.ndarray  # uint64 (tiles * words * 32,)
    factors: np.ndarray  # float32 (tiles * 32,)
    added: np.ndarray  # float32 (tiles * 32,); minus infinity if there is no code at this place
    rows: np.ndarray  # int64 (tiles * 32,): the row of the memory at each place
    places: np.ndarray  # int64 (tiles * 32,): the place of the code of each row, or -1
    n: np.ndarray  # int64 (1,): the number of codes
    signs: np.ndarray  # float32 (4, words * 64): the random signs of the rotation


def no_codes(width: int) -> MovedCodes:
    """Return codes of no rows."""
    signs = np.random.default_rng(_SEED).choice(np.array([-1, 1], np.float32), (4, dense_index.width_of(width)))
    floats, integers = np.empty(0, np.float32), np.empty(0, np.int64)
    return MovedCodes(np.empty(0, np.uint64), floats, floats, integers, integers, np.zeros(1, np.int64), signs)


def with_rows(codes: MovedCodes, n: int) -> MovedCodes:
    """Return codes with room for at least ``n`` rows."""
    size = -(-n // TILE) * TILE
    return MovedCodes(
        resized(codes.bits, size * codes.signs.shape[1] // BITS_OF_A_WORD, fill=0),
        resized(codes.factors, size, fill=0),
        resized(codes.added, size, fill=-np.inf),
        resized(codes.rows, size, fill=NONE),
        resized(codes.places, size, fill=NONE),
        codes.n,
        codes.signs,
    )


class CodeRoom(NamedTuple):
    """Scratch space for the code of a moved key."""

    rotated: np.ndarray  # float32 (width,)
    center: np.ndarray  # float32 (width,): zeros
    rest: np.ndarray  # float32 (width,)


@inner_allocating
def new_code_room(width):
    """Return scratch space for rotated keys of this width."""
    return CodeRoom(empty(width, np.float32), zeros(width, np.float32), empty(width, np.float32))


@inner
def _put_code(learned, codes, row, place, room):
    rotate(codes.signs, learned.moved[row], room.rotated)
    at = place // TILE * TILE * (codes.signs.shape[1] // BITS_OF_A_WORD) + place % TILE
    codes.factors[place], codes.added[place] = encode_signs(room.rotated, room.center, room.rest, codes.bits, at)
    codes.rows[place], codes.places[row] = row, place


@inner
def code_moved(learned, codes, row, room):
    """Write the code of a row if it has been rewarded."""
    if learned.figures[row, REWARDED] > 0.0:
        place = codes.places[row]
        if place == NONE:
            place = codes.n[0]
            codes.n[0] += 1
        _put_code(learned, codes, row, place, room)


@kernel
def code_all_moved(model, n):
    """Write the codes of those of the first ``n`` rows that have been rewarded."""
    model = by_reference(model)
    learned, codes = model.learned, model.codes
    room = new_code_room(codes.signs.shape[1])
    for row in range(n):
        code_moved(learned, codes, row, room)
    release(room)


@kernel
def drop_code(model, row, last):
    """Drop the code of a row, if it has one, and let the row stand for the memory of row ``last``."""
    model = by_reference(model)
    learned, codes = model.learned, model.codes
    room = new_code_room(codes.signs.shape[1])
    place = codes.places[row]
    if place != NONE:
        codes.n[0] -= 1
        end = codes.n[0]
        if place != end:
            _put_code(learned, codes, codes.rows[end], place, room)
        codes.added[end], codes.places[row] = -np.float32(np.inf), NONE
    place = codes.places[last]
    if row != last and place != NONE:
        codes.places[row], codes.rows[place], codes.places[last] = place, row, NONE
    release(room)


@inner
def _find_moved(learned, codes, query, coded, upper, best, found):
    """Write the non-negative ids of the memories whose moved keys seem most similar to a query, or -1."""
    best[:], found[:] = _LEAST, NONE
    rotate(codes.signs, query, coded.rotated[0])
    code_rotated(coded, 0)
    for tile in range((codes.n[0] + TILE - 1) // TILE):
        marks = score_codes(codes, tile, coded, 0, _NOTHING, _NOTHING, best[0], upper, 0)
        while marks != 0:
            at = first_of(marks)
            marks &= marks - 1
            if upper[at] >= best[0]:
                memory = learned.ids[codes.rows[tile * TILE + at]]
                if memory >= 0:
                    keep_best(best, found, upper[at], memory)
    sort_best_first(best, found)


@kernel
def map_queries(model, queries, hashes, mapped, transformed, own, ids):
    """Hash queries, multiply them with the map, transform them, and find the memories with the nearest moved keys.

    ``own`` gets the cosine of each query and its transformed query. Queries for hashed keys are not transformed. If
    ``mapped`` is empty, queries are only hashed.
    """
    model = by_reference(model)
    learned, codes = model.learned, model.codes
    coded, upper = new_queries(1, queries.shape[1], codes.signs.shape[1]), empty(TILE, np.float32)
    terms, estimates = new_terms(mapped.shape[1]), empty(ids.shape[1], np.float32)
    for row in range(queries.shape[0]):
        hashes[row] = hash_of(queries[row])
        if mapped.size == 0:
            continue
        map_query(learned, queries[row], terms, mapped[row])
        if mapped.shape[1] == queries.shape[1]:
            own[row] = transform_query(learned, queries[row], mapped[row], transformed[row])
        if ids.size > 0:
            _find_moved(learned, codes, queries[row], coded, upper, estimates, ids[row])
    release((coded, upper, terms, estimates))

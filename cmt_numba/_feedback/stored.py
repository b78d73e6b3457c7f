"""Kernels: ranking of memories whose keys are in a dense index, alone or in one call with the search for them."""

from typing import NamedTuple

import numpy as np

from .._forest import NONE, find_slot
from .._index import Mask, RowRange, find_by_row, new_queries, vector_of
from .._jit import TILE, by_reference, empty, inner, inner_allocating, kernel, release
from .moved import find_moved
from .parts import Forms, find_rows, new_forms, score, select
from .query_map import map_query, new_terms, transform_query
from .rows import add_distinct, prefetch_row, read_key
from .state import N_PARTS

_SLACK = np.float32(1e-4)  # bound on the error of cosines


class CandidateRoom(NamedTuple):
    """Scratch space for the candidates of a query."""

    forms: Forms
    rows: np.ndarray  # int64 (m,)
    parts: np.ndarray  # float64 (m, N_PARTS)
    keys: np.ndarray  # float32 (m, width)
    similarities: np.ndarray  # float64 (m,)
    scores: np.ndarray  # float64 (m,)
    ids: np.ndarray  # int64 (m,)


@inner_allocating
def _new_room(m, width):
    return CandidateRoom(
        new_forms(width),
        empty(m, np.int64),
        empty((m, N_PARTS), np.float64),
        empty((m, width), np.float32),
        empty(m, np.float64),
        empty(m, np.float64),
        empty(m, np.int64),
    )


@inner
def _rank(learned, table, index, query, mapped, room, n, best_scores, best_ids):
    """Write the best of the first ``n`` candidates in ``room.ids``."""
    ids = room.ids[:n]
    for i in range(n):
        slot = find_slot(index.vectors, ids[i])
        if slot != NONE:
            prefetch_row(vector_of(index.vectors, slot).values)
    find_rows(learned, table, ids, room.rows)
    for i in range(n):
        room.similarities[i] = np.nan
        read_key(index, ids[i], room.keys[i])
    score(learned, query, mapped, ids, room.similarities, room.keys, room.forms, room.rows, room.parts, room.scores)
    select(room.scores, ids, best_scores, best_ids)


@kernel
def rank_stored(learned, table, index, queries, mapped, candidates, best_scores, best_ids):
    """Write the best candidates for each query as :func:`select_best`. Their keys are in a dense index.

    ``candidates`` are three arrays, in which ids may be repeated.
    """
    learned, index, (first, second, third) = by_reference(learned), by_reference(index), candidates
    room = _new_room(first.shape[1] + second.shape[1] + third.shape[1], queries.shape[1])
    for row in range(queries.shape[0]):
        n = add_distinct(first[row], room.ids, np.int64(0))
        n = add_distinct(third[row], room.ids, add_distinct(second[row], room.ids, n))
        _rank(learned, table, index, queries[row], mapped[row], room, n, best_scores[row], best_ids[row])
    release(room)


class ListFinder(NamedTuple):
    """What a search of lists row by row needs besides the effort."""

    rows: RowRange
    mask: Mask  # of all vectors
    address: int  # for ``find_by_row``


class FoundMemories(NamedTuple):
    """Candidates for queries that are searched and ranked in one call, and the best of them."""

    transformed: np.ndarray  # float32 (n, width): the transformed queries
    scores: np.ndarray  # float64 (n, m): the scores of the memories that are nearest to these
    ids: np.ndarray  # int64 (n, m): their ids, or -1
    moved: np.ndarray  # int64 (n, moved): the ids of those with the nearest moved keys, or -1
    best_scores: np.ndarray  # float64 (n, k)
    best_ids: np.ndarray  # int64 (n, k)


@kernel
def search_stored(learned, table, codes, arrays, effort, finder, queries, found):
    """Write candidates for a range of rows, and the best of them as :func:`rank_stored`.

    The memories that are most similar to a query are candidates if its own key may not be among the others.
    """
    learned, codes, index = by_reference(learned), by_reference(codes), by_reference(arrays)
    rows, mask, address = finder
    first, stop, _ = rows
    width, folded, n_moved = queries.shape[1], learned.map.shape[0], found.moved.shape[1]
    best_scores, best_ids = found.best_scores, found.best_ids
    coded, upper = new_queries(1, width, codes.signs.shape[1]), empty(TILE, np.float32)
    terms, estimates = new_terms(folded), empty(n_moved, np.float32)
    mapped, own = empty((stop - first, folded), np.float32), empty(stop - first, np.float32)
    room = _new_room(found.ids.shape[1] + n_moved + best_ids.shape[1], width)
    for row in range(first, stop):
        product = mapped[row - first]
        map_query(learned, queries[row], terms, product)
        own[row - first] = transform_query(learned, queries[row], product, found.transformed[row])
        if n_moved > 0:
            find_moved(learned, codes, queries[row], coded, upper, estimates, found.moved[row])
    find_by_row(address, arrays, found.transformed, rows, effort, mask, found.scores, found.ids)
    last, is_needed = found.scores[:, found.scores.shape[1] - 1], False
    for row in range(first, stop):
        is_needed |= last[row] >= own[row - first] - _SLACK
    if is_needed:
        find_by_row(address, arrays, queries, rows, effort, mask, best_scores, best_ids)
    for row in range(first, stop):
        n = add_distinct(found.moved[row], room.ids, add_distinct(found.ids[row], room.ids, np.int64(0)))
        if last[row] >= own[row - first] - _SLACK:
            n = add_distinct(best_ids[row], room.ids, n)
        _rank(learned, table, index, queries[row], mapped[row - first], room, n, best_scores[row], best_ids[row])
    release((coded, upper, terms, estimates, mapped, own, room))

"""Kernels: insertion, removal and replacement of vectors."""

import numpy as np

from .._jit import TILE, by_reference, inner, kernel, release
from .._kernels import NONE, enter_place, erase_id, find_place, find_slot, hash_number, sort_best_first
from .codes import copy_values, dot64
from .lists import clear_place, enter, leave, new_work, refresh, take_place, vector_of, write_route
from .state import (
    LIST_SIZE,
    MASS,
    MIN_SIZE,
    N_CHANGES,
    N_FAR,
    N_LISTED,
    N_LISTS,
    N_TILES,
    N_VECTORS,
    NEXT_LIST,
    SPARE_LISTS,
    SPARE_TILES,
    SPARE_TILES_OF_GROUPS,
)

_CHANGES_PER_REFRESH = LIST_SIZE // 2
INSERT, REPLACE, REMOVE, ENTER = 0, 1, 2, 3
"""The changes of :func:`change_vectors`."""


@inner
def _has_room(state):
    """Return whether there is room for the change of a vector."""
    lists, groups = state.lists, state.groups
    n_lists = lists.counts[N_LISTS] + SPARE_LISTS
    return (
        n_lists <= lists.sizes.size
        and n_lists <= groups.places.size
        and lists.counts[N_TILES] + SPARE_TILES <= lists.nexts.size
        and groups.counts[N_LISTS] + SPARE_LISTS <= groups.sizes.size
        and groups.counts[N_TILES] + SPARE_TILES_OF_GROUPS <= groups.nexts.size
    )


@inner
def _refresh_next(state, work):
    """Refresh the next list in turn."""
    counts = state.lists.counts
    state.totals[N_CHANGES] = 0
    j = counts[NEXT_LIST] % counts[N_LISTS]
    counts[NEXT_LIST] = j + 1
    refresh(state, j, work)


@inner
def _count_change(state, work):
    """Refresh a list after a number of changes."""
    state.totals[N_CHANGES] += 1
    if state.totals[N_CHANGES] >= _CHANGES_PER_REFRESH:
        _refresh_next(state, work)


@inner
def _enter_and_keep_small(state, slot, work):
    """Add the vector in a slot to a list. If the list splits, refresh lists nearby, whose members may move to it."""
    j = enter(state, slot, work)
    if state.lists.sizes[j] > 2 * LIST_SIZE:
        refresh(state, j, work)
        sort_best_first(work.scores, work.around)
        for i in range(work.nearby.size):
            work.nearby[i] = work.around[i]
        for i in range(work.nearby.size):
            if NONE < work.nearby[i] < state.lists.counts[N_LISTS]:
                refresh(state, work.nearby[i], work)


@inner
def _leave(state, slot, work):
    """Remove the vector in a slot from its list."""
    lists = state.lists
    place = np.int64(lists.places[slot])
    state.numbers[MASS] -= np.float64(lists.lifts[place])
    if np.isinf(lists.errors[place]):
        state.totals[N_FAR] -= 1
    return leave(state, place)


@inner
def _append(state, x, id_):
    """Store a vector in a new slot, for which there must be room; return the slot."""
    vectors, slot = state.vectors, state.totals[N_VECTORS]
    vectors.ids[slot] = id_
    copy_values(x, vector_of(vectors, slot).values)
    enter_place(vectors.slot_table, slot, hash_number(id_, vectors.slot_table.size))
    state.totals[N_VECTORS] = slot + 1
    return slot


@inner
def _erase(state, slot):
    """Erase the vector in a slot, which has left its list. The last vector moves into the slot."""
    vectors, last = state.vectors, state.totals[N_VECTORS] - 1
    erase_id(vectors, vectors.ids[slot])
    if slot != last:
        moved = vectors.ids[last]
        cell = find_place(vectors.slot_table, vectors.ids, moved, hash_number(moved, vectors.slot_table.size))
        vectors.slot_table[cell] = slot
        vectors.ids[slot] = moved
        copy_values(vector_of(vectors, last).values, vector_of(vectors, slot).values)
        if state.totals[N_LISTED] > 0:
            take_place(state.lists, np.int64(state.lists.places[last]), slot)
    state.totals[N_VECTORS] = last


@kernel
def change_few(arrays, change, ids, X):
    """Insert, replace or remove vectors that are not in lists. There must be slots for inserted vectors."""
    state = by_reference(arrays)
    for i in range(ids.size):
        if change == INSERT:
            _append(state, X[i], ids[i])
            continue
        slot = find_slot(state.vectors, ids[i])
        if change == REPLACE:
            copy_values(X[i], vector_of(state.vectors, slot).values)
        else:
            _erase(state, slot)


@kernel
def change_vectors(arrays, change, ids, X, first):
    """Insert, replace or remove the vectors with ``ids[first:]``. Stop early if an array of lists is full.

    There must be slots for inserted vectors. ENTER adds stored vectors to lists; ``ids`` are then their slots. Returns
    the number of ids done, including those before ``first``.
    """
    state = by_reference(arrays)
    work = by_reference(new_work(state))
    i = np.int64(first)
    while i < ids.size and _has_room(state):
        if change == INSERT:
            slot = _append(state, X[i], ids[i])
        elif change == ENTER:
            slot = ids[i]
        else:
            slot = find_slot(state.vectors, ids[i])
            j = _leave(state, slot, work)
            if state.lists.sizes[j] < MIN_SIZE and state.lists.counts[N_LISTS] > 1:
                refresh(state, j, work)  # before other lists may get its number
        if change == REPLACE:
            copy_values(X[i], vector_of(state.vectors, slot).values)
        if change == REMOVE:
            _erase(state, slot)
        else:
            _enter_and_keep_small(state, slot, work)
        state.totals[N_LISTED] = i + 1 if change == ENTER else state.totals[N_VECTORS]
        _count_change(state, work)
        i += 1
    release(work)
    return i


@kernel
def refresh_lists(arrays, n):
    """Refresh the next ``n`` lists in turn; return the number done, fewer if an array is full."""
    state = by_reference(arrays)
    work = by_reference(new_work(state))
    i = np.int64(0)
    while i < n and _has_room(state):
        _refresh_next(state, work)
        i += 1
    release(work)
    return i


@kernel
def find_ids(arrays, ids, slots):
    """Write the slot of each id, or NONE if it is not stored."""
    state = by_reference(arrays)
    for i in range(ids.size):
        slots[i] = find_slot(state.vectors, ids[i]) if ids[i] >= 0 else NONE


@kernel
def read_slots(arrays, slots, X):
    """Write the vectors in slots to the rows of ``X``; zeros for a slot of -1."""
    state = by_reference(arrays)
    for i in range(slots.size):
        if slots[i] == NONE:
            X[i, :] = np.float32(0.0)
        else:
            copy_values(vector_of(state.vectors, slots[i]).values, X[i])


@kernel
def measure_cosines(arrays, Q, slots, cosines):
    """Write the cosines of queries and the vectors in slots, arrays of shape (n, m); 0 for a slot of -1."""
    vectors = by_reference(arrays).vectors
    for row in range(slots.shape[0]):
        query = Q[row]
        square = dot64(query, query)
        for i in range(slots.shape[1]):
            cosines[row, i] = 0.0
            if slots[row, i] >= 0:
                x = vector_of(vectors, slots[row, i]).values
                lengths = np.sqrt(square * dot64(x, x))
                if lengths > 0.0:
                    cosines[row, i] = dot64(query, x) / lengths


@kernel
def derive(arrays):
    """Compute what follows from checked arrays: the hash table of ids, and what groups know of lists."""
    state = by_reference(arrays)
    vectors, groups = state.vectors, state.groups
    work = by_reference(new_work(state))
    for slot in range(state.totals[N_VECTORS]):
        enter_place(vectors.slot_table, slot, hash_number(vectors.ids[slot], vectors.slot_table.size))
    for place in range(groups.counts[N_TILES] * TILE):
        if groups.slots[place] == NONE:
            clear_place(groups, place)
        else:
            write_route(state, place, work.rest)
    release(work)

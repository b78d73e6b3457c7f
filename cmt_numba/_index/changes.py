"""Kernels: insertion, removal and replacement of vectors."""

import numpy as np

from .._forest import NONE, enter_place, erase_id, find_place, find_slot, hash_number, sort_best_first
from .._jit import by_reference, by_value, inner, kernel, release
from .codes import copy_values, dot64
from .lists import enter, free_place, new_work, refresh, set_center, vector_of
from .state import (
    LEAST_SIZE,
    LIST_SIZE,
    MASS,
    N_CHANGES,
    N_FAR,
    N_LISTS,
    N_TILES,
    N_VECTORS,
    NEXT_LIST,
    SPARE_LISTS,
    SPARE_TILES,
)

_CHANGES_PER_REFRESH = LIST_SIZE // 2


@inner
def _has_room(state):
    """Return whether there is room for the change of a vector."""
    totals = state.totals
    n_lists = totals[N_LISTS] + SPARE_LISTS
    return (
        n_lists <= state.clusters.sizes.size
        and n_lists <= state.routes.factors.size
        and totals[N_TILES] + SPARE_TILES <= state.members.nexts.size
    )


@inner
def _refresh_next(state, work):
    """Refresh the next list in turn."""
    totals = state.totals
    totals[N_CHANGES] = 0
    j = totals[NEXT_LIST] % totals[N_LISTS]
    totals[NEXT_LIST] = j + 1
    refresh(by_value(state), j, work)


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
    if state.clusters.sizes[j] > 2 * LIST_SIZE:
        refresh(by_value(state), j, work)
        sort_best_first(work.scores, work.around)
        for i in range(work.nearby.size):
            work.nearby[i] = work.around[i]
        for i in range(work.nearby.size):
            if NONE < work.nearby[i] < state.totals[N_LISTS]:
                refresh(by_value(state), work.nearby[i], work)


@inner
def _leave(state, slot, work):
    """Remove the vector in a slot from its list."""
    place = np.int64(state.vectors.places[slot])
    state.numbers[MASS] -= np.float64(state.members.lifts[place])
    if np.isinf(state.members.errors[place]):
        state.totals[N_FAR] -= 1
    return free_place(state, place)


@inner
def _keep_large(state, j, work):
    """Dissolve a list that has become small."""
    if state.clusters.sizes[j] < LEAST_SIZE and state.totals[N_LISTS] > 1:
        refresh(by_value(state), j, work)


@kernel
def insert_vectors(arrays, X, ids, first):
    """Insert the vectors ``X[first:]``, for which there must be slots. Stop early if an array is full.

    Returns the number of rows done, including those before ``first``.
    """
    state = by_reference(arrays)
    vectors, totals = state.vectors, state.totals
    work = new_work(vectors.more.shape[1], state.signs.shape[1], state.routes.factors.size)
    i = np.int64(first)
    while i < ids.size and _has_room(state):
        slot = totals[N_VECTORS]
        vectors.ids[slot] = ids[i]
        copy_values(X[i], vector_of(vectors, slot).values)
        enter_place(vectors.slot_table, slot, hash_number(vectors.ids[slot], vectors.slot_table.size))
        totals[N_VECTORS] = slot + 1
        _enter_and_keep_small(state, slot, work)
        _count_change(state, work)
        i += 1
    release(work)
    return i


@kernel
def remove_ids(arrays, ids, first):
    """Remove the vectors with ``ids[first:]``; return the number of ids removed, or fewer if an array is full.

    The last vector moves into the slot of each removed vector.
    """
    state = by_reference(arrays)
    vectors, totals = state.vectors, state.totals
    work = new_work(vectors.more.shape[1], state.signs.shape[1], state.routes.factors.size)
    i = np.int64(first)
    while i < ids.size and _has_room(state):
        slot, last = find_slot(vectors, ids[i]), totals[N_VECTORS] - 1
        j = _leave(state, slot, work)
        erase_id(vectors, ids[i])
        if slot != last:
            moved = vectors.ids[last]
            cell = find_place(vectors.slot_table, vectors.ids, moved, hash_number(moved, vectors.slot_table.size))
            vectors.slot_table[cell] = slot
            vectors.ids[slot] = moved
            copy_values(vector_of(vectors, last).values, vector_of(vectors, slot).values)
            place = vectors.places[last]
            vectors.places[slot] = place
            state.members.slots[place] = slot
        totals[N_VECTORS] = last
        _keep_large(state, j, work)
        _count_change(state, work)
        i += 1
    release(work)
    return i


@kernel
def replace_slots(arrays, slots, X, first):
    """Replace the vectors in ``slots[first:]``; return the number of slots done, or fewer if an array is full."""
    state = by_reference(arrays)
    work = new_work(state.vectors.more.shape[1], state.signs.shape[1], state.routes.factors.size)
    i = np.int64(first)
    while i < slots.size and _has_room(state):
        slot = slots[i]
        j = _leave(state, slot, work)
        copy_values(X[i], vector_of(state.vectors, slot).values)
        _enter_and_keep_small(state, slot, work)
        _keep_large(state, j, work)
        _count_change(state, work)
        i += 1
    release(work)
    return i


@kernel
def refresh_lists(arrays, n):
    """Refresh the next ``n`` lists in turn; return the number done, fewer if an array is full."""
    state = by_reference(arrays)
    work = new_work(state.vectors.more.shape[1], state.signs.shape[1], state.routes.factors.size)
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
    """Compute what follows from checked arrays: the hash table of ids, and the routes to lists."""
    state = by_reference(arrays)
    vectors, clusters = state.vectors, state.clusters
    work = new_work(vectors.more.shape[1], state.signs.shape[1], state.routes.factors.size)
    for slot in range(state.totals[N_VECTORS]):
        enter_place(vectors.slot_table, slot, hash_number(vectors.ids[slot], vectors.slot_table.size))
    for j in range(state.totals[N_LISTS]):
        copy_values(clusters.centers[j], work.center)
        set_center(state, j, work.center, work.rest)
    release(work)

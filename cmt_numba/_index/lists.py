"""Kernels: members of lists, and the changes by which lists grow like a memory tree.

A list that outgrows its limit splits in two, a list with few members is dissolved, and lists are refreshed in turn: the
center becomes the mean of the members, and members move to the list whose center is nearest by now. These are the
operations INSERTLEAF, REMOVE and REROUTE of the Contextual Memory Tree (Sun et al., 2019).
"""

from typing import NamedTuple

import numpy as np

from .._forest import NONE, keep_best
from .._jit import BITS_OF_A_WORD, TILE, by_reference, empty, first_of, inner, inner_allocating, inner_called, marks_of
from .codes import (
    Queries,
    Vector,
    code_rotated,
    coded_values,
    copy_values,
    distance32,
    dot32,
    encode_bytes,
    encode_signs,
    error_of,
    prepare,
    rotate,
    score_codes,
)
from .state import (
    COSINE,
    EUCLIDEAN,
    FREE_TILE,
    INNER_PRODUCT,
    LEAST_SIZE,
    LIST_SIZE,
    MASS,
    METRIC,
    N_FAR,
    N_LISTS,
    N_ROUTED,
    N_TILES,
)

_MOST_MEMBERS = 2 * LIST_SIZE
_AROUND = 16  # number of lists that a refresh compares with members
_NEARBY = 3  # number of lists to refresh after a split
_ROUNDS = 5  # iterations of 2-means
_SMALLEST_SIDE = 4  # a side of a split gets at least this fraction (1 / 4) of the members
_SURE = np.float32(1.9)  # number of standard errors of estimates
_HALF = np.float32(0.5)
_COMPACT = np.float32(0.25)  # part of the squared length of a center that is added to the nearness of its list
ROUNDING = np.float32(2e-6)
"""Bound on the error of squared distances, relative to them."""


class Work(NamedTuple):
    """Scratch space for changes."""

    queries: Queries  # for one vector
    near: np.ndarray  # float32 (room for routes,)
    rest: np.ndarray  # float32 (width,)
    rotated: np.ndarray  # float32 (members, width)
    slots: np.ndarray  # int64 (members,)
    side: np.ndarray  # int64 (members,)
    margins: np.ndarray  # float32 (members,)
    center: np.ndarray  # float32 (width,)
    other: np.ndarray  # float32 (width,): the center of the new list
    around: np.ndarray  # int64 (16,)
    scores: np.ndarray  # float32 (16,)
    nearby: np.ndarray  # int64: the nearest of them, to be refreshed after a split


@inner_allocating
def new_queries(m, d, width):
    """Return scratch space for ``m`` queries."""
    return Queries(
        empty((m, width), np.float32),
        empty(m * width // 16, np.uint64),
        empty(m, np.float32),
        empty(m, np.float32),
        empty((m, width if d >= BITS_OF_A_WORD else d), np.int16),
        empty(m, np.float32),
        empty(m, np.float32),
        empty(m, np.float32),
        empty(width, np.int8),
        empty(d, np.float32),
    )


@inner_allocating
def new_work(d, width, n_routes):
    """Return scratch space for changes."""
    n = _MOST_MEMBERS + 1
    return Work(
        new_queries(1, d, width),
        empty(n_routes, np.float32),
        empty(width, np.float32),
        empty((n, width), np.float32),
        empty(n, np.int64),
        empty(n, np.int64),
        empty(n, np.float32),
        empty(width, np.float32),
        empty(width, np.float32),
        empty(_AROUND, np.int64),
        empty(_AROUND, np.float32),
        empty(_NEARBY, np.int64),
    )


# Routes


@inner
def estimate_near(state, queries, m, weight, epsilon, near):
    """Write an upper bound of ``-|c - q|^2 / 2 + weight * added`` for each list; return the best list."""
    routes = state.routes
    apart = distance32(routes.mean, queries.rotated[m])
    base = (ROUNDING - _HALF) * apart
    error = error_of(apart, queries.steps[m], routes.mean.size, epsilon)
    best, value = np.int64(0), -np.float32(np.inf)
    for at in range(0, state.totals[N_LISTS], TILE):
        marks = score_codes(routes, at // TILE, queries, m, base, error, value, near, at)
        if state.totals[METRIC] != EUCLIDEAN and weight != np.float32(0.0):
            for i in range(at, at + TILE):
                near[i] += weight * state.clusters.added[i]
            marks = marks_of(near, at, value)
        while marks != 0:
            i = at + first_of(marks)
            marks &= marks - 1
            if near[i] > value:
                best, value = np.int64(i), near[i]
    return best


@inner
def _nearness(state, j, y):
    """Return minus half the squared distance of a vector and a center."""
    return -_HALF * distance32(state.clusters.centers[j], y)


@inner
def nearest_list(state, work):
    """Return the list whose center is nearest to the current vector."""
    queries = work.queries
    y = queries.rotated[0]
    j = estimate_near(state, queries, 0, np.float32(0.0), np.float32(1.0), work.near)
    value = _nearness(state, j, y)
    best = j
    for i in range(state.totals[N_LISTS]):
        if work.near[i] > value and i != best:
            found = _nearness(state, i, y)
            if found > value:
                best, value = np.int64(i), found
    return best


@inner_called
def _write_route(routes, center, j, rest):
    words = rest.size // BITS_OF_A_WORD
    at = j // TILE * TILE * words + j % TILE
    routes.factors[j], routes.added[j] = encode_signs(center, routes.mean, rest, routes.bits, at)


@inner
def _write_routes_again(state, rest):
    """Compute the codes of all centers from their present mean, in which distant ones count less."""
    clusters, routes, n = state.clusters, state.routes, state.totals[N_LISTS]
    routes.mean[:] = np.float32(0.0)
    total = np.float32(0.0)
    for j in range(n):
        weight = np.float32(1.0) / max(np.float32(1.0), dot32(clusters.centers[j], clusters.centers[j]))
        _add(routes.mean, clusters.centers[j], weight)
        total += weight
    for i in range(routes.mean.size):
        routes.mean[i] /= total
    for j in range(n):
        _write_route(routes, clusters.centers[j], j, rest)
    state.totals[N_ROUTED] = n


@inner
def _add(x, y, weight):
    for i in range(x.size):
        x[i] += weight * y[i]


@inner
def _set_added(state, j):
    """Compute what inner products add to the nearness of list ``j``, as if all vectors were equally long."""
    clusters = state.clusters
    if state.totals[METRIC] == INNER_PRODUCT and clusters.sizes[j] > 0:
        clusters.added[j] = clusters.masses[j] / np.float32(clusters.sizes[j])


@inner
def set_center(state, j, center, rest):
    """Set the center of a list and its code. The codes of members must be written afterwards.

    The longer the mean of unit vectors is, the less they are scattered. Of two lists whose centers are equally far from
    a query, the members of the less scattered one are nearer to it.
    """
    clusters = state.clusters
    copy_values(center, clusters.centers[j])
    if state.totals[METRIC] == COSINE:
        clusters.added[j] = _COMPACT * dot32(center, center)
    _set_added(state, j)
    _write_route(state.routes, clusters.centers[j], j, rest)


# Places


@inner
def _new_place(state, j):
    """Return a place for a new member of list ``j``. There must be a free tile."""
    clusters, members, totals = state.clusters, state.members, state.totals
    taken = clusters.sizes[j] % TILE
    if taken == 0:
        tile = totals[FREE_TILE]
        if tile == NONE:
            tile = totals[N_TILES]
            totals[N_TILES] = tile + 1
        else:
            totals[FREE_TILE] = members.nexts[tile]
        members.nexts[tile] = clusters.heads[j]
        members.list_of[tile] = j
        clusters.heads[j] = tile
        for place in range(tile * TILE, (tile + 1) * TILE):
            members.factors[place], members.added[place] = np.float32(0.0), -np.float32(np.inf)
            members.slots[place] = NONE
    clusters.sizes[j] += 1
    return clusters.heads[j] * TILE + taken


@inner
def _write_signs(state, j, place, rotated, rest):
    """Write the 1-bit code of a member of list ``j``."""
    members, words = state.members, rest.size // BITS_OF_A_WORD
    at = place // TILE * TILE * words + place % TILE
    factor, added = encode_signs(rotated, state.clusters.centers[j], rest, members.bits, at)
    if state.totals[METRIC] == INNER_PRODUCT:
        added += members.lifts[place]
    members.factors[place], members.added[place] = factor, added


@inner
def _copy_place(state, source, target):
    """Copy a member to another place, except its 1-bit code."""
    members = state.members
    copy_values(members.codes[source], members.codes[target])
    members.scales[target] = members.scales[source]
    members.errors[target] = members.errors[source]
    members.lifts[target] = members.lifts[source]
    slot = members.slots[source]
    members.slots[target] = slot
    state.vectors.places[slot] = target


@inner
def free_place(state, place):
    """Remove the member in a place from its list; return the list. The last member of the list fills the gap."""
    clusters, members, totals = state.clusters, state.members, state.totals
    words = state.signs.shape[1] // BITS_OF_A_WORD
    j = members.list_of[place // TILE]
    clusters.masses[j] -= members.lifts[place]
    clusters.sizes[j] -= 1
    head = clusters.heads[j]
    last = head * TILE + clusters.sizes[j] % TILE
    if last != place:
        _copy_place(state, last, place)
        a, b = last // TILE * TILE * words + last % TILE, place // TILE * TILE * words + place % TILE
        for w in range(words):
            members.bits[b + w * TILE] = members.bits[a + w * TILE]
        members.factors[place], members.added[place] = members.factors[last], members.added[last]
    members.factors[last], members.added[last] = np.float32(0.0), -np.float32(np.inf)
    members.slots[last] = NONE
    if clusters.sizes[j] % TILE == 0:
        clusters.heads[j] = members.nexts[head]
        members.nexts[head] = totals[FREE_TILE]
        totals[FREE_TILE] = head
    _set_added(state, j)
    return j


@inner
def vector_of(vectors, slot):
    """Return the vector in a slot, as it was given."""
    n_base = vectors.base.shape[0]
    if slot < n_base:
        return Vector(vectors.base[slot])
    return Vector(vectors.more[slot - n_base])


@inner
def enter(state, slot, work):
    """Add the vector in a slot to the nearest list; return the list."""
    members, queries = state.members, work.queries
    is_far = prepare(state, vector_of(state.vectors, slot).values, queries.prepared)
    square = dot32(queries.prepared, queries.prepared)
    queries.lengths[0] = np.sqrt(square)
    rotate(state.signs, queries.prepared, queries.rotated[0])
    code_rotated(queries, 0)
    j = nearest_list(state, work)
    place = _new_place(state, j)
    members.slots[place] = slot
    state.vectors.places[slot] = place
    members.lifts[place] = _HALF * square
    members.scales[place], members.errors[place] = encode_bytes(coded_values(queries, 0).values, members.codes[place])
    if is_far:
        members.errors[place] = np.float32(np.inf)
        state.totals[N_FAR] += 1
    state.clusters.masses[j] += members.lifts[place]
    state.numbers[MASS] += np.float64(members.lifts[place])
    _write_signs(state, j, place, queries.rotated[0], work.rest)
    _set_added(state, j)
    return j


@inner
def _move(state, slot, target, rotated, rest):
    """Move a member to another list. There must be a free tile."""
    source = np.int64(state.vectors.places[slot])
    place = _new_place(state, target)
    _copy_place(state, source, place)
    state.clusters.masses[target] += state.members.lifts[place]
    _write_signs(state, target, place, rotated, rest)
    _set_added(state, target)
    # the slot has moved, so the old place is removed without it
    free_place(state, source)


# Refresh


@inner
def _collect(state, j, slots):
    """Write the slots of a list's members; return their number."""
    members, n = state.members, np.int64(0)
    tile = state.clusters.heads[j]
    while tile != NONE:
        for place in range(tile * TILE, (tile + 1) * TILE):
            if members.slots[place] != NONE:
                slots[n] = members.slots[place]
                n += 1
        tile = members.nexts[tile]
    return n


@inner
def _mean_of_side(work, n, side, center):
    """Write the mean of the members on one side, and return their number."""
    count = np.int64(0)
    center[:] = np.float32(0.0)
    for i in range(n):
        if work.side[i] == side:
            _add(center, work.rotated[i], np.float32(1.0))
            count += 1
    for i in range(center.size):
        center[i] /= np.float32(count)
    return count


@inner
def _mark_lowest(margins, n, count, side):
    """Set ``side`` to 1 for the ``count`` lowest margins, and to 0 for all others."""
    for i in range(n):
        rank = np.int64(0)
        for other in range(n):
            rank += margins[other] < margins[i] or (margins[other] == margins[i] and other < i)
        side[i] = 1 if rank < count else 0


@inner
def _divide(work, n):
    """Divide members by 2-means from two far members, and write the mean of each side."""
    for i in range(n):
        work.side[i] = 0
    _mean_of_side(work, n, 0, work.center)
    for begin in (0, 1):
        least, at = np.float32(np.inf), np.int64(0)
        for i in range(n):
            value = -distance32(work.center, work.rotated[i])
            if value < least:
                least, at = value, np.int64(i)
        if begin == 0:
            copy_values(work.rotated[at], work.center)
        else:
            copy_values(work.rotated[at], work.other)
    for _ in range(_ROUNDS):
        n_other = np.int64(0)
        for i in range(n):
            y = work.rotated[i]
            work.margins[i] = distance32(work.other, y) - distance32(work.center, y)
            work.side[i] = 1 if work.margins[i] < np.float32(0.0) else 0
            n_other += work.side[i]
        least = n // _SMALLEST_SIDE
        if n_other < least or n_other > n - least:
            _mark_lowest(work.margins, n, min(max(n_other, least), n - least), work.side)
        _mean_of_side(work, n, 0, work.center)
        _mean_of_side(work, n, 1, work.other)


@inner
def _find_around(state, j, new, center, work):
    """Write the lists nearest to a center, except ``j`` and ``new``, between which members are divided already."""
    queries = work.queries
    copy_values(center, queries.rotated[0])
    code_rotated(queries, 0)
    estimate_near(state, queries, 0, np.float32(0.0), np.float32(0.0), work.near)
    work.around[:] = NONE
    work.scores[:] = -np.float32(np.inf)
    for i in range(state.totals[N_LISTS]):
        if i != j and i != new and work.near[i] > work.scores[0]:
            keep_best(work.scores, work.around, work.near[i], np.int64(i))


@inner
def _best_around(state, y, value, own, work):
    """Return the list around the current one with room whose center is nearer than ``value``, or ``own``."""
    best = own
    for i in range(_AROUND):
        j = work.around[i]
        if j != NONE and state.clusters.sizes[j] < _MOST_MEMBERS:
            found = _nearness(state, j, y)
            if found > value:
                best, value = j, found
    return best


@inner
def _drop_list(state, j):
    """Remove an empty list. The last list takes its number."""
    clusters, members, routes, totals = state.clusters, state.members, state.routes, state.totals
    words = routes.mean.size // BITS_OF_A_WORD
    last = totals[N_LISTS] - 1
    totals[N_LISTS] = last
    if last != j:
        copy_values(clusters.centers[last], clusters.centers[j])
        clusters.added[j] = clusters.added[last]
        clusters.masses[j], clusters.sizes[j] = clusters.masses[last], clusters.sizes[last]
        clusters.heads[j] = clusters.heads[last]
        routes.factors[j], routes.added[j] = routes.factors[last], routes.added[last]
        a, b = last // TILE * TILE * words + last % TILE, j // TILE * TILE * words + j % TILE
        for w in range(words):
            routes.bits[b + w * TILE] = routes.bits[a + w * TILE]
        tile = clusters.heads[j]
        while tile != NONE:
            members.list_of[tile] = j
            tile = members.nexts[tile]
    clusters.sizes[last], clusters.heads[last] = 0, NONE
    routes.added[last] = -np.float32(np.inf)


@inner_called
def refresh(arrays, j, work):
    """Refresh a list: move its center, split or dissolve it if necessary, and move members to nearer lists."""
    state = by_reference(arrays)
    clusters, totals = state.clusters, state.totals
    n = _collect(state, j, work.slots)
    for i in range(n):
        prepare(state, vector_of(state.vectors, work.slots[i]).values, work.queries.prepared)
        rotate(state.signs, work.queries.prepared, work.rotated[i])
        work.side[i] = 0
    new = NONE
    if n > _MOST_MEMBERS:
        _divide(work, n)
        new = totals[N_LISTS]
        totals[N_LISTS] = new + 1
        clusters.sizes[new], clusters.heads[new], clusters.masses[new] = 0, NONE, np.float32(0.0)
        set_center(state, new, work.other, work.rest)
    elif n > 0:
        _mean_of_side(work, n, 0, work.center)
    is_dissolved = n < LEAST_SIZE and totals[N_LISTS] > 1
    if n > 0:
        if not is_dissolved:
            set_center(state, j, work.center, work.rest)
        _find_around(state, j, new, work.center, work)
    for i in range(n):
        slot, y = work.slots[i], work.rotated[i]
        own = j if work.side[i] == 0 else new
        value = -np.float32(np.inf) if is_dissolved else _nearness(state, own, y)
        target = _best_around(state, y, value, own, work)
        if target == j:
            _write_signs(state, j, np.int64(state.vectors.places[slot]), y, work.rest)
        else:
            _move(state, slot, target, y, work.rest)
    if is_dissolved and clusters.sizes[j] == 0:
        _drop_list(state, j)
    if totals[N_LISTS] >= 2 * totals[N_ROUTED] or 2 * totals[N_LISTS] < totals[N_ROUTED]:
        _write_routes_again(state, work.rest)

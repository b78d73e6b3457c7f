"""Kernels: members of lists, and the changes by which lists grow like a memory tree.

A list that outgrows its limit splits in two, a list with few members is dissolved, and lists are refreshed in turn: the
center becomes the mean of the members, and members move to the list whose center is nearest by now. These are the
operations INSERTLEAF, REMOVE and REROUTE of the Contextual Memory Tree (Sun et al., 2019). Groups of lists grow in the
same way.
"""

from typing import NamedTuple

import numpy as np

from .._jit import (
    BITS_OF_A_WORD,
    FORM,
    TILE,
    by_reference,
    empty,
    first_of,
    inner,
    inner_allocating,
    inner_called,
    marks_of,
)
from .._kernels import NONE, keep_best
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
    LIST_SIZE,
    MASS,
    METRIC,
    MIN_SIZE,
    N_FAR,
    N_LISTS,
    N_REFRESHES,
    N_TILES,
    N_VECTORS,
    NEXT_LIST,
)

_MOST_MEMBERS = 2 * LIST_SIZE
_REFRESHES_PER_GROUP = 16
_TILES_TO_REFRESH = 192  # tiles that a change needs at most if it also refreshes a group
_AROUND = 16  # number of lists that a refresh compares with members
_NEARBY = 3  # number of lists to refresh after a split
_ROUNDS = 5  # iterations of 2-means
_SMALLEST_SIDE = 4  # a side of a split gets at least this fraction (1 / 4) of the members
_PRECISE = np.float32(0.01)  # squared error of a code, relative to the squared distance from the center of its list
_HALF, _ONE = np.float32(0.5), np.float32(1.0)
NEAR_GROUPS = 32
"""Number of groups among whose lists a change finds the nearest ones."""

ROUNDING = np.float32(2e-6)
"""Bound on the error of squared distances, relative to them."""


class Scan(NamedTuple):
    """Scratch space for the lists near a vector."""

    apart: np.ndarray  # float32 (groups,): squared distances of groups
    nearest: np.ndarray  # int64 (groups,): groups whose lists are compared
    values: np.ndarray  # float32 (groups,): scratch space for choosing them
    tiles: np.ndarray  # int64 (tiles of groups,): the tiles of these lists


class Work(NamedTuple):
    """Scratch space for changes."""

    queries: Queries  # for one vector
    scan: Scan
    near: np.ndarray  # float32 (places of groups,)
    rest: np.ndarray  # float32 (width,)
    rotated: np.ndarray  # float32 (members, width)
    slots: np.ndarray  # int64 (members,)
    weights: np.ndarray  # float32 (members,)
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
        empty(m * width // BITS_OF_A_WORD * FORM, np.uint64),
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
def new_scan(n_groups, n_tiles):
    """Return scratch space for the lists near a vector."""
    return Scan(
        empty(n_groups, np.float32), empty(n_groups, np.int64), empty(n_groups, np.float32), empty(n_tiles, np.int64)
    )


@inner_allocating
def new_work(state):
    """Return scratch space for changes."""
    state = by_reference(state)
    groups, d, width, n = state.groups, state.vectors.more.shape[1], state.signs.shape[1], _MOST_MEMBERS + 1
    n_tiles = groups.nexts.size
    return Work(
        new_queries(1, d, width),
        new_scan(groups.sizes.size, n_tiles),
        empty(n_tiles * TILE, np.float32),
        empty(width, np.float32),
        empty((n, width), np.float32),
        empty(n, np.int64),
        empty(n, np.float32),
        empty(n, np.int64),
        empty(n, np.float32),
        empty(width, np.float32),
        empty(width, np.float32),
        empty(_AROUND, np.int64),
        empty(_AROUND, np.float32),
        empty(_NEARBY, np.int64),
    )


@inner
def usual_length(state):
    """Return the length of queries of inner products: that of the vectors, so that both have the same scale."""
    if state.totals[METRIC] != INNER_PRODUCT or state.totals[N_VECTORS] == 0:
        return np.float32(0.0)
    return np.float32(np.sqrt(max(2.0 * state.numbers[MASS] / np.float64(state.totals[N_VECTORS]), 1e-30)))


# Near lists


@inner
def choose_groups(groups, y, n_wanted, scan):
    """Write the squared distances of all groups and the nearest ones, in any order; return how many these are."""
    n = groups.counts[N_LISTS]
    for g in range(n):
        scan.apart[g] = distance32(groups.centers[g], y)
    if n <= n_wanted:
        for g in range(n):
            scan.nearest[g] = g
        return n
    values, nearest = scan.values[:n_wanted], scan.nearest[:n_wanted]
    values[:], nearest[:] = -np.float32(np.inf), n
    for g in range(n):
        keep_best(values, nearest, -scan.apart[g], np.int64(g))
    return np.int64(n_wanted)


@inner_called
def estimate_near(state, queries, m, weight, epsilon, n_wanted, scan, near):
    """Write an upper bound of ``-|c - q|^2 / 2 + weight * lift`` for each list in the ``n_wanted`` nearest groups.

    Bounds are in the places of the lists, and their tiles in ``scan.tiles``. Returns the place with the highest bound,
    and the number of tiles.
    """
    state, queries, scan = by_reference(state), by_reference(queries), by_reference(scan)
    groups, y = state.groups, queries.rotated[m]
    best, value, n_tiles = np.int64(NONE), -np.float32(np.inf), np.int64(0)
    for i in range(choose_groups(groups, y, n_wanted, scan)):
        g = scan.nearest[i]
        base = (ROUNDING - _HALF) * scan.apart[g]
        error = error_of(scan.apart[g], queries.steps[m], y.size, epsilon)
        tile = groups.heads[g]
        while tile != NONE:
            at = tile * TILE
            scan.tiles[n_tiles] = tile
            n_tiles += 1
            best = at if best == NONE else best
            marks = score_codes(groups, tile, queries, m, base, error, value, near, at)
            if state.totals[METRIC] != EUCLIDEAN and weight != np.float32(0.0):
                for place in range(at, at + TILE):
                    near[place] += weight * groups.lifts[place]
                marks = marks_of(near, at, value)
            while marks != 0:
                place = at + first_of(marks)
                marks &= marks - 1
                if near[place] > value:
                    best, value = place, near[place]
            tile = groups.nexts[tile]
    return best, n_tiles


@inner
def _nearness(lists, j, y):
    """Return minus half the squared distance of a vector and a center."""
    return -_HALF * distance32(lists.centers[j], y)


@inner
def nearest_list(state, work):
    """Return the list whose center is nearest to the current vector."""
    queries, slots = work.queries, state.groups.slots
    y = queries.rotated[0]
    first, n_tiles = estimate_near(
        state, queries, 0, np.float32(0.0), np.float32(1.0), NEAR_GROUPS, work.scan, work.near
    )
    best = np.int64(slots[first])
    value = _nearness(state.lists, best, y)
    for i in range(n_tiles):
        at = work.scan.tiles[i] * TILE
        marks = marks_of(work.near, at, value)
        while marks != 0:
            place = at + first_of(marks)
            marks &= marks - 1
            if work.near[place] > value and place != first:
                found = _nearness(state.lists, np.int64(slots[place]), y)
                if found > value:
                    best, value = np.int64(slots[place]), found
    return best


# Places


@inner
def _new_place(lists, j):
    """Return a place for a new member of list ``j``. There must be a free tile."""
    counts, taken = lists.counts, lists.sizes[j] % TILE
    if taken == 0:
        tile = counts[FREE_TILE]
        if tile == NONE:
            tile = counts[N_TILES]
            counts[N_TILES] = tile + 1
        else:
            counts[FREE_TILE] = lists.nexts[tile]
        lists.nexts[tile] = lists.heads[j]
        lists.list_of[tile] = j
        lists.heads[j] = tile
        for place in range(tile * TILE, (tile + 1) * TILE):
            clear_place(lists, place)
    lists.sizes[j] += 1
    return lists.heads[j] * TILE + taken


@inner
def clear_place(lists, place):
    """Mark a place as free."""
    lists.factors[place], lists.added[place] = np.float32(0.0), -np.float32(np.inf)
    lists.slots[place] = NONE


@inner
def take_place(lists, place, slot):
    """Note the place of a member."""
    lists.slots[place] = slot
    lists.places[slot] = place


@inner_called
def _write_signs(lists, j, place, rotated, lift, rest):
    """Write the 1-bit code of a member of list ``j``. Its scores include ``lift``."""
    lists = by_reference(lists)
    at = place // TILE * TILE * (rest.size // BITS_OF_A_WORD) + place % TILE
    factor, added = encode_signs(rotated, lists.centers[j], rest, lists.bits, at)
    lists.factors[place], lists.added[place] = factor, added + lift


@inner
def _copy_place(lists, source, target):
    """Copy a member to another place, except its 1-bit code."""
    copy_values(lists.codes[source], lists.codes[target])
    lists.scales[target] = lists.scales[source]
    lists.errors[target] = lists.errors[source]
    lists.lifts[target] = lists.lifts[source]
    take_place(lists, target, lists.slots[source])


@inner_called
def _free_place(lists, place):
    """Remove the member in a place from its list; return the list. The last member of the list fills the gap."""
    lists = by_reference(lists)
    words, counts = lists.centers.shape[1] // BITS_OF_A_WORD, lists.counts
    j = lists.list_of[place // TILE]
    lists.sizes[j] -= 1
    head = lists.heads[j]
    last = head * TILE + lists.sizes[j] % TILE
    if last != place:
        _copy_place(lists, last, place)
        a, b = last // TILE * TILE * words + last % TILE, place // TILE * TILE * words + place % TILE
        for w in range(words):
            lists.bits[b + w * TILE] = lists.bits[a + w * TILE]
        lists.factors[place], lists.added[place] = lists.factors[last], lists.added[last]
    clear_place(lists, last)
    if lists.sizes[j] % TILE == 0:
        lists.heads[j] = lists.nexts[head]
        lists.nexts[head] = counts[FREE_TILE]
        counts[FREE_TILE] = head
    return j


@inner
def _new_list(lists):
    """Add an empty list."""
    new = lists.counts[N_LISTS]
    lists.counts[N_LISTS] = new + 1
    lists.sizes[new], lists.heads[new], lists.masses[new] = 0, NONE, np.float32(0.0)
    return new


@inner
def _drop_list(lists, j):
    """Remove an empty list. The last list takes its number."""
    last = lists.counts[N_LISTS] - 1
    lists.counts[N_LISTS] = last
    if last != j:
        copy_values(lists.centers[last], lists.centers[j])
        lists.masses[j], lists.sizes[j], lists.heads[j] = lists.masses[last], lists.sizes[last], lists.heads[last]
        tile = lists.heads[j]
        while tile != NONE:
            lists.list_of[tile] = j
            tile = lists.nexts[tile]
    lists.sizes[last], lists.heads[last] = 0, NONE


# Groups


@inner
def write_route(state, place, rest):
    """Write the code of the list in a place of a group."""
    groups = state.groups
    center = state.lists.centers[groups.slots[place]]
    _write_signs(groups, groups.list_of[place // TILE], place, center, np.float32(0.0), rest)


@inner
def lift_of(state, square, mass, size):
    """Return what is added to the nearness of a list in searches, given its center's squared length and its members.

    The longer the mean of unit vectors is, the less they are scattered. Of two lists whose centers are equally far from
    a query, the members of the less scattered one are nearer to it. For inner products, the nearness is as if all
    vectors were equally long. There, a single long member of a short list must not outweigh all other lists.
    """
    if state.totals[METRIC] == COSINE:
        return _HALF * _HALF * square
    if state.totals[METRIC] == INNER_PRODUCT and size > 0:
        usual = np.float32(state.numbers[MASS] / np.float64(state.totals[N_VECTORS]))
        return min(mass / np.float32(size), _HALF * square + usual)
    return np.float32(0.0)


@inner_called
def _set_lift(state, j):
    """Compute the lift of a list."""
    state = by_reference(state)
    lists, groups = state.lists, state.groups
    square = dot32(lists.centers[j], lists.centers[j])
    groups.lifts[groups.places[j]] = lift_of(state, square, lists.masses[j], lists.sizes[j])


@inner
def _change_lift(state, j):
    """Compute the lift of a list whose members have changed."""
    if state.totals[METRIC] == INNER_PRODUCT:
        _set_lift(state, j)


@inner
def _nearer_group(groups, center, own, other, value, most):
    """Return the group with fewer than ``most`` lists that is nearest, or ``own`` if none is nearer than ``value``.

    Groups ``own`` and ``other`` are left out.
    """
    best = own
    for g in range(groups.counts[N_LISTS]):
        if g != own and g != other and groups.sizes[g] < most:
            found = _nearness(groups, g, center)
            if found > value:
                best, value = np.int64(g), found
    return best


@inner_called
def _set_center(state, j, center, rest):
    """Set the center of a list and its place in a group. The codes of members must be written afterwards."""
    state = by_reference(state)
    groups = state.groups
    copy_values(center, state.lists.centers[j])
    place, own, value = np.int64(groups.places[j]), np.int64(NONE), -np.float32(np.inf)
    if place != NONE:
        own = groups.list_of[place // TILE]
        value = _nearness(groups, own, center)
    group = _nearer_group(groups, center, own, own, value, _MOST_MEMBERS + 1)
    if group != own:
        if own != NONE:
            _free_place(groups, place)
        place = _new_place(groups, group)
        take_place(groups, place, j)
    write_route(state, place, rest)
    _set_lift(state, j)


@inner_called
def _refresh_group(arrays, g, work):
    """Refresh a group: move its center, split or dissolve it if necessary, and move lists to nearer groups.

    Without room for new tiles, this has to wait.
    """
    state, work = by_reference(arrays), by_reference(work)
    lists, groups = state.lists, state.groups
    n_tiles = groups.counts[N_TILES] + _TILES_TO_REFRESH
    if n_tiles > groups.nexts.size or groups.counts[N_LISTS] == groups.sizes.size:
        return
    n = _collect(groups, g, work.slots)
    for i in range(n):
        center = lists.centers[work.slots[i]]
        copy_values(center, work.rotated[i])
        work.weights[i] = _ONE / max(_ONE, dot32(center, center))  # distant lists count less
    new = _mean_or_halves(groups, n, work)
    if new != NONE:
        copy_values(work.other, groups.centers[new])
    is_dissolved = n < MIN_SIZE and groups.counts[N_LISTS] > 1
    if n > 0:
        copy_values(work.center, groups.centers[g])
    for i in range(n):
        j, center = work.slots[i], work.rotated[i]
        place, own, other = np.int64(groups.places[j]), np.int64(g), new
        if work.side[i] == 1:
            own, other = new, np.int64(g)
        value = -np.float32(np.inf) if is_dissolved else _nearness(groups, own, center)
        group = _nearer_group(groups, center, own, other, value, _MOST_MEMBERS)
        if group != g:
            _free_place(groups, place)
            place = _new_place(groups, group)
            take_place(groups, place, j)
            _set_lift(state, np.int64(j))
        write_route(state, place, work.rest)
    if is_dissolved and groups.sizes[g] == 0:
        _drop_list(groups, g)


@inner
def _refresh_groups(state, work):
    """Refresh the next group after a number of lists, and groups with too many or too few lists."""
    groups, totals = state.groups, state.totals
    totals[N_REFRESHES] += 1
    if totals[N_REFRESHES] >= _REFRESHES_PER_GROUP:
        totals[N_REFRESHES] = 0
        g = groups.counts[NEXT_LIST] % groups.counts[N_LISTS]
        groups.counts[NEXT_LIST] = g + 1
        _refresh_group(state, g, work)
    for g in range(groups.counts[N_LISTS] - 1, -1, -1):
        size = groups.sizes[g]
        if size > _MOST_MEMBERS or (size < MIN_SIZE and groups.counts[N_LISTS] > 1):
            _refresh_group(state, g, work)


@inner
def vector_of(vectors, slot):
    """Return the vector in a slot, as it was given."""
    n_base = vectors.base.shape[0]
    if slot < n_base:
        return Vector(vectors.base[slot])
    return Vector(vectors.more[slot - n_base])


@inner
def _lift_of_scores(state, place):
    """Return what the metric adds to the scores of the vector in a place."""
    return state.lists.lifts[place] if state.totals[METRIC] == INNER_PRODUCT else np.float32(0.0)


@inner
def enter(state, slot, work):
    """Add the vector in a slot to the nearest list; return the list."""
    lists, queries = state.lists, work.queries
    is_far = prepare(state, vector_of(state.vectors, slot).values, queries.prepared)
    square = dot32(queries.prepared, queries.prepared)
    queries.lengths[0] = np.sqrt(square)
    rotate(state.signs, queries.prepared, queries.rotated[0])
    code_rotated(queries, 0)
    j = nearest_list(state, work)
    place = _new_place(lists, j)
    take_place(lists, place, slot)
    lists.lifts[place] = _HALF * square
    lists.scales[place], lists.errors[place] = encode_bytes(coded_values(queries, 0).values, lists.codes[place])
    if is_far:
        lists.errors[place] = np.float32(np.inf)
        state.totals[N_FAR] += 1
    lists.masses[j] += lists.lifts[place]
    state.numbers[MASS] += np.float64(lists.lifts[place])
    _write_signs(lists, j, place, queries.rotated[0], _lift_of_scores(state, place), work.rest)
    _change_lift(state, j)
    return j


@inner
def leave(state, place):
    """Remove the vector in a place from its list; return the list."""
    lift = state.lists.lifts[place]
    j = _free_place(state.lists, place)
    state.lists.masses[j] -= lift
    _change_lift(state, j)
    return j


@inner
def _move(state, slot, target, rotated, rest):
    """Move a member to another list. There must be a free tile."""
    lists = state.lists
    source = np.int64(lists.places[slot])
    place = _new_place(lists, target)
    _copy_place(lists, source, place)
    lists.masses[target] += lists.lifts[place]
    _write_signs(lists, target, place, rotated, _lift_of_scores(state, place), rest)
    _change_lift(state, target)
    # the slot has moved, so the old place is removed without it
    leave(state, source)


# Refresh


@inner
def _collect(lists, j, slots):
    """Write the slots of a list's members; return their number."""
    n, tile = np.int64(0), lists.heads[j]
    while tile != NONE:
        for place in range(tile * TILE, (tile + 1) * TILE):
            if lists.slots[place] != NONE:
                slots[n] = lists.slots[place]
                n += 1
        tile = lists.nexts[tile]
    return n


@inner
def _read_member(state, slot, queries, y):
    """Write the rotated vector in a slot. If its 8-bit code is precise enough for its list, the vector is not read."""
    lists = state.lists
    place = np.int64(lists.places[slot])
    codes, scale, error = lists.codes[place], lists.scales[place], lists.errors[place]
    if codes.size == y.size:
        for i in range(y.size):
            y[i] = scale * np.float32(codes[i])
        if error * error < _PRECISE * distance32(lists.centers[lists.list_of[place // TILE]], y):
            return
    prepare(state, vector_of(state.vectors, slot).values, queries.prepared)
    rotate(state.signs, queries.prepared, y)


@inner
def _mean_of_side(work, n, side, center):
    """Write the weighted mean of the members on one side."""
    total = np.float32(0.0)
    center[:] = np.float32(0.0)
    for i in range(n):
        if work.side[i] == side:
            _add(center, work.rotated[i], work.weights[i])
            total += work.weights[i]
    for i in range(center.size):
        center[i] /= total


@inner
def _add(x, y, weight):
    for i in range(x.size):
        x[i] += weight * y[i]


@inner
def _mark_lowest(margins, n, count, side):
    """Set ``side`` to 1 for the ``count`` lowest margins, and to 0 for all others."""
    for i in range(n):
        rank = np.int64(0)
        for other in range(n):
            rank += margins[other] < margins[i] or (margins[other] == margins[i] and other < i)
        side[i] = 1 if rank < count else 0


@inner_called
def _divide(work, n):
    """Divide members by 2-means from two far members, and write the mean of each side."""
    work = by_reference(work)
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
def _mean_or_halves(lists, n, work):
    """Write the mean of a list's ``n`` members to ``work.center``. If they are too many, divide them.

    Returns a new list for the second half, whose mean is in ``work.other``, or NONE.
    """
    for i in range(n):
        work.side[i] = 0
    if n > _MOST_MEMBERS:
        _divide(work, n)
        return _new_list(lists)
    if n > 0:
        _mean_of_side(work, n, 0, work.center)
    return np.int64(NONE)


@inner
def _find_around(state, j, new, center, work):
    """Write the lists nearest to a center, except ``j`` and ``new``, between which members are divided already."""
    queries = work.queries
    copy_values(center, queries.rotated[0])
    code_rotated(queries, 0)
    _, n_tiles = estimate_near(state, queries, 0, np.float32(0.0), np.float32(0.0), NEAR_GROUPS, work.scan, work.near)
    work.around[:] = NONE
    work.scores[:] = -np.float32(np.inf)
    for i in range(n_tiles):
        at = work.scan.tiles[i] * TILE
        marks = marks_of(work.near, at, work.scores[0])
        while marks != 0:
            place = at + first_of(marks)
            marks &= marks - 1
            other = np.int64(state.groups.slots[place])
            if other != j and other != new and work.near[place] > work.scores[0]:
                keep_best(work.scores, work.around, work.near[place], other)


@inner
def _best_around(state, y, value, own, work):
    """Return the list around the current one with room whose center is nearer than ``value``, or ``own``."""
    best = own
    for i in range(_AROUND):
        j = work.around[i]
        if j != NONE and state.lists.sizes[j] < _MOST_MEMBERS:
            found = _nearness(state.lists, j, y)
            if found > value:
                best, value = j, found
    return best


@inner
def _dissolve(state, j):
    """Remove an empty list and its place in a group."""
    groups, last = state.groups, state.lists.counts[N_LISTS] - 1
    _free_place(groups, np.int64(groups.places[j]))
    _drop_list(state.lists, j)
    if last != j:
        take_place(groups, np.int64(groups.places[last]), j)


@inner_called
def refresh(arrays, j, work):
    """Refresh a list: move its center, split or dissolve it if necessary, and move members to nearer lists."""
    state, work = by_reference(arrays), by_reference(work)
    lists = state.lists
    n = _collect(lists, j, work.slots)
    for i in range(n):
        _read_member(state, work.slots[i], work.queries, work.rotated[i])
        work.weights[i] = _ONE
    new = _mean_or_halves(lists, n, work)
    if new != NONE:
        state.groups.places[new] = NONE
        _set_center(state, new, work.other, work.rest)
    is_dissolved = n < MIN_SIZE and lists.counts[N_LISTS] > 1
    if n > 0:
        if not is_dissolved:
            _set_center(state, j, work.center, work.rest)
        _find_around(state, j, new, work.center, work)
    for i in range(n):
        slot, y = work.slots[i], work.rotated[i]
        own = j if work.side[i] == 0 else new
        value = -np.float32(np.inf) if is_dissolved else _nearness(lists, own, y)
        target = _best_around(state, y, value, own, work)
        if target == j:
            place = np.int64(lists.places[slot])
            _write_signs(lists, j, place, y, _lift_of_scores(state, place), work.rest)
        else:
            _move(state, slot, target, y, work.rest)
    if is_dissolved and lists.sizes[j] == 0:
        _dissolve(state, j)
    _refresh_groups(state, work)

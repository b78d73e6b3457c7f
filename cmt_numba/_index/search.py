"""Kernels: the best vectors for queries.

A query reaches the lists whose centers are at most a gap farther than the nearest one. Members pass three stages, each
of which drops those whose upper bound is below the bar, the highest known lower bound of the ``k``-th best score: codes
of whole tiles, 8-bit codes of single members, and the vectors themselves in float64.

The first stage of single rows compares 1-bit codes. Their bounds may be wrong, each with a small probability, so they
do not raise the bar. Bounds by 8-bit codes are hardly ever wrong, and never in exact searches. Rows that are searched
*together* are searched list by list. They share the transposed 8-bit codes of the list, after which only vectors are
compared.
"""

from typing import NamedTuple

import numpy as np

from .._jit import (
    BITS_OF_A_WORD,
    TILE,
    by_reference,
    empty,
    first_of,
    inner,
    inner_allocating,
    inner_called,
    kernel,
    marks_of,
    prefetch,
    release,
)
from .._kernels import NONE
from .byte_rows import TILES, bytes_of_tile, code_row, error_of_row, load_centers, load_tile, new_row_codes, new_tiles
from .byte_tiles import FEATURES, ROWS, score_rows
from .codes import (
    code_query,
    coded_values,
    copy_values,
    distance32,
    error_of,
    rotate_query,
    score_codes,
    share_of_errors,
)
from .lists import NEAR_GROUPS, ROUNDING, Scan, estimate_near, new_queries, new_scan, usual_length
from .ranking import (
    LEAST,
    begin_row,
    compare_waiting,
    finish_row,
    keep_member,
    let_wait,
    low_bar,
    new_ranking,
    prefetch_code,
)
from .state import INNER_PRODUCT, METRIC, N_LISTED, N_LISTS, N_TILES

_MAX_ROWS = 1024  # number of rows in a block
_STEPS = 64  # number of steps of nearness by which lists are sorted
_KEPT_AT_ONCE = 1 << 18  # number of rows in a block, times results of each
_REACHED_AT_ONCE = 1 << 20  # number of lists that the rows of a block reach
_SURE = np.float32(1.9)  # standard errors of the estimates for centers
_WORDS_IN_A_LINE, _FLOATS_IN_A_LINE = 8, 16
_MIN_K = 4  # a first bar pays from this number of results on
_TWO, _ONE, _HALF = np.float32(2.0), np.float32(1.0), np.float32(0.5)
_SHORTEST = np.float32(1e-30)
_LARGEST_GAP = np.float32(1e30)
_WIDER, _MIN_GAP = np.float32(1.5), np.float32(0.02)  # growth of a gap if the lists have too few members


class ListEffort(NamedTuple):
    """How far a search goes."""

    ranks: np.ndarray  # float32: numbers of best vectors, ascending
    gaps: np.ndarray  # float32: the gap for each of them
    slopes: np.ndarray  # float32: the gap per distance of the last of them; not 0 if vectors have near copies
    usual: np.ndarray  # float32: if the squared distance of the nearest is larger, a query is unlike the stored vectors
    slopes_if_unlike: np.ndarray  # float32: the gap of such a query per squared distance of the nearest one
    epsilon: float  # number of standard errors of estimates
    n_groups: int  # number of groups whose lists are compared with a single row


class Mask(NamedTuple):
    """The vectors that a search may return; empty arrays if it may return all."""

    words: np.ndarray  # uint64: bit i % 64 of word i // 64 is set if the vector in slot i is allowed
    counts: np.ndarray  # int64 (lists,): number of allowed members of each list


class SlotChoice(NamedTuple):
    """The vectors to compare with all rows."""

    slots: np.ndarray  # int64
    is_exact: bool  # otherwise bounds are as for lists, hardly ever wrong


class ListReach(NamedTuple):
    """Lists that rows reach. Lists are named by their places in groups.

    The first round of a search reaches those within a gap. The gap of the second round depends on what was found.
    """

    near: np.ndarray  # float32 (rows, places): upper bounds of the nearness of lists
    scan: Scan
    chosen: np.ndarray  # int64 (lists,): lists that the current row reaches, in any order
    values: np.ndarray  # float32 (lists,): their nearness
    stops: np.ndarray  # int64 (64,): scratch space for sorting
    rows: np.ndarray  # int64 (m,): the rows to search in this round
    gaps: np.ndarray  # float32 (m,): the gaps of the first round
    least: np.ndarray  # float32 (m,): the least nearness of lists within them
    limit: np.ndarray  # float32 (1,): the first round of a single row did not compare groups beyond this distance


@inner_allocating
def _new_reach(m, n_lists, n_groups, n_tiles):
    return ListReach(
        empty((min(m, ROWS), n_tiles * TILE), np.float32),
        new_scan(n_groups, n_tiles),
        empty(n_lists, np.int64),
        empty(n_lists, np.float32),
        empty(_STEPS, np.int64),
        empty(m, np.int64),
        empty(m, np.float32),
        empty(m, np.float32),
        empty(1, np.float32),
    )


@inner
def _is_allowed(mask, slot):
    return (mask.words[slot >> 6] >> np.uint64(slot & 63)) & np.uint64(1) != np.uint64(0)


@inner
def _scan_tile(state, x, queries, m, ranking, upper, tile, base, error, mask, scores, ids):
    """Estimate the scores of a tile's members; those that may be among the best wait for their 8-bit codes."""
    at = tile * TILE
    marks = score_codes(state.lists, tile, queries, m, base, error, ranking.bars[m], upper, 0)
    while marks != 0:
        i = first_of(marks)
        marks &= marks - 1
        place = at + i
        if upper[i] < ranking.bars[m]:
            continue
        if mask.words.size > 0 and not _is_allowed(mask, state.lists.slots[place]):
            continue
        let_wait(state, x, queries, m, ranking, place, upper[i], scores, ids)


@inner
def _prefetch_tile(lists, tile, words):
    if tile != NONE:
        for i in range(tile * TILE * words, (tile + 1) * TILE * words, _WORDS_IN_A_LINE):
            prefetch(lists.bits, i)
        for i in range(tile * TILE, (tile + 1) * TILE, _FLOATS_IN_A_LINE):
            prefetch(lists.factors, i)
            prefetch(lists.added, i)


@inner
def _prefetch_codes(lists, tile):
    if tile != NONE:
        for place in range(tile * TILE, (tile + 1) * TILE):
            prefetch_code(lists, place)


@inner
def _place_of(ranks, k):
    """Return the place of the first rank of at least ``k``, or the last place."""
    i = 0
    while i + 1 < ranks.size and ranks[i] < k:
        i += 1
    return i


@inner
def _wider_gap(state, effort, reach, ranking, m, k):
    """Return the gap for what a row has found; 0 if its first round was wide enough."""
    i, gap = _place_of(effort.ranks, np.float32(k)), np.float32(0.0)
    if effort.slopes[i] > gap:
        gap = effort.slopes[i]
        if state.totals[METRIC] != INNER_PRODUCT:
            gap *= np.sqrt(max(-_TWO * ranking.bars[m], np.float32(0.0)))
    square = -_TWO * ranking.nearest[m]
    if square > effort.usual[i]:
        gap = max(gap, effort.slopes_if_unlike[i] * min(square, _LARGEST_GAP))
    return min(gap, _LARGEST_GAP) if gap > reach.gaps[m] else np.float32(0.0)


@inner
def _nearness(state, queries, m, place):
    """Return how near the list in a place is to a row."""
    groups, centers = state.groups, state.lists.centers
    apart = distance32(centers[groups.slots[place]], queries.rotated[m])
    return np.float32(-0.5) * apart + groups.lifts[place]


@inner
def _apart(state, place, nearness):
    """Return the squared distance between a row and the center of a list."""
    return _TWO * (state.groups.lifts[place] - nearness)


@inner_called
def _within_gap(state, queries, m, near, n_tiles, slack, reach, best, gap):
    """Write the lists within a gap of the nearest one, in any order; return their number.

    ``near`` has upper bounds, and less ``2 * slack``, lower bounds of the nearness, which is computed where they do not
    decide.
    """
    state, queries, reach = by_reference(state), by_reference(queries), by_reference(reach)
    most = _nearness(state, queries, m, best)
    gap += ROUNDING * _apart(state, best, most)
    n = np.int64(0)
    near[best] = np.float32(np.inf)  # its estimate may be too low
    for i in range(n_tiles):
        at = reach.scan.tiles[i] * TILE
        marks = marks_of(near, at, most - gap)
        while marks != 0:
            place = at + first_of(marks)
            marks &= marks - 1
            value = near[place]
            if value > most or value - _TWO * slack < most - gap:
                value = _nearness(state, queries, m, place)
                most = max(most, value)
            else:
                value -= slack
            reach.chosen[n], reach.values[n] = place, value
            n += 1
    left = np.int64(0)
    for i in range(n):
        if reach.values[i] >= most - gap:
            reach.chosen[left], reach.values[left] = reach.chosen[i], reach.values[i]
            left += 1
    reach.gaps[m], reach.least[m] = gap, most - gap
    return left


@inner
def _without_first(state, queries, m, near, reach, n, least):
    """Drop the chosen lists that the first round has reached, down to a nearness; return how many are left."""
    groups, limit, left = state.groups, reach.limit[0], np.int64(0)
    for i in range(n):
        place = reach.chosen[i]
        is_new = near[place] < least or _nearness(state, queries, m, place) < least
        if is_new or (limit < np.inf and reach.scan.apart[groups.list_of[place // TILE]] > limit):
            reach.chosen[left], reach.values[left] = place, reach.values[i]
            left += 1
    return left


@inner_called
def _score_tile(tiles, t, width, coded, block):
    """Write the scores of the ``t``-th of some tiles, whose codes have ``width`` features, for the rows of a block."""
    tiles, coded, block = by_reference(tiles), by_reference(coded), by_reference(block)
    return score_rows(
        tiles.codes,
        t * bytes_of_tile(width),
        tiles.numbers,
        t * 2 * TILE,
        coded.codes.shape[1] // FEATURES,
        coded.codes,
        coded.shifts,
        coded.factors,
        block.bars,
        block.together,
        block.scores,
    )


@inner
def _compare_centers(state, queries, coded, centers, share, block, reach, first, n):
    """Write upper bounds of the nearness of all lists for up to eight rows, and their errors."""
    width = state.lists.centers.shape[1]
    for r in range(ROWS):
        m = reach.rows[first + min(r, n - 1)]
        block.together[r], block.bars[r] = m, np.float32(np.inf)
        length = queries.lengths[m]
        block.errors[r] = error_of_row(queries, m, coded, share, centers.most)
        block.bases[r] = block.errors[r] - _HALF * length * length
    for t in range(state.groups.counts[N_TILES]):
        _score_tile(centers, t, width, coded, block)
        for r in range(n):
            for i in range(TILE):
                reach.near[r, t * TILE + i] = block.scores[r * TILE + i] + block.bases[r]


@inner
def _nearest_of(near, tiles, n_tiles):
    """Return the place with the highest bound."""
    best, value = np.int64(NONE), -np.float32(np.inf)
    for i in range(n_tiles):
        at = tiles[i] * TILE
        marks = marks_of(near, at, value)
        while marks != 0:
            place = at + first_of(marks)
            marks &= marks - 1
            if near[place] > value or best == NONE:
                best, value = place, near[place]
    return best


@inner
def _n_candidates(state, reach, n, counts):
    total = np.int64(0)
    for i in range(n):
        total += counts[state.groups.slots[reach.chosen[i]]]
    return total


@inner_called
def _reach_lists(arrays, queries, m, best, near, n_tiles, slack, reach, effort, mask, k, wider):
    """Write the lists that a row reaches, in any order; return their number.

    In the first round, ``wider`` is 0. In a second round, it is the gap for lists to search in addition.

    The lists have at least ``k`` members. With a mask, lists without allowed members are left out. If few members of
    the nearest lists are allowed, the best ``k`` of them are as far away as the best ``k / share`` members, and the gap
    is that of so many. ``best`` is the place with the highest bound in ``near``; see :func:`_within_gap`.
    """
    state, queries, reach = by_reference(arrays), by_reference(queries), by_reference(reach)
    effort, mask, groups, sizes = by_reference(effort), by_reference(mask), state.groups, state.lists.sizes
    is_masked, best_near, n_possible = mask.words.size > 0, near[best], state.lists.counts[N_LISTS]
    reach.gaps[m] = _LARGEST_GAP
    if is_masked:
        best_near, n_possible = -np.float32(np.inf), np.int64(0)
        for i in range(n_tiles):
            for place in range(reach.scan.tiles[i] * TILE, (reach.scan.tiles[i] + 1) * TILE):
                j = groups.slots[place]
                if j == NONE or mask.counts[j] == 0:
                    near[place] = -np.float32(np.inf)
                    continue
                n_possible += 1
                if near[place] > best_near:
                    best, best_near = np.int64(place), near[place]
        if n_possible == 0:
            return np.int64(0)
    if wider > np.float32(0.0):
        least = reach.least[m]
        n = _within_gap(state, queries, m, near, n_tiles, slack, reach, best, wider)
        return _without_first(state, queries, m, near, reach, n, least)
    gap = effort.gaps[_place_of(effort.ranks, np.float32(k))]
    n = _within_gap(state, queries, m, near, n_tiles, slack, reach, best, gap)
    if is_masked:
        n_members = _n_candidates(state, reach, n, sizes)
        wanted = np.float32(k) * np.float32(n_members) / np.float32(_n_candidates(state, reach, n, mask.counts))
        gap = effort.gaps[_place_of(effort.ranks, wanted)]
        n = _within_gap(state, queries, m, near, n_tiles, slack, reach, best, gap)
    while n < n_possible and _n_candidates(state, reach, n, mask.counts if is_masked else sizes) < k:
        gap = _WIDER * gap + _MIN_GAP
        n = _within_gap(state, queries, m, near, n_tiles, slack, reach, best, gap)
    return n


class Block(NamedTuple):
    """The lists that the rows of a block reach."""

    lists: np.ndarray  # int32: the lists of each row, row by row
    rows: np.ndarray  # int32: the row of each of them
    apart: np.ndarray  # float32: squared distances of a single row from their centers
    by_list: np.ndarray  # int32: the rows that reach each list, list by list
    stops: np.ndarray  # int64 (lists + 1,): the end of each list's rows
    scores: np.ndarray  # float32 (8 * 32,): scores, or upper bounds of them, of a tile for eight rows
    together: np.ndarray  # int64 (8,): these rows
    bases: np.ndarray  # float32 (8,): numbers to add to the scores
    errors: np.ndarray  # float32 (8,): bounds on their errors
    bars: np.ndarray  # float32 (8,): scores below which members are not among the best
    first: np.ndarray  # float32 (8, tiles * 32): scores of loaded tiles
    highest: np.ndarray  # float32 (tiles * 32,): scratch space for a bar


@inner_allocating
def _new_block(n_lists, n_reached):
    return Block(
        empty(n_reached, np.int32),
        empty(n_reached, np.int32),
        empty(n_lists, np.float32),
        empty(n_reached, np.int32),
        empty(n_lists + 1, np.int64),
        empty(ROWS * TILE, np.float32),
        empty(ROWS, np.int64),
        empty(ROWS, np.float32),
        empty(ROWS, np.float32),
        empty(ROWS, np.float32),
        empty((ROWS, TILES * TILE), np.float32),
        empty(TILES * TILE, np.float32),
    )


@inner_called
def _sort_lists(arrays, reach, n, block):
    """Write the chosen lists of a single row, sorted by their nearness in equal steps."""
    state, reach, block = by_reference(arrays), by_reference(reach), by_reference(block)
    most, least = -np.float32(np.inf), np.float32(np.inf)
    for i in range(n):
        most, least = max(most, reach.values[i]), min(least, reach.values[i])
    factor, stops = np.float32(_STEPS - 1) / max(most - least, _SHORTEST), reach.stops
    stops[:] = 0
    for i in range(n):
        stops[np.int64((most - reach.values[i]) * factor)] += 1
    total = np.int64(0)
    for i in range(_STEPS):
        total += stops[i]
        stops[i] = total - stops[i]
    for i in range(n):
        step = np.int64((most - reach.values[i]) * factor)
        block.lists[stops[step]] = state.groups.slots[reach.chosen[i]]
        block.apart[stops[step]] = _apart(state, reach.chosen[i], reach.values[i])
        stops[step] += 1


@inner
def _group_by_list(block, n):
    """Group the rows of a block by the lists that they reach."""
    stops = block.stops
    stops[:] = 0
    for i in range(n):
        stops[block.lists[i] + 1] += 1
    for j in range(1, stops.size):
        stops[j] += stops[j - 1]
    for i in range(n):
        j = block.lists[i]
        block.by_list[stops[j]] = block.rows[i]
        stops[j] += 1


@inner
def _search_lists(state, x, n, queries, ranking, block, epsilon, mask, scores, ids):
    """Search the ``n`` lists that a single row reaches, nearest first."""
    lists, width = state.lists, queries.rotated.shape[1]
    words = width // BITS_OF_A_WORD
    for i in range(n):
        tile, apart = lists.heads[block.lists[i]], block.apart[i]
        base, error = (ROUNDING - _HALF) * apart, error_of(apart, queries.steps[0], width, np.float32(epsilon))
        while tile != NONE:
            after = lists.nexts[tile]
            coming = after if after != NONE or i + 1 == n else lists.heads[block.lists[i + 1]]
            _prefetch_tile(lists, coming, words)
            _scan_tile(state, x, queries, 0, ranking, block.scores, tile, base, error, mask, scores, ids)
            tile = after


@inner
def _set_bar(ranking, block, r):
    """Set the bar of a row for the scores of loaded tiles."""
    bar, error = ranking.bars[block.together[r]] - block.bases[r], block.errors[r]
    block.bars[r] = max(bar - error, LEAST) if error < np.inf else LEAST  # scores of free places are lower


@inner
def _take_marked(state, Q, first, queries, loaded, t, ranking, block, r, mask, scores, ids):
    """Keep the members of the ``t``-th loaded tile whose scores reach the bar of the ``r``-th of eight rows."""
    m, at = block.together[r], r * TILE
    marks = marks_of(block.scores, at, block.bars[r])
    while marks != 0:
        i = first_of(marks)
        marks &= marks - 1
        slot, value = state.lists.slots[loaded.places[t * TILE + i]], block.scores[at + i]
        if value < block.bars[r] or (mask.words.size > 0 and not _is_allowed(mask, slot)):
            continue
        row, value = first + m, value + block.bases[r]
        keep_member(state, Q[row], queries, m, ranking, slot, value, block.errors[r], scores[row], ids[row])
        _set_bar(ranking, block, r)


@inner
def _choose_rows(queries, coded, most, ranking, block, begin, stop):
    """Choose the first eight rows in ``block.by_list[begin:stop]``, or fewer, to be compared with loaded tiles."""
    for r in range(ROWS):
        m = np.int64(block.by_list[min(begin + r, stop - 1)])
        block.together[r] = m
        if begin + r >= stop:  # a copy of the last row
            block.bars[r] = np.float32(np.inf)
            continue
        length = queries.lengths[m]
        block.bases[r] = -_HALF * length * length
        block.errors[r] = error_of_row(queries, m, coded, ranking.shares[m], most)
        _set_bar(ranking, block, r)


@inner
def _set_first_bars(loaded, n_tiles, width, coded, ranking, block):
    """Set the bars of rows that have none by the scores of loaded tiles."""
    is_needed = False
    for r in range(ROWS):
        is_needed |= ranking.bars[block.together[r]] == LEAST and block.bars[r] < np.inf
    if not is_needed:
        return
    for t in range(n_tiles):
        _score_tile(loaded, t, width, coded, block)
        for r in range(ROWS):
            copy_values(block.scores[r * TILE : (r + 1) * TILE], block.first[r, t * TILE :])
    for r in range(ROWS):
        m = block.together[r]
        if ranking.bars[m] == LEAST and block.bars[r] < np.inf:
            low = low_bar(block.first[r], n_tiles * TILE, ranking.floors.shape[1], block.highest)
            if low > LEAST:
                ranking.bars[m] = max(LEAST, low + block.bases[r] - block.errors[r])
                _set_bar(ranking, block, r)


@inner
def _compare_loaded(state, Q, first, queries, coded, loaded, n_tiles, ranking, block, begin, stop, mask, scores, ids):
    """Compare loaded tiles with the rows in ``block.by_list[begin:stop]``."""
    width = state.lists.codes.shape[1]
    for group in range(begin, stop, ROWS):
        _choose_rows(queries, coded, loaded.most, ranking, block, group, stop)
        if mask.words.size == 0 and ranking.floors.shape[1] >= _MIN_K:
            _set_first_bars(loaded, n_tiles, width, coded, ranking, block)
        for t in range(n_tiles):
            marks = _score_tile(loaded, t, width, coded, block)
            while marks != 0:
                r = first_of(marks)
                marks &= marks - 1
                _take_marked(state, Q, first, queries, loaded, t, ranking, block, r, mask, scores, ids)


@inner
def _search_together(state, Q, first, queries, coded, loaded, ranking, block, mask, scores, ids):
    """Search the lists that the rows of a block reach. The rows of a list share its codes."""
    lists, stops, stop = state.lists, block.stops, np.int64(0)
    for j in range(stops.size - 1):
        begin, stop, following = stop, stops[j], j + 1
        if begin == stop:
            continue
        while following < stops.size - 1 and stops[following] == stop:
            following += 1
        tile = lists.heads[j]
        while tile != NONE:
            n = np.int64(0)
            while tile != NONE and n < TILES:
                after = lists.nexts[tile]
                coming = after if after != NONE or following == stops.size - 1 else lists.heads[following]
                _prefetch_codes(lists, coming)
                for i in range(TILE):
                    loaded.places[n * TILE + i] = tile * TILE + i
                load_tile(state, loaded, n)
                n += 1
                tile = after
            _compare_loaded(state, Q, first, queries, coded, loaded, n, ranking, block, begin, stop, mask, scores, ids)


@inner
def _compare_together(state, Q, first, n_rows, slots, queries, coded, loaded, ranking, block, mask, scores, ids):
    """Compare the vectors in slots with the rows of a block, which share their codes."""
    for m in range(n_rows):
        block.by_list[m] = m
    for begin in range(0, slots.size, TILES * TILE):
        n_tiles = np.int64(0)
        for at in range(begin, min(begin + TILES * TILE, slots.size), TILE):
            for i in range(TILE):
                place = np.int64(NONE)
                if at + i < slots.size:
                    place = np.int64(state.lists.places[slots[at + i]])
                    prefetch_code(state.lists, place)
                loaded.places[n_tiles * TILE + i] = place
            n_tiles += 1
        for t in range(n_tiles):
            load_tile(state, loaded, t)
        _compare_loaded(state, Q, first, queries, coded, loaded, n_tiles, ranking, block, 0, n_rows, mask, scores, ids)


@inner
def _code_for_batch(state, x, queries, m, coded):
    """Write the forms of a row that batches need, and its codes; return whether it is too long."""
    is_far = rotate_query(state, x, queries, m, usual_length(state))
    code_row(coded_values(queries, m).values, queries.lengths[m], is_far, m, coded)
    return is_far


@inner
def _rows_of_block(n_rows, k):
    """Return the number of rows in a block."""
    return max(1, min(n_rows, _MAX_ROWS, _KEPT_AT_ONCE // k))


@kernel
def search_one_by_one(arrays, Q, first, stop, effort, mask, scores, ids):
    """Write the best vectors for a range of rows, each of which is searched alone.

    ``mask`` is a :class:`Mask` as a plain tuple, because a call with a named tuple takes three microseconds longer.
    """
    state, effort, mask = by_reference(arrays), by_reference(effort), by_reference(Mask(*mask))
    groups, k, n_lists = state.groups, ids.shape[1], state.lists.counts[N_LISTS]
    queries = by_reference(new_queries(1, Q.shape[1], state.signs.shape[1]))
    ranking, block = by_reference(new_ranking(1, k)), by_reference(_new_block(n_lists, n_lists))
    reach = by_reference(_new_reach(1, n_lists, groups.sizes.size, groups.counts[N_TILES]))
    is_limited = mask.words.size == 0 and k <= NEAR_GROUPS and state.totals[METRIC] != INNER_PRODUCT
    for row in range(first, stop):
        x, best_scores, best_ids = Q[row], scores[row], ids[row]
        best_ids[:], best_scores[:] = NONE, -np.inf
        begin_row(ranking, 0, share_of_errors(queries.shorts.shape[1]))
        code_query(state, x, queries, 0, usual_length(state))
        near, wider, best, n_tiles = reach.near[0], np.float32(0.0), np.int64(NONE), np.int64(0)
        n_groups = np.int64(effort.n_groups) if is_limited else groups.counts[N_LISTS]
        reach.limit[0] = np.float32(np.inf)
        for turn in range(2):
            if turn == 0 or reach.limit[0] < np.inf:
                best, n_tiles = estimate_near(state, queries, 0, _ONE, _SURE, n_groups, reach.scan, near)
            n = _reach_lists(
                state,
                queries,
                0,
                best,
                near,
                n_tiles,
                np.float32(np.inf),
                reach,
                effort,
                mask,
                k,
                wider,
            )
            _sort_lists(state, reach, n, block)
            _search_lists(state, x, n, queries, ranking, block, effort.epsilon, mask, best_scores, best_ids)
            compare_waiting(state, x, queries, 0, ranking, best_scores, best_ids)
            wider = _wider_gap(state, effort, reach, ranking, 0, k)
            if wider == np.float32(0.0):
                break
            if n_groups < groups.counts[N_LISTS]:
                reach.limit[0] = -reach.scan.values[0]
                n_groups = groups.counts[N_LISTS]
        finish_row(state, x, queries, 0, ranking, best_scores, best_ids)
    release((queries, ranking, reach, block))


@inner
def _rows_to_widen(state, effort, reach, ranking, n_rows, k):
    """Write the rows that need a second round; return their number."""
    n = np.int64(0)
    for m in range(n_rows):
        if _wider_gap(state, effort, reach, ranking, m, k) > np.float32(0.0):
            reach.rows[n] = m
            n += 1
    return n


@inner_called
def _reach_together(arrays, queries, coded, centers, first, n_rows, ranking, reach, block, effort, mask, k, turn):
    """Write the lists that ``reach.rows[first:n_rows]`` reach, as long as there is room; return the first without room.

    ``block.stops[0]`` is the number of lists written.
    """
    state, queries, ranking = by_reference(arrays), by_reference(queries), by_reference(ranking)
    coded, centers = by_reference(coded), by_reference(centers)
    reach, block, effort, mask = by_reference(reach), by_reference(block), by_reference(effort), by_reference(mask)
    groups, width, total, at = state.groups, state.lists.centers.shape[1], np.int64(0), first
    n_tiles, n_lists = groups.counts[N_TILES], state.lists.counts[N_LISTS]
    while at < n_rows and total + ROWS * n_lists <= block.lists.size:
        n = min(ROWS, n_rows - at)
        _compare_centers(state, queries, coded, centers, share_of_errors(width), block, reach, at, n)
        for r in range(n):
            near, m, wider = reach.near[r], reach.rows[at + r], np.float32(0.0)
            best = _nearest_of(near, reach.scan.tiles, n_tiles)
            if turn > 0:
                wider = _wider_gap(state, effort, reach, ranking, m, k)
            slack = block.errors[r]
            reached = _reach_lists(state, queries, m, best, near, n_tiles, slack, reach, effort, mask, k, wider)
            for i in range(reached):
                block.lists[total], block.rows[total] = groups.slots[reach.chosen[i]], m
                total += 1
        at += n
    block.stops[0] = total
    return at


@kernel
def search_together(arrays, Q, first, stop, effort, mask, scores, ids):
    """Write the best vectors for a range of rows, which share the codes of lists; see :func:`search_one_by_one`."""
    state, effort, mask = by_reference(arrays), by_reference(effort), by_reference(Mask(*mask))
    groups, n_lists = state.groups, state.lists.counts[N_LISTS]
    n_tiles, k, width = groups.counts[N_TILES], ids.shape[1], state.signs.shape[1]
    most = _rows_of_block(stop - first, k)
    queries = by_reference(new_queries(most, Q.shape[1], width))
    n_codes = queries.shorts.shape[1]
    share, n_reached = share_of_errors(n_codes), max(min(_REACHED_AT_ONCE, most * n_lists), ROWS * n_lists)
    coded, loaded = by_reference(new_row_codes(most, n_codes)), by_reference(new_tiles(n_codes, TILES))
    rotated, centers = by_reference(new_row_codes(most, width)), by_reference(new_tiles(width, n_tiles))
    by_center = coded if n_codes == width else rotated
    load_centers(state, centers)
    ranking, block = by_reference(new_ranking(most, k)), by_reference(_new_block(n_lists, n_reached))
    reach = by_reference(_new_reach(most, n_lists, groups.sizes.size, n_tiles))
    reach.limit[0] = np.float32(np.inf)
    for i in range(n_tiles):
        reach.scan.tiles[i] = i
    for begin in range(first, stop, most):
        n_rows = min(most, stop - begin)
        for m in range(n_rows):
            row = begin + m
            begin_row(ranking, m, share)
            reach.rows[m], ids[row, :], scores[row, :] = m, NONE, -np.inf
            is_far = _code_for_batch(state, Q[row], queries, m, coded)
            if n_codes != width:
                code_row(queries.rotated[m], queries.lengths[m], is_far, m, rotated)
        for turn in range(2):
            n_done, n_reaching = np.int64(0), np.int64(n_rows)
            if turn > 0:
                n_reaching = _rows_to_widen(state, effort, reach, ranking, n_rows, k)
            while n_done < n_reaching:
                n_done = _reach_together(
                    state,
                    queries,
                    by_center,
                    centers,
                    n_done,
                    n_reaching,
                    ranking,
                    reach,
                    block,
                    effort,
                    mask,
                    k,
                    turn,
                )
                _group_by_list(block, block.stops[0])
                _search_together(state, Q, begin, queries, coded, loaded, ranking, block, mask, scores, ids)
        for m in range(n_rows):
            row = begin + m
            finish_row(state, Q[row], queries, m, ranking, scores[row], ids[row])
    release((queries, coded, loaded, rotated, centers, ranking, reach, block))


@kernel
def compare_slots(arrays, Q, first, stop, choice, mask, scores, ids):
    """Write the best of the chosen vectors for a range of rows. Several rows share the codes that they read."""
    state, k, slots, together = by_reference(arrays), ids.shape[1], choice.slots, Q.shape[0] > 1
    most = _rows_of_block(stop - first, k) if together else 1
    queries = by_reference(new_queries(most, Q.shape[1], state.signs.shape[1]))
    n_codes, mask = queries.shorts.shape[1], by_reference(mask)
    coded, loaded = by_reference(new_row_codes(most, n_codes)), by_reference(new_tiles(n_codes, TILES))
    ranking, block = by_reference(new_ranking(most, k)), by_reference(_new_block(0, most))
    share = _ONE if choice.is_exact else share_of_errors(n_codes)
    while first < stop:
        n_rows = min(most, stop - first)
        for m in range(n_rows):
            row = first + m
            begin_row(ranking, m, share)
            ids[row, :], scores[row, :] = NONE, -np.inf
            if together:
                _code_for_batch(state, Q[row], queries, m, coded)
                continue
            code_query(state, Q[row], queries, m, usual_length(state))
            for i in range(slots.size):
                place, upper = np.int64(state.lists.places[slots[i]]), np.float32(np.inf)
                let_wait(state, Q[row], queries, m, ranking, place, upper, scores[row], ids[row])
        if together:
            _compare_together(state, Q, first, n_rows, slots, queries, coded, loaded, ranking, block, mask, scores, ids)
        for m in range(n_rows):
            row = first + m
            finish_row(state, Q[row], queries, m, ranking, scores[row], ids[row])
        first += n_rows
    release((queries, coded, loaded, ranking, block))


@kernel
def count_allowed(arrays, slots, mask):
    """Write the mask of the allowed slots."""
    state = by_reference(arrays)
    mask.words[:] = np.uint64(0)
    mask.counts[:] = 0
    for i in range(slots.size):
        slot = slots[i]
        mask.words[slot >> 6] |= np.uint64(1) << np.uint64(slot & 63)
        if state.totals[N_LISTED] > 0:
            mask.counts[state.lists.list_of[state.lists.places[slot] // TILE]] += 1

"""Kernels: the members found so far for rows, and the last two stages of their comparison."""

from typing import NamedTuple

import numpy as np

from .._jit import TILE, by_reference, empty, inner, inner_allocating, inner_called, inner_fastmath, prefetch
from .._kernels import keep_best, sort_best_first
from .codes import distance64, dot64, dot_codes
from .lists import ROUNDING, vector_of
from .state import COSINE, EUCLIDEAN, INNER_PRODUCT, METRIC, SCALE

_WAITING = 64  # number of members that wait for the comparison of their 8-bit codes
_FLOATS_IN_A_LINE, _BYTES_IN_A_LINE = 16, 64
_PREFETCHED = 256  # number of features of a vector to prefetch
_TWO, _HALF = np.float32(2.0), np.float32(0.5)
_TINY = 1e-300  # the cosine of a zero vector is 0
_SHORTEST = np.float32(1e-30)
LEAST = np.float32(-3e38)
"""A bar below the scores of all members. The scores of free places are lower."""


class Ranking(NamedTuple):
    """The members found so far for the rows of a block."""

    shares: np.ndarray  # float32 (m,): the part of the largest errors of 8-bit codes that bounds allow for
    bars: np.ndarray  # float32 (m,): no member with a lower score is among the best
    floors: np.ndarray  # float32 (m, k): heaps of the highest lower bounds by 8-bit codes
    nearest: np.ndarray  # float32 (m,): the highest of these bounds, for inner products that of the smallest angle
    waiting: np.ndarray  # int32 (m, 64): places
    their_uppers: np.ndarray  # float32 (m, 64)
    n_waiting: np.ndarray  # int64 (m,)
    kept: np.ndarray  # int32 (m, n): slots
    kept_uppers: np.ndarray  # float32 (m, n)
    n_kept: np.ndarray  # int64 (m,)


@inner_allocating
def new_ranking(m, k):
    n = 4 * k + 2 * _WAITING
    return Ranking(
        empty(m, np.float32),
        empty(m, np.float32),
        empty((m, k), np.float32),
        empty(m, np.float32),
        empty((m, _WAITING), np.int32),
        empty((m, _WAITING), np.float32),
        empty(m, np.int64),
        empty((m, n), np.int32),
        empty((m, n), np.float32),
        empty(m, np.int64),
    )


@inner
def begin_row(ranking, m, share):
    ranking.shares[m], ranking.nearest[m] = share, LEAST
    ranking.bars[m], ranking.n_waiting[m], ranking.n_kept[m] = LEAST, 0, 0
    ranking.floors[m, :] = LEAST


@inner
def _raise_floor(floors, value):
    """Replace the lowest of the floors, a heap with the lowest at the root."""
    n, i = floors.size, 0
    while True:
        child = 2 * i + 1
        if child >= n:
            break
        if child + 1 < n and floors[child + 1] < floors[child]:
            child += 1
        if floors[child] >= value:
            break
        floors[i] = floors[child]
        i = child
    floors[i] = value


@inner_called
def low_bar(values, n, k, highest):
    """Return a number that at least ``k`` of the first ``n`` values reach, and few more; LEAST if there is none.

    It is the ``k``-th highest of the maxima of about ``2 * k`` parts of the values, with ``highest`` as scratch space.
    """
    n_parts = min(n, np.int64(TILE) * -(-2 * k // TILE))
    highest[:n_parts] = -np.float32(np.inf)
    for at in range(0, n, n_parts):
        some = values[at : min(at + n_parts, n)]  # without ``at + i``, LLVM uses vector instructions
        for i in range(some.size):
            highest[i] = some[i] if some[i] > highest[i] else highest[i]
    bar = LEAST
    for i in range(n_parts):
        n_above = np.int32(0)
        for j in range(n_parts):
            n_above = np.int32(n_above + np.int32(highest[j] >= highest[i]))
        bar = max(bar, highest[i] if n_above >= k else bar)
    return bar


@inner_fastmath
def _product_and_square(x, y):
    product, square = np.float64(0.0), np.float64(0.0)
    for i in range(x.size):
        value = np.float64(y[i])
        product += np.float64(x[i]) * value
        square += value * value
    return product, square


@inner
def exact_score(metric, x, y, length):
    """Return the score of a vector for a query of a given length."""
    if metric == EUCLIDEAN:
        return -np.sqrt(distance64(x, y))
    if metric == INNER_PRODUCT:
        return dot64(x, y)
    product, square = _product_and_square(x, y)
    return product / max(length * np.sqrt(square), _TINY)


@inner
def _bar_of(state, x_length, queries, m, score):
    """Convert an exact score to the scale of codes, rounded down."""
    scale, length = state.numbers[SCALE], np.float64(queries.lengths[m])
    if state.totals[METRIC] == INNER_PRODUCT:
        bar = score * scale * (length / x_length if x_length > 0.0 else 0.0)
        return np.float32(bar - 0.5 * length * length - 1e-6 * (abs(bar) + length * length))
    apart = np.sqrt(max(2.0 - 2.0 * score, 0.0)) if state.totals[METRIC] == COSINE else -score * scale
    return np.float32(-0.5 * apart * apart - 1e-6 * apart * (apart + length) - 1e-30)


@inner_called
def _settle(arrays, x, queries, m, ranking, scores, ids):
    """Compute the exact scores of the kept members that may be among the best; if they are many, best first."""
    state, queries, ranking = by_reference(arrays), by_reference(queries), by_reference(ranking)
    kept, uppers, bar, n = ranking.kept[m], ranking.kept_uppers[m], ranking.bars[m], np.int64(0)
    are_many = 2 * ranking.n_kept[m] > 3 * scores.size  # otherwise sorting takes longer than it saves
    for entry in range(ranking.n_kept[m]):
        slot, upper = kept[entry], uppers[entry]
        if upper < bar:
            continue
        vector = vector_of(state.vectors, np.int64(slot)).values
        for f in range(0, min(vector.size, _PREFETCHED), _FLOATS_IN_A_LINE):
            prefetch(vector, f)
        i = n
        while are_many and i > 0 and uppers[i - 1] < upper:
            uppers[i], kept[i] = uppers[i - 1], kept[i - 1]
            i -= 1
        uppers[i], kept[i] = upper, slot
        n += 1
    metric, length = state.totals[METRIC], np.sqrt(dot64(x, x))
    for entry in range(n):
        if uppers[entry] < bar:
            continue
        slot = np.int64(kept[entry])
        score = exact_score(metric, x, vector_of(state.vectors, slot).values, length)
        keep_best(scores, ids, score, state.vectors.ids[slot])
        if scores[0] > -np.inf:
            bar = max(bar, _bar_of(state, length, queries, m, scores[0]))
    ranking.bars[m], ranking.n_kept[m] = bar, 0


@inner
def _by_angle(lists, slot, length, score):
    """Return the score of a vector if it were as long as the query."""
    product = score + _HALF * length * length
    own = np.sqrt(_TWO * lists.lifts[lists.places[slot]])
    return length * (product / max(own, _SHORTEST) - length)


@inner
def keep_member(state, x, queries, m, ranking, slot, value, error, scores, ids):
    """Raise the bar by the lower bound of a member's score, and keep the member until its vector is compared."""
    floors, least = ranking.floors[m], value - error
    if least > floors[0]:
        _raise_floor(floors, least)
        ranking.bars[m] = max(ranking.bars[m], floors[0])
    if state.totals[METRIC] == INNER_PRODUCT:
        least = _by_angle(state.lists, slot, queries.lengths[m], least)
    ranking.nearest[m] = max(ranking.nearest[m], least)
    if ranking.n_kept[m] == ranking.kept.shape[1]:
        _settle(state, x, queries, m, ranking, scores, ids)
    n = ranking.n_kept[m]
    ranking.kept[m, n], ranking.kept_uppers[m, n] = slot, value + error
    ranking.n_kept[m] = n + 1


@inner
def _compare(state, x, queries, m, ranking, place, scores, ids):
    """Compare the 8-bit code of a member, and keep the member if it may be among the best."""
    lists = state.lists
    length, lift = queries.lengths[m], lists.lifts[place]
    less = _HALF * length * length
    value = queries.scales[m] * lists.scales[place] * dot_codes(queries.shorts[m], lists.codes[place])
    error = length * lists.errors[place] + queries.errors[m] * np.sqrt(_TWO * lift)
    error = ranking.shares[m] * error + ROUNDING * (less + lift)
    if not error < np.inf:  # NaN if an infinite error is multiplied by 0
        error = np.float32(np.inf)
    value -= less + lift if state.totals[METRIC] != INNER_PRODUCT else less
    if value + error >= ranking.bars[m]:
        keep_member(state, x, queries, m, ranking, lists.slots[place], value, error, scores, ids)


@inner_called
def compare_waiting(arrays, x, queries, m, ranking, scores, ids):
    """Compare the 8-bit codes of the waiting members that may be among the best."""
    state, queries, ranking = by_reference(arrays), by_reference(queries), by_reference(ranking)
    for i in range(ranking.n_waiting[m]):
        if ranking.their_uppers[m, i] >= ranking.bars[m]:
            _compare(state, x, queries, m, ranking, np.int64(ranking.waiting[m, i]), scores, ids)
    ranking.n_waiting[m] = 0


@inner
def prefetch_code(lists, place):
    codes = lists.codes[place]
    for f in range(0, codes.size, _BYTES_IN_A_LINE):
        prefetch(codes, f)


@inner
def let_wait(state, x, queries, m, ranking, place, upper, scores, ids):
    """Let a member wait for the comparison of its 8-bit code, which is prefetched."""
    if ranking.n_waiting[m] == _WAITING:
        compare_waiting(state, x, queries, m, ranking, scores, ids)
    n = ranking.n_waiting[m]
    ranking.waiting[m, n], ranking.their_uppers[m, n] = place, upper
    ranking.n_waiting[m] = n + 1
    prefetch_code(state.lists, place)


@inner
def finish_row(state, x, queries, m, ranking, scores, ids):
    compare_waiting(state, x, queries, m, ranking, scores, ids)
    _settle(state, x, queries, m, ranking, scores, ids)
    sort_best_first(scores, ids)

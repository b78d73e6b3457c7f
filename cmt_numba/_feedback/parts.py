"""Kernels: the parts of the reward that is expected for a memory, and its score.

All parts are computed from unit-length queries and keys. The reward of a memory is a sum of weighted parts. These
belong to the static model, the null hypothesis:

- CONSTANT is 1, BEST the largest similarity of a candidate, and SIMILAR the similarity of the memory minus BEST.
- QUERY is the mean advantage of all other memories for similar past queries. The advantages of the memory itself are
  left to the learned parts. The weight of QUERY is never negative: a negative one would tell the static model which
  memory is good, because the others earn less.
- SECOND to LATER are 1 at one place of the list of results. Later places may only lower a reward.

The others are learned, and rank memories if they have proved to predict rewards better than the static model. An
*advantage* is a reward minus what the static model expects for the query, the place and the similarity.

- MAPPED is a bilinear form of query and key, and DIAGONAL one with a weight for each feature (the scorer of the paper).
- VOTE is the mean advantage of the memory for similar past queries, BROAD the same with a wider kernel.
- VALUE is the mean advantage of the memory.
- MOVED is the gain in similarity of a key that moves towards queries with advantages (Rocchio, 1971).
- FRESH, for a memory without rewards, is 0.85 times the largest reward of less similar memories by parts that need
  rewards. VOTE counts in proportion to its uncertainty, the share of advantages of 0 in its mean. Without FRESH,
  memories that arrive late would never be shown.

The means VOTE, BROAD and VALUE are shrunk towards 0 as if there were a number of further advantages of 0: the variance
of a reward divided by that of a memory's true advantage, less 1 (empirical Bayes; Morris, 1983, "Parametric empirical
Bayes inference"). The product of two advantages of a memory is on average the variance of its true advantage, times the
kernel of their queries.

A score is the similarity plus the learned parts, in units of the similarity. Without rewards they are 0.
"""

from typing import NamedTuple

import numpy as np

from .._index import copy_values, dot_codes, vector_of
from .._jit import by_reference, empty, inner, inner_allocating, inner_fastmath, kernel, prefetch, release
from .._kernels import NONE, dot, find_slot, keep_best, sort_best_first
from . import state as states
from .rows import add_distinct, code_shorts, prefetch_row, read_key

_EXACT, _ROUNDING = 1.0 - 1e-5, np.float32(2e-6)  # bounds for a memory with the very key of the query
_FOR_EXACT = 1e4  # advantage of such a memory
_LEAST_SQUARE, _MOST_SQUARE = 1e-24, 1e24  # squares of float32 numbers are precise in between
_PER_DISTANCE = 1e5  # the advantage ends at a similarity of 1 - 1e-5
_BYTES_IN_A_LINE = 64
_WIDE, _SHARPER = 3.5, 2  # sharpness of the kernel of BROAD, and the power of it that VOTE uses
_PRIORS = (0.1, 1.0, 3.0)  # numbers of advantages of 0 in the means of VOTE, BROAD and VALUE before the first reward
_PRIOR_QUERIES = 1.0  # the same for QUERY
_FIRST_PAIRS = 10.0  # number of pairs of advantages that count as much as _PRIORS
_LEAST_PRIOR, _MOST_PRIOR = 0.1, 1000.0
_OPTIMISM = 0.85
_LARGEST_SHORT, _TINY = np.float32(4095.0), 1e-12
LEAST_SLOPE, FIRST_SLOPE = 0.5, 1.5  # least weights of the similarity, in standard deviations of rewards
LEAST_DEVIATION = 0.15
_FARTHEST = -1.0  # least value of SIMILAR and BEST in a regression


class Forms(NamedTuple):
    """The forms of a query in which it is multiplied."""

    weighted: np.ndarray  # float32 (width,): the query times the weights of features
    shorts: np.ndarray  # int16 (width,): codes of the query, which are multiplied with those of past queries
    step: np.ndarray  # float32 (1,): their factor


@inner_allocating
def new_forms(width):
    """Return scratch space for queries of this width."""
    return Forms(empty(width, np.float32), empty(width, np.int16), empty(1, np.float32))


@inner
def find_rows(learned, table, ids, rows):
    """Write the rows of candidates, and prefetch what memories have learned."""
    for i in range(ids.size):
        own = find_slot(table, ids[i])
        rows[i] = own
        if own >= 0:
            prefetch(learned.past_of[own], 0)
            prefetch(learned.figures[own], 0)
            prefetch_row(learned.moved[own])


@inner
def _prefetch_past(learned, own):
    """Prefetch the past queries of a memory."""
    for j in range(min(learned.n_past[own], learned.past_of.shape[1]) if own >= 0 else 0):
        if learned.past_of[own, j] >= 0:
            place = np.int64(learned.past_of[own, j])
            prefetch(learned.past_scales, place)
            prefetch(learned.past_advantages, place)
            codes = learned.past[place]
            for at in range(0, codes.size, _BYTES_IN_A_LINE):
                prefetch(codes, at)


@inner_fastmath
def _weigh_features(weights, query, weighted):
    for j in range(query.size):
        weighted[j] = weights[j] * query[j]


@inner
def write_forms(learned, query, forms):
    """Write the forms of a query."""
    _weigh_features(learned.diagonal[0], query, forms.weighted)
    forms.step[0] = code_shorts(query, _LARGEST_SHORT, forms.shorts)


@inner_fastmath
def _products(query, mapped, weighted, key):
    """Return the products of a key with the query, the mapped query, the weighted query, and the key itself."""
    similar, by_map, by_feature, square = np.float32(0.0), np.float32(0.0), np.float32(0.0), np.float32(0.0)
    for start in range(0, key.size, mapped.size):
        end = start + mapped.size
        values, of_query, of_weighted = key[start:end], query[start:end], weighted[start:end]
        for j in range(mapped.size):
            similar += of_query[j] * values[j]
            by_map += mapped[j] * values[j]
            by_feature += of_weighted[j] * values[j]
            square += values[j] * values[j]
    return np.float64(similar), np.float64(by_map), np.float64(by_feature), np.float64(square)


@inner
def multiply_key(query, mapped, forms, key, parts):
    """Write the parts of a memory that are products with its key, scaled to unit length. MOVED gets minus the cosine.

    Return whether the square of the key's length can be computed in float32. Otherwise, the parts are 0.
    """
    similar, by_map, by_feature, square = _products(query, mapped, forms.weighted, key)
    is_safe = _LEAST_SQUARE < square < _MOST_SQUARE
    parts[:] = 0.0
    if is_safe:
        factor = 1.0 / np.sqrt(square)
        parts[states.MAPPED], parts[states.DIAGONAL] = factor * by_map, factor * by_feature
        parts[states.MOVED] = -factor * similar
    return is_safe


@inner
def multiply_keys(query, mapped, forms, keys, similarities, parts):
    """Write the parts of memories that are products with their keys, and the unknown similarities."""
    for i in range(similarities.size):
        multiply_key(query, mapped, forms, keys[i], parts[i])
        if np.isnan(similarities[i]):
            similarities[i] = -parts[i, states.MOVED]


@inner
def _is_key(query, key):
    """Return whether a unit-length query equals a key up to rounding."""
    i = 0
    while i < key.size and abs(query[i] - key[i]) <= _ROUNDING:
        i += 1
    return i == key.size


@inner
def _sum_past(learned, own, forms, sums):
    """Add the past queries of a memory to the columns of sums, which are 0."""
    for j in range(min(learned.n_past[own], learned.past_of.shape[1])):
        place = np.int64(learned.past_of[own, j])
        if place < 0:
            continue
        near = np.float64(forms.step[0] * learned.past_scales[place] * dot_codes(forms.shorts, learned.past[place]))
        kernel, advantage = np.exp(_WIDE * (min(near, 1.0) - 1.0)), np.float64(learned.past_advantages[place])
        sums[states.WIDE] += kernel * advantage
        sums[states.N_WIDE] += kernel
        kernel **= _SHARPER
        sums[states.SHARP] += kernel * advantage
        sums[states.N_SHARP] += kernel
        sums[states.WIDE_PAIRS] += kernel  # the square of the wide kernel
        sums[states.SHARP_PAIRS] += kernel * kernel


@inner
def _prior(learned, which):
    """Return the number of advantages of 0 in the mean of one of ``PAIRED_PARTS``."""
    products, n_pairs = learned.pairs[which, states.PRODUCTS], learned.pairs[which, states.PAIRS]
    variance = learned.totals[states.SQUARES] / learned.totals[states.N_SQUARES]
    signal = (products + _FIRST_PAIRS * variance / (1.0 + _PRIORS[which])) / (n_pairs + _FIRST_PAIRS)
    return min(max(variance / max(signal, _TINY) - 1.0, _LEAST_PRIOR), _MOST_PRIOR)


@inner
def _best_general(similarities, parts, fresh, m):
    """Return the largest reward by parts that need rewards, of memories that are at most as similar as a fresh one."""
    most, similarity = 0.0, similarities[fresh]
    for i in range(m):
        if similarities[i] <= similarity:
            most = max(most, parts[i, states.GENERAL])
    return most


@inner
def describe(learned, query, rows, ids, similarities, forms, parts):
    """Complete the parts that :func:`multiply_key` has written for all candidates of a query, and write sums.

    Missing candidates have no parts. Places are not written.
    """
    figures, weights = learned.figures, learned.weights[states.LEARNED]
    most, m, sharp, total = -np.inf, ids.size, 0.0, 0.0
    of_votes, of_broad, of_value = _prior(learned, 0), _prior(learned, 1), _prior(learned, 2)
    for i in range(m):
        own, given = rows[i], parts[i]
        _prefetch_past(learned, rows[min(i + 1, m - 1)])
        if ids[i] == NONE:
            similarities[i], given[:] = -np.inf, 0.0
            continue
        given[states.CONSTANT], most = 1.0, max(most, similarities[i])
        if own < 0:
            given[states.MOVED] = 0.0
            continue
        given[states.VALUE] = figures[own, states.ADVANTAGE] / (figures[own, states.TRIALS] + of_value)
        moved = dot(query, np.int64(0), learned.moved[own], np.int64(0), query.size)
        given[states.MOVED] += np.float64(moved)
        _sum_past(learned, own, forms, given)
        given[states.VOTE] = given[states.SHARP] / (given[states.N_SHARP] + of_votes)
        given[states.BROAD] = given[states.WIDE] / (given[states.N_WIDE] + of_broad)
        uncertain = of_votes / (given[states.N_SHARP] + of_votes)
        given[states.GENERAL] = uncertain * weights[states.VOTE] * given[states.VOTE]
        for j in range(states.BROAD, states.MOVED + 1):
            given[states.GENERAL] += weights[j] * given[j]
        sharp, total = sharp + given[states.SHARP], total + given[states.N_SHARP]
    for i in range(m):
        if parts[i, states.CONSTANT] != 0.0:
            parts[i, states.BEST] = max(most, _FARTHEST)
            parts[i, states.SIMILAR] = max(similarities[i] - most, _FARTHEST)
            n_of_others = total - parts[i, states.N_SHARP] + _PRIOR_QUERIES
            parts[i, states.QUERY] = (sharp - parts[i, states.SHARP]) / n_of_others
            if rows[i] < 0:
                parts[i, states.FRESH] = _OPTIMISM * _best_general(similarities, parts, i, m)


@inner
def deviation_of(totals):
    """Return the standard deviation of rewards that the static model predicts."""
    return max(np.sqrt(totals[states.SQUARES] / totals[states.N_SQUARES]), LEAST_DEVIATION)


@inner
def slope(learned):
    """Return the weight of the similarity by which learned parts are divided.

    It is at least a number of standard deviations, which is larger as long as few rewards have shown the weight.
    """
    least = LEAST_SLOPE + FIRST_SLOPE / learned.precision[states.LEARNED, states.SIMILAR, states.SIMILAR]
    return max(learned.weights[states.LEARNED, states.SIMILAR], least * deviation_of(learned.totals))


@inner
def expected_reward(weights, parts, n):
    """Return the reward that the first ``n`` parts predict."""
    total = 0.0
    for j in range(n):
        total += weights[j] * parts[j]
    return min(max(total, 0.0), 1.0)


@inner
def score(weights, divisor, similarity, query, key, parts):
    """Return the score of a candidate."""
    if parts[states.CONSTANT] == 0.0:
        return -np.inf
    total = 0.0
    for j in range(states.N_STATIC, states.N_PARTS):
        total += weights[j] * parts[j]
    exact = 0.0
    if similarity >= _EXACT and _is_key(query, key):
        # Keys may have equal directions and other lengths: the nearest has the largest advantage.
        exact = _FOR_EXACT * max(0.0, 1.0 - _PER_DISTANCE * (1.0 - similarity))
    return similarity + total / divisor + exact


@kernel
def score_candidates(model, queries, mapped, candidates, scores, parts_of_first):
    """Write the scores of the candidates of each query, and the parts of the first query's scores."""
    model, (ids, similarities, keys) = by_reference(model), candidates
    learned, table = model.learned, model.table
    (n, m), divisor = ids.shape, slope(learned)
    forms, rows, parts = new_forms(queries.shape[1]), empty(m, np.int64), empty((m, states.N_COLUMNS), np.float64)
    for row in range(n):
        own, query = similarities[row], queries[row]
        find_rows(learned, table, ids[row], rows)
        write_forms(learned, query, forms)
        multiply_keys(query, mapped[row], forms, keys[row], own, parts)
        describe(learned, query, rows, ids[row], own, forms, parts)
        for i in range(m):
            scores[row, i] = score(learned.weights[states.LEARNED], divisor, own[i], query, keys[row, i], parts[i])
        for i in range(m if row < parts_of_first.shape[0] else 0):
            copy_values(parts[i, : states.N_PARTS], parts_of_first[row, i])
    release((forms, rows, parts))


@inner
def _select(scores, ids, best, found):
    best[:], found[:] = -np.inf, NONE
    for i in range(ids.size):
        if ids[i] != NONE:
            keep_best(best, found, scores[i], ids[i])
    sort_best_first(best, found)


@kernel
def select_best(scores, ids, best_scores, best_ids):
    """Write the candidates with the largest scores for each query, best first; equal scores are sorted by id."""
    for row in range(ids.shape[0]):
        _select(scores[row], ids[row], best_scores[row], best_ids[row])


@kernel
def rank_stored(model, index, mapped_queries, candidates, begin, stop, best_scores, best_ids):
    """Write the best candidates for a range of queries as :func:`select_best`. Their keys are in a dense index.

    ``mapped_queries`` are the queries and their products with the map. ``candidates`` are three arrays, in which ids
    may be repeated.
    """
    model, index, (first, second, third) = by_reference(model), by_reference(index), candidates
    learned, table, (queries, mapped) = model.learned, model.table, mapped_queries
    m, divisor = first.shape[1] + second.shape[1] + third.shape[1], slope(learned)
    forms, spare = new_forms(queries.shape[1]), empty(queries.shape[1], np.float32)
    ids, rows, slots, parts = (
        empty(m, np.int64),
        empty(m, np.int64),
        empty(m, np.int64),
        empty((m, states.N_COLUMNS), np.float64),
    )
    similarities, scores = empty(m, np.float64), empty(m, np.float64)
    for row in range(begin, stop):
        query = queries[row]
        n = add_distinct(third[row], ids, add_distinct(second[row], ids, add_distinct(first[row], ids, np.int64(0))))
        own = ids[:n]
        for i in range(n):
            slots[i] = find_slot(index.vectors, own[i])
            if slots[i] != NONE:
                prefetch_row(vector_of(index.vectors, slots[i]).values)
        find_rows(learned, table, own, rows)
        write_forms(learned, query, forms)
        for i in range(n):
            is_safe = False
            if slots[i] != NONE:
                vector = vector_of(index.vectors, slots[i]).values
                is_safe = multiply_key(query, mapped[row], forms, vector, parts[i])
            if not is_safe:
                read_key(index, own[i], spare)
                multiply_key(query, mapped[row], forms, spare, parts[i])
            similarities[i] = -parts[i, states.MOVED]
        describe(learned, query, rows, own, similarities, forms, parts)
        for i in range(n):
            if similarities[i] >= _EXACT:
                read_key(index, own[i], spare)
            scores[i] = score(learned.weights[states.LEARNED], divisor, similarities[i], query, spare, parts[i])
        _select(scores, own, best_scores[row], best_ids[row])
    release((forms, spare, ids, rows, slots, parts, similarities, scores))

"""Kernels: the parts of the score of a memory for a query.

All parts are computed from unit-length queries and keys.

- SIMILAR is the similarity, SHARE the logarithm of its softmax over the candidates.
- MOVED is the gain in similarity of a key that moves towards rewarded queries (Rocchio, 1971).
- LINEAR is a linear model of the queries of each memory.
- MAPPED is a bilinear form of query and key, and DIAGONAL one with a weight for each feature (the scorer of the paper).
- CLICKS is the logarithm of the rewards of the memory, relative to those that the other parts predict.
- REPEATED is 1 if the memory was rewarded for the same query, and -1 if it was not.
- NEAR is the gain in similarity if the nearest rewarded query replaces the key.
- FRESH is 1 for a memory whose rewards are all unknown. LEAD is the lead of such a memory over the evidence for others:
  the log-odds of the parts that need no rewards, with NEAR added to the similarity of memories with rewards as far as
  it has proved to predict rewards.

A score is the weighted sum of the parts. For a memory with rewards, it is the log-odds of a reward of 1.
"""

from typing import NamedTuple

import numpy as np

from .._forest import NONE, find_slot, keep_best, sort_best_first
from .._index import copy_values, dot_codes, encode_bytes, vector_of
from .._jit import by_reference, empty, inner, inner_allocating, inner_fastmath, kernel, prefetch, release
from . import state as states
from .rows import add_distinct, code_shorts, prefetch_row, read_key

SHARPNESS = 10.0
"""Inverse temperature of the softmax of similarities."""

EXACT = 1.0 - 1e-5
"""A memory with at least this similarity comes first."""

_BYTES_IN_A_LINE = 64
_PRIOR_CLICKS = 3.0  # number of rewards that the mean of all counts as
_NEARLY_EQUAL = 0.98  # queries with equal codes are at least so similar by their codes
_LARGEST_SHORT = np.float32(4095.0)
_FOR_EXACT = 1e4  # advantage of a memory with the very key of the query


class Forms(NamedTuple):
    """Scratch space for the forms of a query."""

    weighted: np.ndarray  # float32 (width,): the query times the weights of features
    codes: np.ndarray  # int8 (width,)
    scale: np.ndarray  # float32 (1,): their factor
    shorts: np.ndarray  # int16 (width,): more precise codes, which are multiplied with those of past queries


@inner_allocating
def new_forms(width):
    """Return scratch space for queries of this width."""
    return Forms(empty(width, np.float32), empty(width, np.int8), empty(1, np.float32), empty(width, np.int16))


@inner
def find_rows(learned, table, ids, rows):
    """Write the rows of candidates, and prefetch what memories have learned."""
    for i in range(ids.size):
        own = find_slot(table, ids[i])
        rows[i] = own
        if own >= 0:
            prefetch(learned.past_of[own], 0)
            prefetch_row(learned.moved[own])
            prefetch_row(learned.linear[own])


@inner
def _prefetch_past(learned, own):
    """Prefetch the past queries of a memory."""
    for j in range(min(learned.n_past[own], learned.past_of.shape[1]) if own >= 0 else 0):
        if learned.past_of[own, j] >= 0:
            codes = learned.past[learned.past_of[own, j]]
            for at in range(0, codes.size, _BYTES_IN_A_LINE):
                prefetch(codes, at)


@inner_fastmath
def _weigh_features(weights, query, weighted):
    for j in range(query.size):
        weighted[j] = weights[j] * query[j]


@inner_fastmath
def _three_products(query, mapped, weighted, key):
    """Return the products of a key with a query, with a mapped query, folded to its width, and with weights."""
    similar, by_map, by_feature = np.float32(0.0), np.float32(0.0), np.float32(0.0)
    for start in range(0, key.size, mapped.size):
        end = start + mapped.size
        values, of_query, of_weighted = key[start:end], query[start:end], weighted[start:end]
        for j in range(mapped.size):
            similar += of_query[j] * values[j]
            by_map += mapped[j] * values[j]
            by_feature += of_weighted[j] * values[j]
    return np.float64(similar), np.float64(by_map), np.float64(by_feature)


@inner_fastmath
def _two_products(query, x, y):
    first, second = np.float32(0.0), np.float32(0.0)
    for j in range(query.size):
        first += query[j] * x[j]
        second += query[j] * y[j]
    return np.float64(first), np.float64(second)


@inner
def _is_equal(x, y):
    i = 0
    while i < x.size and x[i] == y[i]:
        i += 1
    return i == x.size


@inner
def _compare_past(learned, own, forms, step, unmoved, parts):
    """Write the parts that depend on past queries of a memory."""
    nearest, repeated = unmoved, 1.0 if unmoved >= EXACT else 0.0
    for j in range(min(learned.n_past[own], learned.past_of.shape[1])):
        place = np.int64(learned.past_of[own, j])
        if place < 0:
            continue
        codes, is_rewarded = learned.past[place], learned.past_rewards[place] > np.float32(0.5)
        near = np.float64(step * learned.past_scales[place] * dot_codes(forms.shorts, codes))
        if near > _NEARLY_EQUAL and _is_equal(forms.codes, codes):
            near = np.float64(1.0)
            if repeated <= 0.0:
                repeated = 1.0 if is_rewarded else -1.0
        if is_rewarded:
            nearest = max(nearest, near)
    parts[states.NEAR], parts[states.REPEATED] = nearest - unmoved, repeated


@inner
def describe(learned, query, mapped, rows, ids, similarities, keys, forms, parts):
    """Write the parts of the scores of all candidates for a query, and the unknown similarities.

    Missing candidates have no parts.
    """
    figures, mean = learned.figures, learned.totals[states.ALL_REWARDED] / learned.totals[states.ALL_SHOWN]
    prior, most, total, m = _PRIOR_CLICKS * mean, -np.inf, 0.0, ids.size
    _weigh_features(learned.diagonal[0], query, forms.weighted)
    forms.scale[0], _ = encode_bytes(query, forms.codes)
    step = code_shorts(query, _LARGEST_SHORT, forms.shorts)
    for i in range(m):
        own, given = rows[i], parts[i]
        given[:] = 0.0
        _prefetch_past(learned, rows[min(i + 1, m - 1)])
        if ids[i] == NONE:
            similarities[i] = -np.inf
            continue
        # ``unmoved`` differs from the similarity of hashed rows
        unmoved, given[states.MAPPED], given[states.DIAGONAL] = _three_products(query, mapped, forms.weighted, keys[i])
        if np.isnan(similarities[i]):
            similarities[i] = unmoved
        given[states.SIMILAR], given[states.CONSTANT], most = similarities[i], 1.0, max(most, similarities[i])
        if own < 0 or figures[own, states.SHOWN] == 0.0:
            given[states.FRESH] = 1.0
            continue
        moved, given[states.LINEAR] = _two_products(query, learned.moved[own], learned.linear[own])
        given[states.MOVED] = moved - unmoved
        given[states.CLICKS] = np.log((figures[own, states.REWARDED] + prior) / (figures[own, states.EXPECTED] + prior))
        _compare_past(learned, own, forms, step, unmoved, given)
    for i in range(m):
        total += np.exp(SHARPNESS * (similarities[i] - most))
    for i in range(m):
        if parts[i, states.CONSTANT] != 0.0:
            parts[i, states.SHARE] = similarities[i] - most - np.log(total) / SHARPNESS
    for i in range(m):
        if parts[i, states.FRESH] != 0.0:
            parts[i, states.LEAD] = lead(learned, parts, i, m)


@inner
def general_odds(learned, parts, i):
    """Return the log-odds of the parts that do not depend on rewards of the memory."""
    total = 0.0
    for j in (states.SIMILAR, states.SHARE, states.MAPPED, states.DIAGONAL, states.CONSTANT):
        total += learned.weights[j] * parts[i, j]
    return total


@inner
def lead(learned, parts, fresh, m):
    """Return the lead of a memory, as if it were fresh, over the evidence for others.

    Rewarded queries are evidence only as far as NEAR has proved to predict rewards.
    """
    proven = min(learned.weights[states.NEAR] / states.FIRST_WEIGHTS[states.NEAR], 1.0)
    similar, most = proven * (learned.weights[states.SIMILAR] + learned.weights[states.SHARE]), -np.inf
    for i in range(m):
        if i != fresh and parts[i, states.CONSTANT] != 0.0 and parts[i, states.FRESH] == 0.0:
            most = max(most, general_odds(learned, parts, i) + similar * parts[i, states.NEAR])
    return general_odds(learned, parts, fresh) - most if most > -np.inf else 0.0


@inner
def log_odds(learned, parts, i):
    """Return the log-odds of a reward for candidate ``i``."""
    total = 0.0
    for j in range(states.N_REGRESSED):
        total += learned.weights[j] * parts[i, j]
    return total


@inner
def standing(learned, parts, i):
    """Return the score by which candidate ``i`` is ranked."""
    if parts[i, states.CONSTANT] == 0.0:
        return -np.inf
    exact = _FOR_EXACT if parts[i, states.SIMILAR] >= EXACT else 0.0
    fresh = (
        learned.weights[states.FRESH] * parts[i, states.FRESH] + learned.weights[states.LEAD] * parts[i, states.LEAD]
    )
    return log_odds(learned, parts, i) + fresh + exact


@inner
def _score(learned, query, mapped, ids, similarities, keys, room, scores):
    """Write the scores of candidates: the log-odds of a reward without the constant, in units of the similarity.

    ``room`` has the rows of the candidates, from :func:`find_rows`.
    """
    forms, rows, parts = room
    describe(learned, query, mapped, rows, ids, similarities, keys, forms, parts)
    for i in range(ids.size):
        scores[i] = (standing(learned, parts, i) - learned.weights[states.CONSTANT]) / learned.weights[states.SIMILAR]


@kernel
def score_candidates(learned, table, queries, mapped, candidates, scores, parts_of_first):
    """Write the scores of the candidates of each query, and the parts of the first query's scores."""
    learned, (ids, similarities, keys) = by_reference(learned), candidates
    n, m = ids.shape
    room = new_forms(queries.shape[1]), empty(m, np.int64), empty((m, states.N_PARTS), np.float64)
    for row in range(n):
        own = similarities[row]
        find_rows(learned, table, ids[row], room[1])
        _score(learned, queries[row], mapped[row], ids[row], own, keys[row], room, scores[row])
        for i in range(m if row < parts_of_first.shape[0] else 0):
            copy_values(room[2][i], parts_of_first[row, i])
    release(room)


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
def rank_stored(learned, table, index, queries, mapped, candidates, best_scores, best_ids):
    """Write the best candidates for each query as :func:`select_best`. Their keys are in a dense index.

    ``candidates`` are three arrays, in which ids may be repeated.
    """
    learned, index, (first, second, third) = by_reference(learned), by_reference(index), candidates
    width, m = queries.shape[1], first.shape[1] + second.shape[1] + third.shape[1]
    room = new_forms(width), empty(m, np.int64), empty((m, states.N_PARTS), np.float64)
    keys, similarities, scores = empty((m, width), np.float32), empty(m, np.float64), empty(m, np.float64)
    ids = empty(m, np.int64)
    for row in range(queries.shape[0]):
        n = add_distinct(third[row], ids, add_distinct(second[row], ids, add_distinct(first[row], ids, np.int64(0))))
        own = ids[:n]
        for i in range(n):
            slot = find_slot(index.vectors, own[i])
            if slot != NONE:
                prefetch_row(vector_of(index.vectors, slot).values)
        find_rows(learned, table, own, room[1])
        for i in range(n):
            similarities[i] = np.nan
            read_key(index, own[i], keys[i])
        _score(learned, queries[row], mapped[row], own, similarities, keys, room, scores)
        _select(scores, own, best_scores[row], best_ids[row])
    release((room, keys, similarities, scores, ids))

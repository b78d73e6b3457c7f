"""Kernels: the parts of the score of a memory for a query.

All parts are computed from unit-length queries and keys.

- SIMILAR is the similarity, SHARE the logarithm of its softmax over the candidates.
- MOVED is the gain in similarity of a key that moves towards rewarded queries (Rocchio, 1971).
- LINEAR is a linear model of the queries of each memory.
- MAPPED is a bilinear form of query and key, and DIAGONAL one with a weight for each feature (the scorer of the paper).
- CLICKS is the logarithm of the rewards of the memory, relative to those that the other parts predict.
- REPEATED is 1 if the memory was rewarded for the same query, and -1 if it was not.
- NEAR is the gain in similarity if the nearest rewarded query replaces the key, and NEAR_UNREWARDED how much nearer the
  nearest unrewarded query is.
- FRESH is 1 for a memory whose rewards are all unknown. LEAD is the lead of such a memory over the evidence for others:
  the log-odds of the parts that need no rewards, with NEAR added to the similarity of memories with rewards as far as
  it has proved to predict rewards.

A score is the weighted sum of the parts. For a memory with rewards, it is the log-odds of a reward of 1.
"""

import numpy as np

from .._forest import NONE, dot, find_slot, keep_best, sort_best_first
from .._jit import by_reference, empty, inner, inner_fastmath, kernel, prefetch, release
from .state import (
    ALL_REWARDED,
    ALL_SHOWN,
    CLICKS,
    CONSTANT,
    DIAGONAL,
    EXPECTED,
    FIRST_WEIGHTS,
    FRESH,
    LEAD,
    LINEAR,
    MAPPED,
    MOVED,
    N_PARTS,
    N_REGRESSED,
    NEAR,
    NEAR_UNREWARDED,
    REPEATED,
    REWARDED,
    SHARE,
    SHOWN,
    SIMILAR,
)

SHARPNESS = 10.0
"""Inverse temperature of the softmax of similarities."""

EXACT = 1.0 - 1e-5
"""A memory with at least this similarity comes first."""

_PREFETCHED, _FLOATS_IN_A_LINE = 256, 16  # number of values of a row to prefetch, and of those in a cache line
_PRIOR_CLICKS = 3.0  # number of rewards that the mean of all counts as
_FOR_EXACT = 1e4  # advantage of a memory with the very key of the query


@inner_fastmath
def _add_scaled(total, factor, row):
    for j in range(total.size):
        total[j] += factor * row[j]


@inner
def compare(learned, table, query, candidates, row):
    """Write the rows of candidates and the unknown similarities, and prefetch what memories have learned."""
    similarities, width = candidates.similarities[row], query.size
    for i in range(similarities.size):
        own = find_slot(table, candidates.ids[row, i])
        candidates.rows[row, i] = own
        if own >= 0:
            for values in (learned.moved[own], learned.linear[own]):
                for j in range(0, min(width, _PREFETCHED), _FLOATS_IN_A_LINE):
                    prefetch(values, j)
        if candidates.ids[row, i] == NONE:
            similarities[i] = -np.inf
        elif np.isnan(similarities[i]):
            similarities[i] = np.float64(dot(query, np.int64(0), candidates.keys[row, i], np.int64(0), width))


@inner
def map_query(learned_map, query, mapped):
    """Write the product of a query with the map."""
    for j in range(mapped.size):
        mapped[j] = np.float32(0.0)
    for i in range(query.size):
        if query[i] != np.float32(0.0):
            _add_scaled(mapped, query[i], learned_map[i % mapped.size])


@inner
def _mapped_product(mapped, key):
    """Return the product of a mapped query with a key, folded to the width of the map."""
    total = 0.0
    for start in range(0, key.size, mapped.size):
        total += np.float64(dot(mapped, np.int64(0), key, np.int64(start), mapped.size))
    return total


@inner
def _weighted_query(weights, query, weighted):
    for j in range(query.size):
        weighted[j] = weights[j] * query[j]


@inner
def describe(learned, query, mapped, candidates, row, weighted, parts):
    """Write the parts of the scores of all candidates for a query. Candidates with a similarity of -inf have none."""
    width, totals = query.size, learned.totals
    rows, similarities, keys = candidates.rows[row], candidates.similarities[row], candidates.keys
    zero = np.int64(0)
    _weighted_query(learned.diagonal[0], query, weighted)
    most, total, mean = -np.inf, 0.0, totals[ALL_REWARDED] / totals[ALL_SHOWN]
    prior = _PRIOR_CLICKS * mean
    for i in range(rows.size):
        most = max(most, similarities[i])
    for i in range(rows.size):
        total += np.exp(SHARPNESS * (similarities[i] - most))
    for i in range(rows.size):
        for j in range(N_PARTS):
            parts[i, j] = 0.0
        if similarities[i] == -np.inf:
            continue
        similar, own, key = similarities[i], np.int64(rows[i]), keys[row, i]
        share = similar - most - np.log(total) / SHARPNESS
        parts[i, SIMILAR], parts[i, SHARE], parts[i, CONSTANT] = similar, share, 1.0
        parts[i, MAPPED] = _mapped_product(mapped, key)
        parts[i, DIAGONAL] = np.float64(dot(weighted, zero, key, zero, width))
        if own < 0 or learned.figures[own, SHOWN] == 0.0:
            parts[i, FRESH] = 1.0
        else:
            figures = learned.figures[own]
            unmoved = np.float64(dot(query, zero, key, zero, width))  # differs from the similarity of hashed rows
            parts[i, MOVED] = np.float64(dot(query, zero, learned.moved[own], zero, width)) - unmoved
            parts[i, LINEAR] = np.float64(dot(query, zero, learned.linear[own], zero, width))
            parts[i, CLICKS] = np.log((figures[REWARDED] + prior) / (figures[EXPECTED] + prior))
            nearest, unrewarded = unmoved, unmoved
            for j in range(min(learned.n_past[own], learned.past_of.shape[1])):
                place = np.int64(learned.past_of[own, j])
                if place >= 0:
                    near = np.float64(dot(query, zero, learned.past[place], zero, width))
                    if learned.past_rewards[place] > np.float32(0.5):
                        nearest = max(nearest, near)
                    else:
                        unrewarded = max(unrewarded, near)
            if max(nearest, unrewarded) >= EXACT:
                parts[i, REPEATED] = 1.0 if nearest >= unrewarded else -1.0
            parts[i, NEAR] = nearest - unmoved
            parts[i, NEAR_UNREWARDED] = max(unrewarded - nearest, 0.0)
    for i in range(rows.size):
        if parts[i, FRESH] != 0.0:
            parts[i, LEAD] = lead(learned, parts, i, rows.size)


@inner
def general_odds(learned, parts, i):
    """Return the log-odds of the parts that do not depend on rewards of the memory."""
    total = 0.0
    for j in (SIMILAR, SHARE, MAPPED, DIAGONAL, CONSTANT):
        total += learned.weights[j] * parts[i, j]
    return total


@inner
def lead(learned, parts, fresh, m):
    """Return the lead of a memory, as if it were fresh, over the evidence for others.

    Rewarded queries are evidence only as far as NEAR has proved to predict rewards.
    """
    proven = min(learned.weights[NEAR] / FIRST_WEIGHTS[NEAR], 1.0)
    similar, most = proven * (learned.weights[SIMILAR] + learned.weights[SHARE]), -np.inf
    for i in range(m):
        if i != fresh and parts[i, CONSTANT] != 0.0 and parts[i, FRESH] == 0.0:
            most = max(most, general_odds(learned, parts, i) + similar * parts[i, NEAR])
    return general_odds(learned, parts, fresh) - most if most > -np.inf else 0.0


@inner
def log_odds(learned, parts, i):
    """Return the log-odds of a reward for candidate ``i``."""
    total = 0.0
    for j in range(N_REGRESSED):
        total += learned.weights[j] * parts[i, j]
    return total


@inner
def standing(learned, parts, i):
    """Return the score by which candidate ``i`` is ranked."""
    if parts[i, CONSTANT] == 0.0:
        return -np.inf
    exact = _FOR_EXACT if parts[i, SIMILAR] >= EXACT else 0.0
    fresh = learned.weights[FRESH] * parts[i, FRESH] + learned.weights[LEAD] * parts[i, LEAD]
    return log_odds(learned, parts, i) + fresh + exact


@kernel
def score_candidates(learned, table, queries, mapped, candidates, scores, parts_of_first):
    """Write the scores of the candidates of each query, and the parts of those of the first query.

    A score is the log-odds of a reward without the constant, in units of the similarity.
    """
    learned, candidates = by_reference(learned), by_reference(candidates)
    n, width = queries.shape
    m = candidates.rows.shape[1]
    weighted, parts = empty(width, np.float32), empty((m, N_PARTS), np.float64)
    constant, unit = learned.weights[CONSTANT], learned.weights[SIMILAR]
    for row in range(n):
        compare(learned, table, queries[row], candidates, row)
        describe(learned, queries[row], mapped[row], candidates, row, weighted, parts)
        for i in range(m):
            scores[row, i] = (standing(learned, parts, i) - constant) / unit
            if row < parts_of_first.shape[0]:
                for j in range(N_PARTS):
                    parts_of_first[row, i, j] = parts[i, j]
    release((weighted, parts))


@kernel
def map_queries(learned, queries, mapped, transformed):
    """Write the products of queries with the map, and the transformed queries.

    The products of a transformed query with keys are the parts of scores that do not depend on a memory's rewards.
    """
    learned = by_reference(learned)
    similar, theta = learned.weights[SIMILAR], learned.diagonal[0]
    by_map, by_feature = np.float32(learned.weights[MAPPED] / similar), np.float32(learned.weights[DIAGONAL] / similar)
    for row in range(queries.shape[0]):
        map_query(learned.map, queries[row], mapped[row])
        for j in range(mapped.shape[1]):
            value = queries[row, j]
            transformed[row, j] = value + by_map * mapped[row, j] + by_feature * theta[j] * value


@kernel
def select_best(scores, ids, best_scores, best_ids):
    """Write the candidates with the largest scores for each query, best first; equal scores are sorted by id."""
    for row in range(ids.shape[0]):
        best, found = best_scores[row], best_ids[row]
        best[:], found[:] = -np.inf, NONE
        for i in range(ids.shape[1]):
            if ids[row, i] != NONE:
                keep_best(best, found, scores[row, i], ids[row, i])
        sort_best_first(best, found)

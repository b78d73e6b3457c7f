"""Kernels: learning from rewards.

Each reward trains every part of the model, and then counts in the weights of the parts: a logistic regression with a
Gaussian prior, in which recent rewards count more. The parts are computed before the reward is learned, so that their
weights reflect how well they predict rewards of new queries.
"""

import numpy as np

from .._forest import NONE, dot, enter_slot, find_slot
from .._index import copy_values
from .._jit import by_reference, empty, inner, inner_fastmath, kernel, release
from . import state as states
from .moved import code_moved, new_code_room
from .parts import describe, find_rows, general_odds, lead, log_odds, new_forms, standing
from .query_map import add_scaled, add_step, map_query, new_terms

_MEMORY = 0.9998  # factor of earlier rewards in the weights of the parts, for each new one
_RECENT = 0.98  # factor of earlier rewards of a memory in CLICKS
_TRIAL_MEMORY = 0.999
_LEAST_CURVATURE = 0.01
_LEAST_SIMILARITY_WEIGHT = 1.0
_TOWARDS, _AWAY = np.float32(0.3), np.float32(0.1)  # step of a moved key, for a reward of 1 and of 0
_STEP_OF_LINEAR, _STEP_OF_DIAGONAL, _STEP_OF_MAP = 4.0, np.float32(0.3), np.float32(1.0)
_STEEPNESS = 20.0  # steepness of the softmax from which the map learns
_MOST_CHANCE = 0.9
_FRESH_AMONG = 4  # one of this number of candidates is taken for a fresh memory
_MOST_PASSED = 0.03  # share of first places that fresh memories may take from rewarded ones
_STEP_OF_FRESH = 0.1
_STEP_OF_REPEATED = 0.1
_GAIN_OF_FRESH = 0.5  # factor of the expected gain from a fresh memory in the first place
_TINY = np.float32(1e-6)
_PRIOR = states.first_precision()  # the precision of the first weights


@inner
def chance(odds):
    """Return the probability with these log-odds."""
    return 1.0 / (1.0 + np.exp(-min(max(odds, -30.0), 30.0)))


@inner
def _solve(matrix, n, target, lower, solution):
    """Solve a system with a positive definite matrix by its Cholesky factor."""
    for i in range(n):
        for j in range(i + 1):
            left = matrix[i, j]
            for k in range(j):
                left -= lower[i, k] * lower[j, k]
            lower[i, j] = np.sqrt(left) if i == j else left / lower[j, j]
    for i in range(n):
        left = target[i]
        for k in range(i):
            left -= lower[i, k] * solution[k]
        solution[i] = left / lower[i, i]
    for i in range(n - 1, -1, -1):
        left = solution[i]
        for k in range(i + 1, n):
            left -= lower[k, i] * solution[k]
        solution[i] = left / lower[i, i]


@inner
def _weigh(learned, parts, i, reward, target, lower, step):
    """Update the weights of the parts with one reward (an online Newton step)."""
    weights, precision, row = learned.weights, learned.precision, parts[i]
    predicted = chance(log_odds(learned, parts, i))
    curvature = max(predicted * (1.0 - predicted), _LEAST_CURVATURE)
    for j in range(states.N_REGRESSED):
        target[j] = (reward - predicted) * row[j]
        for k in range(states.N_REGRESSED):
            kept = _MEMORY * precision[j, k] + (1.0 - _MEMORY) * _PRIOR[j, k]
            precision[j, k] = kept + curvature * row[j] * row[k]
    _solve(precision, states.N_REGRESSED, target, lower, step)
    for j in range(states.N_REGRESSED):
        weights[j] += step[j]
    weights[states.SIMILAR] = max(weights[states.SIMILAR], _LEAST_SIMILARITY_WEIGHT)
    for j in (states.MOVED, states.LINEAR, states.MAPPED, states.DIAGONAL, states.CLICKS, states.NEAR):
        weights[j] = max(weights[j], 0.0)


@inner
def _weigh_repeated(learned, parts, rewards, m):
    """Update the weight of REPEATED if the query is one of the past, and return whether it is.

    The other weights are learned from new queries only, since they are to predict rewards of new queries.
    """
    is_repeated = False
    for i in range(m):
        if parts[i, states.REPEATED] != 0.0:
            is_repeated = True
            if not np.isnan(rewards[i]):
                error = rewards[i] - chance(log_odds(learned, parts, i))
                weight = learned.weights[states.REPEATED] + _STEP_OF_REPEATED * error * parts[i, states.REPEATED]
                learned.weights[states.REPEATED] = max(weight, 0.0)
    return is_repeated


@inner
def _best_fresh(learned, parts, rewards, m, first, step):
    """Return the best of every ``step``-th candidate, taken for fresh ones, that is not known to be rewarded; or -1."""
    best = -1
    for i in range(first, m, step):
        if parts[i, states.CONSTANT] == 0.0 or rewards[i] > 0.5 or (step == 1 and parts[i, states.FRESH] == 0.0):
            continue
        if best < 0 or general_odds(learned, parts, i) > general_odds(learned, parts, best):
            best = i
    return best


@inner
def _passes(learned, parts, fresh, odds, m):
    """Return whether a candidate, as if it were fresh, ranks before one with these log-odds."""
    weights = learned.weights
    added = weights[states.FRESH] + weights[states.LEAD] * lead(learned, parts, fresh, m)
    return general_odds(learned, parts, fresh) + added > odds


@inner
def _balance_fresh(learned, parts, rewards, m):
    """Adjust the weight of FRESH, after a reward of the best memory that is not fresh.

    If it was unrewarded, the best fresh memory should have come first, if it is likely to be rewarded. If it was
    rewarded, pretend that some of the other candidates are fresh. If one of them would come first, fresh memories weigh
    too much. The same applies if it would pass a more similar memory that has not been rewarded for a similar query.
    """
    weights, best, n_known = learned.weights, -1, 0
    for i in range(m):
        if not np.isnan(rewards[i]):
            n_known += 1
        if parts[i, states.FRESH] != 0.0 or parts[i, states.CONSTANT] == 0.0:
            continue
        if best < 0 or log_odds(learned, parts, i) > log_odds(learned, parts, best):
            best = i
    if best < 0 or np.isnan(rewards[best]):
        return
    odds = log_odds(learned, parts, best)
    if rewards[best] <= 0.5:
        fresh = _best_fresh(learned, parts, rewards, m, 0, 1)
        if fresh >= 0 and np.isnan(rewards[fresh]) and not _passes(learned, parts, fresh, odds, m):
            weights[states.FRESH] += _STEP_OF_FRESH * _GAIN_OF_FRESH * chance(log_odds(learned, parts, fresh))
        return
    first = np.int64(learned.totals[states.ALL_SHOWN]) % _FRESH_AMONG
    fresh = _best_fresh(learned, parts, rewards, m, first, _FRESH_AMONG)
    if fresh < 0:
        return
    passes = _passes(learned, parts, fresh, odds, m)
    if not passes and general_odds(learned, parts, fresh) < general_odds(learned, parts, best):
        near, parts[best, states.NEAR] = parts[best, states.NEAR], 0.0
        passes = _passes(learned, parts, fresh, general_odds(learned, parts, best), m)
        parts[best, states.NEAR] = near
    weights[states.FRESH] += _STEP_OF_FRESH * _MOST_PASSED
    if passes:
        loss = 1.0
        if np.isnan(rewards[fresh]):  # the more rewards are known, the less likely is one that is not
            loss = n_known / (n_known + 1.0) * (1.0 - chance(log_odds(learned, parts, fresh)))
        weights[states.FRESH] -= _STEP_OF_FRESH * loss


@inner
def _try(learned, parts, rewards, m):
    """Count the reward of the best candidate minus that of the most similar one. Predict unknown rewards."""
    best, similar = 0, 0
    for i in range(1, m):
        if standing(learned, parts, i) > standing(learned, parts, best):
            best = i
        if parts[i, states.SIMILAR] > parts[similar, states.SIMILAR]:
            similar = i
    gain = 0.0
    if best != similar:
        gain = rewards[best] if not np.isnan(rewards[best]) else chance(log_odds(learned, parts, best))
        gain -= rewards[similar] if not np.isnan(rewards[similar]) else chance(log_odds(learned, parts, similar))
    totals = learned.totals
    totals[states.TRIALS] = _TRIAL_MEMORY * totals[states.TRIALS] + 1.0
    totals[states.GAIN] = _TRIAL_MEMORY * totals[states.GAIN] + gain
    totals[states.SQUARED_GAIN] = _TRIAL_MEMORY * totals[states.SQUARED_GAIN] + gain * gain


@inner
def _share(learned, parts, rewards, m):
    """Divide one outcome of several shown memories among them, by the probability that each of them caused it.

    Return the outcome.
    """
    none, outcome = 1.0, 0.0
    for i in range(m):
        if not np.isnan(rewards[i]):
            outcome = rewards[i]
            none *= 1.0 - chance(log_odds(learned, parts, i))
    for i in range(m):
        if not np.isnan(rewards[i]):
            rewards[i] *= min(chance(log_odds(learned, parts, i)) / max(1.0 - none, 1e-9), 1.0)
    return outcome


@inner
def _train_map(learned, query, keys, parts, rewards, m, pulls, terms):
    """Take a step on the likelihood of the rewards, with a softmax over all candidates.

    If some memory has a reward, the rewards are the target of the softmax. Otherwise the shown memories are not chosen.
    """
    most, total, reward, shown = -np.inf, 0.0, 0.0, 0.0
    for i in range(m):
        if parts[i, states.CONSTANT] != 0.0:
            pulls[i] = _STEEPNESS * (parts[i, states.SIMILAR] + parts[i, states.MAPPED])
            most = max(most, pulls[i])
    for i in range(m):
        pulls[i] = np.exp(pulls[i] - most) if parts[i, states.CONSTANT] != 0.0 else 0.0
        total += pulls[i]
    for i in range(m):
        pulls[i] /= total
        if not np.isnan(rewards[i]):
            reward += rewards[i]
            shown += pulls[i]
    shown = min(shown, _MOST_CHANCE)
    own, moved = learned.recent_queries[learned.ends[states.RECENT]], learned.recent_keys[learned.ends[states.RECENT]]
    copy_values(terms.folded, own)
    moved[:] = np.float32(0.0)
    for i in range(m):
        is_shown = not np.isnan(rewards[i])
        if reward > 0.0:
            pull = (rewards[i] / reward if is_shown else 0.0) - pulls[i]
        else:
            pull = -pulls[i] if is_shown else pulls[i] * shown / (1.0 - shown)
        if pull != 0.0:
            for start in range(0, query.size, moved.size):
                add_scaled(moved, np.float32(_STEP_OF_MAP * pull), keys[i, start : start + moved.size])
    add_step(learned, terms)


@inner
def _move_key(key, query, reward, missed):
    towards = np.float32(reward) * _TOWARDS - np.float32(missed) * _AWAY
    for j in range(key.size):
        key[j] += towards * query[j]
    length = np.sqrt(dot(key, np.int64(0), key, np.int64(0), key.size))
    if length > _TINY:
        for j in range(key.size):
            key[j] /= length


@inner
def _train_linear(learned, own, query, offset, value, reward):
    """Take AdaGrad steps for the weights of a memory."""
    error = chance(offset + value) - reward
    figures = learned.figures[own]
    figures[states.SQUARES] += error * error
    add_scaled(
        learned.linear[own], np.float32(-_STEP_OF_LINEAR * error / np.sqrt(1.0 + figures[states.SQUARES])), query
    )


@inner_fastmath
def _train_diagonal(weights, squares, query, key, error):
    """Take AdaGrad steps for the weights of features."""
    for j in range(query.size):
        gradient = error * query[j] * key[j]
        squares[j] += gradient * gradient
        weights[j] -= _STEP_OF_DIAGONAL * gradient / np.sqrt(squares[j])


@inner
def _predict_from_similarity(totals, similar, reward):
    """Train the logistic regression on the similarity, and return its log-odds from before."""
    offset = totals[states.SLOPE] * similar + totals[states.INTERCEPT]
    error = chance(offset) - reward
    totals[states.OFFSET_SQUARES] += error * error
    step = error / np.sqrt(totals[states.OFFSET_SQUARES])
    totals[states.SLOPE] = max(1.0, totals[states.SLOPE] - 1.5 * step * similar)
    totals[states.INTERCEPT] -= 0.5 * step
    return offset


@inner
def _count(learned, own, expected, reward):
    figures, totals = learned.figures[own], learned.totals
    figures[states.SHOWN] += 1.0
    figures[states.EXPECTED] = _RECENT * figures[states.EXPECTED] + expected
    figures[states.REWARDED] = _RECENT * figures[states.REWARDED] + reward
    totals[states.ALL_SHOWN] += 1.0
    totals[states.ALL_REWARDED] += reward


@inner
def _remember(learned, own, codes, scale, reward):
    """Keep a query with its memory, in the place of the oldest one if there is no other."""
    place, slot = learned.ends[states.PAST], learned.n_past[own] % states.MOST_PAST
    if learned.n_past[own] >= states.MOST_PAST and learned.past_of[own, slot] >= 0:
        place = np.int64(learned.past_of[own, slot])
    else:
        learned.ends[states.PAST] = (place + 1) % learned.past.shape[0]
        before = np.int64(learned.past_rows[place])
        if before >= 0:
            for j in range(states.MOST_PAST):
                if learned.past_of[before, j] == place:
                    learned.past_of[before, j] = np.int32(-1)
    copy_values(codes, learned.past[place])
    learned.past_scales[place] = scale
    learned.past_rewards[place] = np.float32(reward)
    learned.past_rows[place] = np.int32(own)
    learned.past_of[own, slot] = np.int32(place)
    learned.n_past[own] += 1


@inner
def _enter(learned, table, row, memory, key):
    """Give a row to a memory, for which there is room."""
    copy_values(key, learned.moved[row])
    learned.linear[row, :] = np.float32(0.0)
    learned.figures[row, :], learned.past_of[row, :], learned.n_past[row] = 0.0, np.int32(NONE), 0
    learned.ids[row] = memory
    enter_slot(table.slot_table, memory, row)


@kernel
def learn_rewards(learned, table, codes, n, queries, candidates, rewards, is_shared):
    """Learn from the rewards of candidates, with room for each memory that is new; return the number of memories.

    A reward of NaN is unknown. The ``n`` memories so far have the first rows of the state.
    """
    learned, codes = by_reference(learned), by_reference(codes)
    ids, similarities, keys = candidates
    m, width = ids.shape[1], queries.shape[1]
    forms, terms, room = new_forms(width), new_terms(learned.map.shape[0]), new_code_room(codes.signs.shape[1])
    rows, parts = empty(m, np.int64), empty((m, states.N_PARTS), np.float64)
    mapped = empty(learned.map.shape[0], np.float32)
    pulls, expected = empty(m, np.float64), empty(m, np.float64)
    target, step = empty(states.N_REGRESSED, np.float64), empty(states.N_REGRESSED, np.float64)
    lower = empty((states.N_REGRESSED, states.N_REGRESSED), np.float64)
    for row in range(queries.shape[0]):
        query, given = queries[row], rewards[row]
        for i in range(m):
            if not np.isnan(given[i]) and find_slot(table, ids[row, i]) == NONE:
                _enter(learned, table, n, ids[row, i], keys[row, i])
                n += 1
        map_query(learned, query, terms, mapped)
        find_rows(learned, table, ids[row], rows)
        describe(learned, query, mapped, rows, ids[row], similarities[row], keys[row], forms, parts)
        outcome = _share(learned, parts, given, m) if is_shared else np.nan
        _try(learned, parts, given, m)
        _balance_fresh(learned, parts, given, m)
        n_shown, is_repeated = 0, _weigh_repeated(learned, parts, given, m)
        for i in range(m):
            if not np.isnan(given[i]):
                n_shown += 1
                others = log_odds(learned, parts, i) - learned.weights[states.CLICKS] * parts[i, states.CLICKS]
                expected[i] = chance(others)
            if not np.isnan(given[i]) and not is_repeated:
                _weigh(learned, parts, i, given[i], target, lower, step)
        if n_shown > 0:
            _train_map(learned, query, keys[row], parts, given, m, pulls, terms)
        first = True
        for i in range(m):
            if np.isnan(given[i]):
                continue
            own, reward = rows[i], given[i]
            missed = 1.0 - (outcome if is_shared else reward)  # a small share of a success is no failure
            offset = _predict_from_similarity(learned.totals, parts[i, states.SIMILAR], reward)
            _train_linear(learned, own, query, offset, parts[i, states.LINEAR], reward)
            error = np.float32(chance(offset + parts[i, states.DIAGONAL]) - reward)
            _train_diagonal(learned.diagonal[0], learned.diagonal[1], query, keys[row, i], error)
            _count(learned, own, expected[i], reward)
            if first or reward > 0.0:
                _move_key(learned.moved[own], query, reward, missed)
                code_moved(learned, codes, own, room)
            if reward > 0.5 or (first and missed > 0.0):
                _remember(learned, own, forms.codes, forms.scale[0], reward)
            first = False
    release((forms, terms, room, rows, mapped, parts, pulls, expected, target, step, lower))
    return n

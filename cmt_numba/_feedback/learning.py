"""Kernels: learning from rewards.

Two linear regressions with Gaussian priors predict each reward before they learn it: the static model, from the query,
the place and the similarity, and the learned model, from all parts. The logarithm of the ratio of their likelihoods is
the evidence that the learned model is better (Dawid, 1984, "Statistical theory: the prequential approach"). It may be
better from any query on: prior odds are spread over all of them, so that their sum is small. The null hypothesis is
that either the static model or the mean reward predicts best, because rewards that say nothing let the static
model learn noise, which the learned model could seem to correct. A reward minus the reward that the static model
expects, the advantage, trains all other parts, so that rewards that say nothing about a memory teach nothing (Williams,
1992, "Simple statistical gradient-following algorithms").
"""

from typing import NamedTuple

import numpy as np

from .._index import copy_values, encode_bytes
from .._jit import by_reference, empty, inner, inner_fastmath, kernel, release
from .._kernels import NONE, dot, enter_slot, find_slot
from . import state as states
from .moved import code_moved, new_code_room
from .parts import (
    describe,
    deviation_of,
    expected_reward,
    find_rows,
    multiply_keys,
    new_forms,
    score,
    slope,
    write_forms,
)
from .query_map import add_scaled, add_step, map_query, new_terms

_MEMORY = 0.9999  # factor of earlier rewards in the weights of the parts, for each new one
_RECENT = 0.98  # factor of earlier rewards of a memory in VALUE
_MEMORY_OF_ERRORS = 0.999
_MEMORY_OF_STATIC, _MEMORY_OF_LEARNED = 0.999, 0.99  # factors of earlier outcomes; learned rankings change
_LEAST_REMEMBERED = 0.5  # least advantage of a past query, in standard deviations of rewards
_MOST_STEP = 3.0  # largest change of the evidence by a query
_LATER = np.exp(-5.0)  # prior odds that the learned model becomes better at any later query
_TOWARDS, _AWAY = np.float32(0.3), np.float32(0.1)  # step of a moved key, for an advantage of 1 and of -1
_STEP_OF_DIAGONAL, _STEP_OF_MAP = np.float32(0.05), np.float32(1.0)
_STEEPNESS = 20.0  # steepness of the softmax from which the map learns
_N_OLDEST = 4  # number of the oldest past queries of a memory, one of which is replaced
_TINY = np.float32(1e-6)
_N_PLACES = states.LATER - states.SECOND + 1
_FIRST, _PRIOR = states.FIRST_WEIGHTS, states.FIRST_PRECISION


class RewardKind(NamedTuple):
    """What the rewards of a call mean."""

    is_shared: bool  # the rewards of a row are one outcome, which counts once for all shown memories
    may_be_chosen: bool  # good rewards may be known answers; otherwise memories that were passed over have reward 0
    share: float  # of the queries that are ranked by the model
    chosen: np.ndarray  # bool (n,): whether each query was ranked by the model
    firsts: np.ndarray  # int64 (n, 2): the first candidates of the static and the learned ranking, or (0, 2): by scores


class Room(NamedTuple):
    """Scratch space for regressions."""

    target: np.ndarray  # float64 (N_PARTS,)
    step: np.ndarray  # float64 (N_PARTS,)
    lower: np.ndarray  # float64 (N_PARTS, N_PARTS)


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
def _regress(learned, which, n, row, reward, share, room):
    """Update the first ``n`` weights of a regression with a reward that counts as ``share`` of one."""
    weights, precision, error = learned.weights[which], learned.precision[which], reward
    for j in range(n):
        error -= weights[j] * row[j]
    for j in range(n):
        first = _FIRST[j] if which == states.LEARNED or j < states.N_STATIC else 0.0
        room.target[j] = share * error * row[j] + (1.0 - _MEMORY) * _PRIOR[j] * (first - weights[j])
        for k in range(n):
            precision[j, k] = _MEMORY * precision[j, k] + share * row[j] * row[k]
        precision[j, j] += (1.0 - _MEMORY) * _PRIOR[j]
    _solve(precision, n, room.target, room.lower, room.step)
    for j in range(n):
        weights[j] += room.step[j]
    weights[states.SIMILAR] = max(weights[states.SIMILAR], 0.0)
    for j in range(states.SECOND, states.LATER + 1):
        weights[j] = min(weights[j], 0.0)
    for j in (states.QUERY, states.MAPPED, states.DIAGONAL):
        weights[j] = max(weights[j], 0.0)


@inner
def _expect_mean(learned, rewards):
    """Let all models expect the mean of the first rewards, so that rewards that are always the same teach nothing."""
    total, n = 0.0, 0
    for i in range(rewards.size):
        if not np.isnan(rewards[i]):
            total += rewards[i]
            n += 1
    for which in range(learned.weights.shape[0]):
        learned.weights[which, states.CONSTANT] = total / n
    learned.totals[states.REWARDS], learned.totals[states.N_REWARDS] = total / n, 1.0


@inner
def _weighed(evidence, difference, totals):
    """Return the evidence for the learned model after a query for which its squared errors were so much smaller."""
    change = min(max(difference / (2.0 * deviation_of(totals) ** 2), -_MOST_STEP), _MOST_STEP)
    odds = np.exp(evidence) + _LATER / (totals[states.QUERIES] * (totals[states.QUERIES] + 1.0))
    return min(np.log(odds) + change, states.MOST_EVIDENCE)


@inner
def _weigh_evidence(learned, parts, rewards, expected, kind, row, share, is_answer, m):
    """Compare the predictions of both models and the mean of earlier rewards, and write those of the static one.

    The mean is that of queries that were ranked statically: once the learned model is used, most rewards may be good.
    Known answers are always rewarded, so that their mean, which is always right, is no hypothesis. Votes of past
    queries also tell how much a query earns, whatever is shown for it. If several memories have rewards of their own,
    the differences between these are therefore predicted, too.
    """
    totals, n, is_static = learned.totals, 0, not kind.chosen[row]
    of_static, of_mean, of_learned = 0.0, 0.0, 0.0  # sums of squared errors
    total_of_static, total_of_mean, total_of_learned = 0.0, 0.0, 0.0  # sums of errors
    mean = totals[states.REWARDS] / totals[states.N_REWARDS]
    has_mean = not is_answer and mean < 1.0
    for i in range(m):
        if np.isnan(rewards[i]):
            continue
        expected[i] = expected_reward(learned.weights[states.STATIC], parts[i], states.N_STATIC)
        static = rewards[i] - expected[i]
        error = rewards[i] - expected_reward(learned.weights[states.LEARNED], parts[i], states.N_REGRESSED)
        from_mean = rewards[i] - mean if has_mean else static
        of_static, of_mean, of_learned = of_static + static**2, of_mean + from_mean**2, of_learned + error**2
        total_of_static, total_of_mean = total_of_static + static, total_of_mean + from_mean
        total_of_learned += error
        if is_static and not is_answer:
            totals[states.REWARDS] += share * rewards[i]
            totals[states.N_REWARDS] += share
        n += 1
    if n == 0:
        return
    squares = of_static
    for over_static, over_mean in ((states.OVER_STATIC, states.OVER_MEAN), (states.WITHIN_STATIC, states.WITHIN_MEAN)):
        totals[over_static] = _weighed(totals[over_static], share * (of_static - of_learned), totals)
        if is_static:
            totals[over_mean] = _weighed(totals[over_mean], share * (of_mean - of_learned), totals)
        if n > 1 and not kind.is_shared:
            of_static -= total_of_static**2 / n
            of_mean -= total_of_mean**2 / n
            of_learned -= total_of_learned**2 / n
    totals[states.SQUARES] = _MEMORY_OF_ERRORS * totals[states.SQUARES] + squares / n
    totals[states.N_SQUARES] = _MEMORY_OF_ERRORS * totals[states.N_SQUARES] + 1.0


@inner
def _count_outcome(sums, error, share):
    """Count the error of the expected reward of the first result of a ranking, which ranks this share of queries.

    An error stands for the queries that the other ranking has answered (Horvitz and Thompson, 1952).
    """
    weight = 1.0 / share
    sums[states.WEIGHT] += weight
    sums[states.SQUARED_WEIGHT] += weight * weight
    sums[states.SUM] += weight * error
    sums[states.SUM_OF_SQUARES] += weight * error * error


@inner
def _count_lift(learned, parts, reward, best, similar, share, is_chosen):
    """Count the first candidates of the learned and the static ranking. The first candidate of all has this reward."""
    totals, weights = learned.totals, learned.weights[states.LEARNED]
    totals[states.QUERIES] += 1.0
    totals[states.RECENT_QUERIES] = _MEMORY_OF_LEARNED * totals[states.RECENT_QUERIES] + 1.0
    for j in range(states.APART, states.LIFT + 1):
        totals[j] *= _MEMORY_OF_LEARNED
    if best != similar:
        of_learned = expected_reward(weights, parts[best], states.N_REGRESSED)
        of_static = expected_reward(weights, parts[similar], states.N_REGRESSED)
        lift = of_learned - of_static
        totals[states.APART] += 1.0
        totals[states.LIFT] += lift
        totals[states.SQUARED_LIFT] += lift * lift
        for j in range(states.N_OUTCOMES):
            learned.outcomes[states.STATIC, j] *= _MEMORY_OF_STATIC
            learned.outcomes[states.LEARNED, j] *= _MEMORY_OF_LEARNED
        if best == 0 and is_chosen and not np.isnan(reward):
            _count_outcome(learned.outcomes[states.LEARNED], reward - of_learned, share)
        elif similar == 0 and not is_chosen and not np.isnan(reward):
            _count_outcome(learned.outcomes[states.STATIC], reward - of_static, 1.0 - share)


@inner
def _try(learned, query, keys, similarities, parts, rewards, kind, row, scores):
    """Compare the first results of both rankings, which are ``firsts`` if they were ranked with other parts as well.

    Return the candidate that was passed over, if all rewards are good and each ranking in use puts several memories
    before these; or -1. Somebody has chosen them (Joachims, 2002, "Optimizing search engines using clickthrough data").
    """
    m = rewards.size
    best, similar, least, shown, shown_similar = 0, 0, np.inf, -np.inf, -np.inf
    divisor = slope(learned)
    for i in range(m):
        scores[i] = score(learned.weights[states.LEARNED], divisor, similarities[i], query, keys[i], parts[i])
        if scores[i] > scores[best]:
            best = i
        if similarities[i] > similarities[similar]:
            similar = i
        if not np.isnan(rewards[i]):
            least, shown = min(least, rewards[i]), max(shown, scores[i])
            shown_similar = max(shown_similar, similarities[i])
    one, other = np.int64(best), np.int64(similar)
    if row < kind.firsts.shape[0]:
        other, one = kind.firsts[row]
    _count_lift(learned, parts, rewards[0], one, other, kind.share, kind.chosen[row])
    n_before, n_more_similar = 0, 0
    for i in range(m):
        n_before += 1 if scores[i] > shown else 0
        n_more_similar += 1 if similarities[i] > shown_similar else 0
    passed = best
    if kind.share == 0.0:  # nobody has seen the learned ranking
        passed, n_before = similar, n_more_similar
    return passed if least > 0.5 and min(n_before, n_more_similar) >= states.N_PASSED else -1


@inner
def _ends_with_passed(rewards):
    """Return whether only the last of several known rewards is 0: it may be that of a memory that was passed over."""
    last, least = -1, np.inf
    for i in range(rewards.size):
        if not np.isnan(rewards[i]):
            least = min(least, rewards[last]) if last >= 0 else np.inf
            last = i
    return rewards[last] == 0.0 and 0.5 < least < np.inf


@inner
def _train_map(learned, query, keys, similarities, parts, rewards, expected, share, m, pulls, terms):
    """Take a step on the advantages of the shown memories, with a softmax over all candidates as the policy."""
    most, total, advantages = -np.inf, 0.0, 0.0
    for i in range(m):
        pulls[i] = -np.inf
        if parts[i, states.CONSTANT] != 0.0:
            pulls[i] = _STEEPNESS * (similarities[i] + parts[i, states.MAPPED])
        most = max(most, pulls[i])
        if not np.isnan(rewards[i]):
            advantages += share * (rewards[i] - expected[i])
    for i in range(m):
        pulls[i] = np.exp(pulls[i] - most)
        total += pulls[i]
    own, moved = learned.recent_queries[learned.ends[states.RECENT]], learned.recent_keys[learned.ends[states.RECENT]]
    copy_values(terms.folded, own)
    moved[:] = np.float32(0.0)
    for i in range(m):
        pull = -advantages * pulls[i] / total
        if not np.isnan(rewards[i]):
            pull += share * (rewards[i] - expected[i])
        if pull != 0.0:
            for start in range(0, query.size, moved.size):
                add_scaled(moved, np.float32(_STEP_OF_MAP * pull), keys[i, start : start + moved.size])
    add_step(learned, terms)


@inner
def _move_key(key, query, advantage):
    towards = np.float32(advantage) * (_TOWARDS if advantage > 0.0 else _AWAY)
    for j in range(key.size):
        key[j] += towards * query[j]
    length = np.sqrt(dot(key, np.int64(0), key, np.int64(0), key.size))
    if length > _TINY:
        for j in range(key.size):
            key[j] /= length


@inner_fastmath
def _train_diagonal(weights, squares, query, key, error):
    """Take AdaGrad steps for the weights of features."""
    for j in range(query.size):
        gradient = error * query[j] * key[j]
        squares[j] += gradient * gradient
        weights[j] -= _STEP_OF_DIAGONAL * gradient / np.sqrt(squares[j])


@inner
def _count(learned, own, reward, advantage, share):
    figures = learned.figures[own]
    figures[states.SHOWN] += 1.0
    figures[states.REWARDED] += reward
    figures[states.TRIALS] = _RECENT * figures[states.TRIALS] + share
    figures[states.ADVANTAGE] = _RECENT * figures[states.ADVANTAGE] + share * advantage


@inner
def _count_pairs(learned, own, parts, advantage):
    """Multiply an advantage with earlier ones of the memory, which are in the sums of its parts."""
    pairs, figures = learned.pairs, learned.figures[own]
    for i in range(pairs.shape[0]):
        pairs[i, states.PRODUCTS] *= _MEMORY
        pairs[i, states.PAIRS] *= _MEMORY
    pairs[0, states.PRODUCTS] += advantage * parts[states.SHARP]
    pairs[0, states.PAIRS] += parts[states.SHARP_PAIRS]
    pairs[1, states.PRODUCTS] += advantage * parts[states.WIDE]
    pairs[1, states.PAIRS] += parts[states.WIDE_PAIRS]
    pairs[2, states.PRODUCTS] += advantage * figures[states.ADVANTAGE]
    pairs[2, states.PAIRS] += figures[states.TRIALS]


@inner
def _information(learned, own, slot):
    """Return the size of the advantage of a past query, or -1 if the memory has lost it."""
    place = np.int64(learned.past_of[own, slot])
    return abs(np.float64(learned.past_advantages[place])) if place >= 0 else -1.0


@inner
def _remember(learned, own, codes, scale, advantage):
    """Keep a query with its memory. If it has enough, replace the least informative one of the oldest."""
    place, slot = learned.ends[states.PAST], learned.n_past[own] % states.MOST_PAST
    for later in range(1, _N_OLDEST if learned.n_past[own] >= states.MOST_PAST else 1):
        other = (learned.n_past[own] + later) % states.MOST_PAST
        if _information(learned, own, other) < _information(learned, own, slot):
            slot = other
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
    learned.past_advantages[place] = np.float32(advantage)
    learned.past_rows[place] = np.int32(own)
    learned.past_of[own, slot] = np.int32(place)
    learned.n_past[own] += 1


@inner
def _enter(learned, table, row, memory, key):
    """Give a row to a memory, for which there is room."""
    copy_values(key, learned.moved[row])
    learned.figures[row, :], learned.past_of[row, :], learned.n_past[row] = 0.0, np.int32(NONE), 0
    learned.ids[row] = memory
    enter_slot(table.slot_table, memory, row)


@kernel
def learn_rewards(model, n, queries, candidates, rewards, kind):
    """Learn from the rewards of candidates, with room for each memory that is new; return the number of memories.

    A reward of NaN is unknown. The ``n`` memories so far have the first rows of the state.
    """
    is_shared, may_be_chosen = kind.is_shared, kind.may_be_chosen
    model = by_reference(model)
    learned, table, codes = model.learned, model.table, model.codes
    ids, similarities, keys = candidates
    m, width = ids.shape[1], queries.shape[1]
    forms, terms, room = new_forms(width), new_terms(learned.map.shape[0]), new_code_room(codes.signs.shape[1])
    rows, parts = empty(m, np.int64), empty((m, states.N_COLUMNS), np.float64)
    mapped, query_codes = empty(learned.map.shape[0], np.float32), empty(width, np.int8)
    pulls, expected = empty(m, np.float64), empty(m, np.float64)
    own_room = Room(
        empty(states.N_PARTS, np.float64),
        empty(states.N_PARTS, np.float64),
        empty((states.N_PARTS, states.N_PARTS), np.float64),
    )
    for row in range(queries.shape[0]):
        query, given, n_shown = queries[row], rewards[row], 0
        for i in range(m):
            if not np.isnan(given[i]):
                n_shown += 1
                if find_slot(table, ids[row, i]) == NONE:
                    _enter(learned, table, n, ids[row, i], keys[row, i])
                    n += 1
        if n_shown == 0:
            continue
        map_query(learned, query, terms, mapped)
        find_rows(learned, table, ids[row], rows)
        scale, _ = encode_bytes(query, query_codes)
        write_forms(learned, query, forms)
        multiply_keys(query, mapped, forms, keys[row], similarities[row], parts)
        describe(learned, query, rows, ids[row], similarities[row], forms, parts)
        if learned.totals[states.QUERIES] == 0.0:
            _expect_mean(learned, given)
        passed = _try(learned, query, keys[row], similarities[row], parts, given, kind, row, pulls)
        is_answer = passed >= 0 if may_be_chosen else _ends_with_passed(given)
        if passed >= 0 and may_be_chosen:
            given[passed] = 0.0
            if rows[passed] == NONE:
                _enter(learned, table, n, ids[row, passed], keys[row, passed])
                rows[passed] = n
                n += 1
        share, deviation = 1.0 / n_shown if is_shared else 1.0, deviation_of(learned.totals)
        for i in range(1, m if not (is_shared or is_answer) else 0):
            if not np.isnan(given[i]):
                parts[i, states.SECOND + min(i, _N_PLACES) - 1] = 1.0
        _weigh_evidence(learned, parts, given, expected, kind, row, share, is_answer, m)
        for i in range(m):
            if not np.isnan(given[i]):
                for which in range(2):  # a loop, so that the code is compiled once
                    n_parts = states.N_STATIC if which == states.STATIC else states.N_REGRESSED
                    _regress(learned, which, n_parts, parts[i], given[i], share, own_room)
        _train_map(learned, query, keys[row], similarities[row], parts, given, expected, share, m, pulls, terms)
        for i in range(m):
            if np.isnan(given[i]):
                continue
            own, advantage = rows[i], given[i] - expected[i]
            _count_pairs(learned, own, parts[i], advantage)
            error = np.float32(parts[i, states.DIAGONAL] - advantage)
            _train_diagonal(learned.diagonal[0], learned.diagonal[1], query, keys[row, i], np.float32(share) * error)
            _count(learned, own, given[i], advantage, share)
            _move_key(learned.moved[own], query, share * advantage)
            code_moved(learned, codes, own, room)
            if abs(advantage) >= _LEAST_REMEMBERED * deviation:
                _remember(learned, own, query_codes, scale, advantage)
    release((forms, terms, room, rows, mapped, query_codes, parts, pulls, expected, own_room))
    return n

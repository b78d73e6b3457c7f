"""Kernels of bandits over very many actions: linear models of all actions in one table, candidates, and choices.

The weight of a feature for an action is the cell ``hash(action) + feature`` of the table, as in feature hashing
(Weinberger et al., 2009). Each weight has a variance of its own, and they are learned by the steps of a Kalman filter
that ignores covariances, as in AROW (Crammer, Kulesza and Dredze, 2009): a decision takes time proportional to the
features of the context that are present.

A decision among some dozens of candidates takes some microseconds of arithmetic. As a series of calls of NumPy it would
take a hundred.
"""

from typing import NamedTuple

import numpy as np

from .._forest import mix
from .._jit import by_reference, by_value, empty, inner, inner_called, kernel, release


class WeightTable(NamedTuple):
    """The weights of all actions."""

    cells: np.ndarray  # float32 (cells, 2), a power of two: weights, and sums of squares of the features learned
    ridge: np.ndarray  # float64 (1,)


def new_table(n_bits: int, ridge: float) -> WeightTable:
    """Return a table without rewards."""
    return WeightTable(np.zeros((1 << n_bits, 2), np.float32), np.array([ridge]))


@inner
def _cell(rows, base, place, first, mask):
    """Return the cell of an entry of a row, for the action that is hashed to ``base``."""
    feature = np.uint64(rows.indices[place]) if rows.sparse else np.uint64(place - first)
    return np.int64((base + feature) & mask)


@inner
def expect(table, rows, row, base, mask):
    """Return the mean and the variance of the reward of an action."""
    mean, variance = 0.0, 0.0
    first = rows.offsets[row]
    for place in range(first, rows.offsets[row + 1]):
        cell, x = _cell(rows, base, place, first, mask), np.float64(rows.values[place])
        mean += x * table.cells[cell, 0]
        variance += x * x / (table.ridge[0] + table.cells[cell, 1])
    return mean, variance


@kernel
def learn_rewards(table, rows, of_pairs, actions, rewards):
    """Learn the rewards of pairs of a row and an action, one after the other."""
    table = by_reference(table)
    rows = by_reference(rows)
    mask = np.uint64(table.cells.shape[0] - 1)
    for i in range(actions.size):
        base, row = mix(np.uint64(actions[i])), of_pairs[i]
        mean, variance = expect(table, rows, row, base, mask)
        step = (rewards[i] - mean) / (1.0 + variance)
        first = rows.offsets[row]
        for place in range(first, rows.offsets[row + 1]):
            cell, x = _cell(rows, base, place, first, mask), np.float64(rows.values[place])
            table.cells[cell, 0] += np.float32(step * x / (table.ridge[0] + table.cells[cell, 1]))
            table.cells[cell, 1] += np.float32(x * x)


N_SCORES = 2
"""Scores that memories gave to an action: by its keys, and by contexts in which it was rewarded."""

N_DESCRIBED = 6


class KnownActions(NamedTuple):
    """The actions that are known, and their rewards by slot. There is a slot more than actions, without rewards."""

    ordered: np.ndarray  # int64 (n_actions,), ascending
    slots: np.ndarray  # int64 (n_actions,), of these
    counts: np.ndarray  # int64 (slots,)
    sums: np.ndarray  # float64 (slots,)


class RidgeWeights(NamedTuple):
    """The ridge regression of rewards on what describes a pair, and how much uncertainty counts."""

    weights: np.ndarray  # float64 (N_DESCRIBED,)
    inverse: np.ndarray  # float64 (N_DESCRIBED, N_DESCRIBED)
    alpha: float  # of the standard deviation of the ridge regression
    beta: float  # of that of the linear model of the action


class OfferedActions(NamedTuple):
    """Which actions are candidates in any case: all that are allowed if they are few, or some in turn.

    Those allowed for row ``i`` are ``offsets[i] .. offsets[i + 1]``. Without offsets all that are known are allowed.
    """

    most: int  # actions that are few
    turn: int
    n_tried: int  # in turn
    offsets: np.ndarray  # int64 (rows + 1,)
    actions: np.ndarray  # int64 (pairs,), in the order of turns
    ascending: np.ndarray  # int64 (pairs,), the same in ascending order in each row


class ProposedMemories(NamedTuple):
    """What a memory proposes: ids of keys, each of which leads to an action."""

    ids: np.ndarray  # int64 (keys,), ascending
    actions: np.ndarray  # int64 (keys,)
    hits: np.ndarray  # int64 (rows, k), ids, or NONE
    scores: np.ndarray  # float32 (rows, k)


class ActionCandidates(NamedTuple):
    """The candidates of rows. Those of a row lie side by side, and ascend."""

    offsets: np.ndarray  # int64 (rows + 1,)
    actions: np.ndarray  # int64 (pairs,)
    scores: np.ndarray  # float64 (pairs, N_SCORES), by keys and by rewarded contexts; 0 where not proposed
    means: np.ndarray  # float64 (pairs,), the reward expected
    deviations: np.ndarray  # float64 (pairs,)
    bounds: np.ndarray  # float64 (pairs,), upper confidence bounds


@inner
def _place(ordered, first, stop, value):
    """Return where a value is between ``first`` and ``stop``, where values ascend, or ``stop`` if it is not."""
    low, high = first, stop
    if first < stop:
        near = first + value - ordered[first]  # where it is if there are no gaps
        if first <= near < stop and ordered[near] == value:
            return near
    while low < high:
        middle = (low + high) // 2
        if ordered[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low if low < stop and ordered[low] == value else stop


@inner_called
def _describe(table, rows, known, row, action, described):
    """Write the mean of the linear model of an action, its mean reward, and what falls with the number of its rewards.

    Returns the variance of the first. An action that is not known is as one without rewards.
    """
    table = by_reference(table)
    rows = by_reference(rows)
    known = by_reference(known)
    mask = np.uint64(table.cells.shape[0] - 1)
    described[0], variance = expect(table, rows, row, mix(np.uint64(action)), mask)
    n = known.ordered.size
    place = _place(known.ordered, 0, n, action)
    slot = known.slots[place] if place < n else n
    count = np.float64(1 + known.counts[slot])
    described[1] = known.sums[slot] / count
    described[2] = 1.0 / np.sqrt(count)
    described[5] = 1.0
    return variance


@kernel
def describe_pairs(table, rows, known, of_pairs, actions, scores, described):
    """Write what describes each pair of a row and an action: see ``_describe``, the scores of the action, and 1."""
    table = by_reference(table)
    rows = by_reference(rows)
    known = by_reference(known)
    for i in range(actions.size):
        _describe(by_value(table), by_value(rows), by_value(known), of_pairs[i], actions[i], described[i])
        for j in range(N_SCORES):
            described[i, 3 + j] = scores[i, j]


@inner
def _add(found, end, action, column, score):
    """Append a candidate with a score, if the column is not negative, or without."""
    found.actions[end] = action
    for j in range(N_SCORES):
        found.scores[end, j] = score if j == column else 0.0


@inner
def _add_offered(actions, a, b, offered, found, end):
    """Append candidates among the actions ``a .. b``; return where they end."""
    few = b - a <= offered.most
    for i in range(b - a if few else offered.n_tried):
        _add(found, end, actions[a + (i if few else (offered.turn + i) % (b - a))], -1, 0.0)
        end += 1
    return end


@inner
def _add_proposals(proposed, column, row, offered, found, end):
    """Append the candidates that a memory proposes; return where they end."""
    restricted = offered.offsets.size > 0
    a, b = (offered.offsets[row], offered.offsets[row + 1]) if restricted else (np.int64(0), np.int64(0))
    for j in range(proposed.hits.shape[1]):
        if proposed.hits[row, j] >= 0:
            place = _place(proposed.ids, 0, proposed.ids.size, proposed.hits[row, j])
            action = proposed.actions[place]
            if not restricted or _place(offered.ascending, a, b, action) < b:
                _add(found, end, action, column, np.float64(max(proposed.scores[row, j], np.float32(0.0))))
                end += 1
    return end


@inner
def _sort(found, first, end):
    """Sort candidates by their actions (Shell, 1959)."""
    gap = 1
    while gap < (end - first) // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(first + gap, end):
            action, left, right = found.actions[i], found.scores[i, 0], found.scores[i, 1]
            j = i
            while j >= first + gap and found.actions[j - gap] > action:
                found.actions[j] = found.actions[j - gap]
                found.scores[j, 0], found.scores[j, 1] = found.scores[j - gap, 0], found.scores[j - gap, 1]
                j -= gap
            found.actions[j], found.scores[j, 0], found.scores[j, 1] = action, left, right
        gap //= 3


@inner
def _merge_equal(found, first, end):
    """Keep each candidate once, with the best of its scores; return where they end."""
    kept = first
    for i in range(first, end):
        if kept > first and found.actions[i] == found.actions[kept - 1]:
            for j in range(N_SCORES):
                found.scores[kept - 1, j] = max(found.scores[kept - 1, j], found.scores[i, j])
        else:
            found.actions[kept] = found.actions[i]
            found.scores[kept, 0], found.scores[kept, 1] = found.scores[i, 0], found.scores[i, 1]
            kept += 1
    return kept


@inner
def _weigh(ridge, described, variance, found, i):
    """Write what is expected of a candidate."""
    mean, spread = 0.0, 0.0
    for j in range(N_DESCRIBED):
        mean += ridge.weights[j] * described[j]
        product = 0.0
        for k in range(N_DESCRIBED):
            product += ridge.inverse[j, k] * described[k]
        spread += described[j] * product
    spread = max(spread, 0.0)
    found.means[i] = mean
    found.deviations[i] = np.sqrt(ridge.alpha * ridge.alpha * spread + ridge.beta * ridge.beta * variance)
    found.bounds[i] = mean + ridge.alpha * np.sqrt(spread) + ridge.beta * np.sqrt(variance)


@kernel
def find_candidates(table, rows, known, ridge, offered, by_key, by_context, found):
    """Write the candidates of rows, those offered and those proposed, and what is expected of each.

    ``found`` must have room for all. Returns how many there are.
    """
    table = by_reference(table)
    rows = by_reference(rows)
    known = by_reference(known)
    ridge = by_reference(ridge)
    offered = by_reference(offered)
    by_key = by_reference(by_key)
    by_context = by_reference(by_context)
    found = by_reference(found)
    described = empty(N_DESCRIBED, np.float64)
    end = 0
    for row in range(rows.offsets.size - 1):
        first = end
        found.offsets[row] = first
        if offered.offsets.size > 0:
            end = _add_offered(offered.actions, offered.offsets[row], offered.offsets[row + 1], offered, found, end)
        else:
            end = _add_offered(known.ordered, 0, known.ordered.size, offered, found, end)
        end = _add_proposals(by_key, 0, row, offered, found, end)
        end = _add_proposals(by_context, 1, row, offered, found, end)
        _sort(found, first, end)
        end = _merge_equal(found, first, end)
        for i in range(first, end):
            variance = _describe(by_value(table), by_value(rows), by_value(known), row, found.actions[i], described)
            for j in range(N_SCORES):
                described[3 + j] = found.scores[i, j]
            _weigh(ridge, described, variance, found, i)
    found.offsets[rows.offsets.size - 1] = end
    release(described)
    return end


@kernel
def share_best(scores, offsets, probabilities):
    """Write the probabilities of choosing one of the best pairs of each row at random."""
    for row in range(offsets.size - 1):
        best, count = -np.inf, 0
        for i in range(offsets[row], offsets[row + 1]):
            if scores[i] > best:
                best, count = scores[i], 0
            count += scores[i] == best
        for i in range(offsets[row], offsets[row + 1]):
            probabilities[i] = 1.0 / count if scores[i] == best else 0.0


@kernel
def draw_pairs(probabilities, offsets, uniforms, drawn):
    """Write the pair that each row draws, given a number in [0, 1) for each. It has a positive probability."""
    for row in range(offsets.size - 1):
        a, b = offsets[row], offsets[row + 1]
        total, likeliest = 0.0, a
        for i in range(a, b):
            total += probabilities[i]
            if probabilities[i] > probabilities[likeliest]:
                likeliest = i
        drawn[row] = likeliest  # where rounding leaves none
        reached = 0.0
        for i in range(a, b):
            reached += probabilities[i]
            if reached > uniforms[row] * total:
                drawn[row] = i
                break

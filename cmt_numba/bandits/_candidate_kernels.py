"""Kernels of :class:`CMTBandit` that find and score candidates, and kernels that draw actions."""

from typing import NamedTuple

import numpy as np

from .._forest import NONE
from .._jit import by_reference, by_value, inner, inner_called, kernel, release, zeros
from . import _reward_kernels as reward_kernels


class OfferedActions(NamedTuple):
    """Actions that are candidates without a search.

    In rows that allow at most ``most`` actions, all of them are candidates. In other rows, ``n_tried`` actions are
    taken in turn. Row ``i`` allows ``actions[offsets[i]:offsets[i + 1]]``. If ``offsets`` is empty, all known actions
    are allowed.
    """

    most: int
    turn: int  # position of the next action to try
    n_tried: int
    offsets: np.ndarray  # int64 (rows + 1,)
    actions: np.ndarray  # int64 (pairs,), in the order in which they are tried
    ascending: np.ndarray  # int64 (pairs,), the actions of each row in ascending order


class ProposedActions(NamedTuple):
    """Results of a search that proposes actions."""

    ids: np.ndarray  # int64 (memories,), all ids in ascending order
    actions: np.ndarray  # int64 (memories,), the action of each id
    hits: np.ndarray  # int64 (rows, k), the ids found for each row, padded with NONE


class RewardModel(NamedTuple):
    """The reward model of a bandit."""

    learned: reward_kernels.RewardState
    keys: reward_kernels.ActionKeyTable
    known: reward_kernels.KnownActions


class CandidateSources(NamedTuple):
    """Sources of candidates. Each row has at most ``most`` candidates."""

    offered: OfferedActions
    by_key: ProposedActions
    by_context: ProposedActions
    most: int


class ActionCandidates(NamedTuple):
    """Candidates with estimates of their rewards. Row ``i`` has the candidates ``offsets[i]:offsets[i + 1]``."""

    offsets: np.ndarray  # int64 (rows + 1,)
    actions: np.ndarray  # int64 (pairs,), ascending in each row
    means: np.ndarray  # float64 (pairs,), expected rewards
    deviations: np.ndarray  # float64 (pairs,), standard deviations
    bounds: np.ndarray  # float64 (pairs,), upper confidence bounds


@inner
def _add_offered(known, offered, n_tried, row, found):
    """Write the candidates that need no search. Return their number and the number of allowed actions."""
    a, b, actions = 0, known.ordered.size, known.ordered
    if offered.offsets.size > 0:
        a, b, actions = offered.offsets[row], offered.offsets[row + 1], offered.actions
    few = b - a <= offered.most
    n = b - a if few else min(n_tried, b - a)
    for i in range(n):
        found[i] = actions[a + (i if few else (offered.turn + i) % (b - a))]
    return n, b - a


@inner
def _add_proposed(proposed, row, offered, found, end):
    """Append the proposed actions that the row allows. Return the new end of the list."""
    restricted = offered.offsets.size > 0
    a, b = (offered.offsets[row], offered.offsets[row + 1]) if restricted else (0, 0)
    for j in range(proposed.hits.shape[1]):
        if proposed.hits[row, j] >= 0:
            action = proposed.actions[
                reward_kernels.place_of(proposed.ids, 0, proposed.ids.size, proposed.hits[row, j])
            ]
            if not restricted or reward_kernels.place_of(offered.ascending, a, b, action) < b:
                found[end] = action
                end += 1
    return end


@inner
def _sort_distinct(actions, n):
    """Sort ``actions[:n]`` by Shellsort and remove duplicates. Return the number of distinct actions."""
    gap = 1
    while gap < n // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(gap, n):
            action, j = actions[i], i
            while j >= gap and actions[j - gap] > action:
                actions[j] = actions[j - gap]
                j -= gap
            actions[j] = action
        gap //= 3
    kept = 0
    for i in range(n):
        if kept == 0 or actions[i] != actions[kept - 1]:
            actions[kept] = actions[i]
            kept += 1
    return kept


@inner
def _list_candidates(known, sources, row, found):
    """Write the sorted candidates of a row. Return their number and the number of allowed actions."""
    offered = sources.offered
    n, n_allowed = _add_offered(known, offered, offered.n_tried, row, found)
    if n < n_allowed:
        n = _add_proposed(sources.by_key, row, offered, found, n)
        n = _add_proposed(sources.by_context, row, offered, found, n)
        if n == 0:
            n, n_allowed = _add_offered(known, offered, 1, row, found)
    return _sort_distinct(found, n), n_allowed


@inner_called
def _predict_row(model, rows, row, actions, n_further, room):
    model, rows = by_reference(model), by_reference(rows)
    reward_kernels.aim(model.learned, rows, row, room)
    reward_kernels.predict(model.learned, model.keys, model.known, rows, row, actions, n_further, room)


@kernel
def find_candidates(model, rows, alpha, beta, sources, found):
    """Write the candidates of all rows and their estimated rewards to ``found``, and return their number.

    ``alpha`` and ``beta`` are the weights in upper confidence bounds of the standard deviations of the ridge regression
    and of the other models.
    """
    model, rows, sources = by_reference(model), by_reference(rows), by_reference(sources)
    most, end = sources.most, 0
    room = reward_kernels.new_room(model.learned.map.shape[2], most)
    reward_kernels.solve_stack(model.learned, room)
    for row in range(rows.offsets.size - 1):
        found.offsets[row] = end
        actions = found.actions[end : end + most]
        n, n_allowed = _list_candidates(model.known, sources, row, actions)
        n_further = n_allowed - n if model.keys.ordered.size == 0 else 0
        _predict_row(by_value(model), by_value(rows), row, actions[:n], n_further, room)
        for i in range(n):
            mean = reward_kernels.expected(room, i)
            of_stack, of_models = alpha * reward_kernels.spread(room, i), beta * reward_kernels.doubt(room, i, mean)
            found.means[end + i] = mean
            found.deviations[end + i] = np.sqrt(of_stack * of_stack + of_models * of_models)
            found.bounds[end + i] = mean + of_stack + of_models
        end += n
    found.offsets[rows.offsets.size - 1] = end
    release(room)
    return end


@kernel
def learn_rewards(model, rows, chosen, rewards, sources):
    """Update the model with the reward of the action chosen in each row. All chosen actions must be known."""
    model, rows, sources = by_reference(model), by_reference(rows), by_reference(sources)
    state, keys, known, most = model.learned, model.keys, model.known, sources.most
    room, found = reward_kernels.new_room(state.map.shape[2], most + 1), zeros(most + 1, np.int64)
    for row in range(rows.offsets.size - 1):
        n, n_allowed = _list_candidates(known, sources, row, found)
        found[n] = chosen[row]
        n = _sort_distinct(found, n + 1)
        n_further = n_allowed - n if keys.ordered.size == 0 else 0
        reward_kernels.solve_stack(state, room)
        actions = found[:n]
        _predict_row(by_value(model), by_value(rows), row, actions, n_further, room)
        place = reward_kernels.place_of(actions, 0, n, chosen[row])
        reward_kernels.learn_reward(state, keys, known, rows, row, actions, place, rewards[row], room)
    release((room, found))


@kernel
def find_slots(ordered, order, actions, slots):
    """Write the slot of each action, or NONE if it is unknown. ``order[i]`` is the slot of action ``ordered[i]``."""
    for i in range(actions.size):
        place = reward_kernels.place_of(ordered, 0, ordered.size, actions[i])
        slots[i] = order[place] if place < ordered.size else NONE


@kernel
def share_best(scores, offsets, probabilities):
    """Write equal probabilities for the best-scored pairs of each row, and 0 for its other pairs."""
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
    """Draw a pair with positive probability in each row, from one uniform number in [0, 1) per row."""
    for row in range(offsets.size - 1):
        a, b = offsets[row], offsets[row + 1]
        total, likeliest = 0.0, a
        for i in range(a, b):
            total += probabilities[i]
            if probabilities[i] > probabilities[likeliest]:
                likeliest = i
        drawn[row] = likeliest  # fallback in case of rounding errors
        reached = 0.0
        for i in range(a, b):
            reached += probabilities[i]
            if reached > uniforms[row] * total:
                drawn[row] = i
                break

"""Kernels of :class:`CMTBandit` that find candidates and learn their rewards, and kernels that draw actions.

The expected reward of an action in a context combines several predictions:

- The *choice probability* is a softmax over the candidates, which assumes that exactly one candidate is correct. Its
  logits combine a linear model of the context for each action with the map.
- The *value* is a linear model of each action's rewards, for actions that are correct in many contexts.
- The *map* is a bilinear form of context and key, which generalizes to actions with similar keys. Only keys with
  features of their own have it: the feedback model learns about keys with the features of contexts.

The value and the map learn the residuals of the other predictions. A ridge regression weights all predictions, together
with the mean reward of the action. Predictions are made before their reward is learned, so the weights reflect the
accuracy on new contexts.

The linear models share a table. Cell ``hash(action) + feature`` contains the weight of a feature for an action, as in
feature hashing (Weinberger et al., 2009). Each weight has its own variance and is updated by a Kalman filter without
covariances, as in AROW (Crammer, Kulesza and Dredze, 2009).
"""

from typing import NamedTuple

import numpy as np

from .._jit import by_reference, empty, inner, inner_allocating, inner_called, kernel, release, zeros
from .._kernels import NONE, Rows, lower_bound, mix

VALUE, VALUE_SQUARES, CHOICE, CHOICE_SQUARES = range(4)
"""Columns of the table: a weight of the value model and its gained precision, then the same for the choice model."""

N_PREDICTIONS = 6
PROBABILITY, EXPECTED_VALUE, MEAN, NOVELTY, CONSTANT, MAPPED = range(N_PREDICTIONS)
PRIOR = np.array([1.0, 0.0, 0.0, 0.0, 0.0, 1.0])  # weights of the predictions before the first reward
STACK_RIDGE = 50.0
MAP_WIDTH = 256  # maximum number of rows and columns of the map. Feature indices are taken modulo these numbers.
FIRST_SCALE = 4.0  # initial factor of the mapped reward in the logits

_MOST_FEATURES, _LEAST_SHARE = 12.0, 0.4
"""The ridge of the linear models is divided by ``n / _MOST_FEATURES`` for contexts with more than ``_MOST_FEATURES``
equally large features, but not below ``_LEAST_SHARE`` of its value. Contexts of an action with many features have
little in common, so their weights are learned in larger steps.
"""

_PRECISION_WITH_KEY = 3.0  # factor of the ridge for actions with keys, because keys also predict the choice
_STEP_OF_SCALE = 0.1
_MIN_CURVATURE, _MIN_GRADIENT = 1e-4, 1e-3
_MIN_DOUBT = 0.02  # lower limit of ``1 - p`` as a divisor, where ``p`` is the probability of the chosen action
_LARGEST = 8.0  # maximum magnitude of a prediction
_MIN_MEAN = 0.001  # lower limit of the mean from which the variance of a reward is computed


class RewardState(NamedTuple):
    """Learned parameters of the model, except the mean rewards of actions."""

    cells: np.ndarray  # float32 (2 ** n_bits, 4), the table of the linear models
    ridge: np.ndarray  # float64 (1,), precision of a weight before the first reward
    scale: np.ndarray  # float64 (1,), factor of the mapped reward in the logits
    map: np.ndarray  # float32 (2, context width, key width), weights and gained precisions; empty without keys
    matrix: np.ndarray  # float64 (N_PREDICTIONS, N_PREDICTIONS), matrix of the ridge regression
    target: np.ndarray  # float64 (N_PREDICTIONS,), right-hand side of the ridge regression


class KnownActions(NamedTuple):
    """Known actions and their reward statistics. Slot ``n_actions`` has no rewards and represents unknown actions."""

    ordered: np.ndarray  # int64 (n_actions,), actions in ascending order
    slots: np.ndarray  # int64 (n_actions,), slot of each action
    counts: np.ndarray  # int64 (slots,), number of rewards in each slot
    sums: np.ndarray  # float64 (slots,), sum of rewards in each slot


class ActionKeyTable(NamedTuple):
    """Action keys."""

    rows: Rows
    ordered: np.ndarray  # int64 (keys,), actions with keys in ascending order
    places: np.ndarray  # int64 (keys,), index in ``rows`` of each action's key


class PredictionRoom(NamedTuple):
    """Scratch arrays for the predictions of up to ``max_actions`` candidates of one row."""

    predictions: np.ndarray  # float64 (max_actions, N_PREDICTIONS)
    value_variances: np.ndarray  # float64 (max_actions,)
    map_variances: np.ndarray  # float64 (max_actions,)
    keys: np.ndarray  # int64 (max_actions,), index of the action's key, or -1
    mapped: np.ndarray  # float32 (2, key width), product of context and map, and its variances
    weights: np.ndarray  # float64 (N_PREDICTIONS,), weights of the ridge regression
    inverse: np.ndarray  # float64 (N_PREDICTIONS, N_PREDICTIONS), inverse of the ridge regression's matrix
    ridge: np.ndarray  # float64 (1,), ridge of the linear models in this row's context


@inner_allocating
def new_room(width, max_actions):
    """Return scratch arrays for up to ``max_actions`` candidates and a map of keys of ``width`` features."""
    return PredictionRoom(
        empty((max_actions, N_PREDICTIONS), np.float64),
        empty(max_actions, np.float64),
        empty(max_actions, np.float64),
        empty(max_actions, np.int64),
        empty((2, width), np.float32),
        empty(N_PREDICTIONS, np.float64),
        empty((N_PREDICTIONS, N_PREDICTIONS), np.float64),
        empty(1, np.float64),
    )


@inner
def place_of(ordered, first, stop, value):
    """Return the index of ``value`` in the ascending values ``ordered[first:stop]``, or ``stop`` if it is missing."""
    if first < stop:
        near = first + value - ordered[first]  # index of the value if there are no gaps
        if first <= near < stop and ordered[near] == value:
            return near
    place = lower_bound(ordered, first, stop, value)
    return place if place < stop and ordered[place] == value else stop


@inner
def solve_stack(state, room):
    """Write the inverse and the weights of the ridge regression, by Gauss-Jordan elimination."""
    a, n = room.inverse, N_PREDICTIONS
    for i in range(n):
        for j in range(n):
            a[i, j] = state.matrix[i, j]
    for i in range(n):
        pivot = 1.0 / a[i, i]
        a[i, i] = 1.0
        for j in range(n):
            a[i, j] *= pivot
        for k in range(n):
            if k != i:
                factor = a[k, i]
                a[k, i] = 0.0
                for j in range(n):
                    a[k, j] -= factor * a[i, j]
    for i in range(n):
        room.weights[i] = PRIOR[i]
        for j in range(n):
            room.weights[i] += a[i, j] * state.target[j]


@inner
def _cell(rows, base, place, first, mask):
    """Return the table cell for the feature at position ``place`` and the action with hash ``base``."""
    feature = np.uint64(rows.indices[place]) if rows.sparse else np.uint64(place - first)
    return np.int64((base + feature) & mask)


@inner
def feature_of(rows, place, first):
    """Return the feature index at position ``place`` of a row that starts at ``first``."""
    return np.int64(rows.indices[place]) if rows.sparse else place - first


@inner
def aim_map(state, rows, row, room):
    """Write the product of a context and the map: the weight of each key feature and its variance."""
    learned, ridge, mapped = state.map, np.float32(state.ridge[0]), room.mapped
    first = rows.offsets[row]
    for j in range(mapped.shape[1]):
        mapped[0, j] = mapped[1, j] = 0.0
    if mapped.shape[1] > 0:
        for place in range(first, rows.offsets[row + 1]):
            i, x = feature_of(rows, place, first) % learned.shape[1], rows.values[place]
            for j in range(mapped.shape[1]):
                mapped[0, j] += x * learned[0, i, j]
                mapped[1, j] += x * x / (ridge + learned[1, i, j])


@inner
def aim(state, rows, row, room):
    """Prepare ``room`` for predictions in the context of a row."""
    aim_map(state, rows, row, room)
    fourth_powers = 0.0  # equals ``1 / n`` for ``n`` equally large features
    for place in range(rows.offsets[row], rows.offsets[row + 1]):
        square = np.float64(rows.values[place]) * np.float64(rows.values[place])
        fourth_powers += square * square
    room.ridge[0] = state.ridge[0] * min(max(_MOST_FEATURES * fourth_powers, _LEAST_SHARE), 1.0)


@inner
def _map_key(state, keys, room, i):
    """Write the mapped reward of candidate ``i``. Return the contribution of its key to the logit."""
    rows, mapped, variance, width = keys.rows, 0.0, 0.0, room.mapped.shape[1]
    first, stop = rows.offsets[room.keys[i]], rows.offsets[room.keys[i] + 1]
    if width > 0:
        for place in range(first, stop):
            j, z = feature_of(rows, place, first) % width, np.float64(rows.values[place])
            mapped += z * np.float64(room.mapped[0, j])
            variance += z * z * np.float64(room.mapped[1, j])
    mapped = min(max(mapped, -_LARGEST), _LARGEST)
    room.predictions[i, MAPPED] = mapped
    room.map_variances[i] = variance
    return state.scale[0] * mapped


@inner
def predict(state, keys, known, rows, row, actions, n_further, room):
    """Write the predictions for actions in the context that :func:`aim` has prepared.

    The softmax includes ``n_further`` other actions with logit 0. Unknown actions are treated like known actions
    without rewards.
    """
    mask, predictions = np.uint64(state.cells.shape[0] - 1), room.predictions
    first, ridge, highest = rows.offsets[row], room.ridge[0], 0.0 if n_further > 0 else -np.inf
    for i in range(actions.size):
        base, value, choice, variance = mix(np.uint64(actions[i])), 0.0, 0.0, 0.0
        for place in range(first, rows.offsets[row + 1]):
            cell, x = _cell(rows, base, place, first, mask), np.float64(rows.values[place])
            value += x * state.cells[cell, VALUE]
            choice += x * state.cells[cell, CHOICE]
            variance += x * x / (ridge + state.cells[cell, VALUE_SQUARES])
        place = place_of(keys.ordered, 0, keys.ordered.size, actions[i])
        room.keys[i] = keys.places[place] if place < keys.ordered.size else -1
        room.map_variances[i] = predictions[i, MAPPED] = 0.0
        if room.keys[i] >= 0:
            choice += _map_key(state, keys, room, i)
        place = place_of(known.ordered, 0, known.ordered.size, actions[i])
        slot = known.slots[place] if place < known.ordered.size else known.ordered.size
        count = np.float64(1 + known.counts[slot])
        predictions[i, PROBABILITY] = choice
        predictions[i, EXPECTED_VALUE] = min(max(value, -_LARGEST), _LARGEST)
        predictions[i, MEAN] = known.sums[slot] / count
        predictions[i, NOVELTY] = 1.0 / np.sqrt(count)
        predictions[i, CONSTANT] = 1.0
        room.value_variances[i] = variance
        highest = max(highest, choice)
    total = n_further * np.exp(-highest) if n_further > 0 else 0.0
    for i in range(actions.size):
        predictions[i, PROBABILITY] = np.exp(predictions[i, PROBABILITY] - highest)
        total += predictions[i, PROBABILITY]
    for i in range(actions.size):
        predictions[i, PROBABILITY] /= total


@inner
def expected(room, i):
    """Return the expected reward of candidate ``i``."""
    mean = 0.0
    for j in range(N_PREDICTIONS):
        mean += room.weights[j] * room.predictions[i, j]
    return mean


@inner
def doubt(room, i, mean):
    """Return the deviation of the value model and the map, times that of a binary reward if there is a key."""
    variance = room.value_variances[i] + room.map_variances[i]
    if room.keys[i] >= 0:
        likely = min(max(mean, _MIN_MEAN), 1.0 - _MIN_MEAN)
        variance *= likely * (1.0 - likely)
    return np.sqrt(variance)


@inner
def spread(room, i):
    """Return the standard deviation of the ridge regression's prediction for candidate ``i``."""
    total = 0.0
    for j in range(N_PREDICTIONS):
        product = 0.0
        for k in range(N_PREDICTIONS):
            product += room.inverse[j, k] * room.predictions[i, k]
        total += room.predictions[i, j] * product
    return np.sqrt(max(total, 0.0))


@inner
def _learn_stack(state, room, i, reward):
    """Update the ridge regression with the predictions and the reward of candidate ``i``."""
    left = reward
    for j in range(N_PREDICTIONS):
        left -= PRIOR[j] * room.predictions[i, j]
    for j in range(N_PREDICTIONS):
        state.target[j] += left * room.predictions[i, j]
        for k in range(N_PREDICTIONS):
            state.matrix[j, k] += room.predictions[i, j] * room.predictions[i, k]


@inner
def _learn_value(state, rows, row, action, left, variance, ridge):
    """Train the linear model of an action's values on ``left``, the residual of the other predictions."""
    base, mask, first = mix(np.uint64(action)), np.uint64(state.cells.shape[0] - 1), rows.offsets[row]
    step = left / (1.0 + variance)
    for place in range(first, rows.offsets[row + 1]):
        cell, x = _cell(rows, base, place, first, mask), np.float64(rows.values[place])
        state.cells[cell, VALUE] += np.float32(step * x / (ridge + state.cells[cell, VALUE_SQUARES]))
        state.cells[cell, VALUE_SQUARES] += np.float32(x * x)


@inner
def _learn_map(state, keys, rows, row, key, left, variance):
    """Train the map on ``left``, the residual of the other predictions."""
    learned, ridge, step = state.map, np.float32(state.ridge[0]), np.float32(left / (1.0 + variance))
    first, first_of_key = rows.offsets[row], keys.rows.offsets[key]
    for place in range(first, rows.offsets[row + 1]):
        i, x = feature_of(rows, place, first) % learned.shape[1], rows.values[place]
        for other in range(first_of_key, keys.rows.offsets[key + 1]):
            j = feature_of(keys.rows, other, first_of_key) % learned.shape[2]
            product = x * keys.rows.values[other]
            learned[0, i, j] += step * product / (ridge + learned[1, i, j])
            learned[1, i, j] += product * product


@inner
def _learn_choice(state, rows, row, action, gradient, curvature, ridge):
    """Update the linear model of an action's logit by one step of an extended Kalman filter."""
    base, mask, first = mix(np.uint64(action)), np.uint64(state.cells.shape[0] - 1), rows.offsets[row]
    variance = 0.0
    for place in range(first, rows.offsets[row + 1]):
        cell, x = _cell(rows, base, place, first, mask), np.float64(rows.values[place])
        variance += x * x / (ridge + state.cells[cell, CHOICE_SQUARES])
    step = gradient / (1.0 + curvature * variance)
    for place in range(first, rows.offsets[row + 1]):
        cell, x = _cell(rows, base, place, first, mask), np.float64(rows.values[place])
        state.cells[cell, CHOICE] += np.float32(step * x / (ridge + state.cells[cell, CHOICE_SQUARES]))
        state.cells[cell, CHOICE_SQUARES] += np.float32(curvature * x * x)


@inner
def _learn_choices(state, rows, row, actions, chosen, reward, room):
    """Update the logits. A reward of 1 favours the chosen action, and a reward of 0 the other candidates."""
    own = room.predictions[chosen, PROBABILITY]
    of_others = own / max(1.0 - own, _MIN_DOUBT)
    of_map = 0.0
    for i in range(actions.size):
        p = room.predictions[i, PROBABILITY]
        gradient = 1.0 - p if i == chosen else -p
        gradient = reward * gradient + (1.0 - reward) * (-own if i == chosen else of_others * p)
        if abs(gradient) >= _MIN_GRADIENT:
            curvature = max(p * (1.0 - p), _MIN_CURVATURE) * (1.0 if i == chosen else reward)
            ridge = room.ridge[0] * (_PRECISION_WITH_KEY if room.keys[i] >= 0 else 1.0)
            _learn_choice(state, rows, row, actions[i], gradient, curvature, ridge)
            of_map += gradient * room.predictions[i, MAPPED]
    state.scale[0] = max(1.0, state.scale[0] + _STEP_OF_SCALE * of_map)


@inner
def learn_reward(state, keys, known, rows, row, actions, chosen, reward, room):
    """Update the model with the reward of candidate ``chosen``. The predictions must be in ``room``."""
    left, weights = reward - expected(room, chosen), room.weights
    value, mapped = room.predictions[chosen, EXPECTED_VALUE], room.predictions[chosen, MAPPED]
    _learn_stack(state, room, chosen, reward)
    left_by_others = left + (weights[EXPECTED_VALUE] - 1.0) * value
    _learn_value(state, rows, row, actions[chosen], left_by_others, room.value_variances[chosen], room.ridge[0])
    if room.keys[chosen] >= 0 and state.map.size > 0:
        left_by_others = left + (weights[MAPPED] - 1.0) * mapped
        _learn_map(state, keys, rows, row, room.keys[chosen], left_by_others, room.map_variances[chosen])
    if actions.size > 1:
        _learn_choices(state, rows, row, actions, chosen, reward, room)
    place = place_of(known.ordered, 0, known.ordered.size, actions[chosen])
    known.counts[known.slots[place]] += 1
    known.sums[known.slots[place]] += reward


# Candidates


class OfferedActions(NamedTuple):
    """Actions that are candidates without a search.

    In rows that allow at most ``max_actions`` actions, all of them are candidates. In other rows, ``n_tried`` actions
    are taken in turn. Row ``i`` allows ``actions[offsets[i]:offsets[i + 1]]``. If ``offsets`` is empty, all known
    actions are allowed.
    """

    max_actions: int
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

    learned: RewardState
    keys: ActionKeyTable
    known: KnownActions


class CandidateSources(NamedTuple):
    """Sources of candidates. Each row has at most ``max_actions`` candidates."""

    offered: OfferedActions
    by_key: ProposedActions
    by_context: ProposedActions
    max_actions: int


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
    few = b - a <= offered.max_actions
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
            action = proposed.actions[place_of(proposed.ids, 0, proposed.ids.size, proposed.hits[row, j])]
            if not restricted or place_of(offered.ascending, a, b, action) < b:
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
    aim(model.learned, rows, row, room)
    predict(model.learned, model.keys, model.known, rows, row, actions, n_further, room)


@kernel
def find_candidates(model, rows, alpha, beta, sources, found):
    """Write the candidates of all rows and their estimated rewards to ``found``, and return their number.

    ``alpha`` and ``beta`` are the weights in upper confidence bounds of the standard deviations of the ridge regression
    and of the other models.
    """
    model, rows, sources = by_reference(model), by_reference(rows), by_reference(sources)
    max_actions, end = sources.max_actions, 0
    room = new_room(model.learned.map.shape[2], max_actions)
    solve_stack(model.learned, room)
    for row in range(rows.offsets.size - 1):
        found.offsets[row] = end
        actions = found.actions[end : end + max_actions]
        n, n_allowed = _list_candidates(model.known, sources, row, actions)
        n_further = n_allowed - n if model.keys.ordered.size == 0 else 0
        _predict_row(model, rows, row, actions[:n], n_further, room)
        for i in range(n):
            mean = expected(room, i)
            of_stack, of_models = alpha * spread(room, i), beta * doubt(room, i, mean)
            found.means[end + i] = mean
            found.deviations[end + i] = np.sqrt(of_stack * of_stack + of_models * of_models)
            found.bounds[end + i] = mean + of_stack + of_models
        end += n
    found.offsets[rows.offsets.size - 1] = end
    release(room)
    return end


@kernel
def learn_chosen(model, rows, chosen, rewards, sources):
    """Update the model with the reward of the action chosen in each row. All chosen actions must be known."""
    model, rows, sources = by_reference(model), by_reference(rows), by_reference(sources)
    state, keys, known, max_actions = model.learned, model.keys, model.known, sources.max_actions
    room, found = new_room(state.map.shape[2], max_actions + 1), zeros(max_actions + 1, np.int64)
    for row in range(rows.offsets.size - 1):
        n, n_allowed = _list_candidates(known, sources, row, found)
        found[n] = chosen[row]
        n = _sort_distinct(found, n + 1)
        n_further = n_allowed - n if keys.ordered.size == 0 else 0
        solve_stack(state, room)
        actions = found[:n]
        _predict_row(model, rows, row, actions, n_further, room)
        place = place_of(actions, 0, n, chosen[row])
        learn_reward(state, keys, known, rows, row, actions, place, rewards[row], room)
    release((room, found))


@kernel
def find_slots(ordered, order, actions, slots):
    """Write the slot of each action, or NONE if it is unknown. ``order[i]`` is the slot of action ``ordered[i]``."""
    for i in range(actions.size):
        place = place_of(ordered, 0, ordered.size, actions[i])
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

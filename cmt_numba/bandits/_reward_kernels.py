"""Kernels of the reward model of :class:`CMTBandit`.

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

from .._forest import Rows, lower_bound, mix
from .._jit import empty, inner, inner_allocating

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
_LEAST_CURVATURE, _LEAST_GRADIENT = 1e-4, 1e-3
_LEAST_DOUBT = 0.02  # lower limit of ``1 - p`` as a divisor, where ``p`` is the probability of the chosen action
_LARGEST = 8.0  # maximum magnitude of a prediction
_LEAST_MEAN = 0.001  # lower limit of the mean from which the variance of a reward is computed


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
    """Scratch arrays for the predictions of up to ``most`` candidates of one row."""

    predictions: np.ndarray  # float64 (most, N_PREDICTIONS)
    value_variances: np.ndarray  # float64 (most,)
    map_variances: np.ndarray  # float64 (most,)
    keys: np.ndarray  # int64 (most,), index of the action's key, or -1
    mapped: np.ndarray  # float32 (2, key width), product of context and map, and its variances
    weights: np.ndarray  # float64 (N_PREDICTIONS,), weights of the ridge regression
    inverse: np.ndarray  # float64 (N_PREDICTIONS, N_PREDICTIONS), inverse of the ridge regression's matrix
    ridge: np.ndarray  # float64 (1,), ridge of the linear models in this row's context


@inner_allocating
def new_room(width, most):
    """Return scratch arrays for up to ``most`` candidates and a map of keys of ``width`` features."""
    return PredictionRoom(
        empty((most, N_PREDICTIONS), np.float64),
        empty(most, np.float64),
        empty(most, np.float64),
        empty(most, np.int64),
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
        likely = min(max(mean, _LEAST_MEAN), 1.0 - _LEAST_MEAN)
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
    of_others = own / max(1.0 - own, _LEAST_DOUBT)
    of_map = 0.0
    for i in range(actions.size):
        p = room.predictions[i, PROBABILITY]
        gradient = 1.0 - p if i == chosen else -p
        gradient = reward * gradient + (1.0 - reward) * (-own if i == chosen else of_others * p)
        if abs(gradient) >= _LEAST_GRADIENT:
            curvature = max(p * (1.0 - p), _LEAST_CURVATURE) * (1.0 if i == chosen else reward)
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

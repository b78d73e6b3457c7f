"""Kernels of the reward model of :class:`CMTBandit`.

The expected reward of an action in a context is a sum of predictions:

- the *choice probability*: a softmax over the candidates, which assumes that exactly one of them is correct. Its logits
are the
  similarity of context and key, and a linear model of the context for each action.
- the *value*: a linear model of the rewards of each action, for actions that are right in many contexts.
- the *map*: a bilinear form of context and key, which lets actions with similar keys learn from one another.

The last two learn the residuals of the other predictions. A ridge regression on all of them, and on the mean reward of
the action, corrects the sum. Each prediction is made before its reward is learned, so the regression weighs each by
its accuracy on new rounds.

The weight of a feature for an action is the cell ``hash(action) + feature`` of a table, as in feature hashing
(Weinberger et al., 2009). Each weight has its own variance and learns by the steps of a Kalman filter without
covariances, as in AROW (Crammer, Kulesza and Dredze, 2009).
"""

from typing import NamedTuple

import numpy as np

from .._forest import Rows, aim_probe, mix, new_probes, row_of, value_of
from .._jit import empty, inner, inner_allocating

VALUE, VALUE_SQUARES, CHOICE, CHOICE_SQUARES = range(4)
"""Columns of the table: the weights of both linear models, and the precisions that they have gained."""

N_PREDICTIONS = 7
PROBABILITY, EXPECTED_VALUE, SIMILARITY, MEAN, NOVELTY, CONSTANT, MAPPED = range(N_PREDICTIONS)
PRIOR = np.array([1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0])
"""Weights of the predictions before any reward."""

STACK_RIDGE = 50.0
MAP_WIDTH = 256
"""Number of features of contexts and of keys that have their own weights in the map. Further features share them."""

KEYS_OF_A_BLOCK = 256
"""Number of dense keys that are compared with a context at a time."""

OF_SIMILARITY, OF_MAP = range(2)
FIRST_SCALES = np.array([8.0, 4.0])
"""Logits of a similarity of 1 and of a mapped reward of 1, before any reward."""

_MOST_FEATURES, _LEAST_SHARE = 12.0, 0.4
"""A context of more features, all equally large, has a smaller ridge in the linear models, in proportion; this is the
smallest share of the ridge. Long contexts for the same action have little in common, so weights learn in larger steps.
"""

_PRECISION_WITH_KEY = 3.0  # relative to an action without a key, which has no other predictor
_STEP_OF_SCALES = 0.1
_STEP_OF_SIMILARITY = 1.0
_LEAST_CURVATURE, _LEAST_GRADIENT = 1e-4, 1e-3
_LEAST_DOUBT = 0.02  # minimum of ``1 - p`` when the probability ``p`` of an action is divided among the others
_LARGEST = 8.0  # maximum magnitude of a prediction
_LEAST_MEAN = 0.001  # minimum mean for the variance of rewards in [0, 1]


class RewardState(NamedTuple):
    """The learned state of the model, except the rewards of each action."""

    cells: np.ndarray  # float32 (cells, 4), a power of two
    ridge: np.ndarray  # float64 (1,), the precision of a weight before any reward
    scales: np.ndarray  # float64 (2,)
    similarity: np.ndarray  # float32 (2, key features, or 0): learned weights of the product of a feature, and squares
    map: np.ndarray  # float32 (2, width of contexts, width of keys): weights and precisions; no cells without keys
    matrix: np.ndarray  # float64 (N_PREDICTIONS, N_PREDICTIONS), of the ridge regression
    target: np.ndarray  # float64 (N_PREDICTIONS,)


class KnownActions(NamedTuple):
    """Known actions and their rewards by slot. An extra slot without rewards stands for unknown actions."""

    ordered: np.ndarray  # int64 (n_actions,), ascending
    slots: np.ndarray  # int64 (n_actions,)
    counts: np.ndarray  # int64 (slots,)
    sums: np.ndarray  # float64 (slots,)


class ActionKeyTable(NamedTuple):
    """The keys of actions."""

    rows: Rows
    ordered: np.ndarray  # int64 (keys,), the actions in ascending order
    places: np.ndarray  # int64 (keys,): the row of each
    blocks: np.ndarray  # float32 (blocks, features, KEYS_OF_A_BLOCK): dense keys, read feature by feature; else empty
    comparable: bool  # whether keys and contexts have the same features


class PredictionRoom(NamedTuple):
    """Room for the predictions of one row's candidates."""

    predictions: np.ndarray  # float64 (most, N_PREDICTIONS)
    value_variances: np.ndarray  # float64 (most,)
    map_variances: np.ndarray  # float64 (most,)
    keys: np.ndarray  # int64 (most,): the row of the action's key, or -1
    mapped: np.ndarray  # float32 (2, width of keys): the context times the map, and the variances
    weights: np.ndarray  # float64 (N_PREDICTIONS,), of the ridge regression
    inverse: np.ndarray  # float64 (N_PREDICTIONS, N_PREDICTIONS)
    ridge: np.ndarray  # float64 (1,), the precision of a weight of the linear models before any reward


@inner_allocating
def new_room(state, most):
    """Return room for at most ``most`` candidates."""
    return PredictionRoom(
        empty((most, N_PREDICTIONS), np.float64),
        empty(most, np.float64),
        empty(most, np.float64),
        empty(most, np.int64),
        empty((2, state.map.shape[2]), np.float32),
        empty(N_PREDICTIONS, np.float64),
        empty((N_PREDICTIONS, N_PREDICTIONS), np.float64),
        empty(1, np.float64),
    )


@inner_allocating
def new_context_probe(rows, keys, room):
    """Return a probe for contexts, which is needed only if keys are compared with them."""
    if keys.comparable:
        return new_probes(rows, 0, rows.offsets.size - 1, 1, room)
    nothing = Rows(rows.values, rows.indices, rows.offsets, 0, False)
    return new_probes(nothing, 0, 0, 1, room)


@inner
def place_of(ordered, first, stop, value):
    """Return the place of a value among ascending ones between ``first`` and ``stop``, or ``stop`` if it is missing."""
    low, high = first, stop
    if first < stop:
        near = first + value - ordered[first]  # its place if there are no gaps
        if first <= near < stop and ordered[near] == value:
            return near
    while low < high:
        middle = (low + high) // 2
        if ordered[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low if low < stop and ordered[low] == value else stop


@inner
def solve_stack(state, room):
    """Write the inverse and the weights of the ridge regression (Gauss and Jordan; the matrix is positive definite)."""
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
    """Return the cell of an entry of a row, for the action that is hashed to ``base``."""
    feature = np.uint64(rows.indices[place]) if rows.sparse else np.uint64(place - first)
    return np.int64((base + feature) & mask)


@inner
def feature_of(rows, place, first):
    """Return the feature of an entry of a row."""
    return np.int64(rows.indices[place]) if rows.sparse else place - first


@inner
def aim_map(state, rows, row, room):
    """Multiply a context by the map: write the weights of key features, and their variances."""
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
def aim(state, keys, rows, row, probe, room):
    """Prepare ``probe`` and ``room`` for the candidates of a row."""
    if keys.comparable:
        aim_probe(probe, row_of(rows, row))
    aim_map(state, rows, row, room)
    fourth_powers = 0.0  # the inverse of the number of features, if all are equally large
    for place in range(rows.offsets[row], rows.offsets[row + 1]):
        square = np.float64(rows.values[place]) * np.float64(rows.values[place])
        fourth_powers += square * square
    room.ridge[0] = state.ridge[0] * min(max(_MOST_FEATURES * fourth_powers, _LEAST_SHARE), 1.0)


@inner
def _compare(state, keys, probe, room, i):
    """Write the similarity and the mapped reward of a candidate with a key; return its logit."""
    rows, similarity, tuned, mapped, variance = keys.rows, 0.0, 0.0, 0.0, 0.0
    first, stop = rows.offsets[room.keys[i]], rows.offsets[room.keys[i] + 1]
    width = room.mapped.shape[1]
    for place in range(first, stop):
        feature, z = feature_of(rows, place, first), np.float64(rows.values[place])
        if keys.comparable:
            product = z * np.float64(value_of(probe, feature))
            similarity += product
            tuned += product * np.float64(state.similarity[0, feature])
        if width > 0:
            j = feature % width
            mapped += z * np.float64(room.mapped[0, j])
            variance += z * z * np.float64(room.mapped[1, j])
    mapped = min(max(mapped, -_LARGEST), _LARGEST)
    room.predictions[i, SIMILARITY], room.predictions[i, MAPPED] = similarity, mapped
    room.map_variances[i] = variance
    return state.scales[OF_SIMILARITY] * similarity + tuned + state.scales[OF_MAP] * mapped


@inner
def predict(state, keys, known, rows, row, actions, n_further, probe, room):
    """Write the predictions for some actions in a context, after a call of :func:`aim` for it.

    ``n_further`` is the number of other actions that may be right. Unknown actions are like known ones without rewards.
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
        room.map_variances[i] = predictions[i, SIMILARITY] = predictions[i, MAPPED] = 0.0
        if room.keys[i] >= 0:
            choice += _compare(state, keys, probe, room, i)
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
    """Return the expected reward of a candidate."""
    mean = 0.0
    for j in range(N_PREDICTIONS):
        mean += room.weights[j] * room.predictions[i, j]
    return mean


@inner
def doubt(room, i, mean):
    """Return the uncertainty of the action's linear model and of the map, as a standard deviation.

    With a key, it is multiplied by the standard deviation of a reward in [0, 1] with this mean.
    """
    variance = room.value_variances[i] + room.map_variances[i]
    if room.keys[i] >= 0:
        likely = min(max(mean, _LEAST_MEAN), 1.0 - _LEAST_MEAN)
        variance *= likely * (1.0 - likely)
    return np.sqrt(variance)


@inner
def spread(room, i):
    """Return the standard deviation of the prediction of the ridge regression."""
    total = 0.0
    for j in range(N_PREDICTIONS):
        product = 0.0
        for k in range(N_PREDICTIONS):
            product += room.inverse[j, k] * room.predictions[i, k]
        total += room.predictions[i, j] * product
    return np.sqrt(max(total, 0.0))


@inner
def _learn_stack(state, room, i, reward):
    """Add the predictions of a candidate and its reward to the ridge regression."""
    left = reward
    for j in range(N_PREDICTIONS):
        left -= PRIOR[j] * room.predictions[i, j]
    for j in range(N_PREDICTIONS):
        state.target[j] += left * room.predictions[i, j]
        for k in range(N_PREDICTIONS):
            state.matrix[j, k] += room.predictions[i, j] * room.predictions[i, k]


@inner
def _learn_value(state, rows, row, action, left, variance, ridge):
    """Move the linear model of an action towards the residual of the other predictions."""
    base, mask, first = mix(np.uint64(action)), np.uint64(state.cells.shape[0] - 1), rows.offsets[row]
    step = left / (1.0 + variance)
    for place in range(first, rows.offsets[row + 1]):
        cell, x = _cell(rows, base, place, first, mask), np.float64(rows.values[place])
        state.cells[cell, VALUE] += np.float32(step * x / (ridge + state.cells[cell, VALUE_SQUARES]))
        state.cells[cell, VALUE_SQUARES] += np.float32(x * x)


@inner
def _learn_map(state, keys, rows, row, key, left, variance):
    """Move the map towards the residual of the other predictions."""
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
def _learn_similarity(state, keys, probe, key, gradient):
    """Learn which products of features indicate that a key suits a context (AdaGrad)."""
    first = keys.rows.offsets[key]
    for place in range(first, keys.rows.offsets[key + 1]):
        feature = feature_of(keys.rows, place, first)
        slope = np.float32(gradient) * keys.rows.values[place] * value_of(probe, feature)
        if slope != 0.0:
            state.similarity[1, feature] += slope * slope
            step = np.float32(_STEP_OF_SIMILARITY) * slope / np.sqrt(np.float32(1e-3) + state.similarity[1, feature])
            state.similarity[0, feature] += step


@inner
def _learn_choice(state, rows, row, action, gradient, curvature, ridge):
    """Move the logit of an action along a gradient of the log-likelihood (an extended Kalman filter)."""
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
def _learn_choices(state, keys, rows, row, actions, chosen, reward, probe, room):
    """Train the softmax on the chosen action, weighted by the reward, and on the others with the remaining weight."""
    own = room.predictions[chosen, PROBABILITY]
    of_others = own / max(1.0 - own, _LEAST_DOUBT)
    of_similarity = of_map = 0.0
    for i in range(actions.size):
        p = room.predictions[i, PROBABILITY]
        gradient = 1.0 - p if i == chosen else -p
        gradient = reward * gradient + (1.0 - reward) * (-own if i == chosen else of_others * p)
        if abs(gradient) >= _LEAST_GRADIENT:
            curvature = max(p * (1.0 - p), _LEAST_CURVATURE) * (1.0 if i == chosen else reward)
            ridge = room.ridge[0] * (_PRECISION_WITH_KEY if room.keys[i] >= 0 else 1.0)
            _learn_choice(state, rows, row, actions[i], gradient, curvature, ridge)
            of_similarity += gradient * room.predictions[i, SIMILARITY]
            of_map += gradient * room.predictions[i, MAPPED]
            if keys.comparable and room.keys[i] >= 0:
                _learn_similarity(state, keys, probe, room.keys[i], gradient)
    state.scales[OF_SIMILARITY] = max(1.0, state.scales[OF_SIMILARITY] + _STEP_OF_SCALES * of_similarity)
    state.scales[OF_MAP] = max(1.0, state.scales[OF_MAP] + _STEP_OF_SCALES * of_map)


@inner
def learn_reward(state, keys, known, rows, row, actions, chosen, reward, probe, room):
    """Learn the reward of an action in a context; its predictions are in ``room``."""
    left, weights = reward - expected(room, chosen), room.weights
    value, mapped = room.predictions[chosen, EXPECTED_VALUE], room.predictions[chosen, MAPPED]
    _learn_stack(state, room, chosen, reward)
    left_by_others = left + (weights[EXPECTED_VALUE] - 1.0) * value
    _learn_value(state, rows, row, actions[chosen], left_by_others, room.value_variances[chosen], room.ridge[0])
    if room.keys[chosen] >= 0 and state.map.size > 0:
        left_by_others = left + (weights[MAPPED] - 1.0) * mapped
        _learn_map(state, keys, rows, row, room.keys[chosen], left_by_others, room.map_variances[chosen])
    if actions.size > 1:
        _learn_choices(state, keys, rows, row, actions, chosen, reward, probe, room)
    place = place_of(known.ordered, 0, known.ordered.size, actions[chosen])
    known.counts[known.slots[place]] += 1
    known.sums[known.slots[place]] += reward

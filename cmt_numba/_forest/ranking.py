"""Kernels: pairwise training of the scorer.

Most rewards are 0, so a regression on rewards learns to predict 0. To return the right memory first, the scorer only
needs to rank memories. Each row therefore trains it on a *pair* of memories: the *right* memory has the highest reward,
and the *wrong* memory has the highest score among the memories with a lower reward. The *gap* is the right memory's
score minus the wrong memory's score. It is linear in the scorer's weights, and its gradient is the elementwise product
of the query and the difference of the two keys.
"""

from typing import NamedTuple

import numpy as np

from .._jit import empty, inner, inner_allocating
from .._kernels import NONE, aim_probe, find_slot, key_of, longest_key, row_of, score, value_of
from .._linear import descend
from .scorer import ScorerLoss, aim_weighted_probe

_STEEPNESS = 4.0  # logits per unit of the gap; values from 1 to 8 work equally well
_MIN_WEIGHT = np.float32(-1.0)  # with theta = -1 a feature has no effect; a smaller theta would penalise matches


class Comparison(NamedTuple):
    """Scratch space for comparing the memories of one row."""

    slots: np.ndarray  # int64 (k,): slot of each memory, NONE if the memory was removed
    scores: np.ndarray  # float32 (k,): score of each memory
    features: np.ndarray  # int64 (2 * longest key,): features in which the gradient of the gap is not 0
    gradient: np.ndarray  # float32 (2 * longest key,): gradient of the gap with respect to these features' weights


@inner_allocating
def new_comparison(keys, k):
    """Return scratch space for comparing ``k`` memories."""
    most = 2 * longest_key(keys)
    return Comparison(empty(k, np.int64), empty(k, np.float32), empty(most, np.int64), empty(most, np.float32))


@inner
def _score_memories(keys, scorer, probe, rows, row, hits, comparison):
    aim_weighted_probe(probe, row_of(rows, row), scorer)
    for i in range(comparison.slots.size):
        comparison.slots[i] = find_slot(keys, hits.ids[row, i])
        if comparison.slots[i] != NONE:
            comparison.scores[i] = score(keys, probe, comparison.slots[i])


@inner
def _find_right(comparison, rewards, row):
    """Return the position of the memory with the highest reward, then score, or NONE if all were removed."""
    right = NONE
    for i in range(comparison.slots.size):
        if comparison.slots[i] == NONE:
            continue
        if (
            right == NONE
            or rewards[row, i] > rewards[row, right]
            or (rewards[row, i] == rewards[row, right] and comparison.scores[i] > comparison.scores[right])
        ):
            right = np.int64(i)
    return right


@inner
def _find_wrong(comparison, rewards, row, right):
    """Return the position of the highest score among memories with a lower reward than the right one, or NONE."""
    wrong = NONE
    for i in range(comparison.slots.size):
        if comparison.slots[i] == NONE or rewards[row, i] >= rewards[row, right]:
            continue
        if wrong == NONE or comparison.scores[i] > comparison.scores[wrong]:
            wrong = np.int64(i)
    return wrong


@inner
def _find_gradient(keys, probe, right, wrong, comparison):
    """Write the nonzero entries of the gap's gradient for the probe's unweighted query; return their number."""
    z, other = key_of(keys, right), key_of(keys, wrong)
    n = 0
    if keys.sparse:
        i, j = z.a, other.a  # merge the two keys, whose features ascend
        while i < z.b or j < other.b:
            feature = np.int64(min(_feature_at(z, i), _feature_at(other, j)))
            difference = np.float32(0.0)
            if _feature_at(z, i) == feature:
                difference += z.values[i]
                i += 1
            if _feature_at(other, j) == feature:
                difference -= other.values[j]
                j += 1
            n = _enter(comparison, n, feature, value_of(probe, feature) * difference)
    else:
        for i in range(z.b - z.a):
            difference = z.scale * np.float32(z.values[z.a + i]) - other.scale * np.float32(other.values[other.a + i])
            n = _enter(comparison, n, i, probe.values[i] * difference)
    return n


@inner
def _feature_at(x, i):
    """Return the feature of cell ``i`` of a sparse row or, past the last cell, 2**31, which is above all features."""
    return np.int64(x.indices[i]) if i < x.b else np.int64(1 << 31)


@inner
def _enter(comparison, n, feature, slope):
    """Append a nonzero entry to the gradient; return the new number of entries."""
    if slope == 0.0:
        return n
    comparison.features[n] = feature
    comparison.gradient[n] = slope
    return n + 1


@inner
def _descend(parameters, scorer, comparison, n, slope):
    """Take an AdaGrad step. ``slope`` is the derivative of the loss with respect to the gap."""
    theta, squares = scorer.theta, scorer.squares
    rate, slope = np.float32(parameters.scorer_learning_rate), np.float32(slope)
    for i in range(n):
        feature = comparison.features[i]
        slope_here = slope * comparison.gradient[i]
        squares[feature] += slope_here * slope_here
        step = descend(squares[feature], slope_here, rate)
        theta[feature] = max(theta[feature] - step, _MIN_WEIGHT)


@inner
def train_on_pair(parameters, keys, scorer, probe, feedback, row, comparison):
    """Train the scorer on a row's pair of memories. Skip rows whose stored memories have equal rewards."""
    rows, rewards = feedback.rows, feedback.rewards
    _score_memories(keys, scorer, probe, rows, row, feedback.hits, comparison)
    right = _find_right(comparison, rewards, row)
    wrong = _find_wrong(comparison, rewards, row, right) if right != NONE else NONE
    if wrong == NONE:
        return
    aim_probe(probe, row_of(rows, row))
    n = _find_gradient(keys, probe, comparison.slots[right], comparison.slots[wrong], comparison)
    worth = np.float64(rewards[row, right] - rewards[row, wrong])
    gap = np.float64(comparison.scores[right] - comparison.scores[wrong])
    if parameters.scorer_loss == ScorerLoss.CONTRAST:
        _descend(parameters, scorer, comparison, n, -worth * _STEEPNESS / (1.0 + np.exp(_STEEPNESS * gap)))
    else:
        raise ValueError("train_on_pair has no rule for this scorer_loss")

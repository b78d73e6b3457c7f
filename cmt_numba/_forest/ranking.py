"""Kernels: what the scorer learns from how the rewards of a row's memories compare.

Most rewards are 0, so a scorer that is regressed on them learns to say 0. To return the right memory first, it need not
know what any memory is worth, only which of two is worth more. So of a row's memories a *pair* teaches it: the *right*
one, which has the highest reward, and the *wrong* one, which of those with a lower reward it is most likely to return
instead. The *gap*, by which the right one's score is the higher, is linear in the scorer's weights; its gradient is the
query times the difference of the two keys, feature by feature.
"""

from typing import NamedTuple

import numpy as np

from .._jit import empty, inner, inner_allocating
from .adagrad import descend
from .key_store import find_slot, key_of, longest_key
from .rows import row_of
from .scorer import ScorerLoss, aim_probe, aim_weighted_probe, score, value_of
from .state import NONE

_STEEPNESS = 4.0  # logits per unit of the gap: a pair that is well in order teaches less; any from 1 to 8 will do
_MARGIN = 0.2  # the gap that MIRA asks for, per unit of the difference between the rewards
_AGGRESSIVENESS = 10.0  # the cap on MIRA's step, in learning rates: so one rate does for MIRA and AdaGrad
_LEAST_WEIGHT = np.float32(-1.0)  # where a feature counts for nothing; below, sharing it would count against a memory
_TINY = np.float32(1e-20)  # keeps 0 / 0 away where a square is too small for a float32


class Comparison(NamedTuple):
    """Room for what is worked out about the memories of one row."""

    slots: np.ndarray  # int64 (k,): NONE where the memory has gone
    scores: np.ndarray  # float32 (k,)
    features: np.ndarray  # int64: those in which the two memories of the pair differ
    gradient: np.ndarray  # float32: of the gap, by weights of these features


@inner_allocating
def new_comparison(keys, k):
    """Return room to compare ``k`` memories."""
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
    """Return which memory has the highest reward, of equal ones the highest score; NONE if all have gone."""
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
    """Return which memory with a lower reward than the right one has the highest score; NONE if there is none."""
    wrong = NONE
    for i in range(comparison.slots.size):
        if comparison.slots[i] == NONE or rewards[row, i] >= rewards[row, right]:
            continue
        if wrong == NONE or comparison.scores[i] > comparison.scores[wrong]:
            wrong = np.int64(i)
    return wrong


@inner
def _find_gradient(keys, probe, right, wrong, comparison):
    """Write the gap's gradient, by features, for the probe's unweighted query; return its number of entries."""
    z, other = key_of(keys, right), key_of(keys, wrong)
    n = 0
    if keys.sparse:
        i, j = z.a, other.a  # keys list their features in rising order, so both are gone through side by side
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
    """Return the feature of cell ``i`` of a sparse row; after the last, one that is larger than all."""
    return np.int64(x.indices[i]) if i < x.b else np.int64(1 << 31)


@inner
def _enter(comparison, n, feature, slope):
    """Append an entry to the gradient, which has ``n``, if it is not 0; return how many it has then."""
    if slope == 0.0:
        return n
    comparison.features[n] = feature
    comparison.gradient[n] = slope
    return n + 1


@inner
def _descend(parameters, scorer, comparison, n, slope):
    """Take an AdaGrad step against ``slope``, the loss's slope in the gap."""
    theta, squares = scorer.theta, scorer.squares
    rate, slope = np.float32(parameters.scorer_learning_rate), np.float32(slope)
    for i in range(n):
        feature = comparison.features[i]
        slope_here = slope * comparison.gradient[i]
        squares[feature] += slope_here * slope_here
        step = descend(squares[feature], slope_here, rate)
        theta[feature] = max(theta[feature] - step, _LEAST_WEIGHT)


@inner
def _widen(parameters, scorer, comparison, n, shortfall):
    """Widen the gap by ``shortfall`` by the smallest change of the weights (MIRA, the passive-aggressive step).

    The step is capped, for two memories that hardly differ would take a huge one.
    """
    total = np.float32(0.0)
    for i in range(n):
        total += comparison.gradient[i] * comparison.gradient[i]
    if total < _TINY:
        return
    amount = np.float32(min(shortfall / total, _AGGRESSIVENESS * parameters.scorer_learning_rate))
    theta = scorer.theta
    for i in range(n):
        feature = comparison.features[i]
        theta[feature] = max(theta[feature] + amount * comparison.gradient[i], _LEAST_WEIGHT)


@inner
def train_on_pair(parameters, keys, scorer, probe, feedback, row, comparison):
    """Train the scorer to tell a row's right memory from its wrong one, if it has such a pair."""
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
    if parameters.scorer_loss != ScorerLoss.MIRA:
        _descend(parameters, scorer, comparison, n, -worth * _STEEPNESS / (1.0 + np.exp(_STEEPNESS * gap)))
    elif gap < _MARGIN * worth:
        _widen(parameters, scorer, comparison, n, _MARGIN * worth - gap)

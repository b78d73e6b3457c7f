"""Kernels: the global scorer f(x, z), which compares a query with a key.

f is the dot product of query and key with each feature's product weighted by ``1 + theta``, where ``theta`` is learned.
It starts as the cosine similarity. A query is prepared as a :class:`Probe` once, and then compared with many keys.
"""

from enum import IntEnum

import numpy as np

from .._jit import inner
from .._kernels import aim_probe, cell_for, key_of, value_of
from .._linear import descend


class ScorerLoss(IntEnum):
    """The loss functions of the scorer."""

    REGRESSION = 0
    CONTRAST = 1


@inner
def aim_weighted_probe(probe, x, scorer):
    """Prepare ``probe`` for row ``x`` with each feature weighted by ``1 + theta``."""
    aim_probe(probe, x)
    theta = scorer.theta
    if theta.size == 0:
        return
    for i in range(x.a, x.b):
        feature = np.int64(x.indices[i]) if x.indices.size > 0 else i - x.a
        cell = cell_for(probe, feature) if probe.features.size > 0 else feature
        probe.values[cell] = x.values[i] * (np.float32(1.0) + theta[feature])


@inner
def train_scorer(parameters, keys, scorer, probe, slot, reward):
    """Take an AdaGrad step from a memory's score to its reward; ``probe`` is the unweighted query."""
    z, theta, squares = key_of(keys, slot), scorer.theta, scorer.squares
    sparse, rate = keys.sparse, np.float32(parameters.scorer_learning_rate)
    value = np.float32(0.0)
    for i in range(z.a, z.b):
        feature = np.int64(z.indices[i]) if sparse else i - z.a
        value += value_of(probe, feature) * z.scale * np.float32(z.values[i]) * (np.float32(1.0) + theta[feature])
    slope = value - reward
    for i in range(z.a, z.b):
        feature = np.int64(z.indices[i]) if sparse else i - z.a
        gradient = slope * value_of(probe, feature) * z.scale * np.float32(z.values[i])
        squares[feature] += gradient * gradient
        theta[feature] -= descend(squares[feature], gradient, rate)

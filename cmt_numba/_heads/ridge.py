"""Kernels: online ridge regression from keys to vectors.

Each component of a vector is a target. The dual is solved one row at a time. The softness of a row is the ridge penalty
divided by the row's weight. The indices of sparse rows are rows of the weights, or -1 for features without weights.
"""

from typing import NamedTuple

import numpy as np

from .._jit import empty, inner, inner_fastmath, kernel, release
from .._kernels import NONE, dot, enter_place, find_place, hash_feature, row_of, squared_length


class Expectation(NamedTuple):
    """A linear map from keys to vectors."""

    weights: np.ndarray  # float32, shape (features, components)
    bias: np.ndarray  # float32, shape (components,)


@inner
def _bits_of(table):
    bits = 0
    while 1 << bits < table.size:
        bits += 1
    return bits


@kernel
def enter_features(table, features, first):
    """Enter the places of ``features[first:]`` in a hash table whose size is a power of two."""
    bits = _bits_of(table)
    for place in range(first, features.size):
        enter_place(table, place, hash_feature(features[place], bits))


@kernel
def find_features(table, features, wanted, places):
    """Write the place of each wanted feature, or -1 if it is not in the hash table."""
    bits = _bits_of(table)
    for i in range(wanted.size):
        cell = find_place(table, features, wanted[i], hash_feature(wanted[i], bits))
        places[i] = table[cell] if cell >= 0 else NONE


@inner_fastmath
def _add_to(vector, scale, other):
    for i in range(vector.size):
        vector[i] += scale * other[i]


@inner
def _expect(expectation, rows, row, expected):
    """Write the vector predicted for a row."""
    x = row_of(rows, row)
    for i in range(expected.size):
        expected[i] = expectation.bias[i]
    for i in range(x.a, x.b):
        place = np.int64(x.indices[i]) if rows.sparse else i - x.a
        if place != NONE:
            _add_to(expected, x.values[i], expectation.weights[place])


@inner
def _length_of(rows, row):
    """Return the squared length of a row, including the constant feature of the bias."""
    return np.float32(1.0) + squared_length(row_of(rows, row))


@inner
def _change(expectation, rows, row, scale, vector):
    """Add a multiple of the outer product of a row and a vector to the map."""
    x = row_of(rows, row)
    _add_to(expectation.bias, scale, vector)
    for i in range(x.a, x.b):
        place = np.int64(x.indices[i]) if rows.sparse else i - x.a
        _add_to(expectation.weights[place], scale * x.values[i], vector)


@kernel
def expect_rows(expectation, rows, first, stop, expected):
    """Write the vectors predicted for rows ``first:stop``."""
    for row in range(first, stop):
        _expect(expectation, rows, row, expected[row])


@kernel
def learn_expectations(expectation, rows, order, targets, duals, softnesses):
    """Train the map in one pass of dual coordinate ascent over the rows. A row's dual variable is a vector.

    ``softnesses``, float32 of shape (rows,), holds the ridge penalty divided by the weight of each row. Writes the map
    and ``duals``.
    """
    change = empty(targets.shape[1], np.float32)
    for row in order:
        softness = softnesses[row]
        _expect(expectation, rows, row, change)
        step = np.float32(1.0) / (_length_of(rows, row) + softness)
        for i in range(change.size):
            change[i] = step * (targets[row, i] - change[i] - softness * duals[row, i])
            duals[row, i] += change[i]
        _change(expectation, rows, row, np.float32(1.0), change)
    release(change)


@kernel
def learn_rewards(expectation, rows, pairs, vectors, rewards, regularization):
    """Train the map to predict rewards: the product of a row's prediction and a vector approaches the vector's reward.

    ``pairs[i]`` is the row of ``vectors[i]`` and ``rewards[i]``. Each step reduces the error by the same fraction as a
    step of :func:`learn_expectations`. Writes the map.
    """
    expected = empty(vectors.shape[1], np.float32)
    for i in range(pairs.size):
        _expect(expectation, rows, pairs[i], expected)
        size = _length_of(rows, pairs[i]) * dot(vectors[i], 0, vectors[i], 0, expected.size)
        short = np.float32(rewards[i]) - dot(expected, 0, vectors[i], 0, expected.size)
        step = short / (size + np.float32(regularization))
        _change(expectation, rows, pairs[i], step, vectors[i])
    release(expected)

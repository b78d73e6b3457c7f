"""Kernels: online ridge regression from keys to vectors.

Each component of a vector is a target. The dual is solved one row at a time. For sparse keys, only features that have
occurred have weights. The softness of a row is the ridge penalty divided by the row's weight.
"""

from typing import Annotated, NamedTuple

import numpy as np

from .._forest import NONE, Rows, dot, enter_place, find_place, hash_feature, kind_of, resized, row_of, squared_length
from .._jit import empty, inner, inner_fastmath, kernel, release

_SMALLEST_BITS = 4
_EMPTY = np.empty(0, np.int32)


class ExpectationParameters(NamedTuple):
    n_features: int
    sparse: bool


class Expectation(NamedTuple):
    """A linear map from keys to vectors."""

    parameters: ExpectationParameters
    weights: Annotated[np.ndarray, kind_of(np.float32, "places", "components")]  # one row per feature with a position
    bias: Annotated[np.ndarray, kind_of(np.float32, "components")]
    # sparse keys only: hash table of feature positions
    table: Annotated[np.ndarray, kind_of(np.int32, "cells of the table")]
    features: Annotated[np.ndarray, kind_of(np.int32, "features")]  # sparse keys only: feature at each position
    n_places: Annotated[np.ndarray, kind_of(np.int64, 1)]  # number of positions in use


def new_expectation(parameters: ExpectationParameters, n_components: int) -> Expectation:
    """Return a map that predicts the zero vector."""
    n_places = 0 if parameters.sparse else parameters.n_features
    return Expectation(
        parameters,
        np.zeros((n_places, n_components), np.float32),
        np.zeros(n_components, np.float32),
        np.full(1 << _SMALLEST_BITS, NONE, np.int32) if parameters.sparse else _EMPTY,
        _EMPTY,
        np.array([n_places]),
    )


def enter_rows(expectation: Expectation, rows: Rows) -> Expectation:
    """Give every feature of the rows a position; return the map or, if it was full, a larger copy."""
    if not rows.sparse:
        return expectation
    features = np.unique(rows.indices)
    known = np.empty(features.size, np.bool_)
    find_known(expectation, features, known)
    features = features[~known]
    used = int(expectation.n_places[0])
    needed, capacity = used + features.size, expectation.weights.shape[0]
    if needed > capacity:
        capacity = max(needed, 2 * capacity)
        weights, places = resized(expectation.weights, capacity, fill=0.0), resized(expectation.features, capacity)
        bits = _SMALLEST_BITS
        while 1 << bits < 2 * capacity:
            bits += 1
        table = np.full(1 << bits, NONE, np.int32)
        known = expectation.features[:used]
        expectation = expectation._replace(
            weights=weights, features=places, table=table, n_places=np.zeros_like(expectation.n_places)
        )
        enter_features(expectation, known)
    enter_features(expectation, features)
    return expectation


@inner
def _bits_of(table):
    bits = 0
    while 1 << bits < table.size:
        bits += 1
    return bits


@inner
def _place_of(expectation, feature, bits):
    if not expectation.parameters.sparse:
        return np.int64(feature)
    cell = find_place(expectation.table, expectation.features, feature, hash_feature(feature, bits))
    return np.int64(expectation.table[cell]) if cell >= 0 else NONE


@kernel
def find_known(expectation, features, known):
    """Write whether each feature has a position to ``known``, bool of shape (features,)."""
    bits = _bits_of(expectation.table)
    for i in range(features.size):
        known[i] = _place_of(expectation, np.int64(features[i]), bits) != NONE


@kernel
def enter_features(expectation, features):
    """Give features that have no position yet the next positions. The arrays must have room."""
    bits = _bits_of(expectation.table)
    for i in range(features.size):
        place = expectation.n_places[0]
        expectation.features[place] = features[i]
        enter_place(expectation.table, place, hash_feature(features[i], bits))
        expectation.n_places[0] += 1


@inner_fastmath
def _add_to(vector, scale, other):
    for i in range(vector.size):
        vector[i] += scale * other[i]


@inner
def _expect(expectation, rows, row, bits, expected):
    """Write the vector predicted for a row."""
    x = row_of(rows, row)
    for i in range(expected.size):
        expected[i] = expectation.bias[i]
    for i in range(x.a, x.b):
        feature = np.int64(x.indices[i]) if expectation.parameters.sparse else i - x.a
        place = _place_of(expectation, feature, bits)
        if place != NONE:
            _add_to(expected, x.values[i], expectation.weights[place])


@inner
def _length_of(rows, row):
    """Return the squared length of a row, including the constant feature of the bias."""
    return np.float32(1.0) + squared_length(row_of(rows, row))


@inner
def _change(expectation, rows, row, bits, scale, vector):
    """Add a multiple of the outer product of a row and a vector to the map."""
    x = row_of(rows, row)
    _add_to(expectation.bias, scale, vector)
    for i in range(x.a, x.b):
        feature = np.int64(x.indices[i]) if expectation.parameters.sparse else i - x.a
        _add_to(expectation.weights[_place_of(expectation, feature, bits)], scale * x.values[i], vector)


@kernel
def expect_rows(expectation, rows, first, stop, expected):
    """Write the vectors predicted for rows ``first:stop``. Unknown features are ignored."""
    bits = _bits_of(expectation.table)
    for row in range(first, stop):
        _expect(expectation, rows, row, bits, expected[row])


@kernel
def learn_expectations(expectation, rows, order, targets, duals, softnesses):
    """Train the map in one pass of dual coordinate ascent over the rows. A row's dual variable is a vector.

    ``softnesses``, float32 of shape (rows,), holds the ridge penalty divided by the weight of each row. Writes the map
    and ``duals``.
    """
    bits = _bits_of(expectation.table)
    change = empty(targets.shape[1], np.float32)
    for row in order:
        softness = softnesses[row]
        _expect(expectation, rows, row, bits, change)
        step = np.float32(1.0) / (_length_of(rows, row) + softness)
        for i in range(change.size):
            change[i] = step * (targets[row, i] - change[i] - softness * duals[row, i])
            duals[row, i] += change[i]
        _change(expectation, rows, row, bits, np.float32(1.0), change)
    release(change)


@kernel
def learn_rewards(expectation, rows, pairs, vectors, rewards, regularization):
    """Train the map to predict rewards: the product of a row's prediction and a vector approaches the vector's reward.

    ``pairs[i]`` is the row of ``vectors[i]`` and ``rewards[i]``. Each step reduces the error by the same fraction as a
    step of :func:`learn_expectations`. Writes the map.
    """
    bits = _bits_of(expectation.table)
    expected = empty(vectors.shape[1], np.float32)
    for i in range(pairs.size):
        _expect(expectation, rows, pairs[i], bits, expected)
        size = _length_of(rows, pairs[i]) * dot(vectors[i], 0, vectors[i], 0, expected.size)
        short = np.float32(rewards[i]) - dot(expected, 0, vectors[i], 0, expected.size)
        step = short / (size + np.float32(regularization))
        _change(expectation, rows, pairs[i], bits, step, vectors[i])
    release(expected)

"""Kernels for linear models of rewards, updated by recursive least squares.

The reward of an action ``a`` in a context ``x`` is modelled as ``beta . z + theta_a . x``, where ``z`` are features of
the pair of context and action. This is the hybrid model of Li et al. (2010), Algorithm 2. Without shared features it is
their disjoint model (Algorithm 1), and without context features it is one model for all actions.

Algorithm 2 maintains the matrices ``A0`` (``shared_matrix``), ``A_a`` (``matrices``) and ``B_a`` (``crossed``). With
``G_a = A_a^-1 B_a`` (``regressed``) and ``h_a = A_a^-1 b_a`` (``offsets``), which are least-squares regressions on the
contexts of the action, its formulas become

- ``u = z - G_a^T x``, the part of the shared features that the contexts of the action do not explain,
- mean ``= h_a . x + beta . u``,
- variance ``= x^T A_a^-1 x + u^T A0^-1 u``.

Each reward adds one row to each regression. With ``s = 1 + x^T A_a^-1 x`` and ``e = reward - h_a . x``, the updates of
``A0`` combine to a single one of rank one, ``A0 += u u^T / s`` and ``b0 += u e / s``. The formula of Sherman and
Morrison updates all inverses.
"""

from typing import NamedTuple

import numpy as np

from .._jit import by_reference, empty, inner, inner_called, inner_fastmath, kernel, release


class Linear(NamedTuple):
    """The models of all actions by slot, for ``d`` context features and ``k`` shared features; float64."""

    matrices: np.ndarray  # (slots, d, d)
    inverses: np.ndarray  # (slots, d, d)
    crossed: np.ndarray  # (slots, d, k)
    regressed: np.ndarray  # (slots, d, k)
    targets: np.ndarray  # (slots, d)
    offsets: np.ndarray  # (slots, d)
    shared_matrix: np.ndarray  # (k, k)
    shared_inverse: np.ndarray  # (k, k)
    shared_target: np.ndarray  # (k,)
    shared: np.ndarray  # (k,)
    counts: np.ndarray  # int64 (slots,), rewards learned


class ActionPairs(NamedTuple):
    """Pairs of a context and an action."""

    contexts: np.ndarray  # float64 (rows, d)
    rows: np.ndarray  # int64 (pairs,), of contexts
    slots: np.ndarray  # int64 (pairs,)
    shared: np.ndarray  # float64 (pairs, k)


@inner
def _add(y, x, factor):
    """Add ``factor * x`` to a vector."""
    if factor != 0.0:
        for i in range(x.size):
            y[i] += factor * x[i]


@inner_called
def _multiply(matrix, x, product):
    """Write the product of a symmetric matrix and a vector."""
    for j in range(product.size):
        product[j] = 0.0
    for i in range(x.size):
        _add(product, matrix[i], x[i])


@inner_fastmath
def _dot(x, y):
    """Return the dot product of two vectors."""
    total = 0.0
    for i in range(x.size):
        total += x[i] * y[i]
    return total


@inner_called
def _quadratic(matrix, x):
    """Return ``x^T matrix x``, reading half of the symmetric matrix."""
    total = 0.0
    for i in range(x.size):
        total += x[i] * (2.0 * _dot(matrix[i, :i], x[:i]) + matrix[i, i] * x[i])
    return total


@inner_called
def _unexplained(regressed, x, z, u):
    """Write the part of shared features that the context does not explain: ``z - regressed^T x``."""
    for j in range(z.size):
        u[j] = z[j]
    for i in range(x.size):
        _add(u, regressed[i], -x[i])


@inner_called
def _add_outer(matrix, x, y, factor):
    """Add ``factor * x y^T`` to a matrix."""
    for i in range(x.size):
        _add(matrix[i], y, factor * x[i])


@inner_called
def _error(matrix, x, gain, product):
    """Return the relative error of ``matrix gain = x``."""
    _multiply(matrix, gain, product)
    worst, largest = 0.0, 0.0
    for i in range(x.size):
        worst = max(worst, abs(product[i] - x[i]))
        largest = max(largest, abs(x[i]))
    return worst / largest if largest > 0.0 else 0.0


@kernel
def score_pairs(linear, pairs, means, variances):
    """Write the expected reward of each pair, and its variance in units of the variance of a reward."""
    linear = by_reference(linear)
    pairs = by_reference(pairs)
    k = linear.shared.size
    u = empty(k, np.float64)
    for i in range(pairs.slots.size):
        x, slot = pairs.contexts[pairs.rows[i]], pairs.slots[i]
        _unexplained(linear.regressed[slot], x, pairs.shared[i], u)
        means[i] = _dot(linear.offsets[slot], x) + _dot(linear.shared, u)
        variances[i] = max(_quadratic(linear.inverses[slot], x) + _quadratic(linear.shared_inverse, u), 0.0)
    release(u)


@kernel
def learn_pairs(linear, pairs, rewards, first, tolerance, anyway):
    """Learn the rewards of pairs in order from ``first`` on, and return the first pair that was not learned.

    Learning stops before a pair for which the relative error of an inverse exceeds ``tolerance``, so that the caller
    can recompute it. With ``anyway``, the sums of such a first pair are updated, but not the inverses, and learning
    stops after it.
    """
    linear = by_reference(linear)
    pairs = by_reference(pairs)
    d, k, n_learned = pairs.contexts.shape[1], linear.shared.size, 0
    gain, product = empty(d, np.float64), empty(d, np.float64)
    u, shared_gain, shared_product = empty(k, np.float64), empty(k, np.float64), empty(k, np.float64)
    for i in range(first, pairs.slots.size):
        x, z, slot = pairs.contexts[pairs.rows[i]], pairs.shared[i], pairs.slots[i]
        _multiply(linear.inverses[slot], x, gain)
        _unexplained(linear.regressed[slot], x, z, u)
        _multiply(linear.shared_inverse, u, shared_gain)
        exact = (
            _error(linear.matrices[slot], x, gain, product) <= tolerance
            and _error(linear.shared_matrix, u, shared_gain, shared_product) <= tolerance
        )
        if not exact and (i > first or not anyway):
            break
        scale = 1.0 + max(_dot(gain, x), 0.0)
        shared_scale = scale + max(_dot(shared_gain, u), 0.0)
        residual = rewards[i] - _dot(linear.offsets[slot], x)
        shared_residual = residual - _dot(linear.shared, u)
        _add_outer(linear.matrices[slot], x, x, 1.0)
        _add_outer(linear.crossed[slot], x, z, 1.0)
        _add(linear.targets[slot], x, rewards[i])
        _add_outer(linear.shared_matrix, u, u, 1.0 / scale)
        _add(linear.shared_target, u, residual / scale)
        linear.counts[slot] += 1
        n_learned += 1
        if not exact:
            break
        _add_outer(linear.inverses[slot], gain, gain, -1.0 / scale)
        _add_outer(linear.regressed[slot], gain, u, 1.0 / scale)
        _add(linear.offsets[slot], gain, residual / scale)
        _add_outer(linear.shared_inverse, shared_gain, shared_gain, -1.0 / shared_scale)
        _add(linear.shared, shared_gain, shared_residual / shared_scale)
    release((gain, product, u, shared_gain, shared_product))
    return first + n_learned

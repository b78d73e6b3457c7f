"""Kernels for linear models of rewards, updated by recursive least squares.

The reward of an action ``a`` in a context ``x`` is modelled as ``beta . z + theta_a . x``, where ``z`` contains the
shared features of the context-action pair. This is the hybrid model of Li et al. (2010), Algorithm 2. Without shared
features it is their disjoint model (Algorithm 1), and without context features it is a single model for all actions.

Algorithm 2 maintains the matrices ``A0`` (``shared_matrix``), ``A_a`` (``matrices``) and ``B_a`` (``crossed``). Let
``G_a = A_a^-1 B_a`` (``regressed``) and ``h_a = A_a^-1 b_a`` (``offsets``). Both are least-squares regressions on the
action's contexts. The formulas of the algorithm become

- ``u = z - G_a^T x``, the part of the shared features that the action's contexts do not explain,
- mean ``= h_a . x + beta . u``,
- variance ``= x^T A_a^-1 x + u^T A0^-1 u``.

Symmetric matrices are packed: the rows of the lower triangle are stored one after another. ``x^T A_a^-1 x`` is then the
dot product of a packed inverse with the pairwise products of the features of ``x``, which are computed once for all
actions.

Each reward adds one row to each regression. With ``s = 1 + x^T A_a^-1 x`` and ``e = reward - h_a . x``, the updates of
``A0`` combine into one rank-one update, ``A0 += u u^T / s`` and ``b0 += u e / s``. The Sherman-Morrison formula updates
all inverses.
"""

from typing import NamedTuple

import numpy as np

from .._jit import by_reference, empty, inner, inner_called, inner_fastmath, kernel, release


class Linear(NamedTuple):
    """Linear models of all actions by slot, in float64, for ``d`` context features and ``k`` shared features."""

    matrices: np.ndarray  # (slots, d (d + 1) / 2), packed ``A_a``
    inverses: np.ndarray  # (slots, d (d + 1) / 2), packed ``A_a^-1``
    crossed: np.ndarray  # (slots, d, k), ``B_a``
    regressed: np.ndarray  # (slots, d, k), ``G_a``
    targets: np.ndarray  # (slots, d), ``b_a``
    offsets: np.ndarray  # (slots, d), ``h_a``
    shared_matrix: np.ndarray  # (k (k + 1) / 2,), packed ``A0``
    shared_inverse: np.ndarray  # (k (k + 1) / 2,), packed ``A0^-1``
    shared_target: np.ndarray  # (k,), ``b0``
    shared: np.ndarray  # (k,), ``beta``
    counts: np.ndarray  # int64 (slots,), number of learned rewards


class ActionPairs(NamedTuple):
    """Context-action pairs."""

    contexts: np.ndarray  # float64 (rows, d)
    rows: np.ndarray  # int64 (pairs,), index of the pair's context
    slots: np.ndarray  # int64 (pairs,), slot of the pair's action, or NONE if it is unknown
    shared: np.ndarray  # float64 (pairs, k), shared features


@inner
def _add(y, x, factor):
    if factor != 0.0:
        for i in range(x.size):
            y[i] += factor * x[i]


@inner_fastmath
def _dot(x, y):
    total = 0.0
    for i in range(x.size):
        total += x[i] * y[i]
    return total


@inner_called
def _multiply(packed, x, product):
    first = 0
    for i in range(x.size):
        row = packed[first : first + i]
        product[i] = _dot(row, x[:i]) + packed[first + i] * x[i]
        _add(product, row, x[i])
        first += i + 1


@inner_called
def _add_square(packed, x, factor):
    """Add ``factor * x x^T`` to a packed symmetric matrix."""
    first = 0
    for i in range(x.size):
        _add(packed[first : first + i + 1], x[: i + 1], factor * x[i])
        first += i + 1


@inner_called
def _quadratic(packed, x):
    total, first = 0.0, 0
    for i in range(x.size):
        total += x[i] * (2.0 * _dot(packed[first : first + i], x[:i]) + packed[first + i] * x[i])
        first += i + 1
    return total


@inner_called
def _write_products(x, products):
    """Write the feature products whose dot product with a packed matrix is ``x^T matrix x``."""
    first = 0
    for i in range(x.size):
        for j in range(i):
            products[first + j] = 2.0 * x[i] * x[j]
        products[first + i] = x[i] * x[i]
        first += i + 1


@inner_called
def _unexplained(regressed, x, z, u):
    """Write ``z - regressed^T x``, the part of the shared features that the context does not explain."""
    for j in range(z.size):
        u[j] = z[j]
    for i in range(x.size):
        _add(u, regressed[i], -x[i])


@inner_called
def _add_outer(matrix, x, y, factor):
    for i in range(x.size):
        _add(matrix[i], y, factor * x[i])


@inner_called
def _error(matrix, x, gain, product):
    """Return the relative residual of the equation ``matrix gain = x``."""
    _multiply(matrix, gain, product)
    worst, largest = 0.0, 0.0
    for i in range(x.size):
        worst = max(worst, abs(product[i] - x[i]))
        largest = max(largest, abs(x[i]))
    return worst / largest if largest > 0.0 else 0.0


@kernel
def score_pairs(linear, pairs, means, variances):
    """Write the expected reward of each pair and its variance, in units of the reward variance."""
    linear = by_reference(linear)
    pairs = by_reference(pairs)
    k, row = linear.shared.size, -1
    u, products = empty(k, np.float64), empty(linear.inverses.shape[1], np.float64)
    for i in range(pairs.slots.size):
        x, slot = pairs.contexts[pairs.rows[i]], pairs.slots[i]
        if pairs.rows[i] != row:
            row = pairs.rows[i]
            _write_products(x, products)
        mean, variance = _dot(linear.offsets[slot], x), _dot(linear.inverses[slot], products)
        if k > 0:
            _unexplained(linear.regressed[slot], x, pairs.shared[i], u)
            mean += _dot(linear.shared, u)
            variance += _quadratic(linear.shared_inverse, u)
        means[i], variances[i] = mean, max(variance, 0.0)
    release((u, products))


@kernel
def learn_pairs(linear, pairs, rewards, first, tolerance, anyway):
    """Learn the rewards of pairs in order, starting with ``first``. Return the first pair that was not learned.

    The kernel stops before a pair for which the relative error of an inverse exceeds ``tolerance``, and the caller
    recomputes the inverse. With ``anyway``, pair ``first`` is learned even if its inverse is inaccurate. In that case
    only its sums are updated, and the kernel stops after it.
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
        _add_square(linear.matrices[slot], x, 1.0)
        _add_outer(linear.crossed[slot], x, z, 1.0)
        _add(linear.targets[slot], x, rewards[i])
        _add_square(linear.shared_matrix, u, 1.0 / scale)
        _add(linear.shared_target, u, residual / scale)
        linear.counts[slot] += 1
        n_learned += 1
        if not exact:
            break
        _add_square(linear.inverses[slot], gain, -1.0 / scale)
        _add_outer(linear.regressed[slot], gain, u, 1.0 / scale)
        _add(linear.offsets[slot], gain, residual / scale)
        _add_square(linear.shared_inverse, shared_gain, -1.0 / shared_scale)
        _add(linear.shared, shared_gain, shared_residual / shared_scale)
    release((gain, product, u, shared_gain, shared_product))
    return first + n_learned

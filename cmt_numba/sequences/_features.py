"""Symbols that are described by numbers: what is learned of one is learned of similar ones, too."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
from sklearn.tree import DecisionTreeRegressor

_LEAVES = 16  # kinds of edits that are told apart in a round
_CELLS_AT_ONCE = 1 << 18


def features_of(symbols: tuple[Hashable, ...]) -> np.ndarray:
    """Return the numbers that describe symbols, and those of the gap behind them, which are below all others.

    Raises
    ------
    ValueError
        If the symbols are not finite numbers, or tuples of equally many.
    """
    try:
        rows = np.array([symbol if isinstance(symbol, tuple) else (symbol,) for symbol in symbols])
    except ValueError:
        rows = np.empty(0, object)
    if rows.ndim != 2 or rows.dtype.kind not in "biuf" or not np.isfinite(rows).all():
        raise ValueError("symbols must be finite numbers, or tuples of equally many, with featured=True")
    rows = rows.astype(np.float32)
    least = rows.min(axis=0)
    return np.vstack([rows, least - 2.0 * (rows.max(axis=0) - least) - 1.0])


def pooled(gradient: np.ndarray, features: np.ndarray) -> np.ndarray:
    """Return a gradient of costs that is the same for all edits of one kind: the sum of those that occurred.

    Kinds are the leaves of a regression tree, which is fitted to the gradients of the edits that occurred. An edit has
    the features of both symbols and their differences.
    """
    rows, columns = np.nonzero(gradient)
    if rows.size == 0:
        return gradient
    n, values = features.shape[0], gradient[rows, columns]
    tree = DecisionTreeRegressor(max_leaf_nodes=_LEAVES, random_state=0)
    tree.fit(_described(features, rows, columns), values)
    sums = np.bincount(tree.apply(_described(features, rows, columns)), values, tree.tree_.node_count)
    leaves = np.empty((n, n), np.int64)
    step = max(1, _CELLS_AT_ONCE // n)
    for first in range(0, n, step):
        block = np.arange(first, min(n, first + step))
        cells = np.repeat(block, n), np.tile(np.arange(n), block.size)
        leaves[block] = tree.apply(_described(features, *cells)).reshape(block.size, n)
    return sums[leaves]


def _described(features: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return the features of edits."""
    old, new = features[rows], features[columns]
    return np.hstack([old, new, np.abs(old - new)])
